"""Products, convolutions and crops, for what stands behind a shape that depends on data."""

from __future__ import annotations

from typing import Any

import numpy

from imgconv.arrays import Array
from imgconv.host.registry import HostCall, composed, host


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


@host("Conv")
def conv(call: HostCall, x: Array, w: Array, bias: Array | None = None) -> Any:
    """A convolution as a product: the windows of each group, laid out as columns, times its weights."""
    rank, groups = x.ndim - 2, call.attribute("group", 1)
    window = w.shape[2:]
    strides, spread = (tuple(call.attribute(name, [1] * rank)) for name in ("strides", "dilations"))
    reach = [(k - 1) * d + 1 for k, d in zip(window, spread)]
    pads = _pads(call, x.shape[2:], reach, strides)
    padded = numpy.pad(x, [(0, 0), (0, 0), *pads])
    if any(n < r for n, r in zip(padded.shape[2:], reach)):
        return numpy.zeros((len(x), len(w), *(max((n - r) // s + 1, 0) for n, r, s in zip(
            padded.shape[2:], reach, strides
        ))), x.dtype)
    windows = numpy.lib.stride_tricks.sliding_window_view(padded, reach, tuple(range(2, x.ndim)))
    taken = (slice(None), slice(None), *(slice(None, None, step) for step in (*strides, *spread)))
    seen = windows[taken]
    sizes = seen.shape[2 : 2 + rank]
    call.allow(seen.shape, x.dtype)
    # (n, c, sizes, window) -> (n, group, c/group * window, sizes)
    moved = numpy.moveaxis(seen, range(2, 2 + rank), range(x.ndim, x.ndim + rank))
    columns = moved.reshape(len(x), groups, w[0].size, int(numpy.prod(sizes)))
    made = numpy.matmul(w.reshape(groups, len(w) // groups, -1), columns).reshape(len(x), len(w), *sizes)
    return made if bias is None else made + bias.reshape(-1, *[1] * rank)


def _pads(call: HostCall, sizes: Any, reach: list[int], strides: tuple[int, ...]) -> list[tuple[int, int]]:
    """(before, after) of each spatial axis."""
    rank, mode = len(sizes), call.attribute("auto_pad", "NOTSET")
    if mode in ("NOTSET", "VALID"):
        given = call.attribute("pads", [0] * 2 * rank) if mode == "NOTSET" else [0] * 2 * rank
        return [(given[a], given[rank + a]) for a in range(rank)]
    totals = [max((-(-n // s) - 1) * s + r - n, 0) for n, r, s in zip(sizes, reach, strides)]
    return [(t - t // 2, t // 2) if mode == "SAME_LOWER" else (t // 2, t - t // 2) for t in totals]


@host("ConvTranspose")
def conv_transpose(call: HostCall, x: Array, w: Array, bias: Array | None = None) -> Any:
    """A transposed convolution: each tap of the window adds the product with its weights to the positions it meets."""
    rank, groups = x.ndim - 2, call.attribute("group", 1)
    if call.attribute("auto_pad", "NOTSET") != "NOTSET" or call.attribute("output_shape"):
        return composed(call, x, w, bias)
    strides, spread = (tuple(call.attribute(name, [1] * rank)) for name in ("strides", "dilations"))
    pads, more = call.attribute("pads", [0] * 2 * rank), call.attribute("output_padding", [0] * rank)
    sizes = [(n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(x.shape[2:], strides, w.shape[2:], spread)]
    whole = numpy.zeros((len(x), groups * w.shape[1], *(n + m for n, m in zip(sizes, more))), x.dtype)
    call.allow(whole.shape, x.dtype)
    parts = x.reshape(len(x), groups, x.shape[1] // groups, int(numpy.prod(x.shape[2:])))
    weights = w.reshape(groups, w.shape[0] // groups, w.shape[1], -1)
    for number, tap in enumerate(numpy.ndindex(*w.shape[2:])):
        made = numpy.matmul(weights[..., number].swapaxes(1, 2), parts).reshape(*whole.shape[:2], *x.shape[2:])
        at = tuple(slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, n, s in zip(tap, spread, x.shape[2:], strides))
        place = (slice(None), slice(None), *at)
        whole[place] += made
    crop = (slice(pads[a], whole.shape[2 + a] - pads[rank + a]) for a in range(rank))
    kept = (slice(None), slice(None), *crop)
    made = whole[kept]
    return made if bias is None else made + bias.reshape(-1, *[1] * rank)


@host("RoiAlign")
def roi_align(call: HostCall, x: Array, rois: Array, batch: Array) -> Any:
    """The mean of samples in each bin of each region: He et al., arXiv:1703.06870.

    The samples of a bin are a grid, so the mean is a product of weights of rows and weights of columns.
    """
    if call.attribute("mode", "avg") != "avg":
        return composed(call, x, rois, batch)
    default = "half_pixel" if call.version >= 16 else "output_half_pixel"
    half = call.attribute("coordinate_transformation_mode", default) == "half_pixel"
    corners = rois * rois.dtype.type(call.attribute("spatial_scale", 1.0)) - rois.dtype.type(0.5 if half else 0)
    bins = call.attribute("output_height", 1), call.attribute("output_width", 1)
    call.allow((len(rois), x.shape[1], *bins), x.dtype)
    if not len(rois):
        return numpy.zeros((0, x.shape[1], *bins), x.dtype)
    left, top, right, bottom = corners.T
    rows, first_row = _weights(call, top, bottom, bins[0], x.shape[2], half)
    columns, first = _weights(call, left, right, bins[1], x.shape[3], half)
    pictures = numpy.ascontiguousarray(numpy.moveaxis(x, 1, -1))  # products are large with the channels last
    made = numpy.empty((len(rois), *bins, x.shape[1]), x.dtype)
    for number, (picture, y, x_) in enumerate(zip(batch, first_row, first)):
        image = pictures[picture, y : y + rows.shape[2], x_ : x_ + columns.shape[2]]
        by_row = (rows[number, :, : len(image)] @ image.reshape(len(image), -1)).reshape(bins[0], *image.shape[1:])
        made[number] = columns[number, :, : image.shape[1]] @ by_row
    return numpy.moveaxis(made, -1, 1)


def _samples(call: HostCall, low: Array, distance: Array, size: int, count: Array) -> Array:
    """The numbers of the samples of each bin that may be inside, (regions, bins, samples), of the `count` there are.

    low: where each bin begins. A region that is much larger than the picture has most of its samples outside.
    """
    finite = numpy.isfinite(low) & numpy.isfinite(distance) & (distance > 0)
    before = numpy.where(finite, (-1 - low) / numpy.where(finite, distance, 1), 0)
    first = numpy.clip(numpy.floor(before) - 2, 0, count)
    reached = numpy.where(finite, (size + 1) / numpy.where(finite, distance, 1) + 5, 1)
    most = int(max(numpy.minimum(reached, count).max(), 1))
    call.allow((*low.shape[:2], most))
    made: Array = first + numpy.arange(most)
    return made


def _weights(call: HostCall, low: Array, high: Array, bins: int, size: int, half: bool) -> tuple[Array, Array]:
    """The weight of each element of an axis in each bin of each region: (regions, bins, elements).

    The elements are those from the first one on that any bin of the region reads; the second result is its number. A
    sample more than one element outside of the axis counts as zero.
    """
    length = (high - low if half else numpy.maximum(high - low, numpy.float32(1)))[:, None, None]
    ratio = call.attribute("sampling_ratio", 0)
    count = numpy.full(length.shape, float(ratio)) if ratio else numpy.nan_to_num(numpy.ceil(length / bins), posinf=0)
    step = length / numpy.float32(bins)
    position = low[:, None, None] + numpy.arange(bins, dtype=numpy.float32)[:, None] * step
    sample = _samples(call, position, step / numpy.maximum(count, 1), size, count)
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
