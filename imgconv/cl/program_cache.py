"""Built programs on disk, so that the next process does not compile them again.

The kernels of a plan need not be in the programs that are built for it alone: plans that were measured before it may
have lent some of theirs. Such a plan has a listing, of the programs' keys and the names of its kernels there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from imgconv.cl.device import DeviceInfo, environment_options
from imgconv.files.kept import Kept, digest

PROGRAMS = Kept("programs", 256 * 2**20)  # the programs of a network take 0.5 to 5 MB


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


Listing = dict[str, dict[int, str]]
"""The names of kernels by their numbers in a plan, for each program key."""


def read_listing(info: DeviceInfo, texts: Sequence[str]) -> Listing:
    """Returns the listing that was stored for a plan with these kernel texts; empty if there is none."""
    content = PROGRAMS.read(_listing_key(info, texts))
    if content is None:
        return {}
    return {key: {int(number): name for number, name in names.items()} for key, names in json.loads(content).items()}


def write_listing(info: DeviceInfo, texts: Sequence[str], listing: Listing) -> None:
    """Stores the listing of a plan with these kernel texts."""
    PROGRAMS.write(_listing_key(info, texts), json.dumps(listing).encode())


def _listing_key(info: DeviceInfo, texts: Sequence[str]) -> str:
    return program_key(info, "\0".join(texts), ["listing", *environment_options()])
