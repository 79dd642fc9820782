"""Operators that copy elements without computing with them: shapes, movement and types."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy

from imgconv.arrays import Array
from imgconv.host.registry import HostCall, host


@host("Identity")
def identity(call: HostCall, x: Any) -> Any:
    """The input, also if it is a sequence or an absent optional value."""
    return x


@host("Constant")
def constant(call: HostCall) -> Any:
    """The constant in whichever value attribute the node has; strings have the shape `dims`, if there is one."""
    forms = {
        "value": None, "value_float": "float32", "value_floats": "float32", "value_int": "int64", "value_ints": "int64",
    }
    for name, dtype in forms.items():
        if call.attribute(name) is not None:
            return numpy.asarray(call.attribute(name), dtype)
    if call.attribute("value_string") is not None:
        return call.attribute("value_string")
    texts = call.attribute("value_strings")
    if texts is not None:
        return numpy.array(texts, object).reshape(call.attribute("dims", -1))
    raise call.wrong(f"attributes {', '.join(call.attributes)}")


@host("Cast")
def cast(call: HostCall, x: Array) -> Any:
    """The tensor in another type; floats are truncated to integers."""
    return _cast(call, x, numpy.dtype(call.attribute("to")))


@host("CastLike")
def cast_like(call: HostCall, x: Array, like: Array) -> Any:
    """The tensor in the type of another one."""
    return _cast(call, x, like.dtype)


def _cast(call: HostCall, x: Array, dtype: Any) -> Array:
    if x.dtype == dtype:
        return x
    if x.dtype.kind == "f" and dtype.kind in "iu" and dtype.itemsize < 8:
        # numpy's result past the range of a narrow integer depends on the machine; by way of int64 it wraps around.
        return x.astype(numpy.int64).astype(dtype)
    return x.astype(dtype)


@host("Shape")
def shape(call: HostCall, x: Array) -> Any:
    """The shape from axis `start` up to `end`."""
    return numpy.array(x.shape[call.attribute("start", 0) : call.attribute("end")], numpy.int64)


@host("Reshape")
def reshape(call: HostCall, x: Array, sizes: Array) -> Any:
    """The same elements in another shape: 0 keeps a size unless allowzero is set, -1 is what remains."""
    wanted = sizes.tolist()
    if 0 in wanted and not call.flag("allowzero"):
        wanted = [x.shape[a] if n == 0 else n for a, n in enumerate(wanted)]
    if -1 in wanted and not x.size:
        rest = numpy.prod([n for n in wanted if n != -1])
        wanted = [0 if n == -1 and rest else n for n in wanted]
    return x.reshape(wanted)


@host("Flatten")
def flatten(call: HostCall, x: Array) -> Any:
    """A matrix: the axes before `axis` are its rows."""
    axis = call.attribute("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(int(numpy.prod(x.shape[:axis])), int(numpy.prod(x.shape[axis:])))


@host("Transpose")
def transpose(call: HostCall, x: Array) -> Any:
    """The axes in another order, by default reversed."""
    return x.transpose(call.attribute("perm"))


@host("Squeeze")
def squeeze(call: HostCall, x: Array, axes: Array | None = None) -> Any:
    """Without the given axes of length 1, by default all of them."""
    chosen = axes_of(call, axes)
    if chosen == []:
        raise call.wrong("empty axes, which engines read as none or as all")
    return x.squeeze(None if chosen is None else tuple(chosen))


@host("Unsqueeze")
def unsqueeze(call: HostCall, x: Array, axes: Array | None = None) -> Any:
    """With new axes of length 1."""
    chosen = axes_of(call, axes) or []
    rank = x.ndim + len(chosen)
    new = {axis % rank for axis in chosen if -rank <= axis < rank}
    if len(new) != len(chosen):
        raise call.wrong(f"axes {chosen} of a tensor of rank {rank}")
    sizes = list(x.shape)
    for axis in sorted(new):
        sizes.insert(axis, 1)
    return x.reshape(sizes)


def axes_of(call: HostCall, axes: Array | None) -> list[int] | None:
    """The axes of an input, or of the attribute that old opsets have; None if there is neither."""
    given = call.attribute("axes") if axes is None else axes
    return None if given is None else _as_list(given)


@host("Expand")
def expand(call: HostCall, x: Array, sizes: Array) -> Any:
    """The tensor broadcast to a shape, in which a 1 keeps the tensor's size."""
    asked = tuple(_as_list(sizes))
    if asked == x.shape:
        return x
    wanted = numpy.broadcast_shapes(x.shape, asked)
    call.check_size(wanted, x.dtype)
    return numpy.broadcast_to(x, wanted)


