"""Resizing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy
from problems import Array, Instance, Shape, rounding, source


@dataclass(frozen=True)
class ResampleProblem:
    """Linear (half-pixel centres) or nearest resizing of one axis after another to the given sizes."""

    shape: Shape
    sizes: tuple[tuple[int, int], ...]
    linear: bool = True

    def instance(self) -> Instance:
        inputs: dict[str, Array] = {}
        tensor, array = source(self.shape, inputs)
        magnitude = numpy.abs(array)
        for axis, size in self.sizes:
            positions, weights = self._taps(array.shape[axis], size)
            tensor = tensor.resample(axis, positions, weights)
            matrix = numpy.zeros((size, array.shape[axis]))
            for row, (taps, factors) in enumerate(zip(positions, weights, strict=True)):
                for tap, factor in zip(taps, factors, strict=True):
                    matrix[row, tap] += factor
            array = numpy.moveaxis(numpy.tensordot(matrix, array, (1, axis)), 0, axis)
            magnitude = numpy.moveaxis(numpy.tensordot(matrix, magnitude, (1, axis)), 0, axis)
        return Instance(tensor, inputs, array, rounding(2 * len(self.sizes), magnitude) if self.linear else 0 * array)

    def _taps(self, length: int, size: int) -> tuple[list[list[int]], list[list[float]]]:
        positions, weights = [], []
        for out in range(size):
            if not self.linear:
                positions.append([out * length // size])
                weights.append([1.0])
                continue
            centre = min(max((out + 0.5) * length / size - 0.5, 0), length - 1)
            low = min(int(centre), length - 1)
            share = float(numpy.float32(centre - low))
            positions.append([low, min(low + 1, length - 1)])
            weights.append([float(numpy.float32(1 - share)), share])
        return positions, weights
