"""Concatenation: puts tensors next to each other along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy

from imgconv.arrays import Array
from imgconv.graph.intervals import Range, union_of_ranges
from imgconv.graph.operations.operation import Operation, RangeOf
from imgconv.graph.values import Operand, Value
from imgconv.graph.view import Shape


@dataclass(frozen=True)
class Concatenation(Operation):
    """The operands concatenated along `axis`."""

    axis: int
    copies: ClassVar[bool] = True

    def fits(self, views: Sequence[Shape], shape: Shape) -> bool:
        a = self.axis
        rest = all(v[:a] + v[a + 1 :] == shape[:a] + shape[a + 1 :] for v in views)
        return rest and sum(v[a] for v in views) == shape[a]

    def combine(self, loaded: Sequence[Array], output: Value) -> Array:
        return numpy.concatenate(loaded, axis=self.axis)

    def bounds(self, operands: Sequence[Operand], of: RangeOf, shape: Shape) -> Range:
        return union_of_ranges([of(operand) for operand in operands])

    def __str__(self) -> str:
        return f"concatenation axis {self.axis}"
