"""Pictures to a model's input arrays, and image outputs back to pictures."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
from PIL import Image, ImageOps, UnidentifiedImageError

from imgconv.errors import InputError
from imgconv.files import written_whole

FORMATS = ("rgb", "rgba", "grey", "nv12")
RESIZES = ("stretch", "crop", "letterbox")
ORDERS = ("rgb", "bgr", "y")
RESAMPLING = {
    "antialias": Image.Resampling.BILINEAR, "area": Image.Resampling.BOX, "bicubic": Image.Resampling.BICUBIC,
}
FILTERS = (*RESAMPLING, "bilinear")
COLORS = ("bt601", "bt601-full", "bt709", "bt709-full")
Declared = Mapping[str, tuple[str, "Sequence[int | str] | None"]]
Size = tuple[int, int]  # width, height in pixels, as Pillow has it
Box = tuple[float, float, float, float]  # left, top, right, bottom in pixels


@dataclass(frozen=True)
class Preparation:
    """How a picture becomes a model's input: x = (pixel * scale - mean) / std, with pixels from 0 to 255.

    resize: 'stretch' fills the model's size, without keeping the aspect; 'crop' scales the picture until it covers the
    size and keeps the middle; 'letterbox' scales it until it fits, puts it at the top left, and fills with `pad`.
    order: 'rgb', 'bgr' or 'y' (the luma of JPEG, BT.601: one channel). mean and std: one value, or one for each channel
    in that order. filter: 'antialias' weighs all pixels that fall into one with a triangle, as Pillow and torchvision
    do, 'area' weighs them alike, 'bicubic' with a cubic; 'bilinear' looks at the four nearest only, as OpenCV does.
    format and colors are those of a picture given as bytes to `Model.preprocess`, which says more.
    """

    resize: str = "stretch"
    filter: str = "antialias"
    order: str = "rgb"
    scale: float = 1.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    pad: int = 114
    format: str = "rgb"
    colors: str = "bt601"

    def __post_init__(self) -> None:
        """Raises InputError for a setting that fits no picture."""
        choices = (
            ("resize", self.resize, RESIZES), ("order", self.order, ORDERS), ("filter", self.filter, FILTERS),
            ("format", self.format, FORMATS), ("colors", self.colors, COLORS),
        )
        for name, value, allowed in choices:
            if value not in allowed:
                raise InputError(f"{name} is {value!r}; use {', '.join(allowed)}")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, self.channels):
                raise InputError(f"{name} has {len(values)} values; order {self.order!r} takes 1 or {self.channels}")
        if not 0 <= self.pad <= 255:
            raise InputError(f"pad is {self.pad}; a pixel is 0 to 255")
        if 0 in self.std:
            raise InputError("std is 0, and pixels are divided by it")

    @property
    def channels(self) -> int:
        return 1 if self.order == "y" else 3


@dataclass(frozen=True)
class PictureInput:
    """The input that takes the picture. dimensions: a size, or a name or "" where the picture gives the size."""

    name: str
    dtype: str
    dimensions: Sequence[int | str]

    @property
    def channels_last(self) -> bool:
        """Whether it is (N, H, W, C) instead of (N, C, H, W)."""
        return self.dimensions[3] in (1, 3) and self.dimensions[1] not in (1, 3)

    @property
    def channels(self) -> int | None:
        """1 or 3; None where the model does not say."""
        found = self.dimensions[3 if self.channels_last else 1]
        return found if isinstance(found, int) else None

    @property
    def takes_one(self) -> bool:
        """Whether the batch is 1, or may be."""
        return self.dimensions[0] == 1 or isinstance(self.dimensions[0], str)

    def picture_size(self, own: Size) -> Size:
        """Width and height that the model takes, for a picture of its `own` width and height."""
        height, width = self.dimensions[1:3] if self.channels_last else self.dimensions[2:]
        return width if isinstance(width, int) else own[0], height if isinstance(height, int) else own[1]

    def shape(self, picture: Size, channels: int) -> tuple[int, int, int, int]:
        """The input's shape for a picture of this width and height."""
        width, height = self.picture_size(picture)
        return (1, height, width, channels) if self.channels_last else (1, channels, height, width)

    def array(self, picture: Image.Image, preparation: Preparation) -> Any:
        """The input's array for a picture that has its size; rounded and clipped where the model takes integers."""
        array = to_array(picture, preparation)
        array = array.transpose(0, 2, 3, 1) if self.channels_last else array
        if self.dtype.startswith("float"):
            return array.astype(self.dtype)
        limits = numpy.iinfo(self.dtype)
        return numpy.rint(array).clip(limits.min, limits.max).astype(self.dtype)


