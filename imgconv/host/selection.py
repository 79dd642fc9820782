"""Selection by value: positions, sorting, masks."""

from __future__ import annotations

from typing import Any

import numpy

from imgconv.arrays import Array
from imgconv.host.registry import HostCall, host


@host("Compress")
def compress(call: HostCall, x: Array, condition: Array) -> Any:
    """The slices along an axis, or without an axis the elements, whose condition is true."""
    return numpy.compress(condition, x, call.attribute("axis"))


@host("TopK")
def top_k(call: HostCall, x: Array, k: Array | None = None) -> Any:
    """The k largest or smallest elements along an axis, in order, and their positions; equal ones in order of position.

    NaN is larger than every number, as in onnxruntime.
    """
    count = int(call.attribute("k", 0) if k is None else k.item())
    axis, largest = call.attribute("axis", -1), call.flag("largest", True)
    if not 0 <= count <= x.shape[axis]:
        raise call.wrong(f"the first {count} of {x.shape[axis]}")
    key = _as_descending_keys(x) if largest else x
    if x.ndim == 1 and 4 * count >= x.size:
        order = numpy.argsort(key, kind="stable")[:count]
    elif x.ndim == 1:
        # Only what is not after the last one that is wanted has to be sorted.
        bound = numpy.partition(key, max(count - 1, 0))[max(count - 1, 0)]
        chosen = numpy.flatnonzero(~(key > bound))
        order = chosen[numpy.argsort(key[chosen], kind="stable")[:count]]
    else:
        order = numpy.take(numpy.argsort(key, axis=axis, kind="stable"), numpy.arange(count), axis)
    # A detector selects for each of 90 classes: numpy.take_along_axis takes longer than all else then.
    return x[order] if x.ndim == 1 else numpy.take_along_axis(x, order, axis), order.astype(numpy.int64)


def _as_descending_keys(x: Array) -> Array:
    """Numbers whose ascending order is x's descending one."""
    if x.dtype.kind == "f":
        return numpy.where(numpy.isnan(x), -numpy.inf, -x)
    return numpy.invert(x)


@host("OneHot")
def one_hot(call: HostCall, indices: Array, depth: Array, values: Array) -> Any:
    """on_value at each index along a new axis of length `depth`, off_value elsewhere."""
    axis, size = call.attribute("axis", -1), int(depth.item())
    call.check_size((*indices.shape, size), values.dtype)
    whole = indices.astype(numpy.int64)
    hot = numpy.where(whole < 0, whole + size, whole)[..., None] == numpy.arange(size)
    return numpy.where(hot if axis == -1 else numpy.moveaxis(hot, -1, axis), values[1], values[0])
