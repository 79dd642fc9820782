"""Launch kernels, wait for them, and time them."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

import pyopencl as cl

from imgconv.cl.device import Context, failure, refusal
from imgconv.cl.loader import launch_function
from imgconv.errors import DeviceError

Event = cl.Event
Kernel = cl.Kernel
# How often a wait that is bounded looks at the device: after this part of the time so far, in seconds at most.
LOOKS, LONGEST_LOOK = 50, 0.01
# A kernel whose arguments are set, its global size, and its local size (None: the driver chooses).
Launch = tuple[cl.Kernel, tuple[int, ...], tuple[int, ...] | None]
# A launch, and a function that enqueues it and returns the driver's status.
Bound = tuple[Callable[[], int], Launch]


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


def set_arguments(context: Context, kernel: Kernel, arguments: Sequence[cl.Buffer | cl.Image], launch: str) -> None:
    """Sets all arguments of a kernel. launch: whose they are, for errors. Raises DeviceError, ResourceError."""
    try:
        kernel.set_args(*arguments)
    except cl.Error as error:
        raise refusal(context.info, f"launch {launch!r}, kernel {kernel.function_name!r}", error) from error


def bind(context: Context, launches: Iterable[Launch]) -> list[Bound]:
    """Launches for `enqueue_all`, with the driver's arguments converted once."""
    function, queue = launch_function(), ctypes.c_void_p(context.queue.int_ptr)
    bound: list[Bound] = []
    for launch in launches:
        kernel, *sizes = launch
        # No event: nothing waits for one launch, and making an event takes a driver as long as pyopencl's call.
        pointers = [None if size is None else (ctypes.c_size_t * len(size))(*size) for size in sizes]
        arguments = (queue, ctypes.c_void_p(kernel.int_ptr), len(launch[1]), None, *pointers, 0, None, None)
        bound.append((partial(function, *arguments) if function else lambda: 1, launch))
    return bound


def enqueue_all(context: Context, bound: Iterable[Bound]) -> None:
    """Enqueues launches one after another, with nothing between them. Raises what `enqueue` raises."""
    for call, launch in bound:
        if call():
            # pyopencl collects garbage and tries again if memory is short, and its error says what is wrong.
            enqueue(context, *launch)


def finish(context: Context) -> None:
    """Waits for everything enqueued. Raises ResourceError or DeviceError if something enqueued failed."""
    try:
        finish_queue(context, context.queue)
    except cl.Error as error:
        raise refusal(context.info, "waiting for the launches", error) from error


def finish_queue(context: Context, queue: cl.CommandQueue) -> None:
    """Waits for a queue of the context. Raises pyopencl's errors, and DeviceError if it is bounded and takes longer."""
    if context.bounded:
        wait_within(context, [cl.enqueue_marker(queue)], queue)
    else:
        queue.finish()
    _drop_copies(context)


def wait_for_all(context: Context, events: Sequence[Event]) -> None:
    """Waits for events. Raises pyopencl's errors, and DeviceError if it is bounded and takes longer."""
    if context.bounded:
        wait_within(context, events)
    cl.wait_for_events(list(events))
    _drop_copies(context)


def drain(context: Context, queues: Iterable[cl.CommandQueue] = ()) -> None:
    """Waits for the context's queue and others, even if a command in them failed or the device is given up."""
    for queue in {context.queue, *queues}:
        with suppress(cl.Error, DeviceError):
            wait_within(context, [cl.enqueue_marker(queue)], queue)
    _drop_copies(context)


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
        status = event.command_execution_status
        if status < 0:
            raise failure(context.info, "a launch or a copy", status, f"it failed while it ran ({status})")


def wait(context: Context, events: Sequence[Event]) -> None:
    """Waits for events. Raises ResourceError or DeviceError if the command of one failed."""
    try:
        wait_for_all(context, events)
    except cl.Error as error:
        raise refusal(context.info, "waiting for a frame", error) from error


def wait_within(context: Context, events: Sequence[Event], queue: cl.CommandQueue | None = None) -> None:
    """Looks at events until they are over, the more rarely the longer it takes. Raises DeviceError, and pyopencl's.

    After Context.patience the device is given up. queue: that of the events; by default the context's.
    """
    context.check()
    (queue or context.queue).flush()
    begun = time.monotonic()
    while not is_over(events):
        waited = time.monotonic() - begun
        if waited > context.patience or context.given_up.is_set():
            context.give_up()
        time.sleep(min(waited / LOOKS, LONGEST_LOOK))


def _drop_copies(context: Context) -> None:
    """Drops the events of copies that are over."""
    if context.copies:
        context.copies[:] = [copy for copy in context.copies if not is_over([copy])]


def is_over(events: Sequence[Event]) -> bool:
    """Whether the commands of all events have ended, with or without an error."""
    return all(event.command_execution_status <= cl.command_execution_status.COMPLETE for event in events)


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
    kernel, global_size, local_size = launch
    what = f"kernel {kernel.function_name!r}, global size {global_size}, local size {local_size}"
    return refusal(context.info, what, error)
