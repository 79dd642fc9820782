"""Growth analysis: how a graph's values grow with its inputs, a square quadratically, a sum with its number of terms.

A measurement on some inputs does not show what happens for larger inputs. If the inputs are ten times larger, a square
is a hundred times larger. For example, 300 * 300 exceeds 65504, the fp16 maximum, although a normalisation must work
for inputs of any magnitude. So the growth of elementwise work and sums is computed in advance, as two numbers. Inputs
and the results of convolutions and products count as 1 and 1, because these are measured. Constants, and bounded values
such as the results of a sigmoid, do not grow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy

from imgconv.graph.expression import Apply, Argument, Expression, Literal, argument_numbers, fold, substitute
from imgconv.graph.nodes import (
    Concatenation, Convolution, Gather, Graph, Load, Node, Operand, Operation, Order, Product, Recurrence, Reduction,
    Suppression,
)
from imgconv.graph.value_ranges import ValueRanges

_KEPT = ("negative", "absolute", "floor", "ceil", "round", "saturate", "truncate")
_LARGEST = ("add", "subtract", "maximum", "minimum", "where")
_BOUNDED = frozenset((
    "tanh", "sigmoid", "level_sigmoid", "erf", "atan", "sin", "cos", "sign", "less", "less_equal", "equal", "not",
    "and", "or", "xor", "isnan", "isinf",
))


@dataclass(frozen=True)
class Growth:
    """Growth of a value: the power of the inputs' size, and the number of terms that are added up and not averaged.

    A variance is Growth(2), the root of it Growth(1), a sum of 100 squares Growth(2, 100). terms: of a constant its
    largest magnitude.
    """

    power: float = 1.0
    terms: float = 1.0


BASE, BOUNDED = Growth(), Growth(0.0)
UNKNOWN = Growth(2.0)  # such values stay fp32
GrowthOfOperand = Callable[[Operand], Growth]


def growth_of(graph: Graph, most: float) -> dict[str, Growth]:
    """The Growth of every value, by name. most: what is known to be within it counts as bounded."""
    bounds, found = ValueRanges(graph), dict[str, Growth]()

    def of(operand: Operand) -> Growth:
        if operand.value in graph.constants:
            array = numpy.abs(graph.constants[operand.value])
            return Growth(0.0, float(numpy.max(array, initial=0.0)))
        low, high = bounds.of_operand(operand)
        return BOUNDED if -most <= low and high <= most else found.get(operand.value, BASE)

    for node in graph.nodes:
        result = node.operands[0] if isinstance(node.operation, Load) else None
        read = [result, *node.epilogue_operands]
        growth = GROWTHS.get(type(node.operation))
        before = growth(node, node.operation, of) if growth else UNKNOWN
        made = _growth_of_expression(node.epilogue, [before, *map(of, node.epilogue_operands)], read)
        found[node.output.name] = Growth(made.power, max(made.terms, 1.0))
        bounds.known[node.output.name] = bounds.of_node(node)
        low, high = bounds.known[node.output.name]
        if -most <= low and high <= most:
            found[node.output.name] = BOUNDED
    return found


def _growth_of_reduction(node: Node, operation: Reduction, of: GrowthOfOperand) -> Growth:
    if operation.kind == "argmax":
        return BASE
    body = _growth_of_expression(operation.body, [of(operand) for operand in node.operands], node.operands)
    count = prod(node.operands[0].view.shape[len(node.output.shape) :])
    return Growth(body.power, body.terms * count) if operation.kind == "sum" else body


def _growth_of_gather(node: Node, operation: Gather, of: GrowthOfOperand) -> Growth:
    return BASE if operation.reduction else of(node.operands[0])


# The growth of an operation's result, before the epilogue. Of an operation without an entry it is UNKNOWN.
GROWTHS: dict[type[Operation], Callable[[Node, Any, GrowthOfOperand], Growth]] = {
    Load: lambda node, operation, of: of(node.operands[0]),
    Concatenation: lambda node, operation, of: _largest([of(operand) for operand in node.operands]),
    Reduction: _growth_of_reduction,
    Gather: _growth_of_gather,
    **dict.fromkeys((Convolution, Product, Recurrence, Order, Suppression), lambda node, operation, of: BASE),
}


def _growth_of_expression(
    expression: Expression, arguments: Sequence[Growth], operands: Sequence[Operand | None]
) -> Growth:
    """The growth of an expression. operands: of the arguments; None if one is computed by the node itself."""
    first = {number: Argument(operands.index(operands[number])) for number in argument_numbers(expression)}
    merged = substitute(expression, first)  # so that squares are products of equal expressions
    return fold(merged, lambda value: Growth(0.0, abs(value)), arguments, _growth_of_function)


def _growth_of_function(part: Apply, given: Sequence[Growth]) -> Growth:
    """The growth of a scalar function of arguments that grow so."""
    name, a, b = part.function, given[0], given[-1]
    if name in _BOUNDED:
        return BOUNDED
    if name in _KEPT:
        return a
    if name in _LARGEST:
        return _largest(given[1:] if name == "where" else given)
    if name == "multiply":
        return _power(a, 2.0) if part.arguments[0] == part.arguments[1] else _product(a, b)
    if name == "multiply_add":
        return _largest([_product(a, given[1]), b])
    if name in ("divide", "reciprocal"):
        a = BOUNDED if name == "reciprocal" else a
        return Growth(a.power - b.power, a.terms / max(b.terms, 1.0) if b.power == 0 else a.terms)
    if name == "sqrt":
        return _power(a, 0.5)
    exponent = part.arguments[-1]
    if name == "power" and isinstance(exponent, Literal):
        return _power(a, exponent.value)
    return BASE if any(each.power for each in given) else BOUNDED


def _power(a: Growth, exponent: float) -> Growth:
    return Growth(a.power * exponent, max(a.terms, 1.0) ** max(exponent, 0.0))


def _product(a: Growth, b: Growth) -> Growth:
    """The growth of a product of two numbers: that of the larger, since a gate or a scale is not as large as its input.

    A constant makes a sum smaller, as a mean is made of it, but none larger: its size is measured.
    """
    power = a.power + b.power if a.power * b.power < 0 else max(a.power, b.power, key=abs)
    if a.power == 0 or b.power == 0:
        constant, other = (a, b) if a.power == 0 else (b, a)
        return Growth(power, other.terms * min(constant.terms, 1.0))
    return Growth(power, max(a.terms, b.terms))


def _largest(given: Sequence[Growth]) -> Growth:
    growing = [each for each in given if each.power] or given
    return Growth(max((each.power for each in growing), key=abs), max(each.terms for each in growing))
