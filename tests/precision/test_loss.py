"""Losses of outputs when chosen values are really rounded, compared with plans in half and with float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy
import pytest
from planted import offset_model, overflow_model, picture

from imgconv.cl.context import Context
from imgconv.cl.device import DeviceInfo
from imgconv.compiling.lower import lower
from imgconv.config import Config, Precision
from imgconv.graph.evaluate import evaluate_graph
from imgconv.graph.nodes import Concatenation, Convolution, Graph
from imgconv.kernels.layout import ImageLimits, Texture
from imgconv.onnx_import import import_onnx
from imgconv.passes import run_passes
from imgconv.loading.native_functions import native_functions_fit
from imgconv.loading.device_target import target_of
from imgconv.precision.loss import PART_OF_RANGE, HalfSimulation, is_lost, least_scales, storage_groups
from imgconv.precision.loss import relative_error, scales_of
from imgconv.precision.statistics import TensorStatistics, magnitude, measure_outputs
from imgconv.runtime.session import Session
from imgconv.tensor import Tensor, build_graph, concatenate

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


def sessions(
    graph: Graph, device: DeviceInfo, context: Context, kept: Precision = Precision()
) -> tuple[Session, HalfSimulation]:
    """The plan in half on the device, and the simulation of it in float."""
    every = Precision(frozenset(graph.values))
    half, reference = (
        Session(lower(graph, Config(1, precision=each), target_of(device)), context) for each in (kept, every)
    )
    return half, HalfSimulation(reference, storage_groups(half.plan, reference.plan, graph))


def given(graph: Graph) -> dict[str, numpy.ndarray]:
    return {"x": RANDOM.uniform(0, 1, graph.inputs[0].shape).astype(numpy.float32)}


def rms(made: Mapping[str, numpy.ndarray], expected: Mapping[str, numpy.ndarray]) -> float:
    return float(numpy.sqrt(numpy.mean((made["y"].astype(float) - expected["y"]) ** 2)))


@pytest.mark.parametrize(("depth", "width"), [(3, 8), (8, 16), (4, 48)])
def test_the_loss_is_that_of_the_plan_in_half(device: DeviceInfo, context: Context, depth: int, width: int) -> None:
    """The same numbers are rounded. Sums in another order round one in thousands of them the other way."""
    graph = network(depth, width)
    half, simulation = sessions(graph, device, context)
    x = given(graph)
    exact, made = evaluate_graph(graph, x), half.run(x)
    error = rms(made, exact)
    assert error > 1e-5 and rms(simulation.outputs(simulation.items, x), made) < error / 4
    simulation.restore()
    assert rms(simulation.session.run(x), exact) < error / 10, "the weights were not put back"


def test_what_one_item_costs(device: DeviceInfo, context: Context) -> None:
    """Only it is rounded: an input, and the weights of the last layer with what they make."""
    graph = network(4, 48)
    _, simulation = sessions(graph, device, context)
    x = given(graph)
    assert [bool(item.weights) for item in simulation.items.values()] == [False, False, True, True, True]
    expected = evaluate_graph(graph, {"x": x["x"].astype(numpy.float16).astype(numpy.float32)})
    # float32 sums of 432 products.
    assert relative_error(simulation.outputs(["x"], x), expected) < 1e-5
    # Weights of the last layer, of which rounding its result is not all.
    exact, made = evaluate_graph(graph, x)["y"], simulation.outputs(["y"], x)["y"]
    assert (made == made.astype(numpy.float16)).all() and (made != exact.astype(numpy.float16)).mean() > 0.1
    assert relative_error(simulation.outputs([], x), evaluate_graph(graph, x)) < 1e-5


def weights(outputs: int, channels: int, side: int) -> Tensor:
    """Weights of a convolution, few enough to stay float."""
    spread = (2 / (side * side * channels)) ** 0.5
    return Tensor.constant(RANDOM.normal(0, spread, (outputs, channels, side, side)).astype(numpy.float32))


def of_parts() -> Tensor:
    """A concatenation of which six parts are written in place, one after another."""
    x = Tensor.input("x", (1, 8, 24, 20))
    parts = [x.conv2d(weights(8, 8, 3), padding=1).relu() for _ in range(6)]
    return concatenate(parts, 1).conv2d(weights(8, 48, 1))


def of_copies() -> Tensor:
    """A concatenation whose parts are copied, as in a feature pyramid: at most one texture can be written in place."""
    x = Tensor.input("x", (1, 8, 24, 20))
    parts = [x.conv2d(weights(8, 8, 3), padding=1).relu().upsample(2) for _ in range(3)]
    return concatenate(parts, 1).conv2d(weights(8, 24, 1))


def of_maxima() -> Tensor:
    """Maxima of maxima, of which none is rounded. Few of the numbers that are rounded become one."""
    made = Tensor.input("x", (1, 8, 64, 48)).conv2d(weights(8, 8, 3), padding=1)
    for _ in range(4):
        made = made.max_pool(3, 1, 1)
    return made.conv2d(weights(8, 8, 1))


@pytest.mark.parametrize(
    ("make", "wide"), [(of_parts, False), (of_copies, False), (of_copies, True), (of_maxima, False)]
)
def test_each_number_that_is_stored_in_half_is_rounded(
    device: DeviceInfo, context: Context, make: Callable[[], Tensor], wide: bool
) -> None:
    """Parts of a concatenation that lie in it, or are copied to it, and copies. wide: convolutions stay float."""
    graph = run_passes(build_graph({"y": make()}))
    kept = [n.output.name for n in graph.nodes if isinstance(n.operation, Convolution) and wide]
    half, simulation = sessions(graph, device, context, Precision(frozenset(kept)))
    x = given(graph)
    made = half.run(x)
    error = rms(made, evaluate_graph(graph, x))
    assert error > 1e-5 and rms(simulation.outputs(simulation.items, x), made) < error / 4


def test_values_in_one_texture_are_one_item(device: DeviceInfo, context: Context) -> None:
    graph = run_passes(build_graph({"y": of_parts()}))
    _, simulation = sessions(graph, device, context)
    (concatenation,) = (node for node in graph.nodes if isinstance(node.operation, Concatenation))
    names = {concatenation.output.name, *concatenation.reads}
    assert [item.size for item in simulation.items.values() if item.values == names] == [48 * 24 * 20]


@pytest.mark.parametrize("limits", [None, ImageLimits(15, 16, 64)])
@pytest.mark.parametrize("run", [None, 3])
def test_statistics_and_rounding_on_the_device(
    device: DeviceInfo, context: Context, limits: ImageLimits | None, run: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same as numpy's: in the device's own textures, and in tiles of images. Negative, infinite and no numbers."""
    if run:
        monkeypatch.setattr("imgconv.precision.statistics.RUN", {device.kind: run})
        monkeypatch.setattr("imgconv.precision.statistics.ITEMS", 7)
    x = Tensor.input("x", (1, 3, 24, 20))
    parts = [x.conv2d(weights(count, 3, 3), padding=1) for count in (8, 6)]
    large = concatenate(parts, 1) * 3e38 * 3.0
    tiny = x.conv2d(weights(4, 3, 3), padding=1) * 3e-6
    joined = concatenate([large, large - large, tiny, concatenate(parts, 1) * 1e5], 1)
    graph = run_passes(build_graph({"y": joined.max_pool(3, 1, 1)}))
    target = target_of(device)
    target = replace(target, limits=limits, linear=None, images_in_buffers=None) if limits else target
    session = Session(lower(graph, Config(), target), context)
    statistics, expected, last = TensorStatistics(session), {}, {}
    for number, launch in enumerate(session.plan.launches):
        last[launch.writes] = number
    seen = 0
    for number in session.numbered_steps(given(graph)):
        storage = session.plan.launches[number].writes
        if last[storage] != number or not isinstance(storage, Texture):
            continue
        statistics.measure(storage)
        before = storage.tiling.from_image(session.memory.content(storage))
        expected[storage] = magnitude(before)
        statistics.round(storage)
        with numpy.errstate(over="ignore"):
            rounded = before.astype(numpy.float16).astype(numpy.float32)
        numpy.testing.assert_array_equal(storage.tiling.from_image(session.memory.content(storage)), rounded)
        seen += (rounded != before).sum()
    found = statistics.largest()
    for name, place in session.plan.placements.items():
        if place.storage in expected:
            assert found[name] == pytest.approx(expected[place.storage], rel=0, abs=0, nan_ok=True), name
    assert seen > 100 and any(map(numpy.isnan, found.values())) and not any(statistics.largest().values())


