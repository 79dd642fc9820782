"""Softmax and normalisations in one launch, against numpy in float64."""

from __future__ import annotations

import numpy
import pytest
from graphs import assert_near, numbers
from hypothesis import given
from hypothesis import strategies as st
from problems.rows import ROWS, RowsProblem, normalise, rows_problems
from running import check, device_settings, run_tensors, target

from imgconv.cl.context import Context
from imgconv.config import Config
from imgconv.kernels.codegen.row_kernel import BLOCK
from imgconv.tensor import Tensor, concatenate

# Rows across lanes and along them; lanes past the end; kept, walked again, in blocks of sums; one and many to a group.
SHAPES = [
    ((2, 5, 3, 4), (2, 3)), ((2, 5, 3, 4), (1,)), ((2, 8, 3, 4), (1, 2, 3)), ((3, 5, 2), (2,)), ((3, 7), (1,)),
    ((7,), (0,)), ((5, 3, 301), (2,)), ((1, 1, 2, 2047), (3,)), ((3, 2, 130, 16), (2, 3)), ((1, 5, 40, 60), (1, 2, 3)),
    ((600, 5), (0,)),
]
# One sort of work on each shape: the same maximum for two would be made once, in a launch of its own.
PROBLEMS = [
    [RowsProblem(shape, axes, sorted(ROWS)[(number + step) % len(ROWS)]) for number, (shape, axes) in enumerate(SHAPES)]
    for step in range(len(ROWS))
]


@pytest.mark.parametrize("step", range(2))
@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_rows_take_one_launch(context: Context, kind: str, step: int) -> None:
    plan = check(PROBLEMS[step], context, Config(), target(context, kind))
    assert len(plan.compute_launches) == len(PROBLEMS[step]), str(plan)


def test_rows_in_half_and_in_tiles(context: Context) -> None:
    check(PROBLEMS[2], context, Config(float16=1, max_image=32), target(context, "gpu"))
    check(PROBLEMS[3], context, Config(max_image=32))


@device_settings(max_examples=6)
@given(problems=st.lists(rows_problems(), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_drawn_rows(context: Context, problems: list[RowsProblem], seed: int) -> None:
    config = Config(seed % 2, max_image=(None, 8, 32)[seed % 3])
    check(problems, context, config, target(context, ("cpu", "gpu")[seed // 6 % 2]))


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_what_is_kept_is_read_within_the_same_bounds(context: Context, kind: str) -> None:
    """Both halves of the concatenation read `factor` at the same place, and zero where the other half is."""
    x, factor, more = numbers(2, 4, 3, 5), numbers(1, 4, 3, 5, seed=1), numbers(4, 4, 3, 5, seed=2)
    half = Tensor.input("x", x.shape) + Tensor.constant(factor)
    y = normalise(concatenate([half, half], 0) + Tensor.constant(more), (0, 2, 3))
    plan, found = run_tensors({"y": y}, {"x": x}, context, wanted=target(context, kind))
    assert len(plan.compute_launches) == 1, str(plan)
    wide = numpy.concatenate([x + factor] * 2).astype(numpy.float64) + more
    mean, variance = (f((0, 2, 3), keepdims=True) for f in (wide.mean, wide.var))
    assert_near(found["y"], (wide - mean) / numpy.sqrt(variance + 0.1))


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_a_rows_result_that_is_cropped_and_padded(context: Context, kind: str) -> None:
    """The last two rows have zero instead of their own sum."""
    array = numbers(6, 40)
    x = Tensor.input("x", array.shape)
    sums = x.sum([1], keepdims=True).slice(0, 0, 4).pad([0, 0], [2, 0])
    _, found = run_tensors({"y": x - sums}, {"x": array}, context, wanted=target(context, kind))
    wide = array.astype(numpy.float64)
    assert_near(found["y"], wide - numpy.where(numpy.arange(6)[:, None] < 4, wide.sum(1, keepdims=True), 0))


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
@pytest.mark.parametrize(("shape", "axes"), [((16, 1024), (1,)), ((1, 8, 90, 90), (2, 3)), ((4, 40), (1,))], ids=str)
def test_a_large_mean_cancels_nothing(
    context: Context, shape: tuple[int, ...], axes: tuple[int, ...], kind: str
) -> None:
    """A variance that is mean(x**2) - mean**2 would have lost every digit: x**2 is 1e8, a float's unit there is 8.

    A sum of all terms in a row passes 2**26, where each addition of about 10003 is rounded to 10000.
    """
    mean = 10003.0
    array = (mean + numpy.random.default_rng(4).standard_normal(shape)).astype(numpy.float32)
    x = Tensor.input("x", shape)
    _, found = run_tensors({"y": normalise(x, axes)}, {"x": array}, context, wanted=target(context, kind))
    wide = array.astype(numpy.float64)
    expected = (wide - wide.mean(axes, keepdims=True)) / numpy.sqrt(wide.var(axes, keepdims=True) + 0.1)
    # Of the mean, which is a sum in blocks of BLOCK terms and some halvings.
    rounding = (BLOCK + 16) * 2.0**-24 * mean
    numpy.testing.assert_allclose(found["y"], expected, 0, rounding)
