"""Elementwise expressions: their meaning and their text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, get_args

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imgconv.graph.expression import (
    FUNCTIONS, LONGEST_TEXT, Accuracy, Apply, Argument, Expression, Literal, MathMode, apply, argument_numbers, arity,
    evaluate, is_exact_in_half, function_names, render, replace_subexpression, subexpressions, substitute, users,
)
from imgconv.graph.graph_error import GraphError

A, B, C = Argument(0), Argument(1), Argument(2)
X = [-2.5, -1.0, -0.25, 0.0, 0.5, 1.0, 3.5]
POSITIVE = [0.001, 0.25, 1.0, 2.5, 70.0]
UNIT = [-0.99, -0.5, 0.0, 0.3, 0.99]
INTEGERS = [-4096.0, -77.0, -1.0, 0.0, 5.0, 96.0, 65535.0]
TRUTH = [0.0, 1.0]


def _modulo(a: float, b: float) -> float:
    return a - b * math.floor(a / b)


# What each operation means, in Python's own arithmetic, and where to try it.
MEANING: dict[str, tuple[Callable[..., Any], list[list[float]]]] = {
    "add": (lambda a, b: a + b, [X, X]),
    "subtract": (lambda a, b: a - b, [X, X]),
    "multiply": (lambda a, b: a * b, [X, X]),
    "divide": (lambda a, b: a / b, [X, POSITIVE]),
    "multiply_add": (lambda a, b, c: a * b + c, [X, X, X]),
    "maximum": (max, [X, X]),
    "minimum": (min, [X, X]),
    "power": (lambda a, b: a**b, [POSITIVE, X]),
    "modulo": (_modulo, [X, [-2.0, 3.0, 0.75]]),
    "remainder": (math.fmod, [X, [-2.0, 3.0, 0.75]]),
    "negative": (lambda a: -a, [X]),
    "absolute": (abs, [X]),
    "sign": (lambda a: (a > 0) - (a < 0), [X]),
    "floor": (math.floor, [X]),
    "ceil": (math.ceil, [X]),
    "round": (round, [X]),
    "saturate": (lambda a, low, high: min(max(round(a), low), high), [X, [-3.0, 0.0], [1.0, 255.0]]),
    "truncate": (int, [X]),
    "quotient": (lambda a, b: math.trunc(a / b), [INTEGERS, [-9.0, -2.0, 1.0, 7.0]]),
    "bit_and": (lambda a, b: int(a) & int(b), [INTEGERS, INTEGERS]),
    "bit_or": (lambda a, b: int(a) | int(b), [INTEGERS, INTEGERS]),
    "bit_xor": (lambda a, b: int(a) ^ int(b), [INTEGERS, INTEGERS]),
    "shift_left": (lambda a, b: int(a) << int(b), [INTEGERS, [0.0, 1.0, 9.0]]),
    "shift_right": (lambda a, b: int(a) >> int(b), [INTEGERS, [0.0, 1.0, 9.0]]),
    "reciprocal": (lambda a: 1 / a, [POSITIVE]),
    "sqrt": (math.sqrt, [POSITIVE]),
    "exp": (math.exp, [X]),
    "expm1": (math.expm1, [X]),
    "log1p": (math.log1p, [POSITIVE]),
    "log": (math.log, [POSITIVE]),
    "sin": (math.sin, [X]),
    "cos": (math.cos, [X]),
    "tan": (math.tan, [X]),
    "asin": (math.asin, [UNIT]),
    "acos": (math.acos, [UNIT]),
    "atan": (math.atan, [X]),
    "sinh": (math.sinh, [X]),
    "cosh": (math.cosh, [X]),
    "tanh": (math.tanh, [X]),
    "asinh": (math.asinh, [X]),
    "acosh": (math.acosh, [[1.0, 1.5, 30.0]]),
    "atanh": (math.atanh, [UNIT]),
    "erf": (math.erf, [X]),
    "sigmoid": (lambda a: math.exp(a) / (1 + math.exp(a)), [X]),
    "level_sigmoid": (lambda a, b: 1 / (1 + math.exp(-a * b)), [X, X]),
    "less": (lambda a, b: a < b, [X, X]),
    "less_equal": (lambda a, b: a <= b, [X, X]),
    "equal": (lambda a, b: a == b, [X, X]),
    "not": (lambda a: not a, [TRUTH]),
    "and": (lambda a, b: bool(a) and bool(b), [TRUTH, TRUTH]),
    "or": (lambda a, b: bool(a) or bool(b), [TRUTH, TRUTH]),
    "xor": (lambda a, b: bool(a) != bool(b), [TRUTH, TRUTH]),
    "isnan": (math.isnan, [[*X, math.nan, math.inf]]),
    "isinf": (math.isinf, [[*X, math.nan, math.inf, -math.inf]]),
    "where": (lambda c, a, b: a if c else b, [TRUTH, X, X]),
}

# OpenCL C's functions and common.cl's as Python, for the texts of FUNCTIONS. A vector's true is -1, Python's is 1:
# converting changes the sign.
OPENCL: dict[str, Any] = {
    "pow": pow, "fmod": math.fmod, "fabs": abs, "rint": round, "trunc": math.trunc,
    "sign": lambda a: (a > 0) - (a < 0), "isnan": math.isnan, "isinf": math.isinf,
    "convert_float4": lambda a: float(-a),
    "select": lambda a, b, c: b if c else a, "native_recip": lambda a: 1 / a, "native_exp": math.exp,
    "native_log": math.log, "exp_of": math.exp, "expm1_of": math.expm1, "native_expm1": math.expm1,
    "erf_of": math.erf, "native_erf": math.erf, "fmax": max, "fmin": min,
    "mad": lambda a, b, c: a * b + c, "clamp": lambda a, low, high: min(max(a, low), high),
    **{n: MEANING[n][0] for n in ("quotient", "bit_and", "bit_or", "bit_xor", "shift_left", "shift_right")},
    "level_sigmoid": MEANING["level_sigmoid"][0],
    **{name: getattr(math, name) for name in (
        "floor", "ceil", "sqrt", "exp", "expm1", "log1p", "log", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
        "cosh", "tanh", "asinh", "acosh", "atanh", "erf",
    )},
}


def run(statements: list[str], result: str, values: dict[str, float]) -> float:
    """Rendered OpenCL text, read as Python for one lane."""
    names: dict[str, Any] = {**OPENCL, **values}

    def python(text: str) -> str:
        text = re.sub(r"(\d\.\d*)f", r"\1", text.replace("(float4)", ""))
        return text.replace("&&", " and ").replace("||", " or ").replace(" ^ ", " != ")

    for statement in statements:
        match = re.fullmatch(r"const float4 (\w+) = (.*);", statement)
        assert match and match[1] not in values, statement
        names[match[1]] = eval(python(match[2]), names)
    return float(eval(python(result), names))


def test_every_operation_has_a_meaning_here() -> None:
    assert MEANING.keys() == FUNCTIONS.keys()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numpy_means_what_python_means(name: str) -> None:
    function, domains = MEANING[name]
    arrays = [g.ravel() for g in numpy.meshgrid(*map(numpy.array, domains))]
    expression = apply(name, *map(Argument, range(len(domains))))
    found = evaluate(expression, arrays)
    expected = [float(function(*row)) for row in zip(*(a.tolist() for a in arrays), strict=True)]
    numpy.testing.assert_allclose(numpy.asarray(found, float), expected, 1e-12, 1e-15)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("math_mode", get_args(MathMode))
def test_opencl_text_means_what_python_means(name: str, math_mode: MathMode) -> None:
    function, domains = MEANING[name]
    numbers = range(len(domains))
    statements, result = render(apply(name, *map(Argument, numbers)), {i: f"a{i}" for i in numbers}, math_mode)
    assert len(statements) == 1
    grid = [g.ravel().tolist() for g in numpy.meshgrid(*map(numpy.array, domains))]
    for row in zip(*grid, strict=True):
        found = run(statements, result, {f"a{i}": value for i, value in enumerate(row)})
        assert found == pytest.approx(float(function(*row)), 1e-9, 1e-12), (statements, row)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_texts_use_every_operand_and_no_other(name: str) -> None:
    count = len(MEANING[name][1])
    for text in (FUNCTIONS[name].opencl, FUNCTIONS[name].native, FUNCTIONS[name].of_numbers):
        if text is not None:
            assert set(map(int, re.findall(r"\{(\d)\}", text))) == set(range(count)), (name, text)
            assert text.count("(") == text.count(")")
            assert not re.search(r"\d\.\d*(?![\df])", text), f"{name}: a double literal"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numpy_functions_take_as_many_operands(name: str) -> None:
    count = len(MEANING[name][1])
    FUNCTIONS[name].numpy(*[numpy.full(1, 0.5) if name != "acosh" else numpy.ones(1)] * count)
    with pytest.raises((TypeError, ValueError)):
        FUNCTIONS[name].numpy(*[numpy.ones(1)] * (count + 2))


def test_native_text_is_used_only_where_asked_for() -> None:
    both = apply("exp", apply("divide", A, B))
    slow_text = " ".join(render(both, {0: "a", 1: "b"}, "exact")[0])
    fast_text = " ".join(render(both, {0: "a", 1: "b"}, "native")[0])
    assert "native" not in slow_text
    assert "native_exp" in fast_text and "native_recip" in fast_text
    with_native = {name for name, operation in FUNCTIONS.items() if operation.native}
    fast = {"divide", "reciprocal", "exp", "expm1", "log1p", "log", "erf", "sigmoid"}
    assert with_native == fast
    assert render(apply("sqrt", A), {0: "a"}, "native") == render(apply("sqrt", A), {0: "a"}, "exact")


def test_digits_that_a_result_does_not_need_are_not_computed() -> None:
    """Near zero, exp(x) - 1 has few digits: enough for a half, too few for a float."""
    def text(accuracy: Accuracy, operation: str) -> str:
        both = apply("maximum", apply(operation, A), B)
        return " ".join(render(both, {0: "a", 1: "b"}, "of numbers", accuracy=accuracy)[0])

    unary = [name for name in FUNCTIONS if arity(name) == 1]
    fast = {"exp", "expm1", "erf", "sigmoid"}
    assert {name for name in unary if "native" in text("half", name)} == fast
    assert {name for name in unary if "native" in text("most", name)} == fast - {"expm1"}
    assert not any("native" in text("all", name) for name in unary)
    assert all("fmax" in text(accuracy, "exp") for accuracy in ("all", "most", "half"))


# Building

def test_numbers_are_folded_at_once() -> None:
    assert apply("add", 1, 2.5) == Literal(3.5)
    assert apply("multiply", apply("add", 1, 1), 3) == Literal(6.0)
    assert apply("less", 1, 2) == Literal(1.0)
    assert apply("divide", 1, 0) == Literal(math.inf)
    assert apply("add", A, 0) == Apply("add", (A, Literal(0.0)))
    folded = apply("log", -1)
    assert isinstance(folded, Literal) and math.isnan(folded.value)


def test_an_unknown_operation_is_our_own_bug() -> None:
    with pytest.raises(GraphError, match="gelu"):
        apply("gelu", A)


def test_substitution_replaces_all_arguments_at_once_and_folds() -> None:
    expression = apply("add", A, apply("multiply", B, A))
    assert substitute(expression, {0: B, 1: A}) == apply("add", B, apply("multiply", A, B))
    assert substitute(expression, {0: Literal(2.0), 1: Literal(3.0)}) == Literal(8.0)
    with pytest.raises(KeyError):
        substitute(expression, {0: A})


def test_argument_numbers_and_operations() -> None:
    u = apply("exp", C)
    expression = apply("add", u, apply("multiply", u, A))
    assert argument_numbers(expression) == {0, 2} and argument_numbers(Literal(1.0)) == frozenset()
    assert function_names(expression) == ("exp", "multiply", "add")
    assert function_names(A) == ()


def test_a_part_is_found_and_replaced_wherever_it_is_shared() -> None:
    x, y = Argument(0), Argument(1)
    total = apply("add", x, y)
    swish = apply("multiply", total, apply("sigmoid", total))
    assert users(swish, x) == (total,) and users(swish, total) == (apply("sigmoid", total), swish)
    assert users(x, x) == ()
    assert replace_subexpression(swish, total, x) == apply("multiply", x, apply("sigmoid", x))
    # What is put in is not looked into.
    assert replace_subexpression(total, x, total) == apply("add", total, y)
    assert replace_subexpression(x, x, total) == total


def test_what_is_shared_is_walked_once() -> None:
    """The expression shares its parts: as a tree it would have 2**200."""
    chain: Expression = Argument(0)
    for _ in range(200):
        chain = apply("multiply", chain, apply("sigmoid", chain))
    assert argument_numbers(substitute(chain, {0: Argument(3)})) == {3}
    assert function_names(replace_subexpression(chain, Argument(0), Argument(1))).count("sigmoid") == 200


def test_what_is_shared_is_compared_and_written_once() -> None:
    def chain(start: Expression) -> Expression:
        for _ in range(200):
            start = apply("multiply", start, apply("sigmoid", start))
        return start

    one, other = chain(A), chain(A)
    assert one == other and hash(one) == hash(other) and one != chain(B)
    assert len(subexpressions(apply("add", one, other))) == 1 + 2 * 200 + 1
    assert len(str(one)) <= LONGEST_TEXT and str(one).startswith("multiply(")


def test_text_reads_as_a_formula() -> None:
    assert str(apply("maximum", apply("add", A, B), 0)) == "maximum(add($0, $1), 0)"
    assert str(Literal(1e-7)) == "1e-07"
    assert str(Literal(1 / 3)) == "0.333333333"


# Evaluation

def test_integers_stay_integers() -> None:
    five = numpy.array([5, -5, 7], numpy.int64)
    for name, expected in (("add", [7, -3, 9]), ("multiply", [10, -10, 14]), ("quotient", [2, -2, 3])):
        found = evaluate(apply(name, A, 2), [five])
        assert numpy.issubdtype(found.dtype, numpy.integer)
        assert found.tolist() == expected, "division rounds towards zero"
    assert evaluate(apply("quotient", A, -2), [five]).tolist() == [-2, 2, -3]
    assert evaluate(apply("divide", A, 2), [five]).tolist() == [2.5, -2.5, 3.5], "as kernels divide: these are floats"
    large = numpy.array([2**53 + 1], numpy.int64)
    assert evaluate(apply("add", A, 1), [large]).tolist() == [2**53 + 2]


def test_integers_meet_numbers_that_no_integer_is() -> None:
    five = numpy.array([5], numpy.int64)
    assert evaluate(apply("multiply", A, 0.5), [five]).tolist() == [2.5]
    assert evaluate(apply("maximum", A, -math.inf), [five]).tolist() == [5]
    assert evaluate(apply("equal", A, math.nan), [five]).tolist() == [False]


def test_floats_keep_their_precision() -> None:
    for dtype in (numpy.float32, numpy.float64):
        assert evaluate(apply("add", A, 0.1), [numpy.ones(2, dtype)]).dtype == dtype


def test_values_out_of_domain_are_quiet() -> None:
    with numpy.errstate(all="raise"):
        found = evaluate(apply("add", apply("log", A), apply("divide", 1, A)), [numpy.array([0.0, -1.0])])
    assert math.isnan(found[0]) and math.isnan(found[1])


def test_nan_and_infinity_pass_through() -> None:
    special = numpy.array([math.nan, math.inf, -math.inf])
    assert evaluate(apply("sigmoid", A), [special])[1:].tolist() == [1.0, 0.0]
    assert evaluate(apply("where", apply("isnan", A), 0, A), [special]).tolist() == [0.0, math.inf, -math.inf]


# Rendering

@st.composite
def trees(draw: st.DrawFn, depth: int = 4) -> Expression:
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        leaves: list[Expression] = [A, B, C, Literal(0.5), Literal(-3.0)]
        return draw(st.sampled_from(leaves))
    name = draw(st.sampled_from(["add", "subtract", "multiply", "maximum", "negative", "tanh", "where"]))
    parts = [draw(trees(depth=depth - 1)) for _ in MEANING[name][1]]
    return apply(name, *([apply("less", parts[0], B), *parts[1:]] if name == "where" else parts))


@given(trees(), st.lists(st.integers(-8, 8), min_size=3, max_size=3))
@settings(max_examples=150, deadline=None)
def test_rendered_statements_compute_the_value(tree: Expression, eighths: list[int]) -> None:
    numbers = [n / 8 for n in eighths]
    statements, result = render(tree, {0: "a", 1: "b", 2: "c"}, "exact", "e_")
    found = run(statements, result, dict(zip("abc", numbers, strict=True)))
    expected = evaluate(tree, [numpy.array([n]) for n in numbers])
    assert found == pytest.approx(float(numpy.asarray(expected).ravel()[0]), 1e-6, 1e-6)
    assert len(statements) == len(function_names(tree)), "each shared part is computed once"


def test_shared_parts_are_computed_once_also_deep_ones() -> None:
    tree: Expression = A
    for _ in range(40):
        tree = apply("add", tree, tree)
    statements, result = render(tree, {0: "x"}, "exact")
    assert len(statements) == 40 and result == "t39"
    assert evaluate(tree, [numpy.array([1.0])]).tolist() == [2.0**40]
    assert len(function_names(tree)) == 40


def test_argument_text_is_put_in_as_it_is() -> None:
    """An operand called A0 or B, or braces in it, must not be rewritten by the template of the operation."""
    assert render(A, {0: "whole"}, "exact") == ([], "whole")
    assert render(Literal(0.5), {}, "exact") == ([], "(float4)(0.5f)")
    statements, _ = render(apply("subtract", A, B), {0: "B", 1: "{0}"}, "exact", "p")
    assert statements == ["const float4 p0 = (B - {0});"]


def test_names_begin_with_the_prefix() -> None:
    statements, result = render(apply("exp", apply("add", A, 1)), {0: "sum"}, "exact", "e_t1_")
    assert statements == ["const float4 e_t1_0 = (sum + (float4)(1.0f));", "const float4 e_t1_1 = exp_of(e_t1_0);"]
    assert result == "e_t1_1"


@pytest.mark.parametrize("low_first", [True, False])
def test_a_clamp_of_an_argument_to_one_ends_with_its_lower_bound(low_first: bool) -> None:
    """Mesa's Adreno compiler makes fmin(fmax(x, 0), 1) a flag of the instruction that computes x, even in a loop."""
    raised = apply("maximum", A, 0.0) if low_first else apply("maximum", 0.0, A)
    clamped = apply("minimum", raised, 1.0) if low_first else apply("minimum", 1.0, raised)
    assert render(apply("multiply", clamped, B), {0: "x", 1: "y"}, "of numbers", accuracy="half")[0][:2] == [
        "const float4 t0 = fmin(x, (float4)(1.0f));", "const float4 t1 = fmax(t0, (float4)(0.0f));",
    ]
    # What the expression itself computes is no sum of a loop, and may be saturated: one instruction fewer.
    shifted = apply("minimum", apply("maximum", apply("add", A, 0.5), 0.0), 1.0)
    assert render(shifted, {0: "x"}, "of numbers", accuracy="half")[0][1:] == [
        "const float4 t1 = fmax(t0, (float4)(0.0f));", "const float4 t2 = fmin(t1, (float4)(1.0f));",
    ]


