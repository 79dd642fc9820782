"""Generated kernels with windows, against float64 numpy: reductions, softmax, pooling."""

from __future__ import annotations

import itertools

import numpy
import pyopencl as cl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems.pooling import PoolingProblem, pooling_problems
from problems.reduction import ReductionProblem, reduction_problems
from running import check, check_way, device_settings, run_tensors, target

from imgconv.cl.context import Context
from imgconv.cl.building.program import build, new_kernel
from imgconv.config import Config
from imgconv.kernels.codegen.generated import ITEMS_OF_A_GPU, ITEMS_OF_A_UNIT, WorkGroup, choose_reduction_work_group
from imgconv.kernels.layout import ImageLimits
from imgconv.kernels.kernel_source import COMMON
from imgconv.kernels.target import Target
from imgconv.tensor import Tensor

# Reductions


def axis_sets(rank: int) -> list[tuple[int, ...]]:
    return [axes for count in range(1, rank + 1) for axes in itertools.combinations(range(rank), count)]


SHAPES = [[(2, 5, 3, 4), (3, 5, 2), (5, 7), (7,)], [(1, 8, 3, 2), (5, 3), (2, 1, 5, 2, 3)]]
KINDS = ("sum", "max", "min", "product")


def test_reductions(context: Context, way: tuple[Config, str]) -> None:
    """Every set of axes, with the kinds in turn; products of few numbers only."""
    problems = []
    for shape in SHAPES[way[0].float16]:
        for number, axes in enumerate(axis_sets(len(shape))):
            kind = KINDS[number % 3] if numpy.prod([shape[a] for a in axes]) > 16 else KINDS[number % 4]
            problems.append(ReductionProblem(shape, axes, kind, number % 2 == 0, kind == "sum" and number % 3 == 0))
    check_way(problems[:: 1 + 2 * way[0].float16], context, way)


LONG = [
    ReductionProblem((1, 8, 24, 23), (2, 3)),
    ReductionProblem((1, 5, 24, 23), (1, 2, 3), "max"),
    ReductionProblem((2, 901), (1,), "sum", True, True),
    ReductionProblem((2, 901), (1,), "min"),
    ReductionProblem((901, 3), (0,), "sum"),
    ReductionProblem((3, 2, 300), (0, 2), "max"),
    ReductionProblem((700,), (0,), "sum"),
    ReductionProblem((2, 901), (1,), "argmax"),
    ReductionProblem((901, 3), (0,), "argmax"),
    ReductionProblem((1, 700, 1, 2), (1,), "argmax"),
    ReductionProblem((55, 400), (1,), "sum"),
    ReductionProblem((1, 57, 12, 9), (2, 3), "max"),
    ReductionProblem((1, 76, 61), (2,), "argmax"),
]
HUGE = [
    ReductionProblem((1, 6, 513, 520), (2, 3), "sum", True),
    ReductionProblem((1, 6, 513, 520), (2, 3), "max"),
    ReductionProblem((600, 500), (0, 1), "sum", False, True),
]


def test_long_reductions(context: Context, way: tuple[Config, str]) -> None:
    plan = check_way(LONG, context, way)
    shared = [launch.source for launch in plan.launches if "__local" in launch.source.text]
    # Two texels keep both cores of a CPU busy.
    assert len(shared) == len(LONG) if way[1] == "gpu" else 0 < len(shared) <= len(LONG)
    for source in shared:
        made = new_kernel(build(context, COMMON.read_text() + source.text, "a shared window"), "NAME")
        size = made.get_work_group_info(cl.kernel_work_group_info.COMPILE_WORK_GROUP_SIZE, context.handle.devices[0])
        assert tuple(size) == source.local_size


SMALL, LARGE = (Target(ImageLimits(4096, 4096, 64), "gpu", units) for units in (2, 132))


def test_groups_of_long_reductions() -> None:
    """Parts cover a window, groups are of neighbours, no unit of a large GPU is left without one."""
    assert choose_reduction_work_group((120, 1), (14, 14), SMALL) == WorkGroup(8, (14, 1), 0, 120)
    assert choose_reduction_work_group((36, 1), (56, 56), SMALL) == WorkGroup(4, (56, 1), 0, 36)
    assert choose_reduction_work_group((1, 55), (400,), SMALL) == WorkGroup(4, (37,), 1, 55)
    assert choose_reduction_work_group((120, 1), (14, 14), LARGE) == WorkGroup(1, (14, 2), 0, 120)
    assert choose_reduction_work_group((8, 1), (112, 112), LARGE) == WorkGroup(1, (112, 2), 0, 8)
    assert choose_reduction_work_group((5, 1), (3, 3), SMALL) is None
    assert choose_reduction_work_group((3000, 1), (14, 14), SMALL) is None


def test_huge_reductions(context: Context) -> None:
    plan = check(HUGE, context)
    assert sum(launch.name.endswith(".rows") for launch in plan.launches) == len(HUGE)
    check(HUGE[:2], context, Config(float16=1, max_image=256), target(context, "gpu"))


