"""split_reductions: its Given and Result, where it must act and where it must not."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from graphs import apply_pass, graph_of, image, node_of, shown, unchanged

from imgconv.graph.expression import Argument, apply, function_names
from imgconv.passes import reductions
from imgconv.passes.epilogues import fuse_epilogues
from imgconv.passes.reductions import split_reductions


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
        assert function_names(node_of(after, name).epilogue)


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
