"""The specialisations of conv.cl that are worth measuring for a problem."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, prod

from imgconv.dtype import FLOAT16
from imgconv.kernels.conv.mobile import ordered_weights_pay_off
from imgconv.kernels.conv.problem import InputReuse, Problem, Specialisation, tile_size, work_items
from imgconv.kernels.conv.tiled import groups_of, tiled_candidates, work_group_of_tile
from imgconv.kernels.conv.work import predicted_time
from imgconv.kernels.device_model.adreno import WAVE
from imgconv.kernels.device_model.time_range import index_of_best
from imgconv.kernels.kernel_source import round_up
from imgconv.kernels.layout import LANES
from imgconv.kernels.target import LARGE_GPU, TargetKind

# The most bytes of input that a work item keeps in private memory. CPU drivers hold it in a core's cache.
PRIVATE_BYTES = 1 << 17
AVX512, AVX2 = 16, 8  # floats in a register; NEON has 4 in each of 32


@dataclass(frozen=True)
class RegisterLimits:
    """The maximum number of vector registers for the sums of a work item: with more, compilers keep sums in memory.

    sums: for a convolution, in addition to the weights and texels of a step. depthwise: for a depthwise one, or in
    fp16.
    """

    sums: int
    depthwise: int


# Of 32 registers, and of the 16 that AVX2 has: with those of 32, an EPYC with AVX2 took 24 ms for SqueezeNet, now 7.
OF_32, OF_16 = RegisterLimits(21, 64), RegisterLimits(8, 8)
# For each kind of device, the maximum number of window columns, and of texels of a row that a work item keeps, over
# which a loop is unrolled. With a window of 320 and a stride of 160, Intel's compiler (2026.22) took 13 s. With a
# depthwise window of 256 it took 3 s, and NVIDIA's (580) 7 s.
MOST_UNROLLED = {"cpu": (128, 256), "gpu": (64, 64)}
# Blocks for GPUs: columns, rows and output quads.
BLOCKS_ON_GPU = (
    (1, 1, 1), (2, 1, 1), (4, 1, 1), (2, 1, 2), (4, 1, 2), (2, 2, 2), (4, 2, 1), (7, 1, 1), (4, 2, 2), (7, 1, 2),
    (8, 1, 2), (4, 1, 4), (2, 2, 4), (7, 2, 1), (4, 4, 1), (4, 2, 4), (8, 2, 2), (4, 1, 3), (7, 1, 3), (4, 2, 3),
    (8, 1, 3),
)
# Blocks for a phone's GPU. It runs out of registers with more sums. Small ones fill it, if the map is small.
MOST_SUMS = 24
BLOCKS_ON_SMALL_GPU = (
    *(block for block in BLOCKS_ON_GPU if prod(block) <= MOST_SUMS),
    (1, 1, 2), (1, 1, 3), (1, 1, 4), (3, 1, 1), (3, 1, 2), (5, 1, 2), (2, 2, 3), (3, 2, 2), (13, 1, 1),
)
# Blocks for sums of integers on it: a texel is packed once for all quads, and weights take fewer registers.
BLOCKS_OF_INTEGERS = (
    *BLOCKS_ON_GPU, (1, 1, 2), (1, 1, 4), (2, 1, 4), (1, 1, 8), (2, 1, 8), (7, 1, 4), (13, 1, 2), (5, 1, 4),
)
# Work items that share a sum on a phone's GPU, the most waves of a launch for which they pay, and the most work items
# for which waves of half the size do.
PARTS_ON_SMALL_GPU, SHARED_WAVES, NARROW_ITEMS = (1, 2, 4, 8, 16), 128, 2048
# Further ones for sums in half, of which a work item can hold more if the window is 1x1.
BLOCKS_IN_HALF = ((7, 2, 2), (8, 2, 1), (13, 1, 2))
# Those that fit half of the registers only if a 1x1 window's weights are read in order.
BLOCKS_IN_ORDER = ((7, 1, 4), (5, 2, 2))


def candidates(
    problem: Problem, kind: TargetKind, compute_units: int = LARGE_GPU, vector_floats: int = AVX512,
    max_work_group: int = WAVE, dot_products: bool = False,
) -> list[Specialisation]:
    """Returns the specialisations worth measuring for a problem. kind: 'cpu' or 'gpu'.

    compute_units: of a GPU. vector_floats: floats in a register of a CPU. max_work_group: work items. dot_products:
    whether sums of integers are worth measuring.
    """
    made = _cpu_candidates(problem, vector_floats) if kind == "cpu" else _gpu_candidates(problem)
    if kind == "gpu" and compute_units < LARGE_GPU:
        made = _mobile_candidates(problem, dot_products and not problem.why_float_sums)
    found = _limit_work_groups(problem, _limit_unrolling(problem, made, kind), max_work_group)
    return [c for c in dict.fromkeys(found) if c.allowed(problem)]


def _limit_work_groups(problem: Problem, made: Iterable[Specialisation], most: int) -> Iterator[Specialisation]:
    """The specialisations with work groups of at most so many items."""
    items = 1 << (most.bit_length() - 1)
    for each in made:
        if each.items <= most:
            yield each
        elif each.weights == "local":
            yield replace(each, local_size=work_group_of_tile(problem, each, items))
        elif each.parts <= items:
            yield replace(each, local_size=_work_group(problem, each, items))


def _limit_unrolling(
    problem: Problem, made: Iterable[Specialisation], kind: TargetKind
) -> Iterator[Specialisation]:
    """The specialisations; those whose loops compilers would unroll for seconds read each texel when they need it."""
    width, columns = MOST_UNROLLED[kind]
    for each in made:
        if problem.window[1] <= width and tile_size(problem, each)[1] <= columns:
            yield each
        elif each.keep != "input":
            yield replace(each, keep="texel")


def default_specialisation(problem: Problem, kind: TargetKind, compute_units: int) -> Specialisation:
    """The candidate that the cost model chooses."""
    made = candidates(problem, kind, compute_units)
    return made[index_of_best([predicted_time(problem, each, kind, compute_units) for each in made])]


def _cpu_candidates(problem: Problem, vector_floats: int) -> Iterator[Specialisation]:
    """Candidates for CPUs: vectors of up to 16 floats, weights in a buffer, few reads of each input texel."""
    def registers(quads: int) -> int:
        """Returns the registers that a vector of this many quads takes."""
        return ceil(quads * LANES / vector_floats)

    most = OF_16 if vector_floats == AVX2 else OF_32
    rows, columns = problem.phase_size
    lengths = sorted({min(columns, n) for n in (4, 5, 6, 7, 8)})
    half = _quads_in_half_run(problem)
    if problem.depthwise or problem.products == FLOAT16:
        quads = (1,) if problem.depthwise else (1, 2)
        for length, height, each in itertools.product(lengths, {1, min(2, rows), min(4, rows)}, quads):
            if length * height * each * registers(1) <= most.depthwise:
                yield Specialisation(length, height, each, "window", "buffer", half_quads=half)
        return
    blocks = [(4, 4), (8, 4), (12, 4), (16, 4)] if problem.group_output_quads > 2 else [(1, 1), (2, 1)]
    blocks = [(each, vector) for each, vector in blocks if each < problem.group_output_quads + 4]
    blocks += [(1, 1)] if problem.groups > 1 else []
    heights = {min(rows, n) for n in ((1, 2) if columns > 1 else (1, 2, 4, 8))}
    shapes = [
        Specialisation(length, height, each, "line", "buffer", vector_quads=vector)
        for length, height, (each, vector) in itertools.product(lengths, heights, blocks)
        if length * height * each // vector * registers(vector) <= most.sums
    ]
    for made in shapes:
        total = ceil(problem.group_output_quads / made.block_quads)
        yield made
        if problem.window == (1, 1) and columns > 1:
            continue  # A texel that is used once for each pass is read again as fast as from private memory.
        for passes in {ceil(total / n) for n in (1, 2, 4, 8)}:
            # One work item a group: a driver may put the private memory of a whole group on one thread's stack.
            whole = replace(made, keep="input", passes=passes, local_size=(1, 1, 1))
            rows, columns = tile_size(problem, whole)
            if problem.group_input_quads * rows * columns * 16 <= PRIVATE_BYTES:
                yield whole


def _gpu_candidates(problem: Problem) -> Iterator[Specialisation]:
    """Candidates for GPUs: blocks of up to 32 sums, small blocks whose sums work items share, groups of whole waves."""
    # A whole window of all channels gains nothing over its lines, and NVIDIA's compiler takes 0.9 s for it, not 0.35.
    kept: tuple[InputReuse, ...] = ("texel",) if problem.window == (1, 1) else ("texel", "line")
    kept = (*kept, "window") if problem.depthwise else kept
    for made in _block_candidates(problem, BLOCKS_ON_GPU, kept):
        yield replace(made, local_size=_work_group(problem, made), weights="buffer")
        yield from _unsplit_and_split_sums(problem, made)
    if not problem.depthwise and problem.phase_size[1] > 1:
        yield from tiled_candidates(problem)


def _mobile_candidates(problem: Problem, integers: bool) -> Iterator[Specialisation]:
    """Candidates for a phone's GPU: weights in images, sums shared until the launch has many waves, narrow waves for
    launches of few."""
    kept: tuple[InputReuse, ...] = ("line",) if problem.depthwise else ("texel",)
    blocks = _block_candidates(problem, BLOCKS_ON_SMALL_GPU, kept)
    if integers:
        of_integers = (replace(each, integers=True) for each in _block_candidates(problem, BLOCKS_OF_INTEGERS, kept))
        blocks = itertools.chain(blocks, of_integers)
    if problem.window == (1, 1):
        in_order = (replace(each, ordered=True) for each in _block_candidates(problem, BLOCKS_IN_ORDER, kept))
        blocks = itertools.chain(blocks, in_order)
    for made in blocks:
        items = prod(work_items(problem, made))
        for parts in PARTS_ON_SMALL_GPU if not problem.depthwise else (1,):
            if parts > 1 and (items * parts > SHARED_WAVES * WAVE or parts > problem.group_input_quads):
                break
            # Compilers unroll the few remaining steps of a sum. In half they also move all reads to the front.
            shared = replace(made, parts=parts, half_quads=min(1, made.half_quads)) if parts > 1 else made
            for size in (WAVE, WAVE // 2) if items * parts <= NARROW_ITEMS else (WAVE,):
                sized = replace(shared, local_size=_work_group(problem, shared, size, tallest=WAVE))
                if not sized.ordered:
                    yield sized
                if ordered_weights_pay_off(problem, sized):
                    yield replace(sized, ordered=True)


def _block_candidates(
    problem: Problem, shapes: Sequence[tuple[int, int, int]], kept: Sequence[InputReuse]
) -> Iterator[Specialisation]:
    """Specialisations with blocks of these columns, rows and quads, without a work group yet."""
    rows, columns = problem.phase_size
    half = _quads_in_half_run(problem)
    # An output of one column, as of a matrix product, is cut into blocks of rows.
    wider = [block for block in BLOCKS_IN_HALF if problem.window == (1, 1) or prod(block) <= MOST_SUMS]
    sizes = (*shapes, *wider) if problem.accumulator == FLOAT16 else shapes
    shapes = [(1, length * height, quads) if columns == 1 else (length, height, quads)
              for length, height, quads in sizes]
    blocks = [
        (min(columns, length), min(rows, height), 1 if problem.depthwise else min(quads, problem.group_output_quads))
        for length, height, quads in shapes
    ]
    for (length, height, each), keep in itertools.product(dict.fromkeys(blocks), kept):
        yield Specialisation(length, height, each, keep, half_quads=half, float_coordinates=True)


def _unsplit_and_split_sums(problem: Problem, made: Specialisation) -> Iterator[Specialisation]:
    """The specialisation with a work group, alone and with each sum shared by 4 or 16 work items."""
    yield replace(made, local_size=_work_group(problem, made))
    # Only small blocks: work items that wait for each other all need their registers at the same time.
    for parts in (4, 16) if made.block_columns * made.block_rows * made.block_quads <= 8 else ():
        # Compilers unroll the few remaining steps of a sum. In half they also move all reads to the front.
        shared = replace(made, parts=parts, half_quads=min(1, made.half_quads))
        yield replace(shared, local_size=_work_group(problem, shared))


def _quads_in_half_run(problem: Problem) -> int:
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
    columns, quads, rows = work_items(problem, chosen)
    width, height, depth = least_idle_group((columns, quads // chosen.parts, rows), chosen.parts, items, tallest)
    return width, height * chosen.parts, depth


@lru_cache(1024)
def least_idle_group(blocks: tuple[int, int, int], parts: int, items: int, tallest: int) -> tuple[int, int, int]:
    """Returns the work group with this number of items that has the fewest idle items. Its y, at most `tallest`, does
    not include `parts`.

    Among equals, it prefers a work group with about eight quad blocks, which read the same texels, and with long rows.
    (An A630 reaches 468 GFLOPS in float with waves of 128, and 346 with smaller ones; tinygrad#16229.)
    """

    def rank(group: tuple[int, int, int]) -> tuple[int, int, int]:
        started = prod(round_up(n, size) for n, size in zip(blocks, group, strict=True))
        return started, abs(group[1] * parts - 8), -group[0]

    return min(groups_of(items // parts, 16, tallest), key=rank)
