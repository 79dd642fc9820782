"""Every pass: its docstring's Given and Result, where it must act, where it must not, and that meaning is kept.

`apply_pass` checks for every graph here that inputs and outputs keep their names, shapes and dtypes, that the graph
gives the same numbers before and after, and the numbers of the formula where one is given.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest
from graphs import (
    Network,
    apply_pass,
    assert_near,
    const,
    inputs_of,
    networks,
    numbers,
    numpy_convolution,
    numpy_softmax,
    shown,
)
from hypothesis import given, settings

from imgconv import passes, view
from imgconv.errors import UnsupportedError
from imgconv.evaluate import evaluate_graph
from imgconv.expression import Apply, Argument, Literal, apply, operations
from imgconv.graph import Concatenation, Convolution, Graph, Load, Node, Operand, Product, Reduction, Value, plain
from imgconv.passes import PIPELINE, concatenations, reductions, run_passes, windows
from imgconv.passes.concatenations import place_concatenations
from imgconv.passes.constants import fold_constants
from imgconv.passes.dead_code import remove_dead_code
from imgconv.passes.dynamic_weights import reduce_dynamic_weights
from imgconv.passes.elementwise import merge_elementwise
from imgconv.passes.epilogues import fuse_epilogues
from imgconv.passes.exact_integers import guard_integers
from imgconv.passes.factors import multiply_inputs
from imgconv.passes.literals import compact, literal_constants
from imgconv.passes.materialise import materialise_operands
from imgconv.passes.movement import sink_movement
from imgconv.passes.nesting import nest_concatenations
from imgconv.passes.padding import fold_padding
from imgconv.passes.reductions import split_reductions
from imgconv.passes.repeated import share_repeated
from imgconv.passes.scales import fold_scales
from imgconv.passes.views import compose, push_views
from imgconv.passes.windows import separate_windows
from imgconv.tensor import Tensor, build_graph, concatenate, convolution, gather, less, origin, where

LARGE = (1, 8, 128, 128)


def image(*shape: int, name: str = "x") -> Tensor:
    return Tensor.input(name, shape or (1, 8, 6, 6))


def graph_of(*inputs: Tensor, **outputs: Tensor) -> Graph:
    return build_graph(outputs, inputs)


def node_of(graph: Graph, name: str) -> Node:
    return graph.producers[name]


def unchanged(step: Any, graph: Graph) -> None:
    """The pass must not act."""
    after = apply_pass(step, graph)
    assert after.nodes == graph.nodes
    assert after.constants.keys() == graph.constants.keys()


# All passes

def test_every_pass_is_tested_here() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    for step in PIPELINE:
        assert text.count(f"{step.__name__},") >= 3, f"{step.__name__} has too few tests"


@pytest.mark.parametrize("step", dict.fromkeys(PIPELINE), ids=lambda step: step.__name__)
def test_a_docstring_shows_given_and_result(step: Any) -> None:
    assert "    Given:   " in step.__doc__ and "    Result:  " in step.__doc__


@given(networks())
@settings(max_examples=150, deadline=None)
def test_the_pipeline_keeps_what_random_networks_compute(network: Network) -> None:
    graph = network.graph
    after = run_passes(graph)
    network.check(after)
    assert (after.inputs, after.outputs) == (graph.inputs, graph.outputs)
    assert [after.values[n] for n in after.outputs] == [graph.values[n] for n in graph.outputs]


@pytest.mark.parametrize("number", range(len(PIPELINE)))
def test_each_pass_alone_keeps_what_random_networks_compute(number: int) -> None:
    @given(networks())
    @settings(max_examples=15, deadline=None)
    def check(network: Network) -> None:
        graph = network.graph
        network.check(PIPELINE[number](graph).validate())
        # And after all that comes before it.
        network.check(run_passes(graph, PIPELINE[: number + 1]))

    check()


@given(networks())
@settings(max_examples=30, deadline=None)
def test_a_second_round_keeps_the_meaning_and_adds_no_node(network: Network) -> None:
    once = run_passes(network.graph)
    twice = run_passes(once)
    network.check(twice)
    assert len(twice.nodes) <= len(once.nodes)


def test_an_inconsistent_result_names_the_pass() -> None:
    def lose_nodes(graph: Graph) -> Graph:
        return replace(graph, nodes=())

    def rename(graph: Graph) -> Graph:
        return replace(graph, inputs=(), outputs=(), nodes=())

    graph = graph_of(y=image().relu())
    for wrong in (lose_nodes, rename):
        with pytest.raises(AssertionError, match=f"pass {wrong.__name__}: "):
            run_passes(graph, (wrong,))
    assert run_passes(graph, ()) == graph


# remove_dead_code

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


# fold_constants

def load_of(name: str, shape: tuple[int, ...], operand: str, epilogue: Any, *others: Operand) -> Node:
    return Node(Value(name, shape, "float32"), Load(), (Operand(operand, view.identity(shape)),), epilogue, others)


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
    c = load_of("c", (8,), "b", apply("add", Argument(0), Argument(1)), plain(x))
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
    y = Node(Value("y", (2,), "int64"), Load(), (plain(shape),), apply("add", Argument(0), Argument(1)),
             (Operand("h", view.identity((2,))),))
    after = fold_constants(Graph((shape,), ("y",), (half, y), {"k": k}).validate()).validate()
    assert after.constants["h"].tolist() == [2**39, -3] and after.constants["h"].dtype == numpy.int64


# literal_constants

def test_literals_given_and_result() -> None:
    x = Value("x", (8,), "float32")
    c = Operand("c", view.expand((1,), (8,)))
    y = load_of("y", (8,), "x", apply("multiply", Argument(0), Argument(1)), c)
    graph = Graph((x,), ("y",), (y,), {"c": numpy.array([0.5], numpy.float32)})
    after = apply_pass(literal_constants, graph, lambda x: {"y": x * 0.5})
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
        literal_constants, replace(graph, nodes=(node,), constants=constants), lambda x: {"y": 3 * x + k.array}
    )
    assert shown(after) == {"y": "load(x) then add(multiply($0, 3), $1), $1=k[i1, 0, 0]"}


def test_literals_leave_what_varies_and_what_has_a_border() -> None:
    x = image()
    graph = graph_of(y=x + const(8, 1, 1))
    unchanged(literal_constants, graph)
    zeros = numpy.zeros((8, 1, 1), numpy.float32)
    zeros[3] = -0.0
    unchanged(literal_constants, graph_of(y=x / Tensor.constant(zeros)))
    shape = (1, 8, 6, 6)
    bordered = Operand("c", view.pad((1, 8, 4, 4), [0, 0, 1, 1], [0, 0, 1, 1]))
    node = load_of("y", shape, "x", apply("add", Argument(0), Argument(1)), bordered)
    ones = numpy.full((1, 8, 4, 4), 2, numpy.float32)
    unchanged(literal_constants, Graph((Value("x", shape, "float32"),), ("y",), (node,), {"c": ones}))


def test_literals_leave_the_first_operand() -> None:
    graph = graph_of(y=Tensor.constant(numpy.ones((1, 8, 1, 1), numpy.float32), "ones") * image())
    assert node_of(graph, "y").operands[0].value == "ones"
    unchanged(literal_constants, graph)


def test_compact_drops_unread_and_repeated_operands() -> None:
    shape = (1, 8, 6, 6)
    a, b = Operand("a", view.identity(shape)), Operand("b", view.identity(shape))
    expression = apply("add", apply("add", Argument(2), Argument(0)), apply("exp", Argument(4)))
    node = load_of("y", shape, "x", expression, a, b, a, b)
    made = compact(node)
    assert made.epilogue_operands == (b,) and str(made.epilogue) == "add(add($1, $0), exp($1))"


# share_repeated

def test_repeated_given_and_result() -> None:
    x = image()
    graph = graph_of(y=x.exp().named("a") + x.exp().named("b"))
    after = apply_pass(share_repeated, graph, lambda x: {"y": 2 * numpy.exp(x)})
    assert shown(after) == {"a": "load(x) then exp($0)", "y": "load(a) then add($0, $1), $1=a"}


def test_repeated_chains_and_constants_of_equal_content() -> None:
    x = image()
    k = numbers(8, 1, 1)
    one = (x * Tensor.constant(k, "k1")).relu().exp()
    two = (x * Tensor.constant(k.copy(), "k2")).relu().exp()
    after = apply_pass(share_repeated, graph_of(y=one - two), lambda x: {"y": 0 * x})
    assert len(after.nodes) == 4 and after.constants.keys() == {"k1"}


def test_repeated_leaves_what_differs_in_anything() -> None:
    x = image()
    k = numbers(8, 1, 1)
    same_bytes = Tensor.constant(k.reshape(1, 8, 1, 1).copy(), "k2")
    hidden = (
        x.exp(), x.tanh(), x.slice(2, 0, 3), x.slice(2, 1, 4), x.sum([1]), x.max([1]), x.sum([2]),
        x * Tensor.constant(k, "k1"), x * same_bytes, x.apply("less", 0.0), x.apply("less", 0.0, dtype="bool"),
        x.pad([0, 0, 1, 0], [0] * 4), x.pad([0, 0, 1, 0], [0] * 4, 1.0), x.reshape(1, 8, 36), x.reshape(8, 36),
    )
    unchanged(share_repeated, graph_of(**{f"y{i}": t.apply("cos", dtype="float32") for i, t in enumerate(hidden)}))


def test_repeated_never_drops_an_output() -> None:
    x = image()
    unchanged(share_repeated, graph_of(y=x.exp(), z=x.exp()))
    mixed = graph_of(y=x.exp(), z=x.exp() * 2)
    after = apply_pass(share_repeated, mixed, lambda x: {"y": numpy.exp(x), "z": 2 * numpy.exp(x)})
    assert shown(after) == {"y": "load(x) then exp($0)", "z": "load(y) then multiply($0, 2)"}
    constants = Graph((), ("c", "d"), (), {"c": numbers(2), "d": numbers(2)})
    assert apply_pass(share_repeated, constants).constants.keys() == {"c", "d"}


# sink_movement

def test_sink_given_and_result() -> None:
    x = image(2, 3, 5)
    graph = graph_of(y=x.transpose(0, 2, 1).named("m").relu())
    after = apply_pass(sink_movement, graph, lambda x: {"y": numpy.maximum(x, 0).transpose(0, 2, 1)})
    assert shown(after) == {
        "m": "load(x[i0, i2, i1])", "y.still": "load(x) then maximum($0, 0)", "y": "load(y.still[i0, i2, i1])",
    }
    assert after.values["y.still"].shape == (2, 3, 5)


def test_sink_goes_below_a_chain() -> None:
    x = image()
    after = apply_pass(sink_movement, graph_of(y=x.depth_to_space(2).relu().exp()))
    sunk = [n.operands[0].value for n in after.nodes if n.epilogue != Argument(0)]
    assert "y.still" in after.values
    assert [n.operands[0].view.is_identity for n in after.nodes if n.epilogue != Argument(0)] == [True] * len(sunk)
    assert node_of(after, "y").epilogue == Argument(0)


def test_sink_leaves_fills_several_readers_several_operands_and_outputs() -> None:
    x = image()
    moved = x.transpose(0, 1, 3, 2)
    unchanged(sink_movement, graph_of(y=x.pad([0, 0, 1, 1], [0, 0, 1, 1], 1.0).exp()))
    unchanged(sink_movement, graph_of(y=moved.exp(), z=moved.relu()))
    unchanged(sink_movement, graph_of(y=moved + const(1, 8, 6, 6)))
    unchanged(sink_movement, graph_of(m=moved, y=moved.exp()))
    unchanged(sink_movement, graph_of(y=moved.sum([3])))
    unchanged(sink_movement, graph_of(y=x.relu().transpose(0, 1, 3, 2)))
    unchanged(sink_movement, graph_of(y=x.cast("float16").exp()))


def test_sink_keeps_the_dtype_of_the_work() -> None:
    x = image(2, 6)
    graph = graph_of(y=x.transpose(1, 0).apply("less", 0.0, dtype="bool"))
    after = apply_pass(sink_movement, graph, lambda x: {"y": x.T < 0})
    assert after.values["y.still"].dtype == "bool"


# push_views

def test_views_given_and_result() -> None:
    x = image()
    graph = graph_of(y=x.transpose(0, 1, 3, 2).named("t").exp())
    after = apply_pass(push_views, graph, lambda x: {"y": numpy.exp(x.swapaxes(2, 3))})
    assert shown(after) == {"t": "load(x[0, i1, i3, i2])", "y": "load(x[0, i1, i3, i2]) then exp($0)"}
    assert shown(remove_dead_code(after)).keys() == {"y"}


def test_views_go_through_chains_into_every_kind_of_reader() -> None:
    x = image()
    moved = x.reshape(1, 8, 36, 1).reshape(1, 8, 6, 6).transpose(0, 1, 3, 2).slice(3, 5, -1, -1)
    graph = graph_of(
        a=moved.sum([1]), b=moved.conv2d(const(4, 8, 1, 1)), c=moved @ const(6, 2), d=x + moved,
        e=concatenate([moved, x], 1),
    )
    def formula(x: Any) -> dict[str, Any]:
        m = x.swapaxes(2, 3)[..., ::-1]
        return {"a": m.sum(1), "d": x + m, "e": numpy.concatenate([m, x], 1), "c": m @ numbers(6, 2)}
    after = remove_dead_code(apply_pass(push_views, graph, formula))
    assert shown(after).keys() == {"a", "b", "c", "d", "e"}
    assert all(o.value in ("x", *after.constants) for n in after.nodes for o in n.all_operands)


def test_a_search_for_the_largest_is_not_split() -> None:
    x = Tensor.input("x", (1, 1, 600, 600))
    graph = graph_of(y=x.pool("argmax", [600, 600]))
    assert reductions.split_reductions(graph).nodes == graph.nodes
    assert len(reductions.split_reductions(graph_of(y=x.pool("max", [600, 600]))).nodes) == 2


def test_views_stop_where_two_fill_values_meet() -> None:
    x = image(1, 4, 3, 3)
    ones = x.pad([0, 0, 1, 1], [0, 0, 1, 1], 1.0)
    graph = graph_of(y=ones.pad([0, 0, 1, 1], [0, 0, 1, 1]) * 2)
    def formula(x: Any) -> dict[str, Any]:
        inner = numpy.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=1)
        return {"y": 2 * numpy.pad(inner, ((0, 0), (0, 0), (1, 1), (1, 1)))}
    after = remove_dead_code(apply_pass(push_views, graph, formula))
    assert len(after.nodes) == 2
    same = graph_of(y=x.pad([0, 0, 1, 0], [0, 0, 0, 0], 1.0).pad([0, 0, 0, 1], [0, 0, 0, 0], 1.0) * 2)
    assert len(remove_dead_code(apply_pass(push_views, same)).nodes) == 1


def test_views_take_the_fill_of_the_side_that_has_bounds() -> None:
    shape = (2,)
    padded, whole = Operand("x", view.pad((2,), (1,), (0,)), 5.0), Operand("x", view.identity((2,)))
    taken = view.take((3,), 0, [0, 2])
    assert compose(Operand("", taken), padded) == Operand("x", taken.over(padded.view), 5.0)
    outer = compose(Operand("", view.pad(shape, (1,), (0,)), 7.0), whole)
    assert outer is not None and outer.fill == 7.0
    assert compose(Operand("", view.pad((3,), (1,), (0,)), 7.0), padded) is None


def along(table: Tensor, index: Tensor, fill: float = 0.0) -> Tensor:
    """The table's last axis at an index for each position."""
    shape = (*index.shape, table.shape[-1])
    axes = view.axis_variables(shape)
    return gather(table, view.View(shape, table.shape, (*axes[: table.rank - 1], axes[-1])), [index], fill)


