"""ONNX's operator schemas: the types that operators accept, and the functions that define some operators."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy
import onnx
import onnx.defs
import onnx.helper

from imgconv.tensor import Tensor

OWN_DOMAINS = ("", "ai.onnx")
ELEMENT_TYPES = (
    "float32", "float64", "float16", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
)
_PERIODIC = ("periodic",)
# By operator that ONNX defines as a function.
_FLAGS = {
    "Attention": ("is_causal",), "BlackmanWindow": _PERIODIC, "HammingWindow": _PERIODIC, "HannWindow": _PERIODIC,
    "RotaryEmbedding": ("interleaved",),
}
_TYPE_NAMES = {"float32": "tensor(float)", "float64": "tensor(double)"}


def domain_of(node: onnx.NodeProto) -> str:
    """The domain of a node's operator; "" if it is ONNX's own."""
    return "" if node.domain in OWN_DOMAINS else node.domain


def schema_of(node: onnx.NodeProto, version: int) -> onnx.defs.OpSchema | None:
    """ONNX's schema of a node's operator; None if that opset has none, or the domain is not ONNX's own."""
    try:
        return None if domain_of(node) else onnx.defs.get_schema(node.op_type, version, "")
    except onnx.defs.SchemaError:
        return None


def function_versions(op_type: str, version: int) -> list[int]:
    """The opsets up to `version` in which ONNX defines the operator as a function of others, newest last."""
    try:
        schema: Any = onnx.defs.get_schema(op_type, version, "")  # the stubs lack its function attributes
    except onnx.defs.SchemaError:
        return []
    versions = (*schema.function_opset_versions, *schema.context_dependent_function_opset_versions)
    return sorted(v for v in versions if v <= version)


def function_of(node: onnx.NodeProto, version: int, inputs: Sequence[Tensor | None]) -> onnx.FunctionProto:
    """The function by which ONNX defines a node with inputs of these types and shapes."""
    schema: Any = onnx.defs.get_schema(node.op_type, version, "")
    of = function_versions(node.op_type, version)[-1]
    if schema.has_context_dependent_function:
        types = [b"" if t is None else _type_of(t).SerializeToString() for t in inputs]
        content = schema.get_context_dependent_function_with_opset_version(of, node.SerializeToString(), types)
    else:
        content = schema.get_function_with_opset_version(of)
    function = onnx.FunctionProto()
    function.ParseFromString(content)
    return function


def flag_problem(node: onnx.NodeProto) -> str:
    """Returns what is wrong with attributes that ONNX's text limits to 0 and 1 though its functions do not; or ""."""
    found = ((a.name, a.i) for a in node.attribute if a.name in _FLAGS.get(node.op_type, ()))
    return next((f"{name} is {value}, which is neither 0 nor 1" for name, value in found if value not in (0, 1)), "")


def _type_of(tensor: Tensor) -> onnx.TypeProto:
    return onnx.helper.make_tensor_type_proto(
        onnx.helper.np_dtype_to_tensor_dtype(numpy.dtype(tensor.dtype)), tensor.shape
    )


def inline_nodes(function: onnx.FunctionProto, node: onnx.NodeProto, version: int) -> list[onnx.NodeProto]:
    """The function's nodes, with attribute references replaced by the calling node's attributes or their defaults."""
    schema = onnx.defs.get_schema(node.op_type, version, "")
    given = {name: a.default_value for name, a in schema.attributes.items() if a.default_value.name}
    given |= {a.name: a for a in function.attribute_proto} | {a.name: a for a in node.attribute}

    def bind(nodes: Iterable[onnx.NodeProto]) -> list[onnx.NodeProto]:
        made = []
        for inner in nodes:
            copy = onnx.NodeProto()
            copy.CopyFrom(inner)
            del copy.attribute[:]
            for attribute in inner.attribute:
                if attribute.ref_attr_name and attribute.ref_attr_name not in given:
                    continue
                added = copy.attribute.add()
                added.CopyFrom(given.get(attribute.ref_attr_name, attribute))
                added.name = attribute.name
                if added.type == onnx.AttributeProto.GRAPH:
                    bodies = bind(added.g.node)
                    del added.g.node[:]
                    added.g.node.extend(bodies)
            made.append(copy)
        return made

    return bind(function.node)


def dtype_name(element_type: int) -> str:
    """numpy's name of an ONNX element type; ONNX's name if numpy has none. bfloat16 is read as float32."""
    if element_type == onnx.TensorProto.BFLOAT16:
        return "float32"
    try:
        dtype = numpy.dtype(onnx.helper.tensor_dtype_to_np_dtype(element_type))
    except (KeyError, ValueError):
        return f"{element_type}"
    name = onnx.TensorProto.DataType.Name(element_type).lower()
    return str(dtype) if dtype.kind in "fiub" and dtype.itemsize * 8 >= 8 and dtype.isbuiltin == 1 else name


def _newest_types(schema: onnx.defs.OpSchema, position: int) -> Sequence[str]:
    """The types of an input in the newest opset: files of old opsets use them, such as Equal of floats in opset 7.

    Empty if the operator's inputs have other names there, because they may have another meaning.
    """
    newest = onnx.defs.get_schema(schema.name, onnx.defs.onnx_opset_version(), schema.domain)
    if [i.name for i in newest.inputs] != [i.name for i in schema.inputs]:
        return ()
    formal = newest.inputs[min(position, len(newest.inputs) - 1)].type_str
    return next((c.allowed_type_strs for c in newest.type_constraints if c.type_param_str == formal), (formal,))


def type_problem(schema: onnx.defs.OpSchema, inputs: Sequence[Tensor | None]) -> str:
    """Returns a text on what is wrong with the types of a node's inputs; "" if they are valid."""
    allowed = {c.type_param_str: tuple(c.allowed_type_strs) for c in schema.type_constraints}
    bound: dict[str, str] = {}
    for position, tensor in enumerate(inputs):
        formal = schema.inputs[min(position, len(schema.inputs) - 1)]
        if tensor is None:
            continue
        found = _TYPE_NAMES.get(tensor.dtype, f"tensor({tensor.dtype})")
        types = allowed.get(formal.type_str, (formal.type_str,))
        if found not in types and found not in _newest_types(schema, position):
            return f"input {formal.name} is {tensor.dtype}, which opset {schema.since_version} does not allow"
        if formal.is_homogeneous and bound.setdefault(formal.type_str, tensor.dtype) != tensor.dtype:
            return f"input {formal.name} is {tensor.dtype}, but another one {bound[formal.type_str]}"
    return ""
