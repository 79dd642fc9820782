"""Loops whose rounds have something in common, against onnxruntime, and how often each node runs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy
import onnx
import pytest

import imgconv
from imgconv.arrays import Arrays
from imgconv.graph.onnx_nodes import HostGraph, HostNode
from imgconv.host.host_program import HostStep
from imgconv.host.loops import hoist_loop_invariants
from tests.support import assert_close, make_model, run_oracle
from tests.host_fallback_models import body, node

WIDTH = 72  # WIDTH * WIDTH numbers make a product by a matrix a subgraph
WEIGHTS = numpy.random.default_rng(6).normal(0, 0.1, (WIDTH, WIDTH)).astype(numpy.float32)
ROWS, MATRIX = ("float32", (2, WIDTH)), ("float32", (WIDTH, WIDTH))
ROUND = {"number": "int64", "goes": "bool"}
MULTIPLY = [node("Transpose", "w", "turned"), node("MatMul", "h turned", "h1"), node("Identity", "goes", "go")]


def model(turn: onnx.GraphProto, given: str, outputs: str) -> onnx.ModelProto:
    """A loop of as many rounds as data say."""
    constants = {"w": WEIGHTS, "v": WEIGHTS.T.copy(), "two": numpy.float32(2), "three": numpy.array(3)}
    nodes = [
        node("ReduceSum", "ticks", "sum", keepdims=0), node("Cast", "sum", "n", to=onnx.TensorProto.INT64),
        node("Loop", f"n - {given}", outputs, body=turn),
    ]
    return make_model(nodes, inputs_of(0), outputs.split(), 17, constants)


def inputs_of(rounds: int) -> Arrays:
    """The inputs of a model for a number of rounds."""
    x = numpy.random.default_rng(7).normal(size=(2, WIDTH)).astype(numpy.float32)
    return {"x": x, "ticks": numpy.full((2, 2), rounds / 4, numpy.float32)}


def of_one_name() -> onnx.ModelProto:
    """The weights are a state, called as outside."""
    return model(body(MULTIPLY, ROUND | {"h": ROWS, "w": MATRIX}, "go h1 w"), "x w", "y w_out")


def of_two_names() -> onnx.ModelProto:
    """A state has the name of an array outside, w, but starts as another one, v."""
    return model(body(MULTIPLY, ROUND | {"h": ROWS, "w": MATRIX}, "go h1 w"), "x v", "y v_out")


def through_identity() -> onnx.ModelProto:
    turn = [*MULTIPLY, node("Identity", "w", "w1")]
    return model(body(turn, ROUND | {"w": MATRIX, "h": ROWS}, "go w1 h1"), "w x", "w_out y")


def hidden_outside() -> onnx.ModelProto:
    """The state starts as the array v outside; inside, v is the name of the other state."""
    turn = [node("Transpose", "w", "turned"), node("MatMul", "v turned", "h1"), node("Identity", "goes", "go")]
    return model(body(turn, ROUND | {"v": ROWS, "w": MATRIX}, "go h1 w"), "x v", "y v_out")


def that_changes() -> onnx.ModelProto:
    """The state is called as a constant outside, and is it in the first round only."""
    turn = [node("MatMul", "h w", "h1"), node("Mul", "w two", "w1"), node("Identity", "goes", "go")]
    return model(body(turn, ROUND | {"h": ROWS, "w": MATRIX}, "go h1 w1"), "x w", "y w_out")


def captured() -> onnx.ModelProto:
    """The weights are read from outside; what is made of them is stacked too."""
    return model(body(MULTIPLY, ROUND | {"h": ROWS}, "go h1 turned h1"), "x", "y stacked results")


def nested() -> onnx.ModelProto:
    inner = body(MULTIPLY, ROUND | {"h": ROWS, "w": MATRIX}, "go h1 w")
    turn = [node("Loop", "three - h w", "h2 w2", body=inner), node("Identity", "goes", "go2")]
    outer = body(turn, {"number2": "int64", "goes": "bool", "h": ROWS, "w": MATRIX}, "go2 h2 w2")
    return model(outer, "x w", "y w_out")


CASES = [of_one_name, of_two_names, through_identity, hidden_outside, that_changes, captured, nested]


@pytest.mark.parametrize("rounds", [0, 1, 4])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_loops(case: Any, rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products on the device and on the host."""
    inputs = inputs_of(rounds)
    expected = run_oracle(case(), inputs)
    for least in (0, 1 << 19):
        monkeypatch.setattr("imgconv.loading.device_subgraphs.WORTH_A_LAUNCH", least)
        # Sums of WIDTH products in float, of the size of their result, in up to 12 rounds.
        assert_close(imgconv.load(case()).run(inputs), expected, 1e-5)


@pytest.mark.parametrize(("case", "times"), [(of_one_name, 1), (that_changes, 0), (captured, 1), (nested, 4)])
def test_what_rounds_have_in_common_is_computed_once(case: Any, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In each run of a loop: four of the inner one, whose weights the outer one passes through."""
    ran, run = Counter[str](), HostStep.run

    def counted(self: HostStep, values: list[Any]) -> None:
        ran[self.call.op_type] += 1
        run(self, values)

    monkeypatch.setattr(HostStep, "run", counted)
    loaded = imgconv.load(case())
    ran.clear()
    loaded.run(inputs_of(4))
    assert ran["Transpose"] == times and ran["MatMul"] + ran["Subgraph"] in (4, 12)


def test_random_numbers_are_drawn_in_every_round() -> None:
    nodes = (
        HostNode("noise", "RandomUniformLike", ("w",), ("noise",)), HostNode("h1", "Add", ("h", "noise"), ("h1",)),
    )
    turn = HostGraph(("number", "go", "h"), ("go", "h1"), nodes)
    loop = HostNode("y", "Loop", ("n", "", "x"), ("y",), {"body": turn})
    (made,) = hoist_loop_invariants(HostGraph(("n", "x"), ("y",), (loop,), {"w": WEIGHTS})).nodes
    assert set(made.bodies) == {"body"} and made.bodies["body"].nodes == nodes
