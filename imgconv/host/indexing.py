"""Gather, Scatter and their relatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

from imgconv.arrays import Array
from imgconv.host.registry import HostCall, host

_COMBINE: dict[str, Callable[..., None]] = {
    "add": numpy.add.at, "mul": numpy.multiply.at, "max": numpy.maximum.at, "min": numpy.minimum.at,
}


def resolve_negative_indices(call: HostCall, index: Array, size: int) -> Array:
    """The indices with negative ones counted from the end. Raises ModelError if one is out of range."""
    if index.size == 1:
        least = most = index.item()
    else:
        least, most = (int(index.min()), int(index.max())) if index.size else (0, -1)
    if least < -size or most >= size:
        raise call.wrong(f"an index of {least} .. {most} is outside of an axis of {size}")
    counted: Array = numpy.where(index < 0, index + size, index) if least < 0 else index
    return counted


@host("Gather")
def gather(call: HostCall, x: Array, index: Array) -> Any:
    """x[..., indices, ...] along an axis."""
    axis = call.attribute("axis", 0)
    if not index.ndim and -x.shape[axis] <= index < x.shape[axis]:
        # A view: one class of many is not copied.
        place: tuple[Any, ...] = (*[slice(None)] * (axis % x.ndim), int(index))
        return x[place]
    chosen = resolve_negative_indices(call, index, x.shape[axis])
    call.check_size((*x.shape[:axis], chosen.size, *x.shape[axis % x.ndim + 1 :]), x.dtype)
    return numpy.take(x, chosen, axis)


@host("GatherElements")
def gather_elements(call: HostCall, x: Array, index: Array) -> Any:
    """Reads x at the index along one axis and at the index's own position along the others."""
    axis = call.attribute("axis", 0) % x.ndim
    return x[_positions_along(axis, resolve_negative_indices(call, index, x.shape[axis]))]


def _positions_along(axis: int, index: Array) -> tuple[Array, ...]:
    """The positions that `index` names along an axis, and its own along the others."""
    grids = numpy.ogrid[tuple(slice(n) for n in index.shape)]
    return tuple(index if a == axis else grid for a, grid in enumerate(grids))


@host("GatherND")
def gather_nd(call: HostCall, x: Array, indices: Array) -> Any:
    """x[indices[...]]: the last axis of the indices is a position along x's axes after the batch_dims."""
    batch = call.attribute("batch_dims", 0)
    parts = [
        resolve_negative_indices(call, indices[..., n], x.shape[batch + n]) for n in range(indices.shape[-1])
    ]
    lead = numpy.ogrid[tuple(slice(n) for n in indices.shape[:-1])][:batch] if batch else ()
    where = (*lead, *parts)
    return x[where]


@host("ScatterElements", "Scatter")
def scatter_elements(call: HostCall, x: Array, index: Array, updates: Array) -> Any:
    """x with the updates at the index along one axis and at the index's own position along the others."""
    axis = call.attribute("axis", 0) % x.ndim
    row = index[tuple(slice(None) if a == axis else slice(1) for a in range(index.ndim))]
    is_expanded = not any(step for a, step in enumerate(index.strides) if a != axis)
    covers = all(n == m or a == axis for a, (n, m) in enumerate(zip(index.shape, x.shape)))
    if covers and (is_expanded or (index == row).all()):
        # Whole slices are written: the index was expanded from a list.
        slices = (*[slice(None)] * axis, resolve_negative_indices(call, row.reshape(-1), x.shape[axis]))
        return _scattered(call, x, slices, updates)
    return _scattered(call, x, _positions_along(axis, resolve_negative_indices(call, index, x.shape[axis])), updates)


@host("ScatterND")
def scatter_nd(call: HostCall, x: Array, indices: Array, updates: Array) -> Any:
    """x with the updates at x[indices[...]]."""
    parts = tuple(resolve_negative_indices(call, indices[..., n], x.shape[n]) for n in range(indices.shape[-1]))
    return _scattered(call, x, parts, updates)


def _scattered(call: HostCall, x: Array, where: tuple[Any, ...], updates: Array) -> Array:
    """A copy of x with updates at these positions; if several name one position, the last, or what combines them."""
    made: Array = x.copy()
    reduction = call.attribute("reduction", "none")
    if reduction == "none":
        made[where] = updates
    else:
        _COMBINE[reduction](made, where, updates)
    return made
