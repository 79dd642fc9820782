"""Product: the matrix product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy

from imgconv.arrays import Array
from imgconv.graph.operations.operation import Operation
from imgconv.graph.values import Value
from imgconv.graph.view import Shape, View


@dataclass(frozen=True)
class Product(Operation):
    """Matrix product of a (B..., M, K) and b (B..., K, N), with equal batch axes, to (B..., M, N)."""

    def fits(self, views: Sequence[Shape], shape: Shape) -> bool:
        if len(views) != 2 or not views[0][:-2] == views[1][:-2] == shape[:-2]:
            return False
        return (views[0][-2], views[1][-1]) == shape[-2:] and views[0][-1] == views[1][-2]

    def combine(self, loaded: Sequence[Array], output: Value) -> Array:
        return numpy.asarray(numpy.matmul(loaded[0], loaded[1]))

    def elements_read(self, views: Sequence[View], shape: Shape) -> int:
        return prod(shape) * views[0].shape[-1]

    def __str__(self) -> str:
        return "product"