def test_views_go_into_a_gathers_table_and_indices_but_for_its_own_fill_value() -> None:
    x, index = image(4, 5), image(5, 4, name="i")
    graph = graph_of(x, index, y=along(x.transpose(1, 0).named("t"), (index * 2).named("n"), 9.0))
    after = remove_dead_code(apply_pass(push_views, graph))
    assert shown(after).keys() == {"n", "y"} and node_of(after, "y").operands[0].value == "x"
    padded = x.pad([0, 0], [0, 2], 1.0)
    graph = graph_of(x, index, y=along(padded.named("t"), image(4, 7, name="j"), 9.0))
    assert shown(remove_dead_code(apply_pass(push_views, graph))).keys() == {"t", "y"}
    graph = graph_of(x, index, y=along(padded.named("t"), image(4, 7, name="j"), 1.0))
    assert shown(remove_dead_code(apply_pass(push_views, graph))).keys() == {"y"}


def test_a_gather_takes_work_after_it_and_leaves_work_before_it() -> None:
    x, index = image(4, 5), image(4, 5, name="i")
    graph = graph_of(x, index, y=along(x.exp().named("e"), (index * 3).named("n")).relu() + x)
    for step in PIPELINE:
        graph = apply_pass(step, graph)
    assert {n: text.partition("(")[0] for n, text in shown(graph).items()} == {"e": "load", "n": "load", "y": "gather"}
    assert operations(node_of(graph, "y").epilogue) == ("maximum", "add")


