"""DriverCall: sets a time limit for driver calls that may never return.

Ctrl-C does not interrupt a call that waits in the driver. So another thread makes the call, and the caller waits for
that thread until the time limit or Ctrl-C. After that the thread stays in the driver without a caller.

    DriverCall(queue.finish).result(seconds=600)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Condition, Lock, Thread
from time import monotonic
from typing import Any, Generic, NoReturn, Protocol, TypeVar, cast

from imgconv.cl.device_info import DeviceInfo
from imgconv.cl.quirks import quirks_of
from imgconv.cl.shutdown import never_release, shutdown_guard
from imgconv.errors import DeviceError
from imgconv.limits import Limits

Result = TypeVar("Result")
TIMEOUT = Limits.run_seconds  # seconds that a wait for the device may take by default
NAMING_SECONDS = 1.0  # for a look at what a device does that hangs
# Python hears a Ctrl-C that comes just before a wait for a lock, or to another thread, only after it; Windows' always.
LOOK_SECONDS = 0.5


class CallOverdueError(Exception):
    """A call takes longer than it may. No TimeoutError: a signal's handler may raise that while its caller waits."""


class DriverCall(Generic[Result]):
    """A call that another thread makes, from now on. is_over: whether it has returned."""

    def __init__(self, function: Callable[[], Result]) -> None:
        """Raises DeviceError in a forked process, which has none of the threads."""
        shutdown_guard.check()
        self._function: Callable[[], Result] | None = function
        self._result: Result | None = None
        self._error: BaseException | None = None
        self.is_over = False
        self._ended = Lock()
        self._ended.acquire()
        try:
            worker = _idle.pop()
        except IndexError:
            worker = _CallThread()
        worker.start_call(self)

    def result(self, seconds: float) -> Result:
        """Returns what the function returns. Raises what it raises, and CallOverdueError after this many seconds."""
        end = monotonic() + seconds
        try:
            while not self._ended.acquire(timeout=max(0.0, min(end - monotonic(), LOOK_SECONDS))):
                if monotonic() >= end:
                    raise CallOverdueError
        except BaseException:
            self.abandon_call()
            raise
        self._ended.release()  # for others who wait
        if self._error is not None:
            raise self._error
        return cast(Result, self._result)

    def abandon_call(self) -> None:
        """Lets the end of the interpreter wait for it a while: nobody else does any more."""
        shutdown_guard.add_abandoned(self)
        if self.is_over:
            shutdown_guard.remove_abandoned(self)

    def run_function(self) -> None:
        function, self._function = self._function, None
        assert function is not None
        try:
            self._result = function()
        except BaseException as error:
            self._error = error

    def end(self) -> None:
        """Lets the caller go on."""
        self.is_over = True
        shutdown_guard.remove_abandoned(self)
        self._ended.release()


class _CallThread:
    """A thread that makes one call after another."""

    def __init__(self) -> None:
        self._call: DriverCall[object] | None = None
        self._given = Lock()
        self._given.acquire()
        Thread(target=self._work, name="imgconv driver call", daemon=True).start()

    def start_call(self, call: DriverCall[Result]) -> None:
        """Has it make a call. It must be idle."""
        self._call = cast("DriverCall[object]", call)
        self._given.release()

    def _work(self) -> None:
        while True:
            self._given.acquire()
            call, self._call = self._call, None
            assert call is not None
            call.run_function()
            _idle.append(self)
            call.end()
            del call


# Threads between two calls. To start one takes longer than most calls.
_idle: list[_CallThread] = []


class ThreadedCalls(Generic[Result]):
    """Several calls, made by some threads in order. running: the numbers of those under way."""

    def __init__(self, functions: Sequence[Callable[[], Result]], threads: int) -> None:
        self._waiting = deque(enumerate(functions))
        self._made: dict[int, tuple[Result | None, BaseException | None]] = {}
        self.running: set[int] = set()
        self._changed = Condition()
        self._last = monotonic()
        self._threads = [DriverCall(self._work) for _ in range(min(threads, len(functions)))]

    def result(self, number: int, seconds: float) -> Result:
        """Returns what a function returns. Raises what it raises; CallOverdueError once none ended for `seconds`."""
        with self._changed:
            while number not in self._made:
                left = self._last + seconds - monotonic()
                if left <= 0:
                    raise CallOverdueError
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
                    thread.abandon_call()

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


