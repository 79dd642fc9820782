"""The base class of the operations: the interface that each of them implements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import ClassVar

from imgconv.arrays import Array
from imgconv.graph.intervals import ANY, Range
from imgconv.graph.values import Operand, Value
from imgconv.graph.view import Shape, View

RangeOf = Callable[[Operand], Range]


class Operation:
    """The work of a node on what its operands read. Each subclass is a frozen dataclass.

    copies: whether the result's elements are elements of the operands as they are read.
    """

    copies: ClassVar[bool] = False

    def fits(self, views: Sequence[Shape], shape: Shape) -> bool:
        """Returns whether operands whose views have these shapes give a result of this shape."""
        raise NotImplementedError

    def combine(self, loaded: Sequence[Array], output: Value) -> Array:
        """The result in numpy. loaded: what each operand reads, in float64 or int64."""
        raise NotImplementedError

    def evaluate(self, operands: Sequence[Operand], arrays: Sequence[Array], output: Value) -> Array:
        """The result in numpy. arrays: the values that the operands read."""
        return self.combine([o.read(array) for o, array in zip(operands, arrays, strict=True)], output)

    def bounds(self, operands: Sequence[Operand], of: RangeOf, shape: Shape) -> Range:
        """The range of the result. of: gives that of the elements that an operand reads."""
        return ANY

    def elements_read(self, views: Sequence[View], shape: Shape) -> int:
        """The number of elements that `evaluate` reads, at least one for each output: its time follows."""
        return sum(prod(view.shape) for view in views)
