"""Imports an ONNX file as a Graph."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Union

from imgconv import host
from imgconv.arrays import Arrays, Shapes
from imgconv.errors import InputError, MissingPackageError, ModelError, UnsupportedError

try:
    import onnx
except ModuleNotFoundError as error:
    raise MissingPackageError("onnx", "onnx", "reading an ONNX file") from error

from imgconv.graph.nodes import Graph
from imgconv.host.subgraphs import ungrouped_layers
from imgconv.limits import current_budget, load_budget
from imgconv.onnx_import.cut import cut_at
from imgconv.onnx_import.file import converted_to_supported_opset, opset_of, opsets_of, parse_model, read_file
from imgconv.onnx_import.input_shapes import declaration, read_inputs, real_inputs, size_clash, input_as_constant
from imgconv.onnx_import.schema import domain_of
from imgconv.onnx_import.scope import UNROLLED_NODES, ImportScope, ImportState, needed_nodes
from imgconv.onnx_import.partition import Partitioner
from imgconv.onnx_import.texts import text_initializer_nodes
from imgconv.tensor import build_graph

OnnxModel = Union[str, "os.PathLike[str]", bytes, onnx.ModelProto]


def import_onnx(
    model: OnnxModel, shapes: Shapes | None = None, contents: Arrays | None = None, outputs: Sequence[str] = ()
) -> Graph:
    """The Graph of an ONNX file, of its bytes, or of a ModelProto.

    shapes gives sizes to symbolic dimensions: by input, ``{"images": (1, 3, 224, 224)}``, or by the dimension's name,
    ``{"height": 224}``. A first dimension (the batch) without a size is 1; every other one must be given.
    A dimension that is not given has the size of another one of its name, unless the name is "", "?", "-1" or "None".
    contents: arrays for inputs that become constants of the Graph, which then does not have these inputs.
    outputs: the tensors at which the model ends, with the inputs that these need; by default its own outputs.

    What the device cannot compute because it depends on data, and all that follows it, is the Graph's `host_partition`.

    An initializer that is also listed as an input is a constant. Tensors that depend on no input are computed during
    the import. Loops are unrolled to at most UNROLLED_NODES nodes. Tensors of float64 and bfloat16 are computed in
    float, which a RuntimeWarning says; inputs and outputs of float64 stay so, those of bfloat16 become float32.

    Raises ModelError if the file is missing, broken or not valid ONNX; UnsupportedError if imgconv does not support
    the model, with a list of all unsupported operators; InputError if `shapes` does not fit the model; ShapeError if
    `shapes` lacks a size; ContentError if an input must be constant, which `contents` can make it.

    Example:

        graph = import_onnx("detector.onnx", {"images": (1, 3, 640, 640)})
    """
    file = _file_of(model)
    with _add_file_to_errors(file), load_budget():
        folder = Path(file).parent if file else None
        proto = cut_at(converted_to_supported_opset(_proto_of(model)), outputs)
        return _Importer(proto, folder, shapes or {}, contents or {}).run()


def declared_inputs(model: OnnxModel, outputs: Sequence[str] = ()) -> dict[str, tuple[str, list[int | str] | None]]:
    """dtype and dimensions of every input of an ONNX file or ModelProto, as the file declares them.

    outputs: as `import_onnx` takes them.

    A dimension is a size, a name, or "" if it has neither. The dimensions are None if the file gives no shape.
    Example: {"images": ("float32", ["batch", 3, 640, 640])}. Raises ModelError and UnsupportedError as `import_onnx`.
    """
    with _add_file_to_errors(_file_of(model)):
        graph = cut_at(converted_to_supported_opset(_proto_of(model)), outputs).graph
        return {value.name: declaration(value) for value in real_inputs(graph)}


def _file_of(model: OnnxModel) -> str:
    """The path of a model; "" if it is no file."""
    if isinstance(model, (str, os.PathLike)):
        return os.fspath(model)
    if not isinstance(model, (bytes, onnx.ModelProto)):
        kinds = "a path, the bytes of an ONNX file, an onnx ModelProto or a Graph of build_graph"
        raise ModelError(f"a model is {kinds}, not a {type(model).__name__}")
    return ""


def _proto_of(model: OnnxModel) -> onnx.ModelProto:
    if isinstance(model, onnx.ModelProto):
        return model
    return parse_model(model) if isinstance(model, bytes) else read_file(Path(model))


@contextlib.contextmanager
def _add_file_to_errors(file: str) -> Iterator[None]:
    """Adds the file's name to each ModelError raised inside."""
    try:
        yield
    except ModelError as error:
        error.file = error.file or file
        raise


class _Importer:
    """One import: the model with the given shapes and contents."""

    def __init__(
        self, proto: onnx.ModelProto, folder: Path | None, shapes: Shapes, contents: Arrays
    ) -> None:
        self.graph = proto.graph
        self.shapes = shapes
        self.contents = contents
        self.scope = ImportScope(ImportState(folder, proto.ir_version), {**opsets_of(proto), "": opset_of(proto)})

    def run(self) -> Graph:
        try:
            return self._imported()
        except UnsupportedError:
            raise
        except ModelError as error:
            clash = size_clash(real_inputs(self.graph), self.shapes)
            if clash:
                raise InputError(clash) from error
            raise

    def _imported(self) -> Graph:
        names, texts = [value.name for value in self.graph.output], text_initializer_nodes(self.graph)
        steps, self.scope.needed = needed_nodes([*texts, *self.graph.node], names)
        current_budget().count_nodes(len(steps))
        self.scope.refuse_unsupported(
            s for s in steps if not host.has_host_function(s.proto.op_type, domain_of(s.proto))
        )
        declared = real_inputs(self.graph)
        inputs = list(read_inputs(declared, self.shapes))
        brief = [v.name for v in declared if v.type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16]
        self.scope.source.in_float.update({"bfloat16": name for name in brief[:1]})
        for tensor in inputs:
            known = self.contents.get(tensor.name or "")
            self.scope.define(tensor.name or "", tensor if known is None else input_as_constant(tensor, known), "")
        inputs = [t for t in inputs if t.name not in self.contents]
        numbers = self.scope.needed.difference(node.name for node in texts)
        self.scope.define_all(self.scope.initializers(self.graph, numbers), "")
        partitioner = Partitioner(self.scope, inputs)
        for step in steps:
            partitioner.add(step)
        outputs, partition = partitioner.boundary_and_partition(self.graph.output)
        # An input without elements becomes a constant for the nodes that read it; as an output it stays the input.
        outputs |= {t.name: t for t in inputs if t.name in outputs}
        graph = replace(build_graph(outputs, inputs, self.graph.name or "model"), host_partition=partition)
        if not any(v.dtype == "float64" and (graph.consumers[v.name] or v.name in graph.producers) for v in (
            *graph.inputs, *(node.output for node in graph.nodes)
        )):
            self.scope.source.in_float.pop("float64", None)  # only the host reads them
        layers = ungrouped_layers(partition.graph) if partition else []
        if partition and layers:
            said = f"{len(layers)} convolutions and products run on the host, after node {partition.node!r}"
            said = f"{said}: {partition.reason}"
            warnings.warn(said, RuntimeWarning, stacklevel=2)
        if self.scope.source.in_float:
            listed = ", ".join(f"{dtype} ({name!r} ...)" for dtype, name in self.scope.source.in_float.items())
            warnings.warn(f"tensors of {listed} are computed in fp32", RuntimeWarning, stacklevel=2)
        return graph


__all__ = ["UNROLLED_NODES", "declared_inputs", "import_onnx"]
