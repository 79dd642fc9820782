"""Memory that processes share, divided into slots: each holds the arrays of one picture, inputs and outputs."""

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
    """Memory without a name: processes that are started with it share it, and it ends with the last of them.

    It is not taken from /dev/shm, of which a container may have little. It has no bytes before `allocate` here, and
    `map` in the other process. bytes: an array of them.
    """

    bytes: Array

    def __init__(self, file: int) -> None:
        """file: the descriptor of the memory."""
        self._file = file

    @staticmethod
    def make() -> SharedMemory:
        """Raises OSError if the system allows no more."""
        return SharedMemory(os.memfd_create("imgconv"))

    def __reduce__(self) -> tuple[Callable[..., SharedMemory], tuple[Any]]:
        """Only for a process that is being started."""
        from multiprocessing.reduction import DupFd  # Windows has none

        return _opened, (DupFd(self._file),)

    def allocate(self, size: int) -> bool:
        """Gives it so many bytes, zeros; False if the system has too little. Once."""
        try:
            os.posix_fallocate(self._file, 0, size)
        except OSError:
            self.close_file()
            return False
        self.map(size)
        return True

    def map(self, size: int) -> None:
        """Takes the bytes that `allocate` gave it; no other process will be started with it."""
        self.bytes = numpy.frombuffer(mmap.mmap(self._file, size), numpy.uint8)
        self.close_file()

    def close_file(self) -> None:
        """No process will be started with it, and it will not be mapped."""
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
    """How shared memory is divided. input and outputs: the model's; packed: bytes for a picture in place of the input.

        memory = SharedMemory.make()
        memory.allocate(3 * slots.bytes)
        slots.slot(memory.bytes, 2).outputs["y"]
    """

    input: Value
    outputs: tuple[Value, ...]
    packed: int = 0

    @property
    def bytes(self) -> int:
        """Those of a slot."""
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
