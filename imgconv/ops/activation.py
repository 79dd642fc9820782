"""Activation functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf, pi, sqrt

from imgconv.ops.registry import FLOATS, MICROSOFT, Call, Signature, operator
from imgconv.ops.scaled_sum import clamped
from imgconv.tensor import Tensor, less, where


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)), in a form that never overflows."""
    return x.maximum(0) + (-x.apply("absolute")).exp().apply("log1p")


# By op type: ONNX's defaults of its parameters, and the function of x and the parameters.
ACTIVATIONS: Mapping[str, tuple[Mapping[str, float], Callable[..., Tensor]]] = {
    "Relu": ({}, lambda x: x.relu()),
    "LeakyRelu": ({"alpha": 0.01}, lambda x, alpha: x.leaky_relu(alpha)),
    "ThresholdedRelu": ({"alpha": 1.0}, lambda x, alpha: where(less(alpha, x), x, 0.0)),
    "Elu": ({"alpha": 1.0}, lambda x, alpha: x.elu(alpha)),
    "Selu": (
        {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875},
        lambda x, alpha, gamma: x.elu(alpha) * gamma,
    ),
    "HardSigmoid": ({"alpha": 0.2, "beta": 0.5}, lambda x, alpha, beta: (x * alpha + beta).clip(0, 1)),
    "HardSwish": ({}, lambda x: x.hardswish()),
    "Swish": ({"alpha": 1.0}, lambda x, alpha: x * (x if alpha == 1 else x * alpha).sigmoid()),
    "Softplus": ({}, softplus),
    "Softsign": ({}, lambda x: x / (x.apply("absolute") + 1)),
    "Mish": ({}, lambda x: x * softplus(x).tanh()),  # Misra, arXiv:1908.08681
}


@operator(*(name for name in ACTIVATIONS if name != "ThresholdedRelu"))
@operator("ThresholdedRelu", signature=Signature({"X": "T"}, {"T": FLOATS}, ("alpha",)))
def activation(call: Call) -> Tensor:
    """A function of x and the parameters; ONNX had ThresholdedRelu without a schema before opset 10."""
    parameters, function = ACTIVATIONS[call.op_type]
    x = call.input(0)
    made = function(x, *(call.number(name, default) for name, default in parameters.items()))
    return clamped(x, made, 0, inf) if call.op_type == "Relu" else made


@operator("PRelu")
def prelu(call: Call) -> Tensor:
    """x if x >= 0, else slope*x. The slope broadcasts to x's shape; x does not broadcast to the slope's."""
    x, slope = call.input(0), call.input(1)
    call.refuse_narrow_integers(x)
    result = x.leaky_relu(slope)
    if result.shape != x.shape:
        raise call.wrong(f"a slope of shape {list(slope.shape)} does not broadcast to {list(x.shape)}")
    return result


@operator("Shrink")
def shrink(call: Call) -> Tensor:
    """x + bias if x < -lambd, x - bias if x > lambd, else 0."""
    x = call.input(0)
    call.refuse_integers(x)
    lambd, bias = call.number("lambd", 0.5), call.number("bias", 0.0)
    return where(less(x, -lambd), x + bias, where(less(lambd, x), x - bias, x * 0.0))


@operator("Celu")
def celu(call: Call) -> Tensor:
    """max(x, 0) + min(alpha*(exp(x/alpha) - 1), 0)."""
    x, alpha = call.input(0), call.number("alpha", 1.0)
    if alpha and not 2.0**-100 <= abs(alpha) <= 2.0**100:
        raise call.unsupported(f"alpha {alpha}: its inverse is not a normal float")
    return where(less(x, 0), (x * (1 / alpha)).apply("expm1") * alpha, x)


@operator("Gelu")
def gelu(call: Call) -> Tensor:
    """x/2 * (1 + erf(x / sqrt(2))), or the tanh approximation of it; Hendrycks and Gimpel, arXiv:1606.08415."""
    exact = call.choice("approximate", "none", ("none", "tanh")) == "none"
    return _gelu(call.input(0)) if exact else _fast_gelu(call.input(0))


@operator("Gelu", "BiasGelu", domain=MICROSOFT, signature=Signature({"X": "T", "B": "T?"}, {"T": FLOATS}))
def bias_gelu(call: Call) -> Tensor:
    """Gelu of x + bias; the bias is along the last axis."""
    return _gelu(_with_bias(call))


@operator("FastGelu", domain=MICROSOFT, signature=Signature({"X": "T", "bias": "T?"}, {"T": FLOATS}))
def fast_gelu(call: Call) -> Tensor:
    """The tanh approximation of Gelu, of x + bias; the bias is along the last axis."""
    return _fast_gelu(_with_bias(call))


@operator("QuickGelu", domain=MICROSOFT, signature=Signature({"X": "T"}, {"T": FLOATS}, ("alpha",)))
def quick_gelu(call: Call) -> Tensor:
    """x * sigmoid(alpha*x)."""
    x = call.input(0)
    return x * (x * call.number("alpha", 1.702)).sigmoid()


def _with_bias(call: Call) -> Tensor:
    x, bias = call.input(0), call.optional(1)
    if bias is not None and bias.shape != x.shape[-1:]:
        raise call.wrong(f"a bias of shape {list(bias.shape)} for {list(x.shape)}")
    return x if bias is None else x + bias


def _gelu(x: Tensor) -> Tensor:
    return x * 0.5 * ((x * sqrt(0.5)).apply("erf") + 1)


def _fast_gelu(x: Tensor) -> Tensor:
    return x * 0.5 * (((x + x * x * x * 0.044715) * sqrt(2 / pi)).tanh() + 1)