@host("Tile")
def tile(call: HostCall, x: Array, repeats: Array) -> Any:
    """The tensor repeated along each axis."""
    times = repeats.tolist()
    if all(n == 1 for n in times):
        return x
    call.check_size((n * r for n, r in zip(x.shape, times)), x.dtype)
    return numpy.tile(x, times)


@host("Concat")
def concat(call: HostCall, *parts: Array) -> Any:
    """The tensors one after another along an axis."""
    return numpy.concatenate(parts, call.attribute("axis"))


@host("Split")
def split(call: HostCall, x: Array, sizes: Array | None = None) -> Any:
    """Parts along an axis: of the given sizes, else of equal ones; the last may be smaller."""
    axis = call.attribute("axis", 0)
    given = call.attribute("split") if sizes is None else sizes
    if given is None:
        parts = call.attribute("num_outputs", call.outputs)
        each = -(-x.shape[axis] // parts)
        given = [each] * (parts - 1) + [x.shape[axis] - each * (parts - 1)]
    listed, before = _as_list(given), (slice(None),) * (axis % x.ndim)
    if sum(listed) != x.shape[axis]:
        raise call.wrong(f"parts of {listed} of {x.shape[axis]}")
    spans = (slice(end - size, end) for size, end in zip(listed, accumulate(listed)))
    return tuple(x[before + (span,)] for span in spans)


@host("Slice")
def slice_(
    call: HostCall, x: Array, starts: Array | None = None, ends: Array | None = None, axes: Array | None = None,
    steps: Array | None = None,
) -> Any:
    """The elements from start up to end along each of the given axes, as in a Python slice."""
    if call.version < 10:
        starts, ends, axes = (call.attribute(name) for name in ("starts", "ends", "axes"))
    chosen = range(len(_as_list(starts))) if axes is None else _as_list(axes)
    parts = [slice(None)] * x.ndim
    by = [1] * len(chosen) if steps is None else _as_list(steps)
    for axis, start, end, step in zip(chosen, _as_list(starts), _as_list(ends), by, strict=True):
        # Before the first element a Python slice has to end at None, not at -1.
        past = step < 0 and end < -x.shape[axis]
        parts[axis] = slice(start, None if past else end, step)
    return x[tuple(parts)]


def _as_list(numbers: Array | Sequence[int] | None) -> list[int]:
    if numbers is None:
        return []
    return list(numbers.reshape(-1).tolist() if isinstance(numbers, numpy.ndarray) else numbers)


@host("Pad")
def pad(
    call: HostCall, x: Array, pads: Array | None = None, value: Array | None = None, axes: Array | None = None
) -> Any:
    """The tensor with elements added before and after each axis; negative amounts crop."""
    if call.version < 11:
        pads, value = call.attribute("pads"), call.attribute("value", 0.0)
    amounts, chosen = _as_list(pads), range(x.ndim) if axes is None else [a % x.ndim for a in _as_list(axes)]
    before, after = [0] * x.ndim, [0] * x.ndim
    for number, axis in enumerate(chosen):
        before[axis], after[axis] = amounts[number], amounts[number + len(amounts) // 2]
    crop = tuple(slice(max(-b, 0), n - max(-a, 0)) for b, a, n in zip(before, after, x.shape))
    widths = [(max(b, 0), max(a, 0)) for b, a in zip(before, after)]
    call.check_size((n + b + a for n, (b, a) in zip(x.shape, widths)), x.dtype)
    mode = call.attribute("mode", "constant")
    if mode != "constant":
        return numpy.pad(x[crop], widths, mode)
    return numpy.pad(x[crop], widths, constant_values=0 if value is None else numpy.ravel(value)[0])


@host("ConstantOfShape")
def constant_of_shape(call: HostCall, sizes: Array) -> Any:
    """A tensor with every element equal to `value`, 0.0 by default."""
    value = numpy.asarray(call.attribute("value", numpy.zeros(1, numpy.float32)))
    wanted = tuple(int(n) for n in sizes)
    call.check_size(wanted, value.dtype)
    if not any(value.tobytes()):
        return numpy.zeros(wanted, value.dtype)  # from the system, which gives empty memory
    return numpy.full(wanted, value.reshape(()), value.dtype)
