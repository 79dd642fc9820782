"""Reductions and cumulative sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

from imgconv.arrays import Array
from imgconv.host.movement import axes_of
from imgconv.host.registry import HostCall, host


def _log_sum_exp(x: Array, axis: Any, keepdims: bool) -> Any:
    most = numpy.max(x, axis=axis, keepdims=True, initial=-numpy.inf)
    most = numpy.where(numpy.isfinite(most), most, 0)
    total = numpy.sum(numpy.exp(x - most), axis=axis, keepdims=True)
    made = numpy.log(total) + most
    return made if keepdims else made.reshape(numpy.sum(x, axis=axis).shape)


_REDUCE: dict[str, Callable[..., Any]] = {
    "ReduceSum": numpy.sum, "ReduceProd": numpy.prod, "ReduceMean": numpy.mean,
    "ReduceL1": lambda x, **how: numpy.sum(numpy.abs(x), **how),
    "ReduceL2": lambda x, **how: numpy.sqrt(numpy.sum(numpy.square(x), **how)),
    "ReduceSumSquare": lambda x, **how: numpy.sum(numpy.square(x), **how),
    "ReduceLogSum": lambda x, **how: numpy.log(numpy.sum(x, **how)), "ReduceLogSumExp": _log_sum_exp,
}


@host("ReduceMax", "ReduceMin", *_REDUCE)
def reduce(call: HostCall, x: Array, axes: Array | None = None) -> Any:
    """A reduction over axes, by default all. Floats are computed in float64, integers in their own type."""
    chosen = axes_of(call, axes)
    if not chosen:
        if call.flag("noop_with_empty_axes"):
            chosen = []
        else:
            chosen = list(range(x.ndim))
    how: dict[str, Any] = {"axis": tuple(a % x.ndim for a in chosen), "keepdims": call.flag("keepdims", True)}
    if call.op_type in ("ReduceMax", "ReduceMin"):
        return _max_or_min(call, x, how)
    wide = x.astype(numpy.float64) if x.dtype.kind == "f" else x.astype(numpy.int64)
    return numpy.asarray(_REDUCE[call.op_type](wide, **how)).astype(x.dtype)


def _max_or_min(call: HostCall, x: Array, how: dict[str, Any]) -> Any:
    """The largest or smallest element; of no elements the other end of the type's range."""
    largest = call.op_type == "ReduceMax"
    if x.size:
        return (x.max if largest else x.min)(**how)
    if x.dtype == bool:
        return (x.any if largest else x.all)(**how)
    if x.dtype.kind == "f":
        first = -numpy.inf if largest else numpy.inf
    else:
        limits = numpy.iinfo(x.dtype)
        first = limits.min if largest else limits.max
    return (x.max if largest else x.min)(initial=first, **how)


@host("ArgMax", "ArgMin")
def arg_extreme(call: HostCall, x: Array) -> Any:
    """The position of the largest or smallest element along an axis: the first, or with select_last_index the last."""
    axis = call.attribute("axis", 0)
    find = numpy.argmax if call.op_type == "ArgMax" else numpy.argmin
    last = call.flag("select_last_index")
    found = find(numpy.flip(x, axis) if last else x, axis=axis, keepdims=call.flag("keepdims", True))
    return (x.shape[axis] - 1 - found if last else found).astype(numpy.int64)


@host("CumSum")
def cumulative_sum(call: HostCall, x: Array, axis: Array) -> Any:
    """The running sum along an axis; exclusive leaves out the element itself, reverse starts at the end."""
    along = int(axis.item())
    given = numpy.flip(x, along) if call.flag("reverse") else x
    made = numpy.cumsum(given, axis=along, dtype=x.dtype)
    if call.flag("exclusive"):
        made = numpy.roll(made, 1, along)
        numpy.moveaxis(made, along, 0)[:1] = 0
    return numpy.flip(made, along) if call.flag("reverse") else made


@host("Softmax", "LogSoftmax")
def softmax(call: HostCall, x: Array) -> Any:
    """exp(x - max) divided by its sum: along `axis` since opset 13, before over all axes from `axis` on."""
    new = call.version >= 13
    axis = call.attribute("axis", -1 if new else 1) % max(x.ndim, 1)
    over = (axis,) if new else tuple(range(axis, x.ndim))
    shifted = x - x.max(axis=over, keepdims=True, initial=-numpy.inf)
    powers = numpy.exp(shifted)
    total = powers.sum(axis=over, keepdims=True)
    return shifted - numpy.log(total) if call.op_type == "LogSoftmax" else powers / total
