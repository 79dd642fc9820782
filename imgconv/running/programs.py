"""Programs: the kernels of a plan, compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from imgconv.cl.device import Context
from imgconv.cl.program import Functions, Kernel, Part, Program, binary, build_all, programs_at_once, workers_for
from imgconv.compiling.plan import Plan
from imgconv.kernels.source import COMMON, kernel_name, program_text, programs_of

Progress = Callable[[int, int, str], None]


class Programs:
    """Program and name of every distinct kernel text of a plan; several texts make one program."""

    def __init__(
        self, plan: Plan, context: Context, progress: Progress | None = None, lenders: Sequence[Programs] = (),
        binaries: Sequence[bytes] = (),
    ) -> None:
        """Compiles every kernel that no lender has. Raises BuildError.

        progress: called with (kernels built, kernels in all, the next kernel). binaries: the result of `binaries` for
        this plan, device and driver, instead of compiling; lenders are not used then.
        """
        offered = {} if binaries else {text: kernel for each in lenders for text, kernel in each._kernels.items()}
        texts = {launch.source.text: launch.source.path for launch in plan.launches}
        self._functions = Functions(context)
        self._programs: list[Program] = []
        self._kernels: dict[str, tuple[Program, str]] = {text: offered[text] for text in texts if text in offered}
        self.are_lent = bool(self._kernels)
        self._build(context, texts, progress or (lambda done, total, what: None), binaries)

    def new_kernel(self, text: str) -> Kernel:
        """A new kernel object of a kernel text, with its own arguments. Raises DeviceError."""
        return self._functions.take(*self._kernels[text])

    def binaries(self) -> tuple[bytes, ...]:
        """The driver's programs, in the order of their builds."""
        return tuple(map(binary, self._programs))

    def _build(self, context: Context, texts: dict[str, str], progress: Progress, binaries: Sequence[bytes]) -> None:
        """texts: the origin of each kernel text."""
        common = COMMON.read_text(encoding="utf-8")
        numbers = {text: number for number, text in enumerate(texts)}
        waiting = [text for text in texts if text not in self._kernels]
        batches = programs_of(waiting, len(binaries) or programs_at_once(context, len(waiting)))
        parts = []
        for number, batch in enumerate(batches):
            source = program_text(common, {text: numbers[text] for text in batch})
            paths = ", ".join(sorted({texts[text] for text in batch}))
            parts.append(Part(source, paths, binaries[number] if number < len(binaries) else None))
        progress(0, len(waiting), "compiling kernels")
        for batch, program in zip(batches, build_all(context, parts, workers_for(context, len(waiting)))):
            self._programs.append(program)
            self._kernels |= {text: (program, kernel_name(numbers[text])) for text in batch}
            progress(len(self._kernels), len(texts), "compiling kernels")
        progress(len(waiting), len(waiting), "ready")
