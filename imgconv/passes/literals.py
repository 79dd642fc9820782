"""Write constants whose elements are all equal into the expressions."""

from __future__ import annotations

from dataclasses import replace

import numpy

from imgconv.arrays import Array
from imgconv.graph.expression import Argument, Expression, Literal, argument_numbers, substitute
from imgconv.graph.nodes import Graph, Node, Operand


def constants_to_literals(graph: Graph) -> Graph:
    """Replace an epilogue operand whose elements are all equal by a literal.

    Given:   constant c: [1] = 0.5;  y = load(x) then multiply($0, $1), $1=c[0]
    Result:  y = load(x) then multiply($0, 0.5)
    """
    uniform = {
        name: float(array.flat[0])
        for name, array in graph.constants.items()
        if array.size and _is_uniform(array)
    }
    return replace(graph, nodes=tuple(_rewrite(node, uniform) for node in graph.nodes))


def _is_uniform(array: Array) -> bool:
    """Returns whether all elements are equal; 0 and -0 are not."""
    first = array.flat[0]
    equal = array.size == 1 or bool(numpy.all(array == first))
    return equal and bool(first != 0 or numpy.all(numpy.signbit(array.astype(float)) == numpy.signbit(float(first))))


def _rewrite(node: Node, uniform: dict[str, float]) -> Node:
    kept: list[Operand] = []
    arguments: dict[int, Expression] = {0: Argument(0)}
    for number, operand in enumerate(node.epilogue_operands, 1):
        if operand.value in uniform and not operand.view.bounds:
            arguments[number] = Literal(uniform[operand.value])
        else:
            kept.append(operand)
            arguments[number] = Argument(len(kept))
    if len(kept) == len(node.epilogue_operands):
        return node
    return without_redundant_epilogue_operands(
        replace(node, epilogue=substitute(node.epilogue, arguments), epilogue_operands=tuple(kept))
    )


def without_redundant_epilogue_operands(node: Node) -> Node:
    """The node without unused epilogue operands and with each repeated operand only once."""
    used = argument_numbers(node.epilogue) - {0}
    kept: list[Operand] = []
    arguments: dict[int, Expression] = {0: Argument(0)}
    for number in sorted(used):
        operand = node.epilogue_operands[number - 1]
        if operand not in kept:
            kept.append(operand)
        arguments[number] = Argument(kept.index(operand) + 1)
    return replace(node, epilogue=substitute(node.epilogue, arguments), epilogue_operands=tuple(kept))
