"""Makes new plans for a driver: without kernels at which its compiler crashes, and within its limit of work groups."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from imgconv.checking.session_checks import WrongResultError
from imgconv.cl.building.crashes import RefusedError
from imgconv.cl.device_info import DeviceInfo
from imgconv.runtime.launches import WorkGroupError

LOG = logging.getLogger("imgconv")
T = TypeVar("T")
MOST_REFUSED = 8  # plans of a load; a compiler that still crashes then will not stop


def replan_until_kernels_work(info: DeviceInfo, make: Callable[[DeviceInfo], T]) -> T:
    """Returns the result of `make`, which plans for a device and builds the kernels.

    Calls it again for a device with smaller work groups if the driver allows only these, and without a kernel that
    crashes the driver's compiler or computes wrongly, which `refused_kernels` lists then.
    """
    left = MOST_REFUSED
    while True:
        try:
            return make(info)
        except (RefusedError, WrongResultError) as error:
            left -= 1
            if not left:
                raise
            LOG.info("%s; planned again without it", error)
        except WorkGroupError as error:
            if not 0 < error.most < info.max_work_group_size:
                raise
            LOG.info("%s; planned again for smaller work groups", error)
            info = replace(info, max_work_group_size=error.most)
