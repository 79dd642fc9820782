"""push_views: its Given and Result, where it must act and where it must not."""

from __future__ import annotations

from typing import Any

import numpy
from graphs import apply_pass, const, graph_of, image, inputs_of, node_of, numbers, shown, unchanged

from imgconv.graph import view
from imgconv.graph.evaluate import evaluate_graph
from imgconv.graph.expression import function_names
from imgconv.graph.nodes import Operand
from imgconv.passes import PIPELINE, reductions, run_passes
from imgconv.passes.dead_code import remove_dead_code
from imgconv.passes.views import compose, push_views
from imgconv.tensor import Tensor, concatenate, gather


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
    assert compose(Operand("", taken), padded) == Operand("x", taken.composed_with(padded.view), 5.0)
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
    assert function_names(node_of(graph, "y").epilogue) == ("maximum", "add")


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
