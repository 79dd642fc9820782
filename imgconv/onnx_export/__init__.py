"""Graph -> ONNX file, so that any other engine can run what a pass made, or what the lazy front end recorded.

Every node becomes standard operators of opset 18 that keep the names of the Graph's values; ``doc_string`` holds the
node's origin. Floats are computed in float32 and integers in int64, whatever a value is stored as, with a Cast where a
value is read and where it is written. Along axes that a view only repeats, tensors keep the length 1 for as long as
operators broadcast.

A view becomes a Pad, or at most: Transpose and Reshape (axes that are read together side by side), a Slice or a Gather
of constant positions for each such group, Reshape and Transpose again, and a Where for each bound. Windows that ONNX
has a pooling for become that pooling; sums and extrema of whole axes become a reduction of these axes.
"""

from __future__ import annotations

import os

import onnx
import onnx.helper
import onnx.numpy_helper

from imgconv.files.disk import written_whole
from imgconv.graph.nodes import Graph, Value
from imgconv.onnx_export.nodes import Nodes
from imgconv.onnx_export.writer import Writer, element_type

OPSET = 18
IR_VERSION = 8


def export_onnx(graph: Graph, path: str | os.PathLike[str] | None = None) -> onnx.ModelProto:
    """The Graph as an ONNX model with its inputs, outputs and value names; also written to `path` if one is given.

    The file appears whole or not at all. Raises InputError if it cannot be written.
    """
    writer = Writer(graph.values)
    nodes = Nodes(graph, writer)
    for node in graph.nodes:
        writer.value, writer.origin = node.output, ", ".join(node.origin)
        before = len(writer.nodes)
        writer.finish(nodes.epilogue(node), before)
    model = _model(graph, writer)
    if path is not None:
        with written_whole(path) as file:
            file.write(model.SerializeToString())
    return model


def _model(graph: Graph, writer: Writer) -> onnx.ModelProto:
    """Everything that was written, between the graph's inputs and outputs."""
    known = graph.values
    arrays = writer.initializers | {name: array for name, array in graph.constants.items() if name in graph.outputs}
    read = {name for node in writer.nodes for name in node.input} | set(graph.outputs)
    made = onnx.helper.make_graph(
        writer.nodes, graph.name or "model", [_declared(v) for v in graph.inputs],
        [_declared(known[name]) for name in graph.outputs],
        [onnx.numpy_helper.from_array(a, name) for name, a in arrays.items() if name in read],
        value_info=[_declared(n.output) for n in graph.nodes if n.output.name not in graph.outputs],
    )
    opsets = [onnx.helper.make_opsetid("", OPSET)]
    return onnx.helper.make_model(made, opset_imports=opsets, ir_version=IR_VERSION, producer_name="imgconv")


def _declared(value: Value) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(value.name, element_type(value.dtype), value.shape)


__all__ = ["export_onnx"]
