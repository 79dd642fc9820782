"""The device model of phones' GPUs: predicts the seconds of a launch from its work. adreno.py has the GPUs' rates."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from imgconv.kernels.device_model.adreno import (
    WAVE, Gpu, LaunchTime, MachineWork, gpu_with_compute_units, time_of, time_range,
)
from imgconv.kernels.device_model.time_range import TimeRange
from imgconv.kernels.device_model.work import LaunchWork
from imgconv.kernels.kernel_source import round_up

# Registers of four numbers that an instruction of an Adreno can name, and bytes of a texel in half.
REGISTERS, TEXEL_BYTES = 48, 8


@dataclass(frozen=True)
class MobileGpuModel:
    """The parameters of the model, in issue slots of a work item unless stated otherwise:

        slots = multiply_adds + item + read * reads + write * writes + step * steps + local_access * local
                + barrier * barriers

    Fitted to benchmarks/measured/a630.csv, which has counts from Mesa's code for an Adreno 630.
    """

    item: float = 22.8  # a work item
    read: float = 3.3  # a texel
    write: float = 6.0  # a texel
    step: float = 15.1  # a round of a loop
    local_access: float = 4.9  # a texel of local memory
    barrier: float = 180.0  # with what shares the sums there
    registers: int = 6  # besides those of texels
    spill: float = 4.0  # times as long if a work item runs out of registers; estimated
    wait: float = 100.0  # nanoseconds, a round of a loop; estimated
    hidden: float = 0.1  # of the times that a longer one hides, the part that is felt; estimated

    def seconds(self, work: LaunchWork, compute_units: int) -> float:
        """The least predicted time of a launch on a GPU with this many compute units."""
        return self.range(work, compute_units).least

    def range(self, work: LaunchWork, compute_units: int) -> TimeRange:
        """The predicted times of a launch on a GPU with this many compute units."""
        gpu = gpu_with_compute_units(compute_units)
        time = self.time(work, gpu)
        # No other group of its compute unit hides its waits.
        waits = 1e-9 * self.wait * work.steps if work.groups <= gpu.compute_units else 0.0
        felt = self.hidden * (time.arithmetic + time.texture) + waits
        return time_range(time, gpu) + TimeRange(felt, felt)

    def time(self, work: LaunchWork, gpu: Gpu) -> LaunchTime:
        """Returns the time that the launch takes on the GPU, by what it waits for."""
        slots, wave = self.slots(work), min(WAVE, round_up(work.items, WAVE // 2))
        registers = work.registers + self.registers
        if registers > REGISTERS:
            slots *= self.spill
        elif registers > gpu.registers:
            # Items that wait for each other need their registers at the same time.
            slots, wave = (slots * self.spill, wave) if work.barriers else (slots, WAVE // 2)
        half, group_waves = work.multiply_adds if work.half else 0.0, ceil(work.items / wave)
        items = work.active or work.groups * work.items
        return time_of(MachineWork(
            half, slots - half, items * work.reads, TEXEL_BYTES * work.texels, work.groups * group_waves, wave,
            items * work.local, group_waves, work.local_bytes,
            min(work.fewest_registers, REGISTERS),
        ), gpu)

    def slots(self, work: LaunchWork) -> float:
        """Issue slots of a work item that does not spill."""
        slots = work.multiply_adds + self.item + self.read * work.reads + self.write * work.writes
        return slots + self.step * work.steps + self.local_access * work.local + self.barrier * work.barriers


MOBILE_GPU = MobileGpuModel()
