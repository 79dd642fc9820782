"""Exports views as ONNX operators: Transpose, Reshape, Slice, Gather, Pad and Where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy

from imgconv.arrays import Array
from imgconv.graph import view as views
from imgconv.graph.index import Index
from imgconv.graph.view import Shape, View
from imgconv.onnx_export.writer import OnnxTensor, OnnxWriter, scalar_array


def export_view(writer: OnnxWriter, tensor: OnnxTensor, view: View, fill: float) -> OnnxTensor:
    """The tensor read through a view. Axes along which the view only repeats must have length 1."""
    if view.is_identity:
        return tensor
    if 0 in view.source or 0 in view.shape:
        return writer.constant(numpy.full(view.shape, scalar_array(fill, tensor.dtype)))
    fill = float(fill != 0) if tensor.dtype == "bool" else fill
    amounts = _padding(view)
    if amounts is not None:
        return writer.pad(tensor, *amounts, fill)
    small = keep_only_axes(view.shape, axes_of(view.index))
    made = _gather_by_axes(writer, tensor, replace(view, shape=small, bounds=()))
    for bound in view.bounds:
        position = numpy.asarray(bound.index.evaluate(axis_index_arrays(view.shape, range(len(view.shape)))))
        valid = writer.constant((position >= bound.low) & (position < bound.high))
        made = writer.cast(made, "int64") if made.dtype == "bool" else made
        inputs = [valid, made, writer.constant(scalar_array(fill, made.dtype))]
        made = writer.emit("Where", inputs, made.dtype, numpy.broadcast_shapes(valid.shape, made.shape))
    return made


def _gather_by_axes(writer: OnnxWriter, tensor: OnnxTensor, view: View) -> OnnxTensor:
    """The tensor read through a view without bounds, one group of axes after another."""
    groups = _dependent_axis_groups(view)
    made = writer.transpose(tensor, [a for source, _ in groups for a in source])
    wanted = [_positions(view, source, axes) for source, axes in groups]
    if any(not _covers_all_positions(p, view, source) for p, (source, _) in zip(wanted, groups, strict=True)):
        made = writer.reshape(made, tuple(prod(view.source[a] for a in source) for source, _ in groups))
        for number, positions in enumerate(wanted):
            made = writer.pick(made, number, positions)
    order = [a for _, axes in groups for a in axes]
    made = writer.reshape(made, tuple(view.shape[a] for a in order))
    made = writer.transpose(made, [order.index(a) for a in sorted(order)])
    return writer.reshape(made, view.shape)


def axes_of(indices: Sequence[Index]) -> frozenset[int]:
    """The axes of a view that the expressions depend on."""
    return frozenset(int(v.name[1:]) for e in indices for v in e.variables())


def keep_only_axes(shape: Shape, axes: frozenset[int]) -> Shape:
    """The shape with all axes but the given ones set to length 1."""
    return tuple(n if a in axes else 1 for a, n in enumerate(shape))


def axis_index_arrays(shape: Shape, axes: Sequence[int]) -> dict[str, Array]:
    """The variables i<axis> of some axes as arrays; together they broadcast to the lengths of these axes."""
    arrays = numpy.meshgrid(*(numpy.arange(shape[a]) for a in axes), indexing="ij", sparse=True)
    return {f"i{a}": array for a, array in zip(axes, arrays, strict=True)}


def _padding(view: View) -> tuple[list[int], list[int]] | None:
    """The amounts before and after each axis if the view is its source with the fill value around it."""
    if len(view.shape) != len(view.source) or not view.bounds:
        return None
    before = [-e.constant for e in view.index]
    after = [n - m - b for n, m, b in zip(view.shape, view.source, before, strict=True)]
    return (before, after) if min(*before, *after) >= 0 and views.pad(view.source, before, after) == view else None


def windows(view: View) -> dict[str, list[int]] | None:
    """strides, dilations and pads if the view is sliding windows over the last two of four axes."""
    if len(view.source) != 4 or len(view.shape) != 6 or 0 in view.shape:
        return None
    factors = [{str(atom): k for atom, k in e.terms} for e in view.index]
    strides = [factors[2].get("i2", 1), factors[3].get("i3", 1)]
    dilations = [factors[2].get("i4", 1), factors[3].get("i5", 1)]
    before = [-view.index[2].constant, -view.index[3].constant]
    if min(*strides, *dilations) < 1 or min(before) < 0:
        return None
    if views.windows(view.source, view.shape[2:4], view.shape[4:], strides, dilations, before) != view:
        return None
    after = []
    for n, out, k, s, d, b in zip(view.source[2:], view.shape[2:4], view.shape[4:], strides, dilations, before):
        reach = (k - 1) * d + 1
        after.append(max((out - 1) * s + reach - n - b, 0))
        if (n + b + after[-1] - reach) // s + 1 != out:
            return None
    return {"strides": strides, "dilations": dilations, "pads": [*before, *after]}


def has_window_in_padding(view: View, strides: list[int], dilations: list[int], pads: list[int]) -> bool:
    """Returns whether some of the windows that `windows` found lie entirely outside of the source."""
    axes = zip(view.source[2:], view.shape[2:4], view.shape[4:], strides, dilations, pads)
    return any(
        not any(0 <= o * stride - pad + k * dilation < size for k in range(window))
        for size, outputs, window, stride, dilation, pad in axes
        for o in range(outputs)
    )


def reduced_axes(view: View, rank: int) -> list[int]:
    """The source axes that the view's axes from `rank` on read; [] if these are not whole or the rest change order."""
    own = [str(e) for e in view.index]
    long = [axis for axis, n in enumerate(view.source) if n > 1]
    if view.bounds or sorted(own[a] for a in long) != sorted(f"i{a}" for a, n in enumerate(view.shape) if n > 1):
        return []
    if 0 in view.source or any(view.shape[int(own[a][1:])] != view.source[a] for a in long):
        return []
    kept = [int(own[a][1:]) for a in long if int(own[a][1:]) < rank]
    return [a for a in long if int(own[a][1:]) >= rank] if kept == sorted(kept) else []


