"""Damaged pictures of every common format, mode and orientation: a picture of the right size, or an InputError."""

from __future__ import annotations

import tempfile
import warnings
from contextlib import redirect_stderr
from io import BytesIO, StringIO
from pathlib import Path

import numpy
from fuzz.case import Draw, Wrong, damaged
from PIL import Image

from imgconv.errors import InputError
from imgconv.preprocess import FILTERS, RESIZES, Preparation, read_picture, to_array

MODES = {
    "PNG": ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"), "JPEG": ("L", "RGB", "CMYK"), "GIF": ("L", "P"),
    "BMP": ("1", "L", "RGB"), "TIFF": ("1", "L", "RGB", "CMYK", "F"), "WEBP": ("RGB", "RGBA"), "PPM": ("L", "RGB"),
}
SIDES = (1, 2, 3, 7, 8, 9, 16, 33)


def drawn(draw: Draw) -> bytes:
    """A picture file."""
    kind = draw.random.choice(sorted(MODES))
    mode = draw.random.choice(MODES[kind])
    size = draw.random.choice(SIDES), draw.random.choice(SIDES)
    pixels = numpy.random.default_rng(draw.seed).integers(0, 256, (size[1], size[0], 3)).astype(numpy.uint8)
    picture = Image.fromarray(pixels)
    picture = Image.fromarray(pixels[..., 0].astype(numpy.uint16)) if mode == "I;16" else picture.convert(mode)
    exif = Image.Exif()
    if draw.random.random() < 0.5:
        exif[0x0112] = draw.random.randrange(10)
    file = BytesIO()
    options = {"exif": exif} if kind in ("JPEG", "PNG", "TIFF", "WEBP") else {}
    if (kind, mode) == ("PNG", "P"):
        options["transparency"] = bytes(range(256))
    picture.save(file, kind, **options)
    return file.getvalue()


def run(draw: Draw) -> str:
    """One case. Raises Wrong, and what is no InputError; returns in a word what came of it."""
    content = drawn(draw)
    whole = draw.random.random() < 0.2
    shown = StringIO()
    with (
        tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as heard, redirect_stderr(shown)
    ):
        warnings.simplefilter("always")
        path = Path(folder) / "picture"
        path.write_bytes(content if whole else damaged(draw, content))
        how = Preparation(draw.random.choice(RESIZES), draw.random.choice(FILTERS))
        size = draw.random.choice(SIDES), draw.random.choice(SIDES)
        try:
            picture = read_picture(path)
            if max(picture.size) > 4000:
                return "large"
            array = to_array(picture, how, size)
        except InputError as error:
            if whole and "32 bits" not in str(error):
                raise Wrong(f"a whole picture is refused: {error}") from error
            said = "InputError"
        else:
            said = "read"
            if array.shape != (1, 3, size[1], size[0]) or not numpy.isfinite(array).all():
                raise Wrong(f"{array.shape} for {size}")
    if heard:
        raise Wrong(f"a warning: {heard[0].message}")
    if shown.getvalue():
        raise Wrong(f"on the standard error stream: {shown.getvalue()}")
    return said
