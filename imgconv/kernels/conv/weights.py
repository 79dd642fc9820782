"""Packs a convolution's weights into the layout that conv.cl and separable.cl read."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from math import ceil, prod

import numpy

from imgconv.arrays import Array
from imgconv.dtype import DType
from imgconv.graph.nodes import Convolution, Operand
from imgconv.kernels.conv.problem import Problem
from imgconv.kernels.layout import LANES, HostBuffer, ImageLimits, Texture, choose_tiling, matrix_layout


def pack_weights(problem: Problem, operation: Convolution, block_quads: int, weights: Array) -> Array:
    """The weights as conv.cl reads them: float32, (phases * blocks, steps, texels of a step, 4 output lanes)."""
    # A copy of large weights takes as long as a compile.
    dense = weights.astype(numpy.float32, copy=False)
    if operation.transposed:
        rows, columns = problem.phases
        phases = [_phase(problem, operation, dense, py, px) for py in range(rows) for px in range(columns)]
    else:
        phases = [dense]
    packed = [_pack_phase(problem, block_quads, w, operation.groups) for w in phases]
    return packed[0] if len(packed) == 1 else numpy.concatenate(packed)


def _phase(problem: Problem, operation: Convolution, weights: Array, phase_y: int, phase_x: int) -> Array:
    """The weights (O, C/groups, ...) of the ordinary convolution that gives one phase of a transposed convolution."""
    groups, (channels, each) = operation.groups, weights.shape[:2]
    ordinary = weights.reshape(groups, channels // groups, each, *weights.shape[2:]).swapaxes(1, 2)
    ordinary = ordinary.reshape(groups * each, channels // groups, *weights.shape[2:])
    picked = numpy.zeros((*ordinary.shape[:2], *problem.window), weights.dtype)
    for ty in range(problem.window[0]):
        for tx in range(problem.window[1]):
            # Counted from the far end, window position t is tap `first + stride * t` of the dilated filter.
            tap = [
                (phase + shift) % stride + stride * (length - 1 - t)
                for phase, shift, stride, length, t in zip(
                    (phase_y, phase_x), problem.phase_shift, problem.phases, problem.window, (ty, tx), strict=True
                )
            ]
            inside = all(
                t % d == 0 and t // d < k for t, d, k in zip(tap, operation.dilations, weights.shape[2:], strict=True)
            )
            if inside:
                row, column = (t // d for t, d in zip(tap, operation.dilations, strict=True))
                picked[:, :, ty, tx] = ordinary[:, :, row, column]
    return picked


def _pack_phase(problem: Problem, block_quads: int, weights: Array, groups: int) -> Array:
    packed: Array
    rows, columns = weights.shape[2:]
    if problem.depthwise:
        padded = _zero_padded(weights.reshape(problem.filters, -1), (problem.output_quads * LANES, rows * columns))
        packed = padded.reshape(problem.output_quads, 1, LANES, -1).transpose(0, 3, 1, 2)
        return packed
    # Merged groups: (group, output, input), with zeros between different groups of the model, and behind the last.
    each_out, each_in = weights.shape[0] // groups, weights.shape[1]
    merge = problem.group_channels // each_in
    own = _zero_padded(weights, (problem.groups * merge * each_out, each_in, rows, columns))
    merged = own = own.reshape(problem.groups, merge, each_out, each_in, rows, columns)
    if merge > 1:
        merged = numpy.zeros((problem.groups, merge, each_out, merge, each_in, rows, columns), weights.dtype)
        for part in range(merge):
            merged[:, part, :, part] = own[:, part]
    quads_in, quads_out = problem.group_input_quads, problem.group_output_quads
    blocks = ceil(quads_out / block_quads)
    padded = _zero_padded(
        merged.reshape(problem.groups, merge * each_out, merge * each_in, rows, columns),
        (problem.groups, blocks * block_quads * LANES, quads_in * LANES, rows, columns),
    )
    parts = padded.reshape(problem.groups, blocks, block_quads, LANES, quads_in, LANES, rows, columns)
    steps = quads_in * rows * columns
    packed = parts.transpose(0, 1, 4, 6, 7, 5, 2, 3)
    return packed.reshape(problem.groups * blocks, steps, LANES * block_quads, LANES)


def _zero_padded(array: Array, shape: tuple[int, ...]) -> Array:
    """An array with zeros behind it on each axis, to a shape; itself if it has that shape."""
    if array.shape == shape:
        return array
    made = numpy.zeros(shape, array.dtype)
    made[tuple(map(slice, array.shape))] = array
    return made


@dataclass(frozen=True, eq=False)
class Weights:
    """A convolution's weights: an array (O, C/groups, window...), or (C, O/groups, window...) if transposed.

    operand: the constant from which the array is read. dtype: the element type in which it is stored.
    """

    operand: Operand
    array: Array
    operation: Convolution
    dtype: DType

    def transform(self, array: Array) -> Array:
        """The numbers that a kernel reads, computed from `array`."""
        return array

    def dense(self, packed: Array) -> Array:
        """These numbers in the shape of the weights of `operation`."""
        return packed


@dataclass(frozen=True, eq=False)
class PackedWeights:
    """Weights packed for the blocks of a specialisation.

    in_buffer: they are in a buffer, else in an image. ordered: a row of the image has all texels of a block, in the
    order of reading, as in a buffer; else it has one texel of each step.
    """

    weights: Weights
    problem: Problem
    block_quads: int
    in_buffer: bool
    dtype: DType
    ordered: bool = False

    @property
    def key(self) -> Hashable:
        """Layers with equal keys share one packing: heads of a detector, or steps of a loop, that share weights."""
        anywhere = replace(self.problem, batch=1, input_size=(0, 0), output_size=(0, 0))
        packing = self.block_quads, self.in_buffer, self.ordered
        return self.weights.operand, self.weights.array.shape, self.weights.operation, anywhere, packing, self.dtype

    @property
    def shape(self) -> tuple[int, int, int]:
        """The numbers of blocks, of steps, and of texels of a step."""
        problem = self.problem
        taps = prod(problem.window)
        if problem.depthwise:
            return problem.output_quads, taps, 1
        blocks = problem.groups * ceil(problem.group_output_quads / self.block_quads)
        blocks *= problem.phases[0] * problem.phases[1]
        return blocks, problem.group_input_quads * taps, LANES * self.block_quads

    @property
    def rows_and_texels(self) -> tuple[int, int]:
        """The number of rows in the storage, and of texels in a row."""
        blocks, steps, texels = self.shape
        return (blocks, steps * texels) if self.in_buffer or self.ordered else (blocks * texels, steps)

    def storage(self, name: str, limits: ImageLimits | None) -> Texture | HostBuffer:
        """The texture or the buffer of the weights. Raises ResourceError if no tiling fits."""
        height, width = self.rows_and_texels
        shape = height, width * LANES
        if self.in_buffer:
            return HostBuffer(name, shape, matrix_layout(2), self.dtype)
        return Texture(name, shape, matrix_layout(2), self.dtype, choose_tiling(width, height, limits, name, shape))

    @property
    def source(self) -> Array:
        """The constant weights that are packed."""
        return self.weights.array

    def transform(self, source: Array) -> Array:
        """The numbers that are packed."""
        return self.weights.transform(source)

    def content(self, storage: Texture | HostBuffer, numbers: Array) -> Array:
        """The array to upload to the storage, packed from an array of the shape of the numbers."""
        dense = self.weights.dense(numbers)
        packed = pack_weights(self.problem, self.weights.operation, self.block_quads, dense)
        assert packed.shape == (*self.shape, LANES), (packed.shape, self.shape)
        packed = packed.astype(self.dtype, copy=False)
        rows = packed if self.in_buffer or self.ordered else packed.swapaxes(1, 2)
        grid = rows.reshape(*self.rows_and_texels, LANES)
        return grid if isinstance(storage, HostBuffer) else storage.tiling.to_image(grid)
