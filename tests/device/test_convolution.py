"""conv.cl against float64 numpy: a grid of geometries, drawn ones, every specialisation, tiles, half storage."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems.convolution import ConvolutionProblem, convolution_problems, convolution_specialisations
from running import Choose, check, choosing, device_settings, run_tensors, target, using

from imgconv.cl.building import program
from imgconv.cl.context import Context
from imgconv.config import Config, Precision
from imgconv.errors import DeviceError
from imgconv.kernels.conv.candidates import candidates
from imgconv.kernels.conv.problem import Problem, Specialisation, accumulators_of, sums_reduced_at_once
from imgconv.kernels.conv.work import predicted_time
from imgconv.kernels.layout import Texture
from imgconv.kernels.specialise import template_text
from imgconv.tensor import Tensor

C = ConvolutionProblem
# The outputs of `check`, summed in runs.
IN_RUNS = Config(2, precision=Precision(runs=frozenset(f"y{number}" for number in range(100))))

WINDOWS = [
    C(channels=3, filters=5, window=(1, 1)),
    C(channels=4, filters=4, window=(2, 2), size=(4, 4)),
    C(channels=5, filters=3, window=(3, 3), size=(5, 5), pads=(1, 1, 1, 1)),
    C(channels=1, filters=7, window=(5, 5), size=(9, 7), pads=(2, 2, 2, 2)),
    C(channels=1, filters=4, window=(7, 7), size=(9, 8), pads=(3, 3, 3, 3)),
    C(channels=2, filters=1, window=(9, 9), size=(9, 9)),
    C(channels=4, filters=8, window=(1, 5), size=(3, 9)),
    C(channels=4, filters=8, window=(5, 1), size=(9, 3)),
    C(channels=7, filters=5, window=(3, 2), size=(5, 7), pads=(1, 0, 0, 1)),
    C(batch=2, channels=5, filters=1, window=(1, 3), size=(7, 4), pads=(0, 0, 1, 0)),  # the next picture lies below
    C(channels=1, filters=1, window=(1, 1), size=(1, 1)),
    C(channels=17, filters=17, window=(1, 1), size=(3, 5)),
    C(channels=8, filters=17, window=(3, 3), size=(1, 1), pads=(1, 1, 1, 1)),
]
STRIDES = [
    C(channels=8, filters=5, strides=(2, 2), size=(9, 9)),
    C(channels=3, filters=4, strides=(3, 3), size=(11, 10), pads=(1, 1, 1, 1)),
    C(channels=4, filters=4, strides=(2, 1), size=(7, 5), window=(3, 2)),
    C(channels=4, filters=4, strides=(1, 3), size=(5, 13), window=(2, 3)),
    C(channels=4, filters=4, strides=(3, 2), size=(8, 9), window=(1, 1)),
    C(channels=5, filters=4, strides=(2, 2), size=(1, 8), pads=(1, 1, 1, 1)),
]
DILATIONS = [
    C(dilations=(2, 2), size=(8, 9), pads=(2, 2, 2, 2)),
    C(channels=5, dilations=(1, 2), size=(6, 9), pads=(1, 0, 1, 2)),
    C(channels=3, dilations=(2, 1), strides=(2, 3), size=(9, 9), pads=(0, 1, 2, 3)),
    C(channels=4, dilations=(5, 5), size=(9, 9), pads=(5, 5, 5, 5)),
]
PADS = [
    C(pads=(0, 1, 2, 3), size=(3, 4)),
    C(pads=(4, 0, 0, 0), size=(3, 4)),
    C(pads=(3, 3, 3, 3), size=(1, 1), window=(2, 2)),
    C(pads=(-1, 0, 1, -2), size=(7, 9)),
    C(channels=5, pads=(0, 0, 1, 1), strides=(2, 2), size=(8, 8)),
]
WIDE_WINDOWS = [
    C(channels=1, filters=70, window=(1, 160), strides=(1, 80), size=(1, 700)),
    C(channels=5, filters=3, window=(1, 130), size=(2, 140), pads=(0, 2, 0, 3)),
    C(channels=2, filters=40, window=(1, 40), strides=(1, 60), size=(1, 500)),
]
BATCHES = [
    C(batch=2, pads=(1, 1, 1, 1)),
    C(batch=3, channels=5, filters=3, window=(5, 3), size=(4, 5), pads=(2, 1, 2, 1)),
    C(batch=2, channels=8, filters=8, strides=(2, 2), size=(5, 7), pads=(1, 1, 0, 0)),
    C(batch=3, channels=4, filters=6, groups=2, window=(1, 1)),
]
GROUPS = [
    C(channels=8, filters=8, groups=2, pads=(1, 1, 1, 1)),
    C(channels=16, filters=32, groups=4, window=(1, 1)),
    C(channels=6, filters=4, groups=2),
    C(channels=6, filters=12, groups=2, window=(2, 2)),
    C(channels=3, filters=6, groups=3, window=(2, 2)),
    C(channels=9, filters=6, groups=3),
    C(channels=12, filters=24, groups=12, pads=(1, 1, 1, 1)),
    C(channels=10, filters=5, groups=5, window=(1, 1)),
    C(channels=24, filters=8, groups=4, window=(1, 1)),
    C(channels=8, filters=16, groups=8, strides=(2, 2)),
    C(channels=10, filters=40, groups=10, pads=(1, 1, 1, 1)),
    C(channels=11, filters=22, groups=11, size=(5, 9)),
    C(channels=14, filters=7, groups=7, window=(1, 1), batch=2),
]
DEPTHWISE = [
    C(channels=8, filters=8, groups=8, pads=(1, 1, 1, 1)),
    C(channels=5, filters=5, groups=5, strides=(2, 2), size=(7, 8), pads=(1, 1, 1, 1)),
    C(channels=17, filters=17, groups=17, window=(5, 5), dilations=(1, 2), size=(6, 11), pads=(2, 2, 2, 2)),
    C(batch=2, channels=3, filters=3, groups=3, window=(1, 3), size=(4, 9)),
    C(channels=4, filters=4, groups=4, window=(1, 1)),
]
TRANSPOSED = [
    C(transposed=True, size=(3, 4)),
    C(transposed=True, strides=(2, 2), window=(2, 2), channels=8, filters=5),
    C(transposed=True, strides=(2, 2), pads=(1, 1, 1, 1), output_padding=(1, 1), channels=5, filters=4),
    C(transposed=True, strides=(3, 3), window=(2, 4), size=(4, 3), output_padding=(2, 0), channels=3, filters=7),
    C(transposed=True, strides=(2, 1), dilations=(2, 2), pads=(0, 1, 1, 2), channels=4, filters=4),
    C(transposed=True, strides=(2, 3), dilations=(3, 2), window=(3, 3), output_padding=(1, 2), batch=2),
    C(transposed=True, strides=(2, 2), window=(4, 4), pads=(1, 1, 1, 1), channels=8, filters=8, groups=2),
    C(transposed=True, strides=(2, 2), channels=6, filters=6, groups=6, pads=(1, 1, 1, 1)),
    C(transposed=True, strides=(2, 2), channels=11, filters=22, groups=11, window=(4, 4), pads=(1, 1, 1, 1)),
    C(transposed=True, strides=(1, 2), channels=6, filters=9, groups=3, window=(1, 3), batch=2),
    C(transposed=True, strides=(3, 2), window=(1, 1), size=(2, 3)),
]
COMPUTED = [
    C(computed=True, channels=5, filters=3, pads=(1, 1, 1, 1)),
    C(computed=True, channels=4, filters=6, groups=2, strides=(2, 1), dilations=(1, 2), size=(6, 9), pads=(0, 1, 1, 0)),
    C(computed=True, channels=3, filters=3, groups=3, window=(2, 2), batch=2),
    C(computed=True, transposed=True, channels=4, filters=6, groups=2, strides=(2, 3), pads=(1, 0, 0, 1), batch=2),
    C(computed=True, transposed=True, strides=(2, 2), dilations=(2, 1), output_padding=(1, 0), channels=2, filters=5),
]
GATED = [
    C(gated=True, window=(1, 1), channels=5, filters=6),
    C(gated=True, window=(1, 1), channels=8, filters=5, batch=3, size=(3, 7)),
    C(gated=True, window=(1, 1), channels=1, filters=4, batch=2, strides=(2, 3), size=(5, 8)),
    C(gated=True, channels=5, filters=4, pads=(1, 1, 1, 1)),
    C(gated=True, window=(1, 1), channels=6, filters=6, groups=6),
]
GRID = {
    "windows": WINDOWS, "strides": STRIDES, "dilations": DILATIONS, "pads": PADS,
    "wide_windows": WIDE_WINDOWS, "batches": BATCHES, "groups": GROUPS,
    "depthwise": DEPTHWISE, "transposed": TRANSPOSED, "computed": COMPUTED, "gated": GATED,
}
EVERY = [problem for name, problems in GRID.items() for problem in problems if name != "computed"]


@pytest.mark.parametrize("name", GRID)
@pytest.mark.parametrize("float16", [0, 1])
def test_grid(context: Context, name: str, float16: int) -> None:
    check(GRID[name][:: 1 + float16], context, Config(float16))  # half stores otherwise, and computes alike


@pytest.mark.usefixtures("half_arithmetic")
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("sums", ["runs", "half"])
def test_half_arithmetic(context: Context, seed: int, sums: str) -> None:
    """Some problems computed in half, with a specialisation out of those that each allows."""
    config = IN_RUNS if sums == "runs" else Config(2)
    chosen = choosing(target(context), convolution=Choose(convolution_specialisations, seed))
    plan = check(EVERY[seed::10], context, replace(config, max_image=8 if seed else None), chosen)
    in_runs = [bool(re.search("HALF_QUADS [1-9]", launch.source.text)) for launch in plan.launches]
    in_half = ["HALF_SUMS 1" in launch.source.text for launch in plan.launches]
    assert any(in_half) == (sums == "half") and any(in_runs) == (sums == "runs")


def test_a_device_without_half_arithmetic_is_refused(context: Context) -> None:
    for config in (Config(2), IN_RUNS):
        with pytest.raises(DeviceError, match="no fp16 arithmetic"):
            check(EVERY[:1], context, config, target(context, half_arithmetic=False))


def summed(context: Context, terms: Any, precision: Precision) -> list[Any]:
    """A 1x1 convolution's sum of the terms under float16=2, by the plans of a CPU and of a GPU, one work item a sum."""
    array = numpy.asarray(terms, numpy.float32).reshape(1, -1, 1, 1)
    x, weights = Tensor.input("x", array.shape), Tensor.constant(numpy.ones((4, array.size, 1, 1), numpy.float32))
    found = []
    for kind in ("cpu", "gpu"):
        chosen = choosing(target(context, kind), convolution=unshared)
        _, made = run_tensors({"y": x.conv2d(weights)}, {"x": array}, context, Config(2, precision=precision), chosen)
        found += made["y"].ravel().tolist()
    return found


