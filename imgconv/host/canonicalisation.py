"""Nodes that come to one: Paddle's exporter writes an assignment as a sum with zero, between two changes of shape.

    wide = Unsqueeze(x, [0])
    same = Add(wide, zero)           becomes      y = Add(x, 0.0), and Identity(x) if x is of integers
    y = Squeeze(same, [0])

The sum of floats stays, because it makes 0.0 of -0.0. A body of a decoder's loop has ten of these.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from imgconv.arrays import Array, Arrays
from imgconv.graph.onnx_nodes import HostGraph, HostNode
from imgconv.host.subgraphs import constants_of

ENDS = ([0], [-1])  # axes that every rank has


def canonicalised(graph: HostGraph) -> HostGraph:
    """The graph, and the bodies of its nodes, with one node in place of such three."""
    nodes = [
        replace(node, attributes={**node.attributes, **{n: canonicalised(b) for n, b in node.bodies.items()}})
        for node in graph.nodes
    ]
    known, taken = constants_of(graph), {*graph.own, *graph.captured}
    makers = {name: node for node in nodes for name in node.outputs if name}
    reads = Counter([*graph.outputs, *(name for node in nodes for name in node.reads)])
    constants, passed = dict(graph.constants), set[str]()
    for number, node in enumerate(nodes):
        found = _assignment(node, makers, reads, known)
        if found:
            wide, same, zero = found
            passed.update((*wide.outputs, *same.outputs))
            op_type, inputs = "Identity", wide.inputs[:1]
            if zero.dtype.kind not in "iu":
                name = f"{node.outputs[0]}.zero"
                while name in taken:
                    name += "_"
                constants[name] = zero.reshape(())
                op_type, inputs = "Add", (*inputs, name)
            nodes[number] = HostNode(node.name, op_type, inputs, node.outputs, {}, same.version)
    kept = tuple(node for node in nodes if passed.isdisjoint(node.outputs))
    return replace(graph, nodes=kept, constants=constants)


def _assignment(
    node: HostNode, makers: dict[str, HostNode], reads: Counter[str], known: Arrays
) -> tuple[HostNode, HostNode, Array] | None:
    """The two nodes in front of a Squeeze, and the zero, if nothing else reads what they make."""
    if node.op_type != "Squeeze" or node.domain or _axes(node, known) not in ENDS:
        return None
    same = makers.get(node.inputs[0])
    if same is None or same.op_type != "Add" or same.domain or reads[same.outputs[0]] != 1:
        return None
    for name, other in (same.inputs, same.inputs[::-1]):
        wide, zero = makers.get(name), known.get(other)
        if wide is None or zero is None or wide.op_type != "Unsqueeze" or wide.domain or reads[name] != 1:
            continue
        if zero.size == 1 and zero.ndim <= 1 and not zero.any() and _axes(wide, known) == _axes(node, known):
            return wide, same, zero
    return None


def _axes(node: HostNode, known: Arrays) -> list[int] | None:
    """The axes of a node, if they are known."""
    given = known.get(node.inputs[1]) if len(node.inputs) > 1 else node.attributes.get("axes")
    return None if given is None else list(map(int, given))  # type: ignore[arg-type]
