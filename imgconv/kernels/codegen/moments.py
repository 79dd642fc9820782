"""Normalisations of long rows, such as pictures or groups of channels, in two launches.

    parts     each work group: number of values, mean and sum of squared deviations from it, of a part of a row
    apply     each work group: combines the parts of its row, then y = (x - m) / sqrt(v / n + epsilon) for a part of it

So x is read twice instead of three times, and several work groups share a row, enough to keep the device busy. There is
no cancellation: deviations are from the mean of the values so far, and parts are combined with the formula of Chan,
Golub and LeVeque (1979).

    the texture of parts     x = 3 * part + (0: number, 1: mean, 2: squares)        y = row, or four rows in the lanes
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil, isqrt, prod

from imgconv.graph.expression import Apply, Argument, Expression, MathMode, Literal, apply, substitute
from imgconv.graph.index import Index, Variable, constant, variable, variable_index
from imgconv.graph.nodes import IDENTITY, Graph, Load, Node, Operand, Reduction
from imgconv.graph.view import Shape, identity
from imgconv.kernels.codegen.access import LANE, accuracy_of
from imgconv.kernels.codegen.generated import BLOCK, assembled_kernel
from imgconv.kernels.codegen.row_groups import RowGroup, find_row_groups
from imgconv.kernels.codegen.row_kernel import LONGEST_WALK, PlacedRowGroup, RowKernelEmitter, lanes_of, place_rows
from imgconv.kernels.kernel_source import KernelSource
from imgconv.kernels.layout import LANES, Layout, Placement, image_layout, matrix_layout
from imgconv.kernels.target import LARGE_GPU, Target
from imgconv.kernels.template_interface import (
    EmittingContext, FixedProblem, LaunchStep, PlacingContext, fixed_template, require_operation,
)

TEXELS_OF_A_PART = 3
PARTS_LAYOUT = Layout((0,), (1,), 2)
GROUP, LARGE_GROUP = 128, 256  # work items of a group on a GPU; on a CPU each work item has a part of its own
BESIDE = {"gpu": 8, "cpu": 16}  # adjacent texels that a group reads together, at most
GROUPS_OF_A_UNIT, FEWEST_GROUPS = 8, {"gpu": 32, "cpu": 1}  # that keep a compute unit, and a device, busy
FEWEST_STEPS = {"gpu": 8, "cpu": 256}  # of a work item; else it would read the parts for too few texels
READS = 6  # texels of its part that a group has at least for each part of the row, of which it reads three texels
LONG = 8192  # texels of a row that are worth a launch more if compute units would be left without a row


# `delta` is the difference of the other part's mean from this one's. A part of no values changes nothing.
JOIN = """#ifndef HAVE_join_moments
#define HAVE_join_moments
inline void join_moments(
    float4 *count, float4 *mean, float4 *squares, float4 other_count, float4 delta, float4 other_squares) {
  const float4 total = *count + other_count, share = other_count / fmax(total, 1.0f);
  *squares += other_squares + delta * delta * (*count * share);
  *mean += delta * share;
  *count = total;
}
#endif
"""
NAMES = ("count", "mean", "squares")


@dataclass(frozen=True)
class MomentsMatch:
    """Rows whose reductions are a mean and a sum of squared differences from it. The last node applies them."""

    rows: RowGroup
    mean: Node
    squares: Node


@dataclass(frozen=True)
class RowParts:
    """The division of rows among work groups: `count` rows, or quads of rows, of `steps` texels each, in `parts` parts.

    lanes: see PlacedRowGroup. items: work items that share a part. name: of the value that holds the parts. apply:
    whether the launch applies the moments; otherwise it writes the moments of the parts.
    """

    moments: MomentsMatch
    lanes: Variable
    name: str
    count: int
    steps: int
    parts: int
    items: int
    rows_per_group: int
    apply: bool = True

    @property
    def texels_of_part(self) -> int:
        """The texels of a part; the last part may have fewer."""
        return ceil(self.steps / self.parts)

    @property
    def parts_shape(self) -> Shape:
        """The shape of the value that holds the parts."""
        return self.count, self.parts * TEXELS_OF_A_PART, LANES


def moments_of(rows: RowGroup) -> MomentsMatch | None:
    """The mean and the squared differences of rows; None if the rows are made from other reductions."""
    if len(rows.reductions) != 2 or not isinstance(rows.last.operation, Load):
        return None
    mean, squares = rows.reductions
    summed, squared = (require_operation(Reduction, node) for node in rows.reductions)
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
    return MomentsMatch(rows, mean, squares) if found else None


def _divides(epilogue: Expression, count: int) -> bool:
    """Returns whether a sum of `count` values becomes their mean."""
    if not isinstance(epilogue, Apply) or epilogue.function not in ("multiply", "divide"):
        return False
    if epilogue.arguments[0] != Argument(0) or not isinstance(epilogue.arguments[1], Literal):
        return False
    number = epilogue.arguments[1].value
    factor = number if epilogue.function == "multiply" else 1 / number if number else 0.0
    return abs(factor * count - 1) < 1e-6


def splittable_moments(graph: Graph, shortest: int) -> frozenset[str]:
    """The reductions over at least `shortest` positions that two launches can share, by the names of their outputs."""
    reductions = [n for n in graph.nodes if isinstance(n.operation, Reduction)]
    if not any(prod(n.operands[0].view.shape[len(n.output.shape) :]) >= shortest for n in reductions):
        return frozenset()
    names = set()
    for rows in find_row_groups(graph):
        found = moments_of(rows)
        if found is not None and prod(rows.window) >= shortest and _has_lanes(rows):
            names |= {found.mean.output.name, found.squares.output.name}
    return frozenset(names)


def _has_lanes(rows: RowGroup) -> bool:
    """Returns whether a texel holds four rows, or four positions of one, if operands have the layout of their rank."""
    ranks = {o.value: len(o.view.source) for o in rows.reductions[0].operands}
    layouts = {name: image_layout(rank) if rank >= 4 else matrix_layout(rank) for name, rank in ranks.items()}
    return lanes_of(rows, layouts) is not None


def find_row_parts(moments: MomentsMatch, placed: PlacedRowGroup, target: Target, name: str) -> RowParts | None:
    """Returns how work groups share the rows; None if one launch is as fast, or if the kernels are impossible."""
    maker = moments_emitter(moments, placed.lanes, placed.output, placed.places, "exact", target)
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
    return RowParts(moments, placed.lanes, name, maker.count, maker.steps, parts, items, beside)


def moments_emitter(
    moments: MomentsMatch, lanes: Variable, output: Placement, placements: Mapping[str, Placement], math_mode: MathMode,
    target: Target,
) -> RowKernelEmitter:
    """Returns the maker of statements for the rows."""
    maker = RowKernelEmitter(moments.rows, lanes, output, placements, math_mode, target, lanes_last=True)
    maker.most_kept = 0
    return maker


def nodes(graph: Graph) -> Iterator[tuple[Node, ...]]:
    """The nodes of rows that are a normalisation."""
    yield from (rows.nodes for rows in find_row_groups(graph) if moments_of(rows))


def place(placing: PlacingContext, given: tuple[Node, ...]) -> LaunchStep[FixedProblem, RowParts] | None:
    """The LaunchStep that applies the moments, after that of the parts' moments. None if one launch is as fast."""
    placed = place_rows(placing, given)
    moments = moments_of(placed.rows) if placed else None
    if placed is None or moments is None:
        return None
    name = placing.graph.unused_name(f"{moments.rows.last.output.name}.parts")
    parts = find_row_parts(moments, placed, placing.target, name)
    if parts is None:
        return None
    value = placing.add_intermediate_value(name, parts.parts_shape, PARTS_LAYOUT)
    output, mean = placing.placements[value.name], moments.mean
    first = LaunchStep(
        (replace(mean, output=value, epilogue=IDENTITY),), output,
        {operand.value: placed.places[operand.value] for operand in mean.operands}, TEMPLATE, FixedProblem(value.name),
        replace(parts, apply=False), f"mean and squared differences in {parts.parts} parts", "reduction",
    )
    placed = replace(placed, places={**placed.places, value.name: output})
    return replace(placed.step(TEMPLATE, parts), before=(first,))


