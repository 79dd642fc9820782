"""Operators of com.microsoft on quantised tensors: each dequantises its inputs and quantises its result.

If a result lies exactly between two integers, the order of two steps matters. Add, Mul and AveragePool add the zero
point and then round, as in onnxruntime; the other operators round first.
"""

from __future__ import annotations

from dataclasses import replace

from imgconv.ops.fused import WINDOW, channels_first, channels_last
from imgconv.ops.pooling import average_pool, global_average_pool
from imgconv.ops.quantization import dequantize_linear, qlinear_conv, quantised, quantize_linear
from imgconv.ops.reduction import softmax
from imgconv.ops.registry import MICROSOFT, Call, Signature, operator
from imgconv.tensor import Tensor, concatenate, where

_BYTES = {"T": ("uint8", "int8")}
_WORDS = ("uint8", "int8", "uint16", "int16")
_FLOAT = "float32"
_BINARY = Signature({
    "A": "T", "A_scale": _FLOAT, "A_zero_point": "T?", "B": "T", "B_scale": _FLOAT, "B_zero_point": "T?",
    "C_scale": _FLOAT, "C_zero_point": "T?"}, _BYTES)
_X = {"X": "T", "X_scale": _FLOAT, "X_zero_point": "T?", "Y_scale": _FLOAT, "Y_zero_point": "T?"}


@operator("QLinearAdd", "QLinearMul", domain=MICROSOFT, signature=_BINARY)
def qlinear_binary(call: Call) -> Tensor:
    """C = A + B or A * B."""
    if call.op_type == "QLinearMul":
        a, b = _minus_zero_point(call, 0), _minus_zero_point(call, 3)
        factor = _scalar(call, 1) * _scalar(call, 4) / _scalar(call, 6)
        return _quantized_result(call, a * b * factor, 7, rounds_last=True)
    a, b = (_minus_zero_point(call, n) * (_scalar(call, n + 1) / _scalar(call, 6)) for n in (0, 3))
    return _quantized_result(call, a + b, 7, rounds_last=True)


@operator("QLinearSigmoid", domain=MICROSOFT, signature=Signature(_X, _BYTES))
def qlinear_sigmoid(call: Call) -> Tensor:
    """Y = 1 / (1 + exp(-X))."""
    return _quantized_result(call, _dequantized(call, 0).sigmoid() / _scalar(call, 3), 4)


@operator("QLinearLeakyRelu", domain=MICROSOFT, signature=Signature(_X, _BYTES, ("alpha",)))
def qlinear_leaky_relu(call: Call) -> Tensor:
    """Y = X if X >= 0, else alpha*X."""
    return _quantized_result(call, _dequantized(call, 0).leaky_relu(call.number("alpha", 0.01)) / _scalar(call, 3), 4)


@operator("QLinearAveragePool", domain=MICROSOFT, signature=Signature(
    _X, _BYTES, (*WINDOW, "ceil_mode", "channels_last", "count_include_pad")))
def qlinear_average_pool(call: Call) -> Tensor:
    """AveragePool; padding is the number 0, not the byte 0."""
    last = call.flag("channels_last")
    x = channels_first(_minus_zero_point(call, 0)) if last else _minus_zero_point(call, 0)
    made = average_pool(call.with_inputs(x)) * (_scalar(call, 1) / _scalar(call, 3))
    return _quantized_result(call, channels_last(made) if last else made, 4, rounds_last=True)


@operator("QLinearGlobalAveragePool", domain=MICROSOFT, signature=Signature(_X, _BYTES, ("channels_last",)))
def qlinear_global_average_pool(call: Call) -> Tensor:
    """The mean over all spatial axes, which keep length 1."""
    last = call.flag("channels_last")
    x = channels_first(_minus_zero_point(call, 0)) if last else _minus_zero_point(call, 0)
    made = global_average_pool(call.with_inputs(x)) * (_scalar(call, 1) / _scalar(call, 3))
    return _quantized_result(call, channels_last(made) if last else made, 4)


@operator("QLinearSoftmax", domain=MICROSOFT, signature=Signature(_X, _BYTES, ("axis", "opset")))
def qlinear_softmax(call: Call) -> Tensor:
    """Softmax as the opset that `opset` names has it, times 1 / y_scale rounded down, as onnxruntime computes it."""
    settings = {"axis": int(call.attribute("axis", -1))}
    version = int(call.attribute("opset", 0))
    if version < 1:
        raise call.wrong(f"opset is {version}")
    made = softmax(replace(call, inputs=(_dequantized(call, 0),), version=version, attributes=settings))
    return _quantized_result(call, made * (1 / _scalar(call, 3)).apply("floor"), 4)