def test_largest_values_are_those_of_all_inputs(device: DeviceInfo, context: Context) -> None:
    graph = run_passes(import_onnx(overflow_model()))
    session = Session(lower(graph, Config(), target_of(device)), context)
    inputs = [{"x": scale * picture(seed)} for seed, scale in ((1, 1), (2, 3), (3, 2))]
    outputs, largest = measure_outputs(session, inputs)
    every = Graph(graph.inputs, tuple(graph.producers), graph.nodes, graph.constants)
    values = [evaluate_graph(every, each) | each for each in inputs]
    expected = {name: max(numpy.abs(each[name]).max() for each in values) for name in ("x", "first", "big", "y")}
    # float32 sums of 45 products compared with float64.
    assert {name: largest[name] for name in expected} == pytest.approx(expected, rel=1e-5)
    assert all((made["y"] == session.run(each)["y"]).all() for made, each in zip(outputs, inputs, strict=True))


@pytest.mark.parametrize("function", ["exp", "sigmoid"])
def test_what_is_stored_in_half_is_off_by_its_rounding_alone(
    device: DeviceInfo, context: Context, function: str
) -> None:
    """An error that is always to one side adds up in later layers, however small it is."""
    x = Tensor.input("x", (1, 8, 40, 40))
    value = getattr(x, function)()
    graph, config = build_graph({"s": value, "y": value.max_pool(3, 1, 1)}), Config(float16=1)
    target = target_of(device, native_functions_fit(context, config))
    session = Session(lower(graph, config, target), context)
    assert session.plan.placements["s"].storage.dtype == "float16"
    array = RANDOM.uniform(-5, 5, x.shape).astype(numpy.float16).astype(numpy.float32)
    exact = evaluate_graph(graph, {"x": array})["s"]
    off = session.run({"x": array})["s"].astype(numpy.float64) / exact - 1
    assert numpy.abs(off).max() < 1.02 * 2**-11
    assert abs(off.mean()) < 5 * 2**-11 / 3**0.5 / off.size**0.5, "five standard deviations of the mean"


