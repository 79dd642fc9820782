"""Reductions over axes."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy
from hypothesis import strategies as st
from problems import Array, Instance, Shape, rounding, source

from imgconv.graph import expression
from imgconv.graph.expression import Argument


@dataclass(frozen=True)
class ReductionProblem:
    """A reduction over axes: 'sum', 'max', 'min', 'product' or, over one axis, 'argmax'. square: of the squares."""

    shape: Shape
    axes: tuple[int, ...]
    kind: str = "sum"
    keepdims: bool = False
    square: bool = False

    def instance(self) -> Instance:
        inputs: dict[str, Array] = {}
        x, array = source(self.shape, inputs)
        if self.kind == "argmax":
            # Few different numbers, so that the first of several is looked for; half holds their doubles.
            output, places = (x * 2).apply("round").argmax(self.axes[0]), numpy.rint(array * 2).argmax(self.axes[0])
            return Instance(output, inputs, places, 0.0 * places)
        body = expression.apply("multiply", Argument(0), Argument(0)) if self.square else Argument(0)
        output = x.reduce(self.kind, self.axes, self.keepdims, body)
        array = array**2 if self.square else array
        kinds: dict[str, Any] = {"sum": numpy.sum, "max": numpy.max, "min": numpy.min, "product": numpy.prod}
        reduce = kinds[self.kind]
        expected = reduce(array, axis=self.axes, keepdims=self.keepdims)
        terms = prod(self.shape[a] for a in self.axes)
        if self.kind == "sum":
            error = rounding(terms, numpy.sum(numpy.abs(array), axis=self.axes, keepdims=self.keepdims))
        else:
            error = rounding(terms, numpy.abs(expected)) if self.kind == "product" or self.square else 0 * expected
        return Instance(output, inputs, numpy.asarray(expected), numpy.asarray(error))


def reduction_problems() -> st.SearchStrategy[ReductionProblem]:
    """Any reduction of a small tensor of rank 1 to 5 over a set of axes that is not empty."""

    @st.composite
    def draw(pick: st.DrawFn) -> ReductionProblem:
        shape = tuple(pick(st.lists(st.sampled_from([1, 2, 3, 4, 5, 7]), min_size=1, max_size=5)))
        axes = pick(st.sets(st.integers(0, len(shape) - 1), min_size=1))
        few = prod(shape[a] for a in axes) <= 16  # so that no product leaves what float represents
        kind = pick(st.sampled_from(["sum", "max", "min", *["product"] * few, *["argmax"] * (len(axes) == 1)]))
        square = kind == "sum" and pick(st.booleans())
        return ReductionProblem(shape, tuple(sorted(axes)), kind, pick(st.booleans()), square)

    return draw()
