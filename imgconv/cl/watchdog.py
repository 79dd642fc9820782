"""Calls of the driver that may never return.

A call that waits in the driver hears no Ctrl-C and cannot be cut short. So another thread makes it, and the caller
waits for that thread: for a bounded time, and until Ctrl-C. A thread whose caller has left stays in the driver.

    Call(queue.finish).result(seconds=600)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from threading import Condition, Lock, Thread
from time import monotonic
from typing import Generic, TypeVar, cast

from imgconv.cl.ending import driver_use

Result = TypeVar("Result")
# Python hears a Ctrl-C that comes just before a wait for a lock, or to another thread, only after it; Windows' always.
LOOK_SECONDS = 0.5


class Overdue(Exception):
    """A call takes longer than it may. No TimeoutError: a signal's handler may raise that while its caller waits."""


class Call(Generic[Result]):
    """A call that another thread makes, from now on. is_over: whether it has returned."""

    def __init__(self, function: Callable[[], Result]) -> None:
        """Raises DeviceError in a forked process, which has none of the threads."""
        driver_use.check()
        self._function: Callable[[], Result] | None = function
        self._result: Result | None = None
        self._error: BaseException | None = None
        self.is_over = False
        self._ended = Lock()
        self._ended.acquire()
        try:
            worker = _idle.pop()
        except IndexError:
            worker = _Worker()
        worker.give(self)

    def result(self, seconds: float) -> Result:
        """Returns what the function returns. Raises what it raises, and Overdue after so many seconds."""
        end = monotonic() + seconds
        try:
            while not self._ended.acquire(timeout=max(0.0, min(end - monotonic(), LOOK_SECONDS))):
                if monotonic() >= end:
                    raise Overdue
        except BaseException:
            self.leave()
            raise
        self._ended.release()  # for others who wait
        if self._error is not None:
            raise self._error
        return cast(Result, self._result)

    def leave(self) -> None:
        """Lets the end of the interpreter wait for it a while: nobody else does any more."""
        driver_use.leave(self)
        if self.is_over:
            driver_use.forget(self)

    def make(self) -> None:
        """Calls the function."""
        function, self._function = self._function, None
        assert function is not None
        try:
            self._result = function()
        except BaseException as error:
            self._error = error

    def end(self) -> None:
        """Lets the caller go on."""
        self.is_over = True
        driver_use.forget(self)
        self._ended.release()


class _Worker:
    """A thread that makes one call after another."""

    def __init__(self) -> None:
        self._call: Call[object] | None = None
        self._given = Lock()
        self._given.acquire()
        Thread(target=self._work, name="imgconv driver call", daemon=True).start()

    def give(self, call: Call[Result]) -> None:
        """Has it make a call. It must be idle."""
        self._call = cast("Call[object]", call)
        self._given.release()

    def _work(self) -> None:
        while True:
            self._given.acquire()
            call, self._call = self._call, None
            assert call is not None
            call.make()
            _idle.append(self)
            call.end()
            del call


# Threads between two calls. To start one takes longer than most calls.
_idle: list[_Worker] = []


class Calls(Generic[Result]):
    """Several calls, made by some threads in order. running: the numbers of those under way."""

    def __init__(self, functions: Sequence[Callable[[], Result]], threads: int) -> None:
        self._waiting = deque(enumerate(functions))
        self._made: dict[int, tuple[Result | None, BaseException | None]] = {}
        self.running: set[int] = set()
        self._changed = Condition()
        self._last = monotonic()
        self._threads = [Call(self._work) for _ in range(min(threads, len(functions)))]

    def result(self, number: int, seconds: float) -> Result:
        """Returns what a function returns. Raises what it raises, and Overdue once none ended for `seconds`."""
        with self._changed:
            while number not in self._made:
                left = self._last + seconds - monotonic()
                if left <= 0:
                    raise Overdue
                self._changed.wait(min(left, LOOK_SECONDS))
        result, error = self._made[number]
        if error is not None:
            raise error
        return cast(Result, result)

    def close(self, seconds: float) -> None:
        """Makes no further calls. Waits for those under way, and leaves them once none ended for `seconds`."""
        self._waiting.clear()
        try:
            with self._changed:
                while self.running and (left := self._last + seconds - monotonic()) > 0:
                    self._changed.wait(min(left, LOOK_SECONDS))
        finally:
            for thread in self._threads:
                if not thread.is_over:
                    thread.leave()

    def _work(self) -> None:
        while True:
            try:
                number, function = self._waiting.popleft()
            except IndexError:
                return
            self.running.add(number)
            result, failure = None, None
            try:
                result = function()
            except BaseException as error:
                failure = error
            with self._changed:
                self._made[number] = result, failure
                self.running.discard(number)
                self._last = monotonic()
                self._changed.notify_all()
