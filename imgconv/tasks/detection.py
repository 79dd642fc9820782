"""Decodes the outputs of detectors to boxes: the YOLO family, and code that all detectors share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy
from PIL import Image

from imgconv.arrays import Array, Arrays
from imgconv.errors import InputError
from imgconv.preprocessing.preparation import Size
from imgconv.suppression import suppress
from imgconv.tasks.description import Description
from imgconv.tasks.values import Answers, Detection, Detections, Label, PicturePlacement
from imgconv.tasks.values import map_on_picture, name_of, points_on_picture

STRIDES = (8, 16, 32)
MOST_DETECTIONS = 300
FACE_COLUMNS = 16  # of YOLOv5-face: a box, its score, five landmarks, the class


def grid_cells(size: Size, strides: Sequence[int] = STRIDES) -> tuple[Array, Array]:
    """(Column and row of each cell (n, 2), its stride (n, 1)): the grids of an input of this size, one by one by rows.

    A grid has a cell for each whole or begun stride. Example: grid_cells((16, 8), (8,))[0] is [[0, 0], [1, 0]].
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


@dataclass(frozen=True)
class Masks:
    """The masks of boxes as sums of prototypes: a pixel inside of the box is of its mask if its sum is above 0.

    coefficients: (n, k); prototypes: (k, height, width) over the model's input.
    """

    coefficients: Array
    prototypes: Array


@dataclass(frozen=True)
class Candidates:
    """The boxes that a head reads from a model's outputs, before suppression: numpy arrays, or GraphArrays in a graph.

    output: the name of the output that the answer is named after; corners: (n, 4), left, top, right, bottom in pixels
    of the model's input; scores: (n, classes), or (n) with `kinds`, the class of each; points: (n, k, 3), x and y as
    the corners and a score; first: the number of the first class in `scores`; several: whether a box may have several
    classes, not only its best one.
    """

    output: str
    corners: Array
    scores: Array
    kinds: Array | None = None
    points: Array | None = None
    first: int = 0
    several: bool = False
    masks: Masks | None = None


def detections(
    candidates: Candidates, description: Description, placement: PicturePlacement
) -> tuple[Detections, Array]:
    """Returns the boxes that suppression keeps, best first, in pixels of the picture; second, their numbers.

    Boxes of different classes do not suppress each other. Of equal scores the first candidate is better.
    """
    least, first = description.score or 0.0, candidates.first
    likely, kinds, values = _above_threshold(candidates, least)
    corners = candidates.corners[likely]
    stays = numpy.sort(suppress(corners, values, description.overlap or 0.45, MOST_DETECTIONS, kinds))
    order = stays[numpy.argsort(-values[stays], kind="stable")][:MOST_DETECTIONS]
    kept = likely[order]
    boxes = placement.to_picture(corners[order].astype(numpy.float64)).clip(0, [*placement.picture, *placement.picture])
    classes, found = count_classes(candidates, description), []
    for box, number, place in zip(boxes, kept, order, strict=True):
        index = int(kinds[place]) + first
        label = Label(index, float(values[place]), _class_name(description, classes, index, first))
        marks = points_on_picture(candidates.points[number], placement) if candidates.points is not None else ()
        found.append(Detection((float(box[0]), float(box[1]), float(box[2]), float(box[3])), label, marks))
    best = float(candidates.scores.max()) if candidates.scores.size else None
    return Detections(tuple(found), best, least), kept


@dataclass(frozen=True)
class BoxDecoder:
    """The decoder of a detector: its formula, then suppression."""

    formula: Callable[[Arrays, Description, Size], Candidates]

    def __call__(self, outputs: Arrays, description: Description, placement: PicturePlacement) -> Answers:
        candidates = self.formula(outputs, description, placement.model)
        found, kept = detections(candidates, description, placement)
        masks = candidates.masks
        if masks is not None:
            pairs = zip(found.found, masks.coefficients[kept], strict=True)
            masked = (replace(each, mask=_mask(each, row, masks.prototypes, placement)) for each, row in pairs)
            found = replace(found, found=tuple(masked))
        return {candidates.output: found}


def pixels_inside(boxes: Array, size: Size) -> Array:
    """The pixels of a picture of this size, (n, height, width), whose middles are inside of boxes, (n, 4)."""
    columns, rows = (numpy.arange(n) + 0.5 for n in size)
    left, top, right, bottom = (boxes[:, edge, None] for edge in range(4))
    across, down = (columns >= left) & (columns <= right), (rows >= top) & (rows <= bottom)
    found: Array = down[:, :, None] & across[:, None, :]
    return found


def _mask(found: Detection, coefficients: Array, prototypes: Array, placement: PicturePlacement) -> Array:
    """The mask of a detection, bool (height, width) of the picture."""
    sums = numpy.tensordot(coefficients, prototypes, 1)
    whole = map_on_picture(sums, placement, Image.Resampling.BILINEAR, -1) > 0
    mask: Array = whole & pixels_inside(numpy.array([found.box]), placement.picture)[0]
    return mask


def _above_threshold(candidates: Candidates, least: float) -> tuple[Array, Array, Array]:
    """The numbers, classes and scores of the boxes whose score is above `least`."""
    scores = candidates.scores
    if candidates.kinds is not None:
        rows = numpy.flatnonzero(scores > least)
        return rows, candidates.kinds[rows], scores[rows]
    if candidates.several:
        rows, kinds = numpy.nonzero(scores > least)
    else:
        rows = numpy.flatnonzero(scores.max(axis=1, initial=-numpy.inf) > least)
        kinds = scores[rows].argmax(axis=1)
    return rows, kinds, scores[rows, kinds]


