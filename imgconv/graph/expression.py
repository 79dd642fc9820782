"""Elementwise expressions: the trees that kernels fuse, with their semantics in numpy, OpenCL C source and ONNX form.

`FUNCTIONS` is the table of scalar functions. A tree consists of `Literal`, `Argument` (the n-th operand) and `Apply`.
It holds no shapes, because every argument is read at the same position. For example, relu(a + b):

    apply("maximum", apply("add", Argument(0), Argument(1)), 0.0)
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal as OneOf, TypeVar, Union

import numpy

from imgconv.arrays import Array
from imgconv.graph.graph_error import require

T = TypeVar("T")
# The most characters of an operation's text. If it is longer, its arguments are shown as "...".
LONGEST_TEXT = 10_000
# How exact a kernel's functions are: for all floats, as ONNX says; for arguments without NaN; the same where the
# device's native functions are exact enough, for halves and for what FLOAT16 keeps in float; the device's native ones,
# if there are.
MathMode = OneOf["exact", "of numbers", "to halves", "kept in float", "native"]
# How accurate a result must be: to all digits of a float; to most of them, so that it may be some units in the last
# place off; to those of a half.
Accuracy = OneOf["all", "most", "half"]
# The operations whose texts for half have most digits at every argument, if the device's native functions are exact
# enough (loading/native_functions.py). So a plan that keeps some values in float shares their kernels with the one that
# keeps none.
MOST_DIGITS = frozenset({"exp", "erf", "sigmoid"})
LEVEL_SIGMOID = 40.0
# The types of an ONNX operator. NUMBER is int64 if every argument is an integer, else float32.
NUMBER, FLOAT, WHOLE, TRUTH = "number", "float32", "int64", "bool"


@dataclass(frozen=True)
class OnnxForm:
    """A scalar function as an ONNX operator of opset 18: the types of its inputs and its output, and its attributes.

    operator: "" if ONNX has none. composed: the function of floats as a composition of others. It is set if no ONNX
    operator computes the function of floats.
    """

    operator: str
    takes: str = NUMBER
    gives: str = NUMBER
    attributes: tuple[tuple[str, int], ...] = ()
    composed: Callable[..., Expression] | None = None


@dataclass(frozen=True)
class ScalarFunction:
    """A scalar function in numpy, as OpenCL C for float4, and in ONNX.

    native: the OpenCL C with NATIVE_EXPLOG. to_half: the OpenCL C for a result that is stored in half, where native
    functions are exact enough. Its error is below the rounding to half. of_numbers: the OpenCL C if no argument is NaN.
    """

    numpy: Callable[..., Array]
    opencl: str
    onnx: OnnxForm
    native: str | None = None
    to_half: str | None = None
    of_numbers: str | None = None


def _erf(x: Array) -> Array:
    made: Array = numpy.vectorize(math.erf, otypes=[float])(x)
    return made


def _quotient(a: Array, b: Array) -> Array:
    # ONNX integer division truncates towards zero, as C does.
    if numpy.issubdtype(numpy.result_type(a, b), numpy.integer):
        quotient = numpy.floor_divide(a, b)
        truncated: Array = quotient + ((quotient < 0) & (quotient * b != a))
        return truncated
    return numpy.trunc(a / b)


def _on_integers(function: Callable[..., Array]) -> Callable[..., Array]:
    """The function with its arguments cast to int64 if they are floats."""
    def call(*arguments: Array) -> Array:
        whole = [a if numpy.asarray(a).dtype.kind in "iu" else numpy.asarray(a).astype(numpy.int64) for a in arguments]
        return function(*whole)

    return call


def _bool4(text: str) -> str:
    return f"convert_float4(-({text}))"


def _floats(operator: str) -> OnnxForm:
    return OnnxForm(operator, FLOAT, FLOAT)


def _composed(composed: Callable[..., Expression], operator: str = "") -> OnnxForm:
    return OnnxForm(operator, composed=composed)


# fmod is exact. With a rounded quotient, 9 mod 3 can be 3. The result has the sign of the divisor.
_MODULO = (
    "(fmod({0}, {1}) + select((float4)(0.0f), {1}, "
    "(fmod({0}, {1}) != 0.0f) & ((fmod({0}, {1}) < 0.0f) ^ ({1} < 0.0f))))"
)

FUNCTIONS: Mapping[str, ScalarFunction] = {
    "add": ScalarFunction(numpy.add, "({0} + {1})", OnnxForm("Add")),
    "subtract": ScalarFunction(numpy.subtract, "({0} - {1})", OnnxForm("Sub")),
    "multiply": ScalarFunction(numpy.multiply, "({0} * {1})", OnnxForm("Mul")),
    "divide": ScalarFunction(numpy.true_divide, "({0} / {1})", OnnxForm("Div"), "({0} * native_recip({1}))"),
    "multiply_add": ScalarFunction(
        lambda a, b, c: a * b + c, "mad({0}, {1}, {2})",
        _composed(lambda a, b, c: apply("add", apply("multiply", a, b), c)),
    ),
    # fmax and fmin take one instruction instead of four, but they drop a NaN. sign turns a NaN into 0.
    "maximum": ScalarFunction(
        numpy.maximum, "select({0}, {1}, ({0} <= {1}) | isnan({1}))", OnnxForm("Max"), of_numbers="fmax({0}, {1})"
    ),
    "minimum": ScalarFunction(
        numpy.minimum, "select({0}, {1}, ({0} >= {1}) | isnan({1}))", OnnxForm("Min"), of_numbers="fmin({0}, {1})"
    ),
    "power": ScalarFunction(numpy.power, "pow({0}, {1})", _floats("Pow")),
    "modulo": ScalarFunction(
        numpy.mod, _MODULO,
        # For floats, ONNX's Mod has the sign of the dividend.
        _composed(lambda a, b: apply("subtract", a, apply("multiply", b, apply("floor", apply("divide", a, b)))), "Mod")
    ),
    "remainder": ScalarFunction(numpy.fmod, "fmod({0}, {1})", OnnxForm("Mod", attributes=(("fmod", 1),))),
    "quotient": ScalarFunction(
        _quotient, "quotient({0}, {1})", _composed(lambda a, b: apply("truncate", apply("divide", a, b)), "Div")
    ),
    "bit_and": ScalarFunction(
        _on_integers(numpy.bitwise_and), "bit_and({0}, {1})", OnnxForm("BitwiseAnd", WHOLE, WHOLE)
    ),
    "bit_or": ScalarFunction(_on_integers(numpy.bitwise_or), "bit_or({0}, {1})", OnnxForm("BitwiseOr", WHOLE, WHOLE)),
    "bit_xor": ScalarFunction(
        _on_integers(numpy.bitwise_xor), "bit_xor({0}, {1})", OnnxForm("BitwiseXor", WHOLE, WHOLE)
    ),
    "shift_left": ScalarFunction(
        _on_integers(numpy.left_shift), "shift_left({0}, {1})",
        _composed(lambda a, n: apply("multiply", a, apply("power", 2.0, n))),
    ),
    "shift_right": ScalarFunction(
        _on_integers(numpy.right_shift), "shift_right({0}, {1})",
        _composed(lambda a, n: apply("floor", apply("divide", a, apply("power", 2.0, n)))),
    ),
    "negative": ScalarFunction(numpy.negative, "(-{0})", OnnxForm("Neg")),
    "absolute": ScalarFunction(numpy.abs, "fabs({0})", OnnxForm("Abs")),
    "sign": ScalarFunction(numpy.sign, "select(sign({0}), {0}, isnan({0}))", OnnxForm("Sign")),
    "floor": ScalarFunction(numpy.floor, "floor({0})", _floats("Floor")),
    "ceil": ScalarFunction(numpy.ceil, "ceil({0})", _floats("Ceil")),
    "round": ScalarFunction(numpy.rint, "rint({0})", _floats("Round")),
    # The nearest integer between two limits. For NaN it is any of these integers: drivers differ.
    "saturate": ScalarFunction(
        lambda x, low, high: numpy.clip(numpy.rint(x), low, high), "clamp(rint({0}), {1}, {2})",
        _composed(lambda x, low, high: apply("minimum", apply("maximum", apply("round", x), low), high)),
    ),
    "truncate": ScalarFunction(
        numpy.trunc, "trunc({0})",
        _composed(lambda a: apply("where", apply("less", a, 0), apply("ceil", a), apply("floor", a))),
    ),
    "reciprocal": ScalarFunction(lambda x: 1 / x, "(1.0f / {0})", _floats("Reciprocal"), "native_recip({0})"),
    "sqrt": ScalarFunction(numpy.sqrt, "sqrt({0})", _floats("Sqrt")),
    "exp": ScalarFunction(numpy.exp, "exp_of({0})", _floats("Exp"), "native_exp({0})", "native_exp({0})"),
    # Near zero, to_half is off by float's rounding error at 1, which is 2**-24: the spacing of the smallest halves.
    "expm1": ScalarFunction(
        numpy.expm1, "expm1_of({0})",
        _composed(lambda a: apply("subtract", apply("exp", a), 1)), "native_expm1({0})", "(native_exp({0}) - 1.0f)",
    ),
    "log1p": ScalarFunction(
        numpy.log1p, "log1p({0})", _composed(lambda a: apply("log", apply("add", a, 1))), "native_log(1.0f + {0})"
    ),
    "log": ScalarFunction(numpy.log, "log({0})", _floats("Log"), "native_log({0})"),
    "sin": ScalarFunction(numpy.sin, "sin({0})", _floats("Sin")),
    "cos": ScalarFunction(numpy.cos, "cos({0})", _floats("Cos")),
    "tan": ScalarFunction(numpy.tan, "tan({0})", _floats("Tan")),
    "asin": ScalarFunction(numpy.arcsin, "asin({0})", _floats("Asin")),
    "acos": ScalarFunction(numpy.arccos, "acos({0})", _floats("Acos")),
    "atan": ScalarFunction(numpy.arctan, "atan({0})", _floats("Atan")),
    "sinh": ScalarFunction(numpy.sinh, "sinh({0})", _floats("Sinh")),
    "cosh": ScalarFunction(numpy.cosh, "cosh({0})", _floats("Cosh")),
    "tanh": ScalarFunction(numpy.tanh, "tanh({0})", _floats("Tanh")),
    "asinh": ScalarFunction(numpy.arcsinh, "asinh({0})", _floats("Asinh")),
    "acosh": ScalarFunction(numpy.arccosh, "acosh({0})", _floats("Acosh")),
    "atanh": ScalarFunction(numpy.arctanh, "atanh({0})", _floats("Atanh")),
    "erf": ScalarFunction(_erf, "erf_of({0})", _floats("Erf"), "native_erf({0})", "native_erf({0})"),
    "sigmoid": ScalarFunction(
        lambda x: 1 / (1 + numpy.exp(-x)), "(1.0f / (1.0f + exp_of(-{0})))",
        _floats("Sigmoid"), "native_recip(1.0f + native_exp(-{0}))", "native_recip(1.0f + native_exp(-{0}))",
    ),
    # The sigmoid of a level times its scale, at most LEVEL_SIGMOID, before it is rounded to a level.
    "level_sigmoid": ScalarFunction(
        lambda level, scale: 1 / (1 + numpy.exp(-level * scale)), "level_sigmoid({0}, {1})",
        _composed(lambda level, scale: apply("sigmoid", apply("multiply", level, scale))),
    ),
    "less": ScalarFunction(numpy.less, _bool4("{0} < {1}"), OnnxForm("Less", gives=TRUTH)),
    "less_equal": ScalarFunction(numpy.less_equal, _bool4("{0} <= {1}"), OnnxForm("LessOrEqual", gives=TRUTH)),
    "equal": ScalarFunction(numpy.equal, _bool4("{0} == {1}"), OnnxForm("Equal", gives=TRUTH)),
    "not": ScalarFunction(numpy.logical_not, _bool4("{0} == 0.0f"), OnnxForm("Not", TRUTH, TRUTH)),
    "and": ScalarFunction(numpy.logical_and, _bool4("({0} != 0.0f) && ({1} != 0.0f)"), OnnxForm("And", TRUTH, TRUTH)),
    "or": ScalarFunction(numpy.logical_or, _bool4("({0} != 0.0f) || ({1} != 0.0f)"), OnnxForm("Or", TRUTH, TRUTH)),
    "xor": ScalarFunction(numpy.logical_xor, _bool4("({0} != 0.0f) ^ ({1} != 0.0f)"), OnnxForm("Xor", TRUTH, TRUTH)),
    "isnan": ScalarFunction(numpy.isnan, _bool4("isnan({0})"), OnnxForm("IsNaN", FLOAT, TRUTH)),
    "isinf": ScalarFunction(numpy.isinf, _bool4("isinf({0})"), OnnxForm("IsInf", FLOAT, TRUTH)),
    "where": ScalarFunction(numpy.where, "select({2}, {1}, {0} != 0.0f)", OnnxForm("Where")),
}


@dataclass(frozen=True, eq=False)
class Literal:
    """A constant, the same at every position. 0.0 and -0.0 are not equal, because 1/x tells them apart."""

    value: float

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self._bits == other._bits

    def __hash__(self) -> int:
        return hash(self._bits)

    @cached_property
    def _bits(self) -> bytes:
        return struct.pack("d", self.value)

    def __str__(self) -> str:
        return f"{self.value:.9g}"


@dataclass(frozen=True)
class Argument:
    """The n-th operand at this position."""

    number: int

    def __str__(self) -> str:
        return f"${self.number}"


@dataclass(frozen=True, eq=False)
class Apply:
    """A scalar function (a key of FUNCTIONS) applied to expressions.

    Subexpressions may be shared: n functions can have 2**n paths. Equality, hash and text visit each function once.
    """

    function: str
    arguments: tuple[Expression, ...]

    @cached_property
    def _hash(self) -> int:
        return hash((self.function, self.arguments))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Apply) and _equal(self, other, set())

    @cached_property
    def _proper_subexpressions(self) -> tuple[Expression, ...]:
        """Its parts without itself, which would be a cycle of references."""
        found: dict[Expression, None] = {}
        _collect_subexpressions(self.arguments, found)
        return tuple(found)

    @cached_property
    def _text(self) -> str:
        arguments = (a._text if isinstance(a, Apply) else str(a) for a in self.arguments)
        text = f"{self.function}({', '.join(arguments)})"
        return text if len(text) <= LONGEST_TEXT else f"{self.function}(...)"

    def __str__(self) -> str:
        # Innermost first, so that a long chain does not recurse deeply.
        return [part._text for part in subexpressions(self) if isinstance(part, Apply)][-1]


Expression = Union[Literal, Argument, Apply]
IDENTITY = Argument(0)


def _equal(a: Expression, b: Expression, found: set[tuple[int, int]]) -> bool:
    """Returns whether two expressions are the same tree. found: the ids of pairs that are known to be equal."""
    if a is b or (id(a), id(b)) in found:
        return True
    if not (isinstance(a, Apply) and isinstance(b, Apply)):
        return a == b
    alike = hash(a) == hash(b) and a.function == b.function and len(a.arguments) == len(b.arguments)
    if not (alike and all(_equal(x, y, found) for x, y in zip(a.arguments, b.arguments, strict=True))):
        return False
    found.add((id(a), id(b)))
    return True


def apply(function: str, *arguments: Expression | float) -> Expression:
    """The function of expressions or numbers. Folds constants, and a product with 1.

        apply("multiply", Argument(0), 2.0)
    """
    require(function in FUNCTIONS, function)
    expressions = tuple(a if isinstance(a, (Literal, Argument, Apply)) else Literal(float(a)) for a in arguments)
    if all(isinstance(e, Literal) for e in expressions):
        with numpy.errstate(all="ignore"):
            values = [numpy.float64(e.value) for e in expressions if isinstance(e, Literal)]
            return Literal(float(FUNCTIONS[function].numpy(*values)))
    if function == "multiply" and Literal(1.0) in expressions:
        return expressions[1] if expressions[0] == Literal(1.0) else expressions[0]
    return Apply(function, expressions)


def substitute(expression: Expression, arguments: Mapping[int, Expression]) -> Expression:
    """The expression with every argument replaced, by the argument's number."""
    return _rebuild(expression, {Argument(number): arguments[number] for number in argument_numbers(expression)})


