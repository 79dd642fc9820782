"""conv.cl with Winograd's filtering: against float64 numpy, and which inputs it may filter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy
import pytest
from problems.convolution import ConvolutionProblem
from running import GPU, check, choosing, run_graph, run_tensors, target, using

from imgconv.cl.context import Context
from imgconv.config import Config
from imgconv.graph.nodes import Graph
from imgconv.kernels.conv.candidates import candidates
from imgconv.kernels.conv.problem import Problem, Specialisation
from imgconv.kernels.conv.work import predicted_time
from imgconv.tensor import Tensor, build_graph, convolution

C = ConvolutionProblem

TILES = [
    Specialisation(4, 2, 1, "input", "buffer", (1, 1, 1), winograd=2),
    Specialisation(4, 1, 2, "input", winograd=4),
    Specialisation(8, 1, 4, "input", "buffer", (1, 1, 1), vector_quads=4, passes=2, winograd=4),
    Specialisation(6, 1, 1, "input", local_size=(1, 2, 2), passes=3, winograd=2),
    Specialisation(2, 1, 2, "line", "local", (2, 2, 2), winograd=2),
    Specialisation(4, 2, 1, "line", "local", (2, 2, 2), winograd=4),
]


def one_by_one(problem: Problem, kind: str, units: int) -> Specialisation:
    """The best without Winograd's filtering."""
    return min(
        (c for c in candidates(problem, kind) if not c.winograd),
        key=lambda c: predicted_time(problem, c, kind, units),
    )


@pytest.mark.parametrize("block", TILES, ids=str)
def test_winograd(context: Context, block: Specialisation) -> None:
    """Tiles that do and do not divide a row; windows of one, three and four rows; strides and dilations of rows."""
    problems = [
        C(channels=5, filters=17, size=(7, 9), pads=(1, 1, 1, 1)),
        C(channels=1, filters=40, size=(4, 33), window=(1, 3)),
        C(batch=2, channels=8, filters=16, size=(6, 8), window=(1, 3), pads=(0, 2, 0, 0)),
        C(channels=4, filters=24, size=(9, 11), window=(4, 3), strides=(2, 1), dilations=(2, 1), pads=(3, 0, 1, -1)),
        C(channels=6, filters=32, groups=2, size=(4, 5), transposed=True, pads=(1, 0, 0, 1)),
        C(gated=True, channels=5, filters=4, pads=(1, 1, 1, 1)),
    ]
    plan = check(problems, context, wanted=using(context, block))
    made = [launch.specialisation for launch in plan.launches].count(str(block))
    # Local memory holds what one image needs.
    assert made == len(problems) - int(block.weights == "local")


@pytest.mark.parametrize("block", [TILES[0], TILES[1], TILES[4]], ids=str)
def test_a_bias_is_added_to_outputs(context: Context, block: Specialisation) -> None:
    """Not to the sums of taps, of which an output is made of several."""
    random = numpy.random.default_rng(0)
    array, weights, bias = (
        random.uniform(-1, 1, s).astype(numpy.float32) for s in ((1, 5, 6, 9), (6, 5, 3, 3), (1, 6, 1, 1))
    )
    made = Tensor.input("x", array.shape).conv2d(Tensor.constant(weights), padding=1) + Tensor.constant(bias)
    plan, found = run_tensors({"y": made}, {"x": array}, context, wanted=using(context, block))
    assert any(launch.specialisation == str(block) for launch in plan.launches)
    problem = C(channels=5, filters=6, size=(6, 9), pads=(1, 1, 1, 1))
    expected = problem.compute(array.astype(numpy.float64), weights.astype(numpy.float64)) + bias
    numpy.testing.assert_allclose(found["y"], expected, 0, 2e-5)  # 45 products, 5.5 times their rounding


PLAIN = Problem(1, 8, (6, 6), 8, (6, 6), (3, 3), (1, 1), (1, 1), (1, 1), 1)


def test_where_winograd_filters() -> None:
    """Windows of three columns side by side, in float; no integers, whose sums are exact; texels kept or tiled.

    Tiles of four only for values that are known to be small.
    """
    tiles = {tile: Specialisation(4, 1, 1, "input", winograd=tile) for tile in (2, 4)}
    problem = replace(PLAIN, small=True)
    others = [
        replace(problem, window=(3, 5)), replace(problem, strides=(1, 2)), replace(problem, dilations=(1, 2)),
        replace(problem, phases=(1, 2)), replace(problem, depthwise=True), replace(problem, integers=True),
    ]
    for block in tiles.values():
        assert block.allowed(problem) and block.allowed(replace(problem, strides=(2, 1), window=(5, 3)))
        assert not any(block.allowed(other) for other in others)
        assert not replace(block, block_columns=5).allowed(problem)
        assert not any(replace(block, keep=keep).allowed(problem) for keep in ("texel", "line", "window"))
        assert not replace(block, half_quads=2).allowed(replace(problem, sums="runs"))
        assert not block.allowed(replace(problem, sums="half"))
        tiled = replace(block, keep="line", weights="local", local_size=(2, 2, 2))
        assert tiled.allowed(problem) and not replace(tiled, keep="window").allowed(problem)
    large = {tile: block.allowed(replace(problem, small=False)) for tile, block in tiles.items()}
    assert large == {2: True, 4: False}


