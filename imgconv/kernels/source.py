"""What a kernel is before it meets a device: its text, arguments and sizes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from imgconv.kernels.access import KernelArgument

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


def group_attribute(local_size: tuple[int, ...] | None) -> str:
    """What tells the driver's compiler the size of a kernel's work groups; empty where the driver chooses it."""
    if local_size is None:
        return ""
    width, height, depth = (*local_size, 1, 1)[:3]
    return f"__attribute__((reqd_work_group_size({width}, {height}, {depth})))"


def round_up(value: int, multiple: int) -> int:
    """The least multiple that is not below the value."""
    return -(-value // multiple) * multiple
