"""Reads answers from the outputs of a model that computed them on the device: see imgconv/answers.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy
from PIL import Image

from imgconv.arrays import Array, Arrays
from imgconv.tasks.description import Description
from imgconv.tasks.text import dbnet, text_of
from imgconv.tasks.values import (
    Answer, Answers, Classes, Depth, Detection, Detections, Label, Picture, PicturePlacement, Pose, Segmentation, Texts,
    map_on_picture, name_of, points_on_picture,
)


def read_answers(task: str, outputs: Arrays, description: Description, placement: PicturePlacement) -> Answers:
    """The answers in the outputs `boxes`, `scores`, `classes` and so on; see imgconv/answers.py.

    placement: of the picture in the model's input. A file that takes frames gives answers in pixels of the frame.
    """
    if description.picture:
        size, frame = placement.picture, placement.frame or placement.picture
        placement = PicturePlacement(size, frame, frame, (0, 0, *size))
    first = "boxes" if "boxes" in outputs else next(iter(outputs))
    made = _detections if first == "boxes" else READERS[task]
    return {first: made(outputs, description, placement)}


def _detections(outputs: Arrays, description: Description, placement: PicturePlacement) -> Answer:
    count = int(outputs["count"][0])
    boxes = placement.to_picture(outputs["boxes"][:count].astype(numpy.float64))
    boxes = boxes.clip(0, [*placement.picture, *placement.picture])
    points = outputs.get("points")
    marks = [()] * count if points is None else [points_on_picture(each, placement) for each in points[:count]]
    labels = _labels(outputs["classes"][:count], outputs["scores"], description)
    masks = [_mask(each, placement) for each in outputs["masks"][:count]] if "masks" in outputs else [None] * count
    found = (
        Detection((float(box[0]), float(box[1]), float(box[2]), float(box[3])), label, points, mask)
        for box, label, points, mask in zip(boxes, labels, marks, masks, strict=True)
    )
    return Detections(tuple(found), None, description.score or 0.0)


def _mask(mask: Array, placement: PicturePlacement) -> Array:
    return map_on_picture(mask, placement, Image.Resampling.NEAREST, 0) > 0


def _labels(classes: Array, scores: Array, description: Description) -> list[Label]:
    pairs = zip(classes.tolist(), scores.tolist())
    return [Label(kind, score, name_of(description.labels, kind)) for kind, score in pairs]


def _pose(outputs: Arrays, description: Description, placement: PicturePlacement) -> Answer:
    return Pose(points_on_picture(outputs["points"], placement), description.labels)


def _classes(outputs: Arrays, description: Description, placement: PicturePlacement) -> Answer:
    return Classes(tuple(_labels(outputs["classes"], outputs["scores"], description)))


def _segments(outputs: Arrays, description: Description, placement: PicturePlacement) -> Answer:
    mask = map_on_picture(outputs["mask"], placement, Image.Resampling.NEAREST, -1)
    return Segmentation(mask.astype(numpy.int32), description.labels)


def _depth(outputs: Arrays, description: Description, placement: PicturePlacement) -> Answer:
    return Depth(map_on_picture(outputs["map"], placement, Image.Resampling.BILINEAR, numpy.nan))


def _image(outputs: Arrays, description: Description, placement: PicturePlacement) -> Answer:
    is_bgr = description.preparation.get("order") == "bgr"  # then Picture is
    return Picture(outputs["image"].transpose(2, 0, 1)[:: -1 if is_bgr else 1])


def _texts(outputs: Arrays, description: Description, placement: PicturePlacement) -> Answer:
    if "map" in outputs:
        # The device cannot walk along regions; here its probabilities become lines.
        whole = {"map": outputs["map"][None, None]}
        return dbnet(whole, description, placement)["map"]
    count = int(outputs["count"][0])
    return Texts((text_of(outputs["classes"][:count], outputs["scores"][:count], description.labels[1:]),))


READERS: Mapping[str, Callable[[Arrays, Description, PicturePlacement], Answer]] = {
    "pose": _pose, "classify": _classes, "segment": _segments, "text": _texts,
    "depth": _depth, "image": _image,
}
