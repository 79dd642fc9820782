"""Generates the kernel of rows: reductions over the same rows, and the elementwise work that reads their results.

A work group reads its row once for each reduction, combines its items' parts in local memory, and reads the row again
to write the results. If rows are short, or there are many rows, each work item has its own row. If an item's part is
short, the item reads it once and keeps it in registers. A variance is the sum of squared deviations from the mean, so
there is no cancellation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil, prod
from typing import Any, Literal

from imgconv.graph.expression import MathMode, literal_text
from imgconv.graph.index import Index, Variable, constant, unflatten, variable, variable_index
from imgconv.graph.nodes import Graph, Node, Operand, Reduction
from imgconv.graph.view import Shape
from imgconv.kernels.codegen.access import LANE, Emitter, accuracy_of
from imgconv.kernels.codegen.generated import (
    BLOCK, COMBINE, GROUP, ITEMS_OF_A_GPU, NEUTRAL, assembled_kernel, clamped_id, combine_lanes, tree_reduction,
)
from imgconv.kernels.codegen.row_groups import RowGroup, find_row_groups, named_axes, row_group_of
from imgconv.kernels.layout import LANES, HostBuffer, Layout, Placement
from imgconv.kernels.kernel_source import KernelSource, round_up
from imgconv.kernels.template_interface import (
    D, EmittingContext, FixedProblem, LaunchStep, PlacingContext, Template, describe, fixed_template, require_operation,
)
from imgconv.kernels.target import LARGE_GPU, Target

# Texels of its row that a work item keeps: in registers, on CPUs in the cache. Mesa's Adreno compiler unrolls no more.
MOST_KEPT, MOST_KEPT_ON_SMALL_GPU = {"gpu": 16, "cpu": 64}, 4
SMALLEST_GROUP, LARGEST_GROUP = 32, 256
ROWS_OF_A_GROUP = {"gpu": 64, "cpu": 8}  # if each item has a row of its own
# The most steps of an item. A longer part has left a CPU's cache before it is walked again; on a GPU it leaves compute
# units without a row.
LONGEST_WALK = {"gpu": 32, "cpu": 8192}


def nodes(graph: Graph) -> Iterator[tuple[Node, ...]]:
    yield from (rows.nodes for rows in find_row_groups(graph))


@dataclass(frozen=True)
class PlacedRowGroup:
    """Rows whose operands are in texels that a kernel can read.

    lanes: the variable that runs along a texel's lanes. output: where the last node's result is written. places: where
    each operand is that is not computed by a node of the rows.
    """

    rows: RowGroup
    lanes: Variable
    output: Placement
    places: Mapping[str, Placement]

    def step(self, template: Template[FixedProblem, Any, D], details: D) -> LaunchStep[FixedProblem, D]:
        """The LaunchStep of one launch that computes the rows."""
        return LaunchStep(
            self.rows.nodes, self.output, self.places, template, FixedProblem(self.rows.last.output.name), details,
            ", ".join(map(describe, self.rows.nodes)), "reduction",
            values=tuple(node.output.name for node in self.rows.nodes),
        )


def place_rows(placing: PlacingContext, given: tuple[Node, ...]) -> PlacedRowGroup | None:
    """Places the operands and the result of rows.

    Returns None if a kernel would read its own result, or if a texel holds neither four rows nor four positions of one
    row.
    """
    rows = row_group_of(given)
    if rows is None:
        return None
    output, places = placing.place_result(rows.last.output), dict[str, Placement]()
    for node in rows.nodes:
        outside = tuple(o for o in node.all_operands if o.value not in rows.members)
        places |= placing.operand_places(replace(node, operands=outside, epilogue_operands=()), output)
    in_textures = {name: each.layout for name, each in places.items() if not isinstance(each.storage, HostBuffer)}
    lanes = lanes_of(rows, in_textures)
    if lanes is None or any(each.storage == output.storage for each in places.values()):
        return None
    return PlacedRowGroup(rows, lanes, output, places)


def place(placing: PlacingContext, given: tuple[Node, ...]) -> LaunchStep[FixedProblem, PlacedRowGroup] | None:
    """The LaunchStep of rows. None if they are few and long, so that a launch for each node is faster."""
    placed, target = place_rows(placing, given), placing.target
    if placed is None:
        return None
    maker = RowKernelEmitter(placed.rows, placed.lanes, placed.output, placed.places, "exact", target)
    images = len({each.storage for each in placed.places.values()}) + 1
    if not maker.stores_texels() or images > target.max_read_images:
        return None
    if maker.walk > LONGEST_WALK[target.kind] and (target.kind == "cpu" or maker.count < target.compute_units):
        return None
    return placed.step(TEMPLATE, placed)


def kernel(step: LaunchStep[FixedProblem, PlacedRowGroup], emitting: EmittingContext) -> KernelSource:
    rows, lanes, math_mode = step.details.rows, step.details.lanes, emitting.math_mode_of(step.output)
    return RowKernelEmitter(rows, lanes, step.output, step.places, math_mode, emitting.target).emit_kernel()


TEMPLATE = fixed_template("rows", "generated", nodes, place, kernel)


def lanes_of(rows: RowGroup, layouts: Mapping[str, Layout]) -> Variable | None:
    """The variable that runs along a texel's lanes in what the first reduction reads; None if there is none.

    If a texel holds a single channel, it is a variable of size 1. layouts: of the values that lie in textures.
    """
    first = rows.reductions[0]
    for operand in first.operands:
        layout = layouts.get(operand.value)
        if layout is None or layout.packed is None:
            continue
        if layout.channels(operand.view.source) == 1:
            return Variable("lane of one", 1)
        channel = operand.view.index[layout.packed].substitute(rows.axes[first.output.name])
        for atom, coefficient in channel.terms:
            rest = channel - Index(((atom, 1),), 0)
            if isinstance(atom, Variable) and coefficient == 1 and rest % LANES == constant(0):
                return atom
    return None


def _group_size(steps: int, rows: int, target: Target) -> int:
    """Returns how many work items share a row: one if rows are short, and on CPUs, because a barrier costs a loop
    there.

    On a desktop GPU the items of a wave read neighbouring elements of a row. On a phone's GPU as many items share a row
    as keep the device busy.
    """
    steps_of_an_item = MOST_KEPT[target.kind] // 2
    if target.kind == "cpu" or steps <= steps_of_an_item:
        return 1
    is_large, most = target.compute_units >= LARGE_GPU, min(LARGEST_GROUP, target.max_work_group)
    group = min(SMALLEST_GROUP, most) if is_large else 1
    while 2 * group <= most and steps > group * steps_of_an_item:
        if not is_large and rows * group >= ITEMS_OF_A_GPU:
            break
        group *= 2
    return group


class RowKernelEmitter:
    """The text of one kernel.

    count: rows, or quads of them; steps: texels of a row; group: items that share a row; walk: steps of an item.
    lanes_last: whether the axis along the lanes, if it is in the row, runs fastest, so that steps read neighbours.
    """

    def __init__(
        self, rows: RowGroup, lanes: Variable, output: Placement, placements: Mapping[str, Placement],
        math_mode: MathMode, target: Target, lanes_last: bool = False,
    ) -> None:
        self.rows, self.output, self.placements, self.target = rows, output, placements, target
        self.emitter = Emitter(math_mode)
        self.folded = lanes.name.startswith("r")  # the lanes are positions of one row, not rows
        self.lanes = lanes
        row_shape, step_shape = self._shape_in_quads("o", rows.shape), self._shape_in_quads("r", rows.window)
        self.count, self.steps = prod(row_shape), prod(step_shape)
        self.group = _group_size(self.steps, self.count, target)
        self.walk = ceil(self.steps / self.group)
        small = target.kind == "gpu" and target.compute_units < LARGE_GPU
        self.most_kept = MOST_KEPT_ON_SMALL_GPU if small else MOST_KEPT[target.kind]
        self.place = self._axes_at("o", rows.shape, unflatten(variable("row", self.count), row_shape))
        order = sorted(range(len(step_shape)), key=lambda a: lanes_last and lanes.name == f"r{a}")
        walked = unflatten(variable("step", self.steps), tuple(step_shape[a] for a in order))
        step = tuple(walked[order.index(a)] for a in range(len(order)))
        self.place |= self._axes_at("r", rows.window, step)
        self.axes = {
            name: {v: e.substitute(self.place) for v, e in axes.items()} for name, axes in rows.axes.items()
        }
        self.results: dict[str, str] = {}
        self.kept: dict[object, str] = {}

    def _shape_in_quads(self, letter: Literal["o", "r"], shape: Shape) -> Shape:
        return tuple(
            ceil(n / LANES) if self.lanes.name == f"{letter}{a}" else n for a, n in enumerate(shape)
        )

    def _axes_at(self, letter: Literal["o", "r"], shape: Shape, position: tuple[Index, ...]) -> dict[Variable, Index]:
        found = {Variable(f"{letter}{a}", n): position[a] for a, n in enumerate(shape)}
        if self.lanes in found:
            found[self.lanes] = found[self.lanes] * LANES + variable_index(LANE)
        return found

    def position(self) -> list[Index]:
        """The position in the last node's result that a row and step write."""
        last = self.rows.last.output
        return [self.axes[last.name][Variable(f"i{a}", n)] for a, n in enumerate(last.shape)]

    def stores_texels(self) -> bool:
        """Returns whether the lanes that a step makes are one texel, or one element, of the output."""
        packed, position = self.output.layout.packed, self.position()
        if any(LANE in e.variables() for a, e in enumerate(position) if a != packed):
            return False
        if packed is None or self.output.layout.channels(self.output.shape) == 1:
            return True  # all lanes hold the one number
        first = position[packed].substitute({LANE: constant(0)})
        return position[packed] - first == variable_index(LANE) and first % LANES == constant(0)

    def emit_kernel(self) -> KernelSource:
        emitter, last = self.emitter, self.rows.last
        for node in self.rows.reductions:
            self._reduce(node)
        emitter.accuracy = accuracy_of(emitter.math_mode, self.output.storage)
        if self.group > 1 and self.count % self._rows_of_group():
            emitter.lines.append(f"if (get_global_id(1) >= {self.count}) return;")
        if isinstance(last.operation, Reduction):
            emitter.lines.append("if (item != 0) return;" if self.group > 1 else "")
            emitter.store(self.output, self.position(), self.results[last.output.name])
        else:
            axes = self.axes[last.output.name]
            self.hoist_reads(last.all_operands, axes)
            self._open_loop()
            with emitter.scope():
                emitter.store(self.output, self.position(), self.elementwise_text(last, axes))
            self._close_loop()
        return self._assemble_kernel()

    def _assemble_kernel(self) -> KernelSource:
        """Returns the kernel of what was emitted, with the rows divided among work groups."""
        group = self.group
        if group > 1:
            beside = self._rows_of_group()
            size, local = (group, round_up(self.count, beside)), (group, beside)
            head = ["const int item = get_local_id(0), texel = get_local_id(1);"]
            head.append(f"const int row = {clamped_id(1, self.count, size[1])};")
            head.append(f"__local float4 parts[{group * beside}];")
        else:
            beside = min(ROWS_OF_A_GROUP[self.target.kind], self.count, self.target.max_work_group)
            size, local = (round_up(self.count, beside), 1), (beside, 1)
            head = ["const int row = get_global_id(0);"]
            head += [f"if (row >= {self.count}) return;"] if size[0] != self.count else []
        head += [f"float4 {name}[{self.walk}];" for name in self.kept.values()]
        return assembled_kernel(self.emitter, self.output, head, size, local, group > 1)

    def _rows_of_group(self) -> int:
        """Rows of a work group if items share rows: more than one if every compute unit still has several groups."""
        most = min(GROUP, self.target.max_work_group) // self.group
        return max(1, min(self.count // (4 * self.target.compute_units), most))

    # Loops

    def _open_loop(self) -> None:
        """Opens the loop over an item's steps: k counts them."""
        shared = self.group > 1
        # Intel's CPU compiler takes 20 seconds for a softmax whose loops are unrolled by 4.
        few = "#pragma unroll 4" if self.target.kind == "gpu" else ""
        self.emitter.lines += [
            "#pragma unroll" if self.walk <= self.most_kept else few,
            f"for (int k = 0; k < {self.walk}; k++) {{",
            f"const int step = k{f' * {self.group} + item' if shared else ''};",
            f"if (step < {self.steps}) {{" if self.walk * self.group != self.steps else "{",
        ]

    def _close_loop(self, after: str = "") -> None:
        """Closes the loop. after: what is done at the end of each step, steps past the row's end included."""
        self.emitter.lines += ["}", after, "}"]

    def _reduce(self, node: Node) -> None:
        """Emits one reduction over the row, and its result for the row."""
        emitter, operation, name = self.emitter, require_operation(Reduction, node), node.output.name
        kind, total = operation.kind, f"total{len(self.results)}"
        neutral = literal_text(NEUTRAL[kind])
        self.hoist_reads(node.operands, self.axes[name])
        emitter.lines.append(f"float4 {total} = (float4)({neutral});")
        blocks = kind == "sum" and self.walk > 2 * BLOCK
        part = f"{total}_part" if blocks else total
        if blocks:
            emitter.lines.append(f"float4 {part} = (float4)(0.0f);")
        self._open_loop()
        with emitter.scope():
            arguments = {n: self.read(o, self.axes[name]) for n, o in enumerate(node.operands)}
            value = emitter.compute(operation.body, arguments)
            past = self.rows.window[int(self.lanes.name[1:])] if self.folded else 0
            if past % LANES:
                first = self.place[self.lanes].substitute({LANE: constant(0)})
                value = f"fill_lanes({value}, {emitter.index(-first + past)}, {neutral})"
            emitter.lines.append(f"{part} = {COMBINE[kind].format(part, value)};")
        joined = f"if (k % {BLOCK} == {BLOCK - 1}) {{ {total} += {part}; {part} = (float4)(0.0f); }}"
        self._close_loop(joined if blocks else "")
        if blocks:
            emitter.lines.append(f"{total} += {part};")
        if self.group > 1:
            emitter.lines += tree_reduction(kind, self.group, self._rows_of_group(), total)
            emitter.lines.append("barrier(CLK_LOCAL_MEM_FENCE);")
        result = combine_lanes(emitter, kind, total) if self.folded else total
        arguments = {0: result}
        for number, operand in enumerate(node.epilogue_operands, 1):
            arguments[number] = self.read(operand, self.axes[name])
        self.results[name] = emitter.name("float4", emitter.compute(node.epilogue, arguments))

    # Values

    def read(self, operand: Operand, axes: Mapping[Variable, Index]) -> str:
        """The name of a float4 with the operand at the four lanes."""
        member = self.rows.members.get(operand.value)
        if member is None:
            return self._load(operand, axes)
        if isinstance(member.operation, Reduction):
            return self.results[operand.value]
        position = [e.substitute(axes) for e in operand.view.index]
        return self.emitter.name("float4", self.elementwise_text(member, named_axes(member.output.shape, position)))

    def elementwise_text(self, node: Node, axes: Mapping[Variable, Index]) -> str:
        """The text of an elementwise node's result."""
        arguments = {number: self.read(operand, axes) for number, operand in enumerate(node.all_operands)}
        return self.emitter.compute(node.epilogue, arguments)

    def _load(self, operand: Operand, axes: Mapping[Variable, Index]) -> str:
        """The text that reads a texture. It is read once for each step if the reductions can keep it."""
        bounds = tuple((b.index.substitute(axes), b.low, b.high) for b in operand.view.bounds)
        key = (operand.value, tuple(e.substitute(axes) for e in operand.view.index), bounds, operand.fill)
        if key in self.kept:
            return f"{self.kept[key]}[k]"
        text = self.emitter.load(operand, self.placements[operand.value], axes)
        room = (len(self.kept) + 1) * self.walk <= self.most_kept
        if room and len(self.results) < len(self.rows.reductions) and depends_on_step(operand, axes):
            self.kept[key] = f"kept{len(self.kept)}"
            self.emitter.lines.append(f"{self.kept[key]}[k] = {text};")
        return text

    def hoist_reads(self, operands: Iterable[Operand], axes: Mapping[Variable, Index]) -> None:
        """Reads, before a loop, what is the same in all of its steps."""
        for operand in operands:
            if operand.value not in self.rows.members and not depends_on_step(operand, axes):
                self.read(operand, axes)


def depends_on_step(operand: Operand, axes: Mapping[Variable, Index]) -> bool:
    """Returns whether what is read depends on the step."""
    read = (*operand.view.index, *(b.index for b in operand.view.bounds))
    return any(v.name == "step" for e in read for v in e.substitute(axes).variables())
