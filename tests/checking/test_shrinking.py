"""imgconv.checking.shrinking: graphs of one node at smaller sizes, down to the smallest one that fails."""

from __future__ import annotations

import numpy
import pytest

from imgconv.checking.shrinking import isolated_node, shrink_failing_node
from imgconv.graph.evaluate import evaluate_graph
from imgconv.graph.nodes import Convolution, Graph, Node, Product
from imgconv.passes import run_passes
from imgconv.tensor import Tensor, build_graph, convolution

RANDOM = numpy.random.default_rng(0)
X = Tensor.input("x", (2, 16, 20, 12))
GATE, OTHER = Tensor.input("gate", (2, 16, 1, 1)), Tensor.input("other", (2, 32, 20, 12))


def drawn(*shape: int) -> Tensor:
    return Tensor.constant(RANDOM.uniform(-1, 1, shape).astype(numpy.float32))


MADE = {
    "bias": X.conv2d(drawn(32, 16, 3, 3), drawn(32), padding=1).silu(),
    "an operand": (X.conv2d(drawn(32, 16, 1, 1)) + OTHER).relu(),
    "a factor": (X * GATE).conv2d(drawn(32, 16, 1, 1)),
    "strided, in groups": convolution(X, drawn(32, 4, 3, 3), [2, 1], [1, 1, 1, 1], [1, 2], 4),
    "transposed": X.conv_transpose2d(drawn(16, 32, 3, 3), stride=2, padding=1),
    "a product": (Tensor.input("a", (3, 20, 24)) @ drawn(24, 32)) + drawn(32),
}


def node_of(name: str) -> tuple[Node, Graph]:
    graph = run_passes(build_graph({"y": MADE[name]}))
    (node,) = (each for each in graph.nodes if isinstance(each.operation, (Convolution, Product)))
    return node, graph


def channels(graph: Graph, axis: int) -> int:
    return graph.values["y"].shape[axis]


@pytest.mark.parametrize("name", MADE)
def test_the_smallest_that_fails(name: str) -> None:
    """Outputs of 5 channels or more fail: 8 are the fewest that halving reaches. All else becomes 1."""
    node, graph = node_of(name)
    axis = 1 if isinstance(node.operation, Convolution) else 2
    seen: list[Graph] = []

    def failure(tried: Graph) -> Graph | None:
        seen.append(tried)
        return tried if channels(tried, axis) >= 5 else None

    found = shrink_failing_node(node, graph, failure)
    assert found is not None and len(seen) < 40
    assert seen[0].values["y"].shape == node.output.shape
    shape = list(found.values["y"].shape)
    assert shape.pop(axis) == 8 and set(shape) == {1}
    inputs = {each.name: numpy.ones(each.shape, numpy.float32) for each in found.inputs}
    assert numpy.isfinite(evaluate_graph(found, inputs)["y"]).all()


@pytest.mark.parametrize("name", ["bias", "an operand", "a factor"])
def test_a_node_alone_is_fused_as_in_its_graph(name: str) -> None:
    node, graph = node_of(name)
    assert len(run_passes(isolated_node(node, graph, (2, 1, 16, 32, 20, 12))).nodes) == len(graph.nodes)


def test_a_node_that_is_right_alone() -> None:
    node, graph = node_of("bias")
    assert shrink_failing_node(node, graph, lambda tried: None) is None


def test_other_nodes() -> None:
    graph = build_graph({"y": X.max_pool(3, 1, 1)})
    assert shrink_failing_node(graph.producers["y"], graph, lambda tried: tried) is None
