"""Generates kernels for overlapping windows (pooling): a work item computes several neighbouring outputs.

    outputs of an item     0   1   2   3           window of 3 columns, stride 1
    columns read         0   1   2   3   4   5

The work item loops over the other axes of the window. At each position it reads the columns once and updates the
maximum (or sum ...) of each column. An output is the maximum of its columns.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, prod

from imgconv.graph.expression import literal_text
from imgconv.graph.index import Index, Variable, constant, variable, variable_index
from imgconv.graph.nodes import Node, Reduction
from imgconv.kernels.codegen.access import LANE, Emitter
from imgconv.kernels.codegen.generated import (
    COMBINE, NEUTRAL, choose_reduction_work_group, grid_kernel, grid_of, window_of,
)
from imgconv.kernels.kernel_source import KernelSource
from imgconv.kernels.layout import Placement
from imgconv.kernels.target import Target
from imgconv.kernels.template_interface import (
    EmittingContext, FixedProblem, LaunchStep, PlacingContext, fixed_template, nodes_with, require_operation, step_of,
)

BLOCKS = (2, 4, 8)  # outputs of a work item along one axis
MOST_COLUMNS = 20  # each is a float4 in registers
MOST_TAPS = 16  # of the window, along the axis whose reads are shared
ITEMS_OF_A_UNIT = {"gpu": 64, "cpu": 4}  # work items that keep a compute unit busy
WORTH_IT = 0.85  # the most reads, as a fraction of those without sharing


@dataclass(frozen=True)
class ReadSharing:
    """`block` outputs along `axis` share `columns` reads along `window_axis`."""

    axis: int
    window_axis: int
    block: int
    columns: int


def place(placing: PlacingContext, given: tuple[Node, ...]) -> LaunchStep[FixedProblem, ReadSharing] | None:
    """The LaunchStep of a reduction over overlapping windows. None if sharing reads is not profitable."""
    (node,) = given
    output = placing.place_result(node.output)
    sharing = find_read_sharing(node, output, placing.target)
    return None if sharing is None else step_of(
        placing, node, output, TEMPLATE, FixedProblem(node.output.name), sharing
    )


def kernel(step: LaunchStep[FixedProblem, ReadSharing], emitting: EmittingContext) -> KernelSource:
    (node,), output, placements, sharing, target = step.nodes, step.output, step.places, step.details, emitting.target
    operation = require_operation(Reduction, node)
    emitter = Emitter.storing(emitting.math_mode_of(output), output.storage)
    shape, window = output.shape, window_of(node)
    blocks = tuple(ceil(n / sharing.block) if a == sharing.axis else n for a, n in enumerate(shape))
    grid, x, y = grid_of(output.layout, blocks, target.kind == "gpu")
    position = list(output.layout.position(blocks, x, y, variable_index(LANE)))
    first = position[sharing.axis] * sharing.block
    places = [(*position[: sharing.axis], first + b, *position[sharing.axis + 1 :]) for b in range(sharing.block)]
    axes = [{Variable(f"i{a}", n): place[a] for a, n in enumerate(shape)} for place in places]

    columns = _emit_columns(emitter, node, placements, axes, sharing)
    for number, (place, own) in enumerate(zip(places, axes, strict=True)):
        total = columns[number, 0]
        for tap in range(1, window[sharing.window_axis]):
            total = COMBINE[operation.kind].format(total, columns[number, tap])
        ragged = shape[sharing.axis] % sharing.block and number
        emitter.lines.append(f"if ({emitter.index(place[sharing.axis])} < {shape[sharing.axis]}) {{" if ragged else "{")
        with emitter.scope():
            arguments = {0: emitter.name("float4", total)}
            for argument, operand in enumerate(node.epilogue_operands, 1):
                arguments[argument] = emitter.load(operand, placements[operand.value], own)
            emitter.store_result(node.epilogue, arguments, output, list(place))
        emitter.lines.append("}")
    return grid_kernel(emitter, output, grid, None, target)


TEMPLATE = fixed_template("windows", "generated", nodes_with(Reduction), place, kernel)


def find_read_sharing(node: Node, output: Placement, target: Target) -> ReadSharing | None:
    """The sharing with the fewest reads. None if none pays, or if too few work items would be left."""
    if not isinstance(node.operation, Reduction) or node.operation.kind not in COMBINE:
        return None
    shape, window = output.shape, window_of(node)
    grid = output.layout.grid(shape)
    texels = prod(grid)
    if choose_reduction_work_group(grid, window, target):
        return None
    least, found = WORTH_IT, None
    for axis, (number, taps), block in itertools.product(range(len(shape)), enumerate(window), BLOCKS):
        few = texels / block < ITEMS_OF_A_UNIT[target.kind] * target.compute_units
        if axis == output.layout.packed or not 1 < taps <= MOST_TAPS or shape[axis] < block or few:
            continue
        columns = len(set(_indices_read(node, axis, number, block).values()))
        reads = ceil(shape[axis] / block) * columns / (shape[axis] * taps)
        if columns <= MOST_COLUMNS and reads < least:
            least, found = reads, ReadSharing(axis, number, block, columns)
    return found


def _indices_read(node: Node, axis: int, number: int, block: int) -> dict[tuple[int, int], tuple[Index, ...]]:
    """The indices read for each output of a block and each tap. Equal expressions are equal reads."""
    rank, shape, window = len(node.output.shape), node.output.shape, window_of(node)
    first = variable(f"i{axis}", ceil(shape[axis] / block)) * block
    along, across = Variable(f"i{axis}", shape[axis]), Variable(f"i{rank + number}", window[number])
    used = [e for o in node.operands for e in (*o.view.index, *(b.index for b in o.view.bounds))]
    return {
        (b, tap): tuple(e.substitute({along: first + b, across: constant(tap)}) for e in used)
        for b in range(block) for tap in range(window[number])
    }


def _emit_columns(
    emitter: Emitter, node: Node, placements: Mapping[str, Placement], axes: list[dict[Variable, Index]],
    sharing: ReadSharing,
) -> dict[tuple[int, int], str]:
    """Emits the loops over the other window axes. Returns the column's name for each output and tap."""
    operation = require_operation(Reduction, node)
    rank, window = len(node.output.shape), window_of(node)
    start, opened = len(emitter.lines), 0
    places: dict[Variable, Index] = {}
    for number, taps in enumerate(window):
        if number != sharing.window_axis:
            places[Variable(f"i{rank + number}", taps)] = variable(f"r{number}", taps)
            if taps > 1:
                emitter.lines.append(f"for (int r{number} = 0; r{number} < {taps}; r{number}++) {{")
                opened += 1
    across = Variable(f"i{rank + sharing.window_axis}", window[sharing.window_axis])
    columns: dict[tuple[int, int], str] = {}
    values: dict[tuple[str, ...], str] = {}
    with emitter.scope():
        for output, tap in itertools.product(range(sharing.block), range(across.size)):
            at = {**axes[output], **places, across: constant(tap)}
            loads = tuple(emitter.load(o, placements[o.value], at) for o in node.operands)
            if loads not in values:
                values[loads] = f"column{len(values)}"
                value = emitter.compute(operation.body, dict(enumerate(loads)))
                combined = COMBINE[operation.kind].format(values[loads], value)
                emitter.lines.append(f"{values[loads]} = {combined};")
            columns[output, tap] = values[loads]
    emitter.lines.append("}" * opened)
    neutral = literal_text(NEUTRAL[operation.kind])
    emitter.lines[start:start] = [f"float4 {name} = (float4)({neutral});" for name in values.values()]
    return columns
