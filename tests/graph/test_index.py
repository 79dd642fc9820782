"""Index expressions against Python's own integers, at every position."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imgconv.graph.index import Index, Lookup, Variable, constant, flatten, unflatten, variable
from imgconv.kernels.codegen.access import index_text

SIZES = (3, 4, 5)
VARIABLES = [variable(name, size) for name, size in zip("abc", SIZES)]
TABLES = ((5, 0, 3), (7, -2, 0, 9, 1), (1, 0, 0, 40000))


class CInteger(int):
    """An int with C's division and remainder."""

    def __add__(self, other: int) -> CInteger:
        return CInteger(int(self) + int(other))

    __radd__ = __add__

    def __sub__(self, other: int) -> CInteger:
        return CInteger(int(self) - int(other))

    def __rsub__(self, other: int) -> CInteger:
        return CInteger(int(other) - int(self))

    def __mul__(self, other: int) -> CInteger:
        return CInteger(int(self) * int(other))

    __rmul__ = __mul__

    def __neg__(self) -> CInteger:
        return CInteger(-int(self))

    def __floordiv__(self, other: int) -> CInteger:
        quotient = abs(int(self)) // abs(int(other))
        return CInteger(quotient if (int(self) < 0) == (int(other) < 0) else -quotient)

    def __mod__(self, other: int) -> CInteger:
        return CInteger(int(self) - int(self // other) * int(other))


class CTable(tuple[int, ...]):
    """A table of C, of which nothing outside may be read."""

    def __getitem__(self, position: object) -> CInteger:
        assert isinstance(position, int) and 0 <= position < len(self), position
        return CInteger(super().__getitem__(position))


def entry(table: tuple[int, ...], position: int) -> int:
    """The entry of a table; the nearer end's where the position is outside."""
    return table[min(max(position, 0), len(table) - 1)]


@st.composite
def expressions(draw: st.DrawFn) -> tuple[Index, str]:
    """A random expression, and the Python text that means the same."""
    number = draw(st.integers(0, 2))
    made, text = VARIABLES[number], "abc"[number]
    for _ in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(["add", "plus", "times", "divide", "modulo", "table"]))
        k = draw(st.integers(1, 13))
        if kind == "add":
            other = draw(st.integers(0, 2))
            factor = draw(st.integers(-7, 12))
            made, text = made + VARIABLES[other] * factor, f"({text} + {'abc'[other]}*{factor})"
        elif kind == "plus":
            made, text = made + (k - 6), f"({text} + {k - 6})"
        elif kind == "times":
            made, text = made * k, f"({text}*{k})"
        elif kind == "divide":
            made, text = made // k, f"({text}//{k})"
        elif kind == "table":
            table = TABLES[k % len(TABLES)]
            made, text = made.lookup(table), f"entry({table}, {text})"
        else:
            made, text = made % k, f"({text}%{k})"
    return made, text


@given(expressions())
@settings(max_examples=400, deadline=None)
def test_value_and_range_are_those_of_python(pair: tuple[Index, str]) -> None:
    made, text = pair
    for a, b, c in itertools.product(*map(range, SIZES)):
        expected = eval(text, {"entry": entry}, {"a": a, "b": b, "c": c})
        assert made.evaluate({"a": a, "b": b, "c": c}) == expected, (str(made), text)
        assert made.low <= expected <= made.high
        assert max(abs(made.low), abs(made.high)) <= made.magnitude()


@given(expressions())
@settings(max_examples=300, deadline=None)
def test_text_means_the_same_in_c(pair: tuple[Index, str]) -> None:
    """C's quotients round towards zero, its remainders take the dividend's sign and its tables check nothing.

    All emulated here by classes.
    """
    made, _ = pair
    helpers: list[str] = []
    text = index_text(made, helpers)
    defined = re.findall(r"(\w+)\[\d+\] = \{(.*)\}", "".join(helpers))
    tables = {name: CTable(map(int, entries.split(", "))) for name, entries in defined}
    python = text.replace("/", "//").replace("(int)", "")
    for a, b, c in itertools.product(*map(range, SIZES)):
        found = eval(python, tables, {"a": CInteger(a), "b": CInteger(b), "c": CInteger(c)})
        assert int(found) == made.evaluate({"a": a, "b": b, "c": c}), (text, a, b, c)


@given(expressions(), expressions())
@settings(max_examples=200, deadline=None)
def test_substitution_is_composition(outer: tuple[Index, str], inner: tuple[Index, str]) -> None:
    replaced = outer[0].substitute({Variable("a", 3): inner[0] % 3})
    for a, b, c in itertools.product(*map(range, SIZES)):
        values = {"a": a, "b": b, "c": c}
        composed = outer[0].evaluate({**values, "a": inner[0].evaluate(values) % 3})
        assert replaced.evaluate(values) == composed


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.randoms())
@settings(max_examples=100, deadline=None)
def test_flatten_and_unflatten_cancel(shape: list[int], random: object) -> None:
    position = tuple(variable(f"i{k}", n) for k, n in enumerate(shape))
    assert unflatten(flatten(position, shape), tuple(shape)) == position


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_rest_as_large_as_the_factor_carries(most: int) -> None:
    """(2a + b) // 4 is a // 2 if b is 0 or 1, and not if it may be 2."""
    a, b = variable("a", 5), variable("b", most + 1)
    for x, y in itertools.product(range(5), range(most + 1)):
        values = {"a": x, "b": y}
        assert ((a * 2 + b) // 4).evaluate(values) == (2 * x + y) // 4
        assert ((a * 2 + b) % 4).evaluate(values) == (2 * x + y) % 4


def test_division_and_remainder_recombine() -> None:
    flat = variable("a", 24)
    assert (flat // 4) * 4 + flat % 4 == flat
    assert (flat // 12) * 12 + (flat // 4 % 3) * 4 + flat % 4 == flat
    assert ((variable("h", 10) - 1) * 7 + variable("w", 7)) // 7 == variable("h", 10) - 1


def test_tables_become_arithmetic() -> None:
    a = variable("a", 6)
    assert a.lookup([5, 4, 3, 2, 1, 0]) == a * -1 + 5
    assert a.lookup([0, 0, 2, 2, 4, 4]) == (a // 2) * 2
    assert a.lookup([3, 3, 3, 3, 3, 3]) == constant(3)
    assert [constant(i).lookup([5, 0, 3]) for i in (1, -4, 3)] == [constant(0), constant(5), constant(3)]
    odd = a.lookup([0, 2, 1, 5, 4, 3])
    assert [odd.evaluate({"a": i}) for i in range(6)] == [0, 2, 1, 5, 4, 3]
    assert odd.render(lambda lookup, position: f"T[{position}]") == "T[a]"


def test_a_table_is_not_read_again_if_its_variable_is_replaced() -> None:
    """A transposed convolution of dilation 32768 has tables of 65,539 numbers, replaced in a thousand times."""
    odd = variable("a", 6).lookup([0, 2, 1, 5, 4, 3])
    (before, _), (after, _) = odd.terms[0], odd.substitute({Variable("a", 6): variable("b", 2) + 1}).terms[0]
    assert isinstance(before, Lookup) and isinstance(after, Lookup)
    assert after.table is before.table and after.value == variable("b", 2) + 1
    assert odd.substitute({Variable("a", 6): constant(3)}) == constant(5)
