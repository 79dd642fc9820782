"""Non-maximum suppression: removes boxes that overlap a better box."""

from __future__ import annotations

import numpy

from imgconv.arrays import Array

PAIRS = 60_000  # of boxes that are compared at once, for the size of a tile: their numbers stay in the CPU's cache
SMALLEST, LARGEST = 16, 256  # boxes of a group in a tile
MANY = 1024  # boxes of one group that are split first
FIRST, MORE = 2, 4  # how many boxes are looked at for each that may stay, and how many times as many if too few stay


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
    if not len(values) or (most is not None and most <= 0):
        return numpy.zeros(0, numpy.int64)
    order = order_by_score(values, group)
    limit, wanted = corners.dtype.type(most_overlap), len(values) if most is None else most
    if group[order[0]] == group[order[-1]] and len(values) > MANY:
        return _suppress_group(corners, order, limit, wanted)
    return order[_GroupedSuppression(corners[order], _run_starts(group[order]), limit, wanted).kept()]


def suppress_by_class(
    boxes: Array, scores: Array, most: Array | None = None, overlap: Array | None = None, least: Array | None = None,
    centred: bool = False,
) -> Array:
    """ONNX's NonMaxSuppression: (batch, class, box) of each box that stays, int64, best first in each class.

    boxes: (batch, N, 4), two corners or, if centred, middle and size; scores: (batch, classes, N); most: of each class,
    none without it; overlap: the intersection over union up to which boxes stay; least: scores must be over it. Equal
    scores are taken in order of the boxes, and all comparisons are in float, as in onnxruntime.
    """
    count = 0 if most is None else int(most.item())
    limit = numpy.float32(0 if overlap is None else overlap.item())
    classes, size = scores.shape[1:]
    flat = scores.reshape(-1)
    likely = numpy.arange(flat.size) if least is None else numpy.flatnonzero(flat > least.item())
    group = likely // size  # a class of a batch element
    corners = _corners(boxes, centred)[group // classes, likely % size]
    chosen = likely[suppress(corners, flat[likely], float(limit), count, group)]
    return numpy.stack([chosen // (classes * size), chosen // size % classes, chosen % size], 1).astype(numpy.int64)


def _corners(boxes: Array, centred: bool) -> Array:
    """Boxes as (low, low, high, high)."""
    first, second = boxes[..., :2], boxes[..., 2:]
    if centred:
        return numpy.concatenate([first - second / 2, first + second / 2], -1)
    made = numpy.empty_like(boxes)
    for axis in (0, 1):  # numpy is slow if the last axis has two elements
        numpy.minimum(boxes[..., axis], boxes[..., axis + 2], out=made[..., axis])
        numpy.maximum(boxes[..., axis], boxes[..., axis + 2], out=made[..., axis + 2])
    return made


def _suppress_group(corners: Array, order: Array, limit: numpy.floating, most: int) -> Array:
    """`suppress` for boxes of one group, in this order: those that lie apart are compared in groups of their own.

    Detectors shift the boxes of each class by more than a picture, so that classes do not touch each other. Worse boxes
    change nothing: the best are taken alone first, and more of them until enough stay.
    """
    count = FIRST * most
    while True:
        best = order[:count]
        part = _disjoint_parts(corners[best])
        by_part = numpy.argsort(part, kind="stable")
        kept = by_part[_GroupedSuppression(corners[best[by_part]], _run_starts(part[by_part]), limit, most).kept()]
        if len(kept) >= most or count >= len(order):
            return best[numpy.sort(kept)[:most]]
        count *= MORE


def _disjoint_parts(corners: Array) -> Array:
    """The number of each box's part: no box of a part reaches a box of another from left to right."""
    along = numpy.argsort(corners[:, 0], kind="stable")
    reach = numpy.maximum.accumulate(corners[along, 2])  # of the boxes to the left; NaN splits nothing
    number = numpy.zeros(len(corners), numpy.int64)
    number[along[1:]] = numpy.cumsum(corners[along[1:], 0] >= reach[:-1])
    return number


def _run_starts(group: Array) -> Array:
    """The first element of each run of equal numbers."""
    return numpy.flatnonzero(numpy.diff(group, prepend=group[0] - 1))


def order_by_score(values: Array, group: Array) -> Array:
    """The numbers of boxes, int64: by group, then the largest value first, equal ones in order."""
    if not len(values) or values.dtype != numpy.float32 or group.min() < 0 or group.max() >= 1 << 16:
        return numpy.lexsort((-values, group))
    # The bits of a float, as a number that is the smaller the larger the float is; -0.0 + 0.0 is 0.0. numpy sorts whole
    # numbers several times faster than places of floats, and those of 16 bits by digits.
    bits = (values + numpy.float32(0)).view(numpy.uint32)
    falling = numpy.where(bits >> 31, bits, ~(bits | numpy.uint32(1 << 31)))
    keys = numpy.sort(falling.astype(numpy.uint64) << numpy.uint64(32) | numpy.arange(len(values), dtype=numpy.uint64))
    best_first = (keys & numpy.uint64(0xFFFFFFFF)).astype(numpy.int64)
    ordered: Array = best_first[numpy.argsort(group[best_first].astype(numpy.uint16), kind="stable")]
    return ordered


class _GroupedSuppression:
    """Boxes of several groups one after another, the best of each first. starts: the first of each group.

    All groups go on together, in tiles of their best boxes: the next boxes of each are compared with those that stay so
    far and with each other.
    """

    def __init__(self, corners: Array, starts: Array, limit: numpy.floating, most: int) -> None:
        self.starts, self.limit = starts, limit
        self.area = (corners[:, 2] - corners[:, 0]) * (corners[:, 3] - corners[:, 1])
        # Every comparison with NaN is false: a box without an area covers none.
        self.corners = numpy.where((self.area > 0)[:, None], corners, numpy.nan)
        self.sizes = numpy.diff(starts, append=len(corners))
        self.most = min(most, int(self.sizes.max()))
        self.chosen = numpy.zeros((len(starts), min(self.most, SMALLEST)), numpy.int64)
        self.counts = numpy.zeros(len(starts), numpy.int64)
        self.done = numpy.zeros(len(starts), numpy.int64)

    def kept(self) -> Array:
        """The numbers of the boxes that stay, by group, the best first."""
        while len(active := numpy.flatnonzero((self.done < self.sizes) & (self.counts < self.most))):
            self.decide_tile(active)
        return numpy.concatenate([row[:count] for row, count in zip(self.chosen, self.counts)])

    def decide_tile(self, active: Array) -> None:
        """Decides on the next boxes of the active groups."""
        length = min(max(int((PAIRS / len(active)) ** 0.5), SMALLEST), LARGEST, int(self.sizes.max()))
        place = self.done[active][:, None] + numpy.arange(length)
        alive = place < self.sizes[active][:, None]
        tile = self.starts[active][:, None] + numpy.minimum(place, self.sizes[active][:, None] - 1)
        self.done[active] += length
        counts = self.counts[active]
        before = int(counts.max())
        if before:
            is_chosen = numpy.arange(before) < counts[:, None]
            alive &= ~(self.overlaps(tile, self.chosen[active, :before]) & is_chosen[:, None, :]).any(2)
        pairs = self.overlaps(tile, tile)
        better = pairs & numpy.tri(length, k=-1, dtype=bool)
        kept = numpy.zeros(alive.shape, bool)
        while alive.any():
            # No better one can cover these; what they cover goes.
            new = alive & ~(better & alive[:, None]).any(2)
            kept |= new
            alive &= ~(new | (pairs & new[:, None]).any(2))
        kept &= numpy.cumsum(kept, 1) <= (self.most - counts)[:, None]
        self.keep(active, tile, kept)

    def keep(self, active: Array, tile: Array, kept: Array) -> None:
        """Adds the boxes of a tile that stay to those of their groups."""
        row, column = numpy.nonzero(kept)
        number = self.counts[active][row] + (numpy.cumsum(kept, 1) - 1)[row, column]
        if len(number) and number.max() >= self.chosen.shape[1]:
            more = min(max(2 * self.chosen.shape[1], int(number.max()) + 1), self.most)
            self.chosen = numpy.pad(self.chosen, [(0, 0), (0, more - self.chosen.shape[1])])
        self.chosen[active[row], number] = tile[row, column]
        self.counts[active] += kept.sum(1)

    def overlaps(self, these: Array, others: Array) -> Array:
        """Returns which pairs of boxes in each group overlap by more than the limit; a box without area does not."""
        own, other = self.corners[these][:, :, None], self.corners[others][:, None]
        width, height = (
            numpy.minimum(own[..., axis + 2], other[..., axis + 2]) - numpy.maximum(own[..., axis], other[..., axis])
            for axis in (0, 1)
        )
        both = numpy.multiply(numpy.maximum(width, 0, out=width), height, out=height)
        union = numpy.add(self.area[these][:, :, None], self.area[others][:, None], out=width)
        union -= both
        found: Array = numpy.divide(both, union, out=both) > self.limit
        return found
