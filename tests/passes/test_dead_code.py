"""remove_dead_code: its Given and Result, where it must act and where it must not."""

from __future__ import annotations

from dataclasses import replace

import numpy
from graphs import apply_pass, const, graph_of, image, numbers, shown, unchanged

from imgconv.graph import view
from imgconv.graph.expression import Argument, apply
from imgconv.graph.nodes import Graph, Load, Node, Operand, Value
from imgconv.passes.dead_code import remove_dead_code


def test_dead_code_given_and_result() -> None:
    x = image()
    graph = graph_of(b=x.relu())
    dead = Node(Value("a", x.shape, "float32"), Load(), graph.nodes[0].operands, apply("exp", Argument(0)))
    given_ = replace(graph, nodes=(dead, *graph.nodes), constants={"unused": numbers(3)})
    after = apply_pass(remove_dead_code, given_, lambda x: {"b": numpy.maximum(x, 0)})
    assert shown(after) == {"b": "load(x) then maximum($0, 0)"} and after.constants == {}


def test_dead_code_goes_in_chains_and_what_is_needed_stays() -> None:
    x = image()
    kept = (x.exp().named("kept") * const(8, 1, 1, name="k")).named("product")
    graph = graph_of(x, image(2, 2, name="unused"), y=kept.relu(), z=x.tanh())
    unchanged(remove_dead_code, graph)
    first = Node(Value("d1", x.shape, "float32"), Load(), (Operand("kept", view.identity(x.shape)),))
    second = Node(Value("d2", x.shape, "float32"), Load(), (Operand("d1", view.identity(x.shape)),))
    after = apply_pass(remove_dead_code, replace(graph, nodes=(*graph.nodes, first, second)))
    assert after.nodes == graph.nodes and after.constants.keys() == {"k"}
    assert [v.name for v in after.inputs] == ["x", "unused"], "inputs are the model's interface"


def test_dead_code_keeps_constants_that_are_outputs() -> None:
    graph = Graph((), ("c",), (), {"c": numbers(2), "d": numbers(3)})
    assert apply_pass(remove_dead_code, graph).constants.keys() == {"c"}
