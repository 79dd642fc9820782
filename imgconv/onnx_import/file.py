"""Reads ONNX files, converts them to an opset that imgconv supports, and inlines the functions that they define."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import google.protobuf.message  # type: ignore[import-untyped]
import onnx
import onnx.checker
import onnx.defs
import onnx.inliner
import onnx.shape_inference
import onnx.version_converter

from imgconv.errors import ModelError, UnsupportedError
from imgconv.files.container import MAGIC
from imgconv.files.disk import check_regular
from imgconv.limits import current_budget
from imgconv.onnx_import.schema import OWN_DOMAINS

OLDEST_OPSET = 7
LFS_POINTER = b"version https://git-lfs.github.com/"  # a repository has it in place of a large file
# What the onnx package raises for models that it cannot convert or put functions into.
FAILURES = (
    RuntimeError, TypeError, ValueError, onnx.checker.ValidationError, onnx.shape_inference.InferenceError,
    onnx.version_converter.ConvertError,
)


def read_file(path: Path) -> onnx.ModelProto:
    try:
        check_regular(path)
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(f"cannot read the file: {error.strerror or error}") from error
    if content.startswith(MAGIC):
        raise ModelError("this is a compiled file: pass the ONNX file from which it was compiled")
    return parse_model(content)


def parse_model(content: bytes) -> onnx.ModelProto:
    """The model of an ONNX file's content."""
    if content.startswith(MAGIC):
        raise ModelError("these are the bytes of a compiled file: pass its path instead")
    if content.startswith(LFS_POINTER):
        raise ModelError("this is a Git LFS pointer, not the file itself: fetch the file with `git lfs pull`")
    try:
        return onnx.load_model_from_string(content)
    except google.protobuf.message.DecodeError as error:
        raise ModelError("this is not an ONNX file, or a truncated one: the protobuf data cannot be decoded") from error


def converted_to_supported_opset(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model in an opset that imgconv supports, with its own functions inlined."""
    if not proto.HasField("graph") or not proto.graph.output:
        raise ModelError("this is not an ONNX model, or a truncated one: it has no graph with outputs")
    _check_names(proto)
    if opset_of(proto) < OLDEST_OPSET:
        proto = _with_newer_opset(proto)
    if not proto.functions:
        return proto
    current_budget().check_nodes(_nodes_after_inlining(proto))
    try:
        return onnx.inliner.inline_local_functions(proto)
    except FAILURES as error:
        raise UnsupportedError(f"its functions cannot be inlined: {one_line_message(error)}") from error


def _check_names(proto: onnx.ModelProto) -> None:
    """Raises ModelError for a name that is no UTF-8: protobuf gives it as bytes."""
    graph = proto.graph
    found = [each.name for each in (*graph.input, *graph.output, *graph.initializer)]
    for node in (*_all_nodes(graph.node), *_all_nodes(n for f in proto.functions for n in f.node)):
        found += (node.name, node.op_type, node.domain, *node.input, *node.output, *(a.name for a in node.attribute))
    wrong = next((name for name in found if not isinstance(name, str)), None)
    if wrong is not None:
        raise ModelError(f"the name {wrong!r} is not valid UTF-8")


def _nodes_after_inlining(proto: onnx.ModelProto) -> int:
    """Returns the number of nodes with function calls expanded. Raises ModelError if a function calls itself."""
    functions = {(f.domain, f.name, f.overload): list(_all_nodes(f.node)) for f in proto.functions}
    counts: dict[tuple[str, str, str], int] = {}
    waiting: list[tuple[str, str, str]] = list(functions)
    entered: set[tuple[str, str, str]] = set()
    while waiting:
        key = waiting[-1]
        inner = {each for each in map(_function_id, functions[key]) if each in functions}
        missing = [each for each in inner if each not in counts]
        if key in counts or not missing:
            counts.setdefault(key, sum(counts.get(_function_id(node), 1) for node in functions[key]))
            waiting.pop()
        elif key in entered and entered.intersection(missing):
            raise ModelError(f"the function {key[1]!r} calls itself")
        else:
            entered.add(key)
            waiting += missing
    return sum(counts.get(_function_id(node), 1) for node in _all_nodes(proto.graph.node))


def _function_id(node: onnx.NodeProto) -> tuple[str, str, str]:
    return node.domain, node.op_type, node.overload


def _all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes and those in their bodies."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [inner for a in node.attribute for g in (a.g, *a.graphs) for inner in g.node]


def _with_newer_opset(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A model with an opset before OLDEST_OPSET, converted by the onnx package."""
    old = f"opset {opset_of(proto)}; imgconv reads {OLDEST_OPSET} and newer, and onnx cannot convert it"
    for node in proto.graph.node:
        if node.op_type == "PRelu":
            # The slope is along axis 1 before opset 7, along the last since; onnx 1.23 converts it without a check.
            raise UnsupportedError(f"{old}: PRelu has another meaning since opset 7", node=node.name)
    try:
        return onnx.version_converter.convert_version(proto, OLDEST_OPSET)
    except FAILURES as error:
        raise UnsupportedError(f"{old}: {one_line_message(error)}") from error


def one_line_message(error: Exception) -> str:
    """The onnx package's message on one line."""
    return " ".join(str(error).split())


def opset_of(proto: onnx.ModelProto) -> int:
    """The opset of ONNX's own operators. The newest one if the model imports other domains only, as in onnxruntime."""
    newest = onnx.defs.onnx_opset_version()
    if not proto.opset_import:
        raise ModelError("the model does not say which ONNX opset it uses")
    version = int(opsets_of(proto).get("", newest))
    if version > newest:
        raise UnsupportedError(
            f"opset {version}; the installed onnx package supports opsets up to {newest}: update it"
        )
    return version


def opsets_of(proto: onnx.ModelProto) -> dict[str, int]:
    """The version of each domain that the model imports; that of ONNX itself is ""."""
    entries = ((entry.domain, entry.version) for entry in proto.opset_import)
    return {"" if domain in OWN_DOMAINS else domain: int(version) for domain, version in entries}
