"""Gather: reads elements at computed indices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy

from imgconv.arrays import Array
from imgconv.graph.intervals import ANY, Range, union_of_ranges
from imgconv.graph.operations.operation import Operation, RangeOf
from imgconv.graph.operations.reduction import Reduction
from imgconv.graph.values import Operand, Value
from imgconv.graph.view import Shape, View


@dataclass(frozen=True)
class Gather(Operation):
    """The elements of operand 0, the table, at the indices that the next operands hold.

    operands: table, index_1 .. index_k. The table's view has the shape output.shape + (K_1, .., K_k). The view of each
    index has the output's shape. The result at i is the table's view at (i, index_1[i], .., index_k[i]). Indices are
    rounded to the nearest integer. If one is NaN or not in 0 .. K-1, the result is the table's fill value.

    reduction: of these elements, argument 0 of its body, and of further operands. All views then have the shape
    output.shape + window in place of output.shape.
    """

    reduction: Reduction | None = None

    def fits(self, views: Sequence[Shape], shape: Shape) -> bool:
        table, *rest = views
        lead = rest[-1] if rest else ()
        count = len(rest) if self.reduction is None else len(table) - len(lead)
        if not 0 < count <= len(rest) or len(table) != len(lead) + count or any(v != lead for v in rest):
            return False
        return table[: len(lead)] == lead and lead[: len(shape)] == shape and (
            lead == shape or self.reduction is not None
        )

    def evaluate(self, operands: Sequence[Operand], arrays: Sequence[Array], output: Value) -> Array:
        table, indices = operands[0], index_operands(operands)
        shape, first = indices[0].view.shape, 1 + len(indices)
        position = list(numpy.meshgrid(*(numpy.arange(n) for n in shape), indexing="ij", sparse=True))
        inside = numpy.ones((1,) * len(shape), bool)
        sizes = table.view.shape[len(shape) :]
        for operand, array, size in zip(indices, arrays[1:first], sizes, strict=True):
            chosen = numpy.rint(operand.view.evaluate(array, operand.fill))
            valid = (chosen >= 0) & (chosen < size)
            inside = inside & valid
            position.append(numpy.where(valid, chosen, 0).astype(numpy.int64))
        read = table.view.evaluate_at(arrays[0], position, shape, table.fill)
        chosen = numpy.where(inside, read, numpy.asarray(table.fill).astype(arrays[0].dtype))
        if self.reduction is None:
            return chosen
        others = [o.read(array) for o, array in zip(operands[first:], arrays[first:], strict=True)]
        return self.reduction.combine([chosen, *others], output)

    def bounds(self, operands: Sequence[Operand], of: RangeOf, shape: Shape) -> Range:
        fill = operands[0].fill
        return ANY if self.reduction is not None else union_of_ranges([of(operands[0]), (fill, fill)])

    def elements_read(self, views: Sequence[View], shape: Shape) -> int:
        return prod(views[-1].shape) * len(views)

    def __str__(self) -> str:
        return "gather" if self.reduction is None else f"gather, {self.reduction}"


def index_operands(operands: Sequence[Operand]) -> Sequence[Operand]:
    """The operands of a Gather that hold indices."""
    table, first = operands[:2]
    return operands[1 : 1 + len(table.view.shape) - len(first.view.shape)]
