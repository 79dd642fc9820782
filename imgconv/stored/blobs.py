"""Arrays in a compiled file: each is a blob, and a table of the file has its dtype, shape and number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy

from imgconv.arrays import Array
from imgconv.errors import ModelError
from imgconv.files.disk_cache import hash_of
from imgconv.kernels.winograd.taps import WINDOW, winograd_taps

ZERO = -(1 << 62)
TILES = (0, 2, 4)  # by the number of `taps` in model.fbs: outputs of a tile in a row
LEAST = -(1 << 48)  # of a place; sums with a ZERO are less
MOST_PADS = 64  # elements of a view for each of its blob
# The content of a blob by its number, checked.
ReadBlob = Callable[[int], bytes]
# The array of an Array table.
ReadArray = Callable[[Any], Array]


@dataclass(frozen=True, eq=False)
class StoredView:
    """An array whose elements are those of another one, or 0.

    Element (i, j, ...) is number tables[0][i] + tables[1][j] + ... of the other. It is 0 if one of these is ZERO, or if
    counts[n][0][i] + counts[n][1][j] + ... is limits[n] or more, for any n.
    tile: if it is not 0, the other array is not the stored one, but the taps of its 3x3 windows, see winograd_taps.
    """

    tables: Sequence[Array]
    limits: Sequence[int]
    counts: Sequence[Sequence[Array]]
    tile: int = 0

    def places(self) -> Array:
        """The places of all elements; less than LEAST for those that are 0."""
        places = _outer_sums([numpy.maximum(table, 2 * LEAST) for table in self.tables])
        for limit, counts in zip(self.limits, self.counts, strict=True):
            places = numpy.where(_outer_sums(counts) >= limit, 2 * LEAST, places)
        return places


def _outer_sums(tables: Sequence[Array]) -> Array:
    total: Array = numpy.zeros((), numpy.int64)
    for axis, table in enumerate(tables):
        total = total + _broadcast_along(table, axis, len(tables))
    return total


def _broadcast_along(table: Array, axis: int, rank: int) -> Array:
    return table.reshape([-1 if other == axis else 1 for other in range(rank)])


class BlobWriter:
    """Numbers blobs in the order in which they are added. Arrays of the same bytes are one blob."""

    def __init__(self) -> None:
        self.parts: list[bytes | memoryview] = []
        self._numbers: dict[bytes, int] = {}
        self._views: dict[tuple[bytes, tuple[int, ...]], tuple[Array, StoredView]] = {}  # by content and shape
        self._rounded: dict[bytes, Array] = {}

    @property
    def has_views(self) -> bool:
        """Returns whether arrays may be views of others, or halves."""
        return bool(self._views or self._rounded)

    @property
    def largest_tile(self) -> int:
        """The largest tile of whose taps arrays may be made; 0 if there are none."""
        return max((view.tile for _, view in self._views.values()), default=0)

    def add(self, content: bytes | memoryview) -> int:
        """The number of a new blob."""
        self.parts.append(content)
        return len(self.parts) - 1

    def add_rounded(self, constant: Array, rounded: Array) -> None:
        """Lets an array be stored as these halves where that is asked for."""
        self._rounded[content_hash(constant)] = rounded

    def add_view(self, array: Array, home: Array, view: StoredView) -> None:
        """Lets an array be stored as a view of another one."""
        key = content_hash(array)
        if key != content_hash(home):
            self._views.setdefault((key, array.shape), (home, view))

    def array(self, array: Array, rounded: bool = False) -> dict[str, Any]:
        """The values of an Array table. rounded: see add_rounded."""
        key = content_hash(array)
        about = {"dtype": str(array.dtype), "shape": array.shape}
        if rounded and key in self._rounded:
            halves = self._rounded[key]
            return self.whole(halves) | about | {"stored": str(halves.dtype)}
        home, view = self._views.get((key, array.shape), (None, None))
        if home is None or view is None or home.dtype != array.dtype:
            return self.whole(array)
        return self.whole(home) | about | {
            "tables": _joined([view.tables]), "limits": view.limits, "counts": _joined(view.counts),
            "taps": TILES.index(view.tile),
        }

    def whole(self, array: Array) -> dict[str, Any]:
        """The values of an Array table whose blob is the array's content."""
        key = content_hash(array)
        if key not in self._numbers:
            self._numbers[key] = self.add(_bytes_of(array))
        return {"dtype": str(array.dtype), "shape": array.shape, "blob": self._numbers[key]}


