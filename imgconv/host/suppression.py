"""NonMaxSuppression, the end of detectors."""

from __future__ import annotations

from typing import Any

import numpy

from imgconv.arrays import Array
from imgconv.host.registry import Call, host
from imgconv.suppression import suppress


@host("NonMaxSuppression")
def non_max_suppression(
    call: Call, boxes: Array, scores: Array, most: Array | None = None, overlap: Array | None = None,
    least: Array | None = None,
) -> Any:
    """(batch, class, box) of each box that overlaps no better kept one of its class by more than the limit.

    boxes: (batch, N, 4); scores: (batch, classes, N). Equal scores are taken in order of the boxes, and all comparisons
    are in float, as in onnxruntime.
    """
    count = 0 if most is None else int(most.item())
    limit = numpy.float32(0 if overlap is None else overlap.item())
    classes, size = scores.shape[1:]
    flat = scores.reshape(-1)
    likely = numpy.arange(flat.size) if least is None else numpy.flatnonzero(flat > least.item())
    group = likely // size  # a class of a batch element
    corners = _corners(boxes, call.flag("center_point_box"))[group // classes, likely % size]
    chosen = likely[suppress(corners, flat[likely], float(limit), count, group)]
    return numpy.stack([chosen // (classes * size), chosen // size % classes, chosen % size], 1).astype(numpy.int64)


def _corners(boxes: Array, centred: bool) -> Array:
    """Boxes as (low, low, high, high)."""
    first, second = boxes[..., :2], boxes[..., 2:]
    if centred:
        return numpy.concatenate([first - second / 2, first + second / 2], -1)
    return numpy.concatenate([numpy.minimum(first, second), numpy.maximum(first, second)], -1)
