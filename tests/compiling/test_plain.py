"""imgconv.passes.sums_to_reductions: convolutions and products as reductions give the same numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy
import pytest
from graphs import target

from imgconv.compiling.compiler import PreparedGraph, prepare
from imgconv.compiling.plan import Launch
from imgconv.passes.sums_to_reductions import sum_to_reduction, sums_to_reductions
from imgconv.config import Config
from imgconv.graph.evaluate import evaluate_graph
from imgconv.graph.nodes import Convolution, Graph, Node, Reduction, Value, whole_operand
from imgconv.tensor import Tensor, build_graph

RANDOM = numpy.random.default_rng(0)
GEOMETRIES = {
    "plain": (Convolution(pads=(1, 1)), (2, 6, 5, 7), (8, 6, 3, 3), (2, 8, 5, 7)),
    "strides, dilations, groups": (Convolution((2, 1), (1, 2), (0, 1), 2), (1, 6, 7, 9), (4, 3, 3, 2), (1, 4, 3, 9)),
    "depthwise": (Convolution(pads=(1, 1), groups=6), (1, 6, 5, 7), (6, 1, 3, 3), (1, 6, 5, 7)),
    "transposed": (Convolution((2, 2), (1, 1), (1, 0), 2, True), (1, 6, 4, 5), (6, 2, 3, 2), (1, 4, 7, 10)),
}


def drawn(*shape: int) -> numpy.ndarray[tuple[int, ...], numpy.dtype[numpy.float32]]:
    return RANDOM.uniform(-1, 1, shape).astype(numpy.float32)


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("gated", [False, True])
def test_convolutions(name: str, gated: bool) -> None:
    operation, x_shape, w_shape, shape = GEOMETRIES[name]
    x, w, gate = Value("x", x_shape, "float32"), drawn(*w_shape), Value("g", (*x_shape[:2], 1, 1), "float32")
    weights = Value("w", w_shape, "float32")
    operands = (whole_operand(x), whole_operand(weights), *([whole_operand(gate)] if gated else []))
    node = Node(Value("y", shape, "float32"), operation, operands)
    graph = Graph((x, gate), ("y",), (node,), {"w": w}).validate()
    changed = sums_to_reductions(graph, {"y"})
    assert isinstance(changed.nodes[0].operation, Reduction) and sum_to_reduction(changed.nodes[0]) == changed.nodes[0]
    inputs = {"x": drawn(*x_shape), "g": drawn(*gate.shape)}
    numpy.testing.assert_allclose(evaluate_graph(changed, inputs)["y"], evaluate_graph(graph, inputs)["y"], 1e-5, 1e-6)


def test_products() -> None:
    a, b = Tensor.input("a", (2, 3, 5)), Tensor.input("b", (2, 5, 4))
    graph = build_graph({"y": a @ b}, [a, b])
    changed = sums_to_reductions(graph, {"y"})
    assert isinstance(changed.producers["y"].operation, Reduction)
    inputs = {"a": drawn(2, 3, 5), "b": drawn(2, 5, 4)}
    numpy.testing.assert_allclose(evaluate_graph(changed, inputs)["y"], evaluate_graph(graph, inputs)["y"], 1e-5, 1e-6)


def test_other_nodes_stay() -> None:
    x = Tensor.input("x", (1, 4, 8, 8))
    graph = build_graph({"y": x.max_pool(3, 1, 1)}, [x])
    assert sums_to_reductions(graph, {"y"}) is graph


def refused(prepared: PreparedGraph, rounds: int) -> list[Launch]:
    """The launches of "y" that follow each other if the kernel of each is refused in turn."""
    keys, made = frozenset[str](), list[Launch]()
    for _ in range(rounds):
        plan = replace(prepared, refused=keys).plan()
        made += [launch for launch in plan.launches if launch.values == ("y",)]
        keys |= {made[-1].source.key}
    assert len(made) == rounds
    return made


def test_what_takes_the_place_of_a_refused_kernel() -> None:
    """Another specialisation, then the plainest form, which stays."""
    x = Tensor.input("x", (1, 8, 12, 12))
    graph = build_graph({"y": x.conv2d(Tensor.constant(drawn(8, 8, 3, 3)), padding=1)}, [x])
    first, second, *others = refused(prepare(graph, Config(), target()), 4)
    assert first.specialisation != second.specialisation
    templates = [launch.choice.template for launch in (first, second, *others) if launch.choice]
    assert templates[:2] == ["convolution"] * 2 and "convolution" not in templates[2:] and len(templates) == 4


@pytest.mark.parametrize("name", ["convolution", "generated"])
def test_exact_functions_take_the_place_of_native_ones(name: str) -> None:
    x = Tensor.input("x", (1, 8, 12, 12))
    before = x.conv2d(Tensor.constant(drawn(8, 8, 3, 3)), padding=1) if name == "convolution" else x
    graph = build_graph({"y": before.sigmoid(), "other": (x * 2.0).exp()}, [x])
    prepared = prepare(graph, Config(native_explog=True), target())
    first, *_, last = (launch.source.text for launch in refused(prepared, 4))
    assert "native_exp(" in first and "native_" not in last and "exp_of(" in last
    (other,) = (each for each in prepared.plan().launches if each.values == ("other",))
    keys = frozenset(launch.source.key for launch in refused(prepared, 3))
    (kept,) = (each for each in replace(prepared, refused=keys).plan().launches if each.values == ("other",))
    assert kept.source.text == other.source.text and "native_exp(" in kept.source.text
