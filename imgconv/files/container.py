"""The container format of compiled files: a head, which is read at once, and blobs, which are read on demand.

    offset 0    b"imgconv", 0
           8    VERSION, 4 bytes; CRC-32 of the stored head, 4 bytes; its length, 8 bytes (little endian)
          24    zeros, to 64
          64    the stored head: its length when decompressed, 8 bytes, and a raw LZMA stream of FILTERS
          ...   the blobs, each at a multiple of 64 bytes, the first one after the head; `packed_blobs` compresses them

Files of version PLAIN store the head uncompressed.

All parts have checksums. They detect corruption; they do not prove who wrote the file.
"""

from __future__ import annotations

import lzma
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Union
from zlib import crc32

from imgconv.errors import ModelError
from imgconv.files.disk import check_regular, atomic_write

MAGIC = b"imgconv\0"
PLAIN, VERSION = 2, 3
START, LENGTH = struct.Struct("<8sIIQ"), struct.Struct("<Q")
ALIGNMENT = 64
LARGEST_HEAD = 1 << 28  # bytes; a small file may claim any length
MOST_COMPRESSED = 1 << 19  # bytes of all blobs of a file that are compressed: decoding takes a CPU about 35 ms
# Texts of kernels, which heads consist of mostly, repeat at distances of megabytes.
FILTERS = ({"id": lzma.FILTER_LZMA1, "dict_size": 1 << 24, "lc": 3, "lp": 0, "pb": 2},)

BlobContent = Union[bytes, memoryview]


@dataclass(frozen=True)
class Blob:
    """The place of a blob: its offset from the start of the first blob, its length in bytes, and its CRC-32.

    content_bytes: the length of its content if it is stored as a raw LZMA stream of FILTERS; else 0.
    """

    offset: int
    bytes: int
    checksum: int
    content_bytes: int = 0


def is_container(path: str | os.PathLike[str]) -> bool:
    """Returns whether a file begins like a container; False if there is no file."""
    try:
        check_regular(path)
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def packed_blobs(blobs: Sequence[BlobContent]) -> tuple[Sequence[BlobContent], list[Blob]]:
    """Returns the blobs as `write_container` takes them, and the place of each.

    The blobs of a small file are compressed, except those that this makes no shorter.
    """
    packed = list(blobs)
    if sum(map(len, blobs)) <= MOST_COMPRESSED:
        packed = [min(blob, _compressed(blob, MOST_COMPRESSED), key=len) for blob in blobs]
    places, offset = [], 0
    for blob, stored in zip(blobs, packed, strict=True):
        places.append(Blob(offset, len(stored), crc32(stored), 0 if stored is blob else len(blob)))
        offset += _aligned(len(stored))
    return packed, places


def write_container(path: str | os.PathLike[str], head: bytes, blobs: Sequence[BlobContent]) -> None:
    """Writes a file, whole or not at all. Raises InputError if it cannot be written.

    write_container("model.imgconv", b"head", [b"weights"])
    """
    stored = LENGTH.pack(len(head)) + _compressed(head)
    start = START.pack(MAGIC, VERSION, crc32(stored), len(stored)).ljust(ALIGNMENT, b"\0")
    with atomic_write(path) as file:
        for part in (start, stored, *blobs):
            file.write(part)
            file.write(bytes(_aligned(len(part)) - len(part)))


class ContainerFile:
    """An opened file; `head` was read and checked. Every problem with the file is a ModelError that names it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        magic, version, checksum, self._stored = START.unpack(self._read(0, START.size))
        if magic != MAGIC:
            raise self.error("this is not a compiled imgconv model")
        if version not in (PLAIN, VERSION):
            raise self.error(f"it has version {version} of the format, this imgconv reads {VERSION}: compile it again")
        stored = self._read(ALIGNMENT, self._stored)
        if crc32(stored) != checksum:
            raise self.error("its header is corrupt: the checksum differs. Compile the model again")
        self.head = stored if version == PLAIN else self._read_head(stored)

    def blob(self, place: Blob) -> bytes:
        """A blob's content, checked. Raises ModelError if it is damaged."""
        start = ALIGNMENT + _aligned(self._stored) + place.offset
        stored = self._read(start, place.bytes)
        if crc32(stored) != place.checksum:
            raise self.error(f"the {place.bytes} bytes at {start} are corrupt: the checksum differs. Compile it again")
        if not place.content_bytes:
            return stored
        return self._decompressed(f"the blob at {start}", stored, place.content_bytes, MOST_COMPRESSED)

    def _read_head(self, stored: bytes) -> bytes:
        if len(stored) < LENGTH.size:
            raise self.error("its head is not as long as it says. Compile it again")
        (length,) = LENGTH.unpack_from(stored)
        return self._decompressed("its head", stored[LENGTH.size :], length, LARGEST_HEAD)

    def _decompressed(self, what: str, stored: bytes, length: int, most: int) -> bytes:
        try:
            decoder = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=FILTERS)
            content = decoder.decompress(stored, length) if length <= most else b""
        except (lzma.LZMAError, EOFError) as error:
            raise self.error(f"{what} cannot be decompressed: {error}. Compile it again") from error
        if len(content) != length:
            raise self.error(f"{what} is not as long as it says. Compile it again")
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


def _compressed(content: BlobContent, dictionary: int = FILTERS[0]["dict_size"]) -> bytes:
    """A stream that decoders with FILTERS read. A smaller dictionary takes less time to set up."""
    return lzma.compress(content, lzma.FORMAT_RAW, filters=({**FILTERS[0], "dict_size": dictionary},))


def _aligned(length: int) -> int:
    return -(-length // ALIGNMENT) * ALIGNMENT
