"""align_concatenations: its Given and Result, where it must act and where it must not."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from graphs import apply_pass, const, graph_of, image, node_of, shown, unchanged

from imgconv.graph.evaluate import evaluate_graph
from imgconv.graph.nodes import Concatenation, Graph, Load, Node, Value, whole_operand
from imgconv.passes import concatenations, run_passes
from imgconv.passes.concatenations import align_concatenations
from imgconv.passes.dead_code import remove_dead_code
from imgconv.passes.views import push_views
from imgconv.tensor import concatenate


def test_concatenations_given_and_result() -> None:
    a, b, c = (image(1, n, 4, 4, name=name) for n, name in ((8, "a"), (3, "b"), (5, "c")))
    graph = graph_of(a, b, c, y=concatenate([a, b, c], 1))
    after = apply_pass(
        align_concatenations, graph, lambda a, b, c: {"y": numpy.concatenate([a, b, c], 1)}
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
    node = Node(Value("y", shape, "float32"), Concatenation(1), tuple(map(whole_operand, values)))
    graph = Graph(values, ("y",), (node,))
    after = apply_pass(
        align_concatenations, graph, lambda **x: {"y": numpy.concatenate([x[f"x{i}"] for i in range(len(x))], 1)}
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
    after = apply_pass(align_concatenations, graph, lambda a, b: {"y": numpy.concatenate([a, b, a], axis)})
    assert [type(n.operation) for n in after.nodes] == [Load]


@pytest.mark.parametrize("count, nodes", [(12, 1), (13, 2), (24, 3), (30, 4)])
def test_concatenations_of_many_parts_read_at_most_so_many_at_once(count: int, nodes: int) -> None:
    inputs = [image(1, 4, 2, 3, name=f"x{i:02}") for i in range(count)]
    graph = graph_of(*inputs, y=concatenate(inputs, 2))
    after = apply_pass(
        align_concatenations, graph, lambda **x: {"y": numpy.concatenate([x[k] for k in sorted(x)], 2)}
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
        after = apply_pass(align_concatenations, graph, formula)
        run_passes(graph)
        assert any(o.fill == 1 for n in after.nodes for o in n.all_operands)


def test_concatenations_keep_infinities_and_nan_in_their_places() -> None:
    a, b = image(1, 3, 2, 2, name="a"), image(1, 2, 2, 2, name="b")
    graph = align_concatenations(graph_of(a, b, y=concatenate([a, b], 1)))
    arrays = {"a": numpy.full((1, 3, 2, 2), numpy.inf), "b": numpy.full((1, 2, 2, 2), numpy.nan)}
    found = evaluate_graph(graph, arrays)["y"]
    assert numpy.isinf(found[:, :3]).all() and numpy.isnan(found[:, 3:]).all()


def test_concatenations_leave_everything_else() -> None:
    x = image()
    unchanged(align_concatenations, graph_of(y=x.relu(), z=x.sum([1]), s=x.conv2d(const(4, 8, 1, 1))))
    unchanged(align_concatenations, graph_of(y=concatenate([x.relu(), x.exp()], 1)))
