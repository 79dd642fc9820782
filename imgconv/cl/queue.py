"""Launch kernels, wait for them, and time them."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from time import perf_counter, sleep
from typing import Any

import pyopencl as cl

from imgconv.cl.device import Context, FirstLaunch, failure, refusal
from imgconv.cl.loader import launch_function
from imgconv.cl.watchdog import Call
from imgconv.errors import DeviceError, Error

Event = cl.Event
Kernel = cl.Kernel
# Seconds for which a thread looks at a GPU before it leaves the wait to another one: to wake it again takes longer than
# the end of a short run. A CPU's driver computes with the thread that waits.
LOOKED_FOR = 5e-4
# A kernel whose arguments are set, its global size, and its local size (None: the driver chooses).
Launch = tuple[cl.Kernel, tuple[int, ...], tuple[int, ...] | None]
# A launch, and a function that enqueues it and returns the driver's status.
Bound = tuple[Callable[[], int], Launch]


def set_arguments(context: Context, kernel: Kernel, arguments: Sequence[cl.Buffer | cl.Image]) -> None:
    """Sets a kernel's arguments: images and buffers. Raises DeviceError if the driver refuses one."""
    try:
        kernel.set_args(*arguments)
    except cl.Error as error:
        raise refusal(context.info, f"arguments of {_called(kernel)}", error) from error


def enqueue(
    context: Context, kernel: cl.Kernel, global_size: tuple[int, ...], local_size: tuple[int, ...] | None = None
) -> cl.Event:
    """Enqueues one launch of a kernel whose arguments are set, and returns without waiting.

    Sizes are in work items; without ``local_size`` the driver chooses. Launches run one after another in the order of
    the calls. The event is for ``durations``. Raises ResourceError if the driver has no memory for the launch,
    DeviceError if it refuses the launch.
    """
    try:
        return cl.enqueue_nd_range_kernel(context.queue, kernel, global_size, local_size)
    except cl.Error as error:
        raise _refused(context, (kernel, global_size, local_size), error) from error


def bind(context: Context, launches: Iterable[Launch]) -> list[Bound]:
    """Launches for `enqueue_all`, with the driver's arguments converted once."""
    function = launch_function()
    # No event: nothing waits for one launch, and making an event takes a driver as long as pyopencl's call.
    return [
        (partial(function, *_arguments(context, launch), None) if function else lambda: 1, launch)
        for launch in launches
    ]


def _arguments(context: Context, launch: Launch) -> tuple[object, ...]:
    """The driver's arguments for a launch, without the last one, where its event goes."""
    kernel, *sizes = launch
    pointers = [None if size is None else (ctypes.c_size_t * len(size))(*size) for size in sizes]
    queue, handle = ctypes.c_void_p(context.queue.int_ptr), ctypes.c_void_p(kernel.int_ptr)
    return queue, handle, len(launch[1]), None, *pointers, 0, None


def enqueue_all(context: Context, bound: Iterable[Bound]) -> None:
    """Enqueues launches one after another, with nothing between them. Raises what `enqueue` raises."""
    for call, launch in bound:
        if call():
            # pyopencl collects garbage and tries again if memory is short, and its error says what is wrong.
            enqueue(context, *launch)


def enqueue_noted(context: Context, launch: Launch) -> None:
    """Like `enqueue`; if the launch hangs, the DeviceError of the wait names it."""
    noted, function, made = FirstLaunch(_name(launch)), launch_function(is_first=True), ctypes.c_void_p()
    context.first_launches.append(noted)
    if function is None or function(*_arguments(context, launch), ctypes.byref(made)):
        noted.event = enqueue(context, *launch)
    else:
        assert made.value is not None
        noted.event = cl.Event.from_int_ptr(made.value, retain=False)


def finish(context: Context) -> None:
    """Waits for everything enqueued. Raises ResourceError or DeviceError if something enqueued failed."""
    try:
        finish_queue(context, context.queue)
    except cl.Error as error:
        raise refusal(context.info, "waiting for the launches", error) from error


def finish_queue(context: Context, queue: cl.CommandQueue) -> None:
    """Waits for a queue of the context. Raises pyopencl's errors, and DeviceError after Context.patience."""
    if context.waits_directly:
        queue.finish()
    elif context.info.kind == "cpu" or not _ends_soon(queue):
        context.within(queue.finish)
    _drop_ended(context)


def _ends_soon(queue: cl.CommandQueue) -> bool:
    """Looks at a queue for a moment; whether its commands have ended without an error."""
    marker, end = cl.enqueue_marker(queue), perf_counter() + LOOKED_FOR
    queue.flush()
    while marker.command_execution_status > cl.command_execution_status.COMPLETE:
        if perf_counter() > end:
            return False
        sleep(0)  # other threads may have work for Python
    return bool(marker.command_execution_status == cl.command_execution_status.COMPLETE)


def wait_for_all(context: Context, events: Sequence[Event]) -> None:
    """Waits for events. Raises pyopencl's errors, and DeviceError after Context.patience."""
    if context.waits_directly:
        cl.wait_for_events(list(events))
    else:
        context.within(partial(cl.wait_for_events, list(events)))
    _drop_ended(context)


