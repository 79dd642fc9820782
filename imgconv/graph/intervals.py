"""Interval arithmetic: computes the range of an expression's values from the ranges of its arguments. NaN is ignored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy

from imgconv.graph.expression import FUNCTIONS, Apply, Expression, fold

Range = tuple[float, float]  # the least and the largest value that is not NaN

ANY: Range = (-math.inf, math.inf)
_RISING = ("floor", "ceil", "round", "truncate", "sign", "tanh", "sigmoid", "erf", "atan", "exp", "expm1")
_FIXED: dict[str, Range] = {"sin": (-1, 1), "cos": (-1, 1)} | dict.fromkeys(
    ("less", "less_equal", "equal", "not", "and", "or", "xor", "isnan", "isinf", "level_sigmoid"), (0.0, 1.0)
)


def range_of(expression: Expression, arguments: Sequence[Range]) -> Range:
    """The range of an expression of arguments in the given ranges."""
    low, high = fold(expression, lambda value: (value, value), arguments, _range_of_function)
    return ANY if math.isnan(low) or math.isnan(high) else (low, high)


def _range_of_function(part: Apply, given: Sequence[Range]) -> Range:
    """The range of a scalar function of arguments in the given ranges. ANY if the function has no rule here."""
    name, a, b = part.function, given[0], given[-1]
    if name in _FIXED:
        return _FIXED[name]
    if name in (*_RISING, "maximum", "minimum", "add", "saturate"):
        with numpy.errstate(all="ignore"):
            low, high = (float(FUNCTIONS[name].numpy(*map(numpy.float64, ends))) for ends in zip(*given, strict=True))
        return low, high
    if name in ("subtract", "negative"):
        first, second = ((0.0, 0.0) if name == "negative" else a), b
        return first[0] - second[1], first[1] - second[0]
    if name == "absolute":
        return (0.0 if a[0] <= 0 <= a[1] else min(map(abs, a))), max(map(abs, a))
    if name == "multiply":
        return product_of_ranges(a, b)
    if name == "multiply_add":
        low, high = product_of_ranges(a, given[1])
        return low + b[0], high + b[1]
    if name == "divide" and (b[0] > 0 or b[1] < 0):
        return product_of_ranges(a, (1 / b[1], 1 / b[0]))
    if name in ("modulo", "remainder") and b[0] > 0:
        return (-b[1] if name == "remainder" and a[0] < 0 else 0.0), b[1]
    if name == "shift_right" and a[0] >= 0:
        return 0.0, a[1]
    if name == "quotient":  # of integers
        return -max(map(abs, a)), max(map(abs, a))
    return union_of_ranges(given[1:]) if name == "where" else ANY


def product_of_ranges(a: Range, b: Range) -> Range:
    # 0 times infinity is NaN, and ranges ignore NaN.
    products = [x * y if x and y else 0.0 for x in a for y in b]
    return min(products), max(products)


def union_of_ranges(ranges: Sequence[Range]) -> Range:
    """The least range that holds all of the given ones."""
    return min(low for low, _ in ranges), max(high for _, high in ranges)
