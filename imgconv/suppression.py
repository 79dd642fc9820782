"""Non-maximum suppression: of boxes that show the same thing, the best one stays."""

from __future__ import annotations

import numpy

from imgconv.arrays import Array


def suppress(boxes: Array, scores: Array, most_overlap: float, most: int | None = None) -> Array:
    """The numbers of the boxes that stay, int64, best first.

    boxes: (n, 4) left, top, right, bottom, in any unit; scores: (n). The best box stays, and boxes whose intersection
    over union with it is more than most_overlap go; then the best of the others, until `most` stay. Of equal scores
    the first counts as better. Example: suppress([[0, 0, 9, 9], [0, 0, 9, 8]], [0.5, 0.6], 0.5) is [1].
    """
    corners = numpy.asarray(boxes, numpy.float64).reshape(-1, 4)
    areas = (corners[:, 2] - corners[:, 0]) * (corners[:, 3] - corners[:, 1])
    waiting = numpy.argsort(-numpy.asarray(scores, numpy.float64), kind="stable")
    kept: list[int] = []
    while waiting.size and (most is None or len(kept) < most):
        best, waiting = int(waiting[0]), waiting[1:]
        kept.append(best)
        low = numpy.maximum(corners[best, :2], corners[waiting, :2])
        high = numpy.minimum(corners[best, 2:], corners[waiting, 2:])
        shared = numpy.maximum(high - low, 0).prod(axis=1)
        waiting = waiting[shared <= most_overlap * (areas[best] + areas[waiting] - shared)]
    return numpy.array(kept, numpy.int64)
