"""merge_elementwise: its Given and Result, where it must act and where it must not."""

from __future__ import annotations

from typing import Any

import numpy
from graphs import apply_pass, const, graph_of, image, numbers, pushed, shown, unchanged

from imgconv.graph.nodes import Load, Reduction
from imgconv.passes import concatenations
from imgconv.passes.elementwise import merge_elementwise
from imgconv.tensor import concatenate

LARGE = (1, 8, 128, 128)


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
