"""sink_movement: its Given and Result, where it must act and where it must not."""

from __future__ import annotations

import numpy
from graphs import apply_pass, const, graph_of, image, node_of, shown, unchanged

from imgconv.graph.expression import Argument
from imgconv.passes.movement import sink_movement
from imgconv.passes.views import push_views


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


def test_sink_goes_past_a_change_of_dtype() -> None:
    """Levels between QuantizeLinear and DequantizeLinear are of another type."""
    x = image(2, 6)
    graph = graph_of(y=x.transpose(1, 0).relu().cast("int32").cast("float32").exp())
    after = apply_pass(sink_movement, graph)
    assert shown(after)["y"] == "load(y.still[i1, i0])" and after.values["y.still"].dtype == "float32"


def test_sink_keeps_a_change_of_dtype_that_also_moves() -> None:
    """Half rounds: the work on the result must not read what the change reads."""
    x = image(2, 6)
    graph = push_views(graph_of(y=x.transpose(1, 0).cast("float16").named("m").cast("float32")))
    after = apply_pass(sink_movement, graph)
    assert shown(after)["m"] == "load(x[i1, i0])" and after.values["m"].dtype == "float16"
    assert shown(after)["y"] == "load(m)"
