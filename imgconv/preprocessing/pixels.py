"""A picture that the device prepares: its bytes and the parameters of the preparation, in one piece of memory.

runtime/picture.cl reads both, so its launches are the same for pictures of all sizes. The result equals that of
`host.to_array` up to the rounding of float sums, because both use the weights of `taps`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy

from imgconv.arrays import Array
from imgconv.preprocessing.preparation import PictureInput, Preparation, Size, luma_weights, resize_geometry, taps

if TYPE_CHECKING:
    from PIL import Image

LARGEST = 1 << 23  # bytes of a packed picture, of 2.8 megapixels; the host prepares larger ones
MIDDLE = 1 << 24  # bytes of the picture at the height of the result, in float
SLACK = 16  # bytes that the kernel reads at once
HEADER = 13  # numbers before the matrix
TABLES = 64  # pairs of sizes whose tables are kept


@dataclass(frozen=True)
class Pixels:
    """A picture that a device makes a model's input of. Model.submit takes it in place of the input's array.

    shape: of the input; size: its width and height. parts: bytes, one after another what runtime/picture.cl reads.
    stays_unchanged: whether they are one array, best of `imgconv.model.pin_in_place`, which nobody changes until the
        frame is done.

        pixels = Pixels.from_picture(picture, target, Preparation("crop"))
        model.submit({target.name: pixels}).result()
    """

    shape: tuple[int, ...]
    size: Size
    parts: Sequence[bytes | memoryview | Array]
    stays_unchanged: bool = False

    @staticmethod
    def from_picture(picture: Image.Image, target: PictureInput, preparation: Preparation) -> Pixels | None:
        """An RGB picture for this input, of float32; None if it is too large."""
        size = target.picture_size(picture.size)
        plan = _pixel_plan(picture.size, size, target.channels_last, preparation)
        if not plan.fits:
            return None
        shown = picture if plan.box == (0, 0, *picture.size) else picture.crop(plan.box)
        parts = plan.head, shown.tobytes(), bytes(SLACK)
        return Pixels(target.shape(picture.size, preparation.channels), size, parts)

    @property
    def bytes(self) -> int:
        return sum(len(part) for part in self.parts)

    def write(self, memory: Array) -> None:
        """Copies the parts to the start of an array of bytes."""
        start = 0
        for part in self.parts:
            memory[start : start + len(part)] = numpy.frombuffer(part, numpy.uint8)
            start += len(part)


@dataclass(frozen=True)
class _PixelPlan:
    """The part of Pixels that pictures of a size share. head: header and tables; box: the region that is sent."""

    head: bytes
    box: tuple[int, int, int, int]
    fits: bool


@lru_cache(TABLES)
def _pixel_plan(own: Size, size: Size, channels_last: bool, how: Preparation) -> _PixelPlan:
    inner, (left, top, right, bottom) = resize_geometry(own, size, how.resize, how.crop)
    columns, column_weights = taps(own[0], inner[0], left, right, how.filter)
    rows, row_weights = taps(own[1], inner[1], top, bottom, how.filter)
    box = int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1
    tables = [
        (rows[:, 0] - box[1]).astype(numpy.int32), row_weights.T.astype(numpy.float32),
        (columns[:, 0] - box[0]).astype(numpy.int32), column_weights.T.astype(numpy.float32),
    ]
    matrix, channels, width = _color_matrix(how), how.channels, box[2] - box[0]
    first_row = HEADER + matrix.size
    first_column = first_row + inner[1] * (1 + rows.shape[1])
    first_pixel = first_column + inner[0] * (1 + columns.shape[1])
    steps = (1, size[0] * channels, channels) if channels_last else (size[0] * size[1], size[0], 1)
    # In the order of the constants in runtime/picture.cl.
    sizes = [width, *inner, rows.shape[1], columns.shape[1], first_row, first_column, first_pixel, channels, *steps]
    numbers = [numpy.array(sizes, numpy.int32), numpy.array([how.pad], numpy.float32), matrix, *tables]
    head = b"".join(each.tobytes() for each in numbers)
    sent = len(head) + 3 * width * (box[3] - box[1]) + SLACK
    return _PixelPlan(head, box, sent <= LARGEST and 4 * inner[1] * (3 * width + SLACK) <= MIDDLE)


def _color_matrix(how: Preparation) -> Array:
    """float32 (channels, 4): the gains of red, green and blue for each channel of the input, and what is added."""
    colors = {"rgb": numpy.eye(3), "bgr": numpy.eye(3)[::-1], "y": numpy.array([luma_weights()])}[how.order]
    std = numpy.array(how.std).reshape(-1, 1)
    added = numpy.broadcast_to(-numpy.array(how.mean).reshape(-1, 1) / std, (how.channels, 1))
    return numpy.hstack([colors * (how.scale / std), added]).astype(numpy.float32)
