"""Infers from an ONNX file how to preprocess pictures: metadata of known exporters, and a transposition."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx

from imgconv.onnx_import.file import read_file

PASSING = {"Cast", "Identity", "Add", "Sub", "Mul", "Div"}  # nodes that leave channels where they are
# Values of Windows ML's Image.NominalPixelRange.
RANGES: Mapping[str, Mapping[str, Any]] = {
    "NominalRange_0_255": {"scale": 1.0}, "Normalized_0_1": {"scale": 1 / 255},
    "Normalized_1_1": {"scale": 1 / 127.5, "mean": (1.0,)},
}


@dataclass(frozen=True)
class PictureHints:
    """Hints of a file on the pictures that an input takes.

    preparation: fields of a Preparation; labels, head: of a Description, "" if nothing says them; channels_last: the
    first nodes turn (N, H, W, C) to (N, C, H, W).
    """

    preparation: Mapping[str, Any] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    head: str = ""
    channels_last: bool = False


def picture_hints(path: str, name: str) -> PictureHints:
    """The hints of an ONNX file on its input of this name. Raises ModelError."""
    return hints_of(read_file(Path(path)), name)


def hints_of(proto: onnx.ModelProto, name: str) -> PictureHints:
    """The hints of a model on its input of this name."""
    about = {entry.key: entry.value for entry in proto.metadata_props}
    found = dict(RANGES.get(about.get("Image.NominalPixelRange", ""), {}))
    if about.get("Image.BitmapPixelFormat", "").startswith("Bgr"):
        found["order"] = "bgr"
    if "names" in about and "stride" in about:  # Ultralytics': YOLOv5 to YOLO26
        found["scale"] = 1 / 255
    # The outputs of a network for keypoints have the form of one for boxes, with other classes.
    head = "yolov8-pose" if about.get("task") == "pose" and "kpt_shape" in about else ""
    labels = _names(about.get("names", ""))
    if "character" in about:  # RapidOCR's recognizers of text: a character a line
        labels, head = tuple(about["character"].split("\n")), "ctc"
    return PictureHints(found, labels, head, _is_transposed(proto.graph, name))


def _is_transposed(graph: onnx.GraphProto, name: str) -> bool:
    """Returns whether the first nodes after an input move its last axis to the second place."""
    while True:
        after = [node for node in graph.node if name in node.input and node.op_type != "Shape"]
        if len(after) != 1:
            return False
        if after[0].op_type == "Transpose":
            return [list(each.ints) for each in after[0].attribute if each.name == "perm"] == [[0, 3, 1, 2]]
        if after[0].op_type not in PASSING:
            return False
        name = after[0].output[0]


def _names(text: str) -> tuple[str, ...]:
    """The names of classes as Ultralytics writes them: "{0: 'person', 1: 'car'}"."""
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ()
    named = isinstance(found, dict) and list(found) == list(range(len(found)))
    return tuple(map(str, found.values())) if named else ()
