"""Long sums of numbers far from zero, against float64: no sum may be made by adding its terms one after the other."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy
import onnx.helper
import pytest
from running import run_graph, target
from support import make_model

from imgconv.cl.context import Context
from imgconv.onnx_import import import_onnx

ROUNDING = 2.0**-24
MEAN, DEVIATION = 0.1, 0.001


def tolerance(terms: int) -> float:
    """The relative error of a sum of positive floats in blocks: of sqrt(n) sums, each of sqrt(n) terms, and their sum.

    Terms of one size added one by one are all rounded in one direction: up to n / 4 units, 1 % for a million terms.
    """
    return (2 * sqrt(terms) + 4) * ROUNDING


def made_by(
    context: Context, kind: str, operator: str, array: Any, constants: dict[str, Any], **attributes: Any
) -> Any:
    """The result of one ONNX node that reads an array and constants, on a device taken for a CPU or a GPU."""
    node = onnx.helper.make_node(operator, ["x", *constants], ["y"], **attributes)
    graph = import_onnx(make_model([node], {"x": array}, ["y"], 21, constants))
    return run_graph(graph, {"x": array}, context, wanted=target(context, kind))[1]["y"]


def numbers(shape: tuple[int, ...], deviation: float) -> Any:
    return numpy.random.default_rng(len(shape)).normal(MEAN, deviation, shape).astype(numpy.float32)


def log_sum_exp(x: Any) -> Any:
    return numpy.log(numpy.exp(x).sum(-1))


# By operator: numpy's meaning along the last axis; each is off by the relative error of one sum of positive numbers.
SUMS = {
    "ReduceSum": lambda x: x.sum(-1),
    "ReduceMean": lambda x: x.mean(-1),
    "ReduceL2": lambda x: numpy.sqrt((x * x).sum(-1)),
    "ReduceLogSumExp": log_sum_exp,
    "GlobalAveragePool": lambda x: x.mean(-1, keepdims=True),
    "Softmax": lambda x: numpy.exp(x - log_sum_exp(x)[..., None]),
}


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
@pytest.mark.parametrize("shape", [(1, 32, 10), (1, 32, 1000), (1, 32, 100_000), (1, 1, 1_000_000)], ids=str)
def test_sums(context: Context, kind: str, shape: tuple[int, ...]) -> None:
    x = numbers(shape, 1e-5)
    for operator, meaning in SUMS.items():
        if operator == "Softmax" and kind == "gpu" and shape[-1] >= 1000:
            continue  # Intel's CPU compiler takes minutes for the unrolled loops of its GPU kernel
        axes = {"axes": numpy.array([2])} if operator.startswith("Reduce") else {}
        attributes = {"keepdims": 0} if operator.startswith("Reduce") else {}
        found = made_by(context, kind, operator, x, axes, **attributes)
        error = numpy.abs(found / meaning(x.astype(numpy.float64)) - 1).max()
        assert error <= tolerance(shape[-1]), f"{operator}: {error:.2e}"


# By operator: constants, attributes, and the axes of one row of (1, 32, height, width).
ROWS: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[int, ...]]] = {
    "InstanceNormalization": ({"s": numpy.ones(32), "b": numpy.zeros(32)}, {"epsilon": 0.0}, (2, 3)),
    "LayerNormalization": ({"s": numpy.ones(1), "b": numpy.zeros(1)}, {"epsilon": 0.0, "axis": 1}, (1, 2, 3)),
    "GroupNormalization": ({"s": numpy.ones(32), "b": numpy.zeros(32)}, {"epsilon": 0.0, "num_groups": 4}, (2, 3)),
    "MeanVarianceNormalization": ({}, {"axes": (0, 2, 3)}, (0, 2, 3)),
}


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
@pytest.mark.parametrize("size", [(2, 5), (20, 50), (250, 400)], ids=str)
@pytest.mark.parametrize("operator", ROWS)
def test_normalisations(context: Context, kind: str, operator: str, size: tuple[int, int]) -> None:
    """The mean is 100 deviations from zero: where it is off by one unit of rounding, the result is off by 100."""
    constants, attributes, axes = ROWS[operator]
    x = numbers((1, 32, *size), DEVIATION)
    found = made_by(
        context, kind, operator, x, {name: a.astype(numpy.float32) for name, a in constants.items()}, **attributes
    )
    wide = x.astype(numpy.float64)
    if operator == "GroupNormalization":
        wide = wide.reshape(1, 4, 8, *size)
        axes = (2, 3, 4)
    centred = wide - wide.mean(axes, keepdims=True)
    expected = (centred / numpy.sqrt((centred**2).mean(axes, keepdims=True))).reshape(x.shape)
    terms = x.size // (32 if axes[0] != 1 else 1)
    error = numpy.abs(found - expected).max()
    most = MEAN / DEVIATION + numpy.abs(expected).max()
    assert error <= tolerance(terms) * most, f"{error:.2e}"


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_few_numbers_that_are_nearly_equal(context: Context, kind: str) -> None:
    """The mean of 1000 and the next float lies between two floats; equal numbers have no deviation at all."""
    x = numpy.full((1, 6, 1, 3), 1000.1, numpy.float32)
    x[0, :4, 0, 1] += numpy.spacing(x[0, :4, 0, 1])
    x[0, 1:3, 0, 2] += 4 * numpy.spacing(x[0, 1:3, 0, 2])
    found = made_by(context, kind, "MeanVarianceNormalization", x, {}, axes=(3,))
    wide = x.astype(numpy.float64)
    expected = (wide - wide.mean(3, keepdims=True)) / (wide.std(3, keepdims=True) + 1e-9)
    assert numpy.abs(found - expected).max() <= 16 * ROUNDING * numpy.abs(expected).max()
