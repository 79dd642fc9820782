"""The tuning database: how long each specialisation took on a device. The compiler chooses by these measurements.

It is one SQLite file. Several processes may read and write it at the same time, and a crash does not corrupt it. Rows
contain the device and its driver, so a measurement is only used for its own device.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from imgconv.build_options import DRIVERS_DEFAULTS, BuildOptions
from imgconv.compiling.choose import ChoiceRequest, Chooser, CostModelChooser
from imgconv.config import Config
from imgconv.errors import ConfigError
from imgconv.kernels.target import LARGE_GPU, Target
from imgconv.kernels.template_interface import Choice, Problem, Specialisation

VERSION = 1
SUFFIX = ".tuning"
PATIENCE = 30.0  # seconds that another process may hold the file
SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS measured (
  device TEXT, problem TEXT, specialisation TEXT, seconds REAL, PRIMARY KEY (device, problem, specialisation)
) WITHOUT ROWID;
PRAGMA user_version = {VERSION};
COMMIT
"""
RECORD = """
INSERT INTO measured VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET seconds = min(seconds, excluded.seconds)
"""
# The problem of a row. Older files say of a convolution whether products are in half, which they then are in runs.
PROBLEM = "replace(replace(problem, 'half=False', 'sums=''float'''), 'half=True', 'sums=''runs''')"
# They are measured with a whole model. They are not merged, because another model may be slower with them. Older files
# lack this table.
BUILD_OPTIONS = """
CREATE TABLE IF NOT EXISTS build_options (
  device TEXT, config TEXT, options TEXT, PRIMARY KEY (device, config)
) WITHOUT ROWID
"""
MERGE = """
INSERT INTO main.measured SELECT * FROM other.measured WHERE true
ON CONFLICT DO UPDATE SET seconds = min(seconds, excluded.seconds)
"""


@dataclass(frozen=True)
class Measurement:
    """A specialisation of a problem, and the seconds that its launch takes."""

    specialisation: Specialisation
    seconds: float


class TuningDatabase:
    """A file of measurements. Rows of specialisations that this imgconv does not have are ignored."""

    def __init__(self, path: str | os.PathLike[str], new: bool = False) -> None:
        """new: make the file if there is none. Opening only reads a file that exists.

        Raises ConfigError if there is no file, or if it is damaged or of another kind or version.
        """
        self.path = Path(path)
        if self.path.exists() and not self.path.is_file():
            raise ConfigError(f"{str(path)!r} is not a tuning file: it is not a regular file")
        if not new and not self.path.is_file():
            raise ConfigError(f"there is no tuning file {str(path)!r}")
        there = self.path.exists()
        with self._open() as connection:
            if not there or not self.path.stat().st_size:
                self._create(connection, remove_on_failure=not there)
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version != VERSION:
                raise ConfigError(
                    f"{str(path)!r} is not a tuning file, or of version {version} where this imgconv reads {VERSION}: "
                    "delete it and tune again"
                )

    def _create(self, connection: sqlite3.Connection, remove_on_failure: bool) -> None:
        """Makes the table. remove_on_failure: remove the file if that fails, for example on a full disk."""
        try:
            connection.executescript(SCHEMA)
        except sqlite3.Error:
            if remove_on_failure and not self.path.stat().st_size:
                self.path.unlink()
            raise

    def record(self, device: str, problem: str, measured: Sequence[Measurement]) -> None:
        """Adds measurements; if a specialisation has two, the shorter one stays."""
        rows = [(device, problem, _text(m.specialisation), m.seconds) for m in measured]
        with self._open() as connection:
            connection.executemany(RECORD, rows)

    def find(self, device: str, problem: str) -> list[Measurement]:
        """Every measurement of a problem on a device, shortest first."""
        query = f"SELECT specialisation, seconds FROM measured WHERE device = ? AND {PROBLEM} = ? ORDER BY seconds"
        with self._open() as connection:
            rows = connection.execute(query, (device, problem)).fetchall()
        return [made for text, seconds in rows if (made := _measurement_of_row(text, seconds)) is not None]

    def best(self, device: str) -> dict[str, Measurement]:
        """The shortest measurement of every problem on a device."""
        query = f"SELECT {PROBLEM}, specialisation, seconds FROM measured WHERE device = ? ORDER BY seconds"
        with self._open() as connection:
            rows = connection.execute(query, (device,)).fetchall()
        found: dict[str, Measurement] = {}
        for problem, text, seconds in rows:
            if problem not in found and (made := _measurement_of_row(text, seconds)) is not None:
                found[problem] = made
        return found

    def record_build_options(self, device: str, config: Config, options: BuildOptions) -> None:
        """Stores the fastest build options of the model on a device, in place of those that were measured before."""
        with self._open() as connection:
            connection.execute(BUILD_OPTIONS)
            row = (device, _settings(config), json.dumps(asdict(options)))
            connection.execute("INSERT OR REPLACE INTO build_options VALUES (?, ?, ?)", row)

    def build_options(self, device: str, config: Config) -> BuildOptions:
        """The fastest build options of the model on a device; the driver's defaults if nobody measured them."""
        with self._open() as connection:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'build_options'").fetchone():
                return DRIVERS_DEFAULTS
            query = "SELECT options FROM build_options WHERE device = ? AND config = ?"
            row = connection.execute(query, (device, _settings(config))).fetchone()
        return DRIVERS_DEFAULTS if row is None else _build_options(row[0])

    def merge(self, other: str | os.PathLike[str]) -> None:
        """Adds the rows of another file. Raises ConfigError if that is no such file."""
        TuningDatabase(other)
        with self._open() as connection:
            connection.execute("ATTACH ? AS other", (os.fspath(other),))
            connection.execute(MERGE)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, timeout=PATIENCE)) as connection, connection:
                yield connection
        except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter if its message quotes a damaged table
            problem = "is not a tuning file, is corrupt, or cannot be used"
            raise ConfigError(f"{str(self.path)!r} {problem}: {error}") from error