def test_halves_are_the_nearest(device: DeviceInfo, context: Context) -> None:
    """And infinite past 65504. Images of a driver may round otherwise. In one tile and in several, beside floats."""
    target = replace(target_of(device), linear=None, images_in_buffers=None)
    config = Config(float16=1, precision=Precision(frozenset({"wide"})))
    x = Tensor.input("x", (1, 8, 40, 40))
    values = {"y": x * 0.3, "large": x * 9001.0, "wide": x * 0.7}
    # What only the caller reads is in no texture.
    pooled = {f"{name}_pooled": value.max_pool(3, 1, 1) for name, value in values.items()}
    graph = build_graph(values | pooled)
    array = numpy.random.default_rng(3).integers(-2048, 2048, x.shape).astype(numpy.float32) / 256  # exact in half
    with numpy.errstate(over="ignore"):
        y, large = (numpy.float16(array * numpy.float32(factor)) for factor in (0.3, 9001))
    assert numpy.isinf(large).any()
    for limits in (target.limits, ImageLimits(16, 16, 64)):
        made = Session(lower(graph, config, replace(target, limits=limits)), context).run({"x": array})
        assert (made["y"] == y).all() and (made["large"] == large).all()
        assert (made["wide"] == array * numpy.float32(0.7)).all()


def test_digits_that_are_lost_are_found(device: DeviceInfo, context: Context) -> None:
    """Half has 0.5 between 1000 and 1001."""
    graph = run_passes(import_onnx(offset_model()))
    _, simulation = sessions(graph, device, context)
    x = {"x": picture()}
    exact = evaluate_graph(graph, x)
    errors = {name: relative_error(simulation.outputs([name], x), exact) for name in simulation.items}
    assert errors["high"] > 0.1 and all(error < 2e-3 for name, error in errors.items() if name != "high")


def test_an_output_is_lost() -> None:
    exact = {"y": numpy.array([1.0, 0.0, numpy.inf])}
    assert not is_lost({"y": numpy.array([9.0, 0.0, 3.0])}, exact)
    assert is_lost({"y": numpy.array([0.0, 0.0, numpy.inf])}, exact)
    assert is_lost({"y": numpy.array([1.0, numpy.nan, numpy.inf])}, exact)
    assert not is_lost({"y": numpy.zeros(2)}, {"y": numpy.zeros(2)})


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
