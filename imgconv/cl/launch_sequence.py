"""LaunchSequence: launches that are enqueued again and again, one by one or as a command buffer."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import pyopencl as cl

from imgconv.cl.command_buffer import record
from imgconv.cl.context import Context, Launch, launch_name
from imgconv.cl.loader import launch_function
from imgconv.cl.watchdog import FirstLaunch
from imgconv.errors import DeviceError

# A launch, and a function that enqueues it and returns the driver's status.
Bound = tuple[Callable[[], int], Launch]
# By DeviceInfo.key: the most launches whose replay gave the results of plain ones; and whose are not used, with why.
_trusted: dict[str, int] = {}
_distrusted: dict[str, str] = {}


class LaunchSequence:
    """Launches whose arguments are set.

    command_buffer: None if they are enqueued one by one. launched: whether they were ever enqueued.
    """

    def __init__(self, context: Context, launches: Sequence[Launch]) -> None:
        """The first failure of a driver to record launches is a RuntimeWarning; it then gets them one by one."""
        self.context, self.launches = context, launches
        self._bound = bind(context, launches)
        self.launched = False
        self.command_buffer = None
        if not context.profile and launches and context.info.key not in _distrusted:
            try:
                self.command_buffer = record(context, launches)
            except DeviceError as error:
                self._distrust(str(error))

    def enqueue(self) -> None:
        """Enqueues every launch. Those of the last call must be over. Raises DeviceError, ResourceError."""
        if not self.launched:
            self.launched = True
            self.context.watchdog.call(self._enqueue_first)
        elif self.command_buffer is not None:
            self.command_buffer.replay()
        else:
            enqueue_all(self.context, self._bound)

    def _enqueue_first(self) -> None:
        """Enqueues every launch so that one that hangs can be named: a driver may compile a kernel at its launch."""
        if self.command_buffer is not None:
            self.command_buffer.replay()
            return
        for launch in self.launches:
            _enqueue_noted(self.context, launch)

    def enqueue_each(self) -> Iterator[int]:
        """Enqueues the launches one by one. Yields each one's number. Raises DeviceError, ResourceError."""
        self.launched = True
        for number, launch in enumerate(self._bound):
            enqueue_all(self.context, (launch,))
            yield number

    def verify(self, reset: Callable[[], None], content: Callable[[], object]) -> None:
        """Replays the command buffer once, unless one of as many launches was verified on this device and driver.

        It is used no more if it leaves other content than plain launches. reset: overwrites all that they write.
        """
        if self.command_buffer is None or len(self.launches) <= _trusted.get(self.context.info.key, 0):
            return
        try:
            with self.context.lock:
                results = []
                for enqueue in (partial(enqueue_all, self.context, self._bound), self.command_buffer.replay):
                    reset()
                    enqueue()
                    self.context.finish()
                    results.append(content())
            problem = f"a replay through {self.command_buffer.extension} gave other results"
        except DeviceError as error:
            self._distrust(str(error))
            return
        if results[0] == results[1]:
            _trusted[self.context.info.key] = len(self.launches)
        else:
            self._distrust(problem)

    def _distrust(self, reason: str) -> None:
        info, self.command_buffer = self.context.info, None
        if info.key not in _distrusted:
            _distrusted[info.key] = reason
            message = f"{info.name}, driver {info.driver_version}: launches are enqueued one by one, because {reason}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)


def bind(context: Context, launches: Iterable[Launch]) -> list[Bound]:
    """Launches for `enqueue_all`, with the driver's arguments converted once."""
    function = launch_function()
    # No event: nothing waits for one launch, and making an event takes a driver as long as pyopencl's call.
    return [
        (partial(function, *_arguments(context, launch), None) if function else lambda: 1, launch)
        for launch in launches
    ]


def enqueue_all(context: Context, bound: Iterable[Bound]) -> None:
    """Enqueues launches one after another, with nothing between them. Raises what `Context.enqueue` raises."""
    for call, launch in bound:
        if call():
            # pyopencl collects garbage and tries again if memory is short, and its error says what is wrong.
            context.enqueue(*launch)


def _arguments(context: Context, launch: Launch) -> tuple[object, ...]:
    """The driver's arguments for a launch, without the last one, where its event goes."""
    kernel, *sizes = launch
    pointers = [None if size is None else (ctypes.c_size_t * len(size))(*size) for size in sizes]
    queue, handle = ctypes.c_void_p(context.queue.int_ptr), ctypes.c_void_p(kernel.int_ptr)
    return queue, handle, len(launch[1]), None, *pointers, 0, None


def _enqueue_noted(context: Context, launch: Launch) -> None:
    """Like `Context.enqueue`; if the launch hangs, the DeviceError of the wait names it."""
    noted, function, made = FirstLaunch(launch_name(launch)), launch_function(is_first=True), ctypes.c_void_p()
    context.watchdog.first_launches.append(noted)
    if function is None or function(*_arguments(context, launch), ctypes.byref(made)):
        noted.event = context.enqueue(*launch)
    else:
        assert made.value is not None
        noted.event = cl.Event.from_int_ptr(made.value, retain=False)
