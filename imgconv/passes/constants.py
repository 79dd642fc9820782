"""Compute values that depend on constants only."""

from __future__ import annotations

from dataclasses import replace

import numpy

from imgconv.graph.evaluate import evaluate_node
from imgconv.graph.nodes import Graph

SMALL = 1 << 16


def fold_constants(graph: Graph) -> Graph:
    """Replace each node that reads only constants by its value, unless the value is much larger than those constants.

    A value without elements is a constant too.

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
        if known and node.output.size <= max(SMALL, 4 * sum(constants[name].size for name in node.reads)):
            constants[node.output.name] = evaluate_node(node, constants)
        else:
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes), constants=constants)
