"""Predicts how long a launch takes on a phone's GPU: a first-order model, and the rates of some Adreno GPUs.

A launch takes the longest of three times, plus a constant cost:

    arithmetic   the issue slots of a wave, at the fp16 or fp32 rate, in whole rounds of waves over the GPU's units
    texture      the texture reads of all work items, and their accesses to local memory
    memory       the bytes that are read for the first time or written
    launch       the constant cost

Two properties of the hardware are unknown, so a launch has a range of times (`time_range`):

- Waves start in pairs, one for each processor of a core (Mesa's ir3_compiler.h). If a kernel uses more than half of a
  wave's registers, a processor holds only one wave, which reads, waits and then multiplies. It is unknown whether its
  texture reads overlap its arithmetic. The shorter time is the larger of the two, the longer time is their sum.
- A launch costs 10 us (assumed) to 30 us (an Adreno 620, in one public log).

A unit issues one instruction of one wave at a time. With 8 units, 9 waves take as long as 16. The model leaves out
waits for data and at barriers, cache misses of small caches, and throttling of a warm phone. The speed of local memory
is not documented: an access of up to 16 bytes is assumed to take as long as a texture read, and not to overlap it.
Published times on a Snapdragon 845 are 1.06 to 2.0 times as long as predicted: `python -m benchmarks.adreno --networks
published` compares.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, inf
from types import MappingProxyType

from imgconv.kernels.device_model.time_range import TimeRange

# Work items of a full wave of an Adreno. A narrow one has half as many.
WAVE = 128
# Processors of a core. Each takes a wave of every pair.
PROCESSORS = 2
# What may take the longest: the times of a LaunchTime.
BOUNDS = ("arithmetic", "texture", "memory", "launch")


@dataclass(frozen=True)
class Gpu:
    """The rates of a GPU, with all of its units busy.

    half_slots, float_slots: issue slots of lanes per second, in fp16 and in any other type, if waves are full.
    narrow_slots: the same for any type with waves of 64 lanes. reads: texture reads per second. bandwidth: bytes per
    second. launch, most_launch: the minimum and maximum cost of a launch in seconds. compute_units: the value of
    CL_DEVICE_MAX_COMPUTE_UNITS. registers: the maximum per work item in a full wave, of four floats each; with more,
    waves are narrow. local_bytes: local memory of a compute unit.
    """

    number: int
    units: int
    compute_units: int
    registers: int
    local_bytes: int
    half_slots: float
    float_slots: float
    narrow_slots: float
    reads: float
    bandwidth: float
    launch: float
    most_launch: float

    @property
    def name(self) -> str:
        return f"a{self.number}"


@dataclass(frozen=True)
class MachineWork:
    """The work of a launch in its machine code.

    half_slots, float_slots: issue slots of a work item, in fp16 and in any other type. reads, local: texture reads and
    accesses to local memory, of all work items. moved_bytes: the bytes that miss all caches or are written. wave_size:
    lanes of a wave. group_waves, group_bytes: waves and bytes of local memory of a work group. registers: of a work
    item, of four floats each; 0 if they are few.
    """

    half_slots: float
    float_slots: float
    reads: float
    moved_bytes: float
    waves: int
    wave_size: int = WAVE
    local: float = 0
    group_waves: int = 1
    group_bytes: int = 0
    registers: float = 0


@dataclass(frozen=True)
class LaunchTime:
    """Seconds of a launch. overlaps: whether a processor holds another wave that multiplies while one reads.

    >>> LaunchTime(arithmetic=3e-5, texture=1e-5, memory=2e-5, launch=1e-5).bottleneck
    'arithmetic'
    """

    arithmetic: float
    texture: float
    memory: float
    launch: float
    overlaps: bool = True

    @property
    def seconds(self) -> float:
        """With overlap in any case."""
        return max(self.arithmetic, self.texture, self.memory) + self.launch

    @property
    def pessimistic_seconds(self) -> float:
        """Without overlap where a processor holds a single wave."""
        if self.overlaps:
            return self.seconds
        return max(self.arithmetic + self.texture, self.memory) + self.launch

    @property
    def bottleneck(self) -> str:
        """The name of the longest time."""
        return max(BOUNDS, key=lambda name: getattr(self, name))


def time_of(work: MachineWork, gpu: Gpu) -> LaunchTime:
    """The predicted times of a launch."""
    busy = gpu.units
    if work.group_bytes:  # a compute unit runs as many groups at once as its local memory holds
        busy = min(busy, gpu.compute_units * max(1, gpu.local_bytes // work.group_bytes) * work.group_waves)
    lanes = ceil(work.waves / busy) * gpu.units * work.wave_size
    full = work.wave_size >= WAVE
    half, others = (gpu.half_slots, gpu.float_slots) if full else (gpu.narrow_slots, gpu.narrow_slots)
    arithmetic = lanes * (work.half_slots / half + work.float_slots / others)
    texture, memory = (work.reads + work.local) / gpu.reads, work.moved_bytes / gpu.bandwidth
    return LaunchTime(arithmetic, texture, memory, gpu.launch, waves_of_core(work, gpu) > PROCESSORS)


def waves_of_core(work: MachineWork, gpu: Gpu) -> float:
    """Returns how many waves of a launch a core holds at once, by its registers and by its local memory."""
    waves = inf
    if work.registers:
        waves = PROCESSORS * (gpu.registers * WAVE // (work.registers * work.wave_size))
    if work.group_bytes:
        waves = min(waves, gpu.local_bytes // work.group_bytes * work.group_waves)
    return waves


def time_range(time: LaunchTime, gpu: Gpu) -> TimeRange:
    """The least and the most that a launch takes: with overlap, or without it and at the most that a launch costs."""
    return TimeRange(time.pessimistic_seconds + gpu.most_launch - gpu.launch, time.seconds)


# The Adreno 630 of a Snapdragon 845, at 0.71 GHz.
A630 = Gpu(
    630,
    # Not documented. Two cores (Mesa's freedreno_devices.py). By analogy to the Adreno 640's description at
    # github.com/azhirnov/cpu-gpu-arch, each core has two processors, and each of them two schedulers of waves.
    units=8,
    compute_units=2,  # the cores; assumed
    registers=48,  # half of Mesa's reg_size_vec4
    local_bytes=1 << 15,  # of a core: Mesa's freedreno_devices.py, and its ir3.c limits a core's waves by them
    half_slots=345e9,  # 690 GFLOPS measured (tinygrad#16229)
    float_slots=234e9,  # 468 GFLOPS measured (tinygrad#16229)
    narrow_slots=173e9,  # 346 GFLOPS measured in half and in float (tinygrad#16229)
    reads=11e9,  # 16 texture units at 0.71 GHz; assumed. TFLite's published MobileNetV1 needs at least 9e9
    bandwidth=0.7 * 29.8e9,  # 64 bits of LPDDR4X-3733; the share of it that is reached is assumed
    launch=10e-6,  # assumed
    most_launch=30e-6,  # measured on an Adreno 620, driver E031.37
)


def _scaled_adreno630(number: int, cores: int, clock: float, bandwidth: float, registers: int = 48) -> Gpu:
    """A GPU that does in each core and cycle what the Adreno 630 does; assumed. clock: in GHz."""
    factor = cores * clock / (A630.compute_units * 0.71)
    return replace(
        A630, number=number, units=A630.units // A630.compute_units * cores, compute_units=cores, registers=registers,
        half_slots=factor * A630.half_slots, float_slots=factor * A630.float_slots,
        narrow_slots=factor * A630.narrow_slots, reads=factor * A630.reads, bandwidth=0.7 * bandwidth,
    )


# Cores and registers are from Mesa's freedreno_devices.py. Clocks and memory are from Qualcomm's data sheets of the
# Snapdragon 865 (64 bits of LPDDR5-5500), 888 (64 bits of LPDDR5-6400) and 8 Gen 2 (64 bits of LPDDR5X-8400). All other
# rates are scaled from the Adreno 630.
GPUS = MappingProxyType({
    630: A630,
    650: _scaled_adreno630(650, cores=3, clock=0.587, bandwidth=44e9, registers=32),
    660: _scaled_adreno630(660, cores=3, clock=0.84, bandwidth=51.2e9, registers=32),
    740: _scaled_adreno630(740, cores=6, clock=0.68, bandwidth=67.2e9),
})


def gpu_with_compute_units(compute_units: int) -> Gpu:
    """The GPU of the table whose driver reports so many compute units, or the Adreno 630 scaled to them."""
    same = [gpu for gpu in GPUS.values() if gpu.compute_units == compute_units]
    return same[0] if same else _scaled_adreno630(A630.number, compute_units, 0.71, 29.8e9)
