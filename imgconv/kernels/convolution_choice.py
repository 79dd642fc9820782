"""Which specialisations of conv.cl are worth measuring for a problem, and which is likely to be the fastest."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from math import ceil, prod

from imgconv.kernels.convolution import (
    Problem, Specialisation, kept_size, staged_quads, staged_texels, sums_of, taps_of, tile_size, work_items,
)
from imgconv.kernels.source import round_up
from imgconv.layout import LANES

# Most bytes of input that a work item keeps in private memory, which is a core's cache on the CPU drivers.
PRIVATE_BYTES = 1 << 17
# Columns, rows and quads of the blocks for GPUs.
BLOCKS_ON_GPU = (
    (1, 1, 1), (2, 1, 1), (4, 1, 1), (2, 1, 2), (4, 1, 2), (2, 2, 2), (4, 2, 1), (7, 1, 1), (4, 2, 2), (7, 1, 2),
    (8, 1, 2), (4, 1, 4), (2, 2, 4), (7, 2, 1), (4, 4, 1), (4, 2, 4), (8, 2, 2), (4, 1, 3), (7, 1, 3), (4, 2, 3),
    (8, 1, 3),
)
# Those of work groups that stage weights and input in local memory, by what is kept of the input there, and those of
# Winograd's filtering by its tile.
STAGED_BLOCKS = {
    "texel": ((4, 1, 1), (4, 1, 2), (8, 1, 1), (4, 2, 1), (4, 4, 1), (8, 2, 1)),
    "line": ((4, 1, 1), (4, 1, 2), (4, 2, 1), (4, 2, 2), (4, 1, 4), (8, 1, 4)),
}
WINOGRAD_BLOCKS = {
    2: ((2, 1, 1), (4, 1, 1), (2, 2, 1), (2, 1, 2), (4, 1, 2), (2, 2, 2), (2, 1, 4)),
    4: ((4, 1, 1), (4, 2, 1), (4, 1, 2), (8, 1, 1), (4, 2, 2), (4, 1, 4), (8, 1, 2)),
}
# Texels in a row that every device's images take; a longer row of weights is cut into tiles, which cost at each read.
SAFE_WIDTH = 1 << 14
# From how many compute units on a GPU is one of a computer rather than of a phone.
LARGE_GPU = 16


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
            if problem.group_input_quads * prod(kept_size(problem, whole)) * 16 <= PRIVATE_BYTES:
                yield whole


def _on_gpu(problem: Problem) -> Iterator[Specialisation]:
    """Blocks of up to 32 sums; sums of few outputs shared by work items; every group is whole waves."""
    rows, columns = problem.phase_size
    half = _half_quads(problem)
    kept = ("texel",) if problem.window == (1, 1) else ("texel", "line", "window")
    # Of one column, as a matrix product is: blocks of rows.
    shapes = [(1, length * height, quads) if columns == 1 else (length, height, quads)
              for length, height, quads in BLOCKS_ON_GPU]
    blocks = [
        (min(columns, length), min(rows, height), 1 if problem.depthwise else min(quads, problem.group_output_quads))
        for length, height, quads in shapes
    ]
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
        # Compilers unroll the few steps that are left of a sum, and those in half with all of their reads ahead.
        shared = replace(made, parts=parts, half_quads=min(1, made.half_quads))
        yield replace(shared, local_size=_work_group(problem, shared))


def _staged(problem: Problem) -> Iterator[Specialisation]:
    """Groups that put weights in local memory, and the input where that is allowed."""
    rows, columns = problem.phase_size
    keep = "texel" if problem.window[1] == 1 else "line"
    tiles = (0, *WINOGRAD_BLOCKS) if problem.window[1] == 3 else (0,)
    for (length, height, each), tile in itertools.product(STAGED_BLOCKS[keep], tiles):
        made = Specialisation(
            length, min(rows, height), min(each, problem.group_output_quads), keep, "local", float_coordinates=True,
            winograd=tile, staged_input=True,
        )
        made = replace(made, local_size=_staging_group(problem, made))
        yield made
        yield replace(made, staged_input=False)


def _staging_group(problem: Problem, chosen: Specialisation) -> tuple[int, int, int]:
    """A group of 128 that leaves few items idle, and stages little for each input quad."""
    blocks = work_items(problem, chosen)

    def started(group: tuple[int, int, int]) -> int:
        return prod(round_up(n, size) for n, size in zip(blocks, group, strict=True))

    def rank(group: tuple[int, int, int]) -> tuple[int, ...]:
        staged = staged_texels(problem, replace(chosen, local_size=group))
        if chosen.keep == "texel":
            # Local memory serves neighbours at once that read the same: in a wave two items wide, both its texels and
            # its weights. Weights come from a buffer, faster than texels. A tenth more items, or half a texel more
            # for each, make less of a difference.
            return 10 * started(group) // fewest, staged // 64, abs(group[0] - 2), -group[1]
        # Narrower groups read the same bank of local memory from several rows.
        return started(group), group[0] < 4, staged // 8, abs(group[0] - 8)

    sizes = (1, 2, 4, 8, 16, 32) if chosen.keep == "texel" else (1, 2, 4, 8, 16)
    groups = [group for group in itertools.product(sizes, sizes, sizes) if prod(group) == 128]
    fewest = min(map(started, groups))
    return min(groups, key=rank)


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


def texel_reads(problem: Problem, chosen: Specialisation) -> int:
    """Input texels that a work item reads."""
    again = (problem.window[1] if chosen.keep == "texel" else 1)
    again *= problem.window[0] if chosen.keep in ("texel", "line") else 1
    return ceil(problem.group_input_quads / chosen.parts) * prod(tile_size(problem, chosen)) * again


def weight_reads(problem: Problem, chosen: Specialisation) -> int:
    """Weight texels that a work item reads."""
    taps = taps_of(problem, chosen)
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
    kept = prod(kept_size(problem, chosen)) + sums_of(chosen)
    if compute_units < LARGE_GPU:
        weights *= 4 if _rows_of_weights_are_cut(problem, chosen) else 1
        return groups * prod(local) * _slots_of_item(problem, chosen, multiply_adds, weights, kept)
    registers = 4 * kept + 40
    resident = max(1, min(16, 65536 // (registers * prod(local))))
    rounds = ceil(groups / compute_units)
    busy, alone = _cycles_of_group(problem, chosen, multiply_adds, weights)
    return max(busy * rounds, alone * ceil(rounds / resident)) * (4 if registers > 255 else 1)


def _rows_of_weights_are_cut(problem: Problem, chosen: Specialisation) -> bool:
    """Whether the steps of the weights are more than an image's row takes: it is cut into tiles."""
    return problem.group_input_quads * taps_of(problem, chosen) > SAFE_WIDTH


