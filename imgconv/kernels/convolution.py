"""conv.cl's twin: a convolution's problem, its specialisations, its packed weights and the kernel they make."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, gcd, prod
from typing import Any

import numpy

from imgconv.access import LANE, SHORT_LIMIT, KernelArgument, image_type, read_text, write_text
from imgconv.epilogue import build_epilogue
from imgconv.expression import Argument, Expression, apply, argument_numbers, substitute
from imgconv.graph import Convolution, Node, Operand
from imgconv.index import Index, Variable, constant, variable, variable_index
from imgconv.kernels.source import KernelSource, round_up
from imgconv.layout import (
    LANES, HostBuffer, ImageLimits, Placement, Texture, Tiling, choose_tiling, matrix_layout,
)
from imgconv.template import specialise
from imgconv.view import View


@dataclass(frozen=True)
class Problem:
    """A convolution as conv.cl sees it. Sizes are those of one image of the batch and, transposed, of one phase.

    groups: merged so that each begins at a whole quad. phases: the stride of a transposed convolution. half: whether
    multiply-adds are in half. integers: whether the weights or the input are integers, whose sums stay exact.
    """

    batch: int
    channels: int
    input_size: tuple[int, int]
    filters: int
    output_size: tuple[int, int]
    window: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, int]
    groups: int
    depthwise: bool = False
    phases: tuple[int, int] = (1, 1)
    phase_shift: tuple[int, int] = (0, 0)
    half: bool = False
    integers: bool = False

    @property
    def group_input_quads(self) -> int:
        return 1 if self.depthwise else ceil(self.channels // self.groups / LANES)

    @property
    def input_lanes(self) -> int:
        """Channels of each input quad that need be summed."""
        return min(LANES, self.channels // self.groups) if self.group_input_quads == 1 else LANES

    @property
    def group_output_quads(self) -> int:
        return self.output_quads if self.depthwise else ceil(self.filters // self.groups / LANES)

    @property
    def output_quads(self) -> int:
        return ceil(self.filters / LANES)

    @property
    def phase_size(self) -> tuple[int, int]:
        """Output rows and columns of one phase."""
        return ceil(self.output_size[0] / self.phases[0]), ceil(self.output_size[1] / self.phases[1])

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of the convolution as the model states it."""
        per_output = self.window[0] * self.window[1] * (1 if self.depthwise else self.channels // self.groups)
        phase = self.phase_size
        positions = phase[0] * phase[1] * self.phases[0] * self.phases[1]
        return self.batch * self.filters * positions * per_output


# Most bytes of input that a work item keeps in private memory, which is a core's cache on the CPU drivers.
PRIVATE_BYTES = 1 << 17
# A normalised byte is read as itself divided by this.
BYTE_SCALE = 127.0
# Columns, rows and quads of the blocks for GPUs.
BLOCKS_ON_GPU = (
    (1, 1, 1), (2, 1, 1), (4, 1, 1), (2, 1, 2), (4, 1, 2), (2, 2, 2), (4, 2, 1), (7, 1, 1), (4, 2, 2), (7, 1, 2),
    (8, 1, 2), (4, 1, 4), (2, 2, 4), (7, 2, 1), (4, 4, 1), (4, 2, 4), (8, 2, 2), (4, 1, 3), (7, 1, 3), (4, 2, 3),
    (8, 1, 3),
)
# Those of work groups that stage weights and input in local memory, and those of Winograd's filtering by its tile.
STAGED_BLOCKS = ((4, 1, 1), (4, 1, 2), (4, 2, 1), (4, 2, 2), (4, 1, 4), (8, 1, 4))
WINOGRAD_BLOCKS = {
    2: ((2, 1, 1), (4, 1, 1), (2, 2, 1), (2, 1, 2), (4, 1, 2), (2, 2, 2), (2, 1, 4)),
    4: ((4, 1, 1), (4, 2, 1), (4, 1, 2), (8, 1, 1), (4, 2, 2), (4, 1, 4), (8, 1, 2)),
}
# Texels in a row that every device's images take; a longer row of weights is cut into tiles, which cost at each read.
SAFE_WIDTH = 1 << 14
# From how many compute units on a GPU is one of a computer rather than of a phone.
LARGE_GPU = 16
# How long a texel of the input is kept once it was read, as in conv.cl.
KEEP = ("texel", "line", "window", "input")
# Where a work item reads weights: an image, a buffer, or local memory, into which its group copies them from a buffer.
WEIGHTS = ("image", "buffer", "local")
# Texels that a work item fetches for its group at once, and bytes of local memory that every device has.
MOST_FETCHED, LOCAL_BYTES = 4, 1 << 15


@dataclass(frozen=True)
class Specialisation:
    """What of conv.cl's constants is free.

    block_columns, block_rows, block_quads: the outputs of a work item, and passes: how many such blocks it makes along
    the quads. keep: how long an input texel is kept, one of KEEP. vector_quads: output quads in one vector. parts: work
    items that share a sum. half_quads: input quads that are summed in half before they are added in float.
    float_coordinates: where a read may be outside of the image, its coordinates are computed in float. weights: one of
    WEIGHTS. winograd: outputs of a tile of Winograd's minimal filtering along the rows, 2 or 4; 0 without it.
    staged_input: whether the input too is copied into local memory.
    """

    block_columns: int = 4
    block_rows: int = 1
    block_quads: int = 1
    keep: str = "line"
    weights: str = "image"
    local_size: tuple[int, int, int] | None = None
    vector_quads: int = 1
    passes: int = 1
    parts: int = 1
    half_quads: int = 0
    float_coordinates: bool = False
    winograd: int = 0
    staged_input: bool = False

    def __str__(self) -> str:
        text = f"block {self.block_columns}x{self.block_rows}x{self.block_quads}, {self.keep} kept, "
        text += f"weights in {self.weights}" + (f", Winograd F({self.winograd}, 3)" if self.winograd else "")
        text += ", input too" if self.staged_input else ""
        text += f", {self.passes} passes" if self.passes > 1 else ""
        text += f", {self.parts} parts" if self.parts > 1 else ""
        text += f", vectors of {LANES * self.vector_quads}" if self.vector_quads > 1 else ""
        text += f", {self.half_quads} quads in half" if self.half_quads else ""
        text += ", float coordinates" if self.float_coordinates else ""
        return text + ("" if self.local_size is None else f", work group {'x'.join(map(str, self.local_size))}")

    @property
    def weights_in_buffer(self) -> bool:
        """Whether the packed weights are a buffer."""
        return self.weights != "image"

    def allowed(self, problem: Problem) -> bool:
        """Whether conv.cl computes the problem with it."""
        blocks = self.block_quads * self.passes
        inside = blocks == 1 if problem.depthwise else problem.groups == 1 or problem.group_output_quads % blocks == 0
        kept = self.keep == "input" or self.passes == 1
        vectors = self.block_quads % self.vector_quads == 0 and not (self.vector_quads > 1 and self.half_quads)
        shared = self.parts == 1 or (
            self.passes == 1 and not self.weights_in_buffer and self.local_size is not None
            and self.local_size[1] % self.parts == 0 and not problem.depthwise
        )
        half = problem.half == (self.half_quads > 0) and (
            not problem.half or problem.group_input_quads % self.half_quads == 0
        )
        return inside and kept and vectors and shared and half and self._stages(problem) and self._transforms(problem)

    def _stages(self, problem: Problem) -> bool:
        """Whether weights are not in local memory, or can be."""
        one_block = self.parts == self.vector_quads == 1 and self.keep != "input" and self.local_size is not None
        if self.staged_input and (self.weights != "local" or problem.batch > 1 or problem.groups > 1):
            return False
        return self.weights != "local" or (
            one_block and not problem.depthwise and not problem.half and problem.phases == (1, 1)
            and _staged_texels(problem, self) * LANES * 4 <= LOCAL_BYTES
        )

    def _transforms(self, problem: Problem) -> bool:
        """Whether Winograd's filtering is not used, or can be: F(4, 3) would lose three bits of half's eleven."""
        steps = problem.strides[1], problem.dilations[1], *problem.phases
        return not self.winograd or (
            problem.window[1] == 3 and set(steps) == {1} and not problem.depthwise and not problem.integers
            and self.keep != "texel" and self.block_columns % self.winograd == 0
            and not (problem.half and self.winograd > 2)
        )


def problem_of(operation: Convolution, x: tuple[int, ...], w: tuple[int, ...], output: tuple[int, ...]) -> Problem:
    """The problem of a Graph's convolution, from the shapes of its input, weights and output."""
    filters = output[1]
    depthwise = operation.groups == x[1] == filters and not operation.transposed
    groups = operation.groups if depthwise else operation.groups // _merged(operation.groups, x[1], filters)
    made = Problem(
        x[0], x[1], (x[2], x[3]), filters, (output[2], output[3]), (w[2], w[3]), operation.strides,
        operation.dilations, operation.pads, groups, depthwise,
    )
    if not operation.transposed:
        return made
    strides = operation.strides
    window = tuple(ceil(((k - 1) * d + 1) / s) for k, d, s in zip(w[2:], operation.dilations, strides, strict=True))
    return replace(
        made, window=(window[0], window[1]), strides=(1, 1), dilations=(1, 1), pads=(window[0] - 1, window[1] - 1),
        phases=strides, phase_shift=operation.pads,
    )


def _merged(groups: int, channels: int, filters: int) -> int:
    """How many groups to treat as one, with zero weights between them, so that groups begin at whole quads."""
    each_in, each_out = channels // groups, filters // groups
    need = [LANES // gcd(LANES, each) for each in (each_in, each_out)]
    merge = max(need)
    return merge if groups % merge == 0 and groups > 1 else groups


# G of Winograd's filtering in conv.cl, by the outputs of a tile: how a row of the window becomes taps.
_NEAR, _FAR = 0.5**0.5, 2**0.5
TO_TAPS = {
    2: ((1, 0, 0), (0.25, 0.25, 0.25), (0.25, -0.25, 0.25), (0, 0, 1)),
    4: (
        (1, 0, 0), (-1 / 3, -_NEAR / 3, -1 / 6), (-1 / 3, _NEAR / 3, -1 / 6), (1 / 6, _FAR / 6, 1 / 3),
        (1 / 6, -_FAR / 6, 1 / 3), (0, 0, 1),
    ),
}


def pack_weights(problem: Problem, operation: Convolution, block_quads: int, weights: Any, winograd: int = 0) -> Any:
    """The weights as conv.cl reads them: (phase and quad block, step, n, 4 output lanes), float32."""
    dense = weights.astype(numpy.float64)
    if operation.transposed:
        rows, columns = problem.phases
        phases = [_phase(problem, operation, dense, py, px) for py in range(rows) for px in range(columns)]
    else:
        phases = [dense]
    if winograd:
        phases = [w @ numpy.transpose(TO_TAPS[winograd]) for w in phases]
    packed = [_pack_phase(problem, block_quads, w, operation.groups) for w in phases]
    return numpy.concatenate(packed).astype(numpy.float32)


def _phase(problem: Problem, operation: Convolution, weights: Any, phase_y: int, phase_x: int) -> Any:
    """The ordinary weights (O, C/groups, ...) that make the outputs of one phase of a transposed convolution."""
    groups, (channels, each) = operation.groups, weights.shape[:2]
    ordinary = weights.reshape(groups, channels // groups, each, *weights.shape[2:]).swapaxes(1, 2)
    ordinary = ordinary.reshape(groups * each, channels // groups, *weights.shape[2:])
    picked = numpy.zeros((*ordinary.shape[:2], *problem.window))
    for ty in range(problem.window[0]):
        for tx in range(problem.window[1]):
            # Window position t, from the far end, is the filter's tap `first + stride * t` of the stretched filter.
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


def _pack_phase(problem: Problem, block_quads: int, weights: Any, groups: int) -> Any:
    rows, columns = weights.shape[2:]
    if problem.depthwise:
        padded = numpy.zeros((problem.output_quads * LANES, rows * columns))
        padded[: problem.filters] = weights.reshape(problem.filters, -1)
        return padded.reshape(problem.output_quads, 1, LANES, -1).transpose(0, 3, 1, 2)
    # Blocks of merged groups: (group, output, input) with zeros where the model's own groups do not meet.
    merge, (each_out, each_in) = groups // problem.groups, (weights.shape[0] // groups, weights.shape[1])
    merged = numpy.zeros((problem.groups, merge, each_out, merge, each_in, rows, columns))
    for part in range(merge):
        merged[:, part, :, part] = weights.reshape(problem.groups, merge, each_out, each_in, rows, columns)[:, part]
    quads_in, quads_out = problem.group_input_quads, problem.group_output_quads
    blocks = ceil(quads_out / block_quads)
    padded = numpy.zeros((problem.groups, blocks * block_quads * LANES, quads_in * LANES, rows, columns))
    padded[:, : merge * each_out, : merge * each_in] = merged.reshape(
        problem.groups, merge * each_out, merge * each_in, rows, columns
    )
    parts = padded.reshape(problem.groups, blocks, block_quads, LANES, quads_in, LANES, rows, columns)
    steps = quads_in * rows * columns
    return parts.transpose(0, 1, 4, 6, 7, 5, 2, 3).reshape(problem.groups * blocks, steps, LANES * block_quads, LANES)


def candidates(problem: Problem, kind: str) -> list[Specialisation]:
    """The specialisations worth measuring for a problem. kind: 'cpu' or 'gpu'."""
    made = _on_cpu(problem) if kind == "cpu" else _on_gpu(problem)
    return [c for c in dict.fromkeys(made) if c.allowed(problem)]


def default_specialisation(problem: Problem, kind: str, compute_units: int) -> Specialisation:
    """The candidate of the least predicted cost."""
    return min(candidates(problem, kind), key=lambda c: predicted_cost(problem, c, kind, compute_units))


def predicted_cost(problem: Problem, chosen: Specialisation, kind: str, compute_units: int) -> float:
    """How long a launch is expected to take, to compare specialisations of one problem with.

    kind: 'cpu' (nanoseconds) or 'gpu' (cycles of a compute unit).
    """
    if kind == "cpu":
        return _cost_on_cpu(problem, chosen, compute_units)
    return _cost_on_gpu(problem, chosen, compute_units)


def _on_cpu(problem: Problem) -> Iterator[Specialisation]:
    """Vectors of 16 floats, weights in a buffer, every input texel read once for as many outputs as there are."""
    rows, columns = problem.phase_size
    lengths = sorted({min(columns, n) for n in (4, 5, 6, 7, 8)})
    half = _half_quads(problem)
    if problem.depthwise or problem.half:
        quads = (1,) if problem.depthwise else (1, 2)
        for length, height, each in itertools.product(lengths, {1, min(2, rows), min(4, rows)}, quads):
            yield Specialisation(length, height, each, "window", "buffer", half_quads=half)
        return
    blocks = [(4, 4), (8, 4)] if problem.group_output_quads > 2 else [(1, 1), (2, 1)]
    blocks += [(1, 1)] if problem.groups > 1 else []
    heights = {min(rows, n) for n in ((1, 2) if columns > 1 else (1, 2, 4, 8))}
    shapes = [
        Specialisation(length, height, each, "line", "buffer", vector_quads=vector)
        for length, height, (each, vector) in itertools.product(lengths, heights, blocks)
        if length * height * each // vector <= 16
    ]
    # Wider than the row too: Winograd's tile is worth the columns that it wastes.
    shapes += [
        Specialisation(length, height, each, "line", "buffer", vector_quads=vector, winograd=tile)
        for tile, length, height, (each, vector) in itertools.product((2, 4), (4, 8), (1, 2, 4), blocks[:1])
        if problem.window[1] == 3 and columns > 1 and (length // tile * 2 + length) * min(rows, height) <= 24
    ]
    for made in shapes:
        total = ceil(problem.group_output_quads / made.block_quads)
        yield made
        for passes in {ceil(total / n) for n in (1, 2, 4, 8)}:
            # Alone in its group: a driver may put the private memory of a whole group on a thread's stack.
            whole = replace(made, keep="input", passes=passes, local_size=(1, 1, 1))
            if problem.group_input_quads * prod(_kept(problem, whole)) * 16 <= PRIVATE_BYTES:
                yield whole


def _on_gpu(problem: Problem) -> Iterator[Specialisation]:
    """Blocks of up to 32 sums; sums of few outputs shared by work items; every group is whole waves."""
    rows, columns = problem.phase_size
    half = _half_quads(problem)
    kept = ("texel",) if problem.window == (1, 1) else ("texel", "line", "window")
    blocks = [
        (min(columns, length), min(rows, height), 1 if problem.depthwise else min(quads, problem.group_output_quads))
        for length, height, quads in BLOCKS_ON_GPU
    ]
    if columns == 1:
        blocks = [(1, min(rows, length), quads) for length, _, quads in blocks]
    for (length, height, each), keep in itertools.product(dict.fromkeys(blocks), kept):
        made = Specialisation(length, height, each, keep, half_quads=half, float_coordinates=True)
        yield replace(made, local_size=_work_group(problem, made), weights="buffer")
        yield from _alone_and_shared(problem, made)
    if problem.window[1] == 3 and columns > 1:
        for tile, keep in itertools.product(WINOGRAD_BLOCKS, ("line", "window")):
            for length, height, each in WINOGRAD_BLOCKS[tile]:
                made = Specialisation(
                    length, min(rows, height), min(each, problem.group_output_quads), keep, half_quads=half,
                    float_coordinates=True, winograd=tile,
                )
                yield from _alone_and_shared(problem, made)
    if not problem.depthwise and columns > 1:
        yield from _staged(problem)


def _alone_and_shared(problem: Problem, made: Specialisation) -> Iterator[Specialisation]:
    """The specialisation with its work group, and with sums that 4 and 16 work items share."""
    yield replace(made, local_size=_work_group(problem, made))
    # Work items that wait for each other must all have their registers at once.
    for parts in (4, 16) if made.block_columns * made.block_rows * made.block_quads <= 8 else ():
        shared = replace(made, parts=parts)
        yield replace(shared, local_size=_work_group(problem, shared))


def _staged(problem: Problem) -> Iterator[Specialisation]:
    """Groups that put weights in local memory, and the input where that is allowed."""
    rows, columns = problem.phase_size
    keep = "texel" if problem.window[1] == 1 else "line"
    tiles = (0, *WINOGRAD_BLOCKS) if problem.window[1] == 3 else (0,)
    for (length, height, each), tile in itertools.product(STAGED_BLOCKS, tiles):
        made = Specialisation(
            length, min(rows, height), min(each, problem.group_output_quads), keep, "local", float_coordinates=True,
            winograd=tile, staged_input=True,
        )
        made = replace(made, local_size=_staging_group(problem, made))
        yield made
        yield replace(made, staged_input=False)


def _staging_group(problem: Problem, chosen: Specialisation) -> tuple[int, int, int]:
    """A group of 128 that leaves as few items idle as possible; among equals the one that stages least."""
    blocks = work_items(problem, chosen)

    def rank(group: tuple[int, int, int]) -> tuple[int, bool, int, int]:
        items = prod(round_up(n, size) for n, size in zip(blocks, group, strict=True))
        # Narrower groups read the same bank of local memory from several rows.
        staged = _staged_texels(problem, replace(chosen, local_size=group))
        return items, group[0] < 4, staged // 8, abs(group[0] - 8)

    sizes = (1, 2, 4, 8, 16)
    return min((group for group in itertools.product(sizes, sizes, sizes) if prod(group) == 128), key=rank)


def _half_quads(problem: Problem) -> int:
    """How many input quads are summed in half: at most 32 terms, and a divisor of all."""
    if not problem.half:
        return 0
    taps = 1 if problem.depthwise else problem.window[0] * problem.window[1] * LANES
    most = max(1, 32 // taps)
    return max(n for n in range(1, most + 1) if problem.group_input_quads % n == 0)


def _work_group(problem: Problem, chosen: Specialisation) -> tuple[int, int, int]:
    """The work group's size, parts along y."""
    width, height, depth = _least_idle(work_items(problem, replace(chosen, parts=1)), chosen.parts)
    return width, height * chosen.parts, depth


@lru_cache(1024)
def _least_idle(blocks: tuple[int, int, int], parts: int) -> tuple[int, int, int]:
    """A group of 128 work items, a whole wave of the largest, that leaves as few idle as possible; parts not counted.

    Among equals about eight quad blocks, which read the same texels, and the longest rows. (A630: 468 GFLOPS in float
    with 128 to a wave, 346 with fewer; tinygrad#16229.)
    """

    def rank(group: tuple[int, int, int]) -> tuple[int, int, int]:
        items = prod(round_up(n, size) for n, size in zip(blocks, group, strict=True))
        return items, abs(group[1] * parts - 8), -group[0]

    sizes = (1, 2, 4, 8, 16)
    return min((group for group in itertools.product(sizes, sizes, sizes) if prod(group) * parts == 128), key=rank)


def _waits(chosen: Specialisation) -> bool:
    """Whether the items of a group wait for each other: those without outputs too, which must not return early."""
    return chosen.parts > 1 or chosen.weights == "local"


def _taps(problem: Problem, chosen: Specialisation) -> int:
    """What an input quad has weights for: positions of the window, or of its rows Winograd's taps."""
    return problem.window[0] * (chosen.winograd + 2 if chosen.winograd else problem.window[1])


def _sums(chosen: Specialisation) -> int:
    """Texels of sums of a work item: Winograd's are of taps."""
    columns = chosen.block_columns
    columns += columns // chosen.winograd * 2 if chosen.winograd else 0
    return columns * chosen.block_rows * chosen.block_quads


def staged_quads(problem: Problem, chosen: Specialisation) -> int:
    """How many input quads' weights a group copies at once; 0 where it copies none."""
    if chosen.weights != "local":
        return 0
    assert chosen.local_size is not None
    room = min(MOST_FETCHED * prod(chosen.local_size), LOCAL_BYTES // (LANES * 4))
    most = max(1, room // _staged_texels(problem, chosen))
    return max(n for n in range(1, min(most, 8) + 1) if problem.group_input_quads % n == 0)


def _kept(problem: Problem, chosen: Specialisation) -> tuple[int, int]:
    """Rows and columns of what is kept of them: texels, or Winograd's taps."""
    rows, columns = _tile(problem, chosen)
    return rows, chosen.block_columns // chosen.winograd * (chosen.winograd + 2) if chosen.winograd else columns


def _staged_texels(problem: Problem, chosen: Specialisation) -> int:
    """Texels of local memory for one input quad."""
    assert chosen.local_size is not None
    # One more for each row of quad blocks, as conv.cl has for all input quads together.
    texels = chosen.local_size[1] * (chosen.block_quads * _taps(problem, chosen) * LANES + 1)
    if chosen.staged_input:
        rows, columns = (
            (group * block - 1) * stride + (window - 1) * dilation + 1
            for group, block, stride, window, dilation in zip(
                (chosen.local_size[2], chosen.local_size[0]), (chosen.block_rows, chosen.block_columns),
                problem.strides, problem.window, problem.dilations, strict=True,
            )
        )
        texels += rows * (columns + (columns - 1) // (chosen.block_columns * problem.strides[1]))
    return texels


def _tile(problem: Problem, chosen: Specialisation) -> tuple[int, int]:
    """Rows and columns of the texels of one quad that are kept together."""
    kept = KEEP.index(chosen.keep)
    sizes = []
    for axis, block, whole in ((0, chosen.block_rows, kept >= 2), (1, chosen.block_columns, kept >= 1)):
        reach = (block - 1) * problem.strides[axis] + (problem.window[axis] - 1) * problem.dilations[axis]
        sizes.append(reach // _step(problem, chosen, axis) + 1 if whole else block)
    return sizes[0], sizes[1]


def texel_reads(problem: Problem, chosen: Specialisation) -> int:
    """Input texels that a work item reads."""
    again = (problem.window[1] if chosen.keep == "texel" else 1)
    again *= problem.window[0] if chosen.keep in ("texel", "line") else 1
    return ceil(problem.group_input_quads / chosen.parts) * prod(_tile(problem, chosen)) * again


def weight_reads(problem: Problem, chosen: Specialisation) -> int:
    """Weight texels that a work item reads."""
    taps = _taps(problem, chosen)
    if problem.depthwise:
        return taps
    steps = ceil(problem.group_input_quads / chosen.parts) * taps
    return steps * problem.input_lanes * chosen.block_quads * chosen.passes


def _cost_on_cpu(problem: Problem, chosen: Specialisation, compute_units: int) -> float:
    """Nanoseconds on the core with the most work: an emulated texture read takes as long as ten multiply-adds of 16.

    Fitted to 2,900 candidates for 140 problems of five networks, Intel's runtime on one core of a Zen 5: half of them
    within 10 %, and of those that it likes best 94 % within 10 % of the fastest.
    """
    sums, vectors = chosen.block_columns * chosen.block_rows, chosen.block_quads // chosen.vector_quads
    reads, stores = texel_reads(problem, chosen), sums * chosen.block_quads * chosen.passes
    steps = weight_reads(problem, chosen) // chosen.block_quads
    # Each of Winograd's taps adds to a sum of its own in every tile, and waits for no other.
    added = sums // max(1, chosen.winograd)
    if problem.depthwise:
        # Its sums stay in registers; where blocks reach past the last column, each position is tested.
        tested = problem.phase_size[1] % chosen.block_columns > 0
        item = reads * (1.9 if tested else 1.0) + steps * (0.6 * sums + 1.2 * max(0, sums - 28)) + 50
    else:
        # A line of a window is shifted through registers at each of its columns; what is kept for passes is stored.
        shifted = 0.18 if chosen.keep == "line" and problem.window != (1, 1) and not chosen.winograd else 0.0
        rows = (0.05 if chosen.passes > 1 else 0.25) if chosen.block_rows > 1 and problem.window == (1, 1) else 0.0
        item = reads * (2.4 if chosen.keep == "input" else 2.0) + stores * 1.8
        start = 1.0 if chosen.winograd else 1.25
        arithmetic = steps * (start + ((0.25 + shifted) * vectors + rows) * added)
        # Weights that a core's own cache does not hold come past it for each item: 31 GB/s, 16 from memory.
        used = 16 * weight_reads(problem, chosen)
        whole = used * ceil(problem.output_quads / chosen.block_quads / chosen.passes)
        item += max(arithmetic, used * (0.0 if whole < 1 << 20 else 0.032 if whole < 1 << 23 else 0.06))
    item += 0.0 if chosen.weights_in_buffer else weight_reads(problem, chosen) * 2.2
    # The runtime makes a group of a whole row of work items where it is free to.
    width, height, depth = work_items(problem, chosen)
    groups, each = (height * depth, width * item) if chosen.local_size is None else (width * height * depth, item)
    # Cores that share a launch must wake, and at its end wait for each other.
    return each if groups == 1 else each * max(ceil(groups / compute_units), groups / compute_units + 0.25) + 2000


def _cost_on_gpu(problem: Problem, chosen: Specialisation, compute_units: int) -> float:
    """Cycles of a compute unit. Work items that only fill up a work group cost as much as the others."""
    blocks, local = work_items(problem, chosen), chosen.local_size or (1, 1, 1)
    groups = prod(ceil(n / size) for n, size in zip(blocks, local, strict=True))
    weights = weight_reads(problem, chosen)
    multiply_adds = weights * LANES * chosen.block_rows * chosen.block_columns // max(1, chosen.winograd)
    kept = prod(_kept(problem, chosen)) + _sums(chosen)
    if compute_units < LARGE_GPU:
        weights *= 4 if _rows_of_weights_are_cut(problem, chosen) else 1
        return groups * prod(local) * _slots_of_item(problem, chosen, multiply_adds, weights, kept)
    registers = 4 * kept + 40
    resident = max(1, min(16, 65536 // (registers * prod(local))))
    rounds = groups / compute_units
    cycles, waiting = _cycles_of_group(problem, chosen, multiply_adds, weights)
    # A compute unit that has a group more than others ends later, though it has what they leave to itself.
    busy = max(1.0, 0.36 * rounds + 0.64 * ceil(rounds)) * cycles
    turns: float = ceil(rounds / resident)
    if chosen.weights == "local":
        # While a group waits at its barriers, those beside it work.
        beside = max(1.0, min(resident, rounds))
        turns = max(1.0, rounds / beside) / beside
    return (busy + waiting * turns) * (4 if registers > 255 else 1)


def _rows_of_weights_are_cut(problem: Problem, chosen: Specialisation) -> bool:
    """Whether the steps of the weights are more than an image's row takes: it is cut into tiles."""
    return problem.group_input_quads * _taps(problem, chosen) > SAFE_WIDTH


def _cycles_of_group(
    problem: Problem, chosen: Specialisation, multiply_adds: int, weights: int
) -> tuple[float, float]:
    """Cycles in which a work group keeps a large GPU's compute unit busy, and in which it only waits for reads.

    Fitted to 2,100 candidates of 100 problems of five networks on an H200; measured anew, what it chooses takes 1.03
    times as long as the best of six, in all, and for 86 % of them at most 1.1 times. 128 multiply-adds in a cycle; 1.1
    cycles for a work item's read of a texel, less where items of a wave read the same one or neighbours, and of weights
    in a buffer; 0.9 for a texel that is staged, and 0.02 for each item that reads it from local memory.
    """
    width, height, _ = chosen.local_size or (1, 1, 1)
    items, texels = prod(chosen.local_size or (1, 1, 1)), texel_reads(problem, chosen)
    stores = 0.55 * items * _sums(chosen) * chosen.parts**0.5
    if chosen.winograd:
        multiply_adds += 4 * texels + 8 * _sums(chosen)
    arithmetic = multiply_adds * items / 128
    if chosen.weights == "local":
        stages = problem.group_input_quads / staged_quads(problem, chosen)
        staged = 0.9 * _staged_texels(problem, chosen) * problem.group_input_quads
        reads = items * (0.02 * weights + texels * (0.02 if chosen.staged_input else 1.0))
        return staged + reads + 1.2 * arithmetic + stores, 770 * stages
    # Items of a wave of 32 that differ in y have weights of their own; the parts among them read neighbours.
    different = min(height, max(1, ceil(32 / width)))
    apart = min(1.0, different / 16)
    weight_cost = 0.03 + apart if chosen.parts == 1 else 0.3 + 0.2 * apart
    weight_cost *= 0.53 if chosen.weights_in_buffer else 3 if _rows_of_weights_are_cut(problem, chosen) else 1.0
    texel_cost = 0.37 if min(chosen.parts, different) >= LANES else 1.0
    reads = 1.1 * items * (texels * texel_cost + weights * weight_cost)
    steps = ceil(problem.group_input_quads / chosen.parts) * problem.window[0]
    # A texture answers later than a buffer; items that share a sum wait for each other, and those that keep a window
    # for all of its texels.
    waiting = 300 if chosen.weights_in_buffer else 980 if chosen.parts > 1 and chosen.keep == "window" else 760
    between = 2950 if chosen.parts > 1 else 0
    return max(arithmetic, reads) + 0.47 * min(arithmetic, reads) + stores, waiting * steps + between


def _slots_of_item(
    problem: Problem, chosen: Specialisation, multiply_adds: int, weights: int, kept: int
) -> float:
    """Issue slots of a work item on a small GPU, as Mesa's compiler makes Adreno code.

    It unrolls the window's columns and merges the reads of one texel, so that `texel` reads as often as `line`, in an
    order that needs fewer registers; a depthwise window it unrolls whole. In its a630 code of 3,200 candidates for five
    networks' convolutions a read takes 3.7 slots, a sum 16: half of the dense ones are within 5 % of that, of the
    depthwise ones within 10 %. A read counts for more here, as its texture unit is the slower part below some 14
    multiply-adds a read. What it chooses takes 1.4 % more slots than the best.
    """
    merged = replace(chosen, keep="window" if problem.depthwise else "line") if chosen.keep != "window" else chosen
    reads, sums = texel_reads(problem, merged) + weights, _sums(chosen)
    if chosen.winograd:
        taps = problem.group_input_quads * problem.window[0] * prod(_kept(problem, chosen)) // chosen.parts
        multiply_adds += LANES * (taps + sums)
    slots = multiply_adds + 12 * reads + 21 * sums * chosen.parts + 15
    # Few work items are enough to fill it: shared sums only cost the reads that smaller blocks repeat.
    spills = chosen.weights_in_buffer or _spills(problem, chosen, sums, kept)
    return slots * (4 if spills else 1.5 if chosen.parts > 1 else 1)


def _spills(problem: Problem, chosen: Specialisation, sums: int, kept: int) -> bool:
    """Whether Mesa's Adreno code has too few registers: it reads all that an unrolled loop needs before it starts."""
    taps = problem.window[0] * problem.window[1]
    if problem.depthwise:
        line, window = (prod(_tile(problem, replace(chosen, keep=keep))) for keep in ("line", "window"))
        if 4 * taps * sums + 3 * window > 900:  # it leaves the loop over rows
            return chosen.keep != "line" or line + sums > 44
        return chosen.keep != "line" or window > 45 or sums > 8
    if chosen.winograd:
        # It unrolls smaller blocks until they spill; F(4, 3) leaves too few registers for any.
        return chosen.winograd > 2 or chosen.keep != "line" or sums != 16 or chosen.block_quads < 2
    if taps == 1:
        return kept + LANES * chosen.block_quads > 42
    if sums == 24 and chosen.keep == "texel" and chosen.block_rows > 1 and problem.input_lanes == LANES:
        return False  # it leaves the loop over columns
    line = prod(_tile(problem, replace(chosen, keep="line")))
    held = line + sums + problem.input_lanes * chosen.block_quads
    return sums > 16 or held > 40 or (chosen.keep != "texel" and kept > 18)


def reads_directly(view: View, place: Placement) -> bool:
    """Whether conv.cl can read (N, C, H, W) through the view: x = column*pitch + offset + quad, y = image*H + row."""
    if view.bounds or not isinstance(place.storage, Texture):
        return False
    n, c, h, w = view.shape
    quads = ceil(c / LANES)
    image, row, column, quad = (variable(*v) for v in (("image", n), ("row", h), ("column", w), ("quad", quads)))
    position = (image, quad * LANES + variable_index(LANE), row, column)
    axes = {Variable(f"i{axis}", size): position[axis] for axis, size in enumerate(view.shape)}
    x, y, lane = place.address([e.substitute(axes) for e in view.index])
    pitch = place.layout.quads(place.storage.shape)
    lanes = lane == variable_index(LANE) or (c == 1 and lane == constant(0))
    # A part of a wider tensor starts at some quad of it; what lies beside it is met only past the last channel.
    offset = x.constant
    texels = x == column * pitch + quad + offset and y == image * h + row
    return lanes and texels and (c % LANES == 0 or offset + quads == pitch)


def factor_texel(factors: Operand, place: Placement) -> tuple[Index, Index] | None:
    """Texel x and y of the factors (N, C, 1, 1) of (image, quad); None where they do not lie four to a texel."""
    if factors.view.bounds or not isinstance(place.storage, Texture):
        return None
    n, c = factors.view.shape[:2]
    channel = variable("quad", ceil(c / LANES)) * LANES + variable_index(LANE)
    axes = {Variable("i0", n): variable("image", n), Variable("i1", c): channel}
    x, y, lane = place.address([e.substitute(axes) for e in factors.view.index])
    lanes = lane == variable_index(LANE) or (c == 1 and lane == constant(0))
    return (x, y) if lanes and not any(LANE in e.variables() for e in (x, y)) else None


def weights_buffer(name: str, packed: Any, dtype: str) -> tuple[HostBuffer, Any]:
    """The buffer that holds packed weights, and its content."""
    blocks, steps, weights, _ = packed.shape
    buffer = HostBuffer(name, (blocks, steps * weights * LANES), matrix_layout(2), dtype)
    return buffer, packed.reshape(blocks, steps * weights, LANES).astype(dtype)


def weights_texture(name: str, packed: Any, limits: ImageLimits, dtype: str) -> tuple[Texture, Any]:
    """The texture that holds packed weights, and its content."""
    blocks, steps, weights, _ = packed.shape
    height, layout = blocks * weights, matrix_layout(2)
    shape = (height, steps * LANES)
    texture = Texture(name, shape, layout, dtype, choose_tiling(steps, height, limits, name, shape))
    return texture, texture.tiling.scatter(packed.swapaxes(1, 2).reshape(height, steps, LANES).astype(dtype))


def convolution_kernel(
    node: Node, problem: Problem, chosen: Specialisation, output: Placement, placements: Mapping[str, Placement],
    weights: Texture | HostBuffer, native: bool, exact: bool = False,
) -> KernelSource:
    """conv.cl specialised: the node's output and operands at their placements, `weights` packed for the block.

    exact: weights of bytes are read as the integers that they are; without it the epilogue is `scaled` for them.
    """
    x = placements[node.operands[0].value]
    starts = chosen.parts == chosen.vector_quads == 1 and not (chosen.winograd or problem.integers)
    epilogue = build_epilogue(node, output, placements, native, starts=starts)
    assert isinstance(x.storage, Texture) and isinstance(output.storage, Texture)
    input_tiling, output_tiling = x.storage.tiling, output.storage.tiling
    rows, columns = problem.phase_size
    helpers: list[str] = []
    inside = _reads_inside(problem, chosen)
    centre = chosen.float_coordinates and input_tiling.tiles == 1 and not inside
    past = _reads_past(problem, chosen)
    constants: dict[str, str | int] = {
        "INDEX": _index_type(problem, chosen, input_tiling, output_tiling),
        "BATCH": problem.batch, "INPUT_HEIGHT": problem.input_size[0],
        "INPUT_PITCH": x.layout.quads(x.storage.shape), "INPUT_OFFSET": _first_quad(node, x),
        "INPUT_QUADS": problem.group_input_quads, "INPUT_LANES": problem.input_lanes,
        "OUTPUT_WIDTH": columns, "OUTPUT_HEIGHT": rows,
        "FULL_OUTPUT_WIDTH": problem.output_size[1], "FULL_OUTPUT_HEIGHT": problem.output_size[0],
        "OUTPUT_PITCH": output.layout.quads(output.storage.shape), "OUTPUT_OFFSET": output.channel_offset // LANES,
        "OUTPUT_QUADS": problem.output_quads, "GROUP_QUADS": problem.group_output_quads,
        "DEPTHWISE": int(problem.depthwise), "WINDOW_WIDTH": problem.window[1], "WINDOW_HEIGHT": problem.window[0],
        "STRIDE_X": problem.strides[1], "STRIDE_Y": problem.strides[0],
        "DILATION_X": problem.dilations[1], "DILATION_Y": problem.dilations[0],
        "PAD_X": problem.pads[1], "PAD_Y": problem.pads[0],
        "PHASES_X": problem.phases[1], "PHASES_Y": problem.phases[0],
        "PHASE_SHIFT_X": problem.phase_shift[1], "PHASE_SHIFT_Y": problem.phase_shift[0],
        "BLOCK_COLUMNS": chosen.block_columns, "BLOCK_ROWS": chosen.block_rows, "BLOCK_QUADS": chosen.block_quads,
        **_each_sum(chosen), "COLUMN_STEP": _step(problem, chosen, 1), "ROW_STEP": _step(problem, chosen, 0),
        "KEEP": KEEP.index(chosen.keep), "WINOGRAD": chosen.winograd, "PASSES": chosen.passes, "PARTS": chosen.parts,
        "VECTOR_QUADS": chosen.vector_quads, "HALF_QUADS": chosen.half_quads,
        "STAGED_QUADS": staged_quads(problem, chosen), "STAGED_INPUT": int(chosen.staged_input),
        "CHECK_ROWS": int(problem.batch > 1),
        "LAST_LANES": (problem.filters - 1) % LANES + 1,
        "INPUT_IMAGE": image_type(input_tiling),
        "COORDINATE": "float" if centre else "int", "TEXEL_CENTRE": "0.5f" if centre else 0,
        "READ_INPUT(x, y)": read_text("input", input_tiling, helpers, inside, problem.half, centre, past),
        "OUTPUT_IMAGE": image_type(output_tiling),
        "WRITE_OUTPUT(x, y, texel)": write_text("output", output_tiling, helpers),
        "EPILOGUE(sum, column, row, quad)": epilogue.call, "EPILOGUE_PARAMETERS": epilogue.parameters,
        "EPILOGUE_LOADS(quad)": epilogue.loads, "START": epilogue.start, "START_LOADS(quad)": epilogue.start_loads,
    }
    constants |= _weight_access(weights, chosen, exact, helpers)
    factors = [KernelArgument("factors", placements[o.value].storage) for o in node.operands[2:]]
    constants |= _factor_access(node, placements, problem.half, helpers)
    blocks, local = work_items(problem, chosen), chosen.local_size
    width, height, depth = local or (1, chosen.parts, 1)
    size = (round_up(blocks[0], width), round_up(blocks[1], height), round_up(blocks[2], depth))
    attribute = "" if local is None else f"__attribute__((reqd_work_group_size({width}, {height}, {depth})))"
    constants |= {
        "GUARD": int(size != blocks), "GROUP_SIZE": attribute, "GROUP_WIDTH": width,
        "GROUP_HEIGHT": height // chosen.parts, "GROUP_DEPTH": depth,
    }
    arguments = (
        KernelArgument("output", output.storage, written=True), KernelArgument("input", x.storage),
        KernelArgument("weights", weights), *factors, *epilogue.arguments,
    )
    text = specialise("conv.cl", constants, "".join(helpers) + epilogue.functions)
    return KernelSource(text, "conv.cl", arguments, size, local)


def _first_quad(node: Node, place: Placement) -> int:
    """The quad of the storage at which the input's channel 0 is, for an operand that `reads_directly`."""
    zeros = {Variable(f"i{axis}", size): constant(0) for axis, size in enumerate(node.operands[0].view.shape)}
    return place.address([e.substitute(zeros) for e in node.operands[0].view.index])[0].constant


def scaled(epilogue: Expression) -> Expression:
    """The epilogue of a sum with weights from an image of bytes, which are read as themselves / 127."""
    arguments: dict[int, Expression] = {n: Argument(n) for n in argument_numbers(epilogue)}
    return substitute(epilogue, arguments | {0: apply("multiply", Argument(0), BYTE_SCALE)})


def _weight_access(
    weights: Texture | HostBuffer, chosen: Specialisation, exact: bool, helpers: list[str]
) -> dict[str, str | int]:
    name = "READ_WEIGHT(first, step)"
    if isinstance(weights, HostBuffer):
        size = LANES * chosen.vector_quads
        where = "(first) + (step) * WEIGHTS_OF_STEP"
        if weights.dtype == "float16":
            load = f"vload4({where}, weights)" if chosen.half_quads else f"vload_half{size}({where}, weights)"
            return {"WEIGHTS": "__global const half *weights", "WEIGHTS_IN_IMAGE": 0, name: load}
        if weights.dtype == "int8":
            load = f"convert_{'half' if chosen.half_quads else 'float'}{size}(vload{size}({where}, weights))"
            return {"WEIGHTS": "__global const char *weights", "WEIGHTS_IN_IMAGE": 0, name: load}
        load = f"convert_half4(weights[{where}])" if chosen.half_quads else f"weights[{where}]"
        return {"WEIGHTS": f"__global const float{size} *weights", "WEIGHTS_IN_IMAGE": 0, name: load}
    declaration = f"read_only {image_type(weights.tiling)} weights"
    read = read_text("weights", weights.tiling, helpers, inside=chosen.parts == 1, half=chosen.half_quads > 0)
    if chosen.vector_quads > 1:
        quads = ", ".join(read.replace("x, y)", f"step, (first) * {chosen.vector_quads} + {n})") for n in range(4))
        text = f"(float16)({quads})"
    else:
        text = read.replace("x, y)", "step, first)")
    # The product with 127 is an integer within a rounding.
    whole = weights.dtype == "int8" and exact
    return {"WEIGHTS": declaration, "WEIGHTS_IN_IMAGE": 1, name: f"rint({BYTE_SCALE}f * {text})" if whole else text}


def _factor_access(
    node: Node, placements: Mapping[str, Placement], half: bool, helpers: list[str]
) -> dict[str, str | int]:
    name = "READ_FACTORS(image, quad)"
    if len(node.operands) < 3:
        return {"FACTORS": 0, "FACTORS_IMAGE": "image2d_t", name: "(float4)(1.0f)"}
    place = placements[node.operands[2].value]
    texel = factor_texel(node.operands[2], place)
    assert texel is not None and isinstance(place.storage, Texture), node
    read = read_text("factors", place.storage.tiling, helpers, half=half, past=(False, False))
    return {
        "FACTORS": 1, "FACTORS_IMAGE": image_type(place.storage.tiling),
        name: read.replace("x, y)", f"{texel[0].render()}, {texel[1].render()})"),
    }


def work_items(problem: Problem, chosen: Specialisation) -> tuple[int, int, int]:
    """Work items along x, y and z, before they are rounded up to whole work groups."""
    rows, columns = problem.phase_size
    passes = ceil(ceil(problem.output_quads / chosen.block_quads) / chosen.passes)
    return (
        ceil(columns / chosen.block_columns) * problem.phases[1], passes * chosen.parts,
        problem.batch * ceil(rows / chosen.block_rows) * problem.phases[0],
    )


def _each_sum(chosen: Specialisation) -> dict[str, str]:
    """The texts that act on each quad of a block, and on each of its positions."""
    positions = itertools.product(range(chosen.block_rows), range(chosen.block_columns))
    return {
        "EACH_QUAD(act)": " ".join(f"act({o})" for o in range(chosen.block_quads)),
        "EACH_POSITION(act, o)": " ".join(f"act({row}, {column}, o)" for row, column in positions),
    }


def _reads_inside(problem: Problem, chosen: Specialisation) -> bool:
    """Whether no work item reads outside of the input: there is no padding, and blocks end where the output does."""
    fits = []
    for axis, block in ((0, chosen.block_rows), (1, chosen.block_columns)):
        last = (problem.phase_size[axis] - 1) * problem.strides[axis]
        last += (problem.window[axis] - 1) * problem.dilations[axis] - problem.pads[axis]
        whole = problem.phase_size[axis] % block == 0
        fits.append(whole and problem.pads[axis] <= 0 and last < problem.input_size[axis])
    return all(fits) and problem.phases == (1, 1) and not _waits(chosen)


def _reads_past(problem: Problem, chosen: Specialisation) -> tuple[bool, bool]:
    """Whether an output needs zeros past the last column, or below the last row of the input's texture."""
    past = []
    for axis in (1, 0):
        # The outputs of one of Winograd's tiles are made of all that it reads.
        outputs = round_up(problem.phase_size[axis], max(1, chosen.winograd if axis else 1))
        last = (outputs - 1) * problem.strides[axis] - problem.pads[axis]
        last += (problem.phases[axis] - 1 + problem.phase_shift[axis]) // problem.phases[axis]
        past.append(last + (problem.window[axis] - 1) * problem.dilations[axis] >= problem.input_size[axis])
    # In a batch conv.cl tests the rows itself.
    return past[0], past[1] and problem.batch == 1


def _step(problem: Problem, chosen: Specialisation, axis: int) -> int:
    """Input columns (axis 1) or rows (0) from one that is read to the next: all that any output of a block needs."""
    stride, dilation = problem.strides[axis], problem.dilations[axis]
    several = (chosen.block_rows, chosen.block_columns)[axis] > 1
    if problem.window[axis] == 1:
        return stride
    return gcd(stride, dilation) if several else dilation


def _index_type(problem: Problem, chosen: Specialisation, input_tiling: Tiling, output_tiling: Tiling) -> str:
    """short where every position that the kernel keeps in an INDEX fits."""
    # Items that only fill up a work group have positions too.
    groups = chosen.local_size or (1, 1, 1)
    reach = max(
        problem.window[axis] * problem.dilations[axis] + group * block * problem.strides[axis]
        for axis, group, block in ((1, groups[0], chosen.block_columns), (0, groups[2], chosen.block_rows))
    )
    largest = max(
        input_tiling.width + reach * LANES, input_tiling.height + reach, output_tiling.width, output_tiling.height,
        output_tiling.height * problem.phases[0] + chosen.block_rows, problem.channels, problem.filters,
        problem.phases[0] * problem.phases[1] * ceil(problem.output_quads / chosen.block_quads) * chosen.parts,
        problem.group_input_quads + chosen.parts * max(1, chosen.half_quads),
    )
    return "short" if largest <= SHORT_LIMIT else "int"


