"""The file that `imgconv tune --precision` writes and `load` reads: the values that stay wider than FLOAT16.

    {"format": "imgconv precision", "version": 2, "model": "9f86d0...", "float16": 1, "tolerance": 0.01,
     "error": 0.0031, "float_storage": ["conv1", "relu7"], "float_arithmetic": [], "short_runs": [],
     "small_weights": true, "large_tiles": []}

Files of version 1 have no `short_runs`, because they were measured with every sum in fp16 chunks; so all values are.
Files without `small_weights` were measured with small weights in fp32, and those without `large_tiles` without
Winograd's F(4x4, 3x3).

The names are ONNX tensors. `model` is a hash of the graph's nodes, names and weights, but not of its sizes: one file is
valid for every size of the model at which the same values are computed.

Choices that `load` measures itself are stored in the user's cache folder, under a hash of the same data, the device and
the settings.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy

from imgconv.config import Config, Float16, Precision, is_float16
from imgconv.errors import ConfigError
from imgconv.files.disk import check_regular
from imgconv.files.disk_cache import DiskCache, hash_of
from imgconv.graph.expression import function_names
from imgconv.graph.nodes import Graph

FORMAT, VERSION = "imgconv precision", 2
SUFFIX = ".precision.json"


@dataclass(frozen=True)
class PrecisionFile:
    """A Precision, with its model's fingerprint, FLOAT16, the tolerance and the measured error."""

    model: str
    float16: Float16
    tolerance: float
    error: float
    precision: Precision
    path: str = ""
    version: int = VERSION

    def to_json(self) -> str:
        """The file's content."""
        content = {
            "format": FORMAT, "version": VERSION, "model": self.model, "float16": self.float16,
            "tolerance": self.tolerance, "error": self.error, "float_storage": sorted(self.precision.storage),
            "float_arithmetic": sorted(self.precision.arithmetic), "short_runs": sorted(self.precision.runs),
            "small_weights": self.precision.small_weights, "large_tiles": sorted(self.precision.large_tiles),
        }
        return json.dumps(content, indent=2, ensure_ascii=False) + "\n"

    def precision_of(self, graph: Graph) -> Precision:
        """The Precision, for a graph after the passes. Raises ConfigError if it was made for another graph."""
        again = "make it again with imgconv tune --precision"
        if self.model != fingerprint(graph):
            raise ConfigError(f"{self.path!r} was made for another model, or by another imgconv: {again}")
        chosen = self.precision
        named = chosen.storage | chosen.arithmetic | chosen.runs | chosen.large_tiles
        unknown = sorted(named - graph.values.keys())
        if unknown:
            raise ConfigError(f"{self.path!r} names {unknown[0]!r}, which the model does not compute: {again}")
        if self.version == 1 and self.float16 == 2:
            return replace(self.precision, runs=frozenset(graph.values))
        return self.precision


def default_path(model: str | os.PathLike[str]) -> Path:
    """The path of a model's file, next to the model: model.precision.json for model.onnx."""
    return Path(model).with_suffix(SUFFIX)


def read_precision_file(path: str | os.PathLike[str]) -> PrecisionFile:
    """The content of a file. Raises ConfigError naming it if it cannot be read, is damaged or of another kind."""
    name = os.fspath(path)
    try:
        check_regular(path)
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {name!r}: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"{name!r} is not a precision file, or it is corrupt: {error}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ConfigError(f"{name!r} is not a precision file: imgconv tune --precision writes them")
    version = content.get("version")
    if type(version) is not int or version not in (1, VERSION):
        raise ConfigError(f"{name!r} has version {version!r}; this imgconv reads versions 1 and {VERSION}")
    runs = _names(content, "short_runs", name) if version > 1 else frozenset()
    small = content.get("small_weights", False)
    if not isinstance(small, bool):
        raise ConfigError(f"{name!r} is corrupt: small_weights is {small!r}")
    precision = Precision(
        _names(content, "float_storage", name), _names(content, "float_arithmetic", name), runs,
        _names({"large_tiles": [], **content}, "large_tiles", name), small_weights=small,
    )
    model, float16, tolerance, error_ = (content.get(key) for key in ("model", "float16", "tolerance", "error"))
    if not isinstance(model, str) or not is_float16(float16) or not float16:
        raise ConfigError(f"{name!r} is corrupt: model is {model!r}, float16 is {float16!r}")
    if not isinstance(tolerance, (int, float)) or not isinstance(error_, (int, float)):
        raise ConfigError(f"{name!r} is corrupt: tolerance is {tolerance!r}, error is {error_!r}")
    return PrecisionFile(model, float16, float(tolerance), float(error_), precision, name, version)


def _names(content: dict[str, object], key: str, path: str) -> frozenset[str]:
    names = content.get(key)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{path!r} is corrupt: {key} is not a list of names")
    return frozenset(names)


def fingerprint(graph: Graph) -> str:
    """SHA-256 in hexadecimal of a graph's names, operations and constants, without its sizes."""
    digest = hashlib.sha256()
    for value in graph.inputs:
        digest.update(f"input {value.name} {value.dtype}\n".encode())
    for node in graph.nodes:
        reads = " ".join(operand.value for operand in node.all_operands)
        parts = type(node.operation).__name__, " ".join(function_names(node.epilogue)), reads
        digest.update(f"{node.output.name} {node.output.dtype} {' | '.join(parts)}\n".encode())
    for name, array in sorted(graph.constants.items()):
        digest.update(f"{name} {array.dtype} ".encode() + numpy.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


# Choices that a load measured, kept for the next one

CHOICES = DiskCache("precision", 16 * 2**20)
CHOICE = 18  # a number for the way of choosing: raise it if other values would be chosen


def choice_key(graph: Graph, device: str, config: Config) -> str:
    """The name of a choice: a hash of the graph after the passes without its sizes, the device's key, the settings."""
    about = [CHOICE, device, config.float16, config.native_explog, config.max_image]
    return hash_of(json.dumps(about).encode(), fingerprint(graph).encode()).hex()


def read_choice(key: str, graph: Graph) -> Precision | None:
    """The Precision that `write_choice` stored; None if there is none, or if it names what the graph does not have."""
    content = CHOICES.read(key)
    if content is None:
        return None
    found = json.loads(content)
    parts = "float_storage", "float_arithmetic", "short_runs", "large_tiles"
    storage, arithmetic, runs, large_tiles = (frozenset(found[part]) for part in parts)
    if not storage | arithmetic | runs | large_tiles <= graph.values.keys():
        return None
    return Precision(storage, arithmetic, runs, large_tiles, found["reasons"], found["small_weights"])


def write_choice(key: str, precision: Precision) -> None:
    """Stores a Precision under the key, replacing an older one."""
    content = {
        "float_storage": sorted(precision.storage), "float_arithmetic": sorted(precision.arithmetic),
        "short_runs": sorted(precision.runs), "large_tiles": sorted(precision.large_tiles),
        "reasons": dict(precision.reasons),
        "small_weights": precision.small_weights,
    }
    CHOICES.write(key, json.dumps(content).encode())
