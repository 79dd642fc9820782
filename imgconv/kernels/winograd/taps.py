"""Transforms 3x3 windows of weights to taps of Winograd's filtering, also when a compiled file is read."""

from __future__ import annotations

import numpy

from imgconv.arrays import Array

WINDOW = 9  # numbers of a window
# The points at which F(tile, 3) interpolates, besides minus these, 0 and infinity, and divisors of the rows of G.
POINTS, DIVISOR = {2: (1.0,), 4: (0.75, 1.5)}, {2: 2.0, 4: 1.0}


def winograd_taps(windows: Array, tile: int) -> Array:
    """Returns the taps G g G' of each 3x3 window g, (..., 3, 3), as float32: (..., (tile + 2)**2).

    A compiled file contains only the windows. Every reader computes the sums in float64 in this order.
    """
    taps: Array = windows.astype(numpy.float64)
    for axis in (-2, -1):
        first, middle, last = numpy.moveaxis(taps, axis, 0)
        rows = [first]
        for point in POINTS[tile]:
            ends, between = first + point**2 * last, point * middle
            rows += [(ends + between) / DIVISOR[tile], (ends - between) / DIVISOR[tile]]
        taps = numpy.stack([*rows, last], axis)
    return taps.reshape(*windows.shape[:-2], -1).astype(numpy.float32)
