"""Replace convolutions and products by plain reductions, for generated kernels with one output quad per work item.

They are slow but correct: a driver may compute conv.cl or matmul.cl incorrectly, in all their specialisations, and
conv.cl only accepts packed constants as weights.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from imgconv.graph.expression import Argument, apply
from imgconv.graph.index import Index
from imgconv.graph.nodes import Convolution, Graph, Load, Node, Operand, Product, Reduction, Value, whole_operand
from imgconv.graph.view import Bound, View, axis_variables, merged_bounds, window_reaching


def reduce_dynamic_weights(graph: Graph) -> Graph:
    """Replace a convolution with computed weights by a sum of products, because conv.cl only accepts packed constants.

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
            if _has_nonzero_fill(operand):
                # The reduction pads with zero, so an operand with another fill value becomes a tensor first.
                name = graph.unused_name(f"{node.output.name}.operand{number}")
                padded = Value(name, operand.view.shape, graph.values[operand.value].dtype)
                nodes.append(Node(padded, Load(), (operand,), origin=node.origin))
                operand = whole_operand(padded)
            operands.append(operand)
        nodes.append(sum_to_reduction(replace(node, operands=tuple(operands))))
    return replace(graph, nodes=tuple(nodes))


def sums_to_reductions(graph: Graph, names: Collection[str]) -> Graph:
    """The graph with those convolutions and products as reductions whose outputs are named."""
    nodes = tuple(sum_to_reduction(node) if node.output.name in names else node for node in graph.nodes)
    return replace(graph, nodes=nodes).validate() if nodes != graph.nodes else graph


def sum_to_reduction(node: Node) -> Node:
    """A convolution or a product as a reduction of the same operands; other nodes as they are."""
    if isinstance(node.operation, Convolution):
        views = _convolution_views(node, node.operation)
    elif isinstance(node.operation, Product):
        *lead, row, column, inner = axis_variables((*node.output.shape, node.operands[0].view.shape[-1]))
        views = [([*lead, row, inner], []), ([*lead, inner, column], [])]
    else:
        return node
    if any(map(_has_nonzero_fill, node.operands)):
        return node
    shape = (*node.output.shape, *_reduced_axes(node))
    operands = tuple(
        Operand(
            operand.value,
            View(shape, operand.view.shape, tuple(index), merged_bounds(bounds)).composed_with(operand.view),
        )
        for operand, (index, bounds) in zip(node.operands, views, strict=True)
    )
    body = apply("multiply", Argument(0), Argument(1))
    body = apply("multiply", body, Argument(2)) if len(operands) > 2 else body
    return replace(node, operation=Reduction("sum", body), operands=operands)


def _has_nonzero_fill(operand: Operand) -> bool:
    """Returns whether an operand reads another number than zero outside of its view's bounds."""
    return bool(operand.view.bounds) and operand.fill != 0


def _reduced_axes(node: Node) -> tuple[int, ...]:
    """The axes over which a node sums: of channels, rows and columns, or of K."""
    if isinstance(node.operation, Convolution):
        x, w = node.operands[:2]
        return x.view.shape[1] // node.operation.groups, *w.view.shape[2:]
    return node.operands[0].view.shape[-1:]


def _convolution_views(node: Node, operation: Convolution) -> list[tuple[list[Index], list[Bound]]]:
    """Index and bounds of each operand, by the axes of the output, then channel, row and column of the window."""
    x, _, *factors = node.operands
    window = _reduced_axes(node)
    image, filter_, row, column, c, ky, kx = axis_variables((*node.output.shape, *window))
    filters = node.output.shape[1] // operation.groups
    channel, where, bounds = filter_ // filters * window[0] + c, list[Index](), list[Bound]()
    for at, tap, size, stride, dilation, pad in zip(
        (row, column), (ky, kx), x.view.shape[2:], operation.strides, operation.dilations, operation.pads, strict=True
    ):
        if operation.transposed:
            read, reached = window_reaching(at, tap, stride, dilation, pad, size)
        else:
            read = at * stride + tap * dilation - pad
            reached = [Bound(read, 0, size)]
        where.append(read)
        bounds += reached
    weights = [channel, filter_ % filters, ky, kx] if operation.transposed else [filter_, c, ky, kx]
    zero = image * 0
    return [([image, channel, *where], bounds), (weights, []), *(([image, channel, zero, zero], []) for _ in factors)]
