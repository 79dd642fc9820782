"""One file of named sections, each with a checksum.

    offset 0    b"imgconv", 0
           8    version of the format, 4 bytes; length of the directory, 4 bytes (little endian)
          16    BLAKE2b of those 16 bytes and the directory, 32 bytes
          48    the directory: JSON, [[name, offset from its end, length, BLAKE2b in hex], ...]
          ...   the sections, each at a multiple of 64 bytes

Opening a file reads its directory only; each section is read and checked at its first use. The checksums find damage.
They do not show who wrote the file.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Union

from imgconv.errors import ModelError
from imgconv.files.disk import check_regular, written_whole

MAGIC = b"imgconv\0"
VERSION = 1
HEAD = 16
DIGEST = 32
ALIGNMENT = 64

Section = Sequence[Union[bytes, memoryview]]


def is_archive(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins like an archive; False if there is no file."""
    try:
        check_regular(path)
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def write_archive(path: str | os.PathLike[str], sections: Mapping[str, Section]) -> None:
    """Writes a file of these sections, whole or not at all. Raises InputError if it cannot be written.

    write_archive("model.imgconv", {"about": [b"{}"]})
    Archive("model.imgconv").section("about")       # b"{}"
    """
    entries, offset = [], 0
    for name, parts in sections.items():
        length = sum(len(part) for part in parts)
        entries.append([name, offset, length, _digest(parts).hex()])
        offset = _aligned(offset + length)
    directory = json.dumps(entries).encode()
    directory += b" " * (_aligned(HEAD + DIGEST + len(directory)) - HEAD - DIGEST - len(directory))
    head = MAGIC + VERSION.to_bytes(4, "little") + len(directory).to_bytes(4, "little")
    with written_whole(path) as file:
        for part in (head, _digest([head, directory]), directory, *_padded(sections.values())):
            file.write(part)


class Archive:
    """An opened archive. Every problem with the file is a ModelError that names it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Reads and checks the directory."""
        self.path = Path(path)
        head = self._read(0, HEAD + DIGEST)
        if head[: len(MAGIC)] != MAGIC:
            raise self._error("this is not a compiled imgconv model")
        version = int.from_bytes(head[8:12], "little")
        if version != VERSION:
            raise self._error(f"it has version {version} of the format, this imgconv reads {VERSION}: compile it again")
        directory = self._read(HEAD + DIGEST, int.from_bytes(head[12:16], "little"))
        if _digest([head[:HEAD], directory]) != head[HEAD:]:
            raise self._damaged("its directory")
        self._start = HEAD + DIGEST + len(directory)
        self._entries = {name: (offset, length, digest) for name, offset, length, digest in json.loads(directory)}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._entries)

    def section(self, name: str) -> bytes:
        """A section's content, checked. Raises ModelError if it is damaged or missing."""
        if name not in self._entries:
            raise self._error(f"it has no section {name!r}: compile it again")
        offset, length, digest = self._entries[name]
        content = self._read(self._start + offset, length)
        if _digest([content]).hex() != digest:
            raise self._damaged(f"section {name!r}")
        return content

    def _read(self, offset: int, length: int) -> bytes:
        try:
            check_regular(self.path)
            if offset + length > self.path.stat().st_size:
                raise self._error("the file is shorter than it says: it was cut off. Compile it again")
            with self.path.open("rb") as file:
                file.seek(offset)
                return file.read(length)
        except OSError as error:
            raise self._error(f"cannot read the file: {error.strerror or error}") from error

    def _damaged(self, what: str) -> ModelError:
        return self._error(f"{what} is damaged: its checksum does not match. Compile it again")

    def _error(self, message: str) -> ModelError:
        return ModelError(message, file=str(self.path))


def _digest(parts: Section) -> bytes:
    digest = hashlib.blake2b(digest_size=DIGEST)
    for part in parts:
        digest.update(part)
    return digest.digest()


def _aligned(length: int) -> int:
    return -(-length // ALIGNMENT) * ALIGNMENT


def _padded(sections: Iterable[Section]) -> Iterator[bytes | memoryview]:
    for parts in sections:
        yield from parts
        length = sum(len(part) for part in parts)
        yield bytes(_aligned(length) - length)
