"""Counts the work of a launch of conv.cl or depthwise.cl on a phone's GPU, as compiled by Mesa for an Adreno."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, prod

from imgconv.dtype import FLOAT16
from imgconv.kernels.conv.problem import (
    InputReuse, Problem, Specialisation, accumulators_of, bytes_of_accumulator_texel, groups_of, multiply_adds_of,
    sums_reduced_at_once, texel_reads, tile_size, weight_reads, weights_are_cut, weights_of_step, work_items,
)
from imgconv.kernels.device_model.adreno import WAVE
from imgconv.kernels.device_model.mobile_gpu import MOBILE_GPU, REGISTERS
from imgconv.kernels.device_model.work import LaunchWork
from imgconv.kernels.layout import LANES

# The behaviour of Mesa's compiler for Adreno, counted in 240 kernels. It does not unroll a loop with more multiply-adds
# and reads, in all iterations, than UNROLLED (a loop over a window's columns) or UNROLLED_DEPTHWISE (over a depthwise
# window's rows). UNROLLED_ROWS: for other loops over rows, multiply-adds of texels, and reads. AHEAD, AHEAD_IN_HALF:
# registers for each texel of such a window, its weights and sums.
UNROLLED, UNROLLED_DEPTHWISE = 1080, 800
UNROLLED_ROWS, AHEAD, AHEAD_IN_HALF = 340, 0.58, 0.46
# Registers in float: for each further quad of a block if the loop over a window's columns is unrolled, and those that
# are saved if it stays.
NEXT_QUAD, LOOP_SAVES = 2, 3
ONE_OUTPUT = 2  # registers that are saved if items that share sums make their outputs one after another
LOOPED = 2.5  # times as many instructions of a loop over the rows of a depthwise window in half that stays
BESIDE, BESIDE_IN_HALF = 3, 6  # registers besides those of texels, if so a core holds more waves
# The same if weights are read in order, and further ones if items share the sums of a 1x1 window, and if blocks reach
# past the edge, so that stores are tested. BRANCH: issue slots of a branch between columns of a window.
ORDERED, ORDERED_SHARED, ORDERED_EDGE, BRANCH = 1.75, 2, 2.5, 20
PACKING = 4  # instructions that make a uint of a texel of levels
CUT_READS = 4  # texture reads for a texel of weights that are cut into tiles; estimated


def launch_work(problem: Problem, chosen: Specialisation) -> LaunchWork:
    """The work of a launch."""
    sums, texels = accumulators_of(chosen), merged_reads(problem, chosen)
    items = prod(chosen.local_size or (WAVE, 1, 1))
    multiply_adds: float = multiply_adds_of(problem, chosen) + (LANES * texels if problem.gated else 0)
    multiply_adds += PACKING * texels if chosen.integers else 0
    multiply_adds += BRANCH * _branches(problem, chosen)
    if problem.depthwise and problem.products == FLOAT16 and not is_unrolled(problem, chosen):
        multiply_adds *= LOOPED
    quads = ceil(problem.group_input_quads / chosen.parts)
    weights = weight_reads(problem, chosen) * (CUT_READS if weights_are_cut(problem, chosen) else 1)
    # Every texel of input, weights and output once, and no operand of the epilogue: the same for all candidates.
    different = problem.batch * ceil(problem.channels / LANES) * prod(problem.input_size)
    different += problem.batch * problem.output_quads * prod(problem.output_size)
    different += problem.output_quads * problem.group_input_quads * prod(problem.window) * problem.input_lanes
    work = LaunchWork(
        groups_of(problem, chosen), items, multiply_adds, problem.products == FLOAT16,
        reads=texels + weights + quads * problem.gated,
        writes=sums, steps=quads * _loop_rounds(problem, chosen), registers=_registers(problem, chosen),
        fewest_registers=_fewest_registers(problem, chosen), texels=different,
        active=prod(work_items(problem, chosen)),
    )
    if chosen.parts == 1:
        return work
    # A sum's parts are written to local memory and read from it.
    totals = _sums_of_item(problem, chosen)
    return replace(
        work, writes=totals, local=sums + chosen.parts * totals, barriers=1,
        local_bytes=bytes_of_accumulator_texel(problem) * sums_reduced_at_once(problem, chosen) * items,
    )


def _sums_of_item(problem: Problem, chosen: Specialisation) -> int:
    """Sums that a work item adds up of parts: of those that meet at once, each item of a block takes as many."""
    sums, together = accumulators_of(chosen), sums_reduced_at_once(problem, chosen)
    return sum(ceil(min(together, sums - first) / chosen.parts) for first in range(0, sums, together))


def ordered_weights_pay_off(problem: Problem, chosen: Specialisation) -> bool:
    """Returns whether a processor holds a second wave if, and only if, weights are read in order."""
    ordered, plain = replace(chosen, ordered=True), replace(chosen, ordered=False)
    if not ordered.allowed(problem):
        return False
    return _fewest_registers(problem, ordered) <= REGISTERS // 2 < _fewest_registers(problem, plain)


def _branches(problem: Problem, chosen: Specialisation) -> int:
    """Returns the number of branches before columns of a window, all but the first."""
    rows, columns = problem.window
    return ceil(problem.group_input_quads / chosen.parts) * rows * (columns - 1) if chosen.ordered else 0


def is_unrolled(problem: Problem, chosen: Specialisation) -> bool:
    """Returns whether the compiler unrolls the loop over a window's columns; if depthwise, that over its rows too."""
    sums = accumulators_of(chosen)
    if problem.depthwise:
        window = prod(tile_size(problem, replace(chosen, keep="window")))
        return LANES * prod(problem.window) * sums + window <= UNROLLED_DEPTHWISE
    weights = weights_of_step(problem, chosen)
    reads = chosen.block_columns * chosen.block_rows + weights
    return problem.window[1] * (LANES * weights // chosen.block_quads * sums + reads) <= UNROLLED


def _loop_rounds(problem: Problem, chosen: Specialisation) -> int:
    """Rounds of the loops over a window that the compiler leaves."""
    rows, columns = problem.window
    if is_unrolled(problem, chosen):
        return 1 if problem.depthwise else rows
    return rows if problem.depthwise else rows * columns


def merged_reads(problem: Problem, chosen: Specialisation) -> int:
    """Reads of input texels of a work item, of which compilers merge those of one texel in an unrolled loop."""
    return texel_reads(problem, replace(chosen, keep=_reused_input(problem, chosen)))


def _reused_input(problem: Problem, chosen: Specialisation) -> InputReuse:
    """Returns the part of the input that a work item keeps after unrolling: see Specialisation.keep."""
    if not is_unrolled(problem, chosen):
        return chosen.keep
    if problem.depthwise:
        return "window"
    return "line" if chosen.keep == "texel" else chosen.keep


def _registers(problem: Problem, chosen: Specialisation) -> float:
    """Returns the registers of four floats that a work item needs at once for sums, input and weights. Two fp16 texels
    need one.

    The compiler moves reads to an earlier position. In fp16 it prefetches the weights of all columns of an unrolled
    loop, in fp32 those of the next column (`_reads_ahead`). It also prefetches every read of a small window whose rows
    it unrolls. The number of registers of four halves is at most that of registers of four floats.
    """
    reusing = replace(chosen, keep=_reused_input(problem, chosen))
    sums, texels = accumulators_of(chosen), prod(tile_size(problem, reusing))
    weights, taps = 0 if problem.depthwise else weights_of_step(problem, chosen), prod(problem.window)
    if chosen.ordered and taps == 1:
        return (sums + texels + ceil(weights / 2)) / 2  # weights of half of the lanes
    if chosen.ordered:
        coordinates = tile_size(problem, replace(chosen, keep="line"))[1] / LANES  # kept for all rows
        return coordinates + (sums + texels + weights) / 2
    if taps > 1 and not problem.depthwise:
        window = prod(tile_size(problem, replace(chosen, keep="window")))
        if taps * (weights // chosen.block_quads * sums + weights) + window <= UNROLLED_ROWS:
            ahead = AHEAD_IN_HALF if problem.accumulator == FLOAT16 else AHEAD
            return ahead * (window + sums + taps * weights)
        unrolled = is_unrolled(problem, chosen)
        texels += 1
        if problem.accumulator == FLOAT16:
            weights *= problem.window[1] if unrolled else 1
        elif _reads_ahead(problem, chosen):
            weights *= 2
        elif not chosen.integers:
            texels += NEXT_QUAD * (chosen.block_quads - 1) if unrolled else -LOOP_SAVES
    elif chosen.parts > 1 and problem.products != FLOAT16:
        texels -= ONE_OUTPUT
    held = sums + texels + weights
    if problem.accumulator != FLOAT16:
        return held + (sums / 2 if problem.sums == "runs" else 0)
    if problem.depthwise:
        return held / 2
    gated = int(problem.gated and chosen.parts > 1)
    return max(held / 2, sums + texels + gated - (MOBILE_GPU.registers if taps > 1 else 0))


def _reads_ahead(problem: Problem, chosen: Specialisation) -> bool:
    """Returns whether two quads of weights are read a column of the window ahead: if items share sums in float."""
    shared = chosen.parts > 1 and chosen.block_quads == 2
    return shared and problem.accumulator != FLOAT16 and max(problem.strides) == 1


def _fewest_registers(problem: Problem, chosen: Specialisation) -> float:
    """Registers of four floats with which the compiler makes do if a core holds more waves then.

    Sums in half of a 1x1 window are in registers for halves, two of which are one for floats.
    """
    if chosen.ordered:
        beside = ORDERED + (ORDERED_SHARED if chosen.parts > 1 and problem.window == (1, 1) else 0)
        sides = zip(problem.phase_size, (chosen.block_rows, chosen.block_columns), strict=True)
        beside += ORDERED_EDGE if any(size % block for size, block in sides) else 0
        return _registers(problem, chosen) + beside
    if problem.depthwise or problem.accumulator != FLOAT16 or prod(problem.window) > 1:
        return _registers(problem, chosen) + BESIDE
    texels = prod(tile_size(problem, chosen)) + weights_of_step(problem, chosen)
    return (accumulators_of(chosen) + texels) / 2 + BESIDE_IN_HALF
