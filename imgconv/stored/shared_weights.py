"""Stores weights once per file: the graph's constants, and the packed weights of plans as views of them.

Packing moves elements and adds zeros. So packed weights are stored as a view of the constant (View in blobs.py), and
packed weights of Winograd convolutions as a view of the transformed constant. If all plans store a constant as fp16,
so does the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isqrt

import numpy

from imgconv.arrays import Array
from imgconv.compiling.emit import ConstantContent, WeightPacking
from imgconv.compiling.plan import Plan, Storage
from imgconv.stored.blobs import ZERO, BlobWriter, StoredView, content_hash

SMALL = 256  # bytes of arrays that are stored as they are


@dataclass(frozen=True, eq=False)
class Origin:
    """Packed weights as the places, -1 for a zero, of `numbers`: those of the constant, or the taps of its windows."""

    constant: Array
    numbers: Array
    places: Array

    @property
    def tile(self) -> int:
        """Outputs of a tile of Winograd's filtering in a row, if the numbers are taps; else 0."""
        return isqrt(self.numbers.shape[-1]) - 2 if self.numbers.shape != self.constant.shape else 0


def share_weights(blobs: BlobWriter, plans: Sequence[tuple[Plan, Mapping[str, Array]]]) -> None:
    """Makes the weights that plans pack views of the constants of their graphs, which come with each plan."""
    traced: list[tuple[Array, Origin]] = []
    for plan, constants in plans:
        for constant in constants.values():
            if constant.dtype == numpy.float16:
                blobs.add_rounded(constant.astype(numpy.float32), constant)  # of plain forms
        for storage, packed in plan.content.items():
            found = _origin_of_content(plan, storage, constants)
            if found is not None:
                traced.append((packed, found))
    widest: dict[bytes, int] = {}
    for packed, origin in traced:
        key = content_hash(origin.constant)
        widest[key] = max(widest.get(key, 0), packed.itemsize)
    for packed, origin in traced:
        stored = constant = origin.constant
        if constant.dtype == numpy.float32 and widest[content_hash(constant)] == 2:
            stored = constant.astype(numpy.float16)
            blobs.add_rounded(constant, stored)
        view = view_of(origin.places, origin.numbers.shape)
        if view is not None and stored.dtype == packed.dtype:
            blobs.add_view(packed, stored, replace(view, tile=origin.tile))


def _origin_of_content(plan: Plan, storage: Storage, constants: Mapping[str, Array]) -> Origin | None:
    """The origin of a storage's content; None if it is not known how it was made."""
    if not isinstance(plan.content, ConstantContent) or plan.content[storage].nbytes <= SMALL:
        return None
    return origin_of(plan.content.packing(storage), plan.content[storage], constants)


def origin_of(packing: WeightPacking, packed: Array, constants: Mapping[str, Array]) -> Origin | None:
    """Returns the origin of packed numbers; None if they are not those of one constant, but of a changed copy."""
    found = (each for each in constants.values() if each.nbytes > SMALL and _is_view_of_memory(packing.source, each))
    constant = next(found, None)
    if constant is None:
        return None
    numbers, source = packing.numbers, packing.source
    if numbers.shape == source.shape:
        numbers = constant
    elif source.shape != constant.shape or not source.flags.c_contiguous:
        return None
    base = 64 if packed.dtype.itemsize == 1 else 1024  # exact in a half
    counted = numpy.arange(1, numbers.size + 1)
    places = numpy.zeros(packed.shape, numpy.int64)
    factor = 1
    with numpy.errstate(all="ignore"):
        while factor <= numbers.size:
            digits = (counted // factor % base).astype(numbers.dtype).reshape(numbers.shape)
            given = _elements_of_view(digits, source, constant) if numbers is constant else digits
            made = packing.pack(given).astype(numpy.float64)
            if not (made >= 0).all() or not (made < base).all():
                return None
            places += made.astype(numpy.int64) * factor
            factor *= base
    places -= 1
    if places.max(initial=-1) >= numbers.size:
        return None
    again = numpy.where(places < 0, 0, numbers.reshape(-1)[places]).astype(packed.dtype)
    return Origin(constant, numbers, places) if again.tobytes() == packed.tobytes() else None


def _is_view_of_memory(array: Array, constant: Array) -> bool:
    """Returns whether an array is a view of a constant's memory."""
    if not constant.flags.c_contiguous or array.dtype != constant.dtype or not array.size:
        return False
    return numpy.may_share_memory(array, constant)


def _elements_of_view(digits: Array, view: Array, constant: Array) -> Array:
    """The elements of `digits` that `view` is of `constant`."""
    offset = view.__array_interface__["data"][0] - constant.__array_interface__["data"][0]
    flat = digits.reshape(-1)[offset // constant.itemsize :]
    return numpy.lib.stride_tricks.as_strided(flat, view.shape, view.strides)


def view_of(places: Array, shape: Sequence[int]) -> StoredView | None:
    """Returns the view of a constant of this shape that has these places; None if there is none. -1: a zero."""
    known, axes = places >= 0, range(places.ndim)
    # Where the fewest are zeros: phases of a transposed convolution lack some of the window's elements.
    start = tuple(int(known.sum(tuple(other for other in axes if other != axis)).argmax()) for axis in axes)
    lines = [
        places[tuple(slice(None) if other == axis else at for other, at in enumerate(start))]
        for axis in axes
    ]
    base = int(places[start])
    if base < 0:
        return None
    tables = [numpy.where(line < 0, ZERO, line - (base if axis else 0)) for axis, line in enumerate(lines)]
    limits, counts = [], []
    # Zeros past the end of the constant's axes, of which several axes of the packed weights have a part.
    for size, first, *found in zip(shape, numpy.unravel_index(base, shape), *(
        numpy.unravel_index(numpy.maximum(line, 0), shape) for line in lines
    ), strict=True):
        along = [numpy.where(line < 0, 0, each - (first if axis else 0))
                 for axis, (line, each) in enumerate(zip(lines, found, strict=True))]
        if sum(int(each.max()) for each in along) >= size:
            limits.append(size)
            counts.append(along)
    view = StoredView(tables, limits, counts)
    return view if numpy.array_equal(numpy.maximum(view.places(), -1), places) else None