def replace_subexpression(expression: Expression, part: Expression, new: Expression) -> Expression:
    """The expression with each occurrence of `part` replaced by `new`."""
    return _rebuild(expression, {part: new})


def _rebuild(expression: Expression, known: dict[Expression, Expression]) -> Expression:
    """The expression with its parts replaced as `known` says. A shared part is rebuilt once."""
    found = known.get(expression)
    if found is None:
        found = expression
        if isinstance(expression, Apply):
            found = apply(expression.function, *(_rebuild(a, known) for a in expression.arguments))
        known[expression] = found
    return found


def subexpressions(expression: Expression) -> tuple[Expression, ...]:
    """Every subexpression, innermost first, shared ones once."""
    return (*expression._proper_subexpressions, expression) if isinstance(expression, Apply) else (expression,)


def _collect_subexpressions(expressions: Sequence[Expression], found: dict[Expression, None]) -> None:
    """Adds the parts of expressions that are not found yet, innermost first."""
    for expression in expressions:
        if expression not in found:
            _collect_subexpressions(expression.arguments if isinstance(expression, Apply) else (), found)
            found[expression] = None


def fold(
    expression: Expression, literal: Callable[[float], T], arguments: Sequence[T] | Mapping[int, T],
    applied: Callable[[Apply, Sequence[T]], T],
) -> T:
    """The result of an expression, made from its innermost parts outward, of shared parts once.

    literal: gives the result of a number. arguments: that of each argument. applied: gives that of a function from
    those of its arguments.
    """
    done: dict[Expression, T] = {}
    for part in subexpressions(expression):
        if isinstance(part, Literal):
            done[part] = literal(part.value)
        elif isinstance(part, Argument):
            done[part] = arguments[part.number]
        else:
            done[part] = applied(part, [done[a] for a in part.arguments])
    return done[expression]


