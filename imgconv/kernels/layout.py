"""The texel and lane of each element of a tensor. All address arithmetic is in this file.

A tensor's axes are divided into three groups: rows, columns and one packed axis. Four elements of the packed axis share
a texel.

    texel x = column * C4 + c // 4      lane = c % 4      C4 = ceil(C / 4)
    texel y = row

For NCHW the rows are (N, H), the columns (W) and the packed axis is C:

              w=0            w=1
          c0-3  c4-7     c0-3  c4-7           lanes past C are zero
    n=0 h=0 [rgba][rgba] [rgba][rgba] ...
        h=1 [rgba][rgba] [rgba][rgba] ...
    n=1 h=0 ...

If a texel grid exceeds the device's image limit, it is cut into tiles, which are stored in one image: the tiles of a
wide grid below each other, those of a tall grid next to each other. If one image is too small, the tiles are stored in
the layers of an image array. `Tiling.locate` is this mapping. Every formula is an `Index`, which can be evaluated in
Python and rendered as OpenCL C.

An image that several textures share may be larger than one of them. Each texture starts at texel (0, 0) of the image;
the texels next to and below it belong to other textures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, prod
from typing import Literal

import numpy

from imgconv.arrays import Array
from imgconv.dtype import UINT8, DType
from imgconv.errors import ResourceError
from imgconv.graph.index import Index, constant, flatten, variable
from imgconv.graph.quantization import Quantization
from imgconv.graph.view import Shape

LANES = 4

Texels = tuple[int, ...]
TexelAxis = Literal["x", "y"]


@dataclass(frozen=True)
class ImageLimits:
    """The largest image of a device, in texels, and the most layers of its image arrays."""

    width: int
    height: int
    layers: int


@dataclass(frozen=True)
class ImageAlignment:
    """The alignment of an image in a buffer, in texels. row: of the start of a row. base: of the start of the image.

    limit: the most bytes of one buffer.
    """

    row: int
    base: int
    limit: int


@dataclass(frozen=True)
class Layout:
    """The axes of a tensor that are rows and columns, and the one packed four to a texel (None for a scalar).

        image_layout(4)    NCHW: rows (0, 2), columns (3,), packed 1
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    packed: int | None

    def channels(self, shape: Shape) -> int:
        return 1 if self.packed is None else shape[self.packed]

    def quads(self, shape: Shape) -> int:
        """The number of texels along the packed axis: ceil(C / 4)."""
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
        """The position that is stored at a lane of texel (x, y). The inverse of `address`."""
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

    def pack(self, array: Array) -> Array:
        """The texels (height, width, 4) of a numpy array. Lanes past C are zero."""
        rows = [array.shape[a] for a in self.rows]
        columns = [array.shape[a] for a in self.columns]
        channels = self.channels(array.shape)
        order = [*self.rows, *self.columns, *([] if self.packed is None else [self.packed])]
        grid = array.transpose(order).reshape(prod(rows), prod(columns), channels)
        quads = self.quads(array.shape)
        padded = numpy.zeros((prod(rows), prod(columns), quads * LANES), array.dtype)
        padded[..., :channels] = grid
        return padded.reshape(prod(rows), prod(columns) * quads, LANES)

    def unpack(self, texels: Array, shape: Shape) -> Array:
        """The array of a given shape from its texels. The inverse of `pack`."""
        order = [*self.rows, *self.columns, *([] if self.packed is None else [self.packed])]
        columns = prod(shape[a] for a in self.columns)
        padded = texels.reshape(texels.shape[0], columns, -1)[..., : self.channels(shape)]
        array: Array = padded.reshape([shape[a] for a in order]).transpose(numpy.argsort(order).tolist())
        return array


def image_layout(rank: int) -> Layout:
    """The layout of images, such as NCHW: axis 1 packed, the last axis as columns, the others as rows."""
    if rank < 2:
        return Layout((), (), 0 if rank else None)
    if rank == 2:
        return Layout((0,), (), 1)
    return Layout((0, *range(2, rank - 1)), (rank - 1,), 1)


def matrix_layout(rank: int) -> Layout:
    """The layout of matrices: the last axis packed, the others as rows."""
    return Layout(tuple(range(rank - 1)), (), rank - 1 if rank else None)


