"""Convolutions, products and crops on the host, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from host.test_selection import run_host, run_onnxruntime

from imgconv.arrays import Array


def check(op_type: str, inputs: dict[str, Array], **attributes: Any) -> None:
    (found,), (expected,) = run_host(op_type, inputs, **attributes), run_onnxruntime(op_type, inputs, **attributes)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    # Sums of some 50 products of numbers up to 1, in float.
    numpy.testing.assert_allclose(found, expected, 0, 1e-5)


def drawn(*shape: int) -> Array:
    return numpy.random.default_rng(shape[0]).uniform(-1, 1, shape).astype(numpy.float32)


@pytest.mark.parametrize("how", [
    {}, {"strides": [2, 3], "pads": [1, 0, 2, 1]}, {"strides": [1, 2], "auto_pad": "SAME_UPPER"}, {"group": 2},
    {"dilations": [2, 1]}, {"auto_pad": "SAME_LOWER", "strides": [2, 2]}, {"auto_pad": "VALID"},
])
def test_conv(how: dict[str, Any]) -> None:
    check("Conv", {"x": drawn(2, 4, 9, 8), "w": drawn(6, 4 // how.get("group", 1), 3, 2), "b": drawn(6)}, **how)


def test_conv_of_a_large_tensor() -> None:
    """More work than the import does for a constant."""
    inputs = {"x": drawn(1, 64, 56, 56), "w": drawn(64, 64, 3, 3)}
    (found,), (expected,) = run_host("Conv", inputs), run_onnxruntime("Conv", inputs)
    # onnxruntime adds 576 products of up to 1 in float.
    numpy.testing.assert_allclose(found, expected, 0, 1e-4)


@pytest.mark.parametrize(("size", "window"), [((9,), (3,)), ((5, 6, 4), (2, 3, 1))])
def test_conv_of_other_ranks(size: tuple[int, ...], window: tuple[int, ...]) -> None:
    check("Conv", {"x": drawn(1, 3, *size), "w": drawn(4, 3, *window)})
    check("ConvTranspose", {"x": drawn(1, 3, *size), "w": drawn(3, 4, *window)})


@pytest.mark.parametrize("how", [
    {}, {"strides": [2, 3], "pads": [1, 0, 2, 1]}, {"strides": [2, 2], "output_padding": [1, 0], "dilations": [2, 1]},
    {"group": 2}, {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
])
def test_conv_transpose(how: dict[str, Any]) -> None:
    check("ConvTranspose", {"x": drawn(2, 4, 5, 6), "w": drawn(4, 3, 3, 2), "b": drawn(3 * how.get("group", 1))}, **how)


@pytest.mark.parametrize("count", [0, 1])
def test_no_regions(count: int) -> None:
    """Nothing was found: the second stage has no elements, and its results none."""
    check("Conv", {"x": numpy.zeros((count, 4, 5, 5), "f"), "w": drawn(3, 4, 3, 3)})
    check("Gemm", {"x": numpy.zeros((count, 4), "f"), "w": drawn(3, 4), "b": drawn(3)}, transB=1)


@pytest.mark.parametrize("ratio", [0, 2, 3])
@pytest.mark.parametrize("how", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_roi_align(ratio: int, how: str, scale: float) -> None:
    random = numpy.random.default_rng(3)
    # Regions inside, over the edges, outside, thin, and of no size.
    corner = random.uniform(-4, 14, (40, 2)) / scale
    rois = numpy.concatenate([corner, corner + random.uniform(0, 9, (40, 2)) / scale], 1).astype(numpy.float32)
    rois[0] = [3, 3, 3, 3]
    inputs = {"x": drawn(2, 5, 12, 10), "rois": rois, "batch": random.integers(0, 2, 40)}
    check("RoiAlign", inputs, output_height=3, output_width=4, sampling_ratio=ratio, spatial_scale=scale,
          coordinate_transformation_mode=how)


@pytest.mark.parametrize("rois", [[-3, 2, 1e6, 5], [1, -1e5, 4, 1e5], [-2e6, 0, 6, 3]])
def test_roi_align_of_a_huge_region(rois: list[float]) -> None:
    """Most samples are outside of the picture."""
    inputs = {"x": drawn(1, 2, 8, 9), "rois": numpy.float32([rois, [1, 1, 5, 6]]), "batch": numpy.zeros(2, numpy.int64)}
    check("RoiAlign", inputs, output_height=2, output_width=3)


@pytest.mark.parametrize("corner", [1e12, 1e30, float("inf"), float("nan")])
def test_roi_align_of_an_endless_region(corner: float) -> None:
    rois = numpy.float32([[0, 0, corner, corner]])
    (found,) = run_host("RoiAlign", {"x": drawn(1, 2, 8, 9), "rois": rois, "batch": numpy.zeros(1, numpy.int64)},
                        output_height=2, output_width=3)
    numpy.testing.assert_allclose(found, 0, 0, 1e-6)
