"""The numbers of a session's values, where they lie on the device: how large they are, and other halves instead.

A texture is copied to a buffer, tile by tile, because kernels cannot write the image that they read. A linear texture
is a buffer already. See cl/numbers.cl.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import ceil
from pathlib import Path

import numpy

from imgconv.arrays import Array
from imgconv.cl import device
from imgconv.cl.device import Context
from imgconv.cl.image import Buffer, copy_texels, create_buffer, download_buffer, fill_buffer
from imgconv.cl.program import Part, Program, building, kernel
from imgconv.cl.queue import Kernel, enqueue
from imgconv.dtype import FLOAT16
from imgconv.kernels.layout import LANES, HostBuffer, Placement, Texels, Texture
from imgconv.runtime.session import Session

FILE = Path(device.__file__).with_name("numbers.cl")
ITEMS = 1 << 14  # at most: each takes several texels of a large texture
RUN = {"cpu": 1 << 12}  # texels one after another; on other devices 1
HALVES = 1 << 16  # bit patterns
BITS = numpy.dtype(numpy.uint32)
# Arguments of the kernels.
TEXELS, TILE, MORE, NUMBER = range(4)


@dataclass(frozen=True)
class Tile:
    """The arguments of cl/numbers.cl for a tile: its work items, and its origin and region in the image, in texels."""

    about: Buffer
    items: tuple[int]
    origin: Texels
    region: Texels


class Numbers:
    """The values that the last step of a session has computed."""

    def __init__(self, session: Session) -> None:
        """Raises BuildError, ResourceError."""
        self._session, self._context = session, session.context
        with building_numbers(session.context) as built:
            (self._program,) = built
        self._kernels: dict[str, Kernel] = {}
        self._tiles: dict[Placement, list[Tile]] = {}
        self._indices = {name: number for number, name in enumerate(session.plan.made.values())}
        self._on_host: dict[str, float] = {}
        self._steps: dict[int, Buffer] = {}

    def measure(self, name: str) -> None:
        """Enqueues a look at the value, for `largest`; waits only for a value in a buffer of the host's."""
        place = self._session.plan.placements[name]
        if isinstance(place.storage, HostBuffer):
            self._on_host[name] = magnitude(self._session.memory.content(place.storage))
            return
        kind = "largest_half" if place.storage.dtype == FLOAT16 else "largest_float"
        for _ in self._launched(kind, place, self._largest, self._indices[name]):
            pass

    def largest(self) -> dict[str, float]:
        """The largest magnitude of each value that was measured since the last call, NaN if a number is NaN. Waits."""
        bits = download_buffer(self._context, self._largest, (max(len(self._indices), 1),), BITS)
        fill_buffer(self._context, self._largest, 0.0)
        halves = bits.astype(numpy.uint16).view(numpy.float16)
        found, places = dict(self._on_host), self._session.plan.placements
        for name, number in self._indices.items():
            if name not in found:
                in_half = places[name].storage.dtype == FLOAT16
                found[name] = float(halves[number] if in_half else bits.view(numpy.float32)[number])
        self._on_host.clear()
        return found

    def move(self, place: Placement, units: int, begin: int) -> None:
        """Enqueues what `moved_halves` does to a value, or a part of one, in a texture of halves."""
        if units not in self._steps:
            self._steps[units] = create_buffer(self._context, random_steps(units))
        storage = place.storage
        assert isinstance(storage, Texture)
        for tile in self._launched("move", place, self._steps[units], begin):
            if not storage.tiling.linear:
                copy_texels(self._context, self._session.memory[storage], self._scratch, tile.origin, tile.region)

    def _launched(self, kind: str, place: Placement, more: Buffer, number: int) -> Iterator[Tile]:
        """Launches a kernel on each tile. Gives the tile, whose texels are in the scratch memory if it is no buffer."""
        storage = place.storage
        assert isinstance(storage, Texture)
        if kind not in self._kernels:
            self._kernels[kind] = kernel(self._program, kind)
        if place not in self._tiles:
            self._tiles[place] = list(self._tiles_of(place, storage))
        launch, memory, is_buffer = self._kernels[kind], self._session.memory[storage], storage.tiling.linear
        launch.set_arg(TEXELS, memory if is_buffer else self._scratch)
        launch.set_arg(MORE, more)
        launch.set_arg(NUMBER, numpy.int32(number))
        for tile in self._tiles[place]:
            if not is_buffer:
                copy_texels(self._context, self._scratch, memory, tile.origin, tile.region)
            launch.set_arg(TILE, tile.about)
            enqueue(self._context, launch, tile.items)
            yield tile

    def _tiles_of(self, place: Placement, storage: Texture) -> Iterator[Tile]:
        quads, run = storage.layout.quads(storage.shape), RUN.get(self._context.info.kind, 1)
        part = place.channel_offset // LANES, place.layout.quads(place.shape)
        for (x, _), origin, (width, height) in storage.tiling.moves():
            size = width * height
            about = numpy.array([size, run, width, x % quads, quads, *part], numpy.int32)
            items = min(ceil(size / run), ITEMS)
            yield Tile(create_buffer(self._context, about), (items,), origin, (width, height, 1))

    @cached_property
    def _scratch(self) -> Buffer:
        """Memory for the texels of the largest tile."""
        storages = (place.storage for place in self._session.plan.placements.values())
        tiles = ((each.tiling, each.dtype) for each in storages if isinstance(each, Texture))
        most = max(tiling.tile_width * tiling.tile_height * numpy.dtype(dtype).itemsize for tiling, dtype in tiles)
        return create_buffer(self._context, LANES * most, "numbers")

    @cached_property
    def _largest(self) -> Buffer:
        return create_buffer(self._context, numpy.zeros(max(len(self._indices), 1), BITS))


def building_numbers(context: Context) -> AbstractContextManager[Iterator[Program]]:
    """Builds cl/numbers.cl beside what is done inside; see `building`. Raises BuildError."""
    return building(context, [Part(FILE.read_text(encoding="utf-8"), FILE.name)])


def magnitude(array: Array) -> float:
    """The largest absolute value; NaN if an element is NaN."""
    if array.dtype != numpy.float16:
        return float(numpy.max(numpy.abs(array), initial=0.0))
    # As integers: numpy has no fast comparison of halves. All NaN are above all numbers.
    bits = numpy.max(array.view(numpy.uint16) & 0x7FFF, initial=0)
    return float(numpy.uint16(bits).view(numpy.float16))


def moved_halves(array: Array, units: int, begin: int) -> Array:
    """The halves, each moved by up to `units` in its last place, up or down. Zeros, infinities and signs stay.

    begin: which of 2^16 ways. Equal halves move alike.
    """
    bits = array.view(numpy.uint16)
    if bits.size <= HALVES:
        return _moved_bits(bits, units, begin).view(numpy.float16)
    return _moved_bits(numpy.arange(HALVES, dtype=numpy.uint16), units, begin)[bits].view(numpy.float16)


def _moved_bits(bits: Array, units: int, begin: int) -> Array:
    size = bits & 0x7FFF
    steps = random_steps(units)[begin : begin + HALVES][bits]
    moved = (bits & 0x8000) | numpy.clip(size.view(numpy.int16) + steps, 0, 0x7BFF).view(numpy.uint16)
    return numpy.where((size > 0) & (size <= 0x7BFF), moved, bits)


@lru_cache
def random_steps(units: int) -> Array:
    """Random numbers of -units .. units, for every half, and once more: to draw them takes longer than to use them."""
    drawn = numpy.random.default_rng(units).integers(-units, units + 1, HALVES, numpy.int16)
    return numpy.concatenate([drawn, drawn])
