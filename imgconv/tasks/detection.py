"""Boxes from the outputs of detectors: the YOLO family, and what all detectors share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from imgconv.arrays import Array, Arrays
from imgconv.errors import InputError
from imgconv.preprocessing.preparation import Size
from imgconv.suppression import suppress
from imgconv.tasks.description import Description
from imgconv.tasks.values import Answers, Detection, Detections, Label, PicturePlacement, name_of

STRIDES = (8, 16, 32)
MOST_DETECTIONS = 300
FACE_COLUMNS = 16  # of YOLOv5-face: a box, its score, five landmarks, the class


def cells(size: Size, strides: Sequence[int] = STRIDES) -> tuple[Array, Array]:
    """(Column and row of each cell (n, 2), its stride (n, 1)): the grids of an input of this size, one by one by rows.

    A grid has a cell for each whole or begun stride. Example: cells((16, 8), (8,))[0] is [[0, 0], [1, 0]].
    """
    places, steps = [], []
    for stride in strides:
        rows, columns = numpy.mgrid[: -(-size[1] // stride), : -(-size[0] // stride)]
        places.append(numpy.stack([columns.ravel(), rows.ravel()], axis=1))
        steps.append(numpy.full((columns.size, 1), stride))
    return numpy.concatenate(places), numpy.concatenate(steps)


def count_cells(size: Size, strides: Sequence[int] = STRIDES) -> int:
    """The number of cells of all grids. Example: count_cells((416, 416)) is 3549."""
    return sum(-(-size[0] // stride) * -(-size[1] // stride) for stride in strides)


def corners_of(centres: Array, sizes: Array) -> Array:
    """Left, top, right, bottom (n, 4) of boxes by their centres and sizes, each (n, 2)."""
    return numpy.concatenate([centres - sizes / 2, centres + sizes / 2], axis=1)


def detections(
    corners: Array, scores: Array, description: Description, placement: PicturePlacement, points: Array | None = None,
    first: int = 0,
) -> tuple[Detections, Array]:
    """Returns the boxes that suppression keeps, best first, in pixels of the picture; second, their numbers.

    corners: (n, 4) in pixels of the model's input; scores: (n, classes); points: (n, k, 3), x and y as the corners and
    a score. Boxes of different classes do not suppress each other. first: the number of the first class in `scores`.
    """
    most, least = scores.max(axis=1, initial=-numpy.inf), description.score or 0.0
    likely = numpy.flatnonzero(most > least)
    best = scores[likely].argmax(axis=1)
    values = scores[likely, best]
    stays = suppress(corners[likely], values, description.overlap or 0.45, MOST_DETECTIONS, best)
    order = stays[numpy.argsort(-values[stays], kind="stable")][:MOST_DETECTIONS]
    kept = likely[order]
    boxes = placement.to_picture(corners[kept].astype(numpy.float64)).clip(0, [*placement.picture, *placement.picture])
    found = []
    for box, number, place in zip(boxes, kept, order, strict=True):
        index = int(best[place]) + first
        label = Label(index, float(values[place]), _name(description, scores.shape[1], index, first))
        marks = _points(points[number], placement) if points is not None else ()
        found.append(Detection((float(box[0]), float(box[1]), float(box[2]), float(box[3])), label, marks))
    return Detections(tuple(found), float(most.max()) if most.size else None, least), kept


def _points(points: Array, placement: PicturePlacement) -> tuple[tuple[float, float, float], ...]:
    places = placement.to_picture(points[:, :2].astype(numpy.float64))
    return tuple((float(x), float(y), float(score)) for (x, y), score in zip(places, points[:, 2], strict=True))


def _name(description: Description, classes: int, index: int, first: int) -> str:
    """The name of a class; labels may have the background, which comes first, or not. Raises InputError."""
    labels = description.labels
    if labels and len(labels) not in (classes, classes + first):
        raise InputError(f"the model has {classes} classes, but there are {len(labels)} labels")
    return name_of(labels, index if len(labels) == classes + first else index - first)


def only(outputs: Arrays) -> tuple[str, Array]:
    """The name of the first output, and its one element of the batch."""
    name, array = next(iter(outputs.items()))
    return name, array[0]


def yolox(outputs: Arrays, description: Description, placement: PicturePlacement) -> Answers:
    """Boxes of YOLOX (Ge et al., arXiv:2107.08430), undecoded: (1, cells, 5 + classes).

    A row has the centre relative to its cell in strides, the logarithm of width and height in strides, the score that
    there is an object, and the scores of the classes.
    """
    name, rows = only(outputs)
    places, strides = cells(placement.model)
    centres, sizes = (rows[:, :2] + places) * strides, numpy.exp(rows[:, 2:4]) * strides
    found, _ = detections(corners_of(centres, sizes), rows[:, 4:5] * rows[:, 5:], description, placement)
    return {name: found}


def yolov5(outputs: Arrays, description: Description, placement: PicturePlacement) -> Answers:
    """Boxes of YOLOv5 and v7 as they are exported: (1, 3 * cells, 5 + classes).

    A row has centre, width and height in pixels, the score that there is an object, and the scores of the classes.
    """
    name, rows = only(outputs)
    if rows.shape[-1] == FACE_COLUMNS and (abs(rows[:, 5:15]) > 1.01).any():
        raise InputError(f"{name!r} has scores above 1, which are landmarks if it is YOLOv5-face: --head yolov5-face")
    found, _ = detections(
        corners_of(rows[:, :2], rows[:, 2:4]), rows[:, 4:5] * rows[:, 5:], description, placement
    )
    return {name: found}


def yolov5_face(outputs: Arrays, description: Description, placement: PicturePlacement) -> Answers:
    """Faces and five landmarks of YOLOv5-face (Qi et al., arXiv:2105.12931): (1, 3 * cells, 16).

    A row has centre, width and height in pixels, the score that there is an object, x and y of five landmarks in
    pixels, and the score of the class.
    """
    name, rows = only(outputs)
    if rows.shape[-1] != FACE_COLUMNS:
        raise ValueError(rows.shape)
    scores = rows[:, 4:5] * rows[:, 15:]
    points = numpy.concatenate([rows[:, 5:15].reshape(-1, 5, 2), numpy.repeat(scores[:, None], 5, axis=1)], axis=2)
    found, _ = detections(corners_of(rows[:, :2], rows[:, 2:4]), scores, description, placement, points)
    return {name: found}


def yolov8(outputs: Arrays, description: Description, placement: PicturePlacement) -> Answers:
    """Boxes of YOLOv8 and v11 as they are exported: (1, 4 + classes, cells).

    A column has centre, width and height in pixels, and the scores of the classes.
    """
    name, columns = only(outputs)
    rows = columns.T
    found, _ = detections(corners_of(rows[:, :2], rows[:, 2:4]), rows[:, 4:], description, placement)
    return {name: found}


def yolov8_pose(outputs: Arrays, description: Description, placement: PicturePlacement) -> Answers:
    """People and keypoints of YOLOv8-pose: (1, 5 + 3 * keypoints, cells), each keypoint x, y and a score."""
    name, columns = only(outputs)
    rows = columns.T
    points = rows[:, 5:].reshape(len(rows), -1, 3)
    found, _ = detections(corners_of(rows[:, :2], rows[:, 2:4]), rows[:, 4:5], description, placement, points)
    return {name: found}


def boxes(outputs: Arrays, description: Description, placement: PicturePlacement) -> Answers:
    """Boxes that the model itself has suppressed, as torchvision's detectors give them, in any order of the outputs.

    Floats (n, 4), corners in pixels of the input; floats (n), scores; integers (n), classes. A batch of one may stand
    in front.
    """
    # Four scores with a batch in front have the last axis of boxes too, and fewer axes.
    name = max((n for n, array in outputs.items() if array.shape[-1:] == (4,)), key=lambda n: outputs[n].ndim)
    corners = outputs[name].reshape(-1, 4)
    flat = [array.reshape(-1) for n, array in outputs.items() if n != name and array.size == len(corners)]
    values = next(array for array in flat if array.dtype.kind == "f")
    kinds = next(array for array in flat if array.dtype.kind in "iu").astype(numpy.int64)
    found, _ = detections(corners, one_class_each(values, kinds, len(description.labels)), description, placement)
    return {name: found}


def yolov10(outputs: Arrays, description: Description, placement: PicturePlacement) -> Answers:
    """Boxes of YOLOv10 and YOLO26, which need no suppression: (1, n, 6), corners in pixels, score and class."""
    name, rows = only(outputs)
    scores = one_class_each(rows[:, 4], rows[:, 5].round().astype(numpy.int64), len(description.labels))
    found, _ = detections(rows[:, :4], scores, description, placement)
    return {name: found}


def one_class_each(values: Array, kinds: Array, least: int = 0) -> Array:
    """Scores (n, classes) that are 0 but for one in each row: that of its class. least: the least number of classes."""
    scores = numpy.zeros((len(kinds), max(int(kinds.max(initial=0)) + 1, least)))
    scores[numpy.arange(len(kinds)), kinds] = values
    return scores
