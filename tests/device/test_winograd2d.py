"""winograd2d.cl and the products between its launches: exact where half is, and within a bound of float64 elsewhere.

Sums are in half where the driver computes in half, else in float.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy
import pytest
from graphs import Taking, prefer_large_tiles
from problems.convolution import ConvolutionProblem, winograd_matrices
from running import Wanted, run_tensors, session_of, target

from imgconv.checking.session_checks import SessionUnderTest, check_launches
from imgconv.cl.context import Context
from imgconv.compiling.compiler import PreparedGraph, prepare
from imgconv.compiling.plan import Plan
from imgconv.config import Config, Float16, Precision
from imgconv.kernels.conv import problem as conv, template as conv_template
from imgconv.kernels.device_model.time_range import NEVER
from imgconv.kernels.layout import ImageLimits, Texture
from imgconv.kernels.target import Target
from imgconv.kernels.winograd import template as winograd2d
from imgconv.kernels.winograd.problem import Problem
from imgconv.kernels.winograd.taps import winograd_taps
from imgconv.kernels.winograd.template import TEMPLATE, baseline, candidates
from imgconv.loading.tuner import problems_of
from imgconv.passes import run_passes
from imgconv.tensor import Tensor, build_graph, concatenate, convolution

C = ConvolutionProblem
SAME = (1, 1, 1, 1)
GRID = [
    C(batch=3, channels=6, filters=5, size=(4, 5), pads=(0, 2, 1, 0)), C(channels=1, filters=1, size=(3, 3)),
    C(channels=16, filters=17, size=(7, 8), pads=SAME), C(channels=9, size=(9, 8), pads=(-1, -2, 0, -1)),
    C(size=(1, 21), pads=SAME),
]


@pytest.fixture
def config(context: Context) -> Config:
    """Sums in half; in float where the driver cannot."""
    return Config(2 if context.info.fp16_arithmetic else 1)


def phone(context: Context) -> Target:
    """The device with the plans of a phone's GPU."""
    return target(context, "gpu", compute_units=2)


def tiled(on: Target, number: int = 0) -> Wanted:
    """The device with two-dimensional filtering wherever it is possible. number: of the candidate."""
    return Wanted(on, Taking(winograd2d=lambda problem, *_: candidates(problem, on)[number]))


def with_tile(config: Config, monkeypatch: pytest.MonkeyPatch, tile: int) -> Config:
    """The settings with which the output y is computed in tiles of tile x tile outputs, whatever that costs."""
    prefer_large_tiles(monkeypatch)
    return replace(config, precision=replace(config.precision, large_tiles=frozenset("y" if tile == 4 else "")))


def launches_of(plan: Plan) -> int:
    """The launches of winograd2d.cl."""
    return sum(launch.source.path == "kernels/winograd/winograd2d.cl" for launch in plan.launches)


def drawn(problem: ConvolutionProblem, low: int, high: int, seed: int = 0) -> tuple[Any, Any]:
    """Whole numbers as input and weights."""
    random = numpy.random.default_rng(seed)
    x, w = (problem.batch, problem.channels, *problem.size), problem.weights_shape
    return random.integers(-2, 3, x).astype(numpy.float32), random.integers(low, high + 1, w).astype(numpy.float32)


def output_of(problem: ConvolutionProblem, x: Tensor, weights: Any) -> Tensor:
    return convolution(x, Tensor.constant(weights), [1, 1], list(problem.pads), [1, 1], 1, problem.output_size)


@pytest.mark.parametrize(("number", "limit"), [(0, None), (1, 96)])
def test_small_whole_numbers_are_exact(context: Context, config: Config, number: int, limit: int | None) -> None:
    """Taps are quarters of whole numbers, their products sixteenths; sums stay below 2048 of these, so none rounds.

    Odd sizes, ragged channels, batches, padding that differs by side and that cuts. With the limit the input and
    the output are tiled, and rows of tiles are folded.
    """
    problems = [*GRID[number:], C(size=(99, 3), pads=SAME)]
    arrays = [drawn(problem, -1, 1) for problem in problems]
    inputs = {f"x{n}": x for n, (x, _) in enumerate(arrays)}
    outputs = {
        f"y{n}": output_of(problem, Tensor.input(f"x{n}", x.shape), w)
        for n, (problem, (x, w)) in enumerate(zip(problems, arrays, strict=True))
    }
    limited = replace(config, max_image=limit)
    plan, made = run_tensors(outputs, inputs, context, limited, tiled(phone(context), number))
    assert launches_of(plan) == 2 * len(problems)
    if limit:
        assert any(isinstance(t, Texture) and t.tiling.tiles > 1 for t in plan.textures)
        sources = [launch.source for launch in plan.launches]
        texts = [each.text for each in sources if each.path == "kernels/winograd/winograd2d.cl"]
        assert any("#define FOLDS 1\n" not in text for text in texts)
    for n, (problem, (x, w)) in enumerate(zip(problems, arrays, strict=True)):
        expected = problem.compute(x.astype(numpy.float64), w.astype(numpy.float64))
        numpy.testing.assert_array_equal(made[f"y{n}"], expected, f"{problem}")


