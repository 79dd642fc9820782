"""The lazy front end: operations on Tensors record what is to be computed; nothing runs until `run`.

    x = Tensor.input("x", (1, 3, 224, 224))
    graph = build_graph({"y": x.conv2d(Tensor.constant(weights), stride=2, padding=1).relu()})

What no output needs is never recorded in the Graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Union

import numpy

from imgconv.graph import expression
from imgconv.graph import view
from imgconv.graph.builder import build_graph
from imgconv.graph.expression import Argument
from imgconv.graph.lazy import Lazy, Number, Read, elementwise, origin, whole
from imgconv.graph.nodes import (
    IDENTITY, Concatenation, Convolution, Gather, Reduction, ReductionKind, array_value, neutral,
)
from imgconv.graph.view import View

EXACT = 2**24  # integers up to here are floats without rounding
TensorLike = Union["Tensor", Number]


class Tensor(Lazy):
    """A lazy n-dimensional array, with the functions and layers that networks are written with.

    shape: ints; dtype: a numpy dtype name. Operators broadcast as numpy does. See Lazy for arithmetic, movement and
    reductions.
    """

    # Elementwise

    def exp(self) -> Tensor:
        return self.apply("exp")

    def log(self) -> Tensor:
        return self.apply("log")

    def sqrt(self) -> Tensor:
        return self.apply("sqrt")

    def tanh(self) -> Tensor:
        return self.apply("tanh")

    def sigmoid(self) -> Tensor:
        return self.apply("sigmoid")

    def maximum(self, other: TensorLike) -> Tensor:
        return self.apply("maximum", other)

    def minimum(self, other: TensorLike) -> Tensor:
        return self.apply("minimum", other)

    def relu(self) -> Tensor:
        """max(x, 0)."""
        return self.maximum(0)

    def clip(self, low: float, high: float) -> Tensor:
        """min(max(x, low), high)."""
        return self.maximum(low).minimum(high)

    def leaky_relu(self, slope: TensorLike) -> Tensor:
        """x where x > 0, slope*x elsewhere."""
        return where(less(self, 0), self * slope, self)

    def elu(self, alpha: float = 1.0) -> Tensor:
        """x where x > 0, alpha*(exp(x) - 1) elsewhere; Clevert et al., arXiv:1511.07289."""
        return where(less(self, 0), self.apply("expm1") * alpha, self)

    def hardsigmoid(self) -> Tensor:
        """clip(x/6 + 1/2, 0, 1); Howard et al., arXiv:1905.02244."""
        return (self * (1 / 6) + 0.5).clip(0, 1)

    def hardswish(self) -> Tensor:
        """x * hardsigmoid(x)."""
        return self * self.hardsigmoid()

    def silu(self) -> Tensor:
        """x * sigmoid(x); Ramachandran et al., arXiv:1710.05941."""
        return self * self.sigmoid()

    # Movement and resizing

    def resample(self, axis: int, positions: Any, weights: Any) -> Tensor:
        """Along one axis, output o is the sum over taps t of weights[o][t] * self[positions[o][t]]."""
        used = numpy.flatnonzero(numpy.any(numpy.asarray(weights) != 0, axis=0))
        where_, factors = numpy.asarray(positions)[:, used], numpy.asarray(weights, numpy.float32)[:, used]
        if where_.shape[1] == 1 and numpy.all(factors == 1):
            return self.take(axis, where_[:, 0].tolist())
        seen = view.samples(self.shape, axis, where_.tolist())
        axes = view.axis_variables(seen.shape)
        weighing = View(seen.shape, factors.shape, (axes[axis], axes[-1]))
        body = expression.apply("multiply", Argument(0), Argument(1))
        reads = (Read(self, seen), Read(Tensor.constant(factors), weighing))
        return self.record(seen.shape[:-1], self.dtype, Reduction("sum", body), reads)

    def upsample(self, factor: int) -> Tensor:
        """Nearest-neighbour enlargement of the last two axes."""
        rows = self.take(self.rank - 2, [i // factor for i in range(self.shape[-2] * factor)])
        return rows.take(self.rank - 1, [i // factor for i in range(self.shape[-1] * factor)])

    def depth_to_space(self, block: int) -> Tensor:
        """(N, C*block*block, H, W) -> (N, C, H*block, W*block), as PyTorch's PixelShuffle and ONNX's CRD mode."""
        n, c, h, w = self.shape
        split = self.reshape(n, c // block**2, block, block, h, w).transpose(0, 1, 4, 2, 5, 3)
        return split.reshape(n, c // block**2, h * block, w * block)

    # Windows

    def softmax(self, axis: int) -> Tensor:
        """exp(x - max) / sum of the same, along one axis."""
        powers = (self - self.max([axis], keepdims=True)).exp()
        return powers / powers.sum([axis], keepdims=True)

    def pool(
        self, kind: ReductionKind, window: Sequence[int], strides: Sequence[int] | None = None,
        pads: Sequence[int] | None = None, dilations: Sequence[int] | None = None, sizes: Sequence[int] | None = None,
        scale: TensorLike = 1.0,
    ) -> Tensor:
        """sum, max, min, product or argmax over sliding windows of the last axes. pads: befores then afters (ONNX).

        Positions outside of the tensor never win: they count as the kind's neutral element. argmax gives int64
        row-major positions in the window. `sizes` gives the output's
        sizes if they are not those of rounding down. The results are multiplied by `scale` before they are rounded.
        """
        d = len(window)
        steps, spread, pads = strides or [1] * d, dilations or [1] * d, pads or [0] * (2 * d)
        if sizes is None:
            spatial = self.shape[self.rank - d :]
            sizes = [
                (spatial[i] + pads[i] + pads[d + i] - (window[i] - 1) * spread[i] - 1) // steps[i] + 1 for i in range(d)
            ]
        seen = view.windows(self.shape, sizes, window, steps, spread, pads[:d])
        shape = (*self.shape[: self.rank - d], *sizes)
        reads = (Read(self, seen, neutral(kind, self.dtype)),)
        if kind == "argmax":
            return self.record(shape, "int64", Reduction(kind, IDENTITY), reads)
        if not isinstance(scale, Tensor):
            epilogue = IDENTITY if scale == 1 else expression.apply("multiply", IDENTITY, scale)
            return self.record(shape, self.dtype, Reduction(kind, IDENTITY), reads, epilogue)
        epilogue = expression.apply("multiply", IDENTITY, Argument(1))
        operand = Read(scale, view.expand(scale.shape, shape))
        return self.record(shape, self.dtype, Reduction(kind, IDENTITY), reads, epilogue, (operand,))

    def max_pool(self, window: int, stride: int, padding: int = 0, round_up: bool = False) -> Tensor:
        """Largest value in square windows of the last two axes.

        round_up: windows may reach past the end, but not begin there, as with PyTorch's ceil_mode.
        """
        sizes = None
        if round_up:
            last = [min(-(-(n + 2 * padding - window) // stride), (n + padding - 1) // stride) for n in self.shape[-2:]]
            sizes = [n + 1 for n in last]
        return self.pool("max", [window] * 2, [stride] * 2, [padding] * 4, sizes=sizes)

    def global_average_pool(self) -> Tensor:
        """(N, C, H, W) -> (N, C, 1, 1): the mean of each channel."""
        return self.mean([2, 3], keepdims=True)

    # Layers

    def conv2d(
        self, weight: Tensor, bias: Tensor | None = None, stride: int = 1, padding: int = 0, dilation: int = 1,
        groups: int = 1,
    ) -> Tensor:
        """Convolution of (N, C, H, W) with weight (O, C/groups, KH, KW), plus bias (O)."""
        result = convolution(self, weight, [stride] * 2, [padding] * 4, [dilation] * 2, groups)
        return result if bias is None else result + bias.reshape(-1, 1, 1)

    def depthwise(
        self, weight: Tensor, bias: Tensor | None = None, stride: int = 1, padding: int = 0, dilation: int = 1
    ) -> Tensor:
        """conv2d with a window of its own for each channel: weight (O, 1, KH, KW), O a multiple of C."""
        return self.conv2d(weight, bias, stride, padding, dilation, groups=self.shape[1])

    def conv_transpose2d(
        self, weight: Tensor, bias: Tensor | None = None, stride: int = 1, padding: int = 0, groups: int = 1
    ) -> Tensor:
        """Transposed convolution of (N, C, H, W) with weight (C, O/groups, KH, KW), plus bias (O)."""
        sizes = [(n - 1) * stride + k - 2 * padding for n, k in zip(self.shape[2:], weight.shape[2:], strict=True)]
        result = convolution(self, weight, [stride] * 2, [padding] * 4, [1] * 2, groups, sizes, transposed=True)
        return result if bias is None else result + bias.reshape(-1, 1, 1)

    def linear(self, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """(..., C) times the transpose of weight (O, C), plus bias (O)."""
        result = self.matmul(weight.transpose(1, 0))
        return result if bias is None else result + bias

    def batch_norm(
        self, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, epsilon: float = 1e-5
    ) -> Tensor:
        """(x - mean) / sqrt(variance + epsilon) * scale + bias by channel of axis 1.

        Ioffe and Szegedy, arXiv:1502.03167. The parameters, each (C), are constants; they are combined in float64.
        """
        wide = [t.numpy().astype(numpy.float64) for t in (scale, bias, mean, variance)]
        factor = wide[0] / numpy.sqrt(wide[3] + epsilon)
        shape = (-1, *[1] * (self.rank - 2))
        by, plus = (p.astype(numpy.float32).reshape(shape) for p in (factor, wide[1] - wide[2] * factor))
        return self * Tensor.constant(by) + Tensor.constant(plus)


def less(a: TensorLike, b: TensorLike) -> Tensor:
    """Whether a < b, as bool."""
    return elementwise("less", a, b, dtype="bool")


def where(condition: Tensor, a: TensorLike, b: TensorLike) -> Tensor:
    """a where the condition holds, b elsewhere."""
    chosen = a if isinstance(a, Tensor) else b
    assert isinstance(chosen, Tensor)
    return elementwise("where", condition, a, b, dtype=chosen.dtype)


def concatenate(tensors: Sequence[Tensor], axis: int) -> Tensor:
    """The tensors one after another along an axis."""
    parts = [t for t in tensors if t.shape[axis]] or list(tensors[:1])
    if len(parts) == 1:
        return parts[0]
    first = parts[0].shape
    axis %= len(first)
    shape = (*first[:axis], sum(t.shape[axis] for t in parts), *first[axis + 1 :])
    return parts[0].record(shape, parts[0].dtype, Concatenation(axis), tuple(map(whole, parts)))


def gather(table: Tensor, seen: View, indices: Sequence[Tensor], fill: float = 0.0) -> Tensor:
    """The elements of a table that indices choose: seen of table at (i, indices[0][i], ..) for each position i.

    seen: a view of the table of shape output + (K_1, .., K_k). indices: k tensors that broadcast to the output's
    shape, rounded to the nearest integer. fill: what is read if an index is not in 0 .. K-1 or seen has no element.
    Raises ValueError if an axis is longer than 2**24: a device keeps indices as floats.
    """
    count = len(seen.shape) - len(indices)
    shape, sizes = seen.shape[:count], seen.shape[count:]
    if max(sizes) > EXACT:
        raise ValueError(f"an axis of {max(sizes)} elements is longer than 2**24, and indices are floats on a device")
    reads = tuple(Read(i, view.expand(i.shape, shape)) for i in indices)
    return table.record(shape, table.dtype, Gather(), (Read(table, seen, fill), *reads))


def convolution(
    x: Tensor, weight: Tensor, strides: Sequence[int], pads: Sequence[int], dilations: Sequence[int], groups: int = 1,
    output: Sequence[int] | None = None, transposed: bool = False,
) -> Tensor:
    """ONNX's Conv or ConvTranspose without bias, for one, two or three spatial axes. pads: befores, then afters.

    x: (N, C, spatial...); weight: (O, C/groups, window...), or (C, O/groups, window...) if transposed. `output`:
    the spatial sizes if the rounded-down ones are not wanted (needed if transposed).
    """
    d = x.rank - 2
    if d == 1:
        size = None if output is None else [1, *output]
        wide = (x.reshape(*x.shape[:2], 1, x.shape[2]), weight.reshape(*weight.shape[:2], 1, weight.shape[2]))
        result = convolution(*wide, [1, *strides], [0, pads[0], 0, pads[1]], [1, *dilations], groups, size, transposed)
        return result.reshape(*result.shape[:2], result.shape[3])
    if output is None:
        output = [
            (x.shape[2 + i] + pads[i] + pads[d + i] - (weight.shape[2 + i] - 1) * dilations[i] - 1) // strides[i] + 1
            for i in range(d)
        ]
    if d == 3:
        return _convolution_3d(x, weight, strides, pads, dilations, groups, output, transposed)
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    operation = Convolution(
        (strides[0], strides[1]), (dilations[0], dilations[1]), (pads[0], pads[1]), groups, transposed
    )
    return x.record((x.shape[0], channels, *output), x.dtype, operation, (whole(x), whole(weight)))


def _convolution_3d(
    x: Tensor, weight: Tensor, strides: Sequence[int], pads: Sequence[int], dilations: Sequence[int], groups: int,
    output: Sequence[int], transposed: bool,
) -> Tensor:
    """The sum over the depth taps of convolutions of slices, each depth position an element of the batch."""
    n, c = x.shape[:2]
    total: Tensor | None = None
    for tap in range(weight.shape[2]):
        offset = tap * dilations[0] - pads[0]
        if transposed:
            # Output depth z takes input (z - offset) / stride if that is whole and inside.
            sources = [divmod(z - offset, strides[0]) for z in range(output[0])]
            depth = [q if r == 0 and 0 <= q < x.shape[2] else -1 for q, r in sources]
        else:
            depth = [q if 0 <= (q := z * strides[0] + offset) < x.shape[2] else -1 for z in range(output[0])]
        if all(q < 0 for q in depth):
            continue
        chosen = x.pad([0, 0, 1, 0, 0], [0] * 5).take(2, [q + 1 for q in depth])
        flat = chosen.transpose(0, 2, 1, 3, 4).reshape(n * output[0], c, *x.shape[3:])
        plane = weight.take(2, [tap]).reshape(*weight.shape[:2], *weight.shape[3:])
        sides = [pads[1], pads[2], pads[4], pads[5]]
        part = convolution(flat, plane, strides[1:], sides, dilations[1:], groups, output[1:], transposed)
        total = part if total is None else total + part
    if total is None:
        raise ValueError("a convolution whose window never meets its input")
    split = total.reshape(n, output[0], *total.shape[1:])
    return split.transpose(0, 2, 1, 3, 4)


__all__ = [
    "EXACT", "Number", "Tensor", "TensorLike", "array_value", "build_graph", "concatenate", "convolution",
    "elementwise", "gather", "less", "neutral", "origin", "where",
]
