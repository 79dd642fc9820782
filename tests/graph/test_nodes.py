"""Graphs: validate finds every inconsistency, the dump is readable, the look-ups are right."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import replace

import numpy
import pytest
from graphs import numbers

from imgconv.graph import view
from imgconv.graph.evaluate import evaluate_graph, evaluate_node
from imgconv.graph.expression import Argument, apply
from imgconv.graph.graph_error import GraphError
from imgconv.graph.join import join_graphs, rename_values
from imgconv.graph.nodes import (
    IDENTITY, Concatenation, Convolution, Gather, Graph, GraphEditor, Load, Node, Operand, Operation, Order, Product,
    Recurrence, Reduction, Value, array_value, whole_operand,
)
from imgconv.graph.view import identity

X = Value("x", (1, 4, 6, 6), "float32")
W = numbers(8, 4, 3, 3)
Y = Value("y", (1, 8, 6, 6), "float32")


def convolved() -> Graph:
    """A convolution with a bias in its epilogue, then a sum over the image, then a product."""
    w, m = array_value("w", W), Value("m", (1, 8), "float32")
    bias = Operand("b", view.expand((8, 1, 1), Y.shape))
    added_bias = apply("add", Argument(0), Argument(1))
    nodes = (
        Node(Y, Convolution(pads=(1, 1)), (whole_operand(X), whole_operand(w)), added_bias, (bias,), ("conv",)),
        Node(m, Reduction("sum", Argument(0)), (Operand("y", view.identity(Y.shape)),)),
        Node(Value("p", (1, 3), "float32"), Product(), (whole_operand(m), Operand("v", identity((8, 3))))),
    )
    return Graph((X,), ("y", "p"), nodes, {"w": W, "b": numbers(8, 1, 1), "v": numbers(8, 3)}, "sample")


def test_a_right_graph_is_returned() -> None:
    graph = convolved()
    assert graph.validate() is graph


def changed(number: int, **changes: object) -> Callable[[Graph], Graph]:
    """The graph with fields of one node replaced."""
    def change(graph: Graph) -> Graph:
        nodes = list(graph.nodes)
        nodes[number] = replace(nodes[number], **changes)  # type: ignore[arg-type]
        return replace(graph, nodes=tuple(nodes))
    return change


def operand(value: str, shape: tuple[int, ...]) -> Operand:
    return Operand(value, identity(shape))


def added(name: str, shape: tuple[int, ...], operation: Operation, *operands: Operand) -> Callable[[Graph], Graph]:
    """The graph with one more node."""
    node = Node(Value(name, shape, "float32"), operation, operands)
    return lambda graph: replace(graph, nodes=(*graph.nodes, node))


TANH = Recurrence((apply("tanh", apply("add", Argument(0), Argument(1))),))


def recurring(
    shape: tuple[int, ...], weights: tuple[int, ...], operation: Recurrence = TANH
) -> Callable[[Graph], Graph]:
    """The graph with a recurrence of this shape and its inputs."""

    def change(graph: Graph) -> Graph:
        shapes = {"given": (*shape[1:4], 1, shape[4]), "weights": weights, "first": shape[2:]}
        inputs = tuple(Value(name, each, "float32") for name, each in shapes.items())
        node = Node(Value("r", shape, "float32"), operation, tuple(map(whole_operand, inputs)))
        return replace(graph, inputs=(*graph.inputs, *inputs), nodes=(*graph.nodes, node))

    return change


TALLER = Operand("x", view.pad(X.shape, (0, 0, 0, 0), (0, 0, 1, 0)))
WITHOUT_BIAS = {"epilogue": Argument(0), "epilogue_operands": ()}
NO_FIT = "do not give"
WRONG: dict[str, tuple[Callable[[Graph], Graph], str]] = {
    "an operand that nothing makes": (
        changed(0, operands=(operand("z", X.shape), whole_operand(Y))), "z before it is made"
    ),
    "a node before its operand": (lambda g: replace(g, nodes=g.nodes[::-1]), "before it is made"),
    "a node that reads itself": (changed(0, epilogue_operands=(whole_operand(Y),)), "y before it is made"),
    "a view of another shape": (changed(2, operands=(operand("m", (1, 7)), operand("v", (8, 3)))), "view of m"),
    "a view of a constant": (changed(2, operands=(operand("m", (1, 8)), operand("v", (8, 4)))), "view of v"),
    "an epilogue operand's shape": (changed(0, epilogue_operands=(operand("b", (8, 1, 1)),)), "epilogue operand"),
    "an epilogue argument too many": (changed(0, epilogue=apply("add", Argument(0), Argument(2))), "arguments"),
    "two nodes of one name": (added("y", X.shape, Load(), whole_operand(X)), "y is made twice"),
    "a node with an input's name": (changed(0, output=replace(Y, name="x")), "x is made twice"),
    "a node with a constant's name": (changed(0, output=replace(Y, name="b")), "b is made twice"),
    "an output that nothing makes": (lambda g: replace(g, outputs=("y", "q")), "['q']"),
    "an input with a constant's name": (lambda g: replace(g, constants={**g.constants, "x": W}), "share a name"),
    "two inputs of one name": (lambda g: replace(g, inputs=(X, X)), "share a name"),
    "a load of another shape": (added("l", (1, 4), Load(), whole_operand(X)), NO_FIT),
    "a load of two operands": (added("l", X.shape, Load(), whole_operand(X), whole_operand(X)), NO_FIT),
    "other filters": (changed(0, output=replace(Y, shape=(1, 7, 6, 6)), **WITHOUT_BIAS), NO_FIT),
    "other groups": (changed(0, operation=Convolution(pads=(1, 1), groups=2)), NO_FIT),
    "another batch": (changed(0, output=replace(Y, shape=(2, 8, 6, 6)), **WITHOUT_BIAS), NO_FIT),
    "transposed with ordinary weights": (changed(0, operation=Convolution(transposed=True)), NO_FIT),
    "a reduction that keeps another shape": (changed(1, output=Value("m", (1, 4), "float32")), NO_FIT),
    "a reduction of views of two shapes": (changed(1, operands=(whole_operand(Y), whole_operand(X))), NO_FIT),
    "a product of other inner sizes": (
        changed(2, operands=(operand("m", (1, 8)), Operand("v", view.transpose((8, 3), (1, 0))))), NO_FIT
    ),
    "a product of another shape": (changed(2, output=Value("p", (3, 1), "float32")), NO_FIT),
    "a product of other batches": (
        changed(2, operands=(operand("m", (1, 8)), Operand("v", view.expand((8, 3), (2, 8, 3))))), NO_FIT
    ),
    "a gather without an index": (added("g", X.shape, Gather(), whole_operand(X)), NO_FIT),
    "a gather of another table": (added("g", (1, 8), Gather(), whole_operand(X), operand("m", (1, 8))), NO_FIT),
    "a gather by another shape": (added("g", (1, 4, 6), Gather(), whole_operand(X), operand("m", (1, 8))), NO_FIT),
    "a recurrence without weights": (added("r", (1, 1, 4, 6, 6), TANH, whole_operand(X)), NO_FIT),
    "a recurrence of other weights": (recurring((1, 1, 4, 1, 6), (1, 6, 1, 5)), NO_FIT),
    "a recurrence of other sizes": (recurring((1, 1, 4, 1, 5), (1, 6, 1, 6)), NO_FIT),
    "a recurrence of two directions that are one": (recurring((1, 1, 4, 2, 6), (2, 6, 1, 6)), NO_FIT),
    "a recurrence with an argument too many": (
        recurring((1, 1, 4, 1, 6), (1, 6, 1, 6), replace(TANH, inner=Argument(4))), NO_FIT
    ),
    "an order of more than there are": (added("o", (1, 4, 6, 7), Order(True), whole_operand(X)), NO_FIT),
    "an order of other rows": (added("o", (1, 5, 6, 3), Order(True), whole_operand(X)), NO_FIT),
    "a concatenation of other lengths": (
        added("c", (1, 9, 6, 6), Concatenation(1), whole_operand(X), whole_operand(X)), NO_FIT
    ),
    "a concatenation of other heights": (added("c", (1, 8, 6, 6), Concatenation(1), whole_operand(X), TALLER), NO_FIT),
}


@pytest.mark.parametrize("name", WRONG)
def test_validate_finds(name: str) -> None:
    change, message = WRONG[name]
    with pytest.raises(GraphError) as raised:
        change(convolved()).validate()
    assert message in str(raised.value)


def test_a_transposed_convolution_has_inputs_first_in_its_weights() -> None:
    w = Value("w", (4, 3, 2, 2), "float32")
    node = Node(
        Value("t", (1, 6, 12, 12), "float32"), Convolution((2, 2), groups=2, transposed=True),
        (whole_operand(X), whole_operand(w))
    )
    Graph((X, w), ("t",), (node,)).validate()


def test_a_gather_has_an_axis_for_each_index_after_the_outputs() -> None:
    index = Value("i", (1, 4), "int64")
    node = Node(Value("g", (1, 4), "float32"), Gather(), (whole_operand(X), whole_operand(index), whole_operand(index)))
    Graph((X, index), ("g",), (node,)).validate()


def test_a_gather_reads_the_table_or_its_fill_value() -> None:
    table, index = numpy.arange(6, dtype=numpy.float32), numpy.float32([2.4, -1, 5.6, -0.4, numpy.nan, 4.5, 9e9])
    axes = view.axis_variables((7, 6))
    seen = Operand("t", view.View((7, 6), (6,), (axes[1],)), -7.0)
    node = Node(Value("g", (7,), "float32"), Gather(), (seen, Operand("i", identity((7,)))))
    # To the nearest, halves to the even one: 4.5 is 4.
    assert evaluate_node(node, {"t": table, "i": index}).tolist() == [2, -7, -7, 0, -7, 4, -7]


@pytest.mark.parametrize("dtype", ["float32", "int8", "uint64", "bool"])
def test_an_order_is_stable_and_has_nan_above_all(dtype: str) -> None:
    wide = dtype == "float32"
    row = numpy.float32([1, numpy.nan, -3, 1, numpy.inf, 1]) if wide else numpy.array([1, 0, 1, 0], dtype)
    falling = Node(Value("o", row.shape, "int64"), Order(True), (Operand("x", identity(row.shape)),))
    rising = replace(falling, operation=Order(False))
    assert evaluate_node(falling, {"x": row}).tolist() == ([1, 4, 0, 3, 5, 2] if wide else [0, 2, 1, 3])
    assert evaluate_node(rising, {"x": row}).tolist() == ([2, 0, 3, 5, 4, 1] if wide else [1, 3, 0, 2])


def test_a_recurrence_of_one_element() -> None:
    change = recurring((1, 1, 4, 1, 6), (1, 6, 1, 6))
    assert "recurrence forward of tanh(add($0, $1))" in str(change(convolved()).validate())


def test_a_maximum_of_nothing_is_the_least_number_of_the_type() -> None:
    for kind, dtype, expected in (("max", "float32", -numpy.inf), ("min", "int8", 127), ("max", "bool", False)):
        empty = Operand("x", identity((2, 0)))
        node = Node(Value("y", (2,), dtype), Reduction(kind, Argument(0)), (empty,))
        assert evaluate_node(node, {"x": numpy.zeros((2, 0), dtype)}).tolist() == [expected] * 2


def test_integers_wrap_around_only_when_they_are_stored() -> None:
    x = Operand("x", identity((1,)))
    node = Node(Value("y", (1,), "uint8"), Load(), (x,), apply("divide", apply("multiply", Argument(0), 2), 4))
    assert evaluate_node(node, {"x": numpy.array([200], "uint8")}).tolist() == [100]


def test_look_ups() -> None:
    graph = convolved()
    assert list(graph.values) == ["x", "w", "b", "v", "y", "m", "p"]
    assert graph.values["w"] == Value("w", (8, 4, 3, 3), "float32") == array_value("w", W)
    assert graph.producers.keys() == {"y", "m", "p"} and graph.producers["m"] is graph.nodes[1]
    assert [n.output.name for n in graph.consumers["y"]] == ["m"]
    assert graph.consumers["p"] == () and graph.consumers["b"] == (graph.nodes[0],)
    assert graph.nodes[0].reads == {"x", "w", "b"} and len(graph.nodes[0].all_operands) == 3
    assert Y.size == 8 * 36 and Value("s", (), "float32").size == 1


def test_a_consumer_that_reads_twice_counts_once() -> None:
    node = Node(
        replace(X, name="s"), Load(), (whole_operand(X),), apply("add", Argument(0), Argument(1)), (whole_operand(X),)
    )
    assert Graph((X,), ("s",), (node,)).consumers["x"] == (node,)


def test_after_merges_the_look_ups_are_those_of_a_new_graph() -> None:
    """a feeds b and d; b's work goes to c and d, which then read what b read."""

    def load(name: str, *read: str) -> Node:
        first, *others = (whole_operand(Value(r, (3,), "float32")) for r in read)
        return Node(Value(name, (3,), "float32"), Load(), (first,), IDENTITY, tuple(others))

    nodes = load("a", "x"), load("b", "a", "x"), load("c", "b"), load("d", "b", "a"), load("e", "c", "d")
    graph = Graph((Value("x", (3,), "float32"),), ("e",), nodes)
    changes = {"c": load("c", "a", "x"), "d": load("d", "a", "x")}
    editing = GraphEditor(graph)
    editing.merge("b", changes)
    assert [n.output.name for n in editing.edited_graph().nodes] == ["a", "c", "d", "e"]
    editing.merge("a", {"c": load("c", "x"), "d": load("d", "x")})
    made = editing.edited_graph().validate()
    assert [n.output.name for n in made.nodes] == ["c", "d", "e"]
    assert (editing.producers, editing.consumers) == (made.producers, made.consumers)


