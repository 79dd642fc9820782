"""Compute values that depend on constants only."""

from __future__ import annotations

from dataclasses import replace

import numpy

from imgconv.graph.evaluate import evaluate_node, peak_elements
from imgconv.graph.nodes import Graph, Node
from imgconv.limits import current_budget

SMALL = 1 << 16


def fold_constants(graph: Graph) -> Graph:
    """Replace each node that reads only constants by its value, unless the value is much larger than those constants.

    A node that the host would take too long to compute is not replaced. A value without elements is also a constant.

    Given:   constant w: [8];  s = load(w) then sqrt($0);  y = load(x) then multiply($0, $1), $1=s
    Result:  constant s: [8];  y = load(x) then multiply($0, $1), $1=s
    """
    constants = dict(graph.constants)
    nodes = []
    for node in graph.nodes:
        if not node.output.size:
            constants[node.output.name] = numpy.empty(node.output.shape, node.output.dtype)
            continue
        known = all(name in constants for name in node.reads)
        if known and _is_worth_it(node, sum(constants[name].size for name in node.reads)):
            constants[node.output.name] = evaluate_node(node, constants)
        else:
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes), constants=constants)


def _is_worth_it(node: Node, known: int) -> bool:
    """Returns whether the host computes a node from `known` elements of constants."""
    if node.output.size > max(SMALL, 4 * known):
        return False
    views, output = [o.view for o in node.operands], node.output
    read, held = node.operation.elements_read(views, output.shape), peak_elements(views, output.shape)
    return current_budget().can_fold(read, output.size * numpy.dtype(output.dtype).itemsize, known, held)
