"""Reductions over the same rows with the work between them: softmax and its like."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy
from hypothesis import strategies as st
from problems import Array, Instance, Shape, rounding, source

from imgconv.tensor import Tensor


@dataclass(frozen=True)
class RowsProblem:
    """Reductions over axes and the work that reads their results. work: a key of ROWS."""

    shape: Shape
    axes: tuple[int, ...]
    work: str

    def instance(self) -> Instance:
        inputs: dict[str, Array] = {}
        x, array = source(self.shape, inputs)
        terms = prod(self.shape[a] for a in self.axes)
        expected, error = getattr(self, f"_{self.work}")(array, terms)
        return Instance(ROWS[self.work](x, self.axes), inputs, expected, error)

    # References: what comes out and how far off it may be, by the rounding of sums; exp is right to 2 units.

    def _softmax(self, x: Array, terms: int) -> tuple[Array, Array]:
        powers = numpy.exp(x)
        result = powers / powers.sum(self.axes, keepdims=True)
        return result, rounding(terms + 8, result)

    def _log_sum_exp(self, x: Array, terms: int) -> tuple[Array, Array]:
        result = numpy.log(numpy.exp(x).sum(self.axes, keepdims=True))
        return result, rounding(terms + 8, 1 + numpy.abs(result))

    def _normalise(self, x: Array, terms: int) -> tuple[Array, Array]:
        inverse = 1 / numpy.sqrt(x.var(self.axes, keepdims=True) + 0.1)
        result = (x - x.mean(self.axes, keepdims=True)) * inverse
        return result, rounding(terms + 8, inverse * numpy.abs(x).mean(self.axes, keepdims=True) + numpy.abs(result))

    def _scale(self, x: Array, terms: int) -> tuple[Array, Array]:
        return x * x.max(self.axes, keepdims=True), rounding(1, numpy.abs(x) * 2)


def normalise(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """(x - mean) / sqrt(variance + 0.1)."""
    centred = x - x.mean(axes, keepdims=True)
    return centred / ((centred * centred).mean(axes, keepdims=True) + 0.1).sqrt()


def softmax(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """exp(x - max) / sum of the same."""
    powers = (x - x.max(axes, keepdims=True)).exp()
    return powers / powers.sum(axes, keepdims=True)


def log_sum_exp(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """log(sum(exp(x))), with the largest taken out first."""
    largest = x.max(axes, keepdims=True)
    return (x - largest).exp().sum(axes, keepdims=True).log() + largest


ROWS: dict[str, Callable[[Tensor, tuple[int, ...]], Tensor]] = {
    "softmax": softmax, "log_sum_exp": log_sum_exp, "normalise": normalise,
    "scale": lambda x, axes: x * x.max(axes, keepdims=True),
}


def rows_problems() -> st.SearchStrategy[RowsProblem]:
    """Any work on rows of a small tensor of rank 1 to 5, along any axes."""

    @st.composite
    def draw(pick: st.DrawFn) -> RowsProblem:
        shape = tuple(pick(st.lists(st.sampled_from([1, 2, 3, 4, 5, 8]), min_size=1, max_size=5)))
        axes = pick(st.sets(st.integers(0, len(shape) - 1), min_size=1))
        return RowsProblem(shape, tuple(sorted(axes)), pick(st.sampled_from(sorted(ROWS))))

    return draw()
