"""The problem of winograd2d.cl: the sizes of its launches, and what is chosen for them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from imgconv.config import Accumulation
from imgconv.graph.nodes import Convolution
from imgconv.kernels.conv import problem as conv
from imgconv.kernels.layout import LANES


@dataclass(frozen=True)
class Problem:
    """The launch of winograd2d.cl before the products of a convolution, or if `to_outputs` the one after them.

    folds: rows of the textures of taps and sums for a row of tiles. tile: outputs of a tile in a row and in a column.
    """

    convolution: conv.Problem
    to_outputs: bool
    folds: int = 1
    tile: int = 2

    @property
    def sums(self) -> Accumulation:
        """The width in which the convolution sums."""
        return self.convolution.sums

    @property
    def multiply_adds(self) -> int:
        """0: those of the convolution are the launch's of conv.cl."""
        return 0

    @property
    def quads(self) -> int:
        """Quads of the input, or of the output."""
        return ceil((self.convolution.filters if self.to_outputs else self.convolution.channels) / LANES)

    @property
    def tiles(self) -> tuple[int, int]:
        """Rows and columns of tiles."""
        rows, columns = self.convolution.output_size
        return ceil(rows / self.tile), ceil(columns / self.tile)

    @property
    def taps(self) -> int:
        """Taps of a tile."""
        return (self.tile + 2) ** 2

    @property
    def tensor(self) -> tuple[int, int, int, int]:
        """The shape of the taps, or of the sums: (N, taps * channels, rows of tiles, columns of tiles)."""
        rows, columns = self.tiles
        return self.convolution.batch, self.taps * self.quads * LANES, rows * self.folds, ceil(columns / self.folds)

    @property
    def work_items(self) -> tuple[int, int, int]:
        """Work items along x, y and z, before they are rounded up to whole work groups."""
        rows, columns = self.tiles
        return columns, self.quads, self.convolution.batch * rows

    @property
    def products(self) -> conv.Problem:
        """The launch of conv.cl: taps become sums."""
        taps, sums = (replace(self, to_outputs=after).tensor for after in (False, True))
        made = conv.problem_of(Convolution(groups=self.taps), taps, (0, 0, 1, 1), sums)
        return replace(made, sums=self.convolution.sums)


@dataclass(frozen=True)
class Specialisation:
    """The work group's size, and the problem's tile."""

    local_size: tuple[int, int, int]
    tile: int = 2

    def __str__(self) -> str:
        return f"Winograd F({self.tile}x{self.tile}, 3x3), work group {'x'.join(map(str, self.local_size))}"
