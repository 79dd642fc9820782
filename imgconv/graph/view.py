"""Views: descriptions, as index expressions, of how a tensor is read in another shape.

A `View` has one index expression for each axis of its source, in the variables ``i0, i1, ...`` of the view's own axes.
Its bounds define the positions at which there is an element to read; elsewhere the reader uses its fill value. Reshape,
transpose, expand, slice, pad, flip, take, sliding windows and their compositions are views. For example:

    view of (2, 12):    i0, i1  ->  source (2, 3, 4):  i0, i1/4, i1%4
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy

from imgconv.arrays import Array
from imgconv.graph.graph_error import require
from imgconv.graph.index import Index, Variable, constant, flatten, unflatten, variable

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Bound:
    """``low <= index < high``: there is an element to read only if this holds."""

    index: Index
    low: int
    high: int

    @property
    def always(self) -> bool:
        return self.index.low >= self.low and self.index.high < self.high

    @property
    def never(self) -> bool:
        return self.index.high < self.low or self.index.low >= self.high

    def __str__(self) -> str:
        return f"{self.low} <= {self.index} < {self.high}"


def axis_variables(shape: Shape) -> tuple[Index, ...]:
    """The variables ``i0, i1, ...`` of a shape's axes. An axis of size 1 has the constant 0 instead."""
    return tuple(variable(f"i{axis}", size) for axis, size in enumerate(shape))


@dataclass(frozen=True)
class View:
    """A way to read a tensor: ``source[index]`` at positions where every bound holds, else the reader's fill value.

    shape: of the view. source: the shape of the tensor that is read. index: an expression for each axis of the source.
    """

    shape: Shape
    source: Shape
    index: tuple[Index, ...]
    bounds: tuple[Bound, ...] = ()

    @cached_property
    def is_identity(self) -> bool:
        return self.shape == self.source and not self.bounds and self.index == axis_variables(self.shape)

    def composed_with(self, inner: View) -> View:
        """The composition: this view of the result of `inner`, as one view of inner.source.

        inner.shape must be self.source: ``expand((4, 1), (4, 3)).composed_with(reshape((2, 2), (4, 1)))``.
        """
        require(inner.shape == self.source, inner.shape, self.source)
        if inner.is_identity:
            return self
        if self.is_identity:
            return inner
        replacements = {Variable(f"i{a}", n): self.index[a] for a, n in enumerate(inner.shape)}
        index = tuple(e.substitute(replacements) for e in inner.index)
        bounds = [Bound(b.index.substitute(replacements), b.low, b.high) for b in inner.bounds]
        return View(self.shape, inner.source, index, merged_bounds([*self.bounds, *bounds]))

    def evaluate(self, array: Array, fill: float = 0) -> Array:
        """Applies the view to a numpy array of shape `source`. Gives an array of shape `shape` and the same dtype."""
        grids = numpy.meshgrid(*(numpy.arange(n) for n in self.shape), indexing="ij", sparse=True)
        return self.evaluate_at(array, grids, self.shape, fill)

    def evaluate_at(self, array: Array, position: Sequence[Array], shape: Shape, fill: float = 0) -> Array:
        """The view's elements at some positions. position: an integer array for each axis, broadcast to `shape`."""
        require(array.shape == self.source, array.shape, self.source)
        values = {f"i{axis}": along for axis, along in enumerate(position)}
        valid = numpy.ones((1,) * len(shape), bool)
        for bound in self.bounds:
            reached = bound.index.evaluate(values)
            valid = valid & (reached >= bound.low) & (reached < bound.high)
        if prod(self.source) == 0:
            return numpy.full(shape, fill, array.dtype)
        where = tuple(
            numpy.clip(e.evaluate(values), 0, n - 1) for e, n in zip(self.index, self.source, strict=True)
        )
        read = numpy.broadcast_to(array[where], shape)
        return numpy.where(valid, read, numpy.asarray(fill).astype(array.dtype)) if self.bounds else read.copy()

    def __str__(self) -> str:
        text = f"{list(self.source)}[{', '.join(map(str, self.index))}]"
        return text + (f" where {' and '.join(map(str, self.bounds))}" if self.bounds else "")


def merged_bounds(bounds: Iterable[Bound]) -> tuple[Bound, ...]:
    """The bounds that may fail, merged to one for each expression."""
    kept: dict[Index, Bound] = {}
    for bound in bounds:
        if bound.always:
            continue
        # Bounds whose expressions differ only by a constant are merged: the constant is moved to the range.
        offset = bound.index.constant
        key = bound.index - offset
        low, high = bound.low - offset, bound.high - offset
        if key in kept:
            low, high = max(low, kept[key].low), min(high, kept[key].high)
        kept[key] = Bound(key, low, high)
    return tuple(kept.values())


