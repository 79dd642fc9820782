"""What rounding costs, by the half plan alone, beside what it costs against float."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy
import pyopencl as cl
import pytest
from planted import offset_model, overflow_model, picture

import imgconv
from imgconv.arrays import Array
from imgconv.cl.device import Context, DeviceInfo
from imgconv.cl.image import download
from imgconv.compiling.lower import lower
from imgconv.config import Config, Precision
from imgconv.graph.evaluate import evaluate_graph
from imgconv.graph.nodes import Concatenation, Convolution, Graph
from imgconv.kernels.layout import ImageLimits, Placement
from imgconv.onnx_import import import_onnx
from imgconv.passes import run_passes
from imgconv.running.numbers import HALVES, Numbers, magnitude, moved_halves
from imgconv.running.rounding import PART_OF_RANGE, is_half, least_scales, mean_square
from imgconv.running.rounding import distance, relative_error, rounding_of, scales_of
from imgconv.runtime.session import Session
from imgconv.loading.target import target_of
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


@pytest.mark.parametrize(("depth", "width"), [(3, 8), (8, 16), (4, 48)])
def test_the_estimate_is_near_the_error(device: DeviceInfo, context: Context, depth: int, width: int) -> None:
    """Both are the largest of thousands of random numbers of the same spread.

    Of 40 drawn networks of each kind the logarithm of their ratio has a standard deviation of at most 0.16, and a
    factor of two is four of these.
    """
    graph = network(depth, width)
    x = {"x": RANDOM.uniform(0, 1, (1, 3, 24, 20)).astype(numpy.float32)}
    session = Session(lower(graph, Config(float16=1), target_of(device)), context)
    error = relative_error(session.run(x), evaluate_graph(graph, x))
    found = rounding_of(session, graph, [x])
    assert error / 2 < found.errors[0] < 2 * error
    assert relative_error(session.run(x), evaluate_graph(graph, x)) == error, "the weights were not put back"
    assert found.largest["x"] == pytest.approx(1, rel=1e-2)


def test_inputs_that_come_later_count_as_much(device: DeviceInfo, context: Context) -> None:
    graph = network(3, 8)
    inputs = [{"x": RANDOM.uniform(0, scale, (1, 3, 24, 20)).astype(numpy.float32)} for scale in (1, 3, 2)]
    session = Session(lower(graph, Config(float16=1), target_of(device)), context)
    at_once, first = rounding_of(session, graph, inputs), rounding_of(session, graph, inputs[:1])
    assert len(first.errors) == 1
    later = first.with_more(inputs[1:])
    assert later.errors == at_once.errors and later.largest == at_once.largest and later.scales == at_once.scales
    assert later.largest["x"] == pytest.approx(3, rel=1e-2)


def test_what_each_value_costs(device: DeviceInfo, context: Context) -> None:
    """Squares of costs add up to that of all, and that of a value is its own rounding's, as float64 computes it."""
    graph = network(4, 48)
    x = {"x": RANDOM.uniform(0, 1, (1, 3, 24, 20)).astype(numpy.float32)}
    session = Session(lower(graph, Config(float16=1), target_of(device)), context)
    found = rounding_of(session, graph, [x])
    costs = {name: found.cost_of(frozenset([name]), 0, 16) for name in found.groups}
    assert [bool(group.weights) for group in found.groups.values()] == [False, False, True, True, True]
    # Of 40 drawn networks both ratios have a standard deviation of at most 0.06, and this allows five.
    assert sum(cost**2 for cost in costs.values()) ** 0.5 == pytest.approx(found.errors[0], rel=0.3)
    exact = evaluate_graph(graph, x)["y"]
    rounded = evaluate_graph(graph, {"x": x["x"].astype(numpy.float16)})["y"]
    rest = session.run(x)["y"]
    part = ((rounded - exact) ** 2).mean() ** 0.5 / ((rest - exact) ** 2).mean() ** 0.5
    assert costs["x"] / found.errors[0] == pytest.approx(part, rel=0.3)


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
def test_each_number_that_is_rounded_moves_once(
    device: DeviceInfo, context: Context, make: Callable[[], Tensor], wide: bool
) -> None:
    """The roots of mean squares of what is estimated and of the error. wide: the convolutions' results stay float.

    Of 60 drawn networks of each kind their ratio has a standard deviation of at most 0.024, and this allows five.
    """
    graph = run_passes(build_graph({"y": make()}))
    kept = [n.output.name for n in graph.nodes if isinstance(n.operation, Convolution) and wide]
    config = Config(float16=1, precision=Precision(frozenset(kept)))
    x = {"x": RANDOM.uniform(0, 1, graph.inputs[0].shape).astype(numpy.float16).astype(numpy.float32)}
    session = Session(lower(graph, config, target_of(device)), context)
    error = mean_square(session.run(x)["y"], evaluate_graph(graph, x)["y"]) ** 0.5
    found = rounding_of(session, graph, [x])
    rounded = frozenset(found.groups) - {"x"}  # x holds halves already
    made = found.outputs_if(rounded, 0, 16, found.rounding_launches)
    estimate = mean_square(made["y"], found.outputs[0]["y"]) ** 0.5 / distance(16)
    assert estimate == pytest.approx(error, rel=0.12)


