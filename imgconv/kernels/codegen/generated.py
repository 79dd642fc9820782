"""Generates kernels for elementwise operators, movement, reduction, pooling, resizing and copies.

    output[i] = epilogue(reduce over r of body(load(view(i, r)) ...))

A work item computes one texel: it loops over the window r, reads four lanes at a time and reduces them. In a reduction
along the packed axis, the four lanes are elements of the window, not of the output. If there are few output texels and
a long window, a work group computes a few neighbouring texels together: each item reduces a part of one texel's window,
then the parts are combined in local memory.

    group of 2 texels, a window of 4x6 in parts of 2x3     texel 0:  a b c a b c      texel 1:  g h i g h i
                                                                     d e f d e f                j k l j k l
                                                                     a b c a b c                g h i g h i
                                                                     d e f d e f                j k l j k l
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, isqrt, prod

from imgconv.graph.expression import MathMode, literal_text
from imgconv.graph.index import Index, Variable, constant, flatten, unflatten, variable, variable_index
from imgconv.graph.nodes import IDENTITY, Gather, Load, Node, Reduction, ReductionKind, index_operands_of
from imgconv.graph.view import Shape
from imgconv.kernels.codegen.access import LANE, Emitter, KernelArgument
from imgconv.kernels.kernel_source import KernelSource, group_attribute, round_up
from imgconv.kernels.layout import LANES, HostBuffer, Layout, Placement, Texture
from imgconv.kernels.target import Target
from imgconv.kernels.template_interface import (
    EmittingContext, FixedProblem, LaunchKind, LaunchStep, PlacingContext, describe, fixed_template, nodes_with,
    operation_kind,
)

NEUTRAL = {"sum": 0.0, "max": float("-inf"), "argmax": float("-inf"), "min": float("inf"), "product": 1.0}
COMBINE = {"sum": "{0} + {1}", "max": "fmax({0}, {1})", "min": "fmin({0}, {1})", "product": "{0} * {1}"}
FEWEST_PARTS, PARTS_OF_CPU = 16, 64  # of a window that a work group shares: at least, on a GPU; about, on a CPU
MOST_STEPS = 8  # of a work item, if more work items would help
ITEMS_OF_A_UNIT, ITEMS_OF_A_GPU = 64, 2048  # work items that keep it busy
# Work items of a group, and adjacent texels to put into one group, because they share a line of the cache.
GROUP, LARGEST_GROUP, NEIGHBOURS = 128, 256, 4
UNROLLED = 16  # the most iterations of a loop that the compiler is asked to unroll
BLOCK = 64  # the fewest terms of a sum that are added up before they join the rest, so that rounding stays small
QUADS_OF_AN_ITEM = 4  # that one work item computes, if this makes addresses and tests constant
LONG_WALK = 64  # steps of a work item that make a sum long
WAVE = 128  # work items: Adreno's wave, and a multiple of other GPUs' waves


@dataclass(frozen=True)
class WorkGroup:
    """A work group that computes `texels` neighbouring texels. parts: of each window, along each of its axes.

    along: whether the texels are neighbours in x (0) or y (1). count: texels of the grid along this axis.
    """

    texels: int
    parts: tuple[int, ...]
    along: int
    count: int

    @property
    def items(self) -> int:
        """Work items that share a texel."""
        return prod(self.parts)

    @property
    def return_statements(self) -> list[str]:
        """Statements that end the work items that have nothing to write, after the parts are combined."""
        past = [f"if (get_global_id(0) >= {self.count}) return;"] if self.count % self.texels else []
        return [*past, "if (item != 0) return;"]


def place(placing: PlacingContext, given: tuple[Node, ...]) -> LaunchStep[FixedProblem, None]:
    """The LaunchStep of a node with a Load, a Reduction or a Gather."""
    (node,) = given
    output = placing.place_result(node.output)
    moves = isinstance(node.operation, Load) and node.epilogue == IDENTITY
    kind: LaunchKind = "copy" if moves else "compute"
    if moves and isinstance(output.storage, HostBuffer):
        kind = "unpack"
    elif isinstance(node.operation, Load) and any(map(placing.reads_input_buffer, node.all_operands)):
        kind = "pack"
    reason = f"{node.output.name} is read in another order than it is made" if kind == "copy" else ""
    places = placing.operand_places(node, output)
    return generated_step(node, output, places, kind, describe(node), reason, (node.output.name,))


def generated_step(
    node: Node, output: Placement, places: Mapping[str, Placement], kind: LaunchKind, text: str, reason: str = "",
    values: tuple[str, ...] = (),
) -> LaunchStep[FixedProblem, None]:
    """The LaunchStep of a node that is placed."""
    problem = FixedProblem(node.output.name)
    return LaunchStep(
        (node,), output, places, TEMPLATE, problem, None, text, operation_kind(node), kind, reason, values
    )


def kernel(step: LaunchStep[FixedProblem, None], emitting: EmittingContext) -> KernelSource:
    return generate(step.nodes[0], step.output, step.places, emitting.math_mode_of(step.output), emitting.target)


TEMPLATE = fixed_template("generated", "generated", nodes_with(Load, Reduction, Gather), place, kernel)


def generate(
    node: Node, output: Placement, placements: Mapping[str, Placement], math_mode: MathMode, target: Target
) -> KernelSource:
    """Returns the kernel of a node with a Load, a Reduction or a Gather.

    output: where the result is written. placements: where each operand is, by name. math_mode: of its functions. On a
    CPU the driver chooses the local size.
    """
    gpu = target.kind == "gpu"
    emitter = Emitter.storing(math_mode, output.storage)
    reduction = node.operation.reduction if isinstance(node.operation, Gather) else node.operation
    window = window_of(node) if isinstance(reduction, Reduction) else ()
    folded = _packed_axis(node, output, placements) if window else None
    steps = [ceil(n / LANES) if a == folded else n for a, n in enumerate(window)]
    group = choose_reduction_work_group(output.layout.grid(output.shape), steps, target) if window else None
    # What neighbours of a row read or write in a buffer of NCHW is adjacent; what quads do is planes apart.
    rows_first = not gpu and (isinstance(output.storage, HostBuffer) or _reads_buffer(node, placements))
    grid, x, y = grid_of(output.layout, output.shape, (gpu or rows_first) and group is None)
    if rows_first and len(grid) == 3:
        grid = grid[1], grid[0], grid[2]
    quads = [x]
    if gpu and not window and len(grid) == 3 and grid[0].size <= QUADS_OF_AN_ITEM and _reads_buffer(node, placements):
        quads = [x.substitute({grid[0]: constant(number)}) for number in range(grid[0].size)]
        grid = grid[1:]
    for x in quads:
        lane = constant(0) if folded is not None else variable_index(LANE)
        position = output.layout.position(output.shape, x, y, lane)
        axes = {Variable(f"i{a}", n): position[a] for a, n in enumerate(output.shape)}
        if isinstance(reduction, Reduction):
            result = _emit_reduction(emitter, node, reduction, placements, axes, steps, folded, group)
        elif isinstance(node.operation, Gather):
            result = _emit_gather(emitter, node, placements, axes)
        else:
            result = emitter.load(node.operands[0], placements[node.operands[0].value], axes)
        arguments = {0: result}
        for number, operand in enumerate(node.epilogue_operands, 1):
            arguments[number] = emitter.load(operand, placements[operand.value], axes)
        emitter.store_result(node.epilogue, arguments, output, list(position))
    # Texels are vectors already. But lanes hide that in a long sum each addition waits for the one before.
    return grid_kernel(emitter, output, grid, group, target, prod(steps) > LONG_WALK)


def _reads_buffer(node: Node, placements: Mapping[str, Placement]) -> bool:
    """Returns whether the node reads a buffer: single elements, each with a test, for which GPUs branch."""
    return any(isinstance(placements[operand.value].storage, HostBuffer) for operand in node.all_operands)


def grid_of(layout: Layout, shape: Shape, split: bool) -> tuple[tuple[Variable, ...], Index, Index]:
    """A variable for each dimension of the global size, and x and y of a work item's texel in these variables.

    split: whether columns and quads are separate dimensions. A division takes about twenty slots in Mesa's a630 code.
    """
    width, height = layout.grid(shape)
    quads, y = layout.quads(shape), Variable("y", height)
    if not split or quads in (1, width):
        x = Variable("x", width)
        return (x, y), variable("x", width), variable("y", height)
    quad, column = Variable("quad", quads), Variable("column", width // quads)
    return (quad, column, y), variable("column", column.size) * quads + variable("quad", quads), variable("y", height)


def _emit_gather(
    emitter: Emitter, node: Node, placements: Mapping[str, Placement], axes: Mapping[Variable, Index]
) -> str:
    """Emits the loads of a gather. Returns the name of the float4."""
    table, operands = node.operands[0], index_operands_of(node)
    rank = len(operands[0].view.shape)
    indices = {
        Variable(f"i{rank + number}", table.view.shape[rank + number]): emitter.load(o, placements[o.value], axes)
        for number, o in enumerate(operands)
    }
    read = [e for o in operands for e in (*o.view.index, *(bound.index for bound in o.view.bounds))]
    uniform = not any(LANE in e.substitute(axes).variables() for e in read)
    return emitter.gather(table, placements[table.value], axes, indices, uniform)


def _emit_loads(
    emitter: Emitter, node: Node, placements: Mapping[str, Placement], axes: Mapping[Variable, Index]
) -> dict[int, str]:
    """Emits the loads of a reduction's arguments. Returns the name of each, by its number in the body."""
    operands, arguments = node.operands, dict[int, str]()
    if isinstance(node.operation, Gather):
        operands = operands[1 + len(index_operands_of(node)) :]
        arguments = {0: _emit_gather(emitter, node, placements, axes)}
    for operand in operands:
        arguments[len(arguments)] = emitter.load(operand, placements[operand.value], axes)
    return arguments


