"""KernelSource: a kernel before it is built for a device: its source, arguments and sizes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil

from imgconv.kernels.codegen.access import KernelArgument
from imgconv.kernels.specialise import COMMON_FILE, FOLDER, without_comments

COMMON = FOLDER / COMMON_FILE
KERNELS_IN_A_PROGRAM = 16  # at most


@dataclass(frozen=True)
class KernelSource:
    """A kernel's OpenCL source, in which `NAME` is the placeholder of its name. Equal sources are one kernel.

    path: the template of the source, for error messages. arguments: in the kernel's order. global_size, local_size: in
    work items. If local_size is None, the driver chooses it.
    """

    text: str
    path: str
    arguments: tuple[KernelArgument, ...]
    global_size: tuple[int, ...]
    local_size: tuple[int, ...] | None

    @cached_property
    def key(self) -> str:
        """A hash of the text."""
        return hashlib.blake2b(self.text.encode(), digest_size=16).hexdigest()

    def matches_any(self, patterns: Sequence[str]) -> bool:
        """Returns whether one of the regular expressions is found in the path and the text, a line break between them.

        "^conv.cl$" finds all kernels of that template; see cl/bad_compilers.py.
        """
        return any(re.search(pattern, f"{self.path}\n{self.text}", re.MULTILINE) for pattern in patterns)


def group_attribute(local_size: tuple[int, ...] | None) -> str:
    """The attribute that gives a kernel's local size to the compiler. Empty if the driver chooses it."""
    if local_size is None:
        return ""
    width, height, depth = (*local_size, 1, 1)[:3]
    return f"__attribute__((reqd_work_group_size({width}, {height}, {depth})))"


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that is at least `value`: round_up(5, 4) is 8."""
    return -(-value // multiple) * multiple


def batched_into_programs(texts: Sequence[str], parallel_builds: int = 1) -> list[Sequence[str]]:
    """Returns the kernel sources of each program. A program has several kernels, because every build has a fixed cost.

    Each of the parallel builds gets the same number of programs, if there are enough sources. The result does not
    change if its number of programs is passed as `parallel_builds`.

        batched_into_programs(["a", "b", "c"], 2)   gives [["a"], ["b", "c"]]
    """
    fewest = ceil(len(texts) / KERNELS_IN_A_PROGRAM)
    count = min(round_up(fewest, parallel_builds), len(texts))
    return [texts[len(texts) * n // count : len(texts) * (n + 1) // count] for n in range(count)]


def common_text() -> str:
    """The text of COMMON, which programs begin with."""
    return without_comments(COMMON.read_text(encoding="utf-8"))


def program_text(common: str, texts: Mapping[str, int]) -> str:
    """The source of a program. texts: the number of each kernel text. Kernel n is called k<n>; see `kernel_name`."""
    return common + "".join(f"#define NAME {kernel_name(n)}\n{text}#undef NAME\n" for text, n in texts.items())


def kernel_name(number: int) -> str:
    """The name of a plan's kernel in its program: k0, k1, ..."""
    return f"k{number}"
