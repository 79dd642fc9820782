"""Matrix products of com.microsoft with quantised factors, as onnxruntime's quantizer writes them."""

from __future__ import annotations

from math import prod

import numpy

from imgconv.arrays import Array
from imgconv.ops.quantization import (
    by_column, dynamically_quantised, integer_matmul, quantised, rounded_total, subtract_zero_point,
)
from imgconv.ops.registry import FLOATS, MICROSOFT, Call, Signature, operator
from imgconv.tensor import Tensor

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
    _check_scalars(call, 1, 2)
    parts, bound = integer_matmul(call, a, call.input(2), b, call.input(5))
    bias = call.optional(6)
    if bias is not None and numpy.broadcast_shapes(bias.shape, (a.shape[0], b.shape[1])) != (a.shape[0], b.shape[1]):
        raise call.wrong(f"C {list(bias.shape)} does not broadcast to {[a.shape[0], b.shape[1]]}")
    factor = call.input(1).reshape() * by_column(call, call.input(4), b) * call.number("alpha", 1.0)
    zero = call.optional(8)
    if call.optional(7) is None or zero is None:
        if call.optional(7) is not zero:
            raise call.wrong("needs y_scale and y_zero_point, or neither")
        return rounded_total(parts, bound, bias) * factor
    _check_scalars(call, 7, 8)
    return quantised(rounded_total(parts, bound, bias) * (factor / call.input(7).reshape()), zero.reshape(), zero.dtype)


@operator("MatMulIntegerToFloat", domain=MICROSOFT, signature=Signature({
    "A": "T1", "B": "T2", "a_scale": "T3", "b_scale": "T3", "a_zero_point": "T1?", "b_zero_point": "T2?",
    "bias": "T3?"}, {"T1": _BYTES, "T2": _BYTES, "T3": FLOATS}))
def matmul_integer_to_float(call: Call) -> Tensor:
    """(A - a_zero_point) (B - b_zero_point) * a_scale * b_scale + bias; one scale for A, one for B or its columns."""
    _check_scalars(call, 2, 4)
    a, a_zero = call.input(0), call.optional(4)
    integers = subtract_zero_point(a, None if a_zero is None else a_zero.reshape())
    return _scaled_product(call, integers, call.input(2).reshape(), (3, 5, 6))


@operator("DynamicQuantizeMatMul", domain=MICROSOFT, signature=Signature({
    "A": "float32", "B": "T2", "b_scale": "float32", "b_zero_point": "T2?", "bias": "float32?"}, {"T2": _BYTES}))
def dynamic_quantize_matmul(call: Call) -> Tensor:
    """MatMulIntegerToFloat of A, which DynamicQuantizeLinear quantises."""
    levels, scale, zero = dynamically_quantised(call.input(0))
    return _scaled_product(call, levels - zero, scale, (2, 3, 4))


def _scaled_product(call: Call, a: Tensor, a_scale: Tensor, positions: tuple[int, int, int]) -> Tensor:
    """a times input 1, scaled, with b_scale, b_zero_point and bias at these positions.

    Sums of integers over 2**24 are rounded, as each float sum is.
    """
    b, scale = call.input(1), call.input(positions[0])
    zero, bias = (call.optional(position) for position in positions[1:])
    if not a.rank or not b.rank:
        raise call.wrong("a scalar has no matrix product")
    wide = subtract_zero_point(b, None if zero is None else by_column(call, zero, b)).cast("float32")
    product = a.cast("float32").matmul(wide) * (a_scale.cast("float32") * by_column(call, scale, b).cast("float32"))
    if bias is not None and bias.shape != b.shape[-1:]:
        raise call.wrong(f"bias {list(bias.shape)} for {b.shape[-1]} columns")
    return (product if bias is None else product + bias.cast("float32")).cast(scale.dtype)


@operator("MatMulNBits", domain=MICROSOFT, signature=Signature(
    {"A": "T1", "B": "uint8", "scales": "T1", "zero_points": "T3?", "g_idx": "int32?", "bias": "T1?"},
    {"T1": FLOATS, "T3": ("uint8", *FLOATS)}, ("K", "N", "accuracy_level", "bits", "block_size", "weight_prepacked")))
def matmul_n_bits(call: Call) -> Tensor:
    """A (..., K) times the transpose of weights (N, K) of 2, 4 or 8 bits, plus bias (N). A is never quantised."""
    inner, columns = (int(call.attribute(name, 0)) for name in "KN")
    if call.optional(4) is not None or call.attribute("weight_prepacked", 0):
        raise call.unsupported("g_idx or weight_prepacked")
    a, bias = call.input(0), call.optional(5)
    if not a.rank or a.shape[-1] != inner or (bias is not None and bias.shape != (columns,)):
        raise call.wrong(f"A of shape {list(a.shape)} for K {inner}, or a bias that is not [{columns}]")
    product = a.matmul(Tensor.constant(_dequantized_weights(call, inner, columns).T.astype(a.dtype)))
    return product if bias is None else product + bias


def _dequantized_weights(call: Call, inner: int, columns: int) -> Array:
    """(quantised - zero_point) * scale of each block, as (N, K)."""
    bits, block = int(call.attribute("bits", 4)), int(call.attribute("block_size", 0))
    if bits not in (2, 4, 8) or block < 16 or block & (block - 1):
        raise call.unsupported(f"bits {bits} and block_size {block}")
    blocks = -(-inner // block)
    packed, scales = call.constant_content(call.input(1), "B"), call.constant_content(call.input(2), "scales")
    zeros = call.constant(3, "zero_points")
    shape = (columns, blocks, block * bits // 8)
    if packed.size != prod(shape) or scales.size != columns * blocks:
        raise call.wrong(f"B {list(packed.shape)} and scales {list(scales.shape)}; B needs {list(shape)}")
    quantised_weights = _unpacked(packed.reshape(shape), bits).astype(numpy.float32)
    if zeros is None:
        zeros = numpy.full((columns, blocks), 1 << (bits - 1))
    elif zeros.dtype == numpy.uint8:
        zeros = _unpacked(zeros.reshape(columns, -1), bits)[:, :blocks]
    if zeros.size != columns * blocks:
        raise call.wrong(f"zero_points for {columns} columns of {blocks} blocks")
    centred_weights = quantised_weights - zeros.reshape(columns, blocks, 1).astype(numpy.float32)
    scaled: Array = centred_weights * scales.reshape(columns, blocks, 1).astype(numpy.float32)
    return scaled.reshape(columns, -1)[:, :inner]


def _unpacked(packed: Array, bits: int) -> Array:
    """The numbers in each byte, the lowest bits first: (..., n) to (..., n * 8 / bits)."""
    shifts = numpy.arange(0, 8, bits, dtype=numpy.uint8)
    spread: Array = (packed[..., None] >> shifts) & numpy.uint8((1 << bits) - 1)
    return spread.reshape(*packed.shape[:-1], -1)


def _check_scalars(call: Call, *positions: int) -> None:
    """Raises UnsupportedError if one of the inputs is there and has more than one element."""
    for position in positions:
        found = call.optional(position)
        if found is not None and found.size != 1:
            raise call.unsupported(f"input {position} of shape {list(found.shape)}, a scale of each row or column")
