"""Transforms 3x3 windows of weights to taps of Winograd's F(2x2, 3x3), also when a compiled file is read."""

from __future__ import annotations

import numpy

from imgconv.arrays import Array

WINDOW, TAPS = 9, 16  # numbers of a window, and its taps


def taps_of(windows: Array) -> Array:
    """Returns the taps G g G' of each 3x3 window g, (..., 3, 3), as float32: (..., 16).

    A compiled file contains only the windows. Every reader computes the sums in float64 in this order.
    """
    taps: Array = windows.astype(numpy.float64)
    for axis in (-2, -1):
        first, middle, last = numpy.moveaxis(taps, axis, 0)
        ends = first + last
        taps = numpy.stack([first, (ends + middle) / 2, (ends - middle) / 2, last], axis)
    return taps.reshape(*windows.shape[:-2], TAPS).astype(numpy.float32)
