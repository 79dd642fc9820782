"""Converts frozen dataclasses to tables of a FlatBuffers schema and back, by the names and types of their fields.

A field is stored under its own name, unless `columns` says otherwise. Its type determines how:

    bool, int, float, str           unchanged; also a Literal, for which reading rejects other values
    tuple                           a vector
    a mapping by text               a vector of tables: `name`, and the value as the table's other field or fields
    a dataclass                     a table
    a union of dataclasses          a table with the fields of all, and the class in lower case as its `kind`
    X | None                        None is no table, or the default of a number or a text
    a pooled type                   its number in a list of the root's, where equal values are stored once
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from imgconv.files.flat import Field, Schema
from imgconv.stored.blobs import BlobWriter, ReadArray

# In place of a column: the value's fields are in the table itself; the field is not stored, or by other code.
MERGED, APART = "<merged>", "<apart>"


@dataclass(frozen=True)
class Coder:
    """The way of one type: from a value to what Schema.pack takes, and from what a Table gives to the value.

    plain: whether what a Table gives is the value.
    """

    encode: Callable[[TableWriter, Any], Any]
    decode: Callable[[TableReader, Any], Any]
    plain: bool = False


PLAIN = Coder(lambda _, value: value, lambda _, found: found, True)


@dataclass(frozen=True)
class Codec:
    """The tables of a schema, and what of them does not follow from names and types.

    columns: the field of the table, MERGED or APART, by class and field. coders: of types with a way of their own.
    pools: the table of the entries of each pooled type. checks: by class, whether the engine makes such a value.
    """

    schema: Schema
    columns: Mapping[tuple[type, str], str]
    coders: Mapping[Any, Coder]
    pools: Mapping[Any, str]
    checks: Mapping[type, Callable[[Any], bool]]
    _rows: dict[tuple[type, str], tuple[tuple[str, str, Coder], ...]] = field(default_factory=dict)

    def rows(self, kind: type, table: str) -> tuple[tuple[str, str, Coder], ...]:
        """The fields of a class, their columns in the table and their coders. Raises KeyError for a missing column."""
        if (kind, table) not in self._rows:
            made = []
            for name, hint in hints(kind).items():
                column = self.columns.get((kind, name), name)
                if column == MERGED:
                    made.append((name, column, self.coders.get(hint) or self.table(hint, table)))
                elif column != APART:
                    made.append((name, column, self.coder(hint, self.schema.tables[table][column])))
            self._rows[kind, table] = tuple(made)
        return self._rows[kind, table]

    def table(self, hint: Any, table: str) -> Coder:
        """The coder of a dataclass, or of a union of them, as a table."""
        members = {each.__name__.lower(): each for each in _union_members(hint)}
        if len(members) == 1:
            return Coder(
                lambda writer, value: writer.values(hint, table, value),
                lambda reader, found: reader.value(hint, table, found),
            )
        return Coder(
            lambda writer, value: {"kind": type(value).__name__.lower()} | writer.values(type(value), table, value),
            lambda reader, found: reader.value(members[found.kind], table, found),
        )

    def coder(self, hint: Any, column: Field) -> Coder:
        """The coder of a type in a field of a table."""
        origin, arguments = get_origin(hint), get_args(hint)
        if hint in self.coders:
            return self.coders[hint]
        if hint in self.pools:
            return Coder(lambda writer, value: writer.number(hint, value), lambda reader, n: reader.at(hint, n))
        if hint is float:
            return replace(PLAIN, encode=lambda _, value: float(value))
        if origin is Literal:
            return Coder(PLAIN.encode, lambda _, found: _one_of(arguments, column.name, found))
        if origin is tuple:
            return self._vector(arguments, column)
        if origin is Mapping:
            return self._mapping(arguments[1], column)
        if NoneType in arguments:
            coder, empty = self.coder(Union[tuple(_union_members(hint))], column), _default(column, self.schema)
            return Coder(
                lambda writer, value: empty if value is None else coder.encode(writer, value),
                lambda reader, found: None if found == empty else coder.decode(reader, found),
            )
        return self.table(hint, column.type) if column.type in self.schema.tables else PLAIN

    def _vector(self, arguments: Sequence[Any], column: Field) -> Coder:
        element = self.coder(arguments[0], replace(column, vector=False))
        length = None if Ellipsis in arguments else len(arguments)

        def decode(reader: TableReader, found: Any) -> Any:
            if length is not None and len(found) != length:
                raise ValueError(f"{column.name} has {len(found)} numbers")
            return tuple(found if element.plain else [element.decode(reader, each) for each in found])

        return Coder(lambda writer, value: [element.encode(writer, each) for each in value], decode)

    def _mapping(self, hint: Any, column: Field) -> Coder:
        """The coder of a mapping: of each entry its name, and the value in the other field of its table, or in all."""
        others = [each for each in self.schema.tables[column.type].values() if each.name != "name"]
        if len(others) > 1:
            coder = self.coders.get(hint) or self.table(hint, column.type)
            return Coder(
                lambda writer, value: [{"name": n} | coder.encode(writer, each) for n, each in value.items()],
                lambda reader, found: {each.name: coder.decode(reader, each) for each in found},
            )
        coder, other = self.coder(hint, others[0]), others[0].name
        return Coder(
            lambda writer, value: [{"name": n, other: coder.encode(writer, each)} for n, each in value.items()],
            lambda reader, found: {each.name: coder.decode(reader, getattr(each, other)) for each in found},
        )


@dataclass
class TableWriter:
    """Values on their way into a file. numbers, entries: of each pooled type, the values that have one.

    rounded: whether arrays may be stored as halves if all plans store them so.
    """

    codec: Codec
    blobs: BlobWriter
    numbers: dict[Any, dict[Any, int]] = field(default_factory=dict)
    entries: dict[Any, list[dict[str, Any]]] = field(default_factory=dict)
    rounded: bool = False

    def values(self, kind: type, table: str, value: Any) -> dict[str, Any]:
        """The values of a table, by field."""
        values: dict[str, Any] = {}
        for name, column, coder in self.codec.rows(kind, table):
            made = coder.encode(self, getattr(value, name))
            values |= made if column == MERGED else {column: made}
        return values

    def number(self, hint: Any, value: Any) -> int:
        """The number of a pooled value. Those that it is made of get lower ones."""
        numbers, entries = self.numbers.setdefault(hint, {}), self.entries.setdefault(hint, [])
        if value not in numbers:
            entries.append(self.codec.table(hint, self.codec.pools[hint]).encode(self, value))
            numbers[value] = len(numbers)
        return numbers[value]


@dataclass
class TableReader:
    """Values on their way out of a file. entries: of each pooled type, what its numbers mean."""

    codec: Codec
    array: ReadArray
    entries: dict[Any, list[Any]] = field(default_factory=dict)

    def value(self, kind: type, table: str, found: Any, **given: Any) -> Any:
        """The dataclass of a table. given: fields that the table does not say. Raises ValueError."""
        for name, column, coder in self.codec.rows(kind, table):
            if name not in given:
                stored = found if column == MERGED else getattr(found, column)
                given[name] = stored if coder.plain else coder.decode(self, stored)
        value = kind(**given)
        if kind in self.codec.checks and not self.codec.checks[kind](value):
            raise ValueError(f"a {kind.__name__} that no imgconv writes")
        return value

    def at(self, hint: Any, number: int) -> Any:
        """The pooled value of a number. Raises ValueError if there is none."""
        if number >= len(self.entries[hint]):
            raise ValueError(f"{number} is not one of the {len(self.entries[hint])} entries before it")
        return self.entries[hint][number]

    def read_pool(self, hint: Any, tables: Sequence[Any]) -> None:
        """Reads the entries of a pooled type, which refer to lower numbers only."""
        self.entries[hint] = []
        coder = self.codec.table(hint, self.codec.pools[hint])
        for each in tables:
            self.entries[hint].append(coder.decode(self, each))


@cache
def hints(kind: Any) -> dict[str, Any]:
    """The type of each field of a dataclass."""
    types = get_type_hints(kind)
    return {each.name: types[each.name] for each in fields(kind)}


def _union_members(hint: Any) -> list[Any]:
    """The members of a union without None; the type itself if it is none."""
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return [each for each in members if each is not NoneType]


def _default(column: Field, schema: Schema) -> Any:
    return None if column.type in schema.tables else "" if column.type == "string" else column.default


def _one_of(allowed: Sequence[Any], name: str, found: Any) -> Any:
    if found not in allowed:
        raise ValueError(f"{name} is {found!r}")
    return found
