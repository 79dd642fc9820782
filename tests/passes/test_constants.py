"""fold_constants: its Given and Result, where it must act and where it must not."""

from __future__ import annotations

import numpy
from graphs import apply_pass, assert_near, load_of, numbers, shown, unchanged

from imgconv.graph import view
from imgconv.graph.expression import Argument, apply
from imgconv.graph.nodes import Graph, Load, Node, Operand, Value, whole_operand
from imgconv.passes.constants import fold_constants
from imgconv.passes.dead_code import remove_dead_code


def test_constants_given_and_result() -> None:
    x, w = Value("x", (8,), "float32"), numbers(8, low=0.5, high=2)
    s = load_of("s", (8,), "w", apply("sqrt", Argument(0)))
    y = load_of("y", (8,), "x", apply("multiply", Argument(0), Argument(1)), Operand("s", view.identity((8,))))
    after = apply_pass(
        fold_constants, Graph((x,), ("y",), (s, y), {"w": w}), lambda x: {"y": x * numpy.sqrt(w.astype(float))}
    )
    assert shown(after) == {"y": "load(x) then multiply($0, $1), $1=s"}
    assert_near(after.constants["s"], numpy.sqrt(w))
    assert after.constants["s"].dtype == numpy.float32
    assert remove_dead_code(after).constants.keys() == {"s"}


def test_constants_fold_along_chains_into_outputs_and_not_past_inputs() -> None:
    x, w = Value("x", (8,), "float32"), numbers(8)
    a = load_of("a", (8,), "w", apply("exp", Argument(0)))
    b = load_of("b", (8,), "a", apply("negative", Argument(0)))
    c = load_of("c", (8,), "b", apply("add", Argument(0), Argument(1)), whole_operand(x))
    out = load_of("out", (8,), "w", apply("add", Argument(0), 1))
    after = apply_pass(
        fold_constants, Graph((x,), ("c", "out"), (a, b, c, out), {"w": w}),
        lambda x: {"c": x - numpy.exp(w.astype(float)), "out": w + 1.0},
    )
    assert shown(after).keys() == {"c"}
    assert after.constants.keys() == {"w", "a", "b", "out"}


def test_constants_that_would_grow_much_are_left() -> None:
    x, one = Value("x", (1, 4, 256, 256), "float32"), numbers(1)
    repeated = Operand("one", view.expand((1,), x.shape))
    big = Node(Value("big", x.shape, "float32"), Load(), (repeated,), apply("exp", Argument(0)))
    y = load_of("y", x.shape, "x", apply("add", Argument(0), Argument(1)), Operand("big", view.identity(x.shape)))
    graph = Graph((x,), ("y",), (big, y), {"one": one})
    unchanged(fold_constants, graph)


def test_values_of_no_elements_are_known() -> None:
    x = Value("x", (0, 3), "float32")
    y = load_of("y", x.shape, "x", apply("add", Argument(0), 1.0))
    after = fold_constants(Graph((x,), ("y",), (y,), {}).validate()).validate()
    assert not after.nodes and after.constants["y"].shape == (0, 3)


def test_constants_of_integers_stay_exact() -> None:
    shape = Value("x", (2,), "int64")
    k = numpy.array([2**40 + 1, -7])
    k_operand = Operand("k", view.identity((2,)))
    half = Node(Value("h", (2,), "int64"), Load(), (k_operand,), apply("divide", Argument(0), 2))
    y = Node(Value("y", (2,), "int64"), Load(), (whole_operand(shape),), apply("add", Argument(0), Argument(1)),
             (Operand("h", view.identity((2,))),))
    after = fold_constants(Graph((shape,), ("y",), (half, y), {"k": k}).validate()).validate()
    assert after.constants["h"].tolist() == [2**39, -3] and after.constants["h"].dtype == numpy.int64
