"""Split long reductions with few outputs in two, so that more work groups have work."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from imgconv.graph.expression import Argument
from imgconv.graph.nodes import Graph, Node, Operand, Reduction, Value
from imgconv.graph.view import identity, transpose
from imgconv.kernels.codegen.moments import splittable_moments

LONG = 1 << 15
MOST_OUTPUTS = 1 << 10


def split_reductions(graph: Graph) -> Graph:
    """Split a reduction over LONG positions or more in two: first all window axes but the longest, then the longest.

    The mean and the variance of a normalisation are not split, because kernels/codegen/moments.py computes the whole
    normalisation in two launches.

    Given:   s: [1, 8, 1, 1] = sum of multiply($0, $0)(x[0, i1, i4, i5])        window 720x720
    Result:  s.rows: [1, 8, 1, 1, 720] = sum of multiply($0, $0)(x[0, i1, i4, i5])
             s: [1, 8, 1, 1] = sum(s.rows[0, i1, 0, 0, i4])
    """
    together = splittable_moments(graph, LONG)
    nodes: list[Node] = []
    for node in graph.nodes:
        alone = node.output.name not in together
        nodes += _split(graph, node, node.operation) if isinstance(node.operation, Reduction) and alone else [node]
    return replace(graph, nodes=tuple(nodes))


def _split(graph: Graph, node: Node, reduction: Reduction) -> list[Node]:
    shape, rank = node.output.shape, len(node.output.shape)
    window = node.operands[0].view.shape[rank:]
    if reduction.kind == "argmax":  # the position in the whole window does not follow from positions in parts
        return [node]
    if prod(window) < LONG or node.output.size > MOST_OUTPUTS or max(window) == prod(window):
        return [node]
    kept = window.index(max(window))
    # The kept window axis becomes the last axis of the first result, before the other window axes.
    order = [*range(rank), rank + kept, *(rank + a for a in range(len(window)) if a != kept)]
    partial = Value(graph.unused_name(f"{node.output.name}.rows"), (*shape, window[kept]), "float32")
    operands = (replace(o, view=transpose(o.view.shape, order).composed_with(o.view)) for o in node.operands)
    first = replace(node, output=partial, operands=tuple(operands), epilogue=Argument(0), epilogue_operands=())
    second = replace(
        node, operation=Reduction(reduction.kind, Argument(0)),
        operands=(Operand(partial.name, identity(partial.shape)),),
    )
    return [first, second]