def identity(shape: Shape) -> View:
    """The view that changes nothing."""
    return View(shape, shape, axis_variables(shape))


def reshape(source: Shape, shape: Shape) -> View:
    """The same elements, in row-major order, in another shape."""
    require(prod(source) == prod(shape), source, shape)
    if 0 in shape:
        return View(shape, source, (constant(0),) * len(source))
    return View(shape, source, unflatten(flatten(axis_variables(shape), shape), source))


def transpose(source: Shape, permutation: Sequence[int]) -> View:
    """Axis `a` of the view is axis ``permutation[a]`` of the source."""
    shape = tuple(source[p] for p in permutation)
    axes = axis_variables(shape)
    return View(shape, source, tuple(axes[list(permutation).index(a)] for a in range(len(source))))


def expand(source: Shape, shape: Shape) -> View:
    """Broadcasting as in numpy: leading axes are added, axes of size 1 are repeated."""
    lead = len(shape) - len(source)
    fits = lead >= 0 and all(s in (1, t) for s, t in zip(source, shape[lead:], strict=True))
    require(fits, source, shape)
    axes = axis_variables(shape)[lead:]
    return View(shape, source, tuple(constant(0) if n == 1 else a for a, n in zip(axes, source, strict=True)))


def slice_(source: Shape, starts: Sequence[int], sizes: Sequence[int], steps: Sequence[int]) -> View:
    """`sizes` elements ``start, start+step, ...`` along each axis. A flip has the start n-1 and the step -1."""
    axes = axis_variables(tuple(sizes))
    index = tuple(a * step + start for a, start, step in zip(axes, starts, steps, strict=True))
    return View(tuple(sizes), source, index)


def pad(source: Shape, before: Sequence[int], after: Sequence[int]) -> View:
    """Adds positions before and after each axis, which read the fill value. Negative amounts crop."""
    shape = tuple(b + n + a for b, n, a in zip(before, source, after, strict=True))
    index = tuple(v - b for v, b in zip(axis_variables(shape), before, strict=True))
    return View(shape, source, index, merged_bounds(Bound(e, 0, n) for e, n in zip(index, source, strict=True)))


def take(source: Shape, axis: int, positions: Sequence[int]) -> View:
    """Position p along `axis` reads ``positions[p]``: a gather with constant indices."""
    shape = (*source[:axis], len(positions), *source[axis + 1 :])
    axes = list(axis_variables(shape))
    axes[axis] = constant(positions[0]) if len(positions) == 1 else axes[axis].lookup(positions)
    return View(shape, source, tuple(axes))


def samples(source: Shape, positions: Mapping[int, Sequence[Sequence[int]]]) -> View:
    """Shape (..., outputs, ..., taps of each axis): output o along an axis reads ``positions[axis][o][t]`` at tap t."""
    outputs = tuple(len(positions[axis]) if axis in positions else size for axis, size in enumerate(source))
    shape = outputs + tuple(len(rows[0]) for rows in positions.values())
    axes, taps = list(axis_variables(shape)[: len(source)]), axis_variables(shape)[len(source) :]
    for (axis, rows), tap in zip(positions.items(), taps, strict=True):
        if all(p == row[0] + t for row in rows for t, p in enumerate(row)):
            axes[axis] = axes[axis].lookup([row[0] for row in rows]) + tap
        else:
            axes[axis] = (axes[axis] * len(rows[0]) + tap).lookup([p for row in rows for p in row])
    return View(shape, source, tuple(axes))


def window_reaching(
    at: Index, tap: Index, stride: int, dilation: int, pad: int, size: int
) -> tuple[Index, list[Bound]]:
    """The sliding window, of `size` windows, that reads position `at` at `tap`. The bounds hold if there is one.

    Window o reads ``o*stride + tap*dilation - pad``. So o is ``(at + pad - tap*dilation) / stride``, if this is an
    integer.
    """
    reach = at + pad - tap * dilation
    return reach // stride, [Bound(reach, 0, (size - 1) * stride + 1), Bound(reach % stride, 0, 1)]


def windows(
    source: Shape, sizes: Sequence[int], window: Sequence[int], strides: Sequence[int], dilations: Sequence[int],
    pads: Sequence[int],
) -> View:
    """Sliding windows over the last axes: shape (leading..., sizes..., window...).

    Output o reads ``o*stride + k*dilation - pad`` at tap k, and the fill value outside the source.
    """
    count = len(sizes)
    lead = len(source) - count
    shape = (*source[:lead], *sizes, *window)
    axes = axis_variables(shape)
    index = list(axes[:lead])
    for d in range(count):
        index.append(axes[lead + d] * strides[d] + axes[lead + count + d] * dilations[d] - pads[d])
    bounds = merged_bounds(Bound(index[lead + d], 0, source[lead + d]) for d in range(count))
    return View(shape, source, tuple(index), bounds)
