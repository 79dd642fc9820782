"""Splits a data-dependent model: the host computes the nodes that the device cannot compute, and all nodes after them.

The host computes a node if it cannot be imported, because a shape or control flow depends on data, or if it reads the
results of such a node. The boundary tensors should be small. So the host also computes a node before the cut if it only
moves elements and reads fewer bytes than it writes, and nodes that produce integers of 32 or 64 bits, which are floats
on a device. Convolutions and products of the host's part return to the device: host/subgraphs.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
import onnx.defs

from imgconv import host, ops
from imgconv.errors import ContentError, DataDependentError, LimitExceededError, ModelError, UnsupportedError
from imgconv.graph.nodes import HostPartition, Value
from imgconv.graph.onnx_nodes import HostGraph, HostNode
from imgconv.graph.pass_through import WIDE
from imgconv.host.loops import hoist_loop_invariants
from imgconv.host.subgraphs import group_subgraphs
from imgconv.limits import current_budget
from imgconv.onnx_import.schema import ELEMENT_TYPES, domain_of, dtype_name, function_versions, schema_of
from imgconv.onnx_import.scope import TYPE_ATTRIBUTES, ImportScope, NeededNode, UnrolledError, needed_nodes, reads
from imgconv.onnx_import.texts import TEXT, text_initializer_nodes, string_outputs, as_text_constant
from imgconv.tensor import Tensor

MOVES = frozenset((
    "Cast", "Concat", "Expand", "Flatten", "Gather", "Identity", "Pad", "Reshape", "Slice", "Split", "Squeeze", "Tile",
    "Transpose", "Unsqueeze", "ConstantOfShape",
))
# Their results have as many elements as their inputs: they follow what they compare.
COMPARES = frozenset(("And", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "Or"))
# No model begins to depend on data at one of these.
LAYERS = frozenset(("Conv", "ConvTranspose", "Gemm", "MatMul"))
# What these read is data, also if it is short: a model is not compiled again for each content of it.
SELECTIONS = frozenset(("Compress", "NonMaxSuppression", "NonZero", "Unique"))
NEVER_FIRST = LAYERS | {"Softmax", "LogSoftmax", "Squeeze"}  # engines read empty axes of Squeeze in two ways


@dataclass(frozen=True)
class HostedNode:
    """A step that the host computes. number: its position in the model. reason: why the device does not."""

    number: int
    step: NeededNode
    reason: str


class Partitioner:
    """Imports a model's nodes in order, and collects those that are left to the host."""

    def __init__(self, scope: ImportScope, inputs: Iterable[Tensor]) -> None:
        self.scope = scope
        self.inputs = {tensor.name for tensor in inputs}
        self.makers: dict[str, tuple[int, NeededNode]] = {}
        self.hosted: dict[str, HostedNode] = {}
        self.texts: set[str] = set()  # those of `hosted` that hold strings
        self.number = 0
        self.inexact: UnsupportedError | None = None  # of the first node that only floats keep from the device

    def add(self, step: NeededNode) -> None:
        """Imports a step, or leaves it to the host. Raises what ImportScope.add raises."""
        self.number += 1
        node = step.proto
        hosted = [name for name in reads(node) if name in self.hosted]
        if as_text_constant(node):
            self.hosted[node.output[0]] = HostedNode(self.number, step, "strings are the host's")
            self.texts.add(node.output[0])
            return
        if hosted:
            reason = self.hosted[hosted[0]].reason
        elif _only_on_host(node, self.scope.version):
            reason = f"{node.op_type} is computed on the host"
        else:
            try:
                self.scope.add(step)
            except UnsupportedError as error:
                shapes = isinstance(error, ContentError) and node.op_type not in SELECTIONS
                if shapes or isinstance(error, LimitExceededError) or not _may_start_host_part(node):
                    raise
                if not isinstance(error, (DataDependentError, UnrolledError)):
                    self.inexact = self.inexact or error
                reason = error.message
            else:
                self.makers |= {name: (self.number, step) for name in node.output if name}
                return
        self._leave_to_host(HostedNode(self.number, step, reason))

    def _leave_to_host(self, hosted: HostedNode) -> None:
        node = hosted.step.proto
        current_budget().check_time()
        if not host.has_host_function(node.op_type, domain_of(node)):
            raise UnsupportedError(
                f"{node.op_type}: depends on data, and the host has no function for it", node=hosted.step.name
            )
        unknown = [name for name in node.input if name and name not in self.hosted and not self.scope.has_tensor(name)]
        if unknown:
            message = f"{node.op_type} reads {unknown[0]!r}, which no node before it computes"
            raise ModelError(message, node=hosted.step.name)
        if schema_of(node, self.scope.version):
            self.scope.check(hosted.step, (None,) * len(node.input))
        self.texts |= string_outputs(hosted.step, self.texts, self.scope.version)
        self.hosted |= {name: hosted for name in node.output if name}

    def boundary_and_partition(
        self, declared: Sequence[onnx.ValueInfoProto]
    ) -> tuple[dict[str, Tensor], HostPartition | None]:
        """Returns what the device makes, by name, and the HostPartition, or None. declared: the model's outputs.

        Raises ModelError if an output is not computed by any node.
        """
        names = [value.name for value in declared]
        direct = {name: self._tensor(name) for name in names if name not in self.hosted}
        if not self.hosted:
            return direct, None
        chosen = {each.number: each for each in self.hosted.values()}
        if self.inexact and any(each.step.proto.op_type in LAYERS for each in chosen.values()):
            raise self.inexact  # a network is the device's: its file can be changed
        first = chosen[min(chosen)]
        cut = self._boundary_values(chosen)
        nodes = tuple(host_node(self.scope, chosen[number].step) for number in sorted(chosen))
        constants = {name: t.numpy() for name in cut if (t := self._tensor(name)).is_constant}
        boundary = [name for name in cut if name not in constants]
        graph = HostGraph(tuple(boundary), tuple(n for n in names if n in self.hosted), nodes, constants)
        values = tuple(
            _declared(value) if value.name in self.hosted else _value(value.name, direct[value.name])
            for value in declared
        )
        made = direct | {name: self._tensor(name) for name in boundary if name not in self.inputs}
        graph = group_subgraphs(hoist_loop_invariants(graph))
        return made, HostPartition(graph, values, first.step.name, first.reason)

    def _tensor(self, name: str) -> Tensor:
        found = self.scope.find(name)
        if found is None:
            raise ModelError(f"output {name!r} is not computed by any node")
        return found

    def _boundary_values(self, chosen: dict[int, HostedNode]) -> list[str]:
        """The values that the host's nodes read and do not make; adds nodes to `chosen` that make the cut smaller."""
        while True:
            made = {name for each in chosen.values() for name in each.step.proto.output}
            cut = list(dict.fromkeys(
                name for number in sorted(chosen) for name in sorted(reads(chosen[number].step.proto))
                if name not in made
            ))
            added = [name for name in cut if self._is_cheaper_here(name, cut)][:1] or self._pieces_cheaper_here(cut)
            if not added:
                return cut
            chosen |= {number: HostedNode(number, step, "") for number, step in (self.makers[name] for name in added)}

    def _pieces_cheaper_here(self, cut: Sequence[str]) -> list[str]:
        """The values of the cut that are pieces of one tensor, if it has at most twice their bytes.

        The tensor becomes the boundary tensor: a detector takes the scores of each class out of those of all.
        """
        by_source: dict[str, list[str]] = {}
        for name in cut:
            if name in self.makers and self._may_run_here(name) and self.makers[name][1].proto.op_type in MOVES:
                read = {n for n in self.makers[name][1].proto.input if n and not self._tensor(n).is_constant}
                by_source.setdefault(read.pop() if len(read) == 1 else "", []).append(name)
        by_source.pop("", None)
        return next((
            pieces for source, pieces in by_source.items()
            if len(pieces) > 1 and self._tensor(source).size <= 2 * sum(self._tensor(name).size for name in pieces)
        ), [])

    def _is_cheaper_here(self, name: str, cut: Sequence[str]) -> bool:
        """Returns whether the host should make a value of the cut from what its node reads."""
        if not self._may_run_here(name):
            return False
        tensor, node = self._tensor(name), self.makers[name][1].proto
        read = {n for n in node.input if n and n not in cut and n not in self.inputs}
        new = sum(t.size for t in map(self._tensor, read) if not t.is_constant)
        if tensor.dtype in WIDE:
            return new <= tensor.size
        return node.op_type in MOVES | COMPARES and new < tensor.size

    def _may_run_here(self, name: str) -> bool:
        """Returns whether the host may make a value that the device could make."""
        if name not in self.makers or self._tensor(name).is_constant:
            return False
        node = self.makers[name][1].proto
        if domain_of(node) or node.op_type in LAYERS or node.op_type not in host.supported():
            return False
        return not any(a.type == onnx.AttributeProto.GRAPH for a in node.attribute)


