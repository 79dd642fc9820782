"""Normalisations of long rows in two launches, against numpy in float64."""

from __future__ import annotations

from typing import Any

import numpy
import onnx
import onnx.helper
import pytest
from graphs import assert_near, numbers
from hypothesis import given
from hypothesis import strategies as st
from problems.rows import RowsProblem, normalise, rows_problems
from running import check, device_settings, run_tensors, target
from support import make_model

import imgconv
from imgconv.cl.context import Context
from imgconv.cl.device import DeviceInfo
from imgconv.compiling.plan import Plan
from imgconv.config import Config
from imgconv.kernels.codegen import moments
from imgconv.tensor import Tensor

# Channels in the lanes and in the row; lanes past the end; batches; groups of channels; rows that no part divides.
SHAPES = [
    ((2, 8, 33, 20), (2, 3)), ((1, 5, 24, 31), (2, 3)), ((2, 8, 20, 21), (1, 2, 3)), ((1, 5, 40, 30), (1, 2, 3)),
    ((2, 3, 8, 21, 17), (2, 3, 4)), ((3, 2000), (1,)), ((36, 16, 20), (1, 2)), ((1, 40, 700), (2,)),
]
PROBLEMS = [RowsProblem(shape, axes, "normalise") for shape, axes in SHAPES]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a few texels count as long."""
    monkeypatch.setattr(moments, "LONGEST_WALK", {"cpu": 3, "gpu": 0})
    monkeypatch.setattr(moments, "FEWEST_STEPS", {"cpu": 5, "gpu": 2})


def applied(plan: Plan) -> int:
    """Returns the number of normalisations that have two launches."""
    return sum(launch.name.endswith(".parts") for launch in plan.launches)


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_long_rows_take_two_launches(context: Context, kind: str, short: None) -> None:
    plan = check(PROBLEMS, context, Config(), target(context, kind))
    assert applied(plan) == len(PROBLEMS) and len(plan.compute_launches) == 2 * len(PROBLEMS), str(plan)


def test_in_half_and_in_tiles(context: Context, short: None) -> None:
    for problems, config, kind in (
        (PROBLEMS[::2], Config(float16=1), "gpu"), (PROBLEMS[1::2], Config(max_image=32), "gpu"),
        (PROBLEMS[1::3], Config(float16=1, max_image=32), "cpu"),
    ):
        assert applied(check(problems, context, config, target(context, kind))) == len(problems)


@device_settings(max_examples=8)
@given(problems=st.lists(rows_problems(), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_drawn_rows(context: Context, problems: list[RowsProblem], seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moments, "LONGEST_WALK", {"cpu": 0, "gpu": 0})
        patch.setattr(moments, "FEWEST_STEPS", {"cpu": 1, "gpu": 1})
        normalised = [RowsProblem(p.shape, p.axes, "normalise") for p in problems]
        config = Config(seed % 2, max_image=(None, 8, 32)[seed % 3])
        check(normalised, context, config, target(context, ("cpu", "gpu")[seed // 6 % 2]))


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_a_picture_that_is_cropped_and_joined_by_another(context: Context, kind: str) -> None:
    """The crop, the addition and the clip are parts of the normalisation's launches: a real size, no patch."""
    x, z = numbers(1, 8, 200, 202), numbers(1, 8, 198, 200, seed=1)
    cropped = Tensor.input("x", x.shape).slice(2, 1, 199).slice(3, 1, 201)
    y = (normalise(cropped, (2, 3)) + Tensor.input("z", z.shape)).relu()
    plan, found = run_tensors({"y": y}, {"x": x, "z": z}, context, wanted=target(context, kind))
    assert applied(plan) == 1, str(plan)
    wide = x.astype(numpy.float64)[:, :, 1:199, 1:201]
    assert_near(found["y"], numpy.maximum(standard(wide, (2, 3)) + z, 0))


