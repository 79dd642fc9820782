"""Runs a network of a fixed size on a large picture: in overlapping tiles, joined without seams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy

from imgconv.arrays import Array
from imgconv.errors import InputError
from imgconv.preprocessing.preparation import Size


@dataclass(frozen=True)
class PictureTiling:
    """The tiles of a picture. picture and tile: width and height; overlap: the least number of shared pixels.

    Near its edge a tile differs from the whole picture, because convolutions read zeros there. So a quarter of the
    overlap counts nothing, the middle half goes over from one tile to the next, and the other quarter is the next
    tile's edge. The result is that of the whole picture if a quarter of the overlap is as wide as the network reaches
    to one side. A picture smaller than a tile is continued by its last row and column.

        PictureTiling((10, 6), (6, 6), 2).tile_positions()       # [(0, 0), (4, 0)]
    """

    picture: Size
    tile: Size
    overlap: int

    def __post_init__(self) -> None:
        """Raises InputError if tiles overlap by more than half."""
        if not 0 <= self.overlap <= min(self.tile) // 2:
            raise InputError(f"tiles of {self.tile[0]}x{self.tile[1]} can overlap by 0 to {min(self.tile) // 2} pixels")

    def tile_positions(self) -> list[tuple[int, int]]:
        """Left and top of every tile, row by row."""
        columns, rows = (self._tile_starts(axis) for axis in (0, 1))
        return [(left, top) for top in rows for left in columns]

    def _tile_starts(self, axis: int) -> list[int]:
        """Returns the first pixel of each tile; tiles are evenly spread."""
        rest, step = max(0, self.picture[axis] - self.tile[axis]), self.tile[axis] - self.overlap
        count = -(-rest // step) + 1
        return [round(rest * number / max(1, count - 1)) for number in range(count)]

    def cut(self, array: Array, axes: tuple[int, int] = (3, 2)) -> Iterator[Array]:
        """The tiles of an array of the whole picture, in the order of `places`. axes: those of columns and of rows."""
        margins = [(0, 0)] * array.ndim
        for axis, tile, own in zip(axes, self.tile, self.picture, strict=True):
            margins[axis] = 0, max(0, tile - own)
        padded = numpy.pad(array, margins, mode="edge")
        for place in self.tile_positions():
            part = [slice(None)] * array.ndim
            for axis, start, size in zip(axes, place, self.tile, strict=True):
                part[axis] = slice(start, start + size)
            yield numpy.ascontiguousarray(padded[tuple(part)])

    def join(self, tiles: Sequence[Array]) -> Array:
        """The map of the whole picture, float32 (1, C, h, w), from those of its tiles, each (1, C, a, b).

        A tile's map is as large as the tile, or a whole number of times as large. Raises InputError for others.
        """
        shape = tiles[0].shape
        scale = shape[-1] // self.tile[0]
        if len(shape) != 4 or scale < 1 or shape[2:] != (self.tile[1] * scale, self.tile[0] * scale):
            tile = f"{self.tile[0]}x{self.tile[1]}"
            raise InputError(f"an output {list(shape)} is not a map of its tile, {tile}, so tiles cannot be joined")
        sizes = [max(own, tile) * scale for own, tile in zip(self.picture, self.tile, strict=True)]
        total = numpy.zeros((1, shape[1], sizes[1], sizes[0]), numpy.float32)
        weight = numpy.zeros(total.shape[2:], numpy.float32)
        across, down = ([self._blending(axis, start, scale) for start in self._tile_starts(axis)] for axis in (0, 1))
        for number, (left, top) in enumerate(self.tile_positions()):
            part = down[number // len(across)][:, None] * across[number % len(across)]
            rows = slice(top * scale, top * scale + shape[2])
            columns = slice(left * scale, left * scale + shape[3])
            total[:, :, rows, columns] += tiles[number] * part
            weight[rows, columns] += part
        joined = total / weight
        return joined[:, :, : self.picture[1] * scale, : self.picture[0] * scale]

    def _blending(self, axis: int, start: int, scale: int) -> Array:
        """The weights of a tile's columns or rows: 1, and less near an edge that another tile overlaps."""
        count = self.tile[axis] * scale
        place = (numpy.arange(count) + 0.5) / scale
        weights = numpy.ones(count)
        for distance, shared in (
            (place, start > 0), (self.tile[axis] - place, start + self.tile[axis] < self.picture[axis]),
        ):
            if shared:
                quarter = max(self.overlap / 4, 0.25)
                weights = numpy.minimum(weights, ((distance - quarter) / (2 * quarter)).clip(1e-6, 1))
        return weights.astype(numpy.float32)


def default_overlap(tile: Size) -> int:
    """Returns an eighth of a tile's shorter side, and at least 32 pixels if the tile has twice that."""
    return min(max(32, min(tile) // 8), min(tile) // 2)
