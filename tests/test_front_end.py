"""The lazy front end: graphs of what is written, what they cost, and what each layer means in plain numpy."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from graphs import assert_near, const, numbers, numpy_convolution, target
from numpy.lib.stride_tricks import sliding_window_view

from imgconv.compiling.lower import lower
from imgconv.config import Config
from imgconv.graph.evaluate import evaluate_graph
from imgconv.graph.nodes import Graph
from imgconv.passes import run_passes
from imgconv.tensor import Tensor, build_graph
from models import Weights
from models.layers import Layers


def value_of(tensor: Tensor, **inputs: Any) -> Any:
    return evaluate_graph(build_graph({"y": tensor}), inputs)["y"]


def test_nothing_is_computed_while_a_network_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("computed")

    monkeypatch.setattr("imgconv.graph.lazy.evaluate_node", refuse)
    x = Tensor.input("x", (1, 3, 8, 8))
    w = Tensor.constant(numbers(4, 3, 3, 3))
    y = x.conv2d(w * 2.0).relu().global_average_pool().flatten().linear(Tensor.constant(numbers(2, 4)))
    assert y.shape == (1, 2)
    assert y.array is None


def test_the_same_subexpression_is_computed_once() -> None:
    x, w = Tensor.input("x", (1, 8, 8, 8)), const(8, 8, 3, 3)

    def branch() -> Tensor:
        return x.conv2d(w, padding=1).relu()

    once = branch()
    shared = lower(run_passes(build_graph({"y": once.max_pool(2, 2) + once.max_pool(2, 2)})), Config(), target())
    twice = lower(run_passes(build_graph({"y": branch().max_pool(2, 2) + branch().max_pool(2, 2)})), Config(), target())
    assert len(shared.compute_launches) == len(twice.compute_launches) == 2


def test_an_unused_branch_costs_nothing() -> None:
    def network(wanted: bool) -> Graph:
        x = Tensor.input("x", (1, 8, 8, 8))
        y = x.conv2d(const(8, 8, 3, 3), padding=1).relu()
        aside = y.conv2d(const(32, 8, 3, 3, seed=1)).silu().global_average_pool()
        return build_graph({"y": y.max_pool(2, 2), **({"z": aside} if wanted else {})})

    without, with_branch = network(False), network(True)
    assert len(without.nodes) < len(with_branch.nodes)
    assert sum(a.size for a in without.constants.values()) < sum(a.size for a in with_branch.constants.values())
    plan = lower(run_passes(without), Config(), target())
    assert [launch.name for launch in plan.compute_launches] and plan.multiply_adds == 8 * 8 * 9 * 64


def test_squeeze_and_excite_scales_in_the_convolution_that_follows() -> None:
    x = Tensor.input("x", (1, 16, 8, 8))
    net = Layers(Weights())
    wide = net.unit(x, "a", 16, 3, groups=16, activation=Tensor.silu)
    y = net.unit(net.squeeze_excite(wide, "b", 4, Tensor.silu, Tensor.sigmoid), "c", 8)
    plan = lower(run_passes(build_graph({"y": y.max_pool(2, 2)})), Config(), target())
    expected = ["convolution", "sum", "convolution", "max"]  # the sum's launch makes both products too
    assert [launch.description.split()[0] for launch in plan.compute_launches] == expected, str(plan)


def test_batch_norm() -> None:
    x, (scale, bias, mean) = numbers(2, 5, 3, 4), numbers(3, 5, seed=1)
    variance = numbers(5, seed=2, low=0.1, high=2)
    made = Tensor.input("x", x.shape).batch_norm(*map(Tensor.constant, (scale, bias, mean, variance)), epsilon=0.01)
    by = [p.astype(numpy.float64).reshape(5, 1, 1) for p in (scale, bias, mean, variance)]
    assert_near(value_of(made, x=x), (x - by[2]) / numpy.sqrt(by[3] + 0.01) * by[0] + by[1])


def test_linear() -> None:
    x, w, b = numbers(2, 5), numbers(3, 5, seed=1), numbers(3, seed=2)
    made = Tensor.input("x", x.shape).linear(Tensor.constant(w), Tensor.constant(b))
    assert_near(value_of(made, x=x), x.astype(numpy.float64) @ w.T + b)


def test_depthwise() -> None:
    x, w, b = numbers(2, 3, 5, 6), numbers(6, 1, 3, 3, seed=1), numbers(6, seed=2)
    made = Tensor.input("x", x.shape).depthwise(Tensor.constant(w), Tensor.constant(b), stride=2, padding=1)
    assert_near(value_of(made, x=x), numpy_convolution(x, w, (2, 2), (1, 1, 1, 1), groups=3) + b.reshape(6, 1, 1))


def test_conv_transpose2d() -> None:
    x, w, b = numbers(2, 3, 4, 5), numbers(3, 2, 3, 3, seed=1), numbers(2, seed=2)
    made = Tensor.input("x", x.shape).conv_transpose2d(Tensor.constant(w), Tensor.constant(b), stride=2, padding=1)
    whole = numpy.zeros((2, 2, 9, 11))
    for row, column in numpy.ndindex(4, 5):
        spread = numpy.einsum("nc,cokl->nokl", x[:, :, row, column].astype(numpy.float64), w)
        whole[:, :, 2 * row : 2 * row + 3, 2 * column : 2 * column + 3] += spread
    assert_near(value_of(made, x=x), whole[:, :, 1:-1, 1:-1] + b.reshape(2, 1, 1))


def test_pools() -> None:
    x = numbers(1, 2, 6, 7)
    tensor = Tensor.input("x", x.shape)
    assert_near(value_of(tensor.global_average_pool(), x=x), x.mean((2, 3), keepdims=True, dtype=numpy.float64))
    assert value_of(tensor.flatten(), x=x).shape == (1, 84)
    wide = numpy.pad(x, ((0, 0), (0, 0), (0, 1), (0, 0)), constant_values=-numpy.inf)
    expected = sliding_window_view(wide, (3, 3), (2, 3))[:, :, ::2, ::2].max((-2, -1))
    assert_near(value_of(tensor.max_pool(3, 2, round_up=True), x=x), expected)
    assert tensor.max_pool(3, 2).shape == (1, 2, 2, 3)
    # A window that would begin in the padding after the last column is left out.
    assert tensor.max_pool(2, 2, padding=1, round_up=True).shape == (1, 2, 4, 4)
    assert tensor.max_pool(2, 3, padding=1, round_up=True).shape == (1, 2, 3, 3)


def test_gated_recurrent_unit() -> None:
    weights = Weights()
    x, state = numbers(2, 5), numbers(2, 4, seed=1)
    made = Layers(weights).gated_recurrent_unit(Tensor.input("x", x.shape), Tensor.input("state", state.shape), "cell")
    a = {n: v.astype(numpy.float64) for n, v in weights.arrays.items()}
    one = numpy.split(x @ a["cell.weight_ih"].T + a["cell.bias_ih"], 3, axis=1)
    two = numpy.split(state @ a["cell.weight_hh"].T + a["cell.bias_hh"], 3, axis=1)
    reset, update = (1 / (1 + numpy.exp(-(one[i] + two[i]))) for i in range(2))
    new = numpy.tanh(one[2] + reset * two[2])
    assert_near(value_of(made, x=x, state=state), (1 - update) * new + update * state)
