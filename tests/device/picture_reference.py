"""Pictures to prepare, and what preparing one gives: float64 numpy that shares no code with imgconv."""

from __future__ import annotations

from typing import Any

import numpy

import imgconv
from imgconv.preprocessing.stage import YUV, array_dtype, array_shape
from imgconv.preprocess import Preparation
from imgconv.tensor import Tensor, build_graph

FLOAT = 2e-3  # how far sums in float may be off, in parts of 255 before normalisation
Size = tuple[int, int]


def passing(width: int, height: int, channels: int = 3) -> imgconv.graph.nodes.Graph:
    """A model that gives its input."""
    return build_graph({"y": Tensor.input("x", (1, channels, height, width)).maximum(-1e9)})


def draw(format: str, size: Size, low: int = 0, high: int = 255) -> Any:
    """Noise, the same for the same size."""
    random = numpy.random.default_rng(size)
    if format == "p010":
        return (random.integers(4 * low, 4 * high + 4, array_shape(format, size)) * 64).astype(array_dtype(format))
    return random.integers(low, high + 1, array_shape(format, size), numpy.uint8)


# The reference: every output pixel weighs all pixels of the picture


def kernel(name: str, t: Any) -> Any:
    t = abs(t)
    if name == "area":
        return (t < 0.5) * 1.0
    if name == "bicubic":
        inner, outer = 1.5 * t**3 - 2.5 * t**2 + 1, -0.5 * t**3 + 2.5 * t**2 - 4 * t + 2
        return numpy.where(t <= 1, inner, numpy.where(t <= 2, outer, 0.0))
    return numpy.clip(1 - t, 0, None)


def resize_matrix(before: int, after: int, start: float, stop: float, name: str) -> Any:
    step = (stop - start) / after
    wide = step if step > 1 and name != "bilinear" else 1.0
    matrix = numpy.zeros((after, before))
    for o in range(after):
        matrix[o] = kernel(name, (numpy.arange(before) + 0.5 - (start + (o + 0.5) * step)) / wide)
    return matrix / matrix.sum(1, keepdims=True)


def reference(array: Any, size: Size, how: Preparation) -> Any:
    """The model's input (1, C, H, W) in float64."""
    a = array.astype(numpy.float64)
    planes = planes_of(a, how)
    height, width = planes[0].shape
    left, top, right, bottom, (w, h) = 0.0, 0.0, float(width), float(height), size
    if how.resize == "letterbox":
        ratio = min(w / width, h / height)
        w, h = max(1, int(width * ratio)), max(1, int(height * ratio))
    elif how.resize == "crop":
        ratio = max(w / width, h / height)
        left, top = (width - w / ratio) / 2, (height - h / ratio) / 2
        right, bottom = width - left, height - top
        left, right = (left + right - (right - left) * how.crop) / 2, (left + right + (right - left) * how.crop) / 2
        top, bottom = (top + bottom - (bottom - top) * how.crop) / 2, (top + bottom + (bottom - top) * how.crop) / 2
    made = []
    for plane in planes:
        rows, columns = plane.shape[0] / height, plane.shape[1] / width
        down = resize_matrix(plane.shape[0], h, top * rows, bottom * rows, how.filter)
        across = resize_matrix(plane.shape[1], w, left * columns, right * columns, how.filter)
        scaled = down @ plane @ across.T
        # The largest code of 10 bits, 1023, is 1023 / 4 on the scale of bytes; full range is scaled to 255.
        largest = 255 if how.format != "p010" or how.colors.endswith("full") else 1023 / 4
        made.append(scaled.clip(0, largest) if how.filter == "bicubic" else scaled)
    middle = 512 * 255 / 1023 if how.format == "p010" and how.colors.endswith("full") else 128
    rgb = to_rgb(made, how.colors, middle) if how.format in YUV else made * (4 - len(made)) if len(made) == 1 else made
    if how.order == "y":
        standard = (0.2126, 0.7152, 0.0722) if how.colors.startswith("bt709") else (0.299, 0.587, 0.114)
        channels = [made[0]] if how.format == "grey" else [sum(k * c for k, c in zip(standard, rgb))]
        if how.format in YUV:
            channels = [made[0] if how.colors.endswith("full") else ((made[0] - 16) / 219 * 255).clip(0, 255)]
    else:
        channels = list(reversed(rgb)) if how.order == "bgr" else list(rgb)
    boxed = numpy.full((1, len(channels), size[1], size[0]), float(how.pad))
    for c, channel in enumerate(channels):
        boxed[0, c, :h, :w] = channel
    columns_of = [numpy.reshape(numpy.broadcast_to(v, len(channels)), (1, -1, 1, 1)) for v in (how.mean, how.std)]
    return (boxed * how.scale - columns_of[0]) / columns_of[1]


def planes_of(a: Any, how: Preparation) -> list[Any]:
    """Y, U and V, or red, green and blue, or grey alone, as bytes would have them."""
    if how.format == "yuyv":
        return [a[..., 0], a[:, 0::2, 1], a[:, 1::2, 1]]
    if how.format not in YUV:
        planes = [a] if a.ndim == 2 else [a[..., 0], a[..., 1], a[..., 2]]
        return planes[::-1] if how.format == "bgr" else planes
    height, width = a.shape[0] * 2 // 3, a.shape[1]
    if how.format == "i420":
        u, v = a[height:].reshape(2, height // 2, width // 2)
    else:
        u, v = a[height:, 0::2], a[height:, 1::2]
    if how.format == "p010":  # ten bits at the upper end; white of full range is 1023, and the middle of colors 512
        if how.colors.endswith("full"):
            return [plane / 64 * 255 / 1023 for plane in (a[:height], u, v)]
        return [a[:height] / 256, u / 256, v / 256]
    return [a[:height], v, u] if how.format == "nv21" else [a[:height], u, v]


def to_rgb(planes: list[Any], colors: str, middle: float) -> list[Any]:
    """The matrices as their standards print them, to four digits and better."""
    y, u, v = planes[0], planes[1] - middle, planes[2] - middle
    if not colors.endswith("full"):
        y, u, v = (y - 16) * 255 / 219, u * 255 / 224, v * 255 / 224
    if colors.startswith("bt709"):
        rgb = [y + 1.5748 * v, y - 0.1873242729 * u - 0.4681242729 * v, y + 1.8556 * u]
    else:
        rgb = [y + 1.402 * v, y - 0.3441362862 * u - 0.7141362862 * v, y + 1.772 * u]
    return [c.clip(0, 255) for c in rgb]