def bound_of(problem: ConvolutionProblem, x: Any, w: Any, terms: int, tile: int = 2) -> Any:
    """Returns the bound on each output's rounding error: its terms |A| |G w G'| |B x B'| times their roundings.

    The roundings are those of a tap and of a weight to fp16, one for each of the `terms` that are summed in fp16, and
    those of the sums as they are stored: 2**-10 each, for a device may round towards zero. The output's own rounding is
    added. (The transforms themselves are in fp32, which is less than one more.)
    """
    a, b, g = (numpy.abs(matrix) for matrix in winograd_matrices(tile))
    top, left, bottom, right = problem.pads
    total = numpy.zeros((problem.batch, problem.filters, *problem.output_size))
    taps = g @ numpy.abs(w) @ g.T
    for i in range(tile):
        for j in range(tile):
            window, last = b.T @ (taps * numpy.outer(a[i], a[j])) @ b, tile - 1
            pads = top + i, left + j, bottom + last - i, right + last - j
            longer = replace(problem, window=(tile + 2, tile + 2), pads=pads)
            total[..., i::tile, j::tile] = longer.compute(numpy.abs(x), window)[..., i::tile, j::tile]
    exact = problem.compute(x, w)
    return (terms + 5) * 2.0**-10 * total + 2.0**-10 * numpy.abs(exact) + 2.0**-24


@pytest.mark.parametrize(("number", "limit"), [(0, None), (1, 600)])
def test_large_tiles(context: Context, monkeypatch: pytest.MonkeyPatch, number: int, limit: int | None) -> None:
    """F(4x4, 3x3) with taps and sums in float: the bound is the terms |A| |G w G'| |B x B'| times roundings of float.

    Sizes, channels, batches, padding, tiling and folds as for whole numbers.
    """
    config = with_tile(Config(1, max_image=limit, precision=Precision(storage=frozenset("xy"))), monkeypatch, 4)
    for problem in [*GRID[number:], C(size=(99, 3), pads=SAME)]:
        x, w = (array.astype(numpy.float64) for array in drawn(problem, -1, 1))
        output = {"y": output_of(problem, Tensor.input("x", x.shape), w.astype(numpy.float32))}
        wanted = tiled(phone(context), number)
        plan, made = run_tensors(output, {"x": x.astype(numpy.float32)}, context, config, wanted)
        assert sum("#define TILE 4\n" in launch.source.text for launch in plan.launches) == 2
        bound = bound_of(problem, x, w, 0, 4) * 2.0**-12
        assert (numpy.abs(made["y"] - problem.compute(x, w)) <= bound).all(), problem


