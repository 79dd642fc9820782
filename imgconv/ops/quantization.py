"""Quantised tensors: integers of 8 and 16 bits with a scale and a zero point, and convolutions and products of them.

A device computes in fp32, which represents integers up to 2**24 exactly. If a sum of products of integers may exceed
2**24, it is split into partial sums that cannot. Their total, ONNX's int32 accumulator, is then rounded once, as in an
engine that converts the accumulator to float and scales it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import numpy

from imgconv.arrays import Array
from imgconv.ops.convolution import convolution_of
from imgconv.ops.window import read_window
from imgconv.ops.registry import FLOATS, Call, operator
from imgconv.ops.scaled_sum import requantised
from imgconv.tensor import EXACT, Tensor, where

_QUANTISED = ("uint8", "int8", "uint16", "int16")
_BYTES = ("uint8", "int8")
_SPLIT = 4096.0


@operator("QuantizeLinear")
def quantize_linear(call: Call) -> Tensor:
    """saturate(round(x / scale) + zero_point), ties to even; one scale per tensor, per axis position or per block."""
    x, zero = call.input(0), call.optional(2)
    dtype = call.attribute("output_dtype", None) or (zero.dtype if zero is not None else "uint8")
    if zero is not None and zero.dtype != dtype:
        raise call.wrong(f"output_dtype is {dtype}, but the zero point's {zero.dtype}")
    if dtype not in _QUANTISED:
        raise call.unsupported(f"to {dtype}; use one of {', '.join(_QUANTISED)}")
    if call.attribute("precision", None) not in (None, "undefined", "float32"):
        raise call.unsupported(f"precision {call.attribute('precision', None)}; the division is done in float")
    scale = _broadcastable(call, call.input(1), x).cast("float32")
    zero = None if zero is None else _broadcastable(call, zero, x)
    return quantised(requantised(x, scale, *_level_range(dtype, zero)), zero, dtype)


def _level_range(dtype: str, zero: Tensor | None) -> tuple[float, float]:
    """The least and the most integer of a level less its zero point; infinite if the zero point is not known."""
    limits = numpy.iinfo(dtype)
    if zero is not None and not (zero.is_constant and zero.size == 1):
        return -inf, inf
    shift = 0 if zero is None else int(zero.numpy().reshape(()))
    return limits.min - shift, limits.max - shift


@operator("DequantizeLinear")
def dequantize_linear(call: Call) -> Tensor:
    """(x - zero_point) * scale; one scale per tensor, per axis position or per block of an axis."""
    x, scale, zero = call.input(0), call.input(1), call.optional(2)
    dtype = call.attribute("output_dtype", None) or scale.dtype
    if dtype not in FLOATS:
        raise call.unsupported(f"to {dtype}; use {' or '.join(FLOATS)}")
    integers = subtract_zero_point(x, None if zero is None else _broadcastable(call, zero, x))
    scale = _broadcastable(call, scale, x).cast("float32")
    made = (integers.cast("float32") * scale).cast(dtype)
    if scale.is_constant and dtype == "float32" and (x.dtype in _BYTES or x.dtype == "int32" and x.is_constant):
        made.quantised = integers, scale
    return made


@operator("DynamicQuantizeLinear")
def dynamic_quantize_linear(call: Call) -> list[Tensor]:
    """(levels in uint8, scale, zero point in uint8) of 8 bits over the range of x and 0."""
    levels, scale, zero = dynamically_quantised(call.input(0))
    return [levels.cast("uint8"), scale, zero.cast("uint8")]


def dynamically_quantised(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(levels, scale, zero point) of DynamicQuantizeLinear, the latter two of rank 0; the scale of zeros is 1."""
    low, high = (-((-x).max())).minimum(0), x.max().maximum(0)
    spread = (high - low) / 255
    scale = where(spread.apply("equal", 0, dtype="bool"), 1.0, spread)
    zero = (-low / scale).apply("round").clip(0, 255)
    return ((x / scale).apply("round") + zero).clip(0, 255), scale, zero


