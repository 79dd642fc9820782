"""Compiled files with other values and right checksums, damaged ones, and tuning and precision files.

Whatever they say: an imgconv.Error, or a plan from candidates of ours. A file that is not trusted is planned from its
graph, and no text of it is in a kernel.
"""

from __future__ import annotations

import json
import random
import sqlite3
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from fuzz.case import EXTREMES, FLOATS, TEXTS, Draw, Wrong, damaged
from graphs import const
from snapshots import DEVICES

from imgconv.compiling.compiler import PreparedGraph, prepare
from imgconv.config import Config
from imgconv.errors import ConfigError, Error
from imgconv.files.container import write_container
from imgconv.graph.nodes import Graph
from imgconv.kernels.templates import template_of
from imgconv.limits import Limits, load_budget
from imgconv.stored.compiled_file import DevicePlan, SavedModel, SizedModel, model_values, schema
from imgconv.stored.precision_file import read_precision_file
from imgconv.stored.tuning import Measurement, TunedChooser, TuningDatabase, measurement_key
from imgconv.tensor import Tensor, build_graph, concatenate

BOUND = Limits(bytes=2**30, seconds=20)
ALL_PLANS = 0.1  # of the compiled files have a plan for each kind of device; the others for one
MARK = "inject"  # is in every text that a case writes; no kernel may hold it


@cache
def network() -> Graph:
    """Every kind of node, lookups, bounds, several outputs."""
    x = Tensor.input("x", (1, 3, 9, 7))
    kept = x.conv2d(const(6, 3, 3, 3), const(6), padding=1).relu()
    pooled = concatenate([kept.max_pool(2, 2), kept.slice(2, 0, 4).slice(3, 0, 3).exp()], 1)
    scores = pooled.global_average_pool().flatten().linear(const(5, 12))
    taken = kept.take(2, [3, 1, 1, 7]).pad([0, 0, 1, 1], [0, 0, 0, 2]).sum([1])
    return build_graph({"y": scores.softmax(1), "kept": kept, "taken": taken}, [x])


@cache
def packed(devices: tuple[str, ...] = tuple(DEVICES)) -> tuple[dict[str, Any], tuple[bytes, ...]]:
    """The values and the blobs of a compiled file with plans for some kinds of devices."""
    prepared = {name: prepare(network(), Config(), DEVICES[name]) for name in devices}
    plans = [DevicePlan(each.plan(), name, each.target, (b"program",)) for name, each in prepared.items()]
    values, blobs = model_values([SizedModel(prepared[devices[0]].graph, Config(), plans)])
    return values, tuple(map(bytes, blobs))


@cache
def whole_file(devices: tuple[str, ...]) -> bytes:
    return bytes(schema().pack(packed(devices)[0]))


@cache
def tuned_network() -> Graph:
    """A convolution and a product: what is tuned."""
    x = Tensor.input("x", (1, 3, 9, 7))
    kept = x.conv2d(const(6, 3, 3, 3), const(6), padding=1).relu()
    return build_graph({"y": kept.flatten().linear(const(5, 6 * 9 * 7))}, [x])


@cache
def whole_tuning_file() -> bytes:
    """Rows of all problems of that network."""
    target = DEVICES["large gpu"]
    with tempfile.TemporaryDirectory() as folder:
        database = TuningDatabase(Path(folder) / "file", new=True)
        for launch in prepare(tuned_network(), Config(), target).plan().launches:
            if launch.choice is not None:
                name = measurement_key(launch.choice.problem, Config(), target)
                database.record("here", name, [Measurement(launch.choice.specialisation, 1e-9)])
        return database.path.read_bytes()