@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize("float16", [1, 2])
def test_real_numbers(context: Context, monkeypatch: pytest.MonkeyPatch, float16: Float16, tile: int) -> None:
    """Bias, residual and activation are fused into the last launch.

    The error is within the bound, and its root mean square within twice that of one launch of conv.cl, with F(4x4, 3x3)
    six times: A, B and G make sums of larger terms. (1.25 times with sums in half, on Intel's driver.)
    """
    if float16 == 2 and not context.info.fp16_arithmetic:
        pytest.skip("the driver does not compute in half")
    config, terms = with_tile(Config(float16), monkeypatch, tile), 48 if float16 == 2 else 0
    problem, random = C(channels=48, filters=10, size=(9, 11), pads=(0, 1, 2, 1)), numpy.random.default_rng(0)
    x = random.normal(size=(1, problem.channels, *problem.size)).astype(numpy.float16).astype(numpy.float32)
    w = (random.normal(size=problem.weights_shape) / 3 / problem.channels**0.5).astype(numpy.float32)
    b = random.normal(size=(1, problem.filters, 1, 1)).astype(numpy.float32)
    r = random.normal(size=(1, problem.filters, *problem.output_size)).astype(numpy.float16).astype(numpy.float32)
    made = output_of(problem, Tensor.input("x", x.shape), w) + Tensor.constant(b) + Tensor.input("r", r.shape)
    wide = x.astype(numpy.float64), w.astype(numpy.float64)
    expected, typical = numpy.maximum(problem.compute(*wide) + b + r, 0), []
    for wanted, count in ((tiled(phone(context)), 3), (target(context, "gpu"), 1)):
        plan, found = run_tensors({"y": made.relu()}, {"x": x, "r": r}, context, config, wanted)
        assert len(plan.compute_launches) == count
        off = numpy.abs(found["y"] - expected)
        assert (off <= bound_of(problem, *wide, terms, tile) + 2.0**-9 * (numpy.abs(r) + numpy.abs(b) + expected)).all()
        typical.append(float(numpy.sqrt(numpy.mean(off**2))))
    assert 0 < typical[0] < (2 if tile == 2 else 6) * typical[1], typical


@pytest.mark.parametrize(("kept", "factor"), [("", 0.75), ("xy", 0.98)])
@pytest.mark.parametrize("tile", [2, 4])
def test_the_check_of_launches(
    context: Context, monkeypatch: pytest.MonkeyPatch, kept: str, factor: float, tile: int
) -> None:
    """It allows for the roundings of taps and sums to half, and finds taps of weights that are a quarter off.

    Where both are kept in float, it finds those that are a fiftieth off.
    """
    config, wanted = Config(1, precision=Precision(storage=frozenset(kept))), tiled(phone(context))
    config = with_tile(config, monkeypatch, tile)
    weights = numpy.random.default_rng(0).normal(size=(8, 4, 3, 3)).astype(numpy.float32)
    output = Tensor.input("x", (1, 4, 19, 21)).conv2d(Tensor.constant(weights), padding=1)
    graph = run_passes(build_graph({"y": output}))
    verdicts = []
    for wrong in (1.0, factor):
        row = [1.0] * (tile + 1) + [wrong]
        changed = numpy.outer(row, row).reshape(-1)
        monkeypatch.setattr(
            winograd2d, "winograd_taps", lambda windows, tile, by=changed: winograd_taps(windows, tile) * by
        )
        session = session_of(PreparedGraph(graph, config, wanted.target, wanted.chooser).plan(), context)
        verdicts.append({finding.verdict for _, finding in check_launches(SessionUnderTest(session, graph, config))})
    assert verdicts == [{"right"}, {"right", "wrong"}]


def test_parts_of_concatenations(context: Context, config: Config) -> None:
    """The input begins at the third quad of its image, and the output at the third of another."""
    problem = C(channels=8, filters=8, size=(6, 6), pads=SAME)
    array, weights = drawn(problem, -1, 1)
    x = Tensor.input("x", array.shape)
    first, second = x.apply("absolute"), x.apply("negative")
    outputs = {
        "read": concatenate([first, second], 1).apply("absolute"),
        "written": concatenate([x.apply("negative"), output_of(problem, second, weights)], 1).apply("absolute"),
    }
    plan, made = run_tensors(outputs, {"x": array}, context, config, tiled(phone(context)))
    texts = [launch.source.text for launch in plan.launches if launch.source.path == "kernels/winograd/winograd2d.cl"]
    assert "#define INPUT_OFFSET 2\n" in texts[0] and "#define OUTPUT_OFFSET 2\n" in texts[1]
    exact = problem.compute(-array.astype(numpy.float64), weights.astype(numpy.float64))
    numpy.testing.assert_array_equal(made["written"], numpy.abs(numpy.concatenate([-array, exact], 1)))


def test_shuffled_channels(context: Context, config: Config) -> None:
    """Quads that do not follow each other are read as they lie."""
    problem = C(channels=16, filters=8, size=(6, 6), pads=SAME)
    array, weights = drawn(problem, -1, 1)
    x = Tensor.input("x", array.shape)
    shuffled = x.apply("negative").reshape(1, 2, 2, 4, 6, 6).transpose(0, 2, 1, 3, 4, 5).reshape(*array.shape)
    output = output_of(problem, shuffled, weights)
    plan, made = run_tensors({"y": output}, {"x": array}, context, config, tiled(phone(context)))
    order = array.reshape(1, 2, 2, 4, 6, 6).transpose(0, 2, 1, 3, 4, 5).reshape(array.shape)
    numpy.testing.assert_array_equal(made["y"], problem.compute(-order.astype(numpy.float64), weights))
    assert launches_of(plan) == 2 and not any(launch.kind == "copy" for launch in plan.launches)