def users(expression: Expression, part: Expression) -> tuple[Apply, ...]:
    """The functions that have `part` as a direct argument. Empty if `part` is the whole expression."""
    return tuple(e for e in subexpressions(expression) if isinstance(e, Apply) and part in e.arguments)


def argument_numbers(expression: Expression) -> frozenset[int]:
    """The numbers of the arguments that the expression reads."""
    return frozenset(e.number for e in subexpressions(expression) if isinstance(e, Argument))


def function_names(expression: Expression) -> tuple[str, ...]:
    """The names of the functions, innermost first, shared ones once."""
    return tuple(e.function for e in subexpressions(expression) if isinstance(e, Apply))


def arity(function: str) -> int:
    """Returns the number of arguments of a scalar function: arity("add") is 2."""
    return 1 + max(int(number) for number in re.findall(r"{(\d)}", FUNCTIONS[function].opencl))


def evaluate(expression: Expression, arguments: Sequence[Array]) -> Array | float:
    """The expression's value in numpy, in the precision of the arguments. Their shapes are equal or broadcast."""

    def applied(part: Apply, given: Sequence[Array | float]) -> Array | float:
        with numpy.errstate(all="ignore"):
            return FUNCTIONS[part.function].numpy(*_bools_to_integers(given))

    given: Sequence[Array | float] = arguments
    return fold(expression, lambda number: _weakly_typed(number, arguments), given, applied)


