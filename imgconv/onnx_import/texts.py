"""Strings in a file: constants that the host passes to the outputs, such as the names of classes."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import onnx
import onnx.defs
from onnx.helper import make_attribute, make_node

from imgconv import host
from imgconv.errors import UnsupportedError
from imgconv.onnx_import.schema import schema_of
from imgconv.onnx_import.scope import NeededNode, needed_nodes

TEXT = onnx.TensorProto.STRING
# Operators of ONNX's text whose host functions take numbers only; onnxruntime has none for strings either.
OF_NUMBERS = ("NonZero", "Pad", "Trilu")
CASTS = ("Cast", "CastLike")  # to numbers: strings as their target are refused


def text_initializer_nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
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


def as_text_constant(node: onnx.NodeProto) -> onnx.NodeProto | None:
    """A Constant node of strings in whichever form, with a tensor as `text_constant` has it; None for another node."""
    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx"):
        return None
    for attribute in node.attribute:
        if attribute.name == "value" and attribute.t.data_type == TEXT:
            return text_constant(node.output[0], attribute.t)
        if attribute.name in ("value_string", "value_strings"):
            return node
    return None


def string_outputs(step: NeededNode, texts: AbstractSet[str], version: int) -> set[str]:
    """The outputs of a node that hold strings. texts: the names of the values before it that do.

    Raises UnsupportedError, naming the node, if it reads strings and the host does not run its operator on them.
    """
    node = step.proto
    bodies = [a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
    if as_text_constant(node):
        return set(node.output)
    if bodies:
        return {name for body in bodies for name in _string_outputs_of_body(step, body, texts, version)}
    read = [number for number, name in enumerate(node.input) if name in texts]
    if not read:
        return set()
    schema = schema_of(node, version)
    runs = schema and node.op_type in host.supported() and node.op_type not in OF_NUMBERS
    if not schema or not runs or not all(_takes_text(schema, schema.inputs, number) for number in read):
        name = node.input[read[0]]
        raise UnsupportedError(f"{node.op_type}: not supported for strings, as {name!r} holds", node=step.name)
    if node.op_type in CASTS:
        return set()
    return {name for number, name in enumerate(node.output) if name and _takes_text(schema, schema.outputs, number)}


def _string_outputs_of_body(
    step: NeededNode, body: onnx.GraphProto, texts: AbstractSet[str], version: int
) -> list[str]:
    """The outputs of a node with a body that hold strings, as this body makes them."""
    node = step.proto
    # Both the inputs of a Loop and those of its body begin with two that are not carried.
    before = int(node.op_type == "Scan" and version < 9)  # the lengths
    given = dict(zip([v.name for v in body.input], node.input[before:]))
    inside = set(texts) - {v.name for v in body.input} | {own for own, name in given.items() if name in texts}
    outputs = [v.name for v in body.output]
    for each in needed_nodes([*text_initializer_nodes(body), *body.node], outputs, f"{step.name}/")[0]:
        inside |= string_outputs(each, inside, version)
    made = outputs[1:] if node.op_type == "Loop" else outputs  # the first is whether it goes on
    return [name for name, own in zip(node.output, made) if name and own in inside]


def _takes_text(schema: onnx.defs.OpSchema, formals: Sequence[onnx.defs.OpSchema.FormalParameter], number: int) -> bool:
    """Returns whether ONNX allows strings for this input or output, by number; the last may stand for several."""
    kind = formals[min(number, len(formals) - 1)].type_str
    allowed = {each.type_param_str: each.allowed_type_strs for each in schema.type_constraints}.get(kind, [kind])
    return any("string" in each for each in allowed)