def test_views_leave_casts_and_work() -> None:
    x = image(2, 3)
    unchanged(push_views, graph_of(y=x.cast("float16").named("half").cast("float32") * 2))
    unchanged(push_views, graph_of(y=x.relu().exp()))


def test_a_long_chain_of_movements_is_several_loads() -> None:
    """The indices of one load would be of 1.5**60 terms."""
    x = image(1, 8, 6, 6)
    moved, expected = x, inputs_of(graph_of(y=x.relu()))["x"]
    for _ in range(60):
        moved = moved.transpose(0, 3, 1, 2).slice(1, 5, -1, -1).reshape(1, 8, 6, 6)
        expected = expected.transpose(0, 3, 1, 2)[:, ::-1].reshape(1, 8, 6, 6)
    after = run_passes(graph_of(y=moved.relu()))
    loads = [operand for node in after.nodes for operand in node.all_operands]
    assert 1 < len(after.nodes) <= 20 and all(len(str(operand)) < 2000 for operand in loads)
    found = evaluate_graph(after, inputs_of(after))
    numpy.testing.assert_allclose(found["y"], numpy.maximum(expected, 0), 0, 0)


# fold_padding

def pushed(graph: Graph) -> Graph:
    return remove_dead_code(push_views(graph))


W3 = numbers(4, 8, 3, 3, seed=3)


def test_padding_given_and_result() -> None:
    x = image(1, 8, 8, 8)
    graph = pushed(graph_of(y=x.pad([0, 0, 1, 1], [0, 0, 1, 1]).conv2d(Tensor.constant(W3, "w"))))
    assert "where 1 <= i2 < 9 and 1 <= i3 < 9" in shown(graph)["y"]
    after = apply_pass(fold_padding, graph, lambda x: {"y": numpy_convolution(x, W3, pads=(1, 1, 1, 1))})
    assert shown(after) == {"y": "convolution pads 1x1(x, w)"}


@pytest.mark.parametrize("before, after_", [((2, 0), (0, 1)), ((0, 3), (1, 0)), ((0, 0), (2, 2))])
@pytest.mark.parametrize("own", [0, 1])
def test_padding_of_any_side_adds_to_the_convolutions_own(before: Any, after_: Any, own: int) -> None:
    x = image(2, 8, 5, 6)
    padded = x.pad([0, 0, *before], [0, 0, *after_])
    graph = pushed(graph_of(y=padded.conv2d(Tensor.constant(W3), stride=2, padding=own)))
    pads = (before[0] + own, before[1] + own, after_[0] + own, after_[1] + own)
    after = apply_pass(fold_padding, graph, lambda x: {"y": numpy_convolution(x, W3, (2, 2), pads)})
    assert node_of(after, "y").operands[0].view.is_identity
    operation = node_of(after, "y").operation
    assert isinstance(operation, Convolution) and operation.pads == pads[:2]


def test_padding_of_rows_or_columns_of_one() -> None:
    x = image(1, 8, 1, 1)
    graph = pushed(graph_of(y=x.pad([0, 0, 1, 1], [0, 0, 1, 1]).conv2d(Tensor.constant(W3))))
    after = apply_pass(fold_padding, graph, lambda x: {"y": numpy_convolution(x, W3, pads=(1, 1, 1, 1))})
    assert node_of(after, "y").operands[0].view.is_identity


def test_padding_that_is_not_zeros_around_the_image_stays() -> None:
    x = image(1, 8, 6, 6)
    w = Tensor.constant(W3)
    nines = Tensor.constant(numbers(4, 9, 3, 3))
    for padded, weights in (
        (x.pad([0, 0, 1, 1], [0, 0, 1, 1], 1.0), w),  # ones
        (x.pad([0, 1, 0, 0], [0, 0, 0, 0]), nines),  # channels
        (x.transpose(0, 1, 3, 2).pad([0, 0, 1, 1], [0, 0, 1, 1]), w),  # moved besides
        (x.pad([0, 0, 1, 1], [0, 0, 1, 1]).slice(3, 7, -1, -1), w),
        (x.slice(2, 0, 6, 2).pad([0, 0, 1, 1], [0, 0, 1, 1]), w),
        (x.pad([0, 0, 1, 1], [0, 0, 1, 1]).upsample(2), w),
        (x.pad([1, 0, 0, 0], [0, 0, 0, 0]), w),  # the batch
        (x.slice(1, 7, -1, -1).pad([0, 0, 1, 1], [0, 0, 1, 1]), w),  # channels in another order
        (image(1, 12, 6, 6, name="z").slice(1, 0, 8).pad([0, 0, 1, 1], [0, 0, 1, 1]), w),  # some of the channels
    ):
        graph = pushed(graph_of(y=padded.conv2d(weights)))
        assert not node_of(graph, "y").operands[0].view.is_identity
        unchanged(fold_padding, graph)


@pytest.mark.parametrize("own", [0, 1])
@pytest.mark.parametrize("before, after_", [((-1, 2), (0, 0)), ((2, 0), (-2, 0)), ((0, 1), (0, -1)), ((1, -1), (1, 2))])
def test_padding_beside_a_crop_stays(before: Any, after_: Any, own: int) -> None:
    """The convolution's own padding would read what the crop cut off."""
    x = image(1, 8, 6, 6)
    graph = pushed(graph_of(y=x.pad([0, 0, *before], [0, 0, *after_]).conv2d(Tensor.constant(W3), padding=own)))
    def formula(x: Any) -> dict[str, Any]:
        wide = numpy.pad(x, ((0, 0), (0, 0), (2, 2), (2, 2)))
        cut = wide[:, :, 2 - before[0] : 8 + after_[0], 2 - before[1] : 8 + after_[1]]
        return {"y": numpy_convolution(cut, W3, pads=(own,) * 4)}
    apply_pass(fold_padding, graph, formula)


def test_padding_of_other_readers_and_of_transposed_convolutions_stays() -> None:
    x = image(1, 8, 6, 6)
    padded = x.pad([0, 0, 1, 1], [0, 0, 1, 1])
    unchanged(fold_padding, pushed(graph_of(y=padded.sum([1]), z=padded.exp(), p=padded @ const(8, 2))))
    w = const(8, 4, 2, 2)
    made = convolution(padded, w, [2, 2], [0] * 4, [1, 1], 1, [16, 16], transposed=True)
    unchanged(fold_padding, pushed(graph_of(y=made)))


# nest_concatenations

def test_nesting_given_and_result() -> None:
    a, b, c = (image(1, n, 4, 4, name=name) for n, name in ((8, "a"), (4, "b"), (4, "c")))
    graph = graph_of(a, b, c, y=concatenate([a, b], 1), z=concatenate([a, b, c], 1))
    after = apply_pass(
        nest_concatenations, graph,
        lambda a, b, c: {"y": numpy.concatenate([a, b], 1), "z": numpy.concatenate([a, b, c], 1)},
    )
    assert shown(after) == {"y": "concatenation axis 1(a, b)", "z": "concatenation axis 1(y, c)"}


def test_nesting_reads_the_longest_beginning() -> None:
    parts = [image(1, 4, 3, 3, name=f"x{i}") for i in range(5)]
    graph = graph_of(*parts, **{f"y{n}": concatenate(parts[:n], 1) for n in (2, 4, 5)})
    after = apply_pass(nest_concatenations, graph)
    assert shown(after) == {
        "y2": "concatenation axis 1(x0, x1)", "y4": "concatenation axis 1(y2, x2, x3)",
        "y5": "concatenation axis 1(y4, x4)",
    }


def test_nesting_leaves_everything_else() -> None:
    a, b, c = (image(1, 4, 4, 4, name=name) for name in "abc")
    for axis, first in ((1, [b, a]), (2, [a, b]), (1, [a, c]), (1, [a.relu(), b])):
        unchanged(nest_concatenations, graph_of(y=concatenate(first, axis), z=concatenate([a, b, c], axis)))
    thin = image(1, 3, 4, 4, name="thin")
    unchanged(nest_concatenations, graph_of(y=concatenate([a, thin], 1), z=concatenate([a, thin, c], 1)))


