"""Joins two graphs, and renames the values of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from imgconv.graph.graph_error import require
from imgconv.graph.nodes import Graph, Operand, Value


def rename_values(graph: Graph, names: Mapping[str, str]) -> Graph:
    """The graph with some values renamed. names: old name to new name, which no value may have."""
    if not names:
        return graph

    def renamed(v: Value) -> Value:
        return replace(v, name=names.get(v.name, v.name))

    def renamed_operands(operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
        return tuple(replace(o, value=names.get(o.value, o.value)) for o in operands)

    nodes = (
        replace(
            n, output=renamed(n.output), operands=renamed_operands(n.operands),
            epilogue_operands=renamed_operands(n.epilogue_operands),
        )
        for n in graph.nodes
    )
    return replace(
        graph, inputs=tuple(map(renamed, graph.inputs)), outputs=tuple(names.get(n, n) for n in graph.outputs),
        nodes=tuple(nodes), constants={names.get(n, n): array for n, array in graph.constants.items()},
    )


def join_graphs(first: Graph, second: Graph) -> Graph:
    """Both graphs as one. The outputs of the first become inputs of the second that have the same names.

    Inputs and the values of the second keep their names. Other values of the first are renamed if a name is taken.
    """
    fed, given = frozenset(first.outputs), {v.name for v in first.inputs}
    require(fed <= {v.name for v in second.inputs} and not given & second.values.keys(), "names of joined graphs")
    names: dict[str, str] = {}
    for name in first.values.keys() & second.values.keys() - fed:
        other = f"{name}_"
        while other in first.values or other in second.values or other in names.values():
            other += "_"
        names[name] = other
    first = rename_values(first, names)
    inputs = (*first.inputs, *(v for v in second.inputs if v.name not in fed))
    nodes, constants = (*first.nodes, *second.nodes), {**first.constants, **second.constants}
    return replace(second, inputs=inputs, nodes=nodes, constants=constants).validate()
