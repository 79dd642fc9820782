"""The lazy front end: operations on Tensors record what is to be computed; nothing runs until `run`.

A `Tensor` is an input, a constant or the output of one node in the Graph's kernel form. Everything that ONNX calls an
operator is composed here, or in `imgconv.ops`, from a load through a view, an elementwise expression, a reduction, a
convolution, a matrix product, a concatenation and a gather. `build_graph` walks from the outputs, so that what no
output needs is never recorded in the Graph.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from math import prod
from typing import Any, Union

import numpy

from imgconv import expression, view
from imgconv.evaluate import evaluate_node
from imgconv.expression import Argument, Expression, Literal
from imgconv.graph import IDENTITY, Concatenation, Convolution, Gather, Graph, Load, Node, Operand, Operation, Product
from imgconv.graph import Reduction, Value, array_value, neutral
from imgconv.view import Shape, View

EXACT = 2**24  # integers up to here are floats without rounding
Number = Union[int, float, bool]
TensorLike = Union["Tensor", Number]
_origin: ContextVar[tuple[str, ...]] = ContextVar("origin", default=())


@contextlib.contextmanager
def origin(name: str) -> Iterator[None]:
    """Nodes recorded inside are marked as coming from the named ONNX node or module."""
    token = _origin.set((name,))
    try:
        yield
    finally:
        _origin.reset(token)


@dataclass(frozen=True)
class Read:
    """A tensor read through a view."""

    tensor: Tensor
    view: View
    fill: float = 0.0


@dataclass(frozen=True)
class Recorded:
    """What a tensor's node will be; see imgconv.graph.Node."""

    operation: Operation
    operands: tuple[Read, ...]
    epilogue: Expression
    epilogue_operands: tuple[Read, ...]
    origin: tuple[str, ...]


