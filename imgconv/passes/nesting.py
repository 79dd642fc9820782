"""Let a concatenation that begins with all parts of an earlier one read that one instead."""

from __future__ import annotations

from dataclasses import replace

from imgconv.graph.nodes import Concatenation, Graph, Node, Operand, whole_operand
from imgconv.kernels.layout import LANES


def nest_concatenations(graph: Graph) -> Graph:
    """Replace the first parts of a concatenation by an earlier concatenation of the same parts.

    In densely connected layers, each part is then written in place once, in the innermost concatenation. The pass
    needs parts whose channels fill whole texels, since only these are written in place.

    Given:   y = concatenation axis 1(a: [1, 8, 4, 4], b: [1, 4, 4, 4])
             z = concatenation axis 1(a, b, c: [1, 4, 4, 4])
    Result:  y = concatenation axis 1(a, b)
             z = concatenation axis 1(y, c)
    """
    earlier: dict[tuple[Operand, ...], Operand] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        if isinstance(node.operation, Concatenation) and node.operation.axis == 1:
            parts = node.operands
            if all(part.view.shape[1] % LANES == 0 for part in parts):
                earlier.setdefault(parts, whole_operand(node.output))
            for count in range(len(parts) - 1, 1, -1):
                if parts[:count] in earlier:
                    node = replace(node, operands=(earlier[parts[:count]], *parts[count:]))
                    break
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes))
