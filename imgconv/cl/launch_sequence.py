"""OpenCLLaunchSequence: launches that are enqueued again and again."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import pyopencl as cl

from imgconv.cl.context import Context, KernelLaunch, launch_name
from imgconv.cl.opencl_library import launch_function
from imgconv.cl.watchdog import FirstLaunch

# A launch, and a function that enqueues it and returns the driver's status.
BoundLaunch = tuple[Callable[[], int], KernelLaunch]


class OpenCLLaunchSequence:
    """Launches whose arguments are set. launched: whether they were ever enqueued."""

    def __init__(self, context: Context, launches: Sequence[KernelLaunch]) -> None:
        self.context, self.launches = context, launches
        self._bound = bind(context, launches)
        self.launched = False

    def enqueue(self) -> None:
        """Enqueues every launch. Raises DeviceError, ResourceError."""
        if self.launched:
            enqueue_all(self.context, self._bound)
            return
        self.launched = True
        self.context.watchdog.call(self._enqueue_first)

    def _enqueue_first(self) -> None:
        """Enqueues every launch so that one that hangs can be named: a driver may compile a kernel at its launch."""
        for launch in self.launches:
            _enqueue_watched(self.context, launch)

    def enqueue_each(self) -> Iterator[int]:
        """Enqueues the launches one by one. Yields each one's number. Raises DeviceError, ResourceError."""
        self.launched = True
        for number, launch in enumerate(self._bound):
            enqueue_all(self.context, (launch,))
            yield number


def bind(context: Context, launches: Iterable[KernelLaunch]) -> list[BoundLaunch]:
    """Launches for `enqueue_all`, with the driver's arguments converted once."""
    function = launch_function()
    # No event: nothing waits for one launch, and making an event takes a driver as long as pyopencl's call.
    return [
        (partial(function, *_arguments(context, launch), None) if function else lambda: 1, launch)
        for launch in launches
    ]


def enqueue_all(context: Context, bound: Iterable[BoundLaunch]) -> None:
    """Enqueues launches one after another, with nothing between them. Raises what `Context.enqueue` raises."""
    for call, launch in bound:
        if call():
            # pyopencl collects garbage and tries again if memory is short, and its error says what is wrong.
            context.enqueue(*launch)


def _arguments(context: Context, launch: KernelLaunch) -> tuple[object, ...]:
    """The driver's arguments for a launch, without the last one, where its event goes."""
    kernel, *sizes = launch
    pointers = [None if size is None else (ctypes.c_size_t * len(size))(*size) for size in sizes]
    queue, handle = ctypes.c_void_p(context.queue.int_ptr), ctypes.c_void_p(kernel.int_ptr)
    return queue, handle, len(launch[1]), None, *pointers, 0, None


def _enqueue_watched(context: Context, launch: KernelLaunch) -> None:
    """Like `Context.enqueue`; if the launch hangs, the DeviceError of the wait names it."""
    noted, function, made = FirstLaunch(launch_name(launch)), launch_function(is_first=True), ctypes.c_void_p()
    context.watchdog.first_launches.append(noted)
    if function is None or function(*_arguments(context, launch), ctypes.byref(made)):
        noted.event = context.enqueue(*launch)
    else:
        assert made.value is not None
        noted.event = cl.Event.from_int_ptr(made.value, retain=False)