@operator("QLinearConcat", domain=MICROSOFT, signature=Signature(
    {"Y_scale": _FLOAT, "Y_zero_point": "T", "inputs": "V*"}, {**_BYTES, "V": ("uint8", "int8", _FLOAT)}, ("axis",)))
def qlinear_concat(call: Call) -> Tensor:
    """The inputs, each followed by its scale and zero point, one after another along `axis`."""
    if len(call.inputs) < 5 or len(call.inputs) % 3 != 2:
        raise call.wrong(f"{len(call.inputs)} inputs; each tensor needs a scale and a zero point")
    first = call.input(2)
    axis = call.axis(int(call.attribute("axis", 0)), first.rank)
    parts = []
    for position in range(2, len(call.inputs), 3):
        x = call.input(position)
        if x.rank != first.rank or any(a != b for i, (a, b) in enumerate(zip(x.shape, first.shape)) if i != axis):
            raise call.wrong(f"{list(first.shape)} and {list(x.shape)} differ outside of axis {axis}")
        parts.append(_quantized_result(call, _dequantized(call, position) / _scalar(call, 0), 1))
    return concatenate(parts, axis)


@operator("QLinearWhere", domain=MICROSOFT, signature=Signature({
    "condition": "bool", "X": "T", "x_scale": _FLOAT, "x_zero_point": "T", "Y": "T", "y_scale": _FLOAT,
    "y_zero_point": "T", "z_scale": _FLOAT, "z_zero_point": "T"}, _BYTES))
def qlinear_where(call: Call) -> Tensor:
    """X if the condition is true, else Y."""
    x, y = (_quantized_result(call, _dequantized(call, position) / _scalar(call, 7), 8) for position in (1, 4))
    return where(call.input(0), x, y)


@operator("QLinearConv", domain=MICROSOFT, signature=Signature({
    "x": "T1", "x_scale": _FLOAT, "x_zero_point": "T1", "w": "T2", "w_scale": _FLOAT, "w_zero_point": "T2",
    "y_scale": _FLOAT, "y_zero_point": "T3", "B": "int32?"},
    dict.fromkeys(("T1", "T2", "T3"), ("uint8", "int8")), (*WINDOW, "group", "channels_last")))
def qlinear_convolution(call: Call) -> Tensor:
    """QLinearConv of ONNX; with channels_last x and y have their channels last, but not w."""
    if not call.flag("channels_last"):
        return qlinear_conv(call)
    return channels_last(qlinear_conv(call.with_inputs(channels_first(call.input(0)), *call.inputs[1:])))


@operator("QuantizeLinear", domain=MICROSOFT, signature=Signature(
    {"x": "T1", "y_scale": "T1", "y_zero_point": "T2?"}, {"T1": (_FLOAT, "float16"), "T2": _WORDS}, ("axis",)))
def quantize(call: Call) -> Tensor:
    """QuantizeLinear of ONNX; without `axis` the scale is a scalar."""
    _check_axis(call)
    return quantize_linear(call)


@operator("DequantizeLinear", domain=MICROSOFT, signature=Signature(
    {"x": "T1", "x_scale": "T2", "x_zero_point": "T1?"},
    {"T1": (*_WORDS, "int32"), "T2": (_FLOAT, "float16")}, ("axis",)))
def dequantize(call: Call) -> Tensor:
    """DequantizeLinear of ONNX; without `axis` the scale is a scalar."""
    _check_axis(call)
    return dequantize_linear(call)


def _check_axis(call: Call) -> None:
    if "axis" not in call.attributes and call.input(1).size != 1:
        raise call.wrong(f"scale {list(call.input(1).shape)} without axis")


def _scalar(call: Call, position: int) -> Tensor:
    """A scale or zero point of a whole tensor, with rank 0."""
    found = call.input(position)
    if found.size != 1:
        raise call.wrong(f"input {position} of shape {list(found.shape)} is not a scalar")
    return found.reshape()


def _minus_zero_point(call: Call, position: int) -> Tensor:
    """A quantised input less its zero point, which is two inputs after it."""
    x = call.input(position).cast("float32")
    return x if call.optional(position + 2) is None else x - _scalar(call, position + 2).cast("float32")


def _dequantized(call: Call, position: int) -> Tensor:
    """The number that a quantised input stands for; its scale and zero point are the inputs after it."""
    return _minus_zero_point(call, position) * _scalar(call, position + 1)


def _quantized_result(call: Call, x: Tensor, zero_position: int, rounds_last: bool = False) -> Tensor:
    """The result, already divided by its scale, quantised with the zero point at this position of the inputs."""
    zero = None if call.optional(zero_position) is None else _scalar(call, zero_position)
    byte = next(t for t in call.inputs if t is not None and t.dtype in _BYTES["T"])
    return quantised(x, zero, byte.dtype, rounds_last)
