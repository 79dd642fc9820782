"""Integers that are only moved. float32 does not represent them exactly, so the host moves them, not the device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from imgconv.graph.expression import operations
from imgconv.graph.nodes import IDENTITY, Concatenation, Gather, Graph, Load

# Integer types that float32 does not represent exactly, and the largest integer up to which it does.
WIDE = ("int32", "int64", "uint32", "uint64")
EXACT = 2**24


def moved_values(graph: Graph, apart: frozenset[str] = frozenset(), added: bool = False) -> frozenset[str]:
    """The values of WIDE types whose elements are copies of elements of inputs and constants, and these inputs.

    The indices of a Gather may be computed from such values.
    apart: inputs that are left out. added: whether sums count. Passes turn a concatenation into a sum of its parts,
    each padded with zeros.
    """
    found = {v.name for v in graph.inputs if v.dtype in WIDE and v.name not in apart}
    constants = {name for name, array in graph.constants.items() if array.dtype.kind in "iu"}
    found |= constants
    indices = {*found}
    for node in graph.nodes:
        if not isinstance(node.operation, (Load, Concatenation, Gather)) or node.output.dtype not in (*WIDE, "bool"):
            continue
        if node.reads <= indices:
            indices.add(node.output.name)
            gathers, steps = isinstance(node.operation, Gather), set(operations(node.epilogue))
            moving = node.operands[:1] if gathers else node.all_operands
            moves = node.epilogue == IDENTITY or (added and not gathers and steps == {"add"})
            if moves and {o.value for o in moving} <= found:
                found.add(node.output.name)
    return frozenset(found - constants)


def split_moved(graph: Graph, states: Mapping[str, str]) -> tuple[Graph, Graph | None]:
    """The graph without the outputs that the host moves, and the graph of these outputs. None if there are none.

    The graph must be one after the passes: they guard the sums of integers that may exceed 2**24, so that such a sum is
    not mistaken for a concatenation. states: the outputs that stay on the device, and the inputs that they become.
    """
    moved = moved_values(graph, frozenset(states.values()), added=True)
    names = tuple(name for name in graph.outputs if name in moved and name not in states)
    if not names:
        return graph, None
    rest, host = (_of_outputs(graph, n) for n in (tuple(n for n in graph.outputs if n not in names), names))
    read = {name for node in host.nodes for name in node.reads} | {*names}
    return rest, replace(host, inputs=tuple(v for v in graph.inputs if v.name in read))


def _of_outputs(graph: Graph, names: tuple[str, ...]) -> Graph:
    needed, kept = set(names), []
    for node in reversed(graph.nodes):
        if node.output.name in needed:
            kept.append(node)
            needed |= node.reads
    constants = {name: array for name, array in graph.constants.items() if name in needed}
    return replace(graph, outputs=names, nodes=tuple(reversed(kept)), constants=constants)