def _bools_to_integers(values: Sequence[Array | float]) -> list[Array | float]:
    """Truth values as integers 0 and 1: numpy adds bools as logic, and takes functions of them in half."""
    whole = numpy.uint64 if any(getattr(v, "dtype", None) == numpy.uint64 for v in values) else numpy.int64
    return [v.astype(whole) if isinstance(v, (numpy.ndarray, numpy.bool_)) and v.dtype == bool else v for v in values]


def _weakly_typed(number: float, arguments: Sequence[Array]) -> float:
    # A Python int keeps integer tensors integer. A float turns them into float64, as one past their range must.
    integers = arguments and all(not numpy.issubdtype(a.dtype, numpy.floating) for a in arguments)
    limit = 2.0 ** (64 if any(a.dtype == numpy.uint64 for a in arguments) else 63)
    return int(number) if integers and float(number).is_integer() and abs(number) < limit else number


def literal_text(value: float) -> str:
    """The nearest float as an OpenCL literal that is parsed to exactly this float."""
    if math.isnan(value):
        return "NAN"
    with numpy.errstate(over="ignore"):
        single = numpy.float32(value)
    if numpy.isinf(single):
        return "INFINITY" if single > 0 else "(-INFINITY)"
    text = repr(float(single))
    mantissa = text if "." in text or "e" in text else text + ".0"
    return f"({mantissa}f)" if single < 0 else f"{mantissa}f"


