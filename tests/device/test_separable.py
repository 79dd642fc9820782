"""separable.cl against float64 numpy: a grid of geometries, drawn ones, every specialisation; and where it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from graphs import Taking
from problems.separable import SeparableProblem, separable_problems, separable_specialisations
from running import Choose, Wanted, check, choosing, device_settings, run_graph, run_tensors, target

from imgconv.cl.context import Context
from imgconv.compiling.choose import cheapest_choice
from imgconv.compiling.lower import lower
from imgconv.compiling.plan import Plan
from imgconv.config import Config
from imgconv.kernels.conv import problem as conv
from imgconv.kernels.device_model.models import time_range_of
from imgconv.kernels.layout import ImageLimits, Texture
from imgconv.kernels.separable.candidates import candidates, launch_work
from imgconv.kernels.separable.problem import Problem, Specialisation
from imgconv.kernels.separable.template import TEMPLATE
from imgconv.kernels.target import Target
from imgconv.passes import run_passes
from imgconv.tensor import Tensor, build_graph, concatenate
from models import build

S = SeparableProblem
GRID = [
    S(), S(size=(4, 7), between=False), S(size=(6, 6), residual=True), S(channels=1, filters=1),
    S(channels=5, filters=7, residual=True),
    S(channels=17, filters=9, size=(7, 9)), S(channels=32, filters=20, size=(14, 14), residual=True),
    S(channels=8, filters=4, size=(9, 9), strides=(2, 2)), S(channels=8, filters=4, size=(9, 8), strides=(1, 3)),
    S(channels=4, filters=8, size=(11, 12), dilations=(2, 3), pads=(2, 3, 2, 3)),
    S(channels=4, filters=8, size=(11, 12), strides=(2, 2), dilations=(3, 2), pads=(0, 2, 3, 1)),
    S(window=(5, 5), pads=(2, 2, 2, 2), size=(8, 8)), S(window=(1, 4), pads=(0, 3, 0, 0)),
    S(window=(1, 1), pads=(0,) * 4),
    S(batch=3, channels=6, filters=5, size=(4, 5), residual=True), S(batch=2, channels=16, strides=(2, 2), size=(6, 7)),
    S(channels=4, size=(1, 20)), S(channels=4, size=(20, 1)), S(channels=4, size=(6, 6), pads=(-1, -2, 0, -1)),
]


def gpu(context: Context, choose: Callable[[Problem], Specialisation | None] | None = None) -> Target | Wanted:
    """The device with the plans of a large GPU, and with these specialisations."""
    made = target(context, "gpu")
    if choose is None:
        return made
    return choosing(made, separable=lambda problem, kind, units: choose(problem))


def drawn_choice(seed: int) -> Callable[[Problem], Specialisation]:
    choose = Choose(separable_specialisations, seed)
    return lambda problem: choose(problem, "gpu", 24)


def likely(problem: Problem) -> Specialisation:
    """The specialisation of the least predicted time, for problems too small for a GPU's own candidates too."""
    return min(separable_specialisations(problem), key=lambda c: time_range_of(launch_work(problem, c), "gpu", 24))


def together(plan: Plan) -> int:
    """The launches of separable.cl."""
    return sum(launch.source.path == "kernels/separable/separable.cl" for launch in plan.launches)


@pytest.mark.parametrize("float16", [0, 1])
def test_grid(context: Context, float16: int) -> None:
    plan = check(GRID, context, Config(float16), gpu(context, likely))
    assert together(plan) == len(plan.compute_launches) == len(GRID)


@pytest.mark.parametrize("seed", range(2))
def test_specialisations(context: Context, seed: int) -> None:
    """Blocks and tiles that divide and that do not, sums in parts and whole; tiled images for one of the seeds."""
    config = Config(float16=seed, max_image=8 if seed else None)
    plan = check(GRID[seed::2], context, config, gpu(context, drawn_choice(seed)))
    assert together(plan) == len(GRID[seed::2])
    assert not seed or any(isinstance(t, Texture) and t.tiling.tiles > 1 for t in plan.textures)


@device_settings(max_examples=3)
@given(
    problems=st.lists(separable_problems(), min_size=1, max_size=5, unique_by=lambda problem: problem.depthwise),
    seed=st.integers(0, 999),
)
def test_drawn(context: Context, problems: Sequence[SeparableProblem], seed: int) -> None:
    config = Config(float16=seed % 2, max_image=(None, 16)[seed % 3 == 0])
    plan = check(problems, context, config, gpu(context, drawn_choice(seed)))
    assert together(plan) == len(problems)


