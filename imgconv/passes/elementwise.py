"""Merge elementwise work into the loads and reductions that read it."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from imgconv.graph.expression import Apply, Argument, Expression, Literal, function_names, subexpressions, substitute
from imgconv.graph.nodes import GraphEditor, Graph, Load, Node, Operand, Reduction
from imgconv.kernels.layout import LANES
from imgconv.passes.concatenations import MOST_OPERANDS
from imgconv.passes.requantization import with_folded_requantization
from imgconv.passes.views import compose_if_short


# Costs in texel reads: a launch costs LAUNCH, an operation in CHEAP or a division by a number a quarter, any other one.
LAUNCH = 10_000
# Most operations of one expression. A longer chain, such as an unrolled loop without products, is several kernels.
MOST_OPERATIONS = 128
CHEAP = {
    "add", "subtract", "multiply", "maximum", "minimum", "negative", "absolute", "where", "less", "equal", "round",
    "saturate", "multiply_add",
}


def merge_elementwise(graph: Graph) -> Graph:
    """Merge a load with an epilogue into the loads and reductions that read it, if recomputing it costs less.

    Keeping the load costs its operands' reads, its operations and a write at each of its positions, a read at each
    position of its readers, and a launch. Recomputing it costs its reads and operations at each position of its
    readers. If a load can be the epilogue of the kernel before it, it is not merged, unless its one reader reads it at
    the same positions. If a reader's view is zero outside of bounds, the merge needs f(0, ..., 0) = 0.

    Given:   e = load(x) then exp($0);  s = sum(e[i0, i2]);  y = load(e) then divide($0, $1), $1=s[i0, 0]
    Result:  s = sum of exp($0)(x[i0, i2]);  y = load(x) then divide(exp($0), $1), $1=s[i0, 0]
    """
    changed, reasons, editing = True, dict(graph.reasons), GraphEditor(graph)
    while changed:
        merged = [_merge_into_readers(editing, editing.producers[name], reasons) for name in list(editing.producers)]
        changed = any(merged)
    return replace(editing.edited_graph(), reasons=reasons)


def _merge_into_readers(graph: GraphEditor, node: Node, reasons: dict[str, str]) -> bool:
    """Merges a node into all of its readers if that is possible and profitable; returns whether it did."""
    name = node.output.name
    readers = graph.consumers[name]
    if not isinstance(node.operation, Load) or name in graph.outputs or not readers:
        return False
    pays, reasons[name] = recomputing_is_profitable(graph, node)
    if not pays:
        return False
    made = {}
    for reader in readers:
        merged = _merge(node, reader)
        if merged is None:
            return False
        made[reader.output.name] = merged
    graph.merge(name, made)
    return True


def recomputing_is_profitable(graph: GraphEditor, node: Node) -> tuple[bool, str]:
    """Returns whether each reader of a load should recompute it, and the reason in words."""
    name, size = node.output.name, node.output.size / LANES
    readers = graph.consumers[name]
    reads_of_it = {(r.output.name, o) for r in readers for o in r.all_operands if o.value == name}
    positions = sum(prod(o.view.shape) for _, o in reads_of_it) / LANES
    elsewhere = any(not o.view.is_identity for _, o in reads_of_it)
    if _can_become_epilogue(graph, node) and (len(readers) > 1 or elsewhere):
        return False, "left to the epilogue of the kernel before it, where it costs no reads"
    reads = sum(o.value not in graph.constants for o in node.all_operands)
    made = with_folded_requantization(node.epilogue, node, graph.constants)
    each = reads + sum(0.25 if _is_cheap(p) else 1.0 for p in subexpressions(made) if isinstance(p, Apply))
    again, kept = positions * each, size * (each + 1) + positions + LAUNCH
    decision = "recomputed in" if again <= kept else "kept as a texture for"
    readers_text = f"{len(readers)} reader" + ("s" if len(readers) > 1 else "")
    costs = f"{again:.0f} texel reads to recompute, {kept:.0f} to keep"
    return again <= kept, f"{decision} {readers_text}: {costs}"


def _is_cheap(part: Apply) -> bool:
    return part.function in CHEAP or (part.function == "divide" and isinstance(part.arguments[1], Literal))


def _can_become_epilogue(graph: GraphEditor, node: Node) -> bool:
    """Returns whether the node can be the epilogue of a kernel other than a load, as its only reader, in place."""
    waiting = [node]
    while waiting:
        for operand in waiting.pop().all_operands:
            producer = graph.producers.get(operand.value)
            if producer is None or not operand.view.is_identity or len(graph.consumers[operand.value]) > 1:
                continue
            if not isinstance(producer.operation, Load):
                return True
            waiting.append(producer)
    return False


def _merge(node: Node, reader: Node) -> Node | None:
    """The reader with the node's work merged into it; None if the two cannot be merged."""
    name = node.output.name
    if not short_enough(node, reader):
        return None
    if not all(_can_recompute(node, o) for o in reader.all_operands if o.value == name):
        return None
    operands: list[Operand] = []

    def collect_operand(operand: Operand) -> Argument:
        if operand not in operands:
            operands.append(operand)
        return Argument(operands.index(operand))

    def inlined(operand: Operand) -> Expression:
        """The operand as an expression of the collected operands; the node's expression replaces its value."""
        if operand.value != name:
            return collect_operand(operand)
        arguments: dict[int, Expression] = {}
        for number, inner in enumerate(node.all_operands):
            made = compose_if_short(operand, inner)
            if made is None:
                raise _CannotCompose
            arguments[number] = collect_operand(made)
        return substitute(node.epilogue, arguments)

    try:
        if isinstance(reader.operation, Reduction) and all(o.value != name for o in reader.epilogue_operands):
            body = substitute(reader.operation.body, {i: inlined(o) for i, o in enumerate(reader.operands)})
            merged = replace(reader, operation=replace(reader.operation, body=body), operands=tuple(operands))
        elif isinstance(reader.operation, Load):
            expression = substitute(reader.epilogue, {i: inlined(o) for i, o in enumerate(reader.all_operands)})
            merged = replace(
                reader, operands=(operands[0],), epilogue=expression, epilogue_operands=tuple(operands[1:])
            )
        else:
            return None
    except _CannotCompose:
        return None
    if len(merged.all_operands) > MOST_OPERANDS:
        return None
    return replace(merged, origin=tuple(dict.fromkeys((*node.origin, *reader.origin))))


def short_enough(first: Node, second: Node) -> bool:
    """Returns whether the expressions of two nodes together have at most MOST_OPERATIONS operations."""
    bodies = [n.operation.body for n in (first, second) if isinstance(n.operation, Reduction)]
    return sum(map(len, map(function_names, (first.epilogue, second.epilogue, *bodies)))) <= MOST_OPERATIONS


class _CannotCompose(Exception):
    """Two views cannot be composed: their fill values differ, or the composed indices would be too long."""


def _can_recompute(node: Node, operand: Operand) -> bool:
    """Returns whether the view reads of the node's result what the node computes from operands read through it."""
    if not operand.view.bounds:
        return True
    if operand.fill != 0 or any(o.fill != 0 for o in node.all_operands):
        return False
    zeros: dict[int, Expression] = {i: Literal(0.0) for i in range(len(node.all_operands))}
    made = substitute(node.epilogue, zeros)
    return isinstance(made, Literal) and made.value == 0

