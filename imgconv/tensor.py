"""The lazy front end: operations on Tensors record a graph; nothing is computed until `Model.run`.

    x = Tensor.input("x", (1, 3, 224, 224))
    weight = Tensor.constant(numpy.ones((8, 3, 3, 3), numpy.float32))
    graph = build_graph({"y": x.conv2d(weight, stride=2, padding=1).relu()})
    imgconv.load(graph).run({"x": array})["y"]                      # float32 (1, 8, 112, 112)

The Graph contains only nodes that an output needs. A call whose arguments do not fit raises an InputError, which quotes
them. In the examples of docstrings below, values stand for Tensors: [1, 2].exp() for
Tensor.constant(numpy.float32([1, 2])).exp(), and (1, 8, 4, 4) for a Tensor of that shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Union

import numpy
from numpy.typing import ArrayLike

from imgconv.arrays import Array
from imgconv.errors import InputError
from imgconv.graph import expression
from imgconv.graph import view
from imgconv.graph.argument_check import ArgumentCheck
from imgconv.graph.builder import build_graph
from imgconv.graph.expression import Argument, Expression
from imgconv.graph.index import Lookup, variable
from imgconv.graph.lazy import Lazy, Number, TensorRead, elementwise, origin, whole_read
from imgconv.graph.nodes import (
    IDENTITY, Concatenation, Convolution, Gather, Order, Recurrence, Reduction, ReductionKind, Suppression, array_value,
    neutral,
)
from imgconv.graph.view import View, axis_variables

# Entries of a table in a kernel's text. OpenCL promises 64 KB for all constants of a program, and NVIDIA has no more.
TABLE = 4096
EXACT = 2**24  # integers up to here are floats without rounding
IMAGES = "the tensor must be (N, C, H, W)"
TensorLike = Union["Tensor", Number]


class Tensor(Lazy):
    """A lazy n-dimensional array, with the functions and layers that networks are written with.

    shape: ints; dtype: a numpy dtype name. Operators broadcast as numpy does, and take numbers or Tensors of one dtype.
    `numpy()` is the content of a Tensor that depends on no input. See Lazy for arithmetic, movement and reductions.
    """

    # Movement

    def take(self, axis: int, positions: Sequence[int]) -> Tensor:
        """The elements at the given positions along an axis, in this order: [5, 6, 7].take(0, [2, 0]) is [7, 5]."""
        taken = super().take(axis, positions)
        axis %= self.rank
        if len(positions) <= TABLE or self.shape[axis] > EXACT or needs_no_lookup(positions):
            return taken
        axes = axis_variables((*taken.shape, self.shape[axis]))
        source = tuple(axes[-1] if a == axis else axes[a] for a in range(self.rank))
        index = Tensor.constant(numpy.array(positions)).reshape(-1, *[1] * (self.rank - 1 - axis))
        return gather(self, View((*taken.shape, self.shape[axis]), self.shape, source), [index])

    # Elementwise

    def exp(self) -> Tensor:
        """e**x: [0, 1].exp() is [1, 2.7182817]."""
        return self.apply("exp")

    def log(self) -> Tensor:
        """The natural logarithm: [1, 10].log() is [0, 2.3025851]."""
        return self.apply("log")

    def sqrt(self) -> Tensor:
        """The square root: [4, 9].sqrt() is [2, 3]."""
        return self.apply("sqrt")

    def tanh(self) -> Tensor:
        """The hyperbolic tangent: [0, 1].tanh() is [0, 0.7615942]."""
        return self.apply("tanh")

    def sigmoid(self) -> Tensor:
        """1 / (1 + exp(-x)): [0, 2].sigmoid() is [0.5, 0.8807971]."""
        return self.apply("sigmoid")

    def maximum(self, other: TensorLike) -> Tensor:
        """The larger of both: [1, 5].maximum(3) is [3, 5]."""
        return self.apply("maximum", other)

    def minimum(self, other: TensorLike) -> Tensor:
        """The smaller of both: [1, 5].minimum(3) is [1, 3]."""
        return self.apply("minimum", other)

    def relu(self) -> Tensor:
        """max(x, 0): [-1, 2].relu() is [0, 2]."""
        return self.maximum(0)

    def clip(self, low: float, high: float) -> Tensor:
        """min(max(x, low), high): [-1, 2, 9].clip(0, 6) is [0, 2, 6]."""
        ArgumentCheck("clip", self=self, low=low, high=high).require(low <= high, "low is above high")
        return self.maximum(low).minimum(high)

    def leaky_relu(self, slope: TensorLike) -> Tensor:
        """x if x > 0, else slope*x: [-1, 2].leaky_relu(0.5) is [-0.5, 2]."""
        return where(less(self, 0), self * slope, self)

    def elu(self, alpha: float = 1.0) -> Tensor:
        """x if x > 0, else alpha*(exp(x) - 1): [-1, 2].elu() is [-0.63212055, 2]. Clevert et al., arXiv:1511.07289."""
        return where(less(self, 0), self.apply("expm1") * alpha, self)

    def hardsigmoid(self) -> Tensor:
        """clip(x/6 + 1/2, 0, 1): [-3, 0, 3].hardsigmoid() is [0, 0.5, 1]. Howard et al., arXiv:1905.02244."""
        return (self * (1 / 6) + 0.5).clip(0, 1)

    def hardswish(self) -> Tensor:
        """x * hardsigmoid(x): [-3, 1, 3].hardswish() is [0, 0.6666667, 3]."""
        return self * self.hardsigmoid()

    def silu(self) -> Tensor:
        """x * sigmoid(x): [0, 2].silu() is [0, 1.7615942]. Ramachandran et al., arXiv:1710.05941."""
        return self * self.sigmoid()

    # Movement and resizing

    def resample(self, taps: Mapping[int, tuple[ArrayLike, ArrayLike]]) -> Tensor:
        """Along some axes, each output is a weighted sum of a few positions. taps: (positions, weights) by axis.

        Output o along an axis is the sum over taps t of `weights[o][t] * self[positions[o][t]]`, both (outputs, taps).
        [1, 2, 4].resample({0: ([[0, 1], [1, 2]], [[0.5, 0.5], [0.5, 0.5]])}) is [1.5, 3].
        """
        made, summed = self, dict[int, tuple[Array, Array]]()
        ArgumentCheck("resample", self=self, axes=[*taps]).normalized_axes("axes", self.rank)
        for axis, (positions, weights) in taps.items():
            used = numpy.flatnonzero(numpy.any(numpy.asarray(weights) != 0, axis=0))
            where_, factors = numpy.asarray(positions)[:, used], numpy.asarray(weights, numpy.float32)[:, used]
            if where_.shape[1] == 1 and numpy.all(factors == 1):
                made = made.take(axis, where_[:, 0].tolist())
            else:
                summed[axis] = where_, factors
        return made._weighted_sum(summed) if summed else made

    def _weighted_sum(self, taps: Mapping[int, tuple[Array, Array]]) -> Tensor:
        """`resample` in one sum over the taps of all axes."""
        seen = view.samples(self.shape, {axis: where_.tolist() for axis, (where_, _) in taps.items()})
        axes = view.axis_variables(seen.shape)
        reads = [TensorRead(self, seen)]
        body: Expression = Argument(0)
        for number, (axis, (_, factors)) in enumerate(taps.items()):
            weighing = View(seen.shape, factors.shape, (axes[axis], axes[self.rank + number]))
            reads.append(TensorRead(Tensor.constant(factors), weighing))
            body = expression.apply("multiply", body, Argument(number + 1))
        return self.record(seen.shape[: self.rank], self.dtype, Reduction("sum", body), tuple(reads))

    def upsample(self, factor: int) -> Tensor:
        """Nearest-neighbour enlargement of the last two axes: (1, 8, 4, 4).upsample(2) is (1, 8, 8, 8)."""
        given = ArgumentCheck("upsample", self=self, factor=factor)
        given.require(self.rank >= 2, "the tensor has to have two axes or more")
        given.check_counts("factor")
        rows = self.take(self.rank - 2, [i // factor for i in range(self.shape[-2] * factor)])
        return rows.take(self.rank - 1, [i // factor for i in range(self.shape[-1] * factor)])

    def depth_to_space(self, block: int) -> Tensor:
        """(N, C*block*block, H, W) -> (N, C, H*block, W*block), as PyTorch's PixelShuffle and ONNX's CRD mode.

        (1, 8, 4, 4).depth_to_space(2) is (1, 2, 8, 8).
        """
        given = ArgumentCheck("depth_to_space", self=self, block=block)
        given.check_counts("block")
        given.require(self.rank == 4, IMAGES)
        given.require(self.shape[1] % block**2 == 0, f"{self.shape[1]} channels are not a multiple of {block**2}")
        n, c, h, w = self.shape
        split = self.reshape(n, c // block**2, block, block, h, w).transpose(0, 1, 4, 2, 5, 3)
        return split.reshape(n, c // block**2, h * block, w * block)

    # Windows

    def softmax(self, axis: int) -> Tensor:
        """exp(x - max) / sum of the same, along one axis: [0, 0].softmax(0) is [0.5, 0.5]."""
        axis = ArgumentCheck("softmax", self=self, axis=axis).normalized_axis("axis", self.rank)
        powers = (self - self.max([axis], keepdims=True)).exp()
        return powers / powers.sum([axis], keepdims=True)

    def pool(
        self, kind: ReductionKind, window: Sequence[int], strides: Sequence[int] | None = None,
        pads: Sequence[int] | None = None, dilations: Sequence[int] | None = None, sizes: Sequence[int] | None = None,
        scale: TensorLike = 1.0,
    ) -> Tensor:
        """sum, max, min, product or argmax over sliding windows of the last axes. pads: befores then afters (ONNX).

        Positions outside of the tensor count as the kind's neutral element. argmax gives int64 row-major positions in
        the window. sizes: of the output, if they are not those of rounding down. The results are multiplied by `scale`
        before they are rounded. (1, 8, 4, 4).pool("sum", [2, 2], [2, 2], scale=0.25) is the average, (1, 8, 2, 2).
        """
        given = ArgumentCheck("pool", self=self, window=window, strides=strides, pads=pads, dilations=dilations)
        d = len(given.as_integers("window", 1))
        lengths = [len(each) for each in (strides, dilations, (pads or ())[::2]) if each]
        given.require(d <= self.rank and all(n == d for n in lengths), "window, strides and pads differ in their axes")
        steps, spread, pads = strides or [1] * d, dilations or [1] * d, pads or [0] * (2 * d)
        if sizes is None:
            spatial = self.shape[self.rank - d :]
            sizes = [
                (spatial[i] + pads[i] + pads[d + i] - (window[i] - 1) * spread[i] - 1) // steps[i] + 1 for i in range(d)
            ]
        seen = view.windows(self.shape, sizes, window, steps, spread, pads[:d])
        shape = (*self.shape[: self.rank - d], *sizes)
        reads = (TensorRead(self, seen, neutral(kind, self.dtype)),)
        if kind == "argmax":
            return self.record(shape, "int64", Reduction(kind, IDENTITY), reads)
        if not isinstance(scale, Tensor):
            epilogue = IDENTITY if scale == 1 else expression.apply("multiply", IDENTITY, scale)
            return self.record(shape, self.dtype, Reduction(kind, IDENTITY), reads, epilogue)
        epilogue = expression.apply("multiply", IDENTITY, Argument(1))
        operand = TensorRead(scale, view.expand(scale.shape, shape))
        return self.record(shape, self.dtype, Reduction(kind, IDENTITY), reads, epilogue, (operand,))

    def max_pool(self, window: int, stride: int, padding: int = 0, round_up: bool = False) -> Tensor:
        """Largest value in square windows of the last two axes.

        round_up: windows may reach past the end, but not begin there, as with PyTorch's ceil_mode.
        (1, 8, 5, 5).max_pool(2, 2) is (1, 8, 2, 2); with round_up=True it is (1, 8, 3, 3).
        """
        given = ArgumentCheck("max_pool", self=self, window=window, stride=stride, padding=padding)
        given.require(self.rank >= 2, "the tensor has to have two axes or more")
        given.check_counts("window", "stride")
        given.check_counts("padding", least=0)
        given.require(2 * padding <= window, "padding is over half of the window")
        given.require(all(n + 2 * padding >= window for n in self.shape[-2:]), "the window is larger than the input")
        sizes = None
        if round_up:
            last = [min(-(-(n + 2 * padding - window) // stride), (n + padding - 1) // stride) for n in self.shape[-2:]]
            sizes = [n + 1 for n in last]
        return self.pool("max", [window] * 2, [stride] * 2, [padding] * 4, sizes=sizes)

    def global_average_pool(self) -> Tensor:
        """(N, C, H, W) -> (N, C, 1, 1): the mean of each channel."""
        ArgumentCheck("global_average_pool", self=self).require(self.rank == 4, IMAGES)
        return self.mean([2, 3], keepdims=True)

    # Layers

    def conv2d(
        self, weight: Tensor, bias: Tensor | None = None, stride: int = 1, padding: int = 0, dilation: int = 1,
        groups: int = 1,
    ) -> Tensor:
        """Convolution of (N, C, H, W) with weight (O, C/groups, KH, KW), plus bias (O).

        (1, 3, 224, 224).conv2d of a weight (8, 3, 3, 3) with stride=2, padding=1 is (1, 8, 112, 112).
        """
        given = ArgumentCheck(
            "conv2d", self=self, weight=weight, bias=bias, stride=stride, padding=padding, dilation=dilation,
            groups=groups,
        )
        given.check_counts("stride", "dilation", "groups")
        given.check_counts("padding", least=0)
        _check_layer(given, self, weight, bias, groups)
        reach = [(n - 1) * dilation + 1 - 2 * padding for n in weight.shape[2:]]
        given.require(all(n >= least for n, least in zip(self.shape[2:], reach)), "the window is larger than the input")
        result = convolution(self, weight, [stride] * 2, [padding] * 4, [dilation] * 2, groups)
        return result if bias is None else result + bias.reshape(-1, 1, 1)

    def depthwise(
        self, weight: Tensor, bias: Tensor | None = None, stride: int = 1, padding: int = 0, dilation: int = 1
    ) -> Tensor:
        """conv2d with a window of its own for each channel: weight (O, 1, KH, KW), O a multiple of C.

        (1, 8, 4, 4).depthwise of a weight (8, 1, 3, 3) with padding=1 is (1, 8, 4, 4).
        """
        ArgumentCheck("depthwise", self=self, weight=weight).require(self.rank == 4, IMAGES)
        return self.conv2d(weight, bias, stride, padding, dilation, groups=self.shape[1])

    def conv_transpose2d(
        self, weight: Tensor, bias: Tensor | None = None, stride: int = 1, padding: int = 0, groups: int = 1
    ) -> Tensor:
        """Transposed convolution of (N, C, H, W) with weight (C, O/groups, KH, KW), plus bias (O).

        (1, 8, 4, 4).conv_transpose2d of a weight (8, 3, 2, 2) with stride=2 is (1, 3, 8, 8).
        """
        given = ArgumentCheck(
            "conv_transpose2d", self=self, weight=weight, bias=bias, stride=stride, padding=padding, groups=groups
        )
        given.check_counts("stride", "groups")
        given.check_counts("padding", least=0)
        _check_layer(given, self, weight, bias, groups, transposed=True)
        sizes = [(n - 1) * stride + k - 2 * padding for n, k in zip(self.shape[2:], weight.shape[2:], strict=True)]
        given.require(min(sizes) > 0, "padding leaves nothing of the output")
        result = convolution(self, weight, [stride] * 2, [padding] * 4, [1] * 2, groups, sizes, transposed=True)
        return result if bias is None else result + bias.reshape(-1, 1, 1)

    def linear(self, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """(..., C) times the transpose of weight (O, C), plus bias (O): (1, 8).linear of (10, 8) is (1, 10)."""
        given = ArgumentCheck("linear", self=self, weight=weight, bias=bias)
        given.check_tensors("self", "weight", *["bias"] * (bias is not None))
        given.require(self.rank > 0 and weight.rank == 2, "the weight must be (O, C), the tensor (..., C)")
        taken, features = weight.shape[1], self.shape[-1]
        given.require(taken == features, f"the weight has {taken} input features, the tensor has {features} features")
        _check_bias(given, bias, weight.shape[0])
        result = self.matmul(weight.transpose(1, 0))
        return result if bias is None else result + bias

    def batch_norm(
        self, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, epsilon: float = 1e-5
    ) -> Tensor:
        """(x - mean) / sqrt(variance + epsilon) * scale + bias by channel of axis 1.

        Ioffe and Szegedy, arXiv:1502.03167. The parameters, each (C), are combined in float64. None of them may depend
        on an input.
        """
        given = ArgumentCheck("batch_norm", self=self, scale=scale, bias=bias, mean=mean, variance=variance)
        given.check_tensors("self", "scale", "bias", "mean", "variance")
        given.require(self.rank >= 2, "the tensor must be (N, C, ...)")
        parts, shape = (scale, bias, mean, variance), self.shape[1:2]
        given.require(all(t.shape == shape for t in parts), f"each parameter must be {list(shape)}, one per channel")
        given.require(all(t.is_constant for t in parts), "a parameter depends on an input")
        wide = [t.numpy().astype(numpy.float64) for t in parts]
        factor = wide[0] / numpy.sqrt(wide[3] + epsilon)
        by_channel = (-1, *[1] * (self.rank - 2))
        by, plus = (p.astype(self.dtype).reshape(by_channel) for p in (factor, wide[1] - wide[2] * factor))
        return self * Tensor.constant(by) + Tensor.constant(plus)


def _check_layer(
    given: ArgumentCheck, x: Tensor, weight: Tensor, bias: Tensor | None, groups: int, transposed: bool = False
) -> None:
    """Raises InputError unless the tensors of a convolution of pictures fit."""
    given.check_tensors("self", "weight", *["bias"] * (bias is not None))
    given.require(x.rank == 4, IMAGES)
    given.require(weight.rank == 4, "the weight must have four axes; the last two are its window")
    _check_channels(given, x, weight, groups, transposed)
    _check_bias(given, bias, weight.shape[1] * groups if transposed else weight.shape[0])


def _check_channels(given: ArgumentCheck, x: Tensor, weight: Tensor, groups: int, transposed: bool) -> None:
    taken = weight.shape[0] if transposed else weight.shape[1] * groups
    given.require(taken == x.shape[1], f"the weight has {taken} input channels, the tensor has {x.shape[1]} channels")
    given.require(weight.shape[0] % groups == 0, f"axis 0 of the weight is not a multiple of {groups} groups")


def _check_bias(given: ArgumentCheck, bias: Tensor | None, count: int) -> None:
    given.require(bias is None or bias.shape == (count,), f"the bias must be [{count}], one per output channel")


def needs_no_lookup(positions: Sequence[int]) -> bool:
    """Returns whether arithmetic gives the positions: [3, 5, 7] and [0, 0, 2, 2, 4, 4] are."""
    index = variable("i0", len(positions)).lookup(positions)
    return not any(isinstance(atom, Lookup) for atom, _ in index.terms)


def less(a: TensorLike, b: TensorLike) -> Tensor:
    """Compares elements: a < b, as bool: less([1, 2], 2) is [True, False]."""
    return elementwise("less", a, b, dtype="bool")


def where(condition: Tensor, a: TensorLike, b: TensorLike) -> Tensor:
    """a if the condition holds, else b; at least one is a Tensor: where(less(x, 2), x, 0) is [1, 0] for x = [1, 2]."""
    given = ArgumentCheck("where", condition=condition, a=a, b=b)
    given.check_tensors("condition")
    given.require(isinstance(a, Tensor) or isinstance(b, Tensor), "a or b must be a Tensor, which sets the dtype")
    return elementwise("where", condition, a, b)


def concatenate(tensors: Sequence[Tensor], axis: int) -> Tensor:
    """The tensors one after another along an axis: two of (1, 8, 4, 4) along axis 1 are (1, 16, 4, 4)."""
    given = ArgumentCheck("concatenate", tensors=tensors, axis=axis)
    given.require(bool(tensors) and all(isinstance(t, Tensor) for t in tensors), "tensors must be a list of Tensors")
    axis = given.normalized_axis("axis", tensors[0].rank)
    given.require(len({t.dtype for t in tensors}) == 1, "dtypes differ: cast() one of them")
    around = {(*t.shape[:axis], *t.shape[axis + 1 :]) for t in tensors}
    given.require(len(around) == 1, "the sizes of the other axes differ")
    parts = [t for t in tensors if t.shape[axis]] or list(tensors[:1])
    if len(parts) == 1:
        return parts[0]
    first = parts[0].shape
    shape = (*first[:axis], sum(t.shape[axis] for t in parts), *first[axis + 1 :])
    return parts[0].record(shape, parts[0].dtype, Concatenation(axis), tuple(map(whole_read, parts)))


def gather(table: Tensor, seen: View, indices: Sequence[Tensor], fill: float = 0.0) -> Tensor:
    """The elements of a table that indices choose: seen of table at (i, indices[0][i], ..) for each position i.

    seen: a view of the table of shape output + (K_1, .., K_k). indices: k tensors that broadcast to the output's
    shape, rounded to the nearest integer. fill: what is read if an index is not in 0 .. K-1 or seen has no element.
    Raises InputError if an axis is longer than 2**24: a device keeps indices as floats.

    table, indices = Tensor.constant(numpy.float32([10, 20, 30])), Tensor.constant(numpy.float32([2, 0]))
    seen = View((2, 3), (3,), view.axis_variables((2, 3))[1:])
    gather(table, seen, [indices]).numpy()      # [30, 10]
    """
    count = len(seen.shape) - len(indices)
    shape, sizes = seen.shape[:count], seen.shape[count:]
    if max(sizes) > EXACT:
        raise InputError(f"an axis of {max(sizes)} elements is longer than 2**24: indices are fp32 values")
    reads = tuple(TensorRead(i, view.expand(i.shape, shape)) for i in indices)
    return table.record(shape, table.dtype, Gather(), (TensorRead(table, seen, fill), *reads))


def order(x: Tensor, count: int, largest: bool = True) -> Tensor:
    """The positions of the first `count` elements along the last axis in order of size, as int64.

    Equal elements are in order of position, and NaN counts as larger than every number.
    order([3, 5, 1, 5], 3) is [1, 3, 0]; with largest=False it is [2, 0, 1].
    """
    return x.record((*x.shape[:-1], count), "int64", Order(largest), (whole_read(x),))


def suppression(boxes: Tensor, count: Tensor, overlap: float, most: int) -> Tensor:
    """Positions of the boxes that stay if boxes overlap, (most,) int64, and -1 after the last of them.

    boxes: (N, 4), left, top, right, bottom, the best first, or (N, 5) with a group; the first `count` (a scalar) take
    part. See `imgconv.graph.nodes.Suppression`. Of [0, 0, 9, 9], [0, 0, 9, 8] and [9, 9, 12, 12] with an overlap of 0.5
    and at most 3, [0, 2, -1] stay.
    """
    return boxes.record((most,), "int64", Suppression(overlap), (whole_read(boxes), whole_read(count.reshape(1))))


def recurrence(
    x: Tensor, weights: Tensor, initial: Sequence[Tensor], others: Sequence[Tensor], states: Sequence[Expression],
    inner: Expression | None = None, reverse: Sequence[bool] = (False,),
) -> Tensor:
    """The states after each step, (S, T, N, D, H), of a recurrent layer; see `imgconv.graph.nodes.Recurrence`.

    x: (T, N, D, G, H); weights: (D, H, G, H); the initial states and the others: (N, D, H) each. states, inner:
    expressions of x, the products, the states, the others and the number of the step. H = tanh(x + H R), one direction:

    recurrence(x, r, [h], [], [apply("tanh", apply("add", Argument(0), Argument(1)))])
    """
    shape = (len(states), *x.shape[:3], x.shape[4])
    reads = tuple(map(whole_read, (x, weights, *initial, *others)))
    return x.record(shape, x.dtype, Recurrence(tuple(states), inner, tuple(reverse)), reads)


def convolution(
    x: Tensor, weight: Tensor, strides: Sequence[int], pads: Sequence[int], dilations: Sequence[int], groups: int = 1,
    output: Sequence[int] | None = None, transposed: bool = False, dtype: str | None = None,
) -> Tensor:
    """ONNX's Conv or ConvTranspose without bias, for one, two or three spatial axes. pads: befores, then afters.

    x: (N, C, spatial...); weight: (O, C/groups, window...), or (C, O/groups, window...) if transposed. `output`:
    the spatial sizes if they are not those of rounding down (needed if transposed). In three axes, at least one
    window has to meet the input. dtype: of the result, by default that of x.

    (1, 4, 10) with weight (6, 4, 3): convolution(x, weight, [1], [1, 1], [1]) is (1, 6, 10).
    (1, 4, 6, 8, 8) with weight (6, 4, 3, 3, 3): convolution(x, weight, [1] * 3, [1] * 6, [1] * 3) is (1, 6, 6, 8, 8).
    """
    given = ArgumentCheck(
        "convolution", x=x, weight=weight, strides=strides, pads=pads, dilations=dilations, groups=groups
    )
    d = x.rank - 2
    given.require(d in (1, 2, 3) and weight.rank == x.rank, "x and weight must have one, two or three spatial axes")
    _check_channels(given, x, weight, groups, transposed)
    if d == 1:
        size = None if output is None else [1, *output]
        wide = (x.reshape(*x.shape[:2], 1, x.shape[2]), weight.reshape(*weight.shape[:2], 1, weight.shape[2]))
        sides = [0, pads[0], 0, pads[1]]
        result = convolution(*wide, [1, *strides], sides, [1, *dilations], groups, size, transposed, dtype)
        return result.reshape(*result.shape[:2], result.shape[3])
    if output is None:
        output = [
            (x.shape[2 + i] + pads[i] + pads[d + i] - (weight.shape[2 + i] - 1) * dilations[i] - 1) // strides[i] + 1
            for i in range(d)
        ]
    if d == 3:
        return _convolution_3d(x, weight, strides, pads, dilations, groups, output, transposed, dtype)
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    operation = Convolution(
        (strides[0], strides[1]), (dilations[0], dilations[1]), (pads[0], pads[1]), groups, transposed
    )
    return x.record((x.shape[0], channels, *output), dtype or x.dtype, operation, (whole_read(x), whole_read(weight)))


def _convolution_3d(
    x: Tensor, weight: Tensor, strides: Sequence[int], pads: Sequence[int], dilations: Sequence[int], groups: int,
    output: Sequence[int], transposed: bool, dtype: str | None,
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
        part = convolution(flat, plane, strides[1:], sides, dilations[1:], groups, output[1:], transposed, dtype)
        total = part if total is None else total + part
    if total is None:
        raise InputError("convolution: no window meets the input")
    split = total.reshape(n, output[0], *total.shape[1:])
    return split.transpose(0, 2, 1, 3, 4)


__all__ = [
    "EXACT", "Number", "Tensor", "TensorLike", "array_value", "build_graph", "concatenate", "convolution",
    "elementwise", "gather", "less", "neutral", "order", "origin", "recurrence",
    "suppression", "where",
]
