"""Convolutions."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from math import prod

import numpy
from hypothesis import strategies as st
from problems import Array, Instance, Pair, Shape, half_rounding, numbers, rounding, runs_rounding, source

from imgconv.kernels.conv import candidates as conv_candidates, problem as convolution_kernel
from imgconv.kernels.target import TargetKind
from imgconv.tensor import Tensor, convolution


@dataclass(frozen=True)
class Sizes:
    """The sizes of a convolution of (batch, channels, size). pads: top, left, bottom, right, as in ONNX."""

    batch: int = 1
    channels: int = 4
    size: Pair = (5, 6)
    filters: int = 4
    window: Pair = (3, 3)
    strides: Pair = (1, 1)
    dilations: Pair = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)


@dataclass(frozen=True)
class ConvolutionProblem(Sizes):
    """A convolution.

    computed: the weights are an input. gated: the channels of x are multiplied by another input first.
    """

    groups: int = 1
    transposed: bool = False
    output_padding: Pair = (0, 0)
    computed: bool = False
    gated: bool = False

    @property
    def output_size(self) -> Pair:
        rows, columns = (self._output(axis) for axis in (0, 1))
        return rows, columns

    def _output(self, axis: int) -> int:
        reach = (self.window[axis] - 1) * self.dilations[axis] + 1
        pads = self.pads[axis] + self.pads[axis + 2]
        if self.transposed:
            return (self.size[axis] - 1) * self.strides[axis] + reach + self.output_padding[axis] - pads
        return (self.size[axis] + pads - reach) // self.strides[axis] + 1

    @property
    def weights_shape(self) -> Shape:
        if self.transposed:
            return (self.channels, self.filters // self.groups, *self.window)
        return (self.filters, self.channels // self.groups, *self.window)

    def instance(self) -> Instance:
        inputs: dict[str, Array] = {}
        x, array = source((self.batch, self.channels, *self.size), inputs)
        if self.computed:
            weights, wide = source(self.weights_shape, inputs, "w")
        else:
            array_of_weights = numbers(self.weights_shape, "w")
            weights, wide = Tensor.constant(array_of_weights), array_of_weights.astype(numpy.float64)
        if self.gated:
            # Powers of two: a product that is stored is exact in half too.
            gate, factors = source((self.batch, self.channels, 1, 1), inputs, "gate")
            factors = numpy.exp2(numpy.round(factors)) * numpy.where(factors < 0, -1, 1)
            inputs[gate.name or ""] = factors.astype(numpy.float32)
            x, array = x * gate, array * factors
        output = convolution(
            x, weights, self.strides, self.pads, self.dilations, self.groups, self.output_size, self.transposed
        )
        terms = prod(self.window) * self.channels // self.groups
        magnitude = self.compute(numpy.abs(array), numpy.abs(wide))
        error, half_error = rounding(terms + self.gated, magnitude), half_rounding(terms, magnitude)
        runs_error = runs_rounding(terms, prod(self.window), magnitude)
        return Instance(output, inputs, self.compute(array, wide), error, half_error, runs_error)

    def compute(self, x: Array, w: Array) -> Array:
        """The reference: forward by slices of an explicitly padded array, transposed by scattering every input."""
        parts = []
        for group in range(self.groups):
            each = self.channels // self.groups
            part = x[:, group * each : (group + 1) * each]
            if self.transposed:
                parts.append(self._scatter(part, w[group * each : (group + 1) * each]))
            else:
                out = self.filters // self.groups
                parts.append(self._correlate(part, w[group * out : (group + 1) * out]))
        return numpy.concatenate(parts, axis=1)

    def _correlate(self, x: Array, w: Array) -> Array:
        top, left, bottom, right = self.pads
        before = (max(0, -top), max(0, -left))
        after = (x.shape[2] - max(0, -bottom), x.shape[3] - max(0, -right))
        cropped = x[:, :, before[0] : after[0], before[1] : after[1]]
        zeros = [(max(0, n), max(0, m)) for n, m in ((0, 0), (0, 0), (top, bottom), (left, right))]
        padded = numpy.pad(cropped, zeros)
        (rows, columns), (sy, sx), (dy, dx) = self.output_size, self.strides, self.dilations
        total = numpy.zeros((x.shape[0], w.shape[0], rows, columns))
        for ky, kx in itertools.product(range(self.window[0]), range(self.window[1])):
            seen = padded[:, :, ky * dy :: sy, kx * dx :: sx][:, :, :rows, :columns]
            total += (w[:, :, ky, kx] @ seen.reshape(*seen.shape[:2], -1)).reshape(total.shape)
        return total

    def _scatter(self, x: Array, w: Array) -> Array:
        top, left, bottom, right = self.pads
        (rows, columns), (sy, sx), (dy, dx) = self.output_size, self.strides, self.dilations
        full = numpy.zeros((x.shape[0], w.shape[1], rows + top + bottom, columns + left + right))
        for ky, kx in itertools.product(range(self.window[0]), range(self.window[1])):
            made = (w[:, :, ky, kx].T @ x.reshape(*x.shape[:2], -1)).reshape(x.shape[0], -1, *x.shape[2:])
            full[:, :, ky * dy :: sy, kx * dx :: sx][:, :, : made.shape[2], : made.shape[3]] += made
        return full[:, :, top : top + rows, left : left + columns]


def winograd_matrices(outputs: int) -> tuple[Array, Array, Array]:
    """A, B and G of F(outputs, 3): Toom and Cook's product of polynomials, at these points and infinity, transposed."""
    points = numpy.array([0, 1, -1] if outputs == 2 else [0, 0.75, -0.75, 1.5, -1.5])
    taps = len(points) + 1
    a, b, g = numpy.zeros((outputs, taps)), numpy.zeros((taps, outputs + 2)), numpy.zeros((taps, 3))
    for k, point in enumerate(points):
        others = numpy.delete(points, k)
        a[:, k] = point ** numpy.arange(outputs)
        b[k, :-1] = numpy.poly(others)[::-1]
        g[k] = point ** numpy.arange(3) / numpy.prod(point - others)
    a[-1, -1] = g[-1, -1] = 1
    b[-1] = numpy.poly(points)[::-1]
    return a, b, g


