"""The types of answers: the values to which heads decode a model's outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Union

import numpy
from PIL import Image

from imgconv.arrays import Array
from imgconv.preprocessing.preparation import Box, Preparation, Size, resize_geometry

Point = tuple[float, float, float]
"""x and y in pixels of the picture, and how sure it is."""


@dataclass(frozen=True)
class Label:
    """A class. index: its number in the model's output; name: "" if there are no labels."""

    index: int
    score: float
    name: str


@dataclass(frozen=True)
class Classes:
    """The best classes of a picture, best first."""

    top: tuple[Label, ...]

    def as_json(self) -> dict[str, Any]:
        """{"classes": [{"index": 281, "score": 0.93, "label": "tabby"}]}."""
        return {"classes": [_label_as_json(label) for label in self.top]}


@dataclass(frozen=True)
class Detection:
    """A thing that was found. box: left, top, right, bottom in pixels of the picture; points: landmarks, keypoints.

    mask: bool (height, width) of the picture, if the model gives one.
    """

    box: Box
    label: Label
    points: tuple[Point, ...] = ()
    mask: Array | None = None

    def as_json(self) -> dict[str, Any]:
        """{"box": [left, top, right, bottom], "index": 0, "score": 0.9, "label": "person"}, and the points."""
        points = {"points": [list(point) for point in self.points]} if self.points else {}
        pixels = {"mask_pixels": int(self.mask.sum())} if self.mask is not None else {}
        return {"box": list(self.box), **_label_as_json(self.label), **points, **pixels}


@dataclass(frozen=True)
class Detections:
    """Everything that was found in a picture, best first.

    best: the largest score of all candidates, None if there is no candidate; least: the lowest score of a detection.
    """

    found: tuple[Detection, ...]
    best: float | None = field(default=None, compare=False)
    least: float = field(default=0.0, compare=False)

    def as_json(self) -> dict[str, Any]:
        """{"detections": [...]}; see Detection. If nothing was found, "best_score" and "least_score" too."""
        made: dict[str, Any] = {"detections": [each.as_json() for each in self.found]}
        return made if self.found or self.best is None else {
            **made, "best_score": self.best, "least_score": self.least
        }


@dataclass(frozen=True)
class Segmentation:
    """A class for each pixel. mask: int32 (height, width) of the picture; names: of the classes, or empty."""

    mask: Array
    names: tuple[str, ...] = ()

    def shares(self) -> list[Label]:
        """The classes in the mask, largest first; score: the part of the picture."""
        kinds, counts = numpy.unique(self.mask, return_counts=True)
        order = numpy.argsort(-counts, kind="stable")
        return [
            Label(int(kinds[i]), float(counts[i] / self.mask.size), name_of(self.names, int(kinds[i]))) for i in order
        ]

    def as_json(self) -> dict[str, Any]:
        """{"segments": [{"index": 0, "share": 0.7, "label": "sky"}]}."""
        return {"segments": [{"index": s.index, "share": s.score, "label": s.name} for s in self.shares()]}


@dataclass(frozen=True)
class Pose:
    """The keypoints of one person or thing that fills the picture, in the model's order."""

    points: tuple[Point, ...]
    names: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """{"points": [[x, y, score]]}, with "labels" if there are any."""
        return {"points": [list(point) for point in self.points], **({"labels": self.names} if self.names else {})}


@dataclass(frozen=True)
class Text:
    """A line of text. text: "" if it was only found; corners: from its top left, clockwise, in pixels of the picture.

    corners is empty if the line fills the picture.
    """

    text: str
    score: float
    corners: tuple[tuple[float, float], ...] = ()

    def as_json(self) -> dict[str, Any]:
        """{"text": "EXIT", "score": 0.98, "corners": [[12.0, 30.5], ...]}."""
        corners = {"corners": [list(corner) for corner in self.corners]} if self.corners else {}
        return {"text": self.text, "score": self.score, **corners}


@dataclass(frozen=True)
class Texts:
    """The lines of text in a picture, from top to bottom."""

    found: tuple[Text, ...]

    def as_json(self) -> dict[str, Any]:
        """{"texts": [...]}; see Text."""
        return {"texts": [each.as_json() for each in self.found]}


