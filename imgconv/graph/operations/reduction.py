"""Reduction: sums, extrema and positions of extrema; also pooling and resizing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

import numpy

from imgconv.arrays import Array
from imgconv.graph.expression import IDENTITY, Expression, evaluate
from imgconv.graph.intervals import ANY, Range, product_of_ranges, range_of
from imgconv.graph.operations.operation import Operation, RangeOf
from imgconv.graph.values import Operand, Value
from imgconv.graph.view import Shape

ReductionKind = Literal["sum", "max", "min", "product", "argmax"]
_REDUCE: Mapping[str, Callable[..., Array]] = {
    "sum": numpy.sum, "max": numpy.max, "min": numpy.min, "product": numpy.prod
}


@dataclass(frozen=True)
class Reduction(Operation):
    """A `body` of the operands, reduced over the last axes of their views.

    Each view has the shape output.shape + window, and the reduction runs over the window.
    kind: sum, max, min, product, or argmax. On a device, max and min ignore NaN. argmax gives the row-major position in
    the window of the largest element, the first if several are equal.
    """

    kind: ReductionKind
    body: Expression

    def fits(self, views: Sequence[Shape], shape: Shape) -> bool:
        return len(set(views)) == 1 and views[0][: len(shape)] == shape

    def combine(self, loaded: Sequence[Array], output: Value) -> Array:
        body = numpy.asarray(evaluate(self.body, loaded))
        axes = tuple(range(len(output.shape), body.ndim))
        if self.kind == "argmax":
            return numpy.asarray(numpy.argmax(body.reshape(*output.shape, -1), axis=-1))
        if not body.size:
            return numpy.full(output.shape, neutral(self.kind, output.dtype))
        return _REDUCE[self.kind](body, axis=axes)

    def bounds(self, operands: Sequence[Operand], of: RangeOf, shape: Shape) -> Range:
        count = prod(operands[0].view.shape[len(shape) :])
        if self.kind == "argmax":
            return 0, count
        body = range_of(self.body, [of(operand) for operand in operands])
        if self.kind == "sum":
            return product_of_ranges(body, (count, count))
        return body if self.kind in ("max", "min") and count else ANY

    def __str__(self) -> str:
        return f"{self.kind} of {self.body}" if self.body != IDENTITY else self.kind


def neutral(kind: ReductionKind, dtype: str) -> float:
    """The neutral element of a reduction, such as 0 for a sum. Also the reduction over no elements."""
    kinds = {"sum": 0.0, "max": -numpy.inf, "argmax": -numpy.inf, "min": numpy.inf, "product": 1.0}
    if kind in ("max", "argmax", "min") and not dtype.startswith("float"):
        low, high = (0, 1) if dtype == "bool" else (numpy.iinfo(dtype).min, numpy.iinfo(dtype).max)
        if kind == "argmax":
            return min(low - 1, -1)  # less than every number of the type, which then wins
        return high if kind == "min" else low
    return kinds[kind]
