"""Imports the nodes of one graph in order: the graph of a model, of a body of If, Loop or Scan, or of a function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import numpy
import onnx
import onnx.checker
import onnx.external_data_helper
import onnx.helper
import onnx.numpy_helper

from imgconv import ops
from imgconv.arrays import Array
from imgconv.errors import InputError, ModelError, UnsupportedError
from imgconv.limits import current_budget
from imgconv.onnx_import.external import with_external_data
from imgconv.onnx_import.file import one_line_message
from imgconv.onnx_import.input_shapes import real_inputs
from imgconv.onnx_import.schema import (
    ELEMENT_TYPES, OWN_DOMAINS, inline_nodes, domain_of, dtype_name, flag_problem, function_of, function_versions,
    schema_of, type_problem,
)
from imgconv.tensor import Tensor, origin

# Each node of an unrolled loop is a launch or a part of one; more of them would take too long to run.
UNROLLED_NODES = 10_000
NAMED_NODES = 6  # an error message names no more nodes of an operator
# Its weights are in blocks of 8 or 16 channels, as onnxruntime chose on some machine; files do not say which.
_BLOCKED = "com.microsoft.nchwc"
# What an operator's function raises for a node that it cannot take.
WRONG = (
    ArithmeticError, AssertionError, AttributeError, InputError, LookupError, MemoryError, RecursionError, TypeError,
    ValueError,
)
TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype", "output_datatype")


class UnrolledError(UnsupportedError):
    """A loop has too many rounds to be unrolled. The host runs it as it is, if it has functions for its nodes."""


@dataclass(frozen=True)
class NeededNode:
    """A node that an output needs, with its name in error messages."""

    name: str
    proto: onnx.NodeProto


def needed_nodes(
    nodes: Sequence[onnx.NodeProto], outputs: Iterable[str], prefix: str = ""
) -> tuple[list[NeededNode], set[str]]:
    """(The nodes that an output needs, each after those it reads; the outputs and all names that these nodes read)."""
    needed, found = set(outputs), []
    read = [reads(node) for node in nodes]  # once for each: bodies may lie in bodies
    for number, node in reversed(_in_topological_order(nodes, read)):
        if any(name in needed for name in node.output if name):
            needed |= read[number]
            found.append(NeededNode(prefix + (node.name or f"{node.op_type}_{number}"), node))
    return found[::-1], needed


def _in_topological_order(
    nodes: Sequence[onnx.NodeProto], read: Sequence[set[str]]
) -> list[tuple[int, onnx.NodeProto]]:
    """The nodes with their numbers in the file; each after those it reads, else in the file's order.

    ONNX asks files for that order, but onnxruntime takes others. The nodes of a cycle come last. read: the names that
    each node reads.
    """
    makers = {name: number for number, node in enumerate(nodes) for name in node.output if name}
    waits = [{makers[name] for name in names if name in makers} for names in read]
    if all(number > max(found, default=-1) for number, found in enumerate(waits)):
        return list(enumerate(nodes))
    readers: dict[int, list[int]] = {}
    for number, found in enumerate(waits):
        for maker in found:
            readers.setdefault(maker, []).append(number)
    ready = [number for number, found in enumerate(waits) if not found]
    order: list[int] = []
    while ready:
        order.append(heappop(ready))
        for reader in readers.get(order[-1], ()):
            waits[reader].discard(order[-1])
            if not waits[reader]:
                heappush(ready, reader)
    return [(number, nodes[number]) for number in [*order, *sorted(set(range(len(nodes))) - set(order))]]


def reads(node: onnx.NodeProto) -> set[str]:
    """The names that a node reads, including those that its bodies read from outer graphs."""
    names = {name for name in node.input if name}
    for body in (a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH):
        own = {v.name for v in body.input} | {t.name for t in body.initializer}
        own |= {name for inner in body.node for name in inner.output}
        names |= needed_nodes(body.node, [v.name for v in body.output])[1] - own
    return names


def _missing_operators_message(missing: Mapping[str, Sequence[str]], foreign: set[str]) -> str:
    """The message that lists unsupported operators and, of other domains than ONNX's, says how to add them."""
    listed = "; ".join(f"{op_type} ({_count_and_names(names)})" for op_type, names in sorted(missing.items()))
    if not foreign:
        return f"unsupported operators: {listed}"
    if _BLOCKED in foreign:
        return (
            f"unsupported operators: {listed}; {_BLOCKED} is the layout of the machine that onnxruntime wrote the file "
            f"on: write it at ORT_ENABLE_EXTENDED, or without the NchwcTransformer"
        )
    domain = min(foreign)
    op_type = next(name for name in sorted(missing) if name.startswith(f"{domain}."))[len(domain) + 1 :]
    return (
        f"unsupported operators: {listed}; {', '.join(sorted(foreign))} is no domain of ONNX: register a function for "
        f'each before the model is loaded, with @imgconv.ops.operator("{op_type}", domain="{domain}"); see '
        "docs/operators.md"
    )