# place_concatenations

def test_concatenations_given_and_result() -> None:
    a, b, c = (image(1, n, 4, 4, name=name) for n, name in ((8, "a"), (3, "b"), (5, "c")))
    graph = graph_of(a, b, c, y=concatenate([a, b, c], 1))
    after = apply_pass(
        place_concatenations, graph, lambda a, b, c: {"y": numpy.concatenate([a, b, c], 1)}
    )
    assert shown(after) == {
        "y.part1": "load(b[0, i1, i2, i3 where 0 <= i1 < 3 else 0]) then add($0, $1), "
        "$1=c[0, i1 - 3, i2, i3 where 3 <= i1 < 8 else 0]",
        "y": "concatenation axis 1(a, y.part1)",
    }
    part = node_of(after, "y.part1")
    assert part.output.shape == (1, 8, 4, 4) and isinstance(part.operation, Load)
    assert str(part.epilogue) == "add($0, $1)" and [o.value for o in part.all_operands] == ["b", "c"]


@pytest.mark.parametrize(
    "channels, parts",
    [
        ([4, 4], 2), ([8, 4, 12], 3), ([4, 3], 2), ([3, 4], 0), ([4, 2, 2, 4], 3), ([1, 1, 2, 5], 2), ([2, 2], 0),
        ([5], 0),
    ],
)
def test_concatenations_are_cut_at_whole_texels(channels: list[int], parts: int) -> None:
    inputs = [image(1, n, 3, 3, name=f"x{i}") for i, n in enumerate(channels)]
    shape = (1, sum(channels), 3, 3)
    values = tuple(Value(t.name or "", t.shape, "float32") for t in inputs)
    node = Node(Value("y", shape, "float32"), Concatenation(1), tuple(map(plain, values)))
    graph = Graph(values, ("y",), (node,))
    after = apply_pass(
        place_concatenations, graph, lambda **x: {"y": numpy.concatenate([x[f"x{i}"] for i in range(len(x))], 1)}
    )
    found = node_of(after, "y")
    if parts:
        assert isinstance(found.operation, Concatenation) and len(found.operands) == parts
        offsets = numpy.cumsum([0, *(o.view.shape[1] for o in found.operands)])[:-1]
        assert not (offsets % 4).any(), "each part begins at a whole texel"
    else:
        assert isinstance(found.operation, Load)


@pytest.mark.parametrize("axis", [0, 2, 3])
def test_concatenations_of_other_axes_become_sums(axis: int) -> None:
    a, b = image(2, 4, 3, 3, name="a"), image(2, 4, 3, 3, name="b")
    graph = graph_of(a, b, y=concatenate([a, b, a], axis))
    after = apply_pass(place_concatenations, graph, lambda a, b: {"y": numpy.concatenate([a, b, a], axis)})
    assert [type(n.operation) for n in after.nodes] == [Load]


@pytest.mark.parametrize("count, nodes", [(12, 1), (13, 2), (24, 3), (30, 4)])
def test_concatenations_of_many_parts_read_at_most_so_many_at_once(count: int, nodes: int) -> None:
    inputs = [image(1, 4, 2, 3, name=f"x{i:02}") for i in range(count)]
    graph = graph_of(*inputs, y=concatenate(inputs, 2))
    after = apply_pass(
        place_concatenations, graph, lambda **x: {"y": numpy.concatenate([x[k] for k in sorted(x)], 2)}
    )
    assert len(after.nodes) == nodes
    assert max(len(n.all_operands) for n in after.nodes) <= concatenations.MOST_OPERANDS


def test_concatenations_of_parts_with_other_fill_values() -> None:
    x = image(1, 4, 3, 3)
    for axis, pads in ((1, [0, 1, 0, 0]), (1, [0, 0, 1, 1]), (3, [0, 0, 0, 1])):
        ones = x.pad(pads, [0] * 4, 1.0)
        others = image(*ones.shape, name="z")
        graph = remove_dead_code(push_views(graph_of(x, others, y=concatenate([ones, others], axis))))
        def formula(x: Any, z: Any, pads: Any = pads, axis: int = axis) -> dict[str, Any]:
            wide = numpy.pad(x, [(p, 0) for p in pads], constant_values=1)
            return {"y": numpy.concatenate([wide, z], axis)}
        after = apply_pass(place_concatenations, graph, formula)
        run_passes(graph)
        assert any(o.fill == 1 for n in after.nodes for o in n.all_operands)


def test_concatenations_keep_infinities_and_nan_in_their_places() -> None:
    a, b = image(1, 3, 2, 2, name="a"), image(1, 2, 2, 2, name="b")
    graph = place_concatenations(graph_of(a, b, y=concatenate([a, b], 1)))
    arrays = {"a": numpy.full((1, 3, 2, 2), numpy.inf), "b": numpy.full((1, 2, 2, 2), numpy.nan)}
    found = evaluate_graph(graph, arrays)["y"]
    assert numpy.isinf(found[:, :3]).all() and numpy.isnan(found[:, 3:]).all()


def test_concatenations_leave_everything_else() -> None:
    x = image()
    unchanged(place_concatenations, graph_of(y=x.relu(), z=x.sum([1]), s=x.conv2d(const(4, 8, 1, 1))))
    unchanged(place_concatenations, graph_of(y=concatenate([x.relu(), x.exp()], 1)))


# reduce_dynamic_weights

def test_dynamic_weights_given_and_result() -> None:
    x, w = image(), image(4, 8, 3, 3, name="w")
    graph = graph_of(x, w, y=x.conv2d(w))
    after = apply_pass(reduce_dynamic_weights, graph, lambda x, w: {"y": numpy_convolution(x, w)})
    assert shown(after) == {"y": "sum of multiply($0, $1)(x[0, i4, i2 + i5, i3 + i6], w[i1, i4, i5, i6])"}


