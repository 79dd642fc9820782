"""What kernels are asked to do, one class for each kind, with references that share no code with imgconv.

A problem is plain data: a geometry. `Problem.instance` records it with the lazy front end, draws its arrays and
computes, in float64 and by other formulas than imgconv's, what must come out and how far off a device may be:

    error = (terms + 2) * 2**-23 * sum of the absolute values of the terms           float storage
    error + 2**-10 * abs(expected) + 2**-24                                          half storage of the result
    ... + (terms in half + 2) * 2**-10 * sum of the absolute values of the terms     half arithmetic

Winograd's filtering, y = A ((B d) * (G g)), adds the terms |A| ((|B| |d|) * (|G| |g|)) of a tile, which are more and
larger than those of the sum that it stands for, and rounds some ten times more; its weights are rounded before they are
stored.

The first is twice the bound on any order of rounding a sum of exact products to float (unit roundoff 2**-24); what does
not round (a movement, a maximum) has error 0. Arrays hold numbers that half represents exactly, so that half storage
adds only the rounding of the result: to the nearest or towards zero, as an OpenCL device likes.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod
from typing import Any, Protocol

import numpy
from hypothesis import strategies as st

from imgconv import expression
from imgconv.expression import Argument
from imgconv.kernels import convolution as convolution_kernel
from imgconv.kernels import convolution_choice
from imgconv.kernels import product as product_kernel
from imgconv.kernels import separable as separable_kernel
from imgconv.tensor import Tensor, concatenate, convolution, elementwise, gather, less, where
from imgconv.view import View, axis_variables

Array = Any
Shape = tuple[int, ...]
Pair = tuple[int, int]
ROUNDING = 2.0**-23


@dataclass
class Instance:
    """A recorded problem: its output, an array for each input, what must come out, and how far float may be off."""

    output: Tensor
    inputs: dict[str, Array]
    expected: Array
    error: Array
    half_error: Array | float = 0.0
    stored_error: Array | float = 0.0

    def allowed(self, float16: int) -> Array:
        """The largest absolute difference from `expected` that is right. float16: as in Config."""
        stored = 2.0**-10 * numpy.abs(self.expected) + 2.0**-24 + self.stored_error if float16 else 0
        return self.error + stored + (self.half_error if float16 == 2 else 0)


class Problem(Protocol):
    """A geometry that knows what it means."""

    def instance(self) -> Instance:
        """The problem recorded. Equal problems draw equal arrays, and inputs of one shape are one input."""
        ...


def numbers(shape: Shape, name: str) -> Array:
    """Numbers between -2 and 2 that half represents exactly; equal names draw equal numbers."""
    generator = numpy.random.default_rng(zlib.crc32(f"{name} {shape}".encode()))
    return (generator.integers(-256, 257, shape) / 128).astype(numpy.float32)


def source(shape: Shape, inputs: dict[str, Array], name: str = "x") -> tuple[Tensor, Array]:
    """An input tensor of a shape and its numbers in float64; the numbers are added to `inputs`."""
    key = f"{name}_{'x'.join(map(str, shape))}"
    inputs[key] = numbers(shape, name)
    return Tensor.input(key, shape), inputs[key].astype(numpy.float64)


def rounding(terms: int, magnitude: Array) -> Array:
    """The error of a sum of `terms` products whose absolute values sum to `magnitude`."""
    return (terms + 2) * ROUNDING * magnitude


def half_rounding(terms: int, taps: int, magnitude: Array) -> Array:
    """The error of sums in half: of 32 terms, or of one input quad's where the window makes more of them."""
    return (min(terms, max(32, 4 * taps)) + 2) * 2.0**-10 * magnitude


# Convolution