def standard(x: Any, axes: tuple[int, ...]) -> Any:
    """(x - mean) / sqrt(variance + 0.1)."""
    return (x - x.mean(axes, keepdims=True)) / numpy.sqrt(x.var(axes, keepdims=True) + 0.1)


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_a_value_far_from_all_others(context: Context, kind: str) -> None:
    """The first value is what differences are taken from at first: here it is 1000 deviations from the mean."""
    x = numbers(1, 4, 180, 200) + 100
    x[:, :, 0, 0] = -900
    plan, found = run_tensors(
        {"y": normalise(Tensor.input("x", x.shape), (2, 3))}, {"x": x}, context, wanted=target(context, kind)
    )
    assert applied(plan) == 1, str(plan)
    assert_near(found["y"], standard(x.astype(numpy.float64), (2, 3)))


def test_rows_that_are_summed_otherwise_take_launches_as_before(context: Context, short: None) -> None:
    """A mean square without the mean, a mean that is an output itself, and differences of another texture."""
    x, w = numbers(1, 8, 30, 30), numbers(1, 8, 30, 30, seed=1)
    read, other = Tensor.input("x", x.shape), Tensor.input("w", w.shape)
    mean, half = read.mean([2, 3], keepdims=True), (read * 0.5).mean([2, 3], keepdims=True)
    difference = other - half
    outputs = {
        "y": read / ((read * read).mean([2, 3], keepdims=True) + 1.0).sqrt(),
        "v": read / ((difference * difference).mean([2, 3], keepdims=True) + half + 1.0).sqrt(), "m": mean,
        "z": (read - mean) / (((read - mean) * (read - mean)).mean([2, 3], keepdims=True) + 0.1).sqrt(),
    }
    plan, found = run_tensors(outputs, {"x": x, "w": w}, context)
    assert applied(plan) == 0
    wide = x.astype(numpy.float64)
    average = wide.mean((2, 3), keepdims=True) / 2
    spread = ((w - average) ** 2).mean((2, 3), keepdims=True) + average
    assert_near(found["v"], wide / numpy.sqrt(spread + 1))
    assert_near(found["z"], standard(x.astype(numpy.float64), (2, 3)))


# Nearly equal numbers. The sums and the mean are rounded to float, so that what is centred may be off by two distances
# of floats there, in parts of the standard deviation. onnxruntime's MeanVarianceNormalization is off by up to the whole
# result or NaN for such rows, so float64 decides.


@pytest.mark.parametrize("base", [0.5, 100.0])
@pytest.mark.parametrize("width", [2, 16, 200])
@pytest.mark.parametrize("op_type", ["MeanVarianceNormalization", "InstanceNormalization", "LayerNormalization"])
def test_nearly_equal_numbers(device: DeviceInfo, op_type: str, width: int, base: float) -> None:
    shape, distance, random = (1, 2, width, width), numpy.spacing(numpy.float32(base)), numpy.random.default_rng(width)
    x = (base + distance * random.integers(-16, 17, shape)).astype(numpy.float32)
    ends = {"InstanceNormalization": (2,), "LayerNormalization": shape[2:]}.get(op_type)
    weights = {} if ends is None else {"s": numpy.ones(ends, numpy.float32), "b": numpy.zeros(ends, numpy.float32)}
    node = onnx.helper.make_node(
        op_type, ["x", *weights], ["y"], **({"epsilon": 1e-15} if weights else {"axes": [2, 3]}),
        **({"axis": 2} if op_type == "LayerNormalization" else {}),
    )
    model = make_model([node], {"x": x}, ["y"], 17, weights)
    found = imgconv.load(model, device=device).run({"x": x})["y"]
    wide = x.astype(float)
    centred = wide - wide.mean((2, 3), keepdims=True)
    deviation = centred.std((2, 3), keepdims=True)
    want = centred / (deviation + 1e-9) if not weights else centred / numpy.sqrt(deviation**2 + 1e-15)
    exact = op_type == "MeanVarianceNormalization" and width**2 <= 1024  # its mean is subtracted twice
    assert abs(found - want).max() <= (1e-6 * abs(want).max() if exact else 2 * (distance / deviation).max())
