"""Every operation answers for itself, and every layer has an entry for it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import imgconv.graph.operations as package
from imgconv.compiling.textures import LAYOUTS
from imgconv.graph.operations import OPERATIONS, Operation
from imgconv.onnx_export.nodes import EXPORTS
from imgconv.stored.tables import codec, schema


def test_every_file_has_its_operation() -> None:
    files = {path.stem for path in Path(package.__file__).parent.glob("*.py")} - {"__init__", "operation"}
    assert {kind.__name__.lower() for kind in OPERATIONS} == files
    assert set(Operation.__subclasses__()) == set(OPERATIONS)


@pytest.mark.parametrize("kind", OPERATIONS)
def test_an_operation_answers_for_itself(kind: type[Operation]) -> None:
    missing = [name for name in ("fits", "combine", "__str__") if name not in vars(kind)]
    if "evaluate" in vars(kind) and "combine" in missing:
        missing.remove("combine")
    assert not missing, f"{kind.__name__} has no {', '.join(missing)}"
    assert dataclasses.is_dataclass(kind) and kind.__doc__


@pytest.mark.parametrize("kind", OPERATIONS)
def test_every_layer_has_an_entry(kind: type[Operation]) -> None:
    tables = {"LAYOUTS": LAYOUTS, "EXPORTS": EXPORTS}
    missing = [name for name, table in tables.items() if kind not in table]
    assert not missing, f"{kind.__name__} is not in {', '.join(missing)}"
    assert kind.__name__.lower() in schema().enums["OperationKind"], f"{kind.__name__} is not in model.fbs"
    codec().rows(kind, "Operation")  # raises KeyError for a field that the schema lacks
