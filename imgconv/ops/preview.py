"""Operators that ONNX had as a preview before opset 10, which converters of CoreML and Caffe models wrote."""

from __future__ import annotations

import numpy

from imgconv.ops.registry import FLOATS, Call, Signature, operator
from imgconv.tensor import Tensor

_TYPES = {"T": FLOATS}
_ALPHA_BETA = Signature({"X": "T"}, _TYPES, ("alpha", "beta"))


@operator("ImageScaler", signature=Signature({"input": "T"}, _TYPES, ("bias", "scale")))
def image_scaler(call: Call) -> Tensor:
    """x * scale + bias, with a bias for each channel of (N, C, H, W)."""
    x, bias = call.input(0), numpy.asarray(call.attribute("bias", ()), numpy.float32)
    if x.rank != 4 or bias.shape != (x.shape[1],):
        raise call.wrong(f"{bias.size} biases for {list(x.shape)}")
    return x * call.number("scale", 1.0) + Tensor.constant(bias.reshape(-1, 1, 1))


@operator("Affine", signature=_ALPHA_BETA)
def affine(call: Call) -> Tensor:
    """alpha*x + beta."""
    _needs(call, "alpha", "beta")
    return call.input(0) * call.number("alpha", 1.0) + call.number("beta", 0.0)


@operator("ScaledTanh", signature=_ALPHA_BETA)
def scaled_tanh(call: Call) -> Tensor:
    """alpha * tanh(beta*x)."""
    _needs(call, "alpha", "beta")
    return (call.input(0) * call.number("beta", 1.0)).tanh() * call.number("alpha", 1.0)


@operator("ParametricSoftplus", signature=_ALPHA_BETA)
def parametric_softplus(call: Call) -> Tensor:
    """alpha * log(1 + exp(beta*x)), in a form that never overflows."""
    _needs(call, "alpha", "beta")
    x = call.input(0) * call.number("beta", 1.0)
    return (x.maximum(0) + (-x.apply("absolute")).exp().apply("log1p")) * call.number("alpha", 1.0)


@operator("Crop", signature=Signature({"input": "T"}, _TYPES, ("border", "scale")))
def crop(call: Call) -> Tensor:
    """(N, C, H, W) without border (left, top, right, bottom), or `scale` (height, width) of it from left and top on."""
    x, border, size = call.input(0), call.attribute("border", None), call.attribute("scale", None)
    if x.rank != 4 or len(border or ()) != 4 or (size is not None and len(size) != 2):
        raise call.wrong(f"border {border} and scale {size} of {list(x.shape)}")
    left, top, right, bottom = border
    bottom, right = (x.shape[2] - bottom, x.shape[3] - right) if size is None else (top + size[0], left + size[1])
    if not (0 <= top < bottom <= x.shape[2] and 0 <= left < right <= x.shape[3]):
        raise call.wrong(f"border {border} and scale {size} leave nothing of {list(x.shape)}, or are outside of it")
    return x.slice(2, top, bottom).slice(3, left, right)


def _needs(call: Call, *names: str) -> None:
    """Raises UnsupportedError if an attribute is absent: ONNX gave these no defaults."""
    for name in names:
        if name not in call.attributes:
            raise call.unsupported(f"no attribute {name}")