@dataclass(eq=False)
class Tensor:
    """A lazy n-dimensional array. shape: ints; dtype: a numpy dtype name. Operators broadcast as numpy does."""

    shape: Shape
    dtype: str
    name: str | None = None
    recorded: Recorded | None = None
    array: Any = None
    computable: bool = False  # nothing that the record reads depends on an input
    quantised: tuple[Tensor, Tensor] | None = None  # int8 constants and a scale: their product is the content

    # Making tensors

    @staticmethod
    def input(name: str, shape: Sequence[int], dtype: str = "float32") -> Tensor:
        """A tensor that is given at each run."""
        return Tensor(tuple(shape), dtype, name)

    @staticmethod
    def constant(array: Any, name: str | None = None) -> Tensor:
        """A tensor of known content."""
        array = numpy.asarray(array)
        return Tensor(array.shape, str(array.dtype), name, array=array)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def is_float(self) -> bool:
        return self.dtype.startswith("float")

    def named(self, name: str) -> Tensor:
        """The same tensor under a name of its own, for the Graph's dump and as an output."""
        if self.name is None and self.array is None:
            self.name = name
        return self

    # Known content

    @property
    def is_constant(self) -> bool:
        """Whether the content depends on no input."""
        return self.array is not None or self.computable

    def numpy(self) -> Any:
        """The content of a constant tensor. Raises ValueError where it depends on an input."""
        if self.array is not None:
            return self.array
        if not self.is_constant or self.recorded is None:
            raise ValueError(f"{self.name or 'a tensor'} of shape {list(self.shape)} depends on an input")
        reads = self.recorded.operands + self.recorded.epilogue_operands
        arrays = {f"r{i}": r.tensor.numpy() for i, r in enumerate(reads)}
        node = _node(self, Value("r", self.shape, self.dtype), {id(r): f"r{i}" for i, r in enumerate(reads)})
        self.array = evaluate_node(node, arrays)
        return self.array

    def depends_on(self) -> tuple[Tensor, ...]:
        """The inputs that the content depends on."""
        found, seen, waiting = [], {id(self)}, [self]
        while waiting:
            tensor = waiting.pop()
            if tensor.recorded is None and tensor.array is None:
                found.append(tensor)
            new = [r.tensor for r in _reads(tensor) if id(r.tensor) not in seen]
            seen |= {id(t) for t in new}
            waiting += new
        return tuple(found)

    # Elementwise

    def apply(self, operation: str, *others: TensorLike, dtype: str | None = None) -> Tensor:
        """A scalar function (a key of expression.OPERATIONS) at every position; other operands broadcast."""
        return elementwise(operation, self, *others, dtype=dtype)

    def __add__(self, other: TensorLike) -> Tensor:
        return self.apply("add", other)

    def __radd__(self, other: TensorLike) -> Tensor:
        return elementwise("add", other, self)

    def __sub__(self, other: TensorLike) -> Tensor:
        return self.apply("subtract", other)

    def __rsub__(self, other: TensorLike) -> Tensor:
        return elementwise("subtract", other, self)

    def __mul__(self, other: TensorLike) -> Tensor:
        return self.apply("multiply", other)

    def __rmul__(self, other: TensorLike) -> Tensor:
        return elementwise("multiply", other, self)

    def __truediv__(self, other: TensorLike) -> Tensor:
        return self.apply("divide", other)

    def __rtruediv__(self, other: TensorLike) -> Tensor:
        return elementwise("divide", other, self)

    def __pow__(self, other: TensorLike) -> Tensor:
        return self.apply("power", other)

    def __neg__(self) -> Tensor:
        return self.apply("negative")

    def __matmul__(self, other: Tensor) -> Tensor:
        return self.matmul(other)

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

    def cast(self, dtype: str) -> Tensor:
        """Another element type: towards zero for integers, != 0 for bool."""
        if dtype == self.dtype:
            return self
        steps: Expression = Argument(0)
        if dtype == "bool":
            steps = expression.apply("not", expression.apply("equal", steps, Literal(0.0)))
        elif self.is_float and not dtype.startswith("float"):
            steps = expression.apply("truncate", steps)
        return _record(self.shape, dtype, Load(), (whole(self),), steps)

    # Movement: addresses, never work

    def through(self, seen: View, fill: float = 0.0) -> Tensor:
        """The tensor read through a view of it."""
        assert seen.source == self.shape
        return self if seen.is_identity else _record(seen.shape, self.dtype, Load(), (Read(self, seen, fill),))

    def reshape(self, *shape: int) -> Tensor:
        """The same elements under another shape; one size may be -1."""
        if -1 in shape:
            rest = prod(n for n in shape if n != -1)
            shape = tuple(self.size // rest if n == -1 else n for n in shape)
        if prod(shape) != self.size:
            raise ValueError(f"cannot reshape {list(self.shape)} to {list(shape)}")
        return self.through(view.reshape(self.shape, shape))

    def flatten(self) -> Tensor:
        """(N, ...) -> (N, all the rest)."""
        return self.reshape(self.shape[0], -1)

    def transpose(self, *permutation: int) -> Tensor:
        """Axes reordered; without arguments, reversed."""
        return self.through(view.transpose(self.shape, permutation or tuple(reversed(range(self.rank)))))

    def expand(self, *shape: int) -> Tensor:
        """Broadcast to a shape."""
        return self.through(view.expand(self.shape, shape))

    def slice(self, axis: int, start: int, stop: int, step: int = 1) -> Tensor:
        """start, start+step, ... before stop along one axis; positions as in range()."""
        count = len(range(start, stop, step))
        starts = [start if a == axis else 0 for a in range(self.rank)]
        sizes = [count if a == axis else n for a, n in enumerate(self.shape)]
        steps = [step if a == axis else 1 for a in range(self.rank)]
        return self.through(view.slice_(self.shape, starts, sizes, steps))

    def pad(self, before: Sequence[int], after: Sequence[int], fill: float = 0.0) -> Tensor:
        """`fill` before and after each axis; negative amounts crop."""
        return self.through(view.pad(self.shape, before, after), fill)

    def take(self, axis: int, positions: Sequence[int]) -> Tensor:
        """The given positions along an axis, in that order."""
        if len(positions) == 0:
            return self.slice(axis, 0, 0)
        return self.through(view.take(self.shape, axis, positions))

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
        return _record(seen.shape[:-1], self.dtype, Reduction("sum", body), reads)

    def upsample(self, factor: int) -> Tensor:
        """Nearest-neighbour enlargement of the last two axes."""
        rows = self.take(self.rank - 2, [i // factor for i in range(self.shape[-2] * factor)])
        return rows.take(self.rank - 1, [i // factor for i in range(self.shape[-1] * factor)])

    def depth_to_space(self, block: int) -> Tensor:
        """(N, C*block*block, H, W) -> (N, C, H*block, W*block), as PyTorch's PixelShuffle and ONNX's CRD mode."""
        n, c, h, w = self.shape
        split = self.reshape(n, c // block**2, block, block, h, w).transpose(0, 1, 4, 2, 5, 3)
        return split.reshape(n, c // block**2, h * block, w * block)

    # Reductions and windows

    def reduce(
        self, kind: str, axes: Sequence[int] | None = None, keepdims: bool = False, body: Expression = IDENTITY,
        epilogue: Expression = IDENTITY,
    ) -> Tensor:
        """sum, max, min or product over axes (all of them by default) of `body`; `epilogue` of the result.

        What body and epilogue compute is never rounded to the tensor's dtype on the way.
        """
        chosen = sorted({a % self.rank for a in (range(self.rank) if axes is None else axes)}) if self.rank else []
        if not chosen:
            unreduced = expression.substitute(epilogue, {0: body})
            return self if unreduced == IDENTITY else _record(self.shape, self.dtype, Load(), (whole(self),), unreduced)
        kept = [a for a in range(self.rank) if a not in chosen]
        moved = view.transpose(self.shape, [*kept, *chosen])
        shape = tuple(n for a, n in enumerate(self.shape) if a not in chosen)
        if keepdims:
            shape = tuple(1 if a in chosen else n for a, n in enumerate(self.shape))
            moved = view.reshape(moved.shape, (*shape, *(self.shape[a] for a in chosen))).over(moved)
        return _record(shape, self.dtype, Reduction(kind, body), (Read(self, moved),), epilogue)

    def sum(self, axes: Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        return self.reduce("sum", axes, keepdims)

    def argmax(self, axis: int) -> Tensor:
        """The position of the first of the largest elements along an axis, which goes; int64."""
        last = view.transpose(self.shape, [*(a for a in range(self.rank) if a != axis), axis])
        return _record(last.shape[:-1], "int64", Reduction("argmax", IDENTITY), (Read(self, last),))

    def mean(self, axes: Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """Their sum / their count: NaN where there are none."""
        count = prod(self.shape[a] for a in (range(self.rank) if axes is None else {a % self.rank for a in axes}))
        factor = 1 / count if count else math.nan
        return self.reduce("sum", axes, keepdims, epilogue=expression.apply("multiply", IDENTITY, factor))

    def max(self, axes: Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        return self.reduce("max", axes, keepdims)

    def softmax(self, axis: int) -> Tensor:
        """exp(x - max) / sum of the same, along one axis."""
        powers = (self - self.max([axis], keepdims=True)).exp()
        return powers / powers.sum([axis], keepdims=True)

    def pool(
        self, kind: str, window: Sequence[int], strides: Sequence[int] | None = None, pads: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None, sizes: Sequence[int] | None = None, scale: TensorLike = 1.0,
    ) -> Tensor:
        """sum, max, min, product or argmax over sliding windows of the last axes. pads: befores then afters (ONNX).

        Positions outside of the tensor never win: they count as the kind's neutral element. argmax gives int64
        row-major positions in the window. `sizes` gives the output's
        sizes where they are not those of rounding down. The results are multiplied by `scale` before they are rounded.
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
            return _record(shape, "int64", Reduction(kind, IDENTITY), reads)
        if not isinstance(scale, Tensor):
            epilogue = IDENTITY if scale == 1 else expression.apply("multiply", IDENTITY, scale)
            return _record(shape, self.dtype, Reduction(kind, IDENTITY), reads, epilogue)
        epilogue = expression.apply("multiply", IDENTITY, Argument(1))
        operand = Read(scale, view.expand(scale.shape, shape))
        return _record(shape, self.dtype, Reduction(kind, IDENTITY), reads, epilogue, (operand,))

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

    # Products

    def matmul(self, other: Tensor) -> Tensor:
        """Matrix product with numpy's rules: batch axes broadcast, vectors gain an axis that is dropped again."""
        a = self.reshape(1, *self.shape) if self.rank == 1 else self
        b = other.reshape(*other.shape, 1) if other.rank == 1 else other
        if a.shape[-1] != b.shape[-2]:
            raise ValueError(f"cannot multiply {list(self.shape)} by {list(other.shape)}")
        batch = numpy.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
        operands = (
            Read(a, view.expand(a.shape, (*batch, m, k))), Read(b, view.expand(b.shape, (*batch, k, n))),
        )
        product = _record((*batch, m, n), a.dtype, Product(), operands)
        if self.rank > 1 and other.rank > 1:
            return product
        shape = (*batch, *((m,) if self.rank > 1 else ()), *((n,) if other.rank > 1 else ()))
        return product.reshape(*shape)

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


def whole(tensor: Tensor) -> Read:
    """The tensor as it is."""
    return Read(tensor, view.identity(tensor.shape))


def elementwise(operation: str, *operands: TensorLike, dtype: str | None = None) -> Tensor:
    """A scalar function (a key of expression.OPERATIONS) of tensors and numbers, broadcast together.

    The result has the first tensor's dtype, or the one given.
    """
    tensors = [o for o in operands if isinstance(o, Tensor)]
    shape = tuple(numpy.broadcast_shapes(*(t.shape for t in tensors)))
    result = dtype or (tensors[1] if operation == "where" and len(tensors) > 1 else tensors[0]).dtype
    if not all(t.is_constant for t in tensors):
        operands = tuple(_number(o) if isinstance(o, Tensor) else o for o in operands)
        tensors = [o for o in operands if isinstance(o, Tensor)]
    numbers = iter(range(len(tensors)))
    arguments = [Argument(next(numbers)) if isinstance(o, Tensor) else Literal(float(o)) for o in operands]
    reads = tuple(Read(t, view.expand(t.shape, shape)) for t in tensors)
    return _record(shape, result, Load(), reads[:1], expression.apply(operation, *arguments), reads[1:])


def _number(tensor: Tensor) -> TensorLike:
    """The number itself where the tensor is a constant of one element."""
    if not tensor.is_constant or tensor.size != 1:
        return tensor
    value = tensor.numpy().item()
    # A large integer that no float holds stays a tensor.
    return tensor if isinstance(value, int) and float(value) != value else value


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
    return _record(shape, parts[0].dtype, Concatenation(axis), tuple(map(whole, parts)))


def gather(table: Tensor, seen: View, indices: Sequence[Tensor], fill: float = 0.0) -> Tensor:
    """The elements of a table that indices choose: seen of table at (i, indices[0][i], ..) for each position i.

    seen: a view of the table of shape output + (K_1, .., K_k). indices: k tensors that broadcast to the output's
    shape, rounded to the nearest integer. fill: what is read where an index is not in 0 .. K-1 or seen has no element.
    Raises ValueError where an axis is longer than 2**24: a device keeps indices as floats.
    """
    count = len(seen.shape) - len(indices)
    shape, sizes = seen.shape[:count], seen.shape[count:]
    if max(sizes) > EXACT:
        raise ValueError(f"an axis of {max(sizes)} elements is longer than 2**24, and indices are floats on a device")
    reads = tuple(Read(i, view.expand(i.shape, shape)) for i in indices)
    return _record(shape, table.dtype, Gather(), (Read(table, seen, fill), *reads))


def convolution(
    x: Tensor, weight: Tensor, strides: Sequence[int], pads: Sequence[int], dilations: Sequence[int], groups: int = 1,
    output: Sequence[int] | None = None, transposed: bool = False,
) -> Tensor:
    """ONNX's Conv or ConvTranspose without bias, for one, two or three spatial axes. pads: befores, then afters.

    x: (N, C, spatial...); weight: (O, C/groups, window...), or (C, O/groups, window...) where transposed. `output`:
    the spatial sizes where the rounded-down ones are not wanted (needed where transposed).
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
    return _record((x.shape[0], channels, *output), x.dtype, operation, (whole(x), whole(weight)))


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
            # Output depth z takes input (z - offset) / stride where that is whole and inside.
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


def build_graph(outputs: Mapping[str, Tensor], inputs: Sequence[Tensor] = (), name: str = "model") -> Graph:
    """The Graph of everything that the named outputs need. `inputs` fixes their order; others follow as they are met.

    What depends on no input is computed now and is a constant of the Graph.
    """
    builder = _Builder([_as_input(t) for t in inputs], outputs)
    names = [builder.output(key, tensor) for key, tensor in outputs.items()]
    graph = Graph(tuple(builder.inputs), tuple(names), tuple(builder.nodes), builder.constants, name)
    return graph.validate()


def _as_input(tensor: Tensor) -> Value:
    assert tensor.name is not None
    return Value(tensor.name, tensor.shape, tensor.dtype)


class _Builder:
    def __init__(self, inputs: list[Value], outputs: Mapping[str, Tensor]) -> None:
        self.inputs = inputs
        self.reserved = frozenset(outputs)
        self.wanted = {id(tensor): key for key, tensor in reversed(list(outputs.items()))}
        self.nodes: list[Node] = []
        self.constants: dict[str, Any] = {}
        self.names: dict[int, str] = {}
        self.used = {v.name for v in inputs}
        self.kept: list[Tensor] = []

    def output(self, key: str, tensor: Tensor) -> str:
        """The name `key` made an output: an input, a constant or a tensor that already has a name is passed through."""
        made = self.visit(tensor)
        if made == key:
            return made
        self.nodes.append(Node(Value(key, tensor.shape, tensor.dtype), Load(), (_operand(whole(tensor), made),)))
        self.used.add(key)
        return key

    def visit(self, tensor: Tensor) -> str:
        """The name of the tensor in the graph, after recording all that it needs."""
        stack = [tensor]
        while stack:
            top = stack[-1]
            waiting = [r.tensor for r in _reads(top) if id(r.tensor) not in self.names]
            if id(top) in self.names or not waiting:
                stack.pop()
                if id(top) not in self.names:
                    self.add(top)
            else:
                stack.extend(reversed(waiting))
        return self.names[id(tensor)]

    def add(self, tensor: Tensor) -> None:
        self.kept.append(tensor)  # ids stay valid while the tensors live
        if tensor.array is None and tensor.recorded is None:
            value = _as_input(tensor)
            self.names[id(tensor)] = value.name
            if value not in self.inputs:
                self.inputs.append(value)
                self.used.add(value.name)
            return
        wanted = self.wanted.get(id(tensor))
        name = wanted if wanted and wanted not in self.used else self.unique(tensor.name)
        self.names[id(tensor)] = name
        self.used.add(name)
        if tensor.is_constant:
            self.constants[name] = tensor.numpy()
        else:
            names = {id(r): self.names[id(r.tensor)] for r in _reads(tensor)}
            self.nodes.append(_node(tensor, Value(name, tensor.shape, tensor.dtype), names))

    def unique(self, name: str | None) -> str:
        candidate, count = name or f"t{len(self.names)}", 1
        while candidate in self.used or candidate in self.reserved:
            candidate, count = f"{name or 't'}_{len(self.names) + count}", count + 1
        return candidate


def _reads(tensor: Tensor) -> tuple[Read, ...]:
    """What must be recorded before the tensor: nothing where its content is known."""
    if tensor.is_constant or tensor.recorded is None:
        return ()
    return tensor.recorded.operands + tensor.recorded.epilogue_operands


def _operand(read: Read, name: str) -> Operand:
    return Operand(name, read.view, read.fill)


def _node(tensor: Tensor, output: Value, names: Mapping[int, str]) -> Node:
    recorded = tensor.recorded
    assert recorded is not None
    operands = tuple(_operand(r, names[id(r)]) for r in recorded.operands)
    extra = tuple(_operand(r, names[id(r)]) for r in recorded.epilogue_operands)
    return Node(output, recorded.operation, operands, recorded.epilogue, extra, recorded.origin)


def _record(
    shape: Sequence[int], dtype: str, operation: Operation, operands: tuple[Read, ...], epilogue: Expression = IDENTITY,
    epilogue_operands: tuple[Read, ...] = (),
) -> Tensor:
    made = Recorded(operation, operands, epilogue, epilogue_operands, _origin.get())
    computable = all(r.tensor.is_constant for r in operands + epilogue_operands)
    return Tensor(tuple(int(n) for n in shape), dtype, recorded=made, computable=computable)


__all__ = [
    "Tensor", "array_value", "build_graph", "concatenate", "convolution", "elementwise", "gather", "less", "neutral",
    "origin", "where",
]
