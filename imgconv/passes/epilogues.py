"""Fuse elementwise work into the kernel that computes its operand."""

from __future__ import annotations

from dataclasses import replace

from imgconv.graph.expression import Argument, Expression, substitute
from imgconv.graph.nodes import Concatenation, Graph, Load, Node, Operand
from imgconv.passes.concatenations import MOST_OPERANDS
from imgconv.passes.elementwise import merge_elementwise, short_enough
from imgconv.passes.literals import compact


def fuse_epilogues(graph: Graph) -> Graph:
    """Make elementwise work the epilogue of a convolution, product or reduction whose only reader it is.

    It must read the whole result. If it reads several such results, as a residual addition does, it joins the one
    computed last, since the others exist by then.

    Given:   c = convolution(x, w);  y = load(c) then maximum(add($0, $1), 0), $1=bias[i1, 0, 0]
    Result:  y = convolution(x, w) then maximum(add($0, $1), 0), $1=bias[i1, 0, 0]
    """
    while True:
        fused = _fuse_one(graph)
        if fused is None:
            merged = merge_elementwise(graph)
            if merged == graph:
                return graph
            fused = merged
        graph = fused


def _fuse_one(graph: Graph) -> Graph | None:
    order = {node.output.name: number for number, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        if not isinstance(node.operation, Load):
            continue
        candidates = sorted({o.value for o in node.all_operands if o.value in order}, key=lambda n: -order[n])
        for name in candidates:
            producer = graph.producers[name]
            fits = not isinstance(producer.operation, Load) and _is_only_reader(graph, node, producer)
            if fits:
                fused = _fuse(node, producer)
                kept = (fused if n is node else n for n in graph.nodes if n is not producer)
                return replace(graph, nodes=tuple(kept))
    return None


def _is_only_reader(graph: Graph, node: Node, producer: Node) -> bool:
    name = producer.output.name
    if graph.consumers[name] != (node,) or name in graph.outputs or isinstance(producer.operation, Concatenation):
        return False
    whole = all(o.view.is_identity for o in node.all_operands if o.value == name)
    small = len(producer.all_operands) + len(node.all_operands) <= MOST_OPERANDS
    return whole and small and short_enough(producer, node)


def _fuse(node: Node, producer: Node) -> Node:
    extra: list[Operand] = list(producer.epilogue_operands)
    arguments: dict[int, Expression] = {}
    for number, operand in enumerate(node.all_operands):
        if operand.value == producer.output.name:
            arguments[number] = producer.epilogue
        else:
            extra.append(operand)
            arguments[number] = Argument(len(extra))
    return compact(
        replace(
            producer, output=node.output, epilogue=substitute(node.epilogue, arguments), epilogue_operands=tuple(extra),
            origin=tuple(dict.fromkeys((*producer.origin, *node.origin))),
        )
    )
