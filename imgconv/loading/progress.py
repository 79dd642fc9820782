"""Shows the progress of a load: one line on stderr, in a terminal or a notebook."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    from imgconv.runtime.programs import ProgressCallback

PATIENCE = 1.0  # seconds without a line
BETWEEN = 0.1  # seconds between two lines
CLEAR = "\r\x1b[2K"


@contextmanager
def progress_callback(progress: Union[ProgressCallback, bool, None]) -> Iterator[ProgressCallback | None]:
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


def step_with_count(done: int, total: int, what: str) -> str:
    """Returns a step with its count: "compiling kernels, 3 of 40"; if the total is unknown (0), "measuring, run 3".

    done: 0 with an unknown total for a step that is not counted.
    """
    return f"{what}, {done} of {total}" if total else f"{what}, run {done}" if done else what


class ProgressLine:
    """A line with the progress of a load that takes over a second; it disappears at the end.

        line = ProgressLine()
        line(3, 40, "compiling kernels")    # imgconv: compiling kernels, 3 of 40
        line(40, 40, "ready")               # the line is cleared
    """

    def __init__(self) -> None:
        """Writes nothing yet."""
        self._begun: float | None = None
        self._said: float | None = None
        self._text = ""
        self._timer: threading.Timer | None = None  # writes the line if a driver compiles for longer than PATIENCE
        self._lock = threading.Lock()

    def __call__(self, done: int, total: int, what: str) -> None:
        """Writes the line, or clears it if all is done. A total of 0 is unknown."""
        if total and done >= total:
            self.clear()
            return
        now = time.monotonic()
        with self._lock:
            self._text = step_with_count(done, total, what)
            if self._begun is None:
                self._begun = now
                self._timer = threading.Timer(PATIENCE, self._write_late)
                self._timer.daemon = True
                self._timer.start()
            if now - self._begun >= PATIENCE and (self._said is None or now - self._said >= BETWEEN):
                self._show(now)

    def _write_late(self) -> None:
        """Writes the line if no call did."""
        with self._lock:
            if self._begun is not None and self._said is None:
                self._show(time.monotonic())

    def _show(self, now: float) -> None:
        self._said = now
        line = f"imgconv: {self._text}"[: shutil.get_terminal_size().columns - 1]  # no line could clear a second one
        self._write(CLEAR + line)

    def clear(self) -> None:
        """Removes the line, if there is one."""
        with self._lock:
            if self._timer:
                self._timer.cancel()
            if self._said is not None:
                self._write(CLEAR)
            self._begun = self._said = self._timer = None

    @staticmethod
    def _write(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
