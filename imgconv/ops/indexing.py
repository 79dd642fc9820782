"""Gather, Scatter and their relatives. Indices are constants or depend on an input."""

from __future__ import annotations

import math
from collections.abc import Mapping
from math import prod

import numpy

from imgconv.graph.nodes import ReductionKind
from imgconv.graph.view import Shape, View, axis_variables
from imgconv.ops.registry import Call, operator
from imgconv.tensor import EXACT, Tensor, elementwise, gather, less, neutral, where

_REDUCTIONS: Mapping[str, tuple[ReductionKind, str]] = {
    "add": ("sum", "add"), "mul": ("product", "multiply"), "max": ("max", "maximum"), "min": ("min", "minimum"),
}


def view_along(source: Shape, shape: Shape, axis: int) -> View:
    """The view of shape (*shape, source[axis]) whose last variable is the position along `axis`."""
    axes = axis_variables((*shape, source[axis]))
    return View((*shape, source[axis]), source, tuple(axes[-1] if a == axis else axes[a] for a in range(len(source))))


def take_along(x: Tensor, axis: int, index: Tensor, shape: Shape) -> Tensor:
    """Reads x at the index along an axis and at the same position along the others; the index broadcasts to `shape`."""
    return gather(x, view_along(x.shape, shape, axis), [index])


def resolve_negative_indices(call: Call, index: Tensor, size: int) -> Tensor:
    """The indices with negative ones replaced by index + size. Raises ModelError if a constant one is out of range."""
    if size > EXACT:
        raise call.unsupported(f"an axis of {size} elements, more than 2**24: indices are fp32 values on the device")
    if index.size and not size:
        raise call.wrong("an axis without elements has none to choose")
    if not index.is_constant:
        return where(less(index, 0), index + size, index)
    known = index.numpy()
    if numpy.any((known < -size) | (known >= size)):
        raise call.wrong(f"an index is outside of an axis of {size} elements")
    return Tensor.constant(numpy.where(known < 0, known + size, known))


def is_out_of_range(index: Tensor, size: int) -> Tensor:
    """Returns whether an index is outside of -size .. size - 1."""
    return less(index, -size).apply("or", less(index, size).apply("not"))


def all_nan_if_out_of_range(result: Tensor, *indices: tuple[Tensor, int]) -> Tensor:
    """The result of a scatter; NaN everywhere if one of the indices, each with its axis's size, is out of range.

    A device raises no error. Results of integers cannot say it: an update that is out of range is left out of them.
    """
    for index, size in indices if result.is_float else ():
        if not index.is_constant and index.size:
            strays = where(is_out_of_range(index, size), 1, index * 0).max()
            result = where(strays.cast("bool"), math.nan, result)
    return result


def _fill_for_out_of_range(x: Tensor, *indices: Tensor) -> float:
    """Returns the element for an index that only a run shows to be out of range: NaN, and 0 for integers."""
    return math.nan if x.is_float and not all(index.is_constant for index in indices) else 0.0


@operator("Gather")
def gather_(call: Call) -> Tensor:
    """x[..., indices, ...] along an axis, for indices of any rank."""
    x = call.input(0)
    axis = call.axis(int(call.attribute("axis", 0)), x.rank)
    index = resolve_negative_indices(call, call.input(1), x.shape[axis])
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    if index.is_constant:
        return x.take(axis, [int(i) for i in index.numpy().ravel()]).reshape(*before, *index.shape, *after)
    shape = (*before, *index.shape, *after)
    axes = axis_variables((*shape, x.shape[axis]))
    source = (*axes[:axis], axes[-1], *axes[axis + index.rank : len(shape)])
    spread = index.reshape(*index.shape, *[1] * len(after))
    return gather(x, View((*shape, x.shape[axis]), x.shape, source), [spread], _fill_for_out_of_range(x, index))


@operator("GatherElements")
def gather_elements(call: Call) -> Tensor:
    """Reads x at the index along one axis and at the index's own position along the others."""
    x, index = call.input(0), call.input(1)
    axis = _checked_axis(call, x, index)
    place = resolve_negative_indices(call, index, x.shape[axis])
    return gather(x, view_along(x.shape, index.shape, axis), [place], _fill_for_out_of_range(x, index))


