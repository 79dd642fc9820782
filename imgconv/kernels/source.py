"""A kernel before it is built for a device: its text, arguments and sizes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from imgconv.kernels.access import KernelArgument

COMMON = Path(__file__).parent.parent / "cl" / "common.cl"


@dataclass(frozen=True)
class KernelSource:
    """A kernel's OpenCL text, in which `NAME` is the placeholder of its name. Equal texts are one kernel.

    path: the template of the text, for error messages. arguments: in the kernel's order. global_size, local_size: in
    work items. If local_size is None, the driver chooses it.
    """

    text: str
    path: str
    arguments: tuple[KernelArgument, ...]
    global_size: tuple[int, ...]
    local_size: tuple[int, ...] | None


def group_attribute(local_size: tuple[int, ...] | None) -> str:
    """The attribute that gives a kernel's local size to the compiler. Empty if the driver chooses it."""
    if local_size is None:
        return ""
    width, height, depth = (*local_size, 1, 1)[:3]
    return f"__attribute__((reqd_work_group_size({width}, {height}, {depth})))"


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that is at least `value`: round_up(5, 4) is 8."""
    return -(-value // multiple) * multiple
