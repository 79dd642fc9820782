"""Strings in a file: constants that the host takes to the outputs, such as the names of classes."""

from __future__ import annotations

import onnx
from onnx.helper import make_attribute, make_node

TEXT = onnx.TensorProto.STRING


def text_nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The graph's initializers of strings, as Constant nodes."""
    return [text_constant(tensor.name, tensor) for tensor in graph.initializer if tensor.data_type == TEXT]


def text_constant(name: str, tensor: onnx.TensorProto) -> onnx.NodeProto:
    """A Constant node with a tensor's strings in `value_strings`, and its shape in `dims`, which ONNX's does not have.

    A compiled file stores attributes that are strings, but no arrays of them.
    """
    made = make_node("Constant", [], [name], name)
    made.attribute.extend([
        make_attribute("value_strings", list(tensor.string_data), attr_type=onnx.AttributeProto.STRINGS),
        make_attribute("dims", list(tensor.dims), attr_type=onnx.AttributeProto.INTS),
    ])
    return made


def with_text(node: onnx.NodeProto) -> onnx.NodeProto | None:
    """A Constant node of strings in whichever form, with a tensor as `text_constant` has it; None for another node."""
    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx"):
        return None
    for attribute in node.attribute:
        if attribute.name == "value" and attribute.t.data_type == TEXT:
            return text_constant(node.output[0], attribute.t)
        if attribute.name in ("value_string", "value_strings"):
            return node
    return None
