"""Literals of OpenCL C lose nothing of a float."""

from __future__ import annotations

import math
import re
import struct

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imgconv.graph.expression import Argument, Literal, apply, evaluate, literal_text, render


def parsed(text: str) -> float:
    """The value that a C compiler gives an OpenCL float literal."""
    text = text.strip("()")
    special = {"NAN": math.nan, "INFINITY": math.inf, "-INFINITY": -math.inf}
    if text in special:
        return special[text]
    assert re.fullmatch(r"-?(\d+\.\d*|\d+(?=e)|\d+\.)(e[+-]?\d+)?f", text), f"{text} is no float literal of C"
    return float(numpy.float32(text[:-1]))


def bits(value: float) -> bytes:
    with numpy.errstate(over="ignore"):
        return bytes(numpy.float32(value).tobytes())


@pytest.mark.parametrize(
    "value",
    [
        0.0, -0.0, 1.0, -1.0, 0.1, 1 / 3, 1e-7, -1e-7, 1e38, 3.4028235e38, -3.4028235e38, 1.17549435e-38, 1e-40,
        1.4e-45, -1.4e-45, 16777217.0, 1e10, 1e16, 123456789.0, 0.30000001192092896, math.pi, math.inf, -math.inf, 1e39,
    ],
)
def test_a_literal_reads_back_to_the_nearest_float(value: float) -> None:
    assert bits(parsed(literal_text(value))) == bits(value)


@given(st.floats(width=32, allow_nan=False))
@settings(max_examples=500, deadline=None)
def test_any_float_reads_back_exactly(value: float) -> None:
    assert bits(parsed(literal_text(value))) == struct.pack("<f", value)


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e38, max_value=1e38))
@settings(max_examples=300, deadline=None)
def test_any_double_reads_back_to_the_nearest_float(value: float) -> None:
    assert bits(parsed(literal_text(value))) == bits(value)


def test_zero_and_minus_zero_are_two() -> None:
    """Shared, 1 / 0 and 1 / -0 would be one number."""
    assert Literal(0.0) != Literal(-0.0) and Literal(math.nan) == Literal(math.nan)
    x = Argument(0)
    both = apply("add", apply("divide", x, 0.0), apply("absolute", apply("divide", x, -0.0)))
    assert evaluate(both, [numpy.ones(1)]).tolist() == [math.inf]
    assert sum("/" in statement for statement in render(both, {0: "a"}, False)[0]) == 2


def test_nan_and_infinities_have_names() -> None:
    assert literal_text(math.nan) == "NAN"
    assert literal_text(math.inf) == "INFINITY" and literal_text(-math.inf) == "(-INFINITY)"


def test_negative_literals_can_stand_after_a_minus() -> None:
    assert literal_text(-2.0) == "(-2.0f)"
