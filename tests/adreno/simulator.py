"""Runs a plan's launches as Adreno machine code, on numpy arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import Any, Literal

import numpy

from adreno.ir3 import SHARED, Code, Fault, Memory, Wave, parse
from imgconv.compiling.plan import Launch, Plan, Storage
from imgconv.kernels.layout import Placement, Texture

Array = Any
LOCAL_BYTES = 32 << 10
MOST_LANES = 1 << 17  # of work groups that are run at once
LARGEST_UNKNOWN_GROUP = 64  # work items, where the plan leaves the size to the driver
CONSTANTS, NEVER_SET = 1 << 11, 0xD0D0D0D0  # words
NORMALISED = {"uint8": 255.0, "int8": 127.0}  # images of bytes are read as parts of one


@dataclass(frozen=True)
class Argument:
    """An argument of a kernel. array: the (layers, height, width, 4) of an image, or a buffer's elements."""

    array: Array
    use: Literal["read", "written", "buffer"]


@dataclass(frozen=True)
class Counts:
    """Counts of a launch. slots: in which waves issue instructions, all waves together. reads: of texels, by lanes."""

    slots: int
    reads: int


class Simulator:
    """A plan's memory, and its launches as machine code.

    code_of: Mesa's text for a kernel's source. width: lanes of a wave. backwards: whether the waves of a group run in
    the opposite order.
    """

    def __init__(self, plan: Plan, code_of: Callable[[str], str], width: int = 128, backwards: bool = False) -> None:
        self.plan, self.code_of, self.width, self.backwards = plan, code_of, width, backwards
        self.memory: dict[Storage, Array] = {}
        for storage, content in plan.content.items():
            self.memory[storage] = content.reshape(_shape(storage)).copy()

    def run(self, inputs: Mapping[str, Array]) -> Iterator[tuple[Launch, Counts]]:
        """Runs the launches in order; yields each one after it ran. Raises Fault, naming the launch."""
        for name, storage in self.plan.input_buffers.items():
            self.memory[storage] = numpy.asarray(inputs[name], storage.dtype).reshape(_shape(storage)).copy()
        for launch in self.plan.launches:
            try:
                yield launch, self._launch(launch)
            except Fault as fault:
                raise Fault(f"launch {launch.name!r}: {fault}") from None

    def value(self, place: Placement) -> Array:
        """The array of a placement, as the graph has it."""
        storage, stored = place.storage, self._stored(place.storage)
        if not isinstance(storage, Texture):
            return stored.reshape(place.shape)
        texels = storage.tiling.gather(stored)
        whole = storage.layout.unpack(texels, storage.shape)
        axis = storage.layout.packed
        if axis is None or place.is_whole:
            return whole.reshape(place.shape)
        index = [slice(None)] * whole.ndim
        index[axis] = slice(place.channel_offset, place.channel_offset + place.shape[axis])
        return whole[tuple(index)]

    def _stored(self, storage: Storage) -> Array:
        """A storage's memory, at first full of NaN, or of what a kernel cannot mean."""
        if storage not in self.memory:
            fill = numpy.nan if numpy.dtype(storage.dtype).kind == "f" else 85
            self.memory[storage] = numpy.full(_shape(storage), fill, storage.dtype)
        return self.memory[storage]

    def _launch(self, launch: Launch) -> Counts:
        source = launch.source
        arguments = []
        for each in source.arguments:
            stored = self._stored(each.storage)
            if not isinstance(each.storage, Texture):
                arguments.append(Argument(stored, "buffer"))
            elif each.written:
                arguments.append(Argument(stored, "written"))
            else:
                scale = NORMALISED.get(each.storage.dtype)
                texels = stored if scale is None else numpy.maximum(stored / numpy.float32(scale), -1)
                arguments.append(Argument(texels, "read"))
        local = source.local_size or _local_size(source.global_size)
        code = parse(self.code_of(source.text))
        return run_kernel(code, arguments, source.global_size, local, self.width, self.backwards)


