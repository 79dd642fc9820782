"""Remove nodes and constants that no output needs."""

from __future__ import annotations

from dataclasses import replace

from imgconv.graph.nodes import Graph


def remove_dead_code(graph: Graph) -> Graph:
    """Drop nodes and constants that no output depends on. Inputs stay: they are the model's interface.

    Given:   a = load(x) then exp($0);  b = load(x) then relu;  output b
    Result:  b = load(x) then relu;  output b
    """
    needed = set(graph.outputs)
    kept = []
    for node in reversed(graph.nodes):
        if node.output.name in needed:
            kept.append(node)
            needed |= node.reads
    constants = {name: array for name, array in graph.constants.items() if name in needed}
    return replace(graph, nodes=tuple(reversed(kept)), constants=constants)
