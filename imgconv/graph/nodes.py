"""The Graph: named values, and nodes in topological order. Every node has the same form.

    output[i] = epilogue(reduce over r of body(load(view(i, r)) ...), load(view(i)) ...)

A node reads its `operands` through views. Its `operation` combines them: a load, a reduction, a convolution, a matrix
product, a concatenation, a gather, an order, a suppression or a recurrence. Its `epilogue` is an elementwise
expression. There, argument 0 is the operation's result and argument k is the k-th of the `epilogue_operands`. Graphs
are frozen; a pass returns a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from textwrap import indent
from typing import Any

import numpy

from imgconv.arrays import Arrays
from imgconv.graph.expression import IDENTITY, Expression, argument_numbers
from imgconv.graph.graph_error import require
from imgconv.graph.onnx_nodes import HostGraph
from imgconv.graph.operations import (
    Concatenation, Convolution, Gather, Load, Operation, Order, Product, Recurrence, Reduction, ReductionKind,
    Suppression, neutral,
)
from imgconv.graph.operations.gather import index_operands
from imgconv.graph.values import Operand, Value, array_value, whole_operand

__all__ = [
    "IDENTITY", "Concatenation", "Convolution", "GraphEditor", "Gather", "Graph", "HostPartition", "Load", "Node",
    "Operand", "Operation", "Order", "Product", "Recurrence", "Reduction", "ReductionKind", "Suppression", "Value",
    "array_value", "index_operands_of", "neutral", "whole_operand",
]


@dataclass(frozen=True)
class Node:
    """An operation on `operands`, then `epilogue`. origin: the names of the ONNX nodes that it came from."""

    output: Value
    operation: Operation
    operands: tuple[Operand, ...]
    epilogue: Expression = IDENTITY
    epilogue_operands: tuple[Operand, ...] = ()
    origin: tuple[str, ...] = ()

    @property
    def all_operands(self) -> tuple[Operand, ...]:
        return self.operands + self.epilogue_operands

    @cached_property
    def reads(self) -> frozenset[str]:
        """The names of the values that the node reads."""
        return frozenset(o.value for o in self.all_operands)

    @cached_property
    def is_consistent(self) -> bool:
        """True, if the shapes of the operands give that of the output. Else a GraphError names the node."""
        _check_shapes(self)
        return True

    def __str__(self) -> str:
        text = f"{self.output} = {self.operation}({', '.join(map(str, self.operands))})"
        if self.epilogue != IDENTITY:
            extra = "".join(f", ${i}={o}" for i, o in enumerate(self.epilogue_operands, 1))
            text += f" then {self.epilogue}{extra}"
        return text


@dataclass(frozen=True)
class HostPartition:
    """The part of a model that the host computes.

    graph: its inputs are outputs of the device's graph and inputs of the model, its outputs those of the model that the
    device does not make. outputs: every output of the model, in order; a size that depends on data is -1.
    node, reason: the first node that the host computes, and why the device does not.
    """

    graph: HostGraph
    outputs: tuple[Value, ...]
    node: str
    reason: str

    def __str__(self) -> str:
        lines = [f"on the host, because of node {self.node!r}: {self.reason}"]
        lines.append(indent(str(self.graph), "  "))
        return "\n".join([*lines, *(f"  output {value}" for value in self.outputs)])


@dataclass(frozen=True)
class Graph:
    """Inputs, names of outputs, nodes in topological order, and constants as arrays by name.

    reasons: why passes changed or kept something, by the name of the value concerned.
    host_partition: what the host computes of the outputs; None if they are the model's.
    """

    inputs: tuple[Value, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    constants: Arrays = field(default_factory=dict)
    name: str = "model"
    reasons: Mapping[str, str] = field(default_factory=dict, compare=False)
    host_partition: HostPartition | None = field(default=None, compare=False)

    @cached_property
    def values(self) -> dict[str, Value]:
        """Every value by name: inputs, constants and outputs of nodes."""
        made = {node.output.name: node.output for node in self.nodes}
        return {v.name: v for v in self.inputs} | self._constant_values() | made

    @cached_property
    def producers(self) -> dict[str, Node]:
        """The node that computes each value, by the value's name. Inputs and constants have none."""
        return {n.output.name: n for n in self.nodes}

    @cached_property
    def consumers(self) -> dict[str, tuple[Node, ...]]:
        """The nodes that read each value, by the value's name, in order and each once."""
        names = (*(v.name for v in self.inputs), *self.constants, *(n.output.name for n in self.nodes))
        found: dict[str, list[Node]] = {name: [] for name in names}
        for node in self.nodes:
            for name in node.reads:
                found[name].append(node)
        return {name: tuple(nodes) for name, nodes in found.items()}

    @cached_property
    def order(self) -> dict[str, int]:
        """A number for each node, by its output's name. Later nodes have larger numbers."""
        return {node.output.name: number for number, node in enumerate(self.nodes)}

    def unused_name(self, name: str) -> str:
        """A name that no value has: `name`, with underscores added if it is taken."""
        while name in self.values:
            name += "_"
        return name

    def with_outputs(self, names: Iterable[str]) -> Graph:
        """The graph with these outputs only, without the nodes and constants that they do not need."""
        outputs = tuple(names)
        needed, kept = set(outputs), []
        for node in reversed(self.nodes):
            if node.output.name in needed:
                kept.append(node)
                needed |= node.reads
        constants = {name: array for name, array in self.constants.items() if name in needed}
        return replace(self, outputs=outputs, nodes=tuple(reversed(kept)), constants=constants)

    def validate(self) -> Graph:
        """The graph itself, if names, order and shapes are consistent. Else a GraphError names the node."""
        known = {v.name: v for v in self.inputs} | self._constant_values()
        require(len(known) == len(self.inputs) + len(self.constants), "an input and a constant share a name")
        for node in self.nodes:
            for operand in node.all_operands:
                require(operand.value in known, node, "reads", operand.value, "before it is made")
                require(operand.view.source == known[operand.value].shape, node, "has another view of", operand.value)
            require(node.is_consistent)
            require(node.output.name not in known, node.output.name, "is made twice")
            known[node.output.name] = node.output
        missing = [name for name in self.outputs if name not in known]
        require(not missing, "outputs that are not made", missing)
        return self

    def _constant_values(self) -> dict[str, Value]:
        return {name: Value(name, array.shape, _dtype_name(array.dtype)) for name, array in self.constants.items()}

    def __repr__(self) -> str:
        inputs, outputs = ", ".join(map(str, self.inputs)), ", ".join(self.outputs)
        return f"<Graph {self.name}: {inputs} -> {outputs}, {len(self.nodes)} nodes>"

    def __str__(self) -> str:
        lines = [f"graph {self.name}"]
        lines += [f"  input  {v}" for v in self.inputs]
        lines += [f"  constant {value}" for value in self._constant_values().values()]
        lines += [f"  {node}" for node in self.nodes]
        lines += [f"  output {self.values[name]}" for name in self.outputs]
        return "\n".join(lines if self.host_partition is None else [*lines, str(self.host_partition)])


