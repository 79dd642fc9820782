"""What a kernel is before it meets a device: its text, arguments and sizes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from imgconv.access import KernelArgument

COMMON = Path(__file__).parent.parent / "cl" / "common.cl"


@dataclass(frozen=True)
class KernelSource:
    """OpenCL text with `NAME` standing for the kernel's name; equal texts are one kernel.

    path: the template that the text comes from, for error messages. arguments: in the kernel's order. global_size and
    local_size: in work items; local None leaves the choice to the driver.
    """

    text: str
    path: str
    arguments: tuple[KernelArgument, ...]
    global_size: tuple[int, ...]
    local_size: tuple[int, ...] | None


def round_up(value: int, multiple: int) -> int:
    """The least multiple that is not below the value."""
    return -(-value // multiple) * multiple