HALFS = numpy.concatenate([
    numpy.random.default_rng(0).normal(0, scale, 3000) for scale in (1e-4, 1.0, 300.0, 1e4)
]).astype(numpy.float16)
CLAMPED = apply("minimum", apply("maximum", apply("add", A, B), 0.0), 6.0)


@pytest.mark.parametrize("expression", [
    A, CLAMPED, apply("negative", apply("absolute", apply("multiply", A, 0.5))),
    apply("maximum", apply("subtract", A, B), apply("multiply", A, B)),
], ids=str)
def test_what_is_exact_in_half_is_the_rounded_float(expression: Expression) -> None:
    assert is_exact_in_half(expression)
    others = numpy.random.default_rng(1).permutation(HALFS)
    wide = evaluate(expression, [HALFS.astype(numpy.float32), others.astype(numpy.float32)])
    with numpy.errstate(over="ignore"):
        narrow, rounded = evaluate(expression, [HALFS, others]), numpy.asarray(wide).astype(numpy.float16)
    numpy.testing.assert_array_equal(narrow, rounded, strict=True)


@pytest.mark.parametrize("expression", [
    apply("multiply", A, 0.1), apply("minimum", A, 1e6), apply("add", apply("multiply", A, B), C),
    apply("add", apply("maximum", apply("add", A, B), 0.0), C), apply("exp", A), apply("divide", A, B),
], ids=str)
def test_what_is_not_exact_in_half(expression: Expression) -> None:
    """Numbers that no half is, values that are rounded twice, and functions of which nothing is known."""
    assert not is_exact_in_half(expression)


