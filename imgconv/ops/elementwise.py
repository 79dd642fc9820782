"""Elementwise arithmetic, comparison and logic, with numpy's broadcasting (ONNX opset 7 and later)."""

from __future__ import annotations

from functools import reduce
from math import inf

import numpy

from imgconv.ops.integers import integer_power, wrap_integer, wrapped_product
from imgconv.ops.registry import Call, operator
from imgconv.ops.scaled_sum import clamped
from imgconv.tensor import Tensor, elementwise, where

_UNARY = {
    "Abs": "absolute", "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh", "Atan": "atan",
    "Atanh": "atanh", "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh", "Erf": "erf", "Exp": "exp", "Floor": "floor",
    "Log": "log", "Neg": "negative", "Reciprocal": "reciprocal", "Round": "round", "Sigmoid": "sigmoid",
    "Sign": "sign", "Sin": "sin", "Sinh": "sinh", "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh",
}
_ARITHMETIC = {"Add": "add", "Sub": "subtract", "Mul": "multiply"}
_EXTREMES = {"Max": "maximum", "Min": "minimum"}
_COMPARISONS = {
    "Equal": ("equal", False), "Less": ("less", False), "LessOrEqual": ("less_equal", False),
    "Greater": ("less", True), "GreaterOrEqual": ("less_equal", True),
}
_LOGIC = {"And": "and", "Or": "or", "Xor": "xor"}


@operator(*_UNARY)
def unary(call: Call) -> Tensor:
    """A scalar function of each element."""
    result = call.input(0).apply(_UNARY[call.op_type])
    return wrap_integer(result) if call.op_type in ("Neg", "Abs") else result


@operator(*_ARITHMETIC)
def arithmetic(call: Call) -> Tensor:
    """Add, Sub, Mul."""
    a, b = call.input(0), call.input(1)
    return wrapped_product(a, b) if call.op_type == "Mul" else wrap_integer(a.apply(_ARITHMETIC[call.op_type], b))


@operator("Div")
def divide(call: Call) -> Tensor:
    """a / b; integers round towards zero."""
    a, b = call.input(0), call.input(1)
    return a / b if a.is_float else wrap_integer(a.apply("quotient", b))


@operator("Mod")
def modulo(call: Call) -> Tensor:
    """fmod=0: the remainder has the divisor's sign (Python's %); fmod=1: the dividend's (C's fmod)."""
    a, b = call.input(0), call.input(1)
    truncated = call.flag("fmod")
    if a.is_float and not truncated and call.version < 28:
        raise call.wrong("float tensors need fmod=1")
    return a.apply("remainder" if truncated else "modulo", b)


@operator("Pow")
def power(call: Call) -> Tensor:
    """base ** exponent in the base's dtype."""
    base, exponent = call.input(0), call.input(1)
    if not base.is_float and not (base.is_constant and exponent.is_constant):
        return integer_power(call, base, exponent)
    if exponent.is_constant and exponent.size == 1 and exponent.rank <= base.rank and exponent.numpy().item() == 2:
        return base * base
    return base**exponent


@operator(*_EXTREMES)
def extreme(call: Call) -> Tensor:
    """The largest or smallest of any number of tensors."""
    return reduce(lambda a, b: a.apply(_EXTREMES[call.op_type], b), _all_inputs(call))


@operator("Sum")
def sum_(call: Call) -> Tensor:
    """The sum of any number of tensors."""
    return reduce(lambda a, b: a + b, _all_inputs(call))


@operator("Mean")
def mean(call: Call) -> Tensor:
    """The mean of any number of tensors."""
    tensors = _all_inputs(call)
    total = reduce(lambda a, b: a.apply("add", b, dtype="float32"), tensors)
    return (total * (1 / len(tensors))).cast(tensors[0].dtype)


@operator(*_COMPARISONS)
def compare(call: Call) -> Tensor:
    """Greater is Less with the operands exchanged."""
    operation, exchanged = _COMPARISONS[call.op_type]
    a, b = call.input(0), call.input(1)
    return elementwise(operation, *((b, a) if exchanged else (a, b)), dtype="bool")


@operator(*_LOGIC)
def logic(call: Call) -> Tensor:
    """And, Or, Xor of bool tensors."""
    return call.input(0).apply(_LOGIC[call.op_type], call.input(1))


@operator("Not")
def logical_not(call: Call) -> Tensor:
    """Logical not."""
    return call.input(0).apply("not")


@operator("Where")
def where_(call: Call) -> Tensor:
    """X if the condition is true, else Y, element by element; the three inputs broadcast."""
    return where(call.input(0), call.input(1), call.input(2))


@operator("IsNaN")
def is_nan(call: Call) -> Tensor:
    """Returns whether each element is NaN."""
    return call.input(0).apply("isnan", dtype="bool")


@operator("IsInf")
def is_infinite(call: Call) -> Tensor:
    """Returns whether each element is infinite, with a sign that detect_positive or detect_negative selects."""
    x = call.input(0)
    signs = [sign for sign in ("negative", "positive") if call.flag(f"detect_{sign}", True)]
    if len(signs) == 2:
        return x.apply("isinf", dtype="bool")
    infinity = -numpy.inf if signs == ["negative"] else numpy.inf
    same = x.apply("equal", infinity, dtype="bool")
    return same if signs else same.apply("and", same.apply("not"))


@operator("Clip")
def clip(call: Call) -> Tensor:
    """min(max(x, low), high); the limits are attributes before opset 11 and optional inputs since."""
    x = call.input(0)
    if call.version < 11:
        low, high = (call.attributes.get(name) for name in ("min", "max"))
    else:
        low, high = (None if limit is None else _scalar(call, limit) for limit in (call.optional(1), call.optional(2)))
    made = x if low is None else x.maximum(low)
    made = made if high is None else made.minimum(high)
    return clamped(x, made, -inf if low is None else low, inf if high is None else high)


def _scalar(call: Call, limit: Tensor) -> Tensor:
    if limit.size != 1:
        raise call.wrong(f"a limit of shape {list(limit.shape)} is not a scalar")
    return limit.reshape()


@operator("Cast", "CastLike")
def cast(call: Call) -> Tensor:
    """Converts the element type. Integers of 8 and 16 bits wrap around; signed to uint32 or uint64 is refused."""
    x = call.input(0)
    target = call.input(1).dtype if call.op_type == "CastLike" else str(call.attribute("to", ""))
    if target not in _CASTS:
        raise call.unsupported(f"to {target}; use one of {', '.join(_CASTS)}")
    if x.is_float or x.is_constant or numpy.can_cast(x.dtype, target):
        return x.cast(target)
    if target in ("uint32", "uint64") and x.dtype.startswith("int"):
        raise call.unsupported(f"from {x.dtype} to {target}: negative numbers become larger than 2**24")
    return wrap_integer(x.cast(target))


_CASTS = (
    "float32", "float64", "float16", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
)


def _all_inputs(call: Call) -> list[Tensor]:
    tensors = [call.input(i) for i in range(len(call.inputs))]
    if call.op_type in ("Sum", "Mean"):
        call.refuse_narrow_integers(*tensors)
    return tensors
