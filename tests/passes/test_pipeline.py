"""All passes together: their docstrings, and what they make of random networks and of whole ones."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest
from graphs import (
    Network, apply_pass, assert_near, const, graph_of, image, inputs_of, networks, numbers, numpy_convolution,
    numpy_softmax,
)
from hypothesis import given, settings

from imgconv import passes
from imgconv.graph.evaluate import evaluate_graph
from imgconv.graph.expression import Literal
from imgconv.graph.graph_error import GraphError
from imgconv.graph.nodes import Graph, Load, Reduction
from imgconv.passes import PIPELINE, run_passes
from imgconv.tensor import Tensor, concatenate


@pytest.mark.parametrize("step", dict.fromkeys(PIPELINE), ids=lambda step: step.__name__)
def test_every_pass_is_tested_in_its_own_file(step: Any) -> None:
    file = Path(__file__).with_name(f"test_{step.__module__.rpartition('.')[2]}.py")
    assert file.read_text(encoding="utf-8").count(f"{step.__name__},") >= 3, f"{step.__name__} has too few tests"


@pytest.mark.parametrize("step", dict.fromkeys(PIPELINE), ids=lambda step: step.__name__)
def test_a_docstring_shows_given_and_result(step: Any) -> None:
    lines = [line[:9] for line in inspect.cleandoc(step.__doc__).splitlines()]
    assert "Given:   " in lines and "Result:  " in lines


@given(networks())
@settings(max_examples=150, deadline=None)
def test_the_pipeline_keeps_what_random_networks_compute(network: Network) -> None:
    graph = network.graph
    after = run_passes(graph)
    network.check(after)
    assert (after.inputs, after.outputs) == (graph.inputs, graph.outputs)
    assert [after.values[n] for n in after.outputs] == [graph.values[n] for n in graph.outputs]


@pytest.mark.parametrize("number", range(len(PIPELINE)))
def test_each_pass_alone_keeps_what_random_networks_compute(number: int) -> None:
    @given(networks())
    @settings(max_examples=15, deadline=None)
    def check(network: Network) -> None:
        graph = network.graph
        network.check(PIPELINE[number](graph).validate())
        # And after all that comes before it.
        network.check(run_passes(graph, PIPELINE[: number + 1]))

    check()


@given(networks())
@settings(max_examples=30, deadline=None)
def test_a_second_round_keeps_the_meaning_and_adds_no_node(network: Network) -> None:
    once = run_passes(network.graph)
    twice = run_passes(once)
    network.check(twice)
    assert len(twice.nodes) <= len(once.nodes)


def test_an_inconsistent_result_names_the_pass() -> None:
    def lose_nodes(graph: Graph) -> Graph:
        return replace(graph, nodes=())

    def rename(graph: Graph) -> Graph:
        return replace(graph, inputs=(), outputs=(), nodes=())

    graph = graph_of(y=image().relu())
    for wrong in (lose_nodes, rename):
        with pytest.raises(GraphError, match=f"pass {wrong.__name__}: "):
            run_passes(graph, (wrong,))
    assert run_passes(graph, ()) == graph


def test_batch_normalization_disappears() -> None:
    x = image()
    w, b = numbers(4, 8, 3, 3), numbers(4)
    scale, shift, mean = (numbers(4, 1, 1, seed=i) for i in (1, 2, 3))
    variance = numbers(4, 1, 1, seed=4, low=0.1, high=2)
    c = x.conv2d(Tensor.constant(w), Tensor.constant(b), padding=1)
    normal = (c - Tensor.constant(mean)) / (Tensor.constant(variance) + 1e-5).sqrt()
    graph = graph_of(y=(normal * Tensor.constant(scale) + Tensor.constant(shift)).silu())
    after = apply_pass(run_passes, graph)
    (node,) = after.nodes
    assert str(node.epilogue) == "multiply(add($0, $1), sigmoid(add($0, $1)))"
    assert after.constants.keys() == {"y.weights", "y.bias"}
    x_ = inputs_of(graph)["x"].astype(float)
    v = (numpy_convolution(x_, w, pads=(1,) * 4) + b.reshape(-1, 1, 1) - mean) / numpy.sqrt(variance + 1e-5)
    v = v * scale + shift
    assert_near(evaluate_graph(after, inputs_of(graph))["y"], v / (1 + numpy.exp(-v)))


def test_softmax_is_three_nodes() -> None:
    graph = graph_of(y=image().softmax(1))
    after = apply_pass(run_passes, graph, lambda x: {"y": numpy_softmax(x, 1)})
    assert [type(n.operation) for n in after.nodes] == [Reduction, Reduction, Load]


def test_names_of_the_model_are_never_taken() -> None:
    """Constants and tensors called as passes call theirs."""
    x = image()
    taken = {
        name: Tensor.constant(numbers(8, 1, 1, seed=i), name)
        for i, name in enumerate(("y.still", "y.input", "y.weights", "y.bias", "y.part1", "y.rows", "y.filled0"))
    }
    y = (x.transpose(0, 1, 3, 2).conv2d(const(8, 8, 1, 1, seed=9)) + 1.0) * 2.0
    for tensor in taken.values():
        y = y.relu() * tensor
    parts = [y, x.slice(1, 0, 3), x.slice(1, 3, 8).exp()]
    others = {f"o{i}": x + tensor for i, tensor in enumerate(taken.values())}
    apply_pass(run_passes, graph_of(y=concatenate(parts, 1).exp().transpose(0, 1, 3, 2).relu(), **others))


def test_constant_models_and_models_that_pass_their_input_through() -> None:
    x = image()
    assert run_passes(graph_of(x=x)).nodes == ()
    after = apply_pass(run_passes, graph_of(y=Tensor.constant(numbers(2, 3), "k") * 2, z=x))
    assert set(after.outputs) == {"y", "z"}


def test_literals_are_values_not_identities() -> None:
    assert Literal(1.0) == Literal(1.0) and hash(Literal(1.0)) == hash(Literal(1.0))
    assert passes.run_passes is run_passes
