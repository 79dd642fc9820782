"""The operator table: maps an ONNX op type to the function that composes it from primitives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import numpy

from imgconv.arrays import Array
from imgconv.errors import (
    ConfigError, ContentError, DataDependentError, LimitExceededError, ModelError, UnsupportedError,
)
from imgconv.limits import MADE_ELEMENTS
from imgconv.tensor import Tensor

T = TypeVar("T", bound=str)
MICROSOFT = "com.microsoft"  # the domain of what onnxruntime's own optimizer and quantizer write
FLOATS = ("float32", "float16", "float64")
NARROW = ("int8", "uint8", "int16", "uint16")


class Body(Protocol):
    """A body of If, Loop or Scan as a function from its inputs to its outputs; each call adds its nodes once more."""

    def __call__(self, *inputs: Tensor) -> list[Tensor]:
        ...


@dataclass(frozen=True)
class Call:
    """One ONNX node, as the function of its operator sees it.

    node: its name. version: the model's opset of the operator's domain. inputs: None if an optional one is absent.
    attributes: those that the node has; strings are str, tensors are arrays and graphs are Body (Any: each operator
    knows the types of its own). outputs: their names, "" if nothing reads one.
    """

    node: str
    op_type: str
    version: int
    inputs: tuple[Tensor | None, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[str, ...] = ("",)

    def input(self, position: int) -> Tensor:
        """A required input. Raises ModelError if it is absent."""
        found = self.optional(position)
        if found is None:
            raise self.wrong(f"input {position} is missing")
        return found

    def with_inputs(self, *inputs: Tensor | None) -> Call:
        """The same node with other inputs, for the function of a further operator."""
        return replace(self, inputs=inputs)

    def with_attributes(self, attributes: Mapping[str, Any]) -> Call:
        """The same node with other attributes, for the function of a further operator."""
        return replace(self, attributes=attributes)

    def optional(self, position: int) -> Tensor | None:
        """An input; None if it is absent."""
        return self.inputs[position] if position < len(self.inputs) else None

    def is_output_used(self, position: int) -> bool:
        """Returns whether anything reads that output."""
        return position < len(self.outputs) and bool(self.outputs[position])

    def attribute(self, name: str, default: Any) -> Any:
        """An attribute's value, or `default`, which is ONNX's, if the node does not have it."""
        return self.attributes.get(name, default)

    def number(self, name: str, default: float) -> float:
        """A float attribute."""
        return float(self.attribute(name, default))

    def flag(self, name: str, default: bool = False) -> bool:
        """An attribute that is 0 or 1, as a bool."""
        value = self.attribute(name, int(default))
        if value not in (0, 1):
            raise self.wrong(f"{name} is {value}, which is neither 0 nor 1")
        return bool(value)

    def choice(self, name: str, default: T, allowed: Iterable[T]) -> T:
        """A string attribute. Raises ModelError if its value is not among the allowed ones."""
        value, names = str(self.attribute(name, default)), tuple(allowed)
        if value not in names:
            raise self.wrong(f"{name} is {value!r}, which is none of {', '.join(names)}")
        return names[names.index(value)]

    def required_constant(self, position: int, what: str) -> Array:
        """The content of a required input, which must not depend on the model's inputs."""
        return self.constant_content(self.input(position), what)

    def constant(self, position: int, what: str) -> Array | None:
        """The content of an input that must not depend on the model's inputs; None if it is absent."""
        tensor = self.optional(position)
        return None if tensor is None else self.constant_content(tensor, what)

    def constant_content(self, tensor: Tensor, what: str) -> Array:
        """The content of a tensor that must not depend on the model's inputs."""
        if not tensor.is_constant:
            inputs = tensor.depends_on()
            names = tuple(sorted({t.name or "" for t in inputs}))
            message = f"{self.op_type}: unsupported: {what} must be constant, but depends on input {', '.join(names)}"
            if not names:
                raise self.unsupported(f"{what} must be constant, but would take too long to compute at load")
            if all(t.rank <= 1 for t in inputs):
                # A shape, pads, scales or a trip count: small enough to load the model again for each content.
                remedy = "known only in a run: in Python, run the model first; or make the input a constant of the file"
                raise ContentError(f"{message}, {remedy}", node=self.node, inputs=names)
            raise DataDependentError(message, node=self.node)
        return tensor.numpy()

    def integers(self, position: int, what: str) -> list[int] | None:
        """A constant input as a list of ints; None if it is absent."""
        content = self.constant(position, what)
        return None if content is None else [int(n) for n in numpy.ravel(content)]

    def check_length(self, count: int, what: str) -> int:
        """The count, of elements that the host lists at load. Raises LimitExceededError if they are too many."""
        if count > MADE_ELEMENTS:
            problem = f"{self.op_type}: {what} of {count} elements, more than {MADE_ELEMENTS}"
            raise LimitExceededError(problem, node=self.node)
        return count

    def axis(self, value: int, rank: int) -> int:
        """An axis counted from the front: -1 is rank - 1. Raises ModelError if the tensor has no such axis."""
        if not -rank <= value < rank:
            raise self.wrong(f"there is no axis {value} in a tensor of rank {rank}")
        return value % rank

    def axes(self, values: Sequence[int], rank: int) -> list[int]:
        """Axes counted from the front. Raises ModelError if one occurs twice or does not exist."""
        found = [self.axis(int(v), rank) for v in values]
        if len(set(found)) != len(found):
            raise self.wrong(f"axes {list(values)} name an axis twice")
        return found

    def refuse_narrow_integers(self, *tensors: Tensor) -> None:
        """Raises UnsupportedError for integers of 8 and 16 bits that depend on an input.

        They wrap around in ONNX, but not in the floats of a device: an operator that does arithmetic on them wraps its
        result, or refuses them here. Integers of 32 and 64 bits are exact to 2**24; a pass turns larger results into
        NaN.
        """
        for tensor in tensors:
            if tensor.dtype in NARROW and not tensor.is_constant:
                raise self.unsupported(f"{tensor.dtype} tensors that depend on a model input; Cast them to int32")

    def refuse_integers(self, *tensors: Tensor) -> None:
        """Raises UnsupportedError for integers that depend on an input: results exceed 24 bits or need rounding."""
        for tensor in tensors:
            if not tensor.is_float and not tensor.is_constant:
                raise self.unsupported(f"{tensor.dtype} tensors that depend on a model input; Cast them to float")

    def wrong(self, message: str) -> ModelError:
        """The error for a node that ONNX does not allow."""
        return ModelError(f"{self.op_type}: {message}", node=self.node)

    def unsupported(self, message: str) -> UnsupportedError:
        """The error for a node that ONNX allows but imgconv does not support."""
        return UnsupportedError(f"{self.op_type}: unsupported: {message}", node=self.node)


