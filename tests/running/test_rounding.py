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
from imgconv.running.rounding import PART_OF_RANGE, least_scales, magnitude, moved_halves, relative_error, rounding_of
from imgconv.running.rounding import scales_of
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
    """The moves have twice the variance of rounding. Both are the largest of thousands of random numbers."""
    graph = network(depth, width)
    x = {"x": RANDOM.uniform(0, 1, (1, 3, 24, 20)).astype(numpy.float32)}
    session = Session(lower(graph, Config(float16=1), target_of(device)), context)
    error = relative_error(session.run(x), evaluate_graph(graph, x))
    found = rounding_of(session, [x], least_scales(graph))
    assert 0.7 * error < found.error < 4 * error
    assert relative_error(session.run(x), evaluate_graph(graph, x)) == error, "the weights were not put back"
    assert found.largest["x"] == pytest.approx(1, rel=1e-2)


def test_digits_that_are_lost_are_found(device: DeviceInfo, context: Context) -> None:
    """Half has 0.5 between 1000 and 1001: a small change of the input would seldom change anything."""
    graph = run_passes(import_onnx(offset_model()))
    session = Session(lower(graph, Config(float16=1), target_of(device)), context)
    assert rounding_of(session, [{"x": picture()}], least_scales(graph)).error > 0.1


def test_overflow_is_seen(device: DeviceInfo, context: Context) -> None:
    graph = run_passes(import_onnx(overflow_model()))
    session = Session(lower(graph, Config(float16=1), target_of(device)), context)
    assert not rounding_of(session, [{"x": picture()}], least_scales(graph)).largest["big"] <= 65504


def test_moved_halves() -> None:
    halves = numpy.concatenate([RANDOM.normal(0, 1, 60000), [0, -0.0, 65504, numpy.inf]]).astype(numpy.float16)
    made = moved_halves(halves, RANDOM)
    with numpy.errstate(over="ignore"):
        up, down = (numpy.nextafter(halves, numpy.float16(end)) for end in (numpy.inf, -numpy.inf))
    assert ((made == halves) | (made == up) | (made == down)).all()
    assert (made[-4:] == halves[-4:]).all()
    # Of the different numbers, about 13,000, one in six, half of them up: four standard deviations are 0.01.
    _, first = numpy.unique(halves, return_index=True)
    assert (made > halves)[first].mean() == pytest.approx(1 / 12, abs=0.01)
    assert (made < halves)[first].mean() == pytest.approx(1 / 12, abs=0.01)


def test_equal_halves_move_alike() -> None:
    """As they are rounded alike: in a flat area errors do not average out."""
    halves = RANDOM.integers(1, 50, 5000).astype(numpy.float16)
    made = moved_halves(halves, RANDOM)
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
