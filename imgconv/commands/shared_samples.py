"""Shared memory between processes: the model's input and outputs for each sample in flight."""

from __future__ import annotations

import math
import mmap
import os
from dataclasses import dataclass

import numpy

from imgconv.arrays import Array
from imgconv.graph.nodes import Value

ALIGNED = 64  # bytes


def allocate_shared_memory(size: int) -> int:
    """Returns the descriptor of this many bytes, zeros; they are freed with the last process that has it.

    They are not in /dev/shm, which is small in many containers. Raises OSError if memory is short.
    """
    file = os.memfd_create("imgconv")
    try:
        os.posix_fallocate(file, 0, size)
    except OSError:
        os.close(file)
        raise
    return file


def map_shared_memory(file: int, size: int) -> Array:
    """Returns the bytes of a descriptor as an array, and closes the descriptor."""
    try:
        return numpy.frombuffer(mmap.mmap(file, size), numpy.uint8)
    finally:
        os.close(file)


@dataclass(frozen=True)
class SampleBuffers:
    """Arrays of one sample in the shared memory.

    packed: bytes of a picture that the device prepares; input: the same memory as the model's input. outputs: by name.
    """

    packed: Array
    input: Array
    outputs: dict[str, Array]


@dataclass(frozen=True)
class SampleLayout:
    """Layout of one sample. input and outputs: the model's; packed: bytes for a picture in place of the input."""

    input: Value
    outputs: tuple[Value, ...]
    packed: int = 0

    @property
    def bytes(self) -> int:
        return self._input_bytes + sum(map(_aligned_bytes, self.outputs))

    @property
    def _input_bytes(self) -> int:
        return max(_aligned_bytes(self.input), -(-self.packed // ALIGNED) * ALIGNED)

    def buffers(self, memory: Array, number: int) -> SampleBuffers:
        """Returns the arrays of sample `number`. memory: bytes of all samples."""
        start, outputs = number * self.bytes, {}
        packed = numpy.ndarray((self._input_bytes,), numpy.uint8, memory, start)
        given = numpy.ndarray(self.input.shape, self.input.dtype, memory, start)
        start += self._input_bytes
        for value in self.outputs:
            outputs[value.name] = numpy.ndarray(value.shape, value.dtype, memory, start)
            start += _aligned_bytes(value)
        return SampleBuffers(packed, given, outputs)


def _aligned_bytes(value: Value) -> int:
    size = math.prod(value.shape) * numpy.dtype(value.dtype).itemsize
    return -(-size // ALIGNED) * ALIGNED
