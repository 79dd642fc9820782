"""Dataclasses through a schema of their own: what is written is read, and what the schema lacks is said at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Union

import numpy
import pytest

from imgconv.files.flat import Schema
from imgconv.stored.blobs import BlobWriter
from imgconv.stored.codec import APART, MERGED, Codec, Coder, TableReader, TableWriter

SCHEMA = Schema.parse("""
table Text { name: string; text: string; }
enum PartKind : uint8 { size, leaf, sum }
table Part { kind: PartKind; width: uint32; height: uint32; letter: string; parts: [uint32]; }
table Piece { name: string; width: uint32; height: uint32; }
table Whole {
  title: string; at: [int64]; pair: [int64]; scale: double; texts: [Text]; pieces: [Piece]; only: Part;
  way: string; limit: int32 = -1; label: string; width: uint32; height: uint32; parts: [Part]; top: uint32;
}
root_type Whole;
file_identifier "TEST";
""")


@dataclass(frozen=True)
class Size:
    width: int
    height: int


@dataclass(frozen=True)
class Leaf:
    letter: str


@dataclass(frozen=True)
class Sum:
    parts: tuple[Tree, ...]


Tree = Union[Leaf, Sum]


@dataclass(frozen=True)
class Whole:
    title: str
    at: tuple[int, ...]
    pair: tuple[int, int]
    scale: float
    texts: Mapping[str, str]
    pieces: Mapping[str, Size]
    only: Size | Leaf | None
    way: Literal["up", "down"]
    limit: int | None
    name: str | None
    size: Size
    top: Tree
    cache: object = field(default=None, compare=False)


COLUMNS = {(Whole, "name"): "label", (Whole, "size"): MERGED, (Whole, "cache"): APART}
SHARED = Sum((Leaf("a"), Leaf("b")))
FULL = Whole(
    "t", (1, 2, 3), (4, 5), 2, {"x": "y"}, {"p": Size(1, 2), "q": Size(3, 4)}, Leaf("c"), "down", 7, "n", Size(8, 9),
    Sum((SHARED, Leaf("a"), SHARED)), "not stored",
)
EMPTY = Whole("", (), (0, 0), 0.0, {}, {}, None, "up", None, None, Size(0, 0), Leaf(""))


def codec_of(columns: Mapping[tuple[type, str], str] = COLUMNS, **checks: Any) -> Codec:
    return Codec(SCHEMA, columns, {}, {Tree: "Part"}, {Size: checks.get("size", lambda size: True)})


def packed(value: Whole) -> dict[str, Any]:
    writer = TableWriter(codec_of(), BlobWriter())
    values = writer.values(Whole, "Whole", value)
    return values | {"parts": writer.entries[Tree]}


def read(values: dict[str, Any], codec: Codec) -> Any:
    table = SCHEMA.read(SCHEMA.pack(values))
    reader = TableReader(codec, lambda number: b"")
    reader.read_pool(Tree, table.parts)
    return reader.value(Whole, "Whole", table)


@pytest.mark.parametrize("value", [FULL, EMPTY], ids=["full", "empty"])
def test_what_is_written_is_read(value: Whole) -> None:
    found = read(packed(value), codec_of())
    assert found == value and found.cache is None and type(found.scale) is float


def test_equal_parts_are_stored_once_and_inner_ones_first() -> None:
    values = packed(FULL)
    assert [part["kind"] for part in values["parts"]] == ["leaf", "leaf", "sum", "sum"]
    assert values["parts"][3]["parts"] == [2, 0, 2] and values["top"] == 3


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [("way", "left", "way is 'left'"), ("pair", [1, 2, 3], "pair has 3 numbers"), ("top", 4, "4 is not one of the 4")],
)
def test_what_no_dataclass_holds_is_refused(column: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(packed(FULL) | {column: value}, codec_of())


def test_an_entry_refers_to_lower_numbers_only() -> None:
    values = packed(FULL)
    values["parts"][2]["parts"] = [2]
    with pytest.raises(ValueError, match="2 is not one of the 2 entries before it"):
        read(values, codec_of())


def test_checks_see_every_value_of_their_class() -> None:
    with pytest.raises(ValueError, match="a Size that no imgconv writes"):
        read(packed(FULL), codec_of(size=lambda size: size.width < 8))
    assert read(packed(FULL), codec_of(size=lambda size: size.width < 9)) == FULL


def test_a_field_without_a_column_is_named() -> None:
    with pytest.raises(KeyError, match="size"):
        codec_of({(Whole, "name"): "label"}).rows(Whole, "Whole")


def test_a_type_may_have_a_way_of_its_own() -> None:
    doubled = Coder(lambda writer, text: text * 2, lambda reader, text: text[: len(text) // 2])
    codec = Codec(SCHEMA, {}, {str: doubled}, {}, {})
    assert TableWriter(codec, BlobWriter()).values(Leaf, "Part", Leaf("ab")) == {"letter": "abab"}
    table = SCHEMA.read(SCHEMA.pack({"only": {"letter": "abab"}})).only
    assert TableReader(codec, lambda number: b"").value(Leaf, "Part", table) == Leaf("ab")


def test_numbers_of_numpy_are_stored() -> None:
    sizes = Whole(**{**vars(FULL), "at": (numpy.int64(1), numpy.int32(2)), "limit": numpy.int64(3)})
    found = read(packed(sizes), codec_of())
    assert found.at == (1, 2) and found.limit == 3
