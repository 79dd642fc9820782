"""Pooling: the maximum, mean or p-norm of sliding windows, or of all spatial axes."""

from __future__ import annotations

from functools import reduce
from math import prod
from operator import add

import numpy

from imgconv.ops.registry import Call, operator
from imgconv.ops.window import Window, read_window
from imgconv.tensor import EXACT, Tensor


@operator("MaxPool")
def max_pool(call: Call) -> list[Tensor]:
    """The largest element of each window, and its index in the flattened input; padding is never the largest."""
    x = call.input(0)
    window = _window(call, x)
    largest = x.pool("max", window.kernel, window.strides, window.pads, window.dilations, window.sizes)
    return [largest, _argmax_indices(call, x, window)] if call.is_output_used(1) else [largest]


def _argmax_indices(call: Call, x: Tensor, window: Window) -> Tensor:
    """The index of each window's first largest element in the flattened input.

    With storage_order 1 the spatial axes of a channel are flattened in column-major order: the first varies fastest.
    """
    if x.size > EXACT:
        raise call.unsupported(f"Indices of {x.size} elements, more than 2**24: integers are fp32 values on the device")
    spatial, count = x.shape[2:], len(window.kernel)
    steps = [prod(spatial[:i]) if call.flag("storage_order") else prod(spatial[i + 1 :]) for i in range(count)]
    tap = x.pool("argmax", window.kernel, window.strides, window.pads, window.dilations, window.sizes)
    places = list[Tensor]()
    for i in reversed(range(count)):
        size = window.kernel[i]
        begins = numpy.arange(window.sizes[i]) * window.strides[i] - window.pads[i]
        begin = Tensor.constant(begins.reshape([-1 if a == i else 1 for a in range(count)]) * steps[i])
        places.append(tap.apply("modulo", size) * (window.dilations[i] * steps[i]) + begin)
        tap = tap.apply("quotient", size)
    channels = numpy.arange(prod(x.shape[:2])).reshape(*x.shape[:2], *[1] * count) * prod(spatial)
    return reduce(add, places) + Tensor.constant(channels)


@operator("AveragePool")
def average_pool(call: Call) -> Tensor:
    """The mean of each window, without the padding unless count_include_pad."""
    x = call.input(0)
    window = _window(call, x)
    call.check_length(max(k * n for k, n in zip(window.kernel, window.sizes, strict=True)), "the positions of an axis")
    counts = _elements_per_window(window, x.shape[2:], call.flag("count_include_pad"))
    if not counts.all():
        raise call.wrong(f"pads {list(window.pads)} make windows that hold nothing but padding")
    same = numpy.all(counts == counts.flat[0])
    scale = 1 / counts.flat[0] if same else Tensor.constant((1 / counts).astype(numpy.float32))
    return x.pool("sum", window.kernel, window.strides, window.pads, window.dilations, window.sizes, scale)


@operator("GlobalAveragePool")
def global_average_pool(call: Call) -> Tensor:
    """The mean over all spatial axes, which keep length 1."""
    x = _spatial_input(call)
    return x.mean(range(2, x.rank), keepdims=True)


@operator("GlobalMaxPool")
def global_max_pool(call: Call) -> Tensor:
    """The largest element over all spatial axes, which keep length 1."""
    x = _spatial_input(call)
    return x.max(range(2, x.rank), keepdims=True)


@operator("LpPool")
def lp_pool(call: Call) -> Tensor:
    """(sum of |x|^p)^(1/p) of each window."""
    x, p = _spatial_input(call), int(call.attribute("p", 2))
    window = _window(call, x)
    total = _to_power_p(x, p).pool("sum", window.kernel, window.strides, window.pads, window.dilations, window.sizes)
    return _pth_root(total, p).cast(x.dtype)


@operator("GlobalLpPool")
def global_lp_pool(call: Call) -> Tensor:
    """(sum of |x|^p)^(1/p) over all spatial axes, which keep length 1."""
    x, p = _spatial_input(call), int(call.attribute("p", 2))
    return _pth_root(_to_power_p(x, p).sum(range(2, x.rank), keepdims=True), p).cast(x.dtype)


def _to_power_p(x: Tensor, p: int) -> Tensor:
    wide = x.cast("float32")
    return wide * wide if p == 2 else wide.apply("absolute") ** p if p != 1 else wide.apply("absolute")


def _pth_root(total: Tensor, p: int) -> Tensor:
    return total.sqrt() if p == 2 else total ** (1 / p) if p != 1 else total


def _spatial_input(call: Call) -> Tensor:
    x = call.input(0)
    if x.rank < 3:
        raise call.wrong(f"input of shape {list(x.shape)} has no spatial axis")
    if 0 in x.shape[2:]:
        raise call.wrong(f"zero-size pictures: {list(x.shape)}")
    return x


def _window(call: Call, x: Tensor) -> Window:
    return read_window(call, _spatial_input(call).shape[2:], call.attribute("kernel_shape", ()))


def _elements_per_window(window: Window, spatial: tuple[int, ...], with_padding: bool) -> numpy.ndarray:
    """Returns the number of elements in each output's mean, without positions that ceil_mode adds past the padding."""
    counts = numpy.ones((1,) * len(spatial))
    for i, size in enumerate(spatial):
        before, after = window.pads[i], window.pads[len(spatial) + i]
        taps = numpy.arange(window.kernel[i]) * window.dilations[i]
        positions = numpy.arange(window.sizes[i])[:, None] * window.strides[i] + taps - before
        low, high = (-before, size + after) if with_padding else (0, size)
        counted = ((positions >= low) & (positions < high)).sum(axis=1)
        counts = counts * counted.reshape([-1 if a == i else 1 for a in range(len(spatial))])
    return counts
