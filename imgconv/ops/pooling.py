"""Pooling: the largest element or the mean of sliding windows, or of a whole picture."""

from __future__ import annotations

import numpy

from imgconv.ops.registry import Call, operator
from imgconv.ops.window import Window, read_window
from imgconv.tensor import Tensor


@operator("MaxPool")
def max_pool(call: Call) -> Tensor:
    """The largest element of each window; padding never wins."""
    if call.wants(1):
        raise call.unsupported("the second output (Indices)")
    x = call.input(0)
    window = _window(call, x)
    return x.pool("max", window.kernel, window.strides, window.pads, window.dilations, window.sizes)


@operator("AveragePool")
def average_pool(call: Call) -> Tensor:
    """The mean of each window, without the padding unless count_include_pad."""
    x = call.input(0)
    window = _window(call, x)
    counts = _counts(window, x.shape[2:], call.flag("count_include_pad"))
    if not counts.all():
        raise call.wrong(f"pads {list(window.pads)} make windows that hold nothing but padding")
    same = numpy.all(counts == counts.flat[0])
    scale = 1 / counts.flat[0] if same else Tensor.constant((1 / counts).astype(numpy.float32))
    return x.pool("sum", window.kernel, window.strides, window.pads, window.dilations, window.sizes, scale)


@operator("GlobalAveragePool")
def global_average_pool(call: Call) -> Tensor:
    """The mean over all spatial axes, which stay with length 1."""
    x = _picture(call)
    return x.mean(range(2, x.rank), keepdims=True)


@operator("GlobalMaxPool")
def global_max_pool(call: Call) -> Tensor:
    """The largest element over all spatial axes, which stay with length 1."""
    x = _picture(call)
    return x.max(range(2, x.rank), keepdims=True)


def _picture(call: Call) -> Tensor:
    x = call.input(0)
    if x.rank < 3:
        raise call.wrong(f"input of shape {list(x.shape)} has no spatial axis")
    return x


def _window(call: Call, x: Tensor) -> Window:
    return read_window(call, _picture(call).shape[2:], call.attribute("kernel_shape", ()))


def _counts(window: Window, spatial: tuple[int, ...], with_padding: bool) -> numpy.ndarray:
    """How many elements each output is the mean of; what ceil_mode adds past the padding never counts."""
    counts = numpy.ones((1,) * len(spatial))
    for i, size in enumerate(spatial):
        before, after = window.pads[i], window.pads[len(spatial) + i]
        taps = numpy.arange(window.kernel[i]) * window.dilations[i]
        positions = numpy.arange(window.sizes[i])[:, None] * window.strides[i] + taps - before
        low, high = (-before, size + after) if with_padding else (0, size)
        counted = ((positions >= low) & (positions < high)).sum(axis=1)
        counts = counts * counted.reshape([-1 if a == i else 1 for a in range(len(spatial))])
    return counts