@pytest.mark.parametrize("float16", [0, 1])
def test_huge_sums_of_integers_are_exact(context: Context, float16: int) -> None:
    """The first of the two kernels adds three numbers, and half would round what it hands on.

    Two more add the numbers' sizes: those of both signs may pass 2**24 on the way.
    """
    array = numpy.zeros((3, 20000), numpy.int32)
    array[:, :1000] = [[3002], [3001], [-2998]]
    made = Tensor.input("x", array.shape, "int32").sum([0, 1])
    plan, found = run_tensors({"y": made}, {"x": array}, context, Config(float16))
    assert len(plan.compute_launches) == 4 and found["y"] == array.sum()


def test_reduction_of_what_is_repeated(context: Context) -> None:
    """A window axis of more than 32767 positions on which no address depends."""
    texels = max(ITEMS_OF_A_GPU, ITEMS_OF_A_UNIT * target(context).compute_units) + 1  # too many for a work group each
    array = numpy.arange(4 * texels, dtype=numpy.float32)
    x = Tensor.input("x", array.shape)
    _, made = run_tensors({"y": x.reshape(1, -1).expand(33000, array.size).max([0])}, {"x": array}, context)
    numpy.testing.assert_array_equal(made["y"], array)


@device_settings(max_examples=5)
@given(problems=st.lists(reduction_problems(), min_size=1, max_size=5), seed=st.integers(0, 99))
def test_drawn_reductions(context: Context, problems: list[ReductionProblem], seed: int) -> None:
    config = Config(seed % 2, max_image=(None, 8, 32)[seed % 3])
    check(problems, context, config, target(context, ("cpu", "gpu")[seed // 6 % 2]))


@pytest.mark.parametrize("shape", [(2, 5, 3, 2), (3, 7), (9,), (1, 300, 1, 1)], ids=str)
def test_softmax(context: Context, shape: tuple[int, ...], way: tuple[Config, str]) -> None:
    """exp(0) is not 0: a lane past the end that takes part would show, and so would exp(1e4) without the maximum."""
    array = numpy.random.default_rng(3).uniform(-9, 9, shape).astype(numpy.float32)
    array.flat[1] = 1e4
    outputs, expected = {}, {}
    for axis in range(len(shape)):
        x = Tensor.input("x", shape)
        outputs[f"y{axis}"] = x.softmax(axis)
        powers = numpy.exp(array.astype(numpy.float64) - array.max(axis, keepdims=True))
        expected[f"y{axis}"] = powers / powers.sum(axis, keepdims=True)
    config = Config(max_image=way[0].max_image)
    _, found = run_tensors(outputs, {"x": array}, context, config, target(context, way[1]))
    for name, want in expected.items():
        numpy.testing.assert_allclose(found[name], want, 1e-5, 1e-30)


# Pooling


P = PoolingProblem
POOLED = [
    P((1, 5, 6, 7), (2, 2), (2, 2), (0, 0, 0, 0), (1, 1)),
    P((2, 4, 7, 7), (3, 3), (2, 2), (1, 1, 1, 1), (1, 1)),
    P((2, 4, 7, 7), (3, 3), (2, 2), (1, 1, 1, 1), (1, 1), "min"),
    P((1, 3, 7, 8), (3, 2), (2, 3), (0, 0, 0, 0), (1, 1), "max", True),
    P((1, 3, 7, 8), (3, 2), (2, 3), (1, 0, 0, 1), (1, 1), "average", True),
    P((1, 5, 6, 6), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), "average"),
    P((1, 5, 6, 6), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), "sum"),
    P((1, 5, 9, 8), (2, 3), (1, 2), (1, 1, 0, 1), (3, 2)),
    P((1, 5, 9, 8), (2, 3), (1, 2), (1, 1, 0, 1), (3, 2), "average"),
    P((1, 8, 3, 3), (3, 3), (3, 3), (0, 0, 0, 0), (1, 1), "average"),
    P((2, 3, 9), (3,), (2,), (1, 1), (1,)),
    P((1, 5, 4, 5, 3), (2, 2, 2), (1, 2, 1), (0, 1, 1, 1, 0, 0), (1, 1, 1)),
    P((1, 1, 1, 1), (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
]


def test_poolings(context: Context, way: tuple[Config, str]) -> None:
    check_way(POOLED, context, way)


@device_settings(max_examples=5)
@given(problems=st.lists(pooling_problems(), min_size=1, max_size=5), seed=st.integers(0, 99))
def test_drawn_poolings(context: Context, problems: list[PoolingProblem], seed: int) -> None:
    config = Config(seed % 2, max_image=(None, 8, 32)[seed % 3])
    check(problems, context, config, target(context, ("cpu", "gpu")[seed // 6 % 2]))


def test_padding_never_wins_a_maximum(context: Context) -> None:
    """Below -65504, and where all is minus infinity."""
    array = numpy.full((1, 5, 4, 4), -1e30, numpy.float32)
    array[0, 2] = -numpy.inf
    x = Tensor.input("x", array.shape)
    _, made = run_tensors({"y": x.max_pool(3, 2, 1)}, {"x": array}, context)
    numpy.testing.assert_array_equal(made["y"], array[:, :, ::2, ::2])