@pytest.mark.parametrize("groups", [1, 2, 8])
@pytest.mark.parametrize("strides, pads, dilations", [((1, 1), (1, 1, 1, 1), (1, 1)), ((2, 1), (0, 2, 1, 0), (1, 2))])
def test_dynamic_weights_of_every_attribute(groups: int, strides: Any, pads: Any, dilations: Any) -> None:
    x, w = image(2, 8, 6, 7), image(8, 8 // groups, 3, 2, name="w")
    graph = graph_of(x, w, y=convolution(x, w.tanh(), strides, pads, dilations, groups).relu())
    def formula(x: Any, w: Any) -> dict[str, Any]:
        return {"y": numpy.maximum(numpy_convolution(x, numpy.tanh(w), strides, pads, dilations, groups), 0)}
    after = apply_pass(reduce_dynamic_weights, graph, formula)
    assert not any(isinstance(n.operation, Convolution) for n in after.nodes)


def test_dynamic_weights_of_transposed_convolutions() -> None:
    """A transposed convolution adds each input, times the window, to the output at stride times its position."""
    x, w = image(1, 4, 3, 3), image(4, 3, 3, 2, name="w")
    for groups, pads in ((1, (0, 0)), (2, (1, 0))):
        size = [(3 - 1) * 2 + 3 - pads[0], (3 - 1) * 3 + 2 - pads[1]]
        made = convolution(x, w, [2, 3], [*pads, 0, 0], [1, 1], groups, size, transposed=True)
        def formula(x: Any, w: Any, groups: int = groups, pads: Any = pads) -> dict[str, Any]:
            full = numpy.zeros((1, 3 * groups, 7, 8))
            for c in range(4):
                first = c // (4 // groups) * 3
                for i, j in numpy.ndindex(3, 3):
                    full[0, first : first + 3, 2 * i : 2 * i + 3, 3 * j : 3 * j + 2] += x[0, c, i, j] * w[c]
            return {"y": full[:, :, pads[0] :, pads[1] :]}
        apply_pass(reduce_dynamic_weights, graph_of(x, w, y=made), formula)


def test_dynamic_weights_leave_constant_ones() -> None:
    x = image()
    graph = graph_of(y=x.conv2d(const(4, 8, 1, 1)), z=x.sum([1]), p=x @ image(6, 2, name="m"))
    unchanged(reduce_dynamic_weights, graph)


# materialise_operands

def test_materialise_given_and_result() -> None:
    x = image()
    w = numbers(4, 8, 1, 1)
    table = [5, 0, 3, 3]
    e = (x * 2.0).named("e")
    graph = pushed(graph_of(y=e.take(2, table).conv2d(Tensor.constant(w, "w"))))
    after = apply_pass(
        materialise_operands, graph, lambda x: {"y": numpy_convolution(2 * x[:, :, table], w)}
    )
    assert shown(after) == {
        "e": "load(x) then multiply($0, 2)", "y.input": "load(e[0, i1, table4[i2], i3])",
        "y": "convolution(y.input, w)",
    }


def test_materialise_makes_one_node_for_equal_reads() -> None:
    x = image()
    moved = x.transpose(0, 1, 3, 2)
    graph = pushed(graph_of(y=moved.conv2d(const(4, 8, 1, 1)), z=moved.conv2d(const(4, 8, 1, 1, seed=1))))
    after = apply_pass(materialise_operands, graph)
    assert [n.output.name for n in after.nodes] == ["y.input", "y", "z"]


def test_materialise_of_each_kind_of_movement() -> None:
    x = image()
    for moved in (
        x.slice(2, 1, 6), x.slice(3, 5, -1, -1), x.upsample(2), x.pad([0, 0, 1, 1], [0, 0, 1, 1], 1.0),
        x.take(1, [1, 0, 2, 3, 4, 5, 6, 7]), x.reshape(1, 8, 4, 9),
    ):
        graph = pushed(graph_of(y=moved.conv2d(const(4, moved.shape[1], 1, 1))))
        after = apply_pass(materialise_operands, graph)
        assert node_of(after, "y").operands[0].view.is_identity and len(after.nodes) == 2


def test_materialise_leaves_what_is_read_in_its_own_order() -> None:
    x = image()
    weights = const(4, 8, 1, 1)
    unchanged(materialise_operands, pushed(graph_of(y=x.conv2d(weights))))
    # Reshapes that only add or drop axes of length one.
    line = image(1, 8, 36, name="l")
    unchanged(materialise_operands, pushed(graph_of(y=line.reshape(1, 8, 1, 36).conv2d(weights))))
    moved = x.transpose(0, 1, 3, 2)
    unchanged(materialise_operands, pushed(graph_of(y=moved.exp(), z=moved.sum([1]), p=moved @ const(6, 2))))


# merge_elementwise

def test_elementwise_given_and_result() -> None:
    x = image(2, 5, 3)
    e = x.exp().named("e")
    s = e.sum([1], keepdims=True).named("s")
    graph = pushed(graph_of(y=e / s))
    def formula(x: Any) -> dict[str, Any]:
        return {"y": numpy.exp(x) / numpy.exp(x).sum(1, keepdims=True)}
    after = apply_pass(merge_elementwise, graph, formula)
    assert shown(after) == {
        "s": "sum of exp($0)(x[i0, i3, i2])", "y": "load(x) then divide(exp($0), $1), $1=s[i0, 0, i2]",
    }


def test_elementwise_chains_become_one_load() -> None:
    x = image()
    k = const(8, 1, 1, name="k", low=0.1)
    graph = graph_of(y=((x * k + 1.0).relu().exp() - x).tanh())
    after = apply_pass(
        merge_elementwise, graph,
        lambda x: {"y": numpy.tanh(numpy.exp(numpy.maximum(x * k.array + 1.0, 0)) - x)},
    )
    assert shown(after) == {
        "y": "load(x) then tanh(subtract(exp(maximum(add(multiply($0, $1), 1), 0)), $0)), $1=k[i1, 0, 0]"
    }


def test_elementwise_does_not_merge_an_output() -> None:
    x = image()
    e = x.exp()
    unchanged(merge_elementwise, graph_of(e=e, y=e * 2))


def test_elementwise_goes_through_zeros_only_where_zero_stays_zero() -> None:
    x = image()
    pads = [0, 0, 1, 1]
    border = ((0, 0), (0, 0), (1, 1), (1, 1))
    for work, function, merges in (
        (x.relu(), lambda v: numpy.maximum(v, 0), True),
        (x.tanh() * 3, lambda v: 3 * numpy.tanh(v), True),
        (x * const(8, 1, 1, seed=4), lambda v: v * numbers(8, 1, 1, seed=4), True),
        (x.exp(), numpy.exp, False),
        (x + 0.5, lambda v: v + 0.5, False),
        (x + const(8, 1, 1, seed=4), lambda v: v + numbers(8, 1, 1, seed=4), True),
        (x.sigmoid(), lambda v: 1 / (1 + numpy.exp(-v)), False),
    ):
        graph = pushed(graph_of(y=work.pad(pads, pads).sum([1])))
        after = apply_pass(
            merge_elementwise, graph,
            lambda x, function=function: {"y": numpy.pad(function(x), border).sum(1)},
        )
        assert (len(after.nodes) == 1) == merges, str(graph)


def test_elementwise_never_goes_through_another_fill_value() -> None:
    x = image()
    graph = pushed(graph_of(y=x.relu().pad([0, 0, 1, 1], [0, 0, 1, 1], -1.0).sum([1])))
    unchanged(merge_elementwise, graph)
    filled = x.pad([0, 0, 1, 1], [0, 0, 1, 1], 2.0).relu()
    graph = pushed(graph_of(y=filled.pad([0, 0, 1, 1], [0, 0, 1, 1]).sum([1])))
    unchanged(merge_elementwise, graph)


def test_elementwise_max_pools_read_minus_infinity_outside() -> None:
    x = image()
    graph = graph_of(y=(x - 5.0).max_pool(3, 2, 1))
    def formula(x: Any) -> dict[str, Any]:
        wide = numpy.pad(x - 5, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-numpy.inf)
        seen = numpy.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3))[:, :, ::2, ::2]
        return {"y": seen.max((-2, -1))}
    unchanged(merge_elementwise, graph)
    apply_pass(merge_elementwise, graph, formula)


def test_elementwise_does_not_repeat_dear_work_at_many_positions() -> None:
    x = image(*LARGE)
    dear = x.exp().tanh().sigmoid()
    windows = graph_of(y=dear.pool("max", [5, 5], [5, 5]))
    assert len(merge_elementwise(graph_of(y=dear.sum([2, 3]))).validate().nodes) == 1
    assert len(merge_elementwise(windows).validate().nodes) == 1, "windows side by side read each position once"
    overlapping = graph_of(y=dear.pool("sum", [5, 5], [1, 1]))
    after = merge_elementwise(overlapping).validate()
    assert [type(n.operation) for n in after.nodes] == [Load, Reduction]
    assert len(merge_elementwise(graph_of(y=image(*LARGE).relu().sum([2, 3]))).validate().nodes) == 1


def test_elementwise_leaves_work_that_its_producer_can_take() -> None:
    x = image()
    conv = x.conv2d(const(8, 8, 1, 1))
    act = conv.relu()
    graph = graph_of(y=act.sum([1]), z=act.max([2]))
    unchanged(merge_elementwise, graph)


def test_elementwise_never_merges_into_hand_written_kernels_or_concatenations() -> None:
    x = image()
    e = x.exp()
    unchanged(merge_elementwise, graph_of(y=e.conv2d(const(4, 8, 1, 1)), c=concatenate([x.tanh(), x.relu()], 1)))
    unchanged(merge_elementwise, graph_of(y=x.relu() @ const(6, 3)))


def test_elementwise_keeps_the_number_of_operands_in_bounds() -> None:
    x = image()
    inputs = [image(name=f"x{i:02}") for i in range(20)]
    total = x.tanh()
    for one in inputs:
        total = total + one.tanh()
    graph = graph_of(x, *inputs, y=total)
    def formula(x: Any, **others: Any) -> dict[str, Any]:
        return {"y": numpy.tanh(x) + sum(numpy.tanh(v) for v in others.values())}
    after = apply_pass(merge_elementwise, graph, formula)
    assert max(len(n.all_operands) for n in after.nodes) <= concatenations.MOST_OPERANDS
    assert len(after.nodes) <= 4


# fuse_epilogues

def test_epilogues_given_and_result() -> None:
    x = image()
    w, b = numbers(4, 8, 1, 1), numbers(4, 1, 1)
    graph = graph_of(y=(x.conv2d(Tensor.constant(w, "w")).named("c") + Tensor.constant(b, "bias")).relu())
    after = apply_pass(fuse_epilogues, graph, lambda x: {"y": numpy.maximum(numpy_convolution(x, w) + b, 0)})
    assert shown(after) == {"y": "convolution(x, w) then maximum(add($0, $1), 0), $1=bias[i1, 0, 0]"}