@pytest.mark.parametrize("value", [60000.0, numpy.inf, numpy.nan])
def test_neighbours_do_not_leak(context: Context, config: Config, value: float) -> None:
    """A pixel changes the outputs whose windows meet it, and no other; taps of the largest halves do not overflow."""
    problem = C(batch=2, channels=5, filters=3, size=(6, 7), pads=SAME)
    array, weights = drawn(problem, 0, 0)
    array[0, 3, 3, 5] = value
    array[1, 4] = 60000.0
    weights[:, 3] = 2.0**-6
    x = Tensor.input("x", array.shape)
    _, made = run_tensors({"y": output_of(problem, x, weights)}, {"x": array}, context, config, tiled(phone(context)))
    clean = array.copy()
    clean[0, 3, 3, 5] = 0
    expected = problem.compute(clean.astype(numpy.float64), weights.astype(numpy.float64))
    apart = numpy.ones(expected.shape, bool)
    apart[0, :, 2:5, 4:7] = False
    numpy.testing.assert_array_equal(made["y"][apart], expected[apart])
    if value == 60000.0:
        assert numpy.abs(made["y"][~apart] - expected[~apart] - value / 64).max() < 2.0**-9 * value / 64


@pytest.mark.parametrize("value", [60000.0, numpy.nan])
def test_pixels_stay_in_large_tiles(
    context: Context, config: Config, monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    """With F(4x4, 3x3) a pixel may change all outputs of the tiles that read it, and no other."""
    problem = C(batch=2, channels=5, filters=3, size=(12, 13), pads=SAME)
    array, weights = drawn(problem, -1, 1)
    changed = array.copy()
    changed[0, 3, 5, 6] = value
    output = {"y": output_of(problem, Tensor.input("x", array.shape), weights)}
    config = with_tile(config, monkeypatch, 4)
    made = [run_tensors(output, {"x": x}, context, config, tiled(phone(context)))[1]["y"] for x in (array, changed)]
    differ = (made[0] != made[1]).any(axis=1)
    assert differ[0, 4:7, 5:8].all() and not differ[1].any()
    differ[0, 4:8, 4:8] = False
    assert not differ.any()


# Where it is used

SIZES = [(64, 56), (128, 28), (256, 14), (512, 7), (16, 56), (64, 14), (24, 28)]
LIMITS = ImageLimits(16384, 16384, 2048)


def problem_of(channels: int, size: int, **changes: Any) -> Problem:
    given = conv.Problem(
        1, channels, (size, size), channels, (size, size), (3, 3), (1, 1), (1, 1), (1, 1), 1, sums="half"
    )
    return Problem(replace(given, **changes), to_outputs=True)


def test_the_rule() -> None:
    """ResNet's layers on an Adreno 630, and none of few channels; not on CPUs and computers' GPUs."""
    on = Target(LIMITS, "gpu", 2)

    def pays(problem: Problem) -> bool:
        first = TEMPLATE.best_time(replace(problem, to_outputs=False), on)
        products = conv_template.TEMPLATE.best_time(problem.products, on)
        return first + products + TEMPLATE.best_time(problem, on) <= baseline(problem, on)

    assert [pays(problem_of(*each)) for each in SIZES] == [True] * 4 + [False] * 3
    for other in (replace(on, kind="cpu"), replace(on, compute_units=132)):
        assert candidates(problem_of(64, 56), other) == []


def plan_of(output: Tensor, config: Config) -> Plan:
    return prepare(build_graph({"y": output}), config, Target(LIMITS, "gpu", 2)).plan()


def test_where_large_tiles_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a value of Precision.large_tiles whose transformed weights fit in half, if that is predicted to be faster."""
    x = Tensor.input("x", (1, 128, 28, 28))
    few, most = numpy.ones((128, 128, 3, 3), numpy.float32), numpy.full((128, 128, 3, 3), 3e3, numpy.float32)
    for weights, large, tile in ((few, "y", 4), (few, "x", 2), (few, "", 2), (most, "y", 2)):  # taps up to 6.77e4
        config = with_tile(Config(1), monkeypatch, 4)
        config = replace(config, precision=Precision(large_tiles=frozenset(large)))
        plan = plan_of(x.conv2d(Tensor.constant(weights), padding=1), config)
        choices = [launch.choice for launch in plan.launches if launch.choice]
        assert {each.problem.tile for each in choices if isinstance(each.problem, Problem)} == {tile}
        assert any(f"F({tile}x{tile}, 3x3)" in launch.specialisation for launch in plan.launches)


def test_where_it_filters() -> None:
    """A 3x3 window in steps of one, stored in half; not with sums in runs, strides, dilations, groups or integers."""
    x = Tensor.input("x", (1, 128, 28, 28))
    w = Tensor.constant(numpy.ones((128, 128, 3, 3), numpy.float32))
    grouped = Tensor.constant(numpy.ones((128, 64, 3, 3), numpy.float32))
    whole = Tensor.input("n", (1, 128, 28, 28), "uint8")
    plain = x.conv2d(w, padding=1)
    for config in (Config(1), Config(2), Config(2, precision=Precision(arithmetic=frozenset("y")))):
        assert launches_of(plan_of(plain, config)) == 2, config
    for config in (Config(0), Config(2, precision=Precision(runs=frozenset("y")))):
        assert launches_of(plan_of(plain, config)) == 0, config
    for other in (
        x.conv2d(w, padding=1, stride=2), convolution(x, w, [1, 1], [2] * 4, [2, 2]), x.conv2d(grouped, groups=2),
        convolution(whole, w, [1, 1], [1] * 4, [1, 1]),
        x.conv2d(Tensor.constant(numpy.full((128, 128, 3, 3), 1e5, numpy.float32)), padding=1),
        x.conv2d(Tensor.constant(numpy.full((128, 128, 3, 3), 3e4, numpy.float32)), padding=1),  # taps up to 6.75e4
    ):
        assert launches_of(plan_of(other, Config(2))) == 0


@pytest.mark.parametrize(("kept", "dtypes"), [
    ("", ["float16", "float16"]), ("x", ["float32", "float16"]), ("y", ["float16", "float32"]),
    ("xy", ["float32", "float32"]),
])
def test_taps_are_stored_as_the_input_and_sums_as_the_output(kept: str, dtypes: list[str]) -> None:
    """A plan that keeps values in float, for example because they would overflow in half, has the same kernels."""
    x = Tensor.input("x", (1, 128, 28, 28))
    output = x.conv2d(Tensor.constant(numpy.ones((128, 128, 3, 3), numpy.float32)), padding=1)
    plan = plan_of(output, Config(1, precision=Precision(storage=frozenset(kept))))
    stored = {launch.name: launch.writes.dtype for launch in plan.launches}
    assert [stored["y.taps"], stored["y.sums"]] == dtypes
    sources = [[launch.source.text for launch in each.launches] for each in (plan, plan_of(output, Config(1)))]
    assert sources[0] == sources[1]


def test_a_plan_says_what_it_does() -> None:
    """Three launches: the products have the multiply-adds, the last one the sums, and both costs are shown."""
    x = Tensor.input("x", (1, 128, 28, 28))
    plan = plan_of(x.conv2d(Tensor.constant(numpy.ones((128, 128, 3, 3), numpy.float32)), padding=1), Config(2))
    before, products, last = (launch for launch in plan.launches if launch.specialisation)
    assert (before.name, products.name, last.name) == ("y.taps", "y.sums", "y")
    assert [launch.sums for launch in (before, products, last)] == ["", "", "half"]
    assert plan.multiply_adds == products.multiply_adds == 128 * 128 * 9 * 28 * 28
    assert last.choice and last.choice.profitable and last.choice.predicted < last.choice.baseline < NEVER
    assert plan.completed_values[len(plan.launches) - 2] == "y" and "y.taps" not in plan.placements


def test_tune_leaves_it_out() -> None:
    """One launch of three says nothing of the others."""
    x = Tensor.input("x", (1, 128, 28, 28))
    weights = Tensor.constant(numpy.ones((128, 128, 3, 3), numpy.float32))
    prepared = prepare(build_graph({"y": x.conv2d(weights, padding=1)}), Config(2), Target(LIMITS, "gpu", 2))
    assert problems_of(prepared) == {}
