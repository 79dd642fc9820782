"""Normalisations of long rows in two launches: pictures, groups of channels.

    parts     each work group: number of values, mean and sum of squared differences from it, of a part of a row
    apply     each work group: joins the parts of its row, then y = (x - m) / sqrt(v / n + epsilon) for a part of it

So x is read twice instead of three times, and as many work groups as keep the device busy share a row. Nothing cancels:
differences are taken from a mean of the values so far, and parts are joined by the formula of Chan, Golub and LeVeque
(1979). moments_text.py makes both kernels.

    the texture of parts     x = 3 * part + (0: number, 1: mean, 2: squares)        y = row, or four rows in the lanes
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, isqrt, prod

from imgconv.graph.expression import Apply, Argument, Expression, Forms, Literal, apply, substitute
from imgconv.graph.index import Variable
from imgconv.graph.nodes import Graph, Load, Node, Reduction
from imgconv.graph.view import Shape
from imgconv.kernels.codegen.rows import Rows, find_rows
from imgconv.kernels.codegen.rows_text import LONGEST_WALK, PlacedRows, RowsMaker, lanes_of
from imgconv.kernels.device_model.costs import LARGE_GPU
from imgconv.kernels.layout import LANES, Layout, Placement, image_layout, matrix_layout
from imgconv.kernels.step import operation_as
from imgconv.kernels.target import Target

TEXELS_OF_A_PART = 3
PARTS_LAYOUT = Layout((0,), (1,), 2)
GROUP, LARGE_GROUP = 128, 256  # work items of a group on a GPU; on a CPU each work item has a part of its own
BESIDE = {"gpu": 8, "cpu": 16}  # adjacent texels that a group reads together, at most
GROUPS_OF_A_UNIT, FEWEST_GROUPS = 8, {"gpu": 32, "cpu": 1}  # that keep a compute unit, and a device, busy
FEWEST_STEPS = {"gpu": 8, "cpu": 256}  # of a work item; else it would read the parts for too few texels
READS = 6  # texels of its part that a group has at least for each part of the row, of which it reads three texels
LONG = 8192  # texels of a row that are worth a launch more if compute units would be left without a row


@dataclass(frozen=True)
class Moments:
    """Rows whose reductions are a mean and a sum of squared differences from it. The last node applies them."""

    rows: Rows
    mean: Node
    squares: Node


@dataclass(frozen=True)
class Parts:
    """The division of rows among work groups: `count` rows, or quads of rows, of `steps` texels each, in `parts` parts.

    lanes: see PlacedRows. items: work items that share a part. beside: rows of a work group. name: of the value that
    holds the parts.
    """

    moments: Moments
    lanes: Variable
    name: str
    count: int
    steps: int
    parts: int
    items: int
    beside: int

    @property
    def each(self) -> int:
        """The texels of a part; the last part may have fewer."""
        return ceil(self.steps / self.parts)

    @property
    def shape(self) -> Shape:
        """The shape of the value that holds the parts."""
        return self.count, self.parts * TEXELS_OF_A_PART, LANES


def moments_of(rows: Rows) -> Moments | None:
    """The mean and the squared differences of rows; None if the rows are made from other reductions."""
    if len(rows.reductions) != 2 or not isinstance(rows.last.operation, Load):
        return None
    mean, squares = rows.reductions
    summed, squared = (operation_as(Reduction, node) for node in rows.reductions)
    if (summed.kind, squared.kind) != ("sum", "sum") or mean.epilogue_operands:
        return None
    if not _divides(mean.epilogue, prod(rows.window)):
        return None
    averages = [n for n, operand in enumerate(squares.operands) if operand.value == mean.output.name]
    numbers = {
        mean.operands.index(o): Argument(n) for n, o in enumerate(squares.operands) if o in mean.operands
    }
    if len(averages) != 1 or len(numbers) != len(mean.operands) or len(squares.operands) != len(numbers) + 1:
        return None
    difference = apply("subtract", substitute(summed.body, numbers), Argument(averages[0]))
    found = squared.body == apply("multiply", difference, difference)
    return Moments(rows, mean, squares) if found else None


def _divides(epilogue: Expression, count: int) -> bool:
    """Returns whether a sum of `count` values becomes their mean."""
    if not isinstance(epilogue, Apply) or epilogue.operation not in ("multiply", "divide"):
        return False
    if epilogue.arguments[0] != Argument(0) or not isinstance(epilogue.arguments[1], Literal):
        return False
    number = epilogue.arguments[1].value
    factor = number if epilogue.operation == "multiply" else 1 / number if number else 0.0
    return abs(factor * count - 1) < 1e-6


def long_moments(graph: Graph, longest: int) -> frozenset[str]:
    """The reductions over `longest` positions and more that two launches can share, by the names of their outputs."""
    reductions = [n for n in graph.nodes if isinstance(n.operation, Reduction)]
    if not any(prod(n.operands[0].view.shape[len(n.output.shape) :]) >= longest for n in reductions):
        return frozenset()
    names = set()
    for rows in find_rows(graph):
        found = moments_of(rows)
        if found is not None and prod(rows.window) >= longest and _has_lanes(rows):
            names |= {found.mean.output.name, found.squares.output.name}
    return frozenset(names)


def _has_lanes(rows: Rows) -> bool:
    """Returns whether a texel holds four rows, or four positions of one, if operands have the layout of their rank."""
    ranks = {o.value: len(o.view.source) for o in rows.reductions[0].operands}
    layouts = {name: image_layout(rank) if rank >= 4 else matrix_layout(rank) for name, rank in ranks.items()}
    return lanes_of(rows, layouts) is not None


def find_parts(moments: Moments, placed: PlacedRows, target: Target, name: str) -> Parts | None:
    """Returns how work groups share the rows; None if one launch is as fast, or if the kernels are impossible."""
    maker = moments_maker(moments, placed.lanes, placed.output, placed.places, "exact", target)
    if not maker.stores_texels():
        return None
    if maker.walk <= LONGEST_WALK[target.kind] and not (maker.steps >= LONG and maker.count < target.compute_units):
        return None
    beside = 1 if maker.folded else min(BESIDE[target.kind], maker.count)
    group = min(LARGE_GROUP if target.compute_units >= LARGE_GPU else GROUP, target.max_work_group)
    items = max(1, group // beside) if target.kind == "gpu" else 1
    groups = ceil(maker.count / beside)
    wanted = max(GROUPS_OF_A_UNIT * target.compute_units, FEWEST_GROUPS[target.kind])
    parts = min(ceil(wanted / groups), isqrt(maker.steps // READS), maker.steps // (items * FEWEST_STEPS[target.kind]))
    # As many parts as have work: 10 texels in 6 parts of ceil(10 / 6) = 2 texels are 5 parts.
    parts = ceil(maker.steps / ceil(maker.steps / max(1, parts)))
    return Parts(moments, placed.lanes, name, maker.count, maker.steps, parts, items, beside)


def moments_maker(
    moments: Moments, lanes: Variable, output: Placement, placements: Mapping[str, Placement], forms: Forms,
    target: Target,
) -> RowsMaker:
    """Returns the maker of statements for the rows."""
    maker = RowsMaker(moments.rows, lanes, output, placements, forms, target, lanes_last=True)
    maker.most_kept = 0
    return maker