@dataclass(frozen=True)
class Tiling:
    """The storage of a texel grid of width x height in one image, or in the layers of one image array.

    Tile t is in tile column t // tile_rows and tile row t % tile_rows. A layer holds `per_layer` tiles, stacked along y
    (for wide grids) or along x (for tall ones). bordered: whether the image ends at the last tile, so that reads past
    the grid return zero. If not, a kernel that needs zeros there checks its position. linear: whether there is no
    image: the rows of the one tile are stored one after another in a buffer, and kernels compute addresses.
    """

    width: int
    height: int
    tile_width: int
    tile_height: int
    per_layer: int
    stacked_along: TexelAxis
    bordered: bool = True
    linear: bool = False

    @property
    def tile_rows(self) -> int:
        return ceil(self.height / self.tile_height)

    @property
    def tiles(self) -> int:
        return ceil(self.width / self.tile_width) * self.tile_rows

    @property
    def is_one_image(self) -> bool:
        """Returns whether x and y of a texel of the grid are its coordinates in the image."""
        return self.tiles == 1 and not self.linear

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
        """Image x, image y and layer of the grid's texel (x, y)."""
        tile = (x // self.tile_width) * self.tile_rows + y // self.tile_height
        slot, layer = tile % self.per_layer, tile // self.per_layer
        inside_x, inside_y = x % self.tile_width, y % self.tile_height
        if self.stacked_along == "y":
            return inside_x, inside_y + slot * self.tile_height, layer
        return inside_x + slot * self.tile_width, inside_y, layer

    @cached_property
    def texel(self) -> tuple[Index, Index, Index]:
        """`locate(x, y)` with x and y as variables."""
        return self.locate(variable("x", self.width), variable("y", self.height))

    def to_image(self, texels: Array) -> Array:
        """The image's content (layers, image height, image width, 4) from texels (height, width, 4)."""
        width, height = self.image_size
        shape = self.layers, height, width, LANES
        if self.tiles == 1 and texels.size == prod(shape):
            return numpy.ascontiguousarray(texels).reshape(shape)
        image = numpy.zeros(shape, texels.dtype)
        for (x, y), (image_x, image_y, layer), (columns, rows) in self.tile_copies():
            image[layer, image_y : image_y + rows, image_x : image_x + columns] = texels[y : y + rows, x : x + columns]
        return image

    def from_image(self, image: Array) -> Array:
        """The grid's texels from the image's content. The inverse of `to_image`."""
        width, height = self.image_size
        content = image.reshape(self.layers, height, width, LANES)
        if self.tiles == 1 and content.shape[1:3] == (self.height, self.width):
            grid: Array = content[0]
            return grid
        texels = numpy.empty((self.height, self.width, LANES), image.dtype)
        for (x, y), (image_x, image_y, layer), (columns, rows) in self.tile_copies():
            tile = content[layer, image_y : image_y + rows, image_x : image_x + columns]
            texels[y : y + rows, x : x + columns] = tile
        return texels

    def tile_copies(self) -> Iterator[tuple[Texels, Texels, Texels]]:
        """For each tile: its origin in the grid (x, y) and in the image (x, y, layer), and its width and height."""
        for x in range(0, self.width, self.tile_width):
            for y in range(0, self.height, self.tile_height):
                image_x, image_y, layer = (e.constant for e in self.locate(constant(x), constant(y)))
                size = (min(self.tile_width, self.width - x), min(self.tile_height, self.height - y))
                yield (x, y), (image_x, image_y, layer), size


def choose_tiling(width: int, height: int, limits: ImageLimits | None, tensor: str, shape: Shape) -> Tiling:
    """The tiling of a texel grid under a device's limits, linear if `limits` is None.

    Raises ResourceError if no tiling fits.
    """
    if limits is None:
        return Tiling(width, height, width, height, 1, "y", linear=True)
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
class ImageDescriptor:
    """An image's width and height in texels, its layers (1 if it is not an array) and its element type.

    linear: it is a buffer of such texels instead.
    """

    width: int
    height: int
    layers: int
    dtype: DType
    linear: bool = False

    @cached_property
    def bytes(self) -> int:
        return self.width * self.height * self.layers * LANES * self.dtype.bytes

    def holds(self, texture: Texture) -> bool:
        """Returns whether the image can hold a texture. A bordered texture must fill it."""
        other = texture.descriptor
        if texture.tiling.bordered:
            return self == other
        fits = other.width <= self.width and other.height <= self.height
        return fits and (other.layers, other.dtype, other.linear) == (self.layers, self.dtype, self.linear)

    def covering(self, other: ImageDescriptor) -> ImageDescriptor:
        """The smallest descriptor that holds both, with this descriptor's layers and element type."""
        if other.width <= self.width and other.height <= self.height:
            return self
        return replace(self, width=max(self.width, other.width), height=max(self.height, other.height))


@dataclass(frozen=True)
class Texture:
    """A virtual texture: a tensor's shape, layout, element type and tiling. It has no memory yet.

    quantization: of the numbers, if the bytes are levels of a quantised network.
    """

    name: str
    shape: Shape
    layout: Layout
    dtype: DType
    tiling: Tiling
    quantization: Quantization | None = None

    @property
    def descriptor(self) -> ImageDescriptor:
        """The image that the texture fills."""
        return ImageDescriptor(*self.tiling.image_size, self.tiling.layers, self.dtype, self.tiling.linear)

    @property
    def bytes(self) -> int:
        """Bytes of the image that the texture fills."""
        return self.descriptor.bytes

    def __str__(self) -> str:
        width, height = self.tiling.image_size
        layers = f"x{self.tiling.layers}" if self.tiling.layers > 1 else ""
        tiles = f" in {self.tiling.tiles} tiles" if self.tiling.tiles > 1 else ""
        levels = f" ({self.quantization})" if self.quantization else ""
        return f"{self.name} {list(self.shape)} {self.dtype}{levels} {width}x{height}{layers}{tiles}"


def byte_texture(name: str, shape: Shape, limits: ImageLimits | None) -> Texture | None:
    """Returns the texture that holds a row-major array of bytes unchanged, four to a texel; None if there is none.

    Its shape is (rows, bytes of a row). A row consists of the fewest last axes of the array for which a row has whole
    texels and the image needs no tiles.
    """
    size = prod(shape)
    for axis in reversed(range(len(shape) if size else 0)):
        row = prod(shape[axis:])
        width, height = row // LANES, size // row
        if row % LANES == 0 and (limits is None or (width <= limits.width and height <= limits.height)):
            tiling = choose_tiling(width, height, limits, name, shape)
            return Texture(name, (height, row), matrix_layout(2), UINT8, tiling)
    return None


@dataclass(frozen=True)
class HostBuffer:
    """A row-major buffer, for tensors that come from or go to the host. `layout` only orders the work items."""

    name: str
    shape: Shape
    layout: Layout
    dtype: DType

    def __hash__(self) -> int:
        return hash(self.name)  # each run looks buffers up, and to hash all fields takes 1 us

    @property
    def bytes(self) -> int:
        return prod(self.shape) * self.dtype.bytes


def as_texture(storage: Texture | HostBuffer) -> Texture:
    """The storage, where only a texture can be. Raises TypeError for a buffer."""
    if not isinstance(storage, Texture):
        raise TypeError(f"{storage.name} is in a buffer, not in a texture")
    return storage


@dataclass(frozen=True)
class Placement:
    """A tensor in a texture or a buffer. channel_offset: where it starts along the packed axis, a multiple of four."""

    storage: Texture | HostBuffer
    shape: Shape
    channel_offset: int = 0

    @property
    def layout(self) -> Layout:
        return self.storage.layout

    @property
    def texture(self) -> Texture:
        """The storage of a tensor that is placed in a texture. Raises TypeError for a buffer."""
        return as_texture(self.storage)

    @property
    def bytes(self) -> int:
        """Bytes of the texels, or of the buffer, that hold the tensor."""
        if isinstance(self.storage, HostBuffer):
            return self.storage.bytes
        width, height = self.layout.grid(self.shape)
        return width * height * LANES * numpy.dtype(self.storage.dtype).itemsize

    @property
    def is_whole(self) -> bool:
        return self.shape == self.storage.shape

    def address(self, position: Sequence[Index]) -> tuple[Index, Index, Index]:
        """Texel x, texel y and lane of a position of the tensor, in the storage's texel grid."""
        moved = list(position)
        if self.layout.packed is not None:
            moved[self.layout.packed] = moved[self.layout.packed] + self.channel_offset
        return self.layout.address(self.storage.shape, moved)