@dataclass(frozen=True)
class ConvolutionProblem:
    """A convolution of (batch, channels, size). pads: top, left, bottom, right, as in ONNX.

    computed: the weights are an input. gated: the channels of x are multiplied by another input first. winograd: the
    outputs of a tile, where the error is to allow for Winograd's filtering of the window's columns.
    """

    batch: int = 1
    channels: int = 4
    size: Pair = (5, 6)
    filters: int = 4
    window: Pair = (3, 3)
    strides: Pair = (1, 1)
    dilations: Pair = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    groups: int = 1
    transposed: bool = False
    output_padding: Pair = (0, 0)
    computed: bool = False
    gated: bool = False
    winograd: int = 0

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
        roundings, stored = terms + self.gated, 0.0 * magnitude
        if self.winograd:
            magnitude = self._ordinary()._terms_of_tiles(numpy.abs(array), numpy.abs(self._ordinary_weights(wide)))
            # Less than 2**14 weights stay float.
            roundings, stored = roundings + 10, magnitude * (2.0**-11 if wide.size > 1 << 14 else 0)
        error, half_error = rounding(roundings, magnitude), half_rounding(terms, prod(self.window), magnitude)
        return Instance(output, inputs, self.compute(array, wide), error, half_error, stored)

    def _ordinary(self) -> ConvolutionProblem:
        """This problem as one that is not transposed, for strides of 1."""
        if not self.transposed:
            return self
        reach = [(k - 1) * d for k, d in zip(self.window, self.dilations, strict=True)]
        extra = (0, 0, *self.output_padding)
        pads = [r - p + e for r, p, e in zip((*reach, *reach), self.pads, extra, strict=True)]
        return replace(self, transposed=False, output_padding=(0, 0), pads=(pads[0], pads[1], pads[2], pads[3]))

    def _ordinary_weights(self, w: Array) -> Array:
        if not self.transposed:
            return w
        grouped = w.reshape(self.groups, -1, *w.shape[1:]).swapaxes(1, 2)
        return grouped.reshape(self.filters, -1, *self.window)[:, :, ::-1, ::-1]

    def _terms_of_tiles(self, x: Array, w: Array) -> Array:
        """The sum of |A| ((|B| x) * (|G| w)): for the i-th output of each tile a convolution by a longer window."""
        a, b, g = (numpy.abs(matrix) for matrix in winograd_matrices(self.winograd))
        top, left, bottom, right = self.pads
        total = numpy.zeros((x.shape[0], self.filters, *self.output_size))
        for i in range(self.winograd):
            window = ((w @ g.T) * a[i]) @ b
            pads = (top, left + i, bottom, right + self.winograd - 1 - i)
            longer = replace(self, window=(self.window[0], self.winograd + 2), pads=pads)
            total[..., i :: self.winograd] = longer.compute(x, window)[..., i :: self.winograd]
        return total

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
    points = numpy.array([0, 1, -1] if outputs == 2 else [0, 0.5**0.5, -(0.5**0.5), 2**0.5, -(2**0.5)])
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


def convolution_specialisations(problem: convolution_kernel.Problem) -> list[convolution_kernel.Specialisation]:
    """The candidates of both kinds of device, and blocks that divide nothing, as far as conv.cl allows them.

    The numbers of problems are small.
    """
    problem = replace(problem, small=True)
    made = [c for kind in ("cpu", "gpu") for c in convolution_choice.candidates(problem, kind)]
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
            tiles = ((columns, 0), (2, 2), (6, 2), (4, 4), (8, 4))
            made += [
                replace(block, block_columns=length, winograd=tile, staged_input=staged)
                for (length, tile), staged in itertools.product(tiles, (False, True))
            ]
    return [c for c in made if c.allowed(problem)]


# Depthwise separable convolution


@dataclass(frozen=True)
class SeparableProblem:
    """A depthwise convolution of (batch, channels, size), then a 1x1 convolution to `filters` channels.

    between: whether a bias is added, and the result kept in 0 .. 6, before the second. residual: whether a further
    input is added after it.
    """

    batch: int = 1
    channels: int = 4
    size: Pair = (5, 6)
    filters: int = 4
    window: Pair = (3, 3)
    strides: Pair = (1, 1)
    dilations: Pair = (1, 1)
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
        error = rounding(prod(self.window) + 1, first.compute(numpy.abs(array), numpy.abs(windows)) + numpy.abs(bias))
        if self.between:
            made = (made + Tensor.constant(bias)).clip(0.0, 6.0)
            middle = numpy.clip(middle + bias, 0, 6)
        output = convolution(made, Tensor.constant(weights), [1, 1], [0] * 4, [1, 1])
        expected = second.compute(middle, weights.astype(numpy.float64))
        # The error of the first sum goes through the second, which adds its own.
        magnitude = second.compute(numpy.abs(middle), numpy.abs(weights))
        error = second.compute(error, numpy.abs(weights)) + rounding(self.channels + 1, magnitude)
        if self.residual:
            other, added = source(expected.shape, inputs, "residual")
            output, expected, error = output + other, expected + added, error + ROUNDING * numpy.abs(added)
        return Instance(output, inputs, expected, error)


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
    made = separable_kernel.candidates(problem, "gpu", 1 << 15)
    made += [
        separable_kernel.Specialisation(columns, quads, across, down, group_quads, parts)
        for columns, quads, (across, down), group_quads, parts in itertools.product(
            (1, 2, 3), (1, 2, 3), ((1, 1), (2, 3), (3, 1)), (1, 3), (1, 2, 5)
        )
    ]
    return [c for c in made if c.local_bytes(problem) <= 1 << 15]


