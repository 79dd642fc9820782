"""Sequences (Python lists of arrays) and optional values (None if absent)."""

from __future__ import annotations

from typing import Any

import numpy

from imgconv.arrays import Array
from imgconv.host.registry import HostCall, host


@host("SequenceEmpty")
def sequence_empty(call: HostCall) -> Any:
    """A sequence without elements."""
    return []


@host("SequenceConstruct")
def sequence_construct(call: HostCall, *elements: Array) -> Any:
    """The sequence of the inputs."""
    return list(elements)


@host("SequenceLength")
def sequence_length(call: HostCall, sequence: list[Array]) -> Any:
    """The number of elements."""
    return numpy.array(len(sequence), numpy.int64)


@host("SequenceAt")
def sequence_at(call: HostCall, sequence: list[Array], position: Array) -> Any:
    """The element at a position, which counts from the end if it is negative."""
    at = int(position.item())
    if not -len(sequence) <= at < len(sequence):
        raise call.wrong(f"position {at} in a sequence of {len(sequence)}")
    return sequence[at]


@host("SequenceInsert")
def sequence_insert(call: HostCall, sequence: list[Array], element: Array, position: Array | None = None) -> Any:
    """The sequence with an element before the position, by default at the end."""
    at = len(sequence) if position is None else int(position.item())
    if not -len(sequence) <= at <= len(sequence):
        raise call.wrong(f"position {at} in a sequence of {len(sequence)}")
    at = at + len(sequence) if at < 0 else at
    return [*sequence[:at], element, *sequence[at:]]


@host("SequenceErase")
def sequence_erase(call: HostCall, sequence: list[Array], position: Array | None = None) -> Any:
    """The sequence without the element at a position, by default the last."""
    at = -1 if position is None else int(position.item())
    if not -len(sequence) <= at < len(sequence):
        raise call.wrong(f"position {at} in a sequence of {len(sequence)}")
    at %= len(sequence)
    return [*sequence[:at], *sequence[at + 1 :]]


@host("SequenceMap")
def sequence_map(call: HostCall, *inputs: Any) -> Any:
    """The body's outputs for each element of the sequences, as sequences; tensors go to every call."""
    body = call.attribute("body")
    rows = [
        body(*(x[number] if isinstance(x, list) else x for x in inputs)) for number in range(len(inputs[0]))
    ]
    return tuple(list(each) for each in zip(*rows)) if rows else tuple([] for _ in range(call.outputs))


@host("SplitToSequence")
def split_to_sequence(call: HostCall, x: Array, sizes: Array | None = None) -> Any:
    """Parts along an axis: of the given size or sizes, by default of 1, in which case keepdims=0 drops the axis."""
    axis = call.attribute("axis", 0)
    length = x.shape[axis]
    if sizes is None:
        parts = numpy.split(x, length, axis) if length else []
        return parts if call.flag("keepdims", True) else [part.squeeze(axis) for part in parts]
    if not sizes.ndim:
        return numpy.split(x, range(int(sizes), length, int(sizes)), axis)
    return numpy.split(x, numpy.cumsum(sizes)[:-1], axis)


@host("ConcatFromSequence")
def concat_from_sequence(call: HostCall, sequence: list[Array]) -> Any:
    """The elements one after another along an axis, which with new_axis=1 is a new one."""
    join = numpy.stack if call.flag("new_axis") else numpy.concatenate
    return join(sequence, axis=call.attribute("axis"))


@host("Optional")
def optional(call: HostCall, value: Any = None) -> Any:
    """The value; absent if there is no input."""
    return value


@host("OptionalHasElement")
def optional_has_element(call: HostCall, value: Any = None) -> Any:
    """Returns whether the value is there."""
    return numpy.array(value is not None)


@host("OptionalGetElement")
def optional_get_element(call: HostCall, value: Any = None) -> Any:
    """The value, which must be there."""
    if value is None:
        raise call.wrong("the optional value is absent")
    return value
