"""Copy operands that the convolution kernels cannot read through their view."""

from __future__ import annotations

from dataclasses import replace

from imgconv.graph.index import Variable, constant, variable
from imgconv.graph.nodes import Convolution, Graph, Load, Node, Operand, Value, whole_operand
from imgconv.graph.view import View, axis_variables
from imgconv.kernels.layout import LANES


def materialise_operands(graph: Graph) -> Graph:
    """Insert a load before a convolution that reads its input in another order; elementwise work can join the load.

    Given:   e = load(x) then multiply($0, 2);  y = convolution(e[0, i1, table[i2], i3], w)
    Result:  e = load(x) then multiply($0, 2);  e.moved = load(e[0, i1, table[i2], i3]);  y = convolution(e.moved, w)
    """
    nodes: list[Node] = []
    made: dict[Operand, Value] = {}
    for node in graph.nodes:
        operand = node.operands[0]
        is_input = operand.value not in graph.constants
        if isinstance(node.operation, Convolution) and is_input and reorders_texels(operand):
            if operand not in made:
                name = graph.unused_name(f"{node.output.name}.input")
                made[operand] = Value(name, operand.view.shape, graph.values[operand.value].dtype)
                nodes.append(Node(made[operand], Load(), (operand,), origin=node.origin))
            node = replace(node, operands=(whole_operand(made[operand]), *node.operands[1:]))
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes))


def reorders_texels(operand: Operand) -> bool:
    """Returns whether the view changes rows, columns or channels.

    One that only adds or removes axes of length 1 does not, nor does one that takes channels by whole texels.
    """
    view = operand.view
    if view.bounds:
        return True
    if _reads_whole_texels(view):
        return False
    kept = [n for n in view.shape if n > 1] == [n for n in view.source if n > 1]
    used = [str(e) for e, n in zip(view.index, view.source, strict=True) if n > 1]
    long = [f"i{axis}" for axis, n in enumerate(view.shape) if n > 1]
    return not (kept and used == long)


def _reads_whole_texels(view: View) -> bool:
    """Returns whether the view (N, C, H, W) reads texels of four channels whole: a slice of them, or a table's."""
    if len(view.source) != 4 or view.shape[1] % LANES:
        return False
    own = axis_variables(view.shape)
    others = all(view.shape[a] == view.source[a] and view.index[a] in (own[a], constant(0)) for a in (0, 2, 3))
    lane = variable("lane", LANES)
    texels = variable("quad", view.shape[1] // LANES) * LANES
    first = view.index[1].substitute({Variable("i1", view.shape[1]): texels + lane}) - lane
    return others and first % LANES == constant(0) and {v.name for v in first.variables()} <= {"quad"}