def test_epilogues_of_every_kind_of_producer() -> None:
    x = image()
    m = numbers(6, 5)
    after = apply_pass(
        fuse_epilogues, graph_of(p=(x @ Tensor.constant(m)).tanh(), r=x.sum([1]).exp(), q=x.max_pool(2, 2).relu() * 2),
        lambda x: {"p": numpy.tanh(x @ m), "r": numpy.exp(x.sum(1))},
    )
    assert [type(n.operation) for n in after.nodes] == [Product, Reduction, Reduction]
    assert all(isinstance(n.epilogue, Apply) for n in after.nodes)


def test_epilogues_take_operands_of_every_view() -> None:
    x = image()
    small = image(1, 4, 3, 3, name="s")
    w = numbers(4, 8, 1, 1)
    graph = pushed(graph_of(x, small, y=x.conv2d(Tensor.constant(w, "w")) * small.upsample(2)))
    after = apply_pass(
        fuse_epilogues, graph,
        lambda x, s: {"y": numpy_convolution(x, w) * s.repeat(2, 2).repeat(2, 3)},
    )
    assert shown(after) == {"y": "convolution(x, w) then multiply($0, $1), $1=s[0, i1, i2/2, i3/2]"}


def test_epilogues_read_the_result_twice() -> None:
    x = image()
    w = numbers(4, 8, 1, 1)
    c = x.conv2d(Tensor.constant(w, "w"))
    after = apply_pass(
        fuse_epilogues, graph_of(y=c * c.sigmoid()),
        lambda x: {"y": (v := numpy_convolution(x, w)) / (1 + numpy.exp(-v))},
    )
    assert shown(after) == {"y": "convolution(x, w) then multiply($0, sigmoid($0))"}


def test_epilogues_of_a_residual_go_to_the_one_made_last() -> None:
    x = image()
    first = x.conv2d(const(8, 8, 1, 1)).named("first")
    second = first.relu().conv2d(const(8, 8, 1, 1, seed=1)).named("second")
    after = apply_pass(fuse_epilogues, graph_of(y=first + second))
    assert [n.output.name for n in after.nodes][0] == "first" and node_of(after, "y").reads >= {"first"}
    # Either order of the addition; and the later one that depends on the former.
    other = apply_pass(fuse_epilogues, graph_of(y=second + first))
    assert len(after.nodes) == len(other.nodes)


def test_epilogues_never_make_a_cycle() -> None:
    """y reads c and e, where e is computed from c: c's kernel cannot read e."""
    x = image()
    c = x.conv2d(const(8, 8, 1, 1)).named("c")
    e = c.sum([2, 3], keepdims=True).named("e")
    graph = graph_of(y=c - e)
    after = apply_pass(fuse_epilogues, graph)
    assert "c" in after.producers and not isinstance(node_of(after, "y").operation, Convolution)


def test_epilogues_leave_outputs_several_readers_and_other_positions() -> None:
    x = image()
    c = x.conv2d(const(8, 8, 1, 1))
    unchanged(fuse_epilogues, graph_of(c=c, y=c.relu()))
    unchanged(fuse_epilogues, graph_of(y=c.relu(), z=c.max([1])))
    unchanged(fuse_epilogues, pushed(graph_of(y=c.transpose(0, 1, 3, 2).exp())))
    both = c.exp() + c.slice(2, 5, -1, -1)
    after = apply_pass(fuse_epilogues, pushed(graph_of(y=both)))
    assert [type(n.operation) for n in after.nodes] == [Convolution, Load]
    unchanged(fuse_epilogues, graph_of(y=concatenate([x.tanh(), x.exp()], 1).sigmoid()))


def test_epilogues_keep_where_the_work_came_from() -> None:
    x = image()
    with origin("Conv_0"):
        c = x.conv2d(const(4, 8, 1, 1))
    with origin("Relu_1"):
        y = c.relu()
    after = apply_pass(fuse_epilogues, graph_of(y=y))
    assert node_of(after, "y").origin == ("Conv_0", "Relu_1")


def test_epilogues_keep_the_number_of_operands_in_bounds() -> None:
    x = image()
    others = [image(name=f"x{i:02}") for i in range(16)]
    total = x.conv2d(const(8, 8, 1, 1, name="w"))
    for one in others:
        total = total + one
    after = apply_pass(fuse_epilogues, graph_of(x, *others, y=total))
    assert max(len(n.all_operands) for n in after.nodes) <= concatenations.MOST_OPERANDS
    assert len(after.nodes) == 2


# fold_scales

def fused(graph: Graph) -> Graph:
    return fuse_epilogues(pushed(graph))


def test_scales_given_and_result() -> None:
    x = image()
    w, b, s, t = numbers(4, 8, 3, 3), numbers(4, 1, 1), numbers(4, 1, 1, seed=1), numbers(4, 1, 1, seed=2)
    k = [Tensor.constant(a, n) for a, n in ((b, "b"), (s, "s"), (t, "t"))]
    y = ((x.conv2d(Tensor.constant(w, "w"), padding=1) + k[0]) * k[1] + k[2]).relu()
    def formula(x: Any) -> dict[str, Any]:
        return {"y": numpy.maximum((numpy_convolution(x, w, pads=(1,) * 4) + b) * s + t, 0)}
    after = apply_pass(fold_scales, fused(graph_of(y=y)), formula)
    assert shown(after) == {"y": "convolution pads 1x1(x, y.weights) then maximum(add($0, $1), 0), $1=y.bias[i1]"}
    assert_near(after.constants["y.weights"], w * s[..., None], 1e-6)
    assert_near(after.constants["y.bias"], (b * s + t).ravel(), 1e-6)
    assert after.constants["y.weights"].dtype == numpy.float32


def test_scales_are_rounded_once() -> None:
    """The fold is in float64: a chain of factors that float32 would round at each step."""
    x = image(1, 1, 1, 1)
    w = numpy.array([[[[1.1]]]], numpy.float32)
    factors = [numpy.float32(f) for f in (1.7, 0.3, 3.3, 0.7, 1.9)]
    y = x.conv2d(Tensor.constant(w))
    for number, factor in enumerate(factors):
        y = y * Tensor.constant(numpy.full((1, 1, 1), factor), f"f{number}")
    after = apply_pass(fold_scales, fused(graph_of(y=y)))
    expected = numpy.prod([numpy.float64(v) for v in (w.item(), *factors)])
    assert after.constants["y.weights"].item() == numpy.float32(expected)


def test_scales_of_every_form_of_step() -> None:
    x = image()
    w = numbers(4, 8, 1, 1)
    k = numbers(4, 1, 1, low=0.5, high=2)
    c = Tensor.constant(k, "k")
    def conv() -> Tensor:
        return x.conv2d(Tensor.constant(w, "w"))
    cases: list[tuple[Tensor, Any]] = [
        (conv() / c, lambda v: v / k),
        (conv() - c - 1.0, lambda v: v - k - 1),
        (2.0 * (3.0 - conv()), lambda v: 2 * (3 - v)),
        (c - conv(), lambda v: k - v),
        (conv() * 2 + 1, lambda v: 2 * v + 1),
        ((conv() + c) / 4.0, lambda v: (v + k) / 4),
        ((conv() * c).silu(), lambda v: v * k / (1 + numpy.exp(-v * k))),
    ]
    for tensor, function in cases:
        after = apply_pass(
            fold_scales, fused(graph_of(y=tensor)), lambda x, f=function: {"y": f(numpy_convolution(x, w))}
        )
        left = operations(node_of(after, "y").epilogue)
        assert set(left) <= {"add", "multiply", "sigmoid"} and left.count("add") <= 1
        assert "multiply" not in left or "sigmoid" in left


def test_scales_of_grouped_and_transposed_convolutions_and_products() -> None:
    x = image()
    s = numbers(8, 1, 1, low=0.5, high=2)
    grouped = x.conv2d(const(8, 2, 3, 3), padding=1, groups=4) * Tensor.constant(s, "s")
    after = apply_pass(fold_scales, fused(graph_of(y=grouped)))
    assert operations(node_of(after, "y").epilogue) == ()
    w = const(8, 4, 2, 2, name="w")
    up = convolution(x, w, [2, 2], [0] * 4, [1, 1], 2, [12, 12], transposed=True) * Tensor.constant(s, "s")
    after = apply_pass(fold_scales, fused(graph_of(y=up)))
    assert operations(node_of(after, "y").epilogue) == ()
    m, k = numbers(6, 5), numbers(5, seed=1)
    product = (x @ Tensor.constant(m, "m")) * Tensor.constant(k, "k") + 1.0
    after = apply_pass(fold_scales, fused(graph_of(y=product)), lambda x: {"y": (x @ m) * k + 1})
    assert operations(node_of(after, "y").epilogue) == ("add",)