def _settings(config: Config) -> str:
    """The settings that change what the compiler of a driver gets."""
    return f"FLOAT16={config.float16}"


def _build_options(text: object) -> BuildOptions:
    """Returns the content of a row; the driver's defaults if it is not what `record_build_options` writes."""
    try:
        made = BuildOptions(**json.loads(text)) if isinstance(text, str) else DRIVERS_DEFAULTS
    except (RecursionError, TypeError, ValueError):
        return DRIVERS_DEFAULTS
    return made if made.is_known else DRIVERS_DEFAULTS


def default_path(model: str | os.PathLike[str]) -> Path:
    """The path of a model's measurements, next to the model."""
    return Path(model).with_suffix(SUFFIX)


def open_tuning_database(model: object) -> TuningDatabase | None:
    """The measurements next to a model's file, or None."""
    if not isinstance(model, (str, os.PathLike)) or not Path(model).name:
        return None
    beside = default_path(model)
    return TuningDatabase(beside) if beside.is_file() else None


def measurement_key(problem: Problem, config: Config, target: Target) -> str:
    """The text by which a measurement is found: the template's problem, and the storage of its textures."""
    from imgconv.kernels.templates import template_of

    stored = f"{config.storage.scalar}{' in linear textures' if target.linear else ''}"
    return f"{template_of(problem).name} {problem} stored as {stored}"


class TunedChooser:
    """A chooser that takes the fastest measured specialisation, and asks another chooser for unmeasured problems."""

    def __init__(self, database: TuningDatabase, device: str, otherwise: Chooser = CostModelChooser()) -> None:
        """device: DeviceInfo.key. Raises ConfigError."""
        self._best = database.best(device)
        self._otherwise = otherwise

    def choose_specialisation(self, request: ChoiceRequest) -> Choice | None:
        """The other chooser's choice with the measured specialisation, if there is one."""
        choice = self._otherwise.choose_specialisation(request)
        found = self._best.get(measurement_key(request.problem, request.config, request.target))
        chosen = None if found is None else _candidate(request, found.specialisation)
        if choice is None or found is None or chosen is None:
            return choice
        return replace(choice, specialisation=chosen, predicted=request.predicted(chosen), seconds=found.seconds)


def _candidate(request: ChoiceRequest, chosen: Specialisation) -> Specialisation | None:
    """The candidate of today that a row names, for this device or for one of another size; None if there is none.

    A row may be of an older imgconv with other specialisations, or somebody's who wants a kernel to do harm.
    """
    template, problem, target = request.template, request.problem, request.target
    sizes = (target, replace(target, compute_units=1), replace(target, compute_units=LARGE_GPU))
    candidates: Iterator[Specialisation] = (c for size in sizes for c in template.candidates(problem, size))
    return next((c for c in candidates if c == chosen and template.allowed(problem, c)), None)


def _text(specialisation: Specialisation) -> str:
    from imgconv.kernels.templates import TEMPLATES

    kernel = next(t.name for t in TEMPLATES if type(specialisation) is t.specialisation)
    return json.dumps({"kernel": kernel, **asdict(specialisation)}, sort_keys=True)


def _measurement_of_row(text: object, seconds: object) -> Measurement | None:
    """Returns the content of a row; None if it is not what `record` writes."""
    try:
        made = _specialisation_of_row(json.loads(text) if isinstance(text, str) else None)
    except (AttributeError, RecursionError, TypeError, ValueError):
        return None
    return Measurement(made, seconds) if made is not None and isinstance(seconds, float) and seconds > 0 else None


def _specialisation_of_row(row: Any) -> Specialisation | None:
    """The specialisation of a row; None for a template or a constant that this imgconv does not have."""
    from imgconv.kernels.templates import TEMPLATES

    content = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
    # Older files say whether the input is in local memory too; today's kernels with local weights always have it there.
    if content.pop("staged_input", None) is False and content.get("weights") == "local":
        return None
    if content.pop("winograd", 0):  # earlier versions had Winograd along rows
        return None
    kernel = content.pop("kernel", "")
    if kernel == "product" and "staged" in content:  # the name of before
        content["tile_depth"] = content.pop("staged")
    for template in TEMPLATES:
        if template.name == kernel:
            try:
                made: Specialisation = template.specialisation(**content)
                return made
            except TypeError:
                return None
    return None
