"""Arithmetic, comparisons, logic and activations."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy

from imgconv.arrays import Array
from imgconv.host.registry import HostCall, host

_UNARY: dict[str, Callable[[Array], Any]] = {
    "Abs": numpy.abs, "Neg": numpy.negative, "Floor": numpy.floor, "Ceil": numpy.ceil, "Round": numpy.rint,
    "Sqrt": numpy.sqrt, "Exp": numpy.exp, "Log": numpy.log, "Sign": numpy.sign, "Sin": numpy.sin, "Cos": numpy.cos,
    "Tan": numpy.tan, "Asin": numpy.arcsin, "Acos": numpy.arccos, "Atan": numpy.arctan, "Sinh": numpy.sinh,
    "Cosh": numpy.cosh, "Tanh": numpy.tanh, "Not": numpy.logical_not, "IsNaN": numpy.isnan,
    "BitwiseNot": numpy.invert, "Reciprocal": lambda x: (1 / x).astype(x.dtype),
}
_BINARY: dict[str, Callable[[Array, Array], Any]] = {
    "Sub": numpy.subtract, "Equal": numpy.equal, "Less": numpy.less, "LessOrEqual": numpy.less_equal,
    "Greater": numpy.greater, "GreaterOrEqual": numpy.greater_equal, "And": numpy.logical_and, "Or": numpy.logical_or,
    "Xor": numpy.logical_xor, "BitwiseAnd": numpy.bitwise_and, "BitwiseOr": numpy.bitwise_or,
    "BitwiseXor": numpy.bitwise_xor, "Add": numpy.add, "Mul": numpy.multiply,
}


@host(*_UNARY)
def unary(call: HostCall, x: Array) -> Any:
    """A numpy function of each element."""
    return _UNARY[call.op_type](x)


@host(*_BINARY)
def binary(call: HostCall, a: Array, b: Array) -> Any:
    """A numpy function of two tensors that broadcast."""
    return _BINARY[call.op_type](a, b)


@host("Div")
def div(call: HostCall, a: Array, b: Array) -> Any:
    """The quotient; of integers without its fraction, as in C."""
    if a.dtype.kind == "f":
        return a / b
    if not numpy.all(b):
        raise call.wrong("a division of integers by zero")
    quotient = numpy.floor_divide(a, b)
    return quotient + ((quotient < 0) & (quotient * b != a)).astype(a.dtype)


@host("Mod")
def mod(call: HostCall, a: Array, b: Array) -> Any:
    """The remainder with the sign of the divisor, or with fmod that of the dividend."""
    if a.dtype.kind != "f" and not numpy.all(b):
        raise call.wrong("a remainder of integers by zero")
    return numpy.fmod(a, b) if call.flag("fmod") else numpy.mod(a, b)


@host("Pow")
def power(call: HostCall, a: Array, b: Array) -> Any:
    """a**b in the type of a."""
    if a.dtype.kind in "iu" and b.dtype.kind in "iu" and not numpy.any(b < 0):
        return numpy.power(a, b.astype(a.dtype))
    wide = numpy.float64 if a.dtype.kind in "iu" else a.dtype
    return numpy.power(a.astype(wide), b).astype(a.dtype)


@host("Max", "Min", "Sum", "Mean")
def variadic_reduction(call: HostCall, *inputs: Array) -> Any:
    """The largest, the smallest, the sum or the mean of any number of tensors that broadcast."""
    names = {"Max": numpy.maximum, "Min": numpy.minimum, "Sum": numpy.add, "Mean": numpy.add}
    made = reduce(names[call.op_type], inputs)
    return (made / len(inputs)).astype(made.dtype) if call.op_type == "Mean" else made


@host("Where")
def where(call: HostCall, condition: Array, a: Array, b: Array) -> Any:
    """a if the condition holds, else b."""
    return numpy.where(condition, a, b)


@host("Clip")
def clip(call: HostCall, x: Array, low: Array | None = None, high: Array | None = None) -> Any:
    """x between two limits; if they cross, the upper one."""
    if call.version < 11:
        low, high = call.attribute("min"), call.attribute("max")
    made = x if low is None else numpy.maximum(x, numpy.asarray(low, x.dtype))
    return made if high is None else numpy.minimum(made, numpy.asarray(high, x.dtype))


@host("Relu")
def relu(call: HostCall, x: Array) -> Any:
    return numpy.maximum(x, x.dtype.type(0))


@host("Sigmoid")
def sigmoid(call: HostCall, x: Array) -> Any:
    """1 / (1 + exp(-x)), by tanh, which does not overflow."""
    half = x.dtype.type(0.5)
    return half * numpy.tanh(half * x) + half


@host("BitCast")
def bit_cast(call: HostCall, x: Array) -> Any:
    """The same bits as another type of the same size."""
    return numpy.ascontiguousarray(x).view(call.attribute("to")).reshape(x.shape)
