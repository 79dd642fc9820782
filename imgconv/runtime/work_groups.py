"""Work groups that a driver allows: fewer work items for a kernel than for the device, if it needs many registers.

    plan for the device -> build -> ask for each kernel -> too many items: plan again for a device with smaller groups
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from imgconv.cl.device import Context
from imgconv.cl.program import most_items
from imgconv.cl.queue import Launch as Bound
from imgconv.compiling.plan import Launch
from imgconv.errors import ResourceError


class WorkGroupError(ResourceError):
    """A kernel has more work items in a group than the driver allows for it: `most`."""

    def __init__(self, message: str, tensor: str, most: int) -> None:
        super().__init__(message, tensor)
        self.most = most
        self.args = (message, tensor, most)


def check_work_groups(context: Context, launches: Sequence[Launch], bound: Sequence[Bound]) -> None:
    """Raises WorkGroupError for the launch whose kernel allows the fewest work items, if any has more than it may."""
    sources = {launch.source.text: (launch, kernel) for launch, (kernel, *_) in zip(launches, bound, strict=True)}
    found = [
        (most, items, launch) for launch, kernel in sources.values()
        if (items := prod(launch.source.local_size or ())) > 1 and items > (most := most_items(context, kernel))
    ]
    if found:
        most, items, launch = min(found, key=lambda each: each[0])
        raise WorkGroupError(
            f"the kernel ({launch.source.path}) has work groups of {items} work items, and {context.info.name} allows "
            f"{most} for it", launch.name, most,
        )
