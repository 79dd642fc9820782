"""Integer index expressions: the arithmetic of views, texel addresses and bounds tests.

An `Index` is a linear form ``constant + sum(coefficient * atom)``. An atom is a `Variable`, a floor `Division`, a
`Modulo` or a `Lookup` in a constant table. Every atom knows its range, so that divisions and remainders cancel
when an expression is built. Equal sums are equal objects. An expression is evaluated in Python (integers or numpy
arrays) and rendered as OpenCL C. For example:

    x = variable("x", 12)
    (x * 4 + 3) // 4                  gives x
    str((x + 1) // 4)                 gives "(x + 1)/4"

Rules (floor semantics, k > 0):

    (k*a + b) // k      = a + b // k
    (g*a + r) // (g*k)  = a // k             if 0 <= r < g
    (g*a + r) % (g*k)   = g*(a % k) + r      if 0 <= r < g
    (e // a) // b       = e // (a*b)
    e // k              = 0                  if 0 <= e < k
    (e % (a*k)) // k    = (e // k) % a
    e % k               = e                  if 0 <= e < k
    k*(e // k) + e % k  = e
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import Any, TypeVar, Union, overload

import numpy

from imgconv.arrays import Array
from imgconv.graph.graph_error import require

Numbers = TypeVar("Numbers", int, Array)  # one integer, or an integer array


@dataclass(frozen=True, order=True)
class Variable:
    """A named variable with the values 0 .. size-1."""

    name: str
    size: int

    @property
    def low(self) -> int:
        return 0

    @property
    def high(self) -> int:
        return self.size - 1

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Division:
    """``value // divisor``, rounded down."""

    value: Index
    divisor: int

    @cached_property
    def low(self) -> int:
        return self.value.low // self.divisor

    @cached_property
    def high(self) -> int:
        return self.value.high // self.divisor

    @cached_property
    def _text(self) -> str:
        return f"({self.value})/{self.divisor}"

    def __str__(self) -> str:
        return self._text


@dataclass(frozen=True)
class Modulo:
    """``value % divisor``, never negative."""

    value: Index
    divisor: int

    @property
    def low(self) -> int:
        return 0

    @property
    def high(self) -> int:
        return self.divisor - 1

    @cached_property
    def _text(self) -> str:
        return f"({self.value})%{self.divisor}"

    def __str__(self) -> str:
        return self._text


@dataclass(frozen=True)
class Lookup:
    """``table[value]``: a constant table, for indices that no arithmetic gives."""

    table: tuple[int, ...]
    value: Index

    @cached_property
    def low(self) -> int:
        return min(self.table)

    @cached_property
    def high(self) -> int:
        return max(self.table)

    @cached_property
    def _text(self) -> str:
        return f"table{len(self.table)}[{self.value}]"

    def __str__(self) -> str:
        return self._text


Atom = Union[Variable, Division, Modulo, Lookup]
IndexLike = Union["Index", int]


