"""Reads and writes FlatBuffers by their schema file: packs tables of plain values, and reads tables on demand.

    schema = Schema.parse(Path("model.fbs").read_text())
    content = schema.pack({"needs": 1, "written_by": "0.1"})
    schema.read(content).needs          # 1

A schema may have tables, enums, vectors, defaults, a root type and an identifier. `flatc` reads and writes the same
bytes; "FlatBuffer Internals" on https://flatbuffers.dev describes them. This module exists because `flatc` generates
5,000 lines of Python for a schema of 30 tables.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy

# By the name of a scalar type: its struct format, which is also numpy's, and the class of flatbuffers.number_types.
SCALARS = {
    "bool": ("?", "BoolFlags"), "uint8": ("B", "Uint8Flags"),
    "int32": ("i", "Int32Flags"), "uint32": ("I", "Uint32Flags"),
    "int64": ("q", "Int64Flags"), "uint64": ("Q", "Uint64Flags"),
    "float": ("f", "Float32Flags"), "double": ("d", "Float64Flags"),
}
COUNT, INT, OFFSET = struct.Struct("<I"), struct.Struct("<i"), struct.Struct("<H")
DECLARATION = re.compile(r"\b(table|enum)\s+(\w+)(?:\s*:\s*\w+)?\s*\{([^}]*)\}")
FIELD = re.compile(r"(\w+)\s*:\s*(\[?)(\w+)\]?\s*(?:=\s*(\S+))?$")


@dataclass(frozen=True)
class Field:
    """A field of a table. type: of each element, if it is a vector. slot: its position in the table.

    scalar: the type of SCALARS that it is stored as; "" for strings and tables. names: of the values of an enum.
    """

    name: str
    type: str
    scalar: str
    vector: bool
    default: float
    slot: int
    names: tuple[str, ...] = ()

    @cached_property
    def struct(self) -> struct.Struct:
        """The format of a scalar; of other fields that of the offset to the value."""
        return struct.Struct("<" + SCALARS[self.scalar or "uint32"][0])

    @cached_property
    def missing(self) -> Any:
        """The value if it is not in the buffer."""
        if self.vector or self.names:
            return () if self.vector else self.names[int(self.default)]
        if not self.scalar:
            return "" if self.type == "string" else None
        return {"bool": bool, "float": float, "double": float}.get(self.scalar, int)(self.default)


@dataclass(frozen=True)
class Schema:
    """A parsed schema. enums: the names of the values 0, 1, ..."""

    root: str
    identifier: bytes
    tables: Mapping[str, Mapping[str, Field]]
    enums: Mapping[str, tuple[str, ...]]

    @staticmethod
    def parse(text: str) -> Schema:
        """The schema of a .fbs file's text."""
        text = re.sub(r"//[^\n]*", "", text)
        declared = DECLARATION.findall(text)
        enums = {name: tuple(re.findall(r"\w+", body)) for kind, name, body in declared if kind == "enum"}
        tables = {name: _fields(body, enums) for kind, name, body in declared if kind == "table"}
        (root,) = re.findall(r"\broot_type\s+(\w+)", text)
        (identifier,) = re.findall(r"\bfile_identifier\s+\"(\w+)\"", text)
        return Schema(root, identifier.encode(), tables, enums)

    def pack(self, values: Mapping[str, Any]) -> bytes:
        """The bytes of a root table.

        values: by field. A table is a mapping, an enum its name, and None a field that is left out. Raises KeyError for
        a field that the schema does not have, ValueError for an unknown name of an enum.
        """
        packing = _FlatWriter(self)
        packing.builder.Finish(packing.table(self.root, values), self.identifier)
        return bytes(packing.builder.Output())

    def read(self, content: bytes) -> Table:
        """The root table of a buffer. Raises ValueError or struct.error if it is no buffer of this schema."""
        if content[4:8] != self.identifier:
            raise ValueError(f"it has no identifier {self.identifier.decode()}")
        return Table(_FlatReader(self, content), self.root, _follow_offset(content, 0))


def _fields(body: str, enums: Mapping[str, tuple[str, ...]]) -> dict[str, Field]:
    found = [FIELD.match(line.strip()) for line in body.split(";") if line.strip()]
    assert all(found), body
    rows = [each.groups("") for each in found if each]
    return {
        name: Field(
            name, type, "uint8" if type in enums else type if type in SCALARS else "", bool(vector),
            1.0 if default == "true" else float(default or 0), slot, enums.get(type, ()),
        )
        for slot, (name, vector, type, default) in enumerate(rows)
    }