# Product


@dataclass(frozen=True)
class ProductProblem:
    """A matrix product with numpy's rules. constant: the side that is known at load time ('', 'a' or 'b').

    a_view, b_view: how the operand is read: 'plain', 'transposed' (its last two axes), 'sliced' (out of a longer
    tensor), 'steps' (every second element of its last axis) or 'reshaped' (from one flat row).
    """

    a: Shape
    b: Shape
    constant: str = ""
    a_view: str = "plain"
    b_view: str = "plain"

    def instance(self) -> Instance:
        inputs: dict[str, Array] = {}
        a, left = self._operand(self.a, self.a_view, "a", inputs)
        b, right = self._operand(self.b, self.b_view, "b", inputs)
        terms = self.a[-1]
        magnitude = self.compute(numpy.abs(left), numpy.abs(right))
        error, half_error = rounding(terms, magnitude), half_rounding(terms, 1, magnitude)
        return Instance(a.matmul(b), inputs, self.compute(left, right), error, half_error)

    def _operand(self, shape: Shape, seen: str, name: str, inputs: dict[str, Array]) -> tuple[Tensor, Array]:
        rank = len(shape)
        if seen == "transposed":
            stored: Shape = (*shape[:-2], shape[-1], shape[-2])
        elif seen == "sliced":
            stored = tuple(n + 2 for n in shape)
        elif seen == "steps":
            stored = (*shape[:-1], shape[-1] * 2)
        else:
            stored = shape if seen == "plain" else (1, prod(shape))
        if self.constant == name:
            array = numbers(stored, name)
            tensor, wide = Tensor.constant(array), array.astype(numpy.float64)
        else:
            tensor, wide = source(stored, inputs, name)
        if seen == "transposed":
            return tensor.transpose(*range(rank - 2), rank - 1, rank - 2), numpy.swapaxes(wide, -1, -2)
        if seen == "sliced":
            for axis, n in enumerate(shape):
                tensor = tensor.slice(axis, 0 if axis == rank - 1 else 1, n + (axis < rank - 1))
            inner = tuple(slice(0, n) if axis == rank - 1 else slice(1, n + 1) for axis, n in enumerate(shape))
            return tensor, wide[inner]
        if seen == "steps":
            return tensor.slice(rank - 1, 0, stored[-1], 2), wide[..., ::2]
        return (tensor, wide) if seen == "plain" else (tensor.reshape(*shape), wide.reshape(shape))

    def compute(self, a: Array, b: Array) -> Array:
        """The reference: one einsum over explicitly broadcast batch axes."""
        left = a[None] if a.ndim == 1 else a
        right = b[:, None] if b.ndim == 1 else b
        batch = numpy.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        left = numpy.broadcast_to(left, (*batch, *left.shape[-2:]))
        right = numpy.broadcast_to(right, (*batch, *right.shape[-2:]))
        made = numpy.einsum("...mk,...kn->...mn", left, right)
        made = made[..., 0, :] if a.ndim == 1 else made
        return made[..., 0] if b.ndim == 1 else made


