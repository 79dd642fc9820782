"""ONNX file -> Graph."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
import onnx.version_converter

from imgconv import ops
from imgconv.archive import MAGIC
from imgconv.errors import InputError, ModelError, ShapeError, UnsupportedError
from imgconv.files import check_regular
from imgconv.graph import Graph
from imgconv.tensor import Tensor, build_graph, origin
from imgconv.view import Shape

Model = Union[str, "os.PathLike[str]", onnx.ModelProto]
Shapes = Mapping[str, Sequence[int] | int]

OLDEST_OPSET = 7
# Each node of an unrolled loop is a launch or a part of one: more of them would not run in useful time.
UNROLLED_NODES = 10_000
_OWN_DOMAINS = ("", "ai.onnx")
# What exporters write for a size that they do not know: Paddle2ONNX "?" and "-1", Keras and MMdnn "None". Numbered
# names are symbols: tf2onnx ("unk__12") and Paddle2ONNX ("p2o.DynamicDimension.0") give each unknown size a name of its
# own, and ONNX's shape inference ("unk__0") the same one to what is equal.
_NO_SYMBOLS = ("?", "-1", "None")
_TYPE_NAMES = {"float32": "tensor(float)", "float64": "tensor(double)"}
_TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype", "output_datatype")
_INPUT_TYPES = (
    "float32", "float16", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
)


def import_onnx(model: Model, shapes: Shapes | None = None, contents: Mapping[str, Any] | None = None) -> Graph:
    """The Graph of an ONNX file or ModelProto.

    shapes gives sizes to symbolic dimensions: by input, ``{"images": (1, 3, 224, 224)}``, or by the dimension's name,
    ``{"height": 224}``. A first dimension (the batch) that is not given is 1; every other one must be given.
    Dimensions of one name have one size; those without a name, or called "?", "-1" or "None", each their own.
    An initializer that is also listed as an input is a constant. What depends on no input is computed here.
    Loops are unrolled, to UNROLLED_NODES nodes at most.
    contents: arrays for inputs whose content becomes part of the Graph, which then has no such input.

    Raises ModelError for a file that is missing, broken or no valid ONNX, UnsupportedError for what imgconv does not
    do, with every unsupported operator at once, and InputError where `shapes` does not fit the model; ContentError and
    ShapeError are those that `contents` and `shapes` mend.
    """
    file = "" if isinstance(model, onnx.ModelProto) else os.fspath(model)
    with _naming(file):
        proto = model if isinstance(model, onnx.ModelProto) else _read_file(Path(file))
        return _Importer(_prepared(proto), Path(file).parent if file else None, shapes or {}, contents or {}).run()


def declared_inputs(model: Model) -> dict[str, tuple[str, list[int | str] | None]]:
    """dtype and dimensions of every input of an ONNX file or ModelProto, before any symbolic dimension has a size.

    A dimension is a size, a name, or "" where it has neither; None stands for all where the file gives no shape.
    Raises ModelError and UnsupportedError as `import_onnx` does.
    """
    file = "" if isinstance(model, onnx.ModelProto) else os.fspath(model)
    with _naming(file):
        proto = model if isinstance(model, onnx.ModelProto) else _read_file(Path(file))
        return {value.name: _declared(value) for value in _real_inputs(_prepared(proto).graph)}


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
        error.file = error.file or file
        raise


def _read_file(path: Path) -> onnx.ModelProto:
    try:
        check_regular(path)
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(f"cannot read the file: {error.strerror or error}") from error
    if content.startswith(MAGIC):
        raise ModelError("this is a compiled model: give the ONNX file that it was made of")
    try:
        return onnx.load_model_from_string(content)
    except google.protobuf.message.DecodeError as error:
        raise ModelError("this is not an ONNX file, or a truncated one: the protobuf data cannot be decoded") from error


def _prepared(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model in an opset that imgconv reads, its own functions put in place of the nodes that call them."""
    if not proto.HasField("graph") or not proto.graph.output:
        raise ModelError("this is not an ONNX model, or a truncated one: it has no graph with outputs")
    if _opset(proto) < OLDEST_OPSET:
        proto = _modernised(proto)
    if not proto.functions:
        return proto
    try:
        return onnx.inliner.inline_local_functions(proto)
    except (RuntimeError, ValueError, onnx.checker.ValidationError) as error:
        raise UnsupportedError(f"its functions cannot be put in place of their calls: {_said(error)}") from error


