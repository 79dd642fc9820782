"""Arrays in a compiled file: each is a blob, and a table of the file has its dtype, shape and number."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy

from imgconv.arrays import Array
from imgconv.errors import ModelError

# The content of a blob by its number, checked.
ReadBlob = Callable[[int], bytes]


class BlobWriter:
    """Numbers blobs in the order in which they are added. An array that is added twice is one blob."""

    def __init__(self) -> None:
        self.parts: list[bytes | memoryview] = []
        self._numbers: dict[int, int] = {}
        self._kept: list[Array] = []

    def add(self, content: bytes | memoryview) -> int:
        """The number of a new blob."""
        self.parts.append(content)
        return len(self.parts) - 1

    def array(self, array: Array) -> dict[str, Any]:
        """The values of an Array table."""
        if id(array) not in self._numbers:
            content = numpy.ascontiguousarray(array)
            content = content.astype(content.dtype.newbyteorder("<"), copy=False)
            self._numbers[id(array)] = self.add(content.reshape(-1).view(numpy.uint8).data)
            self._kept.append(array)  # its id stays valid
        return {"dtype": str(array.dtype), "shape": array.shape, "blob": self._numbers[id(array)]}


def read_array(table: Any, blob: ReadBlob) -> Array:
    """The array of an Array table. Raises ModelError if its blob has another length."""
    content, dtype = blob(table.blob), numpy.dtype(table.dtype)
    known = dtype.kind in "fiub" and dtype.isbuiltin == 1 and min(table.shape, default=0) >= 0
    if not known or prod(table.shape) * dtype.itemsize != len(content):
        raise ModelError(f"blob {table.blob} has {len(content)} bytes: {table.dtype} {list(table.shape)} does not fit")
    array: Array = numpy.frombuffer(content, dtype.newbyteorder("<")).reshape(table.shape)
    return array
