"""Progress of a load where somebody watches: one line on stderr, in a terminal or a notebook."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    from imgconv.runtime.programs import Progress

PATIENCE = 1.0  # seconds without a line
BETWEEN = 0.1  # seconds between two lines
CLEAR = "\r\x1b[2K"


@contextmanager
def shown(progress: Union[Progress, bool, None]) -> Iterator[Progress | None]:
    """Yields what to call with (done, total, text): the caller's own function, a ProgressLine, or None.

    progress: True for a line, False for none, None for a line in a terminal or a notebook.
    """
    if callable(progress):
        yield progress
        return
    is_watched = sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules)
    line = ProgressLine() if progress or progress is None and is_watched else None
    try:
        yield line
    finally:
        if line is not None:
            line.clear()


class ProgressLine:
    """A line that tells how far a load is, once it takes a second; it disappears at the end.

        line = ProgressLine()
        line(3, 40, "compiling kernels")    # imgconv: compiling kernels, 3 of 40
        line(40, 40, "ready")               # the line is cleared
    """

    def __init__(self) -> None:
        """Writes nothing yet."""
        self._begun: float | None = None
        self._said: float | None = None

    def __call__(self, done: int, total: int, what: str) -> None:
        """Writes the line, or clears it if all is done."""
        now = time.monotonic()
        if done >= total:
            self.clear()
            return
        self._begun = now if self._begun is None else self._begun
        if now - self._begun >= PATIENCE and (self._said is None or now - self._said >= BETWEEN):
            self._said = now
            self._write(f"{CLEAR}imgconv: {what}, {done} of {total}")

    def clear(self) -> None:
        """Removes the line, if there is one."""
        if self._said is not None:
            self._write(CLEAR)
        self._begun = self._said = None

    @staticmethod
    def _write(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
