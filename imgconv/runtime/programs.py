"""Builds the kernels of a plan as programs."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from imgconv.build_options import DRIVERS_DEFAULTS, BuildOptions
from imgconv.cl.building.crashes import (
    WITHOUT_OPTIMISATION, DistrustedKernels, RefusedError, distrusted_kernels, refused_kernels,
)
from imgconv.cl.building.program_source import BuiltKernel, ProgramSource
from imgconv.compiling.plan import Launch, Plan
from imgconv.errors import BuildError
from imgconv.kernels.kernel_source import batched_into_programs, common_text, kernel_name, program_text
from imgconv.runtime.device import Device, Program

LOG = logging.getLogger("imgconv")
ProgressCallback = Callable[[int, int, str], None]
# Of a plan's kernels, the part from which on it takes those that other plans have: below, it builds the programs that
# it builds in a later process too, which then finds all of them in the cache.
WORTH_SHARING = 0.25


class PlanPrograms:
    """The programs of a plan. kernels: program and name of each distinct kernel text; a program may have several.

    build_options: those of the plan; the driver's defaults if it fails to build its kernels with them, or computes one
    of them wrongly.
    """

    def __init__(self, plan: Plan, context: Device, share_with: Sequence[PlanPrograms] = ()) -> None:
        """Shares the kernels that others have, if they are many; `building` compiles the rest."""
        self.build_options: BuildOptions = plan.build_options
        if self.build_options != DRIVERS_DEFAULTS:
            refused = refused_kernels(context.info)
            if any(self.key_of(launch) in refused for launch in plan.launches):
                self.build_options = DRIVERS_DEFAULTS
        lenders = [each for each in share_with if each.build_options == self.build_options]
        offered = {text: kernel for each in lenders for text, kernel in each.kernels.items()}
        self._launches: dict[str, Launch] = {}  # the first of each kernel text
        for launch in plan.launches:
            self._launches.setdefault(launch.source.text, launch)
        self._numbers = {text: number for number, text in enumerate(self._launches)}
        self._context = context
        self._programs: list[Program] = []
        taken = {text: offered[text] for text in self._launches if text in offered}
        is_worth_it = len(taken) >= WORTH_SHARING * len(self._launches)
        self.kernels: dict[str, tuple[Program, str]] = taken if is_worth_it else {}
        self.are_shared = bool(self.kernels)
        self._known: DistrustedKernels = {}

    @contextmanager
    def build_in_background(
        self, progress: ProgressCallback | None = None, binaries: Sequence[bytes] = ()
    ) -> Iterator[None]:
        """A context that compiles missing kernels while its body runs; all are there at the end. Raises BuildError.

        progress: called with (kernels built, kernels in all, the next kernel). binaries: the result of `binaries` for
        this plan, device and driver, instead of compiling, if nothing is shared.
        """
        progress = progress or (lambda done, total, what: None)
        waiting = [text for text in self._launches if text not in self.kernels]
        self._known = distrusted_kernels(self._context.info)
        batches = batched_into_programs(waiting, len(binaries) or self._best_program_count(waiting))
        progress(0, len(waiting), "compiling kernels")
        with self._context.build_in_background(self._program_sources(batches, binaries)) as built:
            yield
            failed = self._add_kernels(batches, built, progress)
        while failed is not None:
            if self.build_options != DRIVERS_DEFAULTS:
                LOG.info("%s fails with %s: %s", self._context.info.name, self.build_options, failed)
                self.build_options = DRIVERS_DEFAULTS
                batches = batched_into_programs(waiting, self._best_program_count(waiting))
            elif len(batches) < len(waiting):
                # A driver may refuse a program of several kernels though it builds each of them alone.
                batches = batched_into_programs(waiting, len(waiting))
            else:
                raise failed
            with self._context.build_in_background(self._program_sources(batches)) as built:
                failed = self._add_kernels(batches, built, progress)
        progress(len(waiting), len(waiting), "ready")

    def key_of(self, launch: Launch) -> str:
        """The key of a launch's kernel: other options may be right where these are wrong or crash the compiler."""
        key = launch.source.key
        return key if self.build_options == DRIVERS_DEFAULTS else f"{key} with {self.build_options}"

    def _best_program_count(self, texts: Sequence[str]) -> int:
        # Kernels at which a process ended are built alone.
        launches = [self._launches[text] for text in texts]
        alone = any(key in self._known for each in launches for key in (each.source.key, self.key_of(each)))
        each_alone = alone or self.build_options.one_kernel_a_program
        return max(len(texts), 1) if each_alone else self._context.best_program_count(len(texts))

    def _add_kernels(
        self, batches: Sequence[Sequence[str]], built: Iterator[Program], progress: ProgressCallback
    ) -> BuildError | None:
        """Takes the kernels of each program, as soon as it is built. Returns the error of one that does not build."""
        programs = []
        try:
            for batch, program in zip(batches, built):
                programs.append(program)
                self.kernels |= {text: (program, kernel_name(self._numbers[text])) for text in batch}
                progress(len(self.kernels), len(self._launches), "compiling kernels")
        except RefusedError:
            raise
        except BuildError as error:
            return error
        self._programs = programs
        return None

    def binaries(self) -> tuple[bytes, ...]:
        """The driver's programs, in the order of their builds. Warns and returns none if the driver has no binaries."""
        made = tuple(map(self._context.binary, self._programs))
        if all(made):
            return made
        name = self._context.info.name
        message = f"{name} gives no binaries of its programs: what is saved has none, and compiles at its first load"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return ()

    def _program_sources(self, batches: Sequence[Sequence[str]], binaries: Sequence[bytes] = ()) -> list[ProgramSource]:
        """The sources of programs that have these kernels, by their numbers."""
        common, parts = common_text(), []
        for number, batch in enumerate(batches):
            kernels = tuple(self._describe_kernel(text) for text in batch)
            source = self.build_options.prelude + program_text(common, {text: self._numbers[text] for text in batch})
            paths = ", ".join(sorted({kernel.path for kernel in kernels}))
            refused = len(batch) == 1 and self._known.get(self._launches[batch[0]].source.key, ("", ""))[1]
            options = (WITHOUT_OPTIMISATION,) if refused else self.build_options.flags
            content = binaries[number] if number < len(binaries) else None
            parts.append(ProgramSource(source, paths, content, kernels, options))
        return parts

    def _describe_kernel(self, text: str) -> BuiltKernel:
        """A kernel, with the first launch that needs it and its ONNX nodes."""
        launch = self._launches[text]
        name = kernel_name(self._numbers[text])
        return BuiltKernel(name, self.key_of(launch), launch.source.path, launch_text(launch))


def launch_text(launch: Launch) -> str:
    """A launch and its ONNX nodes, for messages."""
    return f"{launch.name!r} (nodes {', '.join(launch.origin)})" if launch.origin else repr(launch.name)