def _only_on_host(node: onnx.NodeProto, version: int) -> bool:
    """Returns whether an operator has a host function only."""
    if domain_of(node) or ops.find(node.op_type) is not None:
        return False
    return node.op_type in host.supported() and not (
        function_versions(node.op_type, version) and node.op_type != "SequenceMap"
    )


def _may_start_host_part(node: onnx.NodeProto) -> bool:
    """Returns whether the host may compute a node that the device does not, and that reads nothing of the host's."""
    if domain_of(node) or node.op_type not in host.supported() or node.op_type in NEVER_FIRST:
        return False
    if node.op_type == "Loop" and not any(node.input[:2]):
        return False  # it never ends
    return bool(node.input) and all(a.name not in TYPE_ATTRIBUTES or _is_known_type(a.i) for a in node.attribute)


def _is_known_type(element_type: int) -> bool:
    return dtype_name(element_type) in ELEMENT_TYPES


def _value(name: str, tensor: Tensor) -> Value:
    return Value(name, tensor.shape, tensor.dtype)


def _declared(value: onnx.ValueInfoProto) -> Value:
    """An output as the file declares it; a size that is not known is -1, and so is the only size without a shape."""
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        return Value(value.name, (-1,), (kind or "unknown").removesuffix("_type"))
    tensor = value.type.tensor_type
    sizes = tuple(d.dim_value or -1 for d in tensor.shape.dim) if tensor.HasField("shape") else (-1,)
    return Value(value.name, sizes, dtype_name(tensor.elem_type))


