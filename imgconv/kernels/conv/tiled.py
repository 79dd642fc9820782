"""The specialisations of conv_tiled.cl, whose work groups copy tiles of weights and input to local memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from math import prod

from imgconv.kernels.conv.problem import InputReuse, Problem, Specialisation, local_texels_of, work_items
from imgconv.kernels.kernel_source import round_up

# Blocks of work items, by what of the input a tile has.
TILED_BLOCKS = {
    "texel": ((4, 1, 1), (4, 1, 2), (8, 1, 1), (4, 2, 1), (4, 4, 1), (8, 2, 1)),
    "line": ((4, 1, 1), (4, 1, 2), (4, 2, 1), (4, 2, 2), (4, 1, 4), (8, 1, 4)),
}
# A dilation from which on tiles may have one position of a window at once.
FAR_APART = 4


def tiled_candidates(problem: Problem) -> Iterator[Specialisation]:
    """Candidates whose work groups read weights and input through tiles in local memory."""
    keep: InputReuse = "texel" if problem.window[1] == 1 else "line"
    for block in TILED_BLOCKS[keep]:
        yield _tiled(problem, block, keep)
    # Windows of which neighbouring outputs share few texels.
    if keep == "line" and (max(problem.dilations) >= FAR_APART or problem.strides == problem.window):
        for block in TILED_BLOCKS["texel"]:
            yield _tiled(problem, block, "texel")


def _tiled(problem: Problem, block: tuple[int, int, int], keep: InputReuse) -> Specialisation:
    """The candidate with a block and its work group."""
    length, height, each = block
    made = Specialisation(
        length, min(problem.phase_size[0], height), min(each, problem.group_output_quads), keep, "local",
        float_coordinates=True,
    )
    return replace(made, local_size=work_group_of_tile(problem, made))


def work_group_of_tile(problem: Problem, chosen: Specialisation, items: int = 128) -> tuple[int, int, int]:
    """A work group of so many items with few idle ones, whose tile has few texels of each input quad."""
    blocks = work_items(problem, chosen)

    def started(group: tuple[int, int, int]) -> int:
        return prod(round_up(n, size) for n, size in zip(blocks, group, strict=True))

    def waste(group: tuple[int, int, int]) -> tuple[int, ...]:
        texels = local_texels_of(group, problem, chosen)
        if chosen.keep == "texel":
            # Items that read the same address of local memory are served at the same time. In a wave two items wide,
            # this is true of texels and of weights. Weights are read from a buffer, which is faster than texels. A
            # tenth more items, or half a texel more per item, matter less.
            return 10 * started(group) // fewest, texels // 64, abs(group[0] - 2), -group[1]
        # In narrower groups, several rows read the same bank of local memory.
        return started(group), group[0] < 4, texels // 8, abs(group[0] - 8)

    longest = 32 if chosen.keep == "texel" else 16
    groups = groups_of(items, longest, longest)
    fewest = min(map(started, groups))
    return min(groups, key=waste)


@cache
def groups_of(items: int, longest: int, tallest: int) -> list[tuple[int, int, int]]:
    """The work groups of so many items: sides of powers of two, x and z at most `longest`, y at most `tallest`."""
    sizes = [2**n for n in range(8)]
    sides, heights = ([size for size in sizes if size <= most] for most in (longest, tallest))
    return [group for group in itertools.product(sides, heights, sides) if prod(group) == items]
