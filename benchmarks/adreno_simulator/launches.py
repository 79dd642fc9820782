"""Runs kernels and the launches of a plan as Adreno machine code, on numpy arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import Any, Literal

import numpy

from benchmarks.adreno_mesa import Mesa
from benchmarks.adreno_simulator.listing import Code, parse
from benchmarks.adreno_simulator.memory import Fault, Memory
from benchmarks.adreno_simulator.registers import SHARED
from benchmarks.adreno_simulator.waves import LOCAL_ACCESSES, TEXTURE_READS, Wave
from imgconv.compiling.plan import Launch, Plan, Storage
from imgconv.kernels.layout import Placement, Texture

Array = Any
LOCAL_BYTES = 32 << 10
MOST_LANES = 1 << 17  # of work groups that are run at once
LARGEST_UNKNOWN_GROUP = 64  # work items, where the plan leaves the size to the driver
CONSTANTS, NEVER_SET = 1 << 11, 0xD0D0D0D0  # words
ARGUMENTS = 64  # words, at most
LOCAL_SIZE = 8  # of the driver's parameters, the words before; the number of work groups is first
NORMALISED = {"uint8": 255.0, "int8": 127.0}  # images of bytes are read as parts of one


@dataclass(frozen=True)
class Argument:
    """An argument of a kernel. array: the (layers, height, width, 4) of an image, or a buffer's elements."""

    array: Array
    use: Literal["read", "written", "buffer"]


@dataclass(frozen=True)
class Counts:
    """Counts of a launch.

    slots: in which waves issue instructions, all waves together. busy: the same of lanes, of those that take part.
    reads: of texels, by lanes; outside: of them, those outside of their image. local: accesses by lanes to local
    memory, and to their own. trips: how often waves came to each instruction behind the preamble. waves: of the launch.
    """

    slots: int
    busy: int
    reads: int
    outside: int
    local: int
    trips: tuple[int, ...]
    waves: int


@dataclass(frozen=True)
class Binary:
    """A kernel as the compiler made it. width: lanes of a wave."""

    code: Code
    width: int


class Simulator:
    """A plan's memory, and its launches as machine code.

    compiled: the machine code of a kernel's source.
    """

    def __init__(self, plan: Plan, compiled: Callable[[str], Binary]) -> None:
        self.plan, self.compiled = plan, compiled
        self.memory: dict[Storage, Array] = {}
        for storage, content in plan.content.items():
            self.memory[storage] = content.reshape(shape_of(storage)).copy()
        for state in plan.states:
            self.memory[state] = numpy.zeros(shape_of(state), state.dtype)

    def run(self, inputs: Mapping[str, Array]) -> Iterator[tuple[Launch, Counts]]:
        """Runs the launches in order; yields each one after it ran. Raises Fault, naming the launch."""
        for name, storage in self.plan.input_buffers.items():
            self.memory[storage] = numpy.asarray(inputs[name], storage.dtype).reshape(shape_of(storage)).copy()
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
        texels = storage.tiling.from_image(storage.quantization.decode(stored) if storage.quantization else stored)
        whole = storage.layout.unpack(texels, storage.shape)
        axis = storage.layout.packed
        if axis is None or place.is_whole:
            return whole.reshape(place.shape)
        index = [slice(None)] * whole.ndim
        index[axis] = slice(place.channel_offset, place.channel_offset + place.shape[axis])
        return whole[tuple(index)]

    def output(self, name: str) -> Array:
        """An output as the host reads it."""
        return self._stored(self.plan.output_buffers[name])

    def _stored(self, storage: Storage) -> Array:
        """A storage's memory, at first full of NaN, or of what a kernel cannot mean."""
        if storage not in self.memory:
            fill = numpy.nan if numpy.dtype(storage.dtype).kind == "f" else 85
            self.memory[storage] = numpy.full(shape_of(storage), fill, storage.dtype)
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
                scale = NORMALISED.get(str(each.storage.dtype))
                texels = stored if scale is None else numpy.maximum(stored / numpy.float32(scale), -1)
                arguments.append(Argument(texels, "read"))
        local = source.local_size or group_size(source.global_size)
        return run_kernel(self.compiled(source.text), arguments, source.global_size, local)


