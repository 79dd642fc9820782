"""Launch kernels, wait for them, and time them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyopencl as cl

from imgconv.cl.device import Context, refusal
from imgconv.errors import DeviceError

Event = cl.Event
# A kernel whose arguments are set, its global size, and its local size where the driver is not to choose it.
Launch = tuple[cl.Kernel, tuple[int, ...], tuple[int, ...] | None]


def enqueue(
    context: Context, kernel: cl.Kernel, global_size: tuple[int, ...], local_size: tuple[int, ...] | None = None
) -> cl.Event:
    """Enqueues one launch of a kernel whose arguments are set, and returns without waiting.

    Sizes are in work items; without ``local_size`` the driver chooses. Launches run one after another in the order of
    the calls. The event is for ``durations``. Raises ResourceError where the driver has no memory for the launch,
    DeviceError where it refuses it.
    """
    try:
        return cl.enqueue_nd_range_kernel(context.queue, kernel, global_size, local_size)
    except cl.Error as error:
        raise _refused(context, (kernel, global_size, local_size), error) from error


def enqueue_all(context: Context, launches: Iterable[Launch]) -> None:
    """Enqueues launches one after another, with nothing between them. Raises as `enqueue` does."""
    queue, enqueue_one = context.queue, cl.enqueue_nd_range_kernel
    launch = None
    try:
        for launch in launches:
            enqueue_one(queue, *launch)
    except cl.Error as error:
        assert launch is not None
        raise _refused(context, launch, error) from error


def finish(context: Context) -> None:
    """Waits for everything enqueued. Raises ResourceError or DeviceError where something enqueued failed."""
    try:
        context.queue.finish()
    except cl.Error as error:
        raise refusal(context.info, "waiting for the launches", error) from error


def enqueue_barrier(context: Context, wait_for: Sequence[Event]) -> Event:
    """Lets what is enqueued from here on wait for events of other queues. Raises DeviceError, ResourceError."""
    try:
        return cl.enqueue_barrier(context.queue, wait_for=list(wait_for))
    except cl.Error as error:
        raise refusal(context.info, "waiting for the uploads", error) from error


def enqueue_marker(context: Context) -> Event:
    """An event that ends where everything enqueued before has ended. Raises DeviceError, ResourceError."""
    try:
        return cl.enqueue_marker(context.queue)
    except cl.Error as error:
        raise refusal(context.info, "waiting for the launches", error) from error


def wait(context: Context, events: Sequence[Event]) -> None:
    """Waits for events. Raises ResourceError or DeviceError where what one of them stands for failed."""
    try:
        cl.wait_for_events(list(events))
    except cl.Error as error:
        raise refusal(context.info, "waiting for a frame", error) from error


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
    # The device's clock counts nanoseconds since some point in the past: too many for the digits of a float.
    ticks = [(event.profile.start, event.profile.end) for event in events]
    first = min((start for start, _ in ticks), default=0)
    return [((start - first) * 1e-9, (end - first) * 1e-9) for start, end in ticks]


def _refused(context: Context, launch: Launch, error: cl.Error) -> DeviceError:
    kernel, global_size, local_size = launch
    what = f"kernel {kernel.function_name!r}, global size {global_size}, local size {local_size}"
    return refusal(context.info, what, error)
