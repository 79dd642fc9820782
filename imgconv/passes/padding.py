"""Fold zero padding into the convolution that reads it."""

from __future__ import annotations

from dataclasses import replace

from imgconv.graph.nodes import Convolution, Graph, Node, Operand
from imgconv.graph.view import Bound, View, axis_variables


def fold_padding(graph: Graph) -> Graph:
    """Let a convolution of a zero-padded tensor, or of some channels of one, read the tensor itself and apply the
    padding.

    Given:   y = convolution(x[0, i1, i2 - 1, i3 - 1 where 1 <= i2 < 9 and 1 <= i3 < 9], w)
    Result:  y = convolution pads 1x1(x, w)
    """
    return replace(graph, nodes=tuple(_rewrite(node) for node in graph.nodes))


def _rewrite(node: Node) -> Node:
    operation, operand = node.operation, node.operands[0]
    if not isinstance(operation, Convolution) or operation.transposed or operand.fill != 0:
        return node
    before = _zeros_before(operand.view)
    if before is None:
        return node
    pads = (operation.pads[0] + before[0], operation.pads[1] + before[1])
    inside = (*operand.view.shape[:2], *operand.view.source[2:])
    channels = View(inside, operand.view.source, (*operand.view.index[:2], *axis_variables(inside)[2:]))
    whole = Operand(operand.value, channels)
    return replace(node, operation=replace(operation, pads=pads), operands=(whole, *node.operands[1:]))


def _zeros_before(view: View) -> tuple[int, int] | None:
    """(Zeros above, zeros to the left) if the view is channels of its source with zeros around the last two axes."""
    if not view.bounds or len(view.source) != 4 or len(view.shape) != 4 or view.shape[0] != view.source[0]:
        return None
    axes = axis_variables(view.shape)
    if view.index[0] != axes[0] or {v.name for v in view.index[1].variables()} - {"i1"}:
        return None
    offsets = [view.index[a] - axes[a] for a in (2, 3)]
    if not all(o.is_constant for o in offsets):
        return None
    # A crop does not fit: with its own padding, the convolution would read the elements that are cropped.
    if any(o.constant > 0 or view.shape[a] + o.constant < view.source[a] for a, o in zip((2, 3), offsets, strict=True)):
        return None
    expected = []
    for axis, offset in zip((2, 3), offsets, strict=True):
        bound = Bound(axes[axis], -offset.constant, view.source[axis] - offset.constant)
        expected += [] if bound.always else [bound]
    return (-offsets[0].constant, -offsets[1].constant) if set(view.bounds) == set(expected) else None
