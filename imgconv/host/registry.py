"""The table of host functions: from an ONNX op type to the numpy function that computes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, TypeVar

import numpy

from imgconv import ops
from imgconv.errors import ConfigError, ModelError, ResourceError
from imgconv.graph.evaluate import evaluate_graph
from imgconv.graph.onnx_nodes import HostNode
from imgconv.tensor import Tensor, build_graph

LIMIT = 1 << 30  # bytes of the largest tensor on the host
# Operators whose nodes give different results each time.
RANDOM = ("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli")


@dataclass(frozen=True)
class HostCall:
    """One node, as its host function sees it.

    version: the opset. attributes: those that the node has; a graph is a function of its inputs that returns a list.
    outputs: how many outputs are wanted. limit: bytes of the largest tensor.
    """

    node: str
    op_type: str
    version: int
    attributes: Mapping[str, Any]
    outputs: int = 1
    limit: int = LIMIT

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute's value, or `default`, which is ONNX's, if the node does not have it."""
        return self.attributes.get(name, default)

    def with_attributes(self, attributes: Mapping[str, Any]) -> HostCall:
        """The call with further attributes."""
        every = {**self.attributes, **attributes}
        return HostCall(self.node, self.op_type, self.version, every, self.outputs, self.limit)

    def flag(self, name: str, default: bool = False) -> bool:
        """An attribute that is 0 or 1."""
        return bool(self.attributes.get(name, default))

    def check_size(self, shape: Any, dtype: Any = "float32") -> None:
        """Raises ResourceError if a tensor of this shape is larger than the limit, before it is made."""
        sizes = tuple(map(int, shape))
        count = prod(sizes) * numpy.dtype(dtype).itemsize
        if count > self.limit:
            raise self.too_large(sizes, count)

    def too_large(self, shape: tuple[int, ...], count: int) -> ResourceError:
        """The error for a tensor of `count` bytes."""
        return ResourceError(
            f"node {self.node!r}, {self.op_type}, makes a tensor {list(shape)} of {count / 1e6:.0f} MB on the host",
            self.node, shape, f"{self.limit / 1e6:.0f} MB",
        )

    def wrong(self, message: str) -> ModelError:
        """The error for values that ONNX does not allow."""
        return ModelError(f"{self.op_type}: {message}", node=self.node)


HostFunction = Callable[..., Any]
HostFunctionT = TypeVar("HostFunctionT", bound=HostFunction)
_FUNCTIONS: dict[tuple[str, str], HostFunction] = {}


def host(*op_types: str, domain: str = "") -> Callable[[HostFunctionT], HostFunctionT]:
    """Registers a function for op types: it is given the HostCall and an array for each input, None if one is absent.

        @host("Compress")
        def compress(call, x, condition):
            return numpy.compress(condition, x, call.attribute("axis"))

    It returns an array, or a tuple of them. Raises ConfigError if the table has one of the op types.
    """

    def register(function: HostFunctionT) -> HostFunctionT:
        for op_type in op_types:
            if (domain, op_type) in _FUNCTIONS:
                raise ConfigError(f"host function {op_type} is registered twice")
            _FUNCTIONS[domain, op_type] = function
        return function

    return register


def supported() -> tuple[str, ...]:
    """The op types of ONNX's own domain that have a function here, sorted."""
    return tuple(sorted(op_type for domain, op_type in _FUNCTIONS if not domain))


def has_host_function(op_type: str, domain: str = "") -> bool:
    """Returns whether the host computes an operator: by the table's function, or as the import folds constants."""
    return (domain, op_type) in _FUNCTIONS or ops.find(op_type, domain) is not None


def find(op_type: str, domain: str = "") -> HostFunction:
    """The function of an op type; if the table has none, the composition by which the import computes constants.

    Raises ModelError if there is neither.
    """
    if not has_host_function(op_type, domain):
        raise ModelError(f"the host has no function for {ops.qualified(domain, op_type)}")
    return _FUNCTIONS.get((domain, op_type)) or partial(run_composition, domain=domain)


def compose(node: HostNode, inputs: Sequence[Tensor | None]) -> list[Tensor]:
    """The outputs of a node as the import composes them. Raises ModelError, and what the operator's function raises."""
    registered = ops.find(node.op_type, node.domain)
    if registered is None:
        raise ModelError(f"{ops.qualified(node.domain, node.op_type)} has no composition", node=node.name)
    made = registered.function(
        ops.Call(node.name, node.op_type, node.version, tuple(inputs), node.attributes, node.outputs)
    )
    return [made] if isinstance(made, Tensor) else list(made)


@host("BitShift", "Conv", "ConvTranspose", "EyeLike", "NonMaxSuppression", "NonZero", "Range", "Size", "Unique")
def run_composition(call: HostCall, *inputs: Any, domain: str = "") -> Any:
    """The outputs of a node as the import computes those of constants, some of them by a numpy function of `ops/`.

    Raises ModelError.
    """
    node = HostNode(call.node, call.op_type, (), ("wanted",) * call.outputs, call.attributes, call.version, domain)
    tensors = compose(node, [None if x is None else Tensor.constant(x) for x in inputs])
    if all(tensor.is_constant for tensor in tensors):
        return tuple(tensor.numpy() for tensor in tensors)
    # A long computation, which the import would leave to the device.
    graph = build_graph({str(number): tensor for number, tensor in enumerate(tensors)})
    return tuple(evaluate_graph(graph, {}).values())
