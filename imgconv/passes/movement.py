"""Move elementwise work before movements, so that it can join the kernel before them."""

from __future__ import annotations

from dataclasses import replace

from imgconv.graph.nodes import IDENTITY, Graph, Load, Node, Operand, Value, whole_operand
from imgconv.passes.views import is_movement


def sink_movement(graph: Graph) -> Graph:
    """Exchange a movement and the elementwise work on its result, or a change of its dtype, if it reads no fill value.

    Given:   m = load(conv[0, i2, i1]);  y = load(m) then relu
    Result:  y_still = load(conv) then relu;  y = load(y_still[0, i2, i1])
    """
    movements: dict[str, Operand] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        moved = movements.get(node.operands[0].value)
        if moved is not None and _is_unary(graph, node) and len(graph.consumers[node.operands[0].value]) == 1:
            still = Value(graph.unused_name(f"{node.output.name}.still"), moved.view.source, node.output.dtype)
            nodes.append(replace(node, output=still, operands=(whole_operand(replace(still, name=moved.value)),)))
            node = replace(node, operands=(Operand(still.name, moved.view),), epilogue=IDENTITY)
        nodes.append(node)
        read = node.operands[0]
        # A load through the identity view, such as a change of dtype, moves nothing. One that does both also computes.
        keeps_dtype = graph.values.get(read.value, node.output).dtype == node.output.dtype  # a "still" has the same
        moves = is_movement(node) and keeps_dtype and not read.view.is_identity and not read.view.bounds
        if moves and node.output.name not in graph.outputs:
            movements[node.output.name] = read
    return replace(graph, nodes=tuple(nodes))


def _is_unary(graph: Graph, node: Node) -> bool:
    if not isinstance(node.operation, Load) or node.epilogue_operands or not node.operands[0].view.is_identity:
        return False
    return node.epilogue != IDENTITY or node.output.dtype != graph.values[node.operands[0].value].dtype
