"""Integers that are only moved. The host moves them, not the device, because float32 does not represent them exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

import numpy

from imgconv.arrays import Array
from imgconv.graph.evaluate import evaluate_graph
from imgconv.graph.expression import function_names
from imgconv.graph.nodes import IDENTITY, Concatenation, Gather, Graph, Load

# Integer types that float32 does not represent exactly, and the largest integer up to which it does.
WIDE = ("int32", "int64", "uint32", "uint64")
EXACT = 2**24


def pass_through_values(graph: Graph, apart: frozenset[str] = frozenset(), added: bool = False) -> frozenset[str]:
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
            gathers, steps = isinstance(node.operation, Gather), set(function_names(node.epilogue))
            moving = node.operands[:1] if gathers else node.all_operands
            moves = node.epilogue == IDENTITY or (added and not gathers and steps == {"add"})
            if moves and {o.value for o in moving} <= found:
                found.add(node.output.name)
    return frozenset(found - constants)


def split_pass_through(graph: Graph, states: Mapping[str, str]) -> tuple[Graph, Graph | None]:
    """The graph without the outputs that the host moves, and the graph of these outputs. None if there are none.

    The graph must be one after the passes: they guard the sums of integers that may exceed 2**24, so that such a sum is
    not mistaken for a concatenation. states: the outputs that stay on the device, and the inputs that they become.
    """
    moved = pass_through_values(graph, frozenset(states.values()), added=True)
    names = tuple(name for name in graph.outputs if name in moved and name not in states)
    if not names:
        return graph, None
    plain = replace(graph, host_partition=None)
    rest, host = plain.with_outputs(n for n in graph.outputs if n not in names), plain.with_outputs(names)
    read = {name for node in host.nodes for name in node.reads} | {*names}
    return rest, replace(host, inputs=tuple(v for v in graph.inputs if v.name in read))


def pass_through_sources(graph: Graph) -> dict[str, tuple[Array, Array]]:
    """Returns the origin of each integer of each output, so that a reader without our graph can move it.

    graph: of split_pass_through. Gives two int64 arrays for each output, in row-major order: the number of an input and
    of an element of it; or -1 and the integer itself, for a constant. Empty if an input chooses what is moved, or sums
    occur.

        x int64 (2,), y = concatenation of x and [7]    y: [0, 0, -1], [0, 1, 7]
    """
    if _has_input_as_gather_index(graph):
        return {}
    sizes = [prod(v.shape) for v in graph.inputs]
    begins = numpy.cumsum([0, *sizes])
    total = int(begins[-1])

    def evaluated(first: int, step: int) -> dict[str, Array]:
        """The outputs for inputs whose elements are numbered, one after the other."""
        given = {
            v.name: (first + step * numpy.arange(begin, begin + size)).reshape(v.shape)
            for v, begin, size in zip(graph.inputs, begins, sizes, strict=False)
        }
        return evaluate_graph(graph, given)

    zero, numbered, shifted = evaluated(0, 0), evaluated(1, 1), evaluated(1 + total, 1)
    found = {}
    for name, array in numbered.items():
        number, change, rest = (a.ravel().astype(numpy.int64) for a in (array, shifted[name] - array, zero[name]))
        constant = (change == 0) & (number == rest)
        if not numpy.all(constant | ((change == total) & (rest == 0))):
            return {}
        source = numpy.where(constant, -1, numpy.searchsorted(begins, number - 1, "right") - 1)
        found[name] = source, numpy.where(constant, number, number - 1 - begins[source])
    return found


def _has_input_as_gather_index(graph: Graph) -> bool:
    """Returns whether an input is an index of a Gather."""
    made = {v.name for v in graph.inputs}
    for node in graph.nodes:
        if isinstance(node.operation, Gather) and any(o.value in made for o in node.operands[1:]):
            return True
        if not made.isdisjoint(node.reads):
            made.add(node.output.name)
    return False