@operator("GatherND")
def gather_nd(call: Call) -> Tensor:
    """x[indices[...]]: the last axis of the indices is a position along x's axes after the batch_dims."""
    x, indices, batch = call.input(0), call.input(1), int(call.attribute("batch_dims", 0))
    count = indices.shape[-1] if indices.rank else 0
    if not 0 <= batch < min(x.rank, indices.rank) or not 1 <= count <= x.rank - batch:
        raise call.wrong(f"indices of {list(indices.shape)} for {list(x.shape)} with batch_dims {batch}")
    if x.shape[:batch] != indices.shape[:batch]:
        raise call.wrong(f"the first {batch} axes of {list(x.shape)} and {list(indices.shape)} differ")
    chosen, rest = x.shape[batch : batch + count], x.shape[batch + count :]
    lead = indices.shape[:-1]
    shape = (*lead, *rest)
    axes = axis_variables((*shape, *chosen))
    view = View((*shape, *chosen), x.shape, (*axes[:batch], *axes[len(shape) :], *axes[len(lead) : len(shape)]))
    parts = [
        resolve_negative_indices(call, _index_component(indices, number), size).reshape(*lead, *[1] * len(rest))
        for number, size in enumerate(chosen)
    ]
    return gather(x, view, parts, _fill_for_out_of_range(x, indices))


@operator("ScatterElements", "Scatter")
def scatter_elements(call: Call) -> Tensor:
    """x with the updates written at the index along one axis and at the index's own position along the others."""
    x, index, updates = call.input(0), call.input(1), call.input(2)
    axis = _checked_axis(call, x, index)
    if updates.shape != index.shape:
        raise call.wrong(f"updates of {list(updates.shape)} for indices of {list(index.shape)}")
    order = [axis, *(a for a in range(x.rank) if a != axis)]
    after = [0 if a == axis else n - m for a, (n, m) in enumerate(zip(x.shape, index.shape, strict=True))]

    def axis_to_front(tensor: Tensor, fill: float = 0) -> Tensor:
        """The tensor as (axis, all others), padded with the fill value up to x's size along the other axes."""
        padded = tensor.pad([0] * x.rank, after, fill) if any(after) and tensor is not x else tensor
        moved = padded.transpose(*order)
        return moved.reshape(moved.shape[0], prod(moved.shape[1:]))

    rows = axis_to_front(resolve_negative_indices(call, index, x.shape[axis]), -1)
    made = _scattered(call, axis_to_front(x), rows, axis_to_front(updates))
    back = made.reshape(*(x.shape[a] for a in order)).transpose(*numpy.argsort(order).tolist())
    return all_nan_if_out_of_range(back, (index, x.shape[axis]))


@operator("ScatterND")
def scatter_nd(call: Call) -> Tensor:
    """x with the updates written at x[indices[...]]: the last axis of the indices is a position in x's first axes."""
    x, indices, updates = call.input(0), call.input(1), call.input(2)
    count = indices.shape[-1] if indices.rank else 0
    if not 1 <= count <= x.rank or updates.shape != (*indices.shape[:-1], *x.shape[count:]):
        raise call.wrong(f"updates of {list(updates.shape)} at {list(indices.shape)} of {list(x.shape)}")
    chosen, rows = x.shape[:count], prod(indices.shape[:-1])
    if prod(chosen) > EXACT:
        raise call.unsupported(f"{prod(chosen)} positions, more than 2**24: indices are fp32 values on the device")
    parts = [resolve_negative_indices(call, _index_component(indices, n), size) for n, size in enumerate(chosen)]
    flat = parts[0]
    for part, size in zip(parts[1:], chosen[1:]):
        flat = flat * size + part
    rest = prod(x.shape[count:])
    made = _scattered(call, x.reshape(prod(chosen), rest), flat.reshape(rows, 1), updates.reshape(rows, rest))
    return all_nan_if_out_of_range(
        made.reshape(*x.shape), *((_index_component(indices, n), size) for n, size in enumerate(chosen))
    )


