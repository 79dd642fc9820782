"""Concatenations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy
from problems import Array, Instance, Shape, source

from imgconv.tensor import concatenate


@dataclass(frozen=True)
class ConcatenationProblem:
    """Tensors one after another along an axis. computed: each part is made on the device first, with f(0) = 1."""

    shapes: tuple[Shape, ...]
    axis: int
    computed: bool = False

    def instance(self) -> Instance:
        inputs: dict[str, Array] = {}
        tensors, arrays = [], []
        for number, shape in enumerate(self.shapes):
            tensor, array = source(shape, inputs, f"part{number}")
            tensors.append(tensor.clip(-1, 0.5) + 1 if self.computed else tensor)
            arrays.append(numpy.clip(array, -1, 0.5) + 1 if self.computed else array)
        expected = numpy.concatenate(arrays, self.axis)
        return Instance(concatenate(tensors, self.axis), inputs, expected, numpy.zeros(expected.shape))