def drain(context: Context, queues: Iterable[cl.CommandQueue] = ()) -> None:
    """Waits for the context's queue and others, even if a command in them failed or the device is given up."""
    with suppress(cl.Error, DeviceError):
        context.within(partial(_finish_each, tuple(context.left), {context.queue, *queues}))
        context.left.clear()
        context.in_use.clear()
        _drop_ended(context)


def settle(
    context: Context, error: BaseException, used: object = None, queues: Iterable[cl.CommandQueue] = ()
) -> None:
    """After one of imgconv's errors waits for the context's queue and others; after Ctrl-C leaves that to the next run.

    used: what the commands may still use; it is kept until they are over.
    """
    context.in_use.append(used)
    if isinstance(error, Error):
        drain(context, queues)
    else:
        finishing = Call(partial(_finish_each, tuple(context.left), {context.queue, *queues}))
        finishing.leave()
        context.left.append(finishing)


def _finish_each(left: Sequence[Call[Any]], queues: Iterable[cl.CommandQueue]) -> None:
    for call in left:
        with suppress(Exception):
            call.result(math.inf)
    for queue in queues:
        with suppress(cl.Error):
            queue.finish()


def enqueue_barrier(context: Context, wait_for: Sequence[Event]) -> Event:
    """Makes later commands of the queue wait for events of other queues. Raises DeviceError, ResourceError."""
    try:
        return cl.enqueue_barrier(context.queue, wait_for=list(wait_for))
    except cl.Error as error:
        raise refusal(context.info, "waiting for the uploads", error) from error


def enqueue_marker(context: Context) -> Event:
    """An event that ends when everything enqueued before it has ended. Raises DeviceError, ResourceError."""
    try:
        return cl.enqueue_marker(context.queue)
    except cl.Error as error:
        raise refusal(context.info, "waiting for the launches", error) from error


def check(context: Context, events: Sequence[Event]) -> None:
    """Raises DeviceError if the command of an event that is over has failed: not every driver's clFinish says so."""
    for event in events:
        if event.command_execution_status > cl.command_execution_status.COMPLETE:
            # rusticl's clFinish (22.3) does not wait for commands that another thread has flushed.
            wait(context, [event])
        status = event.command_execution_status
        if status < 0:
            failed = next((str(each) for each in context.first_launches if each.has_failed()), "a launch or a copy")
            context.first_launches.clear()
            raise failure(context.info, failed, status, f"it failed while it ran ({status})")


def wait(context: Context, events: Sequence[Event]) -> None:
    """Waits for events. Raises ResourceError or DeviceError if the command of one failed."""
    try:
        wait_for_all(context, events)
    except cl.Error as error:
        raise refusal(context.info, "waiting for a frame", error) from error


def _drop_ended(context: Context) -> None:
    """Drops the events of copies and of first launches that are over."""
    if context.copies:
        context.copies[:] = [copy for copy in context.copies if not is_over([copy])]
    if context.first_launches:
        kept = [launch for launch in context.first_launches if not launch.is_over() or launch.has_failed()]
        context.first_launches[:] = kept


def is_over(events: Sequence[Event]) -> bool:
    """Returns whether the commands of all events have ended, even by an error; True if the driver cannot tell."""
    try:
        return all(event.command_execution_status <= cl.command_execution_status.COMPLETE for event in events)
    except cl.Error:
        return True


def span(events: Sequence[Event]) -> tuple[int, int]:
    """When the first of some timed events started and the last one ended, in nanoseconds of the device's clock."""
    return min(event.profile.start for event in events), max(event.profile.end for event in events)


def durations(context: Context, events: Iterable[cl.Event]) -> list[float]:
    """Seconds that each launch took on the device; waits for all. Raises DeviceError if not opened with ``profile``."""
    return [end - start for start, end in spans(context, events)]


def spans(context: Context, events: Iterable[cl.Event]) -> list[tuple[float, float]]:
    """When each launch or copy started and ended, in seconds since the first of them started; waits for all.

    Raises DeviceError if not opened with ``profile``.
    """
    if not context.profile:
        raise DeviceError(f"{context.info.name} was opened without profile=True: launches are not timed")
    finish(context)
    # The device's clock counts nanoseconds since some time in the past: too many for the digits of a float.
    ticks = [(event.profile.start, event.profile.end) for event in events]
    first = min((start for start, _ in ticks), default=0)
    return [((start - first) * 1e-9, (end - first) * 1e-9) for start, end in ticks]


def _refused(context: Context, launch: Launch, error: cl.Error) -> DeviceError:
    return refusal(context.info, _name(launch), error)


def _name(launch: Launch) -> str:
    kernel, global_size, local_size = launch
    return f"{_called(kernel)}, global size {global_size}, local size {local_size}"


def _called(kernel: Kernel) -> str:
    label = getattr(kernel, "label", "")
    return f"{label}, kernel {kernel.function_name!r}" if label else f"kernel {kernel.function_name!r}"
