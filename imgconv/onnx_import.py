"""ONNX file -> Graph. The only file that imports onnx."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union

import google.protobuf.message  # type: ignore[import-untyped]
import numpy
import onnx
import onnx.checker
import onnx.defs
import onnx.external_data_helper
import onnx.helper
import onnx.inliner
import onnx.numpy_helper

from imgconv import ops
from imgconv.errors import InputError, ModelError, UnsupportedError
from imgconv.graph import Graph
from imgconv.tensor import Tensor, build_graph, origin
from imgconv.view import Shape

Model = Union[str, "os.PathLike[str]", onnx.ModelProto]
Shapes = Mapping[str, Sequence[int] | int]

OLDEST_OPSET = 7
_OWN_DOMAINS = ("", "ai.onnx")
_TYPE_NAMES = {"float32": "tensor(float)", "float64": "tensor(double)"}
_INPUT_TYPES = (
    "float32", "float16", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
)


def import_onnx(model: Model, shapes: Shapes | None = None) -> Graph:
    """The Graph of an ONNX file or ModelProto.

    shapes gives sizes to symbolic dimensions: by input, ``{"images": (1, 3, 224, 224)}``, or by the dimension's name,
    ``{"height": 224}``. A first dimension (the batch) that is not given is 1; every other one must be given.
    An initializer that is also listed as an input is a constant. What depends on no input is computed here.

    Raises ModelError for a file that is missing, broken or no valid ONNX, UnsupportedError for what imgconv does not
    do, with every unsupported operator at once, and InputError where `shapes` does not fit the model.
    """
    file = "" if isinstance(model, onnx.ModelProto) else os.fspath(model)
    with _naming(file):
        proto = model if isinstance(model, onnx.ModelProto) else _read_file(Path(file))
        return _Importer(_prepared(proto), Path(file).parent if file else None, shapes or {}).run()


def declared_inputs(path: str | os.PathLike[str]) -> dict[str, tuple[str, list[int | str] | None]]:
    """dtype and dimensions of every input of an ONNX file, by name, before any symbolic dimension has a size.

    A dimension is a size, a name, or "" where it has neither; None stands for all where the file gives no shape.
    Raises ModelError and UnsupportedError as `import_onnx` does.
    """
    file = os.fspath(path)
    with _naming(file):
        return {value.name: _declared(value) for value in _real_inputs(_prepared(_read_file(Path(file))).graph)}


def _real_inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """The inputs that no initializer fills."""
    constants = {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
    return [value for value in graph.input if value.name not in constants]


@contextlib.contextmanager
def _naming(file: str) -> Iterator[None]:
    """Errors of the model raised inside name the file."""
    try:
        yield
    except ModelError as error:
        raise type(error)(error.message, file, error.node).with_traceback(error.__traceback__) from error.__cause__


def _read_file(path: Path) -> onnx.ModelProto:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(f"cannot read the file: {error.strerror or error}") from error
    try:
        return onnx.load_model_from_string(content)
    except google.protobuf.message.DecodeError as error:
        raise ModelError("this is not an ONNX file, or a truncated one: the protobuf data cannot be decoded") from error


def _prepared(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its own functions put in place of the nodes that call them."""
    if not proto.HasField("graph") or not proto.graph.output:
        raise ModelError("this is not an ONNX model, or a truncated one: it has no graph with outputs")
    if not proto.functions:
        return proto
    try:
        return onnx.inliner.inline_local_functions(proto)
    except (RuntimeError, ValueError, onnx.checker.ValidationError) as error:
        raise UnsupportedError(f"its functions cannot be put in place of their calls: {error}") from error


def _opset(proto: onnx.ModelProto) -> int:
    newest = onnx.defs.onnx_opset_version()
    for entry in proto.opset_import:
        if entry.domain in _OWN_DOMAINS:
            if not OLDEST_OPSET <= entry.version <= newest:
                raise UnsupportedError(
                    f"opset {entry.version}; imgconv reads {OLDEST_OPSET} to {newest}: convert the model with "
                    "onnx.version_converter, or export it again"
                )
            return int(entry.version)
    raise ModelError("the model does not say which ONNX opset it uses")


@dataclass(frozen=True)
class _Step:
    """A node that an output needs, under the name that errors give it."""

    name: str
    proto: onnx.NodeProto


