"""NonMaxSuppression, the end of detectors."""

from __future__ import annotations

from typing import Any

import numpy

from imgconv.arrays import Array
from imgconv.host.registry import Call, host


@host("NonMaxSuppression")
def non_max_suppression(
    call: Call, boxes: Array, scores: Array, most: Array | None = None, overlap: Array | None = None,
    least: Array | None = None,
) -> Any:
    """(batch, class, box) of each box that overlaps no better kept one of its class by more than the limit.

    boxes: (batch, N, 4); scores: (batch, classes, N). Equal scores are taken in order of the boxes, and all comparisons
    are in float, as in onnxruntime. One round keeps the best box that is left of every class, and drops what it covers.
    """
    count = 0 if most is None else int(most.item())
    limit = numpy.float32(0 if overlap is None else overlap.item())
    classes, size = scores.shape[1:]
    flat = scores.reshape(-1)
    alive = numpy.arange(flat.size) if least is None else numpy.flatnonzero(flat > least.item())
    # By group (a class of a batch element), then by score, best first; the sort keeps the order of equal ones.
    alive = alive[numpy.lexsort((-flat[alive], alive // size))]
    corners = _corners(boxes, call.flag("center_point_box"))
    area = (corners[..., 2] - corners[..., 0]) * (corners[..., 3] - corners[..., 1])
    group = alive // size
    of = (group // classes, alive % size)
    corner, areas = corners[of], area[of]
    kept = []
    for _ in range(count):
        if not len(alive):
            break
        first = numpy.flatnonzero(numpy.diff(group, prepend=-1))
        kept.append(alive[first])
        head = numpy.repeat(first, numpy.diff(first, append=len(alive)))
        left = ~_covered(corner, areas, head, limit)
        left[first] = False
        alive, group, corner, areas = alive[left], group[left], corner[left], areas[left]
    if not kept:
        return numpy.zeros((0, 3), numpy.int64)
    chosen = numpy.concatenate(kept)
    chosen = chosen[numpy.argsort(chosen // size, kind="stable")]
    return numpy.stack([chosen // (classes * size), chosen // size % classes, chosen % size], 1).astype(numpy.int64)


def _covered(corner: Array, areas: Array, head: Array, limit: numpy.float32) -> Array:
    """Whether each box overlaps the box at its `head` by more than the limit; never if one of them has no area."""
    other = corner[head]
    width = numpy.minimum(corner[:, 2], other[:, 2]) - numpy.maximum(corner[:, 0], other[:, 0])
    height = numpy.minimum(corner[:, 3], other[:, 3]) - numpy.maximum(corner[:, 1], other[:, 1])
    both = numpy.maximum(width, 0) * numpy.maximum(height, 0)
    union = areas + areas[head] - both
    has_area = (both > 0) & (areas > 0) & (areas[head] > 0) & (union > 0)
    covered: Array = has_area & (both / numpy.where(has_area, union, 1) > limit)
    return covered


def _corners(boxes: Array, centred: bool) -> Array:
    """Boxes as (low, low, high, high)."""
    first, second = boxes[..., :2], boxes[..., 2:]
    if centred:
        return numpy.concatenate([first - second / 2, first + second / 2], -1)
    return numpy.concatenate([numpy.minimum(first, second), numpy.maximum(first, second)], -1)