class DriverEvent(Protocol):
    """An event of the driver's."""

    @property
    def command_execution_status(self) -> int:
        """Positive while the command waits or runs, 0 after it, negative if it failed."""


@dataclass
class FirstLaunch:
    """A launch of a first run. event: None as long as the driver is enqueuing it."""

    name: str
    event: DriverEvent | None = None

    def has_ended(self) -> bool:
        return self.event is not None and self.event.command_execution_status <= 0

    def has_failed(self) -> bool:
        """Returns whether it has ended with an error."""
        return self.event is not None and self.event.command_execution_status < 0


class Watchdog:
    """Bounds the waits for one device. A device that takes longer is abandoned: all that uses it raises DeviceError.

    timeout: seconds that a wait may take. reason: why the device was abandoned; empty if it was not. first_launches:
    those of first runs that may be under way, in order, so that one that hangs can be named. left: calls of the driver
    whose caller pressed Ctrl-C. in_use: objects that commands of failed runs may still use, such as a caller's arrays.
    """

    def __init__(self, info: DeviceInfo, timeout: float, forget: Callable[[], None]) -> None:
        """forget: called when the device is abandoned, so that the next `open_device` makes a new context."""
        self._info, self.timeout, self._forget = info, timeout, forget
        self.reason = ""
        self.first_launches: list[FirstLaunch] = []
        self.left: list[DriverCall[Any]] = []
        self.in_use: list[object] = []

    @property
    def waits_directly(self) -> bool:
        """True if waits are the driver's own, without a bound: of some drivers, by default, after first runs."""
        return quirks_of(self._info.platform).waits_directly and self.timeout == TIMEOUT and not self.first_launches

    def call(self, function: Callable[[], Result], seconds: float | None = None) -> Result:
        """Returns what a function returns that calls the driver. Raises what it raises.

        seconds: that it may take, by default `timeout`; then the device is abandoned, which raises DeviceError.
        """
        self.check()
        bound, call = self.timeout if seconds is None else seconds, DriverCall(function)
        try:
            return call.result(bound)
        except CallOverdueError:
            self.abandon(bound)
        except BaseException:
            if not call.is_over:
                self.left.append(call)
            raise

    def check(self) -> None:
        """Raises DeviceError if the device was abandoned."""
        if self.reason:
            raise DeviceError(self.reason)

    def abandon(self, seconds: float) -> NoReturn:
        """Raises DeviceError from now on. The next `open_device` makes a new context."""
        self.reason = (
            f"{self._info.name} did not finish within {seconds:g} s (Limits.run_seconds){self._hanging_launch()}: it "
            "hangs, or the model asks for too much. Load the model again; if that fails too, start another process"
        )
        self._forget()
        never_release(self.in_use)
        if quirks_of(self._info.platform).releases_wait:
            shutdown_guard.never_release_all(self._info.platform)
        raise DeviceError(self.reason)

    def _hanging_launch(self) -> str:
        """Returns the launch of a first run that has not ended; empty if none is known."""
        looked = DriverCall(lambda: next((each.name for each in self.first_launches if not each.has_ended()), ""))
        try:
            found = looked.result(NAMING_SECONDS)
        except Exception:  # a driver that hangs may not even tell
            return ""
        return f", {found}" if found else ""

    def failed_launch(self) -> str:
        """Returns the launch of a first run that failed, and forgets all of them; empty if none is known."""
        found = next((each.name for each in self.first_launches if each.has_failed()), "")
        self.first_launches.clear()
        return found

    def drop_ended(self) -> None:
        """Forgets the first launches that are over, but those that failed."""
        if self.first_launches:
            kept = [each for each in self.first_launches if not each.has_ended() or each.has_failed()]
            self.first_launches[:] = kept