def kernel(step: LaunchStep[FixedProblem, RowParts], emitting: EmittingContext) -> KernelSource:
    """The kernel of one of the two launches."""
    parts, math_mode, output = step.details, emitting.math_mode_of(step.output), step.output
    outside = {name: each for name, each in step.places.items() if name != parts.name}
    maker = moments_emitter(parts.moments, parts.lanes, output, outside, math_mode, emitting.target)
    if parts.apply:
        maker.emitter.accuracy = accuracy_of(math_mode, output.storage)
    maker.emitter.helpers.append(JOIN)
    maker.emitter.lines += [f"float4 {name} = (float4)(0.0f);" for name in NAMES]
    if parts.apply:
        _combine_parts(maker, parts, step.places[parts.name])
        _combine_in_local_memory(maker, parts)
        _apply_moments(maker, parts)
    else:
        _accumulate_part(maker, parts)
        _combine_in_local_memory(maker, parts)
        _write_part(maker, parts, output)
    return _assemble_kernel(maker, parts, output)


TEMPLATE = fixed_template("moments", "generated", nodes, place, kernel)


def _accumulate_part(maker: RowKernelEmitter, parts: RowParts) -> None:
    """A work item's own moments, block by block: differences from the mean of the blocks before it.

    Before the first block, the item's first value stands for the mean.
    """
    emitter, items = maker.emitter, parts.items
    stride = items * BLOCK
    maker.hoist_reads(parts.moments.mean.operands, maker.axes[parts.moments.mean.output.name])
    emitter.lines += [f"const int first = {_first_step(parts)};", f"{{ const int step = min(first, {parts.steps - 1});"]
    with emitter.scope():
        emitter.lines.append(f"mean = {_emit_summand(maker, parts.moments.mean)}; }}")
    emitter.lines += [
        f"for (int block = first; block < last; block += {stride}) {{",
        "float4 number = (float4)(0.0f), sum = (float4)(0.0f), square = (float4)(0.0f);",
        f"const int end = min(block + {stride}, last);",
        f"for (int k = block; k < end; k += {items}) {{ const int step = k;",
    ]
    with emitter.scope():
        emitter.lines.append(f"float4 difference = {_emit_summand(maker, parts.moments.mean)} - mean;")
        window = maker.rows.window[int(maker.lanes.name[1:])] if maker.folded else 0
        inside = "(float4)(1.0f)"
        if window % LANES:
            left = emitter.index(-maker.place[maker.lanes].substitute({LANE: constant(0)}) + window)
            inside = f"keep_lanes((float4)(1.0f), {left})"
            emitter.lines.append(f"difference = keep_lanes(difference, {left});")
        emitter.lines.append(f"number += {inside}; sum += difference; square = fma(difference, difference, square); }}")
    emitter.lines += [
        "const float4 delta = sum / fmax(number, 1.0f);",
        "join_moments(&count, &mean, &squares, number, delta, square - sum * delta); }",
    ]