class _Importer:
    """One import: what is known so far, by ONNX's names."""

    def __init__(self, proto: onnx.ModelProto, folder: Path | None, shapes: Shapes) -> None:
        self.graph = proto.graph
        self.folder = folder
        self.shapes = shapes
        self.version = _opset(proto)
        self.tensors: dict[str, Tensor] = {}
        self.context = onnx.checker.C.CheckerContext()
        self.context.ir_version = proto.ir_version
        self.context.opset_imports = {"": self.version}

    def run(self) -> Graph:
        steps = self.needed_steps()
        self.refuse_unsupported(steps)
        inputs = list(read_inputs(_real_inputs(self.graph), self.shapes))
        self.needed |= {t.name for t in inputs}
        for tensor in inputs:
            self.define(tensor.name or "", tensor, "")
        for sparse in self.graph.sparse_initializer:
            if sparse.values.name in self.needed:
                raise UnsupportedError(f"initializer {sparse.values.name!r} is sparse")
        for initializer in self.graph.initializer:
            if initializer.name in self.needed:
                self.define(initializer.name, Tensor.constant(self.array(initializer)), "")
        for step in steps:
            self.add(step)
        outputs = {}
        for value in self.graph.output:
            if value.name not in self.tensors:
                raise ModelError(f"output {value.name!r} is made by no node")
            outputs[value.name] = self.tensors[value.name]
        return build_graph(outputs, inputs, self.graph.name or "model")

    def needed_steps(self) -> list[_Step]:
        """The nodes that an output needs, in the file's order; `needed` becomes the names of all that they read."""
        self.needed = {value.name for value in self.graph.output}
        found = []
        for number, node in reversed(list(enumerate(self.graph.node))):
            if any(name in self.needed for name in node.output if name):
                self.needed |= {name for name in node.input if name}
                found.append(_Step(node.name or f"{node.op_type}_{number}", node))
        return found[::-1]

    def refuse_unsupported(self, steps: Iterable[_Step]) -> None:
        """Raises one UnsupportedError that lists every operator of the model that is not in the table."""
        missing: dict[str, list[str]] = {}
        for step in steps:
            own = step.proto.domain in _OWN_DOMAINS
            if not own or ops.find(step.proto.op_type) is None:
                op_type = step.proto.op_type if own else f"{step.proto.domain}.{step.proto.op_type}"
                missing.setdefault(op_type, []).append(step.name)
        if missing:
            listed = "; ".join(f"{op_type} ({', '.join(names)})" for op_type, names in sorted(missing.items()))
            raise UnsupportedError(f"unsupported operators: {listed}", node=next(iter(missing.values()))[0])

    def add(self, step: _Step) -> None:
        """Composes one node and defines its outputs."""
        node = step.proto
        unknown = [name for name in node.input if name and name not in self.tensors]
        if unknown:
            raise ModelError(f"{node.op_type} reads {unknown[0]!r}, which nothing before it makes", node=step.name)
        inputs = tuple(self.tensors[name] if name else None for name in node.input)
        self.check(step, inputs)
        wanted = tuple(name if name in self.needed else "" for name in node.output)
        call = ops.Call(step.name, node.op_type, self.version, inputs, self.attributes(step), wanted)
        function = ops.find(node.op_type)
        assert function is not None
        try:
            with origin(step.name):
                made = function(call)
            for name, tensor in zip(node.output, [made] if isinstance(made, Tensor) else made):
                if name:
                    self.define(name, tensor, step.name)
        except (ValueError, ArithmeticError) as error:
            raise call.wrong(str(error)) from error

    def define(self, name: str, tensor: Tensor, node: str) -> None:
        """Gives a tensor ONNX's name; what is known is computed at once."""
        if name in self.tensors:
            raise ModelError(f"the name {name!r} is given to two tensors", node=node)
        if tensor.is_constant or not tensor.size:
            content = tensor.numpy() if tensor.is_constant else numpy.empty(tensor.shape, tensor.dtype)
            tensor = Tensor.constant(content, name)
        elif tensor.dtype not in _INPUT_TYPES:
            raise UnsupportedError(f"{name!r} is of type {tensor.dtype}", node=node)
        self.tensors[name] = tensor.named(name)

    def check(self, step: _Step, inputs: Sequence[Tensor | None]) -> None:
        """Raises ModelError where the node or the types of its inputs are not what ONNX allows."""
        node = onnx.NodeProto()
        node.CopyFrom(step.proto)
        node.domain = ""
        try:
            schema = onnx.defs.get_schema(node.op_type, self.version, "")
            if not schema.deprecated:
                onnx.checker.check_node(node, self.context)
        except (onnx.checker.ValidationError, onnx.defs.SchemaError) as error:
            raise ModelError(f"not valid ONNX: {str(error).strip()}", node=step.name) from error
        problem = _type_problem(schema, inputs)
        if problem:
            raise ModelError(f"{node.op_type}: {problem}", node=step.name)

    def attributes(self, step: _Step) -> dict[str, Any]:
        """The node's attributes as Python values: strings decoded, tensors as arrays, `to` as a numpy dtype name."""
        found: dict[str, Any] = {}
        for attribute in step.proto.attribute:
            value = onnx.helper.get_attribute_value(attribute)
            if isinstance(value, bytes):
                value = value.decode("utf-8", "replace")
            elif isinstance(value, onnx.TensorProto):
                value = self.array(value)
            elif step.proto.op_type == "Cast" and attribute.name == "to":
                value = _dtype_name(value)
            found[attribute.name] = value
        return found

    def array(self, tensor: onnx.TensorProto) -> Any:
        """A stored tensor's content."""
        dtype = _dtype_name(tensor.data_type)
        if dtype not in (*_INPUT_TYPES, "float64"):
            raise UnsupportedError(f"tensor {tensor.name!r} is of type {dtype}")
        if onnx.external_data_helper.uses_external_data(tensor):
            tensor = self.with_external_data(tensor)
        try:
            return onnx.numpy_helper.to_array(tensor)
        except (ValueError, TypeError) as error:
            raise ModelError(f"the content of tensor {tensor.name!r} does not fit its shape: {error}") from error

    def with_external_data(self, tensor: onnx.TensorProto) -> onnx.TensorProto:
        location = onnx.external_data_helper.ExternalDataInfo(tensor).location
        if self.folder is None:
            raise ModelError(f"tensor {tensor.name!r} is in the external file {location!r}: give the model's path")
        filled = onnx.TensorProto()
        filled.CopyFrom(tensor)
        try:
            onnx.external_data_helper.load_external_data_for_tensor(filled, str(self.folder))
        except (OSError, ValueError, onnx.checker.ValidationError) as error:
            raise ModelError(
                f"tensor {tensor.name!r} is in the external file {str(self.folder / location)!r}, which cannot be "
                f"read: {error}"
            ) from error
        filled.data_location = onnx.TensorProto.DEFAULT
        return filled


