"""Frozen values to JSON and back: the graph and the plan of a compiled file.

The dataclasses of graph/nodes.py and compiling/plan.py, and those of their fields, can be written. Reading makes only
these, and numbers, text and arrays: it runs no code, unlike a pickle. But a plan holds kernel texts, and the compiled
file holds driver binaries too (compiled_file.py): a device runs both. An object that occurs twice is written
once, and arrays go to a blob of their own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy

from imgconv import config
from imgconv.compiling import plan
from imgconv.errors import ModelError
from imgconv.graph import expression, index, nodes, view
from imgconv.kernels import access, layout, source
from imgconv.kernels.step import Choice
from imgconv.kernels.templates import TEMPLATES

_MODULES = (access, config, expression, index, layout, nodes, plan, source, view)
CLASSES: Mapping[str, type] = {
    name: item for module in _MODULES for name, item in vars(module).items()
    if isinstance(item, type) and is_dataclass(item) and item.__module__ == module.__name__
} | {"Choice": Choice} | {
    f"{template.name} {kind.__name__}": kind
    for template in TEMPLATES for kind in (template.problem, template.specialisation)
}
NAMES: Mapping[type, str] = {item: name for name, item in CLASSES.items()}
ALIGNMENT = 64


def dump(value: Any) -> tuple[bytes, list[memoryview | bytes]]:
    """A value as JSON text, and the parts of the blob that holds its arrays."""
    writer = _Writer()
    root = writer.encode(value)
    return json.dumps([root, writer.objects, writer.arrays]).encode(), writer.blob


def parse(text: bytes, blob: bytes) -> Any:
    """The value that `dump` was given. Raises ModelError if another version of imgconv wrote the text."""
    try:
        root, objects, arrays = json.loads(text)
        return _Reader(objects, arrays, blob).decode(root)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ModelError(f"it was written by another version of imgconv ({error}): compile it again") from error


class _Writer:
    def __init__(self) -> None:
        self.objects: list[Any] = []
        self.arrays: list[Any] = []
        self.blob: list[memoryview | bytes] = []
        self.length = 0
        self.numbers: dict[int, int] = {}
        self.kept: list[Any] = []

    def encode(self, value: Any) -> Any:
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, (int, numpy.integer)):
            return int(value)
        if isinstance(value, (float, numpy.floating)):
            return float(value)
        if isinstance(value, tuple):
            return [self.encode(v) for v in value]
        if isinstance(value, frozenset):
            return {"set": [self.encode(v) for v in sorted(value)]}
        if isinstance(value, Mapping):
            return {"map": [[self.encode(k), self.encode(v)] for k, v in value.items()]}
        if isinstance(value, numpy.ndarray):
            return {"array": self.store(value)}
        assert type(value) in NAMES, f"{type(value).__name__} cannot be saved"
        return {"object": self.add(value)}

    def add(self, value: Any) -> int:
        """The number of a dataclass instance, written once."""
        if id(value) not in self.numbers:
            content = [self.encode(getattr(value, field.name)) for field in fields(value)]
            self.objects.append([NAMES[type(value)], *content])
            self.numbers[id(value)] = len(self.objects) - 1
            self.kept.append(value)  # ids stay valid while the values live
        return self.numbers[id(value)]

    def store(self, array: Any) -> int:
        content = numpy.ascontiguousarray(array)
        self.arrays.append([str(content.dtype), list(array.shape), self.length])
        padding = -content.nbytes % ALIGNMENT
        self.blob += [content.reshape(-1).view(numpy.uint8).data, bytes(padding)]
        self.length += content.nbytes + padding
        return len(self.arrays) - 1


class _Reader:
    def __init__(self, objects: list[Any], arrays: list[Any], blob: bytes) -> None:
        self.blob = blob
        self.arrays = arrays
        self.made: list[Any] = []
        for name, *content in objects:
            self.made.append(CLASSES[name](*map(self.decode, content)))

    def decode(self, value: Any) -> Any:
        if isinstance(value, list):
            return tuple(map(self.decode, value))
        if not isinstance(value, dict):
            return value
        ((kind, content),) = value.items()
        if kind == "object":
            return self.made[content]
        if kind == "set":
            return frozenset(map(self.decode, content))
        if kind == "map":
            return {self.decode(k): self.decode(v) for k, v in content}
        dtype, shape, offset = self.arrays[content]
        count = int(numpy.prod(shape, dtype=int))
        return numpy.frombuffer(self.blob, dtype, count, offset).reshape(shape)
