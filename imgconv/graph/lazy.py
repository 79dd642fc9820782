"""Lazy: a tensor that records its computation, in the form of the Graph's nodes; with the basic operations.

A `Lazy` is an input, a constant or the output of one node. Every ONNX operator is composed, here and in
`imgconv.tensor` and `imgconv.ops`, from loads through views, elementwise expressions, reductions, convolutions, matrix
products, concatenations and gathers.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, TypeVar, Union

import numpy
from numpy.typing import ArrayLike

from imgconv.arrays import Array
from imgconv.graph import expression
from imgconv.graph import view
from imgconv.graph.argument_check import KINDS, ArgumentCheck, ShapedTensor, is_integer
from imgconv.graph.evaluate import evaluate_node, peak_elements
from imgconv.graph.expression import Argument, Expression, Literal
from imgconv.graph.graph_error import require
from imgconv.graph.nodes import IDENTITY, Load, Node, Operand, Operation, Product, Reduction, ReductionKind, Value
from imgconv.graph.view import View
from imgconv.limits import current_budget

if TYPE_CHECKING:
    from typing_extensions import Self

Number = Union[int, float, bool]
T = TypeVar("T", bound="Lazy")
_origin: ContextVar[tuple[str, ...]] = ContextVar("origin", default=())


@contextlib.contextmanager
def origin(name: str) -> Iterator[None]:
    """A context in which recorded nodes get `name`, an ONNX node or a module, as their origin.

        with origin("Conv_3"):
            y = x * 2.0
    """
    token = _origin.set((name,))
    try:
        yield
    finally:
        _origin.reset(token)


@dataclass(frozen=True)
class TensorRead:
    """A tensor read through a view."""

    tensor: Lazy
    view: View
    fill: float = 0.0


@dataclass(frozen=True)
class RecordedNode:
    """The contents of the tensor's node; see imgconv.graph.nodes.Node."""

    operation: Operation
    operands: tuple[TensorRead, ...]
    epilogue: Expression
    epilogue_operands: tuple[TensorRead, ...]
    origin: tuple[str, ...]

    @property
    def reads(self) -> tuple[TensorRead, ...]:
        return self.operands + self.epilogue_operands


