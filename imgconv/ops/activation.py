"""Activation functions."""

from __future__ import annotations

from math import pi, sqrt

from imgconv.ops.registry import FLOATS, MICROSOFT, Call, Signature, operator
from imgconv.tensor import Tensor, less, where


@operator("Relu")
def relu(call: Call) -> Tensor:
    """max(x, 0)."""
    return call.input(0).relu()


@operator("LeakyRelu")
def leaky_relu(call: Call) -> Tensor:
    """x if x >= 0, else alpha*x."""
    return call.input(0).leaky_relu(call.number("alpha", 0.01))


@operator("PRelu")
def prelu(call: Call) -> Tensor:
    """x if x >= 0, else slope*x. The slope broadcasts to x's shape; x does not broadcast to the slope's."""
    x, slope = call.input(0), call.input(1)
    call.computes(x)
    result = x.leaky_relu(slope)
    if result.shape != x.shape:
        raise call.wrong(f"a slope of shape {list(slope.shape)} does not broadcast to {list(x.shape)}")
    return result


@operator("ThresholdedRelu", signature=Signature({"X": "T"}, {"T": FLOATS}, ("alpha",)))
def thresholded_relu(call: Call) -> Tensor:
    """x if x > alpha, else 0."""
    x = call.input(0)
    return where(less(call.number("alpha", 1.0), x), x, 0.0)


@operator("Shrink")
def shrink(call: Call) -> Tensor:
    """x + bias if x < -lambd, x - bias if x > lambd, else 0."""
    x = call.input(0)
    call.needs_floats(x)
    lambd, bias = call.number("lambd", 0.5), call.number("bias", 0.0)
    return where(less(x, -lambd), x + bias, where(less(lambd, x), x - bias, x * 0.0))


@operator("Elu")
def elu(call: Call) -> Tensor:
    """x if x >= 0, else alpha*(exp(x) - 1)."""
    return call.input(0).elu(call.number("alpha", 1.0))


@operator("Selu")
def selu(call: Call) -> Tensor:
    """gamma * elu(x, alpha)."""
    alpha = call.number("alpha", 1.67326319217681884765625)
    return call.input(0).elu(alpha) * call.number("gamma", 1.05070102214813232421875)


@operator("Celu")
def celu(call: Call) -> Tensor:
    """max(x, 0) + min(alpha*(exp(x/alpha) - 1), 0)."""
    x, alpha = call.input(0), call.number("alpha", 1.0)
    if alpha and not 2.0**-100 <= abs(alpha) <= 2.0**100:
        raise call.unsupported(f"alpha {alpha}: its inverse is no normal float")
    return where(less(x, 0), (x * (1 / alpha)).apply("expm1") * alpha, x)


@operator("HardSigmoid")
def hard_sigmoid(call: Call) -> Tensor:
    """clip(alpha*x + beta, 0, 1)."""
    return (call.input(0) * call.number("alpha", 0.2) + call.number("beta", 0.5)).clip(0, 1)


@operator("HardSwish")
def hard_swish(call: Call) -> Tensor:
    """x * clip(x/6 + 1/2, 0, 1)."""
    return call.input(0).hardswish()


@operator("Swish")
def swish(call: Call) -> Tensor:
    """x * sigmoid(alpha*x)."""
    x, alpha = call.input(0), call.number("alpha", 1.0)
    return x * (x if alpha == 1 else x * alpha).sigmoid()


@operator("Softplus")
def softplus(call: Call) -> Tensor:
    """log(1 + exp(x)), computed as max(x, 0) + log(1 + exp(-|x|)), which never overflows."""
    return _softplus(call.input(0))


@operator("Mish")
def mish(call: Call) -> Tensor:
    """x * tanh(softplus(x)); Misra, arXiv:1908.08681."""
    x = call.input(0)
    return x * _softplus(x).tanh()


@operator("Softsign")
def softsign(call: Call) -> Tensor:
    """x / (1 + |x|)."""
    x = call.input(0)
    return x / (x.apply("absolute") + 1)


@operator("Gelu")
def gelu(call: Call) -> Tensor:
    """x/2 * (1 + erf(x / sqrt(2))), or the tanh approximation of it; Hendrycks and Gimpel, arXiv:1606.08415."""
    exact = call.choice("approximate", "none", ("none", "tanh")) == "none"
    return _gelu(call.input(0)) if exact else _fast_gelu(call.input(0))


@operator("Gelu", "BiasGelu", domain=MICROSOFT, signature=Signature({"X": "T", "B": "T?"}, {"T": FLOATS}))
def bias_gelu(call: Call) -> Tensor:
    """Gelu of x + bias; the bias is along the last axis."""
    return _gelu(_biased(call))


@operator("FastGelu", domain=MICROSOFT, signature=Signature({"X": "T", "bias": "T?"}, {"T": FLOATS}))
def fast_gelu(call: Call) -> Tensor:
    """The tanh approximation of Gelu, of x + bias; the bias is along the last axis."""
    return _fast_gelu(_biased(call))


@operator("QuickGelu", domain=MICROSOFT, signature=Signature({"X": "T"}, {"T": FLOATS}, ("alpha",)))
def quick_gelu(call: Call) -> Tensor:
    """x * sigmoid(alpha*x)."""
    x = call.input(0)
    return x * (x * call.number("alpha", 1.702)).sigmoid()


def _biased(call: Call) -> Tensor:
    x, bias = call.input(0), call.optional(1)
    if bias is not None and bias.shape != x.shape[-1:]:
        raise call.wrong(f"a bias of shape {list(bias.shape)} for {list(x.shape)}")
    return x if bias is None else x + bias


def _gelu(x: Tensor) -> Tensor:
    return x * 0.5 * ((x * sqrt(0.5)).apply("erf") + 1)


def _fast_gelu(x: Tensor) -> Tensor:
    return x * 0.5 * (((x + x * x * x * 0.044715) * sqrt(2 / pi)).tanh() + 1)


def _softplus(x: Tensor) -> Tensor:
    return x.maximum(0) + (-x.apply("absolute")).exp().apply("log1p")