def run_kernel(
    code: Code, arguments: Sequence[Argument], global_size: tuple[int, ...], local_size: tuple[int, ...],
    width: int = 128, backwards: bool = False,
) -> Counts:
    """Runs all work groups. width, backwards: as in Simulator. Raises Fault."""
    local = (*local_size, 1, 1)[:3]
    groups = [ceil(size / of) for size, of in zip((*global_size, 1, 1)[:3], local, strict=True)]
    memory = _bound(code, arguments)
    if "driver_params" in code.places:
        start = code.places["driver_params"]
        memory.constants[start : start + 3], memory.constants[start + 8 : start + 11] = groups, local
    step = max(1, MOST_LANES // (ceil(prod(local) / width) * width))
    for first in range(0, prod(groups), step):
        numbers = numpy.arange(first, min(first + step, prod(groups)))
        memory.local = numpy.full((len(numbers), LOCAL_BYTES), 0xFF, numpy.uint8)
        waves = [
            _wave(code, memory, number, numbers, groups, local, width) for number in range(ceil(prod(local) / width))
        ]
        _run_to_end(waves[::-1] if backwards else waves)
    if any((written > 1).any() for written in memory.written):
        raise Fault("two work items write one texel")
    return Counts(memory.slots, memory.reads)


def _run_to_end(waves: Sequence[Iterator[None]]) -> None:
    """Runs the waves of work groups in turn, each to its next barrier."""
    running = {True}
    while True in running:
        running = {next(wave, "ended") is None for wave in waves}
        if len(running) > 1:
            raise Fault("some waves of a work group end before a barrier that others wait at")


def _wave(
    code: Code, memory: Memory, number: int, which: Array, groups: Sequence[int], local: Sequence[int], width: int
) -> Iterator[None]:
    """The waves with a number of some work groups: r0.xyz has a work item's place in its group, r48.xyz the group's."""
    group = numpy.repeat(numpy.arange(len(which)), width)
    item = numpy.tile(numpy.arange(number * width, (number + 1) * width), len(which))
    registers = dict(enumerate(_place(item, local)))
    registers |= {SHARED + n: array for n, array in enumerate(_place(which[group], groups))}
    return Wave(code, memory, registers, group, width, item < prod(local)).run()


def _place(number: Array, sizes: Sequence[int]) -> tuple[Array, Array, Array]:
    return number % sizes[0], number // sizes[0] % sizes[1], number // (sizes[0] * sizes[1])


def _bound(code: Code, arguments: Sequence[Argument]) -> Memory:
    """The memory of a launch. In the constants a buffer's address takes 8 bytes, and so does an image that is read."""
    constants = numpy.full(CONSTANTS, NEVER_SET, numpy.uint32)
    for number, word in code.constants.items():
        constants[number] = word
    place, buffers = code.places.get("ubo_ranges", 0), dict[int, Array]()
    for argument in arguments:
        if argument.use == "buffer":
            number = len(buffers) + 1
            buffers[number] = argument.array.reshape(-1).view(numpy.uint8)
            constants[place : place + 2] = 0, number
        place += 0 if argument.use == "written" else 2
    images, written = ([each.array for each in arguments if each.use == use] for use in ("read", "written"))
    return Memory(constants, images, written, buffers, numpy.empty((0, 0), numpy.uint8))


def _shape(storage: Storage) -> tuple[int, ...]:
    if not isinstance(storage, Texture):
        return storage.shape
    form = storage.form
    return form.layers, form.height, form.width, 4


def _local_size(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """A work group for a driver that chooses it: of whole parts of the sizes."""
    made, left = [], LARGEST_UNKNOWN_GROUP
    for size in sizes:
        made.append(max(part for part in range(1, min(size, left) + 1) if size % part == 0))
        left //= made[-1]
    return tuple(made)
