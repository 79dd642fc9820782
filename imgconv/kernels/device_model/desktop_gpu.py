"""The device model of desktop GPUs: predicts the seconds of a launch from its work."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from imgconv.kernels.device_model.work import LaunchWork
from imgconv.kernels.layout import LANES

# An H200, by NVIDIA's datasheet and programming guide; of a compute unit (SM), if not said otherwise.
CLOCK = 1.75e9  # cycles in a second
MULTIPLY_ADDS = 128  # in a cycle
REGISTERS, MOST_REGISTERS = 65536, 255  # of one number; of a compute unit and of a work item
WORK_GROUPS, WORK_ITEMS, LOCAL_BYTES = 32, 2048, 200 << 10  # resident at once


@dataclass(frozen=True)
class DesktopGpuModel:
    """The parameters of the model, in cycles of a compute unit. A compute unit runs its work groups one after another:

        busy = max(multiply_adds * items / MULTIPLY_ADDS,
                   fetch * fetched + items * (read * reads + transaction * scattered + local_access * local))
        alone = wait_read * reads + wait_local * local + wait_step * steps + wait_barrier * barriers
                + wait_write * writes
        cycles = max(busy * groups of a compute unit, alone * rounds of resident groups)

    Fitted to benchmarks/measured/h200.csv.
    """

    read: float = 0.281  # a texel
    transaction: float = 1.52  # a texel that no other item of a wave reads with this one
    fetch: float = 0.405  # a texel that a work group reads for the first time
    local_access: float = 0.104  # a texel of local memory
    wait_read: float = 76.0  # a texel, if a work item is alone
    wait_local: float = 12.0  # a texel of local memory
    wait_step: float = 142.0  # a round of a loop
    wait_barrier: float = 450.0
    wait_write: float = 275.0  # a texel
    registers: int = 40  # of one number, besides those of texels; by NVIDIA's compiler
    spill: float = 4.0  # times as long if a work item runs out of registers; estimated
    launch: float = 14000.0  # 8 us, measured with NVIDIA's driver: 60 small launches in a row

    def seconds(self, work: LaunchWork, compute_units: int) -> float:
        """The predicted time of a launch on a GPU of so many compute units."""
        memory = self.read * work.reads + self.transaction * work.scattered + self.local_access * work.local
        busy = max(work.multiply_adds * work.items / MULTIPLY_ADDS, self.fetch * work.fetched + work.items * memory)
        alone = self.wait_read * work.reads + self.wait_local * work.local + self.wait_step * work.steps
        alone += self.wait_barrier * work.barriers + self.wait_write * work.writes
        rounds = ceil(work.groups / compute_units)
        cycles = max(busy * rounds, alone * ceil(rounds / self._resident_groups(work)))
        spills = LANES * work.registers + self.registers > MOST_REGISTERS
        return (self.launch + cycles * (self.spill if spills else 1.0)) / CLOCK

    def _resident_groups(self, work: LaunchWork) -> int:
        """Work groups that a compute unit runs at once."""
        registers = min(MOST_REGISTERS, LANES * work.registers + self.registers)
        most = min(WORK_GROUPS, WORK_ITEMS // work.items, int(REGISTERS // (registers * work.items)))
        return max(1, min(most, LOCAL_BYTES // work.local_bytes) if work.local_bytes else most)


DESKTOP_GPU = DesktopGpuModel()
