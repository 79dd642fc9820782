"""Programs: the kernels of a plan, compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from imgconv.cl.device import Context
from imgconv.cl.program import (
    Functions, Kernel, Part, Program, binary, building, kept_program, programs_at_once, workers_for,
)
from imgconv.cl.program_cache import Listing, read_listing, write_listing
from imgconv.compiling.plan import Plan
from imgconv.kernels.source import COMMON, kernel_name, program_text, programs_of

Progress = Callable[[int, int, str], None]
KEPT = "a kept program"  # the paths of its kernels are not known


class Programs:
    """Program and name of every distinct kernel text of a plan; several texts make one program."""

    def __init__(
        self, plan: Plan, context: Context, lenders: Sequence[Programs] = (), alone: bool = False
    ) -> None:
        """Takes the kernels that lenders have; `building` makes the others.

        alone: make no use of programs that also have kernels of other plans.
        """
        offered = {text: kernel for each in lenders for text, kernel in each._kernels.items()}
        self._origins = {launch.source.text: launch.source.path for launch in plan.launches}
        self._context = context
        self._functions = Functions(context)
        self._programs: list[Program] = []
        self._kernels: dict[str, tuple[Program, str]] = {t: offered[t] for t in self._origins if t in offered}
        self._is_listed = not alone and self._take_listed()
        self.are_lent = bool(self._kernels)

    @contextmanager
    def building(self, progress: Progress | None = None, binaries: Sequence[bytes] = ()) -> Iterator[None]:
        """Compiles what is missing, beside what is done inside; it is all there at the end. Raises BuildError.

        progress: called with (kernels built, kernels in all, the next kernel). binaries: the result of `binaries` for
        this plan, device and driver, instead of compiling, if there are no lenders.
        """
        progress = progress or (lambda done, total, what: None)
        texts = self._origins
        numbers = {text: number for number, text in enumerate(texts)}
        waiting = [text for text in texts if text not in self._kernels]
        batches = programs_of(waiting, len(binaries) or programs_at_once(self._context, len(waiting)))
        parts = self._parts(batches, numbers, binaries)
        progress(0, len(waiting), "compiling kernels")
        with building(self._context, parts, workers_for(self._context, len(waiting))) as built:
            yield
            for batch, program in zip(batches, built):
                self._programs.append(program)
                self._kernels |= {text: (program, kernel_name(numbers[text])) for text in batch}
                progress(len(self._kernels), len(texts), "compiling kernels")
        progress(len(waiting), len(waiting), "ready")

    def new_kernel(self, text: str) -> Kernel:
        """A new kernel object of a kernel text, with its own arguments. Raises DeviceError."""
        return self._functions.take(*self._kernels[text])

    def binaries(self) -> tuple[bytes, ...]:
        """The driver's programs, in the order of their builds."""
        return tuple(map(binary, self._programs))

    def keep_listing(self) -> None:
        """Lets the next process find these programs, if they are not those that it would build for the plan alone."""
        listing: Listing = {}
        for number, text in enumerate(self._origins):
            program, name = self._kernels[text]
            listing.setdefault(program.key, {})[number] = name
        if self.are_lent and not self._is_listed and "" not in listing:
            write_listing(self._context.info, tuple(self._origins), listing)

    def _take_listed(self) -> bool:
        """Takes the kernels that the listing of an earlier process names; whether these were all that no lender has."""
        texts = tuple(self._origins)
        for key, names in read_listing(self._context.info, texts).items():
            missing = {texts[number]: name for number, name in names.items() if texts[number] not in self._kernels}
            program = kept_program(self._context, key, KEPT) if missing else None
            if program:
                self._kernels |= {text: (program, name) for text, name in missing.items()}
        return len(self._kernels) == len(texts)

    def _parts(
        self, batches: Sequence[Sequence[str]], numbers: Mapping[str, int], binaries: Sequence[bytes]
    ) -> list[Part]:
        """The sources of programs that have these kernels, by their numbers."""
        common, parts = COMMON.read_text(encoding="utf-8"), []
        for number, batch in enumerate(batches):
            source = program_text(common, {text: numbers[text] for text in batch})
            paths = ", ".join(sorted({self._origins[text] for text in batch}))
            parts.append(Part(source, paths, binaries[number] if number < len(binaries) else None))
        return parts