def outlier(value: float, kept_below: float | None = None) -> tuple[Graph, Any, Any, Any, Any]:
    """A 3x3 convolution of 7x11 numbers of which one is `value`, or is cut to `kept_below`.

    The graph, its input, what it gives, how far rounding may take that, and where the value reaches.
    """
    random = numpy.random.default_rng(0)
    array = random.uniform(-1, 1, (1, 16, 7, 11)).astype(numpy.float32)
    array[0, 3, 3, 5] = value
    weights = random.uniform(-1, 1, (32, 16, 3, 3)).astype(numpy.float32)
    x = Tensor.input("x", array.shape)
    seen = x if kept_below is None else x.clip(-kept_below, kept_below)
    wide = array if kept_below is None else array.clip(-kept_below, kept_below)
    made = C(channels=16, filters=32, size=(7, 11), pads=(1, 1, 1, 1))
    with numpy.errstate(invalid="ignore"):
        expected, magnitude = (made.compute(f(wide.astype(numpy.float64)), f(weights)) for f in (numpy.asarray, abs))
    graph = build_graph({"y": seen.conv2d(Tensor.constant(weights), padding=1)}, [x])
    reached = numpy.zeros((7, 11), bool)
    reached[2:5, 4:7] = True
    return graph, array, expected, magnitude, reached


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
@pytest.mark.parametrize(
    ("value", "kept_below"), [(1e6, None), (1e8, None), (numpy.inf, None), (numpy.nan, None), (1e8, 1e4)]
)
def test_a_large_pixel_changes_what_it_reaches(
    context: Context, value: float, kept_below: float | None, kind: str
) -> None:
    """All other outputs are within the rounding of their own sums: by the best choice, and in tiles of two."""
    graph, array, expected, magnitude, reached = outlier(value, kept_below)
    apart = numpy.broadcast_to(~reached, expected.shape)
    pairs = (c for c in candidates(PLAIN, kind) if c.winograd == 2)
    pair = min(pairs, key=lambda c: predicted_time(PLAIN, c, kind, GPU["compute_units"]))
    for wanted in (target(context, kind), choosing(target(context, kind), convolution=lambda p, kind, units: pair)):
        plan, made = run_graph(graph, {"x": array}, context, wanted=wanted)
        assert not any("F(4, 3)" in launch.specialisation for launch in plan.launches)
        # 144 terms, up to 16 of them in one sum of a tap: each of |A| |B| |G| counts for four.
        assert (abs(made["y"][apart] - expected[apart]) <= 4 * 144 * 2.0**-24 * magnitude[apart]).all()


def test_tiles_of_four_are_for_values_that_are_bounded(context: Context) -> None:
    """What is cut to 6 is within the rounding of sums of values of that size: 144 terms, and 5.5 for the tile."""
    graph, array, expected, magnitude, _ = outlier(1e8, 6.0)
    small = replace(PLAIN, small=True)
    fours = (c for c in candidates(small, "cpu") if c.winograd == 4)
    four = min(fours, key=lambda c: predicted_time(small, c, "cpu", GPU["compute_units"]))
    wanted = choosing(target(context, "cpu"), convolution=lambda problem, kind, units: four)
    plan, made = run_graph(graph, {"x": array}, context, wanted=wanted)
    assert any("F(4, 3)" in launch.specialisation for launch in plan.launches)
    assert (abs(made["y"] - expected) <= 144 * 2.0**-24 * (magnitude + 5.5 * 6)).all()


@pytest.mark.parametrize("block", TILES[:2], ids=str)
def test_winograd_with_weights_in_half(context: Context, block: Specialisation) -> None:
    """More than 2**14 weights are stored in half, after the filter's rows were transformed."""
    problem = C(channels=1, filters=5600, size=(1, 9), window=(1, 3))
    plan = check([problem], context, Config(float16=1), using(context, block))
    (weights,) = (storage for storage in plan.content if storage.name.endswith(".weights"))
    assert weights.dtype == "float16"


def test_neighbours_do_not_leak(context: Context) -> None:
    """NaN and infinity reach only outputs whose window meets them: not through padding, batch rows or spare lanes.

    Winograd's filtering spreads them over a tile of four outputs in a row, of which one meets them.
    """
    array = numpy.ones((2, 5, 6, 6), numpy.float32)
    array[1, 0, 0, 0] = numpy.nan
    array[1, 4, 5, 5] = numpy.inf
    x, weights = Tensor.input("x", array.shape), numpy.full((3, 5, 3, 3), 0.5, numpy.float32)
    dense = convolution(x, Tensor.constant(weights), [1, 1], [1, 1, 1, 1], [1, 1])
    depthwise = convolution(x, Tensor.constant(weights[:1].reshape(5, 1, 3, 3)), [1, 1], [1] * 4, [1, 1], 5)
    outputs = {"dense": dense, "raised": dense.exp() * 1e-30, "depthwise": depthwise}
    for max_image, spread in ((None, False), (8, False), (None, True)):
        wanted = using(context, TILES[1]) if spread else choosing(target(context), convolution=one_by_one)
        _, made = run_tensors(outputs, {"x": array}, context, Config(max_image=max_image), wanted)
        for name in outputs:
            assert numpy.isfinite(made[name][0]).all(), name
            reached = ~numpy.isfinite(made[name][1])
            expected = numpy.zeros((6, 6), bool)
            expected[:2, : 4 if spread and name != "depthwise" else 2] = expected[4:, 4:] = True
            if name == "depthwise":
                assert not reached[1:4].any()
                assert (reached[0] | reached[4] == expected).all()
            else:
                assert (reached == expected).all(), name
