"""Bounds of the values of a graph: interval arithmetic on its expressions.

The result of a convolution or a matrix product is taken to be unbounded. Activations such as Clip, Sigmoid and Tanh
bound the values after them. Integer types bound the values of inputs: uint8 is 0 to 255.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy

from imgconv.arrays import Array
from imgconv.graph.expression import OPERATIONS, Apply, Argument, Expression, Literal, parts
from imgconv.graph.nodes import Concatenation, Convolution, Gather, Graph, Load, Node, Operand, Order, Reduction
from imgconv.graph.nodes import Suppression

Range = tuple[float, float]  # the least and the largest value that is not NaN

ANY: Range = (-math.inf, math.inf)
_RISING = ("floor", "ceil", "round", "truncate", "sign", "tanh", "sigmoid", "erf", "atan", "exp", "expm1")
_FIXED: dict[str, Range] = {"sin": (-1, 1), "cos": (-1, 1)} | dict.fromkeys(
    ("less", "less_equal", "equal", "not", "and", "or", "xor", "isnan", "isinf"), (0.0, 1.0)
)


def convolutions_of_small(graph: Graph, largest: float) -> frozenset[str]:
    """The outputs of the convolutions whose input x is known to have |x| <= largest. NaN is ignored."""
    found: set[str] = set()
    bounds = Bounds(graph)
    for node in graph.nodes:
        if isinstance(node.operation, Convolution) and len(node.operands) == 2:
            low, high = bounds.of_operand(node.operands[0])
            if -largest <= low and high <= largest:
                found.add(node.output.name)
        bounds.known[node.output.name] = bounds.of_node(node)
    return frozenset(found)


@dataclass
class Bounds:
    """The ranges of a graph's values.

    known: the ranges found so far, by value name. The caller adds those of node outputs.
    integers: the largest absolute value that is assumed for integer inputs.
    """

    graph: Graph
    integers: float = math.inf
    known: dict[str, Range] = field(default_factory=dict)

    def of_operand(self, operand: Operand) -> Range:
        """The range of the elements that an operand reads. Its value must be in `known`, an input or a constant."""
        name = operand.value
        if name not in self.known:
            constant = self.graph.constants.get(name)
            self.known[name] = self._of_input(name) if constant is None else _of_array(constant)
        found = self.known[name]
        return _union([found, (operand.fill, operand.fill)]) if operand.view.bounds else found

    def of_node(self, node: Node) -> Range:
        """The range of a node's output, from the ranges of its operands."""
        result = _of_operation(node, self.of_operand)
        return _of_expression(node.epilogue, [result, *map(self.of_operand, node.epilogue_operands)])

    def _of_input(self, name: str) -> Range:
        low, high = _of_type(self.graph.values[name].dtype)
        return (low, high) if math.isinf(low) else (max(low, -self.integers), min(high, self.integers))


def _of_type(dtype: str) -> Range:
    if dtype.startswith("float"):
        return ANY
    return (0, 1) if dtype == "bool" else (float(numpy.iinfo(dtype).min), float(numpy.iinfo(dtype).max))


def _of_array(array: Array) -> Range:
    if not array.size or not numpy.all(numpy.isfinite(array)):
        return ANY
    return float(array.min()), float(array.max())


def _of_operation(node: Node, of: Callable[[Operand], Range]) -> Range:
    """The range of the operation's result, before the epilogue."""
    operation = node.operation
    if isinstance(operation, (Load, Gather)):
        table = node.operands[0]
        if isinstance(operation, Gather) and operation.reduction is not None:
            return ANY
        return _union([of(table), (table.fill, table.fill)]) if isinstance(operation, Gather) else of(table)
    if isinstance(operation, Concatenation):
        return _union([of(operand) for operand in node.operands])
    if isinstance(operation, Order):
        return 0, max(0, node.operands[0].view.shape[-1] - 1)
    if isinstance(operation, Suppression):
        return -1, max(0, node.operands[0].view.shape[0] - 1)
    if not isinstance(operation, Reduction):
        return ANY
    count = prod(node.operands[0].view.shape[len(node.output.shape) :])
    if operation.kind == "argmax":
        return 0, count
    body = _of_expression(operation.body, [of(operand) for operand in node.operands])
    if operation.kind == "sum":
        return _times(body, (count, count))
    return body if operation.kind in ("max", "min") and count else ANY


def _of_expression(expression: Expression, arguments: Sequence[Range]) -> Range:
    done: dict[Expression, Range] = {}
    for part in parts(expression):
        if isinstance(part, Literal):
            done[part] = (part.value, part.value)
        elif isinstance(part, Argument):
            done[part] = arguments[part.number]
        else:
            done[part] = _applied(part, [done[a] for a in part.arguments])
    low, high = done[expression]
    return ANY if math.isnan(low) or math.isnan(high) else (low, high)


def _applied(part: Apply, given: Sequence[Range]) -> Range:
    """The range of a scalar function of arguments in the given ranges. ANY if the function has no rule here."""
    name, a, b = part.operation, given[0], given[-1]
    if name in _FIXED:
        return _FIXED[name]
    if name in (*_RISING, "maximum", "minimum", "add"):
        with numpy.errstate(all="ignore"):
            low, high = (float(OPERATIONS[name].numpy(*map(numpy.float64, ends))) for ends in zip(*given, strict=True))
        return low, high
    if name in ("subtract", "negative"):
        first, second = ((0.0, 0.0) if name == "negative" else a), b
        return first[0] - second[1], first[1] - second[0]
    if name == "absolute":
        return (0.0 if a[0] <= 0 <= a[1] else min(map(abs, a))), max(map(abs, a))
    if name == "multiply":
        return _times(a, b)
    if name == "divide" and (b[0] > 0 or b[1] < 0):
        return _times(a, (1 / b[1], 1 / b[0]))
    if name in ("modulo", "remainder") and b[0] > 0:
        return (-b[1] if name == "remainder" and a[0] < 0 else 0.0), b[1]
    if name == "shift_right" and a[0] >= 0:
        return 0.0, a[1]
    if name == "quotient":  # of integers
        return -max(map(abs, a)), max(map(abs, a))
    return _union(given[1:]) if name == "where" else ANY


def _times(a: Range, b: Range) -> Range:
    # 0 times infinity is NaN, and ranges ignore NaN.
    products = [x * y if x and y else 0.0 for x in a for y in b]
    return min(products), max(products)


def _union(ranges: Sequence[Range]) -> Range:
    return min(low for low, _ in ranges), max(high for _, high in ranges)
