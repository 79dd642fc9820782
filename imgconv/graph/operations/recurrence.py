"""Recurrence: layers whose states depend on the previous step's states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy

from imgconv.arrays import Array
from imgconv.graph.expression import Expression, argument_numbers, evaluate
from imgconv.graph.operations.operation import Operation
from imgconv.graph.values import Value
from imgconv.graph.view import Shape


@dataclass(frozen=True)
class Recurrence(Operation):
    """States that are computed step by step, each from those before it, as in RNN, GRU and LSTM.

    operands: x (T, N, D, G, H), what is given for each of T steps and of G gates; weights (D, H, G, H); the initial
    states, (N, D, H) each; then any others of that shape. D directions are independent of each other.
    states: the states after a step, as expressions. Their arguments are, in this order: x of each gate, for each gate
    the product of the first state and the weights, each state before the step, the others, the number of the step.
    inner: if there is one, the weights of the last gate are multiplied by it instead of the first state.
    reverse: for each direction whether its first step is the last of x. The output is (S, T, N, D, H): each state after
    each step.
    """

    states: tuple[Expression, ...]
    inner: Expression | None = None
    reverse: tuple[bool, ...] = (False,)

    def fits(self, views: Sequence[Shape], shape: Shape) -> bool:
        if len(shape) != 5 or len(views) < 2 + len(self.states) or len(views[1]) != 4:
            return False
        states, steps, batch, directions, hidden = shape
        gates = views[1][2]
        wanted = [(steps, batch, directions, gates, hidden), (directions, hidden, gates, hidden)]
        counts = (len(self.states), len(self.reverse)) == (states, directions)
        steps_read = (*self.states, *([self.inner] if self.inner is not None else []))
        known = 2 * gates + len(views) - 2
        same = list(views[:2]) == wanted and all(v == (batch, directions, hidden) for v in views[2:])
        return counts and same and all(number <= known for each in steps_read for number in argument_numbers(each))

    def combine(self, loaded: Sequence[Array], output: Value) -> Array:
        """The states after each step, (S, T, N, D, H)."""
        x, weights, *rest = loaded
        shape = output.shape
        count, gates = len(self.states), weights.shape[2]
        states, others, out = rest[:count], rest[count:], numpy.zeros(shape)
        directions = numpy.arange(shape[3])
        for number in range(shape[1]):
            times = numpy.where(self.reverse, shape[1] - 1 - number, number)
            given = [x[times, :, directions, gate].swapaxes(0, 1) for gate in range(gates)]
            products = [numpy.einsum("ndk,dkh->ndh", states[0], weights[:, :, gate]) for gate in range(gates)]
            arguments = [*given, *products, *states, *others, times[:, None].astype(numpy.float64)]
            if self.inner is not None:
                inner = numpy.broadcast_to(evaluate(self.inner, arguments), states[0].shape)
                arguments[2 * gates - 1] = numpy.einsum("ndk,dkh->ndh", inner, weights[:, :, gates - 1])
            made = [evaluate(each, arguments) for each in self.states]
            states = [numpy.broadcast_to(each, shape[2:]) for each in made]
            for place, state in zip(out, states, strict=True):
                place[times, :, directions] = state.swapaxes(0, 1)
        return out

    @property
    def ways(self) -> str:
        """The directions, such as "forward and backward"."""
        return " and ".join("backward" if each else "forward" for each in self.reverse)

    def __str__(self) -> str:
        inner = f" with {self.inner}" if self.inner is not None else ""
        return f"recurrence {self.ways} of {', '.join(map(str, self.states))}{inner}"
