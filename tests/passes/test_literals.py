"""constants_to_literals: its Given and Result, where it must act and where it must not."""

from __future__ import annotations

from dataclasses import replace

import numpy
from graphs import apply_pass, const, graph_of, image, load_of, node_of, shown, unchanged

from imgconv.graph import view
from imgconv.graph.expression import Argument, apply
from imgconv.graph.nodes import Graph, Operand, Value
from imgconv.passes.literals import constants_to_literals, without_redundant_epilogue_operands
from imgconv.tensor import Tensor


def test_literals_given_and_result() -> None:
    x = Value("x", (8,), "float32")
    c = Operand("c", view.expand((1,), (8,)))
    y = load_of("y", (8,), "x", apply("multiply", Argument(0), Argument(1)), c)
    graph = Graph((x,), ("y",), (y,), {"c": numpy.array([0.5], numpy.float32)})
    after = apply_pass(constants_to_literals, graph, lambda x: {"y": x * 0.5})
    assert shown(after) == {"y": "load(x) then multiply($0, 0.5)"}


def test_literals_of_uniform_arrays_of_any_shape_renumber_the_rest() -> None:
    x = image()
    k = const(8, 1, 1, name="k")
    graph = graph_of(y=x.relu())
    node = replace(
        graph.nodes[0], epilogue=apply("add", apply("multiply", Argument(0), Argument(1)), Argument(2)),
        epilogue_operands=(
            Operand("same", view.expand((8, 1, 1), x.shape)), Operand("k", view.expand((8, 1, 1), x.shape))
        ),
    )
    constants = {"same": numpy.full((8, 1, 1), 3, numpy.float32), "k": k.array}
    after = apply_pass(
        constants_to_literals, replace(graph, nodes=(node,), constants=constants), lambda x: {"y": 3 * x + k.array}
    )
    assert shown(after) == {"y": "load(x) then add(multiply($0, 3), $1), $1=k[i1, 0, 0]"}


def test_literals_leave_what_varies_and_what_has_a_border() -> None:
    x = image()
    graph = graph_of(y=x + const(8, 1, 1))
    unchanged(constants_to_literals, graph)
    zeros = numpy.zeros((8, 1, 1), numpy.float32)
    zeros[3] = -0.0
    unchanged(constants_to_literals, graph_of(y=x / Tensor.constant(zeros)))
    shape = (1, 8, 6, 6)
    bordered = Operand("c", view.pad((1, 8, 4, 4), [0, 0, 1, 1], [0, 0, 1, 1]))
    node = load_of("y", shape, "x", apply("add", Argument(0), Argument(1)), bordered)
    ones = numpy.full((1, 8, 4, 4), 2, numpy.float32)
    unchanged(constants_to_literals, Graph((Value("x", shape, "float32"),), ("y",), (node,), {"c": ones}))


def test_literals_leave_the_first_operand() -> None:
    graph = graph_of(y=Tensor.constant(numpy.ones((1, 8, 1, 1), numpy.float32), "ones") * image())
    assert node_of(graph, "y").operands[0].value == "ones"
    unchanged(constants_to_literals, graph)


def test_compact_drops_unread_and_repeated_operands() -> None:
    shape = (1, 8, 6, 6)
    a, b = Operand("a", view.identity(shape)), Operand("b", view.identity(shape))
    expression = apply("add", apply("add", Argument(2), Argument(0)), apply("exp", Argument(4)))
    node = load_of("y", shape, "x", expression, a, b, a, b)
    made = without_redundant_epilogue_operands(node)
    assert made.epilogue_operands == (b,) and str(made.epilogue) == "add(add($1, $0), exp($1))"
