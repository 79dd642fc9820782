"""Preparation: the settings with which a picture becomes a model's input, shared by the host and the device.

Both compute in float until the end, with Pillow's weights: the device with `taps`, the host with Pillow itself. On
bytes, Pillow rounds to 8 bits after each direction, so its own result may differ by 1 of 255.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, get_args

import numpy

from imgconv.arrays import Array, Shapes, TensorSpecs
from imgconv.errors import InputError

Format = Literal["rgb", "rgba", "bgr", "grey", "nv12", "nv21", "i420", "yuyv", "p010"]
Resize = Literal["stretch", "crop", "letterbox"]
Filter = Literal["antialias", "area", "bicubic", "bilinear"]
ChannelOrder = Literal["rgb", "bgr", "y"]
Colors = Literal["bt601", "bt601-full", "bt709", "bt709-full"]
FORMATS, RESIZES, FILTERS, ORDERS, COLORS = map(get_args, (Format, Resize, Filter, ChannelOrder, Colors))
# The weights of red and blue in luma: ITU-R BT.601-7, 2.5.1, and BT.709-6, 3.2.
_LUMA = {"bt601": (0.299, 0.114), "bt709": (0.2126, 0.0722)}
Size = tuple[int, int]  # width, height in pixels, as in Pillow
Box = tuple[float, float, float, float]  # left, top, right, bottom in pixels


@dataclass(frozen=True)
class Preparation:
    """The preparation of pictures: x = (pixel * scale - mean) / std, with pixels from 0 to 255.

    resize: 'stretch' scales to the model's size without keeping the aspect ratio; 'crop' scales the picture until it
    covers the model's size, and keeps the centre; 'letterbox' scales it to fit, places it at the top left, and fills
    the rest with `pad`. crop: the fraction of each side that 'crop' keeps: 0.875 resizes to 256 and keeps 224.
    order: 'rgb', 'bgr' or 'y' (one channel, the BT.601 luma of JPEG). mean and std: one value, or one per channel in
    that order. filter: 'antialias' averages all source pixels that an output pixel covers with triangle weights, as
    Pillow and torchvision do; 'area' uses equal weights, 'bicubic' cubic weights; 'bilinear' interpolates between the
    four nearest pixels only, as OpenCV does. format and colors describe a picture of bytes: see
    `Model.preprocess`. Example: Preparation("crop", order="bgr", mean=(104, 117, 123)).
    """

    resize: Resize = "stretch"
    filter: Filter = "antialias"
    order: ChannelOrder = "rgb"
    scale: float = 1.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    pad: int = 114
    format: Format = "rgb"
    colors: Colors = "bt601"
    crop: float = 1.0

    def __post_init__(self) -> None:
        """Raises InputError for an invalid setting."""
        choices = (
            ("resize", self.resize, RESIZES), ("order", self.order, ORDERS), ("filter", self.filter, FILTERS),
            ("format", self.format, FORMATS), ("colors", self.colors, COLORS),
        )
        for name, value, allowed in choices:
            if value not in allowed:
                raise InputError(f"{name} is {value!r}; use {', '.join(allowed)}")
        for name in ("scale", "crop", "pad"):
            if not isinstance(getattr(self, name), Real):
                raise InputError(f"{name} is {getattr(self, name)!r}; it is a number, such as 0.5 or 1 / 255")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if not (isinstance(values, (Sequence, numpy.ndarray)) and all(isinstance(each, Real) for each in values)):
                raise InputError(f"{name} is {values!r}; it is a tuple of numbers, such as (0.5,)")
            if len(values) not in (1, self.channels):
                raise InputError(f"{name} has {len(values)} values; order {self.order!r} needs 1 or {self.channels}")
        if not 0 <= self.pad <= 255:
            raise InputError(f"pad is {self.pad}; a pixel is 0 to 255")
        if 0 in self.std:
            raise InputError("std is 0, and pixels are divided by it")
        if not 0 < self.crop <= 1:
            raise InputError(f"crop is {self.crop:g}; it is the fraction of a side to keep, at most 1: 0.875")
        if self.crop != 1 and self.resize != "crop":
            raise InputError(f"crop is {self.crop:g}, and resize {self.resize!r} crops nothing: use resize 'crop'")

    @property
    def channels(self) -> int:
        return 1 if self.order == "y" else 3


RANGE = ("scale", "mean", "std")  # one setting in three numbers


def merged_settings(settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Returns fields of a Preparation, with those of `defaults` that are missing; one of RANGE replaces all three.

    merged_settings({"scale": 1 / 255}, {"order": "bgr", "std": (58,)}) is {"order": "bgr", "scale": 1 / 255}.
    """
    replaced = RANGE if settings.keys() & set(RANGE) else ()
    return {**{name: value for name, value in defaults.items() if name not in replaced}, **settings}