def product_problems() -> st.SearchStrategy[ProductProblem]:
    """Any small product: ranks 2 to 4, batches broadcast on either side, views of both operands."""

    @st.composite
    def draw(pick: st.DrawFn) -> ProductProblem:
        m, k, n = (pick(st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9, 13])) for _ in range(3))
        batch = pick(st.lists(st.integers(1, 3), max_size=2))
        sides = [tuple(1 if pick(st.booleans()) else n for n in batch) for _ in range(2)]
        views = st.sampled_from(["plain", "plain", "transposed", "sliced", "steps", "reshaped"])
        return ProductProblem(
            (*sides[0], m, k), (*sides[1], k, n), pick(st.sampled_from(["", "b", "a"])), pick(views), pick(views)
        )

    return draw()


def product_specialisations(problem: product_kernel.Problem) -> list[product_kernel.Specialisation]:
    """The candidates of both kinds of device, and blocks that divide nothing."""
    made = [c for kind in ("cpu", "gpu") for c in product_kernel.candidates(problem, kind)]
    made += [
        product_kernel.Specialisation(rows, quads, parts, columns)
        for rows, quads, parts, columns in itertools.product((1, 2, 3), (1, 2, 3), (1, 2, 16), (1, 4))
        if parts > 1 or columns == 1
    ]
    return made


# Generated kernels


@dataclass(frozen=True)
class LoadProblem:
    """The tensor as it is: what elementwise work starts from."""

    shape: Shape

    def instance(self) -> Instance:
        inputs: dict[str, Array] = {}
        x, array = source(self.shape, inputs)
        return Instance(x, inputs, array, numpy.zeros(self.shape))


@dataclass(frozen=True)
class BroadcastProblem:
    """The first tensor minus the product of the others, each broadcast to the common shape."""

    shapes: tuple[Shape, ...]

    def instance(self) -> Instance:
        inputs: dict[str, Array] = {}
        tensors, arrays = zip(*(source(shape, inputs, f"b{n}") for n, shape in enumerate(self.shapes)), strict=True)
        tensor, array, magnitude = tensors[-1], arrays[-1], numpy.abs(arrays[-1])
        for t, a in zip(tensors[-2:0:-1], arrays[-2:0:-1], strict=True):
            tensor, array, magnitude = t * tensor, a * array, numpy.abs(a) * magnitude
        shape = numpy.broadcast_shapes(*self.shapes)
        expected = numpy.broadcast_to(numpy.asarray(arrays[0] - array), shape)
        error = rounding(len(tensors), numpy.broadcast_to(numpy.abs(arrays[0]) + magnitude, shape))
        return Instance(tensors[0] - tensor, inputs, expected, error)


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


