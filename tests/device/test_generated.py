"""Generated kernels against float64 numpy: elementwise work, movement, reductions, pooling, resizing, concatenation."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy
import pyopencl as cl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes
from problems import Problem
from problems.concatenation import ConcatenationProblem
from problems.gather import GatherProblem, gather_problems
from problems.load import BroadcastProblem, LoadProblem
from problems.movement import MovementProblem, movement_problems
from problems.pooling import PoolingProblem, pooling_problems
from problems.reduction import ReductionProblem, reduction_problems
from problems.resample import ResampleProblem
from running import check, device_settings, run_tensors, target

from imgconv.cl.device import Context
from imgconv.cl.program import build, kernel
from imgconv.compiling.plan import Plan
from imgconv.config import Config
from imgconv.graph.expression import OPERATIONS
from imgconv.kernels.generated import ITEMS_OF_A_GPU, ITEMS_OF_A_UNIT, Group, group_for
from imgconv.kernels.source import COMMON
from imgconv.tensor import Tensor, concatenate, convolution, elementwise, less, where

# Float; half in tiles, on the plan of a GPU.
WAYS = {"float": (Config(), "cpu"), "half tiled gpu": (Config(float16=1, max_image=8), "gpu")}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> tuple[Config, str]:
    return WAYS[request.param]


def check_way(problems: Sequence[Problem], context: Context, way: tuple[Config, str]) -> Plan:
    return check(problems, context, way[0], target(context, way[1]))


# Elementwise


NUMBERS = [0.0, 1e-3, -0.25, 0.5, -0.75, 1.0, -1.0, 1.5, 2.0, -2.5, 3.0, 7.0, -8.0, 30.0, -60.0, 80.0, 1e3, 1e30, -1e30]
SPECIAL = [numpy.inf, -numpy.inf, numpy.nan]
# The largest argument where it must be bounded, by operation: what lies beyond is left to the driver.
LARGEST = {"sin": 1000, "cos": 1000, "tan": 1000}
# Whole numbers, for what is exact with them. 2**24 - 1 over 3 and over 5 are whole; a quotient just below one is not.
WHOLE = [1.0, -1.0, 3.0, -5.0, 7.0, 4095.0, -4097.0, 2.0**23 - 1, 2.0**24 - 1, 2.0**24 - 2, -(2.0**24) + 1]
INTEGERS = {
    "quotient": WHOLE, "bit_and": [*WHOLE, 0.0], "bit_or": [*WHOLE, 0.0], "bit_xor": [*WHOLE, 0.0],
    "shift_left": [0.0, 1.0, 2.0, 5.0, 17.0], "shift_right": [0.0, 1.0, 2.0, 5.0, 17.0],
}
LOGIC = {"less", "less_equal", "equal", "not", "and", "or", "xor", "isnan", "isinf"}
ULPS = 16  # the most that OpenCL C allows any of these functions, pow and erf


def arity(operation: str) -> int:
    return sum(f"{{{n}}}" in OPERATIONS[operation].opencl for n in range(3))


def test_operations(context: Context) -> None:
    """Every operation on every number, pair and triple of numbers and special values, in three lanes of four."""
    inputs: dict[str, Any] = {}
    outputs, expected = {}, {}
    for operation in OPERATIONS:
        count = arity(operation)
        values = [v for v in [*NUMBERS, *SPECIAL] if not abs(v) > LARGEST.get(operation, numpy.inf)]
        values = INTEGERS.get(operation, values)
        if operation == "modulo":
            values = [v for v in values if numpy.isfinite(v) and abs(v) < 1e6]
        rows = numpy.array(list(itertools.product(values, repeat=count)), numpy.float32)
        rows = numpy.concatenate([rows, rows[: -len(rows) % 3]]).reshape(-1, 3, count)
        tensors = [Tensor.input(f"{operation}{n}", rows.shape[:2]) for n in range(count)]
        inputs |= {t.name or "": rows[..., n] for n, t in enumerate(tensors)}
        made = elementwise(operation, *tensors, dtype="bool" if operation in LOGIC else "float32")
        outputs[operation] = made
        with numpy.errstate(all="ignore"):
            wide = OPERATIONS[operation].numpy(*(rows[..., n].astype(numpy.float64) for n in range(count)))
            expected[operation] = wide.astype(bool if operation in LOGIC else numpy.float32)
    _, found = run_tensors(outputs, inputs, context)
    wrong = {}
    for name, want in expected.items():
        have = found[name]
        if want.dtype == bool:
            bad = have != want
        else:
            with numpy.errstate(all="ignore"):
                ulps = 0 if name in INTEGERS else ULPS
                allowed = ulps * numpy.maximum(numpy.spacing(numpy.abs(want)), 2.0**-126)
                if name in ("sin", "cos", "tan", "modulo"):
                    allowed = numpy.maximum(allowed, 2.0**-20)
                same = (have == want) | (numpy.isnan(have) & numpy.isnan(want))
                bad = ~(same | (numpy.abs(have.astype(float) - want) <= allowed))
        if bad.any():
            where_ = numpy.argwhere(bad)[0]
            arguments = [inputs[f"{name}{n}"][tuple(where_)] for n in range(arity(name))]
            wrong[name] = f"{name}{arguments} = {have[tuple(where_)]}, not {want[tuple(where_)]} ({bad.sum()} wrong)"
    assert not wrong, "\n".join(wrong.values())


BROADCASTS = [
    BroadcastProblem(shapes)
    for shapes in [
        ((), ()), ((5,), ()), ((), (7,)), ((3, 5), (5,)), ((3, 1), (1, 5)), ((2, 3, 5), (3, 1)),
        ((2, 5, 3, 4), (5, 1, 1)),
        ((1, 5, 1, 4), (2, 1, 3, 1)), ((2, 5, 3, 4), (2, 5, 1, 1)), ((2, 6, 3, 4), (1, 1, 3, 4), (6, 1, 1), ()),
        ((1, 2, 3, 2, 5), (2, 1, 1, 5)), ((1,), (1, 1, 1)), ((4, 1, 1), (5, 1, 1, 3)), ((2, 8, 2, 2), (2, 1, 2, 2)),
    ]
]


def test_broadcasts(context: Context, way: tuple[Config, str]) -> None:
    check_way(BROADCASTS, context, way)


@device_settings(max_examples=4)
@given(
    shapes=st.lists(
        mutually_broadcastable_shapes(num_shapes=3, max_dims=5, max_side=5).map(lambda m: m.input_shapes),
        min_size=1, max_size=4,
    ),
    seed=st.integers(0, 9),
)
def test_drawn_broadcasts(context: Context, shapes: list[Any], seed: int) -> None:
    check([BroadcastProblem(s) for s in shapes], context, Config(seed % 2, max_image=(None, 8)[seed % 2]))


# Movement


M = MovementProblem
IMAGE, SQUARE = (2, 5, 4, 3), (6, 4)
MOVED = [
    M(IMAGE, (("transpose", (0, 2, 3, 1)),)),
    M(IMAGE, (("transpose", (3, 1, 0, 2)),)),
    M(IMAGE, (("reshape", (2, 60)),)),
    M(IMAGE, (("reshape", (10, 12)),)),
    M(IMAGE, (("reshape", (120,)), ("slice", 0, 3, 100, 7))),
    M(IMAGE, (("reshape", (1, 8, 5, 3)),)),
    M(IMAGE, (("flip", 1),)),
    M(IMAGE, (("flip", 3), ("flip", 2))),
    M(IMAGE, (("slice", 1, 1, 4, 1),)),
    M(IMAGE, (("slice", 3, 0, 3, 2), ("slice", 2, 1, 3, 1))),
    M(IMAGE, (("take", 1, (4, 0, 0, 3, 1, 1)),)),
    M(IMAGE, (("take", 2, (3, 1, 0)), ("take", 3, (2, 2, 0, 1)))),
    M(IMAGE, (("take", 0, (1,)),)),
    M(IMAGE, (("pad", (0, 0, 1, 2), (0, 0, 2, 1), 0.0),)),
    M(IMAGE, (("pad", (1, 2, 0, 1), (1, 1, 3, 0), -1.5),)),
    M(IMAGE, (("pad", (0, 3, 0, 0), (0, 0, 0, 0), 0.0),)),
    M(IMAGE, (("pad", (1, 0, 0, 0), (2, 0, 0, 0), 0.0),)),
    M(IMAGE, (("pad", (0, 0, 1, 1), (0, 0, 1, 1), 2.0), ("pad", (0, 0, 1, 1), (0, 0, 0, 1), -3.0))),
    M(IMAGE, (("pad", (0, 0, 1, 1), (0, 0, 1, 1), 0.0), ("transpose", (0, 3, 1, 2)), ("slice", 1, 0, 4, 1))),
    M(IMAGE, (("slice", 1, 0, 3, 1), ("pad", (0, 0, 0, 0), (0, 0, 1, 0), 0.0))),
    M(IMAGE, (("reshape", (2, 1, 5, 12)), ("pad", (0, 1, 0, 0), (0, 2, 0, 1), 0.5))),
    M(IMAGE, (("pad", (0, 0, 1, 1), (0, 0, 1, 1), 0.0), ("reshape", (2, 150)), ("take", 1, (0, 149, 31, 8, 8)))),
    # Zeros where the source goes on: they must not be taken for the image's border.
    M(IMAGE, (("slice", 3, 1, 3, 1), ("pad", (0, 0, 0, 2), (0, 0, 0, 0), 0.0))),
    M(IMAGE, (("slice", 3, 0, 2, 1), ("pad", (0, 0, 0, 0), (0, 0, 0, 2), 0.0))),
    M(IMAGE, (("slice", 0, 1, 2, 1), ("pad", (1, 0, 0, 0), (0, 0, 0, 0), 0.0))),
    M(IMAGE, (("slice", 2, 1, 4, 1), ("pad", (0, 0, 2, 0), (0, 0, 1, 0), 0.0))),
    M(IMAGE, (("slice", 1, 1, 4, 1), ("pad", (0, 2, 0, 0), (0, 2, 0, 0), 0.0))),
    M(SQUARE, (("transpose", (1, 0)),)),
    M(SQUARE, (("reshape", (4, 6)), ("transpose", (1, 0)))),
    M(SQUARE, (("expand", (2, 6, 4)),)),
    M(SQUARE, (("reshape", (6, 1, 4)), ("expand", (6, 3, 4)), ("reshape", (18, 4)))),
    M(SQUARE, (("reshape", (2, 3, 2, 2)), ("transpose", (0, 2, 1, 3)), ("reshape", (4, 6)))),
    M((7,), (("flip", 0),)),
    M((7,), (("pad", (2,), (3,), 9.0),)),
    M((7,), (("take", 0, (6, 0, 3, 3, 5)), ("reshape", (1, 5, 1)))),
    M((1,), (("reshape", ()),)),
    M((), (("reshape", (1, 1)), ("expand", (3, 5)))),
    M((), ()),
    M((2, 3, 2, 3, 4), (("transpose", (4, 2, 0, 3, 1)),)),
    M((2, 3, 2, 3, 4), (("reshape", (6, 24)), ("flip", 1))),
    M((3, 40), (("reshape", (1, 5, 4, 6)), ("transpose", (0, 1, 3, 2)), ("reshape", (1, 10, 12)))),
]


def test_movements(context: Context, way: tuple[Config, str]) -> None:
    problems: list[Problem] = [*MOVED, LoadProblem(()), LoadProblem((7,)), LoadProblem(SQUARE)]
    check_way(problems[:: 1 + 2 * way[0].float16], context, way)


@device_settings(max_examples=6)
@given(problems=movement_problems(), seed=st.integers(0, 99))
def test_drawn_movements(context: Context, problems: list[MovementProblem], seed: int) -> None:
    config = Config(seed % 2, max_image=(None, 8, 32)[seed % 3])
    check(problems, context, config, target(context, ("cpu", "gpu")[seed // 6 % 2]), fused=seed % 5 > 0)


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
        made = kernel(build(context, COMMON.read_text() + source.text, "a shared window"), "NAME")
        size = made.get_work_group_info(cl.kernel_work_group_info.COMPILE_WORK_GROUP_SIZE, context.handle.devices[0])
        assert tuple(size) == source.local_size


def test_groups_of_long_reductions() -> None:
    """Parts cover a window, groups are of neighbours, no unit of a large GPU is left without one."""
    assert group_for((120, 1), (14, 14), 2, True) == Group(8, (14, 1), 0, 120)
    assert group_for((36, 1), (56, 56), 2, True) == Group(4, (56, 1), 0, 36)
    assert group_for((1, 55), (400,), 2, True) == Group(4, (37,), 1, 55)
    assert group_for((120, 1), (14, 14), 132, True) == Group(1, (14, 2), 0, 120)
    assert group_for((8, 1), (112, 112), 132, True) == Group(1, (112, 2), 0, 8)
    assert group_for((5, 1), (3, 3), 2, True) is None
    assert group_for((3000, 1), (14, 14), 2, True) is None


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
    texels = max(ITEMS_OF_A_GPU, ITEMS_OF_A_UNIT * context.info.compute_units) + 1  # too many for a work group each
    array = numpy.arange(4 * texels, dtype=numpy.float32)
    x = Tensor.input("x", array.shape)
    _, made = run_tensors({"y": x.reshape(1, -1).expand(33000, array.size).max([0])}, {"x": array}, context)
    numpy.testing.assert_array_equal(made["y"], array)


@device_settings(max_examples=5)
@given(problems=st.lists(reduction_problems(), min_size=1, max_size=5), seed=st.integers(0, 99))
def test_drawn_reductions(context: Context, problems: list[ReductionProblem], seed: int) -> None:
    config = Config(seed % 2, max_image=(None, 8, 32)[seed % 3])
    check(problems, context, config, target(context, ("cpu", "gpu")[seed // 6 % 2]))


# Gathers


G = GatherProblem
GATHERS = [
    *(G((2, 5, 4, 3), (axis,), (length,), fill) for axis in range(4) for length, fill in ((1, 0.0), (7, -1.5))),
    *(G((2, 5, 4, 3), axes, (4, 5), moved=moved) for axes in ((2, 3), (1, 2), (0, 3)) for moved in (False, True)),
    *(G((7, 6), (axis,), (9,), -1.5, moved) for axis in (0, 1) for moved in (False, True)),
    G((9,), (0,), (40,)), G((2, 3, 2, 3, 5), (1, 3, 4), (4, 2, 9)), G((3, 5, 4), (1,), (5,), 1.0, True),
]


def test_gathers(context: Context, way: tuple[Config, str]) -> None:
    check_way(GATHERS, context, way)


@device_settings(max_examples=5)
@given(problems=st.lists(gather_problems(), min_size=1, max_size=5), seed=st.integers(0, 99))
def test_drawn_gathers(context: Context, problems: list[GatherProblem], seed: int) -> None:
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


# Resizing


RESIZED = [
    ResampleProblem((1, 5, 4, 3), ((2, 8), (3, 6))),
    ResampleProblem((1, 5, 4, 3), ((2, 7), (3, 2))),
    ResampleProblem((1, 5, 4, 3), ((2, 8), (3, 9)), False),
    ResampleProblem((1, 5, 4, 3), ((2, 3), (3, 5)), False),
    ResampleProblem((2, 3, 5), ((2, 9),)),
    ResampleProblem((2, 5), ((1, 8), (0, 3))),
    ResampleProblem((1, 8, 1, 1), ((2, 4), (3, 3))),
]


@pytest.mark.parametrize("max_image", [None, 8])
def test_resizes(context: Context, max_image: int | None) -> None:
    check(RESIZED, context, Config(max_image=max_image))


# Concatenation


J = ConcatenationProblem
JOINED = [
    J(((1, 8, 3, 4), (1, 4, 3, 4)), 1, True),
    J(((1, 8, 3, 4), (1, 4, 3, 4), (1, 5, 3, 4)), 1, True),
    J(((1, 8, 3, 4), (1, 3, 3, 4), (1, 5, 3, 4), (1, 2, 3, 4)), 1, True),
    J(((1, 3, 3, 4), (1, 3, 3, 4)), 1, True),
    J(((2, 4, 3, 4), (2, 8, 3, 4)), 1, False),
    J(((2, 5, 3, 4), (2, 5, 1, 4)), 2, True),
    J(((2, 5, 3, 4), (2, 5, 3, 1)), 3, False),
    J(((1, 5, 3, 4), (2, 5, 3, 4)), 0, True),
    J(((2, 4), (2, 5)), 1, True),
    J(((2, 3), (2, 5), (2, 1)), 1, False),
    J(((2, 4), (1, 4)), 0, True),
    J(((3,), (4,), (2,)), 0, True),
    J(((2, 3, 4), (2, 5, 4)), 1, True),
    J(((1, 4, 2, 3, 2), (1, 4, 2, 3, 2)), 1, True),
    J(tuple((1, 4, 2, 2) for _ in range(15)), 1, False),
    J(tuple((1, 1, 2, 2) for _ in range(15)), 1, False),
]


def test_concatenations(context: Context, way: tuple[Config, str]) -> None:
    check_way(JOINED[:: 1 + 2 * way[0].float16], context, way)


def test_concatenation_in_place(context: Context) -> None:
    """Parts that begin at whole texels are written where they belong, used again, and joined into a larger one."""
    inputs = {"x": numpy.random.default_rng(1).uniform(-2, 2, (1, 8, 5, 6)).astype(numpy.float32)}
    x, array = Tensor.input("x", (1, 8, 5, 6)), inputs["x"].astype(numpy.float64)
    weights = numpy.eye(8, dtype=numpy.float32).reshape(8, 8, 1, 1)
    a = convolution(x, Tensor.constant(weights), [1, 1], [0] * 4, [1, 1])
    b = convolution(a, Tensor.constant(weights * 2), [1, 1], [0] * 4, [1, 1])
    first = concatenate([a, b], 1)
    c = convolution(first, Tensor.constant(numpy.concatenate([weights, weights], 1)), [1, 1], [0] * 4, [1, 1])
    outputs = {"first": first, "all": concatenate([first, c, a.slice(1, 0, 3)], 1)}
    for max_image in (None, 8):
        _, made = run_tensors(outputs, inputs, context, Config(max_image=max_image))
        joined = numpy.concatenate([array, 2 * array], 1)
        numpy.testing.assert_allclose(made["first"], joined, 1e-6)
        everything = numpy.concatenate([joined, 3 * array, array[:, :3]], 1)
        numpy.testing.assert_allclose(made["all"], everything, 1e-6)


# What is not a float


def test_integers_and_truth(context: Context) -> None:
    random = numpy.random.default_rng(5)
    inputs = {
        "i": random.integers(-40, 40, (3, 5)), "j": random.integers(1, 9, (3, 5)),
        "b": random.integers(0, 2, (3, 5)).astype(bool), "c": random.integers(0, 2, (5,)).astype(bool),
        "u": random.integers(0, 256, (2, 3, 4, 5)).astype(numpy.uint8), "f": numbers_with_halves(),
    }
    i, j, b, c, u, f = (Tensor.input(n, inputs[n].shape, str(inputs[n].dtype)) for n in "ijbcuf")
    ii, jj, bb, cc = inputs["i"], inputs["j"], inputs["b"], inputs["c"]
    outputs = {
        "sum": i + j * 3, "less": less(i, j), "where": where(b, i, j), "and": b.apply("and", c), "not": b.apply("not"),
        "max": i.max([1]), "total": i.sum(), "cast": u.cast("float32") * 0.5, "truth": i.cast("bool"),
        "whole": f.cast("int32"), "moved": u.transpose(0, 2, 3, 1), "big": u.cast("int64") * 60000,
    }
    expected = {
        "sum": ii + jj * 3, "less": ii < jj, "where": numpy.where(bb, ii, jj), "and": bb & cc, "not": ~bb,
        "max": ii.max(1), "total": ii.sum(), "cast": inputs["u"].astype(numpy.float32) / 2, "truth": ii != 0,
        "whole": numpy.trunc(inputs["f"]).astype(numpy.int32), "moved": inputs["u"].transpose(0, 2, 3, 1),
        "big": inputs["u"].astype(numpy.int64) * 60000,
    }
    for config in (Config(), Config(float16=1, max_image=8)):
        _, made = run_tensors(outputs, inputs, context, config)
        for name, want in expected.items():
            assert made[name].dtype == want.dtype, name
            numpy.testing.assert_array_equal(made[name], want, err_msg=f"{name} {config}")


def numbers_with_halves() -> Any:
    return (numpy.arange(-20, 20, dtype=numpy.float32) / 2).reshape(4, 10)


def test_sizes_past_short(context: Context) -> None:
    check(
        [
            LoadProblem((40001,)), M((1, 1, 33000, 1), (("flip", 2),)),
            M((1, 1, 33000, 1), (("take", 2, (32999, 0, 32768)),)),
            M((2, 20000), (("reshape", (40000,)), ("flip", 0))), ReductionProblem((2, 40000), (1,), "max"),
        ],
        context,
    )


# Nothing leaks


POISON = [numpy.nan, numpy.inf, 1e30]


@pytest.mark.parametrize("poison", POISON)
def test_neighbours_do_not_leak(context: Context, poison: float) -> None:
    """A slice next to NaN, infinity or a huge number is what it would be alone, whatever reads it."""
    clean = numpy.random.default_rng(2).uniform(0.5, 2, (2, 5, 4, 3)).astype(numpy.float32)
    dirty = numpy.full((4, 8, 6, 5), poison, numpy.float32)
    dirty[1:3, :5, 1:5, 1:4] = clean

    def outputs(x: Tensor) -> dict[str, Tensor]:
        weights = Tensor.constant(numpy.full((3, 5, 3, 3), 0.25, numpy.float32))
        flat = x.reshape(2, 60)
        return {
            "convolution": x.conv2d(weights, padding=1), "raised": x.exp(),
            "padded": x.pad([1, 1, 1, 1], [1, 2, 1, 1]).exp(),
            "channels": x.sum([1]), "largest": x.max([1, 3]), "image": x.exp().sum([2, 3]), "pool": x.max_pool(3, 2, 1),
            "softmax": x.softmax(1), "joined": concatenate([x, x.exp()], 1), "product": flat @ flat.transpose(),
            "short": x.transpose(0, 2, 3, 1) @ Tensor.constant(numpy.ones((5, 3), numpy.float32)),
            "moved": x.transpose(0, 3, 1, 2), "enlarged": x.upsample(2),
        }

    inner = Tensor.input("x", dirty.shape)
    for axis, (start, stop) in enumerate(((1, 3), (0, 5), (1, 5), (1, 4))):
        inner = inner.slice(axis, start, stop)
    _, alone = run_tensors(outputs(Tensor.input("x", clean.shape)), {"x": clean}, context)
    _, beside = run_tensors(outputs(inner), {"x": dirty}, context, Config(max_image=8))
    for name, want in alone.items():
        assert numpy.isfinite(want).all(), name
        numpy.testing.assert_allclose(beside[name], want, 1e-5, err_msg=name)


def test_padding_after_elementwise_work(context: Context, way: tuple[Config, str]) -> None:
    """exp(0) is not 0: zeros after the work are not zeros before it, and so with a maximum over padded windows."""
    array = numpy.random.default_rng(8).uniform(-2, 0, (2, 5, 4, 3)).astype(numpy.float32)
    x, raised = Tensor.input("x", array.shape), numpy.exp(array.astype(numpy.float64))
    amounts = [(0, 0), (1, 2), (1, 0), (2, 1)]
    before, after = [b for b, _ in amounts], [a for _, a in amounts]
    padded = x.exp().pad(before, after)
    outputs = {
        "padded": padded, "again": padded * 2 + x.pad(before, after, 1.0),
        "summed": x.exp().pool("sum", [3, 3], [1, 1], [1] * 4),
        "largest": (x - 5).pool("max", [3, 3], [2, 2], [1] * 4), "crossed": x.pad(before, after, 2.0).exp(),
    }
    outputs["total"] = padded.sum([1, 2])
    zeros, ones = (numpy.pad(a, amounts, constant_values=c) for a, c in ((raised, 0), (array, 1)))
    ring = numpy.pad(raised, [(0, 0), (0, 0), (1, 1), (1, 1)])
    low = numpy.pad(array - 5.0, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=-numpy.inf)
    taps = [(ky, kx) for ky in range(3) for kx in range(3)]
    expected = {
        "padded": zeros, "again": zeros * 2 + ones, "summed": sum(ring[:, :, y : y + 4, z : z + 3] for y, z in taps),
        "largest": numpy.max([low[:, :, y : y + 3 : 2, z : z + 3 : 2] for y, z in taps], axis=0),
        "crossed": numpy.exp(numpy.pad(array, amounts, constant_values=2)), "total": zeros.sum((1, 2)),
    }
    config = Config(max_image=way[0].max_image)
    _, found = run_tensors(outputs, {"x": array}, context, config, target(context, way[1]))
    for name, want in expected.items():
        numpy.testing.assert_allclose(found[name], want, 1e-5, 1e-5, err_msg=name)


def test_spare_lanes_do_not_leak(context: Context) -> None:
    """log(0) and 1/0 in the lanes past the last channel would turn what reads them into NaN."""
    array = numpy.random.default_rng(4).uniform(0.5, 2, (2, 5, 3, 3)).astype(numpy.float32)
    wide, x = array.astype(numpy.float64), Tensor.input("x", array.shape)
    weights = numpy.random.default_rng(5).uniform(-1, 1, (6, 5, 1, 1)).astype(numpy.float32)
    logs, inverse = x.log(), x.apply("reciprocal")
    eye = Tensor.constant(numpy.eye(5, dtype=numpy.float32))
    outputs = {
        "convolved": convolution(logs, Tensor.constant(weights), [1, 1], [0] * 4, [1, 1]),
        "again": convolution(
            convolution(x, Tensor.constant(weights[:5]), [1, 1], [0] * 4, [1, 1]).apply("absolute").apply("reciprocal"),
            Tensor.constant(weights), [1, 1], [0] * 4, [1, 1],
        ),
        "product": (x.max([2, 3]) @ eye).log() @ eye, "sum": inverse.max_pool(2, 1).sum([1]),
        "joined": concatenate([inverse.max_pool(1, 1), logs.max_pool(1, 1)], 1).sum([1]),
    }
    kernel = weights[:, :, 0, 0].astype(numpy.float64)
    largest = numpy.max([1 / wide[:, :, i : 2 + i, j : 2 + j] for i in (0, 1) for j in (0, 1)], axis=0)
    first = 1 / numpy.abs(numpy.einsum("nchw,oc->nohw", wide, kernel[:5]))
    expected = {
        "convolved": numpy.einsum("nchw,oc->nohw", numpy.log(wide), kernel),
        "again": numpy.einsum("nchw,oc->nohw", first, kernel), "product": numpy.log(wide.max((2, 3))),
        "sum": largest.sum(1), "joined": (1 / wide + numpy.log(wide)).sum(1),
    }
    for max_image in (None, 8):
        _, made = run_tensors(outputs, {"x": array}, context, Config(max_image=max_image))
        for name, want in expected.items():
            numpy.testing.assert_allclose(made[name], want, 1e-4, 1e-5, err_msg=name)
