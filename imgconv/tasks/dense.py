"""Decodes the outputs of anchor-free detectors other than YOLO to boxes."""

from __future__ import annotations

import numpy

from imgconv.arrays import Array, Arrays
from imgconv.errors import InputError
from imgconv.preprocessing.preparation import Size
from imgconv.tasks.description import Description
from imgconv.tasks.detection import STRIDES, Candidates, corners_of, grid_cells, single_output

NANODET_STRIDES = (8, 16, 32, 64)
NANODET_BINS = 8  # distances 0 to 7 strides


def yunet(outputs: Arrays, description: Description, size: Size) -> Candidates:
    """Faces and five landmarks of YuNet, as in OpenCV's FaceDetectorYN: cls, obj, bbox and kps for each stride.

    The score is the root of cls times obj. Centres and landmarks are relative to their cell in strides, sizes are
    logarithms of strides.
    """
    parts = [_rows_of_strides(outputs, name) for name in ("cls", "obj", "bbox", "kps")]
    places, strides = grid_cells(size)
    scores = numpy.sqrt(parts[0].clip(0, 1) * parts[1].clip(0, 1))
    rows, marks = parts[2], parts[3].reshape(-1, 5, 2)
    corners = corners_of((rows[:, :2] + places) * strides, numpy.exp(rows[:, 2:4]) * strides)
    places_of_marks = (marks + places[:, None]) * strides[:, None]
    points = numpy.concatenate([places_of_marks, numpy.repeat(scores[:, None], 5, axis=1)], axis=2)
    return Candidates(next(iter(outputs)), corners, scores, points=points)


def _rows_of_strides(outputs: Arrays, name: str) -> Array:
    """The rows of one kind of YuNet's outputs, stride by stride."""
    return numpy.concatenate([outputs[f"{name}_{stride}"][0] for stride in STRIDES])


def nanodet(outputs: Arrays, description: Description, size: Size) -> Candidates:
    """Boxes of NanoDet-Plus (github.com/RangiLyu/nanodet): (1, cells, classes + 32), strides 8, 16, 32 and 64.

    A row has the scores of the classes, and for left, top, right and bottom the logits of 8 distances from the cell's
    corner, 0 to 7 strides, whose mean is the distance (Li et al., arXiv:2006.04388).
    """
    name, rows = single_output(outputs)
    places, strides = grid_cells(size, NANODET_STRIDES)
    distances = _expected_distances(rows[:, -4 * NANODET_BINS :]) * strides
    return Candidates(name, _boxes_around(places * strides, distances), rows[:, : -4 * NANODET_BINS])


def nanodet_m(outputs: Arrays, description: Description, size: Size) -> Candidates:
    """Boxes of the first NanoDet: (cells, classes) and (cells, 32) for each of the strides 8, 16 and 32.

    As NanoDet-Plus's, but in outputs of their own, and distances are from the cell's middle.
    """
    bins = 4 * NANODET_BINS
    classes = next(array.shape[-1] for array in outputs.values() if array.shape[-1] != bins)
    scores, logits = _rows_with_columns(outputs, classes), _rows_with_columns(outputs, bins)
    places, strides = grid_cells(size)
    corners = _boxes_around((places + 0.5) * strides, _expected_distances(logits) * strides)
    return Candidates(next(iter(outputs)), corners, scores)


def scrfd(outputs: Arrays, description: Description, size: Size) -> Candidates:
    """Faces of SCRFD (Guo et al., arXiv:2105.04714): (2 * cells, 1), (2 * cells, 4) and five landmarks (2 * cells, 10).

    For each of the strides 8, 16 and 32, two anchors a cell. Distances of sides and landmarks are from the cell's
    corner, in strides.
    """
    scores, sides = _rows_with_columns(outputs, 1), _rows_with_columns(outputs, 4)
    places, strides = (numpy.repeat(each, 2, axis=0) for each in grid_cells(size))
    points = None
    if any(array.shape[-1] == 10 for array in outputs.values()):
        marks = (_rows_with_columns(outputs, 10).reshape(-1, 5, 2) + places[:, None]) * strides[:, None]
        points = numpy.concatenate([marks, numpy.repeat(scores[:, None], 5, axis=1)], axis=2)
    return Candidates(next(iter(outputs)), _boxes_around(places * strides, sides * strides), scores, points=points)


