"""GraphArray: a tensor of a graph with the interface of a numpy array, so decoders' formulas become graph operations.

numpy's functions dispatch to it (NEP 13 and NEP 18), as far as the decoders use them:

    rows = GraphArray(Tensor.input("rows", (10, 4)))
    numpy.exp(rows[:, 2:]) * 8 + numpy.ones(2)      # a GraphArray of (10, 2)

Floats are float32, whatever dtype a formula asks for; numpy arrays become constants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy
from numpy.lib.mixins import NDArrayOperatorsMixin

from imgconv.graph.view import View, axis_variables
from imgconv.tensor import Tensor, concatenate, elementwise, gather, where

# The scalar functions of a graph by numpy's; those of COMPARISONS give bool.
UFUNCS: Mapping[Any, str] = {
    numpy.add: "add", numpy.subtract: "subtract", numpy.multiply: "multiply", numpy.true_divide: "divide",
    numpy.negative: "negative", numpy.exp: "exp", numpy.sqrt: "sqrt", numpy.maximum: "maximum", numpy.sign: "sign",
    numpy.minimum: "minimum", numpy.rint: "round", numpy.floor_divide: "quotient", numpy.remainder: "modulo",
    numpy.power: "power",
}
COMPARISONS: Mapping[Any, str] = {
    numpy.less: "less", numpy.equal: "equal", numpy.logical_and: "and", numpy.bitwise_and: "and",
    numpy.bitwise_or: "or", numpy.logical_not: "not",
}

OPPOSITES: Mapping[Any, Any] = {
    numpy.not_equal: numpy.equal, numpy.greater_equal: numpy.less, numpy.less_equal: numpy.greater,
}


class GraphArray(NDArrayOperatorsMixin):
    """A Tensor as a numpy array. Raises TypeError for functions of numpy that no decoder uses."""

    def __init__(self, tensor: Tensor) -> None:
        wide = tensor.is_float and tensor.dtype != "float32"
        self.tensor = tensor.cast("float32") if wide else tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    @property
    def ndim(self) -> int:
        return self.tensor.rank

    @property
    def size(self) -> int:
        return self.tensor.size

    @property
    def dtype(self) -> numpy.dtype[Any]:
        return numpy.dtype(self.tensor.dtype)

    @property
    def T(self) -> GraphArray:  # noqa: N802, numpy's name
        return GraphArray(self.tensor.transpose())

    def __len__(self) -> int:
        return self.shape[0]

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options:
            return NotImplemented
        if function is numpy.matmul:
            return GraphArray(tensor_of(inputs[0]).matmul(tensor_of(inputs[1])))
        if function is numpy.greater:
            return GraphArray(_compute("less", inputs[::-1], "bool"))
        if function in OPPOSITES:
            opposite = getattr(OPPOSITES[function], method)(*inputs)
            return GraphArray(_compute("not", [opposite], "bool"))
        if function in COMPARISONS:
            return GraphArray(_compute(COMPARISONS[function], inputs, "bool"))
        return GraphArray(_compute(UFUNCS[function], inputs)) if function in UFUNCS else NotImplemented

    def __array_function__(
        self, function: Any, types: Any, arguments: Sequence[Any], options: Mapping[str, Any]
    ) -> Any:
        return FUNCTIONS[function](*arguments, **options) if function in FUNCTIONS else NotImplemented

    def __getitem__(self, key: Any) -> GraphArray:
        """The elements at integers, slices, lists of positions, and None for a new axis."""
        keys, made, axis, shape = key if isinstance(key, tuple) else (key,), self.tensor, 0, list[int]()
        for each in keys:
            if each is None:
                shape.append(1)
                continue
            size = made.shape[axis]
            if isinstance(each, slice):
                made = made.slice(axis, *each.indices(size)) if each != slice(None) else made
                shape.append(made.shape[axis])
            elif isinstance(each, list):
                made = made.take(axis, each)
                shape.append(len(each))
            else:
                made = made.slice(axis, each % size, each % size + 1)
            axis += 1
        shape += made.shape[axis:]
        return GraphArray(made if tuple(shape) == made.shape else made.reshape(*shape))

    def reshape(self, *shape: int) -> GraphArray:
        return GraphArray(self.tensor.reshape(*shape))

    def transpose(self, *axes: int) -> GraphArray:
        return GraphArray(self.tensor.transpose(*axes))

    def astype(self, dtype: Any) -> GraphArray:
        """The same as float32, int64 or bool."""
        kind = numpy.dtype(dtype).kind
        return GraphArray(self.tensor.cast({"f": "float32", "b": "bool"}.get(kind, "int64")))

    def round(self) -> GraphArray:
        return GraphArray(self.tensor.apply("round")) if self.tensor.is_float else self

    def clip(self, low: Any, high: Any) -> GraphArray:
        return GraphArray(_compute("minimum", [GraphArray(_compute("maximum", [self, low])), high]))

    def sum(self, axis: int | None = None, keepdims: bool = False) -> GraphArray:
        return GraphArray(self.tensor.sum(None if axis is None else [axis], keepdims))

    def max(self, axis: int | None = None, keepdims: bool = False, initial: float = 0.0) -> GraphArray:
        return GraphArray(self.tensor.max(None if axis is None else [axis], keepdims))

    def min(self, axis: int | None = None, keepdims: bool = False) -> GraphArray:
        return GraphArray(self.tensor.reduce("min", None if axis is None else [axis], keepdims))

    def argmax(self, axis: int) -> GraphArray:
        return GraphArray(self.tensor.argmax(axis))


def tensor_of(value: Any) -> Tensor:
    """The Tensor of a GraphArray; numbers and numpy arrays are constants."""
    if isinstance(value, GraphArray):
        return value.tensor
    array = numpy.asarray(value)
    return Tensor.constant(array.astype(numpy.float32) if array.dtype.kind == "f" else array)


def take_or_fill(table: Any, places: Any, fill: float = 0.0) -> Any:
    """The elements of the first axis of a GraphArray at `places`; `fill` for those that are not among them, as -1."""
    count, shape = len(places), table.shape
    axes = axis_variables((count, *shape[1:], shape[0]))
    seen = View((count, *shape[1:], shape[0]), shape, (axes[-1], *axes[1:-1]))
    index = places.tensor.reshape(count, *[1] * (len(shape) - 1))
    return GraphArray(gather(table.tensor, seen, [index], fill))


def _compute(operation: str, inputs: Sequence[Any], dtype: str | None = None) -> Tensor:
    """A scalar function of arrays; if one of them is float, all are."""
    tensors = [tensor_of(each) for each in inputs]
    is_float = operation in ("divide", "exp", "sqrt") or any(each.is_float for each in tensors)
    wanted = "float32" if is_float else "bool" if operation in ("and", "or", "not") else "int64"
    return elementwise(operation, *(each.cast(wanted) for each in tensors), dtype=dtype or wanted)


def _concatenate(arrays: Sequence[Any], axis: int = 0) -> GraphArray:
    tensors = [tensor_of(each) for each in arrays]
    wanted = "float32" if any(each.is_float for each in tensors) else "int64"
    return GraphArray(concatenate([each.cast(wanted) for each in tensors], axis))


def _stack(arrays: Sequence[Any], axis: int = 0) -> GraphArray:
    tensors = [tensor_of(each) for each in arrays]
    shapes = [(*each.shape[:axis], 1, *each.shape[axis:]) for each in tensors]
    return _concatenate([GraphArray(e.reshape(*shape)) for e, shape in zip(tensors, shapes, strict=True)], axis)


def _where(condition: Any, a: Any, b: Any) -> GraphArray:
    tensors = [tensor_of(a), tensor_of(b)]
    wanted = "float32" if any(each.is_float for each in tensors) else "int64"
    return GraphArray(where(tensor_of(condition).cast("bool"), *(each.cast(wanted) for each in tensors)))


def _pad(array: GraphArray, widths: Sequence[Sequence[int]], constant_values: float = 0) -> GraphArray:
    return GraphArray(array.tensor.pad([low for low, _ in widths], [high for _, high in widths], constant_values))


def _repeat(array: GraphArray, count: int, axis: int) -> GraphArray:
    """Repeats an axis of one element."""
    return GraphArray(array.tensor.expand(*(count if a == axis else n for a, n in enumerate(array.shape))))


def _take_along_axis(array: GraphArray, places: GraphArray, axis: int) -> GraphArray:
    """The elements of each row, (n, m), at its places, (n, k)."""
    (rows, count), size = places.shape, array.shape[1]
    axes = axis_variables((rows, count, size))
    seen = View((rows, count, size), array.shape, (axes[0], axes[2]))
    return GraphArray(gather(array.tensor, seen, [places.tensor]))


FUNCTIONS: Mapping[Any, Callable[..., Any]] = {
    numpy.concatenate: _concatenate, numpy.stack: _stack, numpy.where: _where, numpy.pad: _pad, numpy.repeat: _repeat,
    numpy.take_along_axis: _take_along_axis,
}
