"""Simplify the arithmetic between two roundings of a quantised network."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any

import numpy

from imgconv.arrays import Array, Arrays
from imgconv.graph.expression import (
    LEVEL_SIGMOID, Apply, Argument, Expression, Literal, apply, argument_numbers, function_names, subexpressions,
)
from imgconv.graph.intervals import ANY, range_of
from imgconv.graph.pass_through import EXACT
from imgconv.graph.nodes import Graph, Node, Operand, Product
from imgconv.passes.literals import without_redundant_epilogue_operands
from imgconv.passes.scales import along_axis, by_channel

ARITHMETIC = ("add", "subtract", "multiply", "divide")
Factor = Any  # float or Array: one number, or one for each channel


def fold_requantization(graph: Graph) -> Graph:
    """Replace QuantizeLinear by one operation, and the scales and constants between two of them by one factor.

    A value whose range needs no clamping, such as a quotient of a sigmoid, is only rounded.

    onnxruntime folds the scales of QLinearAdd, QLinearMul and similar operators in the same way. The result changes
    only where the value is almost halfway between two quantised values. The first division by a scale is kept, and so
    is the scale of a sum, because onnxruntime computes them in this way.

    Given:   y = load(x) then subtract(minimum(maximum(add(round(divide(multiply($0, 0.5), 0.25)), 9), 0), 255), 9)
    Result:  y = load(x) then saturate(multiply($0, 2), -9, 246)
    """
    every = (part for node in graph.nodes for part in subexpressions(node.epilogue))
    if any(isinstance(part, Literal) and math.isnan(part.value) for part in every):
        return graph  # NaN marks integers that are not exact: no saturation may lose it
    constants = dict(graph.constants)
    nodes = [_EpilogueFolder(node, constants, graph.unused_name).node() for node in graph.nodes]
    return replace(graph, nodes=tuple(nodes), constants=constants)


def with_folded_requantization(epilogue: Expression, node: Node, constants: Arrays) -> Expression:
    """The epilogue of a node after `fold_requantization`, to count its operations."""
    if "round" not in function_names(epilogue):
        return epilogue
    return _EpilogueFolder(node, dict(constants), str).rewritten(epilogue)


@dataclass
class _Sum:
    """The sum of terms times their factors, and of a constant."""

    terms: dict[Expression, Factor] = field(default_factory=dict)
    constant: Factor = 0.0

    def add(self, other: _Sum, factor: Factor) -> _Sum:
        """The sum of both, of which the other is multiplied by a factor."""
        terms = dict(self.terms)
        for term, own in other.terms.items():
            terms[term] = terms.get(term, 0.0) + own * factor
        return _Sum(terms, self.constant + other.constant * factor)


@dataclass
class _EpilogueFolder:
    """Rewrites the epilogue of one node."""

    original: Node
    constants: dict[str, Array]
    unused: Callable[[str], str]
    known: dict[Expression, Expression] = field(default_factory=dict)
    added: list[Operand] = field(default_factory=list)

    def node(self) -> Node:
        """The node with its new epilogue."""
        if "round" not in function_names(self.original.epilogue):
            return self.original
        made = self.rewritten(self.original.epilogue)
        if made == self.original.epilogue:
            return self.original
        return without_redundant_epilogue_operands(replace(
            self.original, epilogue=made, epilogue_operands=(*self.original.epilogue_operands, *self.added),
        ))

    def rewritten(self, expression: Expression) -> Expression:
        """The expression with fewer operations."""
        if expression not in self.known:
            self.known[expression] = self._rewritten(expression)
        return self.known[expression]

    def _rewritten(self, expression: Expression) -> Expression:
        if not isinstance(expression, Apply):
            return expression
        found = _rounded_and_clipped(expression)
        if found is None:
            return apply(expression.function, *map(self.rewritten, expression.arguments))
        inner, low, high = found
        number = self._folded(inner) if _is_scaled_twice(inner) else _with_level_sigmoid(self.rewritten(inner))
        if isinstance(number, Apply) and number.function == "saturate":
            least, most = _unconditional_range(number)
            if low == least and most == high or not self._ends(expression) and low <= least and most <= high:
                return number  # it is one of these levels already
        least, most = _unconditional_range(number)
        if math.isfinite(least + most) and low <= round(least) and round(most) <= high and not self._ends(expression):
            return apply("round", number)
        return apply("saturate", number, low, high)

    def _ends(self, expression: Expression) -> bool:
        """Returns whether levels are the result: then their limits say how it is stored."""
        epilogue = self.original.epilogue
        return expression in (epilogue, (_match_with_literal(epilogue, "multiply") or (None,))[0])

    def _folded(self, expression: Expression) -> Expression:
        """The expression as a sum of terms times factors."""
        found = self._sum(expression)
        constant = self._expression_of(found.constant)
        if not found.terms:
            return constant
        factors = list(found.terms.values())
        if all(numpy.array_equal(each, factors[0]) for each in factors):
            return _multiply_add(reduce(partial(apply, "add"), found.terms), self._expression_of(factors[0]), constant)
        made = constant
        for term, factor in found.terms.items():
            made = _multiply_add(term, self._expression_of(factor), made)
        return made

    def _sum(self, expression: Expression) -> _Sum:
        """The expression as a sum."""
        constant = self._constant(expression)
        if constant is not None:
            return _Sum(constant=constant)
        if (
            isinstance(expression, Apply) and expression.function in ARITHMETIC
            and _rounded_and_clipped(expression) is None
        ):
            first, second = map(self._sum, expression.arguments)
            if expression.function in ("add", "subtract"):
                return first.add(second, 1.0 if expression.function == "add" else -1.0)
            made = _product(first, second) if expression.function == "multiply" else _quotient(first, second)
            if made is not None:
                return made
        return _Sum({self.rewritten(expression): 1.0})

    def _constant(self, expression: Expression) -> Factor | None:
        if isinstance(expression, Literal):
            return expression.value
        shape = self.original.output.shape
        if not isinstance(expression, Argument) or not shape:
            return None
        return by_channel(self.original, expression, self._axis, self.constants)

    @property
    def _axis(self) -> int:
        """The axis of channels."""
        rank = len(self.original.output.shape)
        return rank - 1 if isinstance(self.original.operation, Product) or rank < 2 else 1

    def _expression_of(self, factor: Factor) -> Expression:
        """A factor as an expression: a number, or an operand with one for each channel."""
        if numpy.ndim(factor) == 0 or numpy.all(factor == factor[0]):
            return Literal(float(numpy.float32(numpy.ravel(factor)[0])))
        array = numpy.asarray(factor, numpy.float32)
        name = self.unused(f"{self.original.output.name}.factor{len(self.added)}")
        self.constants[name] = array
        self.added.append(Operand(name, along_axis(self.original.output.shape, self._axis)))
        return Argument(len(self.original.epilogue_operands) + len(self.added))


def _multiply_add(a: Expression, b: Expression, c: Expression) -> Expression:
    """a * b + c, without what changes nothing."""
    if b == Literal(1.0):
        return a if c == Literal(0.0) else apply("add", a, c)
    return apply("multiply", a, b) if c == Literal(0.0) else apply("multiply_add", a, b, c)


def _product(a: _Sum, b: _Sum) -> _Sum | None:
    """The product of two sums: None if it is no sum of as few terms."""
    for first, second in ((a, b), (b, a)):
        if not second.terms:
            return _Sum().add(first, second.constant)
    if len(a.terms) == len(b.terms) == 1 and not (numpy.any(a.constant) or numpy.any(b.constant)):
        (term, factor), (other, by) = (*a.terms.items(), *b.terms.items())
        return _Sum({apply("multiply", term, other): factor * by})
    return None


def _quotient(a: _Sum, b: _Sum) -> _Sum | None:
    """The quotient of a sum and a constant; None if this is no constant, or is 0 or infinite."""
    with numpy.errstate(all="ignore"):
        factor = 1 / numpy.asarray(b.constant, numpy.float64)
    return None if b.terms or not numpy.all(numpy.isfinite(factor) & (factor != 0)) else _Sum().add(a, factor[()])


def _rounded_and_clipped(expression: Expression) -> tuple[Expression, float, float] | None:
    """(x, low, high) if an expression is QuantizeLinear of x, less its zero point; else None."""
    rest, shift = _match_with_literal(expression, "subtract") or (expression, 0.0)
    if isinstance(rest, Apply) and rest.function == "truncate":
        rest = rest.arguments[0]
    below = _match_with_literal(rest, "minimum")
    above = below and _match_with_literal(below[0], "maximum")
    if not below or not above:
        return None
    rest, added = _match_with_literal(above[0], "add") or (above[0], 0.0)
    whole = all(float(n).is_integer() and abs(n) < EXACT for n in (shift, above[1], below[1]))
    if not (whole and added == shift and isinstance(rest, Apply) and rest.function == "round"):
        return None
    return rest.arguments[0], above[1] - shift, below[1] - shift


def _match_with_literal(expression: Expression, operation: str) -> tuple[Expression, float] | None:
    """(x, n) if an expression applies an operation to x and a number n; else None."""
    if not isinstance(expression, Apply) or expression.function != operation:
        return None
    first, second = expression.arguments
    return (first, second.value) if isinstance(second, Literal) else None


def _with_level_sigmoid(expression: Expression) -> Expression:
    """The quotient of a sigmoid of a level and of a scale, with a sigmoid that is exact enough for levels."""
    quotient = _match_with_literal(expression, "divide")
    if quotient is None or not isinstance(quotient[0], Apply) or quotient[0].function != "sigmoid":
        return expression
    (x,) = quotient[0].arguments
    level, low, high = _match_with_literal(x, "multiply"), *_unconditional_range(x)
    if level is None or low < -LEVEL_SIGMOID or high > LEVEL_SIGMOID:
        return expression
    return apply("divide", apply("level_sigmoid", *level), quotient[1])


def _unconditional_range(expression: Expression) -> tuple[float, float]:
    """The range of an expression of any arguments."""
    return range_of(expression, [ANY] * (1 + max(argument_numbers(expression), default=0)))


def _is_scaled_twice(expression: Expression) -> bool:
    """Returns whether a number is divided by a scale after other arithmetic."""
    if not isinstance(expression, Apply) or expression.function != "divide":
        return False
    inner = expression.arguments[0]
    return isinstance(inner, Apply) and inner.function in ARITHMETIC