@dataclass(frozen=True)
class Index:
    """``constant + sum(coefficient * atom)``. Built with `variable`, `constant` and arithmetic, never directly."""

    terms: tuple[tuple[Atom, int], ...]
    constant: int

    @cached_property
    def _hash(self) -> int:
        return hash((self.terms, self.constant))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def low(self) -> int:
        """A lower bound of the expression's value; it may not be reached."""
        return self.constant + sum(k * (a.low if k > 0 else a.high) for a, k in self.terms)

    @cached_property
    def high(self) -> int:
        """An upper bound of the expression's value; it may not be reached."""
        return self.constant + sum(k * (a.high if k > 0 else a.low) for a, k in self.terms)

    @property
    def is_constant(self) -> bool:
        return not self.terms

    def __add__(self, other: IndexLike) -> Index:
        if isinstance(other, int):
            return Index(self.terms, self.constant + other)
        return _sum([*self.terms, *other.terms], self.constant + other.constant)

    __radd__ = __add__

    def __neg__(self) -> Index:
        return self * -1

    def __sub__(self, other: IndexLike) -> Index:
        return self + (-other)

    def __mul__(self, factor: int) -> Index:
        if factor == 0:
            return Index((), 0)
        return Index(tuple((a, k * factor) for a, k in self.terms), self.constant * factor)

    __rmul__ = __mul__

    def __floordiv__(self, divisor: int) -> Index:
        require(divisor > 0, "a divisor", divisor)
        if divisor == 1:
            return self
        outside, inside = self._split(divisor)
        if inside.low >= 0 and inside.high < divisor:
            return outside
        if len(inside.terms) == 1 and inside.constant == 0 and inside.terms[0][1] == 1:
            atom = inside.terms[0][0]
            if isinstance(atom, Division):
                return outside + atom.value // (atom.divisor * divisor)
            if isinstance(atom, Modulo) and atom.divisor % divisor == 0:
                return outside + (atom.value // divisor) % (atom.divisor // divisor)
        for common, multiple, _ in inside._factors(divisor):
            return outside + multiple // (divisor // common)
        return outside + Index(((Division(inside, divisor), 1),), 0)

    def __mod__(self, divisor: int) -> Index:
        require(divisor > 0, "a divisor", divisor)
        if divisor == 1:
            return Index((), 0)
        _, inside = self._split(divisor)
        if inside.low >= 0 and inside.high < divisor:
            return inside
        if len(inside.terms) == 1 and inside.constant == 0 and inside.terms[0][1] == 1:
            atom = inside.terms[0][0]
            if isinstance(atom, Modulo) and atom.divisor % divisor == 0:
                return atom.value % divisor
        for common, multiple, rest in inside._factors(divisor):
            return (multiple % (divisor // common)) * common + rest
        return Index(((Modulo(inside, divisor), 1),), 0)

    def _split(self, divisor: int) -> tuple[Index, Index]:
        """(a, b) with self = divisor*a + b. The terms that are multiples of the divisor go to a."""
        outside = tuple((a, k // divisor) for a, k in self.terms if k % divisor == 0)
        inside = tuple((a, k) for a, k in self.terms if k % divisor != 0)
        return Index(outside, self.constant // divisor), Index(inside, self.constant % divisor)

    def _factors(self, divisor: int) -> Iterator[tuple[int, Index, Index]]:
        """All (g, a, r) with self = g*a + r and 0 <= r < g, for divisors g of `divisor`, largest g first."""
        for common in sorted({gcd(k, divisor) for _, k in self.terms} - {1}, reverse=True):
            multiple, rest = self._split(common)
            if multiple.terms and rest.low >= 0 and rest.high < common:
                yield common, multiple, rest

    def lookup(self, table: Iterable[int]) -> Index:
        """``table[self]``. It becomes arithmetic if the table is a progression, such as 3, 5, 7 or 0, 0, 2, 2, 4, 4."""
        entries = tuple(int(t) for t in table)
        if self.is_constant:
            return constant(_table_entries(entries, self.constant))
        first, step = entries[0], entries[1] - entries[0] if len(entries) > 1 else 0
        if all(t == first + step * i for i, t in enumerate(entries)):
            return self * step + first
        repeat = next(i for i, t in enumerate(entries) if t != first)
        step = entries[repeat] - first
        if all(t == first + step * (i // repeat) for i, t in enumerate(entries)):
            return (self // repeat) * step + first
        return self._entry_of(entries)

    def _entry_of(self, entries: tuple[int, ...]) -> Index:
        """``entries[self]``, of a table that is no progression."""
        if self.is_constant:
            return constant(_table_entries(entries, self.constant))
        return Index(((Lookup(entries, self), 1),), 0)

    def variables(self) -> frozenset[Variable]:
        """Every variable that the expression depends on."""
        found: set[Variable] = set()
        for atom, _ in self.terms:
            found |= {atom} if isinstance(atom, Variable) else atom.value.variables()
        return frozenset(found)

    @cached_property
    def term_count(self) -> int:
        """The number of terms, including those inside divisions, remainders and lookups."""
        return sum(1 if isinstance(atom, Variable) else 1 + atom.value.term_count for atom, _ in self.terms)

    def substitute(self, replacements: Mapping[Variable, Index]) -> Index:
        """The expression with some variables replaced. The others stay."""
        return self._rebuild(lambda v: replacements.get(v, variable_index(v)))

    @overload
    def evaluate(self, values: Mapping[str, int]) -> int: ...

    @overload
    def evaluate(self, values: Mapping[str, Array]) -> int | Array: ...

    def evaluate(self, values: Mapping[str, Any]) -> Any:  # the overloads have its types
        """The value. values: an integer or an integer numpy array for each variable, by name."""
        total = self.constant
        for atom, k in self.terms:
            if isinstance(atom, Variable):
                part = values[atom.name]
            else:
                inner = atom.value.evaluate(values)
                if isinstance(atom, Division):
                    part = inner // atom.divisor
                elif isinstance(atom, Modulo):
                    part = inner % atom.divisor
                else:
                    part = _table_entries(atom.table, inner)
            total = total + k * part
        return total

    def _rebuild(self, leaf: Callable[[Variable], Index]) -> Index:
        total = Index((), self.constant)
        for atom, k in self.terms:
            if isinstance(atom, Variable):
                part = leaf(atom)
            elif isinstance(atom, Division):
                part = atom.value._rebuild(leaf) // atom.divisor
            elif isinstance(atom, Modulo):
                part = atom.value._rebuild(leaf) % atom.divisor
            else:
                part = atom.value._rebuild(leaf)._entry_of(atom.table)
            total = total + part * k
        return total

    def magnitude(self) -> int:
        """The largest absolute value of the expression and of every intermediate result."""
        partial = [abs(self.low), abs(self.high), abs(self.constant)]
        low = high = self.constant
        for atom, k in self.terms:
            low += k * (atom.low if k > 0 else atom.high)
            high += k * (atom.high if k > 0 else atom.low)
            partial += [abs(low), abs(high), abs(k)]
            if not isinstance(atom, Variable):
                # `render` may add to a dividend, so that it is not negative. This counts too.
                partial.append(atom.value.magnitude() + max(0, -atom.value.low) + getattr(atom, "divisor", 0))
        return max(partial)

    def render(self, look_up: Callable[[Lookup, str], str]) -> str:
        """The expression in OpenCL C.

        C rounds quotients towards zero. A dividend that can be negative is raised by a multiple of the divisor first.
        look_up: gives the text of a table entry, from the Lookup and the text of its index.
        """
        text, total = "", self.constant
        for atom, k in self.terms:
            if isinstance(atom, Variable):
                part = atom.name
            elif isinstance(atom, Lookup):
                part = look_up(atom, atom.value.render(look_up))
            else:
                lift = max(0, -(atom.value.low // atom.divisor))
                part = _in_brackets((atom.value + lift * atom.divisor).render(look_up))
                part += f"{'/' if isinstance(atom, Division) else '%'}{atom.divisor}"
                total -= k * lift if isinstance(atom, Division) else 0
            if abs(k) != 1:
                part = f"({part})*{abs(k)}" if isinstance(atom, (Division, Modulo)) else f"{part}*{abs(k)}"
            text += (" - " if k < 0 else " + " if text else "") + part
        if not text:
            return str(total)
        if total:
            text += f" {'-' if total < 0 else '+'} {abs(total)}"
        return text.strip()

    @cached_property
    def _text(self) -> str:
        return self.render(lambda lookup, position: f"table{len(lookup.table)}[{position}]")

    def __str__(self) -> str:
        return self._text


def _in_brackets(text: str) -> str:
    return text if text.isalnum() else f"({text})"


def constant(value: int) -> Index:
    """The expression that is always `value`."""
    return Index((), value)


def variable_index(variable: Variable) -> Index:
    """The variable as an expression. A variable of size 1 is the constant 0."""
    return Index((), 0) if variable.size == 1 else Index(((variable, 1),), 0)


def variable(name: str, size: int) -> Index:
    """A variable with the values 0 .. size-1, as an expression."""
    return variable_index(Variable(name, size))


def flatten(position: Iterable[Index], shape: Iterable[int]) -> Index:
    """The row-major (flat) index of a position in a shape."""
    flat = constant(0)
    for index, size in zip(position, shape, strict=True):
        flat = flat * size + index
    return flat


def unflatten(flat: Index, shape: tuple[int, ...]) -> tuple[Index, ...]:
    """The position that has the row-major (flat) index `flat`."""
    position: list[Index] = []
    stride = 1
    for axis in range(len(shape) - 1, -1, -1):
        quotient = flat // stride
        position.append(quotient % shape[axis] if axis else quotient)
        stride *= shape[axis]
    return tuple(reversed(position))


def _sum(terms: list[tuple[Atom, int]], total: int) -> Index:
    coefficients: dict[Atom, int] = {}
    for atom, k in terms:
        coefficients[atom] = coefficients.get(atom, 0) + k
    for atom in [a for a in coefficients if isinstance(a, Modulo)]:
        k = coefficients[atom]
        quotient = atom.value // atom.divisor
        if k == 0 or len(quotient.terms) != 1 or quotient.constant != 0 or quotient.terms[0][1] != 1:
            continue
        if coefficients.get(quotient.terms[0][0], 0) == k * atom.divisor:
            del coefficients[atom], coefficients[quotient.terms[0][0]]
            rest = [(a, c) for a, c in coefficients.items() if c]
            return _sum([*rest, *((a, c * k) for a, c in atom.value.terms)], total + k * atom.value.constant)
    kept = [(a, k) for a, k in coefficients.items() if k]
    return Index(tuple(sorted(kept, key=_sort_key)), total)


def _sort_key(term: tuple[Atom, int]) -> tuple[str, int]:
    return str(term[0]), term[1]


def _table_entries(table: tuple[int, ...], position: Numbers) -> Numbers:
    if isinstance(position, int):
        return table[min(max(position, 0), len(table) - 1)]
    entries: Array = numpy.asarray(table)[numpy.clip(position, 0, len(table) - 1)]
    return entries
