"""Convolutions of quantised tensors that sum integers: which ones are possible, and their packed weights.

An input has bytes that represent the numbers n * scale, for integers n from `low` to `low` + 255, and 0 outside the
image. A kernel sums products of weights w and u = n - low, which is an unsigned byte:

    sum of w * n  =  sum of w * u  +  low * sum of w         the second sum is a constant of the output channel

`low` is 0 for activations that are never less than their zero point, as after a Relu.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from math import ceil, prod

import numpy

from imgconv.arrays import Array
from imgconv.dtype import UINT32
from imgconv.graph.nodes import Convolution
from imgconv.graph.quantization import BYTES
from imgconv.kernels.conv.problem import SAFE_WIDTH, Problem
from imgconv.kernels.conv.weights import Weights, pack_weights
from imgconv.kernels.layout import (
    LANES, HostBuffer, ImageLimits, Placement, Texture, as_texture, choose_tiling, matrix_layout,
)

MOST = 2**31 - 1  # of an int


def why_float_sums(problem: Problem, operation: Convolution, x: Placement, weights: Array) -> str:
    """Returns the reason why no kernel of conv.cl may sum the levels of an input in an int; "" if one may."""
    if problem.depthwise:
        return "depthwise: no products of several channels are summed"
    return why_no_levels(problem, operation, x, weights)


def why_no_levels(problem: Problem, operation: Convolution, x: Placement, weights: Array) -> str:
    """Returns the reason why products of levels and weights may not be summed in an int; "" if they may."""
    if not isinstance(x.storage, Texture) or x.storage.quantization is None:
        return "the input is stored as fp32"
    if weights.dtype.kind not in "iu":
        return "the weights are fp32"
    if weights.size and not -BYTES // 2 <= weights.min() <= weights.max() < BYTES // 2:
        return "weights minus their zero point do not fit in a byte"
    if problem.gated:
        return "the input's channels are multiplied by factors"
    if problem.sums != "float":
        return "sums are fp16"
    if problem.group_input_quads * prod(problem.window) >= SAFE_WIDTH:
        return "a row of weights does not fit in an image"
    axes = tuple(range(weights.ndim)) if operation.transposed else tuple(range(1, weights.ndim))
    largest = int(numpy.abs(weights.astype(numpy.int64)).sum(axes).max(initial=0))
    # Sums of products with u, with n, and their difference.
    return "sums may pass 2**31" if 2 * (BYTES - 1) * largest > MOST else ""


@dataclass(frozen=True, eq=False)
class QuantizedWeights:
    """Weights of one byte each, four inputs to a uint and four outputs to a texel. low: of the input's levels.

    Depthwise ones are integers, one in a lane. If `low` is not 0, a last step has what the sums of the outputs start
    with.
    """

    weights: Weights
    problem: Problem
    block_quads: int
    low: int

    @property
    def key(self) -> Hashable:
        """See PackedWeights."""
        anywhere = replace(self.problem, batch=1, input_size=(0, 0), output_size=(0, 0))
        weights = self.weights.operand, self.weights.array.shape, self.weights.operation
        return *weights, anywhere, self.block_quads, self.low

    def storage(self, name: str, limits: ImageLimits | None) -> Texture:
        """The texture of the weights. Raises ResourceError if no tiling fits."""
        problem = self.problem
        blocks = problem.groups * ceil(problem.group_output_quads / self.block_quads)
        blocks = problem.output_quads if problem.depthwise else blocks * problem.phases[0] * problem.phases[1]
        steps = problem.group_input_quads * problem.window[0] * problem.window[1] + (self.low != 0)
        shape = height, _ = blocks * self.block_quads, steps * LANES
        return Texture(name, shape, matrix_layout(2), UINT32, choose_tiling(steps, height, limits, name, shape))

    @property
    def source(self) -> Array:
        """The constant weights that are packed."""
        return self.weights.array

    def transform(self, source: Array) -> Array:
        """The source: its numbers are packed as they are."""
        return source

    def content(self, storage: Texture | HostBuffer, numbers: Array) -> Array:
        """The array to upload to the storage, packed from an array of the shape of the numbers."""
        dense = pack_weights(self.problem, self.weights.operation, self.block_quads, numbers)
        blocks, steps = dense.shape[:2]
        if self.problem.depthwise:
            single = dense.reshape(blocks, steps, LANES).astype(numpy.int64)
            start = self.low * single.sum(1, keepdims=True)
            rows = numpy.concatenate([single, start], 1) if self.low else single
            return as_texture(storage).tiling.to_image((rows % 2**32).astype(numpy.uint32))
        lanes = dense.reshape(blocks, steps, LANES, self.block_quads, LANES).astype(numpy.int64)  # input, quad, output
        grid = sum((lanes[:, :, lane] % BYTES) << (8 * lane) for lane in range(LANES))
        if self.low:
            start = self.low * lanes.sum((1, 2))[:, None]
            grid = numpy.concatenate([grid, start % 2**32], 1)
        rows = numpy.swapaxes(grid, 1, 2).reshape(blocks * self.block_quads, -1, LANES)
        return as_texture(storage).tiling.to_image(rows.astype(numpy.uint32))
