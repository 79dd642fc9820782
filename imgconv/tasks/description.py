"""Description: a model's task, head, labels and preparation, from a JSON file that stored/description_file.py finds.

    yolox_nano.task.json, next to yolox_nano.onnx
    {"task": "detect", "head": "yolox", "labels": "labels.txt", "score": 0.4,
     "preparation": {"resize": "letterbox", "order": "bgr"}}

`imgconv compile` and `Model.save` put the text into the compiled file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from imgconv.errors import InputError
from imgconv.preprocessing.preparation import Preparation, Size, merged_settings

TASKS = ("classify", "detect", "segment", "pose", "depth", "image", "text")


@dataclass(frozen=True)
class Description:
    """The meaning of a model's outputs. Fields that are None or empty are inferred, or have the head's value.

    task: one of TASKS; head: the layout of the outputs, see imgconv.tasks.HEADS; labels: class names; preparation:
    fields of a Preparation; score: minimum score of a detection; overlap: maximum intersection over union of two
    detections; top: number of classes to return. anchors: for heads with anchors, one entry per feature map,
    {"stride": pixels, "sizes": [[width, height], ...]}, optionally with "density": [anchors in a row, ...], see
    anchors.FACEBOXES; variances: for heads with anchors, of centres and of sizes. picture: for a file that accepts
    frames, see `imgconv compile --picture`: "size", width and height of the frame, and "model", those of the network.
    answers: whether the outputs are decoded answers, see `imgconv.answers`; then labels are indexed by class.
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
    picture: Mapping[str, Size] = field(default_factory=dict)
    answers: bool = False

    def __post_init__(self) -> None:
        """Raises InputError for an unknown task or field of a preparation, and for a picture without its sizes."""
        if self.task and self.task not in TASKS:
            raise InputError(f"task is {self.task!r}; use {', '.join(TASKS)}")
        known = {each.name for each in fields(Preparation)}
        unknown = sorted(set(self.preparation) - known)
        if unknown:
            raise InputError(f"preparation has no {unknown[0]!r}; it has {', '.join(sorted(known))}")
        if self.picture and set(self.picture) != {"size", "model"}:
            raise InputError("picture has the sizes of a frame and of the network's input: 'size' and 'model'")

    def with_defaults(self, defaults: Mapping[str, Any]) -> Description:
        """Returns it with a head's values for fields that are None or empty. Preparations are merged, see
        `merged_settings`.
        """
        missing = {name: value for name, value in defaults.items() if not getattr(self, name)}
        preparation = merged_settings(self.preparation, defaults.get("preparation", {}))
        return replace(self, **{**missing, "preparation": preparation})


def read_description(text: str, where: str = "") -> Description:
    """Returns the description in a JSON text, with the labels in it. where: named in errors.

    Raises InputError. Example: read_description('{"task": "pose"}').task is "pose".
    """
    try:
        content = json.loads(text)
        if not isinstance(content, dict):
            raise ValueError("it is not a JSON object")
        unknown = sorted(set(content) - {each.name for each in fields(Description)})
        if unknown:
            listed = ", ".join(each.name for each in fields(Description))
            raise InputError(f"there is no field {unknown[0]!r}; the fields are {listed}")
        labels = content.get("labels", ())
        tuples = {name: tuple(content[name]) for name in ("anchors", "variances") if name in content}
        preparation = {name: _setting_from_json(value) for name, value in content.get("preparation", {}).items()}
        sizes = {name: (int(width), int(height)) for name, (width, height) in content.get("picture", {}).items()}
        about = {"labels": tuple(map(str, labels)), "preparation": preparation, "picture": sizes}
        return Description(**{**content, **tuples, **about})
    except InputError as error:
        raise InputError(f"{where or 'the description'}: {error}") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{where or 'the description'} is not a description of a task: {error}") from error


def _setting_from_json(value: Any) -> Any:
    """A field of a Preparation as JSON has it: a list is a tuple, "1/255" a number."""
    if isinstance(value, list):
        return tuple(map(float, value))
    if isinstance(value, str) and re.fullmatch(r"[\d.]+/[\d.]+", value):
        above, below = value.split("/")
        return float(above) / float(below)
    return value
