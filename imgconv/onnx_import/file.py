"""Reads ONNX files, converts them to an opset that imgconv supports, and inlines the functions that they define."""

from __future__ import annotations

from pathlib import Path

import google.protobuf.message  # type: ignore[import-untyped]
import onnx
import onnx.checker
import onnx.defs
import onnx.inliner
import onnx.version_converter

from imgconv.errors import ModelError, UnsupportedError
from imgconv.files.container import MAGIC
from imgconv.files.disk import check_regular
from imgconv.onnx_import.schema import OWN_DOMAINS

OLDEST_OPSET = 7


def read_file(path: Path) -> onnx.ModelProto:
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


def prepared(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model in an opset that imgconv supports, with its own functions inlined."""
    if not proto.HasField("graph") or not proto.graph.output:
        raise ModelError("this is not an ONNX model, or a truncated one: it has no graph with outputs")
    if opset_of(proto) < OLDEST_OPSET:
        proto = _modernised(proto)
    if not proto.functions:
        return proto
    try:
        return onnx.inliner.inline_local_functions(proto)
    except (RuntimeError, ValueError, onnx.checker.ValidationError) as error:
        raise UnsupportedError(f"its functions cannot be put in place of their calls: {said(error)}") from error


def _modernised(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A model with an opset before OLDEST_OPSET, converted by the onnx package."""
    old = f"opset {opset_of(proto)}; imgconv reads {OLDEST_OPSET} and newer, and onnx cannot convert it"
    for node in proto.graph.node:
        if node.op_type == "PRelu":
            # The slope is along axis 1 before opset 7, along the last since; onnx 1.23 converts it without a check.
            raise UnsupportedError(f"{old}: PRelu has another meaning since opset 7", node=node.name)
    try:
        return onnx.version_converter.convert_version(proto, OLDEST_OPSET)
    except (RuntimeError, ValueError) as error:
        raise UnsupportedError(f"{old}: {said(error)}") from error


def said(error: Exception) -> str:
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
            f"opset {version}; the onnx package that is installed knows {newest} and older: update it"
        )
    return version


def opsets_of(proto: onnx.ModelProto) -> dict[str, int]:
    """The version of each domain that the model imports; that of ONNX itself is ""."""
    entries = ((entry.domain, entry.version) for entry in proto.opset_import)
    return {"" if domain in OWN_DOMAINS else domain: int(version) for domain, version in entries}
