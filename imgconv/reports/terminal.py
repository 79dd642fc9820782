"""Output for people: text and JSON on stdout, progress on stderr."""

from __future__ import annotations

import json
import math
import sys
import textwrap
import threading
import time
from collections.abc import Sequence

from rich.console import Console

from imgconv.errors import one_line
from imgconv.loading.progress import PATIENCE, ProgressLine, step_with_count

UNLIMITED = 10_000


def console() -> Console:
    """stdout, as wide as the terminal. In a file or a pipe, lines are never wrapped or cut."""
    width = None if sys.stdout.isatty() else UNLIMITED
    return Console(markup=False, highlight=False, emoji=False, width=width)


def say(text: str, style: str = "") -> None:
    """Prints a line on stdout; a terminal shows it in this style of Rich, such as "bold" or "red"."""
    if sys.stdout.isatty():
        shown = console()
        with shown.capture() as styled:
            shown.print(text, style=style)
        print(styled.get(), end="")  # a Console writes past sys.stdout, into a bar that takes what is printed
    else:
        print(text)  # a twentieth of the time, which counts if there are many pictures


def print_styled_lines(lines: Sequence[tuple[str, str]]) -> None:
    """Prints lines of text on stdout, each with its style."""
    if sys.stdout.isatty():
        for text, style in lines:
            say(text, style)
    elif lines:
        print("\n".join(text for text, _ in lines))


def print_at(console: Console, column: int, text: str, style: str | None = None, under: int = 0) -> None:
    """Prints text at a column. If the terminal is too narrow for it, its further lines begin at column `under`."""
    first, rest = " " * column, " " * under
    filled = textwrap.fill(text, console.width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
    console.print(filled, style=style)


def print_json(content: object) -> None:
    """Prints JSON on stdout; NaN and infinity, which JSON lacks, become null."""
    print(to_json(content, indent=2))


def to_json(content: object, indent: int | None = None) -> str:
    """Plain data as JSON; NaN and infinity, which it lacks, become null."""
    try:
        return json.dumps(content, indent=indent, ensure_ascii=False, allow_nan=False)
    except ValueError:  # it has some, which few contents do: a look at every value takes five times as long
        return json.dumps(finite(content), indent=indent, ensure_ascii=False, allow_nan=False)


def finite(content: object) -> object:
    """Plain data without NaN and infinity, which JSON lacks: they are None."""
    if isinstance(content, dict):
        return {key: finite(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


class ProgressSpinner:
    """Shows on stderr the current step and its progress, while the `with` block runs.

    A terminal shows a line that disappears afterwards, as `load` does. Files and pipes get a line for each step, for
    counted work at most one a second. There is none if everything takes less than a second.
    """

    def __init__(self, what: str) -> None:
        self._text = one_line(what)
        self._start = self._said = time.monotonic()
        self._step = ""
        self._line = ProgressLine() if sys.stderr.isatty() else None
        self._timer = threading.Timer(PATIENCE, self._say)
        self._timer.daemon = True

    def __enter__(self) -> ProgressSpinner:
        if self._line:
            self._line(0, 0, self._text)
        else:
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        if self._line:
            self._line.clear()

    def __call__(self, done: int, total: int, what: str) -> None:
        """The callback that imgconv.load takes; a total of 0 is unknown."""
        what = one_line(what)
        if self._line:
            self._line(done, total, what)
            return
        if total and done >= total:  # the next line or the result says so
            return
        self._text = step_with_count(done, total, what)
        now = time.monotonic()
        if now - self._start > PATIENCE and (what != self._step or now - self._said > PATIENCE):
            self._step, self._said = what, now
            self._say()

    def _say(self) -> None:
        print(self._text, file=sys.stderr, flush=True)
