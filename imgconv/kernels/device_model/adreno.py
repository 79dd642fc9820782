"""Predicts how long a launch takes on a GPU of a phone: a first-order model, and the numbers of a few Adrenos.

A launch takes the longest of three times, and what any launch costs:

    arithmetic   the issue slots of a wave, at half's or at float's rate, in whole rounds of waves over the GPU's units
    texture      the texture reads of all work items, and their accesses to local memory
    memory       the bytes that are read for the first time or written
    launch       a constant

A unit is what issues one instruction of one wave at a time. With 8 units, 9 waves take as long as 16. The model leaves
out waits for data and at barriers, caches that are too small, and what throttles a warm phone. How fast local memory is
is not documented: an access of up to 16 bytes is assumed to take as long as a texture read, and neither to overlap it.
Published times on a Snapdragon 845 are 1.06 to 2.0 times as long as predicted: `python -m benchmarks.adreno --networks
published` compares.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from types import MappingProxyType

# Work items of a full wave of an Adreno. A narrow one has half as many.
WAVE = 128
# What may take the longest: the fields of LaunchTime.
BOUNDS = ("arithmetic", "texture", "memory", "launch")


@dataclass(frozen=True)
class Gpu:
    """The rates of a GPU, with all of its units busy.

    half_slots, float_slots: issue slots of lanes in a second, in half and in any other type, if waves are full.
    narrow_slots: the same of any type with waves of 64 lanes. reads: texture reads in a second. bandwidth: bytes in a
    second. launch: seconds. compute_units: what the driver reports, CL_DEVICE_MAX_COMPUTE_UNITS. registers: of four
    floats, the most of a work item in a full wave; with more, waves are narrow. local_bytes: local memory of a compute
    unit.
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

    @property
    def name(self) -> str:
        return f"a{self.number}"


@dataclass(frozen=True)
class MachineWork:
    """The work of a launch as its machine code does it.

    half_slots, float_slots: issue slots of a work item, in half and in any other type. reads, local: texture reads and
    accesses to local memory, of all work items. moved_bytes: those that miss all caches and those written. wave_size:
    lanes of a wave. group_waves, group_bytes: waves and bytes of local memory of a work group.
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


@dataclass(frozen=True)
class LaunchTime:
    """Seconds of a launch.

    >>> LaunchTime(arithmetic=3e-5, texture=1e-5, memory=2e-5, launch=1e-5).bound
    'arithmetic'
    """

    arithmetic: float
    texture: float
    memory: float
    launch: float

    @property
    def seconds(self) -> float:
        return max(self.arithmetic, self.texture, self.memory) + self.launch

    @property
    def bound(self) -> str:
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
    return LaunchTime(arithmetic, (work.reads + work.local) / gpu.reads, work.moved_bytes / gpu.bandwidth, gpu.launch)


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
)


def _scaled(number: int, cores: int, clock: float, bandwidth: float, registers: int = 48) -> Gpu:
    """A GPU that does in each core and cycle what the Adreno 630 does; assumed. clock: in GHz."""
    factor = cores * clock / (A630.compute_units * 0.71)
    return replace(
        A630, number=number, units=A630.units // A630.compute_units * cores, compute_units=cores, registers=registers,
        half_slots=factor * A630.half_slots, float_slots=factor * A630.float_slots,
        narrow_slots=factor * A630.narrow_slots, reads=factor * A630.reads, bandwidth=0.7 * bandwidth,
    )


# Cores and registers: Mesa's freedreno_devices.py. Clocks and memory: Qualcomm's data of the Snapdragon 865 (64 bits of
# LPDDR5-5500) and of the Snapdragon 8 Gen 2 (64 bits of LPDDR5X-8400). All else is scaled from the Adreno 630.
GPUS = MappingProxyType({
    630: A630,
    650: _scaled(650, cores=3, clock=0.587, bandwidth=44e9, registers=32),
    740: _scaled(740, cores=6, clock=0.68, bandwidth=67.2e9),
})


def gpu_with(compute_units: int) -> Gpu:
    """The GPU of the table whose driver reports so many compute units, or the Adreno 630 scaled to them."""
    same = [gpu for gpu in GPUS.values() if gpu.compute_units == compute_units]
    return same[0] if same else _scaled(A630.number, compute_units, 0.71, 29.8e9)