def test_scales_leave_what_is_no_constant_of_a_channel() -> None:
    x = image()
    def conv() -> Tensor:
        return x.conv2d(const(4, 8, 1, 1, name="w"))
    for tensor in (
        conv() + const(4, 1, 1),  # a bias is what is wanted
        conv() - const(4, 1, 1),
        conv().relu() * const(4, 1, 1),
        conv() * const(1, 4, 6, 6),  # of each position
        conv() * const(6),  # of a column
        conv() * image(4, 1, 1, name="z"),  # an input
        const(4, 1, 1) / conv(),
        conv() * Tensor.constant(numpy.array([[[1]], [[2]], [[numpy.inf]], [[3]]], numpy.float32)),
        conv() / Tensor.constant(numpy.array([[[1]], [[2]], [[0]], [[3]]], numpy.float32)),
        x.sum([1], keepdims=True) * 2,
    ):
        unchanged(fold_scales, fused(graph_of(y=tensor)))
    c = conv()
    unchanged(fold_scales, fused(graph_of(y=c + c.sigmoid())))
    w = image(4, 8, 1, 1, name="w")
    unchanged(fold_scales, fused(graph_of(x, w, y=x.conv2d(w) * 2)))


def test_scales_of_shared_weights_and_taken_names() -> None:
    x = image()
    w, b = numbers(4, 8, 1, 1), numbers(4, 1, 1)
    weights, bias = Tensor.constant(w, "y.weights"), Tensor.constant(b, "y.bias")
    graph = graph_of(y=(x.conv2d(weights) + bias) * 3.0, z=x.conv2d(weights), u=x.slice(1, 0, 4) + bias)
    after = apply_pass(
        fold_scales, fused(graph),
        lambda x: {"y": 3 * (numpy_convolution(x, w) + b), "z": numpy_convolution(x, w), "u": x[:, :4] + b},
    )
    assert after.constants["y.weights"] is w and after.constants["y.weights_"].shape == w.shape


# multiply_inputs

def excited(x: Tensor, w: Tensor) -> tuple[Graph, Any]:
    """Squeeze-and-excite before a convolution, and its formula."""
    s = x.mean([2, 3], keepdims=True).sigmoid().named("s")
    def formula(x: Any) -> dict[str, Any]:
        factor = 1 / (1 + numpy.exp(-x.mean((2, 3), keepdims=True)))
        return {"y": numpy_convolution(x * factor, w.array)}
    return graph_of(y=(x * s).named("m").conv2d(w)), formula


def test_factors_given_and_result() -> None:
    graph, formula = excited(image(2, 8, 6, 6), const(4, 8, 1, 1, name="w"))
    after = apply_pass(multiply_inputs, graph, formula)
    assert shown(after)["y"] == "convolution(x, w, s)" and "m" not in after.producers
    # The whole pipeline ends there too.
    assert len(apply_pass(run_passes, graph, formula).nodes) == 2


def test_factors_in_either_order_and_for_several_readers() -> None:
    x, s = image(), image(1, 8, 1, 1, name="s")
    m = s * x
    one, two = const(4, 8, 1, 1), const(8, 8, 1, 1, seed=1)
    def formula(x: Any, s: Any) -> dict[str, Any]:
        y, z = (numpy_convolution(x * s, w.array) for w in (one, two))
        return {"y": y, "z": numpy.maximum(z, 0)}
    after = apply_pass(multiply_inputs, graph_of(x, s, y=m.conv2d(one), z=m.conv2d(two).relu()), formula)
    assert [len(n.operands) for n in after.nodes if isinstance(n.operation, Convolution)] == [3, 3]
    assert not any(n.epilogue == apply("multiply", Argument(0), Argument(1)) for n in after.nodes)


def test_factors_stay_where_no_convolution_can_take_them() -> None:
    x, s = image(), image(1, 8, 1, 1, name="s")
    w = const(4, 8, 1, 1)
    for tensor in (
        (x * s).conv2d(const(4, 8, 3, 3)),  # each texel would be multiplied for each tap
        (x * s).conv2d(w, padding=1),
        (x * s).conv2d(const(8, 1, 1, 1), groups=8),
        (x + s).conv2d(w),
        (x * const(8, 1, 1)).conv2d(w),
        (x * image(1, 8, 6, 6, name="t")).conv2d(w),
        (x * image(1, 1, 6, 1, name="r")).conv2d(w),
        (x * s).relu().conv2d(w),
        (x.transpose(0, 1, 3, 2) * s).conv2d(w),
        (x * s).sum([1]),
        (x * s) @ const(6, 2),
        (x * s).transpose(0, 1, 3, 2).conv2d(w),
    ):
        unchanged(multiply_inputs, fuse_epilogues(pushed(graph_of(y=tensor))))
    m = x * s
    unchanged(multiply_inputs, graph_of(x, s, m=m, y=m.conv2d(w)))
    unchanged(multiply_inputs, graph_of(x, s, y=m.conv2d(w), z=m.max([1])))
    unchanged(multiply_inputs, fuse_epilogues(graph_of(x, s, y=m.conv2d(const(8, 8, 1, 1)) + m)))


# split_reductions

def test_reductions_given_and_result() -> None:
    x = image(1, 8, 720, 720)
    square = apply("multiply", Argument(0), Argument(0))
    graph = graph_of(s=x.reduce("sum", [2, 3], keepdims=True, body=square))
    after = apply_pass(split_reductions, graph, lambda x: {"s": (x * x).sum((2, 3), keepdims=True)})
    assert shown(after) == {
        "s.rows": "sum of multiply($0, $0)(x[0, i1, i4, i5])", "s": "sum(s.rows)",
    }
    assert after.values["s.rows"].shape == (1, 8, 1, 1, 720)
    assert str(node_of(after, "s").operation) == "sum"


def test_reductions_keep_the_epilogue_for_the_end_and_split_along_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reductions, "LONG", 100)
    x, z = image(2, 3, 5, 30), image(2, 3, 1, 1, name="z")
    graph = fuse_epilogues(graph_of(x, z, y=x.mean([2, 3], keepdims=True) * z, m=x.max([0, 2, 3]).relu()))
    after = apply_pass(
        split_reductions, graph,
        lambda x, z: {"y": x.mean((2, 3), keepdims=True) * z, "m": numpy.maximum(x.max((0, 2, 3)), 0)},
    )
    assert len(after.nodes) == 4
    for name in ("y", "m"):
        rows = node_of(after, f"{name}.rows")
        assert rows.output.shape[-1] == 30 and rows.epilogue == Argument(0) and rows.epilogue_operands == ()
        assert operations(node_of(after, name).epilogue)


@pytest.mark.parametrize("kind", ["sum", "max", "min", "product"])
def test_reductions_of_every_kind(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reductions, "LONG", 10)
    functions: dict[str, Any] = {"sum": numpy.sum, "max": numpy.max, "min": numpy.min, "product": numpy.prod}
    graph = graph_of(y=image(2, 3, 4, 5).reduce(kind, [1, 2, 3]))
    after = apply_pass(split_reductions, graph, lambda x: {"y": functions[kind](x, axis=(1, 2, 3))})
    assert len(after.nodes) == 2


def test_reductions_that_are_short_wide_or_along_one_axis_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    x = image(1, 8, 20, 20)
    unchanged(split_reductions, graph_of(y=x.sum([2, 3]), z=x.relu()))
    monkeypatch.setattr(reductions, "LONG", 100)
    unchanged(split_reductions, graph_of(y=image(4, 200).sum([1])))
    unchanged(split_reductions, graph_of(y=image(4, 1, 200).sum([1, 2])))
    monkeypatch.setattr(reductions, "MOST_OUTPUTS", 7)
    unchanged(split_reductions, graph_of(y=x.sum([2, 3])))
    monkeypatch.setattr(reductions, "MOST_OUTPUTS", 8)
    assert len(split_reductions(graph_of(y=x.sum([2, 3]))).nodes) == 2


# separate_windows

def pooled(x: Any, window: int) -> Any:
    """The maximum of windows of odd length around each position."""
    half = window // 2
    padded = numpy.pad(x, ((0, 0), (0, 0), (half, half), (half, half)), constant_values=-numpy.inf)
    return numpy.lib.stride_tricks.sliding_window_view(padded, (window, window), (2, 3)).max((4, 5))


