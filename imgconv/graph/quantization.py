"""Finds the values of a graph that are quantised and can be stored in one byte per element."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass

import numpy

from imgconv.arrays import Array
from imgconv.graph.expression import Apply, Argument, Expression, Literal, apply, subexpressions
from imgconv.graph.intervals import ANY, Range, range_of
from imgconv.graph.nodes import IDENTITY, Concatenation, Graph, Load, Node, Operand, Reduction

BYTES = 256
# Scales whose product with a level, and whose reciprocal, are normal floats.
SCALES = (1e-30, 1e30)
_ROUNDING = frozenset(("round", "saturate", "truncate", "floor", "ceil"))
_WHOLE = frozenset(("maximum", "minimum", "add", "subtract"))


@dataclass(frozen=True)
class Quantization:
    """Numbers of one byte each: n * scale, for integers n from low to low + 255; one of them is 0.

    The byte is n, or n + 256 if n is negative, so that the byte 0 is the number 0 whatever the zero point is: it is the
    padding of convolutions, and what a device reads outside of an image.
    """

    low: int
    scale: float

    @property
    def high(self) -> int:
        return self.low + BYTES - 1

    def encode(self, numbers: Array) -> Array:
        """The bytes of numbers, as floats."""
        levels = numpy.rint(numbers / self.scale)
        made: Array = numpy.where(levels < 0, levels + BYTES, levels)
        return made

    def decode(self, stored: Array) -> Array:
        """The numbers of bytes, as floats."""
        levels = stored.astype(numpy.float32)
        levels = numpy.where(levels > self.high, levels - BYTES, levels)
        made: Array = levels * numpy.float32(self.scale)
        return made

    def __str__(self) -> str:
        return f"{self.low}..{self.high} * {self.scale:g}"


def quantizations_of(graph: Graph) -> dict[str, Quantization]:
    """The Quantization of each value that holds levels, by name.

    A value is levels if the last steps of its node's epilogue are those of QuantizeLinear, of QuantizeLinear and
    DequantizeLinear, or of the former without its zero point; or if its node moves, or selects among, such values.

    Empty if a node makes NaN, which marks integers that are not exact: no byte holds it.
    """
    if any(
        isinstance(p, Literal) and math.isnan(p.value) for node in graph.nodes for p in subexpressions(node.epilogue)
    ):
        return {}
    found: dict[str, Quantization] = {}
    for node in graph.nodes:
        made = _copied_quantization(node, found) if node.epilogue == IDENTITY else _epilogue_quantization(node, found)
        if made is not None:
            found[node.output.name] = made
    return found


def before_rounding(epilogue: Expression, quantization: Quantization) -> Expression | None:
    """The steps of an epilogue before those of QuantizeLinear and DequantizeLinear. None if they do not end it.

    Its result is their number, rounded to the nearest level of all that the quantization has, times the scale.

    Given:   multiply(saturate(x, -128, 127), 0.5), -128..127 * 0.5
    Result:  x
    """
    rest = epilogue
    if quantization.scale != 1:
        if not isinstance(rest, Apply) or rest.function != "multiply":
            return None
        rest, scale = rest.arguments
        if not isinstance(scale, Literal) or numpy.float32(scale.value) != numpy.float32(quantization.scale):
            return None
    limits = Literal(float(quantization.low)), Literal(float(quantization.high))
    ends = isinstance(rest, Apply) and rest.function == "saturate" and rest.arguments[1:] == limits
    return rest.arguments[0] if isinstance(rest, Apply) and ends else None


def fills_with_zero(operand: Operand) -> bool:
    """Returns whether the elements that a view adds are zeros, which every Quantization has."""
    return operand.fill == 0 or not operand.view.bounds


def _copied_quantization(node: Node, found: Mapping[str, Quantization]) -> Quantization | None:
    """The common Quantization of the values among whose elements the node's results are."""
    operation, operands = node.operation, node.operands
    if isinstance(operation, Reduction):
        if operation.kind not in ("max", "min") or operation.body != IDENTITY or 0 in operands[0].view.shape:
            return None
    elif not isinstance(operation, (Load, Concatenation)):
        return None
    first, *others = {found.get(operand.value) for operand in operands}
    return None if others or not all(map(fills_with_zero, operands)) else first


def _epilogue_quantization(node: Node, found: Mapping[str, Quantization]) -> Quantization | None:
    """The Quantization of what an epilogue writes."""
    expression, scale = node.epilogue, 1.0
    if isinstance(expression, Apply) and expression.function == "multiply":
        expression, factor = expression.arguments
        if not isinstance(factor, Literal) or not SCALES[0] < factor.value < SCALES[1]:
            return None
        scale = float(numpy.float32(factor.value))
    read = node.all_operands[:1] if isinstance(node.operation, Load) else (None,)
    levels = [_integer_range(operand, found) for operand in (*read, *node.epilogue_operands)]
    if not _is_integer_valued(expression, {n for n, each in enumerate(levels) if each is not None}):
        return None
    ranges = [each or ANY for each in levels]
    if isinstance(expression, Apply) and expression.function == "saturate":
        limits = expression.arguments[1:]
        if all(isinstance(limit, Literal) for limit in limits):  # all of its levels, reached or not
            expression, ranges = apply("saturate", IDENTITY, *limits), [ANY]
    low, high = range_of(expression, ranges)
    low, high = min(low, 0), max(high, 0)
    return Quantization(int(low), scale) if high - low < BYTES else None


def _integer_range(operand: Operand | None, found: Mapping[str, Quantization]) -> Range | None:
    """The range of the integers that an operand reads. None if it may read other numbers."""
    made = found.get(operand.value) if operand is not None and fills_with_zero(operand) else None
    return (made.low, made.high) if made is not None and made.scale == 1 else None


def _is_integer_valued(expression: Expression, whole: Set[int]) -> bool:
    """Returns whether all values of an expression are integers. whole: the numbers of the arguments that are."""
    found: set[Expression] = set()
    for part in subexpressions(expression):
        if isinstance(part, Literal):
            integer = float(part.value).is_integer()
        elif isinstance(part, Argument):
            integer = part.number in whole
        else:
            integer = part.function in _ROUNDING or (part.function in _WHOLE and found.issuperset(part.arguments))
        found |= {part} if integer else set()
    return expression in found
