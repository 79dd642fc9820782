"""The problems that kernels solve, one class for each kind, with references that share no code with imgconv.

A problem is plain data: a geometry. `Problem.instance` records it with the lazy front end, draws its arrays and
computes, in float64 and by other formulas than imgconv's, what must come out and how far off a device may be:

    error = (terms + 2) * 2**-23 * sum of the absolute values of the terms           fp32 storage
    error + 2**-10 * abs(expected) + 2**-24                                          fp16 storage of the result
    ... + (terms of a sum in fp16 + 2) * 2**-10 * sum of the absolute values of the terms   fp16 arithmetic

The first is twice the bound on any order of rounding a sum of exact products to fp32 (unit roundoff 2**-24); what does
not round (a movement, a maximum) has error 0. Arrays hold numbers that fp16 represents exactly, so that fp16 storage
adds only the rounding of the result: to the nearest or towards zero, as an OpenCL device likes.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any, Protocol

import numpy

from imgconv.tensor import Tensor

Array = Any
Shape = tuple[int, ...]
Pair = tuple[int, int]
ROUNDING = 2.0**-23


@dataclass
class Instance:
    """A recorded problem: its output, an array for each input, what must come out, and how far float may be off.

    half_error, runs_error: what sums in half add to that, and short runs of them that are added in float.
    """

    output: Tensor
    inputs: dict[str, Array]
    expected: Array
    error: Array
    half_error: Array | float = 0.0
    runs_error: Array | float = 0.0
    stored_error: Array | float = 0.0

    def allowed(self, float16: int, runs: bool = False) -> Array:
        """The largest absolute difference from `expected` that is right. float16: as in Config. runs: of short runs."""
        stored = 2.0**-10 * numpy.abs(self.expected) + 2.0**-24 + self.stored_error if float16 else 0
        return self.error + stored + ((self.runs_error if runs else self.half_error) if float16 == 2 else 0)


class Problem(Protocol):
    """A geometry that knows what it means."""

    def instance(self) -> Instance:
        """The problem recorded. Equal problems draw equal arrays, and inputs of one shape are one input."""
        ...


def numbers(shape: Shape, name: str) -> Array:
    """Numbers between -2 and 2 that half represents exactly; equal names draw equal numbers."""
    generator = numpy.random.default_rng(zlib.crc32(f"{name} {shape}".encode()))
    return (generator.integers(-256, 257, shape) / 128).astype(numpy.float32)


def source(shape: Shape, inputs: dict[str, Array], name: str = "x") -> tuple[Tensor, Array]:
    """An input tensor of a shape and its numbers in float64; the numbers are added to `inputs`."""
    key = f"{name}_{'x'.join(map(str, shape))}"
    inputs[key] = numbers(shape, name)
    return Tensor.input(key, shape), inputs[key].astype(numpy.float64)


def rounding(terms: int, magnitude: Array) -> Array:
    """The error of a sum of `terms` products whose absolute values sum to `magnitude`."""
    return (terms + 2) * ROUNDING * magnitude


def half_rounding(terms: int, magnitude: Array) -> Array:
    """The error of a sum in half of products in half, whose absolute values sum to `magnitude`."""
    return (terms + 2) * 2.0**-10 * magnitude


def runs_rounding(terms: int, taps: int, magnitude: Array) -> Array:
    """The same of runs in half: of 32 terms, or of one input quad's where the window makes more of them."""
    return half_rounding(min(terms, max(32, 4 * taps)), magnitude)
