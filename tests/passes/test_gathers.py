"""fuse_gathers: its Given and Result, interpolation, and gathers that stay."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from graphs import apply_pass, const, graph_of, image, numbers, pushed, shown, unchanged

from imgconv.graph.evaluate import evaluate_graph
from imgconv.graph.nodes import Gather, Graph
from imgconv.graph.view import View, axis_variables
from imgconv.passes import run_passes
from imgconv.passes.elementwise import merge_elementwise
from imgconv.passes.gathers import fuse_gathers
from imgconv.tensor import Tensor, gather


def given(**outputs: Tensor) -> Graph:
    return merge_elementwise(pushed(graph_of(**outputs)))


X, AT = image(1, 8, 6, 6), image(1, 1, 5, 3, name="at")
SEEN = (1, 8, 5, 3)


def columns(x: Tensor, at: Tensor) -> Tensor:
    """x[0, :, row, at[row, tap]]: (1, 8, 5, 3), for five rows and three taps."""
    axes = axis_variables((*SEEN, 6))
    return gather(x, View((*SEEN, 6), x.shape, (*axes[:3], axes[4])), [at], fill=2.0)


def numpy_columns(x: Any, at: Any) -> Any:
    chosen = numpy.rint(at[0, 0]).astype(int)
    found = x[0][:, numpy.arange(5)[:, None], numpy.clip(chosen, 0, 5)]
    return numpy.where((chosen < 0) | (chosen > 5), 2.0, found)[None]


PLACES = {"x": numbers(1, 8, 6, 6), "at": numpy.float32([[[[0, 5, 2], [6, 3, 3], [1, -1, 0], [4, 4, 5], [2, 1, 9]]]])}


def test_gathers_given_and_result() -> None:
    w = const(1, 1, 5, 3, name="w")
    graph = given(y=(columns(X, AT) * w).sum([3]))
    after = apply_pass(fuse_gathers, graph, lambda x, at: {"y": (numpy_columns(x, at) * w.array).sum(3)})
    assert len(after.nodes) == len(graph.nodes) - 1
    assert shown(after)["y"].startswith("gather, sum of multiply($0, $1)(x[0, i1, i2, i4], at[0, 0, i2, i3], w[")


@pytest.mark.parametrize("kind", ["sum", "max", "min"])
def test_reductions_of_what_is_chosen(kind: str) -> None:
    """Also along an axis that is not the last."""
    y = columns(X, AT).transpose(3, 0, 1, 2).exp().reduce(kind, [0])
    after = apply_pass(fuse_gathers, given(y=y))
    assert isinstance(after.producers["y"].operation, Gather)
    expected = getattr(numpy.exp(numpy_columns(**PLACES)), kind)(3)
    numpy.testing.assert_allclose(evaluate_graph(after, PLACES)["y"], expected, 1e-6)


def test_the_epilogue_of_a_reduction_joins_too() -> None:
    graph = graph_of(y=(columns(X, AT).sum([3]) * 0.25).relu())
    after = apply_pass(run_passes, graph, lambda x, at: {"y": numpy.maximum(numpy_columns(x, at).sum(3) / 4, 0)})
    assert [str(node.operation) for node in after.nodes] == ["gather, sum"]


CHOSEN = columns(X, AT)


@pytest.mark.parametrize("outputs", [
    {"c": CHOSEN, "y": CHOSEN.sum([3])},  # what is chosen is an output
    {"y": CHOSEN.sum([3]), "z": CHOSEN.max([3])},  # two read it
    {"y": CHOSEN.expand(4, 8, 5, 3).sum([3])},  # each element is read four times
    {"y": CHOSEN.slice(3, 0, 2).sum([3])},  # a part is read
    {"y": CHOSEN.exp()},  # no reduction
    {"y": CHOSEN.pad([0, 0, 0, 0], [0, 0, 0, 1]).sum([3])},  # read with zeros around it
], ids=range(6))
def test_gathers_stay(outputs: dict[str, Tensor]) -> None:
    unchanged(fuse_gathers, given(**outputs))
