"""Lifetimes to memory: which textures may share an image, or bytes of one workspace.

A texture that lies in a larger image would have other tensors' texels around it instead of the zero border. So images
are shared by textures of equal size only; where a device makes images from parts of a buffer, each texture is an image
of its own size there, and all share the buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy

from imgconv.layout import LANES, Texture
from imgconv.plan import Launch, Region

@dataclass(frozen=True)
class Alignment:
    """What an image in a buffer must be aligned to, in texels: the start of a row, and that of the image.

    limit: bytes that one buffer may have.
    """

    row: int
    base: int
    limit: int


def lifetimes(
    launches: Sequence[Launch], lasting: frozenset[Texture] = frozenset()
) -> dict[Texture, tuple[int, int]]:
    """The numbers of the first and last launch that need each texture that launches write and that does not last."""
    found: dict[Texture, tuple[int, int]] = {}
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


def assign_slots(launches: Sequence[Launch], lasting: frozenset[Texture]) -> dict[Texture, int]:
    """The number of the image that holds each texture, save those whose content lasts from run to run.

    Textures share an image where their images are equal in size, layers and element type and the one is last read
    before the other is first written.
    """
    slots: dict[Texture, int] = {}
    free: dict[tuple[object, ...], list[tuple[int, int]]] = {}
    count = 0
    for texture, (first, last) in lifetimes(launches, lasting).items():
        waiting = free.setdefault((*texture.tiling.image_size, texture.tiling.layers, texture.dtype), [])
        ready = [entry for entry in waiting if entry[0] < first]
        if ready:
            waiting.remove(ready[-1])
            slots[texture] = ready[-1][1]
        else:
            slots[texture], count = count, count + 1
        waiting.append((last, slots[texture]))
    return slots


def assign_regions(
    launches: Sequence[Launch], lasting: frozenset[Texture], alignment: Alignment
) -> dict[Texture, Region]:
    """Where each texture that is a single image lies in one workspace; those alive together do not overlap.

    Nowhere where the workspace would be larger than a buffer may be.

    Largest first, each in the lowest gap that takes it: the greedy by size of Pisarchyk and Lee, arXiv:2001.03288.
    """
    alive = {t: life for t, life in lifetimes(launches, lasting).items() if t.tiling.layers == 1}
    placed: dict[Texture, Region] = {}
    for texture in sorted(alive, key=lambda t: -t.bytes):
        row_bytes, base, size = _in_buffer(texture, alignment)
        first, last = alive[texture]
        together = [r for t, r in placed.items() if alive[t][0] <= last and first <= alive[t][1]]
        offset = 0
        for region in sorted(together, key=lambda r: r.offset):
            if offset + size <= region.offset:
                break
            offset = max(offset, -(-(region.offset + region.bytes) // base) * base)
        placed[texture] = Region(offset, row_bytes, size)
        if offset + size > alignment.limit:
            return {}
    return placed


def _in_buffer(texture: Texture, alignment: Alignment) -> tuple[int, int, int]:
    """Bytes of a row, that the start is a multiple of, and in all."""
    texel = LANES * numpy.dtype(texture.dtype).itemsize
    width, height = texture.tiling.image_size
    row_bytes = -(-width // alignment.row) * alignment.row * texel
    return row_bytes, alignment.base * texel, row_bytes * height
