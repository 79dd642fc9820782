"""Generated kernels against float64 numpy: elementwise work, movement, gathers, resizing, concatenation."""

from __future__ import annotations

import itertools
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes
from problems import Problem
from problems.concatenation import ConcatenationProblem
from problems.gather import GatherProblem, gather_problems
from problems.load import BroadcastProblem, LoadProblem
from problems.movement import MovementProblem, movement_problems
from problems.reduction import ReductionProblem
from problems.resample import ResampleProblem
from running import check, check_way, device_settings, run_tensors, target

from imgconv.cl.context import Context
from imgconv.config import Config
from imgconv.graph.expression import FUNCTIONS, LEVEL_SIGMOID
from imgconv.tensor import Tensor, concatenate, convolution, elementwise, less, where

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
# Of the arguments, an array for each, those for which a function is defined.
DEFINED = {
    "saturate": lambda x, low, high: ~numpy.isnan(x) & numpy.isfinite(low) & numpy.isfinite(high) & (low <= high),
    # A device may round the product, to infinity too.
    "multiply_add": lambda a, b, c: numpy.isfinite(a * b) | ~numpy.isfinite(a) | ~numpy.isfinite(b),
    "level_sigmoid": lambda level, scale: numpy.abs(level * scale) <= LEVEL_SIGMOID,
}
LOGIC = {"less", "less_equal", "equal", "not", "and", "or", "xor", "isnan", "isinf"}
ULPS = 16  # the most that OpenCL C allows any of these functions, pow and erf


def arity(operation: str) -> int:
    return sum(f"{{{n}}}" in FUNCTIONS[operation].opencl for n in range(3))


def test_operations(context: Context) -> None:
    """Every operation on every number, pair and triple of numbers and special values, in three lanes of four."""
    inputs: dict[str, Any] = {}
    outputs, expected = {}, {}
    for operation in FUNCTIONS:
        count = arity(operation)
        values = [v for v in [*NUMBERS, *SPECIAL] if not abs(v) > LARGEST.get(operation, numpy.inf)]
        values = INTEGERS.get(operation, values)
        if operation == "modulo":
            values = [v for v in values if numpy.isfinite(v) and abs(v) < 1e6]
        rows = numpy.array(list(itertools.product(values, repeat=count)), numpy.float32)
        if operation in DEFINED:
            with numpy.errstate(all="ignore"):
                rows = rows[DEFINED[operation](*rows.T)]
        rows = numpy.concatenate([rows, rows[: -len(rows) % 3]]).reshape(-1, 3, count)
        tensors = [Tensor.input(f"{operation}{n}", rows.shape[:2]) for n in range(count)]
        inputs |= {t.name or "": rows[..., n] for n, t in enumerate(tensors)}
        made = elementwise(operation, *tensors, dtype="bool" if operation in LOGIC else "float32")
        outputs[operation] = made
        with numpy.errstate(all="ignore"):
            wide = FUNCTIONS[operation].numpy(*(rows[..., n].astype(numpy.float64) for n in range(count)))
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
                if name == "level_sigmoid":  # 1.1e-7, as common.cl says, and the rounding of the result
                    allowed = numpy.maximum(allowed, 1.1e-7 + 2.0**-24)
                if name == "multiply_add":  # a device may round the product
                    product = inputs["multiply_add0"] * inputs["multiply_add1"]
                    allowed = numpy.maximum(allowed, numpy.spacing(numpy.abs(product)))
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


# Resizing


RESIZED = [
    ResampleProblem((1, 5, 4, 3), ((2, 8), (3, 6))),
    ResampleProblem((1, 5, 4, 3), ((2, 7), (3, 2))),
    ResampleProblem((1, 5, 4, 3), ((2, 7), (3, 6)), together=True),
    ResampleProblem((2, 3, 4, 3), ((1, 5), (3, 7)), together=True),
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
