"""The arithmetic of Adreno GPUs' instructions, as functions of numpy arrays.

Floats are rounded to nearest even after each operation, mad's product too. Which of the two roundings the hardware
leaves out is not documented; both are within what OpenCL allows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy

Array = Any


def _product(width: int) -> Callable[..., Array]:
    """The product of the low `width` bits, signed if they are."""
    def compute(a: Array, b: Array) -> Array:
        return (_low(a, width) * _low(b, width)).astype(a.dtype)
    return compute


def _low(a: Array, width: int) -> Array:
    wide = numpy.asarray(a, numpy.int64) & ((1 << width) - 1)
    return wide - ((wide >> (width - 1)) << width) if numpy.asarray(a).dtype.kind == "i" else wide


def _shifted(left: bool) -> Callable[..., Array]:
    def compute(a: Array, count: Array) -> Array:
        count = numpy.asarray(count) & (numpy.asarray(a).dtype.itemsize * 8 - 1)
        return a << count if left else a >> count
    return compute


def _dot_product(signed: Array, unsigned: Array, total: Array) -> Array:
    """Adds to a total the products of four signed bytes and four unsigned ones."""
    bytes_ = numpy.asarray(signed)[..., None] >> numpy.arange(0, 32, 8, dtype=numpy.uint32)
    others = numpy.asarray(unsigned)[..., None] >> numpy.arange(0, 32, 8, dtype=numpy.uint32)
    products = _low(bytes_.astype(numpy.int32), 8) * _low(others, 8)
    return numpy.asarray(total) + products.sum(-1).astype(numpy.uint32)


COMPARED: Mapping[str, Callable[..., Array]] = {
    "lt": numpy.less, "le": numpy.less_equal, "gt": numpy.greater, "ge": numpy.greater_equal, "eq": numpy.equal,
    "ne": numpy.not_equal,
}
# By name without types. Sources are of the kind that the name's second part says: floats, signed or unsigned integers.
COMPUTED: Mapping[str, Callable[..., Array]] = {
    "add.f": numpy.add, "mul.f": numpy.multiply, "min.f": numpy.fmin, "max.f": numpy.fmax, "absneg.f": lambda a: a,
    "floor.f": numpy.floor, "ceil.f": numpy.ceil, "trunc.f": numpy.trunc, "rndne.f": numpy.rint, "sign.f": numpy.sign,
    "mad.f32": lambda a, b, c: a * b + c, "mad.f16": lambda a, b, c: a * b + c,
    "rcp": lambda a: 1 / a, "rsq": lambda a: 1 / numpy.sqrt(a), "sqrt": numpy.sqrt, "log2": numpy.log2,
    "exp2": numpy.exp2, "sin": numpy.sin, "cos": numpy.cos,
    "add.u": numpy.add, "add.s": numpy.add, "sub.u": numpy.subtract, "sub.s": numpy.subtract, "absneg.s": lambda a: a,
    "min.u": numpy.minimum, "min.s": numpy.minimum, "max.u": numpy.maximum, "max.s": numpy.maximum,
    "and.b": numpy.bitwise_and, "or.b": numpy.bitwise_or, "xor.b": numpy.bitwise_xor, "not.b": numpy.invert,
    "shl.b": _shifted(True), "shr.b": _shifted(False), "ashr.b": _shifted(False),
    "mul.s24": _product(24), "mul.u24": _product(24), "mull.u": _product(16),
    "mad.s24": lambda a, b, c: _product(24)(a, b) + c, "mad.u24": lambda a, b, c: _product(24)(a, b) + c,
    # Three of these, with a shift of the last one's, make a product of 32 bits.
    "madsh.m16": lambda a, b, c: ((a & 0xFFFF) * (b >> 16) << 16) + c,
    "sad.s16": lambda a, b, c: a + b + c, "sad.s32": lambda a, b, c: a + b + c,
    "shrm": lambda count, a, mask: (a >> count) & mask, "shlm": lambda count, a, mask: (a << count) & mask,
    "shrg": lambda count, a, other: (a >> count) | other, "shlg": lambda count, a, other: (a << count) | other,
    "andg": lambda a, b, other: (a & b) | other, "dp4acc.mixed.low": _dot_product,
}
# What an atomic instruction leaves in memory, of what was there and the lane's operand.
ATOMIC: Mapping[str, Callable[[Array, Array], Array]] = {
    "add": numpy.add, "sub": numpy.subtract, "min": numpy.minimum, "max": numpy.maximum, "and": numpy.bitwise_and,
    "or": numpy.bitwise_or, "xor": numpy.bitwise_xor, "xchg": lambda old, new: new,
}
_FLOAT_ALONE = frozenset(("rcp", "rsq", "sqrt", "log2", "exp2", "sin", "cos"))
_KINDS = {"f": "float", "s": "int", "u": "uint"}


def source_kind(name: str) -> str:
    """The numpy kind of an instruction's sources: "f", "i" or "u"."""
    stem, _, rest = name.partition(".")
    if stem in _FLOAT_ALONE or rest[:1] == "f":
        return "f"
    return "i" if rest[:1] == "s" or stem == "ashr" else "u"


def dtype_of(name: str) -> numpy.dtype[Any]:
    """float16 of "f16"; b32, as bits have no other kind, is uint32."""
    return numpy.dtype(f"{_KINDS.get(name[0], 'uint')}{name[1:]}")


def computed(name: str, values: list[Array]) -> Array:
    """Returns the result of an instruction on sources of one dtype. Raises NotImplementedError for an unknown one."""
    stem, *rest = name.split(".")
    if stem == "cmps":
        return COMPARED[rest[1]](*values).astype(numpy.uint32)
    compute = COMPUTED.get(name) or COMPUTED.get(stem)
    if compute is None:
        raise NotImplementedError(f"the simulator has no instruction {name}")
    return numpy.asarray(compute(*values)).astype(values[0].dtype, copy=False)


def converted(values: Array, dtype: numpy.dtype[Any]) -> Array:
    """A conversion: floats to integers toward zero, saturated, NaN is 0; to floats to the nearest even."""
    if values.dtype.kind == "f" and dtype.kind in "iu":
        limits = numpy.iinfo(dtype)
        inside = numpy.clip(numpy.trunc(numpy.nan_to_num(values.astype(numpy.float64))), limits.min, limits.max)
        return inside.astype(dtype)
    return values.astype(dtype)
