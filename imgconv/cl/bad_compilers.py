"""Kernels that known compilers miscompile: plans for these devices avoid them. docs/check.md explains how to add one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from imgconv.cl.device_info import DeviceInfo


@dataclass(frozen=True)
class BadCompiler:
    """A compiler that miscompiles some kernels.

    platform: DeviceInfo.platform. versions: a regular expression, searched for in DeviceInfo.key, which has the
    driver's version and its compiler's. pattern: one for KernelSource.matches_any. source: the report.
    """

    platform: str
    versions: str
    pattern: str
    source: str


# Public reports are of other engines' kernels; none of imgconv's is known to fail.
BAD_COMPILERS: tuple[BadCompiler, ...] = ()


def miscompiled_patterns(info: DeviceInfo) -> tuple[str, ...]:
    """The regular expressions of kernels that plans for a device do without."""
    entries = [entry for entry in BAD_COMPILERS if entry.platform == info.platform]
    return tuple(entry.pattern for entry in entries if re.search(entry.versions, info.key))
