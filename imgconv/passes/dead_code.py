"""Remove nodes and constants that no output needs."""

from __future__ import annotations

from imgconv.graph.nodes import Graph


def remove_dead_code(graph: Graph) -> Graph:
    """Drop nodes and constants that no output depends on. Inputs stay: they are the model's interface.

    Given:   a = load(x) then exp($0);  b = load(x) then relu;  output b
    Result:  b = load(x) then relu;  output b
    """
    return graph.with_outputs(graph.outputs)