def _scattered(call: Call, x: Tensor, index: Tensor, updates: Tensor) -> Tensor:
    """x (P, R) with updates (U, R) written to the rows that index (U, R) or (U, 1) names.

    If several updates name one row, the last wins, or the reduction combines them. A kernel writes each element once,
    so each row searches the index for the updates that name it.
    """
    reduction = call.choice("reduction", "none", ("none", *_REDUCTIONS))
    count = index.shape[0]
    if not count:
        return x
    row = Tensor.constant(numpy.arange(x.shape[0]).reshape(-1, 1, 1))
    hits = elementwise("equal", index.reshape(1, *index.shape), row, dtype="bool")
    if reduction == "none":
        if index.is_constant:
            winner = Tensor.constant(_last_hits(index.numpy(), x.shape[0]))
        else:
            winner = where(hits, Tensor.constant(numpy.arange(count).reshape(1, -1, 1)), -1).max([1])
        return where(less(winner, 0), x, take_along(updates, 0, winner, x.shape))
    if reduction in ("add", "mul"):
        call.refuse_narrow_integers(x)
    kind, operation = _REDUCTIONS[reduction]
    nothing = Tensor.constant(numpy.array(neutral(kind, x.dtype), x.dtype))
    there = where(hits, updates.reshape(1, *updates.shape), nothing)
    return x.apply(operation, there.reduce(kind, [1]))


def _last_hits(index: numpy.ndarray, rows: int) -> numpy.ndarray:
    """Returns for each row and column the number of the last update that names it; -1 if none does."""
    winner = numpy.full((rows + 1, index.shape[1]), -1)
    for number, named in enumerate(index):
        winner[named, numpy.arange(index.shape[1])] = number  # -1 names the row past the end, which is dropped
    return winner[:rows]


@operator("ReverseSequence")
def reverse_sequence(call: Call) -> Tensor:
    """The first sequence_lens[b] elements along the time axis in reverse order, for each b of the batch axis."""
    x, lengths = call.input(0), call.input(1)
    batch, time = int(call.attribute("batch_axis", 1)), int(call.attribute("time_axis", 0))
    if {batch, time} != {0, 1} or x.rank < 2 or lengths.shape != (x.shape[batch],):
        raise call.wrong(f"batch_axis {batch}, time_axis {time} and lengths {list(lengths.shape)} of {list(x.shape)}")
    if lengths.is_constant and numpy.any((lengths.numpy() < 0) | (lengths.numpy() > x.shape[time])):
        raise call.wrong(f"sequence_lens {lengths.numpy().tolist()} of {x.shape[time]} steps")
    shape = [1] * x.rank
    shape[batch] = -1
    length = lengths.reshape(*shape)
    shape[batch], shape[time] = 1, -1
    step = Tensor.constant(numpy.arange(x.shape[time]).reshape(shape))
    return take_along(x, time, where(less(step, length), length - step - 1, step), x.shape)


@operator("Compress")
def compress(call: Call) -> Tensor:
    """The slices along an axis, or without an axis the elements, whose condition is true; the condition is constant."""
    x, condition = call.input(0), call.required_constant(1, "the condition")
    axis = call.attribute("axis", None)
    flat = x.reshape(-1) if axis is None else x
    along_axis = 0 if axis is None else call.axis(int(axis), x.rank)
    chosen = numpy.flatnonzero(condition)
    if condition.ndim != 1 or numpy.any(chosen >= flat.shape[along_axis]):
        raise call.wrong(f"a condition of shape {list(condition.shape)} for {list(flat.shape)}")
    return flat.take(along_axis, chosen.tolist())


def _index_component(indices: Tensor, number: int) -> Tensor:
    return indices.slice(indices.rank - 1, number, number + 1).reshape(*indices.shape[:-1])


def _checked_axis(call: Call, x: Tensor, index: Tensor) -> int:
    """The axis counted from the front. Raises ModelError if the index does not fit x along the other axes."""
    axis = call.axis(int(call.attribute("axis", 0)), x.rank)
    others = [a for a in range(x.rank) if a != axis]
    if index.rank != x.rank or any(index.shape[a] > x.shape[a] for a in others):
        raise call.wrong(f"indices of {list(index.shape)} for {list(x.shape)} along axis {axis}")
    return axis
