"""Prepares pictures on the device with graph nodes before the model's own: from the bytes of a picture to the input.

A picture is an array (see `array_shape`), which is uploaded unchanged. The graph resizes it (first its rows, then its
columns), converts its colors, pads and normalises it. Passes fuse parts of this into the model's first layers.

The result equals that of `host.to_array` up to the rounding of float sums. Before normalisation it differs from
Pillow's by at most 1 of 255, because Pillow rounds to 8 bits after each direction and the graph does not round. A cubic
filter has negative weights: its result may differ by another 1/8, and by more if it overshoots black or white, because
Pillow clips after each direction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy

from imgconv.arrays import Array, Shapes, TensorSpecs
from imgconv.errors import InputError, ShapeError
from imgconv.graph.join import join_graphs, rename_values
from imgconv.graph.nodes import Graph, Value
from imgconv.preprocessing.preparation import (
    Box, Filter, Format, PictureInput, Preparation, Size, luma_weights, picture_inputs, resize_geometry, taps,
)
from imgconv.tensor import Tensor, build_graph, origin

PICTURE = "picture"  # the input that takes the picture
YUV = ("nv12", "nv21", "i420", "yuyv", "p010")
_CHANNELS = {"rgb": 3, "rgba": 4, "bgr": 3, "grey": 1, "yuyv": 2}  # bytes of a pixel of those that are interleaved


def array_shape(format: Format, size: Size) -> tuple[int, ...]:
    """The shape of the array of a picture of this width and height, of uint8, or uint16 for 'p010'.

    (height, width, 3) for 'rgb' and 'bgr', (height, width, 4) for 'rgba', (height, width) for 'grey', (height, width,
    2) for 'yuyv'. (height * 3/2, width) for 'nv12', 'nv21', 'i420' and 'p010': rows of Y, then the colors of 2x2
    pixels: pairs U, V ('nv12', 'p010') or V, U ('nv21'), or all of U, then all of V ('i420'). Raises InputError if
    pixels that share a color are no whole number. Example: array_shape("nv12", (640, 480)) is (720, 640).
    """
    width, height = size
    shared = chroma_block(format)
    if width % shared[0] or height % shared[1]:
        raise InputError(
            f"{format} has one color for {shared[0]}x{shared[1]} pixels, so a picture cannot be {width}x{height}"
        )
    if shared[1] == 2:
        return height * 3 // 2, width
    return (height, width) if format == "grey" else (height, width, _CHANNELS[format])


def chroma_block(format: Format) -> Size:
    """The width and height, in pixels, of a block that shares a color."""
    return (1, 1) if format not in YUV else (2, 1) if format == "yuyv" else (2, 2)


def size_of_array(format: Format, shape: Sequence[int]) -> Size:
    """Width and height of the picture in an array of this shape. Raises InputError if the format has no such shape."""
    rows, width = (*shape, 0, 0)[:2]
    size = width, rows // 3 * 2 if chroma_block(format)[1] == 2 else rows
    if min(size) < 1 or size[0] % chroma_block(format)[0] or array_shape(format, size) != tuple(shape):
        example = array_shape(format, (640, 480))
        raise InputError(f"an array of {list(shape)} is not a picture in {format}; one of 640x480 is {list(example)}")
    return size


def array_dtype(format: Format) -> str:
    """The dtype of the array of a picture."""
    return "uint16" if format == "p010" else "uint8"


@dataclass(frozen=True)
class PictureStage:
    """The preparation of a picture before a model: the input that it becomes (`target`), and the settings (`how`)."""

    target: PictureInput
    how: Preparation

    @property
    def picture(self) -> Value:
        """The input that takes the picture, of unknown width and height: -1."""
        format = self.how.format
        return Value(PICTURE, (-1, -1, *array_shape(format, (2, 2))[2:]), array_dtype(format))

    def model_input_shapes(self, shapes: Shapes) -> Shapes:
        """The shapes of the model's own inputs. Raises ShapeError if the picture's shape is not given."""
        own = size_of_array(self.how.format, _picture_shape(shapes))
        others = {name: shape for name, shape in shapes.items() if name != PICTURE}
        return others | {self.target.name: self.target.shape(own, self.how.channels)}

    def prepend_to(self, model: Graph, shapes: Shapes) -> Graph:
        """The model's graph with an input "picture" of the given shape in place of its own.

        Raises InputError if the format has no such shape, or if another input or an output is called "picture".
        """
        target = self.target
        if PICTURE in {*model.outputs, *(v.name for v in model.inputs if v.name != target.name)}:
            raise InputError(f"the model has an input or output {PICTURE!r} already: rename it")
        names = {PICTURE: model.unused_name(PICTURE)} if PICTURE in model.values else {}
        model, name = rename_values(model, names), names.get(target.name, target.name)
        value = model.values[name]
        height, width = value.shape[1:3] if target.channels_last else value.shape[2:]
        picture = Tensor.input(PICTURE, _picture_shape(shapes), array_dtype(self.how.format))
        with origin(PICTURE):
            made = prepare_picture(picture, (width, height), self.how)
            made = made.transpose(0, 2, 3, 1) if target.channels_last else made
            if not value.dtype.startswith("float"):
                limits = numpy.iinfo(value.dtype)
                made = made.apply("round").clip(limits.min, limits.max)
            graph = build_graph({name: made.cast(value.dtype)}, [picture])
        if model.host_partition and target.name in model.host_partition.graph.inputs:
            # The device makes this input, and the host reads it too.
            if name != target.name:
                raise InputError(f"the host reads the model's input {target.name!r}: rename it")
            model = replace(model, outputs=tuple(dict.fromkeys((*model.outputs, name))))
        return join_graphs(graph, model)


def _picture_shape(shapes: Shapes) -> Sequence[int]:
    shape = shapes.get(PICTURE)
    if not isinstance(shape, Sequence):
        raise ShapeError(
            f"the picture's size is not known yet: pass size=(height, width), or run the model: "
            f'run({{"{PICTURE}": array}})'
        )
    return shape


def stage_for_input(
    declared: TensorSpecs, shapes: Shapes, how: Mapping[str, Any], name: str | None = None
) -> PictureStage:
    """The stage for the named input, or for the one input that takes a picture.

    declared and shapes: see `picture_inputs`. how: fields of a Preparation, see PictureInput.preparation. Raises
    InputError if no input, or more than one, takes a picture, or if a setting does not fit.
    """
    found = [target for target in picture_inputs(declared, shapes) if name in (None, target.name)]
    if len(found) != 1:
        listed = ", ".join(f"{n} {list(d) if d else 'of any shape'}" for n, (_, d) in declared.items())
        problem = f"input {name!r} is not a picture" if name else f"{len(found) or 'no'} inputs can be the picture"
        raise InputError(f"{problem}: {listed}" + ("; say which, with input=" if len(found) > 1 else ""))
    settings = {key: value for key, value in how.items() if value is not None}
    return PictureStage(found[0], found[0].preparation(settings))


def prepare_picture(picture: Tensor, size: Size, how: Preparation) -> Tensor:
    """The float32 input (1, C, height, width) that a picture becomes; C is 3, or 1 for order 'y'."""
    own = size_of_array(how.format, picture.shape)
    inner, box = resize_geometry(own, size, how.resize, how.crop)
    pixels = picture.cast("float32")
    if how.format == "p010":  # 10 bits at the upper end of 16; BT.2100-2, table 9, has the ranges
        pixels = pixels * (255 / 65472 if how.colors.endswith("-full") else 1 / 256)
    if how.format in YUV:
        planes = _from_yuv(pixels, own, inner, box, how)
    else:
        planes = _from_channels(pixels, own, inner, box, how)
    margin = [0, 0, size[1] - inner[1], size[0] - inner[0]]
    padded = planes.pad([0] * 4, margin, how.pad) if any(margin) else planes
    return _normalised(padded, how)


def _from_channels(pixels: Tensor, own: Size, size: Size, box: Box, how: Preparation) -> Tensor:
    """(1, C, height, width) from a picture with interleaved channels: 'rgb', 'bgr', 'rgba' or 'grey'."""
    count, is_luma = _CHANNELS[how.format], how.order == "y"
    wanted = [2, 1, 0] if (how.order == "bgr") != (how.format == "bgr") else [0, 1, 2]
    if count == 1:
        wanted = [0] * how.channels
    planes = _resized(pixels.reshape(own[1], own[0], count), wanted, size, box, how.filter)
    return (planes * _per_channel(luma_weights())).sum([1], keepdims=True) if is_luma and count > 1 else planes


def _from_yuv(pixels: Tensor, own: Size, size: Size, box: Box, how: Preparation) -> Tensor:
    """(1, C, height, width) from Y and fewer U and V, which lie in the middle of their pixels and are resized apart.

    R = Y + 2(1 - Kr)V, B = Y + 2(1 - Kb)U, and G follows from Y = Kr R + Kg G + Kb B; BT.601-7, 2.5.1.
    """
    low, middle, luma_gain, color_gain = _yuv_offsets_and_factors(how)
    # In limited range, 255 is the code 1020 of 10 bits, of which the largest is 1023.
    largest = 1023 / 4 if how.format == "p010" and not how.colors.endswith("-full") else 255
    luma, colors = _luma_and_colors(pixels, own, how.format)
    if how.order == "y":
        return ((_resized(luma, [0], size, box, how.filter, largest) - low) * luma_gain).clip(0, 255)
    red, green, blue = luma_weights(how.colors)
    rows = {"r": (0, 2 - 2 * red), "b": (2 - 2 * blue, 0)}
    rows["g"] = (-blue * rows["b"][0] / green, -red * rows["r"][1] / green)
    gains = numpy.array([rows[name] for name in how.order]) * color_gain
    left, top, right, bottom = box
    across, down = chroma_block(how.format)
    u_and_v = [1, 0] if how.format == "nv21" else [0, 1]
    color_box = left / across, top / down, right / across, bottom / down
    planes = _resized(colors, u_and_v, size, color_box, how.filter, largest)
    parts = [planes.slice(1, n, n + 1) * _per_channel(gains[:, n]) for n in range(2)]
    offset = _per_channel(-low * luma_gain - middle * gains.sum(axis=1))
    # Each channel resizes Y again, so that adding the colors becomes the epilogue of that sum.
    resized = _resized(luma, [0, 0, 0], size, box, how.filter, largest)
    return (resized * luma_gain + parts[0] + parts[1] + offset).clip(0, 255)


def _luma_and_colors(pixels: Tensor, own: Size, format: Format) -> tuple[Tensor, Tensor]:
    """Y as (height, width, 1), and U and V of the pixels that share them as (rows, columns, 2)."""
    width, height = own
    if format == "yuyv":
        pairs = pixels.reshape(height, width // 2, 4)
        return pairs.take(2, [0, 2]).reshape(height, width, 1), pairs.take(2, [1, 3])
    luma, rest = (pixels.slice(0, *rows) for rows in ((0, height), (height, height * 3 // 2)))
    rows, columns = height // 2, width // 2
    if format == "i420":
        return luma.reshape(height, width, 1), rest.reshape(2, rows, columns).transpose(1, 2, 0)
    return luma.reshape(height, width, 1), rest.reshape(rows, columns, 2)


def _yuv_offsets_and_factors(how: Preparation) -> tuple[float, float, float, float]:
    """Black, the middle of U and V, and the factors that make 255 of Y's range and of U's and V's.

    Y is 16 .. 235 and U and V are 128 - 112 .. 128 + 112; in full range 0 .. 255. BT.601-7, 2.5.3.
    """
    if how.colors.endswith("-full"):
        return 0, 512 * 255 / 1023 if how.format == "p010" else 128, 1.0, 1.0
    return 16, 128, 255 / 219, 255 / 224


def _normalised(planes: Tensor, how: Preparation) -> Tensor:
    """(planes * scale - mean) / std, channel by channel."""
    gain = numpy.broadcast_to(how.scale / numpy.array(how.std), planes.shape[1])
    offset = numpy.broadcast_to(-numpy.array(how.mean) / numpy.array(how.std), planes.shape[1])
    if numpy.any(gain != 1):
        planes = planes * _per_channel(gain)
    return planes + _per_channel(offset) if numpy.any(offset != 0) else planes


def _per_channel(numbers: Sequence[float] | Array) -> Tensor | float:
    """The numbers, one per channel, as (C, 1, 1); a float if all are equal."""
    array = numpy.asarray(numbers, numpy.float32)
    return float(numbers[0]) if numpy.all(array == array[0]) else Tensor.constant(array.reshape(-1, 1, 1))


# Resizing


def _resized(
    pixels: Tensor, channels: Sequence[int], size: Size, box: Box, how: Filter, largest: float = 255
) -> Tensor:
    """The given channels of (height, width, C), cropped to `box`, resized to `size`: (1, channels, height, width).

    Rows are resized first, because a row of interleaved channels fills whole texels.
    """
    height, width, count = pixels.shape
    flat = pixels.reshape(height, width * count)
    rows = flat.resample({0: taps(height, size[1], box[1], box[3], how)})
    planes = rows.reshape(size[1], width, count).transpose(2, 0, 1).take(0, channels)
    across = planes.reshape(1, len(channels), size[1], width)
    made = across.resample({3: taps(width, size[0], box[0], box[2], how)})
    # Only a cubic filter overshoots.
    return made.clip(0, largest) if how == "bicubic" and (made is not across or rows is not flat) else made
