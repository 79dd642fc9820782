"""Lifetimes to memory: which textures may share an image, or bytes of one workspace.

Where a device makes images from parts of a buffer, each texture is an image of its own size there, and all share the
buffer. Elsewhere textures take turns in images that are as large as the largest of them. One in a larger image has
other tensors' texels beside it and below it instead of the zero border: its readers test their position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy

from imgconv.compiling.plan import Launch, Region
from imgconv.kernels.layout import LANES, Alignment, ImageForm, ImageLimits, Texture, Tiling

# Into how many parts a texture is cut at most to fit an image of another shape.
FOLDS = (2, 3, 4)
# The numbers of the first and the last launch that need a texture.
Life = tuple[int, int]


def lifetimes(
    launches: Sequence[Launch], lasting: frozenset[Texture] = frozenset()
) -> dict[Texture, Life]:
    """The numbers of the first and last launch that need each texture that launches write and that does not last."""
    found: dict[Texture, Life] = {}
    for number, launch in enumerate(launches):
        if isinstance(launch.writes, Texture) and launch.writes not in lasting:
            found.setdefault(launch.writes, (number, number))
        for storage in (launch.writes, *launch.reads):
            if storage in found:
                found[storage] = (found[storage][0], number)
    return found


def most_alive(launches: Sequence[Launch], lasting: frozenset[Texture] = frozenset()) -> int:
    """The most bytes that textures hold at once: no assignment takes less."""
    changes: dict[int, int] = {}
    for texture, (first, last) in lifetimes(launches, lasting).items():
        changes[first] = changes.get(first, 0) + texture.bytes
        changes[last + 1] = changes.get(last + 1, 0) - texture.bytes
    held = most = 0
    for number in sorted(changes):
        held += changes[number]
        most = max(most, held)
    return most


def assign_slots(
    launches: Sequence[Launch], lasting: frozenset[Texture], limits: ImageLimits
) -> dict[Texture, tuple[int, Tiling]]:
    """The number of the image that holds each texture, and how it lies there; not of those that last from run to run.

    Textures share an image that is of their layers and element type where the one is last read before the other is
    first written; one that is bordered only with textures of equal size.

    Greedy: texture after texture goes to the image that grows least, whole or folded. No order is the best one for
    every network, so that a few are tried; least bytes win, then the least that are folded, which are slower to read.
    """
    alive = lifetimes(launches, lasting)
    found = []
    for order in _orders(alive):
        images = _fill_images(order, alive, limits)
        found.append((sum(i.form.bytes for i in images), sum(i.folded_bytes for i in images), images))
    *_, images = min(found, key=lambda each: each[:2])
    slots = {t: (number, tiling) for number, image in enumerate(images) for t, tiling in image.textures.items()}
    return {texture: slots[texture] for texture in alive}


def _orders(alive: Mapping[Texture, Life]) -> Iterator[list[Texture]]:
    """Orders in which textures may be placed: the largest, longest, widest and last first."""
    ranks: list[Callable[[Texture], float]] = [
        lambda t: t.bytes,
        lambda t: t.bytes * (alive[t][1] - alive[t][0] + 1),
        lambda t: t.tiling.width * t.tiling.height**0.5,
        lambda t: alive[t][1],
    ]
    for rank in ranks:
        yield sorted(alive, key=rank, reverse=True)


@dataclass
class _SharedImage:
    """An image that is being filled. lives: of its textures; bordered: whether it must stay as it is."""

    form: ImageForm
    bordered: bool
    textures: dict[Texture, Tiling] = field(default_factory=dict)
    lives: list[Life] = field(default_factory=list)

    @property
    def folded_bytes(self) -> int:
        return sum(texture.bytes for texture, tiling in self.textures.items() if texture.tiling != tiling)

    def grown(self, life: Life, tiling: Tiling, needed: ImageForm) -> ImageForm | None:
        """The form with which it holds a texture too that fills a form of its own; None where they cannot share."""
        if (self.form.layers, self.form.dtype) != (needed.layers, needed.dtype):
            return None
        form = self.form.around(needed)
        if (self.bordered and form != self.form) or (tiling.bordered and form != needed):
            return None
        return None if any(first <= life[1] and life[0] <= last for first, last in self.lives) else form

    def add(self, texture: Texture, life: Life, tiling: Tiling, form: ImageForm) -> None:
        self.form = form
        self.bordered |= tiling.bordered
        self.textures[texture] = tiling
        self.lives.append(life)


def _fill_images(order: Sequence[Texture], alive: Mapping[Texture, Life], limits: ImageLimits) -> list[_SharedImage]:
    """Every texture in an image; those that come first decide where the next ones may be."""
    images: list[_SharedImage] = []
    for texture in order:
        life = alive[texture]
        image, form, tiling = _SharedImage(texture.form, texture.tiling.bordered), texture.form, texture.tiling
        least = (texture.bytes, False, 0)
        for way in _foldings(texture, limits):
            needed = replace(texture, tiling=way).form
            for other in images:
                grown = other.grown(life, way, needed)
                if grown is None:
                    continue
                cost = (grown.bytes - other.form.bytes, way != texture.tiling, grown.bytes)
                if cost < least:
                    least, image, form, tiling = cost, other, grown, way
        image.add(texture, life, tiling, form)
        if len(image.lives) == 1:
            images.append(image)
    return images


def _foldings(texture: Texture, limits: ImageLimits) -> Iterator[Tiling]:
    """How a texture may lie in an image that it shares: as it is, or folded to be narrower or lower."""
    tiling = texture.tiling
    yield tiling
    if tiling.bordered or tiling.tiles > 1:
        return
    for parts in FOLDS:
        for along, size in (("x", tiling.height), ("y", tiling.width)):
            made = tiling.folded(parts, along)
            width, height = made.image_size
            if parts <= size and width <= limits.width and height <= limits.height:
                yield made


def assign_regions(
    launches: Sequence[Launch], lasting: frozenset[Texture], alignment: Alignment
) -> dict[Texture, Region]:
    """Where each texture that is a single image lies in one workspace; those alive together do not overlap.

    Nowhere where the workspace would be larger than a buffer may be.

    Each in the lowest gap that takes it: the greedy by size of Pisarchyk and Lee, arXiv:2001.03288, and the same in
    other orders; the least workspace wins.
    """
    alive = {t: life for t, life in lifetimes(launches, lasting).items() if t.tiling.layers == 1}

    def end(placed: Mapping[Texture, Region]) -> int:
        return max((region.offset + region.bytes for region in placed.values()), default=0)

    least = min((_place_regions(order, alive, alignment) for order in _orders(alive)), key=end)
    return least if end(least) <= alignment.limit else {}


def _place_regions(
    order: Sequence[Texture], alive: Mapping[Texture, Life], alignment: Alignment
) -> dict[Texture, Region]:
    """Every texture in the lowest gap that those before it left."""
    placed: list[tuple[Life, Texture, Region]] = []
    for texture in order:
        row_bytes, base, size = _in_buffer(texture, alignment)
        first, last = alive[texture]
        together = [region for life, _, region in placed if life[0] <= last and first <= life[1]]
        offset = 0
        for region in sorted(together, key=lambda r: r.offset):
            if offset + size <= region.offset:
                break
            offset = max(offset, -(-(region.offset + region.bytes) // base) * base)
        placed.append((alive[texture], texture, Region(offset, row_bytes, size)))
    return {texture: region for _, texture, region in placed}


def _in_buffer(texture: Texture, alignment: Alignment) -> tuple[int, int, int]:
    """Bytes of a row, that the start is a multiple of, and in all."""
    texel = LANES * numpy.dtype(texture.dtype).itemsize
    width, height = texture.tiling.image_size
    row_bytes = -(-width // alignment.row) * alignment.row * texel
    return row_bytes, alignment.base * texel, row_bytes * height