def test_windows_given_and_result() -> None:
    x = image(1, 64, 80, 80)
    after = apply_pass(separate_windows, graph_of(y=x.max_pool(13, 1, 6)), lambda x: {"y": pooled(x, 13)})
    rows, y = after.nodes
    assert (rows.output.name, rows.output.shape) == ("y.rows", (1, 64, 80, 80))
    assert (y.output.name, y.operands[0].value) == ("y", "y.rows")
    assert [n.operands[0].view.shape[4:] for n in (rows, y)] == [(1, 13), (13, 1)]
    assert str(rows.operands[0]).startswith("x[0, i1, i2, i3 + i5 - 6 where") and rows.operands[0].fill == -numpy.inf


def test_windows_that_are_small_or_not_of_a_maximum_stay() -> None:
    x = image(1, 64, 80, 80)
    unchanged(separate_windows, graph_of(y=image(1, 8, 20, 20).max_pool(13, 1, 6)))
    unchanged(separate_windows, graph_of(y=x.pool("sum", [13, 13])))
    unchanged(separate_windows, graph_of(y=x.pool("argmax", [13, 13])))
    unchanged(separate_windows, graph_of(y=x.pool("max", [1, 80]), z=x.pool("max", [80, 1]), m=x.max([2, 3])))
    unchanged(separate_windows, graph_of(y=x.reduce("max", [2, 3], body=Apply("exp", (Argument(0),)))))


@pytest.mark.parametrize("kind", windows.KINDS)
def test_windows_with_strides_dilations_and_an_epilogue(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "LAUNCH", -1e9)
    x, deep = image(2, 5, 9, 12), image(2, 5, 3, 6, 6, name="deep")
    y = x.pool(kind, [3, 2], [2, 3], [1, 0, 0, 1], [1, 2]).relu() * 2
    graph = fuse_epilogues(graph_of(y=y, z=deep.pool(kind, [2, 3, 3])))
    after = apply_pass(separate_windows, graph)
    assert [n.output.name for n in after.nodes] == ["y.rows", "y", "z.rows", "z"]
    assert operations(node_of(after, "y").epilogue) and not operations(node_of(after, "y.rows").epilogue)


# Passes together

def test_batch_normalization_disappears() -> None:
    x = image()
    w, b = numbers(4, 8, 3, 3), numbers(4)
    scale, shift, mean = (numbers(4, 1, 1, seed=i) for i in (1, 2, 3))
    variance = numbers(4, 1, 1, seed=4, low=0.1, high=2)
    c = x.conv2d(Tensor.constant(w), Tensor.constant(b), padding=1)
    normal = (c - Tensor.constant(mean)) / (Tensor.constant(variance) + 1e-5).sqrt()
    graph = graph_of(y=(normal * Tensor.constant(scale) + Tensor.constant(shift)).silu())
    after = apply_pass(run_passes, graph)
    (node,) = after.nodes
    assert str(node.epilogue) == "multiply(add($0, $1), sigmoid(add($0, $1)))"
    assert after.constants.keys() == {"y.weights", "y.bias"}
    x_ = inputs_of(graph)["x"].astype(float)
    v = (numpy_convolution(x_, w, pads=(1,) * 4) + b.reshape(-1, 1, 1) - mean) / numpy.sqrt(variance + 1e-5)
    v = v * scale + shift
    assert_near(evaluate_graph(after, inputs_of(graph))["y"], v / (1 + numpy.exp(-v)))


def test_softmax_is_three_nodes() -> None:
    graph = graph_of(y=image().softmax(1))
    after = apply_pass(run_passes, graph, lambda x: {"y": numpy_softmax(x, 1)})
    assert [type(n.operation) for n in after.nodes] == [Reduction, Reduction, Load]


def test_names_of_the_model_are_never_taken() -> None:
    """Constants and tensors called as passes call theirs."""
    x = image()
    taken = {
        name: Tensor.constant(numbers(8, 1, 1, seed=i), name)
        for i, name in enumerate(("y.still", "y.input", "y.weights", "y.bias", "y.part1", "y.rows", "y.filled0"))
    }
    y = (x.transpose(0, 1, 3, 2).conv2d(const(8, 8, 1, 1, seed=9)) + 1.0) * 2.0
    for tensor in taken.values():
        y = y.relu() * tensor
    parts = [y, x.slice(1, 0, 3), x.slice(1, 3, 8).exp()]
    others = {f"o{i}": x + tensor for i, tensor in enumerate(taken.values())}
    apply_pass(run_passes, graph_of(y=concatenate(parts, 1).exp().transpose(0, 1, 3, 2).relu(), **others))


def test_constant_models_and_models_that_pass_their_input_through() -> None:
    x = image()
    assert run_passes(graph_of(x=x)).nodes == ()
    after = apply_pass(run_passes, graph_of(y=Tensor.constant(numbers(2, 3), "k") * 2, z=x))
    assert set(after.outputs) == {"y", "z"}


def test_literals_are_values_not_identities() -> None:
    assert Literal(1.0) == Literal(1.0) and hash(Literal(1.0)) == hash(Literal(1.0))
    assert passes.run_passes is run_passes


# guard_integers


def whole(name: str = "x", dtype: str = "int32") -> Tensor:
    return Tensor.input(name, (4, 6), dtype)


def test_products_of_integers_are_guarded_and_so_is_what_compares_them() -> None:
    x, y = whole(), whole("y")
    p = (x * y).named("p")
    after = apply_pass(guard_integers, graph_of(x, y, c=less(p, 5)), lambda x, y: {"c": x * y < 5})
    assert shown(after) == {
        "p": "load(x) then where(less(absolute(multiply($0, $1)), 16777216), multiply($0, $1), nan), $1=y",
        "c": "load(p) then add(less($0, 5), multiply($0, 0))",
    }


def test_integers_that_are_small_are_not_guarded() -> None:
    x, pixels = whole(), whole("pixels", "uint8").cast("int32")
    shifted = pixels * 1000 + 77
    outputs = {
        "sum": shifted.sum([0]), "chosen": where(less(x, 3), x, shifted).maximum(7), "rest": x.apply("modulo", 10) * 9,
        "far": x.apply("quotient", 3), "position": x.argmax(0) + 1, "single": x.cast("float32") * 1e9,
    }
    unchanged(guard_integers, build_graph(outputs))


def test_sums_of_integers_of_both_signs_are_guarded_by_the_sum_of_their_sizes() -> None:
    x = whole()
    graph = graph_of(x, s=x.sum([1]), n=x.apply("absolute").sum([1]), m=(x * x).max([1]))
    after = apply_pass(guard_integers, graph, lambda x: {"s": x.sum(1), "n": abs(x).sum(1), "m": (x * x).max(1)})
    texts = shown(after)
    assert [name for name in texts if texts[name].startswith("sum of absolute")] == ["s.sum0"]
    assert "where(less($1, 16777216), $0, nan)" in texts["s"] and "less(absolute($0)" in texts["n"]
    # A maximum passes over NaN: a sum of the same does not.
    assert "add($0, multiply($1, 0))" in texts["m"]
    back = {"x": numpy.int64([[2**24 - 1, 1, 1, -(2**24) + 1, 0, 0]] * 4)}
    assert (evaluate_graph(after, back)["s"] != 2).all()


@pytest.mark.parametrize("step", [guard_integers, run_passes])
def test_sums_of_bytes_are_not_guarded_but_floats_may_be_anything(step: Any) -> None:
    weights = Tensor.constant(numpy.full((4, 8, 3, 3), 100, numpy.int8).astype(numpy.int32))
    pixels = Tensor.input("p", (1, 8, 6, 6), "uint8").cast("int32")
    after = step(build_graph({"y": pixels.conv2d(weights) + 5, "f": image().cast("int32") * 2}))
    texts = shown(after)
    assert "nan" not in texts["y"] and "nan" in texts["f"]


def test_integers_that_only_move_are_left_to_the_host() -> None:
    x = whole()
    known = Tensor.constant(numpy.full((1, 6), 2**31 - 7, numpy.int32))
    moved = concatenate([x.transpose(1, 0).transpose(1, 0), known], 0)
    unchanged(guard_integers, graph_of(x, y=moved.slice(0, 1, 5)))
    with pytest.raises(UnsupportedError, match="constant integer past"):
        guard_integers(graph_of(x, y=moved.slice(0, 1, 5) + 1))