def test_statements_of_halfs() -> None:
    assert render(CLAMPED, {0: "a", 1: "b"}, "of numbers", accuracy="half", kind="half4")[0] == [
        "const half4 t0 = (a + b);", "const half4 t1 = fmax(t0, (half4)(0.0f));",
        "const half4 t2 = fmin(t1, (half4)(6.0f));",
    ]


def test_truth_values_are_numbers_in_arithmetic() -> None:
    """After a merge a comparison may be read by any function: numpy would add bools as logic, and take tanh in half."""
    a, b = numpy.array([1.0, 3.0]), numpy.array([2.0, 2.0])
    less, both = apply("less", Argument(0), Argument(1)), apply("less", Argument(0), 9.0)
    numpy.testing.assert_array_equal(evaluate(apply("add", less, both), [a, b]), [2, 1])
    numpy.testing.assert_array_equal(evaluate(apply("subtract", less, both), [a, b]), [0, -1])
    numpy.testing.assert_array_equal(evaluate(apply("negative", less), [a, b]), [-1, 0])
    numpy.testing.assert_allclose(evaluate(apply("tanh", less), [a, b]), [math.tanh(1), 0], 1e-15)
    product = evaluate(apply("multiply", Argument(0), Argument(1)), [a > 2, a.astype("u8")])
    assert numpy.asarray(product).dtype == numpy.uint64
    numpy.testing.assert_array_equal(product, [0, 3])


def test_a_number_past_the_range_of_integers_is_not_wrapped() -> None:
    """The neutral element of a minimum of int64, as a float, is 2**63."""
    chosen = apply("where", apply("less", Argument(0), 0.0), Argument(0), 2.0**63)
    found = evaluate(chosen, [numpy.array([-8, 6])])
    assert numpy.array_equal(numpy.asarray(found, numpy.float64), [-8.0, 2.0**63])
    unsigned = evaluate(apply("maximum", Argument(0), 2.0**63), [numpy.array([2**64 - 1, 5], numpy.uint64)])
    assert numpy.asarray(unsigned).tolist() == [2**64 - 1, 2**63]
