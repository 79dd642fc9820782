"""One file of a head, which is read at once, and of blobs, which are read when asked for; all with checksums.

    offset 0    b"imgconv", 0
           8    VERSION, 4 bytes; CRC-32 of the head, 4 bytes; length of the head, 8 bytes (little endian)
          24    zeros, to 64
          64    the head
          ...   the blobs, each at a multiple of 64 bytes, the first one after the head

The checksums find damage. They do not show who wrote the file.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Union
from zlib import crc32

from imgconv.errors import ModelError
from imgconv.files.disk import check_regular, written_whole

MAGIC = b"imgconv\0"
VERSION = 2
START = struct.Struct("<8sIIQ")
ALIGNMENT = 64

Content = Union[bytes, memoryview]


@dataclass(frozen=True)
class Blob:
    """The place of a blob: its offset from the start of the first blob, its length in bytes, and its CRC-32."""

    offset: int
    bytes: int
    checksum: int


def is_container(path: str | os.PathLike[str]) -> bool:
    """Returns whether a file begins like a container; False if there is no file."""
    try:
        check_regular(path)
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def places_of(blobs: Sequence[Content]) -> list[Blob]:
    """Returns the places at which `write_container` puts blobs."""
    made, offset = [], 0
    for blob in blobs:
        made.append(Blob(offset, len(blob), crc32(blob)))
        offset += _aligned(len(blob))
    return made


def write_container(path: str | os.PathLike[str], head: bytes, blobs: Sequence[Content]) -> None:
    """Writes a file, whole or not at all. Raises InputError if it cannot be written.

    write_container("model.imgconv", b"head", [b"weights"])
    """
    start = START.pack(MAGIC, VERSION, crc32(head), len(head)).ljust(ALIGNMENT, b"\0")
    with written_whole(path) as file:
        for part in (start, head, *blobs):
            file.write(part)
            file.write(bytes(_aligned(len(part)) - len(part)))


class Container:
    """An opened file; `head` was read and checked. Every problem with the file is a ModelError that names it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        magic, version, checksum, length = START.unpack(self._read(0, START.size))
        if magic != MAGIC:
            raise self.error("this is not a compiled imgconv model")
        if version != VERSION:
            raise self.error(f"it has version {version} of the format, this imgconv reads {VERSION}: compile it again")
        self.head = self._read(ALIGNMENT, length)
        if crc32(self.head) != checksum:
            raise self.error("its head is damaged: the checksum does not match. Compile it again")

    def blob(self, place: Blob) -> bytes:
        """A blob's content, checked. Raises ModelError if it is damaged."""
        start = ALIGNMENT + _aligned(len(self.head)) + place.offset
        content = self._read(start, place.bytes)
        if crc32(content) != place.checksum:
            raise self.error(f"the {place.bytes} bytes at {start} are damaged: the checksum differs. Compile it again")
        return content

    def error(self, message: str) -> ModelError:
        """A ModelError that names the file."""
        return ModelError(message, file=str(self.path))

    def _read(self, offset: int, length: int) -> bytes:
        try:
            check_regular(self.path)
            if offset + length > self.path.stat().st_size:
                raise self.error("the file is shorter than it says: it was cut off. Compile it again")
            with self.path.open("rb") as file:
                file.seek(offset)
                return file.read(length)
        except OSError as error:
            raise self.error(f"cannot read the file: {error.strerror or error}") from error


def _aligned(length: int) -> int:
    return -(-length // ALIGNMENT) * ALIGNMENT
