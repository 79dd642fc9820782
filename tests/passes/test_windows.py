"""separate_windows: its Given and Result, where it must act and where it must not."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from graphs import apply_pass, graph_of, image, node_of, unchanged

from imgconv.graph.expression import Apply, Argument, operations
from imgconv.passes import windows
from imgconv.passes.epilogues import fuse_epilogues
from imgconv.passes.windows import separate_windows


def pooled(x: Any, window: int) -> Any:
    """The maximum of windows of odd length around each position."""
    half = window // 2
    padded = numpy.pad(x, ((0, 0), (0, 0), (half, half), (half, half)), constant_values=-numpy.inf)
    return numpy.lib.stride_tricks.sliding_window_view(padded, (window, window), (2, 3)).max((4, 5))


def test_windows_given_and_result() -> None:
    x = image(1, 16, 80, 80)
    after = apply_pass(separate_windows, graph_of(y=x.max_pool(13, 1, 6)), lambda x: {"y": pooled(x, 13)})
    rows, y = after.nodes
    assert (rows.output.name, rows.output.shape) == ("y.rows", (1, 16, 80, 80))
    assert (y.output.name, y.operands[0].value) == ("y", "y.rows")
    assert [n.operands[0].view.shape[4:] for n in (rows, y)] == [(1, 13), (13, 1)]
    assert str(rows.operands[0]).startswith("x[0, i1, i2, i3 + i5 - 6 where") and rows.operands[0].fill == -numpy.inf


def test_windows_that_are_small_or_not_of_a_maximum_stay() -> None:
    x = image(1, 16, 80, 80)
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