def picture_inputs(declared: Declared, shapes: Mapping[str, Any]) -> list[PictureInput]:
    """The inputs that take one picture of one or three channels, in numbers: one of bool is a mask.

    declared: dtype and dimensions by name, a dimension without a size as a name or "", None for all; shapes: shapes of
    inputs and sizes of named dimensions.
    """
    found = []
    for name, (dtype, dimensions) in declared.items():
        target = PictureInput(name, dtype, with_sizes(name, dimensions, shapes))
        is_one = len(target.dimensions) == 4 and target.takes_one and target.channels in (1, 3, None)
        if is_one and dtype != "bool":
            found.append(target)
    return found


def with_sizes(name: str, dimensions: Sequence[int | str] | None, shapes: Mapping[str, Any]) -> Sequence[int | str]:
    """An input's dimensions with the sizes that are given; four open ones where the model has no shape."""
    given = shapes.get(name)
    if given is not None and not isinstance(given, int):
        return tuple(given)
    sizes = {name: size for name, size in shapes.items() if isinstance(size, int)}
    return [sizes.get(d, d) if isinstance(d, str) else d for d in dimensions or [""] * 4]


def read_picture(path: str | os.PathLike[str]) -> Image.Image:
    """The picture in a file as RGB, turned upright as its EXIF data says. Raises InputError naming the file."""
    try:
        with Image.open(path) as image:
            upright = ImageOps.exif_transpose(image)
            if upright.mode.startswith("I;16"):
                return Image.fromarray((numpy.asarray(upright) // 257).astype(numpy.uint8)).convert("RGB")
            if upright.mode in ("I", "F"):
                raise InputError(f"picture {os.fspath(path)!r} has 32 bits a pixel; save it with 8 or 16")
            return upright.convert("RGB")
    except UnidentifiedImageError as error:
        raise InputError(f"{os.fspath(path)!r} is not a picture that Pillow can read") from error
    except InputError:
        raise
    # Pillow's decoders raise nearly anything on a broken file: SyntaxError, ValueError, struct.error, zlib.error ...
    except Exception as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InputError(f"cannot read picture {os.fspath(path)!r}: {reason}") from error


def letterbox_scale(picture: Size, size: Size) -> float:
    """Pixels of the letterboxed picture for one pixel of the original."""
    return min(size[0] / picture[0], size[1] / picture[1])


def resized(picture: Image.Image, size: Size, preparation: Preparation) -> Image.Image:
    """The picture at exactly `size`, as the preparation's resize, filter and pad say."""
    inner, box = placed(picture.size, size, preparation.resize)
    scaled = _scaled(picture, inner, box, preparation.filter)
    if inner == size:
        return scaled
    boxed = Image.new("RGB", size, (preparation.pad,) * 3)
    boxed.paste(scaled, (0, 0))
    return boxed


def placed(picture: Size, size: Size, resize: str) -> tuple[Size, Box]:
    """The size in which a picture is shown at the top left of `size`, and the part of it that is shown.

    Sizes are compared and divided as integers: the rounding of a scale would place edges outside of the picture.
    Example: placed((500, 387), (224, 224), "crop") is (224, 224), (56.5, 0.0, 443.5, 387.0).
    """
    (before_x, before_y), (after_x, after_y) = picture, size
    is_wide = after_x * before_y <= after_y * before_x  # wider for its height than `size`
    if resize == "letterbox":
        inner = (after_x, before_y * after_x // before_x) if is_wide else (before_x * after_y // before_y, after_y)
        return (max(1, inner[0]), max(1, inner[1])), (0, 0, *picture)
    shown: tuple[float, float] = picture
    if resize == "crop":
        shown = (after_x * before_y / after_y, before_y) if is_wide else (before_x, after_y * before_x / after_x)
    left, top = (before_x - shown[0]) / 2, (before_y - shown[1]) / 2
    return size, (left, top, left + shown[0], top + shown[1])


def _scaled(picture: Image.Image, size: Size, box: Box, how: str) -> Image.Image:
    """The part of the picture in `box` at exactly `size`."""
    if how in RESAMPLING:
        return picture.resize(size, RESAMPLING[how], box)
    return picture.transform(size, Image.Transform.EXTENT, box, Image.Resampling.BILINEAR)


def to_array(picture: Image.Image, preparation: Preparation) -> Any:
    """The picture as float32 (1, C, H, W): C is 3, or 1 for order 'y'. It is not resized."""
    if preparation.order == "y":
        pixels = numpy.asarray(picture.convert("YCbCr"))[..., :1]
    else:
        pixels = numpy.asarray(picture.convert("RGB"))
        pixels = pixels[..., ::-1] if preparation.order == "bgr" else pixels
    values = (pixels * preparation.scale - numpy.array(preparation.mean)) / numpy.array(preparation.std)
    return numpy.ascontiguousarray(values.transpose(2, 0, 1)[None], numpy.float32)


def guess_range(array: Any) -> tuple[float, float]:
    """The values of black and white: 0 and 255 for bytes and where the largest value is above 4, else 0 and 1.

    Networks overshoot, so that values a little above 1 do not mean 0 to 255; and a picture of 0 to 255 with nothing
    above 4 would be black.
    """
    return (0.0, 255.0) if array.dtype == numpy.uint8 or numpy.nanmax(array, initial=0) > 4 else (0.0, 1.0)


def to_picture(array: Any, order: str = "rgb", value_range: tuple[float, float] | None = None) -> Image.Image:
    """The picture in a (C, H, W) array of one or three channels. `value_range`: black and white, guessed by default.

    Values outside of the range are clipped, NaN is black.
    """
    low, high = guess_range(array) if value_range is None else value_range
    scaled = (numpy.nan_to_num(array.astype(numpy.float64), nan=low) - low) * (255 / (high - low))
    pixels = numpy.rint(scaled.clip(0, 255)).astype(numpy.uint8)
    if pixels.shape[0] == 1:
        return Image.fromarray(pixels[0])
    return Image.fromarray(numpy.ascontiguousarray(pixels.transpose(1, 2, 0)[..., :: -1 if order == "bgr" else 1]))


def with_color(luma: Image.Image, picture: Image.Image) -> Image.Image:
    """RGB of a grey picture and the colors of another, which is enlarged with bicubic interpolation."""
    _, blue, red = picture.convert("YCbCr").resize(luma.size, Image.Resampling.BICUBIC).split()
    return Image.merge("YCbCr", (luma, blue, red)).convert("RGB")


def save_picture(picture: Image.Image, path: str | os.PathLike[str]) -> None:
    """Writes a picture file, in the format of the path's ending. Raises InputError naming the path."""
    kind = Image.registered_extensions().get(Path(path).suffix.lower())
    if kind not in Image.SAVE:
        raise InputError(f"cannot write {os.fspath(path)!r}: Pillow writes no such format; use .png")
    with written_whole(path) as file:
        picture.save(file, kind)
