"""Matrix products and crops, for layers after a data-dependent shape."""

from __future__ import annotations

from typing import Any

import numpy

from imgconv.arrays import Array
from imgconv.host.registry import HostCall, run_composition, host


@host("MatMul")
def matmul(call: HostCall, a: Array, b: Array) -> Any:
    """The matrix product, as in numpy."""
    return numpy.matmul(a, b)


@host("Gemm")
def gemm(call: HostCall, a: Array, b: Array, c: Array | None = None) -> Any:
    """alpha * A * B + beta * C, each transposed if asked for."""
    a, b = a.T if call.flag("transA") else a, b.T if call.flag("transB") else b
    made = a.dtype.type(call.attribute("alpha", 1.0)) * (a @ b)
    return made if c is None else made + a.dtype.type(call.attribute("beta", 1.0)) * c


@host("RoiAlign")
def roi_align(call: HostCall, x: Array, rois: Array, batch: Array) -> Any:
    """The mean of samples in each bin of each region: He et al., arXiv:1703.06870.

    The samples of a bin are a grid, so the mean is a product of weights of rows and weights of columns.
    """
    if call.attribute("mode", "avg") != "avg":
        return run_composition(call, x, rois, batch)
    default = "half_pixel" if call.version >= 16 else "output_half_pixel"
    half = call.attribute("coordinate_transformation_mode", default) == "half_pixel"
    corners = rois * rois.dtype.type(call.attribute("spatial_scale", 1.0)) - rois.dtype.type(0.5 if half else 0)
    bins = call.attribute("output_height", 1), call.attribute("output_width", 1)
    call.check_size((len(rois), x.shape[1], *bins), x.dtype)
    if not len(rois):
        return numpy.zeros((0, x.shape[1], *bins), x.dtype)
    left, top, right, bottom = corners.T
    rows, first_row = _bin_weights(call, top, bottom, bins[0], x.shape[2], half)
    columns, first = _bin_weights(call, left, right, bins[1], x.shape[3], half)
    pictures = numpy.ascontiguousarray(numpy.moveaxis(x, 1, -1))  # products are large with the channels last
    made = numpy.empty((len(rois), *bins, x.shape[1]), x.dtype)
    for number, (picture, y, x_) in enumerate(zip(batch, first_row, first)):
        image = pictures[picture, y : y + rows.shape[2], x_ : x_ + columns.shape[2]]
        by_row = (rows[number, :, : len(image)] @ image.reshape(len(image), -1)).reshape(bins[0], *image.shape[1:])
        made[number] = columns[number, :, : image.shape[1]] @ by_row
    return numpy.moveaxis(made, -1, 1)


def _sample_numbers(call: HostCall, low: Array, distance: Array, size: int, count: Array) -> Array:
    """The numbers of the samples of each bin that may be inside, (regions, bins, samples), of the `count` there are.

    low: where each bin begins. A region that is much larger than the picture has most of its samples outside.
    """
    finite = numpy.isfinite(low) & numpy.isfinite(distance) & (distance > 0)
    before = numpy.where(finite, (-1 - low) / numpy.where(finite, distance, 1), 0)
    first = numpy.clip(numpy.floor(before) - 2, 0, count)
    reached = numpy.where(finite, (size + 1) / numpy.where(finite, distance, 1) + 5, 1)
    most = int(max(numpy.minimum(reached, count).max(), 1))
    call.check_size((*low.shape[:2], most))
    made: Array = first + numpy.arange(most)
    return made


def _bin_weights(call: HostCall, low: Array, high: Array, bins: int, size: int, half: bool) -> tuple[Array, Array]:
    """The weight of each element of an axis in each bin of each region: (regions, bins, elements).

    The elements are those from the first one on that any bin of the region reads; the second result is its number. A
    sample more than one element outside of the axis counts as zero.
    """
    length = (high - low if half else numpy.maximum(high - low, numpy.float32(1)))[:, None, None]
    ratio = call.attribute("sampling_ratio", 0)
    count = numpy.full(length.shape, float(ratio)) if ratio else numpy.nan_to_num(numpy.ceil(length / bins), posinf=0)
    step = length / numpy.float32(bins)
    position = low[:, None, None] + numpy.arange(bins, dtype=numpy.float32)[:, None] * step
    sample = _sample_numbers(call, position, step / numpy.maximum(count, 1), size, count)
    position = position + (sample.astype(numpy.float32) + numpy.float32(0.5)) * step / count.astype(numpy.float32)
    inside = (position >= -1) & (position <= size) & (sample < count)
    held = numpy.clip(numpy.where(inside, position, low[:, None, None]), 0, size - 1)
    floor = numpy.clip(held.astype(numpy.int64), 0, max(size - 2, 0))
    first = floor.min((1, 2))
    at = floor - first[:, None, None]
    weights = numpy.zeros((len(low), bins, int(at.max()) + 2), numpy.float32)
    share = inside / numpy.maximum(count, 1).astype(numpy.float32)
    part = (held - floor).astype(numpy.float32) * share
    region, row = numpy.ogrid[: len(low), :bins]
    numpy.add.at(weights, (region[:, :, None], row[:, :, None], at), (share - part).astype(numpy.float32))
    numpy.add.at(weights, (region[:, :, None], row[:, :, None], at + 1), part.astype(numpy.float32))
    return weights, first
