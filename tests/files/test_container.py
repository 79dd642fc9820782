"""Containers: what is written is read; what is damaged is refused, and named."""

from __future__ import annotations

import random
import struct
import zlib
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from imgconv.errors import InputError, ModelError
from imgconv.files.container import (
    MAGIC, MOST_COMPRESSED, Blob, ContainerFile, is_container, packed_blobs, write_container,
)

HEAD = bytes(range(70))
BLOBS = [b"", b"x" * 100, memoryview(b"abcde"), bytes(range(64))]
PACKED, PLACES = packed_blobs(BLOBS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_container(tmp_path / "a", HEAD, PACKED)
    return tmp_path / "a"


def contents(path: Path) -> tuple[bytes, list[bytes]]:
    container = ContainerFile(path)
    return container.head, [container.blob(place) for place in PLACES]


def test_what_is_written_is_read(path: Path) -> None:
    assert contents(path) == (HEAD, list(map(bytes, BLOBS)))


def test_everything_is_aligned(path: Path) -> None:
    write_container(path, HEAD, BLOBS)
    content = path.read_bytes()
    assert content[64:72] == len(HEAD).to_bytes(8, "little")
    assert len(content) % 64 == content.index(b"x" * 100) % 64 == content.index(b"abc") % 64
    assert content.rindex(bytes(range(64))) % 64 == len(content) % 64 == 0


def test_heads_of_all_kinds(tmp_path: Path) -> None:
    """Also an empty one, and one that repeats at a distance of megabytes."""
    far = random.Random(0).randbytes(3 << 20)
    for number, head in enumerate((b"", b"a", far + far, bytes(1 << 20))):
        write_container(tmp_path / "a", head, [])
        assert ContainerFile(tmp_path / "a").head == head
        assert (tmp_path / "a").stat().st_size < (200, 200, 3.3e6, 2000)[number]


def test_a_head_as_version_2_has_it(path: Path) -> None:
    """It is not compressed."""
    start = MAGIC + struct.pack("<IIQ", 2, zlib.crc32(HEAD), len(HEAD))
    blobs = ContainerFile(path).blob(PLACES[1])
    path.write_bytes(start.ljust(64, b"\0") + HEAD.ljust(128, b"\0") + blobs)
    container = ContainerFile(path)
    assert container.head == HEAD and container.blob(Blob(0, 100, zlib.crc32(blobs))) == blobs


@pytest.mark.parametrize("length", [0, 69, 71, 1 << 28, (1 << 28) + 1, 1 << 63])
def test_a_head_that_is_not_as_long_as_it_says(path: Path, length: int) -> None:
    """Its checksum is right. What it would be is not asked for, beyond 256 MB."""
    content = bytearray(path.read_bytes())
    stored = struct.unpack_from("<Q", content, 16)[0]
    struct.pack_into("<Q", content, 64, length)
    struct.pack_into("<I", content, 12, zlib.crc32(content[64 : 64 + stored]))
    path.write_bytes(content)
    refused = pytest.raises(ModelError, match="its head is not as long as it says|cannot be decompressed")
    with nullcontext() if length < len(HEAD) else refused:
        assert ContainerFile(path).head == HEAD[:length]


def test_small_files_are_compressed(tmp_path: Path) -> None:
    """Blobs are compressed if that makes them shorter and all of them together are small."""
    random_bytes, zeros = random.Random(0).randbytes(1000), bytes(1000)
    assert [place.content_bytes for place in PLACES] == [0, 100, 0, 0]
    packed, places = packed_blobs([zeros, random_bytes, zeros])
    assert [place.content_bytes for place in places] == [1000, 0, 1000] and len(packed[0]) < 30
    write_container(tmp_path / "a", HEAD, packed)
    assert [ContainerFile(tmp_path / "a").blob(place) for place in places] == [zeros, random_bytes, zeros]
    half = bytes(MOST_COMPRESSED // 2)
    assert sum(map(len, packed_blobs([half, half])[0])) < 1000
    packed, places = packed_blobs([half, half, b"a"])
    assert packed == [half, half, b"a"] and not any(place.content_bytes for place in places)


@pytest.mark.parametrize("length", [101, MOST_COMPRESSED, MOST_COMPRESSED + 1, 1 << 63])
def test_a_blob_that_is_not_as_long_as_it_says(path: Path, length: int) -> None:
    made_up = replace(PLACES[1], content_bytes=length)
    with pytest.raises(ModelError, match="blob at .* is not as long as it says"):
        ContainerFile(path).blob(made_up)


def test_every_byte_counts(path: Path) -> None:
    """A flipped byte is found, or lies in the zeros between head and blobs."""
    content = path.read_bytes()
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0x41]) + content[at + 1 :])
        try:
            assert contents(path) == (HEAD, list(map(bytes, BLOBS)))
            assert content[at] == 0
        except ModelError as error:
            assert str(path) in str(error)


def test_every_length(path: Path) -> None:
    content = path.read_bytes()
    last = content.rstrip(b"\0")
    for length in range(len(last)):
        path.write_bytes(content[:length])
        with pytest.raises(ModelError, match="cut off|not a compiled"):
            contents(path)


def test_another_version(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[8] = 99
    path.write_bytes(content)
    with pytest.raises(ModelError, match="version 99 of the format, this imgconv reads 3: compile it again"):
        ContainerFile(path)


def test_what_is_a_container(path: Path, tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(MAGIC[:-1])
    assert is_container(path)
    assert not is_container(tmp_path / "b")
    assert not is_container(tmp_path / "none")
    assert not is_container(tmp_path)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot write .*No such file"):
        write_container(tmp_path / "none" / "a", HEAD, BLOBS)