def test_unused_names() -> None:
    graph = convolved()
    assert graph.unused_name("new") == "new" and graph.unused_name("y") == "y_" and graph.unused_name("w") == "w_"
    taken = replace(graph, constants={**graph.constants, "y_": W})
    assert taken.unused_name("y") == "y__"


def test_the_dump_shows_every_value_and_what_each_node_does() -> None:
    assert str(convolved()).splitlines() == [
        "graph sample",
        "  input  x: float32[1, 4, 6, 6]",
        "  constant w: float32[8, 4, 3, 3]",
        "  constant b: float32[8, 1, 1]",
        "  constant v: float32[8, 3]",
        "  y: float32[1, 8, 6, 6] = convolution pads 1x1(x, w) then add($0, $1), $1=b[i1, 0, 0]",
        "  m: float32[1, 8] = sum(y)",
        "  p: float32[1, 3] = product(m, v)",
        "  output y: float32[1, 8, 6, 6]",
        "  output p: float32[1, 3]",
    ]


def test_operands_show_index_bounds_and_fill() -> None:
    made = view.pad((1, 4, 6, 6), (0, 0, 1, 0), (0, 0, 0, 0))
    assert str(Operand("x", made)) == "x[0, i1, i2 - 1, i3 where 1 <= i2 < 7 else 0]"
    assert str(Operand("x", made, float("-inf"))) == "x[0, i1, i2 - 1, i3 where 1 <= i2 < 7 else -inf]"
    assert str(whole_operand(X)) == "x"


