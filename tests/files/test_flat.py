"""FlatBuffers: what is packed is read, as flatc reads and writes it, and a made-up buffer is refused."""

from __future__ import annotations

import json
import random
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import flatbuffers
import pytest

from imgconv.files.flat import Schema, Table

TEXT = """
// A comment: table Wrong { x: bool; }
namespace test;
enum Color : uint8 { red, green, blue }
table Leaf { name: string; numbers: [int64]; weight: double = -1; on: bool = true; }
table Root {
  small: uint8; wide: uint64; below: int32 = -1; truth: bool; color: Color; leaf: Leaf;   // a comment
  leaves: [Leaf]; texts: [string]; flags: [bool]; colors: uint32;
}
root_type Root;
file_identifier "TEST";
"""
VALUES: dict[str, Any] = {
    "small": 200, "wide": 2**64 - 1, "below": -7, "truth": True, "color": "blue",
    "leaf": {"name": "näme", "numbers": [1, -(2**62)], "weight": 0.5, "on": False},
    "leaves": [{"name": "a"}, {}, {"name": "a", "weight": float("inf")}], "texts": ["", "x", "x"],
    "flags": [True, False],
}
# What `flatc --binary` (2.0.8) makes of {"small": 200, "texts": ["x"], "leaf": {"name": "n", "on": false}}.
BY_FLATC = bytes.fromhex(
    "1c000000544553541400100007000000000000000000080000000c0014000000000000c814000000240000000c000c00"
    "08000000000007000c0000000000000004000000010000006e00000001000000040000000100000078000000"
)


@pytest.fixture(scope="module")
def schema() -> Schema:
    return Schema.parse(TEXT)


def content(table: Table, schema: Schema, name: str) -> dict[str, Any]:
    """Every field of a table, and of the tables in it."""

    def plain(value: Any, type: str) -> Any:
        if isinstance(value, tuple):
            return [plain(each, type) for each in value]
        return content(value, schema, type) if isinstance(value, Table) else value

    return {field.name: plain(getattr(table, field.name), field.type) for field in schema.tables[name].values()}


def test_what_is_packed_is_read(schema: Schema) -> None:
    leaf = {"name": "", "numbers": [], "weight": -1.0, "on": True}
    empty = {
        "small": 0, "wide": 0, "below": -1, "truth": False, "color": "red", "leaf": None, "leaves": [], "texts": [],
        "flags": [], "colors": 0,
    }
    assert content(schema.read(schema.pack({})), schema, "Root") == empty
    expected = empty | VALUES | {"leaf": leaf | VALUES["leaf"], "leaves": [leaf | each for each in VALUES["leaves"]]}
    assert content(schema.read(schema.pack(VALUES)), schema, "Root") == expected


def test_as_flatc_has_it(schema: Schema, tmp_path: Path) -> None:
    flatc = shutil.which("flatc")
    if flatc is None:
        pytest.skip("flatc is not installed (Debian: flatbuffers-compiler); BY_FLATC has what it once wrote")
    fbs, binary = tmp_path / "t.fbs", tmp_path / "t.bin"
    fbs.write_text(TEXT)
    binary.write_bytes(schema.pack(VALUES))
    subprocess.run([flatc, "--json", "--strict-json", "-o", tmp_path, "--raw-binary", fbs, "--", binary], check=True)
    found = json.loads((tmp_path / "t.json").read_text().replace("inf", "Infinity"))
    assert found == VALUES
    (tmp_path / "t.json").write_text(json.dumps(VALUES | {"leaves": [{}]}))
    subprocess.run([flatc, "--binary", "-o", tmp_path, fbs, tmp_path / "t.json"], check=True)
    again = content(schema.read(binary.read_bytes()), schema, "Root")
    assert again == content(schema.read(schema.pack(VALUES | {"leaves": [{}]})), schema, "Root")


def test_what_flatc_wrote(schema: Schema) -> None:
    table = schema.read(BY_FLATC)
    assert (table.small, table.texts) == (200, ("x",))
    assert (table.leaf.name, table.leaf.on, table.leaf.weight) == ("n", False, -1)


def test_unknown_fields_and_names(schema: Schema) -> None:
    with pytest.raises(KeyError, match="other"):
        schema.pack({"other": 1})
    with pytest.raises(ValueError):
        schema.pack({"color": "purple"})
    with pytest.raises(AttributeError, match="other"):
        schema.read(schema.pack({})).other


def test_a_field_that_was_added_later(schema: Schema) -> None:
    """An older file has a newer field's default, and an older reader leaves a newer field out."""
    newer = Schema.parse(TEXT.replace("colors: uint32;", "colors: uint32; added: double = 2.5; more: [Leaf];"))
    assert newer.read(schema.pack(VALUES)).added == 2.5
    assert schema.read(newer.pack(VALUES | {"added": 1.0, "more": [{}]})).wide == 2**64 - 1


def test_made_up_buffers(schema: Schema) -> None:
    """Any bytes are read in bounded time, or refused."""
    good, generator = schema.pack(VALUES), random.Random(0)
    refused = 0
    for _ in range(3000):
        made = bytearray(good)
        for _ in range(generator.randrange(1, 6)):
            made[generator.choice([0, *range(8, len(made))])] = generator.choice([0, 1, 255, generator.randrange(256)])
        try:
            content(schema.read(bytes(made)), schema, "Root")
        except (ValueError, struct.error):
            refused += 1
    assert refused > 300
    for other in (b"", b"TEST", b"\4\0\0\0TEST", good[:40], good.replace(b"TEST", b"MISS")):
        with pytest.raises((ValueError, struct.error)):
            content(schema.read(other), schema, "Root")


def test_a_buffer_that_refers_to_one_table_from_everywhere_is_refused(schema: Schema) -> None:
    """A hundred kilobytes would be read as 600 million tables."""
    builder = flatbuffers.Builder(1 << 18)
    builder.StartObject(4)
    leaf = builder.EndObject()
    builder.StartVector(4, 25_000, 4)
    for _ in range(25_000):
        builder.PrependUOffsetTRelative(leaf)
    leaves = builder.EndVector()
    builder.StartObject(len(schema.tables["Root"]))
    builder.PrependUOffsetTRelativeSlot(schema.tables["Root"]["leaves"].slot, leaves, 0)
    builder.Finish(builder.EndObject(), schema.identifier)
    root = schema.read(bytes(builder.Output()))
    with pytest.raises(ValueError, match="its tables overlap"):
        root.leaves
