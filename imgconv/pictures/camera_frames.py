"""Converts a picture to a camera frame: the input array of a model that includes the preprocessing of frames."""

from __future__ import annotations

import numpy
from PIL import Image

from imgconv.arrays import Array
from imgconv.preprocessing.preparation import Preparation, Size, luma_weights
from imgconv.preprocessing.stage import YUV, array_shape


def camera_frame(picture: Image.Image, size: Size, how: Preparation) -> Array:
    """The array of an RGB picture in how.format and how.colors, stretched to a width and height; see `array_shape`.

    U and V are means of the pixels that share them.

        frame_of(Image.open("a.jpg"), (640, 480), Preparation(format="nv12")).shape    # (720, 640)
    """
    if picture.size != size:
        picture = picture.resize(size)
    if how.format in YUV:
        return _rgb_to_yuv(numpy.asarray(picture, numpy.float64), how)
    mode = {"grey": "L", "rgba": "RGBA"}.get(how.format, "RGB")
    array = numpy.asarray(picture.convert(mode))
    return numpy.ascontiguousarray(array[..., ::-1] if how.format == "bgr" else array)


def _rgb_to_yuv(rgb: Array, how: Preparation) -> Array:
    """ITU-R BT.601-7, 2.5: the inverse of what preprocessing/stage.py computes."""
    weights = red, _, blue = luma_weights(how.colors)
    luma = rgb @ numpy.array(weights)
    height, width = luma.shape
    down = 1 if how.format == "yuyv" else 2
    differences = (rgb[..., 2] - luma) / (2 - 2 * blue), (rgb[..., 0] - luma) / (2 - 2 * red)
    u, v = (each.reshape(height // down, down, width // 2, 2).mean((1, 3)) for each in differences)
    largest = 1023 if how.format == "p010" else 255
    if how.colors.endswith("-full"):
        y, gain = luma * (largest / 255), largest / 255
    else:
        y, gain = 16 * (largest // 255) + luma * (219 * (largest // 255) / 255), 224 * (largest // 255) / 255
    middle = (largest + 1) // 2
    y, u, v = (numpy.rint(each).clip(0, largest) for each in (y, middle + u * gain, middle + v * gain))
    return _to_frame_format(y, u, v, how)


def _to_frame_format(y: Array, u: Array, v: Array, how: Preparation) -> Array:
    height, width = y.shape
    if how.format == "yuyv":
        made = numpy.stack([y[:, 0::2], u, y[:, 1::2], v], axis=2)
    elif how.format == "i420":
        made = numpy.concatenate([each.ravel() for each in (y, u, v)])
    else:
        pairs = numpy.stack([v, u] if how.format == "nv21" else [u, v], axis=2)
        made = numpy.concatenate([y.ravel(), pairs.ravel()])
    made = made.reshape(array_shape(how.format, (width, height)))
    return (made * 64).astype(numpy.uint16) if how.format == "p010" else made.astype(numpy.uint8)
