"""Resizing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy
from problems import Array, Instance, Shape, rounding, source


@dataclass(frozen=True)
class ResampleProblem:
    """Linear (half-pixel centres) or nearest resizing to the given sizes, of one axis after another or all together."""

    shape: Shape
    sizes: tuple[tuple[int, int], ...]
    linear: bool = True
    together: bool = False

    def instance(self) -> Instance:
        inputs: dict[str, Array] = {}
        tensor, array = source(self.shape, inputs)
        magnitude, given = numpy.abs(array), {}
        for axis, size in self.sizes:
            positions, weights = self._taps(array.shape[axis], size)
            given[axis] = positions, weights
            if not self.together:
                tensor = tensor.resample({axis: given[axis]})
            matrix = numpy.zeros((size, array.shape[axis]))
            for row, (taps, factors) in enumerate(zip(positions, weights, strict=True)):
                for tap, factor in zip(taps, factors, strict=True):
                    matrix[row, tap] += factor
            array = numpy.moveaxis(numpy.tensordot(matrix, array, (1, axis)), 0, axis)
            magnitude = numpy.moveaxis(numpy.tensordot(matrix, magnitude, (1, axis)), 0, axis)
        tensor = tensor.resample(given) if self.together else tensor
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