def count_classes(candidates: Candidates, description: Description) -> int:
    """The number of classes; where only boxes have one, as far as the boxes and the labels show it."""
    if candidates.kinds is None:
        return int(candidates.scores.shape[1])
    shown = int(candidates.kinds.max(initial=0)) + 1 if isinstance(candidates.kinds, numpy.ndarray) else 0
    return max(shown, len(description.labels))


def _class_name(description: Description, classes: int, index: int, first: int) -> str:
    """The name of a class; labels may have the background, which comes first, or not. Raises InputError."""
    labels = description.labels
    if labels and len(labels) not in (classes, classes + first):
        raise InputError(f"the model has {classes} classes, but there are {len(labels)} labels")
    return name_of(labels, index if len(labels) == classes + first else index - first)


def single_output(outputs: Arrays) -> tuple[str, Array]:
    """The name of the first output, and its one element of the batch."""
    name, array = next(iter(outputs.items()))
    return name, array[0]


def yolox(outputs: Arrays, description: Description, size: Size) -> Candidates:
    """Boxes of YOLOX (Ge et al., arXiv:2107.08430), undecoded: (1, cells, 5 + classes).

    A row has the centre relative to its cell in strides, the logarithm of width and height in strides, the score that
    there is an object, and the scores of the classes.
    """
    name, rows = single_output(outputs)
    places, strides = grid_cells(size)
    centres, sizes = (rows[:, :2] + places) * strides, numpy.exp(rows[:, 2:4]) * strides
    return Candidates(name, corners_of(centres, sizes), rows[:, 4:5] * rows[:, 5:])


def yolov5(outputs: Arrays, description: Description, size: Size) -> Candidates:
    """Boxes of YOLOv5 and v7 as they are exported: (1, 3 * cells, 5 + classes).

    A row has centre, width and height in pixels, the score that there is an object, and the scores of the classes.
    """
    name, rows = single_output(outputs)
    is_array = isinstance(rows, numpy.ndarray)  # what a graph computes is not known yet
    if rows.shape[-1] == FACE_COLUMNS and is_array and (abs(rows[:, 5:15]) > 1.01).any():
        raise InputError(f"{name!r} has scores above 1, which are landmarks if it is YOLOv5-face: --head yolov5-face")
    return Candidates(name, corners_of(rows[:, :2], rows[:, 2:4]), rows[:, 4:5] * rows[:, 5:])


def yolov5_face(outputs: Arrays, description: Description, size: Size) -> Candidates:
    """Faces and five landmarks of YOLOv5-face (Qi et al., arXiv:2105.12931): (1, 3 * cells, 16).

    A row has centre, width and height in pixels, the score that there is an object, x and y of five landmarks in
    pixels, and the score of the class.
    """
    name, rows = single_output(outputs)
    if rows.shape[-1] != FACE_COLUMNS:
        raise ValueError(rows.shape)
    scores = rows[:, 4:5] * rows[:, 15:]
    points = numpy.concatenate([rows[:, 5:15].reshape(-1, 5, 2), numpy.repeat(scores[:, None], 5, axis=1)], axis=2)
    return Candidates(name, corners_of(rows[:, :2], rows[:, 2:4]), scores, points=points)


def yolov8(outputs: Arrays, description: Description, size: Size) -> Candidates:
    """Boxes of YOLOv8 and v11 as they are exported: (1, 4 + classes, cells).

    A column has centre, width and height in pixels, and the scores of the classes.
    """
    name, columns = single_output(outputs)
    rows = columns.T
    return Candidates(name, corners_of(rows[:, :2], rows[:, 2:4]), rows[:, 4:])


def yolov8_seg(outputs: Arrays, description: Description, size: Size) -> Candidates:
    """Boxes and masks of YOLOv8-seg: (1, 4 + classes + k, cells) and prototypes (1, k, height / 4, width / 4)."""
    name, columns = single_output(outputs)
    prototypes = next(array[0] for array in outputs.values() if array.ndim == 4)
    rows, count = columns.T, len(prototypes)
    masks = Masks(rows[:, -count:], prototypes)
    return Candidates(name, corners_of(rows[:, :2], rows[:, 2:4]), rows[:, 4:-count], masks=masks)


def yolov8_pose(outputs: Arrays, description: Description, size: Size) -> Candidates:
    """People and keypoints of YOLOv8-pose: (1, 5 + 3 * keypoints, cells), each keypoint x, y and a score."""
    name, columns = single_output(outputs)
    rows = columns.T
    points = rows[:, 5:].reshape(len(rows), -1, 3)
    return Candidates(name, corners_of(rows[:, :2], rows[:, 2:4]), rows[:, 4:5], points=points)


def boxes(outputs: Arrays, description: Description, size: Size) -> Candidates:
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
    return Candidates(name, corners, values, kinds)


def yolov10(outputs: Arrays, description: Description, size: Size) -> Candidates:
    """Boxes of YOLOv10 and YOLO26, which need no suppression: (1, n, 6), corners in pixels, score and class."""
    name, rows = single_output(outputs)
    return Candidates(name, rows[:, :4], rows[:, 4], rows[:, 5].round().astype(numpy.int64))
