"""The source of a program, and the kernels in it."""

from __future__ import annotations

from dataclasses import dataclass

from imgconv.files.disk_cache import hash_of


@dataclass(frozen=True)
class BuiltKernel:
    """A kernel of a program, as other programs and processes know it.

    name: in the program. key: a hash of its text. path: of its template. launch: of the plan, with its nodes.
    """

    name: str
    key: str
    path: str
    launch: str = ""

    def __str__(self) -> str:
        return f"{self.path}, launch {self.launch}" if self.launch else self.path


@dataclass(frozen=True)
class ProgramSource:
    """One of several programs: its source, its name as in ``build``, and, if known, its ``program_binary``.

    kernels: those of a plan's program. options: the compiler's own.
    """

    source: str
    name: str
    binary: bytes | None = None
    kernels: tuple[BuiltKernel, ...] = ()
    options: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the kernels that it must have, as far as they are known."""
        return tuple(kernel.name for kernel in self.kernels)

    @property
    def kernels_or_itself(self) -> tuple[BuiltKernel, ...]:
        """Its kernels; a program that is of no plan counts as one."""
        return self.kernels or (BuiltKernel("", hash_of(self.source.encode()).hex(), self.name),)
