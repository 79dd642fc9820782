"""Order: the positions of the largest or smallest elements of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy

from imgconv.arrays import Array
from imgconv.graph.intervals import Range
from imgconv.graph.operations.operation import Operation, RangeOf
from imgconv.graph.values import Operand, Value
from imgconv.graph.view import Shape


@dataclass(frozen=True)
class Order(Operation):
    """The positions of the first elements of operand 0 along its last axis, in order of size.

    The operand's view has the shape (..., N), the output (..., K) with K <= N. Equal elements are in order of position.
    largest: whether the largest comes first. NaN counts as larger than every number.
    """

    largest: bool

    def fits(self, views: Sequence[Shape], shape: Shape) -> bool:
        return len(views) == 1 and views[0][:-1] == shape[:-1] and shape[-1] <= views[0][-1]

    def combine(self, loaded: Sequence[Array], output: Value) -> Array:
        (x,) = loaded
        if self.largest:
            falling = -x if x.dtype.kind == "f" else ~x
            order = numpy.lexsort((falling, ~numpy.isnan(x)), axis=-1)
        else:
            order = numpy.argsort(x, axis=-1, kind="stable")
        return numpy.asarray(order)[..., : output.shape[-1]]

    def bounds(self, operands: Sequence[Operand], of: RangeOf, shape: Shape) -> Range:
        return 0, max(0, operands[0].view.shape[-1] - 1)

    def __str__(self) -> str:
        return f"order of the {'largest' if self.largest else 'smallest'}"