def _cycles_of_group(
    problem: Problem, chosen: Specialisation, multiply_adds: int, weights: int
) -> tuple[float, float]:
    """Cycles for which a work group keeps a large GPU's compute unit busy, and which it takes where it is alone there.

    Fitted to 4,000 measurements of 100 problems of five networks on an H200; measured anew, what it chooses takes 1.02
    times as long as the best of 16, in all, and for 94 % of them at most 1.1 times. A compute unit takes 128
    multiply-adds in a cycle, 53 from local memory, and at best 80 where no line of texels is kept there (fitted to 37
    blocks and groups of one 1x1 convolution, 256 to 256 channels at 256x256); it reads a texel in 0.3 to 2.7 cycles,
    the faster the more items of a wave read texels beside each other, and what no item of the group has read before in
    half a cycle to one more. An item alone waits 83 cycles for each read, 54 for one of a buffer, 270 for each step,
    630 for what is staged, 700 for each texel that it writes, and 1,240 for those that it shares a sum with.
    """
    width, height, _ = chosen.local_size or (1, 1, 1)
    items, texels, sums = prod(chosen.local_size or (1, 1, 1)), texel_reads(problem, chosen), sums_of(chosen)
    different_weights, different_texels = _read_by_group(problem, chosen)
    # Items of a wave of 32 that differ in y read quads beside each other.
    beside = min(height, max(1, ceil(32 / width)))
    texel = 0.155 * (1 + 16.4 / (beside if problem.depthwise else min(chosen.parts, beside)))
    arithmetic, memory = multiply_adds * items / 128, 0.43 * different_weights + different_texels
    if chosen.weights == "local":
        memory += items * (0.12 * weights + (0.0 if chosen.staged_input else texel * texels))
        stages = problem.group_input_quads / staged_quads(problem, chosen)
        if chosen.keep == "texel":
            arithmetic = (1.6 if width <= 2 else 1.85) * arithmetic + 0.35 * memory
        else:
            arithmetic *= 2.4
        return max(arithmetic, memory), 630 * stages + 700 * sums
    if chosen.weights_in_buffer:
        return max(arithmetic, memory + items * texel * texels), 83 * texels + 54 * weights + 700 * sums
    weight = 0.9 if _rows_of_weights_are_cut(problem, chosen) else 0.29
    steps = ceil(problem.group_input_quads / chosen.parts) * problem.window[0]
    alone = 83 * (texels + weights) + 270 * steps + 700 * sums / chosen.parts + (1240 if chosen.parts > 1 else 0)
    return max(arithmetic, memory + items * (texel * texels + weight * weights)), alone


