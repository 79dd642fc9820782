"""The line that tells how far a load is: where it appears, when, and that it disappears."""

from __future__ import annotations

import io
import threading

import pytest
from support import HANG_TIMEOUT

from imgconv.loading import progress
from imgconv.loading.progress import CLEAR, progress_callback


class Terminal(io.StringIO):
    """stderr, as a terminal."""

    def isatty(self) -> bool:
        return True


def opened(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """stderr becomes a terminal, on which a line appears at once. In the test itself: pytest sets stderr before it."""
    made = Terminal()
    monkeypatch.setattr("sys.stderr", made)
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(progress, "BETWEEN", 0.0)
    return made


def test_a_terminal_has_a_line_that_disappears(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = opened(monkeypatch)
    with progress_callback(None) as step:
        assert step is not None
        step(0, 2, "compiling kernels")
        step(1, 2, "compiling kernels")
        step(2, 2, "ready")
    first, second = (f"{CLEAR}imgconv: compiling kernels, {number} of 2" for number in range(2))
    assert terminal.getvalue() == first + second + CLEAR


def test_a_search_of_unknown_length_has_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = opened(monkeypatch)
    with progress_callback(None) as step:
        assert step is not None
        step(0, 0, "reading")
        step(7, 0, "choosing fp16 and fp32")
    assert terminal.getvalue() == f"{CLEAR}imgconv: reading{CLEAR}imgconv: choosing fp16 and fp32, run 7{CLEAR}"


def test_a_driver_that_compiles_for_long_has_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, written = opened(monkeypatch), threading.Event()
    monkeypatch.setattr(progress, "PATIENCE", 0.01)

    def write(text: str) -> None:
        terminal.write(text)
        written.set()

    monkeypatch.setattr(progress.ProgressLine, "_write", staticmethod(write))
    with progress_callback(None) as step:
        assert step is not None
        step(0, 2, "compiling kernels")
        assert written.wait(HANG_TIMEOUT)
    assert terminal.getvalue() == f"{CLEAR}imgconv: compiling kernels, 0 of 2{CLEAR}"


def test_an_error_does_not_stand_behind_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = opened(monkeypatch)
    with pytest.raises(ValueError), progress_callback(None) as step:
        assert step is not None
        step(0, 2, "compiling kernels")
        raise ValueError
    assert terminal.getvalue().endswith(CLEAR)


def test_short_loads_write_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = opened(monkeypatch)
    monkeypatch.setattr(progress, "PATIENCE", 1e9)
    with progress_callback(None) as step:
        assert step is not None
        step(0, 2, "compiling kernels")
        step(2, 2, "ready")
    assert terminal.getvalue() == ""


def test_nothing_where_nobody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", io.StringIO())
    with progress_callback(None) as step:
        assert step is None


def test_false_is_silent_and_a_function_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    opened(monkeypatch)
    def own(done: int, total: int, what: str) -> None:
        pass

    with progress_callback(False) as step:
        assert step is None
    with progress_callback(own) as step:
        assert step is own
