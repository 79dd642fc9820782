"""Convolutions and products as plain reductions, which generated kernels compute: one output quad a work item.

A driver may compute conv.cl or matmul.cl wrongly, in all their specialisations. The reductions are slow, and right.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from imgconv.graph.expression import Argument, apply
from imgconv.graph.index import Index
from imgconv.graph.nodes import Convolution, Graph, Node, Operand, Product, Reduction
from imgconv.graph.view import Bound, View, axis_variables, needed, window_reaching


def with_plain_sums(graph: Graph, names: Collection[str]) -> Graph:
    """The graph with those convolutions and products as reductions whose outputs are named."""
    nodes = tuple(plain_sum(node) if node.output.name in names else node for node in graph.nodes)
    return replace(graph, nodes=nodes).validate() if nodes != graph.nodes else graph


def plain_sum(node: Node) -> Node:
    """A convolution or a product as a reduction of the same operands; other nodes as they are."""
    if isinstance(node.operation, Convolution):
        views = _convolution_views(node, node.operation)
    elif isinstance(node.operation, Product):
        *lead, row, column, inner = axis_variables((*node.output.shape, node.operands[0].view.shape[-1]))
        views = [([*lead, row, inner], []), ([*lead, inner, column], [])]
    else:
        return node
    if any(operand.fill for operand in node.operands):
        return node
    shape = (*node.output.shape, *_window(node))
    operands = tuple(
        _through(operand, View(shape, operand.view.shape, tuple(index), needed(bounds)))
        for operand, (index, bounds) in zip(node.operands, views, strict=True)
    )
    body = apply("multiply", Argument(0), Argument(1))
    body = apply("multiply", body, Argument(2)) if len(operands) > 2 else body
    return replace(node, operation=Reduction("sum", body), operands=operands)


def _window(node: Node) -> tuple[int, ...]:
    """The axes over which a node sums: of channels, rows and columns, or of K."""
    if isinstance(node.operation, Convolution):
        x, w = node.operands[:2]
        return x.view.shape[1] // node.operation.groups, *w.view.shape[2:]
    return node.operands[0].view.shape[-1:]


def _convolution_views(node: Node, operation: Convolution) -> list[tuple[list[Index], list[Bound]]]:
    """Index and bounds of each operand, by the axes of the output, then channel, row and column of the window."""
    x, _, *factors = node.operands
    window = _window(node)
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


def _through(operand: Operand, view: View) -> Operand:
    """The operand read through a further view, which reads zeros outside of it."""
    return replace(operand, view=view.over(operand.view))