def host_node(scope: ImportScope, step: NeededNode) -> HostNode:
    """A node as plain data. Raises UnsupportedError for an attribute of a type that no tensor has."""
    node = as_text_constant(step.proto) or step.proto
    unknown = [a.i for a in node.attribute if a.name in TYPE_ATTRIBUTES and not _is_known_type(a.i)]
    if unknown:
        raise UnsupportedError(f"{node.op_type}: unsupported: type {dtype_name(unknown[0])}", node=step.name)
    kept = onnx.NodeProto(attribute=[
        a for a in node.attribute if a.type not in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.TYPE_PROTO)
    ])
    attributes: dict[str, Any] = {
        name: tuple(value) if isinstance(value, (list, tuple)) else value
        for name, value in scope.attributes(NeededNode(step.name, kept)).items()
    }
    attributes |= {
        a.name: host_graph(scope, a.g, f"{step.name}/") for a in node.attribute if a.type == onnx.AttributeProto.GRAPH
    }
    domain = domain_of(node)
    outputs = tuple(name if name in scope.needed else "" for name in node.output) if scope.needed else node.output
    return HostNode(
        step.name, node.op_type, tuple(node.input), tuple(outputs), attributes, scope.opsets.get(domain, 1), domain
    )


def host_graph(scope: ImportScope, graph: onnx.GraphProto, prefix: str = "") -> HostGraph:
    """A body, or a whole model, as plain data. Raises UnsupportedError for an operator that the host does not run."""
    outputs = tuple(value.name for value in graph.output)
    steps, needed = needed_nodes([*text_initializer_nodes(graph), *graph.node], outputs, prefix)
    inner = ImportScope(scope.source, scope.opsets)
    inner.needed = needed
    for step in steps:
        if not host.has_host_function(step.proto.op_type, domain_of(step.proto)):
            raise UnsupportedError(f"{step.proto.op_type}: the host has no function for it", node=step.name)
    nodes = tuple(host_node(inner, step) for step in steps)
    stored = {t.name: inner.array(t) for t in graph.initializer if t.name in needed and t.data_type != TEXT}
    known = {t.name for t in graph.initializer}
    inputs = tuple(value.name for value in graph.input if value.name not in known)
    return HostGraph(inputs, outputs, nodes, stored)
