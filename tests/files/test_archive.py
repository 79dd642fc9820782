"""Archives: what is written is read; what is damaged is refused, and named."""

from __future__ import annotations

from pathlib import Path

import pytest

from imgconv.errors import InputError, ModelError
from imgconv.files.archive import MAGIC, Archive, is_archive, write_archive

SECTIONS = {"empty": [], "one": [b"x" * 100], "two": [b"ab", memoryview(b"cde")], "aligned": [bytes(range(64))]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_archive(tmp_path / "a", SECTIONS)
    return tmp_path / "a"


def test_sections(path: Path) -> None:
    archive = Archive(path)
    assert archive.names == tuple(SECTIONS)
    assert [archive.section(name) for name in SECTIONS] == [b"", b"x" * 100, b"abcde", bytes(range(64))]
    with pytest.raises(ModelError, match=r"file '.*a': it has no section 'three'"):
        archive.section("three")


def test_sections_are_aligned(path: Path) -> None:
    content = path.read_bytes()
    assert len(content) % 64 == content.index(bytes(range(64))) % 64 == content.index(b"abcde") % 64 == 0


def test_every_byte_counts(path: Path) -> None:
    """A flipped byte is found, or lies in the zeros between sections."""
    content = path.read_bytes()
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0x41]) + content[at + 1 :])
        try:
            archive = Archive(path)
            found = {name: archive.section(name) for name in archive.names}
            assert found == {name: b"".join(parts) for name, parts in SECTIONS.items()}
            assert content[at] == 0
        except ModelError as error:
            assert str(path) in str(error)


def test_every_length(path: Path) -> None:
    content = path.read_bytes()
    last = content.rstrip(b"\0")
    for length in range(len(last)):
        path.write_bytes(content[:length])
        with pytest.raises(ModelError, match="cut off|not a compiled"):
            [Archive(path).section(name) for name in SECTIONS]


def test_another_version(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[8] = 99
    path.write_bytes(content)
    with pytest.raises(ModelError, match="version 99 of the format, this imgconv reads 1: compile it again"):
        Archive(path)


def test_what_is_an_archive(path: Path, tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(MAGIC[:-1])
    assert is_archive(path)
    assert not is_archive(tmp_path / "b")
    assert not is_archive(tmp_path / "none")
    assert not is_archive(tmp_path)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot write .*No such file"):
        write_archive(tmp_path / "none" / "a", SECTIONS)
