"""The first elements of rows, in order of size."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

import numpy
from hypothesis import strategies as st
from problems import Array, Instance, Shape, numbers

from imgconv.kernels.order import template as order_kernel
from imgconv.tensor import Tensor, order

Content = Literal["any", "ties", "equal", "special"]
SPECIAL = numpy.float32([numpy.nan, numpy.inf, -numpy.inf, 0.0, -0.0, 6.1e-5, -6.1e-5, 1.0])


@dataclass(frozen=True)
class OrderProblem:
    """The first `count` along the last axis. content: 'ties' has four values, 'special' NaN, infinities and zeros.

    seen: how the rows are read: 'plain', 'transposed' (the last two axes) or 'sliced' (out of a longer tensor).
    """

    shape: Shape
    count: int
    largest: bool = True
    content: Content = "any"
    seen: str = "plain"

    def instance(self) -> Instance:
        shape = self.shape
        if self.seen == "transposed":
            shape = (*shape[:-2], shape[-1], shape[-2])
        elif self.seen == "sliced":
            shape = (*shape[:-1], shape[-1] + 3)
        name = f"{self.content}_{'x'.join(map(str, shape))}"
        array = self._numbers(shape, name)
        tensor, rows = Tensor.input(name, shape), array
        if self.seen == "transposed":
            rank = len(shape)
            tensor, rows = tensor.transpose(*range(rank - 2), rank - 1, rank - 2), numpy.swapaxes(array, -1, -2)
        elif self.seen == "sliced":
            tensor, rows = tensor.slice(len(shape) - 1, 2, shape[-1] - 1), array[..., 2:-1]
        expected = self.compute(rows)
        return Instance(order(tensor, self.count, self.largest), {name: array}, expected, numpy.zeros(expected.shape))

    def _numbers(self, shape: Shape, name: str) -> Array:
        random = numpy.random.default_rng(prod(shape))
        if self.content == "any":
            return numbers(shape, name)
        if self.content == "equal":
            return numpy.full(shape, 0.5, numpy.float32)
        values = SPECIAL if self.content == "special" else numpy.float32([1, -1, 2, 0.5])
        return values[random.integers(0, len(values), shape)]

    def compute(self, rows: Array) -> Array:
        """The reference: Python's stable sort of each row by a key."""

        def key(pair: tuple[int, float]) -> tuple[bool, float]:
            missing = numpy.isnan(pair[1])
            value = 0.0 if missing else float(pair[1])
            return (not missing, -value) if self.largest else (bool(missing), value)

        flat = rows.reshape(-1, rows.shape[-1])
        made = [[n for n, _ in sorted(enumerate(row), key=key)][: self.count] for row in flat]
        return numpy.array(made, numpy.float64).reshape(*rows.shape[:-1], self.count)


def order_problems() -> st.SearchStrategy[OrderProblem]:
    """Any small order: ranks 1 to 4, all contents, views of the rows."""

    @st.composite
    def draw(pick: st.DrawFn) -> OrderProblem:
        shape = (*pick(st.lists(st.integers(1, 3), max_size=3)), pick(st.sampled_from([1, 2, 5, 8, 31, 64, 90, 257])))
        seen = pick(st.sampled_from(["plain", "sliced", "transposed"] if len(shape) > 1 else ["plain", "sliced"]))
        content: Content = pick(st.sampled_from(["any", "ties", "equal", "special"]))
        return OrderProblem(shape, pick(st.integers(1, shape[-1])), pick(st.booleans()), content, seen)

    return draw()


def order_specialisations(problem: order_kernel.Problem) -> list[order_kernel.Specialisation]:
    """One work item, and groups that divide nothing."""
    return [order_kernel.Specialisation(items) for items in (1, 5, 32, 64)]
