"""Measurements of candidates as CSV, to which the cost models are fitted.

A row is one specialisation of one problem on one device. Its columns: the device (device, kind, compute_units), the
setting float16, the template's name, each field of the Problem and of the Specialisation by its own name, then the
figures: seconds of a launch, or the statistics of Mesa's compiler. A size is written as 3x3. An empty cell is None,
or belongs to another template.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, Union, cast, get_origin, get_type_hints

from imgconv.errors import InputError
from imgconv.kernels.conv import problem as conv
from imgconv.kernels.matmul import template as matmul
from imgconv.kernels.target import TargetKind

# The measurements to which the cost models are fitted.
Problem = Union[conv.Problem, matmul.Problem]
Specialisation = Union[conv.Specialisation, matmul.Specialisation]
TEMPLATES: Mapping[str, tuple[type[Problem], type[Specialisation]]] = {
    "convolution": (conv.Problem, conv.Specialisation),
    "product": (matmul.Problem, matmul.Specialisation),
}
DEVICE = ("device", "kind", "compute_units", "float16", "template")
SIZES = list(dict.fromkeys(field.name for pair in TEMPLATES.values() for made in pair for field in fields(made)))


@dataclass(frozen=True)
class Measurement:
    """The measurement of one specialisation of a problem. figures: by column, such as seconds."""

    device: str
    kind: TargetKind
    compute_units: int
    float16: int
    problem: Problem
    specialisation: Specialisation
    figures: Mapping[str, float]

    @property
    def template(self) -> str:
        """The name of the problem's template in TEMPLATES."""
        return next(name for name, (made, _) in TEMPLATES.items() if isinstance(self.problem, made))

    @property
    def key(self) -> tuple[Any, ...]:
        """Device, setting, problem and specialisation."""
        return self.device, self.float16, self.problem, self.specialisation


def read_measurements(path: Path) -> list[Measurement]:
    """The rows of a file. Raises InputError naming the file and the line of an invalid row."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    found = []
    for line, row in enumerate(rows, 2):
        try:
            found.append(_from_cells(row))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}, line {line} is no measurement of this imgconv's templates: {error!r}") from error
    return found


def write_measurements(path: Path, measurements: Sequence[Measurement]) -> None:
    """Writes a file as a whole."""
    names = [*DEVICE, *SIZES, *dict.fromkeys(name for each in measurements for name in each.figures)]
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    with open(part, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(_to_cells(each) for each in measurements)
    part.replace(path)


def add_measurements(path: Path, new: Iterable[Measurement]) -> None:
    """Adds rows to a file, or makes it. If a specialisation has two rows, the one of fewer seconds stays."""
    found = {each.key: each for each in (read_measurements(path) if path.exists() else ())}
    for each in new:
        known = found.get(each.key, each)
        found[each.key] = min(known, each, key=lambda m: m.figures.get("seconds", 0.0))
    write_measurements(path, list(found.values()))


def _to_cells(each: Measurement) -> dict[str, str]:
    cells = {name: str(getattr(each, name)) for name in DEVICE}
    for part in (each.problem, each.specialisation):
        cells |= {field.name: _text(getattr(part, field.name)) for field in fields(part)}
    return cells | {name: f"{figure:.6g}" for name, figure in each.figures.items()}


def _from_cells(cells: dict[str, str]) -> Measurement:
    # Older files have a column `half`: whether products are summed in runs in half.
    if cells.pop("half", "") == "1":
        cells["sums"] = "runs"
    cells.pop("small", "")  # whether the input's values were known to be small
    problem, specialisation = (_made(kind, cells) for kind in TEMPLATES[cells["template"]])
    figures = {name: float(cell) for name, cell in cells.items() if name not in (*DEVICE, *SIZES) and cell}
    device, kind, units, float16 = (cells[name] for name in DEVICE[:4])
    return Measurement(device, cast(TargetKind, kind), int(units), int(float16), problem, specialisation, figures)


def _made(kind: Any, cells: Mapping[str, str]) -> Any:
    """A Problem or Specialisation from its cells; a field without a column has its default."""
    types = get_type_hints(kind)
    return kind(**{
        field.name: _value(cells[field.name], types[field.name]) for field in fields(kind) if field.name in cells
    })


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple):
        return "x".join(map(str, value))
    return str(int(value)) if isinstance(value, bool) else str(value)


def _value(text: str, kind: Any) -> Any:
    if kind in (bool, int):
        return kind(int(text))
    if kind is str or get_origin(kind) is Literal:
        return text
    return tuple(map(int, text.split("x"))) if text else None
