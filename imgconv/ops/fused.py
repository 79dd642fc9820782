"""Convolutions and products fused by onnxruntime's optimizer with an activation, a transposition or another layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from imgconv.ops.activation import ACTIVATIONS
from imgconv.ops.convolution import conv
from imgconv.ops.pooling import max_pool
from imgconv.ops.product import gemm
from imgconv.ops.registry import FLOATS, MICROSOFT, Call, Signature, operator
from imgconv.tensor import Tensor

WINDOW = ("auto_pad", "dilations", "kernel_shape", "pads", "strides")
_CONVOLUTION = {"X": "T", "W": "T", "B": "T?"}
_TYPES = {"T": FLOATS}
_ACTIVATED = (*WINDOW, "group", "activation", "activation_params")
# By name: its number of parameters, and the function of x and the parameters.
_ACTIVATIONS: Mapping[str, tuple[int, Callable[..., Tensor]]] = {
    **{name: (len(parameters), function) for name, (parameters, function) in ACTIVATIONS.items()},
    "Sigmoid": (0, lambda x: x.sigmoid()),
    "Tanh": (0, lambda x: x.tanh()),
    "Clip": (2, lambda x, low, high: x.clip(low, high)),
}


@operator("FusedConv", domain=MICROSOFT, signature=Signature({**_CONVOLUTION, "Z": "T?"}, _TYPES, _ACTIVATED))
def fused_conv(call: Call) -> Tensor:
    """activation(Conv(X, W, B) + Z)."""
    return _with_addend_and_activation(call, conv(call), call.optional(3))


@operator("NhwcFusedConv", domain=MICROSOFT, signature=Signature({**_CONVOLUTION, "Z": "T?"}, _TYPES, _ACTIVATED))
def nhwc_fused_conv(call: Call) -> Tensor:
    """FusedConv of X and Z with the channels last; W (O, C/group, kernel...) as in Conv."""
    z = call.optional(3)
    made = conv(call.with_inputs(channels_first(call.input(0)), *call.inputs[1:3]))
    return channels_last(_with_addend_and_activation(call, made, None if z is None else channels_first(z)))


@operator("NhwcConv", domain=MICROSOFT, signature=Signature(_CONVOLUTION, _TYPES, (*WINDOW, "group")))
def nhwc_conv(call: Call) -> Tensor:
    """Conv of X (N, spatial..., C) with W (O, kernel..., C/group), to (N, spatial..., O).

    W has its channels last in what onnxruntime's tools write and its CUDA kernel reads, against the operator's text.
    """
    x, weight = channels_first(call.input(0)), channels_first(call.input(1))
    return channels_last(conv(call.with_inputs(x, weight, *call.inputs[2:])))


@operator("NhwcMaxPool", domain=MICROSOFT, signature=Signature(
    {"x": "T"}, {"T": ("int8", "uint8", *FLOATS)}, (*WINDOW, "ceil_mode")))
def nhwc_max_pool(call: Call) -> Tensor:
    """MaxPool of x with the channels last."""
    return channels_last(max_pool(call.with_inputs(channels_first(call.input(0))))[0])


@operator("FusedGemm", domain=MICROSOFT, signature=Signature({"A": "T", "B": "T", "C": "T?"}, _TYPES, (
    "transA", "transB", "alpha", "beta", "activation", "activation_alpha", "activation_beta", "activation_gamma")))
def fused_gemm(call: Call) -> Tensor:
    """activation(Gemm(A, B, C))."""
    name = str(call.attribute("activation", ""))
    parameters = [call.attributes.get(f"activation_{each}") for each in ("alpha", "beta", "gamma")]
    if name == "Clip":
        raise call.unsupported("activation Clip")
    return _apply_activation(call, gemm(call), name, [float(p) for p in parameters if p is not None])


@operator("FusedMatMul", "TransposeMatMul", domain=MICROSOFT, signature=Signature(
    {"A": "T", "B": "T"}, _TYPES, ("alpha", "transA", "transB", "transBatchA", "transBatchB")))
def fused_matmul(call: Call) -> Tensor:
    """alpha * A' B'; see `_transposed_operand` for A' and B'."""
    a, b = call.input(0), call.input(1)
    if not a.rank or not b.rank:
        raise call.wrong("a scalar has no matrix product")
    product = _transposed_operand(call, a, "A").matmul(_transposed_operand(call, b, "B"))
    alpha = call.number("alpha", 1.0)
    return product if alpha == 1 else product * alpha


def channels_first(x: Tensor) -> Tensor:
    """(N, spatial..., C) as (N, C, spatial...)."""
    return x.transpose(0, x.rank - 1, *range(1, x.rank - 1)) if x.rank > 2 else x


def channels_last(x: Tensor) -> Tensor:
    """(N, C, spatial...) as (N, spatial..., C)."""
    return x.transpose(0, *range(2, x.rank), 1) if x.rank > 2 else x


def _transposed_operand(call: Call, x: Tensor, name: str) -> Tensor:
    """The operand; transBatch moves the first axis before the last one, trans then swaps the last two. No vectors."""
    order = list(range(x.rank))
    if call.flag(f"transBatch{name}"):
        if x.rank < 3:
            raise call.unsupported(f"transBatch{name} of rank {x.rank}")
        order = [*order[1:-1], 0, order[-1]]
    if call.flag(f"trans{name}") and x.rank > 1:
        order[-2:] = order[:-3:-1]
    return x if order == sorted(order) else x.transpose(*order)


def _with_addend_and_activation(call: Call, made: Tensor, z: Tensor | None) -> Tensor:
    if z is not None and z.shape != made.shape:
        raise call.wrong(f"Z of shape {list(z.shape)} for a convolution of {list(made.shape)}")
    parameters = [float(p) for p in call.attribute("activation_params", None) or ()]
    return _apply_activation(call, made if z is None else made + z, str(call.attribute("activation", "")), parameters)


def _apply_activation(call: Call, x: Tensor, name: str, parameters: Sequence[float]) -> Tensor:
    """The activation of x. Raises UnsupportedError if its name, or the number of its parameters, is another."""
    if not name:
        return x
    count, function = _ACTIVATIONS.get(name, (-1, None))
    if function is None or count != len(parameters):
        raise call.unsupported(f"activation {name} with {len(parameters)} parameters")
    return function(x, *parameters)
