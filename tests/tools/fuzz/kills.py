"""Processes that are killed at a random moment: while they load with an empty cache, save, tune, or run pictures.

Afterwards everything loads, and nothing is lost or half: files are as they were or as they should become, the cache
holds whole entries, and a run that was broken off goes on. Half of the processes are killed at any moment of their
work, the others a little after a file of theirs appears or grows.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy
from fuzz.case import Draw, Wrong
from graphs import const
from PIL import Image

import imgconv
from imgconv import cli
from imgconv.cl.building import program
from imgconv.files.crash_marks import SUFFIX
from imgconv.files.disk_cache import DiskCache
from imgconv.graph.nodes import Graph
from imgconv.stored.tuning import TuningDatabase
from imgconv.tensor import Tensor, build_graph

ROOT = Path(__file__).parents[3]
SHAPE = (1, 3, 12, 12)
PICTURES = 40
SOON = 0.03  # seconds after a file changes
PATIENCE = 60.0  # seconds that a process may take
# What a process does, after it has imported everything. A tuning file has rows of another device before.
WORKS = {
    "load": "imgconv.load('new.onnx')",
    "load in half": "imgconv.load('new.onnx', float16=1)",
    "save": "m = imgconv.load('new.onnx')\nfor _ in range(20): m.save('saved')",
    "tune": "main(['tune', 'new.onnx', '--candidates', '3', '--json'])",
    "tune --precision": "main(['tune', 'new.onnx', '--precision', '--json'])",
    "compile": "main(['compile', 'new.onnx', '--output', 'saved'])",
    "run --jsonl": "main(['run', 'new.onnx', 'pictures', '--jsonl', 'lines', '--save', 'arrays.npz', '--json'])",
}
SCRIPT = """
import warnings
warnings.simplefilter("ignore")
import imgconv, imgconv.onnx_import, imgconv.loading.compiled
from imgconv.cli import main
print("begins", flush=True)
{work}
"""


def network(factor: float) -> Graph:
    """Convolutions, a product and a softmax: several programs."""
    x = Tensor.input("x", SHAPE)
    kept = x.conv2d(const(8, 3, 3, 3), const(8), padding=1).relu().max_pool(2, 2)
    scores = kept.conv2d(const(16, 8, 1, 1), const(16)).relu().global_average_pool().flatten()
    return build_graph({"y": (scores.linear(const(5, 16)) * factor).softmax(1)}, [x])


def given() -> dict[str, Any]:
    return {"x": numpy.random.default_rng(0).uniform(-1, 1, SHAPE).astype(numpy.float32)}


@cache
def expected() -> tuple[Any, Any]:
    """The results of the old and of the new network."""
    return tuple(imgconv.load(network(factor)).run(given())["y"] for factor in (1, 4))  # type: ignore[return-value]


def fill(folder: Path) -> None:
    """Writes the initial files: a saved old model, a tuning file with a row, pictures, the new model."""
    imgconv.load(network(1)).save(folder / "saved")
    imgconv.export_onnx(network(4), folder / "new.onnx")
    with closing(sqlite3.connect(TuningDatabase(folder / "new.tuning", new=True).path)) as connection, connection:
        connection.execute("INSERT INTO measured VALUES ('another device', 'p', 's', 1.0)")
    (folder / "pictures").mkdir()
    for number in range(PICTURES):
        pixels = numpy.random.default_rng(number).integers(0, 256, (12, 12, 3)).astype(numpy.uint8)
        Image.fromarray(pixels).save(folder / "pictures" / f"{number:02}.png")


def start(work: str, folder: Path) -> subprocess.Popen[bytes]:
    """A process that has begun the work."""
    command = [sys.executable, "-c", SCRIPT.format(work=WORKS[work])]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": path, "XDG_CACHE_HOME": str(folder / "cache")}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder, env=environment
    )
    assert process.stdout is not None
    if process.stdout.readline() != b"begins\n":
        raise Wrong(f"{work}: the process ends with {process.wait()} before it begins")
    return process


@cache
def seconds(work: str) -> float:
    """Returns the duration of the work if nobody kills it, in seconds."""
    with tempfile.TemporaryDirectory() as name:
        fill(Path(name))
        with start(work, Path(name)) as process:
            began = time.monotonic()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:  # a busy machine: it is killed within that time
                process.kill()
                return PATIENCE
            if process.returncode:
                raise Wrong(f"{work}: the process ends with {process.returncode}")
            return time.monotonic() - began


def sizes(folder: Path) -> list[tuple[str, int]]:
    """Every file with its size; those that vanish meanwhile are left out."""
    found = []
    for above, _, names in os.walk(folder):
        for name in names:
            try:
                found.append((name, os.stat(os.path.join(above, name)).st_size))
            except FileNotFoundError:
                pass
    return sorted(found)


def kill(work: str, folder: Path, random: random.Random) -> bool:
    """Starts the work and kills it; returns whether it was still at work."""
    moment, soon = random.uniform(0, 1.05 * seconds(work)), random.random() < 0.5
    before, changes = sizes(folder), random.randrange(1, 6)
    with start(work, folder) as process:
        began = time.monotonic()
        while soon and changes and process.poll() is None and time.monotonic() - began < PATIENCE:
            now = sizes(folder)
            changes, before = changes - (now != before), now
        time.sleep(random.uniform(0, SOON) if soon else moment)
        alive = process.poll() is None
        process.send_signal(signal.SIGKILL)
    return alive


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    """A context in the folder with its cache, in which no program is in memory. A warning is an error."""
    here, cache_home = Path.cwd(), os.environ.get("XDG_CACHE_HOME")
    os.chdir(folder)
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    program._built.clear()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*cannot be cached")
            yield
    finally:
        os.chdir(here)
        del os.environ["XDG_CACHE_HOME"]
        if cache_home is not None:
            os.environ["XDG_CACHE_HOME"] = cache_home


def same(model: imgconv.Model, want: Any, tolerance: float = 1e-5) -> bool:
    return bool(abs(model.run(given())["y"] - want).max() <= tolerance)


def check_loads(folder: Path) -> None:
    """Both models load, with the cache, tuning and precision that the process left."""
    old, new = expected()
    if not same(imgconv.load("new.onnx"), new):
        raise Wrong("the model has another result")
    half = imgconv.load("new.onnx", float16=1, **precision(folder))
    if not same(half, new, 1e-2):
        raise Wrong("the half model has another result")
    saved = imgconv.load("saved")
    if not (same(saved, old) or same(saved, new)):
        raise Wrong("the saved model is neither the old one nor the new one")


def precision(folder: Path) -> dict[str, Any]:
    path = folder / "new.precision.json"
    return {"precision": path} if path.exists() else {}


def check_cache(folder: Path) -> None:
    """Entries are whole: only files that were being written are not, and these have names of their own, as marks do."""
    for entry in folder.glob("cache/imgconv/*/[!.]*"):
        if entry.suffix != SUFFIX and DiskCache(entry.parent.name, 2**30).read(entry.name) is None:
            raise Wrong(f"{entry.parent.name}/{entry.name} is damaged")


def check_files(folder: Path) -> None:
    """The tuning file has its older row, and a second save leaves no part of the first."""
    with closing(sqlite3.connect("new.tuning")) as connection:
        (state,) = connection.execute("PRAGMA integrity_check").fetchone()
        rows = connection.execute("SELECT count(*) FROM measured WHERE device = 'another device'").fetchone()
    if state != "ok" or rows != (1,):
        raise Wrong(f"the tuning file is {state}, older rows: {rows[0]}")
    imgconv.load("new.onnx").save("saved")
    if parts := list(folder.glob(".saved*.part")):
        raise Wrong(f"{parts} stay")


def check_pictures(folder: Path) -> None:
    """The run goes on where it was: each picture has one line with its result."""
    whole = Path("lines").read_bytes().rpartition(b"\n")[0].splitlines() if Path("lines").exists() else []
    quiet = open(os.devnull, "w")
    out, sys.stdout = sys.stdout, quiet
    try:
        if cli.main(["run", "new.onnx", "pictures", "--jsonl", "lines", "--json"]):
            raise Wrong("the second run fails")
    finally:
        sys.stdout = out
        quiet.close()
    lines = Path("lines").read_bytes().splitlines()
    if lines[: len(whole)] != whole:
        raise Wrong("lines of the first run are lost")
    counts = Counter(Path(json.loads(line)["picture"]).name for line in lines)
    if counts != Counter(f"{number:02}.png" for number in range(PICTURES)):
        raise Wrong(f"pictures with other than one line: {counts}")


CHECKS: tuple[Callable[[Path], None], ...] = (check_loads, check_cache, check_files)


def run(draw: Draw) -> str:
    """One case. Raises Wrong, and what the loads after the kill raise; returns what was killed."""
    work = draw.random.choice(list(WORKS))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fill(folder)
        alive = kill(work, folder, draw.random)
        with inside(folder):
            for check in (*CHECKS, *([check_pictures] if work == "run --jsonl" else [])):
                check(folder)
    return f"{work}: killed" if alive else f"{work}: had ended"
