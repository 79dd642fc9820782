"""ONNX file -> Graph."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Union

import onnx

from imgconv.errors import ModelError
from imgconv.graph.nodes import Graph
from imgconv.onnx_import.file import opset_of, prepared, read_file
from imgconv.onnx_import.inputs import Shapes, declaration, read_inputs, real_inputs, with_content
from imgconv.onnx_import.scope import UNROLLED_NODES, Scope, Source, needed_steps
from imgconv.tensor import build_graph

Model = Union[str, "os.PathLike[str]", onnx.ModelProto]


def import_onnx(model: Model, shapes: Shapes | None = None, contents: Mapping[str, Any] | None = None) -> Graph:
    """The Graph of an ONNX file or ModelProto.

    shapes gives sizes to symbolic dimensions: by input, ``{"images": (1, 3, 224, 224)}``, or by the dimension's name,
    ``{"height": 224}``. A first dimension (the batch) that is not given is 1; every other one must be given.
    Dimensions of one name have one size; those without a name, or called "?", "-1" or "None", each their own.
    An initializer that is also listed as an input is a constant. What depends on no input is computed here.
    Loops are unrolled, to UNROLLED_NODES nodes at most.
    contents: arrays for inputs whose content becomes part of the Graph, which then has no such input.

    Raises ModelError for a file that is missing, broken or no valid ONNX, UnsupportedError for what imgconv does not
    do, with every unsupported operator at once, and InputError if `shapes` does not fit the model; ContentError and
    ShapeError are those that `contents` and `shapes` mend.
    """
    file = "" if isinstance(model, onnx.ModelProto) else os.fspath(model)
    with _naming(file):
        proto = model if isinstance(model, onnx.ModelProto) else read_file(Path(file))
        return _Importer(prepared(proto), Path(file).parent if file else None, shapes or {}, contents or {}).run()


def declared_inputs(model: Model) -> dict[str, tuple[str, list[int | str] | None]]:
    """dtype and dimensions of every input of an ONNX file or ModelProto, before any symbolic dimension has a size.

    A dimension is a size, a name, or "" if it has neither; None stands for all if the file gives no shape.
    Raises ModelError and UnsupportedError as `import_onnx` does.
    """
    file = "" if isinstance(model, onnx.ModelProto) else os.fspath(model)
    with _naming(file):
        proto = model if isinstance(model, onnx.ModelProto) else read_file(Path(file))
        return {value.name: declaration(value) for value in real_inputs(prepared(proto).graph)}


@contextlib.contextmanager
def _naming(file: str) -> Iterator[None]:
    """Errors of the model raised inside name the file."""
    try:
        yield
    except ModelError as error:
        error.file = error.file or file
        raise


class _Importer:
    """One import: the model and what was given with it."""

    def __init__(
        self, proto: onnx.ModelProto, folder: Path | None, shapes: Shapes, contents: Mapping[str, Any]
    ) -> None:
        self.graph = proto.graph
        self.shapes = shapes
        self.contents = contents
        self.scope = Scope(Source(folder, proto.ir_version), opset_of(proto))

    def run(self) -> Graph:
        names = [value.name for value in self.graph.output]
        steps, needed = needed_steps(self.graph.node, names)
        self.scope.refuse_unsupported(steps)
        inputs = list(read_inputs(real_inputs(self.graph), self.shapes))
        for tensor in inputs:
            known = self.contents.get(tensor.name or "")
            self.scope.define(tensor.name or "", tensor if known is None else with_content(tensor, known), "")
        inputs = [t for t in inputs if t.name not in self.contents]
        self.scope.define_all(self.scope.initializers(self.graph, needed), "")
        # An input without elements is a constant to the nodes that read it; as an output it is the input all the same.
        outputs = dict(zip(names, self.scope.run(steps, needed, names)))
        outputs |= {t.name: t for t in inputs if t.name in outputs}
        return build_graph(outputs, inputs, self.graph.name or "model")


__all__ = ["UNROLLED_NODES", "declared_inputs", "import_onnx"]