def unshared(problem: Problem, kind: str, compute_units: int) -> Specialisation:
    """The best candidate that sums without others' help."""
    alone = (c for c in candidates(problem, kind) if c.parts == 1)
    return min(alone, key=lambda c: predicted_time(problem, c, kind, compute_units))


RUNS, FLOAT = Precision(runs=frozenset({"y"})), Precision(arithmetic=frozenset({"y"}))


@pytest.mark.usefixtures("half_arithmetic")
def test_long_sums_of_half_products(context: Context) -> None:
    """2048 pairs of 1 and 2^-6: a sum in half ends at 2048, to which 1 adds nothing. Runs and float lose nothing."""
    terms = [1, 2.0**-6] * 2048
    assert summed(context, terms, Precision()) == [2048] * 8
    for precision in (RUNS, FLOAT):
        numpy.testing.assert_allclose(summed(context, terms, precision), sum(terms), rtol=2.0**-10)


@pytest.mark.usefixtures("half_arithmetic")
def test_sums_in_half_overflow(context: Context) -> None:
    """64 terms of 1500, then 64 of -1500: what they come to on the way, 96000, is over 65504; in a run it is 48000."""
    terms = [1500] * 64 + [-1500] * 64
    assert not numpy.isfinite(summed(context, terms, Precision())).any()
    assert summed(context, terms, RUNS) == summed(context, terms, FLOAT) == [0] * 8


