"""Pictures on the host: reads files into a model's input arrays, and writes image outputs to files."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Lock
from typing import IO

import numpy
from PIL import Image, ImageOps, UnidentifiedImageError

from imgconv.arrays import Array
from imgconv.errors import InputError
from imgconv.files.disk import check_regular, atomic_write
from imgconv.preprocessing.pixels import Pixels
from imgconv.preprocessing.preparation import (
    ChannelOrder, Filter, PictureInput, Preparation, Size, luma_weights, resize_geometry, taps,
)

ORIENTATION = 0x0112  # the tag of EXIF data
# Pillow's own filters, which `taps` follows; it has none that skips pixels, as "bilinear" does.
PILLOW: Mapping[str, Image.Resampling] = {
    "antialias": Image.Resampling.BILINEAR, "area": Image.Resampling.BOX, "bicubic": Image.Resampling.BICUBIC,
}
_quiet = Lock()  # warnings are turned off for a moment, which only one thread may do at a time


def read_picture(path: str | os.PathLike[str]) -> Image.Image:
    """The picture in a file as RGB, rotated as its EXIF data says. Raises InputError with the file's name.

    One of more pixels than twice Pillow's MAX_IMAGE_PIXELS, about 179 million, is refused.
    """
    name = os.fspath(path)
    try:
        check_regular(path)
    except OSError as error:
        raise InputError(f"cannot read picture {name!r}: {error.strerror or error}") from error
    return open_upright(name, name)


def open_upright(name: str, source: str | IO[bytes]) -> Image.Image:
    """The picture in a file or a stream of bytes, as `read_picture` gives it. Raises InputError with the name."""
    try:
        with _without_warnings():
            opened = Image.open(source)
        with opened as image:
            with _without_warnings():
                image.getexif().get(ORIENTATION)  # kept; a TIFF file's is read again when it is loaded
            with _without_warnings() if _is_large(image) else nullcontext():  # several threads at once
                image.load()
            with _without_warnings():  # some formats have EXIF data after the pixels
                turned = image if image.getexif().get(ORIENTATION, 1) == 1 else ImageOps.exif_transpose(image)
            if turned.mode == "RGB":
                return turned
            if turned.mode.startswith("I;16"):
                return Image.fromarray((numpy.asarray(turned) // 257).astype(numpy.uint8)).convert("RGB")
            if turned.mode in ("I", "F"):
                raise InputError(f"picture {name!r} has 32 bits per pixel; save it with 8 or 16")
            with _without_warnings() if turned.mode == "P" else nullcontext():  # of transparency
                return turned.convert("RGB")
    except UnidentifiedImageError as error:
        raise InputError(f"{name!r} is not a picture that Pillow can read") from error
    except InputError:
        raise
    # Pillow's decoders raise almost any error on a broken file: SyntaxError, ValueError, struct.error, zlib.error ...
    except Exception as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InputError(f"cannot read picture {name!r}: {reason}") from error


def _is_large(image: Image.Image) -> bool:
    """Returns whether Pillow may warn of the picture's size when it is loaded: of TIFF files it does."""
    return Image.MAX_IMAGE_PIXELS is not None and image.width * image.height > Image.MAX_IMAGE_PIXELS


@contextmanager
def _without_warnings() -> Iterator[None]:
    """A context in which Pillow's warnings, of odd EXIF data for example, are not shown.

    What it logs goes only where the program sends it, not to the standard error stream.
    """
    logger, nowhere = logging.getLogger("PIL"), logging.NullHandler()
    with _quiet, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logger.addHandler(nowhere)
        try:
            yield
        finally:
            logger.removeHandler(nowhere)


def resized(picture: Image.Image, size: Size, preparation: Preparation) -> Image.Image:
    """The picture at exactly `size`, by the preparation's resize, filter and pad; rounded to 8 bits at the end."""
    planes = _resized_channels(picture, size, preparation, (0, 1, 2))
    return Image.fromarray(numpy.ascontiguousarray(numpy.rint(planes).astype(numpy.uint8).transpose(1, 2, 0)))


def to_array(picture: Image.Image, preparation: Preparation, size: Size | None = None) -> Array:
    """The picture as float32 (1, C, H, W), at `size` (width, height) or its own size; C is 3, or 1 for order 'y'.

    No step rounds to 8 bits. `Model.preprocess` computes the same on a device, up to the rounding of float sums.
    Example: to_array(read_picture("a.jpg"), Preparation("crop"), (224, 224)) has shape (1, 3, 224, 224).
    """
    order = (2, 1, 0) if preparation.order == "bgr" else (0, 1, 2)
    planes = _resized_channels(picture, size, preparation, order)
    if preparation.order == "y":
        planes = numpy.tensordot(numpy.array(luma_weights(), numpy.float32), planes, 1)[None]
    std = numpy.array(preparation.std)
    gain, offset = preparation.scale / std, -numpy.array(preparation.mean) / std
    if numpy.any(gain != 1):
        planes *= gain.astype(numpy.float32).reshape(-1, 1, 1)
    if numpy.any(offset != 0):
        planes += offset.astype(numpy.float32).reshape(-1, 1, 1)
    return planes[None]