def _count_and_names(names: Sequence[str]) -> str:
    """Returns the number of nodes and the first names: "12 nodes: a, b, c, d, ..."."""
    more = ", ..." if len(names) > NAMED_NODES else ""
    return f"{len(names)} node{'s' * (len(names) > 1)}: {', '.join(names[:NAMED_NODES])}{more}"


@dataclass
class ImportState:
    """State shared by all graphs of a model.

    unrolled: the number of nodes imported from bodies so far. in_float: the name of the first tensor of each type that
    is computed in float instead: float64 that depends on an input, bfloat16.
    """

    folder: Path | None
    ir_version: int
    unrolled: int = 0
    in_float: dict[str, str] = field(default_factory=dict)


class ImportScope:
    """The tensors of one graph by name: of a model, of a body of If, Loop or Scan, or of a function.

    A body also sees the names of the graph around it (`outer`); its own names hide those.
    """

    def __init__(self, source: ImportState, opsets: Mapping[str, int], outer: ImportScope | None = None) -> None:
        """opsets: the version of each domain, "" for ONNX's own."""
        self.source = source
        self.opsets = opsets
        self.version = opsets[""]
        self.outer = outer
        self.tensors: dict[str, Tensor | None] = {}
        self.needed: set[str] = set()
        self.context = onnx.checker.C.CheckerContext()
        self.context.ir_version = source.ir_version
        self.context.opset_imports = {"": self.version}

    def run(self, steps: Sequence[NeededNode], needed: set[str], outputs: Iterable[str]) -> list[Tensor]:
        """Imports the nodes; returns the tensors of the named outputs."""
        self.needed = needed
        current_budget().count_nodes(len(steps))
        for step in steps:
            self.add(step)
        made = [(name, self.find(name)) for name in outputs]
        for name, tensor in made:
            if tensor is None:
                raise ModelError(f"output {name!r} is not computed by any node")
        return [tensor for _, tensor in made if tensor is not None]

    def has_tensor(self, name: str) -> bool:
        return name in self.tensors or (self.outer is not None and self.outer.has_tensor(name))

    def find(self, name: str) -> Tensor | None:
        """The tensor of that name, here or in an outer graph; None for an absent optional input of a function."""
        if name in self.tensors or self.outer is None:
            return self.tensors.get(name)
        return self.outer.find(name)

    def initializers(self, graph: onnx.GraphProto, needed: set[str]) -> dict[str, Tensor]:
        """The graph's initializers that its nodes need, by name."""
        for sparse in graph.sparse_initializer:
            if sparse.values.name in needed:
                raise UnsupportedError(f"initializer {sparse.values.name!r} is sparse")
        return {t.name: Tensor.constant(self.array(t), t.name) for t in graph.initializer if t.name in needed}

    def refuse_unsupported(self, steps: Iterable[NeededNode]) -> None:
        """Raises one UnsupportedError that lists all operators which are neither in the table nor functions."""
        missing: dict[str, list[str]] = {}
        foreign: set[str] = set()
        for step in steps:
            domain, op_type = domain_of(step.proto), step.proto.op_type
            if ops.find(op_type, domain) is None and (domain or not function_versions(op_type, self.version)):
                missing.setdefault(ops.qualified(domain, op_type), []).append(step.name)
                foreign |= {domain} - {""}
        if missing:
            raise UnsupportedError(_missing_operators_message(missing, foreign), node=next(iter(missing.values()))[0])

    def add(self, step: NeededNode) -> None:
        """Imports one node and defines its outputs."""
        node = step.proto
        current_budget().check_time()
        unknown = [name for name in node.input if name and not self.has_tensor(name)]
        if unknown:
            raise ModelError(f"{node.op_type} reads {unknown[0]!r}, which no node before it computes", node=step.name)
        inputs = tuple(self.find(name) if name else None for name in node.input)
        self.check(step, inputs)
        domain = domain_of(node)
        registered = ops.find(node.op_type, domain)
        if registered is None:
            self.expand(step, inputs)
            return
        wanted = tuple(name if name in self.needed else "" for name in node.output)
        version = self.opsets.get(domain, 1)
        call = ops.Call(step.name, node.op_type, version, inputs, self.attributes(step), wanted)
        try:
            with origin(step.name):
                made = registered.function(call)
            self.define_all(dict(zip(node.output, [made] if isinstance(made, Tensor) else made)), step.name)
        except ModelError as error:
            error.node = error.node or step.name
            raise
        except WRONG as error:
            raise call.wrong(str(error) or type(error).__name__) from error

    def expand(self, step: NeededNode, inputs: Sequence[Tensor | None]) -> None:
        """Imports a node whose operator ONNX defines as a function: the function's nodes, in a scope of their own."""
        if problem := flag_problem(step.proto):
            raise ModelError(f"{step.proto.op_type}: {problem}", node=step.name)
        function = function_of(step.proto, self.version, inputs)
        version = next(entry.version for entry in function.opset_import if entry.domain in OWN_DOMAINS)
        inner = ImportScope(self.source, {"": version})
        inner.tensors |= dict(zip(function.input, (*inputs, *[None] * len(function.input))))
        wanted = {name: made for name, made in zip(step.proto.output, function.output) if name in self.needed}
        steps, needed = needed_nodes(inline_nodes(function, step.proto, self.version), wanted.values(), f"{step.name}/")
        inner.refuse_unsupported(steps)
        self.define_all(dict(zip(wanted, inner.run(steps, needed, wanted.values()))), step.name)

    def body(self, graph: onnx.GraphProto, node: str) -> ops.Body:
        """A graph attribute as a Python function of its inputs; each call imports its nodes once more."""
        inputs, outputs = [v.name for v in real_inputs(graph)], [v.name for v in graph.output]
        steps, needed = needed_nodes(graph.node, outputs, f"{node}/")
        stored: dict[str, Tensor] = {}

        def run(*given: Tensor) -> list[Tensor]:
            if len(given) != len(inputs):
                raise ModelError(f"gives {len(given)} inputs to a body that has {len(inputs)}", node=node)
            self.source.unrolled += max(len(steps), 1)
            if self.source.unrolled > UNROLLED_NODES:
                raise UnrolledError(f"unrolled, the loops are more than {UNROLLED_NODES} nodes", node=node)
            inner = ImportScope(self.source, self.opsets, self)
            inner.refuse_unsupported(steps)
            if not stored:
                stored.update(inner.initializers(graph, needed))
            inner.define_all(dict(zip(inputs, given)), node)
            inner.define_all(stored, node)
            return inner.run(steps, needed, outputs)

        return run

    def define_all(self, tensors: Mapping[str, Tensor], node: str) -> None:
        """Defines each tensor under its name; "" is the name of an output that nothing reads."""
        for name, tensor in tensors.items():
            if name:
                self.define(name, tensor, node)

    def define(self, name: str, tensor: Tensor, node: str) -> None:
        """Defines a tensor under its ONNX name; one that depends on no input is computed at once."""
        if name in self.tensors:
            raise ModelError(f"the name {name!r} is given to two tensors", node=node)
        if tensor.is_constant or not tensor.size:
            content = tensor.numpy() if tensor.is_constant else numpy.empty(tensor.shape, tensor.dtype)
            tensor = replace(Tensor.constant(content, name), quantised=tensor.quantised)
        elif tensor.dtype not in ELEMENT_TYPES:
            raise UnsupportedError(f"{name!r} is of type {tensor.dtype}", node=node)
        elif tensor.dtype == "float64":
            self.source.in_float.setdefault("float64", name)
        self.tensors[name] = tensor.named(name)

    def check(self, step: NeededNode, inputs: Sequence[Tensor | None]) -> None:
        """Raises ModelError if the node or the types of its inputs are not what ONNX, or the table, allows."""
        schema = schema_of(step.proto, self.version)
        if schema is None:
            self.check_signature(step, inputs)
            return
        node = onnx.NodeProto()
        node.CopyFrom(step.proto)
        node.domain = ""
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                # A body may read outer names, which the checker does not know; its nodes are checked one by one.
                attribute.g.CopyFrom(onnx.GraphProto(name="body"))
        try:
            if not schema.deprecated:
                onnx.checker.check_node(node, self.context)
        except onnx.checker.ValidationError as error:
            raise ModelError(f"not valid ONNX: {one_line_message(error)}", node=step.name) from error
        problem = type_problem(schema, inputs)
        if problem:
            raise ModelError(f"{node.op_type}: {problem}", node=step.name)

    def check_signature(self, step: NeededNode, inputs: Sequence[Tensor | None]) -> None:
        """Raises UnsupportedError if a node for which ONNX has no schema has more than its operator's signature."""
        domain, op_type = domain_of(step.proto), step.proto.op_type
        registered = ops.find(op_type, domain)
        signature = registered.signature if registered else None
        if signature is None:
            if not domain:
                raise ModelError(f"not valid ONNX: opset {self.version} has no operator {op_type}", node=step.name)
            return
        absent = signature.missing(inputs)
        if absent:
            raise ModelError(f"{op_type}: input {absent} is missing", node=step.name)
        problem = signature.problem(inputs, [a.name for a in step.proto.attribute])
        if problem:
            raise UnsupportedError(f"{op_type}: unsupported: {problem}", node=step.name)

    def attributes(self, step: NeededNode) -> dict[str, Any]:
        """The node's attributes as Python values: strings decoded, tensors as arrays, bodies as functions.

        The value of an attribute that is an element type, such as Cast's `to`, is numpy's name of it.
        """
        found: dict[str, Any] = {}
        for attribute in step.proto.attribute:
            if attribute.ref_attr_name:
                raise ModelError(f"{attribute.name} refers to a function's attribute, outside of one", node=step.name)
            value = onnx.helper.get_attribute_value(attribute)
            if isinstance(value, bytes):
                value = value.decode("utf-8", "replace")
            elif attribute.type == onnx.AttributeProto.STRINGS:
                value = [v.decode("utf-8", "replace") for v in value]
            elif isinstance(value, onnx.TensorProto):
                value = self.array(value)
            elif isinstance(value, onnx.GraphProto):
                value = self.body(value, step.name)
            elif attribute.name in TYPE_ATTRIBUTES:
                value = dtype_name(value)
            found[attribute.name] = value
        return found

    def array(self, tensor: onnx.TensorProto) -> Array:
        """The content of a stored tensor, also from an external file."""
        dtype = dtype_name(tensor.data_type)
        if dtype not in ELEMENT_TYPES:
            raise UnsupportedError(f"tensor {tensor.name!r} is of type {dtype}")
        if onnx.external_data_helper.uses_external_data(tensor):
            tensor = with_external_data(tensor, self.source.folder)
        try:
            content: Array = onnx.numpy_helper.to_array(tensor)
        except (ValueError, TypeError, MemoryError) as error:
            raise ModelError(f"the content of tensor {tensor.name!r} does not fit its shape: {error}") from error
        if list(content.shape) != list(tensor.dims):
            raise ModelError(f"tensor {tensor.name!r} has the shape {list(tensor.dims)}")
        current_budget().given_bytes += content.nbytes
        if tensor.data_type != onnx.TensorProto.BFLOAT16:
            return content
        self.source.in_float.setdefault("bfloat16", tensor.name)
        return content.astype(dtype)
