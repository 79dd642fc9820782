"""Samples feature maps at positions between their elements."""

from __future__ import annotations

import math
from math import prod

import numpy

from imgconv.graph.view import View, axis_variables
from imgconv.ops.registry import Call, operator
from imgconv.tensor import Tensor, elementwise, gather, less, where

CUBIC = -0.75  # Keys' coefficient in ONNX's text
_TAPS = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}
_OLD_MODES = {"bilinear": "linear", "bicubic": "cubic"}


@operator("GridSample")
def grid_sample(call: Call) -> Tensor:
    """x (N, C, D1, .., Dr) at the positions in grid (N, out1, .., outr, r): -1 .. 1, the last axis of x first."""
    x, grid = call.input(0), call.input(1)
    count = x.rank - 2
    given = str(call.attribute("mode", "linear"))
    mode = _OLD_MODES.get(given, given)
    padding = call.choice("padding_mode", "zeros", ("zeros", "border", "reflection"))
    if mode not in _TAPS:
        raise call.wrong(f"mode is {given!r}")
    if count < 1 or grid.rank != x.rank or grid.shape[0] != x.shape[0] or grid.shape[-1] != count:
        raise call.wrong(f"a grid of {list(grid.shape)} for {list(x.shape)}")
    out, aligned = grid.shape[1:-1], call.flag("align_corners")
    limits = [(0.0, n - 1.0) if aligned else (-0.5, n - 0.5) for n in x.shape[2:]]
    centres = []
    for axis, size in enumerate(x.shape[2:]):
        part = grid.slice(grid.rank - 1, count - 1 - axis, count - axis).reshape(grid.shape[0], 1, *out).cast("float32")
        centre = (part + 1) * ((size - 1) / 2) if aligned else (part + 1) * (size / 2) - 0.5
        centres.append(centre.apply("round") if mode == "nearest" else centre)
    indices, weights = [], []
    for axis, centre in enumerate(centres):
        centre = _reflected(centre, limits[axis]) if padding == "reflection" else centre
        spread = centre.reshape(*centre.shape, *[1] * count)
        taps = numpy.array(_TAPS[mode], numpy.float32).reshape([-1 if a == axis else 1 for a in range(count)])
        position = spread.apply("floor") + Tensor.constant(taps)
        weights.append(tap_weight((spread - position).apply("absolute"), mode))
        indices.append(_padded_position(position, padding, limits[axis], x.shape[2 + axis]))
    return weighted_sum(x, indices, weights if mode != "nearest" else [])


def _padded_position(position: Tensor, padding: str, limits: tuple[float, float], size: int) -> Tensor:
    """The position after border or reflection padding; a gather reads zero at a position that stays outside."""
    if padding == "reflection":
        position = _reflected(position, limits)
    return position if padding == "zeros" else position.clip(0, size - 1)


def _reflected(position: Tensor, limits: tuple[float, float]) -> Tensor:
    """The position mirrored at the limits until it lies between them."""
    low, length = limits[0], limits[1] - limits[0]
    if not length:
        return position * 0 + low
    distance = (position - low).apply("modulo", 2 * length)
    return distance.minimum(elementwise("subtract", 2 * length, distance)) + low


def tap_weight(distance: Tensor, mode: str) -> Tensor:
    """The interpolation weight of a tap at that distance; Keys, 1981, for cubic."""
    if mode != "cubic":
        return elementwise("subtract", 1, distance)
    a, d = CUBIC, distance
    near = (d * (a + 2) - (a + 3)) * d * d + 1
    far = ((d * a - 5 * a) * d + 8 * a) * d - 4 * a
    return where(less(1, d), far, near)


def weighted_sum(x: Tensor, indices: list[Tensor], weights: list[Tensor]) -> Tensor:
    """The sum over taps of weight times x at the indices.

    indices and weights: for each spatial axis a tensor (N, 1, out.., taps..), whose taps vary along that axis only.
    """
    count = x.rank - 2
    lead = numpy.broadcast_shapes(*(i.shape for i in indices))
    shape = (x.shape[0], x.shape[1], *lead[2:])
    axes = axis_variables((*shape, *x.shape[2:]))
    read = gather(x, View((*shape, *x.shape[2:]), x.shape, (*axes[:2], *axes[len(shape) :])), indices)
    if not weights:
        return read.reshape(*shape[: 2 + count])
    product = read.cast("float32")
    for weight in weights:
        product = product * weight
    return product.sum(range(2 + count, 2 + 2 * count)).cast(x.dtype)


