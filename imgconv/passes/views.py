"""Push movements into the loads of their readers."""

from __future__ import annotations

from dataclasses import replace

from imgconv.graph.nodes import IDENTITY, Gather, Graph, Load, Node, Operand

# Most terms of one view's indices. Alternating reshapes and transposes double them; a longer chain is several kernels.
MOST_TERMS = 64


def push_views(graph: Graph) -> Graph:
    """Let each reader of a moved tensor read the original tensor through the composed view.

    Given:   t = load(x[0, i1, i3, i2]);  y = load(t) then exp($0)
    Result:  t = load(x[0, i1, i3, i2]);  y = load(x[0, i1, i3, i2]) then exp($0)       (t is dead)
    """
    movements: dict[str, Operand] = {}
    nodes = []
    for node in graph.nodes:
        made = replace(
            node,
            operands=tuple(
                o if n == 0 and _would_lose_fill(node, o, movements) else _composed_operand(o, movements)
                for n, o in enumerate(node.operands)
            ),
            epilogue_operands=tuple(_composed_operand(o, movements) for o in node.epilogue_operands),
        )
        if is_movement(made) and made.output.dtype == graph.values[made.operands[0].value].dtype:
            movements[made.output.name] = made.operands[0]
        nodes.append(made)
    return replace(graph, nodes=tuple(nodes))


def is_movement(node: Node) -> bool:
    """Returns whether the node only moves elements."""
    return isinstance(node.operation, Load) and node.epilogue == IDENTITY


def _would_lose_fill(node: Node, table: Operand, movements: dict[str, Operand]) -> bool:
    """Returns whether a gather's table would lose its own fill value, which the gather reads for an index outside."""
    inner = movements.get(table.value)
    return isinstance(node.operation, Gather) and inner is not None and inner.view.bounds != () and (
        inner.fill != table.fill
    )


def _composed_operand(operand: Operand, movements: dict[str, Operand]) -> Operand:
    inner = movements.get(operand.value)
    return operand if inner is None else (compose_if_short(operand, inner) or operand)


def compose(outer: Operand, inner: Operand) -> Operand | None:
    """Returns the composition: what `outer` reads of what `inner` reads. None if it needs two different fill values."""
    if outer.view.bounds and inner.view.bounds and outer.fill != inner.fill:
        return None
    fill = inner.fill if inner.view.bounds else outer.fill
    return Operand(inner.value, outer.view.composed_with(inner.view), fill)


def compose_if_short(outer: Operand, inner: Operand) -> Operand | None:
    """The same as `compose`, but None also if the composed indices have more than MOST_TERMS terms."""
    made = compose(outer, inner)
    return made if made is None or _term_count(made) <= MOST_TERMS else None


def _term_count(operand: Operand) -> int:
    """The number of terms in the indices of an operand's view and of its bounds."""
    return sum(e.term_count for e in (*operand.view.index, *(bound.index for bound in operand.view.bounds)))
