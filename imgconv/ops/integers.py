"""Integer arithmetic in a device's fp32, exact up to 2**24. Results of 8 and 16 bits wrap around as in ONNX."""

from __future__ import annotations

from functools import reduce

import numpy

from imgconv.ops.registry import NARROW, Call, operator
from imgconv.tensor import Tensor, elementwise, less, where

_BITWISE = {"BitwiseAnd": "bit_and", "BitwiseOr": "bit_or", "BitwiseXor": "bit_xor"}
EXPONENT_BITS = 5  # |base| >= 2 has powers up to 2**24


def wrap_integer(x: Tensor) -> Tensor:
    """An 8- or 16-bit result wrapped around into its type's range, as ONNX asks; any other tensor unchanged."""
    if x.dtype not in NARROW or x.is_constant:
        return x
    return _reinterpreted_as(x.apply("modulo", 1 << numpy.iinfo(x.dtype).bits), x.dtype)


def _reinterpreted_as(x: Tensor, dtype: str) -> Tensor:
    """The bits of an unsigned number read as a number of the given dtype: 255 becomes -1 for int8."""
    limits = numpy.iinfo(dtype)
    return where(less(int(limits.max), x), x - (1 << limits.bits), x) if limits.min else x


def wrapped_product(a: Tensor, b: Tensor) -> Tensor:
    """a * b, wrapped around. 16-bit factors are multiplied byte by byte: each partial product is below 2**24."""
    if a.dtype not in ("int16", "uint16") or (a.is_constant and b.is_constant):
        return wrap_integer(a * b)
    wide, other = (x.cast("int32").apply("modulo", 1 << 16) for x in (a, b))
    low = wide.apply("modulo", 256)
    high = (wide - low).apply("multiply", 1 / 256, dtype=wide.dtype)
    product = ((high * other).apply("modulo", 256) * 256 + low * other).apply("modulo", 1 << 16)
    return _reinterpreted_as(product, a.dtype).cast(a.dtype)


def integer_power(call: Call, base: Tensor, exponent: Tensor) -> Tensor:
    """base ** exponent of integers, by squaring; a negative exponent gives 0 unless the base is 1 or -1."""
    if exponent.is_float:
        known = call.constant_content(exponent, "a float exponent of an integer")
        if numpy.any(known != numpy.rint(known)):
            raise call.unsupported("an integer to a fractional power; Cast it to float")
        exponent = Tensor.constant(known.astype(numpy.int64))
    size = exponent.apply("absolute")
    # If the exponent is above 24, only 0, 1 and -1 have exact powers, which depend on whether it is odd.
    size = where(less(24, size), size.apply("modulo", 2) + 24, size)
    factors, square = list[Tensor](), base
    for bit in range(EXPONENT_BITS):
        odd = size.apply("shift_right", bit).apply("modulo", 2).apply("equal", 1, dtype="bool")
        factors.append(where(odd, square, Tensor.constant(numpy.array(1, base.dtype))))
        square = square * square
    power = reduce(lambda power, factor: factor * power, factors)
    if exponent.is_constant and numpy.all(exponent.numpy() >= 0):
        return power
    unit = base.apply("absolute").apply("equal", 1, dtype="bool").apply("or", less(exponent, 0).apply("not"))
    return where(unit, power, power * 0)


def integer_root(x: Tensor) -> Tensor:
    """The square root of integers, rounded down."""
    near = x.apply("sqrt").apply("round")
    return where(less(x, near * near), near - 1, near)


def _refuse_wide_integers(call: Call, *tensors: Tensor) -> None:
    """Raises UnsupportedError for 32- and 64-bit integers that depend on an input: a device's float holds 24 bits."""
    if tensors[0].dtype not in NARROW and not all(t.is_constant for t in tensors):
        raise call.unsupported(f"the bits of {tensors[0].dtype} tensors that depend on a model input; Cast them")


@operator(*_BITWISE)
def bitwise(call: Call) -> Tensor:
    """And, or, exclusive or of the bits, in two's complement."""
    a, b = call.input(0), call.input(1)
    _refuse_wide_integers(call, a, b)
    return elementwise(_BITWISE[call.op_type], a, b)


@operator("BitwiseNot")
def bitwise_not(call: Call) -> Tensor:
    """Inverts every bit: -x - 1 if the type is signed, else the type's largest number minus x."""
    x = call.input(0)
    _refuse_wide_integers(call, x)
    if x.is_constant:
        return Tensor.constant(numpy.invert(x.numpy()))
    return elementwise("subtract", int(numpy.iinfo(x.dtype).max) if x.dtype.startswith("u") else -1, x)


@operator("BitShift")
def bit_shift(call: Call) -> Tensor:
    """Bits shifted left or right, as `direction` says."""
    x, distance = call.input(0), call.input(1)
    left = call.choice("direction", "", ("LEFT", "RIGHT")) == "LEFT"
    if x.is_constant and distance.is_constant:
        return Tensor.constant((numpy.left_shift if left else numpy.right_shift)(x.numpy(), distance.numpy()))
    _refuse_wide_integers(call, x, distance)
    # A shift by more bits than the type has, or by a negative number, gives 0.
    distance = where(less(distance, 0), 64, distance.minimum(64))
    if not left:
        return x.apply("shift_right", distance)
    return wrap_integer(x.apply("shift_left", distance))
