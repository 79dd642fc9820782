"""The generated kernel form: elementwise work, movement, reduction, pooling, resize and copies.

    output[i] = epilogue(reduce over r of body(load(view(i, r)) ...))

A work item makes one texel: it walks the window r, reads four lanes at a time and reduces them. A reduction along the
packed axis takes its four lanes from the window instead of from the output. Where there are few output texels and a
long window, a work group shares a texel: each item reduces a part of the window, then the parts meet in local memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, prod

from imgconv.access import LANE, SHORT_LIMIT, Emitter, KernelArgument
from imgconv.expression import literal_text
from imgconv.graph import Gather, Node, Reduction
from imgconv.index import Index, Variable, constant, flatten, unflatten, variable, variable_index
from imgconv.kernels.source import KernelSource, round_up
from imgconv.layout import LANES, Placement, Texture
from imgconv.view import Shape

NEUTRAL = {"sum": 0.0, "max": float("-inf"), "argmax": float("-inf"), "min": float("inf"), "product": 1.0}
COMBINE = {"sum": "{0} + {1}", "max": "fmax({0}, {1})", "min": "fmin({0}, {1})", "product": "{0} * {1}"}
GROUPS, GROUP_OF_CPU = (16, 32, 64, 128, 256), 64
MOST_STEPS = 8  # of an item


def generate(
    node: Node, output: Placement, placements: Mapping[str, Placement], native: bool, compute_units: int,
    group_sizes: bool,
) -> KernelSource:
    """The kernel of a node with a Load, a Reduction or a Gather.

    output: where the result goes; placements: where each operand is. compute_units: of the device, to decide whether
    a work group shares a texel. group_sizes: whether to fix local sizes (GPUs) or leave them to the driver.
    """
    width, height = output.layout.grid(output.shape)
    emitter = Emitter(native, half=output.storage.dtype == "float16")
    x, y = variable("x", width), variable("y", height)
    window = window_of(node) if isinstance(node.operation, Reduction) else ()
    folded = _packed_axis(node, output, placements, x, y) if window else None
    lane = constant(0) if folded is not None else variable_index(LANE)
    position = output.layout.position(output.shape, x, y, lane)
    axes = {Variable(f"i{a}", n): position[a] for a, n in enumerate(output.shape)}
    steps = [ceil(n / LANES) if a == folded else n for a, n in enumerate(window)]
    group = group_size(width * height, prod(steps), compute_units, group_sizes) if window else 1

    if isinstance(node.operation, Reduction):
        result = _reduce(emitter, node, node.operation, placements, axes, steps, folded, group)
    elif isinstance(node.operation, Gather):
        result = _choose(emitter, node, placements, axes)
    else:
        result = emitter.load(node.operands[0], placements[node.operands[0].value], axes)
    arguments = {0: result}
    for number, operand in enumerate(node.epilogue_operands, 1):
        arguments[number] = emitter.load(operand, placements[operand.value], axes)
    value = emitter.compute(node.epilogue, arguments)
    emitter.store(output, list(position), value)
    return assemble(emitter, output, width, height, group, group_sizes)


def _choose(
    emitter: Emitter, node: Node, placements: Mapping[str, Placement], axes: Mapping[Variable, Index]
) -> str:
    """Emit a gather's loads; returns the name of the float4."""
    table, *operands = node.operands
    rank = len(node.output.shape)
    indices = {
        Variable(f"i{rank + number}", table.view.shape[rank + number]): emitter.load(o, placements[o.value], axes)
        for number, o in enumerate(operands)
    }
    return emitter.choose(table, placements[table.value], axes, indices)


def window_of(node: Node) -> Shape:
    """The shape that a reduction runs over."""
    return node.operands[0].view.shape[len(node.output.shape) :]