Operator = Callable[[Call], "Tensor | Sequence[Tensor]"]
Function = TypeVar("Function", bound=Operator)


@dataclass(frozen=True)
class Signature:
    """The inputs, types and attributes that a node of a domain without ONNX schemas may have; others are refused.

    inputs: the type of each, by name: a key of `types` or a numpy dtype; "?" after it marks an optional input, "*" the
    last one if there may be any number of it. Inputs of one key have one type. attributes: their names.
    """

    inputs: Mapping[str, str]
    types: Mapping[str, Sequence[str]] = field(default_factory=dict)
    attributes: Sequence[str] = ()

    def problem(self, inputs: Sequence[Tensor | None], attributes: Iterable[str]) -> str:
        """Returns a text that names a node's inputs and attributes that are not listed; "" if all are."""
        unknown = [name for name in attributes if name not in self.attributes]
        if unknown:
            return f"attribute {unknown[0]}"
        names, bound = list(self.inputs), dict[str, str]()
        if len(inputs) > len(names) and not self.inputs[names[-1]].endswith("*"):
            return f"input {len(names)}; it has {len(names)} inputs"
        for position, tensor in enumerate(inputs):
            name = names[min(position, len(names) - 1)]
            kind = self.inputs[name].rstrip("?*")
            if tensor is None:
                continue
            if tensor.dtype not in self.types.get(kind, (kind,)):
                return f"input {name} of type {tensor.dtype}; use {' or '.join(self.types.get(kind, (kind,)))}"
            if not self.inputs[name].endswith("*") and bound.setdefault(kind, tensor.dtype) != tensor.dtype:
                return f"input {name} of type {tensor.dtype} with one of {bound[kind]}"
        return ""

    def missing(self, inputs: Sequence[Tensor | None]) -> str:
        """The name of the first input that a node must have and does not; "" if it has all."""
        given = [*inputs, *[None] * len(self.inputs)]
        return next((n for (n, kind), t in zip(self.inputs.items(), given) if kind[-1] not in "?*" and t is None), "")


@dataclass(frozen=True)
class RegisteredOperator:
    """An operator of the table: its function, and what its nodes may have if ONNX has no schema for it."""

    function: Operator
    signature: Signature | None = None


_OPERATORS: dict[tuple[str, str], RegisteredOperator] = {}


def operator(*op_types: str, domain: str = "", signature: Signature | None = None) -> Callable[[Function], Function]:
    """Registers a function for op types of a domain: "" is ONNX's own. Models that are loaded after it can use them.

        @imgconv.ops.operator("Twice", domain="my.domain")
        def twice(call):
            return call.input(0) * 2

    signature: what else a node has is refused at load. Raises ConfigError if the table has one of the op types.
    """

    def register(function: Function) -> Function:
        taken = [op_type for op_type in op_types if (domain, op_type) in _OPERATORS]
        if taken:
            raise ConfigError(f"operator {qualified(domain, taken[0])} is registered twice")
        _OPERATORS.update({(domain, op_type): RegisteredOperator(function, signature) for op_type in op_types})
        return function

    return register


def find(op_type: str, domain: str = "") -> RegisteredOperator | None:
    """The entry of an op type; None if the table has none."""
    return _OPERATORS.get((domain, op_type))


def has_foreign_operators() -> bool:
    """Returns whether `operator` registered functions of other packages."""
    modules = (str(getattr(entry.function, "__module__", "")) for entry in _OPERATORS.values())
    return not all(module.startswith("imgconv.ops.") for module in modules)


def qualified(domain: str, op_type: str) -> str:
    """An operator's name in messages: com.microsoft.FusedConv; without the domain if it is ONNX's own."""
    return f"{domain}.{op_type}" if domain else op_type


def supported() -> tuple[str, ...]:
    """The qualified name of every operator of the table, sorted."""
    return tuple(sorted(qualified(*key) for key in _OPERATORS))
