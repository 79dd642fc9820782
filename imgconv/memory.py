"""Lifetimes to texture slots: which textures may share one image."""

from __future__ import annotations

from collections.abc import Sequence

from imgconv.layout import Texture
from imgconv.plan import Launch


def assign_slots(launches: Sequence[Launch], constant: frozenset[Texture]) -> dict[Texture, int]:
    """The slot of every texture that a launch writes.

    Textures share a slot where their images are equal in size, layers and element type and the one is last read before
    the other is first written: a texture never lies in a larger image, so that the border around it reads as zero.
    """
    last_use: dict[Texture, int] = {}
    for number, launch in enumerate(launches):
        for storage in (*launch.reads, launch.writes):
            if isinstance(storage, Texture) and storage not in constant:
                last_use[storage] = number
    slots: dict[Texture, int] = {}
    free: dict[tuple[object, ...], list[int]] = {}
    count = 0
    for number, launch in enumerate(launches):
        texture = launch.writes
        if isinstance(texture, Texture) and texture not in slots:
            waiting = free.setdefault(_image(texture), [])
            if waiting:
                slots[texture] = waiting.pop()
            else:
                slots[texture], count = count, count + 1
        for storage in {*launch.reads, launch.writes}:
            if isinstance(storage, Texture) and last_use.get(storage) == number:
                free.setdefault(_image(storage), []).append(slots[storage])
    return slots


def _image(texture: Texture) -> tuple[object, ...]:
    return (*texture.tiling.image_size, texture.tiling.layers, texture.dtype)