# Operations that are exact in any precision, and those whose result is rounded once.
_EXACT, _ROUNDED = {"maximum", "minimum", "negative", "absolute"}, {"add", "subtract", "multiply"}


def is_exact_in_half(expression: Expression) -> bool:
    """Returns whether half arithmetic on halfs gives what float arithmetic does whose result is then rounded to half.

    It does if no value is rounded twice: a float holds a sum or product of two halfs so well that rounding it again
    gives the nearest half (Figueroa, When is double rounding innocuous?, 1995).
    """
    rounded: dict[Expression, bool] = {}
    for part in subexpressions(expression):
        if isinstance(part, Literal):
            with numpy.errstate(over="ignore"):
                if float(numpy.float16(part.value)) != part.value:
                    return False
        rounded[part] = False
        if isinstance(part, Apply):
            before = any(rounded[a] for a in part.arguments)
            if part.function not in _EXACT | _ROUNDED or (before and part.function in _ROUNDED):
                return False
            rounded[part] = before or part.function in _ROUNDED
    return True


def _avoid_saturating_instructions(expression: Expression) -> Expression:
    """The expression with each min(max($n, 0), 1) as max(min($n, 1), 0).

    Mesa 25.0's Adreno compiler makes the first form a saturation of the instruction that computes $n. If this is in a
    loop, it saturates every partial sum (ir3_compiler_nir.c: fsat of a phi that has one source).
    """
    found: dict[Expression, Expression] = {}
    for argument in map(Argument, argument_numbers(expression)):
        safe = apply("maximum", apply("minimum", argument, 1.0), 0.0)
        for raised in (apply("maximum", argument, 0.0), apply("maximum", 0.0, argument)):
            found |= {apply("minimum", raised, 1.0): safe, apply("minimum", 1.0, raised): safe}
    return _rebuild(expression, found)


def render(
    expression: Expression, arguments: Mapping[int, str], math_mode: MathMode, prefix: str = "t",
    accuracy: Accuracy = "all", kind: str = "float4",
) -> tuple[list[str], str]:
    """OpenCL C statements, one for each function, and the text of the result.

    arguments: the text of each, by its number. math_mode: of the functions. accuracy: of the result. kind: of arguments
    and result; see `is_exact_in_half`.
    """
    statements: list[str] = []

    def applied(part: Apply, given: Sequence[str]) -> str:
        function = FUNCTIONS[part.function]
        is_fast = accuracy == "half" or accuracy == "most" and part.function in MOST_DIGITS
        for_half = function.to_half if is_fast else None
        native = function.native if math_mode == "native" else None
        of_numbers = None if math_mode == "exact" else function.of_numbers
        form = for_half or native or of_numbers or function.opencl
        name = f"{prefix}{len(statements)}"
        statements.append(f"const {kind} {name} = {form.format(*given)};")
        return name

    def literal(value: float) -> str:
        return f"({kind})({literal_text(value)})"

    return statements, fold(_avoid_saturating_instructions(expression), literal, arguments, applied)
