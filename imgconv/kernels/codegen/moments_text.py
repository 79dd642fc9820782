"""The two kernels of a normalisation of long rows: the parts' moments, and what applies them. See moments.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil

from imgconv.dtype import FLOAT32
from imgconv.graph.index import Index, Variable, constant, variable, variable_index
from imgconv.graph.nodes import IDENTITY, Graph, Node, Operand, Reduction
from imgconv.graph.view import identity
from imgconv.kernels.codegen.access import LANE, digits_of
from imgconv.kernels.codegen.generated import BLOCK, assemble
from imgconv.kernels.codegen.moments import (
    PARTS_LAYOUT, TEXELS_OF_A_PART, Parts, find_parts, moments_maker, moments_of,
)
from imgconv.kernels.codegen.rows import find_rows
from imgconv.kernels.codegen.rows_text import RowsMaker, place_rows
from imgconv.kernels.layout import LANES, Placement
from imgconv.kernels.source import KernelSource
from imgconv.kernels.step import Emitting, Fixed, Placing, Step, fixed_template, operation_as

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
class Making:
    """One of the two launches. apply: whether it applies the moments; else it writes those of the parts."""

    parts: Parts
    apply: bool


def nodes(graph: Graph) -> Iterator[tuple[Node, ...]]:
    """The nodes of rows that are a normalisation."""
    yield from (rows.nodes for rows in find_rows(graph) if moments_of(rows))


def place(placing: Placing, given: tuple[Node, ...]) -> Step[Fixed, Making] | None:
    """The Step that applies the moments, after the one that makes those of the parts. None if one launch is as fast."""
    placed = place_rows(placing, given)
    moments = moments_of(placed.rows) if placed else None
    if placed is None or moments is None:
        return None
    name = placing.graph.unused(f"{moments.rows.last.output.name}.parts")
    parts = find_parts(moments, placed, placing.target, name)
    if parts is None:
        return None
    value = placing.between(name, parts.shape, PARTS_LAYOUT, FLOAT32)
    output, mean = placing.placements[value.name], moments.mean
    first = Step(
        (replace(mean, output=value, epilogue=IDENTITY),), output,
        {operand.value: placed.places[operand.value] for operand in mean.operands}, TEMPLATE, Fixed(value.name),
        Making(parts, False), f"mean and squared differences in {parts.parts} parts", "reduction",
    )
    placed = replace(placed, places={**placed.places, value.name: output})
    return replace(placed.step(TEMPLATE, Making(parts, True)), before=(first,))


def kernel(step: Step[Fixed, Making], emitting: Emitting) -> KernelSource:
    """The kernel of one of the two launches."""
    parts, forms, output = step.details.parts, emitting.forms_of(step.output), step.output
    outside = {name: each for name, each in step.places.items() if name != parts.name}
    maker = moments_maker(parts.moments, parts.lanes, output, outside, forms, emitting.target)
    if step.details.apply:
        maker.emitter.digits = digits_of(forms, output.storage)
    maker.emitter.helpers.append(JOIN)
    maker.emitter.lines += [f"float4 {name} = (float4)(0.0f);" for name in NAMES]
    if step.details.apply:
        _read_parts(maker, parts, step.places[parts.name])
        _meet(maker, parts)
        _apply(maker, parts)
    else:
        _walk_part(maker, parts)
        _meet(maker, parts)
        _write_part(maker, parts, output)
    return _on_grid(maker, parts, output)


TEMPLATE = fixed_template("moments", "generated", nodes, place, kernel)


def _walk_part(maker: RowsMaker, parts: Parts) -> None:
    """A work item's own moments, block by block: differences from the mean of the blocks before it.

    Before the first block, the item's first value stands for the mean.
    """
    emitter, items = maker.emitter, parts.items
    stride = items * BLOCK
    maker.read_ahead(parts.moments.mean.operands, maker.axes[parts.moments.mean.output.name])
    emitter.lines += [f"const int first = {_first(parts)};", f"{{ const int step = min(first, {parts.steps - 1});"]
    with emitter.scope():
        emitter.lines.append(f"mean = {_value(maker, parts.moments.mean)}; }}")
    emitter.lines += [
        f"for (int block = first; block < last; block += {stride}) {{",
        "float4 number = (float4)(0.0f), sum = (float4)(0.0f), square = (float4)(0.0f);",
        f"const int end = min(block + {stride}, last);",
        f"for (int k = block; k < end; k += {items}) {{ const int step = k;",
    ]
    with emitter.scope():
        emitter.lines.append(f"float4 difference = {_value(maker, parts.moments.mean)} - mean;")
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


def _first(parts: Parts) -> str:
    """The text of a work item's first step."""
    return "begin + item" if parts.items > 1 else "begin"


def _value(maker: RowsMaker, node: Node) -> str:
    """The name of what a reduction adds up, at one step."""
    arguments = {n: maker.read(o, maker.axes[node.output.name]) for n, o in enumerate(node.operands)}
    return maker.emitter.name("float4", maker.emitter.compute(operation_as(Reduction, node).body, arguments))