def group_size(texels: int, steps: int, compute_units: int, gpu: bool) -> int:
    """Work items that share one output texel: more than one where that many texels would leave the device idle.

    Each item has at least two steps; more items than MOST_STEPS asks for only wait for each other.
    """
    smallest, enough = (GROUPS[0], 64 * compute_units) if gpu else (GROUP_OF_CPU, compute_units)
    if steps < 2 * smallest or texels >= enough:
        return 1
    fitting = [group for group in GROUPS if group * MOST_STEPS >= steps]
    return min(fitting, default=GROUPS[-1]) if gpu else GROUP_OF_CPU


def _packed_axis(
    node: Node, output: Placement, placements: Mapping[str, Placement], x: Index, y: Index
) -> int | None:
    """The window axis that runs along the lanes of the operands' texels, where the output does not."""
    if output.layout.channels(output.shape) > 1:
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
            if size > 1 and along.terms and channel - along == constant(0):
                found.add(axis)
    return found.pop() if len(found) == 1 else None


def _reduce(
    emitter: Emitter, node: Node, reduction: Reduction, placements: Mapping[str, Placement],
    axes: Mapping[Variable, Index], steps: list[int], folded: int | None, group: int,
) -> str:
    """Emit the walk over the window; returns the name of the reduced float4."""
    window, rank = window_of(node), len(node.output.shape)
    neutral = literal_text(NEUTRAL[reduction.kind])
    emitter.lines.append(f"float4 sum = (float4)({neutral});")
    if reduction.kind == "argmax":
        emitter.lines.append("float4 at = (float4)(0.0f);")
    walk = _walk_in_group(emitter, steps, group) if group > 1 else _walk(emitter, steps)
    emitter.largest = max(emitter.largest, *steps)  # the operands' addresses need not depend on every step
    places = {Variable(f"i{rank + a}", n): walk[a] for a, n in enumerate(window)}
    if folded is not None:
        places[Variable(f"i{rank + folded}", window[folded])] = walk[folded] * LANES + variable_index(LANE)
    emitter.forget()
    arguments = {
        number: emitter.load(operand, placements[operand.value], {**axes, **places})
        for number, operand in enumerate(node.operands)
    }
    value = emitter.compute(reduction.body, arguments)
    if folded is not None and window[folded] % LANES:
        left = emitter.index(walk[folded] * -LANES + window[folded])
        value = f"fill_lanes({value}, {left}, {neutral})"
    position = ""
    if reduction.kind == "argmax":
        flat = flatten([places.get(Variable(f"i{rank + a}", n), constant(0)) for a, n in enumerate(window)], window)
        lanes = [emitter.index(flat.substitute({LANE: constant(number)})) for number in range(LANES)]
        value, position = emitter.name("float4", value), f"(float4)({', '.join(lanes)})"
    emitter.lines += _keep(reduction.kind, "sum", "at", value, position)
    emitter.lines.append("}" if group > 1 else "}" * max(1, len([n for n in steps if n > 1])))
    emitter.forget()
    if group > 1:
        arrays = ("parts", "places") if reduction.kind == "argmax" else ("parts",)
        emitter.lines += [f"__local float4 {name}[{group}];" for name in arrays]
        emitter.lines.append("const int item = get_local_id(0);")
        emitter.lines += [*meet(reduction.kind, group), "if (item != 0) return;"]
    if folded is None:
        return "at" if reduction.kind == "argmax" else "sum"
    return combine_lanes(emitter, reduction.kind, "sum")


def combine_lanes(emitter: Emitter, kind: str, total: str) -> str:
    """The name of a float4 whose lanes all hold the four lanes of `total` combined; of argmax, of their places `at`."""
    if kind == "argmax":
        emitter.lines.append("float2 sum2 = sum.xy, at2 = at.xy;")
        emitter.lines += _keep("argmax", "sum2", "at2", "sum.zw", "at.zw")
        emitter.lines.append("float sum1 = sum2.x, at1 = at2.x;")
        emitter.lines += _keep("argmax", "sum1", "at1", "sum2.y", "at2.y")
        return emitter.name("float4", "(float4)(at1)")
    pairs = emitter.name("float2", COMBINE[kind].format(f"{total}.xy", f"{total}.zw"))
    return emitter.name("float4", f"(float4)({COMBINE[kind].format(pairs + '.x', pairs + '.y')})")