def _rows_with_columns(outputs: Arrays, columns: int) -> Array:
    """The rows of all outputs of this many columns, the smallest stride's first, which has most."""
    found = [array.reshape(-1, columns) for array in outputs.values() if array.shape[-1] == columns]
    return numpy.concatenate(sorted(found, key=len, reverse=True))


def fastestdet(outputs: Arrays, description: Description, size: Size) -> Candidates:
    """Boxes of FastestDet (github.com/dog-qiuqiu/FastestDet): (1, 5 + classes, height, width), a cell every 16 pixels.

    A cell has the score that there is an object, the centre before tanh, in cells, width and height before a sigmoid,
    as parts of the input, and the scores of the classes. The score is object**0.6 * class**0.4.
    """
    name, maps = single_output(outputs)
    _, height, width = maps.shape
    cell_rows, columns = numpy.mgrid[:height, :width]
    places, numbers = numpy.stack([columns.ravel(), cell_rows.ravel()], axis=1), maps.reshape(len(maps), -1).T
    offsets, sizes = 2 * sigmoid(2 * numbers[:, 1:3]) - 1, sigmoid(numbers[:, 3:5]) * numpy.array(size)
    centres = (places + offsets) * numpy.array([size[0] / width, size[1] / height])
    return Candidates(name, corners_of(centres, sizes), numbers[:, :1] ** 0.6 * numbers[:, 5:] ** 0.4)


def _expected_distances(logits: Array) -> Array:
    """Left, top, right and bottom (n, 4) in strides, from the logits (n, 32) of 8 distances for each."""
    bins = logits.reshape(-1, 4, NANODET_BINS).astype(numpy.float64)
    weights = numpy.exp(bins - bins.max(axis=2, keepdims=True))
    means: Array = (weights / weights.sum(axis=2, keepdims=True)) @ numpy.arange(NANODET_BINS, dtype=bins.dtype)
    return means


def _boxes_around(points: Array, distances: Array) -> Array:
    """Corners (n, 4) of boxes by a point in them (n, 2), and their distances from it to all sides (n, 4)."""
    return numpy.concatenate([points - distances[:, :2], points + distances[:, 2:]], axis=1)


def fcos(outputs: Arrays, description: Description, size: Size) -> Candidates:
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
        corners.append(_boxes_around(points, sides.reshape(4, -1).T))
        scores.append(numpy.sqrt(sigmoid(logits) * sigmoid(middle)).reshape(len(logits), -1).T)
    return Candidates("P3logits", numpy.concatenate(corners), numpy.concatenate(scores), several=True)


def sigmoid(logits: Array) -> Array:
    made: Array = 1 / (1 + numpy.exp(-logits.astype(numpy.float64).clip(-60, 60)))
    return made


def centernet(outputs: Arrays, description: Description, size: Size) -> Candidates:
    """Boxes of CenterNet (Zhou et al., arXiv:1904.07850): hm (1, classes, h, w), wh and reg (1, 2, h, w).

    An object is a maximum of its class's map among its eight neighbours; reg is the centre's offset, wh the size, in
    pixels of the map. Values of hm outside of 0 to 1 go through a sigmoid.
    """
    maps, sizes, offsets = (outputs[name][0] for name in ("hm", "wh", "reg"))
    outside = (maps.min() < 0) | (maps.max() > 1)
    maps = numpy.where(outside, sigmoid(maps), maps)
    if maps.shape[1:] != sizes.shape[1:]:
        raise InputError(f"hm is {list(maps.shape)} and wh {list(sizes.shape)}: they must have one height and width")
    _, height, width = maps.shape
    padded, largest = numpy.pad(maps, ((0, 0), (1, 1), (1, 1)), constant_values=-1), maps
    for down, right in numpy.ndindex(3, 3):
        largest = numpy.maximum(largest, padded[:, down : down + height, right : right + width])
    rows, columns = numpy.mgrid[:height, :width]
    centres = numpy.stack([columns.ravel(), rows.ravel()], axis=1) + offsets.reshape(2, -1).T
    gain = numpy.array([size[0] / width, size[1] / height])
    corners = corners_of(centres * gain, sizes.reshape(2, -1).T * gain)
    peaks = numpy.where(maps == largest, maps, 0)
    return Candidates("hm", corners, peaks.reshape(len(maps), -1).T, several=True)
