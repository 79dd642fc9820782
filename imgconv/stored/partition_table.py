"""A HostPartition as the table of model.fbs, and back."""

from __future__ import annotations

from typing import Any

import numpy

from imgconv.graph.nodes import HostPartition, Value
from imgconv.graph.onnx_nodes import Attribute, HostGraph, HostNode
from imgconv.stored.blobs import BlobWriter, ReadBlob, read_array
from imgconv.stored.graph_table import value_values

# The kind of one value and of several, and the field that holds them, by the values' type.
KINDS: dict[type, tuple[str, str]] = {
    int: ("integer", "integers"), float: ("number", "numbers"), str: ("text", "texts"),
}


def partition_values(partition: HostPartition, blobs: BlobWriter) -> dict[str, Any]:
    """The values of a HostPartition table. Arrays go to `blobs`."""
    return {
        "graph": _graph(partition.graph, blobs), "outputs": list(map(value_values, partition.outputs)),
        "node": partition.node, "reason": partition.reason,
    }


def _graph(graph: HostGraph, blobs: BlobWriter) -> dict[str, Any]:
    return {
        "inputs": graph.inputs, "outputs": graph.outputs, "nodes": [_node(node, blobs) for node in graph.nodes],
        "constants": [{"name": name, "array": blobs.array(array)} for name, array in graph.constants.items()],
    }


def _node(node: HostNode, blobs: BlobWriter) -> dict[str, Any]:
    return {
        "name": node.name, "op_type": node.op_type, "inputs": node.inputs, "outputs": node.outputs,
        "attributes": [_attribute(name, value, blobs) for name, value in node.attributes.items()],
        "version": node.version, "domain": node.domain,
    }


def _attribute(name: str, value: Attribute, blobs: BlobWriter) -> dict[str, Any]:
    if isinstance(value, numpy.ndarray):
        return {"name": name, "kind": "array", "array": blobs.array(value)}
    if isinstance(value, HostGraph):
        return {"name": name, "kind": "body", "body": _graph(value, blobs)}
    if not isinstance(value, tuple):
        kind, field = KINDS[type(value)]
        return {"name": name, "kind": kind, field: [value]}
    field = KINDS[type(value[0]) if value else int][1]
    return {"name": name, "kind": field, field: value}


def read_partition(table: Any, blob: ReadBlob) -> HostPartition:
    """The HostPartition of a table. Raises ValueError, KeyError or TypeError for what no host partition has."""
    outputs = tuple(map(_read_output, table.outputs))
    return HostPartition(_read_graph(table.graph, blob), outputs, table.node, table.reason)


def _read_output(table: Any) -> Value:
    """An output of the model, of a size that may depend on data: -1, and of a type that the file may not say."""
    if any(size < -1 for size in table.shape):
        raise ValueError(f"{table.name!r} has the shape {list(table.shape)}")
    return Value(table.name, table.shape, table.dtype)


def _read_graph(table: Any, blob: ReadBlob) -> HostGraph:
    constants = {each.name: read_array(each.array, blob) for each in table.constants}
    return HostGraph(table.inputs, table.outputs, tuple(_read_node(each, blob) for each in table.nodes), constants)


def _read_node(table: Any, blob: ReadBlob) -> HostNode:
    attributes = {each.name: _read_attribute(each, blob) for each in table.attributes}
    op_type = "Subgraph" if (table.op_type, table.domain) == ("Segment", "imgconv") else table.op_type  # older files
    return HostNode(table.name, op_type, table.inputs, table.outputs, attributes, table.version, table.domain)


def _read_attribute(table: Any, blob: ReadBlob) -> Attribute:
    if table.kind == "array":
        return read_array(table.array, blob)
    if table.kind == "body":
        return _read_graph(table.body, blob)
    values: tuple[Any, ...]
    for one, several in KINDS.values():
        if table.kind in (one, several):
            values = getattr(table, several)
            return values[0] if table.kind == one else values
    raise ValueError(f"{table.kind} is no kind of attribute")
