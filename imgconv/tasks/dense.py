"""Boxes from the outputs of anchor-free detectors other than YOLO: YuNet, NanoDet, CenterNet and FCOS."""

from __future__ import annotations

import numpy

from imgconv.arrays import Array, Arrays
from imgconv.errors import InputError
from imgconv.tasks.description import Description
from imgconv.tasks.detection import STRIDES, cells, corners_of, detections, one_class_each, only
from imgconv.tasks.values import Answers, PicturePlacement

NANODET_STRIDES = (8, 16, 32, 64)
NANODET_BINS = 8  # distances 0 to 7 strides


def yunet(outputs: Arrays, description: Description, placement: PicturePlacement) -> Answers:
    """Faces and five landmarks of YuNet, as in OpenCV's FaceDetectorYN: cls, obj, bbox and kps for each stride.

    The score is the root of cls times obj. Centres and landmarks are relative to their cell in strides, sizes are
    logarithms of strides.
    """
    parts = [_joined(outputs, name) for name in ("cls", "obj", "bbox", "kps")]
    places, strides = cells(placement.model)
    scores = numpy.sqrt(parts[0].clip(0, 1) * parts[1].clip(0, 1))
    rows, marks = parts[2], parts[3].reshape(-1, 5, 2)
    corners = corners_of((rows[:, :2] + places) * strides, numpy.exp(rows[:, 2:4]) * strides)
    places_of_marks = (marks + places[:, None]) * strides[:, None]
    points = numpy.concatenate([places_of_marks, numpy.repeat(scores[:, None], 5, axis=1)], axis=2)
    found, _ = detections(corners, scores, description, placement, points)
    return {next(iter(outputs)): found}


def _joined(outputs: Arrays, name: str) -> Array:
    """The rows of one kind of YuNet's outputs, stride by stride."""
    return numpy.concatenate([outputs[f"{name}_{stride}"][0] for stride in STRIDES])


def nanodet(outputs: Arrays, description: Description, placement: PicturePlacement) -> Answers:
    """Boxes of NanoDet-Plus (github.com/RangiLyu/nanodet): (1, cells, classes + 32), strides 8, 16, 32 and 64.

    A row has the scores of the classes, and for left, top, right and bottom the logits of 8 distances from the cell's
    corner, 0 to 7 strides, whose mean is the distance (Li et al., arXiv:2006.04388).
    """
    name, rows = only(outputs)
    places, strides = cells(placement.model, NANODET_STRIDES)
    distances = _mean_distances(rows[:, -4 * NANODET_BINS :]) * strides
    found, _ = detections(_around(places * strides, distances), rows[:, : -4 * NANODET_BINS], description, placement)
    return {name: found}


def nanodet_m(outputs: Arrays, description: Description, placement: PicturePlacement) -> Answers:
    """Boxes of the first NanoDet: cls_pred_stride_8 (1, cells, classes), dis_pred_stride_8 (1, cells, 32), 16 and 32.

    As NanoDet-Plus's, but in outputs of their own, and distances are from the cell's middle.
    """
    scores, logits = (
        numpy.concatenate([outputs[f"{kind}_pred_stride_{stride}"][0] for stride in STRIDES]) for kind in ("cls", "dis")
    )
    places, strides = cells(placement.model)
    corners = _around((places + 0.5) * strides, _mean_distances(logits) * strides)
    found, _ = detections(corners, scores, description, placement)
    return {f"cls_pred_stride_{STRIDES[0]}": found}


def _mean_distances(logits: Array) -> Array:
    """Left, top, right and bottom (n, 4) in strides, from the logits (n, 32) of 8 distances for each."""
    bins = logits.reshape(-1, 4, NANODET_BINS).astype(numpy.float64)
    weights = numpy.exp(bins - bins.max(axis=2, keepdims=True))
    return numpy.asarray((weights / weights.sum(axis=2, keepdims=True)) @ numpy.arange(NANODET_BINS))


def _around(points: Array, distances: Array) -> Array:
    """Corners (n, 4) of boxes by a point in them (n, 2), and their distances from it to all sides (n, 4)."""
    return numpy.concatenate([points - distances[:, :2], points + distances[:, 2:]], axis=1)


def fcos(outputs: Arrays, description: Description, placement: PicturePlacement) -> Answers:
    """Boxes of FCOS (Tian et al., arXiv:1904.01355), as its project exports them, for the levels 3 to 7.

    P3logits (1, classes, h, w), P3bbox_reg (1, 4, h, w), the distances of the sides from the cell's middle in pixels of
    the input, and P3centerness (1, 1, h, w). The score is the root of the class's probability times the centerness. As
    in that project a cell may have several classes.
    """
    corners, scores = [], []
    for level in range(3, 8):
        logits, sides, middle = (outputs[f"P{level}{kind}"][0] for kind in ("logits", "bbox_reg", "centerness"))
        rows, columns = numpy.mgrid[: logits.shape[1], : logits.shape[2]]
        stride = 2**level
        points = numpy.stack([columns.ravel(), rows.ravel()], axis=1) * stride + stride // 2
        corners.append(_around(points, sides.reshape(4, -1).T))
        scores.append(numpy.sqrt(_sigmoid(logits) * _sigmoid(middle)).reshape(len(logits), -1).T)
    every = numpy.concatenate(scores)
    rows, kinds = numpy.nonzero(every > (description.score or 0.0))
    parts = one_class_each(every[rows, kinds], kinds, every.shape[1])
    found, _ = detections(numpy.concatenate(corners)[rows], parts, description, placement)
    return {"P3logits": found}


def _sigmoid(logits: Array) -> Array:
    return numpy.asarray(1 / (1 + numpy.exp(-logits.astype(numpy.float64).clip(-60, 60))))


def centernet(outputs: Arrays, description: Description, placement: PicturePlacement) -> Answers:
    """Boxes of CenterNet (Zhou et al., arXiv:1904.07850): hm (1, classes, h, w), wh and reg (1, 2, h, w).

    An object is a maximum of its class's map among its eight neighbours; reg is the centre's offset, wh the size, in
    pixels of the map. Values of hm outside of 0 to 1 go through a sigmoid.
    """
    maps, sizes, offsets = (outputs[name][0] for name in ("hm", "wh", "reg"))
    if maps.min() < 0 or maps.max() > 1:
        maps = _sigmoid(maps)
    if maps.shape[1:] != sizes.shape[1:]:
        raise InputError(f"hm is {list(maps.shape)} and wh {list(sizes.shape)}: they must have one height and width")
    _, height, width = maps.shape
    padded = numpy.pad(maps, ((0, 0), (1, 1), (1, 1)), constant_values=-1)
    largest = numpy.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2)).max(axis=(3, 4))
    kinds, rows, columns = numpy.nonzero((maps == largest) & (maps > (description.score or 0)))
    scores = one_class_each(maps[kinds, rows, columns], kinds, len(maps))
    centres = numpy.stack([columns, rows], axis=1) + offsets[:, rows, columns].T
    gain = numpy.array([placement.model[0] / width, placement.model[1] / height])
    corners = corners_of(centres * gain, sizes[:, rows, columns].T * gain)
    found, _ = detections(corners, scores, description, placement)
    return {"hm": found}
