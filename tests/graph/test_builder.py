"""build_graph: what values are called."""

from __future__ import annotations

from dataclasses import replace

import numpy

from imgconv.graph.evaluate import evaluate_graph
from imgconv.tensor import Tensor, build_graph


def test_a_value_without_a_name_takes_none_that_a_later_one_has() -> None:
    """The sum has no name of its own; "t1" is what the model calls its double."""
    x = Tensor.input("x", (4, 5))
    doubled = (x.sum([1]) * 2.0).named("t1")
    graph = build_graph({"y": doubled + 1.0}, [x])
    array = numpy.random.default_rng(0).random((4, 5), numpy.float32)
    found = evaluate_graph(replace(graph, outputs=("t1",)), {"x": array})
    assert abs(found["t1"].ravel() - 2 * array.sum(1)).max() < 1e-5
