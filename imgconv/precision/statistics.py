"""Tensor statistics and rounding in place, for the fp32 textures of a session, on the device.

A texture is first copied to a buffer, tile by tile, because a kernel cannot write the image that it reads. A linear
texture is a buffer already. See precision/tensor_statistics.cl.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import Any, TypeGuard

import numpy

from imgconv.arrays import Array, Arrays
from imgconv.cl.building.program import Kernel, Program, new_kernel
from imgconv.cl.building.program_source import ProgramSource
from imgconv.dtype import FLOAT32
from imgconv.kernels.layout import LANES, HostBuffer, Texels, Texture
from imgconv.runtime.device import Device, Memory
from imgconv.runtime.session import Session

FILE = Path(__file__).with_name("tensor_statistics.cl")
ITEMS = 1 << 14  # at most: each takes several texels of a large texture
RUN = {"cpu": 1 << 12}  # texels one after another; on other devices 1


class TensorStatistics:
    """The largest magnitudes of textures, as a run of a session writes them."""

    def __init__(self, session: Session) -> None:
        """Raises BuildError, ResourceError."""
        self._session, self._context = session, session.context
        with build_statistics_in_background(session.context) as built:
            (program,) = built
        self._kernels: dict[str, Kernel] = {name: new_kernel(program, name) for name in ("largest", "round_to_half")}
        storages = dict.fromkeys(place.storage for place in session.plan.placements.values())
        self._numbers = {each: number for number, each in enumerate(filter(is_float, storages))}
        self._on_host: dict[HostBuffer, float] = {}

    def measure(self, storage: Texture | HostBuffer) -> None:
        """Enqueues a look at what a launch wrote, for `largest`; waits only for a buffer of the host's."""
        if isinstance(storage, HostBuffer):
            self._on_host[storage] = magnitude(self._session.memory.content(storage))
        elif storage in self._numbers:
            for _ in self._tiles(storage, "largest", self._largest, numpy.int32(self._numbers[storage])):
                pass

    def largest(self) -> dict[str, float]:
        """The largest magnitude of each value measured since the last call, NaN if a number is NaN. Waits.

        Values in one texture have the largest of all of them.
        """
        count = max(len(self._numbers), 1)
        bits = self._context.read(self._largest, (count,), numpy.uint32).view(numpy.float32)
        self._context.fill(self._largest, 0.0)
        found: dict[Texture | HostBuffer, float] = {s: float(bits[number]) for s, number in self._numbers.items()}
        found |= dict[Texture | HostBuffer, float](self._on_host.items())
        self._on_host.clear()
        places = self._session.plan.placements
        return {name: found.get(place.storage, 0.0) for name, place in places.items()}

    def round(self, texture: Texture) -> None:
        """Enqueues the rounding of a texture of floats to half."""
        for origin, region in self._tiles(texture, "round_to_half"):
            if not texture.tiling.linear:
                self._context.copy(self._session.memory[texture], self._scratch, origin, region=region)

    def _tiles(self, texture: Texture, name: str, *more: Any) -> Iterator[tuple[Texels, Texels]]:
        """Launches a kernel on each tile; gives its origin and region in the image, whose texels are in the scratch."""
        memory, launch = self._session.memory[texture], self._kernels[name]
        is_buffer, run = texture.tiling.linear, RUN.get(self._context.info.kind, 1)
        for _, origin, (width, height) in texture.tiling.tile_copies():
            region, size = (width, height, 1), width * height
            if not is_buffer:
                self._context.copy(self._scratch, memory, origin=origin, region=region)
            texels = memory if is_buffer else self._scratch
            launch.set_args(texels, numpy.int32(size), numpy.int32(run), *more)
            self._context.enqueue(launch, (min(ceil(size / run), ITEMS),))
            yield origin, region

    @cached_property
    def _scratch(self) -> Memory:
        """Memory for the texels of the largest tile."""
        most = max(each.tiling.tile_width * each.tiling.tile_height for each in self._numbers)
        return self._context.buffer(LANES * most * numpy.dtype(numpy.float32).itemsize, "tensor statistics")

    @cached_property
    def _largest(self) -> Memory:
        return self._context.buffer(numpy.zeros(max(len(self._numbers), 1), numpy.uint32))


def is_float(storage: Texture | HostBuffer) -> TypeGuard[Texture]:
    """Returns whether this is a texture of float32."""
    return isinstance(storage, Texture) and storage.dtype == FLOAT32


def build_statistics_in_background(context: Device) -> AbstractContextManager[Iterator[Program]]:
    """Builds precision/tensor_statistics.cl in the background of the block. Raises BuildError."""
    return context.build_in_background([ProgramSource(FILE.read_text(encoding="utf-8"), FILE.name)])


def magnitude(array: Array) -> float:
    """The largest absolute value; NaN if an element is NaN."""
    return float(numpy.max(numpy.abs(array), initial=0.0))


def measure_outputs(session: Session, inputs: Sequence[Arrays]) -> tuple[list[dict[str, Array]], dict[str, float]]:
    """The outputs for each of the inputs, and the largest magnitude of every value on them."""
    outputs, largest = list[dict[str, Array]](), dict.fromkeys(session.plan.placements, 0.0)
    statistics = TensorStatistics(session)
    last = {launch.writes: number for number, launch in enumerate(session.plan.launches)}
    complete = {number: storage for storage, number in last.items()}
    for arrays in inputs:
        for done in session.numbered_steps(arrays):
            if done in complete:
                statistics.measure(complete[done])
        found = statistics.largest()
        largest = {name: float(numpy.maximum(value, largest[name])) for name, value in found.items()}
        outputs.append(session.outputs())
    return outputs, largest