_RESIZED = {"stretch": "stretched to", "crop": "cropped to", "letterbox": "letterboxed in"}


def as_text(how: Preparation, size: Size, tiled: bool = False) -> str:
    """A preparation for a model's width and height in one line. tiled: whether those of other sizes are cut.

    as_text(Preparation(order="bgr", mean=(104,)), (224, 224)) is "bgr, stretched to 224x224, x = (pixel - 104)".
    """
    x = "pixel" if how.scale == 1 else f"pixel * {how.scale:.4g}"
    if any(how.mean):
        x = f"({x} - {_numbers_as_text(how.mean)})"
    if set(how.std) != {1}:
        x = f"{x} / {_numbers_as_text(how.std)}"
    resized = "whole or in tiles of" if tiled else _RESIZED[how.resize]
    return f"{how.order}, {resized} {size[0]}x{size[1]}, x = {x + ', 0 to 255' * (x == 'pixel')}"


def _numbers_as_text(values: Sequence[float]) -> str:
    """The value, or one for each channel in brackets."""
    listed = ", ".join(f"{value:.4g}" for value in values)
    return listed if len(values) == 1 else f"({listed})"


@dataclass(frozen=True)
class PictureInput:
    """The input that takes the picture. A dimension is a size; or a name or "", if the picture determines the size."""

    name: str
    dtype: str
    dimensions: Sequence[int | str]

    @property
    def channels_last(self) -> bool:
        """Returns whether it is (N, H, W, C) instead of (N, C, H, W)."""
        return self.dimensions[3] in (1, 3) and self.dimensions[1] not in (1, 3)

    @property
    def channels(self) -> int | None:
        """1 or 3; None if the model leaves it open."""
        found = self.dimensions[3 if self.channels_last else 1]
        return found if isinstance(found, int) else None

    @property
    def takes_batch_of_one(self) -> bool:
        """Returns whether the batch size is 1 or open."""
        return self.dimensions[0] == 1 or isinstance(self.dimensions[0], str)

    @property
    def is_open(self) -> bool:
        """Returns whether the picture determines its height or width."""
        return self.picture_size((0, 0)) != self.picture_size((1, 1))

    def picture_size(self, own: Size) -> Size:
        """Width and height that the model takes, for a picture of its `own` width and height."""
        height, width = self.dimensions[1:3] if self.channels_last else self.dimensions[2:]
        return width if isinstance(width, int) else own[0], height if isinstance(height, int) else own[1]

    def shape(self, picture: Size, channels: int) -> tuple[int, int, int, int]:
        """The input's shape for a picture of this width and height."""
        width, height = self.picture_size(picture)
        return (1, height, width, channels) if self.channels_last else (1, channels, height, width)

    def preparation(self, settings: Mapping[str, Any]) -> Preparation:
        """Returns the preparation with these fields; order is 'y' by default if the input takes one channel.

        Raises InputError for an invalid setting, and if it gives other channels than the input takes.
        """
        made = Preparation(**{"order": "y" if self.channels == 1 else "rgb", **settings})
        if self.channels not in (None, made.channels):
            takes = f"input {self.name!r} expects {self.channels}"
            raise InputError(f"order {made.order!r} has {made.channels} channels; {takes}")
        return made

def picture_inputs(declared: TensorSpecs, shapes: Shapes) -> list[PictureInput]:
    """The inputs that take one picture of one or three channels. An input of bool is taken to be a mask.

    shapes: shapes of inputs and sizes of named dimensions, as in `import_onnx`.
    """
    found = []
    for name, (dtype, dimensions) in declared.items():
        target = PictureInput(name, dtype, with_known_sizes(name, dimensions, shapes))
        is_one = len(target.dimensions) == 4 and target.takes_batch_of_one and target.channels in (1, 3, None)
        if is_one and dtype != "bool":
            found.append(target)
    return found


def with_known_sizes(name: str, dimensions: Sequence[int | str] | None, shapes: Shapes) -> Sequence[int | str]:
    """An input's dimensions with the given sizes filled in; four open ones if the model gives no shape."""
    given = shapes.get(name)
    if given is not None and not isinstance(given, int):
        return tuple(given)
    sizes = {name: size for name, size in shapes.items() if isinstance(size, int)}
    dimensions = [""] * 4 if dimensions is None else dimensions  # those of a scalar are []
    return [sizes.get(d, d) if isinstance(d, str) else d for d in dimensions]


