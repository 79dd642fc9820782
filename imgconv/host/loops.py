"""Loop-invariant code motion: computes values that are equal in all iterations of a Loop only in the first iteration.

A state that the body only passes through is read from outside. Nodes that depend on no other state go into a separate
graph, the attribute `first`, whose outputs become additional inputs of the body:

    h, w = Loop(trips, go, h0, W)                      h = Loop(trips, go, h0)      w = Identity(W)
      body: number, goes, h1, w1                         first: t = Transpose(W)
        t = Transpose(w1)                  becomes       body: number, goes, h1, t
        h2 = MatMul(h1, t)                                 h2 = MatMul(h1, t)
        goes, h2, w1                                       goes, h2
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from imgconv.graph.onnx_nodes import HostGraph, HostNode
from imgconv.host.registry import RANDOM

BEFORE_INPUTS, BEFORE_OUTPUTS = 2, 1  # of a Loop's body, in front of the states: the round's number, the condition


def hoist_loop_invariants(graph: HostGraph) -> HostGraph:
    """The graph, and the bodies of its nodes, with such loops."""
    nodes: list[HostNode] = []
    for node in graph.nodes:
        bodies = {name: hoist_loop_invariants(body) for name, body in node.bodies.items()}
        node = replace(node, attributes={**node.attributes, **bodies}) if bodies else node
        nodes += _rewrite_loop(node, bodies["body"]) if (node.op_type, node.domain) == ("Loop", "") else [node]
    return replace(graph, nodes=tuple(nodes))


def _rewrite_loop(node: HostNode, body: HostGraph) -> list[HostNode]:
    """A Loop without its pass-through states, and Identity nodes for its outputs of these."""
    given, states, made = node.inputs[BEFORE_INPUTS:], body.inputs[BEFORE_INPUTS:], body.outputs[BEFORE_OUTPUTS:]
    same = {each.outputs[0]: each.inputs[0] for each in body.nodes if each.op_type == "Identity"}
    passed = [
        number for number, (outer, inner, name) in enumerate(zip(given, states, made))
        if same.get(name, name) == inner and outer and (outer == inner or outer not in body.own_names)
    ]
    renamed = [_identity(node, given[n], states[n]) for n in passed if given[n] != states[n]]
    first, rest = _split_invariant(replace(
        body, inputs=_without_numbers(body.inputs, BEFORE_INPUTS, passed), nodes=(*renamed, *body.nodes),
        outputs=_without_numbers(body.outputs, BEFORE_OUTPUTS, passed),
    ))
    loop = replace(
        node, inputs=_without_numbers(node.inputs, BEFORE_INPUTS, passed),
        outputs=_without_numbers(node.outputs, 0, passed),
        attributes={**node.attributes, "body": rest, **({"first": first} if first else {})},
    )
    outputs = dict(enumerate(node.outputs))
    return [loop, *(_identity(node, given[n], outputs[n]) for n in passed if outputs.get(n))]


def _identity(loop: HostNode, source: str, name: str) -> HostNode:
    return HostNode(f"{loop.name}.{name}", "Identity", (source,), (name,), {}, loop.version)


def _without_numbers(names: Sequence[str], before: int, numbers: Collection[int]) -> tuple[str, ...]:
    return tuple(name for number, name in enumerate(names, -before) if number not in numbers)


def _split_invariant(body: HostGraph) -> tuple[HostGraph | None, HostGraph]:
    """Splits a body into the part that depends on no round, None if it is empty, and the rest, which reads that part.

    What depends on constants alone is in both as it is: a prepared graph holds its result.
    """
    constants, common = {*body.constants, ""}, set(body.captured)
    fixed, moved, rest = list[HostNode](), list[HostNode](), list[HostNode]()
    for node in body.nodes:
        if node.bodies or node.op_type in RANDOM or not (constants | common).issuperset(node.inputs):
            rest.append(node)
        elif constants.issuperset(node.inputs):
            constants.update(node.outputs)
            fixed.append(node)
        else:
            common.update(node.outputs)
            moved.append(node)
    read = {*body.outputs, *(name for node in rest for name in node.reads)}
    handed = tuple(name for node in moved for name in node.outputs if name and name in read)
    if not handed:
        return None, body
    first = HostGraph((), handed, (*fixed, *moved), body.constants)
    return first, replace(body, inputs=(*body.inputs, *handed), nodes=(*fixed, *rest))