def _keep(kind: str, best: str, at: str, value: str, position: str) -> list[str]:
    """Combine a value, found at a position, with the best so far; of equal ones the first is kept."""
    if kind != "argmax":
        return [f"{best} = {COMBINE[kind].format(best, value)};"]
    better = f"({value} > {best}) | (({value} == {best}) & ({position} < {at}))"
    return [f"{at} = select({at}, {position}, {better});", f"{best} = fmax({best}, {value});"]


def _walk(emitter: Emitter, steps: list[int]) -> list[Index]:
    """Open one loop for each window axis; returns the loop variables."""
    walk = []
    for axis, count in enumerate(steps):
        walk.append(variable(f"r{axis}", count))
        if count > 1:
            emitter.lines.append(f"for (INDEX r{axis} = 0; r{axis} < {count}; r{axis}++) {{")
    if all(n == 1 for n in steps):
        emitter.lines.append("{")
    return walk


def _walk_in_group(emitter: Emitter, steps: list[int], group: int) -> list[Index]:
    """Open one loop in which the items of a work group take the window's positions in turn."""
    total = prod(steps)
    emitter.lines.append(f"for (int r = get_local_id(0); r < {total}; r += {group}) {{")
    return list(unflatten(variable("r", total), tuple(steps)))


def meet(kind: str, group: int, total: str = "sum") -> list[str]:
    """Combine the items' parts, `total`, in the local array `parts`, halving the number of items at each step.

    All items have the result. argmax: the places are `at`, combined in the local array `places`.
    """
    combined = _keep(kind, "parts[item]", "places[item]", "parts[item + half_way]", "places[item + half_way]")
    places = kind == "argmax"
    return [
        f"parts[item] = {total};",
        *(["places[item] = at;"] if places else []),
        "barrier(CLK_LOCAL_MEM_FENCE);",
        f"for (int half_way = {group // 2}; half_way > 0; half_way /= 2) {{",
        f"  if (item < half_way) {{ {' '.join(combined)} }}",
        "  barrier(CLK_LOCAL_MEM_FENCE);",
        "}",
        f"{total} = parts[0];",
        *(["at = places[0];"] if places else []),
        "barrier(CLK_LOCAL_MEM_FENCE);",
    ]


def assemble(
    emitter: Emitter, output: Placement, width: int, height: int, group: int, group_sizes: bool
) -> KernelSource:
    """The kernel of what was emitted, for items at x and y of a grid, or work groups of `group` items."""
    arguments = (KernelArgument("output", output.storage, written=True), *emitter.arguments)
    kind = "short" if emitter.largest <= SHORT_LIMIT else "int"
    local, size, guard = None, (width, height), []
    shared = f" / {group}" if group > 1 else ""
    head = [f"const INDEX x = get_global_id(0){shared};", "const INDEX y = get_global_id(1);"]
    attribute = ""
    if group > 1:
        size, local = (width * group, height), (group, 1)
        attribute = f"__attribute__((reqd_workgroup_size({group}, 1, 1))) "
    elif group_sizes:
        local = (min(16, width), min(8, height)) if width >= 8 else (min(width, 8), min(16, height))
        size = (round_up(width, local[0]), round_up(height, local[1]))
        if size != (width, height):
            guard = [f"if (x >= {width} || y >= {height}) return;"]
    parameters = ",\n    ".join(a.declaration for a in arguments)
    body = "\n".join(f"  {line}" for line in [*head, *guard, *emitter.lines])
    text = (
        "".join(emitter.helpers.values())
        + f"#define INDEX {kind}\n{attribute}__kernel void NAME(\n    {parameters}) {{\n{body}\n}}\n#undef INDEX\n"
    )
    return KernelSource(text, "generated", arguments, size, local)


