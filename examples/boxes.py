"""Detected boxes: non-maximum suppression and drawing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy
from PIL import Image, ImageDraw

COLORS = ("red", "lime", "deepskyblue", "gold", "magenta", "cyan", "orange", "springgreen")


@dataclass(frozen=True)
class Box:
    """A detected object. corners: left, top, right, bottom in pixels of the picture."""

    corners: tuple[float, ...]
    score: float
    label: str

    def __str__(self) -> str:
        corners = "{:.0f},{:.0f} .. {:.0f},{:.0f}".format(*self.corners)
        return f"{self.score:.2f}  {corners}  {self.label}".rstrip()


def suppress(corners: Any, scores: Any, most_overlap: float) -> list[int]:
    """Greedy non-maximum suppression: the numbers of the boxes that are kept, best first.

    corners: (n, 4) left, top, right, bottom; scores: (n). A box is removed if its intersection over union with a
    better kept box is more than most_overlap.
    """
    areas = numpy.prod(corners[:, 2:] - corners[:, :2], axis=1)
    waiting = numpy.argsort(-scores, kind="stable")
    kept = []
    while waiting.size:
        best, waiting = int(waiting[0]), waiting[1:]
        kept.append(best)
        low = numpy.maximum(corners[best, :2], corners[waiting, :2])
        high = numpy.minimum(corners[best, 2:], corners[waiting, 2:])
        shared = numpy.prod(numpy.maximum(high - low, 0), axis=1)
        waiting = waiting[shared / (areas[best] + areas[waiting] - shared) <= most_overlap]
    return kept


def draw(picture: Image.Image, boxes: list[Box]) -> Image.Image:
    """The picture with the boxes and their labels drawn on it; each label has its own color."""
    drawn = picture.copy()
    pen = ImageDraw.Draw(drawn)
    labels = sorted({box.label for box in boxes})
    for box in boxes:
        color = COLORS[labels.index(box.label) % len(COLORS)]
        left, top, right, bottom = box.corners
        pen.rectangle((left, top, right, bottom), outline=color, width=2)
        if box.label:
            text = f"{box.label} {box.score:.2f}"
            pen.text((left + 4, top + 2), text, fill=color, stroke_width=1, stroke_fill="black")
    return drawn
