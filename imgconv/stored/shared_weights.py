"""Weights that a file stores once: the graph's constants, and the packed weights of plans as views of them.

Packing moves numbers and adds zeros. So packed weights are stored as a view of the constant, see View in blobs.py. If
all plans keep a constant as halves, so does the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy

from imgconv.arrays import Array
from imgconv.compiling.emit import ConstantContent, WeightPacking
from imgconv.compiling.plan import Plan, Storage
from imgconv.stored.blobs import ZERO, BlobWriter, StoredView, key_of

SMALL = 256  # bytes of arrays that are stored as they are


def share_weights(blobs: BlobWriter, plans: Sequence[tuple[Plan, Mapping[str, Array]]]) -> None:
    """Makes the weights that plans pack views of the constants of their graphs, which come with each plan."""
    traced: list[tuple[Array, Array, Array]] = []  # packed, its constant, and the places of its numbers in there
    for plan, constants in plans:
        for constant in constants.values():
            if constant.dtype == numpy.float16:
                blobs.add_rounded(constant.astype(numpy.float32), constant)  # of plain forms
        for storage, packed in plan.content.items():
            found = _trace(plan, storage, constants)
            if found is not None:
                traced.append((packed, constants[found[0]], found[1]))
    widest: dict[bytes, int] = {}
    for packed, constant, _ in traced:
        key = key_of(constant)
        widest[key] = max(widest.get(key, 0), packed.itemsize)
    for packed, constant, places in traced:
        stored = constant
        if constant.dtype == numpy.float32 and widest[key_of(constant)] == 2:
            stored = constant.astype(numpy.float16)
            blobs.add_rounded(constant, stored)
        view = view_of(places, constant.shape)
        if view is not None and stored.dtype == packed.dtype:
            blobs.add_view(packed, stored, view)


def _trace(plan: Plan, storage: Storage, constants: Mapping[str, Array]) -> tuple[str, Array] | None:
    """The `origins` of a storage's content; None if it is not known how it was made."""
    if not isinstance(plan.content, ConstantContent) or plan.content[storage].nbytes <= SMALL:
        return None
    return origins(plan.content.packing(storage), plan.content[storage], constants)


def origins(packing: WeightPacking, packed: Array, constants: Mapping[str, Array]) -> tuple[str, Array] | None:
    """Returns the constant whose numbers are packed, and for each packed number its place in there, -1 for a zero.

    None if they are no numbers of one constant: sums, as Winograd's, or of an array that was changed before.
    """
    found = next((n for n, each in constants.items() if each.nbytes > SMALL and _reads(packing.source, each)), None)
    if found is None:
        return None
    constant = constants[found]
    base = 64 if packed.dtype.itemsize == 1 else 1024  # exact in a half
    numbers = numpy.arange(1, constant.size + 1)
    places = numpy.zeros(packed.shape, numpy.int64)
    factor = 1
    with numpy.errstate(all="ignore"):
        while factor <= constant.size:
            digits = (numbers // factor % base).astype(constant.dtype).reshape(constant.shape)
            made = packing.pack(_view_of(digits, packing.source, constant)).astype(numpy.float64)
            if not (made >= 0).all() or not (made < base).all():
                return None
            places += made.astype(numpy.int64) * factor
            factor *= base
    places -= 1
    if places.max(initial=-1) >= constant.size:
        return None
    again = numpy.where(places < 0, 0, constant.reshape(-1)[places]).astype(packed.dtype)
    return (found, places) if again.tobytes() == packed.tobytes() else None


def _reads(array: Array, constant: Array) -> bool:
    """Returns whether an array is a view of a constant's memory."""
    if not constant.flags.c_contiguous or array.dtype != constant.dtype or not array.size:
        return False
    return numpy.may_share_memory(array, constant)


def _view_of(digits: Array, view: Array, constant: Array) -> Array:
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
