"""NonMaxSuppression, the end of detectors."""

from __future__ import annotations

from typing import Any

from imgconv.arrays import Array
from imgconv.host.registry import HostCall, host
from imgconv.suppression import suppress_by_class


@host("NonMaxSuppression")
def non_max_suppression(
    call: HostCall, boxes: Array, scores: Array, most: Array | None = None, overlap: Array | None = None,
    least: Array | None = None,
) -> Any:
    """(batch, class, box) of each box that overlaps no better kept one of its class by more than the limit."""
    return suppress_by_class(boxes, scores, most, overlap, least, centred=call.flag("center_point_box"))
