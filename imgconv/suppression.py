"""Non-maximum suppression: of boxes that show the same thing, the best one stays."""

from __future__ import annotations

import numpy

from imgconv.arrays import Array


def suppress(
    boxes: Array, scores: Array, most_overlap: float, most: int | None = None, groups: Array | None = None
) -> Array:
    """The numbers of the boxes that stay, int64: group by group in the order of their numbers, best first in each.

    boxes: (n, 4) left, top, right, bottom, in any unit; scores: (n); groups: (n), whole numbers, such as classes: boxes
    of different groups do not touch each other. The best box of a group stays, and boxes of it whose intersection over
    union with that one is more than most_overlap go; then the best of the others, until `most` of the group stay. Of
    equal scores the first is better. A box without an area covers none, and none covers it. Overlaps are computed in
    the dtype of the boxes if they are floats. Example: suppress([[0, 0, 9, 9], [0, 0, 9, 8]], [0.5, 0.6], 0.5) is [1].
    """
    corners, values = numpy.asarray(boxes).reshape(-1, 4), numpy.asarray(scores).reshape(-1)
    corners = corners if corners.dtype.kind == "f" else corners.astype(numpy.float64)
    group = numpy.zeros(len(values), numpy.int64) if groups is None else numpy.asarray(groups)
    # The sort keeps the order of equal ones. One round keeps the best box that is left of every group.
    left = numpy.lexsort((-values, group))
    areas = (corners[:, 2] - corners[:, 0]) * (corners[:, 3] - corners[:, 1])
    kept: list[Array] = []
    while left.size and (most is None or len(kept) < most):
        first = numpy.flatnonzero(numpy.diff(group[left], prepend=group[left[0]] - 1))
        kept.append(left[first])
        best = numpy.repeat(left[first], numpy.diff(first, append=len(left)))
        stays = ~_covered(corners, areas, left, best, most_overlap)
        stays[first] = False
        left = left[stays]
    chosen = numpy.concatenate(kept) if kept else numpy.zeros(0, numpy.int64)
    return chosen[numpy.argsort(group[chosen], kind="stable")].astype(numpy.int64)


def _covered(corners: Array, areas: Array, these: Array, best: Array, limit: float) -> Array:
    """Whether each of `these` boxes overlaps the box in `best` at its place by more than the limit."""
    own, other = corners[these], corners[best]
    width = numpy.minimum(own[:, 2], other[:, 2]) - numpy.maximum(own[:, 0], other[:, 0])
    height = numpy.minimum(own[:, 3], other[:, 3]) - numpy.maximum(own[:, 1], other[:, 1])
    both = numpy.maximum(width, 0) * numpy.maximum(height, 0)
    union = areas[these] + areas[best] - both
    has_area = (both > 0) & (areas[these] > 0) & (areas[best] > 0) & (union > 0)
    covered: Array = has_area & (both / numpy.where(has_area, union, 1) > corners.dtype.type(limit))
    return covered