@operator("AffineGrid")
def affine_grid(call: Call) -> Tensor:
    """theta (N, r, r + 1) times every position (x, y, .., 1) of the given size: (N, D1, .., Dr, r)."""
    theta, size = call.input(0), call.integers(1, "the size") or []
    spatial = size[2:]
    count = len(spatial)
    if count not in (2, 3) or theta.shape != (size[0], count, count + 1):
        raise call.wrong(f"theta of {list(theta.shape)} for the size {size}")
    call.check_length(prod(spatial), "a grid")
    steps = [
        numpy.linspace(-1, 1, n) if call.flag("align_corners") else (numpy.arange(n) * 2 + 1) / n - 1 for n in spatial
    ]
    grids = numpy.meshgrid(*steps, indexing="ij")
    positions = numpy.stack([*(g.ravel() for g in reversed(grids)), numpy.ones(prod(spatial))], axis=1)
    made = Tensor.constant(positions.astype(numpy.float32)).matmul(theta.cast("float32").transpose(0, 2, 1))
    return made.reshape(size[0], *spatial, count).cast(theta.dtype)


@operator("RoiAlign")
def roi_align(call: Call) -> Tensor:
    """The mean or maximum of samples in each bin of each region: (regions, C, output_height, output_width).

    He et al., arXiv:1703.06870. Mode max takes the maximum of the weighted elements, as in ONNX's own examples.
    """
    x, rois, batch = call.input(0), call.input(1), call.input(2)
    if x.rank != 4 or rois.shape[1:] != (4,) or batch.shape != rois.shape[:1]:
        raise call.wrong(f"regions of {list(rois.shape)} and batch_indices of {list(batch.shape)} for {list(x.shape)}")
    default = "half_pixel" if call.version >= 16 else "output_half_pixel"
    half = call.choice("coordinate_transformation_mode", default, ("half_pixel", "output_half_pixel")) == "half_pixel"
    largest = call.choice("mode", "avg", ("avg", "max")) == "max"
    corners = rois.cast("float32") * call.number("spatial_scale", 1.0) - (0.5 if half else 0.0)
    parts = [
        _samples(call, corners, axis, int(call.attribute(name, 1)), x.shape[2 + axis], half)
        for axis, name in enumerate(("output_height", "output_width"))
    ]
    (rows, row_weights, row_count), (columns, column_weights, column_count) = parts
    bins = rows.shape[1], columns.shape[1]
    shape = (rois.shape[0], x.shape[1], *bins, *rows.shape[2:], *columns.shape[2:])

    def by_rows(part: Tensor) -> Tensor:
        return part.reshape(part.shape[0], 1, part.shape[1], 1, *part.shape[2:], 1, 1)

    def by_columns(part: Tensor) -> Tensor:
        return part.reshape(part.shape[0], 1, 1, part.shape[1], 1, 1, *part.shape[2:])

    chosen = (x.shape[0], *x.shape[2:])
    axes = axis_variables((*shape, *chosen))
    seen = View((*shape, *chosen), x.shape, (axes[8], axes[1], axes[9], axes[10]))
    read = gather(x, seen, [batch.reshape(-1, *[1] * 7), by_rows(rows), by_columns(columns)]).cast("float32")
    samples = read * by_rows(row_weights) * by_columns(column_weights)
    stray = less(batch, 0).apply("or", less(batch, x.shape[0]).apply("not")).reshape(-1, 1, 1, 1)
    if not largest:
        count = (row_count * column_count).maximum(1).reshape(-1, 1, 1, 1)
        return _nan_if_no_picture(samples.sum(range(4, 8)) / count, stray).cast(x.dtype)
    last = (by_rows(_sample_index_in_bin(rows)), by_columns(_sample_index_in_bin(columns)))
    for number, limit in zip(last, (row_count, column_count), strict=True):
        samples = where(less(number, limit.reshape(-1, *[1] * 7)), samples, -numpy.inf)
    found = samples.max(range(4, 8))
    return _nan_if_no_picture(where(less(-numpy.inf, found), found, 0), stray).cast(x.dtype)