def test_factors_need_no_launch(context: Context) -> None:
    """A 1x1 convolution multiplies as it reads."""
    plan = check(GATED[:3], context)
    assert not any("multiply" in launch.description for launch in plan.launches)
    assert sum("FACTORS 1" in launch.source.text for launch in plan.launches) == 3


@pytest.mark.parametrize("name", GRID)
def test_grid_tiled_on_a_gpus_plan(context: Context, name: str) -> None:
    plan = check(GRID[name][1::3], context, Config(float16=1, max_image=8), target(context, "gpu"))
    # Computed weights make a generated kernel, which here reads the inputs' buffers; one with padding is small enough.
    assert name in ("computed", "pads") or any(texture.tiling.tiles > 1 for texture in plan.textures)


@pytest.mark.parametrize("seed", range(2))
def test_specialisations(context: Context, seed: int) -> None:
    """Some problems of the grid with a specialisation out of those that each allows, tiled for every other seed."""
    chosen = choosing(target(context), convolution=Choose(convolution_specialisations, seed))
    check(EVERY[seed::6], context, Config(float16=seed, max_image=8 if seed else None), chosen)


BLOCKS = [
    Specialisation(1, 1, 1, "texel"),
    Specialisation(4, 1, 1, "line", local_size=(2, 2, 2)),
    Specialisation(8, 2, 1, "window", "buffer", (1, 1, 4)),
    Specialisation(3, 3, 2, "input", "buffer"),
    Specialisation(2, 2, 4, "input", "buffer", (4, 4, 1), vector_quads=4, passes=2),
    Specialisation(5, 1, 4, "line", "buffer", vector_quads=4),
    Specialisation(3, 2, 1, "input", passes=3),
    Specialisation(2, 1, 2, "window", local_size=(2, 4, 2), parts=2),
    Specialisation(4, 2, 4, "line", local_size=(1, 4, 3), parts=4),
    Specialisation(3, 1, 2, "line", "local", (4, 2, 2)),
    Specialisation(2, 2, 1, "line", "local", (2, 3, 1)),
    Specialisation(2, 1, 1, "texel", "local", (1, 4, 2)),
    Specialisation(3, 2, 1, "line", "local", (2, 3, 2)),
]


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_blocks(context: Context, block: Specialisation) -> None:
    """Five quads of output in blocks that do and do not divide them, and groups of two and four quads."""
    problems = [
        C(channels=5, filters=17, size=(7, 9), pads=(1, 1, 1, 1)),
        C(batch=2, channels=4, filters=20, size=(5, 5), strides=(2, 2), window=(2, 3), pads=(0, 1, 1, 1)),
    ]
    grouped = C(channels=8, filters=32, groups=2, window=(3, 1), size=(5, 7))
    several = 1 if block.weights == "local" else 2 + (4 % (block.block_quads * block.passes) == 0)
    plan = check([*problems, grouped], context, wanted=using(context, block))
    assert [launch.specialisation for launch in plan.launches].count(str(block)) == several


