"""What rounding costs, by the half plan alone, beside what it costs against float."""

from __future__ import annotations

import numpy
import pytest
from planted import offset_model, overflow_model, picture

from imgconv.cl.device import Context, DeviceInfo
from imgconv.compiling.lower import lower
from imgconv.config import Config
from imgconv.graph.evaluate import evaluate_graph
from imgconv.graph.nodes import Graph
from imgconv.onnx_import import import_onnx
from imgconv.passes import run_passes
from imgconv.running.rounding import PART_OF_RANGE, least_scales, magnitude, moved_halves, moves, relative_error
from imgconv.running.rounding import rounding_of, scales_of
from imgconv.running.session import Session
from imgconv.running.target import target_of
from imgconv.tensor import Tensor, build_graph

RANDOM = numpy.random.default_rng(12)


def network(depth: int, width: int) -> Graph:
    """Convolutions with the gain of He's initialisation, the last ones with weights enough to be stored in half."""
    x = Tensor.input("x", (1, 3, 24, 20))
    channels = 3
    made = x
    for _ in range(depth):
        weights = RANDOM.normal(0, (2 / (9 * channels)) ** 0.5, (width, channels, 3, 3)).astype(numpy.float32)
        made, channels = made.conv2d(Tensor.constant(weights), padding=1).relu(), width
    return run_passes(build_graph({"y": made}))


@pytest.mark.parametrize(("depth", "width"), [(3, 8), (8, 16), (4, 48)])
def test_the_estimate_is_near_the_error(device: DeviceInfo, context: Context, depth: int, width: int) -> None:
    """Both are the largest of thousands of random numbers of the same spread."""
    graph = network(depth, width)
    x = {"x": RANDOM.uniform(0, 1, (1, 3, 24, 20)).astype(numpy.float32)}
    session = Session(lower(graph, Config(float16=1), target_of(device)), context)
    error = relative_error(session.run(x), evaluate_graph(graph, x))
    found = rounding_of(session, [x], least_scales(graph))
    assert error / 2 < found.errors[0] < 2 * error
    assert relative_error(session.run(x), evaluate_graph(graph, x)) == error, "the weights were not put back"
    assert found.largest["x"] == pytest.approx(1, rel=1e-2)


def test_what_each_value_costs(device: DeviceInfo, context: Context) -> None:
    """Squares of costs add up to that of all, and that of a value is its own rounding's, as float64 computes it."""
    graph = network(4, 48)
    x = {"x": RANDOM.uniform(0, 1, (1, 3, 24, 20)).astype(numpy.float32)}
    session = Session(lower(graph, Config(float16=1), target_of(device)), context)
    found = rounding_of(session, [x], least_scales(graph))
    costs = {name: found.cost_of(frozenset([name]), 0, 16) for name in found.weights}
    assert [bool(weights) for weights in found.weights.values()] == [False, False, True, True, True]
    # Of the root of a mean square of 24 x 20 x 48 numbers, and of one drawing of all roundings.
    assert sum(cost**2 for cost in costs.values()) ** 0.5 == pytest.approx(found.errors[0], rel=0.3)
    exact = evaluate_graph(graph, x)["y"]
    rounded = evaluate_graph(graph, {"x": x["x"].astype(numpy.float16)})["y"]
    rest = session.run(x)["y"]
    part = ((rounded - exact) ** 2).mean() ** 0.5 / ((rest - exact) ** 2).mean() ** 0.5
    assert costs["x"] / found.errors[0] == pytest.approx(part, rel=0.3)


def test_digits_that_are_lost_are_found(device: DeviceInfo, context: Context) -> None:
    """Half has 0.5 between 1000 and 1001: a small change of the input would seldom change anything."""
    graph = run_passes(import_onnx(offset_model()))
    session = Session(lower(graph, Config(float16=1), target_of(device)), context)
    assert rounding_of(session, [{"x": picture()}], least_scales(graph)).errors[0] > 0.1