def _dependent_axis_groups(view: View) -> list[tuple[list[int], list[int]]]:
    """Groups (axes of the source, axes of the view) that depend on each other, in the order of the source.

    A source axis read at one position is grouped with an axis of length 1 of the view, as long as there is one left.
    """
    groups: list[tuple[set[int], set[int]]] = []
    for axis, index in enumerate(view.index):
        source, axes = {axis}, set(axes_of([index]))
        for other in [g for g in groups if g[1] & axes]:
            source, axes = source | other[0], axes | other[1]
            groups.remove(other)
        groups.append((source, axes))
    free = [a for a, n in enumerate(view.shape) if n == 1]
    found = []
    for source, axes in sorted(groups, key=lambda g: min(g[0])):
        found.append((sorted(source), sorted(axes) if axes or not free else [free.pop(0)]))
    return found


def _positions(view: View, source: Sequence[int], axes: Sequence[int]) -> Array:
    """For each position of the view axes the row-major position in the source axes, as a vector."""
    grids = axis_index_arrays(view.shape, axes)
    flat: int | Array = 0
    for axis in source:
        flat = flat * view.source[axis] + numpy.clip(view.index[axis].evaluate(grids), 0, view.source[axis] - 1)
    return numpy.broadcast_to(flat, tuple(view.shape[a] for a in axes)).ravel()


def _covers_all_positions(positions: Array, view: View, source: Sequence[int]) -> bool:
    """Returns whether the positions are all positions of the source axes, each once and in order."""
    size = prod(view.source[a] for a in source)
    return len(positions) == size and numpy.array_equal(positions, numpy.arange(size))