def run_kernel(
    binary: Binary, arguments: Sequence[Argument], global_size: tuple[int, ...], local_size: tuple[int, ...],
    backwards: bool = False, sampled: bool = False,
) -> Counts:
    """Runs all work groups. Raises Fault.

    backwards: runs the waves of a group in the opposite order, which finds barriers that are missing.
    sampled: runs only the first and the last group along each axis, and one that stands for all between them.
    """
    code, width = binary.code, binary.width
    local = (*local_size, 1, 1)[:3]
    groups = [ceil(size / of) for size, of in zip((*global_size, 1, 1)[:3], local, strict=True)]
    memory, group_waves = _bound(code, arguments), ceil(prod(local) / width)
    if "driver_params" in code.places:
        start = code.places["driver_params"]
        memory.constants[start : start + 3] = groups
        memory.constants[start + LOCAL_SIZE : start + LOCAL_SIZE + 3] = local
    which, times = _sample(groups) if sampled else (numpy.arange(prod(groups)), numpy.ones(prod(groups), int))
    trips, lanes = numpy.zeros((2, len(code.instructions)), numpy.int64)
    step = max(1, MOST_LANES // (group_waves * width))
    for first in range(0, len(which), step):
        some = slice(first, first + step)
        memory.local = numpy.full((len(which[some]), LOCAL_BYTES), 0xFF, numpy.uint8)
        waves = [
            _wave(code, memory, number, which[some], times[some], groups, local, width)
            for number in range(group_waves)
        ]
        _run_to_end([wave.run() for wave in (waves[::-1] if backwards else waves)])
        trips += numpy.sum([wave.trips for wave in waves], 0)
        lanes += numpy.sum([wave.lanes for wave in waves], 0)
    memory.check_writes()
    return _counts(code, trips, lanes, memory.outside, prod(groups) * group_waves)


def _counts(code: Code, trips: Array, lanes: Array, outside: int, waves: int) -> Counts:
    trips[: code.start] = lanes[: code.start] = 0
    each_slots = numpy.array([each.slots for each in code.instructions])
    names = numpy.array([each.types[0] for each in code.instructions])
    reads, local = (int(lanes[numpy.isin(names, some)].sum()) for some in (TEXTURE_READS, LOCAL_ACCESSES))
    return Counts(
        int(trips @ each_slots), int(lanes @ each_slots), reads, outside, local, tuple(map(int, trips)), waves
    )


def _sample(groups: Sequence[int]) -> tuple[Array, Array]:
    """The numbers of the groups at the ends of each axis and of one between them, and for how many each one stands."""
    axes = [
        ([0], [1]) if size == 1 else ([0, size - 1], [1, 1]) if size == 2 else ([0, 1, size - 1], [1, size - 2, 1])
        for size in groups
    ]
    (x, nx), (y, ny), (z, nz) = axes
    which = [a + groups[0] * (b + groups[1] * c) for c in z for b in y for a in x]
    return numpy.array(which), numpy.array([a * b * c for c in nz for b in ny for a in nx])


def _run_to_end(waves: Sequence[Iterator[None]]) -> None:
    """Runs the waves of work groups in turn, each to its next barrier."""
    running = {True}
    while True in running:
        running = {next(wave, "ended") is None for wave in waves}
        if len(running) > 1:
            raise Fault("some waves of a work group end before a barrier that others wait at")


def _wave(
    code: Code, memory: Memory, number: int, which: Array, times: Array, groups: Sequence[int], local: Sequence[int],
    width: int,
) -> Wave:
    """The waves with a number of some work groups: r0.xyz has a work item's place in its group, r48.xyz the group's."""
    group = numpy.repeat(numpy.arange(len(which)), width)
    item = numpy.tile(numpy.arange(number * width, (number + 1) * width), len(which))
    registers = dict(enumerate(_place(item, local)))
    registers |= {SHARED + n: array for n, array in enumerate(_place(which[group], groups))}
    return Wave(code, memory, registers, group, width, item < prod(local), times)


def _place(number: Array, sizes: Sequence[int]) -> tuple[Array, Array, Array]:
    return number % sizes[0], number // sizes[0] % sizes[1], number // (sizes[0] * sizes[1])


def _bound(code: Code, arguments: Sequence[Argument]) -> Memory:
    """The memory of a launch. In its arguments a buffer's address takes 8 bytes, and so does an image that is read."""
    constants = numpy.full(CONSTANTS, NEVER_SET, numpy.uint32)
    for number, word in code.constants.items():
        constants[number] = word
    words, place, buffers = numpy.full(ARGUMENTS, NEVER_SET, numpy.uint32), 0, dict[int, Array]()
    for argument in arguments:
        if argument.use == "buffer":
            number = len(buffers) + 1
            buffers[number] = argument.array.reshape(-1).view(numpy.uint8)
            words[place : place + 2] = 0, number
        place += 0 if argument.use == "written" else 2
    if "ubo_ranges" in code.places and not code.loads_arguments:
        start = code.places["ubo_ranges"]
        constants[start : start + place] = words[:place]
    images, written = ([each.array for each in arguments if each.use == use] for use in ("read", "written"))
    return Memory(constants, words, images, written, buffers, numpy.empty((0, 0), numpy.uint8))


def compiled_by(mesa: Mesa, gpu: int) -> Callable[[str], Binary]:
    """The machine code that a build of Mesa makes for a GPU."""
    def binary(text: str) -> Binary:
        kernel = mesa.kernel(text, gpu)
        return Binary(parse(kernel.listing), kernel.statistics["subgroup"])
    return binary


def shape_of(storage: Storage) -> tuple[int, ...]:
    if not isinstance(storage, Texture):
        return storage.shape
    descriptor = storage.descriptor
    return descriptor.layers, descriptor.height, descriptor.width, 4


def group_size(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """A work group for a driver that chooses it: of whole parts of the sizes."""
    made, left = [], LARGEST_UNKNOWN_GROUP
    for size in sizes:
        made.append(max(part for part in range(1, min(size, left) + 1) if size % part == 0))
        left //= made[-1]
    return tuple(made)