def _modernised(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A model older than what imgconv reads, converted by the onnx package."""
    old = f"opset {_opset(proto)}; imgconv reads {OLDEST_OPSET} and newer, and onnx cannot convert it"
    for node in proto.graph.node:
        if node.op_type == "PRelu":
            # Its slope was along axis 1 and is along the last since; onnx 1.23 converts it without a word.
            raise UnsupportedError(f"{old}: PRelu has another meaning since opset 7", node=node.name)
    try:
        return onnx.version_converter.convert_version(proto, OLDEST_OPSET)
    except (RuntimeError, ValueError) as error:
        raise UnsupportedError(f"{old}: {_said(error)}") from error


def _said(error: Exception) -> str:
    """What the onnx package says, which may be of several lines, in one."""
    return " ".join(str(error).split())


def _opset(proto: onnx.ModelProto) -> int:
    newest = onnx.defs.onnx_opset_version()
    for entry in proto.opset_import:
        if entry.domain in _OWN_DOMAINS:
            if entry.version > newest:
                raise UnsupportedError(
                    f"opset {entry.version}; the onnx package that is installed knows {newest} and older: update it"
                )
            return int(entry.version)
    others = ", ".join(entry.domain for entry in proto.opset_import)
    if others:
        raise UnsupportedError(f"its operators are of the domains {others}; imgconv has those of ONNX itself")
    raise ModelError("the model does not say which ONNX opset it uses")


@dataclass(frozen=True)
class _Step:
    """A node that an output needs, under the name that errors give it."""

    name: str
    proto: onnx.NodeProto


class _Importer:
    """One import: the model and what was given with it."""

    def __init__(
        self, proto: onnx.ModelProto, folder: Path | None, shapes: Shapes, contents: Mapping[str, Any]
    ) -> None:
        self.graph = proto.graph
        self.shapes = shapes
        self.contents = contents
        self.scope = _Scope(_Source(folder, proto.ir_version), _opset(proto))

    def run(self) -> Graph:
        names = [value.name for value in self.graph.output]
        steps, needed = _needed_steps(self.graph.node, names)
        self.scope.refuse_unsupported(steps)
        inputs = list(read_inputs(_real_inputs(self.graph), self.shapes))
        for tensor in inputs:
            known = self.contents.get(tensor.name or "")
            self.scope.define(tensor.name or "", tensor if known is None else _with_content(tensor, known), "")
        inputs = [t for t in inputs if t.name not in self.contents]
        self.scope.define_all(self.scope.initializers(self.graph, needed), "")
        # An input without elements is a constant to the nodes that read it; as an output it is the input all the same.
        outputs = dict(zip(names, self.scope.run(steps, needed, names)))
        outputs |= {t.name: t for t in inputs if t.name in outputs}
        return build_graph(outputs, inputs, self.graph.name or "model")


def _with_content(tensor: Tensor, known: Any) -> Tensor:
    """An input as a constant: any float for a float, and what loses nothing for the others. Raises InputError."""
    content = known.astype(tensor.dtype)
    if not (tensor.is_float and known.dtype.kind == "f") and not numpy.array_equal(content, known):
        raise InputError(f"input {tensor.name!r} has dtype {known.dtype}, the model takes {tensor.dtype}")
    return Tensor.constant(content)


def _needed_steps(
    nodes: Sequence[onnx.NodeProto], outputs: Iterable[str], prefix: str = ""
) -> tuple[list[_Step], set[str]]:
    """The nodes that an output needs, in the file's order, and the names of all that they read."""
    needed, found = set(outputs), []
    for number, node in reversed(list(enumerate(nodes))):
        if any(name in needed for name in node.output if name):
            needed |= _reads(node)
            found.append(_Step(prefix + (node.name or f"{node.op_type}_{number}"), node))
    return found[::-1], needed


def _reads(node: onnx.NodeProto) -> set[str]:
    """The names that a node reads, those that its bodies take from around them included."""
    names = {name for name in node.input if name}
    for body in (a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH):
        own = {v.name for v in body.input} | {t.name for t in body.initializer}
        own |= {name for inner in body.node for name in inner.output}
        names |= _needed_steps(body.node, [v.name for v in body.output])[1] - own
    return names


@dataclass
class _Source:
    """What all graphs of a model share. unrolled: how many nodes of bodies were composed so far."""

    folder: Path | None
    ir_version: int
    unrolled: int = 0


class _Scope:
    """The tensors of one graph by ONNX's names: of a model, of a body of If, Loop or Scan, or of a function.

    A body also sees the names of the graphs around it (`outer`); its own come first.
    """

    def __init__(self, source: _Source, version: int, outer: _Scope | None = None) -> None:
        self.source = source
        self.version = version
        self.outer = outer
        self.tensors: dict[str, Tensor | None] = {}
        self.needed: set[str] = set()
        self.context = onnx.checker.C.CheckerContext()
        self.context.ir_version = source.ir_version
        self.context.opset_imports = {"": version}

    def run(self, steps: Iterable[_Step], needed: set[str], outputs: Iterable[str]) -> list[Tensor]:
        """Composes the nodes and gives the tensors of the named outputs."""
        self.needed = needed
        for step in steps:
            self.add(step)
        made = [(name, self.find(name)) for name in outputs]
        for name, tensor in made:
            if tensor is None:
                raise ModelError(f"output {name!r} is made by no node")
        return [tensor for _, tensor in made if tensor is not None]

    def knows(self, name: str) -> bool:
        return name in self.tensors or (self.outer is not None and self.outer.knows(name))

    def find(self, name: str) -> Tensor | None:
        """The tensor of that name here or around; None for an input that a function's caller left out."""
        if name in self.tensors or self.outer is None:
            return self.tensors.get(name)
        return self.outer.find(name)

    def initializers(self, graph: onnx.GraphProto, needed: set[str]) -> dict[str, Tensor]:
        """The graph's stored tensors that its nodes need."""
        for sparse in graph.sparse_initializer:
            if sparse.values.name in needed:
                raise UnsupportedError(f"initializer {sparse.values.name!r} is sparse")
        return {t.name: Tensor.constant(self.array(t), t.name) for t in graph.initializer if t.name in needed}

    def refuse_unsupported(self, steps: Iterable[_Step]) -> None:
        """Raises one UnsupportedError that lists every operator that is neither in the table nor a function."""
        missing: dict[str, list[str]] = {}
        for step in steps:
            own = step.proto.domain in _OWN_DOMAINS
            op_type = step.proto.op_type if own else f"{step.proto.domain}.{step.proto.op_type}"
            if not own or (ops.find(op_type) is None and not _function_versions(op_type, self.version)):
                missing.setdefault(op_type, []).append(step.name)
        if missing:
            listed = "; ".join(f"{op_type} ({', '.join(names)})" for op_type, names in sorted(missing.items()))
            raise UnsupportedError(f"unsupported operators: {listed}", node=next(iter(missing.values()))[0])

    def add(self, step: _Step) -> None:
        """Composes one node and defines its outputs."""
        node = step.proto
        unknown = [name for name in node.input if name and not self.knows(name)]
        if unknown:
            raise ModelError(f"{node.op_type} reads {unknown[0]!r}, which nothing before it makes", node=step.name)
        inputs = tuple(self.find(name) if name else None for name in node.input)
        self.check(step, inputs)
        function = ops.find(node.op_type)
        if function is None:
            self.expand(step, inputs)
            return
        wanted = tuple(name if name in self.needed else "" for name in node.output)
        call = ops.Call(step.name, node.op_type, self.version, inputs, self.attributes(step), wanted)
        try:
            with origin(step.name):
                made = function(call)
            self.define_all(dict(zip(node.output, [made] if isinstance(made, Tensor) else made)), step.name)
        except (ValueError, ArithmeticError) as error:
            raise call.wrong(str(error)) from error

    def expand(self, step: _Step, inputs: Sequence[Tensor | None]) -> None:
        """Composes a node whose operator ONNX defines as a function: the function's nodes, in a scope of their own."""
        function = _function(step.proto, self.version, inputs)
        version = next(entry.version for entry in function.opset_import if entry.domain in _OWN_DOMAINS)
        inner = _Scope(self.source, version)
        inner.tensors |= dict(zip(function.input, (*inputs, *[None] * len(function.input))))
        wanted = {name: made for name, made in zip(step.proto.output, function.output) if name in self.needed}
        steps, needed = _needed_steps(_bound(function, step.proto, self.version), wanted.values(), f"{step.name}/")
        inner.refuse_unsupported(steps)
        self.define_all(dict(zip(wanted, inner.run(steps, needed, wanted.values()))), step.name)

    def body(self, graph: onnx.GraphProto, node: str) -> ops.Body:
        """A graph attribute as a function of its inputs: each call composes its nodes once more."""
        inputs, outputs = [v.name for v in _real_inputs(graph)], [v.name for v in graph.output]
        steps, needed = _needed_steps(graph.node, outputs, f"{node}/")
        stored: dict[str, Tensor] = {}

        def run(*given: Tensor) -> list[Tensor]:
            if len(given) != len(inputs):
                raise ModelError(f"gives {len(given)} inputs to a body that has {len(inputs)}", node=node)
            self.source.unrolled += max(len(steps), 1)
            if self.source.unrolled > UNROLLED_NODES:
                raise UnsupportedError(f"unrolled, the loops are more than {UNROLLED_NODES} nodes", node=node)
            inner = _Scope(self.source, self.version, self)
            inner.refuse_unsupported(steps)
            if not stored:
                stored.update(inner.initializers(graph, needed))
            inner.define_all(dict(zip(inputs, given)), node)
            inner.define_all(stored, node)
            return inner.run(steps, needed, outputs)

        return run

    def define_all(self, tensors: Mapping[str, Tensor], node: str) -> None:
        """Gives tensors ONNX's names; "" is a name for what nobody reads."""
        for name, tensor in tensors.items():
            if name:
                self.define(name, tensor, node)

    def define(self, name: str, tensor: Tensor, node: str) -> None:
        """Gives a tensor ONNX's name; what is known is computed at once."""
        if name in self.tensors:
            raise ModelError(f"the name {name!r} is given to two tensors", node=node)
        if tensor.is_constant or not tensor.size:
            content = tensor.numpy() if tensor.is_constant else numpy.empty(tensor.shape, tensor.dtype)
            tensor = replace(Tensor.constant(content, name), quantised=tensor.quantised)
        elif tensor.dtype not in _INPUT_TYPES:
            raise UnsupportedError(f"{name!r} is of type {tensor.dtype}", node=node)
        self.tensors[name] = tensor.named(name)

    def check(self, step: _Step, inputs: Sequence[Tensor | None]) -> None:
        """Raises ModelError where the node or the types of its inputs are not what ONNX allows."""
        node = onnx.NodeProto()
        node.CopyFrom(step.proto)
        node.domain = ""
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                # A body reads names from around it, which the checker does not know: its nodes are checked one by one.
                attribute.g.CopyFrom(onnx.GraphProto(name="body"))
        try:
            schema = onnx.defs.get_schema(node.op_type, self.version, "")
            if not schema.deprecated:
                onnx.checker.check_node(node, self.context)
        except (onnx.checker.ValidationError, onnx.defs.SchemaError) as error:
            raise ModelError(f"not valid ONNX: {_said(error)}", node=step.name) from error
        problem = _type_problem(schema, inputs)
        if problem:
            raise ModelError(f"{node.op_type}: {problem}", node=step.name)

    def attributes(self, step: _Step) -> dict[str, Any]:
        """The node's attributes as Python values: strings decoded, tensors as arrays, bodies as functions.

        Attributes that name an element type, such as Cast's `to`, have numpy's name of it.
        """
        found: dict[str, Any] = {}
        for attribute in step.proto.attribute:
            value = onnx.helper.get_attribute_value(attribute)
            if isinstance(value, bytes):
                value = value.decode("utf-8", "replace")
            elif attribute.type == onnx.AttributeProto.STRINGS:
                value = [v.decode("utf-8", "replace") for v in value]
            elif isinstance(value, onnx.TensorProto):
                value = self.array(value)
            elif isinstance(value, onnx.GraphProto):
                value = self.body(value, step.name)
            elif attribute.name in _TYPE_ATTRIBUTES:
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
        location, folder = onnx.external_data_helper.ExternalDataInfo(tensor).location, self.source.folder
        if folder is None:
            raise ModelError(f"tensor {tensor.name!r} is in the external file {location!r}: give the model's path")
        filled = onnx.TensorProto()
        filled.CopyFrom(tensor)
        try:
            onnx.external_data_helper.load_external_data_for_tensor(filled, str(folder))
        except (OSError, ValueError, onnx.checker.ValidationError) as error:
            raise ModelError(
                f"tensor {tensor.name!r} is in the external file {str(folder / location)!r}, which cannot be "
                f"read: {_said(error)}"
            ) from error
        filled.data_location = onnx.TensorProto.DEFAULT
        return filled


def _function_versions(op_type: str, version: int) -> list[int]:
    """The opsets up to `version` for which ONNX defines the operator as a function of others; newest last."""
    try:
        schema: Any = onnx.defs.get_schema(op_type, version, "")  # the stubs lack what it says of functions
    except onnx.defs.SchemaError:
        return []
    versions = (*schema.function_opset_versions, *schema.context_dependent_function_opset_versions)
    return sorted(v for v in versions if v <= version)


def _function(node: onnx.NodeProto, version: int, inputs: Sequence[Tensor | None]) -> onnx.FunctionProto:
    """ONNX's own function for a node with inputs of these types and shapes."""
    schema: Any = onnx.defs.get_schema(node.op_type, version, "")
    of = _function_versions(node.op_type, version)[-1]
    if schema.has_context_dependent_function:
        types = [b"" if t is None else _type_of(t).SerializeToString() for t in inputs]
        content = schema.get_context_dependent_function_with_opset_version(of, node.SerializeToString(), types)
    else:
        content = schema.get_function_with_opset_version(of)
    function = onnx.FunctionProto()
    function.ParseFromString(content)
    return function


def _type_of(tensor: Tensor) -> onnx.TypeProto:
    return onnx.helper.make_tensor_type_proto(
        onnx.helper.np_dtype_to_tensor_dtype(numpy.dtype(tensor.dtype)), tensor.shape
    )


def _bound(function: onnx.FunctionProto, node: onnx.NodeProto, version: int) -> list[onnx.NodeProto]:
    """The function's nodes with the attributes of the node that calls it, or their defaults, put in."""
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
    givers = dict.fromkeys(sizes, "shapes")
    fixed = {key: _given_shape(key, declared[key][1], given, sizes, givers) for key, given in whole.items()}
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
    dimensions = [d.dim_value if d.dim_value > 0 else d.dim_param for d in tensor.shape.dim]
    return dtype, ["" if d in _NO_SYMBOLS else d for d in dimensions]


def _size(name: str, value: Any, smallest: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, numpy.integer)) or value < smallest:
        raise InputError(f"shapes gives {name!r} the size {value!r}; a size is a whole number, {smallest} or more")
    return int(value)