def test_overflow_is_seen(device: DeviceInfo, context: Context) -> None:
    graph = run_passes(import_onnx(overflow_model()))
    session = Session(lower(graph, Config(float16=1), target_of(device)), context)
    assert not rounding_of(session, [{"x": picture()}], least_scales(graph)).largest["big"] <= 65504


@pytest.mark.parametrize("units", [1, 4, 64])
def test_moved_halves(units: int) -> None:
    """Each by up to so many units, as often up as down; the mean square of the moves is what `moves` says."""
    halves = numpy.concatenate([RANDOM.uniform(1, 2, 60000), [0, -0.0, 65504, numpy.inf, 1e-7]]).astype(numpy.float16)
    made = moved_halves(halves, RANDOM, units)
    steps = made.view(numpy.uint16).astype(int) - halves.view(numpy.uint16)
    assert abs(steps).max() == units and (made[-5:-3] == halves[-5:-3]).all() and made[-2] == halves[-2]
    assert made[-3] <= 65504 and made[-1] >= 0
    # 1,024 different numbers: four standard deviations of their mean square are an eighth of it, of their mean an 8th.
    _, first = numpy.unique(halves[:-5], return_index=True)
    assert (steps[first] ** 2).mean() == pytest.approx(moves(units) ** 2 / 12, rel=0.13)
    assert steps[first].mean() == pytest.approx(0, abs=units / 8)


def test_equal_halves_move_alike() -> None:
    """As they are rounded alike: in a flat area errors do not average out."""
    halves = RANDOM.integers(1, 50, 5000).astype(numpy.float16)
    made = moved_halves(halves, RANDOM, 4)
    assert (made != halves).any()
    assert len(set(zip(halves.tolist(), made.tolist(), strict=True))) == len(set(halves.tolist()))


def test_magnitude() -> None:
    for dtype in (numpy.float16, numpy.float32):
        assert magnitude(numpy.array([1, -3, 2], dtype)) == 3 and magnitude(numpy.zeros(0, dtype)) == 0
        assert magnitude(numpy.array([1, -numpy.inf], dtype)) == numpy.inf
        assert numpy.isnan(magnitude(numpy.array([numpy.inf, -numpy.nan], dtype)))


def test_scales_of_outputs() -> None:
    x = Tensor.input("x", (1, 2, 4, 4))
    graph = run_passes(build_graph({"mask": x.sigmoid(), "flow": x * 3.0}))
    least = least_scales(graph)
    assert least == {"mask": PART_OF_RANGE, "flow": 0.0}
    found = [
        {"mask": numpy.full(3, 1e-7), "flow": numpy.array([1.0, numpy.nan])},
        {"mask": numpy.zeros(3), "flow": numpy.array([-2.0])},
    ]
    assert scales_of(found, least) == {"mask": PART_OF_RANGE, "flow": 2.0}
    more = [{"mask": numpy.zeros(3), "flow": numpy.array([number])} for number in (3.0, 50.0)]
    assert scales_of([*found, *more], least)["flow"] == 3.0
    assert relative_error({"flow": numpy.array([1.5])}, {"flow": numpy.array([1.0])}, {"flow": 2.0}) == 0.25
    assert relative_error({"flow": numpy.array([7.0])}, {"flow": numpy.array([8.0])}, {"flow": 2.0}) == 0.125


def test_relative_error() -> None:
    one = {"y": numpy.array([1.0, -4.0, numpy.inf, numpy.nan])}
    assert relative_error({"y": numpy.array([1.0, -3.0, 0.0, 0.0])}, one) == 0.25
    assert relative_error({"y": numpy.array([numpy.nan, -4.0, 0.0, 0.0])}, one) == float("inf")
    assert relative_error({"y": numpy.array([0.5])}, {"y": numpy.array([0.0])}) == 0.5
    assert relative_error({"y": numpy.zeros((0, 2))}, {"y": numpy.zeros((0, 2))}) == 0.0
