"""Pictures to a model's input arrays, and image outputs back to pictures."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy
from PIL import Image, ImageOps, UnidentifiedImageError

from imgconv.errors import InputError

RESIZES = ("stretch", "crop", "letterbox")
ORDERS = ("rgb", "bgr", "y")
FILTERS = ("antialias", "bilinear")
Size = tuple[int, int]  # width, height in pixels, as Pillow has it


@dataclass(frozen=True)
class Preparation:
    """How a picture becomes a model's input: x = (pixel * scale - mean) / std, with pixels from 0 to 255.

    resize: 'stretch' fills the model's size, without keeping the aspect; 'crop' scales the picture until it covers the
    size and keeps the middle; 'letterbox' scales it until it fits, puts it at the top left, and fills with `pad`.
    order: 'rgb', 'bgr' or 'y' (the luma of JPEG, BT.601: one channel). mean and std: one value, or one for each channel
    in that order. filter: 'antialias' averages all pixels that fall into one, as Pillow and torchvision do; 'bilinear'
    looks at the four nearest only, as OpenCV does.
    """

    resize: str = "stretch"
    filter: str = "antialias"
    order: str = "rgb"
    scale: float = 1.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    pad: int = 114

    def __post_init__(self) -> None:
        """Raises InputError for a setting that fits no picture."""
        choices = (("resize", self.resize, RESIZES), ("order", self.order, ORDERS), ("filter", self.filter, FILTERS))
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
    scales = size[0] / picture.width, size[1] / picture.height
    if preparation.resize == "letterbox":
        scale = letterbox_scale(picture.size, size)
        inner = max(1, int(picture.width * scale)), max(1, int(picture.height * scale))
        boxed = Image.new("RGB", size, (preparation.pad,) * 3)
        boxed.paste(_scaled(picture, inner, (0, 0, *picture.size), preparation.filter), (0, 0))
        return boxed
    shown = (size[0] / max(scales), size[1] / max(scales)) if preparation.resize == "crop" else picture.size
    left, top = (picture.width - shown[0]) / 2, (picture.height - shown[1]) / 2
    return _scaled(picture, size, (left, top, left + shown[0], top + shown[1]), preparation.filter)


def _scaled(picture: Image.Image, size: Size, box: tuple[float, float, float, float], how: str) -> Image.Image:
    """The part of the picture in `box` (left, top, right, bottom) at exactly `size`."""
    if how == "antialias":
        return picture.resize(size, Image.Resampling.BILINEAR, box)
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


@contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A file to write that takes the place of `path` once it is complete; nothing stays behind otherwise.

    Raises InputError naming the path where it cannot be written.
    """
    path = Path(path)
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with partial.open("wb") as file:
            yield file
        partial.replace(path)
    except OSError as error:
        raise InputError(f"cannot write {os.fspath(path)!r}: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)
