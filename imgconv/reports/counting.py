"""A progress bar for many pictures: the number done, the rate, and the time left."""

from __future__ import annotations

import sys
import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.text import Text

EVERY = 10.0  # seconds between two lines in a file or a pipe

TELLING = 10  # pictures, from which the device's part of the time is told
BUSY = 0.8  # the part of the time from which the device is the limit


def summary(count: int, seconds: float, run_seconds: float) -> str:
    """Returns what a run of all pictures took, and what was slower. run_seconds: those of the device for one picture.

    summary(60, 2.0, 0.005) is "60 pictures in 2.0 s, 30.0 a second; the device ran for 15 % of that: reading pictures
    and writing results took longer". There is no rate if they took less than a second.
    """
    busy = min(1.0, count * run_seconds / max(seconds, 1.0))
    limit = "it is the limit" if busy >= BUSY else "reading pictures and writing results took longer"
    pictures = f"{count} picture{'s' * (count != 1)}"
    if seconds < 1:
        return f"{pictures} in less than a second"
    found = f"{pictures} in {seconds:.1f} s, {count / seconds:.1f} a second"
    return f"{found}; the device ran for {busy:.0%} of that: {limit}".replace("%", " %") if count >= TELLING else found


class Rate(ProgressColumn):
    """Pictures a second."""

    def render(self, task: Task) -> Text:
        """'35.2/s', or nothing before the second picture."""
        return Text(f"{task.speed:.1f}/s" if task.speed else "")


class PictureProgress:
    """Shows on stderr how many pictures are done, while the `with` block runs.

        with PictureProgress(2000) as progress:
            progress.step()

    A terminal shows a bar that disappears afterwards. Files and pipes get a line every ten seconds. total: None if it
    is not known, as of a camera.
    """

    def __init__(self, total: int | None) -> None:
        self._total, self._done = total, 0
        self._start = self._said = time.monotonic()
        self._bar: Bar | None = None
        if sys.stderr.isatty():
            columns = TextColumn("pictures"), BarColumn(bar_width=None), MofNCompleteColumn(), Rate()
            # What is printed meanwhile goes above the bar.
            printing = sys.stdout.isatty()
            self._bar = Bar(
                *columns, TimeRemainingColumn(compact=True), console=Console(stderr=True), transient=True,
                redirect_stdout=printing, redirect_stderr=True, expand=True,
            )

    def __enter__(self) -> PictureProgress:
        if self._bar:
            self._bar.start()
            self._bar.add_task("", total=self._total)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def step(self) -> None:
        """One more picture is done."""
        self._done += 1
        now = time.monotonic()
        if self._bar:
            self._bar.advance(self._bar.tasks[0].id)
        elif now - self._said > EVERY:
            self._said = now
            print(self.line(now - self._start), file=sys.stderr, flush=True)

    def line(self, seconds: float) -> str:
        """Returns the progress after this many seconds: '24 of 2000 pictures, 12.0 a second, 165 s left'."""
        rate = self._done / seconds
        if self._total is None:
            return f"{self._done} pictures, {rate:.1f} a second"
        left = (self._total - self._done) / rate
        return f"{self._done} of {self._total} pictures, {rate:.1f} a second, {left:.0f} s left"