def _read_by_group(problem: Problem, chosen: Specialisation) -> tuple[int, int]:
    """How many different texels of weights and of input a work group reads."""
    width, height, depth = chosen.local_size or (1, 1, 1)
    texels = 1
    for axis, items in ((0, depth * chosen.block_rows), (1, width * chosen.block_columns)):
        reach = (problem.window[axis] - 1) * problem.dilations[axis] + 1
        outputs = min(items, problem.phase_size[axis])
        texels *= min((outputs - 1) * min(problem.strides[axis], reach) + reach, problem.input_size[axis])
    taps, blocks = taps_of(problem, chosen), height // chosen.parts
    if problem.depthwise:
        quads = min(blocks, problem.output_quads)
        return taps * quads, texels * quads
    quads = min(blocks, ceil(problem.group_output_quads / chosen.block_quads)) * chosen.block_quads
    return problem.group_input_quads * taps * problem.input_lanes * quads, problem.group_input_quads * texels


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
    reads, sums = texel_reads(problem, merged) + weights, sums_of(chosen)
    if chosen.winograd:
        taps = problem.group_input_quads * problem.window[0] * prod(kept_size(problem, chosen)) // chosen.parts
        multiply_adds += LANES * (taps + sums)
    slots = multiply_adds + 12 * reads + 21 * sums * chosen.parts + 15
    # Few work items are enough to fill it: shared sums only cost the reads that smaller blocks repeat.
    spills = chosen.weights_in_buffer or _spills(problem, chosen, sums, kept)
    return slots * (4 if spills else 1.5 if chosen.parts > 1 else 1)


def _spills(problem: Problem, chosen: Specialisation, sums: int, kept: int) -> bool:
    """Whether Mesa's Adreno code has too few registers: it reads all that an unrolled loop needs before it starts."""
    taps = problem.window[0] * problem.window[1]
    if problem.depthwise:
        line, window = (prod(tile_size(problem, replace(chosen, keep=keep))) for keep in ("line", "window"))
        if 4 * taps * sums + 3 * window > 900:  # it leaves the loop over rows
            return chosen.keep != "line" or line + sums > 40
        return chosen.keep != "line" or window > 45 or sums > 8
    if chosen.winograd:
        # It unrolls smaller blocks until they spill; F(4, 3) leaves too few registers for any.
        return chosen.winograd > 2 or chosen.keep != "line" or sums != 16 or chosen.block_quads < 2
    if taps == 1:
        # Rows further apart than two have coordinates of their own.
        return kept + LANES * chosen.block_quads + (chosen.block_rows if chosen.block_rows > 2 else 0) > 42
    if sums == 24 and chosen.keep == "texel" and chosen.block_rows > 1 and problem.input_lanes == LANES:
        return problem.half  # it leaves the loop over columns, with half sums beside the others
    line = prod(tile_size(problem, replace(chosen, keep="line")))
    held = line + sums + problem.input_lanes * chosen.block_quads
    return sums > 16 or held > 40 or (chosen.keep != "texel" and kept > 18)