def _first_step(parts: RowParts) -> str:
    """The text of a work item's first step."""
    return "begin + item" if parts.items > 1 else "begin"


def _emit_summand(maker: RowKernelEmitter, node: Node) -> str:
    """The name of what a reduction adds up, at one step."""
    arguments = {n: maker.read(o, maker.axes[node.output.name]) for n, o in enumerate(node.operands)}
    return maker.emitter.name("float4", maker.emitter.compute(require_operation(Reduction, node).body, arguments))


def _combine_in_local_memory(maker: RowKernelEmitter, parts: RowParts) -> None:
    """Join the moments of the work items in local memory: a tree. Every item gets the result."""
    if parts.items == 1:
        return
    lines, here = maker.emitter.lines, f"item * {parts.rows_per_group} + beside"
    lines += [f"__local float4 all_{name}[{parts.items * parts.rows_per_group}];" for name in NAMES]
    lines += [f"const int here = {here};", *(f"all_{name}[here] = {name};" for name in NAMES)]
    left = parts.items
    while left > 1:
        half = -(-left // 2)
        lines += [
            "barrier(CLK_LOCAL_MEM_FENCE);",
            f"if (item < {left - half}) {{",
            f"const int there = here + {half * parts.rows_per_group};",
            "join_moments(&count, &mean, &squares, all_count[there], all_mean[there] - mean, all_squares[there]);",
            *(f"all_{name}[here] = {name};" for name in NAMES), "}",
        ]
        left = half
    lines += ["barrier(CLK_LOCAL_MEM_FENCE);", *(f"{name} = all_{name}[beside];" for name in NAMES)]


def _write_part(maker: RowKernelEmitter, parts: RowParts, output: Placement) -> None:
    maker.emitter.lines.append("if (item != 0) return;" if parts.items > 1 else "")
    _return_from_repeated_rows(maker, parts)
    for number, name in enumerate(NAMES):
        maker.emitter.store(output, list(_position_of_statistic(parts, variable("part", parts.parts), number)), name)


def _position_of_statistic(parts: RowParts, part: Index, number: int) -> tuple[Index, Index, Index]:
    """The position of a part's count, mean or squares: statistic `number` of NAMES."""
    return variable("row", parts.count), part * TEXELS_OF_A_PART + number, variable_index(LANE)


def _combine_parts(maker: RowKernelEmitter, parts: RowParts, place: Placement) -> None:
    """The moments of the row from those of its parts: each work item joins some of them."""
    emitter = maker.emitter
    start = "item" if parts.items > 1 else "0"
    emitter.lines.append(f"for (int read = {start}; read < {parts.parts}; read += {parts.items}) {{")
    with emitter.scope():
        operand = Operand(parts.name, identity(parts.parts_shape))
        found = []
        for number in range(TEXELS_OF_A_PART):
            position = _position_of_statistic(parts, variable("read", parts.parts), number)
            axes = {Variable(f"i{a}", n): position[a] for a, n in enumerate(parts.parts_shape)}
            found.append(emitter.load(operand, place, axes))
        count, mean, squares = found
        emitter.lines.append(f"join_moments(&count, &mean, &squares, {count}, {mean} - mean, {squares}); }}")


def _apply_moments(maker: RowKernelEmitter, parts: RowParts) -> None:
    """Write a part of the row."""
    emitter, moments = maker.emitter, parts.moments
    _return_from_repeated_rows(maker, parts)
    if maker.folded:
        for half, other in (("xy", "zw"), ("x", "y")):
            emitter.lines.append(
                f"join_moments(&count, &mean, &squares, (float4)(count.{_repeat_lanes(other)}), "
                f"(float4)(mean.{_repeat_lanes(other)}) - mean, (float4)(squares.{_repeat_lanes(other)}));"
            )
            emitter.lines.append("".join(f"{name} = {name}.{_repeat_lanes(half)}; " for name in NAMES))
    maker.results[moments.mean.output.name] = "mean"
    squares = moments.squares
    arguments = {0: "squares"}
    for number, operand in enumerate(squares.epilogue_operands, 1):
        arguments[number] = maker.read(operand, maker.axes[squares.output.name])
    maker.results[squares.output.name] = emitter.name("float4", emitter.compute(squares.epilogue, arguments))
    last = maker.rows.last
    axes = maker.axes[last.output.name]
    maker.hoist_reads(last.all_operands, axes)
    emitter.lines.append(f"for (int k = {_first_step(parts)}; k < last; k += {parts.items}) {{")
    emitter.lines.append("const int step = k;")
    with emitter.scope():
        emitter.store(maker.output, maker.position(), maker.elementwise_text(last, axes))
    emitter.lines.append("}")


def _repeat_lanes(lanes: str) -> str:
    return lanes * (LANES // len(lanes))


def _return_from_repeated_rows(maker: RowKernelEmitter, parts: RowParts) -> None:
    """End the work items whose row another one has."""
    if parts.count % parts.rows_per_group:
        maker.emitter.lines.append(f"if ({_row_index_text(parts)} >= {parts.count}) return;")


def _row_index_text(parts: RowParts) -> str:
    return f"get_group_id(0) * {parts.rows_per_group} + beside"


def _assemble_kernel(maker: RowKernelEmitter, parts: RowParts, output: Placement) -> KernelSource:
    """The kernel of the emitted statements: a work group has `beside` rows and `items` work items for each.

    Both are in one dimension, with the rows next to each other: they read neighbours.
    """
    rows = parts.rows_per_group
    group, groups = rows * parts.items, ceil(parts.count / rows)
    row = _row_index_text(parts)
    if parts.count % rows:
        row = f"min((int)({row}), {parts.count - 1})"
    head = [
        f"const int beside = get_local_id(0) % {rows}, item = get_local_id(0) / {rows};",
        f"const int row = {row}, part = get_global_id(1);",
        f"const int begin = part * {parts.texels_of_part}, last = min(begin + {parts.texels_of_part}, {parts.steps});",
    ]
    return assembled_kernel(maker.emitter, output, head, (groups * group, parts.parts), (group, 1), parts.items > 1)