@dataclass(eq=False)
class Lazy(ShapedTensor):
    """A lazy n-dimensional array. dtype: the name of a numpy dtype. Operators broadcast as in numpy."""

    recorded: RecordedNode | None = None
    array: Array | None = None
    computable: bool = False  # no operand depends on an input
    quantised: tuple[Self, Self] | None = None  # integers and their constant scale; the content is their product
    scaled_sum: tuple[Self, Self, tuple[float, float]] | None = None  # see imgconv.ops.scaled_sum

    __array_ufunc__ = None  # array * tensor is the tensor's __rmul__, not an array of tensors

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._value}>"

    def __str__(self) -> str:
        """The node that computes the tensor, on one line; of an input or a constant the name, dtype and shape."""
        if self.recorded is None:
            return str(self._value)
        names = {id(read): read.tensor.name or f"t{number}" for number, read in enumerate(self.recorded.reads)}
        return str(node_of(self.recorded, self._value, names))

    @property
    def _value(self) -> Value:
        return Value(self.name or "unnamed", self.shape, self.dtype)

    # Making tensors

    @classmethod
    def input(cls, name: str, shape: Sequence[int], dtype: str = "float32") -> Self:
        """A tensor whose content is given at each run: ``Tensor.input("x", (1, 3, 224, 224))``."""
        given = ArgumentCheck("Tensor.input", name=name, shape=shape, dtype=dtype)
        given.require(isinstance(name, str) and name != "", "name has to be a text")
        given.check_dtype("dtype")
        return cls(given.as_integers("shape", 0), dtype, name)

    @classmethod
    def constant(cls, array: ArrayLike, name: str | None = None) -> Self:
        """A tensor whose content is known: ``Tensor.constant(numpy.ones((2, 3), "float32"))``."""
        given = ArgumentCheck("Tensor.constant", array=array, name=name)
        given.require(not isinstance(array, Lazy), "array is a Tensor already")
        array = numpy.asarray(array)
        given.require(array.dtype.kind in KINDS, f"array has to hold numbers, not {array.dtype}")
        return cls(array.shape, str(array.dtype), name, array=array)

    def record(
        self, shape: Sequence[int], dtype: str, operation: Operation, operands: tuple[TensorRead, ...],
        epilogue: Expression = IDENTITY, epilogue_operands: tuple[TensorRead, ...] = (),
    ) -> Self:
        """The result of an operation, as a tensor of this class. Raises UnsupportedError if it is too large.

        If it depends on no input, its content is known, unless the host would compute it for too long: then it is
        computed on the device, as if it depended on one.
        """
        shape, reads, left = tuple(int(n) for n in shape), operands + epilogue_operands, current_budget()
        left.check_tensor(shape, dtype)
        made = RecordedNode(operation, operands, epilogue, epilogue_operands, _origin.get())
        computable = all(r.tensor.is_constant for r in reads)
        if computable:
            views, size = [r.view for r in operands], sum(r.tensor.size for r in reads)
            read, held = operation.elements_read(views, shape), peak_elements(views, shape)
            computable = left.can_fold(read, prod(shape) * numpy.dtype(dtype).itemsize, size, held)
        return type(self)(shape, dtype, recorded=made, computable=computable)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def is_float(self) -> bool:
        return self.dtype.startswith("float")

    def named(self, name: str) -> Self:
        """Names the tensor, unless it has a name or is a known array, and returns it."""
        if self.name is None and self.array is None:
            self.name = name
        return self

    # Known content

    @property
    def is_constant(self) -> bool:
        """Returns whether the content is known, because it depends on no input."""
        return self.array is not None or self.computable

    def numpy(self) -> Array:
        """The content of a constant tensor. Raises InputError if it depends on an input."""
        if self.array is not None:
            return self.array
        if not self.is_constant or self.recorded is None:
            raise ArgumentCheck(
                "numpy", self=self).error("the tensor has no content before a run: it depends on an input"
            )
        reads = self.recorded.reads
        arrays = {f"r{i}": r.tensor.numpy() for i, r in enumerate(reads)}
        node = node_of(self.recorded, Value("r", self.shape, self.dtype), {id(r): f"r{i}" for i, r in enumerate(reads)})
        self.array = evaluate_node(node, arrays)
        return self.array

    def depends_on(self) -> tuple[Lazy, ...]:
        """The inputs that the tensor depends on."""
        found, seen, waiting = [], {id(self)}, [self]
        while waiting:
            tensor = waiting.pop()
            if is_input(tensor):
                found.append(tensor)
            new = [r.tensor for r in reads_of(tensor) if id(r.tensor) not in seen]
            seen |= {id(t) for t in new}
            waiting += new
        return tuple(found)

    # Elementwise

    def apply(self, operation: str, *others: Self | Number, dtype: str | None = None) -> Self:
        """A scalar function (a key of expression.FUNCTIONS) of each element: ``x.apply("maximum", 0.0)``."""
        return elementwise(operation, self, *others, dtype=dtype)

    def __add__(self, other: Self | Number) -> Self:
        return self.apply("add", other)

    def __radd__(self, other: Self | Number) -> Self:
        return elementwise("add", other, self)

    def __sub__(self, other: Self | Number) -> Self:
        return self.apply("subtract", other)

    def __rsub__(self, other: Self | Number) -> Self:
        return elementwise("subtract", other, self)

    def __mul__(self, other: Self | Number) -> Self:
        return self.apply("multiply", other)

    def __rmul__(self, other: Self | Number) -> Self:
        return elementwise("multiply", other, self)

    def __truediv__(self, other: Self | Number) -> Self:
        return self.apply("divide", other)

    def __rtruediv__(self, other: Self | Number) -> Self:
        return elementwise("divide", other, self)

    def __pow__(self, other: Self | Number) -> Self:
        return self.apply("power", other)

    def __neg__(self) -> Self:
        return self.apply("negative")

    def __matmul__(self, other: Self) -> Self:
        return self.matmul(other)

    def cast(self, dtype: str) -> Self:
        """The tensor in another dtype. Floats are truncated to integers; bool is ``x != 0``."""
        ArgumentCheck("cast", self=self, dtype=dtype).check_dtype("dtype")
        if dtype == self.dtype:
            return self
        steps: Expression = Argument(0)
        if dtype == "bool":
            steps = expression.apply("not", expression.apply("equal", steps, Literal(0.0)))
        elif self.is_float and not dtype.startswith("float"):
            steps = expression.apply("truncate", steps)
        return self.record(self.shape, dtype, Load(), (whole_read(self),), steps)

    # Movement: changes addresses, computes nothing

    def read_through(self, seen: View, fill: float = 0.0) -> Self:
        """The tensor read through a view. fill: read outside the view's bounds."""
        require(seen.source == self.shape, seen.source, self.shape)
        return self if seen.is_identity else self.record(
            seen.shape, self.dtype, Load(), (TensorRead(self, seen, fill),)
        )

    def reshape(self, *shape: int | Sequence[int]) -> Self:
        """The same elements in another shape, numbers or a tuple. One size may be -1: what the others leave."""
        given = ArgumentCheck("reshape", self=self, shape=_unpack_sizes(shape))
        sizes = given.as_integers("shape", -1)
        given.require(sizes.count(-1) < 2, "one size at most can be -1")
        rest = prod(n for n in sizes if n != -1)
        sizes = tuple(self.size // max(rest, 1) if n == -1 else n for n in sizes)
        given.require(prod(sizes) == self.size, f"the tensor has {self.size} elements")
        return self.read_through(view.reshape(self.shape, sizes))

    def flatten(self) -> Self:
        """(N, A, B, ...) to (N, A*B*...)."""
        return self.reshape(self.shape[0], -1)

    def transpose(self, *permutation: int | Sequence[int]) -> Self:
        """The axes in another order; reversed without arguments. ``x.transpose(0, 2, 3, 1)`` is NCHW to NHWC."""
        given = ArgumentCheck(
            "transpose", self=self, permutation=_unpack_sizes(permutation) or tuple(range(self.rank))[::-1]
        )
        order = given.as_integers("permutation")
        given.require(sorted(order) == [*range(self.rank)], "each axis has to occur once")
        return self.read_through(view.transpose(self.shape, order))

    def expand(self, *shape: int | Sequence[int]) -> Self:
        """The tensor broadcast to a shape."""
        given = ArgumentCheck("expand", self=self, shape=_unpack_sizes(shape))
        sizes = given.as_integers("shape", 0)
        lead = len(sizes) - self.rank
        fits = lead >= 0 and all(n in (1, wide) for n, wide in zip(self.shape, sizes[lead:]))
        given.require(fits, "the tensor does not broadcast to that shape")
        return self.read_through(view.expand(self.shape, sizes))

    def slice(self, axis: int, start: int, stop: int, step: int = 1) -> Self:
        """The elements at ``range(start, stop, step)`` along one axis. Negative positions do not count from the end."""
        given = ArgumentCheck("slice", self=self, axis=axis, start=start, stop=stop, step=step)
        axis = given.normalized_axis("axis", self.rank)
        valid = all(map(is_integer, (start, stop, step))) and step != 0
        given.require(valid, "positions are integers, and no step is 0")
        taken = range(start, stop, step)
        inside = not taken or 0 <= min(taken[0], taken[-1]) and max(taken[0], taken[-1]) < self.shape[axis]
        given.require(inside, f"the axis has the positions 0 to {self.shape[axis] - 1}")
        count = len(taken)
        starts = [start if a == axis else 0 for a in range(self.rank)]
        sizes = [count if a == axis else n for a, n in enumerate(self.shape)]
        steps = [step if a == axis else 1 for a in range(self.rank)]
        return self.read_through(view.slice_(self.shape, starts, sizes, steps))

    def pad(self, before: Sequence[int], after: Sequence[int], fill: float = 0.0) -> Self:
        """Adds `fill` before and after each axis. Negative amounts crop. before, after: one size for each axis."""
        given = ArgumentCheck("pad", self=self, before=before, after=after)
        sizes = [*zip(self.shape, given.as_integers("before"), given.as_integers("after"))]
        given.require(len(before) == len(after) == self.rank, f"the tensor has {self.rank} axes, and each needs a size")
        given.require(all(sum(each) >= 0 for each in sizes), "more is cropped than there is")
        return self.read_through(view.pad(self.shape, before, after), fill)

    def take(self, axis: int, positions: Sequence[int]) -> Self:
        """The elements at the given positions along an axis, in this order."""
        given = ArgumentCheck("take", self=self, axis=axis, positions=positions)
        axis = given.normalized_axis("axis", self.rank)
        ends = (min(positions), max(positions)) if len(positions) else ()
        inside = all(is_integer(n) and 0 <= n < self.shape[axis] for n in ends)
        given.require(inside, f"the axis has the positions 0 to {self.shape[axis] - 1}")
        if len(positions) == 0:
            return self.slice(axis, 0, 0)
        return self.read_through(view.take(self.shape, axis, positions))

    # Reductions

    def reduce(
        self, kind: ReductionKind, axes: int | Sequence[int] | None = None, keepdims: bool = False,
        body: Expression = IDENTITY, epilogue: Expression = IDENTITY,
    ) -> Self:
        """The sum, max, min or product of `body` over axes (default: all), then `epilogue` of the result.

        `body` and the reduction are not rounded to the tensor's dtype; only the epilogue's result is.
        """
        chosen = self._reduction_axes(kind, axes)
        if not chosen:
            unreduced = expression.substitute(epilogue, {0: body})
            if unreduced == IDENTITY:
                return self
            return self.record(self.shape, self.dtype, Load(), (whole_read(self),), unreduced)
        kept = [a for a in range(self.rank) if a not in chosen]
        moved = view.transpose(self.shape, [*kept, *chosen])
        shape = tuple(n for a, n in enumerate(self.shape) if a not in chosen)
        if keepdims:
            shape = tuple(1 if a in chosen else n for a, n in enumerate(self.shape))
            moved = view.reshape(moved.shape, (*shape, *(self.shape[a] for a in chosen))).composed_with(moved)
        return self.record(shape, self.dtype, Reduction(kind, body), (TensorRead(self, moved),), epilogue)

    def _reduction_axes(self, call: str, axes: int | Sequence[int] | None) -> list[int]:
        """The axes to reduce over, counted from the front, each once and in order."""
        if axes is None:
            return [*range(self.rank)]
        given = ArgumentCheck(call, self=self, axes=axes)
        return sorted(set(given.normalized_axes("axes", self.rank)))

    def sum(self, axes: int | Sequence[int] | None = None, keepdims: bool = False) -> Self:
        """The sum over axes (default: all)."""
        return self.reduce("sum", axes, keepdims)

    def argmax(self, axis: int) -> Self:
        """The position of the largest element along an axis, the first if several are equal. Drops the axis; int64."""
        axis = ArgumentCheck("argmax", self=self, axis=axis).normalized_axis("axis", self.rank)
        last = view.transpose(self.shape, [*(a for a in range(self.rank) if a != axis), axis])
        return self.record(last.shape[:-1], "int64", Reduction("argmax", IDENTITY), (TensorRead(self, last),))

    def mean(self, axes: int | Sequence[int] | None = None, keepdims: bool = False) -> Self:
        """The mean over axes (default: all). NaN if it is over no elements."""
        count = prod(self.shape[a] for a in self._reduction_axes("mean", axes))
        factor = 1 / count if count else math.nan
        return self.reduce("sum", axes, keepdims, epilogue=expression.apply("multiply", IDENTITY, factor))

    def max(self, axes: int | Sequence[int] | None = None, keepdims: bool = False) -> Self:
        """The largest element over axes (default: all)."""
        return self.reduce("max", axes, keepdims)

    # Products

    def matmul(self, other: Self, dtype: str | None = None) -> Self:
        """The matrix product as in numpy: batch axes broadcast, and a vector is a matrix of one row or column.

        dtype: of the result, by default that of self.
        """
        given = ArgumentCheck("matmul", self=self, other=other)
        given.check_tensors("self", "other")
        given.require(self.rank > 0 and other.rank > 0, "a number has no rows: use *")
        a = self.reshape(1, *self.shape) if self.rank == 1 else self
        b = other.reshape(*other.shape, 1) if other.rank == 1 else other
        given.require(a.shape[-1] == b.shape[-2], f"cannot multiply rows of {a.shape[-1]} by columns of {b.shape[-2]}")
        batch = given.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
        operands = (
            TensorRead(a, view.expand(a.shape, (*batch, m, k))), TensorRead(b, view.expand(b.shape, (*batch, k, n))),
        )
        product = self.record((*batch, m, n), dtype or a.dtype, Product(), operands)
        if self.rank > 1 and other.rank > 1:
            return product
        shape = (*batch, *((m,) if self.rank > 1 else ()), *((n,) if other.rank > 1 else ()))
        return product.reshape(*shape)


def _unpack_sizes(sizes: tuple[int | Sequence[int], ...]) -> tuple[object, ...]:
    """The sizes of a call with numbers, or with one tuple or list of them."""
    first = sizes[0] if len(sizes) == 1 else None
    return tuple(first) if isinstance(first, (list, tuple)) else sizes


def is_input(tensor: Lazy) -> bool:
    """Returns whether the content of a tensor is given at each run."""
    return tensor.recorded is None and tensor.array is None


def whole_read(tensor: Lazy) -> TensorRead:
    """A read of the whole tensor, through the identity view."""
    return TensorRead(tensor, view.identity(tensor.shape))


def elementwise(operation: str, *operands: T | Number, dtype: str | None = None) -> T:
    """A scalar function (a key of expression.FUNCTIONS) of tensors and numbers, broadcast together.

    The result has the dtype `dtype`. Without it the operands are of one dtype, except those of "power", which gives
    that of the base. Raises InputError if they are not, for a shape that does not broadcast, and for an array.
    """
    tensors = [o for o in operands if isinstance(o, Lazy)]
    given = ArgumentCheck(
        operation, **dict(zip(("condition", "a", "b") if operation == "where" else ("a", "b"), operands))
    )
    given.check_tensors_or_numbers()
    shape = given.broadcast_shapes(*(t.shape for t in tensors))
    result = dtype or _common_dtype(given, operation, operands)
    if not all(t.is_constant for t in tensors):
        operands = tuple(_number_if_scalar_constant(o) if isinstance(o, Lazy) else o for o in operands)
        tensors = [o for o in operands if isinstance(o, Lazy)]
    numbers = iter(range(len(tensors)))
    arguments = [Argument(next(numbers)) if isinstance(o, Lazy) else Literal(float(o)) for o in operands]
    reads = tuple(TensorRead(t, view.expand(t.shape, shape)) for t in tensors)
    return tensors[0].record(shape, result, Load(), reads[:1], expression.apply(operation, *arguments), reads[1:])


def _common_dtype(given: ArgumentCheck, operation: str, operands: Sequence[Lazy | Number]) -> str:
    """The dtype of the operands. Raises InputError if there are several, or if integers meet a fraction."""
    chosen = operands[1:] if operation == "where" else operands
    dtypes = [o.dtype for o in chosen if isinstance(o, Lazy)]
    given.require(operation == "power" or len(set(dtypes)) == 1, "dtypes differ: cast() one of them")
    whole = all(isinstance(o, Lazy) or float(o).is_integer() for o in chosen)
    given.require(whole or dtypes[0].startswith("float"), "a fraction and integers: cast() the tensor to float32 first")
    return dtypes[0]


def _number_if_scalar_constant(tensor: T) -> T | Number:
    """The element as a number if the tensor is a constant of one element, else the tensor."""
    if not tensor.is_constant or tensor.size != 1:
        return tensor
    value = tensor.numpy().item()
    # An integer that float64 does not represent exactly stays a tensor.
    return tensor if isinstance(value, int) and float(value) != value else value


def reads_of(tensor: Lazy) -> tuple[TensorRead, ...]:
    """The tensors that the tensor's node reads. Empty for an input and if the content is known."""
    if tensor.is_constant or tensor.recorded is None:
        return ()
    return tensor.recorded.operands + tensor.recorded.epilogue_operands


def operand_of(read: TensorRead, name: str) -> Operand:
    return Operand(name, read.view, read.fill)


def node_of(recorded: RecordedNode, output: Value, names: Mapping[int, str]) -> Node:
    operands = tuple(operand_of(r, names[id(r)]) for r in recorded.operands)
    extra = tuple(operand_of(r, names[id(r)]) for r in recorded.epilogue_operands)
    return Node(output, recorded.operation, operands, recorded.epilogue, extra, recorded.origin)