# Places, weights


def letterbox_scale(picture: Size, size: Size) -> float:
    """The scale factor of 'letterbox': pixels of the result for one pixel of the original."""
    return min(size[0] / picture[0], size[1] / picture[1])


def resize_geometry(picture: Size, size: Size, resize: Resize, crop: float = 1.0) -> tuple[Size, Box]:
    """(The size of the resized picture, which stands at the top left of `size`; the part of the picture it shows).

    Sizes are compared and divided as integers, because a rounded scale could place edges outside of the picture.
    crop: see Preparation. Example: placed((500, 387), (224, 224), "crop") is (224, 224), (56.5, 0.0, 443.5, 387.0).
    """
    (before_x, before_y), (after_x, after_y) = picture, size
    is_wide = after_x * before_y <= after_y * before_x  # whether its aspect ratio is at least that of `size`
    if resize == "letterbox":
        inner = (after_x, before_y * after_x // before_x) if is_wide else (before_x * after_y // before_y, after_y)
        return (max(1, inner[0]), max(1, inner[1])), (0, 0, *picture)
    shown: tuple[float, float] = picture
    if resize == "crop":
        shown = (after_x * before_y / after_y, before_y) if is_wide else (before_x, after_y * before_x / after_x)
        shown = shown[0] * crop, shown[1] * crop
    left, top = (before_x - shown[0]) / 2, (before_y - shown[1]) / 2
    return size, (left, top, left + shown[0], top + shown[1])


def luma_weights(colors: Colors = "bt601") -> tuple[float, float, float]:
    """The weights of red, green and blue in luma."""
    red, blue = _LUMA[colors.removesuffix("-full")]
    return red, 1 - red - blue, blue


def _box(distance: Array) -> Array:
    return (distance > -0.5) & (distance <= 0.5)


def _triangle(distance: Array) -> Array:
    return numpy.asarray(numpy.maximum(1 - numpy.abs(distance), 0))


def _cubic(distance: Array) -> Array:
    """Keys, 1981, doi:10.1109/TASSP.1981.1163711, with a = -1/2, as in Pillow."""
    t = numpy.abs(distance)
    near, far = (1.5 * t - 2.5) * t * t + 1, ((-0.5 * t + 2.5) * t - 4) * t + 2
    return numpy.where(t < 1, near, numpy.where(t < 2, far, 0))


# By filter: its radius in pixels, and its weight as a function of the distance.
_FILTERS: Mapping[Filter, tuple[float, Callable[[Array], Array]]] = {
    "antialias": (1, _triangle), "area": (0.5, _box), "bicubic": (2, _cubic), "bilinear": (1, _triangle),
}


def taps(before: int, after: int, start: float, stop: float, how: Filter) -> tuple[Array, Array]:
    """Positions and weights, each (after, taps), that resize the part from `start` to `stop` of `before` pixels.

    A reduction stretches the filter by its factor, except for 'bilinear'. Weights are normalised over the pixels
    inside the picture. The weights are Pillow's (Resample.c, precompute_coeffs). Example: taps(4, 2, 0, 4, "area") is
    [[0, 1], [2, 3]], [[0.5, 0.5], [0.5, 0.5]].
    """
    scale = (stop - start) / after
    stretch = 1.0 if how == "bilinear" else max(scale, 1.0)
    reach, weight = _FILTERS[how]
    centre = start + (numpy.arange(after) + 0.5) * scale
    first = numpy.maximum((centre - reach * stretch + 0.5).astype(int), 0)
    last = numpy.minimum((centre + reach * stretch + 0.5).astype(int), before)
    positions = first[:, None] + numpy.arange((last - first).max())
    weights = weight((positions - centre[:, None] + 0.5) * (1 / stretch)) * (positions < last[:, None])
    # Zero weights at both ends are dropped. All rows have equal length; one that would end outside begins earlier.
    used = weights != 0
    begin, end = used.argmax(axis=1), used.shape[1] - used[:, ::-1].argmax(axis=1)
    count = int((end - begin).max())
    moved = numpy.minimum(first + begin, before - count)[:, None] + numpy.arange(count)
    column = moved - first[:, None]
    inside = (column >= 0) & (column < used.shape[1])
    kept = numpy.take_along_axis(weights, column.clip(0, used.shape[1] - 1), axis=1) * inside
    return moved, kept / kept.sum(axis=1, keepdims=True)