def test_a_part_moves_in_an_image_that_is_larger_than_its_texture(device: DeviceInfo, context: Context) -> None:
    """A small concatenation takes the image of a large value that nobody reads any more."""
    x = Tensor.input("x", (1, 3, 24, 20))
    large = x.conv2d(weights(24, 3, 3), padding=1).relu().conv2d(weights(24, 24, 3), padding=1).relu()
    parts = [large.max_pool(4, 4).conv2d(weights(8, 24, 1)).relu() for _ in range(2)]
    graph = run_passes(build_graph({"y": concatenate(parts, 1).conv2d(weights(4, 16, 1))}))
    images = replace(target_of(device), linear=None, images_in_buffers=None)
    session = Session(lower(graph, Config(float16=1), images), context)
    inputs = {"x": RANDOM.uniform(0, 1, (1, 3, 24, 20)).astype(numpy.float32)}
    seen, places, numbers = 0, rounding_of(session, graph, [inputs])._written, Numbers(session)
    for number in session.numbered_steps(inputs):
        place = places.get(number)
        if place is not None and place.shape != place.storage.shape:
            memory = session.memory[place.storage]
            seen += isinstance(memory, cl.Image) and (memory.width, memory.height) != place.storage.tiling.image_size
            check_moves(session, numbers, place)
    assert seen


