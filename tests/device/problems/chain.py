"""Elementwise work after any other problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy
from hypothesis import strategies as st
from problems import ROUNDING, Array, Instance, Problem, Shape, numbers, source

from imgconv.tensor import Tensor, elementwise, less, where


@dataclass(frozen=True)
class Step:
    """One elementwise operation on a value, and the operand that it takes where it takes one.

    operand: 'number', 'channel' (a constant of shape (C, 1, ...)), 'channel input', 'same' (an input of the shape),
    'same constant', 'broadcast' (an input of length 1 along all but the last axis), 'moved' (an input read backwards
    with its last two axes exchanged), 'padded' (a smaller input with zeros before and after) or 'itself'.
    """

    operation: str
    operand: str = "number"

    def apply(self, instance: Instance, number: int) -> Instance:
        """The instance after one more operation; the error follows the derivative."""
        shape = instance.output.shape
        x, v, e = instance.output, instance.expected, instance.error
        if self.operation in ONE_OPERAND:
            record, compute, slope = ONE_OPERAND[self.operation]
            value = compute(v)
            return Instance(record(x), instance.inputs, value, slope * e + 8 * ROUNDING * (numpy.abs(value) + 2.0**-20))
        other, w, f = self._operand(instance, shape, number)
        record2, compute2 = TWO_OPERANDS[self.operation]
        value = compute2(v, w)
        if self.operation == "multiply":
            error = numpy.abs(w) * e + numpy.abs(v) * f + e * f
        elif self.operation == "divide":
            error = e + numpy.abs(v) * f
        else:
            error = e + f
        return Instance(record2(x, other), instance.inputs, value, error + 4 * ROUNDING * numpy.abs(value))

    def _operand(self, instance: Instance, shape: Shape, number: int) -> tuple[Any, Array, Array]:
        rank, inputs = len(shape), instance.inputs
        if self.operand == "itself":
            return instance.output, instance.expected, instance.error
        if self.operand == "number" or rank < 2:
            value = (0.375, -1.25, 1e-3, 3.0)[number % 4]
            return value, numpy.float64(numpy.float32(value)), numpy.float64(0)
        channels = (shape[1], *[1] * (rank - 2))
        name = f"e{number}"
        if self.operand in ("channel", "same constant"):
            array = numbers(channels if self.operand == "channel" else shape, name)
            return Tensor.constant(array), array.astype(numpy.float64), numpy.float64(0)
        if self.operand == "moved":
            stored = (*shape[:-2], shape[-1], shape[-2])
            tensor, array = source(stored, inputs, name)
            moved = tensor.transpose(*range(rank - 2), rank - 1, rank - 2)
            flipped = moved.slice(rank - 1, shape[-1] - 1, -1, -1)
            return flipped, numpy.swapaxes(array, -1, -2)[..., ::-1], numpy.float64(0)
        if self.operand == "padded":
            stored = tuple(max(1, n - 2) for n in shape)
            before = [int(n > 1) for n in shape]
            after = [n - b - s for n, b, s in zip(shape, before, stored, strict=True)]
            tensor, array = source(stored, inputs, name)
            return tensor.pad(before, after), numpy.pad(array, list(zip(before, after, strict=True))), numpy.float64(0)
        wanted = {"channel input": channels, "same": shape, "broadcast": (*[1] * (rank - 1), shape[-1])}[self.operand]
        tensor, array = source(wanted, inputs, name)
        return tensor, array, numpy.float64(0)


def _sigmoid(x: Array) -> Array:
    small = numpy.exp(-numpy.abs(x))
    return numpy.where(x >= 0, 1 / (1 + small), small / (1 + small))


# How each is recorded and computed, and a bound on its slope.
ONE_OPERAND: Mapping[str, tuple[Callable[[Tensor], Tensor], Callable[[Array], Array], float]] = {
    "relu": (lambda t: t.relu(), lambda v: numpy.maximum(v, 0), 1),
    "clip": (lambda t: t.clip(-0.5, 6), lambda v: numpy.clip(v, -0.5, 6), 1),
    "tanh": (lambda t: t.tanh(), numpy.tanh, 1),
    "sigmoid": (lambda t: t.sigmoid(), _sigmoid, 0.25),
    "silu": (lambda t: t.silu(), lambda v: v * _sigmoid(v), 1.2),
    "leaky_relu": (
        lambda t: where(less(t, 0), t * 0.125, t), lambda v: numpy.where(v < 0, v * 0.125, v), 1,
    ),
    "exp": (lambda t: t.minimum(1).exp(), lambda v: numpy.exp(numpy.minimum(v, 1)), 2.72),
    "absolute": (lambda t: t.apply("absolute"), numpy.abs, 1),
    "hardswish": (
        lambda t: t.clip(-8, 8).hardswish(),
        lambda v: numpy.clip(v, -8, 8) * numpy.clip(numpy.clip(v, -8, 8) / 6 + 0.5, 0, 1), 2,
    ),
}


TWO_OPERANDS: Mapping[str, tuple[Callable[[Any, Any], Tensor], Callable[[Array, Array], Array]]] = {
    "add": (lambda t, o: t + o, lambda v, w: v + w),
    "subtract": (lambda t, o: t - o, lambda v, w: v - w),
    "subtract from": (lambda t, o: o - t, lambda v, w: w - v),
    "multiply": (lambda t, o: t * o, lambda v, w: v * w),
    "divide": (
        lambda t, o: t / (elementwise("multiply", o, o) + 1) if isinstance(o, Tensor) else t / (o * o + 1),
        lambda v, w: v / (w * w + 1),
    ),
    "maximum": (lambda t, o: t.maximum(o), numpy.maximum),
    "minimum": (lambda t, o: t.minimum(o), numpy.minimum),
}


OPERANDS = (
    "number", "channel", "channel input", "same", "same constant", "broadcast", "moved", "padded", "itself",
)


@dataclass(frozen=True)
class Chain:
    """Elementwise steps after a problem."""

    problem: Problem
    steps: tuple[Step, ...]

    def instance(self) -> Instance:
        made = self.problem.instance()
        for number, step in enumerate(self.steps):
            made = step.apply(made, number)
        return made


def step_lists(most: int = 5) -> st.SearchStrategy[tuple[Step, ...]]:
    """Steps for a Chain."""
    one = st.builds(Step, st.sampled_from(sorted(ONE_OPERAND)))
    two = st.builds(Step, st.sampled_from(sorted(TWO_OPERANDS)), st.sampled_from(OPERANDS))
    return st.lists(st.one_of(one, two, two), min_size=1, max_size=most).map(tuple)