class _FlatWriter:
    """Writes tables: what a table refers to before the table, as the format asks for, and equal strings once."""

    def __init__(self, schema: Schema) -> None:
        # Files are read without this package.
        from flatbuffers import Builder, number_types

        self.schema, self.builder, self.types = schema, Builder(1 << 16), number_types

    def table(self, name: str, values: Mapping[str, Any]) -> int:
        fields = self.schema.tables[name]
        given = [(fields[key], value) for key, value in values.items() if value is not None]
        made = [(field, self.value(field, value)) for field, value in given]
        self.builder.StartObject(len(fields))
        for field, value in made:
            if field.vector or not field.scalar:
                self.builder.PrependUOffsetTRelativeSlot(field.slot, value, 0)
            else:
                flags = getattr(self.types, SCALARS[field.scalar][1])
                self.builder.PrependSlot(flags, field.slot, value, type(value)(field.default))
        return int(self.builder.EndObject())

    def value(self, field: Field, value: Any) -> Any:
        """A scalar's number, or the offset of what was written."""
        if field.vector:
            return self.vector(field, value)
        if field.names:
            return field.names.index(value)
        if field.scalar:
            return value.item() if isinstance(value, numpy.generic) else value
        return self.child(field.type, value)

    def child(self, type: str, value: Any) -> int:
        return int(self.builder.CreateSharedString(value)) if type == "string" else self.table(type, value)

    def vector(self, field: Field, values: Sequence[Any]) -> int:
        if field.scalar:
            dtype = numpy.dtype(SCALARS[field.scalar][0]).newbyteorder("<")
            return int(self.builder.CreateNumpyVector(numpy.array(values, dtype)))
        offsets = [self.child(field.type, each) for each in values]
        self.builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self.builder.PrependUOffsetTRelative(offset)
        return int(self.builder.EndVector())


class _FlatReader:
    """A buffer that is read. Each byte belongs to one table or vector, so that what is read is no longer than it.

    A made-up buffer may refer to one table from a million places, which refers to another one from a million.
    """

    def __init__(self, schema: Schema, content: bytes) -> None:
        self.schema, self.content, self.left = schema, content, len(content)
        self._texts: dict[int, str] = {}

    def count_bytes_read(self, size: int) -> None:
        """Raises ValueError if tables and vectors of more bytes than the buffer has were read."""
        self.left -= size
        if self.left < 0:
            raise ValueError("its tables overlap")

    def text(self, at: int) -> str:
        """The string at a position; equal ones are stored once."""
        if at not in self._texts:
            (length,) = COUNT.unpack_from(self.content, at)
            if at + 4 + length > len(self.content):
                raise ValueError("a text is longer than the buffer")
            self.count_bytes_read(length)
            self._texts[at] = self.content[at + 4 : at + 4 + length].decode()
        return self._texts[at]


class Table:
    """A table in a buffer: `table.field` reads a field. A damaged buffer raises ValueError or struct.error.

    A field that is not in the buffer has its default: 0, False, "", (), the first name of an enum, or None for a table.
    A vector is a tuple. A field is read once.
    """

    def __init__(self, reading: _FlatReader, name: str, at: int) -> None:
        reading.count_bytes_read(INT.size)
        self._reading, self._content, self._at = reading, reading.content, at
        self._fields = reading.schema.tables[name]
        vtable = at - INT.unpack_from(self._content, at)[0]
        if vtable < 0:
            raise ValueError("a table of fields before the buffer")
        slots = min((OFFSET.unpack_from(self._content, vtable)[0] - 4) // 2, len(self._fields))
        self._starts = struct.unpack_from(f"<{max(slots, 0)}H", self._content, vtable + 4)  # 0: not in the buffer

    def __getattr__(self, name: str) -> Any:
        try:
            field = self._fields[name]
        except KeyError:
            raise AttributeError(name) from None
        value = self.__dict__[name] = self._read_field(field)
        return value

    def _read_field(self, field: Field) -> Any:
        if field.slot >= len(self._starts) or not self._starts[field.slot]:
            return field.missing
        at = self._at + self._starts[field.slot]
        if field.vector:
            return self._read_vector(field, _follow_offset(self._content, at))
        if not field.scalar:
            return self._read_child(field.type, _follow_offset(self._content, at))
        (value,) = field.struct.unpack_from(self._content, at)
        return self._enum_name(field, value) if field.names else value

    def _read_vector(self, field: Field, at: int) -> tuple[Any, ...]:
        (count,) = COUNT.unpack_from(self._content, at)
        self._reading.count_bytes_read(count * field.struct.size)
        numbers = struct.unpack_from(f"<{count}{field.struct.format[1:]}", self._content, at + 4)
        if field.scalar:
            return numbers
        places = [_checked_forward_offset(at + 4 + 4 * n, step) for n, step in enumerate(numbers)]
        return tuple([self._read_child(field.type, place) for place in places])

    def _read_child(self, type: str, at: int) -> Any:
        return Table(self._reading, type, at) if type != "string" else self._reading.text(at)

    def _enum_name(self, field: Field, number: int) -> str:
        if number >= len(field.names):
            raise ValueError(f"{number} is no {field.type}")
        return field.names[number]


def _follow_offset(content: bytes, at: int) -> int:
    """Returns the position that the offset at a position points to."""
    return _checked_forward_offset(at, COUNT.unpack_from(content, at)[0])


def _checked_forward_offset(at: int, step: int) -> int:
    # Offsets point forward only, so that no table contains itself.
    if step < 4:
        raise ValueError("an offset points back")
    return at + step