@pytest.mark.parametrize("limits", [None, ImageLimits(15, 16, 64)])
@pytest.mark.parametrize("run", [None, 3])
def test_numbers_on_the_device(
    device: DeviceInfo, context: Context, limits: ImageLimits | None, run: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same as numpy's: in the device's own textures, and in tiles of images. Negative, infinite and no numbers."""
    if run:
        monkeypatch.setattr("imgconv.running.numbers.RUN", {device.kind: run})
        monkeypatch.setattr("imgconv.running.numbers.ITEMS", 7)
    x = Tensor.input("x", (1, 3, 24, 20))
    parts = [x.conv2d(weights(count, 3, 3), padding=1) for count in (8, 6)]
    large = concatenate(parts, 1) * 3e4
    graph = run_passes(build_graph({"y": concatenate([large, large - large], 1).max_pool(3, 1, 1)}))
    target = target_of(device)
    target = replace(target, limits=limits, linear=None, images_in_buffers=None) if limits else target
    inputs = {"x": RANDOM.uniform(0, 1, (1, 3, 24, 20)).astype(numpy.float32)}
    for float16 in (0, 1):
        session = Session(lower(graph, Config(float16), target), context)
        numbers, expected = Numbers(session), {}
        written = rounding_of(session, graph, [inputs])._written if float16 else {}
        for number in session.numbered_steps(inputs):
            if number in session.plan.made:
                name = session.plan.made[number]
                numbers.measure(name)
                expected[name] = magnitude(session.value(name))
            if number in written and is_half(written[number].storage):
                check_moves(session, numbers, written[number])
        assert len(expected) > 3 and numbers.largest() == pytest.approx(expected, rel=0, abs=0, nan_ok=True)
        assert not any(numbers.largest().values())


def check_moves(session: Session, numbers: Numbers, place: Placement) -> None:
    """The part of a texture that lies at a place moves as numpy moves it; the rest of its memory stays."""
    def texture() -> Array:
        texels = place.storage.tiling.gather(session.memory.content(place.storage))
        return place.layout.unpack(texels, place.storage.shape).view(numpy.uint16)

    def whole() -> Array:
        memory = session.memory[place.storage]
        return (download(session.context, memory) if isinstance(memory, cl.Image) else texture()).view(numpy.uint16)

    expected, before = texture().copy(), whole()
    part = expected[:, place.channel_offset : place.channel_offset + place.shape[1]]
    part[...] = moved_halves(part.view(numpy.float16), 64, 1234).view(numpy.uint16)
    differing = (expected != texture()).sum()
    numbers.move(place, 64, 1234)
    assert (texture() == expected).all() and differing
    assert (whole() != before).sum() == differing, "something else in the image changed"


def test_values_in_one_texture_are_one_group(device: DeviceInfo, context: Context) -> None:
    graph = run_passes(build_graph({"y": of_parts()}))
    session = Session(lower(graph, Config(float16=1), target_of(device)), context)
    groups = rounding_of(session, graph, [{"x": numpy.zeros((1, 8, 24, 20), numpy.float32)}]).groups
    (concatenation,) = (node for node in graph.nodes if isinstance(node.operation, Concatenation))
    names = {concatenation.output.name, *concatenation.reads}
    assert [group.size for group in groups.values() if set(group.values) == names] == [48 * 24 * 20]


@pytest.mark.parametrize("function", ["exp", "sigmoid"])
def test_what_is_stored_in_half_is_off_by_its_rounding_alone(device: DeviceInfo, function: str) -> None:
    """An error that is always to one side adds up in later layers, however small it is."""
    x = Tensor.input("x", (1, 8, 40, 40))
    value = getattr(x, function)()
    model = imgconv.load(build_graph({"s": value, "y": value.max_pool(3, 1, 1)}), device, float16=1)
    array = RANDOM.uniform(-5, 5, x.shape).astype(numpy.float16).astype(numpy.float32)
    exact = evaluate_graph(model.graph, {"x": array})["s"]
    off = model.run({"x": array})["s"].astype(numpy.float64) / exact - 1
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
    """Half has 0.5 between 1000 and 1001: a small change of the input would seldom change anything."""
    graph = run_passes(import_onnx(offset_model()))
    session = Session(lower(graph, Config(float16=1), target_of(device)), context)
    assert rounding_of(session, graph, [{"x": picture()}]).errors[0] > 0.1


def test_overflow_is_seen(device: DeviceInfo, context: Context) -> None:
    graph = run_passes(import_onnx(overflow_model()))
    session = Session(lower(graph, Config(float16=1), target_of(device)), context)
    assert not rounding_of(session, graph, [{"x": picture()}]).largest["big"] <= 65504


@pytest.mark.parametrize("units", [1, 4, 64])
def test_moved_halves(units: int) -> None:
    """Each by up to so many units, as often up as down; the mean square of the moves is what `moves` says."""
    halves = numpy.concatenate([RANDOM.uniform(1, 2, 60000), [0, -0.0, 65504, numpy.inf, 1e-7]]).astype(numpy.float16)
    made = moved_halves(halves, units, int(RANDOM.integers(HALVES)))
    steps = made.view(numpy.uint16).astype(int) - halves.view(numpy.uint16)
    assert abs(steps).max() == units and (made[-5:-3] == halves[-5:-3]).all() and made[-2] == halves[-2]
    assert made[-3] <= 65504 and made[-1] >= 0
    # 1,024 different numbers: four standard deviations of their mean square are an eighth of it, of their mean an 8th.
    _, first = numpy.unique(halves[:-5], return_index=True)
    assert (steps[first] ** 2).mean() == pytest.approx(distance(units) ** 2 / 12, rel=0.13)
    assert steps[first].mean() == pytest.approx(0, abs=units / 8)


def test_equal_halves_move_alike() -> None:
    """As they are rounded alike: in a flat area errors do not average out."""
    halves = RANDOM.integers(1, 50, 5000).astype(numpy.float16)
    made = moved_halves(halves, 4, int(RANDOM.integers(HALVES)))
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
