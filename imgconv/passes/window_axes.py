"""Split window axes of reductions that run over several axes of what is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from imgconv.graph.index import Division, Index, Modulo, Variable
from imgconv.graph.nodes import Graph, Node, Reduction
from imgconv.graph.view import View, reshape


def split_window_axes(graph: Graph) -> Graph:
    """Split a window axis in two, if divisions of its position then cancel.

    For example, a group of channels that was reshaped to one axis becomes channels, rows and columns again. Kernels
    then read four channels at a time, and no position is divided.

    Given:   s: [1, 4] = sum(x[0, i2/1600 + i1*8, (i2/40)%40, i2%40])          window 12800
    Result:  s: [1, 4] = sum(x[0, i2 + i1*8, i3, i4])                          window 8x40x40
    """
    return replace(graph, nodes=tuple(_split(n) if isinstance(n.operation, Reduction) else n for n in graph.nodes))


def _split(node: Node) -> Node:
    rank = len(node.output.shape)
    while True:
        views = [o.view for o in node.operands]
        for shape in _shapes_with_split_axis(views, rank):
            others = [reshape(view.shape, shape).composed_with(view) for view in views]
            if _term_count(others) < _term_count(views):
                operands = tuple(replace(o, view=v) for o, v in zip(node.operands, others, strict=True))
                node = replace(node, operands=operands)
                break
        else:
            return node


def _shapes_with_split_axis(views: list[View], rank: int) -> Iterator[tuple[int, ...]]:
    """The shape of the views with one window axis split, for each axis and divisor that some index suggests."""
    shape = views[0].shape
    found = set()
    for view in views:
        for expression in (*view.index, *(b.index for b in view.bounds)):
            found |= set(_divided_variables(expression))
    for axis in range(rank, len(shape)):
        for divisor in sorted({d for name, d in found if name == f"i{axis}"}, reverse=True):
            if 1 < divisor < shape[axis] and shape[axis] % divisor == 0:
                yield (*shape[:axis], shape[axis] // divisor, divisor, *shape[axis + 1 :])


def _divided_variables(expression: Index) -> Iterator[tuple[str, int]]:
    """Variables that are divided, and by what: ("i2", 40) for (i2/40)%40."""
    for atom, _ in expression.terms:
        if isinstance(atom, Variable):
            continue
        if isinstance(atom, (Division, Modulo)):
            for inner, factor in atom.value.terms:
                if isinstance(inner, Variable) and factor and atom.divisor % factor == 0:
                    yield inner.name, atom.divisor // abs(factor)
        yield from _divided_variables(atom.value)


def _term_count(views: list[View]) -> int:
    return sum(e.term_count for view in views for e in (*view.index, *(b.index for b in view.bounds)))
