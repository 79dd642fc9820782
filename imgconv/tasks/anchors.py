"""Decodes the outputs of anchor detectors to boxes: SSD (Liu et al., arXiv:1512.02325), RetinaFace (arXiv:1905.00641).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from imgconv.arrays import Array, Arrays
from imgconv.errors import InputError
from imgconv.preprocessing.preparation import Size
from imgconv.tasks.description import Description
from imgconv.tasks.detection import Candidates, corners_of, grid_cells

# The anchors of github.com/biubug6/Pytorch_Retinaface, in pixels.
RETINAFACE = tuple(
    {"stride": stride, "sizes": [[side, side] for side in sides]}
    for stride, sides in ((8, (16, 32)), (16, (64, 128)), (32, (256, 512)))
)

# The anchors of github.com/Linzaer/Ultra-Light-Fast-Generic-Face-Detector-1MB.
ULTRAFACE = tuple(
    {"stride": stride, "sizes": [[side, side] for side in sides]}
    for stride, sides in ((8, (10, 16, 24)), (16, (32, 48)), (32, (64, 96)), (64, (128, 192, 256)))
)
# The anchors of FaceBoxes (Zhang et al., arXiv:1708.05234), as github.com/zisianw/FaceBoxes.PyTorch has them.
FACEBOXES = (
    {"stride": 32, "sizes": [[32, 32], [64, 64], [128, 128]], "density": [4, 2, 1]},
    {"stride": 64, "sizes": [[256, 256]]}, {"stride": 128, "sizes": [[512, 512]]},
)
# The least part of boxes whose right and bottom are not before left and top, if they are corners. Of distances from
# anchors and logarithms of sizes, whose signs vary, about a quarter would be.
ORDERED = 0.95


def anchors_of(size: Size, levels: Sequence[Mapping[str, Any]]) -> tuple[Array, Array]:
    """Centres and sizes of all anchors in pixels, each (n, 2), level by level, cell by cell, size by size.

    levels: see Description.anchors. A level has a cell for each whole or begun stride.
    """
    centres, sizes = [], []
    for level in levels:
        places, _ = grid_cells(size, (level["stride"],))
        shapes = numpy.array(level["sizes"], numpy.float64).reshape(-1, 2)
        density = level.get("density", [1] * len(shapes))
        inside = numpy.concatenate([_anchor_centres_in_cell(n) for n in density])
        centres.append((places[:, None] + inside).reshape(-1, 2) * level["stride"])
        sizes.append(numpy.tile(numpy.repeat(shapes, [n * n for n in density], axis=0), (len(places), 1)))
    return numpy.concatenate(centres), numpy.concatenate(sizes)


def _anchor_centres_in_cell(density: int) -> Array:
    """The centres of density**2 anchors of one size in a cell, as parts of it, row by row: one is in its middle."""
    rows, columns = numpy.mgrid[:density, :density] / density
    return numpy.stack([columns.ravel(), rows.ravel()], axis=1) + (0.5 if density == 1 else 0)


def output_with_columns(outputs: Arrays, last: int) -> str:
    """The name of the first output (1, n, last). Raises InputError."""
    for name, array in outputs.items():
        if array.ndim == 3 and array.shape[2] == last:
            return name
    raise InputError(f"no output of the model has {last} numbers for each anchor")


def _boxes_and_scores(outputs: Arrays) -> tuple[str, Array, Array]:
    """The name of the output of boxes, its rows (n, 4), and the scores (n, classes), background first."""
    where = output_with_columns(outputs, 4)
    names = [name for name, array in outputs.items() if name != where and array.shape[:2] == outputs[where].shape[:2]]
    if not names:
        raise InputError(f"no output of the model has scores for the boxes in {where!r}")
    return where, outputs[where][0], outputs[names[0]][0]


def ssd(outputs: Arrays, description: Description, size: Size) -> Candidates:
    """Boxes that the model itself decodes, as parts of its input: (1, n, 4) corners and (1, n, classes) scores.

    The first class is the background. UltraFace and the SSDs of github.com/qfgaohao/pytorch-ssd are of this form. Boxes
    that are no corners are relative to anchors: the description's, or UltraFace's.
    """
    name, rows, scores = _boxes_and_scores(outputs)
    ordered = rows[:, 2:] >= rows[:, :2]
    are_corners = (ordered[:, 0] & ordered[:, 1]).astype(int).sum() >= ORDERED * len(rows)
    corners = rows * numpy.array([*size, *size])
    centres, sizes = anchors_of(size, description.anchors or ULTRAFACE)
    if len(centres) == len(rows):
        corners = numpy.where(are_corners, corners, decode_boxes(rows, centres, sizes, description.variances))
    elif isinstance(rows, numpy.ndarray) and not are_corners:
        raise InputError(
            f"the {len(rows)} boxes in {name!r} are not corners, but relative to anchors, which the model does not "
            'have: give them as "anchors" in MODEL.task.json, such as [{"stride": 8, "sizes": [[16, 16]]}]'
        )
    return Candidates(name, corners, scores[:, 1:], first=1)


def tensorflow(outputs: Arrays, description: Description, size: Size) -> Candidates:
    """Boxes of TensorFlow's object detection API, which the model itself has suppressed.

    detection_boxes (1, n, 4): top, left, bottom and right as parts of the input; detection_scores (1, n);
    detection_classes (1, n), from 1; num_detections (1): how many rows count.
    """
    boxes, scores, kinds = (outputs[f"detection_{name}"][0] for name in ("boxes", "scores", "classes"))
    counts = numpy.arange(len(boxes)) < outputs["num_detections"].reshape(-1)[:1]
    pixels = boxes[:, [1, 0, 3, 2]] * numpy.array([*size, *size])
    numbers = numpy.where(counts, kinds.round().astype(numpy.int64) - 1, 0)  # quantised models say 1.99
    return Candidates("detection_boxes", pixels, numpy.where(counts, scores, 0), numbers, first=1)


def decode_boxes(rows: Array, centres: Array, sizes: Array, variances: Sequence[float]) -> Array:
    """Corners (n, 4) in pixels of boxes relative to their anchors, by SSD's formula.

    A row has the centre's distance from the anchor's in anchor sizes, over the first variance, and the logarithm of
    its size in anchor sizes, over the second.
    """
    return corners_of(centres + rows[:, :2] * variances[0] * sizes, sizes * numpy.exp(rows[:, 2:4] * variances[1]))


def anchors(outputs: Arrays, description: Description, size: Size) -> Candidates:
    """Boxes relative to anchors: (1, n, 4) and scores (1, n, classes) after softmax, background first.

    The description says the anchors and their variances.
    """
    name, rows, scores = _boxes_and_scores(outputs)
    centres, sizes = _check_anchors(rows, description, size)
    return Candidates(name, decode_boxes(rows, centres, sizes, description.variances), scores[:, 1:], first=1)


def retinaface(outputs: Arrays, description: Description, size: Size) -> Candidates:
    """Faces and five landmarks: (1, n, 4) boxes, (1, n, 2) scores after softmax, (1, n, 10) landmarks."""
    name, marks = output_with_columns(outputs, 4), output_with_columns(outputs, 10)
    rows, scores = outputs[name][0], outputs[output_with_columns(outputs, 2)][0]
    centres, sizes = _check_anchors(rows, description, size)
    corners = decode_boxes(rows, centres, sizes, description.variances)
    distances = outputs[marks][0].reshape(-1, 5, 2) * description.variances[0]
    places = centres[:, None] + distances * sizes[:, None]
    points = numpy.concatenate([places, numpy.repeat(scores[:, None, 1:], 5, axis=1)], axis=2)
    return Candidates(name, corners, scores[:, 1:], points=points, first=1)


def _check_anchors(rows: Array, description: Description, size: Size) -> tuple[Array, Array]:
    """The anchors. Raises InputError if the model has another number of boxes."""
    if not description.anchors:
        raise InputError('an anchor head needs "anchors" in the description: [{"stride": 8, "sizes": [[16, 16]]}]')
    centres, sizes = anchors_of(size, description.anchors)
    if len(centres) != len(rows):
        raise InputError(f"the model has {len(rows)} boxes, and the description {len(centres)} anchors")
    return centres, sizes
