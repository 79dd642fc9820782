"""Gathers by computed indices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy
from hypothesis import strategies as st
from problems import Array, Instance, Shape, source

from imgconv.graph.view import View, axis_variables
from imgconv.tensor import Tensor, gather


@dataclass(frozen=True)
class GatherProblem:
    """A table of the shape of an index, but for the axes that are chosen along, which have lengths of their own.

    fill: what is read where an index is outside, as some are. moved: the table and the result lie in another order.
    """

    shape: Shape
    axes: tuple[int, ...]
    lengths: tuple[int, ...]
    fill: float = 0.0
    moved: bool = False

    def instance(self) -> Instance:
        inputs: dict[str, Array] = {}
        table = list(self.shape)
        for axis, length in zip(self.axes, self.lengths, strict=True):
            table[axis] = length
        x, array = source(tuple(table), inputs, "table")
        x, array = (x.transpose(), array.T) if self.moved else (x, array)
        variables = axis_variables((*self.shape, *self.lengths))
        chosen = list(variables[: len(self.shape)])
        places = list(numpy.meshgrid(*(numpy.arange(n) for n in self.shape), indexing="ij"))
        inside, indices = numpy.ones(self.shape, bool), []
        for number, (axis, length) in enumerate(zip(self.axes, self.lengths, strict=True)):
            generator = numpy.random.default_rng([axis, length, *self.shape])
            index = generator.integers(-1, length + 1, self.shape)
            name = f"index_{axis}_{length}_{'x'.join(map(str, self.shape))}"
            inputs[name] = (index + generator.uniform(-0.4, 0.4, self.shape)).astype(numpy.float32)
            indices.append(Tensor.input(name, self.shape))
            inside &= (index >= 0) & (index < length)
            places[axis] = index.clip(0, length - 1)
            chosen[axis] = variables[len(self.shape) + number]
        order = reversed if self.moved else list
        seen = View((*self.shape, *self.lengths), x.shape, tuple(order(chosen)))
        expected = numpy.where(inside, array[tuple(order(places))], self.fill)
        made = gather(x, seen, indices, self.fill)
        made, expected = (made.transpose(), expected.T) if self.moved else (made, expected)
        return Instance(made, inputs, expected, 0 * expected)


def gather_problems() -> st.SearchStrategy[GatherProblem]:
    """Any gather of a small tensor of rank 1 to 5 along one axis or several."""

    @st.composite
    def draw(pick: st.DrawFn) -> GatherProblem:
        shape = tuple(pick(st.lists(st.sampled_from([1, 2, 3, 4, 5, 7]), min_size=1, max_size=5)))
        axes = tuple(sorted(pick(st.sets(st.integers(0, len(shape) - 1), min_size=1, max_size=3))))
        lengths = tuple(pick(st.sampled_from([1, 2, 4, 5, 9])) for _ in axes)
        return GatherProblem(shape, axes, lengths, pick(st.sampled_from([0.0, -1.5])), pick(st.booleans()))

    return draw()