def convolution_problems(most: int = 9) -> st.SearchStrategy[ConvolutionProblem]:
    """Any small convolution: ragged groups, windows up to 4, strides up to 3, dilations up to 2, batch up to 3."""

    @st.composite
    def draw(pick: st.DrawFn) -> ConvolutionProblem:
        def pair(low: int, high: int) -> Pair:
            return pick(st.integers(low, high)), pick(st.integers(low, high))

        groups = pick(st.sampled_from([1, 1, 1, 2, 3, 4, 5, 8]))
        window, transposed, strides = pair(1, 4), pick(st.booleans()), pair(1, 3)
        made = ConvolutionProblem(
            pick(st.integers(1, 3)), groups * pick(st.integers(1, max(1, most // groups))), pair(1, 9),
            groups * pick(st.integers(1, max(1, most // groups))), window, strides, pair(1, 2),
            (*pair(0, 2), *pair(0, 2)), groups, transposed,
            (pick(st.integers(0, strides[0] - 1)), pick(st.integers(0, strides[1] - 1))) if transposed else (0, 0),
        )
        if min(made.output_size) >= 1:
            return made
        return replace(made, size=(12, 12), pads=(0, 0, 0, 0))

    return draw()


# Multiply-adds of four-vectors in a loop over the window.
MOST_UNROLLED = 400


def convolution_specialisations(problem: convolution_kernel.Problem) -> list[convolution_kernel.Specialisation]:
    """The candidates of each kind of device, and blocks that divide nothing, as far as conv.cl allows them.

    The numbers of problems are small. Intel's driver takes 12 seconds to compile a block of 18 with a window of 7x7.
    """
    devices: tuple[tuple[TargetKind, int], ...] = (("cpu", 2), ("gpu", 2), ("gpu", 132))
    made = [c for kind, units in devices for c in conv_candidates.candidates(problem, kind, units)]
    half = max((c.half_quads for c in made), default=0)
    for columns, rows, quads, keep in itertools.product((1, 3, 5), (1, 2, 3), (1, 2, 3, 4), convolution_kernel.KEEP):
        for weights, parts, passes, vector, local in (
            ("image", 1, 1, 1, None), ("buffer", 1, 2, 1, (4, 1, 2)), ("buffer", 1, 1, 4, None),
            ("image", 1, 3, 4, (2, 2, 1)), ("image", 2, 1, 1, (1, 4, 3)), ("image", 3, 1, 1, (2, 3, 1)),
            ("local", 1, 1, 1, (2, 3, 2)),
        ):
            block = convolution_kernel.Specialisation(
                columns, rows, quads, keep, weights, local, vector, passes, parts, half
            )
            made.append(block)
    longest = MOST_UNROLLED // prod(problem.window)
    return [c for c in made if c.allowed(problem) and c.block_columns * c.block_rows * c.block_quads <= longest]
