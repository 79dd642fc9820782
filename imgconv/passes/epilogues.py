"""Fuse elementwise work into the kernel that computes its operand."""

from __future__ import annotations

from dataclasses import replace

from imgconv.graph.expression import Argument, Expression, substitute
from imgconv.graph.nodes import Concatenation, GraphEditor, Graph, Load, Node, Operand
from imgconv.passes.concatenations import MOST_OPERANDS
from imgconv.passes.elementwise import merge_elementwise, short_enough
from imgconv.passes.literals import without_redundant_epilogue_operands


def fuse_epilogues(graph: Graph) -> Graph:
    """Make elementwise work the epilogue of the convolution, product or reduction whose result only it reads.

    The work must read the whole result. If it reads several such results, as a residual addition does, it is fused into
    the one that is computed last, because the others exist by then.

    Given:   c = convolution(x, w);  y = load(c) then maximum(add($0, $1), 0), $1=bias[i1, 0, 0]
    Result:  y = convolution(x, w) then maximum(add($0, $1), 0), $1=bias[i1, 0, 0]
    """
    while True:
        editing = GraphEditor(graph)
        for name in list(editing.producers):
            _fuse_into_producer(editing, editing.producers[name])
        graph = editing.edited_graph()
        merged = merge_elementwise(graph)
        if merged == graph:
            return graph
        graph = merged


def _fuse_into_producer(graph: GraphEditor, node: Node) -> None:
    """Makes a load the epilogue of a kernel whose result it reads, if it can be; of several, of the one made last."""
    if not isinstance(node.operation, Load):
        return
    producers = {o.value: graph.producers[o.value] for o in node.all_operands if o.value in graph.producers}
    for name, producer in sorted(producers.items(), key=lambda item: -graph.order[item[0]]):
        if not isinstance(producer.operation, Load) and _is_only_reader(graph, node, producer):
            graph.merge(name, {node.output.name: _fuse(node, producer)})
            return


def _is_only_reader(graph: GraphEditor, node: Node, producer: Node) -> bool:
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
    return without_redundant_epilogue_operands(
        replace(
            producer, output=node.output, epilogue=substitute(node.epilogue, arguments), epilogue_operands=tuple(extra),
            origin=tuple(dict.fromkeys((*producer.origin, *node.origin))),
        )
    )