def content_hash(array: Array) -> bytes:
    """Returns a hash of the content of an array."""
    return hash_of(_bytes_of(array))


def _bytes_of(array: Array) -> memoryview:
    content = numpy.ascontiguousarray(array)
    content = content.astype(content.dtype.newbyteorder("<"), copy=False)
    return content.reshape(-1).view(numpy.uint8).data


def array_reader(blob: ReadBlob) -> ReadArray:
    """Returns `read_array` for the tables of one file: equal tables are one array, as the plans of a file have them."""
    made: dict[tuple[Any, ...], Array] = {}

    def read(table: Any) -> Array:
        view = table.tables, table.limits, table.counts, table.taps
        key = table.blob, table.dtype, table.stored, table.shape, *view
        if key not in made:
            made[key] = read_array(table, blob)
            made[key].flags.writeable = False
        return made[key]

    return read


def read_array(table: Any, blob: ReadBlob) -> Array:
    """The array of an Array table. Raises ModelError if its blob has another length, or its tables lead out of it."""
    content, dtype = blob(table.blob), numpy.dtype(table.dtype)
    stored = numpy.dtype(table.stored) if table.stored else dtype
    known = all(each.kind in "fiub" and each.isbuiltin == 1 for each in (dtype, stored))
    count, misfit = prod(table.shape), f"blob {table.blob} has {len(content)} bytes: {table.dtype} {list(table.shape)}"
    if not known or min(table.shape, default=0) < 0:
        raise ModelError(f"{misfit} does not fit")
    if table.taps >= len(TILES) or not len(table.tables) and (table.taps or count * stored.itemsize != len(content)):
        raise ModelError(f"{misfit} does not fit")
    if not len(table.tables):
        whole: Array = numpy.frombuffer(content, stored.newbyteorder("<")).reshape(table.shape)
        return whole if stored == dtype else whole.astype(dtype)
    elements = numpy.frombuffer(content[: len(content) // stored.itemsize * stored.itemsize], stored.newbyteorder("<"))
    if table.taps:
        windows = elements[: elements.size // WINDOW * WINDOW].reshape(-1, 3, 3)
        elements = winograd_taps(windows, TILES[table.taps]).reshape(-1)
    length = sum(table.shape)
    # Pads are a few times the weights; a made-up shape may be any.
    fits = len(table.tables) == length and len(table.counts) == length * len(table.limits)
    if not fits or count > MOST_PADS * elements.size:
        raise ModelError(f"{misfit} is not a view of it")
    counts = numpy.reshape(numpy.asarray(table.counts, numpy.int64), (len(table.limits), length))
    view = StoredView(_split(table.tables, table.shape), table.limits, [_split(each, table.shape) for each in counts])
    places = view.places()
    is_zero = places < LEAST
    if not numpy.array_equal(places < 0, is_zero) or places.max(initial=0) >= elements.size:
        raise ModelError(f"{misfit} leads out of it")
    made: Array = numpy.append(elements, elements.dtype.type(0))[numpy.where(is_zero, -1, places)].astype(dtype)
    return made


def _joined(tables: Sequence[Sequence[Array]]) -> Array:
    parts = [numpy.ravel(each) for axes in tables for each in axes]
    return numpy.concatenate([*parts, numpy.zeros(0)]).astype(numpy.int64)


def _split(joined: Any, shape: Sequence[int]) -> list[Array]:
    return numpy.split(numpy.asarray(joined, numpy.int64), numpy.cumsum(shape)[:-1])