@dataclass(frozen=True)
class Depth:
    """A number for each pixel, in the model's own unit. values: float32 (height, width) of the picture."""

    values: Array

    def as_json(self) -> dict[str, Any]:
        """{"depth": {"minimum": 0.1, "maximum": 9.0}}."""
        spread = {"minimum": float(numpy.nanmin(self.values)), "maximum": float(numpy.nanmax(self.values))}
        return {"depth": spread}


@dataclass(frozen=True)
class Picture:
    """An image. channels_first: (C, H, W), one or three channels, as the model gives it."""

    channels_first: Array

    def as_json(self) -> dict[str, Any]:
        """{"image": [width, height]}."""
        return {"image": list(self.channels_first.shape[:0:-1])}


Answer = Union[Classes, Detections, Segmentation, Pose, Texts, Depth, Picture]
Answers = Mapping[str, Answer]
"""By the name of the output, or of the first of those that one answer is made of."""


@dataclass(frozen=True)
class PicturePlacement:
    """The place of a picture in a model's input. picture and model: their width and height; inner, box: see
    `resize_geometry`.

    The part `box` of the picture fills the first `inner` columns and rows of the input. frame: the size that the
    picture was stretched to before, None if it was not.
    """

    picture: Size
    model: Size
    inner: Size
    box: Box
    frame: Size | None = None

    @staticmethod
    def of(picture: Size, model: Size, how: Preparation) -> PicturePlacement:
        """Returns a prepared picture's placement. Example: PicturePlacement.of((640, 480), (416, 416), how)."""
        return PicturePlacement(picture, model, *resize_geometry(picture, model, how.resize, how.crop))

    def stretched(self, picture: Size) -> PicturePlacement:
        """Returns the placement of a picture of this size that was stretched to a frame, the one placed here."""
        x, y = picture[0] / self.picture[0], picture[1] / self.picture[1]
        left, top, right, bottom = self.box
        box = left * x, top * y, right * x, bottom * y
        return PicturePlacement(picture, self.model, self.inner, box, frame=self.picture)

    def to_picture(self, points: Array) -> Array:
        """Points (..., 2), x and y in pixels of the input, as pixels of the picture; corners (..., 4) too."""
        left, top, right, bottom = self.box
        gain = (right - left) / self.inner[0], (bottom - top) / self.inner[1]
        pairs = points.reshape(*points.shape[:-1], points.shape[-1] // 2, 2)
        pairs = pairs * numpy.array(gain) + numpy.array([left, top])
        made: Array = pairs.reshape(*points.shape)
        return made


def points_on_picture(points: Array, placement: PicturePlacement) -> tuple[tuple[float, float, float], ...]:
    """Points (n, 3) of the model's input, x, y and score, on the picture."""
    places = placement.to_picture(points[:, :2].astype(numpy.float64))
    return tuple((float(x), float(y), float(score)) for (x, y), score in zip(places, points[:, 2], strict=True))


def map_on_picture(plane: Array, placement: PicturePlacement, how: Image.Resampling, outside: float) -> Array:
    """A map (h, w) over the model's input as a map over the picture, float32 (height, width).

    outside: the value outside of a crop, which the model did not see.
    """
    scale = plane.shape[1] / placement.model[0], plane.shape[0] / placement.model[1]
    seen = (0, 0, placement.inner[0] * scale[0], placement.inner[1] * scale[1])
    left, top, right, bottom = (round(edge) for edge in placement.box)
    made = Image.fromarray(plane.astype(numpy.float32)).resize((right - left, bottom - top), how, seen)
    found = numpy.full(placement.picture[::-1], outside, numpy.float32)
    found[top:bottom, left:right] = made
    return found


def name_of(names: tuple[str, ...], index: int) -> str:
    """The name of a class, "" if it has none."""
    return names[index] if 0 <= index < len(names) else ""


def _label_as_json(label: Label) -> dict[str, Any]:
    return {"index": label.index, "score": label.score, "label": label.name}