def places(values: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in nested mappings and lists."""
    inner = values.items() if isinstance(values, dict) else enumerate(values)
    for name, value in inner:
        yield (*path, name)
        if isinstance(value, (dict, list, tuple)):
            yield from places(value, (*path, name))


def copied(values: Any) -> Any:
    """Nested mappings and lists, made anew; tuples become lists."""
    if isinstance(values, dict):
        return {name: copied(value) for name, value in values.items()}
    return [copied(value) for value in values] if isinstance(values, (list, tuple)) else values


def changed(value: Any, random: random.Random) -> Any:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return random.choice((*EXTREMES, value + 1, value - 1, value * 2))
    if isinstance(value, float):
        return random.choice(FLOATS)
    if isinstance(value, str):
        return random.choice((*TEXTS, MARK, f"{value}{MARK}", value[:-1], f"i{random.randrange(9)}"))
    if isinstance(value, list) and value:
        kind = random.randrange(4)
        if kind == 0:
            return value[:-1]
        if kind == 1:
            return [*value, value[random.randrange(len(value))]]
        return random.sample(value, len(value)) if kind == 2 else value * random.choice((0, 2, 100))
    return None


def compiled_file(draw: Draw, path: Path) -> None:
    """A file with some values of its tables changed, or with damaged bytes, under a right checksum."""
    devices = tuple(DEVICES) if draw.random.random() < ALL_PLANS else (draw.random.choice(sorted(DEVICES)),)
    whole, blobs = packed(devices)
    if draw.random.random() < 0.3:
        write_container(path, damaged(draw, whole_file(devices)), blobs)
        return
    values = copied(whole)

    def change(random: random.Random) -> None:
        every = list(places(values))
        deep = [each for each in every if "graph" in each] if random.random() < 0.5 else every
        *above, last = random.choice(deep)
        holder = values
        for name in above:
            holder = holder[name]
        holder[last] = changed(holder[last], random)

    for _ in range(draw.random.choice((1, 1, 1, 2, 5))):
        draw.step(change)
    try:
        content = schema().pack(values)
    except Exception:  # FlatBuffers cannot hold every number: nothing to read
        content = whole_file(devices)
    write_container(path, content, blobs)


def read_compiled(draw: Draw, path: Path) -> None:
    """Reads everything, and plans for a device from the graph."""
    with load_budget(BOUND):
        model = SavedModel.open(path)
        with model.errors_with_file_name():
            if model.inputs is None:
                raise Wrong("it has no inputs")
            for name, target in DEVICES.items():
                model.plan_for(name, target)
        with model.errors_with_file_name():
            plan = PreparedGraph(model.read_graph(), model.config, draw.random.choice(list(DEVICES.values()))).plan()
        texts = [launch.source.text for launch in plan.launches]
        names = [a.name for launch in plan.launches for a in launch.source.arguments]
        if any(MARK in text for text in (*texts, *names)):
            raise Wrong("a text of the file is in a kernel")


def tuning_file(draw: Draw, path: Path) -> None:
    """Rows of a network's problems with other values."""
    path.write_bytes(whole_tuning_file())

    def change(random: random.Random) -> None:
        with sqlite3.connect(path) as connection:
            (text,) = random.choice(connection.execute("SELECT specialisation FROM measured").fetchall())
            if not isinstance(text, str):
                return
            row = json.loads(text)
            name = random.choice(list(row))
            row[name] = random.choice((*EXTREMES, *TEXTS, None, [], {}, [1, 2, 3], True, 0.5))
            seconds = random.choice((1e-9, -1.0, "x", None))
            update = "UPDATE OR REPLACE measured SET specialisation = ?, seconds = ? WHERE specialisation = ?"
            connection.execute(update, (json.dumps(row), seconds, text))

    for _ in range(3):
        draw.step(change)
    if draw.random.random() < 0.3:
        path.write_bytes(damaged(draw, path.read_bytes()))


def use_tuning(_: Draw, path: Path) -> None:
    target = DEVICES["large gpu"]
    prepared = prepare(tuned_network(), Config(), target, TunedChooser(TuningDatabase(path), "here"))
    for launch in prepared.plan().launches:
        if launch.choice is not None:
            candidates = template_of(launch.choice.problem).candidates(launch.choice.problem, target)
            if launch.choice.specialisation not in candidates:
                raise Wrong(f"{launch.choice.specialisation} is no candidate")


def precision_file(draw: Draw, path: Path) -> None:
    content = {
        "format": "imgconv precision", "version": 2, "model": "0" * 64, "float16": 1, "tolerance": 0.01,
        "error": 0.003, "float_storage": ["kept"], "float_arithmetic": [], "short_runs": [],
    }

    def change(random: random.Random) -> None:
        others = (*EXTREMES, *FLOATS, *TEXTS, None, [1], ["kept"], {}, True)
        content[random.choice(list(content))] = random.choice(others)

    for _ in range(2):
        draw.step(change)
    whole = json.dumps(content).encode()
    path.write_bytes(damaged(draw, whole) if draw.random.random() < 0.5 else whole)


def use_precision(_: Draw, path: Path) -> None:
    try:
        read_precision_file(path).precision_of(network())
    except ConfigError as error:
        if str(path) not in str(error):
            raise Wrong("the error does not name the file") from error


KINDS = ((compiled_file, read_compiled), (tuning_file, use_tuning), (precision_file, use_precision))


def run(draw: Draw) -> str:
    """One case. Raises what is no imgconv.Error; returns in a word what came of it."""
    make, use = draw.random.choice((KINDS[0], *KINDS))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        make(draw, path)
        try:
            use(draw, path)
        except Error as error:
            return f"{make.__name__}: {type(error).__name__}"
    return f"{make.__name__}: read"
