"""The specialisations of separable.cl that are worth measuring for a problem, and the work of a launch."""

from __future__ import annotations

import itertools
from math import ceil, gcd, prod

from imgconv.dtype import FLOAT16
from imgconv.kernels.conv.candidates import MOST_UNROLLED
from imgconv.kernels.conv.mobile import BESIDE_IN_HALF
from imgconv.kernels.device_model.work import LaunchWork
from imgconv.kernels.layout import LANES
from imgconv.kernels.separable.problem import Problem, Specialisation, groups_of
from imgconv.kernels.target import TargetKind

# BLOCKS: columns and output quads of a block. TILES: blocks of a tile, along columns and rows. SPLITS: the work groups
# among which a tile's output quads are split. PARTS: work items that share a sum. BLOCKS_IN_HALF: further blocks.
BLOCKS = ((1, 1), (2, 1), (4, 1), (7, 1), (1, 2), (2, 2), (4, 2))
BLOCKS_IN_HALF = ((2, 4), (4, 3), (4, 4), (7, 2), (7, 3))
TILES = ((1, 1), (1, 2), (2, 1), (1, 4), (2, 2), (4, 1), (2, 4), (4, 4))
SPLITS = (1, 2, 3, 4, 6, 8, 10, 16)
PARTS = (1, 2, 4, 8, 12, 16, 24, 32)


def candidates(
    problem: Problem, kind: TargetKind, local_memory_bytes: int, max_work_group: int = 256
) -> list[Specialisation]:
    """Returns the specialisations worth measuring for a problem, with work groups of 96 to 256 work items.

    kind: 'cpu' or 'gpu'. There are none for a CPU, which has no separate local memory, and none for a window that
    compilers would take seconds to unroll.
    """
    if kind == "cpu" or prod(problem.depthwise.window) > MOST_UNROLLED[kind][0]:
        return []
    (rows, columns), quads = problem.pointwise.output_size, problem.pointwise.output_quads
    found, most = [], min(256, max_work_group)
    blocks = (*BLOCKS, *BLOCKS_IN_HALF) if problem.pointwise.products == FLOAT16 or problem.integers else BLOCKS
    for (length, each), (across, down) in itertools.product(blocks, TILES):
        if across * length >= columns + length or down > rows:
            continue
        for splits, parts in itertools.product(SPLITS, PARTS):
            group_quads = ceil(ceil(quads / each) / splits)
            # Thousands are asked for, of which few pass: a Specialisation takes longer than this product.
            if not 96 <= group_quads * across * down * parts <= most or parts > problem.depthwise.output_quads:
                continue
            made = Specialisation(length, each, across, down, group_quads, parts)
            if made.local_bytes(problem) <= local_memory_bytes:
                found.append(made)
    return list(dict.fromkeys(found))


def launch_work(problem: Problem, chosen: Specialisation) -> LaunchWork:
    """The work of a launch. A step is a window of the depthwise convolution, or an input quad of the 1x1."""
    depthwise, pointwise, items = problem.depthwise, problem.pointwise, prod(chosen.local_size)
    taps, sums = prod(depthwise.window), chosen.block_columns * chosen.block_quads
    # Of the work item that has the most.
    windows = ceil(chosen.group_columns * chosen.group_rows * depthwise.output_quads / items)
    totals, held = ceil(sums / chosen.parts), sums + chosen.block_columns + LANES * chosen.block_quads
    shared = sums + totals * chosen.parts if chosen.parts > 1 else 0
    line, half = _columns_read(problem, chosen), 2 if pointwise.accumulator == FLOAT16 else 1
    reads, multiply_adds = depthwise.window[0] * line + taps, LANES * windows * taps * chosen.block_columns
    # Mesa's compiler for Adreno reads the whole window of a depthwise block before it multiplies.
    window = reads + chosen.block_columns
    # Weight texels of an input quad and an output quad, and input quads that are read from local memory at once.
    texels_of_quad, at_once = LANES, 1
    if problem.integers:
        texels_of_quad, at_once = 1, LANES if depthwise.output_quads % LANES == 0 else 1
        window = line + depthwise.window[1] + chosen.block_columns  # rows are behind branches
    rounds = ceil(depthwise.output_quads / at_once / chosen.parts)
    quads, steps = rounds * at_once, windows + rounds
    weights = depthwise.output_quads * (taps + LANES * pointwise.output_quads)
    # Every texel of input, weights and output once.
    texels = depthwise.batch * depthwise.output_quads * prod(depthwise.input_size) + weights
    texels += pointwise.batch * pointwise.output_quads * prod(pointwise.output_size)
    return LaunchWork(
        prod(groups_of(problem, chosen)), items, multiply_adds + LANES * texels_of_quad * quads * sums,
        pointwise.products == FLOAT16, reads=windows * reads + quads * texels_of_quad * chosen.block_quads,
        local=steps * chosen.block_columns + shared, writes=totals, steps=steps,
        barriers=1 + (chosen.parts > 1), registers=held / half,
        fewest_registers=max(held, window) / half + BESIDE_IN_HALF,
        fetched=_fetched_texels(problem, chosen), local_bytes=chosen.local_bytes(problem), texels=texels,
    )


def _fetched_texels(problem: Problem, chosen: Specialisation) -> int:
    """Different texels of input and weights that a work group reads."""
    depthwise, taps = problem.depthwise, prod(problem.depthwise.window)
    tile, outputs = 1, (chosen.group_rows, chosen.group_columns * chosen.block_columns)
    for size, stride, window, dilation in zip(
        outputs, depthwise.strides, depthwise.window, depthwise.dilations, strict=True
    ):
        tile *= (size - 1) * stride + (window - 1) * dilation + 1
    return depthwise.output_quads * (tile + taps + LANES * chosen.group_quads * chosen.block_quads)


def _columns_read(problem: Problem, chosen: Specialisation) -> int:
    """Input columns that a block reads for a row of the window."""
    depthwise = problem.depthwise
    reach = (chosen.block_columns - 1) * depthwise.strides[1] + (depthwise.window[1] - 1) * depthwise.dilations[1]
    return reach // gcd(depthwise.strides[1], depthwise.dilations[1]) + 1
