"""Operators that ONNX had as a preview before opset 10. Converters of CoreML and Caffe models wrote them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy

from imgconv.ops.activation import softplus
from imgconv.ops.registry import FLOATS, Call, Signature, operator
from imgconv.tensor import Tensor

_TYPES = {"T": FLOATS}
_FUNCTIONS: Mapping[str, Callable[[Tensor, float, float], Tensor]] = {
    "Affine": lambda x, alpha, beta: x * alpha + beta,
    "ScaledTanh": lambda x, alpha, beta: (x * beta).tanh() * alpha,
    "ParametricSoftplus": lambda x, alpha, beta: softplus(x * beta) * alpha,
}


@operator("ImageScaler", signature=Signature({"input": "T"}, _TYPES, ("bias", "scale")))
def image_scaler(call: Call) -> Tensor:
    """x * scale + bias, with a bias for each channel of (N, C, H, W)."""
    x, bias = call.input(0), numpy.asarray(call.attribute("bias", ()), numpy.float32)
    if x.rank != 4 or bias.shape != (x.shape[1],):
        raise call.wrong(f"{bias.size} biases for {list(x.shape)}")
    return x * call.number("scale", 1.0) + Tensor.constant(bias.reshape(-1, 1, 1))


@operator(*_FUNCTIONS, signature=Signature({"X": "T"}, _TYPES, ("alpha", "beta")))
def parametric_function(call: Call) -> Tensor:
    """A function of x, alpha and beta, which ONNX gave no defaults."""
    absent = [name for name in ("alpha", "beta") if name not in call.attributes]
    if absent:
        raise call.unsupported(f"no attribute {absent[0]}")
    return _FUNCTIONS[call.op_type](call.input(0), call.number("alpha", 1.0), call.number("beta", 0.0))


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