@pytest.mark.parametrize("channels", [21, 40])
def test_parts_of_unequal_sums(context: Context, channels: int) -> None:
    """Six and ten input quads in four parts: two parts have a quad more than the others."""
    block = Specialisation(1, 1, 1, "texel", local_size=(4, 8, 2), parts=4)
    problems = [C(channels=channels, filters=5, window=window, size=(4, 5)) for window in ((1, 1), (1, 3), (3, 2))]
    chosen = choosing(target(context, "gpu"), convolution=lambda *_: block)
    plan = check(problems, context, wanted=chosen)
    assert [launch.specialisation for launch in plan.launches].count(str(block)) == len(problems)


MEETINGS = [
    (Specialisation(7, 1, 1, "texel", local_size=(4, 16, 2), parts=4), [4, 3]),
    (Specialisation(2, 2, 2, "line", local_size=(8, 8, 2), parts=2), [4, 4]),
    (Specialisation(3, 3, 2, "texel", local_size=(4, 32, 1), parts=8), [4, 4, 4, 4, 2]),
    (Specialisation(3, 1, 3, "window", local_size=(2, 16, 2), parts=16), [8, 1]),
]


@pytest.mark.parametrize("sums", ["float", "runs", "half"])
@pytest.mark.parametrize(("block", "meetings"), MEETINGS, ids=str)
def test_parts_meet_in_turns(context: Context, block: Specialisation, meetings: list[int], sums: str) -> None:
    """Work groups whose local memory holds the parts of some sums of a block at once: fewer than parts, or more."""
    config = {"float": Config(), "runs": IN_RUNS, "half": Config(2)}[sums]
    if config.float16 and not context.info.fp16_arithmetic:
        pytest.skip("the device does not compute in half: it lacks cl_khr_fp16")
    chosen = replace(block, half_quads=int(sums == "runs"))
    problems = [
        C(channels=67, filters=25, size=(5, 9), window=(1, 1)),
        C(channels=64, filters=24, size=(6, 14), window=(3, 3), pads=(1, 1, 1, 1)),
        C(batch=2, channels=70, filters=9, size=(7, 8), window=(2, 3), strides=(2, 1), pads=(1, 1, 0, 1)),
    ]
    plan = check(problems, context, config, using(context, chosen))
    assert [launch.specialisation for launch in plan.launches].count(str(chosen)) == len(problems)
    if sums != "half":
        problem = Problem(1, 67, (5, 9), 25, (5, 9), (1, 1), (1, 1), (1, 1), (0, 0), 1)
        together = sums_reduced_at_once(problem, block)
        outputs = block.block_columns * block.block_rows * block.block_quads
        assert [min(together, outputs - first) for first in range(0, outputs, together)] == meetings


