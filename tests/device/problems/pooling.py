"""Pooling."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from math import ceil, prod
from typing import Any

import numpy
from hypothesis import strategies as st
from problems import Array, Instance, Shape, rounding, source

from imgconv.tensor import Tensor


@dataclass(frozen=True)
class PoolingProblem:
    """Sliding windows over the last axes. pads: befores then afters. round_up: ONNX's ceil_mode.

    kind: 'max', 'min', 'sum' or 'average' (which does not count the padding).
    """

    shape: Shape
    window: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    kind: str = "max"
    round_up: bool = False

    def sizes(self) -> tuple[int, ...]:
        d = len(self.window)
        made = []
        for axis, n in enumerate(self.shape[-d:]):
            room = n + self.pads[axis] + self.pads[axis + d] - (self.window[axis] - 1) * self.dilations[axis] - 1
            count = (ceil(room / self.strides[axis]) if self.round_up else room // self.strides[axis]) + 1
            # As ONNX says, a window that starts in the padding after the tensor is left out.
            while self.round_up and count > 1 and (count - 1) * self.strides[axis] >= n + self.pads[axis]:
                count -= 1
            made.append(count)
        return tuple(made)

    def instance(self) -> Instance:
        inputs: dict[str, Array] = {}
        x, array = source(self.shape, inputs)
        sizes, terms = self.sizes(), prod(self.window)
        args = (self.window, self.strides, self.pads, self.dilations, sizes)
        if self.kind != "average":
            expected = self.compute(array)
            error = rounding(terms, self.compute(numpy.abs(array))) if self.kind == "sum" else 0 * expected
            return Instance(x.pool(self.kind, *args), inputs, expected, error)
        counted = self.compute(numpy.ones_like(array))
        share = (1 / numpy.maximum(counted, 1)).astype(numpy.float32)
        output = x.pool("sum", *args, scale=Tensor.constant(share))
        error = rounding(terms + 2, self.compute(numpy.abs(array)) * share)
        return Instance(output, inputs, self.compute(array) * share, error)

    def compute(self, x: Array) -> Array:
        """The reference: a loop over the window's taps of an explicitly padded array."""
        d, sizes = len(self.window), self.sizes()
        neutral = {"max": -numpy.inf, "min": numpy.inf, "sum": 0.0, "average": 0.0}[self.kind]
        combine = {"max": numpy.maximum, "min": numpy.minimum}.get(self.kind, numpy.add)
        spare = max(self.strides) * 2 + max(self.window) * max(self.dilations)
        amounts = [(0, 0)] * (x.ndim - d) + [(self.pads[a], self.pads[a + d] + spare) for a in range(d)]
        padded = numpy.pad(x, amounts, constant_values=neutral)
        total = numpy.full((*x.shape[: x.ndim - d], *sizes), neutral)
        for tap in itertools.product(*(range(n) for n in self.window)):
            seen: tuple[Any, ...] = tuple(
                slice(t * dilation, t * dilation + (n - 1) * stride + 1, stride)
                for t, dilation, n, stride in zip(tap, self.dilations, sizes, self.strides, strict=True)
            )
            total = combine(total, padded[(Ellipsis, *seen)])
        return total


def pooling_problems() -> st.SearchStrategy[PoolingProblem]:
    """Any pooling of a small tensor over one to three axes; each window meets the tensor."""

    @st.composite
    def draw(pick: st.DrawFn) -> PoolingProblem:
        d = pick(st.integers(1, 3))
        shape = (*pick(st.tuples(st.integers(1, 2), st.integers(1, 6))), *(pick(st.integers(1, 7)) for _ in range(d)))
        window = tuple(pick(st.integers(1, min(3, shape[2 + a]))) for a in range(d))
        dilations = tuple(
            pick(st.integers(1, max(1, min(2, (shape[2 + a] - 1) // max(1, window[a] - 1))))) for a in range(d)
        )
        strides = tuple(pick(st.integers(1, 3)) for _ in range(d))
        pads = tuple(pick(st.integers(0, window[a % d] - 1)) for a in range(2 * d))
        kind = pick(st.sampled_from(["max", "min", "sum", "average"]))
        return PoolingProblem(shape, window, strides, pads, dilations, kind, pick(st.booleans()))

    return draw()
