"""Several CPUs on one machine: Intel's driver compiles for the one that a variable names."""

from __future__ import annotations

from pathlib import Path

import pytest

from imgconv.cl.device import DeviceInfo
from imgconv.cl.instruction_set import read_cpuinfo

VARIABLE = "CL_CONFIG_CPU_TARGET_ARCH"
# What a CPU needs to run their code.
NEEDED = {"core-avx2": "avx2", "corei7": "sse4_2"}


def cpus_of(device: DeviceInfo) -> dict[str, dict[str, str]]:
    """The variables of a process for each CPU that the driver may compile for; none for the machine's own, "native".

    Skips the test on other devices.
    """
    flags = read_cpuinfo().split()
    named = [name for name, flag in NEEDED.items() if flag in flags]
    if device.platform != "Intel(R) OpenCL" or not named:
        pytest.skip("the driver compiles for one CPU only")
    return {**{name: {VARIABLE: name} for name in named}, "native": {}}


def entries(folder: Path) -> dict[Path, int]:
    """Every file below a folder with its inode: a file that is replaced has another one."""
    return {path: path.stat().st_ino for path in folder.rglob("*") if path.is_file()}