@pytest.mark.usefixtures("half_arithmetic")
@pytest.mark.parametrize("block", [
    Specialisation(7, 1, 3, "texel", local_size=(2, 2, 8), float_coordinates=True, ordered=True),
    Specialisation(2, 2, 2, "texel", local_size=(4, 8, 2), parts=4, ordered=True),
], ids=str)
def test_weights_read_in_order(context: Context, block: Specialisation) -> None:
    """Rows of the weights' image are blocks, of groups and of phases too, and the bias is added at the end."""
    problems = [
        C(channels=14, filters=25, size=(5, 9), window=(1, 1)),
        C(batch=2, channels=3, filters=9, size=(7, 8), window=(2, 3), strides=(2, 1), pads=(1, 1, 0, 1)),
        C(channels=32, filters=96, groups=2, size=(4, 14), window=(3, 3), pads=(1, 1, 1, 1)),
        C(transposed=True, channels=8, filters=12, size=(4, 5), window=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
    ]
    plan = check(problems, context, Config(2), using(context, block))
    assert [launch.specialisation for launch in plan.launches].count(str(block)) == len(problems)


def test_numbers_of_shared_sums_are_divided_exactly(context: Context) -> None:
    """All numbers of the largest block that work items may share, by all constants that fit in it."""
    largest = Specialisation(16, 16, 1, local_size=(4, 4, 2), parts=4)
    problem = Problem(1, 64, (32, 32), 64, (32, 32), (1, 1), (1, 1), (1, 1), (0, 0), 1)
    assert largest.allowed(problem) and not replace(largest, block_rows=17).allowed(problem)
    count = accumulators_of(largest)
    (quotient,) = re.findall(r"^#define QUOTIENT.*$", template_text("kernels/conv/parts.cl"), re.MULTILINE)
    source = f"""{quotient}
kernel void divide(global int *made) {{
  const int number = get_global_id(0), by = get_global_id(1) + 1;
  made[(by - 1) * {count} + number] = QUOTIENT(number, by);
}}"""
    divide = program.new_kernel(program.build(context, source, "divide.cl"), "divide")
    buffer = context.buffer(4 * count * count)
    divide.set_args(buffer)
    context.enqueue(divide, (count, count))
    made = context.read(buffer, (count, count), numpy.int32)
    assert numpy.array_equal(made, numpy.arange(count) // numpy.arange(1, count + 1)[:, None])


@pytest.mark.parametrize("local_size", [(1, 4, 2), (2, 2, 2), (4, 1, 3)], ids=str)
def test_copies_of_one_position_of_the_window(context: Context, local_size: tuple[int, int, int]) -> None:
    """Groups that read nothing but padding at some positions of the window, or at all; windows side by side."""
    block = Specialisation(2, 2, 1, "texel", "local", local_size, float_coordinates=True)
    problems = [
        C(channels=8, filters=9, size=(11, 13), dilations=(6, 7), pads=(6, 7, 6, 7)),
        C(channels=17, filters=8, size=(9, 20), window=(2, 3), dilations=(12, 5), pads=(12, 12, 3, 0)),
        C(channels=4, filters=4, size=(3, 3), window=(2, 2), dilations=(9, 9), pads=(9, 9, 9, 9)),
        C(channels=3, filters=12, size=(16, 15), window=(4, 5), strides=(4, 5)),
        C(channels=20, filters=12, size=(13, 9), window=(3, 3), strides=(4, 2), pads=(1, 1, 1, 1)),
        C(channels=8, filters=4, size=(8, 9), dilations=(4, 4), pads=(30, 4, 4, 40)),
        # A group that meets only the first row, and one that meets only the last column.
        C(channels=8, filters=4, size=(9, 10), dilations=(6, 5), pads=(11, 1, 4, 9)),
    ]
    plan = check(problems, context, wanted=using(context, block))
    assert [launch.specialisation for launch in plan.launches].count(str(block)) == len(problems)


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_a_slice_of_channels_is_read_in_place(context: Context, kind: str) -> None:
    """By dense, depthwise and separable kernels, with padding, beside channels of NaN; other slices are copied."""
    random = numpy.random.default_rng(1)
    x = numpy.full((1, 20, 9, 8), numpy.nan, numpy.float32)
    x[:, 4:16] = random.uniform(-1, 1, (1, 12, 9, 8))
    dense, depthwise, pointwise = (
        random.uniform(-1, 1, s).astype(numpy.float32) for s in ((8, 12, 3, 3), (12, 1, 3, 3), (8, 12, 1, 1))
    )
    inside = Tensor.input("x", x.shape).slice(1, 4, 16)
    outputs = {
        "dense": inside.conv2d(Tensor.constant(dense), padding=1),
        "pair": inside.depthwise(Tensor.constant(depthwise), padding=1).conv2d(Tensor.constant(pointwise)),
        "odd": Tensor.input("x", x.shape).slice(1, 5, 15).conv2d(Tensor.constant(pointwise[:, :10])),
    }
    plan, found = run_tensors(outputs, {"x": x}, context, wanted=target(context, kind))
    given_ = x[:, 4:16].astype(numpy.float64)
    padded = numpy.pad(given_, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = numpy.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    between = numpy.einsum("nchwij,cij->nchw", windows, depthwise[:, 0])
    expected = {
        "dense": numpy.einsum("nchwij,ocij->nohw", windows, dense),
        "pair": numpy.einsum("nchw,oc->nohw", between, pointwise[:, :, 0, 0]),
        "odd": numpy.einsum("nchw,oc->nohw", given_[:, 1:11], pointwise[:, :10, 0, 0]),
    }
    for name, want in expected.items():
        numpy.testing.assert_allclose(found[name], want, 1e-5, 2e-5, err_msg=name)
    assert sum(launch.kind == "copy" for launch in plan.launches) == 1


def test_shared_sums_of_runs_take_one_quad_at_a_time() -> None:
    """Mesa's compiler unrolls the few steps that are left of them, reads all ahead, and then has too few registers."""
    problem = Problem(1, 480, (1, 1), 20, (1, 1), (1, 1), (1, 1), (1, 1), (0, 0), 1, sums="runs")
    made = candidates(problem, "gpu")
    assert {c.half_quads for c in made if c.parts > 1} == {1}
    assert {c.half_quads for c in made if c.parts == 1} == {8}


@pytest.mark.parametrize("groups", [1, 8])
def test_windows_that_are_not_unrolled(context: Context, groups: int) -> None:
    check([C(channels=8, filters=8, window=(1, 256), size=(1, 600), groups=groups)], context)


@pytest.mark.parametrize("block", [BLOCKS[1], BLOCKS[3], BLOCKS[4], BLOCKS[7], BLOCKS[8]], ids=str)
def test_values_of_each_channel(context: Context, block: Specialisation) -> None:
    """A bias and a factor of each channel, for output quads that the block divides and that it does not."""
    array = numpy.random.default_rng(1).uniform(-1, 1, (1, 5, 4, 6)).astype(numpy.float32)
    outputs, expected = {}, {}
    for filters in (32, 33, 36):
        random = numpy.random.default_rng(filters)
        weights, bias, factor = (
            random.uniform(-1, 1, shape).astype(numpy.float32)
            for shape in ((filters, 5, 1, 1), (1, filters, 1, 1), (1, filters, 1, 1))
        )
        made = Tensor.input("x", array.shape).conv2d(Tensor.constant(weights)) + Tensor.constant(bias)
        outputs[f"y{filters}"] = made.apply("absolute") * Tensor.constant(factor)
        sums = numpy.einsum("nchw,oc->nohw", array.astype(numpy.float64), weights[:, :, 0, 0]) + bias
        expected[f"y{filters}"] = numpy.abs(sums) * factor
    chosen = choosing(target(context), convolution=lambda problem, kind, units: block)
    plan, found = run_tensors(outputs, {"x": array}, context, wanted=chosen)
    assert len(plan.compute_launches) == len(outputs)
    for name, want in expected.items():
        numpy.testing.assert_allclose(found[name], want, rtol=1e-5, atol=1e-6, err_msg=name)


TILED = [
    ("wide", C(channels=9, size=(4, 30), filters=9, pads=(1, 1, 1, 1))),
    ("tall", C(channels=4, size=(70, 5), filters=5, pads=(1, 1, 1, 1))),
    ("both", C(channels=9, size=(70, 30), filters=9, window=(3, 2), pads=(1, 1, 1, 1), strides=(2, 1))),
    ("batch across tiles", C(batch=3, channels=4, size=(15, 5), filters=4, pads=(1, 1, 1, 1))),
    ("depthwise", C(channels=17, filters=17, groups=17, size=(40, 20), pads=(1, 1, 1, 1))),
    ("transposed", C(channels=5, filters=5, size=(20, 11), transposed=True, strides=(2, 2), pads=(1, 0, 0, 1))),
]


@pytest.mark.parametrize("float16", [0, 1])
def test_tiles(context: Context, float16: int) -> None:
    plan = check([problem for _, problem in TILED], context, Config(float16, max_image=32))
    written = [launch.writes for launch in plan.launches if isinstance(launch.writes, Texture)]
    forms = {(t.tiling.layers > 1, t.tiling.stacked_along) for t in written if t.tiling.tiles > 1}
    assert forms >= {(False, "x"), (False, "y"), (True, "y")}


@device_settings(max_examples=3)
@given(problems=st.lists(convolution_problems(), min_size=1, max_size=5), seed=st.integers(0, 999))
def test_drawn(context: Context, problems: Sequence[ConvolutionProblem], seed: int) -> None:
    config = Config(float16=seed % 2, max_image=(None, 8, 32)[seed % 3])
    chosen = choosing(target(context), convolution=Choose(convolution_specialisations, seed))
    check(problems, context, config, chosen)


def test_sizes_past_short(context: Context) -> None:
    """Positions over 32767 in either direction, and a position just below it."""
    check(
        [
            C(channels=1, filters=1, size=(40000, 1), window=(3, 1), pads=(1, 0, 1, 0)),
            C(channels=1, filters=1, size=(1, 40000), window=(1, 3), pads=(0, 1, 0, 1)),
            C(channels=1, filters=1, size=(32767, 1), window=(2, 1), strides=(2, 1), pads=(9, 0, 30, 0)),
            C(channels=1, filters=1, size=(1, 16500), window=(1, 2), strides=(1, 2), transposed=True),
            C(channels=4, filters=40000, size=(1, 1), window=(1, 1)),
        ],
        context,
    )


def test_padding_with_another_value(context: Context) -> None:
    """A padding with ones before a convolution is not merged into the convolution's zero padding."""
    array = numpy.full((1, 4, 3, 3), 2, numpy.float32)
    weights = numpy.full((2, 4, 3, 3), 0.5, numpy.float32)
    x = Tensor.input("x", array.shape).pad([0, 0, 1, 1], [0, 0, 1, 1], 1.0)
    outputs = {"known": x.conv2d(Tensor.constant(weights), padding=1)}
    outputs["computed"] = x.conv2d(Tensor.input("w", weights.shape), padding=1)
    _, made = run_tensors(outputs, {"x": array, "w": weights}, context)
    inner = numpy.pad(numpy.pad(array[0, 0], 1, constant_values=1), 1)
    expected = sum(inner[ky : ky + 5, kx : kx + 5] for ky in range(3) for kx in range(3)) * 4 * 0.5
    for name in outputs:
        numpy.testing.assert_array_equal(made[name], numpy.broadcast_to(expected, (1, 2, 5, 5)), err_msg=name)