def _dtype_name(element_type: int) -> str:
    """numpy's name of an ONNX element type; ONNX's where numpy has none."""
    try:
        dtype = numpy.dtype(onnx.helper.tensor_dtype_to_np_dtype(element_type))
    except (KeyError, ValueError):
        return f"{element_type}"
    name = onnx.TensorProto.DataType.Name(element_type).lower()
    return str(dtype) if dtype.kind in "fiub" and dtype.itemsize * 8 >= 8 and dtype.isbuiltin == 1 else name


def _type_problem(schema: onnx.defs.OpSchema, inputs: Sequence[Tensor | None]) -> str:
    """What is wrong with the types of a node's inputs, in words; "" where nothing is."""
    allowed = {c.type_param_str: tuple(c.allowed_type_strs) for c in schema.type_constraints}
    bound: dict[str, str] = {}
    for position, tensor in enumerate(inputs):
        formal = schema.inputs[min(position, len(schema.inputs) - 1)]
        if tensor is None:
            continue
        found = _TYPE_NAMES.get(tensor.dtype, f"tensor({tensor.dtype})")
        if found not in allowed.get(formal.type_str, (formal.type_str,)):
            return f"input {formal.name} is {tensor.dtype}, which opset {schema.since_version} does not allow"
        if formal.is_homogeneous and bound.setdefault(formal.type_str, tensor.dtype) != tensor.dtype:
            return f"input {formal.name} is {tensor.dtype}, but another one {bound[formal.type_str]}"
    return ""