def test_operations_show_what_is_unusual() -> None:
    assert str(Convolution()) == "convolution"
    shown = str(Convolution((2, 1), (1, 3), (0, 1), 4, True))
    assert shown == "transposed convolution strides 2x1 dilations 1x3 pads 0x1 groups 4"
    assert str(Reduction("max", Argument(0))) == "max"
    assert str(Reduction("sum", apply("exp", Argument(0)))) == "sum of exp($0)"
    assert str(Concatenation(1)) == "concatenation axis 1"
    assert str(Gather()) == "gather"
    assert (str(Load()), str(Product())) == ("load", "product")


def test_nothing_can_be_changed_in_place() -> None:
    graph = convolved()
    for target in (graph, graph.nodes[0], graph.nodes[0].operands[0], graph.inputs[0]):
        with pytest.raises(dataclasses.FrozenInstanceError):
            target.name = "other"  # type: ignore[union-attr,misc]


def test_constants_may_be_of_any_dtype() -> None:
    table = numpy.arange(3)
    graph = Graph((), ("k",), (), {"k": table})
    assert graph.validate().values["k"] == Value("k", (3,), "int64")


# Two graphs as one


def scaled(name: str, read: str, made: str, factor: float) -> Graph:
    """made = read * factor, with a constant of a usual name."""
    shape = (2, 3)
    node = Node(
        Value(made, shape, "float32"), Load(), (whole_operand(Value(read, shape, "float32")),),
        apply("multiply", Argument(0), Argument(1)), (Operand("k", view.expand((1,), shape)),),
    )
    constants = {"k": numpy.array([factor], numpy.float32)}
    return Graph((Value(read, shape, "float32"),), (made,), (node,), constants, name).validate()


def test_joined_graphs_keep_what_the_second_is_called() -> None:
    first, second = scaled("first", "a", "x", 2), scaled("second", "x", "y", 5)
    made = join_graphs(first, second)
    assert [v.name for v in made.inputs] == ["a"] and made.outputs == ("y",) and made.name == "second"
    assert made.constants["k"] == 5 and made.constants["k_"] == 2, "the first graph's name gives way"
    array = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)
    numpy.testing.assert_array_equal(evaluate_graph(made, {"a": array})["y"], array * 10)


def test_inputs_that_are_not_fed_stay() -> None:
    second = scaled("second", "x", "y", 5)
    other = Value("z", (2, 3), "float32")
    second = replace(second, inputs=(*second.inputs, other))
    made = join_graphs(scaled("first", "a", "x", 2), second)
    assert [v.name for v in made.inputs] == ["a", "z"]


def test_a_name_is_changed_everywhere() -> None:
    names = {"x": "in", "k": "factor", "y": "out"}
    made = rename_values(scaled("g", "x", "y", 3), names).validate()
    assert made.values.keys() == set(names.values()) and made.outputs == ("out",)
    assert rename_values(made, {}) is made
