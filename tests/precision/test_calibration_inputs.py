"""Synthetic inputs: their ranges, which follow from the first layers, and what they look like."""

from __future__ import annotations

import numpy
import pytest
from planted import overflow_model, picture

from imgconv.graph.nodes import Graph, Value
from imgconv.onnx_import import import_onnx
from imgconv.passes import run_passes
from imgconv.precision.calibration_inputs import (
    BYTES, DARK, LARGE, UNIT, held_out_inputs, overflow_probes, picture_range, synthetic_picture
)
from imgconv.precision.calibration_inputs import synthetic_inputs
from imgconv.tensor import Tensor, build_graph

RANDOM = numpy.random.default_rng(11)
SHAPE = (1, 3, 20, 16)


def trained_layer(x: Tensor, scale: float, bias: float = 1.0) -> Graph:
    """A convolution whose response to pictures of 0 .. scale is near 1, as is its bias, with a second one after it."""
    weights = RANDOM.normal(0, 1, (16, 3, 3, 3)) / (scale * 27**0.5)
    biases = RANDOM.normal(0, bias, 16)
    first, second = (Tensor.constant(a.astype(numpy.float32)) for a in (weights, RANDOM.normal(0, 1, (4, 16, 1, 1))))
    made = x.conv2d(first, Tensor.constant(biases.astype(numpy.float32)), padding=1).relu().conv2d(second)
    return run_passes(build_graph({"y": made}))


def range_of(graph: Graph) -> tuple[float, float] | None:
    return picture_range(graph, graph.inputs[0])


def test_the_bias_of_the_first_layer_tells_the_range() -> None:
    x = Tensor.input("x", SHAPE)
    assert range_of(trained_layer(x, 1.0)) == UNIT
    assert range_of(trained_layer(x, 255.0)) == BYTES
    assert range_of(trained_layer(x, 1.0, 0.01)) is None
    assert range_of(trained_layer(x, 255.0, 0.0)) is None


@pytest.mark.parametrize(
    ("mean", "spread", "expected"), [(0.5, 0.5, UNIT), (127.5, 127.5, BYTES), (0.0, 255.0, BYTES), (117.0, 1.0, BYTES)]
)
def test_arithmetic_in_front_tells_the_range(mean: float, spread: float, expected: tuple[float, float]) -> None:
    """It tells it without a bias, and whatever the scale of the first layer is."""
    normalised = (Tensor.input("x", SHAPE) - mean) / spread
    for scale in (1.0, 255.0):
        assert range_of(trained_layer(normalised, scale, 0.0)) == expected


def test_held_out_inputs_than_pictures() -> None:
    for shape, dtype, expected in (
        ((1, 3, 8, 8), "uint8", BYTES), ((1, 64, 8, 8), "float32", (-1.0, 1.0)), ((4,), "int64", UNIT),
        ((1, 8, 8, 3), "float32", None),
    ):
        x = Tensor.input("x", shape, dtype)
        assert range_of(build_graph({"y": x * 2})) == expected, (shape, dtype)


def test_synthetic_inputs_fill_their_range() -> None:
    """A convolution without a bias: 0 .. 1, and 0 .. 255 to see what overflows."""
    graph = run_passes(import_onnx(overflow_model()))
    made = synthetic_inputs(graph)
    assert [numpy.unique(each["x"]).tolist() for each in made[2:4]] == [[grey] for grey in numpy.float32(DARK)]
    for inputs, most, count in (((*made[:2], *made[4:]), 1, 4), (overflow_probes(graph), 255, 1)):
        assert len({each["x"].tobytes() for each in inputs}) == len(inputs) == count
        for each in inputs:
            assert each["x"].dtype == numpy.float32
            assert (each["x"].min(), each["x"].max()) == (0, pytest.approx(most))
    assert overflow_probes(trained_layer(Tensor.input("x", SHAPE), 1.0)) == ()


@pytest.mark.parametrize("shape", [(1, 3, 60, 100), (1, 60, 100, 3)])
def test_the_right_half_is_flat_areas(shape: tuple[int, ...]) -> None:
    """The 99th percentile of neighbours' differences is far above the median; in noise it is not."""
    value = Value("x", shape, "float32")
    axis = 3 if shape[1] == 3 else 2
    left, right = numpy.split(synthetic_picture(value, 0.0, 1.0, 3), 2, axis)
    steps = [numpy.abs(numpy.diff(half, axis=axis)) for half in (left, right)]
    spread = [numpy.quantile(each, 0.99) / numpy.median(each) for each in steps]
    assert spread[1] > 20 and spread[0] < spread[1]


def test_an_input_without_elements_is_drawn() -> None:
    x = Tensor.input("x", (1, 3, 0, 4))
    assert [made["x"].shape for made in synthetic_inputs(build_graph({"y": x.sum([2])}))] == [x.shape] * 6


@pytest.mark.parametrize("shape, count", [
    ((1, 3, 48, 224), 6), ((1, 3, 416, 416), 4), ((1, 320, 320, 3), 6), ((1, 3, 700, 700), 1), ((1, 90), 4),
])
def test_small_inputs_have_more_synthetic_ones(shape: tuple[int, ...], count: int) -> None:
    """Two of the inputs are dark pictures, unless they are no pictures, or large ones."""
    assert len(synthetic_inputs(build_graph({"y": Tensor.input("x", shape) + 1}))) == count


def test_inputs_that_are_no_pictures_have_larger_probes() -> None:
    """A picture whose range is told stays in it beside them."""
    x, size = Tensor.input("x", SHAPE), Tensor.input("size", (1, 16, 20, 16))
    told, count = (x - 127.5) / 127.5, Tensor.input("count", (4,), "int64")
    weights = Tensor.constant(numpy.ones((16, 3, 1, 1), numpy.float32))
    graph = build_graph({"y": told.conv2d(weights) + size, "z": count + 1})
    for name, most in (("size", LARGE), ("x", 255.0), ("count", 1.0)):
        for each in overflow_probes(run_passes(graph)):
            assert numpy.abs(each[name]).max() <= most * (1 + 1e-6)
            assert name == "count" or numpy.abs(each[name]).max() > most / 2


def test_held_out_inputs_have_the_range_of_the_measured_ones() -> None:
    graph = run_passes(import_onnx(overflow_model()))
    given = [{"x": scale * picture(seed) - 1} for seed, scale in ((1, 5.0), (2, 1.0), (3, 9.0))]
    made = held_out_inputs(graph, [*given, {"x": numpy.full_like(picture(), 99)}])
    low, high = given[2]["x"].min(), given[2]["x"].max()
    assert [(each["x"].min(), each["x"].max()) for each in made] == [
        pytest.approx((factor * low, factor * high), rel=1e-5) for factor in (1, 4)
    ]
    assert len({each["x"].tobytes() for each in (*made, *given)}) == 5
    index = Tensor.input("i", (7,), "int64")
    made = held_out_inputs(build_graph({"y": index + 1}), [{"i": numpy.full(7, 5)}])
    assert {each["i"].max() for each in made} == {5}
