"""Keeps threads out of the driver while the interpreter shuts down, and forked processes forever.

Python unwinds a thread that returns from pyopencl during shutdown. This passes through C++ code and ends the process
with SIGABRT. Also, a driver must not be running code when its library is unloaded.

A forked process lacks the driver's threads, so its calls may never return; with PoCL every call waits forever.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
from contextlib import suppress
from threading import Condition, Lock, get_ident
from typing import Any

from imgconv.errors import DeviceError

FORKED = (
    "this process was forked after its parent had used OpenCL, which does not work in such a process: start processes "
    "with multiprocessing's \"spawn\" or \"forkserver\", or fork before the first use of imgconv"
)
ALL_PLATFORMS = ""
# That the end of the interpreter waits for calls that Ctrl-C or a bound has left in the driver.
SECONDS_FOR_THOSE_LEFT = 5.0


class ShutdownGuard:
    """`with shutdown_guard:` around work with the driver that a thread may do while the interpreter ends.

    The end of the interpreter waits until every thread has left the block. A thread that enters it afterwards gets
    SystemExit, which ends it without a message and releases its locks; only the thread that ends the interpreter may
    enter. In a process that was forked after the first use, entering raises DeviceError.

    A signal handler that raises in here may leave the main thread counted as inside. That does no harm, because the
    main thread is the one that ends the interpreter.

    forked: whether it is such a process.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._left = Condition(self._lock)
        # How often each thread is inside: code inside may enter again.
        self._inside: dict[int, int] = {}
        self._ended_by: int | None = None
        self._registered = False
        self._kept: set[str] = set()
        self._left_behind: set[object] = set()
        self.forked = False

    def check(self) -> None:
        """Raises DeviceError in a forked process.

        Called before a lock is taken, too: a thread of the parent may hold it at the fork, and nobody releases it here.
        """
        if self.forked:
            raise DeviceError(FORKED)

    def __enter__(self) -> None:
        self.check()
        thread = get_ident()
        with self._lock:
            if not self._registered:
                atexit.register(self.close_and_wait)
                if hasattr(os, "register_at_fork"):
                    os.register_at_fork(after_in_child=self._after_fork)
                self._registered = True  # a second registration, after an interruption, does no harm
            if self._ended_by not in (None, thread) and thread not in self._inside:
                raise SystemExit
            self._inside[thread] = self._inside.get(thread, 0) + 1

    def __exit__(self, *exception: object) -> None:
        thread = get_ident()
        with self._lock:
            self._inside[thread] -= 1
            if not self._inside[thread]:
                del self._inside[thread]
                if self._ended_by is not None:
                    self._left.notify_all()

    def _after_fork(self) -> None:
        """The threads that are inside are the parent's, and do not leave here."""
        thread = get_ident()
        self.forked = True
        self._lock = Lock()
        self._left = Condition(self._lock)
        self._left_behind = set()
        self._inside = {each: count for each, count in self._inside.items() if each == thread}

    def close_and_wait(self) -> None:
        """Waits until no other thread is inside, and for a while for abandoned calls; lets no other thread enter."""
        thread = get_ident()
        with self._lock:
            self._ended_by = thread
            self._left.wait_for(lambda: not self._inside.keys() - {thread})
            if not self._left.wait_for(lambda: not self._left_behind, SECONDS_FOR_THOSE_LEFT):
                self._left_behind.clear()
                self._kept.add(ALL_PLATFORMS)  # PoCL's waits too, for what uses a queue that hangs
                _exit_without_handlers()
        for platform in self._kept:
            _never_release_objects_of(platform)

    def add_abandoned(self, call: object) -> None:
        """Notes a call that a thread is making, and for which no other one waits any more."""
        with self._lock:
            self._left_behind.add(call)

    def remove_abandoned(self, call: object) -> None:
        """Notes that a call is over, for which it may be that no thread waits."""
        if self._left_behind:
            with self._lock:
                self._left_behind.discard(call)
                self._left.notify_all()

    def never_release_all(self, platform: str) -> None:
        """Never releases what there is of the platform's driver now, and at the end of the interpreter."""
        self._kept.add(platform)
        _never_release_objects_of(platform)


shutdown_guard = ShutdownGuard()


def never_release(thing: object) -> None:
    """Never releases it."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _exit_without_handlers() -> None:
    """Ends the process, after Python's own end, without that of the driver: Intel's waits for a queue that hangs.

    Only glibc has what this needs.
    """
    with suppress(OSError, TypeError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.on_exit(libc._exit, None)  # with the status of the process


def _never_release_objects_of(platform: str) -> None:
    import pyopencl as cl

    kinds = cl.Context, cl.Buffer, cl.Image, cl.Kernel, cl.Program, cl.CommandQueue, cl.Event
    for each in gc.get_objects():
        # A mapped array does not tell its context.
        is_one = issubclass(type(each), kinds) and platform in (ALL_PLATFORMS, _platform_of_object(each))
        if is_one or issubclass(type(each), cl.MemoryMap):
            never_release(each)


def _platform_of_object(thing: Any) -> str:
    context = getattr(thing, "context", thing)
    return str(context.devices[0].platform.name).strip("\0 ")