@cache
def _dtype_name(dtype: numpy.dtype[Any]) -> str:
    """A dtype's name, cached: numpy computes it at each call, which takes most of a pass over many constants."""
    return str(dtype)


def _check_shapes(node: Node) -> None:
    shape = node.output.shape
    for operand in node.epilogue_operands:
        require(operand.view.shape == shape, node, "epilogue operand of shape", operand.view.shape)
    numbers = argument_numbers(node.epilogue)
    require(all(n <= len(node.epilogue_operands) for n in numbers), node, "epilogue arguments")
    views = [o.view.shape for o in node.operands]
    require(node.operation.fits(views, shape), node, f"operands {views} do not give {shape}")


def index_operands_of(node: Node) -> tuple[Operand, ...]:
    """The operands of a Gather that hold indices."""
    return tuple(index_operands(node.operands))


class GraphEditor:
    """A graph whose nodes a pass merges one by one; it has the graph's `producers`, `consumers` and so on.

    A merge takes as long as the nodes that it touches have readers, so that thousands of them are quick.

        editing = GraphEditor(graph)
        editing.merge("e", {"y": node_that_computes_e_too})
        merged = editing.graph()
    """

    def __init__(self, graph: Graph) -> None:
        self._before = graph
        self.outputs, self.constants, self.order = frozenset(graph.outputs), graph.constants, graph.order
        self.producers, self.consumers = dict(graph.producers), dict(graph.consumers)

    def merge(self, gone: str, changed: Mapping[str, Node]) -> None:
        """Drops the node that computes `gone`, and replaces the nodes in `changed`, by output name."""
        dropped = self.producers.pop(gone)
        affected = dropped.reads.union(*(self.producers[n].reads | changed[n].reads for n in changed)) - {gone}
        self.producers.update(changed)
        del self.consumers[gone]
        for name in affected:
            readers = {n.output.name for n in self.consumers[name]} | changed.keys()
            found = [self.producers[n] for n in sorted(readers - {gone}, key=self.order.__getitem__)]
            self.consumers[name] = tuple(n for n in found if name in n.reads)

    def edited_graph(self) -> Graph:
        return replace(self._before, nodes=tuple(self.producers.values()))
