"""Squeeze-and-excitation: a global pooling, two products, and a gate."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

import numpy
from hypothesis import strategies as st
from problems import ROUNDING, Array, Instance, Pair, numbers, rounding, source

from imgconv.tensor import Tensor

Form = Literal["convolutions", "products", "rows"]


@dataclass(frozen=True)
class SqueezeProblem:
    """Channels of (batch, channels, size) times a gate between 0 and 1 for each, of all their means.

    form: how the products are written: 1x1 convolutions, products of matrices (N, C), or of (1, N, C).
    bias: whether one is added to each. scaled: whether each mean is multiplied by a factor of its own.
    """

    batch: int = 1
    channels: int = 12
    size: Pair = (5, 6)
    hidden: int = 8
    form: Form = "convolutions"
    bias: bool = True
    scaled: bool = False

    def instance(self) -> Instance:
        inputs: dict[str, Array] = {}
        x, array = source((self.batch, self.channels, *self.size), inputs)
        first, second = numbers((self.hidden, self.channels), "first"), numbers((self.channels, self.hidden), "second")
        biases = numbers((self.hidden,), "inner") * self.bias, numbers((self.channels,), "outer") * self.bias
        factors = numbers((self.channels,), "factors") if self.scaled else numpy.ones(self.channels, numpy.float32)
        pooled = x.mean([2, 3], keepdims=True)
        pooled = pooled * Tensor.constant(factors.reshape(-1, 1, 1)) if self.scaled else pooled
        gate = self._product(self._product(pooled, first, biases[0]).relu(), second, biases[1])
        gate = (gate * 0.25 + 0.5).clip(0.0, 1.0)
        output = x * gate.reshape(self.batch, self.channels, 1, 1)
        means = array.mean((2, 3)) * factors
        error = rounding(prod(self.size) + 2, numpy.abs(array).mean((2, 3)) * numpy.abs(factors))
        hidden, error = _affine(means, error, first, biases[0])
        sums, error = _affine(numpy.maximum(hidden, 0), error, second, biases[1])
        expected = numpy.clip(0.25 * sums + 0.5, 0, 1)
        error = 0.25 * error + 4 * ROUNDING * (numpy.abs(sums) + 1)
        # In half the gate is stored, at most 1.
        stored = numpy.broadcast_to(2.0**-10 * numpy.abs(array), array.shape)
        return Instance(
            output, inputs, array * expected[:, :, None, None], numpy.abs(array) * error[:, :, None, None],
            stored_error=stored,
        )

    def _product(self, x: Tensor, weights: Array, bias: Array) -> Tensor:
        """x times the weights (filters, channels), and the bias; in the problem's form."""
        matrix = Tensor.constant(weights)
        if self.form == "convolutions":
            made = x.conv2d(Tensor.constant(weights[:, :, None, None]))
            return made + Tensor.constant(bias.reshape(-1, 1, 1)) if self.bias else made
        shape = (self.batch, weights.shape[1]) if self.form == "products" else (1, self.batch, weights.shape[1])
        made = x.reshape(*shape).matmul(matrix.transpose(1, 0))
        return made + Tensor.constant(bias) if self.bias else made


def _affine(x: Array, error: Array, weights: Array, bias: Array) -> tuple[Array, Array]:
    """x times the weights (filters, channels) plus the bias, and the error if x has one."""
    wide = weights.astype(numpy.float64)
    made, magnitude = x @ wide.T + bias, (numpy.abs(x) + error) @ numpy.abs(wide).T + numpy.abs(bias)
    return made, error @ numpy.abs(wide).T + rounding(weights.shape[1] + 1, magnitude)


def squeeze_problems(most: int = 40) -> st.SearchStrategy[SqueezeProblem]:
    """Any small block: ragged channels, maps of one position, batches up to 3, in each form."""
    forms: tuple[Form, ...] = ("convolutions", "products", "rows")
    return st.builds(
        SqueezeProblem, st.integers(1, 3), st.integers(1, most), st.tuples(st.integers(1, 9), st.integers(1, 9)),
        st.integers(1, most), st.sampled_from(forms), st.booleans(), st.booleans(),
    )
