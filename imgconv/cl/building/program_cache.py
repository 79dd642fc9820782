"""Built programs on disk, so that the next process does not compile them again."""

from __future__ import annotations

import json
from collections.abc import Sequence

from imgconv.cl.device_info import DeviceInfo
from imgconv.files.disk_cache import DiskCache, digest

PROGRAMS = DiskCache("programs", 256 * 2**20)  # the programs of a network take 0.5 to 5 MB


def program_key(info: DeviceInfo, source: str, options: Sequence[str]) -> str:
    """The name of a program's entry: a hash of source, compiler options, device and driver."""
    about = [info.key, info.vendor, info.opencl_version, *options]
    return digest(json.dumps(about).encode(), source.encode()).hex()


def read_binary(key: str) -> bytes | None:
    """The binary that `write_binary` stored under the key; None if there is none, or if it is damaged."""
    return PROGRAMS.read(key)


def write_binary(key: str, binary: bytes) -> None:
    """Stores a binary under the key, replacing an older one."""
    PROGRAMS.write(key, binary)
