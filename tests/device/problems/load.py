"""Elementwise work on one operand, and on several of shapes that broadcast."""

from __future__ import annotations

from dataclasses import dataclass

import numpy
from problems import Array, Instance, Shape, rounding, source


@dataclass(frozen=True)
class LoadProblem:
    """The tensor as it is: what elementwise work starts from."""

    shape: Shape

    def instance(self) -> Instance:
        inputs: dict[str, Array] = {}
        x, array = source(self.shape, inputs)
        return Instance(x, inputs, array, numpy.zeros(self.shape))


@dataclass(frozen=True)
class BroadcastProblem:
    """The first tensor minus the product of the others, each broadcast to the common shape."""

    shapes: tuple[Shape, ...]

    def instance(self) -> Instance:
        inputs: dict[str, Array] = {}
        tensors, arrays = zip(*(source(shape, inputs, f"b{n}") for n, shape in enumerate(self.shapes)), strict=True)
        tensor, array, magnitude = tensors[-1], arrays[-1], numpy.abs(arrays[-1])
        for t, a in zip(tensors[-2:0:-1], arrays[-2:0:-1], strict=True):
            tensor, array, magnitude = t * tensor, a * array, numpy.abs(a) * magnitude
        shape = numpy.broadcast_shapes(*self.shapes)
        expected = numpy.broadcast_to(numpy.asarray(arrays[0] - array), shape)
        error = rounding(len(tensors), numpy.broadcast_to(numpy.abs(arrays[0]) + magnitude, shape))
        return Instance(tensors[0] - tensor, inputs, expected, error)
