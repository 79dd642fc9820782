"""Chains of movement: transpositions, slices, padding and their like."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy
from hypothesis import strategies as st
from problems import Array, Instance, Shape, source

from imgconv.tensor import Tensor


@dataclass(frozen=True)
class MovementProblem:
    """Movements one after another: (name, argument...) in the words of numpy."""

    shape: Shape
    steps: tuple[tuple[Any, ...], ...]

    def instance(self) -> Instance:
        inputs: dict[str, Array] = {}
        tensor, array = source(self.shape, inputs)
        for name, *args in self.steps:
            tensor, array = MOVEMENTS[name](tensor, array, *args)
        return Instance(tensor, inputs, array, numpy.zeros(array.shape))


def _pad(
    tensor: Tensor, array: Array, before: Sequence[int], after: Sequence[int], fill: float
) -> tuple[Tensor, Array]:
    amounts = list(zip(before, after, strict=True))
    return tensor.pad(before, after, fill), numpy.pad(array, amounts, constant_values=fill)


def _slice(tensor: Tensor, array: Array, axis: int, start: int, stop: int, step: int) -> tuple[Tensor, Array]:
    positions = list(range(start, stop, step))
    return tensor.slice(axis, start, stop, step), numpy.take(array, positions, axis)


MOVEMENTS: Mapping[str, Callable[..., tuple[Tensor, Array]]] = {
    "reshape": lambda t, a, shape: (t.reshape(*shape), a.reshape(shape)),
    "transpose": lambda t, a, order: (t.transpose(*order), a.transpose(order)),
    "expand": lambda t, a, shape: (t.expand(*shape), numpy.broadcast_to(a, shape)),
    "flip": lambda t, a, axis: (t.slice(axis, t.shape[axis] - 1, -1, -1), numpy.flip(a, axis)),
    "take": lambda t, a, axis, positions: (t.take(axis, positions), numpy.take(a, positions, axis)),
    "slice": _slice,
    "pad": _pad,
}


def movement_steps(shape: Shape, most: int = 4) -> st.SearchStrategy[tuple[tuple[Any, ...], ...]]:
    """Steps for a MovementProblem of the given shape; results stay small."""

    @st.composite
    def draw(pick: st.DrawFn) -> tuple[tuple[Any, ...], ...]:
        steps: list[tuple[Any, ...]] = []
        now = list(shape)
        for _ in range(pick(st.integers(1, most))):
            name = pick(st.sampled_from(sorted(MOVEMENTS)))
            axis = pick(st.integers(0, len(now) - 1)) if now else 0
            if name == "reshape":
                now = list(pick(st.sampled_from(_factorings(prod(now)))))
                steps.append((name, tuple(now)))
            elif name == "expand":
                if prod(now) > 200 or len(now) > 4:
                    continue
                now = [pick(st.integers(1, 3)) if n == 1 else n for n in now]
                now = [pick(st.integers(1, 3)), *now]
                steps.append((name, tuple(now)))
            elif not now:
                continue
            elif name == "transpose":
                order = tuple(pick(st.permutations(range(len(now)))))
                now = [now[a] for a in order]
                steps.append((name, order))
            elif name == "flip":
                steps.append((name, axis))
            elif name == "take":
                positions = tuple(pick(st.lists(st.integers(0, now[axis] - 1), min_size=1, max_size=6)))
                now[axis] = len(positions)
                steps.append((name, axis, positions))
            elif name == "slice":
                start = pick(st.integers(0, now[axis] - 1))
                stop = pick(st.integers(start + 1, now[axis]))
                step = pick(st.integers(1, 3))
                now[axis] = len(range(start, stop, step))
                steps.append((name, axis, start, stop, step))
            else:
                before = tuple(pick(st.integers(0, 2)) if prod(now) < 300 else 0 for _ in now)
                after = tuple(pick(st.integers(0, 2)) if prod(now) < 300 else 0 for _ in now)
                now = [b + n + a for b, n, a in zip(before, now, after, strict=True)]
                steps.append((name, before, after, pick(st.sampled_from([0.0, 0.0, -1.5]))))
        return tuple(steps)

    return draw()


def _factorings(size: int) -> list[Shape]:
    """A few shapes of a size, of rank 1 to 4."""
    made: list[Shape] = [(size,), (1, size), (size, 1, 1)]
    for n in range(2, min(size, 12)):
        if size % n == 0:
            made += [(n, size // n), (size // n, n), (1, n, size // n, 1)]
            rest = size // n
            made += [(n, m, rest // m) for m in range(2, min(rest, 6)) if rest % m == 0]
            made += [(1, m, n, rest // m) for m in range(2, min(rest, 6)) if rest % m == 0]
    return made


def movement_problems(most: int = 6) -> st.SearchStrategy[list[MovementProblem]]:
    """Any few movements of one small tensor of rank 1 to 5; where there are several, the tensor is a texture."""
    shapes = st.lists(st.sampled_from([1, 2, 3, 4, 5, 6]), min_size=1, max_size=5).filter(lambda s: prod(s) <= 400)

    def movements(shape: Shape) -> st.SearchStrategy[list[MovementProblem]]:
        made = st.builds(MovementProblem, st.just(shape), movement_steps(shape))
        return st.lists(made, min_size=1, max_size=most)

    return shapes.map(tuple).flatmap(movements)