def _nan_if_no_picture(regions: Tensor, stray: Tensor) -> Tensor:
    """The regions, NaN if they are of a picture that the batch does not have."""
    return regions if stray.is_constant and not stray.numpy().any() else where(stray, math.nan, regions)


def _sample_index_in_bin(positions: Tensor) -> Tensor:
    """(1, 1, samples, 1): the number of each sample within its bin, from 0."""
    return Tensor.constant(numpy.arange(positions.shape[2], dtype=numpy.float32).reshape(1, 1, -1, 1))


def _samples(
    call: Call, corners: Tensor, axis: int, bins: int, size: int, half: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The two elements next to each sample along an axis (regions, bins, samples, 2), their weights, and the number
    of samples in a bin (regions, 1, 1, 1)."""
    start, end = (corners.slice(1, column, column + 1).reshape(-1, 1, 1, 1) for column in (1 - axis, 3 - axis))
    length = end - start if half else (end - start).maximum(1)
    width = length * (1 / bins)
    ratio = int(call.attribute("sampling_ratio", 0))
    if ratio > 0:
        count, most = Tensor.constant(numpy.full((1, 1, 1, 1), ratio, numpy.float32)), ratio
    else:
        known = numpy.ceil(
            call.constant_content(width, "the regions, where sampling_ratio is 0,")).astype(numpy.float32
        )
        count, most = Tensor.constant(known), max(int(known.max(initial=1)), 1)
    call.check_length(max(most * bins, most * start.size), "the samples of an axis")
    number = Tensor.constant(numpy.arange(most, dtype=numpy.float32).reshape(1, 1, -1, 1))
    bin_ = Tensor.constant(numpy.arange(bins, dtype=numpy.float32).reshape(1, -1, 1, 1))
    position = (number + 0.5) / count.maximum(1) * width + (bin_ * width + start)
    inside = less(position, -1).apply("or", less(size, position)).apply("not").apply("and", less(number, count))
    centre = position.clip(0, size - 1)
    element = centre.apply("floor") + Tensor.constant(numpy.arange(2, dtype=numpy.float32))
    weight = elementwise("subtract", 1, (centre - element).apply("absolute"))
    return element, where(inside, weight, 0), count


@operator("MaxRoiPool")
def max_roi_pool(call: Call) -> Tensor:
    """The largest element in each bin of each region (batch, x1, y1, x2, y2); 0 if a bin is empty.

    Girshick, arXiv:1504.08083. Bin borders are rounded outwards to whole elements, so neighbouring bins may overlap.
    """
    x, rois = call.input(0), call.input(1)
    pooled = tuple(call.attribute("pooled_shape", ()))
    if x.rank != 4 or rois.shape[1:] != (5,) or len(pooled) != 2 or min(pooled) < 1:
        raise call.wrong(f"regions of {list(rois.shape)} and pooled_shape {list(pooled)} for {list(x.shape)}")
    count = rois.shape[0]
    scaled = rois.cast("float32") * call.number("spatial_scale", 1.0)
    corners = scaled.apply("sign") * (scaled.apply("absolute") + 0.5).apply("floor")
    shape = (count, *x.shape[1:])
    axes = axis_variables((*shape, x.shape[0]))
    batch = rois.slice(1, 0, 1).reshape(count, 1, 1, 1)
    found = gather(x, View((*shape, x.shape[0]), x.shape, (axes[4], *axes[1:4])), [batch])
    for axis in (3, 2):
        bins, size = call.check_length(pooled[axis - 2], "bins"), x.shape[axis]
        start, end = (corners.slice(1, column, column + 1).reshape(count, 1, 1) for column in (4 - axis, 6 - axis))
        length = (end - start + 1).maximum(1)
        number = Tensor.constant(numpy.arange(bins, dtype=numpy.float32).reshape(1, -1, 1))
        low = (length * number / bins).apply("floor") + start
        high = (length * (number + 1) / bins).apply("ceil") + start
        place = Tensor.constant(numpy.arange(size, dtype=numpy.float32))
        held = less(place, low).apply("not").apply("and", less(place, high))  # (regions, bins, size)
        order = [0, 1, 5 - axis, axis]
        last = found.transpose(*order).reshape(count, x.shape[1], -1, 1, size)
        made = where(held.reshape(count, 1, 1, bins, size), last, -numpy.inf).max([4])
        found = made.transpose(*order)
    return where(less(-numpy.inf, found), found, 0).cast(x.dtype)
