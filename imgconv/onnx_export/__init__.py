"""Exports a Graph as an ONNX file, so that other engines can run a graph after a pass, or one of the lazy front end.

Every node becomes standard operators of opset 18. Values keep their names in the Graph; ``doc_string`` holds a node's
origin. Floats are computed in float32 and integers in int64, whatever dtype a value is stored in: a Cast follows each
read and precedes each write. Axes along which a view only repeats have length 1 as long as operators broadcast.

If possible, a view becomes one Pad. Otherwise it becomes Transpose and Reshape, which group the axes that are read
together; a Slice, or a Gather of constant positions, for each group; Reshape and Transpose; and a Where for each bound.
Sliding windows become MaxPool or AveragePool if ONNX allows it. Sums and extrema of whole axes become ReduceSum,
ReduceMax and similar operators.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from imgconv.errors import InputError, MissingPackageError, UnsupportedError

try:
    import onnx
    import onnx.helper
    import onnx.numpy_helper
except ModuleNotFoundError as error:
    raise MissingPackageError("onnx", "onnx", "writing an ONNX file") from error

from imgconv.files.disk import atomic_write
from imgconv.graph.nodes import Graph, Value
from imgconv.onnx_export.nodes import NodeExporter
from imgconv.onnx_export.writer import OnnxWriter, element_type

OPSET = 18
IR_VERSION = 8


def export_onnx(graph: Graph, path: str | os.PathLike[str] | None = None) -> onnx.ModelProto:
    """The Graph as an ONNX model with its inputs, outputs and value names; also written to `path` if one is given.

    The file is written whole or not at all. Raises InputError if it cannot be written, UnsupportedError if the host
    computes a part of the model.
    Example: export_onnx(graph, "after.onnx").
    """
    if not isinstance(graph, Graph):
        raise InputError(f"only a Graph can be exported, such as model.graph, not a {type(graph).__name__}")
    if graph.host_partition is not None:
        said = f"the host computes a part of the model, which is not written: {graph.host_partition.reason}"
        raise UnsupportedError(said, node=graph.host_partition.node)
    writer = OnnxWriter(graph.values)
    nodes = NodeExporter(graph, writer)
    for node in graph.nodes:
        writer.value, writer.origin = node.output, ", ".join(node.origin)
        before = len(writer.nodes)
        writer.name_result(nodes.epilogue(node), before)
    model = _model_proto(graph, writer)
    if path is not None:
        with atomic_write(path) as file:
            file.write(model.SerializeToString())
    return model


def _names_read(nodes: Sequence[onnx.NodeProto]) -> set[str]:
    """The names that nodes read, those in the bodies of Scans too."""
    bodies = [a.g.node for node in nodes for a in node.attribute if a.name == "body"]
    return {name for node in nodes for name in node.input}.union(*map(_names_read, bodies))


def _model_proto(graph: Graph, writer: OnnxWriter) -> onnx.ModelProto:
    """The ONNX model of the writer's nodes and initializers, with the Graph's inputs and outputs."""
    known = graph.values
    arrays = writer.initializers | {name: array for name, array in graph.constants.items() if name in graph.outputs}
    read = _names_read(writer.nodes) | set(graph.outputs)
    made = onnx.helper.make_graph(
        writer.nodes, graph.name or "model", [_value_info(v) for v in graph.inputs],
        [_value_info(known[name]) for name in graph.outputs],
        [onnx.numpy_helper.from_array(a, name) for name, a in arrays.items() if name in read],
        value_info=[_value_info(n.output) for n in graph.nodes if n.output.name not in graph.outputs],
    )
    opsets = [onnx.helper.make_opsetid("", OPSET)]
    return onnx.helper.make_model(made, opset_imports=opsets, ir_version=IR_VERSION, producer_name="imgconv")


def _value_info(value: Value) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(value.name, element_type(value.dtype), value.shape)


__all__ = ["export_onnx"]
