"""Numbers with error bounds: how far a device's result of an expression may differ from its float64 value.

OpenCL bounds the error of each operation in units in the last place (OpenCL C, "Relative Error as ULPs"). To propagate
an error through an expression, the expression is evaluated at both ends of each argument's interval. This also works
for steps and comparisons: if a step lies within the interval, the bound is the height of the step.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy

from imgconv.arrays import Array
from imgconv.graph.expression import FUNCTIONS, Expression, fold

UNIT, HALF_UNIT = 2.0**-24, 2.0**-11  # the largest relative error of rounding to float and to half
TINY, HALF_TINY = 2.0**-126, 2.0**-24  # smaller numbers may become zero, or lose digits
# Operations that do not round; those that OpenCL C allows 2.5 units in the last place at most. Of the others it allows
# 16 (pow) at most; imgconv's own, in common.cl, are more exact.
EXACT = frozenset({
    "maximum", "minimum", "negative", "absolute", "sign", "floor", "ceil", "round", "saturate", "truncate", "quotient",
    "remainder", "less", "less_equal", "equal", "not", "and", "or", "xor", "isnan", "isinf", "where", "bit_and",
    "bit_or", "bit_xor", "shift_left", "shift_right",
})
ARITHMETIC = frozenset({"add", "subtract", "multiply", "divide", "modulo", "reciprocal", "sqrt"})
DIVIDING = frozenset({"divide", "modulo", "quotient", "remainder"})
ROUNDED_ONCE = frozenset({"add", "subtract", "multiply", "modulo"})  # to the nearest: exact if a float holds the result
ARITHMETIC_UNITS, FUNCTION_UNITS = 6, 32  # units of 2**-24: half of a unit in the last place
# An order of a sum of n terms gives at most n roundings; independent ones add up to about sqrt(n) of them. The factor
# makes a larger sum improbable (Higham and Mary 2019, A New Approach to Probabilistic Rounding Error Analysis: the
# bound holds with probability 1 - 2 exp(-factor**2 / 2) for each sum).
IMPROBABLE = 5.0


@dataclass(frozen=True)
class BoundedValues:
    """Values, and how far off a device's may be. Both have one shape. An error of infinity: nothing is known."""

    value: Array
    error: Array

    @staticmethod
    def exact(value: Array) -> BoundedValues:
        """The values as they are."""
        return BoundedValues(value, numpy.zeros(value.shape))

    def broadcast(self, shape: tuple[int, ...]) -> BoundedValues:
        """The values in another shape, as numpy broadcasts."""
        return BoundedValues(numpy.broadcast_to(self.value, shape), numpy.broadcast_to(self.error, shape))


@dataclass(frozen=True)
class ArithmeticErrors:
    """The errors of a kernel's arithmetic: of operations and of functions, relative and absolute; of sums.

    unit: the relative error of rounding once. native: of functions, beyond OpenCL's bounds, for 1 + |x|.
    sum_unit: of rounding in a sum. longest: the most terms that are added before they are added in float.
    transformed: the factor by which a sum's error is larger, since it is not the terms that are added (Winograd).
    between: of rounding results of nodes that the kernel keeps for its others.
    """

    unit: float = UNIT
    native: float = 0.0
    sum_unit: float = UNIT
    longest: float = numpy.inf
    transformed: float = 1.0
    between: float = UNIT


FLOAT = ArithmeticErrors()


def evaluate(
    expression: Expression, arguments: Sequence[BoundedValues], arithmetic: ArithmeticErrors = FLOAT
) -> BoundedValues:
    """The expression's value. arguments: of one shape, or of shapes that broadcast."""
    whole = bool(arguments) and all(a.value.dtype.kind != "f" for a in arguments)
    return fold(
        expression, lambda value: BoundedValues.exact(_literal_as_array(value, whole)), arguments,
        lambda part, given: _apply_function(part.function, given, arithmetic),
    )


def _literal_as_array(value: float, whole: bool) -> Array:
    """A number as kernels have it, or as an integer among integers: see `expression.evaluate`."""
    if whole and float(value).is_integer():
        return numpy.asarray(int(value))
    with numpy.errstate(over="ignore"):
        return numpy.asarray(numpy.float64(numpy.float32(value)))


def _apply_function(operation: str, arguments: Sequence[BoundedValues], arithmetic: ArithmeticErrors) -> BoundedValues:
    if operation == "multiply_add":  # its product may be rounded
        product = _apply_function("multiply", arguments[:2], arithmetic)
        return _apply_function("add", [product, arguments[2]], arithmetic)
    with numpy.errstate(all="ignore"):
        values = [_bools_to_integers(a.value) for a in arguments]
        value = numpy.asarray(FUNCTIONS[operation].numpy(*values))
        carried = _propagated_error(operation, value, arguments)
        error = numpy.asarray(carried + _rounding_error(operation, value, values, carried, arithmetic))
        # An infinity is right if no other number is possible.
        finite = numpy.isfinite(value.astype(numpy.float64))
        error = numpy.where(finite, numpy.where(numpy.isnan(error), numpy.inf, error), _inf_unless_exact(arguments))
    return BoundedValues(value, error)


