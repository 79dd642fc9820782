"""Arrays in a compiled file: each is a blob, and a table of the file has its dtype, shape and number."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy

from imgconv.arrays import Array
from imgconv.errors import ModelError
from imgconv.files.disk_cache import digest

# The content of a blob by its number, checked.
ReadBlob = Callable[[int], bytes]


class BlobWriter:
    """Numbers blobs in the order in which they are added. Arrays of the same bytes are one blob."""

    def __init__(self) -> None:
        self.parts: list[bytes | memoryview] = []
        self._numbers: dict[bytes, int] = {}

    def add(self, content: bytes | memoryview) -> int:
        """The number of a new blob."""
        self.parts.append(content)
        return len(self.parts) - 1

    def array(self, array: Array) -> dict[str, Any]:
        """The values of an Array table."""
        content = numpy.ascontiguousarray(array)
        content = content.astype(content.dtype.newbyteorder("<"), copy=False)
        data = content.reshape(-1).view(numpy.uint8).data
        key = digest(data)
        if key not in self._numbers:
            self._numbers[key] = self.add(data)
        return {"dtype": str(array.dtype), "shape": array.shape, "blob": self._numbers[key]}


def read_array(table: Any, blob: ReadBlob) -> Array:
    """The array of an Array table. Raises ModelError if its blob has another length."""
    content, dtype = blob(table.blob), numpy.dtype(table.dtype)
    known = dtype.kind in "fiub" and dtype.isbuiltin == 1 and min(table.shape, default=0) >= 0
    if not known or prod(table.shape) * dtype.itemsize != len(content):
        raise ModelError(f"blob {table.blob} has {len(content)} bytes: {table.dtype} {list(table.shape)} does not fit")
    array: Array = numpy.frombuffer(content, dtype.newbyteorder("<")).reshape(table.shape)
    return array
