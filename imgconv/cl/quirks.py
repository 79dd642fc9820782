"""Workarounds for drivers: one table of values, by platform.

docs/drivers.md lists the faults. The names in quotes are probes of tests/tools/drivers.py, which show whether a value
is still needed.
"""

from __future__ import annotations

from dataclasses import dataclass

from imgconv.build_options import BuildOptions


@dataclass(frozen=True)
class Quirks:
    """The values for one platform. The defaults are for drivers without faults.

    one_build_at_a_time: threads that build at once crash, hang or take turns ("builds collide", "builds take turns").
    kernels_for_a_worker: how many kernels are worth another process that builds; 0: none is ("builds take turns").
    one_kernel_a_program: programs of one kernel each take no longer than one of all ("programs cost no more").
    own_functions: a launch takes longer if the last one of its function had other arguments ("changed arguments").
    waits_directly: a wait of another thread takes longer than the driver's own, so first runs only are bounded.
    releases_wait: to release memory, a program or a context waits for a kernel that hangs.
    images_in_buffers: images that are parts of buffers work ("images in parts of buffers").
    caches_programs: the driver keeps what it compiled on disk. Processes that build at once may fail in its cache, or
        crash as they read a binary, which would save no time.
    understates_groups: CL_KERNEL_WORK_GROUP_SIZE is below the work group that a kernel requires and works with ("work
        groups of kernels").
    build_options: options of the driver's compiler whose effect differs from device to device: `imgconv tune` measures
        them one after the other.
    """

    one_build_at_a_time: bool = False
    kernels_for_a_worker: int = 0
    one_kernel_a_program: bool = False
    own_functions: bool = False
    waits_directly: bool = False
    releases_wait: bool = False
    images_in_buffers: bool = True
    caches_programs: bool = False
    understates_groups: bool = False
    build_options: tuple[BuildOptions, ...] = ()


QUIRKS = {
    # Version 2026.22. With 2 kernels for each worker cold loads take no less than with 3.
    "Intel(R) OpenCL": Quirks(one_build_at_a_time=True, kernels_for_a_worker=3),
    # Version 580. With 2 kernels for each worker in place of 3, on an H100 with 16 cores, cold loads of squeezenet took
    # 1.7 to 2.0 s instead of 2.1; with 1 they took no less. A launch takes 2 to 3 us longer if the last one of its
    # function had other arguments. A bounded wait adds 0.05 to 0.15 ms to a run of 0.36 ms.
    "NVIDIA CUDA": Quirks(
        one_build_at_a_time=True, kernels_for_a_worker=2, one_kernel_a_program=True, own_functions=True,
        waits_directly=True, releases_wait=True, understates_groups=True,
    ),
    "Oclgrind": Quirks(one_build_at_a_time=True),  # version 21.10
    # Version 3.1. A second load of squeezenet took 12 to 14 s with binaries, 7 to 12 s without.
    "Portable Computing Language": Quirks(caches_programs=True),
    # Never set without a measurement: users report that full waves double the speed of one device, and make a kernel
    # 7.4 times slower on another. native/src/tuning.cpp has the same list.
    "QUALCOMM Snapdragon(TM)": Quirks(
        build_options=(
            BuildOptions(wave_size="full"), BuildOptions(wave_size="half"), BuildOptions(accelerate_16_bit="on"),
            BuildOptions(accelerate_16_bit="off"), BuildOptions(one_kernel_a_program=True),
        ),
    ),
    "rusticl": Quirks(images_in_buffers=False),  # Mesa 25.0: they start where the whole buffer starts
}
NONE = Quirks()


def quirks_of(platform: str) -> Quirks:
    """The values for a platform, as DeviceInfo.platform has its name."""
    return QUIRKS.get(platform, NONE)