def _given_shape(
    name: str, dimensions: list[int | str] | None, shape: Any, sizes: dict[str, int], givers: dict[str, str]
) -> Shape:
    """The shape that was given for an input, checked; names of dimensions that it fixes are added to `sizes`.

    givers: what gave each of the sizes, in words.
    """
    found = tuple(_size(name, n, 0) for n in shape)
    if dimensions is None:
        return found
    problem = f"shapes gives input {name!r} {list(found)}, but the model has {_shown(dimensions)}"
    if len(found) != len(dimensions):
        raise InputError(problem)
    for size, dimension in zip(found, dimensions, strict=True):
        if isinstance(dimension, int):
            if dimension != size:
                raise InputError(problem)
        elif dimension and sizes.setdefault(dimension, size) != size:
            raise InputError(f"{problem} and {dimension!r} is {sizes[dimension]} in {givers[dimension]}")
        else:
            givers.setdefault(dimension, f"input {name!r}")
    return found


def _completed(name: str, dimensions: list[int | str] | None, sizes: Mapping[str, int]) -> Shape:
    """The declared shape with every symbolic dimension replaced."""
    if dimensions is None:
        raise ShapeError(
            f"input {name!r} has no shape in the model; give one, as shapes={{{name!r}: (1, 3, 224, 224)}}"
        )
    shape = []
    for axis, dimension in enumerate(dimensions):
        size = dimension if isinstance(dimension, int) else sizes.get(dimension, 1 if axis == 0 else 0)
        if not size:
            by_name = f" or shapes={{{dimension!r}: 224}}" if dimension else ""
            raise ShapeError(
                f"input {name!r} is {_shown(dimensions)}: the size of axis {axis} is not known. Give it, as "
                f"shapes={{{name!r}: {_example(dimensions)}}}{by_name}"
            )
        shape.append(size)
    return tuple(shape)


def _example(dimensions: Sequence[int | str]) -> tuple[int, ...]:
    return tuple(d if isinstance(d, int) else 1 if axis == 0 else 224 for axis, d in enumerate(dimensions))


def _shown(dimensions: Sequence[int | str]) -> str:
    return f"[{', '.join(str(d) or '?' for d in dimensions)}]"
