"""Split the maximum over large windows in two: along their rows, then along their columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from imgconv.graph.index import Variable
from imgconv.graph.nodes import IDENTITY, Graph, Node, Operand, Reduction, Value
from imgconv.graph.view import View, windows
from imgconv.kernels.layout import LANES

KINDS = ("max", "min")  # rounding the result of the first step does not change their results
LAUNCH = 200_000  # the cost of a launch in texel reads
BLOCK = 8  # neighbouring outputs that share their reads: imgconv/kernels/codegen/windows.py


@dataclass(frozen=True)
class Sliding:
    """Sliding windows over the last axes: length, stride, dilation and padding before, each by axis."""

    window: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]

    def reads(self, axis: int) -> float:
        """Reads per output along an axis, if BLOCK neighbouring outputs share theirs."""
        taps, spread = self.window[axis], (self.window[axis] - 1) * self.dilations[axis]
        return min(taps, ((BLOCK - 1) * self.strides[axis] + spread + 1) / BLOCK)

    def only(self, start: int, stop: int) -> Sliding:
        """The windows along axes `start` to `stop` only; along the others they have length 1 and stride 1."""
        def chosen(numbers: tuple[int, ...], other: int) -> tuple[int, ...]:
            return tuple(n if start <= axis < stop else other for axis, n in enumerate(numbers))

        return Sliding(
            chosen(self.window, 1), chosen(self.strides, 1), chosen(self.dilations, 1), chosen(self.pads, 0)
        )

    def view(self, source: tuple[int, ...], shape: tuple[int, ...]) -> View:
        """The view of the source whose reduction over the windows has shape `shape`."""
        sizes = shape[len(shape) - len(self.window) :]
        return windows(source, sizes, self.window, self.strides, self.dilations, self.pads)


def separate_windows(graph: Graph) -> Graph:
    """Take the maximum or minimum over large windows along the last axis first, then along the others.

    Given:   y: [1, 64, 80, 80] = max(x[0, i1, i2 + i4 - 6, i3 + i5 - 6])            window 13x13
    Result:  y.rows: [1, 64, 80, 80] = max(x[0, i1, i2, i3 + i5 - 6])                window 1x13
             y: [1, 64, 80, 80] = max(y.rows[0, i1, i2 + i4 - 6, i3])                window 13x1
    """
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes += _separate(graph, node)
    return replace(graph, nodes=tuple(nodes))


def _separate(graph: Graph, node: Node) -> list[Node]:
    operation = node.operation
    if not isinstance(operation, Reduction) or operation.kind not in KINDS or operation.body != IDENTITY:
        return [node]
    operand, shape = node.operands[0], node.output.shape
    sliding = _sliding(operand.view, shape)
    if sliding is None or sliding.window[-1] == 1 or not _pays(sliding, operand.view.source, node):
        return [node]
    source, count = operand.view.source, len(sliding.window)
    rows = Value(graph.unused(f"{node.output.name}.rows"), (*source[:-1], shape[-1]), graph.values[operand.value].dtype)
    along, across = sliding.only(count - 1, count), sliding.only(0, count - 1)
    return [
        Node(rows, operation, (replace(operand, view=along.view(source, rows.shape)),), origin=node.origin),
        replace(node, operands=(Operand(rows.name, across.view(rows.shape, shape), operand.fill),)),
    ]


def _sliding(view: View, shape: tuple[int, ...]) -> Sliding | None:
    """The windows that a view slides over the last axes of its source; None if it is no such view."""
    rank, window = len(shape), view.shape[len(shape) :]
    axes = range(rank - len(window), rank)
    if len(view.source) != rank or len(window) > rank:
        return None
    terms = [dict(view.index[axis].terms) for axis in axes]
    sliding = Sliding(
        window,
        tuple(t.get(Variable(f"i{a}", shape[a]), 1) for a, t in zip(axes, terms, strict=True)),
        tuple(t.get(Variable(f"i{rank + n}", window[n]), 1) for n, t in enumerate(terms)),
        tuple(-view.index[a].constant for a in axes),
    )
    return sliding if sliding.view(view.source, shape) == view else None


def _pays(sliding: Sliding, source: tuple[int, ...], node: Node) -> bool:
    """Returns whether two launches cost less than one, in reads: a write counts as two, a launch as LAUNCH texels."""
    *outer, last = range(len(sliding.window))
    long = [axis for axis in outer if sliding.window[axis] > 1]
    if not long:
        return False
    others = prod(sliding.window[axis] for axis in long)
    shared = others / sliding.window[long[-1]] * sliding.reads(long[-1])
    middle = prod(source[:-1]) * node.output.shape[-1]
    together = node.output.size * others * sliding.reads(last)
    apart = middle * (sliding.reads(last) + 2) + node.output.size * shared
    return together > apart + LAUNCH * LANES
