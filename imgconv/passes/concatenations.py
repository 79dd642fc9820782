"""Decide which concatenations are written in place and which are read through views."""

from __future__ import annotations

from dataclasses import replace

from imgconv.graph.expression import Argument, Expression, apply
from imgconv.graph.nodes import Concatenation, Graph, Load, Node, Operand, Value, whole_operand
from imgconv.graph.view import pad
from imgconv.kernels.layout import LANES
from imgconv.passes.views import compose

MOST_OPERANDS = 12


def align_concatenations(graph: Graph) -> Graph:
    """Group the parts of a channel concatenation so that each group starts at a texel boundary.

    Kernels write the parts of such a concatenation in place. The parts within one group become one load: their sum,
    each read through a view that is zero outside its own position. So do the parts of a concatenation along another
    axis.

    Given:   y = concatenation axis 1(a: [1, 8, 4, 4], b: [1, 3, 4, 4], c: [1, 5, 4, 4])
    Result:  s = load(b[0, i1, ..] where i1 < 3) then add($0, $1), $1=c[0, i1 - 3, ..] where 3 <= i1
             y = concatenation axis 1(a, s)
    """
    nodes: list[Node] = []
    for node in graph.nodes:
        operation = node.operation
        nodes += _rewrite(graph, node, operation.axis) if isinstance(operation, Concatenation) else [node]
    return replace(graph, nodes=tuple(nodes))


def _rewrite(graph: Graph, node: Node, axis: int) -> list[Node]:
    in_place = axis == 1 and len(node.output.shape) in (2, 4, 5)
    segments: list[list[Operand]] = [[]]
    made: list[Node] = []
    offset = 0
    for number, operand in enumerate(node.operands):
        if operand.view.bounds and operand.fill != 0:
            # The sum needs zero outside of each part, so a part with another fill value gets a tensor of its own.
            name = graph.unused_name(f"{node.output.name}.filled{number}")
            value = Value(name, operand.view.shape, node.output.dtype)
            made.append(Node(value, Load(), (operand,), origin=node.origin))
            operand = whole_operand(value)
        aligned = in_place and offset % LANES == 0
        if segments[-1] and (aligned or len(segments[-1]) == MOST_OPERANDS):
            segments.append([])
        segments[-1].append(operand)
        offset += operand.view.shape[axis]
    if len(segments) == 1:
        return [*made, _padded_sum(node, node.output, segments[0], axis)]
    parts = []
    for number, segment in enumerate(segments):
        if len(segment) == 1:
            parts.append(segment[0])
            continue
        shape = list(node.output.shape)
        shape[axis] = sum(o.view.shape[axis] for o in segment)
        value = Value(graph.unused_name(f"{node.output.name}.part{number}"), tuple(shape), node.output.dtype)
        made.append(_padded_sum(node, value, segment, axis))
        parts.append(whole_operand(value))
    if in_place and all(p.view.shape[axis] % LANES == 0 for p in parts[:-1]):
        return [*made, replace(node, operands=tuple(parts))]
    return [*made, _padded_sum(node, node.output, parts, axis)]


def _padded_sum(node: Node, output: Value, parts: list[Operand], axis: int) -> Node:
    """The load that adds the parts, each read as zero outside of its own position."""
    operands = []
    offset = 0
    for part in parts:
        size = part.view.shape[axis]
        before = [offset if a == axis else 0 for a in range(len(output.shape))]
        after = [output.shape[axis] - offset - size if a == axis else 0 for a in range(len(output.shape))]
        made = compose(Operand("", pad(part.view.shape, before, after)), part)
        assert made is not None, "both fill with zero"
        operands.append(made)
        offset += size
    total: Expression = Argument(0)
    for number in range(1, len(operands)):
        total = apply("add", total, Argument(number))
    return replace(
        node, output=output, operation=Load(), operands=(operands[0],), epilogue=total,
        epilogue_operands=tuple(operands[1:]),
    )
