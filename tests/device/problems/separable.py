"""Depthwise convolutions with the 1x1 convolution that reads them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from math import prod

import numpy
from hypothesis import strategies as st
from problems import ROUNDING, Array, Instance, Pair, half_rounding, numbers, rounding, runs_rounding, source
from problems.convolution import ConvolutionProblem, Sizes

from imgconv.kernels.separable import problem as separable_kernel
from imgconv.kernels.separable.candidates import candidates
from imgconv.tensor import Tensor, convolution


@dataclass(frozen=True)
class SeparableProblem(Sizes):
    """A depthwise convolution of these sizes, then a 1x1 convolution to `filters` channels.

    between: whether a bias is added, and the result kept in 0 .. 6, before the second. residual: whether a further
    input is added after it.
    """

    pads: tuple[int, int, int, int] = (1, 1, 1, 1)
    between: bool = True
    residual: bool = False

    @property
    def depthwise(self) -> ConvolutionProblem:
        return ConvolutionProblem(
            self.batch, self.channels, self.size, self.channels, self.window, self.strides, self.dilations, self.pads,
            self.channels,
        )

    def instance(self) -> Instance:
        inputs: dict[str, Array] = {}
        first = self.depthwise
        second = ConvolutionProblem(self.batch, self.channels, first.output_size, self.filters, (1, 1))
        x, array = source((self.batch, self.channels, *self.size), inputs)
        windows, weights = numbers(first.weights_shape, "windows"), numbers(second.weights_shape, "w")
        bias = numbers((1, self.channels, 1, 1), "bias")
        made = convolution(x, Tensor.constant(windows), self.strides, self.pads, self.dilations, self.channels)
        middle = first.compute(array, windows.astype(numpy.float64))
        taps, sizes = prod(self.window), first.compute(numpy.abs(array), numpy.abs(windows)) + numpy.abs(bias)
        error, half_error = rounding(taps + 1, sizes), half_rounding(taps + 1, sizes)
        if self.between:
            made = (made + Tensor.constant(bias)).clip(0.0, 6.0)
            middle = numpy.clip(middle + bias, 0, 6)
        output = convolution(made, Tensor.constant(weights), [1, 1], [0] * 4, [1, 1])
        expected = second.compute(middle, weights.astype(numpy.float64))
        # The error of the first sum goes through the second, which adds its own.
        magnitude = second.compute(numpy.abs(middle), numpy.abs(weights))
        error = second.compute(error, numpy.abs(weights)) + rounding(self.channels + 1, magnitude)
        # In half the result of the first is rounded once more, as it is stored.
        half_error = second.compute(half_error + 2.0**-10 * numpy.abs(middle), numpy.abs(weights))
        magnitude += half_error
        runs_error = half_error + runs_rounding(self.channels + 1, 1, magnitude)
        half_error = half_error + half_rounding(self.channels + 1, magnitude)
        if self.residual:
            other, added = source(expected.shape, inputs, "residual")
            output, expected, error = output + other, expected + added, error + ROUNDING * numpy.abs(added)
        return Instance(output, inputs, expected, error, half_error, runs_error)


def separable_problems(most: int = 13) -> st.SearchStrategy[SeparableProblem]:
    """Any small pair: windows up to 5, strides up to 3, dilations up to 2, ragged channels, batch up to 3."""

    @st.composite
    def draw(pick: st.DrawFn) -> SeparableProblem:
        def pair(low: int, high: int) -> Pair:
            return pick(st.integers(low, high)), pick(st.integers(low, high))

        made = SeparableProblem(
            pick(st.integers(1, 3)), pick(st.integers(1, most)), pair(1, 9), pick(st.integers(1, most)), pair(1, 5),
            pair(1, 3), pair(1, 2), (*pair(0, 2), *pair(0, 2)), pick(st.booleans()), pick(st.booleans()),
        )
        return made if min(made.depthwise.output_size) >= 1 else replace(made, size=(12, 12))

    return draw()


def separable_specialisations(problem: separable_kernel.Problem) -> list[separable_kernel.Specialisation]:
    """The candidates of a GPU, and blocks and tiles that divide nothing."""
    made = candidates(problem, "gpu", 1 << 15)
    made += [
        separable_kernel.Specialisation(columns, quads, across, down, group_quads, parts)
        for columns, quads, (across, down), group_quads, parts in itertools.product(
            (1, 2, 3), (1, 2, 3), ((1, 1), (2, 3), (3, 1)), (1, 3), (1, 2, 5)
        )
    ]
    return [c for c in made if c.local_bytes(problem) <= 1 << 15]
