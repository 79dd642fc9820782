"""The cost models of conv.cl: the predicted time of a specialisation on each kind of device."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, prod

import numpy

from imgconv.kernels.conv.problem import (
    Keep, Problem, Specialisation, by_taps, bytes_of_sum, kept_size, staged_quads, sums_of, taps_of, tile_size,
    together_of, work_items,
)
from imgconv.kernels.device_model.costs import CpuCosts, DeviceCosts, LargeGpuCosts, SmallGpuCosts, costs_of
from imgconv.kernels.device_model.gpu_time import WAVE, Gpu, LaunchWork, gpu_with, time_of
from imgconv.kernels.layout import LANES
from imgconv.kernels.source import round_up
from imgconv.kernels.target import TargetKind

# An image width that every device allows. Longer rows of weights are cut into tiles, which make each read slower.
SAFE_WIDTH = 1 << 14


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
    """Returns whether the weights have more steps than a row of an image holds, so that they are cut into tiles."""
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
    return nanoseconds_on_small_gpu(_work_on_small_gpu(problem, chosen, gpu, costs), gpu, costs)


def nanoseconds_on_small_gpu(work: LaunchWork, gpu: Gpu, costs: SmallGpuCosts) -> float:
    """The cost of a launch on a small GPU, by its work."""
    time = time_of(work, gpu)
    return 1e9 * (time.seconds + costs.hidden * (time.arithmetic + time.texture))


def _work_on_small_gpu(problem: Problem, chosen: Specialisation, gpu: Gpu, costs: SmallGpuCosts) -> LaunchWork:
    """The work of a launch on a small GPU, with Mesa's compiler for Adreno."""
    slots = slots_of_item(problem, chosen, costs)
    multiply_adds = _multiply_adds_of(problem, chosen) if problem.half else 0
    local = prod(chosen.local_size or (WAVE, 1, 1))
    wave = min(WAVE, round_up(local, WAVE // 2))
    registers = _registers_ahead(problem, chosen, costs)
    if chosen.waits:
        # The items of a group need their registers at the same time.
        slots *= costs.spill if registers > gpu.registers else 1
    else:
        if prod(problem.window) == 1 or _is_unrolled(problem, chosen, costs):
            registers = max(registers, _registers(problem, chosen, costs) + costs.registers_besides)
        wave = WAVE // 2 if registers > gpu.registers else wave
    waves = _groups_of(problem, chosen) * ceil(local / wave)
    items = prod(work_items(problem, chosen))
    # Every texel of input, weights and output once, and no operand of the epilogue: the same for all candidates.
    texels = problem.batch * ceil(problem.channels / LANES) * prod(problem.input_size)
    texels += problem.batch * problem.output_quads * prod(problem.output_size)
    texels += problem.output_quads * problem.group_input_quads * prod(problem.window) * problem.input_lanes
    reads = _reads_of_item(problem, chosen, costs)
    work = LaunchWork(multiply_adds, slots - multiply_adds, items * reads, costs.texel_bytes * texels, waves, wave)
    if chosen.parts == 1:
        return work
    # A sum's parts are written to local memory and read from it.
    accesses = sums_of(chosen) + chosen.parts * _totals_of_item(problem, chosen)
    group = bytes_of_sum(problem) * together_of(problem, chosen) * local
    return replace(work, local=items * accesses, group_waves=ceil(local / wave), group_bytes=group)


def _totals_of_item(problem: Problem, chosen: Specialisation) -> int:
    """Sums that a work item adds up of parts: of those that meet at once, each item of a block takes as many."""
    sums, together = sums_of(chosen), together_of(problem, chosen)
    return sum(ceil(min(together, sums - first) / chosen.parts) for first in range(0, sums, together))


def _reads_of_item(problem: Problem, chosen: Specialisation, costs: SmallGpuCosts) -> float:
    """Texture reads of a work item on a small GPU."""
    weights = weight_reads(problem, chosen) * (costs.tiles if _rows_of_weights_are_cut(problem, chosen) else 1)
    factors = ceil(problem.group_input_quads / chosen.parts) if problem.gated else 0
    return _merged_reads(problem, chosen, costs) + weights + factors


def _merged_reads(problem: Problem, chosen: Specialisation, costs: SmallGpuCosts) -> int:
    """Reads of input texels of a work item on a small GPU.

    Mesa's compiler unrolls the window's columns, if they are not too much code, and merges reads of one texel. So
    keep='texel' has as many reads as 'line', in an order that needs fewer registers. In an unrolled depthwise window,
    rows share reads too.
    """
    if problem.depthwise:
        keep: Keep = "window" if _depthwise_is_unrolled(problem, chosen, costs) else chosen.keep
    else:
        keep = "line" if chosen.keep == "texel" and _is_unrolled(problem, chosen, costs) else chosen.keep
    return texel_reads(problem, replace(chosen, keep=keep))


def _depthwise_is_unrolled(problem: Problem, chosen: Specialisation, costs: SmallGpuCosts) -> bool:
    """Returns whether Mesa's compiler unrolls the loop over the rows of a depthwise window."""
    window = prod(tile_size(problem, replace(chosen, keep="window")))
    return 4 * prod(problem.window) * sums_of(chosen) + 3 * window <= costs.depthwise_unrolled


def _is_unrolled(problem: Problem, chosen: Specialisation, costs: SmallGpuCosts) -> bool:
    """Returns whether Mesa's compiler unrolls the loop over the columns of a window."""
    multiply_adds = sums_of(chosen) * problem.input_lanes
    if problem.sums != "half":
        return problem.window[1] * multiply_adds <= costs.unrolled
    reads = chosen.block_columns * chosen.block_rows + problem.input_lanes * chosen.block_quads
    most = costs.unrolled_in_half if chosen.parts == 1 else costs.unrolled_by_parts
    return problem.window[1] * (LANES * multiply_adds + reads) <= most


def slots_of_item(problem: Problem, chosen: Specialisation, costs: SmallGpuCosts) -> float:
    """Issue slots of a work item on a small GPU, with Mesa's compiler for Adreno."""
    sums, multiply_adds = sums_of(chosen), _multiply_adds_of(problem, chosen)
    if chosen.winograd:
        taps = problem.group_input_quads * problem.window[0] * prod(kept_size(problem, chosen)) // chosen.parts
        multiply_adds += LANES * (taps + sums)
    slots = multiply_adds + costs.read * _reads_of_item(problem, chosen, costs) + costs.sum * sums + costs.item
    if problem.gated:
        slots += LANES * _merged_reads(problem, chosen, costs)
    if chosen.parts > 1:
        slots += _totals_of_item(problem, chosen) * (costs.met_sum + costs.met_part * chosen.parts)
    slots *= costs.looped if problem.sums == "half" and not _is_unrolled(problem, chosen, costs) else 1
    return slots * (costs.spill if chosen.weights_in_buffer or _spills(problem, chosen, costs) else 1)


def _registers(problem: Problem, chosen: Specialisation, costs: SmallGpuCosts) -> int:
    """Registers of four floats for what a work item on a small GPU holds. One holds two texels in half.

    In half the weights of a window's columns are all read before an unrolled loop over these; if the loop stays, it
    holds the texels of one column.
    """
    held = _held_texels(problem, chosen, costs)
    if problem.sums != "half":
        return held
    if prod(problem.window) > 1 and not problem.depthwise:
        unrolled = _is_unrolled(problem, chosen, costs)
        line = prod(tile_size(problem, replace(chosen, keep="line" if unrolled else "texel")))
        weights = problem.input_lanes * chosen.block_quads * (problem.window[1] if unrolled else 1)
        held = line + sums_of(chosen) + weights
    return held // 2


def _registers_ahead(problem: Problem, chosen: Specialisation, costs: SmallGpuCosts) -> float:
    """Registers of a work item with the reads that Mesa's compiler moves ahead of the multiply-adds that need them.

    These are all reads of a window whose rows are unrolled too, or the weights of two of its columns, and a texel. If a
    full wave has fewer registers, waves become narrow, or the items of a group that wait for each other spill.
    """
    if problem.depthwise:
        return _registers(problem, chosen, costs) + costs.registers_besides
    taps, weights, sums = prod(problem.window), problem.input_lanes * chosen.block_quads, sums_of(chosen)
    window = prod(tile_size(problem, replace(chosen, keep="window")))
    if taps > 1 and taps * (problem.input_lanes * sums + weights) + window <= costs.unrolled_rows:
        return (window + sums + taps * weights) * costs.ahead
    if problem.sums == "half":
        return _registers(problem, chosen, costs) + costs.registers_in_half
    partial = sums / 2 if problem.sums == "runs" else 0
    following = weights + 1 if taps > 1 and _is_unrolled(problem, chosen, costs) else 2
    return _held_texels(problem, chosen, costs) + partial + following + costs.registers_of_waiting


def _held_texels(problem: Problem, chosen: Specialisation, costs: SmallGpuCosts) -> int:
    """Texels of sums, input and weights that a work item on a small GPU holds at once, and coordinates of rows.

    Of the input, these are the texels of a line, or of one column of the window if the loop over columns stays.
    """
    sums = sums_of(chosen)
    if prod(problem.window) == 1 and not problem.depthwise:
        # With more than two rows, each row needs a register for its coordinate.
        rows = chosen.block_rows if chosen.block_rows > 2 else 0
        return _kept_texels(problem, chosen) + LANES * chosen.block_quads + rows
    keep: Keep = "line" if problem.depthwise or _is_unrolled(problem, chosen, costs) else "texel"
    line = prod(tile_size(problem, replace(chosen, keep=keep)))
    return line + sums + (0 if problem.depthwise else problem.input_lanes * chosen.block_quads)


def _spills(problem: Problem, chosen: Specialisation, costs: SmallGpuCosts) -> bool:
    """Returns whether Mesa's Adreno code spills: it reads all data of an unrolled loop before the loop."""
    taps, sums, held = prod(problem.window), sums_of(chosen), _held_texels(problem, chosen, costs)
    if problem.depthwise:
        if not _depthwise_is_unrolled(problem, chosen, costs):
            return chosen.keep != "line" or held > costs.depthwise_line
        window = prod(tile_size(problem, replace(chosen, keep="window")))
        most = costs.sums if problem.sums == "half" else costs.depthwise_sums
        return chosen.keep != "line" or window > costs.depthwise_window or sums > most
    kept = _kept_texels(problem, chosen)
    if problem.sums == "half":
        return _spills_in_half(problem, chosen, costs)
    if taps == 1:
        return held > (costs.held_by_1x1 if chosen.parts == 1 else costs.held_by_parts)
    in_loop = sums == costs.sums_in_loop and chosen.keep == "texel" and chosen.block_rows > 1
    if in_loop and problem.input_lanes == LANES:
        return problem.sums == "runs"  # the loop over columns is not unrolled; runs add more sums
    return sums > costs.sums or held > costs.held or (chosen.keep != "texel" and kept > costs.kept)


def _spills_in_half(problem: Problem, chosen: Specialisation, costs: SmallGpuCosts) -> bool:
    """`_spills` for sums in half: registers hold twice as many, and weights are held for one channel at a time."""
    sums = sums_of(chosen)
    if prod(problem.window) == 1:
        factors = int(problem.gated and chosen.waits)
        return sums > costs.sums_in_half or _kept_texels(problem, chosen) + factors > costs.held_by_1x1
    most = costs.sums_in_loop if problem.input_lanes == LANES else costs.sums_in_half
    unrolled, held = _is_unrolled(problem, chosen, costs), costs.held_in_half
    held = costs.held_of_waiting if chosen.waits else held
    return chosen.keep != "texel" or sums > most or (unrolled and _held_texels(problem, chosen, costs) > held)