@pytest.mark.usefixtures("half_arithmetic")
def test_half_arithmetic_computes_in_float(context: Context) -> None:
    """On a computer's GPU local memory holds floats: values past 65504 between the convolutions are no harm."""
    array = numpy.full((1, 4, 5, 5), 100, numpy.float32)
    x = Tensor.input("x", array.shape)
    made = x.conv2d(Tensor.constant(numpy.full((4, 1, 1, 1), 1000, numpy.float32)), groups=4)
    output = made.conv2d(Tensor.constant(numpy.full((4, 4, 1, 1), 2.0**-12, numpy.float32)))
    for float16 in (1, 2):
        plan, found = run_tensors({"y": output}, {"x": array}, context, Config(float16), gpu(context, likely))
        assert together(plan) == 1
        numpy.testing.assert_allclose(found["y"], 4e5 * 2.0**-12, rtol=2.0**-10)


def test_lanes_past_the_last_channel(context: Context) -> None:
    """The logarithm of what is not there is infinite, and infinity times a weight of zero no number."""
    random = numpy.random.default_rng(0)
    array, windows, weights = (
        random.uniform(1, 2, shape).astype(numpy.float32) for shape in ((2, 5, 6, 6), (5, 1, 3, 3), (6, 5, 1, 1))
    )
    x = Tensor.input("x", array.shape)
    made = x.conv2d(Tensor.constant(windows), groups=5).apply("log").conv2d(Tensor.constant(weights)).exp()
    seen = numpy.lib.stride_tricks.sliding_window_view(array.astype(numpy.float64), (3, 3), (2, 3))
    sums = numpy.log(numpy.einsum("nchwyx,cyx->nchw", seen, windows[:, 0]))
    expected = numpy.exp(numpy.einsum("nchw,oc->nohw", sums, weights[:, :, 0, 0]))
    for seed in range(3):
        plan, found = run_tensors({"y": made}, {"x": array}, context, wanted=gpu(context, drawn_choice(seed)))
        assert together(plan) == 1
        numpy.testing.assert_allclose(found["y"], expected, rtol=1e-4)


def test_parts_of_concatenations(context: Context) -> None:
    """The input begins at the third quad of its image, and the output at the third of another."""
    array = numpy.random.default_rng(0).uniform(-1, 1, (1, 8, 6, 6)).astype(numpy.float32)
    x = Tensor.input("x", array.shape)
    first, second = x.apply("absolute"), x.apply("exp")
    outputs = {
        "read": concatenate([first, second], 1).apply("sqrt"),
        "written": concatenate([x.apply("negative"), pair(second)], 1).apply("exp"),
    }
    plan, found = run_tensors(outputs, {"x": array}, context, wanted=gpu(context, likely))
    (launch,) = (launch for launch in plan.launches if launch.source.path == "kernels/separable/separable.cl")
    assert "#define INPUT_OFFSET 2\n" in launch.source.text and "#define OUTPUT_OFFSET 2\n" in launch.source.text
    _, expected = run_tensors(outputs, {"x": array}, context, wanted=gpu(context, lambda problem: None))
    for name, wanted in expected.items():
        numpy.testing.assert_allclose(found[name], wanted, rtol=1e-5, err_msg=name)


# Where two launches stay

def constant(*shape: int) -> Tensor:
    return Tensor.constant(numpy.random.default_rng(len(shape)).uniform(-1, 1, shape).astype(numpy.float32))


def pair(x: Tensor, **changes: Any) -> Tensor:
    """A 3x3 depthwise and a 1x1 convolution of eight channels."""
    return x.conv2d(constant(8, 1, 3, 3), padding=1, groups=8).conv2d(constant(8, 8, 1, 1), **changes)


def outputs_that_need_two() -> dict[str, Mapping[str, Tensor]]:
    x, other = Tensor.input("x", (1, 8, 6, 6)), constant(8, 1, 3, 3)
    middle = x.conv2d(other, padding=1, groups=8)
    made = middle.conv2d(constant(8, 8, 1, 1))
    part = x.apply("absolute")
    return {
        "the middle is an output": {"middle": middle, "y": made},
        "the middle is read twice": {"y": made * middle},
        "the second has a stride": {"y": pair(x, stride=2)},
        "the second has padding": {"y": pair(x, padding=1)},
        "the second has groups": {"y": x.conv2d(other, padding=1, groups=8).conv2d(constant(8, 4, 1, 1), groups=2)},
        "the second is 3x3": {"y": x.conv2d(other, padding=1, groups=8).conv2d(constant(8, 8, 3, 3))},
        "the first is dense": {"y": x.conv2d(constant(8, 8, 3, 3)).conv2d(constant(8, 8, 1, 1))},
        "one image read and written": {"y": concatenate([part, pair(part)], 1).apply("exp")},
    }


