"""Memory planning: decides which textures share an image, or bytes of one workspace.

If a device can create images in parts of a buffer, each texture is an image of its own size in one buffer, the
workspace. Otherwise several textures use the same image one after another; it is as large as the largest of them. A
smaller texture in it has no zero border: the texels next to it and below it belong to other textures. So kernels that
read it check whether a position lies inside the texture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy

from imgconv.compiling.plan import Launch, WorkspaceRegion
from imgconv.kernels.layout import LANES, ImageAlignment, ImageDescriptor, Texture, Tiling

# The numbers of the first and the last launch that need a texture.
Lifetime = tuple[int, int]


def lifetimes(
    launches: Sequence[Launch], lasting: frozenset[Texture] = frozenset()
) -> dict[Texture, Lifetime]:
    """The numbers of the first and the last launch that use each texture. Only textures that a launch writes.

    lasting: textures to leave out, because they keep their content from run to run.
    """
    found: dict[Texture, Lifetime] = {}
    for number, launch in enumerate(launches):
        if isinstance(launch.writes, Texture) and launch.writes not in lasting:
            found.setdefault(launch.writes, (number, number))
        for storage in (launch.writes, *launch.reads):
            if storage in found:
                found[storage] = (found[storage][0], number)
    return found


def most_alive(launches: Sequence[Launch], lasting: frozenset[Texture] = frozenset()) -> int:
    """The most bytes of textures that are alive at once. No assignment of memory needs fewer."""
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
    launches: Sequence[Launch], lasting: frozenset[Texture] = frozenset()
) -> dict[Texture, int]:
    """The number of each texture's image. lasting: textures to leave out.

    Textures can share an image if they have the same layers and element type, and if one is last read before the other
    is first written. A bordered texture shares only with textures of equal size.

    The assignment is greedy: each texture goes to the image that grows least. No order of textures is best for every
    network, so several are tried, and the fewest bytes win.
    """
    alive = lifetimes(launches, lasting)
    found = (_fill_images(order, alive) for order in _placement_orders(alive))
    images = min(found, key=lambda images: sum(image.descriptor.bytes for image in images))
    slots = {texture: number for number, image in enumerate(images) for texture in image.textures}
    return {texture: slots[texture] for texture in alive}


def _placement_orders(alive: Mapping[Texture, Lifetime]) -> Iterator[list[Texture]]:
    """Orders in which to place textures: the largest, the longest alive, the widest or the last used first."""
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
    """An image to which textures are assigned. bordered: whether its size is fixed.

    taken: a bit for each launch during which one of them is alive. Masks, because this is asked thousands of times.
    """

    descriptor: ImageDescriptor
    bordered: bool
    textures: list[Texture] = field(default_factory=list)
    taken: int = 0

    def enlarged_for(self, alive: int, tiling: Tiling, needed: ImageDescriptor) -> ImageDescriptor | None:
        """The descriptor of an image that also holds a texture like `needed`. None if they cannot share one."""
        if self.taken & alive or self.descriptor.layers != needed.layers or self.descriptor.dtype != needed.dtype:
            return None
        descriptor = self.descriptor.covering(needed)
        fixed = (self.bordered and descriptor != self.descriptor) or (tiling.bordered and descriptor != needed)
        return None if fixed else descriptor


def _fill_images(order: Sequence[Texture], alive: Mapping[Texture, Lifetime]) -> list[_SharedImage]:
    """Assigns textures to images, one after another in the given order."""
    images: list[_SharedImage] = []
    for texture in order:
        first, last = alive[texture]
        launches, needed = (1 << last + 1) - (1 << first), texture.descriptor
        image, least = _SharedImage(needed, texture.tiling.bordered), (needed.bytes, 0)
        descriptor = needed
        for other in images:
            grown = other.enlarged_for(launches, texture.tiling, needed)
            if grown is not None and (cost := (grown.bytes - other.descriptor.bytes, grown.bytes)) < least:
                least, image, descriptor = cost, other, grown
        image.descriptor = descriptor
        image.bordered |= texture.tiling.bordered
        image.textures.append(texture)
        image.taken |= launches
        if len(image.textures) == 1:
            images.append(image)
    return images


def assign_regions(
    launches: Sequence[Launch], lasting: frozenset[Texture], alignment: ImageAlignment
) -> dict[Texture, WorkspaceRegion]:
    """Returns, for each texture that is a single image, its region of the workspace. Textures that are alive at the
    same time do not overlap. Returns nothing if the workspace would exceed the largest buffer.

    Each texture goes into the lowest gap that is large enough. This is "greedy by size" of Pisarchyk and Lee,
    arXiv:2001.03288, also tried with other orders. The smallest workspace wins.
    """
    alive = {t: life for t, life in lifetimes(launches, lasting).items() if t.tiling.layers == 1}

    def end(placed: Mapping[Texture, WorkspaceRegion]) -> int:
        return max((region.offset + region.bytes for region in placed.values()), default=0)

    least = min((_place_regions(order, alive, alignment) for order in _placement_orders(alive)), key=end)
    return least if end(least) <= alignment.limit else {}


def _place_regions(
    order: Sequence[Texture], alive: Mapping[Texture, Lifetime], alignment: ImageAlignment
) -> dict[Texture, WorkspaceRegion]:
    """Puts each texture, in the given order, into the lowest gap that is large enough."""
    placed: list[tuple[Lifetime, Texture, WorkspaceRegion]] = []
    for texture in order:
        row_bytes, base, size = _row_alignment_and_bytes(texture, alignment)
        first, last = alive[texture]
        together = [region for life, _, region in placed if life[0] <= last and first <= life[1]]
        offset = 0
        for region in sorted(together, key=lambda r: r.offset):
            if offset + size <= region.offset:
                break
            offset = max(offset, -(-(region.offset + region.bytes) // base) * base)
        placed.append((alive[texture], texture, WorkspaceRegion(offset, row_bytes, size)))
    return {texture: region for _, texture, region in placed}


def _row_alignment_and_bytes(texture: Texture, alignment: ImageAlignment) -> tuple[int, int, int]:
    """Bytes of a row, the alignment of the start in bytes, and bytes in total."""
    texel = LANES * numpy.dtype(texture.dtype).itemsize
    width, height = texture.tiling.image_size
    row_bytes = -(-width // alignment.row) * alignment.row * texel
    return row_bytes, alignment.base * texel, row_bytes * height