def _broadcastable(call: Call, by: Tensor, x: Tensor) -> Tensor:
    """The scale or zero point in a shape that broadcasts to x."""
    block = int(call.attribute("block_size", 0))
    if not block and by.size == 1 and by.rank <= 1:
        return by.reshape()
    axis = call.axis(int(call.attribute("axis", 1)), x.rank)
    if block:
        shape = (*x.shape[:axis], -(-x.shape[axis] // block), *x.shape[axis + 1 :])
        if block < 0 or by.shape != shape:
            raise call.wrong(f"scale or zero point {list(by.shape)}; blocks of {block} need {list(shape)}")
        return by.take(axis, [i // block for i in range(x.shape[axis])])
    if by.shape != (x.shape[axis],):
        raise call.wrong(f"scale or zero point {list(by.shape)} for axis {axis} of {list(x.shape)}")
    return by.reshape(-1, *[1] * (x.rank - axis - 1))


def quantised(x: Tensor, zero: Tensor | None, dtype: str, rounds_last: bool = False) -> Tensor:
    """saturate(round(x) + zero), or saturate(round(x + zero)): ties go to the even neighbour of another number."""
    limits = numpy.iinfo(dtype)
    rounded = x if rounds_last else x.apply("round")
    shifted = rounded if zero is None else rounded + zero.cast("float32")
    return (shifted.apply("round") if rounds_last else shifted).clip(limits.min, limits.max).cast(dtype)


@operator("ConvInteger")
def conv_integer(call: Call) -> Tensor:
    """The convolution of x - x_zero_point with w - w_zero_point, in int32."""
    parts, bound = integer_convolution(call, call.input(0), call.optional(2), call.input(1), call.optional(3))
    return _exact_total(call, parts, bound)


@operator("MatMulInteger")
def matmul_integer(call: Call) -> Tensor:
    """The matrix product of a - a_zero_point and b - b_zero_point, in int32."""
    parts, bound = integer_matmul(call, call.input(0), call.optional(2), call.input(1), call.optional(3))
    return _exact_total(call, parts, bound)


@operator("QLinearConv")
def qlinear_conv(call: Call) -> Tensor:
    """The convolution's int32 sums, with the bias, times x_scale * w_scale / y_scale, quantised with y's zero point."""
    x, weight = call.input(0), call.input(3)
    parts, bound = integer_convolution(call, x, call.input(2), weight, call.input(5))
    by_channel = (-1, *[1] * (x.rank - 2))
    bias = call.optional(8)
    if bias is not None:
        if bias.shape != (weight.shape[0],):
            raise call.wrong(f"bias {list(bias.shape)} for {weight.shape[0]} channels")
        bias = bias.reshape(*by_channel)
    scales = [_scalar_or_vector(call, position).cast("float32") for position in (1, 4, 6)]
    if scales[1].size not in (1, weight.shape[0]):
        raise call.wrong(f"w_scale {list(scales[1].shape)} for {weight.shape[0]} channels")
    factor = scales[0] * scales[1].reshape(*by_channel) / scales[2]
    return quantised(rounded_total(parts, bound, bias) * factor, _scalar_or_vector(call, 7), call.input(7).dtype)


@operator("QLinearMatMul")
def qlinear_matmul(call: Call) -> Tensor:
    """The product's int32 sums times a_scale * b_scale / y_scale, quantised with y's zero point."""
    a, b = call.input(0), call.input(3)
    parts, bound = integer_matmul(call, a, call.input(2), b, call.input(5))
    scales = _by_row(call, call.input(1), a), by_column(call, call.input(4), b), _by_row(call, call.input(6), a)
    scale_a, scale_b, scale_y = (s.cast("float32") for s in scales)
    product = rounded_total(parts, bound, None) * (scale_a * scale_b / scale_y)
    return quantised(product, _by_row(call, call.input(7), a), call.input(7).dtype)


def _scalar_or_vector(call: Call, position: int) -> Tensor:
    """A scale or zero point: a scalar, or a vector with one element per channel."""
    found = call.input(position)
    if found.rank > 1:
        raise call.wrong(f"input {position} of shape {list(found.shape)} is neither a scalar nor a vector")
    return found.reshape() if found.size == 1 else found


def _by_row(call: Call, by: Tensor, a: Tensor) -> Tensor:
    """A scale or zero point of a matrix's rows: a scalar, a vector, or a tensor of the matrix's rank."""
    if by.size == 1:
        return by.reshape()
    if a.rank < 2 or by.size != a.size // a.shape[-1] or by.shape not in ((a.shape[-2],), (*a.shape[:-1], 1)):
        raise call.wrong(f"scale or zero point {list(by.shape)} for the rows of {list(a.shape)}")
    return by.reshape(*by.shape, 1) if by.rank == 1 else by


def by_column(call: Call, by: Tensor, b: Tensor) -> Tensor:
    """A scale or zero point of a matrix's columns: a scalar, a vector, or a tensor of the matrix's rank."""
    if by.size == 1:
        return by.reshape()
    if b.rank < 2 or by.shape not in ((b.shape[-1],), (*b.shape[:-2], 1, b.shape[-1])):
        raise call.wrong(f"scale or zero point {list(by.shape)} for the columns of {list(b.shape)}")
    return by


# Sums of products of integers: (partial sums that are each exact, a bound of their total)


def integer_convolution(
    call: Call, x: Tensor, x_zero: Tensor | None, weight: Tensor, w_zero: Tensor | None
) -> tuple[list[Tensor], int]:
    """The convolution as partial sums, each over some of the input channels, and a bound of their total.

    A zero point of x that depends on the data is multiplied by the sums of filters that read no padding: see multiply.
    """
    if x_zero is not None and x_zero.size != 1:
        raise call.wrong(f"x_zero_point {list(x_zero.shape)} is not a scalar")
    if w_zero is not None and w_zero.size != 1:
        if w_zero.shape != (weight.shape[0],):
            raise call.wrong(f"w_zero_point {list(w_zero.shape)} for {weight.shape[0]} channels")
        w_zero = w_zero.reshape(-1, *[1] * (weight.rank - 1))
    weight, shift = subtract_zero_point(weight, w_zero), None
    compute = convolution_of(call, x, weight)
    padded = any(read_window(call, x.shape[2:], weight.shape[2:]).pads)
    if x_zero is not None and not x_zero.is_constant and weight.is_constant and not padded:
        sums = weight.cast("int32").sum(range(1, weight.rank)).reshape(-1, *[1] * (x.rank - 2))
        shift, x_zero = -x_zero.cast("int32").reshape() * sums, None
    low, high = _range_less_zero_point(x, x_zero) if shift is None else (0, _largest_difference(x))
    x = subtract_zero_point(x, x_zero).cast("int32")  # the sums have its type
    terms = _term_bounds(weight, low, high)
    by_channel = numpy.moveaxis(terms, 2, 0).reshape(weight.shape[1], 2, weight.shape[0], -1).sum(axis=-1)
    groups, each = x.shape[1] // weight.shape[1], weight.shape[1]

    def part(start: int, stop: int) -> Tensor:
        if stop - start == each:
            return compute(x, weight)
        channels = [group * each + c for group in range(groups) for c in range(start, stop)]
        return compute(x.take(1, channels), weight.slice(1, start, stop))

    parts, bound = _exact_partial_sums(call, by_channel, part)
    return (parts, bound) if shift is None else ([*parts, shift], bound)


def integer_matmul(
    call: Call, a: Tensor, a_zero: Tensor | None, b: Tensor, b_zero: Tensor | None
) -> tuple[list[Tensor], int]:
    """The matrix product as partial sums, each over some columns of a and rows of b, and a bound of their total.

    A zero point of a that depends on the data is multiplied by the sums of b's columns: then a stays levels.
    """
    if not a.rank or not b.rank:
        raise call.wrong("a scalar has no matrix product")
    by_row = None if a_zero is None else _by_row(call, a_zero, a)
    b = subtract_zero_point(b, None if b_zero is None else by_column(call, b_zero, b))
    axis, shift = max(b.rank - 2, 0), None
    given = by_row is not None and not by_row.is_constant and not by_row.rank
    if by_row is not None and given and b.is_constant and min(a.rank, b.rank) > 1:
        shift = -by_row.cast("int32") * b.cast("int32").sum((axis,), keepdims=True)
        a_zero = by_row = None
    low, high = _range_less_zero_point(a, a_zero) if shift is None else (0, _largest_difference(a))
    a = subtract_zero_point(a, by_row).cast("int32")  # the sums have its type
    terms = numpy.moveaxis(_term_bounds(b, low, high), axis + 1, 0).reshape(b.shape[axis], -1)

    def part(start: int, stop: int) -> Tensor:
        return a.slice(a.rank - 1, start, stop).matmul(b.slice(axis, start, stop))

    parts, bound = _exact_partial_sums(call, terms, part)
    return (parts, bound) if shift is None else ([*parts, shift], bound)


def subtract_zero_point(x: Tensor, zero: Tensor | None) -> Tensor:
    """x - zero as int32, or as int8 (one byte an element on the device) if it is a constant within -127 .. 127."""
    wide = x.cast("int32") if zero is None else x.cast("int32") - zero.cast("int32")
    fits = wide.is_constant and x.dtype != "int32" and numpy.abs(wide.numpy()).max(initial=0) <= 127
    return wide.cast("int8") if fits else wide


def _range_less_zero_point(x: Tensor, zero: Tensor | None) -> tuple[int, int]:
    """(low, high) of x - zero for any content of x, with low <= 0 <= high."""
    limits, shift = numpy.iinfo(x.dtype), numpy.zeros(1, numpy.int64)
    if zero is not None:
        known = zero.is_constant
        shift = numpy.asarray(zero.numpy() if known else (limits.min, limits.max), numpy.int64)
    return min(int(limits.min - shift.max()), 0), max(int(limits.max - shift.min()), 0)


def _largest_difference(x: Tensor) -> int:
    """The largest difference of two elements of x.

    With one zero point for all, n - zero from 0 to it bounds the sum of (n - zero) * w, and those of n * w, of either
    sign.
    """
    limits = numpy.iinfo(x.dtype)
    return int(limits.max) - int(limits.min)


def _term_bounds(weight: Tensor, low: int, high: int) -> Array:
    """Bounds of weight * n for n from low to high: how far above 0, and how far below: (2, *weight.shape)."""
    if weight.is_constant:
        content = weight.numpy().astype(numpy.int64)
        ends = content * low, content * high
    else:
        # Each weight is the difference of two 8-bit integers.
        most = numpy.full(weight.shape, 255 * max(-low, high), numpy.int64)
        ends = -most, most
    return numpy.stack([numpy.maximum(0, numpy.maximum(*ends)), -numpy.minimum(0, numpy.minimum(*ends))])


def _exact_partial_sums(call: Call, terms: Array, part: Callable[[int, int], Tensor]) -> tuple[list[Tensor], int]:
    """Returns the fewest partial sums over the first axis that are all exact, and a bound of their total."""
    parts, start = [], 0
    reached = numpy.zeros(terms.shape[1:], numpy.int64)
    for position, row in enumerate(terms):
        if row.max(initial=0) > EXACT:
            raise call.unsupported("sums of one channel that may exceed 2**24, above which fp32 is not exact")
        reached = reached + row
        if reached.max(initial=0) > EXACT:
            parts.append(part(start, position))
            start, reached = position, row
    parts.append(part(start, len(terms)))
    return parts, int(terms.sum(axis=0).max(initial=0))


def _exact_total(call: Call, parts: list[Tensor], bound: int) -> Tensor:
    """The total as int32. Raises UnsupportedError if it may exceed 2**24."""
    if bound > EXACT:
        raise call.unsupported(f"sums that may reach {bound}; fp32 is exact for integers up to 2**24")
    return _sum(parts)


def rounded_total(parts: list[Tensor], bound: int, bias: Tensor | None) -> Tensor:
    """The total in float, rounded once. If it may exceed 2**24, multiples of 4096 and remainders are summed apart."""
    if bias is not None:
        parts = [*parts, bias]
        bound += int(numpy.abs(bias.numpy().astype(numpy.int64)).max()) if bias.is_constant else EXACT
    if bound <= EXACT:
        return _sum(parts).cast("float32")
    floats = [_high_and_low(p) for p in parts]
    return _sum([high for high, _ in floats]) * _SPLIT + _sum([low for _, low in floats])


def _high_and_low(part: Tensor) -> tuple[Tensor, Tensor]:
    """(high, low) with part = high*4096 + low and 0 <= low < 4096."""
    if part.is_constant:
        high, low = numpy.divmod(part.numpy().astype(numpy.int64), int(_SPLIT))
        return Tensor.constant(high.astype(numpy.float32)), Tensor.constant(low.astype(numpy.float32))
    wide = part.cast("float32")
    above = (wide * (1 / _SPLIT)).apply("floor")
    return above, wide - above * _SPLIT


def _sum(tensors: list[Tensor]) -> Tensor:
    made = tensors[0]
    for tensor in tensors[1:]:
        made = made + tensor
    return made
