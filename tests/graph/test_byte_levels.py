"""Quantised values of a graph, and the bytes that represent them."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

from imgconv.graph.expression import IDENTITY, Argument, Expression, apply
from imgconv.graph.nodes import Concatenation, Graph, Load, Node, Operand, Reduction, Value, whole_operand
from imgconv.graph.quantization import Quantization, quantizations_of
from imgconv.graph.view import Bound, View, axis_variables

SHAPE = (1, 4, 3, 3)
X = Value("x", SHAPE, "float32")


def levels(low: float, high: float, zero: float, scale: float | None, of: Expression = IDENTITY) -> Expression:
    """QuantizeLinear and DequantizeLinear; without scale, the level less the zero point."""
    rounded = apply("add", apply("round", apply("divide", of, 0.5)), zero)
    clipped = apply("truncate", apply("minimum", apply("maximum", rounded, low), high))
    centred = apply("subtract", clipped, zero)
    return centred if scale is None else apply("multiply", centred, scale)


def found(*nodes: Node) -> dict[str, Quantization]:
    return quantizations_of(Graph((X,), (nodes[-1].output.name,), nodes))


def load(name: str, of: Value, epilogue: Expression = IDENTITY, *others: Value, dtype: str = "float32") -> Node:
    return Node(Value(name, of.shape, dtype), Load(), (whole_operand(of),), epilogue, tuple(map(whole_operand, others)))


@pytest.mark.parametrize(("low", "high", "zero"), [(0, 255, 0), (0, 255, 153), (-128, 127, 0), (-128, 127, -128)])
def test_the_steps_of_quantisation_are_found(low: int, high: int, zero: int) -> None:
    nodes = load("a", X, levels(low, high, zero, 0.25)), load("b", X, levels(low, high, zero, None), dtype="int32")
    assert found(*nodes) == {"a": Quantization(low - zero, 0.25), "b": Quantization(low - zero, 1.0)}


@pytest.mark.parametrize("epilogue", [
    levels(-32768, 32767, 0, 0.25),  # 16 bits
    levels(0, 255, 0.5, 0.25),  # no integers
    levels(0, 255, -10, 0.25),  # 10 .. 265, and 0
    apply("multiply", levels(0, 255, 0, 1e-35), 1e-35),
    apply("multiply", levels(0, 255, 0, None), Argument(1)),  # a scale of each channel
    apply("maximum", IDENTITY, 0.0),
])
def test_other_values_are_no_levels(epilogue: Expression) -> None:
    assert not found(load("a", X, epilogue, X))


def test_a_number_that_is_not_known_has_no_byte() -> None:
    guarded = apply("where", apply("less", IDENTITY, 2.0**24), IDENTITY, float("nan"))
    assert not found(load("a", X, guarded), load("b", X, levels(0, 255, 0, 0.25)))


@pytest.mark.parametrize(("fill", "is_level"), [(0.0, True), (-1.0, False)])
def test_padding_is_a_level_if_it_is_zero(fill: float, is_level: bool) -> None:
    q = load("q", X, levels(0, 255, 9, 0.25))
    shape = (1, 4, 4, 3)
    index = axis_variables(shape)
    taller = Operand("q", View(shape, SHAPE, index, (Bound(index[2], 0, 3),)), fill)
    made = found(q, Node(Value("taller", shape, "float32"), Load(), (taller,)))
    assert ("taller" in made) == is_level


def test_what_moves_or_selects_levels_has_them() -> None:
    q = load("q", X, levels(0, 255, 9, 0.25))
    copy = load("copy", q.output)
    window = (*SHAPE, 2)
    view = View(window, SHAPE, axis_variables(window)[:4])
    nodes = [Node(Value(kind, SHAPE, "float32"), Reduction(kind, IDENTITY), (Operand("q", view),))
             for kind in ("max", "sum")]
    both = Node(
        Value("both", (1, 8, 3, 3), "float32"), Concatenation(1), (whole_operand(q.output), whole_operand(copy.output))
    )
    made = found(q, copy, *nodes, both)
    assert made == dict.fromkeys(("q", "copy", "max", "both"), Quantization(-9, 0.25))


def test_unlike_parts_of_a_concatenation_stay_numbers() -> None:
    q, other = load("q", X, levels(0, 255, 9, 0.25)), load("other", X, levels(0, 255, 9, 0.5))
    both = Node(
        Value("both", (1, 8, 3, 3), "float32"), Concatenation(1), (whole_operand(q.output), whole_operand(other.output))
    )
    assert found(q, other, both).keys() == {"q", "other"}


def test_integers_of_levels_are_levels() -> None:
    q = load("q", X, levels(0, 255, 0, None), dtype="uint8")
    less = load("less", q.output, apply("subtract", IDENTITY, 138.0), dtype="int32")
    scaled = load("scaled", q.output, apply("multiply", apply("subtract", IDENTITY, 138.0), 0.5))
    wide = load("wide", q.output, apply("add", IDENTITY, Argument(1)), q.output, dtype="int32")
    made = found(q, less, scaled, wide)
    assert made == {"q": Quantization(0, 1), "less": Quantization(-138, 1), "scaled": Quantization(-138, 0.5)}


@pytest.mark.parametrize("scale", [1.0, 0.1, 3e-9])
@pytest.mark.parametrize("low", [0, -128, -153, -255])
def test_each_level_has_a_byte_of_its_own(low: int, scale: float) -> None:
    quantization = Quantization(low, scale)
    n: Any = numpy.arange(quantization.low, quantization.high + 1)
    numbers = n.astype("f") * numpy.float32(quantization.scale)
    stored = quantization.encode(numbers)
    assert sorted(stored) == list(range(256))
    numpy.testing.assert_array_equal(quantization.decode(stored.astype("u1")), numbers)
    assert quantization.encode(numpy.zeros(1)) == 0