def window_of(node: Node) -> Shape:
    """The shape that a reduction runs over."""
    return node.operands[-1].view.shape[len(node.output.shape) :]


def choose_reduction_work_group(grid: Shape, steps: Sequence[int], target: Target) -> WorkGroup | None:
    """Returns how work groups share the windows of output texels; None if one work item per texel keeps the device
    busy.

    grid: output texels along x and y. steps: steps of a window along its axes. Each work item has at least two steps,
    and up to MOST_STEPS if possible: more work items would only wait for each other.
    """
    (width, height), total, compute_units = grid, prod(steps), target.compute_units
    fewest, enough = PARTS_OF_CPU, compute_units
    if target.kind == "gpu":
        fewest, enough = FEWEST_PARTS, max(ITEMS_OF_A_UNIT * compute_units, ITEMS_OF_A_GPU)
    if total < 2 * fewest or width * height >= enough:
        return None
    along = int(width == 1)
    count = grid[along]
    if target.kind == "cpu":
        most = min(PARTS_OF_CPU, target.max_work_group)
        return WorkGroup(1, _split_window(steps, most, most), along, count)

    def neighbours_in_group(most: int) -> int:
        """The most neighbours in a group such that every compute unit has a group and few work items are idle."""
        most = min(most, width * height // compute_units)
        return max(n for n in (1, 2, 4, 8) if n == 1 or (n <= most and round_up(count, n) <= 1.15 * count))

    largest = min(LARGEST_GROUP, target.max_work_group)
    most = largest // neighbours_in_group(NEIGHBOURS)
    wanted = min(ceil(total / MOST_STEPS), ceil(enough / (width * height)))
    parts = _split_window(steps, min(max(wanted, fewest), most), most)
    return WorkGroup(neighbours_in_group(max(NEIGHBOURS, min(GROUP, largest) // prod(parts))), parts, along, count)


def _split_window(steps: Sequence[int], wanted: int, most: int) -> tuple[int, ...]:
    """The parts along each axis of the window: about `wanted` in total, first axes first."""
    parts: list[int] = []
    for count in steps:
        rest = min(round(wanted / prod(parts)), most // prod(parts))
        each = ceil(count / min(count, max(1, rest)))
        parts.append(ceil(count / each))
    return tuple(parts)


def _packed_axis(
    node: Node, output: Placement, placements: Mapping[str, Placement]
) -> int | None:
    """The window axis along the operands' lanes. None if there is none or the output has several channels."""
    if output.layout.channels(output.shape) > 1 or isinstance(node.operation, Gather):
        return None
    window, rank = window_of(node), len(node.output.shape)
    found = set()
    for operand in node.operands:
        layout = placements[operand.value].layout
        if layout.packed is None or not isinstance(placements[operand.value].storage, Texture):
            continue
        channel = operand.view.index[layout.packed]
        for axis, size in enumerate(window):
            along = variable(f"i{rank + axis}", size)
            rest = channel - along
            # The first channel of a texel must be the first of the window's, or of a later texel's.
            if size > 1 and not along.variables() & rest.variables() and rest % LANES == constant(0):
                found.add(axis)
    return found.pop() if len(found) == 1 else None


def _emit_reduction(
    emitter: Emitter, node: Node, reduction: Reduction, placements: Mapping[str, Placement],
    axes: Mapping[Variable, Index], steps: list[int], folded: int | None, group: WorkGroup | None,
) -> str:
    """Emits the loops over the window. Returns the name of the reduced float4."""
    window, rank = window_of(node), len(node.output.shape)
    neutral = literal_text(NEUTRAL[reduction.kind])
    emitter.lines.append(f"float4 sum = (float4)({neutral});")
    if reduction.kind == "argmax":
        emitter.lines.append("float4 at = (float4)(0.0f);")
    walk, total, ends = _open_window_loops(emitter, steps, group, reduction.kind)
    places = {Variable(f"i{rank + a}", n): walk[a] for a, n in enumerate(window)}
    if folded is not None:
        places[Variable(f"i{rank + folded}", window[folded])] = walk[folded] * LANES + variable_index(LANE)
    emitter.clear_names()
    arguments = _emit_loads(emitter, node, placements, {**axes, **places})
    value = emitter.compute(reduction.body, arguments)
    if folded is not None and window[folded] % LANES:
        left = emitter.index(walk[folded] * -LANES + window[folded])
        value = f"fill_lanes({value}, {left}, {neutral})"
    position = ""
    if reduction.kind == "argmax":
        flat = flatten([places.get(Variable(f"i{rank + a}", n), constant(0)) for a, n in enumerate(window)], window)
        lanes = [emitter.index(flat.substitute({LANE: constant(number)})) for number in range(LANES)]
        value, position = emitter.name("float4", value), f"(float4)({', '.join(lanes)})"
    emitter.lines += [*_combine_statements(reduction.kind, total, "at", value, position), ends]
    emitter.clear_names()
    if group is not None:
        arrays = ("parts", "places") if reduction.kind == "argmax" else ("parts",)
        emitter.lines += [f"__local float4 {name}[{group.items * group.texels}];" for name in arrays]
        emitter.lines += tree_reduction(reduction.kind, group.items, group.texels)
        emitter.lines += group.return_statements
    if folded is None:
        return "at" if reduction.kind == "argmax" else "sum"
    return combine_lanes(emitter, reduction.kind, "sum")


def combine_lanes(emitter: Emitter, kind: ReductionKind, total: str) -> str:
    """The name of a float4 that holds the four lanes of `total` combined, in each lane. For argmax, the position."""
    if kind == "argmax":
        emitter.lines.append("float2 sum2 = sum.xy, at2 = at.xy;")
        emitter.lines += _combine_statements("argmax", "sum2", "at2", "sum.zw", "at.zw")
        emitter.lines.append("float sum1 = sum2.x, at1 = at2.x;")
        emitter.lines += _combine_statements("argmax", "sum1", "at1", "sum2.y", "at2.y")
        return emitter.name("float4", "(float4)(at1)")
    pairs = emitter.name("float2", COMBINE[kind].format(f"{total}.xy", f"{total}.zw"))
    return emitter.name("float4", f"(float4)({COMBINE[kind].format(pairs + '.x', pairs + '.y')})")


def _combine_statements(kind: ReductionKind, best: str, at: str, value: str, position: str) -> list[str]:
    """Statements that combine a value with the best so far. For argmax, the first of equal values is kept."""
    if kind != "argmax":
        return [f"{best} = {COMBINE[kind].format(best, value)};"]
    better = f"({value} > {best}) | (({value} == {best}) & ({position} < {at}))"
    return [f"{at} = select({at}, {position}, {better});", f"{best} = fmax({best}, {value});"]


def _open_window_loops(
    emitter: Emitter, steps: Sequence[int], group: WorkGroup | None, kind: ReductionKind
) -> tuple[list[Index], str, str]:
    """Opens a loop for each window axis, with separate steps for each item of a group.

    Returns the loop variables, the name of the variable that a step's value is combined with, and the source that
    closes the loops. A long sum is computed as a sum of block sums, for example 64 blocks of 64 terms: its rounding
    error then grows with the square root of its length.
    """
    parts = group.parts if group else (1,) * len(steps)
    first = unflatten(variable("item", prod(parts)), parts)
    walked = [ceil(n / p) for n, p in zip(steps, parts, strict=True)]
    blocked, block = _summation_block(walked) if kind == "sum" else (None, 0)
    walk, ends = [], ""
    for axis, (count, step) in enumerate(zip(steps, parts, strict=True)):
        walk.append(variable(f"r{axis}", count))
        start, stop, end = emitter.index(first[axis]), str(count), "}"
        if axis == blocked:
            stride = step * block
            emitter.lines.append(f"for (int b{axis} = {start}; b{axis} < {count}; b{axis} += {stride}) {{")
            emitter.lines.append("float4 part = (float4)(0.0f);")
            emitter.lines.append(f"const int end{axis} = min(b{axis} + {stride}, {count});")
            start, stop, end = f"b{axis}", f"end{axis}", "} sum += part; }"
        ends = end + ends
        if count == step:
            emitter.lines.append(f"{{ const int r{axis} = {start};" if count > 1 else "{")
            continue
        if axis == len(steps) - 1 and ceil(count / step) <= UNROLLED:
            emitter.lines.append("#pragma unroll")
        if step > 1 and count % step == 0 and axis != blocked:
            # The number of iterations is constant, so that the loop can be unrolled.
            emitter.lines.append(f"for (int s{axis} = 0; s{axis} < {count}; s{axis} += {step}) {{")
            emitter.lines.append(f"const int r{axis} = s{axis} + {start};")
        else:
            emitter.lines.append(f"for (int r{axis} = {start}; r{axis} < {stop}; r{axis} += {step}) {{")
    return walk, "sum" if blocked is None else "part", ends


def _summation_block(walk: Sequence[int]) -> tuple[int | None, int]:
    """Returns the window axis along which a sum is divided into blocks, and the steps of a block along it.

    Returns None and 0 if the sum is short. walk: steps of a work item along the window's axes. A block has all steps of
    the axes after that one.
    """
    total, inner = prod(walk), 1
    if total <= 2 * BLOCK:
        return None, 0
    terms = max(BLOCK, isqrt(total))
    for axis in reversed(range(len(walk))):
        if inner * walk[axis] >= terms or axis == 0:
            return axis, min(walk[axis], ceil(terms / inner))
        inner *= walk[axis]
    return None, 0


def tree_reduction(kind: ReductionKind, items: int, texels: int = 1, total: str = "sum") -> list[str]:
    """Statements that combine the work items' parts, `total`, in the local array `parts`: a tree reduction.

    The array has a row of `texels` for each item; `item` and `texel` are the work item's indices. Every item gets the
    result. For argmax, the positions `at` are combined in the local array `places`.
    """
    places = kind == "argmax"
    here = f"item * {texels} + texel" if texels > 1 else "item"
    lines = [f"parts[{here}] = {total};", *([f"places[{here}] = at;"] if places else [])]
    left = items
    while left > 1:
        half = ceil(left / 2)
        there = f"{here} + {half * texels}"
        combined = _combine_statements(kind, f"parts[{here}]", f"places[{here}]", f"parts[{there}]", f"places[{there}]")
        lines += ["barrier(CLK_LOCAL_MEM_FENCE);", f"if (item < {left - half}) {{ {' '.join(combined)} }}"]
        left = half
    first = "texel" if texels > 1 else "0"
    lines += ["barrier(CLK_LOCAL_MEM_FENCE);", f"{total} = parts[{first}];"]
    return [*lines, *([f"at = places[{first}];"] if places else [])]


def grid_kernel(
    emitter: Emitter, output: Placement, grid: tuple[Variable, ...], group: WorkGroup | None, target: Target,
    vectorized: bool = False,
) -> KernelSource:
    """The kernel of the emitted statements: for each point of a grid a work item, or with `group` several.

    vectorized: see `assembled_kernel`.
    """
    size: tuple[int, ...] = tuple(v.size for v in grid)
    local: tuple[int, ...] | None = None
    head = [f"const int {v.name} = get_global_id({d});" for d, v in enumerate(grid)]
    if group is not None:
        # Work items that share a texel lie along the second dimension. All reach the barriers: none may return before.
        beside, other = grid[group.along], grid[1 - group.along]
        local, size = (group.texels, group.items, 1), (round_up(beside.size, group.texels), group.items, other.size)
        head = ["const int texel = get_local_id(0), item = get_local_id(1);"]
        head.append(f"const int {beside.name} = {clamped_id(0, beside.size, size[0])};")
        head.append(f"const int {other.name} = get_global_id(2);")
    elif target.kind == "gpu":
        local = local_size(size, min(GROUP, target.max_work_group))
        size = tuple(map(round_up, size, local))
        if size != tuple(v.size for v in grid):
            head.append(f"if ({' || '.join(f'{v.name} >= {v.size}' for v in grid)}) return;")
    return assembled_kernel(emitter, output, head, size, local, group is not None, vectorized)


def clamped_id(dimension: int, count: int, size: int) -> str:
    """A work item's index in a dimension of `size` items, clamped to `count` - 1."""
    place = f"get_global_id({dimension})"
    return place if size == count else f"min((int){place}, {count - 1})"


def assembled_kernel(
    emitter: Emitter, output: Placement, head: Sequence[str], size: tuple[int, ...], local: tuple[int, ...] | None,
    meets: bool, vectorized: bool = False,
) -> KernelSource:
    """The kernel of the `head` lines and the emitted statements. meets: whether the group's items share data.

    vectorized: whether a CPU driver may put neighbouring work items into the lanes of vectors.
    """
    arguments = (KernelArgument("output", output.storage, written=True), *emitter.arguments)
    attribute = (group_attribute(local) + " " if meets else "") + ("" if vectorized else "NOT_VECTORIZED ")
    parameters = ",\n    ".join(a.declaration for a in arguments)
    body = "\n".join(f"  {line}" for line in [*head, *emitter.lines] if line)
    text = (
        "".join(dict.fromkeys(emitter.helpers))
        + f"{attribute}__kernel void NAME(\n    {parameters}) {{\n{body}\n}}\n"
    )
    return KernelSource(text, "generated", arguments, size, local)


@lru_cache(1024)
def local_size(size: tuple[int, ...], most: int) -> tuple[int, ...]:
    """A work group for a grid of texels: at most this many items, few idle ones, and long runs of adjacent texels."""
    if len(size) == 2:
        width, height = size
        across = min(16, width, most)
        return across, min(most // across, height)
    quads, columns, height = size
    found = []
    for each, rows in itertools.product((n for n in range(1, 33) if quads % n == 0 or n == 16), (1, 2, 4, 8)):
        beside = min(columns, most // (each * rows))
        for across in {beside, *(n for n in range(beside, 0, -1) if columns % n == 0)} - {0} if rows <= height else ():
            items = each * across * rows
            groups = ceil(quads / each) * ceil(columns / across) * ceil(height / rows)
            run = each * across if each == quads else min(each, quads)
            # A cache line holds 4 texels of a row. Windows of neighbouring rows share cache lines.
            worth = 1 + 4 / run + 0.5 / rows
            found.append((groups * round_up(items, WAVE) * worth, -items, (each, across, rows)))
    return min(found)[-1]