@pytest.mark.parametrize("name", outputs_that_need_two())
def test_two_launches(context: Context, name: str) -> None:
    outputs = outputs_that_need_two()[name]
    graph = build_graph(outputs)
    random = numpy.random.default_rng(0)
    inputs = {v.name: random.uniform(-1, 1, v.shape).astype(numpy.float32) for v in graph.inputs}
    plan, found = run_graph(graph, inputs, context, wanted=gpu(context, likely))
    assert together(plan) == 0
    for launch in plan.launches:
        assert launch.writes not in launch.reads
    _, expected = run_graph(graph, inputs, context, wanted=gpu(context, lambda problem: None))
    for output, array in expected.items():
        numpy.testing.assert_allclose(found[output], array, rtol=1e-5, atol=1e-5)


def test_the_rule() -> None:
    """A small map on a large GPU; nowhere on a CPU or a phone's GPU, nor where local memory is too small."""
    graph = build_graph({"y": S(channels=64, filters=32, size=(14, 14)).instance().output})
    asked: list[Problem] = []
    large = Target(ImageLimits(16384, 16384, 2048), "gpu", 132)
    lower(run_passes(graph), Config(), large, chooser=Taking(separable=lambda problem, *_: asked.append(problem)))
    (problem,) = asked
    choice = cheapest_choice(TEMPLATE, problem, large)
    assert choice is not None and choice.profitable and choice.specialisation.local_bytes(problem) <= 1 << 15
    for small in candidates(problem, "gpu", 1 << 12):
        tile = small.group_rows * small.group_columns * small.block_columns
        sums = prod(small.local_size) * small.block_columns * small.block_quads
        assert max(tile * 64, 4 * sums) * 4 <= 1 << 12
    for other in (replace(large, kind="cpu"), replace(large, compute_units=2), replace(large, local_memory_bytes=256)):
        assert cheapest_choice(TEMPLATE, problem, other) is None


def test_work_items_without_quads_do_not_shorten_a_launch() -> None:
    """A work item reads four quads of bytes at once: of 16 quads, four work items take as many as eight do."""
    problem = Problem(conv.Problem(1, 64, (8, 8), 64, (8, 8), (3, 3), (1, 1), (1, 1), (1, 1), 64), conv.Problem(
        1, 64, (8, 8), 32, (8, 8), (1, 1), (1, 1), (0, 0), (1, 1), 1, why_float_sums=""
    ))
    few, many = (launch_work(problem, Specialisation(4, 1, 2, 2, 4, parts)) for parts in (4, 8))
    assert few.multiply_adds == many.multiply_adds and few.reads == many.reads and few.steps == many.steps


# Networks

@pytest.mark.models
def test_networks_agree_with_the_two_launch_form(context: Context) -> None:
    """MobileNetV2, all of whose 17 pairs are one launch each; half storage differs by its own roundings."""
    graph = run_passes(build("mobilenet_v2", size=64, width=0.5))
    random = numpy.random.default_rng(0)
    inputs = {v.name: random.standard_normal(v.shape).astype(v.dtype) for v in graph.inputs}
    results = []
    for float16, choose in ((0, lambda problem: None), (0, None), (1, None)):
        plan, found = run_graph(graph, inputs, context, Config(float16), gpu(context, choose))
        assert together(plan) == (0 if choose else 17)
        results.append(next(iter(found.values())))
    # Sums in another order: 2**-24 at each of 50 layers, of up to 500 terms; half rounds each value by 2**-11.
    largest = numpy.abs(results[0]).max()
    assert numpy.abs(results[1] - results[0]).max() < 1e-5 * largest
    assert numpy.abs(results[2] - results[0]).max() < 1e-2 * largest


def test_half_and_float_plans_make_the_same_values(context: Context) -> None:
    """The plans compute the same values, which verify and the choice of a precision compare one by one."""
    graph = run_passes(build("mobilenet_v2", size=64, width=0.25))
    made = [tuple(lower(graph, Config(float16), gpu(context)).completed_values.values()) for float16 in (0, 1, 2)]
    assert made[0] == made[1] == made[2]