def _meet(maker: RowsMaker, parts: Parts) -> None:
    """Join the moments of the work items in local memory: a tree. Every item gets the result."""
    if parts.items == 1:
        return
    lines, here = maker.emitter.lines, f"item * {parts.beside} + beside"
    lines += [f"__local float4 all_{name}[{parts.items * parts.beside}];" for name in NAMES]
    lines += [f"const int here = {here};", *(f"all_{name}[here] = {name};" for name in NAMES)]
    left = parts.items
    while left > 1:
        half = -(-left // 2)
        lines += [
            "barrier(CLK_LOCAL_MEM_FENCE);",
            f"if (item < {left - half}) {{",
            f"const int there = here + {half * parts.beside};",
            "join_moments(&count, &mean, &squares, all_count[there], all_mean[there] - mean, all_squares[there]);",
            *(f"all_{name}[here] = {name};" for name in NAMES), "}",
        ]
        left = half
    lines += ["barrier(CLK_LOCAL_MEM_FENCE);", *(f"{name} = all_{name}[beside];" for name in NAMES)]


def _write_part(maker: RowsMaker, parts: Parts, output: Placement) -> None:
    maker.emitter.lines.append("if (item != 0) return;" if parts.items > 1 else "")
    _end_rows(maker, parts)
    for number, name in enumerate(NAMES):
        maker.emitter.store(output, list(_texel(parts, variable("part", parts.parts), number)), name)


def _texel(parts: Parts, part: Index, number: int) -> tuple[Index, Index, Index]:
    """The position of a part's number, mean or squares."""
    return variable("row", parts.count), part * TEXELS_OF_A_PART + number, variable_index(LANE)


def _read_parts(maker: RowsMaker, parts: Parts, place: Placement) -> None:
    """The moments of the row from those of its parts: each work item joins some of them."""
    emitter = maker.emitter
    start = "item" if parts.items > 1 else "0"
    emitter.lines.append(f"for (int read = {start}; read < {parts.parts}; read += {parts.items}) {{")
    with emitter.scope():
        operand = Operand(parts.name, identity(parts.shape))
        found = []
        for number in range(TEXELS_OF_A_PART):
            position = _texel(parts, variable("read", parts.parts), number)
            axes = {Variable(f"i{a}", n): position[a] for a, n in enumerate(parts.shape)}
            found.append(emitter.load(operand, place, axes))
        count, mean, squares = found
        emitter.lines.append(f"join_moments(&count, &mean, &squares, {count}, {mean} - mean, {squares}); }}")


def _apply(maker: RowsMaker, parts: Parts) -> None:
    """Write a part of the row."""
    emitter, moments = maker.emitter, parts.moments
    _end_rows(maker, parts)
    if maker.folded:
        for half, other in (("xy", "zw"), ("x", "y")):
            emitter.lines.append(
                f"join_moments(&count, &mean, &squares, (float4)(count.{_twice(other)}), "
                f"(float4)(mean.{_twice(other)}) - mean, (float4)(squares.{_twice(other)}));"
            )
            emitter.lines.append("".join(f"{name} = {name}.{_twice(half)}; " for name in NAMES))
    maker.results[moments.mean.output.name] = "mean"
    squares = moments.squares
    arguments = {0: "squares"}
    for number, operand in enumerate(squares.epilogue_operands, 1):
        arguments[number] = maker.read(operand, maker.axes[squares.output.name])
    maker.results[squares.output.name] = emitter.name("float4", emitter.compute(squares.epilogue, arguments))
    last = maker.rows.last
    axes = maker.axes[last.output.name]
    maker.read_ahead(last.all_operands, axes)
    emitter.lines.append(f"for (int k = {_first(parts)}; k < last; k += {parts.items}) {{")
    emitter.lines.append("const int step = k;")
    with emitter.scope():
        emitter.store(maker.output, maker.position(), maker.value(last, axes))
    emitter.lines.append("}")


def _twice(lanes: str) -> str:
    return lanes * (LANES // len(lanes))


def _end_rows(maker: RowsMaker, parts: Parts) -> None:
    """End the work items whose row another one has."""
    if parts.count % parts.beside:
        maker.emitter.lines.append(f"if ({_row(parts)} >= {parts.count}) return;")


def _row(parts: Parts) -> str:
    return f"get_group_id(0) * {parts.beside} + beside"


def _on_grid(maker: RowsMaker, parts: Parts, output: Placement) -> KernelSource:
    """The kernel of the emitted statements: a work group has `beside` rows and `items` work items for each.

    Both are in one dimension, with the rows next to each other: they read neighbours.
    """
    group, groups = parts.beside * parts.items, ceil(parts.count / parts.beside)
    row = _row(parts) if parts.count % parts.beside == 0 else f"min((int)({_row(parts)}), {parts.count - 1})"
    head = [
        f"const int beside = get_local_id(0) % {parts.beside}, item = get_local_id(0) / {parts.beside};",
        f"const int row = {row}, part = get_global_id(1);",
        f"const int begin = part * {parts.each}, last = min(begin + {parts.each}, {parts.steps});",
    ]
    return assemble(maker.emitter, output, head, (groups * group, parts.parts), (group, 1), parts.items > 1)
