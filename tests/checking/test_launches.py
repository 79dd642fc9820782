"""The check of launches on devices: a launch that is right is never reported, and what covers them."""

from __future__ import annotations

import numpy
import pytest
from test_operators_on_device import FAMILIES, first_cases, running
from operator_cases import Case, model_of

import imgconv
from imgconv.checking.session_checks import check_launches
from imgconv.cl.device import DeviceInfo
from imgconv.tensor import Tensor, build_graph

# Most families that tests/native/test_checks.py does not try in fp16; no quantised ones, whose values stay float.
IN_HALF = (
    "elementwise", "convolution", "normalization", "movement", "indexing", "sampling", "microsoft", "fourier", "linear",
    "folded", "multi head",
)


def reported(case: Case, device: DeviceInfo) -> list[str]:
    """The verdicts on a case's launches in half that are not "right"."""
    loaded = imgconv.load(model_of(case)[0], device=device, float16=1)
    return [f"{case}: {finding}" for _, finding in check_launches(running(loaded)) if finding.verdict != "right"]


def test_sums_that_start_with_a_large_bias(device: DeviceInfo) -> None:
    """Each of many small terms is added to the bias, and rounds at its size."""
    random = numpy.random.default_rng(0)
    weights = Tensor.constant(random.uniform(-1e-5, 1e-5, (8, 1024, 1, 1)).astype(numpy.float32))
    x, bias = Tensor.input("x", (1, 1024, 12, 12)), Tensor.constant(numpy.arange(10, 18).astype(numpy.float32))
    model = imgconv.load(build_graph({"y": x.conv2d(weights, bias)}), device=device)
    findings = [finding for _, finding in check_launches(running(model))]
    assert {finding.verdict for finding in findings} == {"right"}, findings


@pytest.mark.parametrize("dtype", ["uint8", "int32"])
def test_integers_that_are_divided_as_floats(dtype: str, device: DeviceInfo) -> None:
    """A picture of bytes is scaled so: the launch that divides also casts."""
    scaled = Tensor.input("x", (1, 3, 8, 8), dtype).cast("float32") / 255
    model = imgconv.load(build_graph({"y": scaled}), device=device)
    findings = [finding for _, finding in check_launches(running(model))]
    assert {finding.verdict for finding in findings} == {"right"}, findings


@pytest.mark.parametrize("family", IN_HALF)
def test_nothing_is_reported_in_half(family: str, device: DeviceInfo) -> None:
    """Every second operator of a family; test_operators_on_device.py tries all of them in float."""
    lines = [line for case in first_cases(FAMILIES[family])[::2] for line in reported(case, device)]
    assert not [line for line in lines if ": wrong: " in line], "\n".join(lines)