@dataclass(frozen=True)
class PoolingProblem:
    """Sliding windows over the last axes. pads: befores then afters. round_up: ONNX's ceil_mode.

    kind: 'max', 'min', 'sum' or 'average' (which does not count the padding).
    """

    shape: Shape
    window: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    kind: str = "max"
    round_up: bool = False

    def sizes(self) -> tuple[int, ...]:
        d = len(self.window)
        made = []
        for axis, n in enumerate(self.shape[-d:]):
            room = n + self.pads[axis] + self.pads[axis + d] - (self.window[axis] - 1) * self.dilations[axis] - 1
            count = (ceil(room / self.strides[axis]) if self.round_up else room // self.strides[axis]) + 1
            # As ONNX says, a window that starts in the padding after the tensor is left out.
            while self.round_up and count > 1 and (count - 1) * self.strides[axis] >= n + self.pads[axis]:
                count -= 1
            made.append(count)
        return tuple(made)

    def instance(self) -> Instance:
        inputs: dict[str, Array] = {}
        x, array = source(self.shape, inputs)
        sizes, terms = self.sizes(), prod(self.window)
        args = (self.window, self.strides, self.pads, self.dilations, sizes)
        if self.kind != "average":
            expected = self.compute(array)
            error = rounding(terms, self.compute(numpy.abs(array))) if self.kind == "sum" else 0 * expected
            return Instance(x.pool(self.kind, *args), inputs, expected, error)
        counted = self.compute(numpy.ones_like(array))
        share = (1 / numpy.maximum(counted, 1)).astype(numpy.float32)
        output = x.pool("sum", *args, scale=Tensor.constant(share))
        error = rounding(terms + 2, self.compute(numpy.abs(array)) * share)
        return Instance(output, inputs, self.compute(array) * share, error)

    def compute(self, x: Array) -> Array:
        """The reference: a loop over the window's taps of an explicitly padded array."""
        d, sizes = len(self.window), self.sizes()
        neutral = {"max": -numpy.inf, "min": numpy.inf, "sum": 0.0, "average": 0.0}[self.kind]
        combine = {"max": numpy.maximum, "min": numpy.minimum}.get(self.kind, numpy.add)
        spare = max(self.strides) * 2 + max(self.window) * max(self.dilations)
        amounts = [(0, 0)] * (x.ndim - d) + [(self.pads[a], self.pads[a + d] + spare) for a in range(d)]
        padded = numpy.pad(x, amounts, constant_values=neutral)
        total = numpy.full((*x.shape[: x.ndim - d], *sizes), neutral)
        for tap in itertools.product(*(range(n) for n in self.window)):
            seen: tuple[Any, ...] = tuple(
                slice(t * dilation, t * dilation + (n - 1) * stride + 1, stride)
                for t, dilation, n, stride in zip(tap, self.dilations, sizes, self.strides, strict=True)
            )
            total = combine(total, padded[(Ellipsis, *seen)])
        return total


def pooling_problems() -> st.SearchStrategy[PoolingProblem]:
    """Any pooling of a small tensor over one to three axes; each window meets the tensor."""

    @st.composite
    def draw(pick: st.DrawFn) -> PoolingProblem:
        d = pick(st.integers(1, 3))
        shape = (*pick(st.tuples(st.integers(1, 2), st.integers(1, 6))), *(pick(st.integers(1, 7)) for _ in range(d)))
        window = tuple(pick(st.integers(1, min(3, shape[2 + a]))) for a in range(d))
        dilations = tuple(
            pick(st.integers(1, max(1, min(2, (shape[2 + a] - 1) // max(1, window[a] - 1))))) for a in range(d)
        )
        strides = tuple(pick(st.integers(1, 3)) for _ in range(d))
        pads = tuple(pick(st.integers(0, window[a % d] - 1)) for a in range(2 * d))
        kind = pick(st.sampled_from(["max", "min", "sum", "average"]))
        return PoolingProblem(shape, window, strides, pads, dilations, kind, pick(st.booleans()))

    return draw()


@dataclass(frozen=True)
class MovementProblem:
    """Movements one after another: (name, argument...) in the words of numpy."""

    shape: Shape
    steps: tuple[tuple[Any, ...], ...]

    def instance(self) -> Instance:
        inputs: dict[str, Array] = {}
        tensor, array = source(self.shape, inputs)
        for name, *args in self.steps:
            tensor, array = MOVEMENTS[name](tensor, array, *args)
        return Instance(tensor, inputs, array, numpy.zeros(array.shape))


def _pad(
    tensor: Tensor, array: Array, before: Sequence[int], after: Sequence[int], fill: float
) -> tuple[Tensor, Array]:
    amounts = list(zip(before, after, strict=True))
    return tensor.pad(before, after, fill), numpy.pad(array, amounts, constant_values=fill)


def _slice(tensor: Tensor, array: Array, axis: int, start: int, stop: int, step: int) -> tuple[Tensor, Array]:
    positions = list(range(start, stop, step))
    return tensor.slice(axis, start, stop, step), numpy.take(array, positions, axis)


MOVEMENTS: Mapping[str, Callable[..., tuple[Tensor, Array]]] = {
    "reshape": lambda t, a, shape: (t.reshape(*shape), a.reshape(shape)),
    "transpose": lambda t, a, order: (t.transpose(*order), a.transpose(order)),
    "expand": lambda t, a, shape: (t.expand(*shape), numpy.broadcast_to(a, shape)),
    "flip": lambda t, a, axis: (t.slice(axis, t.shape[axis] - 1, -1, -1), numpy.flip(a, axis)),
    "take": lambda t, a, axis, positions: (t.take(axis, positions), numpy.take(a, positions, axis)),
    "slice": _slice,
    "pad": _pad,
}


def movement_steps(shape: Shape, most: int = 4) -> st.SearchStrategy[tuple[tuple[Any, ...], ...]]:
    """Steps for a MovementProblem of the given shape; results stay small."""

    @st.composite
    def draw(pick: st.DrawFn) -> tuple[tuple[Any, ...], ...]:
        steps: list[tuple[Any, ...]] = []
        now = list(shape)
        for _ in range(pick(st.integers(1, most))):
            name = pick(st.sampled_from(sorted(MOVEMENTS)))
            axis = pick(st.integers(0, len(now) - 1)) if now else 0
            if name == "reshape":
                now = list(pick(st.sampled_from(_factorings(prod(now)))))
                steps.append((name, tuple(now)))
            elif name == "expand":
                if prod(now) > 200 or len(now) > 4:
                    continue
                now = [pick(st.integers(1, 3)) if n == 1 else n for n in now]
                now = [pick(st.integers(1, 3)), *now]
                steps.append((name, tuple(now)))
            elif not now:
                continue
            elif name == "transpose":
                order = tuple(pick(st.permutations(range(len(now)))))
                now = [now[a] for a in order]
                steps.append((name, order))
            elif name == "flip":
                steps.append((name, axis))
            elif name == "take":
                positions = tuple(pick(st.lists(st.integers(0, now[axis] - 1), min_size=1, max_size=6)))
                now[axis] = len(positions)
                steps.append((name, axis, positions))
            elif name == "slice":
                start = pick(st.integers(0, now[axis] - 1))
                stop = pick(st.integers(start + 1, now[axis]))
                step = pick(st.integers(1, 3))
                now[axis] = len(range(start, stop, step))
                steps.append((name, axis, start, stop, step))
            else:
                before = tuple(pick(st.integers(0, 2)) if prod(now) < 300 else 0 for _ in now)
                after = tuple(pick(st.integers(0, 2)) if prod(now) < 300 else 0 for _ in now)
                now = [b + n + a for b, n, a in zip(before, now, after, strict=True)]
                steps.append((name, before, after, pick(st.sampled_from([0.0, 0.0, -1.5]))))
        return tuple(steps)

    return draw()


def _factorings(size: int) -> list[Shape]:
    """A few shapes of a size, of rank 1 to 4."""
    made: list[Shape] = [(size,), (1, size), (size, 1, 1)]
    for n in range(2, min(size, 12)):
        if size % n == 0:
            made += [(n, size // n), (size // n, n), (1, n, size // n, 1)]
            rest = size // n
            made += [(n, m, rest // m) for m in range(2, min(rest, 6)) if rest % m == 0]
            made += [(1, m, n, rest // m) for m in range(2, min(rest, 6)) if rest % m == 0]
    return made


def movement_problems(most: int = 6) -> st.SearchStrategy[list[MovementProblem]]:
    """Any few movements of one small tensor of rank 1 to 5; where there are several, the tensor is a texture."""
    shapes = st.lists(st.sampled_from([1, 2, 3, 4, 5, 6]), min_size=1, max_size=5).filter(lambda s: prod(s) <= 400)

    def movements(shape: Shape) -> st.SearchStrategy[list[MovementProblem]]:
        made = st.builds(MovementProblem, st.just(shape), movement_steps(shape))
        return st.lists(made, min_size=1, max_size=most)

    return shapes.map(tuple).flatmap(movements)


@dataclass(frozen=True)
class ConcatenationProblem:
    """Tensors one after another along an axis. computed: each part is made on the device first, with f(0) = 1."""

    shapes: tuple[Shape, ...]
    axis: int
    computed: bool = False

    def instance(self) -> Instance:
        inputs: dict[str, Array] = {}
        tensors, arrays = [], []
        for number, shape in enumerate(self.shapes):
            tensor, array = source(shape, inputs, f"part{number}")
            tensors.append(tensor.clip(-1, 0.5) + 1 if self.computed else tensor)
            arrays.append(numpy.clip(array, -1, 0.5) + 1 if self.computed else array)
        expected = numpy.concatenate(arrays, self.axis)
        return Instance(concatenate(tensors, self.axis), inputs, expected, numpy.zeros(expected.shape))


@dataclass(frozen=True)
class ResampleProblem:
    """Linear (half-pixel centres) or nearest resizing of one axis after another to the given sizes."""

    shape: Shape
    sizes: tuple[tuple[int, int], ...]
    linear: bool = True

    def instance(self) -> Instance:
        inputs: dict[str, Array] = {}
        tensor, array = source(self.shape, inputs)
        magnitude = numpy.abs(array)
        for axis, size in self.sizes:
            positions, weights = self._taps(array.shape[axis], size)
            tensor = tensor.resample(axis, positions, weights)
            matrix = numpy.zeros((size, array.shape[axis]))
            for row, (taps, factors) in enumerate(zip(positions, weights, strict=True)):
                for tap, factor in zip(taps, factors, strict=True):
                    matrix[row, tap] += factor
            array = numpy.moveaxis(numpy.tensordot(matrix, array, (1, axis)), 0, axis)
            magnitude = numpy.moveaxis(numpy.tensordot(matrix, magnitude, (1, axis)), 0, axis)
        return Instance(tensor, inputs, array, rounding(2 * len(self.sizes), magnitude) if self.linear else 0 * array)

    def _taps(self, length: int, size: int) -> tuple[list[list[int]], list[list[float]]]:
        positions, weights = [], []
        for out in range(size):
            if not self.linear:
                positions.append([out * length // size])
                weights.append([1.0])
                continue
            centre = min(max((out + 0.5) * length / size - 0.5, 0), length - 1)
            low = min(int(centre), length - 1)
            share = float(numpy.float32(centre - low))
            positions.append([low, min(low + 1, length - 1)])
            weights.append([float(numpy.float32(1 - share)), share])
        return positions, weights


# Elementwise work after any of them


@dataclass(frozen=True)
class Step:
    """One elementwise operation on a value, and the operand that it takes where it takes one.

    operand: 'number', 'channel' (a constant of shape (C, 1, ...)), 'channel input', 'same' (an input of the shape),
    'same constant', 'broadcast' (an input of length 1 along all but the last axis), 'moved' (an input read backwards
    with its last two axes exchanged), 'padded' (a smaller input with zeros before and after) or 'itself'.
    """

    operation: str
    operand: str = "number"

    def apply(self, instance: Instance, number: int) -> Instance:
        """The instance after one more operation; the error follows the derivative."""
        shape = instance.output.shape
        x, v, e = instance.output, instance.expected, instance.error
        if self.operation in ONE_OPERAND:
            record, compute, slope = ONE_OPERAND[self.operation]
            value = compute(v)
            return Instance(record(x), instance.inputs, value, slope * e + 8 * ROUNDING * (numpy.abs(value) + 2.0**-20))
        other, w, f = self._operand(instance, shape, number)
        record2, compute2 = TWO_OPERANDS[self.operation]
        value = compute2(v, w)
        if self.operation == "multiply":
            error = numpy.abs(w) * e + numpy.abs(v) * f + e * f
        elif self.operation == "divide":
            error = e + numpy.abs(v) * f
        else:
            error = e + f
        return Instance(record2(x, other), instance.inputs, value, error + 4 * ROUNDING * numpy.abs(value))

    def _operand(self, instance: Instance, shape: Shape, number: int) -> tuple[Any, Array, Array]:
        rank, inputs = len(shape), instance.inputs
        if self.operand == "itself":
            return instance.output, instance.expected, instance.error
        if self.operand == "number" or rank < 2:
            value = (0.375, -1.25, 1e-3, 3.0)[number % 4]
            return value, numpy.float64(numpy.float32(value)), numpy.float64(0)
        channels = (shape[1], *[1] * (rank - 2))
        name = f"e{number}"
        if self.operand in ("channel", "same constant"):
            array = numbers(channels if self.operand == "channel" else shape, name)
            return Tensor.constant(array), array.astype(numpy.float64), numpy.float64(0)
        if self.operand == "moved":
            stored = (*shape[:-2], shape[-1], shape[-2])
            tensor, array = source(stored, inputs, name)
            moved = tensor.transpose(*range(rank - 2), rank - 1, rank - 2)
            flipped = moved.slice(rank - 1, shape[-1] - 1, -1, -1)
            return flipped, numpy.swapaxes(array, -1, -2)[..., ::-1], numpy.float64(0)
        if self.operand == "padded":
            stored = tuple(max(1, n - 2) for n in shape)
            before = [int(n > 1) for n in shape]
            after = [n - b - s for n, b, s in zip(shape, before, stored, strict=True)]
            tensor, array = source(stored, inputs, name)
            return tensor.pad(before, after), numpy.pad(array, list(zip(before, after, strict=True))), numpy.float64(0)
        wanted = {"channel input": channels, "same": shape, "broadcast": (*[1] * (rank - 1), shape[-1])}[self.operand]
        tensor, array = source(wanted, inputs, name)
        return tensor, array, numpy.float64(0)


def _sigmoid(x: Array) -> Array:
    small = numpy.exp(-numpy.abs(x))
    return numpy.where(x >= 0, 1 / (1 + small), small / (1 + small))


# How each is recorded and computed, and a bound on its slope.
ONE_OPERAND: Mapping[str, tuple[Callable[[Tensor], Tensor], Callable[[Array], Array], float]] = {
    "relu": (lambda t: t.relu(), lambda v: numpy.maximum(v, 0), 1),
    "clip": (lambda t: t.clip(-0.5, 6), lambda v: numpy.clip(v, -0.5, 6), 1),
    "tanh": (lambda t: t.tanh(), numpy.tanh, 1),
    "sigmoid": (lambda t: t.sigmoid(), _sigmoid, 0.25),
    "silu": (lambda t: t.silu(), lambda v: v * _sigmoid(v), 1.2),
    "leaky_relu": (
        lambda t: where(less(t, 0), t * 0.125, t), lambda v: numpy.where(v < 0, v * 0.125, v), 1,
    ),
    "exp": (lambda t: t.minimum(1).exp(), lambda v: numpy.exp(numpy.minimum(v, 1)), 2.72),
    "absolute": (lambda t: t.apply("absolute"), numpy.abs, 1),
    "hardswish": (
        lambda t: t.clip(-8, 8).hardswish(),
        lambda v: numpy.clip(v, -8, 8) * numpy.clip(numpy.clip(v, -8, 8) / 6 + 0.5, 0, 1), 2,
    ),
}
TWO_OPERANDS: Mapping[str, tuple[Callable[[Any, Any], Tensor], Callable[[Array, Array], Array]]] = {
    "add": (lambda t, o: t + o, lambda v, w: v + w),
    "subtract": (lambda t, o: t - o, lambda v, w: v - w),
    "subtract from": (lambda t, o: o - t, lambda v, w: w - v),
    "multiply": (lambda t, o: t * o, lambda v, w: v * w),
    "divide": (
        lambda t, o: t / (elementwise("multiply", o, o) + 1) if isinstance(o, Tensor) else t / (o * o + 1),
        lambda v, w: v / (w * w + 1),
    ),
    "maximum": (lambda t, o: t.maximum(o), numpy.maximum),
    "minimum": (lambda t, o: t.minimum(o), numpy.minimum),
}
OPERANDS = (
    "number", "channel", "channel input", "same", "same constant", "broadcast", "moved", "padded", "itself",
)


@dataclass(frozen=True)
class Chain:
    """Elementwise steps after a problem."""

    problem: Problem
    steps: tuple[Step, ...]

    def instance(self) -> Instance:
        made = self.problem.instance()
        for number, step in enumerate(self.steps):
            made = step.apply(made, number)
        return made


def allowing(problem: Problem, winograd: int) -> Problem:
    """The problem with an error that allows for Winograd's filtering in tiles of so many outputs; 0: without it."""
    if isinstance(problem, Chain):
        return replace(problem, problem=allowing(problem.problem, winograd))
    if not isinstance(problem, ConvolutionProblem) or (problem.window[1], problem.strides[1]) != (3, 1):
        return problem
    return problem if problem.transposed and problem.strides != (1, 1) else replace(problem, winograd=winograd)


def step_lists(most: int = 5) -> st.SearchStrategy[tuple[Step, ...]]:
    """Steps for a Chain."""
    one = st.builds(Step, st.sampled_from(sorted(ONE_OPERAND)))
    two = st.builds(Step, st.sampled_from(sorted(TWO_OPERANDS)), st.sampled_from(OPERANDS))
    return st.lists(st.one_of(one, two, two), min_size=1, max_size=most).map(tuple)
