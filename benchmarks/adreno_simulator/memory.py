"""The memory that lanes of a launch share: constants, images, buffers and local memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy

from benchmarks.adreno_simulator.arithmetic import ATOMIC

Array = Any


class Fault(AssertionError):
    """Something that no launch may do, such as a barrier that some lanes do not reach."""


@dataclass
class Memory:
    """constants: words. arguments: the words that the host writes for the kernel.

    images: (layers, height, width, 4) that are read, by the number of their texture; targets: those that are written,
    by the number that the code has for them. buffers: arrays of bytes by the high word of their address. local: bytes
    of each work group.
    written: how often each texel of the targets was. outside: reads of texels outside of their image, which are zero.
    """

    constants: Array
    arguments: Array
    images: Sequence[Array]
    targets: Sequence[Array]
    buffers: Mapping[int, Array]
    local: Array
    written: list[Array] = field(default_factory=list)
    outside: int = 0

    def __post_init__(self) -> None:
        self.written = [numpy.zeros(image.shape[:3], numpy.int32) for image in self.targets]

    def read_texels(self, number: int, x: Array, y: Array, layer: Array) -> Array:
        """Texels of an image, for each lane. Those outside of it are zero, as with OpenCL's CLK_ADDRESS_CLAMP."""
        image = self.images[number]
        layers, height, width, _ = image.shape
        x, y, layer = (numpy.broadcast_to(each, max(len(x), len(y), len(layer))) for each in (x, y, layer))
        inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
        layer = numpy.clip(layer, 0, layers - 1)
        texels = image[layer, numpy.clip(y, 0, height - 1), numpy.clip(x, 0, width - 1)]
        if not inside.all():
            texels[~inside] = 0
        self.outside += int((~inside).sum())
        return texels

    def write_texels(self, number: int, x: Array, y: Array, layer: Array, texels: Array) -> None:
        """Writes a texel for each lane. Raises Fault for one outside of the image."""
        target = self.targets[number]
        for place, size in zip((layer, y, x), target.shape):
            if (place < 0).any() or (place >= size).any():
                raise Fault("a texel is written outside of its image")
        if target.dtype == numpy.uint8 and texels.dtype.kind == "u":
            texels = numpy.minimum(texels, 255)
        elif target.dtype == numpy.uint8:  # parts of 255
            texels = numpy.rint(255 * numpy.clip(numpy.nan_to_num(texels), 0, 1))
        elif target.dtype.kind != "f":
            raise NotImplementedError("the simulator writes no images of integers but bytes")
        with numpy.errstate(over="ignore"):
            target[layer, y, x] = texels.astype(target.dtype)
        numpy.add.at(self.written[number], (layer, y, x), 1)

    def check_writes(self) -> None:
        """Raises Fault if two work items wrote one texel."""
        if any((written > 1).any() for written in self.written):
            raise Fault("two work items write one texel")


def elements(memory: Array, place: Array, dtype: numpy.dtype[Any]) -> tuple[Array, Array]:
    """Rows of bytes as elements, and the columns of byte addresses in them. Raises Fault for addresses outside."""
    view, column = memory.view(f"u{dtype.itemsize}"), place // dtype.itemsize
    if (place % dtype.itemsize).any():
        raise Fault("an access that is not aligned")
    if (column < 0).any() or (column >= view.shape[1]).any():
        raise Fault("an access outside of its memory")
    return view, column


def apply_atomically(view: Array, row: Array, column: Array, dtype: numpy.dtype[Any], name: str, new: Array) -> Array:
    """Applies an atomic operation for one lane after the other; returns what each found."""
    found, place = numpy.empty(len(column), view.dtype), row * view.shape[1] + column
    left = numpy.arange(len(column))
    with numpy.errstate(over="ignore"):
        while len(left):
            _, first = numpy.unique(place[left], return_index=True)
            now = left[first]
            found[now] = view[row[now], column[now]]
            made = ATOMIC[name](found[now].view(dtype), new[now].view(dtype))
            view[row[now], column[now]] = made.view(view.dtype)
            left = numpy.delete(left, first)
    return found
