"""The spread of an output that is no answer of a known task."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy

from imgconv.arrays import Array


@dataclass(frozen=True)
class Summary:
    """The spread of a tensor's finite values, NaN if it has none. not_finite: the number of other values."""

    minimum: float
    maximum: float
    mean: float
    not_finite: int


def summarize(array: Array) -> Summary:
    """The spread of any array. Example: summarize(numpy.array([1.0, 3.0])) is Summary(1, 3, 2, 0)."""
    if array.size:
        least, most = float(array.min()), float(array.max())
        if math.isfinite(least) and math.isfinite(most):  # and so is what lies between
            return Summary(least, most, float(array.mean(dtype=numpy.float64)), 0)
    finite = array[numpy.isfinite(array)]
    if not finite.size:
        return Summary(math.nan, math.nan, math.nan, array.size)
    mean = float(finite.mean(dtype=numpy.float64))
    return Summary(float(finite.min()), float(finite.max()), mean, array.size - finite.size)
