"""Resize and Upsample: along each axis, an output is a weighted sum of a few positions (ONNX's Resize, opset 10 to 19).

Coordinates are computed in float32, as in other engines. A coordinate close to the midpoint between two positions
counts as the midpoint, so that all engines select the same position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, get_args

import numpy

from imgconv.arrays import Array
from imgconv.ops.registry import Call, operator
from imgconv.tensor import TABLE, Tensor, where

Mode = Literal["nearest", "linear", "cubic"]
Coordinates = Literal[
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
]
NearestMode = Literal["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
_Single = numpy.float32
# So near to halfway is halfway: 20 elements resized to 6 by half pixels have one at 14.5, in float32 14.499999.
# onnxruntime's distance.
TIE = 1e-6
TOGETHER = 4  # taps of an output that are summed at once, at most: those of a bilinear resize
WORK = 16  # numbers that the host handles for each output position of an axis
# Functions of coordinates return Any: numpy gives arithmetic on arrays of any dtype no type.


@dataclass(frozen=True)
class Interpolation:
    """The interpolation; the fields are Resize's attributes.

    nearest_mode "by_scale" is the rule of opset 10 and Upsample: floor for an enlargement, ceil for a reduction.
    """

    mode: Mode
    coordinates: Coordinates = "asymmetric"
    nearest_mode: NearestMode | Literal["by_scale"] = "by_scale"
    cubic_coeff_a: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False


@dataclass(frozen=True)
class ResizedAxis:
    """One axis to be resized: its number, sizes before and after, the scale and the region of interest (tf_crop)."""

    number: int
    before: int
    after: int
    scale: numpy.float32
    start: float = 0.0
    end: float = 1.0


@operator("Upsample")
def upsample(call: Call) -> Tensor:
    """Resizes by `scales`, an attribute in opset 7 and an input in opset 9."""
    if call.version > 9:
        raise call.wrong("removed from ONNX in opset 10; use Resize")
    x = call.input(0)
    scales = call.attribute("scales", None) if call.version < 9 else call.required_constant(1, "scales")
    mode = call.choice("mode", "nearest", ("nearest", "linear", "bilinear"))
    if scales is None or numpy.min(scales, initial=1) < 1:
        raise call.wrong(f"needs scales of at least 1, not {scales}")
    method = Interpolation("nearest" if mode == "nearest" else "linear")
    return _resize(call, x, _scaled_axes(call, x, range(x.rank), scales), method)


@operator("Resize")
def resize(call: Call) -> Tensor:
    """Resizes by `scales` or to `sizes`, in every mode and with every coordinate transformation."""
    x = call.input(0)
    if call.version < 11:
        mode: Mode = call.choice("mode", "nearest", ("nearest", "linear"))
        return _resize(
            call, x, _scaled_axes(call, x, range(x.rank), call.required_constant(1, "scales")), Interpolation(mode)
        )
    method = Interpolation(
        call.choice("mode", "nearest", get_args(Mode)),
        call.choice("coordinate_transformation_mode", "half_pixel", get_args(Coordinates)),
        call.choice("nearest_mode", "round_prefer_floor", get_args(NearestMode)),
        call.number("cubic_coeff_a", -0.75),
        call.flag("exclude_outside"),
        call.flag("antialias"),
    )
    axes = _read_axes(call, x, method.coordinates == "tf_crop_and_resize")
    return _resize(call, x, axes, method, call.number("extrapolation_value", 0.0))


def _read_axes(call: Call, x: Tensor, crops: bool) -> list[ResizedAxis]:
    """The axes with their new sizes, from `scales` or `sizes`: the one that is present and not empty."""
    stated = call.attribute("axes", None)
    numbers = call.axes(range(x.rank) if stated is None else stated, x.rank)
    regions, scales, sizes = (call.constant(i, name) for i, name in enumerate(("roi", "scales", "sizes"), 1))
    scales, sizes = (None if v is None or v.size == 0 else v for v in (scales, sizes))
    if (scales is None) == (sizes is None):
        raise call.wrong("needs either scales or sizes")
    if crops and (regions is None or regions.size != 2 * len(numbers)):
        raise call.wrong(f"tf_crop_and_resize needs a roi of {2 * len(numbers)} numbers")
    roi = regions if crops else None
    if sizes is None:
        return _scaled_axes(call, x, numbers, scales, roi)
    return _sized_axes(call, x, numbers, [int(n) for n in sizes], roi)


def _scaled_axes(
    call: Call, x: Tensor, numbers: Sequence[int], scales: Array | None, roi: Array | None = None
) -> list[ResizedAxis]:
    if scales is None or numpy.shape(scales) != (len(numbers),) or min(scales) <= 0:
        raise call.wrong(f"scales {scales} for {len(numbers)} axes")
    axes = []
    for i, (number, scale) in enumerate(zip(numbers, scales, strict=True)):
        start, end = _roi_of_axis(roi, i, len(numbers))
        if end - start != 1:
            raise call.unsupported(
                "tf_crop_and_resize with scales: ONNX's text multiplies the size by the length of the roi, its shape "
                "inference does not; use sizes"
            )
        after = int(_Single(x.shape[number]) * _Single(scale))
        axes.append(ResizedAxis(number, x.shape[number], after, _Single(scale), start, end))
    if any(a.after < 1 for a in axes):
        raise call.wrong(f"scales {list(scales)} leave nothing of {list(x.shape)}")
    return axes


def _sized_axes(
    call: Call, x: Tensor, numbers: Sequence[int], sizes: Sequence[int], roi: Array | None
) -> list[ResizedAxis]:
    if len(sizes) != len(numbers) or min(sizes) < 1:
        raise call.wrong(f"sizes {list(sizes)} for {len(numbers)} axes")
    scales = [_Single(n) / _Single(x.shape[a]) for n, a in zip(sizes, numbers, strict=True)]
    policy = call.choice("keep_aspect_ratio_policy", "stretch", ("stretch", "not_larger", "not_smaller"))
    if policy != "stretch":
        common = min(scales) if policy == "not_larger" else max(scales)
        scales = [common] * len(numbers)
        sizes = [int(numpy.floor(common * _Single(x.shape[a]) + _Single(0.5))) for a in numbers]
    return [
        ResizedAxis(a, x.shape[a], size, scale, *_roi_of_axis(roi, i, len(numbers)))
        for i, (a, size, scale) in enumerate(zip(numbers, sizes, scales, strict=True))
    ]


def _roi_of_axis(roi: Array | None, i: int, count: int) -> tuple[float, float]:
    return (0.0, 1.0) if roi is None else (float(roi[i]), float(roi[count + i]))


def _resize(
    call: Call, x: Tensor, axes: Sequence[ResizedAxis], method: Interpolation, extrapolation: float = 0.0
) -> Tensor:
    if method.mode != "nearest":
        call.refuse_integers(x)
    outside, taps = numpy.zeros((1,) * x.rank, bool), dict[int, tuple[Any, Any]]()
    for axis in axes:
        call.check_length(WORK * axis.after, f"tables for axis {axis.number}")
        crops = method.coordinates == "tf_crop_and_resize"
        if axis.scale == 1 and axis.before == axis.after and not crops:
            continue
        where_ = _input_coordinates(axis, method.coordinates)
        taps[axis.number] = _taps(axis, where_, method)
        if crops:
            beyond = (where_ < 0) | (where_ > axis.before - 1)
            outside = outside | beyond.reshape([-1 if a == axis.number else 1 for a in range(x.rank)])
    x = _resampled(x, taps)
    return where(Tensor.constant(outside), extrapolation, x) if outside.any() else x


def _resampled(x: Tensor, taps: Mapping[int, tuple[Any, Any]]) -> Tensor:
    """Axis after axis; those of few taps together, which costs a few more reads, and saves a launch and a tensor.

    Each axis has a table of its positions in the kernel's text.
    """
    counts = {axis: max(1, int(numpy.any(weights != 0, axis=0).sum())) for axis, (_, weights) in taps.items()}
    entries = sum(count * len(taps[axis][0]) for axis, count in counts.items())
    if prod(counts.values()) <= TOGETHER and entries <= 2 * TABLE:
        return x.resample(taps)
    for axis, each in taps.items():
        x = x.resample({axis: each})
    return x


def _input_coordinates(axis: ResizedAxis, coordinates: Coordinates) -> Any:
    """The input coordinate of each output position."""
    x, half, n = numpy.arange(axis.after, dtype=_Single), _Single(0.5), _Single(axis.before)
    scale, resized = axis.scale, _Single(axis.after)
    if coordinates == "asymmetric":
        return x / scale
    if coordinates == "tf_half_pixel_for_nn":
        return (x + half) / scale
    if coordinates == "align_corners":
        return x * (n - 1) / (resized - 1) if axis.after > 1 else x * 0
    if coordinates == "tf_crop_and_resize":
        start, end = _Single(axis.start), _Single(axis.end)
        if axis.after == 1:
            return x + half * (start + end) * (n - 1)
        return start * (n - 1) + x * (end - start) * (n - 1) / (resized - 1)
    if coordinates == "pytorch_half_pixel" and axis.after == 1:
        return x * 0
    centred = (x + half) / scale - half
    if coordinates == "half_pixel_symmetric":
        # If the output size was rounded down, half of the remaining margin lies at each end.
        return n / 2 * (1 - resized / (scale * n)) + centred
    return centred


def _taps(axis: ResizedAxis, coordinate: Array, method: Interpolation) -> tuple[Any, Any]:
    """Positions and weights, each (outputs, taps)."""
    if method.mode == "nearest":
        nearest = _nearest(coordinate, method.nearest_mode, reduces=bool(axis.scale < 1))
        return numpy.clip(nearest, 0, axis.before - 1)[:, None], numpy.ones((axis.after, 1))
    stretch = min(float(axis.scale), 1.0) if method.antialias else 1.0
    reach = 1 if method.mode == "linear" else 2
    first = int(numpy.floor(-reach / stretch)) + 1
    base = numpy.floor(coordinate).astype(int)
    positions = base[:, None] + numpy.arange(first, 2 - first)
    distance = (positions - coordinate.astype(float)[:, None]) * stretch
    weights = _triangle(distance) if method.mode == "linear" else _cubic(distance, method.cubic_coeff_a)
    inside = (positions >= 0) & (positions < axis.before)
    if method.exclude_outside:
        weights = weights * inside
    if method.exclude_outside or stretch < 1:
        weights = weights / weights.sum(axis=1, keepdims=True)
    return numpy.clip(positions, 0, axis.before - 1), weights


def _nearest(coordinate: Array, nearest_mode: NearestMode | Literal["by_scale"], reduces: bool) -> Any:
    if nearest_mode == "by_scale":
        nearest_mode = "ceil" if reduces else "floor"
    if nearest_mode.startswith("round"):
        below = numpy.floor(coordinate)
        above_half = coordinate - below - _Single(0.5)
        is_tie = numpy.abs(above_half) <= TIE
        return (below + numpy.where(is_tie, nearest_mode == "round_prefer_ceil", above_half > 0)).astype(int)
    return (numpy.ceil if nearest_mode == "ceil" else numpy.floor)(coordinate).astype(int)


def _triangle(distance: Array) -> Any:
    """Linear interpolation: 1 - |t| for |t| < 1."""
    return numpy.maximum(1 - numpy.abs(distance), 0)


def _cubic(distance: Array, a: float) -> Any:
    """The cubic convolution kernel; Keys, 1981, doi:10.1109/TASSP.1981.1163711."""
    t = numpy.abs(distance)
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return numpy.where(t <= 1, near, numpy.where(t < 2, far, 0))
