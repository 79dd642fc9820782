"""Writes ONNX operators one after another: elementwise expressions and the simplest movements."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Union

import numpy
import onnx
import onnx.helper

from imgconv.arrays import Array
from imgconv.graph.expression import NUMBER, FUNCTIONS, Apply, Argument, Expression, Literal, fold
from imgconv.graph.nodes import Value
from imgconv.graph.view import Shape


@dataclass(frozen=True)
class OnnxTensor:
    """A tensor of the ONNX graph. dtype is float32, int64 or bool; any other if its elements are only moved."""

    name: str
    dtype: str
    shape: Shape


OnnxNumber = Union[OnnxTensor, Literal]


class OnnxWriter:
    """The nodes and initializers of the ONNX graph being written. used: the names already taken."""

    def __init__(self, used: Iterable[str]) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, Array] = {}
        self.contents: dict[Hashable, str] = {}
        self.used = set(used)
        self.relus: set[str] = set()  # names of tensors that cannot be negative
        self.reshaped: dict[str, OnnxTensor] = {}  # by a Reshape's output, its input
        self.value = Value("", (), "float32")  # the value being written; `origin` is its node's origin
        self.origin = ""

    def emit(
        self, operator: str, inputs: Sequence[OnnxTensor], dtype: str, shape: Shape, **attributes: Any
    ) -> OnnxTensor:
        """Appends an operator; returns its result under a new name."""
        name = self.unused(f"{self.value.name}.{operator.lower()}")
        node = onnx.helper.make_node(
            operator, [t.name for t in inputs], [name], name, doc_string=self.origin or None, **attributes
        )
        self.nodes.append(node)
        return OnnxTensor(name, dtype, shape)

    def unused(self, wanted: str) -> str:
        name, count = wanted, 1
        while name in self.used:
            name, count = f"{wanted}{count}", count + 1
        self.used.add(name)
        return name

    def constant(self, array: Array) -> OnnxTensor:
        """A constant tensor; equal ones are stored once."""
        key = (str(array.dtype), array.shape, array.tobytes())
        if key not in self.contents:
            self.contents[key] = self.unused(f"{self.value.name}.constant")
            self.initializers[self.contents[key]] = array
        return OnnxTensor(self.contents[key], str(array.dtype), array.shape)

    def integers(self, *numbers: int) -> OnnxTensor:
        return self.constant(numpy.asarray(numbers, numpy.int64))

    def name_result(self, result: OnnxTensor, before: int) -> None:
        """Gives the value being written its shape, dtype and name. before: the number of operators before it."""
        result = self.cast(self.expand(result, self.value.shape), self.value.dtype)
        if len(self.nodes) == before or self.nodes[-1].output[0] != result.name:
            result = self.emit("Identity", [result], result.dtype, result.shape)
        if result.name in self.relus:
            self.relus.add(self.value.name)
        self.nodes[-1].output[0] = self.nodes[-1].name = self.value.name

    def cast(self, tensor: OnnxTensor, dtype: str) -> OnnxTensor:
        if tensor.dtype == dtype:
            return tensor
        return self.emit("Cast", [tensor], dtype, tensor.shape, to=element_type(dtype))

    def reshape(self, tensor: OnnxTensor, shape: Shape) -> OnnxTensor:
        source = self.reshaped.get(tensor.name)
        if source is not None and self.nodes[-1].output[0] == tensor.name:
            # Of two Reshapes in a row, the first is not needed.
            self.nodes.pop()
            tensor = source
        if tensor.shape == shape:
            return tensor
        made = self.emit("Reshape", [tensor, self.integers(*shape)], tensor.dtype, shape)
        self.reshaped[made.name] = tensor
        return made

    def transpose(self, tensor: OnnxTensor, order: Sequence[int]) -> OnnxTensor:
        """Axis a of the result is axis order[a]; a Reshape if only axes of length 1 change places."""
        shape = tuple(tensor.shape[a] for a in order)
        long = [a for a in order if tensor.shape[a] > 1]
        if long == sorted(long):
            return self.reshape(tensor, shape)
        return self.emit("Transpose", [tensor], tensor.dtype, shape, perm=list(order))

    def expand(self, tensor: OnnxTensor, shape: Shape) -> OnnxTensor:
        if tensor.shape == shape:
            return tensor
        return self.emit("Expand", [tensor, self.integers(*shape)], tensor.dtype, shape)

    def pad(self, tensor: OnnxTensor, before: Sequence[int], after: Sequence[int], fill: float = 0.0) -> OnnxTensor:
        """`fill` around each axis; negative amounts crop."""
        shape = tuple(b + n + a for b, n, a in zip(before, tensor.shape, after, strict=True))
        number = self.constant(scalar_array(fill, tensor.dtype))
        return self.emit("Pad", [tensor, self.integers(*before, *after), number], tensor.dtype, shape)

    def pick(self, tensor: OnnxTensor, axis: int, positions: Array) -> OnnxTensor:
        """The positions along an axis: a Slice if they are evenly spaced, a Gather otherwise."""
        count = len(positions)
        if tensor.shape[axis] == count and numpy.array_equal(positions, numpy.arange(count)):
            return tensor
        shape = (*tensor.shape[:axis], count, *tensor.shape[axis + 1 :])
        steps = set(numpy.diff(positions).tolist()) or {1}
        if len(steps) == 1 and steps != {0}:
            step = steps.pop()
            end = int(positions[-1]) + (1 if step > 0 else -1)
            bounds = (int(positions[0]), end if end >= 0 else -tensor.shape[axis] - 1, axis, step)
            inputs = [tensor, *(self.integers(n) for n in bounds)]
            return self.emit("Slice", inputs, tensor.dtype, shape)
        return self.emit("Gather", [tensor, self.integers(*positions)], tensor.dtype, shape, axis=axis)

    # Expressions

    def compute(self, expression: Expression, arguments: Sequence[OnnxTensor]) -> OnnxTensor:
        """The result of an expression of the arguments; shared parts are written once."""
        given: Sequence[OnnxNumber] = arguments
        made = fold(expression, Literal, given, self.apply)
        return self.as_tensor(made, "float32") if isinstance(made, Literal) else made

    def apply(self, e: Apply, arguments: Sequence[OnnxNumber]) -> OnnxTensor:
        number = common_dtype(arguments[1:] if e.function == "where" else arguments)
        form = FUNCTIONS[e.function].onnx
        if form.composed and (not form.operator or number == "float32"):
            tensors = [self.as_tensor(a, "float32") for a in arguments]
            return self.compute(form.composed(*map(Argument, range(len(tensors)))), tensors)
        if number == "float32" and (made := self.relu_or_clip(e.function, arguments)):
            return made
        kinds = [number if form.takes == NUMBER else form.takes] * len(arguments)
        if e.function == "where":
            kinds[0] = "bool"
        tensors = [self.as_tensor(a, kind) for a, kind in zip(arguments, kinds, strict=True)]
        shape = tuple(numpy.broadcast_shapes(*(t.shape for t in tensors)))
        dtype = number if form.gives == NUMBER else form.gives
        return self.emit(form.operator, tensors, dtype, shape, **dict(form.attributes))

    def relu_or_clip(self, operation: str, arguments: Sequence[OnnxNumber]) -> OnnxTensor | None:
        """max(x, 0) as Relu and min(Relu, c) as Clip, since other engines fuse these; None for anything else."""
        tensors = [a for a in arguments if isinstance(a, OnnxTensor)]
        limits = [a.value for a in arguments if isinstance(a, Literal)]
        if len(tensors) != 1 or len(limits) != 1:
            return None
        (x,), (limit,) = [self.cast(t, "float32") for t in tensors], limits
        if operation == "maximum" and limit == 0:
            made = self.emit("Relu", [x], "float32", x.shape)
            self.relus.add(made.name)
            return made
        if operation == "minimum" and limit > 0 and x.name in self.relus:
            bounds = [self.as_tensor(Literal(number), "float32") for number in (0.0, limit)]
            return self.emit("Clip", [x, *bounds], "float32", x.shape)
        return None

    def as_tensor(self, number: OnnxNumber, dtype: str) -> OnnxTensor:
        if isinstance(number, Literal):
            return self.constant(scalar_array(number.value, dtype))
        return self.cast(number, dtype)


def element_type(dtype: str) -> int:
    return onnx.helper.np_dtype_to_tensor_dtype(numpy.dtype(dtype))


def compute_dtype(dtype: str) -> str:
    """The dtype in which a value stored as `dtype` is computed."""
    if dtype == "bool":
        return dtype
    return "float32" if dtype.startswith("float") else "int64"


def common_dtype(numbers: Sequence[OnnxNumber]) -> str:
    """int64 if at least one tensor is given and all are integers, else float32."""
    whole = [n.value.is_integer() if isinstance(n, Literal) else n.dtype != "float32" for n in numbers]
    tensors = any(isinstance(n, OnnxTensor) for n in numbers)
    return "int64" if all(whole) and tensors else "float32"


def scalar_array(number: float, dtype: str) -> Array:
    """The number as an array of rank 0; clipped to the type's range for int64."""
    if dtype == "int64":
        limits = numpy.iinfo(numpy.int64)
        return numpy.asarray(min(max(int(number), limits.min), limits.max), dtype)
    with numpy.errstate(over="ignore"):
        return numpy.asarray(number).astype(dtype)
