"""Move elementwise work after a concatenation into the kernels that compute its parts."""

from __future__ import annotations

from dataclasses import replace

from imgconv.graph.nodes import Concatenation, Convolution, Graph, Load, Node, Operand, Product, Value, whole_operand
from imgconv.graph.view import slice_
from imgconv.kernels.layout import LANES
from imgconv.passes.elementwise import merge_elementwise
from imgconv.passes.views import compose_if_short


def push_into_concatenation(graph: Graph) -> Graph:
    """Move elementwise work on a concatenation of channels to its parts, if no part then needs an additional kernel.

    The work becomes part of the epilogue of a kernel that computes a part, or of a part's copy. For example, MixNet's
    and InceptionNeXt's layers normalise the results of several convolutions.

    Given:   y = concatenation axis 1(a: [1, 8, 4, 4], b: [1, 4, 4, 4]);  z = load(y) then add($0, $1), $1=x
    Result:  z.part0 = load(a) then add($0, $1), $1=x[0, i1, i2, i3]
             z.part1 = load(b) then add($0, $1), $1=x[0, i1 + 8, i2, i3];  z = concatenation axis 1(z.part0, z.part1)
    """
    made: dict[str, list[Node]] = {}
    for node in graph.nodes:
        name = _concatenation_of(graph, node)
        if name is not None:
            parts = _push_into_parts(graph, node, graph.producers[name])
            made |= {} if parts is None else {node.output.name: parts, name: []}
    split = replace(graph, nodes=tuple(new for node in graph.nodes for new in made.get(node.output.name, [node])))
    return merge_elementwise(split) if made else graph


def _concatenation_of(graph: Graph, node: Node) -> str | None:
    """The name of the concatenation on which a load works, if its parts can take the work and nothing else reads it."""
    if not isinstance(node.operation, Load):
        return None
    for operand in node.all_operands:
        made = graph.producers.get(operand.value)
        if made is None or made.operation != Concatenation(1) or operand.value in graph.outputs:
            continue
        alone = graph.consumers[operand.value] == (node,)
        whole = all(o.view.is_identity for o in node.all_operands if o.value == operand.value)
        aligned = all(part.view.shape[1] % LANES == 0 for part in made.operands[:-1])  # parts begin at whole texels
        if alone and whole and aligned and all(_can_take_work(graph, part) for part in made.operands):
            return operand.value
    return None


def _can_take_work(graph: Graph, part: Operand) -> bool:
    """Returns whether a part has a kernel that can do work on it: one that makes it, or copies it.

    A part that others read too may be written in place all the same, so no copy of it is sure.
    """
    made = graph.producers.get(part.value)
    alone = len(graph.consumers[part.value]) == 1 and part.value not in graph.outputs
    if made is None or not part.view.is_identity:
        return True
    return alone and isinstance(made.operation, (Convolution, Load, Product))


def _push_into_parts(graph: Graph, node: Node, whole: Node) -> list[Node] | None:
    """The work on each part, and the concatenation of its results. None if an operand's view would be too long."""
    nodes: list[Node] = []
    first, shape = 0, node.output.shape
    for number, part in enumerate(whole.operands):
        starts = [first if axis == 1 else 0 for axis in range(len(shape))]
        taken = slice_(shape, starts, part.view.shape, [1] * len(shape))
        operands = [
            part if o.value == whole.output.name else compose_if_short(Operand("", taken), o) for o in node.all_operands
        ]
        known = [operand for operand in operands if operand is not None]
        if len(known) < len(operands):
            return None
        value = Value(graph.unused_name(f"{node.output.name}.part{number}"), part.view.shape, node.output.dtype)
        nodes.append(replace(node, output=value, operands=(known[0],), epilogue_operands=tuple(known[1:])))
        first += part.view.shape[1]
    joined = Node(
        node.output, whole.operation, tuple(whole_operand(each.output) for each in nodes), origin=whole.origin
    )
    return [*nodes, joined]
