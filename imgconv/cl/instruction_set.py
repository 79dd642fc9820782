"""The instruction set that a CPU's driver compiles for: the part of DeviceInfo.key that distinguishes CPUs of one name.

In virtual machines every CPU may be called "Intel(R) Xeon(R) Processor". Intel's driver (2026.22) accepts a program
that was built on another CPU; it then ends the process, or runs code for the weaker CPU. `Plan.device` in
stored/model.fbs defines the text of the key; native/src/instruction_set.cpp generates the same one.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

CPUINFO, CPUINFO_BYTES = Path("/proc/cpuinfo"), 2**14  # with the first processor; a large machine's has a megabyte
# Labels there: of x86, ARM and RISC-V.
MODEL = ("cpu family", "model", "CPU implementer", "CPU part", "isa")
FEATURES = ("flags", "Features")
# Beginnings of the flags of x86 that a compiler chooses instructions by. Others come and go with kernel and hypervisor.
EXTENSIONS = (
    "abm", "adx", "amx", "apx", "avx", "bmi", "f16c", "fma", "gfni", "movbe", "pni", "popcnt", "sse", "ssse", "xop",
)


def instruction_set(cpuinfo: str, machine: str, vector_floats: int, variables: Mapping[str, str]) -> str:
    """Returns the line for a CPU.

    machine: as uname has it. variables: the settings of the driver.

    instruction_set(read_cpuinfo(), "x86_64", 16, {})   # "x86_64, cpu family 6, model 143, flags 1f0c96a2, 16 floats"
    """
    processor: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        label, _, value = line.partition(":")
        processor.setdefault(label.strip(), " ".join(value.split()))
    parts = [machine]
    parts += [f"{label} {processor[label]}" for label in MODEL if label in processor]
    parts += [f"{label} {_hash_of_features(label, processor[label])}" for label in FEATURES if label in processor]
    parts += [f"{vector_floats} floats"]
    parts += [f"{name}={' '.join(value.split())}" for name, value in variables.items()]
    return ", ".join(parts)


def _hash_of_features(label: str, features: str) -> str:
    found = set(features.split())
    chosen = {each for each in found if each.startswith(EXTENSIONS)} if label == "flags" else found
    return f"{zlib.crc32(' '.join(sorted(chosen)).encode()):08x}"


@cache
def read_cpuinfo() -> str:
    """The beginning of /proc/cpuinfo; "" where there is none."""
    with suppress(OSError), CPUINFO.open("rb") as file:
        return file.read(CPUINFO_BYTES).decode(errors="replace")
    return ""
