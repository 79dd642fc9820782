"""Resize to the nearest element: which one it is, at ties and near them, does not hang on how tensors are stored."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor
from typing import Any

import numpy
import onnx
import onnxruntime
import onnx.helper
import pytest
from support import make_model, run_oracle

import imgconv
from imgconv.arrays import Array
from imgconv.cl.device import DeviceInfo

COORDINATES, ROUNDINGS = ("asymmetric", "half_pixel"), ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
# By these, coordinates are exact. 2 has ties if they are asymmetric, 0.5 with half pixels; 4 and 0.75 have none.
EXACT = (2.0, 0.5, 4.0, 0.75)
# By these, float32 makes ties of numbers that are none, or has 14.499999 and 14.500001 for 14.5 (0.3 and 1.3).
NEAR = (0.4, 0.7, 0.3, 1.2, 1.3)
SHORT, LONG, LONG_SCALE = 20, 3000, 1.5  # half has not every whole number above 2048


def nearest(before: int, scale: float, coordinates: str, rounding: str) -> list[int]:
    """ONNX's text of Resize in exact arithmetic: the element that each output takes."""
    exact, half, found = Fraction(scale), Fraction(1, 2), []
    for x in range(floor(before * exact)):
        place = x / exact if coordinates == "asymmetric" else (x + half) / exact - half
        rounded = {
            "round_prefer_floor": ceil(place - half), "round_prefer_ceil": floor(place + half),
            "floor": floor(place), "ceil": ceil(place),
        }[rounding]
        found.append(min(max(rounded, 0), before - 1))
    return found


def resizes(cases: dict[str, tuple[str, float, str, str]]) -> onnx.ModelProto:
    """An output for each case: what it reads, its scale, its coordinates and its rounding."""
    nodes, constants = [], dict[str, Any]()
    for name, (read, scale, coordinates, rounding) in cases.items():
        constants[f"{name}_scales"] = numpy.array([1, 1, 1, scale], numpy.float32)
        nodes.append(onnx.helper.make_node(
            "Resize", [read, "", f"{name}_scales"], [name], mode="nearest", nearest_mode=rounding,
            coordinate_transformation_mode=coordinates,
        ))
    return make_model(nodes, inputs(), list(cases), 13, constants)


def inputs() -> dict[str, Array]:
    """Whole numbers that half has."""
    sizes = {"short": SHORT, "long": LONG}
    return {name: (numpy.arange(n) % 2048).reshape(1, 1, 1, n).astype(numpy.float32) for name, n in sizes.items()}


def run(model: onnx.ModelProto, device: DeviceInfo, float16: int) -> dict[str, Array]:
    if float16 == 2 and not device.fp16_arithmetic:
        pytest.skip("the device computes nothing in half")
    return imgconv.load(model, device=device, float16=float16).run(inputs())


@pytest.mark.parametrize("float16", [0, 1, 2])
def test_ties_are_rounded_as_onnx_says(device: DeviceInfo, float16: int) -> None:
    cases = {
        f"{coordinates}_{rounding}_{number}": ("short", scale, coordinates, rounding)
        for coordinates in COORDINATES for rounding in ROUNDINGS for number, scale in enumerate(EXACT)
    }
    found = run(resizes(cases), device, float16)
    for name, (_, scale, coordinates, rounding) in cases.items():
        assert found[name].ravel().tolist() == nearest(SHORT, scale, coordinates, rounding), name


@pytest.mark.parametrize("float16", [0, 1, 2])
def test_near_ties_are_rounded_in_float(device: DeviceInfo, float16: int) -> None:
    if tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 32):
        pytest.skip("the oracle rounds near ties otherwise: 1.23 does, 1.32 does not")
    cases = {
        f"{coordinates}_{rounding}_{number}": ("long" if scale == LONG_SCALE else "short", scale, coordinates, rounding)
        for coordinates in COORDINATES for rounding in ROUNDINGS for number, scale in enumerate((*NEAR, LONG_SCALE))
    }
    model = resizes(cases)
    found, expected = run(model, device, float16), run_oracle(model, inputs())
    for name in cases:
        numpy.testing.assert_array_equal(found[name], expected[name], name)


@pytest.mark.parametrize(("mode", "size", "launches"), [("linear", 8, 1), ("cubic", 8, 2), ("linear", 2000, 2)])
def test_a_bilinear_resize_is_one_launch(device: DeviceInfo, mode: str, size: int, launches: int) -> None:
    """A resize of four taps is one launch, unless the tables of their positions are long."""
    array = numpy.random.default_rng(0).standard_normal((1, 1, 8, size)).astype(numpy.float32)
    scales = numpy.array([1, 1, 2, 2.5], numpy.float32)
    node = onnx.helper.make_node("Resize", ["x", "", "scales"], ["y"], mode=mode)
    proto = make_model([node], {"x": array}, ["y"], 13, {"scales": scales})
    model = imgconv.load(proto, device=device, float16=0)
    assert len(model.plan.launches) == launches
    # Sums of 4 taps an axis, whose weights are at most 1.4 together, of numbers below 5.
    numpy.testing.assert_allclose(model.run({"x": array})["y"], run_oracle(proto, {"x": array})["y"], atol=2e-5)
