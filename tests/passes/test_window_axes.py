"""split_window_axes: its Given and Result, where it must act and where it must not."""

from __future__ import annotations

from graphs import apply_pass, graph_of, image, node_of, pushed, shown, unchanged

from imgconv.passes.window_axes import split_window_axes


def test_window_axes_given_and_result() -> None:
    graph = graph_of(s=image(1, 32, 40, 40).reshape(1, 4, -1).sum([2]))
    after = apply_pass(split_window_axes, pushed(graph), lambda x: {"s": x.reshape(1, 4, -1).sum(2)})
    assert shown(after)["s"] == "sum(x[0, i1*8 + i2, i3, i4])"
    assert node_of(after, "s").operands[0].view.shape == (1, 4, 8, 40, 40)


def test_window_axes_in_which_one_of_two_divisions_cancels() -> None:
    graph = pushed(graph_of(y=image(2, 6, 35).reshape(2, 3, -1).reduce("max", [2])))
    after = apply_pass(split_window_axes, graph, lambda x: {"y": x.reshape(2, 3, -1).max(2)})
    assert node_of(after, "y").operands[0].view.shape == (2, 3, 2, 35)


def test_window_axes_without_a_division_stay() -> None:
    x = image(1, 8, 20, 20)
    unchanged(split_window_axes, graph_of(y=x.sum([2, 3]), z=x.relu()))
    # Rows of 7 are no multiple of rows of 5: every split leaves a division.
    unchanged(split_window_axes, pushed(graph_of(y=image(5, 7).reshape(7, 5).sum([1]))))
