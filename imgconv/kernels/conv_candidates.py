"""The specialisations of conv.cl that are worth measuring for a problem, and the cost model that ranks them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from math import ceil, prod

import numpy

from imgconv.kernels.conv import (
    LOCAL_BYTES, Keep, Problem, Specialisation, by_taps, kept_size, staged_quads, sums_of, taps_of, tile_size,
    work_items,
)
from imgconv.kernels.conv_staging import WINOGRAD_TILES, staged_candidates
from imgconv.kernels.costs import LARGE_GPU, CpuCosts, DeviceCosts, LargeGpuCosts, SmallGpuCosts, costs_of
from imgconv.kernels.gpu_time import WAVE, Gpu, LaunchWork, gpu_with, time_of
from imgconv.kernels.layout import LANES
from imgconv.kernels.source import round_up
from imgconv.kernels.target import TargetKind

# The most bytes of input that a work item keeps in private memory. CPU drivers hold it in a core's cache.
PRIVATE_BYTES = 1 << 17
MOST_SUMS_ON_CPU = 21  # vectors of sums of a work item: with more, compilers keep them in memory
# Blocks for GPUs: columns, rows and output quads.
BLOCKS_ON_GPU = (
    (1, 1, 1), (2, 1, 1), (4, 1, 1), (2, 1, 2), (4, 1, 2), (2, 2, 2), (4, 2, 1), (7, 1, 1), (4, 2, 2), (7, 1, 2),
    (8, 1, 2), (4, 1, 4), (2, 2, 4), (7, 2, 1), (4, 4, 1), (4, 2, 4), (8, 2, 2), (4, 1, 3), (7, 1, 3), (4, 2, 3),
    (8, 1, 3),
)
# Blocks for a phone's GPU. It runs out of registers with more than 24 sums. Small ones fill it, if the map is small.
BLOCKS_ON_SMALL_GPU = (
    *(block for block in BLOCKS_ON_GPU if prod(block) <= 24),
    (1, 1, 2), (1, 1, 3), (1, 1, 4), (3, 1, 1), (3, 1, 2), (5, 1, 2), (2, 2, 3), (3, 2, 2),
)
# Work items that share a sum on a phone's GPU, the most waves of a launch for which they pay, and the most work items
# for which waves of half the size do.
PARTS_ON_SMALL_GPU, SHARED_WAVES, NARROW_ITEMS = (1, 2, 4, 8, 16), 128, 2048
# Further ones for sums in half, of which a work item can hold more.
BLOCKS_IN_HALF = ((7, 2, 2), (8, 2, 1))
# An image width that every device allows. Longer rows of weights are cut into tiles, which make each read slower.
SAFE_WIDTH = 1 << 14


def candidates(problem: Problem, kind: TargetKind, compute_units: int = LARGE_GPU) -> list[Specialisation]:
    """The specialisations worth measuring for a problem. kind: 'cpu' or 'gpu'. compute_units: of a GPU."""
    made = _on_cpu(problem) if kind == "cpu" else _on_gpu(problem)
    if kind == "gpu" and compute_units < LARGE_GPU:
        made = _on_small_gpu(problem)
    return [c for c in dict.fromkeys(made) if c.allowed(problem)]


def default_specialisation(problem: Problem, kind: TargetKind, compute_units: int) -> Specialisation:
    """The candidate with the lowest predicted cost."""
    made = candidates(problem, kind, compute_units)
    return min(made, key=lambda c: predicted_cost(problem, c, kind, compute_units))


def predicted_cost(
    problem: Problem, chosen: Specialisation, kind: TargetKind, compute_units: int, costs: DeviceCosts | None = None
) -> float:
    """The predicted time of a launch, to compare specialisations of one problem.

    kind: 'cpu' or 'gpu'. costs: by default those of `costs_of`. They decide the unit: cycles of a compute unit
    (LargeGpuCosts), or nanoseconds.
    """
    costs = costs or costs_of(kind, compute_units)
    if isinstance(costs, CpuCosts):
        return _cost_on_cpu(problem, chosen, compute_units, costs)
    if isinstance(costs, LargeGpuCosts):
        return _cost_on_large_gpu(problem, chosen, compute_units, costs)
    assert isinstance(costs, SmallGpuCosts)
    return _cost_on_small_gpu(problem, chosen, compute_units, costs)


def _on_cpu(problem: Problem) -> Iterator[Specialisation]:
    """Candidates for CPUs: vectors of up to 16 floats, weights in a buffer, few reads of each input texel."""
    rows, columns = problem.phase_size
    lengths = sorted({min(columns, n) for n in (4, 5, 6, 7, 8)})
    half = _half_quads(problem)
    if problem.depthwise or problem.half:
        quads = (1,) if problem.depthwise else (1, 2)
        for length, height, each in itertools.product(lengths, {1, min(2, rows), min(4, rows)}, quads):
            yield Specialisation(length, height, each, "window", "buffer", half_quads=half)
        return
    blocks = [(4, 4), (8, 4), (12, 4), (16, 4)] if problem.group_output_quads > 2 else [(1, 1), (2, 1)]
    blocks = [(each, vector) for each, vector in blocks if each < problem.group_output_quads + 4]
    blocks += [(1, 1)] if problem.groups > 1 else []
    heights = {min(rows, n) for n in ((1, 2) if columns > 1 else (1, 2, 4, 8))}
    shapes = [
        Specialisation(length, height, each, "line", "buffer", vector_quads=vector)
        for length, height, (each, vector) in itertools.product(lengths, heights, blocks)
        if length * height * each // vector <= MOST_SUMS_ON_CPU
    ]
    # Also blocks wider than the row: Winograd's tile is worth the wasted columns.
    shapes += [
        Specialisation(length, height, each, "line", "buffer", vector_quads=vector, winograd=tile)
        for tile, length, height, (each, vector) in itertools.product(WINOGRAD_TILES, (4, 8), (1, 2, 4), blocks[:1])
        if problem.window[1] == 3 and columns > 1 and (length // tile * 2 + length) * min(rows, height) <= 24
    ]
    for made in shapes:
        total = ceil(problem.group_output_quads / made.block_quads)
        yield made
        if problem.window == (1, 1) and columns > 1:
            continue  # A texel that is used once for each pass is read again as fast as from private memory.
        for passes in {ceil(total / n) for n in (1, 2, 4, 8)}:
            # One work item a group: a driver may put the private memory of a whole group on one thread's stack.
            whole = replace(made, keep="input", passes=passes, local_size=(1, 1, 1))
            if problem.group_input_quads * prod(kept_size(problem, whole)) * 16 <= PRIVATE_BYTES:
                yield whole


def _on_gpu(problem: Problem) -> Iterator[Specialisation]:
    """Candidates for GPUs: blocks of up to 32 sums, small blocks whose sums work items share, groups of whole waves."""
    kept: tuple[Keep, ...] = ("texel",) if problem.window == (1, 1) else ("texel", "line", "window")
    for made in _in_blocks(problem, BLOCKS_ON_GPU, kept):
        yield replace(made, local_size=_work_group(problem, made), weights="buffer")
        yield from _alone_and_shared(problem, made)
    if not problem.depthwise and problem.phase_size[1] > 1:
        yield from staged_candidates(problem)


def _on_small_gpu(problem: Problem) -> Iterator[Specialisation]:
    """Candidates for a phone's GPU: weights in images, sums shared until the launch has many waves, narrow waves for
    launches of few."""
    kept: tuple[Keep, ...] = ("line",) if problem.depthwise else ("texel",)
    for made in _in_blocks(problem, BLOCKS_ON_SMALL_GPU, kept):
        sums, items = sums_of(made), prod(work_items(problem, made))
        for parts in PARTS_ON_SMALL_GPU if not problem.depthwise else (1,):
            if parts > 1 and (items * parts > SHARED_WAVES * WAVE or parts > problem.group_input_quads):
                break
            # Compilers unroll the few remaining steps of a sum. In half they also move all reads to the front.
            shared = replace(made, parts=parts, half_quads=min(1, made.half_quads)) if parts > 1 else made
            for size in (WAVE, WAVE // 2) if items * parts <= NARROW_ITEMS else (WAVE,):
                if parts == 1 or sums * size * 16 <= LOCAL_BYTES:
                    yield replace(shared, local_size=_work_group(problem, shared, size, tallest=WAVE))


def _in_blocks(
    problem: Problem, shapes: Sequence[tuple[int, int, int]], kept: Sequence[Keep]
) -> Iterator[Specialisation]:
    """Specialisations with blocks of these columns, rows and quads, without a work group yet."""
    rows, columns = problem.phase_size
    half = _half_quads(problem)
    # An output of one column, as of a matrix product, is cut into blocks of rows.
    sizes = (*shapes, *BLOCKS_IN_HALF) if problem.sums == "half" else shapes
    shapes = [(1, length * height, quads) if columns == 1 else (length, height, quads)
              for length, height, quads in sizes]
    blocks = [
        (min(columns, length), min(rows, height), 1 if problem.depthwise else min(quads, problem.group_output_quads))
        for length, height, quads in shapes
    ]
    for (length, height, each), keep in itertools.product(dict.fromkeys(blocks), kept):
        yield Specialisation(length, height, each, keep, half_quads=half, float_coordinates=True)


def _alone_and_shared(problem: Problem, made: Specialisation) -> Iterator[Specialisation]:
    """The specialisation with a work group, alone and with each sum shared by 4 or 16 work items."""
    yield replace(made, local_size=_work_group(problem, made))
    # Only small blocks: work items that wait for each other all need their registers at the same time.
    for parts in (4, 16) if made.block_columns * made.block_rows * made.block_quads <= 8 else ():
        # Compilers unroll the few remaining steps of a sum. In half they also move all reads to the front.
        shared = replace(made, parts=parts, half_quads=min(1, made.half_quads))
        yield replace(shared, local_size=_work_group(problem, shared))


def _half_quads(problem: Problem) -> int:
    """The number of input quads of a run in half: at most 32 terms, and a divisor of all input quads."""
    if problem.sums != "runs":
        return 0
    taps = 1 if problem.depthwise else problem.window[0] * problem.window[1] * LANES
    most = max(1, 32 // taps)
    return max(n for n in range(1, most + 1) if problem.group_input_quads % n == 0)


def _work_group(
    problem: Problem, chosen: Specialisation, items: int = WAVE, tallest: int = 16
) -> tuple[int, int, int]:
    """The size of a work group of so many items. Work items that share a sum lie along y."""
    blocks = work_items(problem, replace(chosen, parts=1))
    width, height, depth = _least_idle(blocks, chosen.parts, items, tallest)
    return width, height * chosen.parts, depth


@lru_cache(1024)
def _least_idle(blocks: tuple[int, int, int], parts: int, items: int, tallest: int) -> tuple[int, int, int]:
    """The work group of so many items with the fewest idle ones. Its y, at most `tallest`, does not include `parts`.

    Among equals, one of about eight quad blocks, which read the same texels, and of the longest rows. (An A630 reaches
    468 GFLOPS in float with waves of 128, and 346 with smaller ones; tinygrad#16229.)
    """

    def rank(group: tuple[int, int, int]) -> tuple[int, int, int]:
        started = prod(round_up(n, size) for n, size in zip(blocks, group, strict=True))
        return started, abs(group[1] * parts - 8), -group[0]

    sizes = (1, 2, 4, 8, 16)
    heights = [n for n in (*sizes, 32, 64, 128) if n <= tallest]
    return min((group for group in itertools.product(sizes, heights, sizes) if prod(group) * parts == items), key=rank)


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


def _cost_on_cpu(problem: Problem, chosen: Specialisation, compute_units: int, costs: CpuCosts) -> float:
    """Nanoseconds on the core with the most work."""
    item = _item_of_depthwise(problem, chosen, costs) if problem.depthwise else _item_of_dense(problem, chosen, costs)
    item += 0.0 if chosen.weights_in_buffer else weight_reads(problem, chosen) * costs.weight_of_image
    # If the runtime chooses the group, it is a whole row of work items.
    width, height, depth = work_items(problem, chosen)
    groups, each = (height * depth, width * item) if chosen.local_size is None else (width * height * depth, item)
    # Cores that share a launch must wake up, and wait for each other at its end.
    shares = max(ceil(groups / compute_units), groups / compute_units + costs.share)
    return each if groups == 1 else each * shares + costs.wake


def _item_of_depthwise(problem: Problem, chosen: Specialisation, costs: CpuCosts) -> float:
    """Nanoseconds of a work item of a depthwise convolution. Its sums stay in registers."""
    sums, steps = chosen.block_columns * chosen.block_rows, weight_reads(problem, chosen)
    # If blocks reach past the last column, each position is tested.
    tested = problem.phase_size[1] % chosen.block_columns > 0
    read = costs.depthwise_read_tested if tested else costs.depthwise_read
    spilled = costs.depthwise_spill * max(0, sums - costs.depthwise_registers)
    return (
        texel_reads(problem, chosen) * read + steps * (costs.depthwise_multiply_add * sums + spilled)
        + costs.depthwise_item
    )


def _item_of_dense(problem: Problem, chosen: Specialisation, costs: CpuCosts) -> float:
    """Nanoseconds of a work item: reads, writes, and the slower of its arithmetic and its weights from memory."""
    sums, vectors = chosen.block_columns * chosen.block_rows, chosen.block_quads // chosen.vector_quads
    stores, steps = sums * chosen.block_quads * chosen.passes, weight_reads(problem, chosen) // chosen.block_quads
    # Each of Winograd's taps adds to its own sum in every tile, so that no tap waits for another.
    added = sums // max(1, chosen.winograd)
    # A line of a window is shifted through registers at each column. Input that is kept for passes is stored.
    shifted = costs.shift if chosen.keep == "line" and problem.window != (1, 1) and not chosen.winograd else 0.0
    rows = costs.rows_of_passes if chosen.passes > 1 else costs.rows
    rows = rows if chosen.block_rows > 1 and problem.window == (1, 1) else 0.0
    read = costs.read_and_keep if chosen.keep == "input" else costs.read
    start = costs.step_of_winograd if chosen.winograd else costs.step
    arithmetic = steps * (start + ((costs.multiply_add + shifted) * vectors + rows) * added)
    # Weights that exceed a core's own cache are loaded again for each work item.
    used = 16 * weight_reads(problem, chosen)
    whole = used * ceil(problem.output_quads / chosen.block_quads / chosen.passes)
    byte = costs.byte_of_shared_cache if whole < costs.shared_cache_bytes else costs.byte_of_memory
    weights = used * (0.0 if whole < costs.own_cache_bytes else byte)
    return texel_reads(problem, chosen) * read + stores * costs.store + max(arithmetic, weights)


def _multiply_adds_of(problem: Problem, chosen: Specialisation) -> int:
    """Multiply-adds of a work item on a GPU."""
    steps = weight_reads(problem, chosen) * LANES
    return steps * chosen.block_rows * chosen.block_columns // max(1, chosen.winograd)


def _kept_texels(problem: Problem, chosen: Specialisation) -> int:
    """Texels of input and of sums that a work item on a GPU keeps in registers."""
    return prod(kept_size(problem, chosen)) + sums_of(chosen)


def _groups_of(problem: Problem, chosen: Specialisation) -> int:
    """Work groups of a launch on a GPU. Idle work items cost as much as the others."""
    blocks, local = work_items(problem, chosen), chosen.local_size or (1, 1, 1)
    return prod(ceil(n / size) for n, size in zip(blocks, local, strict=True))


def _rows_of_weights_are_cut(problem: Problem, chosen: Specialisation) -> bool:
    """Whether the weights have more steps than a row of an image holds, so that they are cut into tiles."""
    return problem.group_input_quads * taps_of(problem, chosen) > SAFE_WIDTH


def _cost_on_large_gpu(problem: Problem, chosen: Specialisation, compute_units: int, costs: LargeGpuCosts) -> float:
    """Cycles of a compute unit of a large GPU."""
    registers = LANES * _kept_texels(problem, chosen) + costs.registers_besides
    items = prod(chosen.local_size or (1, 1, 1))
    resident = max(1, min(costs.groups, costs.registers // (registers * items)))
    rounds: float = ceil(_groups_of(problem, chosen) / compute_units)
    if by_taps(problem, chosen):
        # Groups leave out positions of the window where they read padding, but the slowest one sees the most of it.
        rounds = 1 + (rounds - 1) * _share_inside(problem)
    busy, alone = _cycles_of_group(problem, chosen, costs)
    cycles = max(busy * rounds, alone * ceil(rounds / resident))
    return cycles * (costs.spill if registers > costs.registers_of_item else 1)


def _share_inside(problem: Problem) -> float:
    """The share of an output's reads that is no padding, on average."""
    share = 1.0
    for axis in (0, 1):
        first = numpy.arange(problem.phase_size[axis]) * problem.strides[axis] - problem.pads[axis]
        read = first[:, None] + numpy.arange(problem.window[axis]) * problem.dilations[axis]
        share *= float(numpy.mean((read >= 0) & (read < problem.input_size[axis])))
    return share


def _cycles_of_group(problem: Problem, chosen: Specialisation, costs: LargeGpuCosts) -> tuple[float, float]:
    """Cycles of a work group on a large GPU: those in which the compute unit is busy, and its latency alone there."""
    width, height, _ = chosen.local_size or (1, 1, 1)
    items, texels, sums = prod(chosen.local_size or (1, 1, 1)), texel_reads(problem, chosen), sums_of(chosen)
    weights = weight_reads(problem, chosen)
    different_weights, different_texels = _read_by_group(problem, chosen)
    # Work items of a wave of 32 that differ in y read adjacent quads.
    beside = min(height, max(1, ceil(32 / width)))
    texel = costs.read * (1 + costs.read_apart / (beside if problem.depthwise else min(chosen.parts, beside)))
    arithmetic = _multiply_adds_of(problem, chosen) * items / costs.multiply_adds
    memory = costs.new_weight * different_weights + costs.new_texel * different_texels
    store = costs.wait_store * sums
    if chosen.weights == "local":
        taps = prod(problem.window) if by_taps(problem, chosen) else 1
        if taps > 1:
            tile = width * chosen.block_columns * (chosen.local_size or (1, 1, 1))[2] * chosen.block_rows
            memory += costs.new_texel * (problem.group_input_quads * taps * tile - different_texels)
        memory += items * costs.weight_of_local * weights
        stages = problem.group_input_quads * taps / staged_quads(problem, chosen)
        if chosen.keep == "texel":
            staged = costs.staged_texel_narrow if width <= 2 else costs.staged_texel
            arithmetic = staged * arithmetic + costs.staged_memory * memory
        else:
            arithmetic *= costs.staged_line
        alone = costs.wait_stage * stages + store
        if chosen.keep == "texel":
            # An item's reads of local memory and its multiply-adds follow each other.
            steps = problem.group_input_quads * taps * LANES
            each = chosen.block_rows * chosen.block_columns
            alone += steps * (each / LANES + chosen.block_quads) * costs.wait_local
            alone += steps * LANES * each * chosen.block_quads * costs.wait_multiply_add
        return max(arithmetic, memory), alone
    if chosen.weights_in_buffer:
        alone = costs.wait_read * texels + costs.wait_weight_of_buffer * weights + store
        return max(arithmetic, memory + items * texel * texels), alone
    weight = costs.weight_of_tiles if _rows_of_weights_are_cut(problem, chosen) else costs.weight
    steps = ceil(problem.group_input_quads / chosen.parts) * problem.window[0]
    alone = costs.wait_read * (texels + weights) + costs.wait_step * steps + store / chosen.parts
    alone += costs.wait_parts if chosen.parts > 1 else 0
    return max(arithmetic, memory + items * (texel * texels + weight * weights)), alone


def _read_by_group(problem: Problem, chosen: Specialisation) -> tuple[int, int]:
    """The numbers of different texels of weights and of input that a work group reads."""
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


def _cost_on_small_gpu(problem: Problem, chosen: Specialisation, compute_units: int, costs: SmallGpuCosts) -> float:
    """Nanoseconds on a small GPU, by the model of gpu_time.py."""
    gpu = gpu_with(compute_units)
    time = time_of(_work_on_small_gpu(problem, chosen, gpu, costs), gpu)
    return 1e9 * (time.seconds + costs.hidden * (time.arithmetic + time.texture))


def _work_on_small_gpu(problem: Problem, chosen: Specialisation, gpu: Gpu, costs: SmallGpuCosts) -> LaunchWork:
    """The work of a launch on a small GPU, with Mesa's compiler for Adreno."""
    slots = slots_of_item(problem, chosen, costs)
    multiply_adds = _multiply_adds_of(problem, chosen) if problem.half else 0
    local = prod(chosen.local_size or (WAVE, 1, 1))
    wave = min(WAVE, round_up(local, WAVE // 2))
    held = _held_texels(problem, chosen) / (2 if problem.sums == "half" else 1)
    if wave == WAVE and held + costs.registers_besides > gpu.registers:
        # The waves become narrow, or if the items of a group wait for each other, registers are spilled.
        wave, slots = (WAVE, costs.spill * slots) if chosen.waits else (WAVE // 2, slots)
    waves = _groups_of(problem, chosen) * ceil(local / wave)
    items = prod(work_items(problem, chosen))
    # Every texel of input, weights and output once, and no operand of the epilogue: the same for all candidates.
    texels = problem.batch * ceil(problem.channels / LANES) * prod(problem.input_size)
    texels += problem.batch * problem.output_quads * prod(problem.output_size)
    texels += problem.output_quads * problem.group_input_quads * prod(problem.window) * problem.input_lanes
    reads = _reads_of_item(problem, chosen, costs)
    return LaunchWork(multiply_adds, slots - multiply_adds, items * reads, costs.texel_bytes * texels, waves, wave)


def _reads_of_item(problem: Problem, chosen: Specialisation, costs: SmallGpuCosts) -> float:
    """Texture reads of a work item on a small GPU.

    Mesa's compiler unrolls the window's columns, if they are not too much code, and merges reads of one texel. So
    keep='texel' has as many reads as 'line', in an order that needs fewer registers. A depthwise window is unrolled
    completely.
    """
    merged = replace(chosen, keep="window" if problem.depthwise else "line") if chosen.keep != "window" else chosen
    if not problem.depthwise and problem.window[1] * sums_of(chosen) * problem.input_lanes > costs.unrolled:
        merged = chosen
    weights = weight_reads(problem, chosen) * (costs.tiles if _rows_of_weights_are_cut(problem, chosen) else 1)
    return texel_reads(problem, merged) + weights


def slots_of_item(problem: Problem, chosen: Specialisation, costs: SmallGpuCosts) -> float:
    """Issue slots of a work item on a small GPU, with Mesa's compiler for Adreno."""
    sums, multiply_adds = sums_of(chosen), _multiply_adds_of(problem, chosen)
    if chosen.winograd:
        taps = problem.group_input_quads * problem.window[0] * prod(kept_size(problem, chosen)) // chosen.parts
        multiply_adds += LANES * (taps + sums)
    slots = multiply_adds + costs.read * _reads_of_item(problem, chosen, costs) + costs.sum * sums + costs.item
    slots += sums * (costs.part + costs.total / chosen.parts) if chosen.parts > 1 else 0
    return slots * (costs.spill if chosen.weights_in_buffer or _spills(problem, chosen, costs) else 1)


def _held_texels(problem: Problem, chosen: Specialisation) -> int:
    """Texels of sums, input and weights that a work item on a small GPU holds at once, and coordinates of rows."""
    sums = sums_of(chosen)
    if prod(problem.window) == 1 and not problem.depthwise:
        # With more than two rows, each row needs a register for its coordinate.
        rows = chosen.block_rows if chosen.block_rows > 2 else 0
        return _kept_texels(problem, chosen) + LANES * chosen.block_quads + rows
    line = prod(tile_size(problem, replace(chosen, keep="line")))
    return line + sums + (0 if problem.depthwise else problem.input_lanes * chosen.block_quads)


def _spills(problem: Problem, chosen: Specialisation, costs: SmallGpuCosts) -> bool:
    """Whether Mesa's Adreno code runs out of registers: it reads all data of an unrolled loop before the loop."""
    taps, sums, held = prod(problem.window), sums_of(chosen), _held_texels(problem, chosen)
    if problem.depthwise:
        window = prod(tile_size(problem, replace(chosen, keep="window")))
        if 4 * taps * sums + 3 * window > costs.depthwise_unrolled:  # the loop over rows is not unrolled
            return chosen.keep != "line" or held > costs.depthwise_line
        most = costs.sums if problem.sums == "half" else costs.depthwise_sums
        return chosen.keep != "line" or window > costs.depthwise_window or sums > most
    kept = _kept_texels(problem, chosen)
    if taps == 1 and problem.sums == "half":
        return sums > costs.sums_in_half or kept > costs.held_by_1x1  # weights are held for one channel at a time
    if taps == 1:
        return held > costs.held_by_1x1
    in_loop = sums == costs.sums_in_loop and chosen.keep == "texel" and chosen.block_rows > 1
    if in_loop and problem.input_lanes == LANES:
        return problem.sums == "runs"  # the loop over columns is not unrolled; runs add more sums
    return sums > costs.sums or held > costs.held or (chosen.keep != "texel" and kept > costs.kept)