def read_inputs(values: Sequence[onnx.ValueInfoProto], shapes: Shapes) -> Iterator[Tensor]:
    """The model's inputs as tensors, symbolic dimensions replaced as `import_onnx` says."""
    declared = {value.name: _declared(value) for value in values}
    symbols = {d for _, dimensions in declared.values() for d in dimensions or () if isinstance(d, str) and d}
    for key, given in shapes.items():
        _check_key(key, isinstance(given, Sequence), tuple(declared), tuple(sorted(symbols)))
    whole = {key: given for key, given in shapes.items() if isinstance(given, Sequence)}
    sizes = {key: _size(key, given) for key, given in shapes.items() if key not in whole}
    fixed = {key: _given_shape(key, declared[key][1], given, sizes) for key, given in whole.items()}
    for name, (dtype, dimensions) in declared.items():
        yield Tensor.input(name, fixed[name] if name in fixed else _completed(name, dimensions, sizes), dtype)


def _check_key(key: str, is_shape: bool, inputs: Sequence[str], symbols: Sequence[str]) -> None:
    """Raises InputError where a key of `shapes` is neither an input with a shape nor a dimension with a size."""
    if key in (inputs if is_shape else symbols):
        return
    if key in inputs:
        raise InputError(f"shapes gives {key!r} one size, but {key!r} is an input: give its whole shape, as a tuple")
    if key in symbols:
        raise InputError(f"shapes gives {key!r} a shape, but {key!r} is the name of a dimension: give one number")
    raise InputError(
        f"shapes names {key!r}, but the model's inputs are {', '.join(map(repr, inputs)) or 'none'}"
        + (f" and its dimensions {', '.join(map(repr, symbols))}" if symbols else "")
    )


def _declared(value: onnx.ValueInfoProto) -> tuple[str, list[int | str] | None]:
    """dtype and dimensions of an input: a size, a name, or "" for an unnamed one; None where there is no shape."""
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        raise UnsupportedError(f"input {value.name!r} is no tensor but a {kind or 'value of no type'}")
    tensor = value.type.tensor_type
    dtype = _dtype_name(tensor.elem_type)
    if dtype not in _INPUT_TYPES:
        raise UnsupportedError(f"input {value.name!r} is of type {dtype}; use one of {', '.join(_INPUT_TYPES)}")
    if not tensor.HasField("shape"):
        return dtype, None
    return dtype, [d.dim_value if d.dim_value > 0 else d.dim_param for d in tensor.shape.dim]


def _size(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, numpy.integer)) or value < 1:
        raise InputError(f"shapes gives {name!r} the size {value!r}; a size is a whole number above 0")
    return int(value)


def _given_shape(name: str, dimensions: list[int | str] | None, shape: Any, sizes: dict[str, int]) -> Shape:
    """The shape that was given for an input, checked; names of dimensions that it fixes are added to `sizes`."""
    found = tuple(_size(name, n) for n in shape)
    if dimensions is None:
        return found
    if len(found) != len(dimensions):
        raise InputError(f"shapes gives input {name!r} {list(found)}, but the model has {_shown(dimensions)}")
    for size, dimension in zip(found, dimensions, strict=True):
        fixed = dimension if isinstance(dimension, int) else sizes.setdefault(dimension, size) if dimension else size
        if fixed != size:
            raise InputError(
                f"shapes gives input {name!r} {list(found)}, but the model has {_shown(dimensions)}"
                + (f" and {dimension!r} is {fixed}" if isinstance(dimension, str) else "")
            )
    return found


def _completed(name: str, dimensions: list[int | str] | None, sizes: Mapping[str, int]) -> Shape:
    """The declared shape with every symbolic dimension replaced."""
    if dimensions is None:
        raise InputError(
            f"input {name!r} has no shape in the model; give one, as shapes={{{name!r}: (1, 3, 224, 224)}}"
        )
    shape = []
    for axis, dimension in enumerate(dimensions):
        size = dimension if isinstance(dimension, int) else sizes.get(dimension, 1 if axis == 0 else 0)
        if not size:
            by_name = f" or shapes={{{dimension!r}: 224}}" if dimension else ""
            raise InputError(
                f"input {name!r} is {_shown(dimensions)}: the size of axis {axis} is not known. Give it, as "
                f"shapes={{{name!r}: {_example(dimensions)}}}{by_name}"
            )
        shape.append(size)
    return tuple(shape)


def _example(dimensions: Sequence[int | str]) -> tuple[int, ...]:
    return tuple(d if isinstance(d, int) else 1 if axis == 0 else 224 for axis, d in enumerate(dimensions))


def _shown(dimensions: Sequence[int | str]) -> str:
    return f"[{', '.join(str(d) or '?' for d in dimensions)}]"
