"""Operators of ai.onnx.ml that occur before or after a network: scaling, selection, and the names of classes."""

from __future__ import annotations

import numpy

from imgconv.ops.indexing import gather_, resolve_negative_indices
from imgconv.ops.registry import Call, Signature, operator
from imgconv.tensor import Tensor

DOMAIN = "ai.onnx.ml"
_NUMBERS = ("float32", "float64", "int64", "int32")


@operator("Scaler", domain=DOMAIN, signature=Signature({"X": "T"}, {"T": _NUMBERS}, ("offset", "scale")))
def scaler(call: Call) -> Tensor:
    """(x - offset) * scale as float32; one number, or one for each position of the last axis."""
    x = call.input(0)
    offset, scale = (numpy.asarray(call.attribute(name, ()), numpy.float32) for name in ("offset", "scale"))
    if offset.size != scale.size or offset.size not in (1, x.shape[-1] if x.rank else 1):
        raise call.wrong(f"{offset.size} offsets and {scale.size} scales for {list(x.shape)}")
    return (x.cast("float32") - Tensor.constant(offset)) * Tensor.constant(scale)


@operator("ArrayFeatureExtractor", domain=DOMAIN, signature=Signature({"X": "T", "Y": "int64"}, {"T": _NUMBERS}))
def array_feature_extractor(call: Call) -> Tensor:
    """The positions Y of the last axis of X; (1, count) if X is a vector."""
    x, index = call.input(0), call.input(1)
    if not x.rank or not index.size:
        raise call.wrong(f"{list(index.shape)} positions of {list(x.shape)}")
    if index.is_constant and numpy.any(index.numpy() < 0):
        raise call.wrong("a position is negative")
    resolve_negative_indices(call, index, x.shape[-1])
    whole = x.reshape(1, -1) if x.rank == 1 else x
    return gather_(call.with_attributes({"axis": -1}).with_inputs(whole, index.reshape(-1)))


@operator("ZipMap", domain=DOMAIN, signature=Signature(
    {"X": "float32"}, {}, ("classlabels_int64s", "classlabels_strings")))
def zip_map(call: Call) -> Tensor:
    """X itself, (N, classes) or (classes): the values that ONNX puts into a dictionary by class for each row."""
    x = call.input(0)
    names = [call.attributes[key] for key in ("classlabels_int64s", "classlabels_strings") if key in call.attributes]
    if len(names) != 1 or x.rank not in (1, 2) or len(names[0]) != x.shape[-1]:
        raise call.wrong(f"needs a name for each of the {list(x.shape)[-1:]} classes, as strings or as integers")
    return x
