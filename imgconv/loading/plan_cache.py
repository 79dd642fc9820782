"""Caches the plans of ONNX files on disk: a later load of the same file neither imports nor plans the model.

The key of an entry is a hash of everything that a plan depends on: the file's bytes, the arguments of `load`, the
device with its driver and the kernels that it cannot run, the tuning file, and imgconv's own files. An entry is a
pickle, which can run code, as can the programs of the driver that are cached next to it: see files/disk_cache.py.
"""

from __future__ import annotations

import copyreg
import io
import logging
import os
import pickle
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from imgconv.compiling.plan import Plan
from imgconv.config import Config
from imgconv.files.disk import check_regular
from imgconv.files.disk_cache import DiskCache, hash_of
from imgconv.graph.nodes import Graph
from imgconv.stored.tuning import TuningDatabase
from imgconv.version import VERSION

if TYPE_CHECKING:
    from imgconv.compiling.shared_packings import Packings

LOG = logging.getLogger("imgconv")
PLANS = DiskCache("plans", 512 * 2**20)
LARGEST_PART = 8  # a model's file, a plan and a graph each take at most this part of the limit
PACKAGE = Path(__file__).parents[1]
EXTERNAL = b"location"  # a key that each tensor with external data has in an ONNX file
GRAPH = "-graph"  # after the key: graphs are read only where they are asked for
PLANNED = "-planned"  # after the key: the model was planned, but its plan is not stored


@dataclass(frozen=True)
class CachedPlan:
    """The plan of a model. packings: those that are known after it was made."""

    plan: Plan
    config: Config
    packings: Packings


def plan_key(model: Any, tuning: TuningDatabase | None, about: Sequence[object]) -> str | None:
    """The key of a model's plan: a hash. about: what else the plan depends on besides imgconv, as texts by repr.

    None for a model that is not cached: one that is no file or a large one, or if operators of the user's own are
    registered.
    """
    if not isinstance(model, (str, os.PathLike)) or _has_foreign_operators():
        return None
    try:
        check_regular(model)
        if os.path.getsize(model) > PLANS.limit // LARGEST_PART:
            return None
        content = Path(model).read_bytes()
        measured = b"" if tuning is None else tuning.path.read_bytes()
        surroundings = repr([*about, *_versions()]).encode()
    except OSError:
        return None
    return hash_of(surroundings, measured, content).hex()


def read_plan(key: str) -> CachedPlan | None:
    """The plan that `write_plan` stored under the key; None if there is none."""
    found: CachedPlan | None = _unpickled(PLANS.read(key))
    return found


def read_graph(key: str) -> Graph | None:
    """The graph of such a plan after the passes; None if it was deleted since."""
    found: Graph | None = _unpickled(PLANS.read(key + GRAPH))
    return found


def write_plan(key: str, model: Any, cached: CachedPlan, graph: Graph) -> bool:
    """Stores a plan, and the graph after the passes, under the key, unless they are too large. Returns whether it did.

    Models with external data are left out, because the key does not have its content.
    """
    plan = replace(cached.plan, content=dict(cached.plan.content))
    try:
        if EXTERNAL in Path(model).read_bytes():
            return False
        contents = {key + GRAPH: _pickled(graph), key: _pickled(replace(cached, plan=plan))}
    except (AttributeError, OSError, RecursionError, TypeError, pickle.PicklingError):  # such as very long expressions
        return False
    if max(map(len, contents.values())) > PLANS.limit // LARGEST_PART:
        return False
    for name, content in contents.items():
        PLANS.write(name, content)
    return True


def was_planned(key: str) -> bool:
    """Returns whether an earlier load planned the model with this key and did not store its plan."""
    return PLANS.read(key + PLANNED) is not None


def mark_as_planned(key: str) -> None:
    """Stores that a load planned the model with this key and did not store its plan."""
    PLANS.write(key + PLANNED, b"planned")


class _Pickler(pickle.Pickler):
    """Stores the fields of dataclasses only: cached properties hold hashes of texts, which differ between processes."""

    def reducer_override(self, value: Any) -> Any:
        kind = type(value)
        if not is_dataclass(kind) or kind.__reduce__ is not object.__reduce__:
            return NotImplemented
        state = {each.name: getattr(value, each.name) for each in fields(kind)}
        return copyreg.__newobj__, (kind,), state  # type: ignore[attr-defined]


def _pickled(value: object) -> bytes:
    content = io.BytesIO()
    _Pickler(content, pickle.HIGHEST_PROTOCOL).dump(value)
    return content.getvalue()


def _unpickled(content: bytes | None) -> Any:
    """Returns the pickled value; None if there is none, or if it cannot be read."""
    try:
        return None if content is None else pickle.loads(content)
    except Exception as error:  # pickle may raise any
        LOG.info("a cached plan cannot be read, so the model is planned again: %r", error)
        return None


def _has_foreign_operators() -> bool:
    """Returns whether somebody registered an operator, for which imgconv.ops must have been imported."""
    registry = sys.modules.get("imgconv.ops.registry")
    return registry is not None and registry.has_foreign_operators()


@cache
def _versions() -> tuple[str, ...]:
    """The versions that a plan depends on: those of imgconv and its files, Python, numpy and the onnx package.

    Programs that are frozen with imgconv lack its modules as files. Other processes may change bytecode meanwhile.
    """
    files = [
        f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}"
        for path in sorted(PACKAGE.rglob("*.*")) if "__pycache__" not in path.parts
    ]
    try:
        onnx = metadata.version("onnx")
    except metadata.PackageNotFoundError:
        onnx = ""
    return VERSION, sys.version, numpy.__version__, onnx, *files
