"""Turn convolutions whose weights are not constants into reductions."""

from __future__ import annotations

from dataclasses import replace

from imgconv.graph.expression import Argument, apply
from imgconv.graph.nodes import Convolution, Graph, Load, Node, Operand, Reduction, Value, plain
from imgconv.graph.view import Bound, View, axis_variables, window_reaching


def reduce_dynamic_weights(graph: Graph) -> Graph:
    """Write a convolution with computed weights as a sum of products, since conv.cl takes only packed constants.

    Given:   y = convolution(x, w)                                 w an input or computed
    Result:  y = sum of multiply($0, $1)(x[i0, i4, i2 + i5, i3 + i6], w[i1, i4, i5, i6])
    """
    nodes: list[Node] = []
    for node in graph.nodes:
        if not isinstance(node.operation, Convolution) or node.operands[1].value in graph.constants:
            nodes.append(node)
            continue
        operands = []
        for number, operand in enumerate(node.operands):
            if operand.view.bounds and operand.fill != 0:
                # The views below pad with zero, so an operand with another fill value becomes a tensor first.
                name = graph.unused(f"{node.output.name}.operand{number}")
                padded = Value(name, operand.view.shape, graph.values[operand.value].dtype)
                nodes.append(Node(padded, Load(), (operand,), origin=node.origin))
                operand = plain(padded)
            operands.append(operand)
        nodes.append(_rewrite(replace(node, operands=tuple(operands))))
    return replace(graph, nodes=tuple(nodes))


def _rewrite(node: Node) -> Node:
    assert isinstance(node.operation, Convolution)
    x, w = node.operands
    seen_x, seen_w = _views(node.operation, node.output.shape, x.view.shape, w.view.shape)
    operands = (_through(seen_x, x), _through(seen_w, w))
    return replace(node, operation=Reduction("sum", apply("multiply", Argument(0), Argument(1))), operands=operands)


def _through(seen: View, operand: Operand) -> Operand:
    return Operand(operand.value, seen.over(operand.view))


def _views(
    operation: Convolution, output: tuple[int, ...], x: tuple[int, ...], w: tuple[int, ...]
) -> tuple[View, View]:
    """The input and the weights at every output position (n, o, y, x) and window position (c, ky, kx)."""
    groups = operation.groups
    each_in, each_out = x[1] // groups, output[1] // groups
    shape = (*output, each_in, *w[2:])
    n, o, *position, c, ky, kx = axis_variables(shape)
    group = o // each_out
    bounds = []
    places = []
    for axis, (at, tap) in enumerate(zip(position, (ky, kx), strict=True)):
        stride, dilation, pad = operation.strides[axis], operation.dilations[axis], operation.pads[axis]
        if operation.transposed:
            place, inside = window_reaching(at, tap, stride, dilation, pad, x[2 + axis])
            places.append(place)
            bounds += inside
        else:
            places.append(at * stride + tap * dilation - pad)
            bounds.append(Bound(places[-1], 0, x[2 + axis]))
    channel = group * each_in + c
    filters = (channel, o % each_out) if operation.transposed else (o, c)
    seen_x = View(shape, x, (n, channel, *places), tuple(b for b in bounds if not b.always))
    return seen_x, View(shape, w, (*filters, ky, kx))
