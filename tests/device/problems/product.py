"""Matrix products."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from math import prod

import numpy
from hypothesis import strategies as st
from problems import Array, Instance, Shape, half_rounding, numbers, rounding, runs_rounding, source

from imgconv.kernels.matmul import template as product_kernel
from imgconv.kernels.target import LARGE_GPU
from imgconv.tensor import Tensor


@dataclass(frozen=True)
class ProductProblem:
    """A matrix product with numpy's rules. constant: the side that is known at load time ('', 'a' or 'b').

    a_view, b_view: how the operand is read: 'plain', 'transposed' (its last two axes), 'sliced' (out of a longer
    tensor), 'steps' (every second element of its last axis) or 'reshaped' (from one flat row).
    """

    a: Shape
    b: Shape
    constant: str = ""
    a_view: str = "plain"
    b_view: str = "plain"

    def instance(self) -> Instance:
        inputs: dict[str, Array] = {}
        a, left = self._operand(self.a, self.a_view, "a", inputs)
        b, right = self._operand(self.b, self.b_view, "b", inputs)
        terms = self.a[-1]
        magnitude = self.compute(numpy.abs(left), numpy.abs(right))
        errors = rounding(terms, magnitude), half_rounding(terms, magnitude), runs_rounding(terms, 1, magnitude)
        return Instance(a.matmul(b), inputs, self.compute(left, right), *errors)

    def _operand(self, shape: Shape, seen: str, name: str, inputs: dict[str, Array]) -> tuple[Tensor, Array]:
        rank = len(shape)
        if seen == "transposed":
            stored: Shape = (*shape[:-2], shape[-1], shape[-2])
        elif seen == "sliced":
            stored = tuple(n + 2 for n in shape)
        elif seen == "steps":
            stored = (*shape[:-1], shape[-1] * 2)
        else:
            stored = shape if seen == "plain" else (1, prod(shape))
        if self.constant == name:
            array = numbers(stored, name)
            tensor, wide = Tensor.constant(array), array.astype(numpy.float64)
        else:
            tensor, wide = source(stored, inputs, name)
        if seen == "transposed":
            return tensor.transpose(*range(rank - 2), rank - 1, rank - 2), numpy.swapaxes(wide, -1, -2)
        if seen == "sliced":
            for axis, n in enumerate(shape):
                tensor = tensor.slice(axis, 0 if axis == rank - 1 else 1, n + (axis < rank - 1))
            inner = tuple(slice(0, n) if axis == rank - 1 else slice(1, n + 1) for axis, n in enumerate(shape))
            return tensor, wide[inner]
        if seen == "steps":
            return tensor.slice(rank - 1, 0, stored[-1], 2), wide[..., ::2]
        return (tensor, wide) if seen == "plain" else (tensor.reshape(*shape), wide.reshape(shape))

    def compute(self, a: Array, b: Array) -> Array:
        """The reference: one einsum over explicitly broadcast batch axes."""
        left = a[None] if a.ndim == 1 else a
        right = b[:, None] if b.ndim == 1 else b
        batch = numpy.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        left = numpy.broadcast_to(left, (*batch, *left.shape[-2:]))
        right = numpy.broadcast_to(right, (*batch, *right.shape[-2:]))
        made = numpy.einsum("...mk,...kn->...mn", left, right)
        made = made[..., 0, :] if a.ndim == 1 else made
        return made[..., 0] if b.ndim == 1 else made


def product_problems() -> st.SearchStrategy[ProductProblem]:
    """Any small product: ranks 2 to 4, batches broadcast on either side, views of both operands."""

    @st.composite
    def draw(pick: st.DrawFn) -> ProductProblem:
        m, k, n = (pick(st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9, 13])) for _ in range(3))
        batch = pick(st.lists(st.integers(1, 3), max_size=2))
        sides = [tuple(1 if pick(st.booleans()) else n for n in batch) for _ in range(2)]
        views = st.sampled_from(["plain", "plain", "transposed", "sliced", "steps", "reshaped"])
        return ProductProblem(
            (*sides[0], m, k), (*sides[1], k, n), pick(st.sampled_from(["", "b", "a"])), pick(views), pick(views)
        )

    return draw()


def product_specialisations(problem: product_kernel.Problem) -> list[product_kernel.Specialisation]:
    """The candidates of both kinds of device, and blocks and tiles that divide nothing."""
    made = [c for kind in ("cpu", "gpu") for c in product_kernel.candidates(problem, kind)]
    made += tiled_specialisations(problem)
    made += [
        product_kernel.Specialisation(rows, quads, parts, columns)
        for rows, quads, parts, columns in itertools.product((1, 2, 3), (1, 2, 3), (1, 2, 16), (1, 4))
        if parts > 1 or columns == 1
    ]
    return [each for each in made if each.tile_depth or not problem.transposed]


def tiled_specialisations(problem: product_kernel.Problem) -> list[product_kernel.Specialisation]:
    """Tiles in local memory: the candidates of a large GPU, and small ones that divide nothing."""
    made = [c for c in product_kernel.candidates(problem, "gpu", LARGE_GPU) if c.tile_depth]
    made += [
        product_kernel.Specialisation(rows, quads, parts, columns, group_rows, depth)
        for (rows, quads), parts, (columns, group_rows), depth in itertools.product(
            ((1, 1), (3, 1), (2, 2)), (1, 2, 3), ((1, 1), (3, 2), (2, 3)), (1, 3)
        )
    ]
    return made
