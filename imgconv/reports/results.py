"""A model's output as its shape suggests: class scores, an image, or a summary of any other tensor."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy

from imgconv.arrays import Array
from imgconv.errors import InputError
from imgconv.files.disk import check_regular

SMALLEST_IMAGE = 16


@dataclass(frozen=True)
class Score:
    """One class. label: "" if there are no labels."""

    index: int
    score: float
    label: str


@dataclass(frozen=True)
class Scores:
    """The best classes, best first."""

    top: tuple[Score, ...]


@dataclass(frozen=True)
class ImageOutput:
    """An image. channels_first: (C, H, W)."""

    channels_first: Array


@dataclass(frozen=True)
class Summary:
    """The spread of a tensor's finite values, NaN if it has none. not_finite: the number of other values."""

    minimum: float
    maximum: float
    mean: float
    not_finite: int


Result = Scores | ImageOutput | Summary


def kind_of(shape: Sequence[int], dtype: str) -> str:
    """'scores': one value for each of at least two classes; 'image': (1, 1 or 3, H, W); 'summary': any other."""
    if sum(n != 1 for n in shape) == 1 and 0 not in shape and dtype.startswith("float"):
        return "scores"
    is_pixels = dtype.startswith("float") or dtype == "uint8"
    if is_pixels and len(shape) == 4 and shape[0] == 1 and shape[1] in (1, 3) and min(shape[2:]) >= SMALLEST_IMAGE:
        return "image"
    return "summary"


def interpret(name: str, array: Array, top: int, labels: Sequence[str] = ()) -> Result:
    """The Result for an output. top: how many classes; labels: all names. Raises InputError if their number differs."""
    kind = kind_of(array.shape, str(array.dtype))
    if kind == "scores":
        return Scores(_best(name, array.reshape(-1), top, labels))
    if kind == "image":
        return ImageOutput(array[0])
    return summarize(array)


def summarize(array: Array) -> Summary:
    """The spread of any array."""
    values = array.astype(numpy.float64)
    finite = values[numpy.isfinite(values)]
    if not finite.size:
        return Summary(math.nan, math.nan, math.nan, values.size)
    return Summary(float(finite.min()), float(finite.max()), float(finite.mean()), values.size - finite.size)


def _best(name: str, scores: Array, top: int, labels: Sequence[str]) -> tuple[Score, ...]:
    if labels and len(labels) != scores.size:
        raise InputError(f"output {name!r} has {scores.size} scores, but there are {len(labels)} labels")
    order = numpy.argsort(-scores.astype(numpy.float64), kind="stable")[:top]
    return tuple(Score(int(i), float(scores[i]), labels[i] if labels else "") for i in order)


def read_labels(path: str | Path) -> tuple[str, ...]:
    """One name a line; if every line starts with its own number, as in "0,tench", the number is dropped.

    Raises InputError naming the file.
    """
    try:
        check_regular(path)
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read labels {str(path)!r}: {getattr(error, 'strerror', None) or error}") from error
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise InputError(f"labels {str(path)!r} are empty: one name a line is needed")
    numbered = [re.fullmatch(rf"\s*{number}[\s,:;.]+(.*\S)\s*", line) for number, line in enumerate(lines)]
    return tuple(match[1] if match and all(numbered) else line.strip() for match, line in zip(numbered, lines))
