"""The problem of separable.cl: a depthwise convolution and the 1x1 convolution that reads it; and its specialisations.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from imgconv.config import Accumulation
from imgconv.kernels.conv import problem as conv
from imgconv.kernels.layout import LANES

MOST_OF_RUN = 8  # input quads of the 1x1 in a run: 32 terms


@dataclass(frozen=True)
class Problem:
    """A depthwise convolution and the 1x1 convolution that reads its result."""

    depthwise: conv.Problem
    pointwise: conv.Problem

    @property
    def sums(self) -> Accumulation:
        """The width in which both sum."""
        return self.pointwise.sums

    @property
    def integers(self) -> bool:
        """Returns whether the 1x1 convolution sums products of bytes."""
        return not self.pointwise.why_float_sums

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of both convolutions, as in the model."""
        return self.depthwise.multiply_adds + self.pointwise.multiply_adds


@dataclass(frozen=True)
class Specialisation:
    """The free constants of separable.cl.

    block_columns, block_quads: the outputs of a work item. group_columns, group_rows: blocks of positions in a work
    group's tile. group_quads: blocks of output quads of a work group. parts: work items that share a sum.
    """

    block_columns: int
    block_quads: int
    group_columns: int
    group_rows: int
    group_quads: int
    parts: int

    def __str__(self) -> str:
        text = f"tile {self.group_columns * self.block_columns}x{self.group_rows} in local memory, "
        text += f"block {self.block_columns}x1x{self.block_quads}, {self.group_quads} quad blocks"
        return text + (f", {self.parts} parts" if self.parts > 1 else "")

    @property
    def positions(self) -> int:
        """Positions of a work group's tile."""
        return self.group_columns * self.block_columns * self.group_rows

    @property
    def local_size(self) -> tuple[int, int, int]:
        """The work group's size."""
        return self.group_quads, self.group_columns * self.group_rows, self.parts

    def local_bytes(self, problem: Problem) -> int:
        """Local memory of a work group: first the depthwise result of its tile, later the parts of its sums."""
        sums = prod(self.local_size) * self.block_columns * self.block_quads if self.parts > 1 else 0
        between, total = (LANES * each.bytes for each in (problem.pointwise.products, problem.pointwise.accumulator))
        between = LANES if problem.integers else between
        return max(between * self.positions * problem.depthwise.output_quads, total * sums)

    def half_quads(self, problem: Problem) -> int:
        """Input quads of a run of the 1x1, if sums are made of runs; else 0. Every part has a run."""
        quads = problem.depthwise.output_quads
        most = min(MOST_OF_RUN, max(1, quads // self.parts)) if problem.sums == "runs" else 0
        return max((n for n in range(1, most + 1) if quads % n == 0), default=0)


def groups_of(problem: Problem, chosen: Specialisation) -> tuple[int, int, int]:
    """Work groups along x, y and z."""
    rows, columns = problem.pointwise.output_size
    return (
        ceil(problem.pointwise.output_quads / (chosen.block_quads * chosen.group_quads)),
        ceil(columns / (chosen.group_columns * chosen.block_columns)),
        problem.depthwise.batch * ceil(rows / chosen.group_rows),
    )
