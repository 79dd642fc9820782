"""The specialisations of separable.cl that are worth measuring for a problem, and their predicted times."""

from __future__ import annotations

import itertools
from functools import lru_cache
from math import ceil, gcd, prod

from imgconv.kernels.conv import candidates as conv_candidates, costs as conv_costs
from imgconv.kernels.conv.candidates import MOST_UNROLLED
from imgconv.kernels.device_model.costs import LARGE, LARGE_GPU, LargeGpuCosts, SmallGpuCosts, costs_of
from imgconv.kernels.device_model.gpu_time import WAVE, Gpu, LaunchWork, gpu_with
from imgconv.kernels.layout import LANES
from imgconv.kernels.separable.problem import Problem, Specialisation, groups_of
from imgconv.kernels.source import round_up
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
    """The specialisations worth measuring for a problem, with work groups of 96 to 256 work items.

    kind: 'cpu' or 'gpu'. None for a CPU, which has no local memory of its own, and none for a window that compilers
    would unroll for seconds.
    """
    if kind == "cpu" or prod(problem.depthwise.window) > MOST_UNROLLED[kind][0]:
        return []
    (rows, columns), quads = problem.pointwise.output_size, problem.pointwise.output_quads
    found, most = [], min(256, max_work_group)
    blocks = (*BLOCKS, *BLOCKS_IN_HALF) if problem.pointwise.half else BLOCKS
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


@lru_cache(1024)
def default_specialisation(
    problem: Problem, kind: TargetKind, compute_units: int, local_memory_bytes: int
) -> Specialisation | None:
    """The candidate with the lowest predicted cost. None if two launches are expected to be faster.

    An H200 takes 8 to 25 us for pairs that take 17 to 54 us in two launches. On a phone's GPU only sums in half are
    considered: by Mesa's code a pair takes more issue slots than two launches, and saves traffic and a launch.
    """
    if not may_pay(problem, kind, compute_units):
        return None
    made = candidates(problem, kind, local_memory_bytes)
    best = min(made, key=lambda c: predicted_cost(problem, c, compute_units), default=None)
    if best is None or predicted_cost(problem, best, compute_units) > cost_of_two(problem, kind, compute_units):
        return None
    return best


def may_pay(problem: Problem, kind: TargetKind, compute_units: int) -> bool:
    """Returns whether one launch is worth considering: on a computer's GPU, and in half on a phone's."""
    return kind == "gpu" and (compute_units >= LARGE_GPU or problem.pointwise.half)


@lru_cache(1024)
def cost_of_two(problem: Problem, kind: TargetKind, compute_units: int) -> float:
    """The predicted cost of two launches of conv.cl, in the unit of `predicted_cost`."""
    both = (problem.depthwise, problem.pointwise)
    chosen = (conv_candidates.default_specialisation(p, kind, compute_units) for p in both)
    costs = (conv_costs.predicted_cost(p, c, kind, compute_units) for p, c in zip(both, chosen, strict=True))
    # The model of a small GPU has what a launch costs.
    return (LARGE.launch if compute_units >= LARGE_GPU else 0.0) + sum(costs)


def predicted_cost(problem: Problem, chosen: Specialisation, compute_units: int) -> float:
    """The predicted time of a launch: cycles of a compute unit of a large GPU, or nanoseconds on a phone's."""
    costs = costs_of("gpu", compute_units)
    if isinstance(costs, SmallGpuCosts):
        gpu = gpu_with(compute_units)
        return conv_costs.nanoseconds_on_small_gpu(work_on_small_gpu(problem, chosen, gpu, costs), gpu, costs)
    assert isinstance(costs, LargeGpuCosts)
    return _cost_on_large_gpu(problem, chosen, compute_units, costs)


def work_on_small_gpu(problem: Problem, chosen: Specialisation, gpu: Gpu, costs: SmallGpuCosts) -> LaunchWork:
    """The work of a launch on a small GPU, with Mesa's compiler for Adreno."""
    depthwise, pointwise, items = problem.depthwise, problem.pointwise, prod(chosen.local_size)
    taps, sums = prod(depthwise.window), chosen.block_columns * chosen.block_quads
    # Of the work item that has the most.
    windows = ceil(chosen.group_columns * chosen.group_rows * depthwise.output_quads / items)
    steps = ceil(depthwise.output_quads / chosen.parts)
    totals = ceil(sums / chosen.parts) if chosen.parts > 1 else 0
    multiply_adds = LANES * windows * taps * chosen.block_columns + LANES * LANES * steps * sums
    reads = windows * (depthwise.window[0] * _line(problem, chosen) + taps) + steps * LANES * chosen.block_quads
    slots = multiply_adds + costs.separable_read * reads + costs.separable_window * windows
    slots += costs.separable_step * steps + costs.separable_sum * sums
    slots += totals * (costs.separable_total + costs.separable_part * chosen.parts)
    local = (windows + steps) * chosen.block_columns + (sums + totals * chosen.parts if chosen.parts > 1 else 0)
    groups, wave = prod(groups_of(problem, chosen)), min(WAVE, round_up(items, WAVE // 2))
    # Every texel of input, weights and output once.
    texels = depthwise.batch * depthwise.output_quads * prod(depthwise.input_size)
    texels += pointwise.batch * pointwise.output_quads * prod(pointwise.output_size)
    texels += depthwise.output_quads * (taps + LANES * pointwise.output_quads)
    all_items = groups * items
    return LaunchWork(
        multiply_adds, slots - multiply_adds, all_items * reads, costs.texel_bytes * texels,
        groups * ceil(items / wave), wave, all_items * local, ceil(items / wave), chosen.local_bytes(problem),
    )


def _line(problem: Problem, chosen: Specialisation) -> int:
    """Input columns that a block reads for a row of the window."""
    depthwise = problem.depthwise
    reach = (chosen.block_columns - 1) * depthwise.strides[1] + (depthwise.window[1] - 1) * depthwise.dilations[1]
    return reach // gcd(depthwise.strides[1], depthwise.dilations[1]) + 1


def _cost_on_large_gpu(problem: Problem, chosen: Specialisation, compute_units: int, costs: LargeGpuCosts) -> float:
    """Cycles of a compute unit of a large GPU."""
    depthwise, items = problem.depthwise, prod(chosen.local_size)
    taps, sums = prod(depthwise.window), chosen.block_columns * chosen.block_quads
    tasks = chosen.group_columns * chosen.group_rows * depthwise.output_quads
    steps = ceil(depthwise.output_quads / chosen.parts)
    multiply_adds = LANES * tasks * taps * chosen.block_columns + LANES * LANES * items * steps * sums
    texels = tasks * (depthwise.window[0] * _line(problem, chosen) + taps)
    weights = items * steps * LANES * chosen.block_quads
    groups = ceil(prod(groups_of(problem, chosen)) / compute_units)
    # Work groups that a compute unit runs at once.
    waves = ceil(groups / max(1, costs.separable_items // items))
    # A work item that is alone waits for each of its windows, for the weights of each step, and for the other parts.
    alone = costs.separable_wait + costs.separable_wait_window * ceil(tasks / items) * taps / 9
    alone += steps * (costs.separable_wait_step + costs.separable_wait_weights * chosen.block_quads)
    alone += costs.separable_wait_parts * chosen.parts * ceil(sums / chosen.parts)
    arithmetic = multiply_adds / costs.separable_multiply_adds
    busy = arithmetic + costs.separable_texel * texels + costs.separable_weight * weights
    return groups * busy + waves * alone
