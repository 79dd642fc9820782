"""Matrix products of com.microsoft with quantised factors, as onnxruntime's quantizer writes them."""

from __future__ import annotations

import numpy

from imgconv.ops.quantization import by_column, centred, multiply, quantised, total
from imgconv.ops.registry import FLOATS, MICROSOFT, Call, Signature, operator
from imgconv.tensor import Tensor, where

_BYTES = ("uint8", "int8")


@operator("QGemm", domain=MICROSOFT, signature=Signature({
    "A": "TA", "a_scale": "float32", "a_zero_point": "TA", "B": "TB", "b_scale": "float32", "b_zero_point": "TB",
    "C": "int32?", "y_scale": "float32?", "y_zero_point": "TY?"},
    {"TA": _BYTES, "TB": _BYTES, "TY": _BYTES}, ("alpha", "transA", "transB")))
def qgemm(call: Call) -> Tensor:
    """(A' B' + C) * alpha * a_scale * b_scale as float32, or divided by y_scale and quantised; sums are exact."""
    a, b = call.input(0), call.input(3)
    if a.rank != 2 or b.rank != 2:
        raise call.wrong(f"needs two matrices, not {list(a.shape)} and {list(b.shape)}")
    a = a.transpose(1, 0) if call.flag("transA") else a
    b = b.transpose(1, 0) if call.flag("transB") else b
    _scalars(call, 1, 2)
    parts, bound = multiply(call, a, call.input(2), b, call.input(5))
    bias = call.optional(6)
    if bias is not None and numpy.broadcast_shapes(bias.shape, (a.shape[0], b.shape[1])) != (a.shape[0], b.shape[1]):
        raise call.wrong(f"C {list(bias.shape)} does not broadcast to {[a.shape[0], b.shape[1]]}")
    factor = call.input(1).reshape() * by_column(call, call.input(4), b) * call.number("alpha", 1.0)
    zero = call.optional(8)
    if call.optional(7) is None or zero is None:
        if call.optional(7) is not zero:
            raise call.wrong("needs y_scale and y_zero_point, or neither")
        return total(parts, bound, bias) * factor
    _scalars(call, 7, 8)
    return quantised(total(parts, bound, bias) * (factor / call.input(7).reshape()), zero.reshape(), zero.dtype)


@operator("MatMulIntegerToFloat", domain=MICROSOFT, signature=Signature({
    "A": "T1", "B": "T2", "a_scale": "T3", "b_scale": "T3", "a_zero_point": "T1?", "b_zero_point": "T2?",
    "bias": "T3?"}, {"T1": _BYTES, "T2": _BYTES, "T3": FLOATS}))
def matmul_integer_to_float(call: Call) -> Tensor:
    """(A - a_zero_point) (B - b_zero_point) * a_scale * b_scale + bias; one scale for A, one for B or its columns."""
    _scalars(call, 2, 4)
    a, a_zero = call.input(0), call.optional(4)
    integers = centred(a, None if a_zero is None else a_zero.reshape())
    return _scaled_product(call, integers, call.input(2).reshape(), (3, 5, 6))


@operator("DynamicQuantizeMatMul", domain=MICROSOFT, signature=Signature({
    "A": "float32", "B": "T2", "b_scale": "float32", "b_zero_point": "T2?", "bias": "float32?"}, {"T2": _BYTES}))
def dynamic_quantize_matmul(call: Call) -> Tensor:
    """MatMulIntegerToFloat of A, which DynamicQuantizeLinear quantises."""
    integers, scale = dynamically_quantised(call.input(0))
    return _scaled_product(call, integers, scale, (2, 3, 4))


def dynamically_quantised(x: Tensor) -> tuple[Tensor, Tensor]:
    """(q - zero_point, scale) of DynamicQuantizeLinear: 8 bits over the range of x and 0; the scale has rank 0."""
    low, high = (-((-x).max())).minimum(0), x.max().maximum(0)
    spread = (high - low) * (1 / 255)
    scale = where(spread.apply("equal", 0, dtype="bool"), 1.0, spread)
    zero = (-low / scale).apply("round").clip(0, 255)
    return ((x / scale).apply("round") + zero).clip(0, 255) - zero, scale


def _scaled_product(call: Call, a: Tensor, a_scale: Tensor, positions: tuple[int, int, int]) -> Tensor:
    """a times input 1, scaled, with b_scale, b_zero_point and bias at these positions.

    Sums of integers over 2**24 are rounded, as each float sum is.
    """
    b, scale = call.input(1), call.input(positions[0])
    zero, bias = (call.optional(position) for position in positions[1:])
    if not a.rank or not b.rank:
        raise call.wrong("a scalar has no matrix product")
    wide = centred(b, None if zero is None else by_column(call, zero, b)).cast("float32")
    product = a.cast("float32").matmul(wide) * (a_scale.cast("float32") * by_column(call, scale, b).cast("float32"))
    if bias is not None and bias.shape != b.shape[-1:]:
        raise call.wrong(f"bias {list(bias.shape)} for {b.shape[-1]} columns")
    return (product if bias is None else product + bias.cast("float32")).cast(scale.dtype)


def _scalars(call: Call, *positions: int) -> None:
    """Raises UnsupportedError if one of the inputs is there and has more than one element."""
    for position in positions:
        found = call.optional(position)
        if found is not None and found.size != 1:
            raise call.unsupported(f"input {position} of shape {list(found.shape)}, a scale of each row or column")
