"""A model's task, head, labels and preparation, from a small JSON file beside it.

    yolox_nano.task.json beside yolox_nano.onnx
    {"task": "detect", "head": "yolox", "labels": "labels.txt", "score": 0.4,
     "preparation": {"resize": "letterbox", "order": "bgr"}}

`imgconv compile` and `Model.save` put the text into the compiled file.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from imgconv.errors import InputError
from imgconv.files.disk import check_regular
from imgconv.pictures.preparation import Preparation

SUFFIX = ".task.json"
TASKS = ("classify", "detect", "segment", "pose", "depth", "image", "text")


@dataclass(frozen=True)
class Description:
    """The meaning of a model's outputs. Fields that are None or empty are guessed, or the head's own.

    task: one of TASKS; head: how the outputs are laid out, see imgconv.tasks.HEADS; labels: the names of the classes;
    preparation: fields of a Preparation; score: the least of a detection; overlap: the most of two detections, as
    intersection over union; top: how many classes. anchors: those of an anchor head, for each level {"stride": pixels,
    "sizes": [[width, height], ...]}; variances: of anchor heads, of centres and of sizes.
    """

    task: str = ""
    head: str = ""
    labels: tuple[str, ...] = ()
    preparation: Mapping[str, Any] = field(default_factory=dict)
    score: float | None = None
    overlap: float | None = None
    top: int = 5
    anchors: tuple[Mapping[str, Any], ...] = ()
    variances: tuple[float, float] = (0.1, 0.2)

    def __post_init__(self) -> None:
        """Raises InputError for a task that there is not, or a preparation that cannot be."""
        if self.task and self.task not in TASKS:
            raise InputError(f"task is {self.task!r}; use {', '.join(TASKS)}")
        known = {each.name for each in fields(Preparation)}
        unknown = sorted(set(self.preparation) - known)
        if unknown:
            raise InputError(f"preparation has no {unknown[0]!r}; it has {', '.join(sorted(known))}")

    def after(self, defaults: Mapping[str, Any]) -> Description:
        """With a head's values for what is None or empty. Preparations are joined."""
        missing = {name: value for name, value in defaults.items() if not getattr(self, name)}
        preparation = {**defaults.get("preparation", {}), **self.preparation}
        return replace(self, **{**missing, "preparation": preparation})


def read_description(text: str, where: str = "", folder: Path | None = None) -> Description:
    """The description in a JSON text. where: what errors name; folder: that of the file of labels.

    Raises InputError. Example: read_description('{"task": "pose"}').task is "pose".
    """
    try:
        content = json.loads(text)
        if not isinstance(content, dict):
            raise ValueError("it is no object")
        unknown = sorted(set(content) - {each.name for each in fields(Description)})
        if unknown:
            listed = ", ".join(each.name for each in fields(Description))
            raise InputError(f"there is no {unknown[0]!r}; what can be said: {listed}")
        labels = content.get("labels", ())
        if isinstance(labels, str):
            labels = read_labels((folder or Path()) / labels)
        tuples = {name: tuple(content[name]) for name in ("anchors", "variances") if name in content}
        preparation = {name: _as_setting(value) for name, value in content.get("preparation", {}).items()}
        return Description(**{**content, **tuples, "labels": tuple(map(str, labels)), "preparation": preparation})
    except InputError as error:
        raise InputError(f"{where or 'the description'}: {error}") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{where or 'the description'} describes no task: {error}") from error


def beside(model: str | os.PathLike[str]) -> Path:
    """The path of the description of a model: a.task.json beside a.onnx."""
    return Path(model).with_suffix(SUFFIX)


def description_beside(model: str | os.PathLike[str]) -> str:
    """The text of the description beside a model, with the labels in it; "" if there is none. Raises InputError."""
    if not Path(model).name or not beside(model).is_file():
        return ""
    path = beside(model)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {str(path)!r}: {getattr(error, 'strerror', None) or error}") from error
    labels = read_description(text, repr(str(path)), path.parent).labels
    content = json.loads(text)
    return json.dumps(content | {"labels": labels} if labels else content, ensure_ascii=False)


def read_labels(path: str | Path) -> tuple[str, ...]:
    """One name a line; if every line starts with its own number, as in "0,tench", the number is dropped.

    A line of a space is that space, as dictionaries of characters have it.

    Raises InputError naming the file.
    """
    try:
        check_regular(path)
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read labels {str(path)!r}: {getattr(error, 'strerror', None) or error}") from error
    while lines and not lines[-1]:
        lines.pop()
    if not any(map(str.strip, lines)):
        raise InputError(f"labels {str(path)!r} are empty: one name a line is needed")
    numbered = [re.fullmatch(rf"\s*{number}[\s,:;.]+(.*\S)\s*", line) for number, line in enumerate(lines)]
    return tuple(match[1] if match and all(numbered) else line.strip() or line for match, line in zip(numbered, lines))


def _as_setting(value: Any) -> Any:
    """A field of a Preparation as JSON has it: a list is a tuple, "1/255" a number."""
    if isinstance(value, list):
        return tuple(map(float, value))
    if isinstance(value, str) and re.fullmatch(r"[\d.]+/[\d.]+", value):
        above, below = value.split("/")
        return float(above) / float(below)
    return value