def _bools_to_integers(value: Array) -> Array:
    """Truth values as integers: numpy adds bools as logic."""
    return value.astype(numpy.int64) if value.dtype == bool else value


def _inf_unless_exact(arguments: Sequence[BoundedValues]) -> Array | float:
    """Infinity where an argument is not exact, else 0."""
    total: Array | float = 0.0
    for argument in arguments:
        total = total + numpy.where(argument.error > 0, numpy.inf, 0.0)
    return total


def _propagated_error(operation: str, value: Array, arguments: Sequence[BoundedValues]) -> Array | float:
    """Returns the distance by which the errors of the arguments move the value."""
    moving = [n for n, a in enumerate(arguments) if a.error.any()]
    if not moving:
        return 0.0
    errors = [a.error for a in arguments]
    if operation in ("add", "subtract"):
        return numpy.asarray(errors[0] + errors[1])
    if operation == "multiply":
        a, b = (numpy.abs(each.value) for each in arguments)
        return numpy.asarray(a * errors[1] + b * errors[0] + errors[0] * errors[1])
    if operation == "equal":
        near = numpy.abs(arguments[0].value - arguments[1].value) <= errors[0] + errors[1]
        return numpy.where(near & (errors[0] + errors[1] > 0), 1.0, 0.0)
    most: Array = numpy.zeros(value.shape)
    for signs in itertools.product((-1, 0, 1), repeat=len(moving)):
        moved = [_bools_to_integers(a.value) for a in arguments]
        for number, sign in zip(moving, signs, strict=True):
            moved[number] = moved[number] + sign * errors[number]
        off = numpy.abs(FUNCTIONS[operation].numpy(*moved) - value.astype(numpy.float64))
        most = numpy.asarray(numpy.maximum(most, numpy.where(numpy.isnan(off), numpy.inf, off)))
    return most


def _rounding_error(
    operation: str, value: Array, values: Sequence[Array], carried: Array | float, arithmetic: ArithmeticErrors
) -> Array | float:
    """The error of the operation itself. carried: of its arguments; with none, what a float holds is exact."""
    if operation in DIVIDING and value.dtype.kind != "f":
        return numpy.where(values[1] == 0, numpy.inf, 0.0)  # numpy's result is 0, a device's is not known
    if operation in EXACT or (operation in ARITHMETIC and value.dtype.kind != "f"):
        return 0.0
    size = numpy.abs(value.astype(numpy.float64))
    if operation in ARITHMETIC:
        error = ARITHMETIC_UNITS * arithmetic.unit * size + TINY
        held = value == value.astype(numpy.float32 if arithmetic.unit == UNIT else numpy.float16)
        is_exact = (held if operation in ROUNDED_ONCE else value == 0) & (numpy.asarray(carried) == 0)
        return numpy.where(is_exact, 0.0, error)
    native = arithmetic.native * (1 + numpy.abs(values[0].astype(numpy.float64)))
    return (FUNCTION_UNITS * arithmetic.unit + native) * size + (native * HALF_UNIT + TINY)


def sum_with_bounds(terms: BoundedValues, arithmetic: ArithmeticErrors, like: Array | None = None) -> BoundedValues:
    """The sum of terms along axis 1. like: what is added in their place, of the size of the largest of them."""
    value, count = terms.value, terms.value.shape[1]
    made, added = value.sum(1), (value if like is None else like).astype(numpy.float64)
    if arithmetic.sum_unit == HALF_UNIT:
        # In half a bound by the sum of absolute values would allow anything. Terms in no order add up to partial sums
        # of about the result and the root of their squares.
        size = numpy.abs(made) + 2 * numpy.sqrt(numpy.square(added).sum(1))
    else:
        size = numpy.abs(added).sum(1)
    error = arithmetic.transformed * _max_roundings(min(count, arithmetic.longest), count) * arithmetic.sum_unit * size
    return BoundedValues(made, (0.0 if value.dtype.kind != "f" else error) + terms.error.sum(1))


def sum_with_initial_value(
    made: BoundedValues, start: Array, count: int, arithmetic: ArithmeticErrors = FLOAT
) -> BoundedValues:
    """A sum of `count` terms that may start with a number, such as a bias: each addition rounds at that one's size."""
    unit = UNIT if arithmetic.longest < numpy.inf else arithmetic.sum_unit  # runs are added to it in float
    return BoundedValues(made.value, made.error + _max_roundings(count, count) * unit * numpy.abs(start))


def _max_roundings(count: float, most: float) -> float:
    """Returns the number of roundings that those of `count` terms hardly exceed together; `most` at most."""
    return min(float(most), IMPROBABLE * float(numpy.sqrt(count)))
