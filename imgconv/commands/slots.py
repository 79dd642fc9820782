"""Memory that processes share, divided into slots: each holds the input and the outputs of one picture."""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy

from imgconv.arrays import Array
from imgconv.graph.nodes import Value

ALIGNED = 64  # bytes


class SharedMemory:
    """Memory without a name, for this process and those that are started with it. It ends with the last of them.

    It is not taken from /dev/shm, of which a container may have little.
    """

    def __init__(self, file: int | None = None) -> None:
        """file: the descriptor of memory that is there; by default it is made. Raises OSError."""
        self._file = os.memfd_create("imgconv") if file is None else file

    def __reduce__(self) -> tuple[Callable[..., SharedMemory], tuple[Any]]:
        """Only for a process that is being started."""
        from multiprocessing.reduction import DupFd  # Windows has none

        return _opened, (DupFd(self._file),)

    def allocate(self, size: int) -> None:
        """Gives it this many bytes, zeros. Raises OSError if the system has too little."""
        os.posix_fallocate(self._file, 0, size)

    def array(self, size: int) -> Array:
        """The first bytes of it, which are allocated."""
        return numpy.frombuffer(mmap.mmap(self._file, size), numpy.uint8)

    def close(self) -> None:
        """Closes the descriptor; arrays stay."""
        os.close(self._file)


def _opened(duplicate: Any) -> SharedMemory:
    return SharedMemory(duplicate.detach())


@dataclass(frozen=True)
class Slot:
    """One slot's arrays, which are the shared memory itself.

    packed: bytes, of a picture that the device prepares; input: the same memory as the model's input. outputs: by name.
    """

    packed: Array
    input: Array
    outputs: dict[str, Array]


@dataclass(frozen=True)
class Slots:
    """The layout of a slot. input and outputs: the model's; packed: bytes for a picture in place of the input.

    memory = SharedMemory()
    memory.allocate(3 * slots.bytes)
    slots.slot(memory.array(3 * slots.bytes), 2).outputs["y"]
    """

    input: Value
    outputs: tuple[Value, ...]
    packed: int = 0

    @property
    def bytes(self) -> int:
        """The bytes of a slot."""
        return self._first + sum(map(_aligned, self.outputs))

    @property
    def _first(self) -> int:
        return max(_aligned(self.input), -(-self.packed // ALIGNED) * ALIGNED)

    def slot(self, memory: Array, number: int) -> Slot:
        """A slot of the memory, an array of bytes."""
        start, outputs = number * self.bytes, {}
        packed = numpy.ndarray((self._first,), numpy.uint8, memory, start)
        given = numpy.ndarray(self.input.shape, self.input.dtype, memory, start)
        start += self._first
        for value in self.outputs:
            outputs[value.name] = numpy.ndarray(value.shape, value.dtype, memory, start)
            start += _aligned(value)
        return Slot(packed, given, outputs)


def _aligned(value: Value) -> int:
    size = math.prod(value.shape) * numpy.dtype(value.dtype).itemsize
    return -(-size // ALIGNED) * ALIGNED
