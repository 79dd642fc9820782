"""conv_tiled.cl with Winograd's filtering: against float64 numpy, and which inputs it may filter."""

from __future__ import annotations

from dataclasses import replace

import numpy
import pytest
from problems.convolution import ConvolutionProblem
from running import check, run_graph, run_tensors, target, using

from imgconv.cl.context import Context
from imgconv.config import Config
from imgconv.kernels.conv.problem import Problem, Specialisation
from imgconv.tensor import Tensor, build_graph

C = ConvolutionProblem

TILES = [
    Specialisation(2, 1, 2, "line", "local", (2, 2, 2), winograd=2),
    Specialisation(4, 2, 1, "line", "local", (2, 2, 2), winograd=2),
]


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
    assert made == len(problems) - 1  # local memory holds what one image needs


@pytest.mark.parametrize("block", TILES, ids=str)
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
    """Windows of three columns side by side, in float, from tiles in local memory; sums of integers are exact."""
    others = [
        replace(PLAIN, window=(3, 5)), replace(PLAIN, strides=(1, 2)), replace(PLAIN, dilations=(1, 2)),
        replace(PLAIN, phases=(1, 2)), replace(PLAIN, depthwise=True), replace(PLAIN, integers=True),
        replace(PLAIN, sums="half"),
    ]
    block = TILES[1]
    assert block.allowed(PLAIN) and block.allowed(replace(PLAIN, strides=(2, 1), window=(5, 3)))
    assert not any(block.allowed(other) for other in others)
    assert not replace(block, block_columns=5).allowed(PLAIN)
    assert not any(replace(block, keep=keep).allowed(PLAIN) for keep in ("texel", "window"))
    assert not replace(block, weights="image").allowed(PLAIN) and not replace(block, winograd=4).allowed(PLAIN)
    assert not replace(block, half_quads=2).allowed(replace(PLAIN, sums="runs"))


@pytest.mark.parametrize("value", [1e6, 1e8, numpy.inf, numpy.nan])
def test_a_large_pixel_changes_what_it_reaches(context: Context, value: float) -> None:
    """All other outputs are within the rounding of their own sums: by the best choice of each kind, and in tiles."""
    random = numpy.random.default_rng(0)
    array = random.uniform(-1, 1, (1, 16, 7, 11)).astype(numpy.float32)
    array[0, 3, 3, 5] = value
    weights = random.uniform(-1, 1, (32, 16, 3, 3)).astype(numpy.float32)
    x, problem = Tensor.input("x", array.shape), C(channels=16, filters=32, size=(7, 11), pads=(1, 1, 1, 1))
    with numpy.errstate(invalid="ignore"):
        wide = array.astype(numpy.float64)
        expected, magnitude = (problem.compute(f(wide), f(weights)) for f in (numpy.asarray, abs))
    reached = numpy.zeros((7, 11), bool)
    reached[2:5, 4:7] = True
    apart = numpy.broadcast_to(~reached, expected.shape)
    graph = build_graph({"y": x.conv2d(Tensor.constant(weights), padding=1)}, [x])
    for wanted in (target(context, "cpu"), target(context, "gpu"), using(context, TILES[1])):
        _, made = run_graph(graph, {"x": array}, context, wanted=wanted)
        # 144 terms, up to 16 of them in one sum of a tap: each of |A| |B| |G| counts for four.
        assert (abs(made["y"][apart] - expected[apart]) <= 4 * 144 * 2.0**-24 * magnitude[apart]).all()


@pytest.mark.parametrize("block", TILES[:2], ids=str)
def test_winograd_with_weights_in_half(context: Context, block: Specialisation) -> None:
    """More than 2**14 weights are stored in half, after the filter's rows were transformed."""
    problem = C(channels=1, filters=5600, size=(1, 9), window=(1, 3))
    plan = check([problem], context, Config(float16=1), using(context, block))
    (weights,) = (storage for storage in plan.content if storage.name.endswith(".weights"))
    assert weights.dtype == "float16"