def input_array(picture: Image.Image, target: PictureInput, preparation: Preparation) -> Array:
    """The input array of a model for a picture; rounded and clipped if the model takes integers."""
    array = to_array(picture, preparation, target.picture_size(picture.size))
    array = array.transpose(0, 2, 3, 1) if target.channels_last else array
    if target.dtype.startswith("float"):
        return array.astype(target.dtype, copy=False)
    limits = numpy.iinfo(target.dtype)
    return numpy.rint(array).clip(limits.min, limits.max).astype(target.dtype)


def pixels_or_array(
    picture: Image.Image, target: PictureInput, preparation: Preparation, on_device: bool
) -> Pixels | Array:
    """An RGB picture for this input, for Model.submit: Pixels if the device can prepare it, else the input's array.

    on_device: whether the device can prepare pictures, as imgconv.model.prepares_pictures says.
    """
    pixels = Pixels.from_picture(picture, target, preparation) if on_device else None
    return pixels or input_array(picture, target, preparation)


def _resized_channels(picture: Image.Image, size: Size | None, preparation: Preparation, order: Sequence[int]) -> Array:
    """The picture at `size`, None for its own, as float32 (3, height, width) from 0 to 255, in this order of channels.

    Raises InputError if it is not an image of Pillow.
    """
    if not isinstance(picture, Image.Image):
        remedy = "read a file with read_picture; of an array, take PIL.Image.fromarray"
        raise InputError(f"a picture is a PIL.Image.Image, not {type(picture).__name__}: {remedy}")
    size = size or picture.size
    rgb = picture if picture.mode == "RGB" else picture.convert("RGB")
    (width, height), box = resize_geometry(picture.size, size, preparation.resize, preparation.crop)
    framed = numpy.empty((len(order), size[1], size[0]), numpy.float32)
    if (width, height) != size:
        framed.fill(preparation.pad)
    for plane, channel in zip(framed, order, strict=True):
        plane[:height, :width] = _resized_channel(rgb.getchannel(channel), (width, height), box, preparation.filter)
    if preparation.filter == "bicubic":  # only a cubic filter overshoots
        framed.clip(0, 255, out=framed)
    return framed


def _resized_channel(band: Image.Image, size: Size, box: tuple[float, float, float, float], how: Filter) -> Array:
    """The part `box` of one channel at `size`, (height, width); in float from end to end."""
    if how in PILLOW:
        return numpy.asarray(band.convert("F").resize(size, PILLOW[how], box))
    rows, row_weights = taps(band.height, size[1], box[1], box[3], how)
    columns, column_weights = taps(band.width, size[0], box[0], box[2], how)
    tall = numpy.einsum("otx,ot->ox", numpy.asarray(band)[rows], row_weights.astype(numpy.float32))
    wide: Array = numpy.einsum("yot,ot->yo", tall[:, columns], column_weights.astype(numpy.float32))
    return wide


# Not 1, because networks overshoot; a picture in 0 .. 255 without a value above it would be black.
LARGEST_OF_ONE = 4


def guess_range(array: Array) -> tuple[float, float]:
    """(black, white): (0, 255) if the array is uint8 or its largest value is above LARGEST_OF_ONE, else (0, 1)."""
    is_bytes = array.dtype == numpy.uint8 or numpy.nanmax(array, initial=0) > LARGEST_OF_ONE
    return (0.0, 255.0) if is_bytes else (0.0, 1.0)


def to_picture(
    array: Array, order: ChannelOrder = "rgb", value_range: tuple[float, float] | None = None
) -> Image.Image:
    """The picture in a (C, H, W) array of one or three channels.

    value_range: the values of black and white; see `guess_range` for the default. Values outside of the range are
    clipped; NaN becomes black. Example: to_picture(output[0], value_range=(0, 1)).
    """
    low, high = guess_range(array) if value_range is None else value_range
    scaled = (numpy.nan_to_num(array.astype(numpy.float64), nan=low) - low) * (255 / (high - low))
    pixels = numpy.rint(scaled.clip(0, 255)).astype(numpy.uint8)
    if pixels.shape[0] == 1:
        return Image.fromarray(pixels[0])
    return Image.fromarray(numpy.ascontiguousarray(pixels.transpose(1, 2, 0)[..., :: -1 if order == "bgr" else 1]))


def with_color(luma: Image.Image, picture: Image.Image) -> Image.Image:
    """An RGB picture with the luma of one picture and the colors of another, resized to it with Pillow's BICUBIC."""
    _, blue, red = picture.convert("YCbCr").resize(luma.size, Image.Resampling.BICUBIC).split()
    return Image.merge("YCbCr", (luma, blue, red)).convert("RGB")


def save_picture(picture: Image.Image, path: str | os.PathLike[str]) -> None:
    """Writes a picture file in the format of the path's suffix. Raises InputError with the path."""
    kind = Image.registered_extensions().get(Path(path).suffix.lower())
    if kind not in Image.SAVE:
        raise InputError(f"cannot write {os.fspath(path)!r}: Pillow cannot write this format; use .png")
    with atomic_write(path) as file:
        picture.save(file, kind)
