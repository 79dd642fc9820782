"""Launch kernels, wait for them, and time them."""

from __future__ import annotations

from collections.abc import Iterable

import pyopencl as cl

from imgconv.cl.device import Context, refusal
from imgconv.errors import DeviceError


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
        launch = f"kernel {kernel.function_name!r}, global size {global_size}, local size {local_size}"
        raise refusal(context.info, launch, error) from error


def finish(context: Context) -> None:
    """Waits for everything enqueued. Raises ResourceError or DeviceError where something enqueued failed."""
    try:
        context.queue.finish()
    except cl.Error as error:
        raise refusal(context.info, "waiting for the launches", error) from error


def durations(context: Context, events: Iterable[cl.Event]) -> list[float]:
    """Seconds that each launch took on the device; waits for all. Raises DeviceError if not opened with ``profile``."""
    if not context.profile:
        raise DeviceError(f"{context.info.name} was opened without profile=True: launches are not timed")
    finish(context)
    return [(event.profile.end - event.profile.start) * 1e-9 for event in events]
