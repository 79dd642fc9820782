"""Where each element of a tensor lives: the only place with address arithmetic.

A tensor's axes are split in three: rows, columns and one packed axis, four of whose elements share an RGBA texel.

    texel x = column * C4 + c // 4      lane = c % 4      C4 = ceil(C / 4)
    texel y = row

For NCHW the rows are (N, H), the columns (W) and the packed axis is C:

              w=0            w=1
          c0-3  c4-7     c0-3  c4-7           lanes past C are zero
    n=0 h=0 [rgba][rgba] [rgba][rgba] ...
        h=1 [rgba][rgba] [rgba][rgba] ...
    n=1 h=0 ...

A texel grid larger than the device's image limit is cut into tiles that are stored side by side in one image (wide
grids: below each other; tall grids: beside each other) and, where one image is too small, in the layers of an image
array. `Tiling.locate` is that mapping. Every formula is an `Index`, evaluated by Python and rendered as OpenCL text.

Where textures take turns in an image, a grid is cut the same way to fit the image that there is, and the image may be
larger than the tiles: they begin at its texel (0, 0), and what lies beside and below them are other textures' texels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, prod
from typing import Any

import numpy

from imgconv.errors import ResourceError
from imgconv.graph.index import Index, constant, flatten, variable
from imgconv.graph.view import Shape

LANES = 4

Texels = tuple[int, ...]


@dataclass(frozen=True)
class ImageLimits:
    """The largest image that a device takes, in texels, and the layers of its image arrays."""

    width: int
    height: int
    layers: int


@dataclass(frozen=True)
class Alignment:
    """What an image in a buffer must be aligned to, in texels: the start of a row, and that of the image.

    limit: bytes that one buffer may have.
    """

    row: int
    base: int
    limit: int


@dataclass(frozen=True)
class Layout:
    """Which axes of a tensor are rows, columns and packed four to a texel (None for a scalar)."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    packed: int | None

    def channels(self, shape: Shape) -> int:
        return 1 if self.packed is None else shape[self.packed]

    def quads(self, shape: Shape) -> int:
        """Texels that hold the packed axis: ceil(C / 4)."""
        return ceil(self.channels(shape) / LANES)

    def grid(self, shape: Shape) -> tuple[int, int]:
        """Width and height in texels."""
        return prod(shape[a] for a in self.columns) * self.quads(shape), prod(shape[a] for a in self.rows)

    def address(self, shape: Shape, position: Sequence[Index]) -> tuple[Index, Index, Index]:
        """Texel x, texel y and lane of a position."""
        column = flatten([position[a] for a in self.columns], [shape[a] for a in self.columns])
        row = flatten([position[a] for a in self.rows], [shape[a] for a in self.rows])
        channel = constant(0) if self.packed is None else position[self.packed]
        return column * self.quads(shape) + channel // LANES, row, channel % LANES

    def position(self, shape: Shape, x: Index, y: Index, lane: Index) -> tuple[Index, ...]:
        """The position that is stored at texel (x, y) and lane: the inverse of `address`."""
        quads = self.quads(shape)
        position = [constant(0)] * len(shape)
        for axes, flat in ((self.columns, x // quads), (self.rows, y)):
            for axis in reversed(axes):
                outermost = axis == axes[0]
                position[axis] = flat if outermost else flat % shape[axis]
                flat = flat // shape[axis]
        if self.packed is not None:
            position[self.packed] = (x % quads) * LANES + lane
        return tuple(position)

    def pack(self, array: Any) -> Any:
        """A numpy array as texels: (height, width, 4), zero in the lanes past C."""
        rows = [array.shape[a] for a in self.rows]
        columns = [array.shape[a] for a in self.columns]
        channels = self.channels(array.shape)
        order = [*self.rows, *self.columns, *([] if self.packed is None else [self.packed])]
        grid = array.transpose(order).reshape(prod(rows), prod(columns), channels)
        quads = self.quads(array.shape)
        padded = numpy.zeros((prod(rows), prod(columns), quads * LANES), array.dtype)
        padded[..., :channels] = grid
        return padded.reshape(prod(rows), prod(columns) * quads, LANES)

    def unpack(self, texels: Any, shape: Shape) -> Any:
        """The array of a shape from its texels: the inverse of `pack`."""
        order = [*self.rows, *self.columns, *([] if self.packed is None else [self.packed])]
        columns = prod(shape[a] for a in self.columns)
        padded = texels.reshape(texels.shape[0], columns, -1)[..., : self.channels(shape)]
        return padded.reshape([shape[a] for a in order]).transpose(numpy.argsort(order).tolist())


def image_layout(rank: int) -> Layout:
    """Axis 1 packed, the last axis as columns: NCHW and its relatives, for convolution and pooling."""
    if rank < 2:
        return Layout((), (), 0 if rank else None)
    if rank == 2:
        return Layout((0,), (), 1)
    return Layout((0, *range(2, rank - 1)), (rank - 1,), 1)


def matrix_layout(rank: int) -> Layout:
    """The last axis packed, all others as rows: matrices, for products."""
    return Layout(tuple(range(rank - 1)), (), rank - 1 if rank else None)


@dataclass(frozen=True)
class Tiling:
    """How a texel grid of width x height is stored in one image, or in the layers of one image array.

    Tile t holds the texels of tile column t // tile_rows and tile row t % tile_rows; `per_layer` tiles are stacked in
    one layer, along y (wide grids) or along x (tall ones). bordered: whether the image ends where the tiles end, so
    that it gives zero past the grid; else a reader that needs zeros there tests its position.
    """

    width: int
    height: int
    tile_width: int
    tile_height: int
    per_layer: int
    stacked_along: str
    bordered: bool = True

    @property
    def tile_rows(self) -> int:
        return ceil(self.height / self.tile_height)

    @property
    def tiles(self) -> int:
        return ceil(self.width / self.tile_width) * self.tile_rows

    @property
    def layers(self) -> int:
        return ceil(self.tiles / self.per_layer)

    @property
    def image_size(self) -> tuple[int, int]:
        """Width and height of one layer in texels."""
        stacked = min(self.tiles, self.per_layer)
        if self.stacked_along == "y":
            return self.tile_width, self.tile_height * stacked
        return self.tile_width * stacked, self.tile_height

    def locate(self, x: Index, y: Index) -> tuple[Index, Index, Index]:
        """Image x, image y and layer of a texel of the grid."""
        tile = (x // self.tile_width) * self.tile_rows + y // self.tile_height
        slot, layer = tile % self.per_layer, tile // self.per_layer
        inside_x, inside_y = x % self.tile_width, y % self.tile_height
        if self.stacked_along == "y":
            return inside_x, inside_y + slot * self.tile_height, layer
        return inside_x + slot * self.tile_width, inside_y, layer

    @cached_property
    def texel(self) -> tuple[Index, Index, Index]:
        """`locate` of the variables x and y."""
        return self.locate(variable("x", self.width), variable("y", self.height))

    def scatter(self, texels: Any) -> Any:
        """Texels (height, width, 4) as the image's content: (layers, image height, image width, 4)."""
        width, height = self.image_size
        image = numpy.zeros((self.layers, height, width, LANES), texels.dtype)
        image[self._where()] = texels
        return image

    def gather(self, image: Any) -> Any:
        """The grid's texels from the image's content: the inverse of `scatter`."""
        width, height = self.image_size
        return image.reshape(self.layers, height, width, LANES)[self._where()]

    def folded(self, parts: int, stacked_along: str) -> Tiling:
        """The grid in at most so many equal tiles, beside each other ("x": cut rows) or below each other ("y")."""
        width, height = self.width, self.height
        if stacked_along == "x":
            return replace(self, tile_width=width, tile_height=ceil(height / parts), per_layer=parts, stacked_along="x")
        return replace(self, tile_width=ceil(width / parts), tile_height=height, per_layer=parts, stacked_along="y")

    def moves(self) -> Iterator[tuple[Texels, Texels, Texels]]:
        """For each tile: where it begins in the grid, where in the image (x, y, layer), and its width and height."""
        for x in range(0, self.width, self.tile_width):
            for y in range(0, self.height, self.tile_height):
                image_x, image_y, layer = (e.constant for e in self.locate(constant(x), constant(y)))
                size = (min(self.tile_width, self.width - x), min(self.tile_height, self.height - y))
                yield (x, y), (image_x, image_y, layer), size

    def _where(self) -> tuple[Any, Any, Any]:
        values = {"x": numpy.arange(self.width)[None, :], "y": numpy.arange(self.height)[:, None]}
        shape = (self.height, self.width)
        image_x, image_y, layer = (numpy.broadcast_to(e.evaluate(values), shape) for e in self.texel)
        return layer, image_y, image_x


def choose_tiling(width: int, height: int, limits: ImageLimits, tensor: str, shape: Shape) -> Tiling:
    """The tiling of a texel grid under a device's limits. Raises ResourceError where nothing fits."""
    columns, rows = ceil(width / limits.width), ceil(height / limits.height)
    tile_width, tile_height = ceil(width / columns), ceil(height / rows)
    if rows == 1:
        tiling = Tiling(width, height, tile_width, height, limits.height // height, "y")
    elif columns == 1:
        tiling = Tiling(width, height, width, tile_height, limits.width // width, "x")
    else:
        tiling = Tiling(width, height, tile_width, tile_height, 1, "y")
    if tiling.layers > max(limits.layers, 1):
        raise ResourceError(
            f"shape {list(shape)} needs {tiling.layers} images of {limits.width}x{limits.height} texels; use a smaller "
            "input, or a higher image limit if it was lowered",
            tensor, shape, f"{limits.layers} layers in an image array",
        )
    return tiling


@dataclass(frozen=True)
class ImageForm:
    """An image's width and height in texels, its layers (1: it is no array) and its element type."""

    width: int
    height: int
    layers: int
    dtype: str

    @property
    def bytes(self) -> int:
        return self.width * self.height * self.layers * LANES * numpy.dtype(self.dtype).itemsize

    def holds(self, texture: Texture) -> bool:
        """Whether a texture can lie in it: nothing is left beside one that is bordered."""
        form = texture.form
        if texture.tiling.bordered:
            return self == form
        fits = form.width <= self.width and form.height <= self.height
        return fits and (form.layers, form.dtype) == (self.layers, self.dtype)

    def around(self, other: ImageForm) -> ImageForm:
        """The least form that both fit in, of this one's layers and element type."""
        return replace(self, width=max(self.width, other.width), height=max(self.height, other.height))


@dataclass(frozen=True)
class Texture:
    """A virtual texture: a tensor's shape and layout, its element type and its tiling. It has no memory yet."""

    name: str
    shape: Shape
    layout: Layout
    dtype: str
    tiling: Tiling

    @property
    def form(self) -> ImageForm:
        """The image that it fills."""
        return ImageForm(*self.tiling.image_size, self.tiling.layers, self.dtype)

    @property
    def bytes(self) -> int:
        """Of the image that it fills."""
        return self.form.bytes

    def __str__(self) -> str:
        width, height = self.tiling.image_size
        layers = f"x{self.tiling.layers}" if self.tiling.layers > 1 else ""
        tiles = f" in {self.tiling.tiles} tiles" if self.tiling.tiles > 1 else ""
        return f"{self.name} {list(self.shape)} {self.dtype} {width}x{height}{layers}{tiles}"


def byte_texture(name: str, shape: Shape, limits: ImageLimits) -> Texture | None:
    """The texture that holds a row-major array of bytes just as it lies, four to a texel; None where none can.

    Its shape is (rows, bytes of a row): a row is the array's last axes, as few of them as make whole texels and an
    image that needs no tiles.
    """
    size = prod(shape)
    for axis in reversed(range(len(shape) if size else 0)):
        row = prod(shape[axis:])
        width, height = row // LANES, size // row
        if row % LANES == 0 and width <= limits.width and height <= limits.height:
            tiling = choose_tiling(width, height, limits, name, shape)
            return Texture(name, (height, row), matrix_layout(2), "uint8", tiling)
    return None


@dataclass(frozen=True)
class HostBuffer:
    """A plain row-major buffer, where a tensor crosses from or to the host. `layout` only orders the work items."""

    name: str
    shape: Shape
    layout: Layout
    dtype: str

    @property
    def bytes(self) -> int:
        return prod(self.shape) * numpy.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Placement:
    """A tensor inside a texture or buffer: `channel_offset` elements along the packed axis, a multiple of four."""

    storage: Texture | HostBuffer
    shape: Shape
    channel_offset: int = 0

    @property
    def layout(self) -> Layout:
        return self.storage.layout

    @property
    def bytes(self) -> int:
        """Bytes of the texels, or of the buffer's elements, that hold the tensor."""
        if isinstance(self.storage, HostBuffer):
            return self.storage.bytes
        width, height = self.layout.grid(self.shape)
        return width * height * LANES * numpy.dtype(self.storage.dtype).itemsize

    @property
    def is_whole(self) -> bool:
        return self.shape == self.storage.shape

    def address(self, position: Sequence[Index]) -> tuple[Index, Index, Index]:
        """Texel x, texel y and lane of the tensor's position in the storage's texel grid."""
        moved = list(position)
        if self.layout.packed is not None:
            moved[self.layout.packed] = moved[self.layout.packed] + self.channel_offset
        return self.layout.address(self.storage.shape, moved)
