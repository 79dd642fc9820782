"""Bounds of errors hold for what numpy computes in float and in half, and are small enough to find a missing term."""

from __future__ import annotations

import numpy
import pytest

from imgconv.arrays import Array
from imgconv.checking.error_bounds import (
    EXACT, FLOAT, HALF_UNIT, ArithmeticErrors, BoundedValues, evaluate, sum_with_bounds
)
from imgconv.graph.expression import FUNCTIONS, Argument, apply, arity

RANDOM = numpy.random.default_rng(0)
HALF = ArithmeticErrors(HALF_UNIT, 0.0, HALF_UNIT)
# Operations whose arguments are in a range of their own.
RANGES = {
    "log": (0.01, 5), "sqrt": (0, 5), "log1p": (-0.9, 5), "asin": (-1, 1), "acos": (-1, 1), "atanh": (-0.99, 0.99),
    "acosh": (1, 5), "power": (0.1, 3), "bit_and": (0, 9), "bit_or": (0, 9), "bit_xor": (0, 9), "shift_left": (0, 9),
    "shift_right": (0, 9),
}


def drawn(low: float, high: float, count: int = 2000) -> Array:
    return RANDOM.uniform(low, high, count).astype(numpy.float32)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_operations(name: str) -> None:
    """In float, with arguments that are a little off. Where the bound is infinite nothing is claimed."""
    arguments = [drawn(*RANGES.get(name, (-3, 3))) for _ in range(arity(name))]
    errors = [numpy.abs(a).astype(numpy.float64) * (1e-6 if n == 0 else 0) for n, a in enumerate(arguments)]
    if name.startswith(("bit", "shift")):
        arguments, errors = [a.round() for a in arguments], [0 * e for e in errors]
    expression = apply(name, *map(Argument, range(len(arguments))))
    exact = [a.astype(numpy.float64) for a in arguments]
    bounded = evaluate(expression, [BoundedValues(a, e) for a, e in zip(exact, errors, strict=True)])
    moved = [a + RANDOM.uniform(-1, 1, a.size) * e for a, e in zip(exact, errors, strict=True)]
    with numpy.errstate(all="ignore"):
        made = numpy.asarray(FUNCTIONS[name].numpy(*moved)).astype(numpy.float64)
        rounded = made if name in EXACT else made.astype(numpy.float32).astype(numpy.float64)
        off = numpy.abs(rounded - bounded.value)
        assert (~(off > bounded.error * (1 + 1e-9)) | numpy.isnan(made)).all()
    if name in EXACT and not any(e.any() for e in errors):
        assert not bounded.error.any()


@pytest.mark.parametrize("count", [4, 60, 600, 6000])
@pytest.mark.parametrize("kind", [numpy.float32, numpy.float16])
def test_sums(count: int, kind: type) -> None:
    """Added up one after another, the sum is within its bound; without its largest term it is not, in float."""
    a, b = (RANDOM.normal(size=(200, count)).astype(numpy.float16).astype(kind) for _ in range(2))
    terms = a.astype(numpy.float64) * b
    bounded = sum_with_bounds(BoundedValues.exact(terms), HALF if kind is numpy.float16 else FLOAT)
    made = numpy.zeros(len(terms), kind)
    for n in range(count):
        made = (made + (a[:, n] * b[:, n]).astype(kind)).astype(kind)
    assert (numpy.abs(made.astype(numpy.float64) - bounded.value) <= bounded.error).all()
    lost = numpy.abs(terms).max(1)
    if kind is numpy.float32:
        assert (lost > 10 * bounded.error).all()


def test_a_comparison_is_undecided_near_its_step() -> None:
    x = BoundedValues(numpy.array([1.0, 1.0 + 1e-9, 2.0]), numpy.array([1e-6, 1e-6, 1e-6]))
    one = BoundedValues.exact(numpy.full(3, 1.0))
    for name in ("less", "equal"):
        error = evaluate(apply(name, Argument(0), Argument(1)), [x, one]).error
        assert error.tolist() == [1.0, 1.0, 0.0], name


def test_integers_are_exact() -> None:
    a, b = (BoundedValues.exact(RANDOM.integers(1, 1000, 50)) for _ in range(2))
    for name in ("add", "multiply", "quotient", "modulo", "less"):
        made = evaluate(apply(name, Argument(0), Argument(1)), [a, b])
        assert not made.error.any(), name
    nothing = BoundedValues.exact(numpy.zeros(50, numpy.int64))
    assert numpy.isinf(evaluate(apply("quotient", Argument(0), Argument(1)), [a, nothing]).error).all()
