"""Recurrent layers: states that follow from those before them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy
from hypothesis import strategies as st
from problems import Array, Instance, numbers, source

from imgconv.graph.expression import Argument, Expression, apply
from imgconv.kernels.recurrent import template as kernel
from imgconv.tensor import Tensor, recurrence

Kind = Literal["plain", "gated", "reset", "stopped"]
GATES = {"plain": 1, "gated": 2, "reset": 3, "stopped": 1}


@dataclass(frozen=True)
class RecurrenceProblem:
    """T steps of N elements, D directions of H numbers.

    kind: 'plain', h = tanh(x + h r). 'gated', two states: c = 0.5 c + sigmoid(x0 + h r0) / 2, h = p c + tanh(x1 + h r1)
    / 4, with another operand p. 'reset': the last gate multiplies another state, as in GRU. 'stopped': the state stays
    as it is from step p on. constant: whether the weights are known. transposed: x is (G, H) transposed.
    """

    steps: int
    batch: int
    hidden: int
    reverse: tuple[bool, ...] = (False,)
    kind: Kind = "plain"
    constant: bool = True
    transposed: bool = False

    def instance(self) -> Instance:
        gates, count, n, h = GATES[self.kind], len(self.reverse), self.batch, self.hidden
        inputs: dict[str, Array] = {}
        seen = (self.steps, n, count, h, gates) if self.transposed else (self.steps, n, count, gates, h)
        x, given = source(seen, inputs, "x")
        if self.transposed:
            x, given = x.transpose(0, 1, 2, 4, 3), given.swapaxes(3, 4)
        shape = (count, h, gates, h)
        if self.constant:
            array = numbers(shape, "w")
            w, weights = Tensor.constant(array / numpy.float32(4)), array.astype(numpy.float64) / 4
        else:
            whole, array = source(shape, inputs, "w")
            w, weights = whole * 0.25, array / 4
        states, inner = self._expressions()
        first, initial = source((n, count, h), inputs, "first")
        firsts, cells, others, p = [first], initial, list[Tensor](), initial
        if len(states) > 1:
            second, cells = source((n, count, h), inputs, "second")
            firsts.append(second)
        if self.kind in ("gated", "stopped"):
            other, p = source((n, count, h), inputs, "p")
            others.append(other)
        made = recurrence(x, w, firsts, others, states, inner, self.reverse)
        expected = self.compute(given, weights, initial, cells, p)
        # Each step's error is that of its sum, passed on by functions with slopes up to 1 and by the weights.
        terms = 2.0**-23 * (h + 4) * 4
        return Instance(made, inputs, expected, numpy.full(expected.shape, terms * self.steps), 0.0, 0.0,
                        numpy.full(expected.shape, 2.0**-9 * self.steps))

    def _expressions(self) -> tuple[list[Expression], Expression | None]:
        gates = GATES[self.kind]
        x, product = list(map(Argument, range(gates))), list(map(Argument, range(gates, 2 * gates)))
        h, after = Argument(2 * gates), Argument(2 * gates + 1)
        total = [apply("add", a, b) for a, b in zip(x, product, strict=True)]
        if self.kind == "plain":
            return [apply("tanh", total[0])], None
        if self.kind == "stopped":
            return [apply("where", apply("less", Argument(4), after), apply("tanh", total[0]), h)], None
        if self.kind == "reset":
            update = apply("sigmoid", total[0])
            mixed = apply("add", apply("multiply", update, h), apply("multiply", 0.5, apply("tanh", total[2])))
            return [mixed], apply("multiply", apply("sigmoid", total[1]), h)
        c = apply("multiply", 0.5, apply("add", after, apply("sigmoid", total[0])))
        candidate = apply("multiply", 0.25, apply("tanh", total[1]))
        return [apply("add", apply("multiply", Argument(6), c), candidate), c], None

    def compute(self, x: Array, w: Array, initial: Array, cells: Array, p: Array) -> Array:
        """The reference: one element of one direction after the other."""
        out = numpy.zeros((2 if self.kind == "gated" else 1, self.steps, self.batch, len(self.reverse), self.hidden))
        for n, d in numpy.ndindex(self.batch, len(self.reverse)):
            h, c = initial[n, d], cells[n, d]
            for time in range(self.steps)[:: -1 if self.reverse[d] else 1]:
                total = x[time, n, d] + numpy.einsum("k,kgh->gh", h, w[d])
                half = 0.5 * (1 + numpy.tanh(total / 2))
                if self.kind == "plain":
                    h = numpy.tanh(total[0])
                elif self.kind == "stopped":
                    h = numpy.where(time < p[n, d], numpy.tanh(total[0]), h)
                elif self.kind == "reset":
                    h = half[0] * h + 0.5 * numpy.tanh(x[time, n, d, 2] + (half[1] * h) @ w[d, :, 2])
                else:
                    c = 0.5 * (c + half[0])
                    h = p[n, d] * c + 0.25 * numpy.tanh(total[1])
                    out[1, time, n, d] = c
                out[0, time, n, d] = h
        return out


def recurrence_problems() -> st.SearchStrategy[RecurrenceProblem]:
    """Any small recurrent layer."""
    return st.builds(
        RecurrenceProblem, st.integers(1, 5), st.integers(1, 3), st.sampled_from([1, 2, 3, 4, 5, 8, 9, 12]),
        st.lists(st.booleans(), min_size=1, max_size=2).map(tuple), st.sampled_from(list(GATES)), st.booleans(),
        st.booleans(),
    )


def recurrence_specialisations(problem: kernel.Problem) -> list[kernel.Specialisation]:
    """One work item, groups that divide nothing, and blocks that do not either."""
    return [kernel.Specialisation(items, quads) for items in (1, 5, 32) for quads in (1, 2, 3, 8)]
