"""Load: elementwise work and movement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from imgconv.arrays import Array
from imgconv.graph.intervals import Range
from imgconv.graph.operations.operation import Operation, RangeOf
from imgconv.graph.values import Operand, Value
from imgconv.graph.view import Shape


@dataclass(frozen=True)
class Load(Operation):
    """The result is operand 0. Elementwise operators (in the epilogue) and movements (in the view) are loads."""

    copies: ClassVar[bool] = True

    def fits(self, views: Sequence[Shape], shape: Shape) -> bool:
        return list(views) == [shape]

    def combine(self, loaded: Sequence[Array], output: Value) -> Array:
        return loaded[0]

    def bounds(self, operands: Sequence[Operand], of: RangeOf, shape: Shape) -> Range:
        return of(operands[0])

    def __str__(self) -> str:
        return "load"
