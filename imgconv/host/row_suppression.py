"""Suppression, and the best boxes of each class, on the device: on padded rows with a mask."""

from __future__ import annotations

from math import nan

import numpy

from imgconv.graph.onnx_nodes import HostNode
from imgconv.host.padded_rows import CannotOffloadError, OptionalRows, PaddedRows, RowSpace, take_rows
from imgconv.ops.indexing import take_along
from imgconv.tensor import Tensor, concatenate, less, order, suppression, where

MOST_BOXES = 1 << 15  # that are put in order
MOST_UNMASKED = 2048  # of boxes that nothing has chosen: the host looks only at those over the threshold
MOST_STAYING = 1024  # their boxes lie in a work group's local memory


def best_of_classes(node: HostNode, given: OptionalRows) -> list[PaddedRows]:
    """The best of each class, see host/detections.py; those over the threshold exist."""
    scores, boxes = given
    if scores is None or boxes is None:
        raise CannotOffloadError
    classes, labels = (numpy.asarray(node.attributes[name]) for name in ("classes", "labels"))
    if scores.tensor.rank != 2 or boxes.tensor.rank != 2 or scores.space or boxes.space:
        raise CannotOffloadError
    (size, width), most = scores.tensor.shape, node.attributes["most"]
    if not isinstance(most, int):
        raise CannotOffloadError
    if boxes.tensor.shape[0] != size or classes.max() >= width or len(classes) * min(most, size) > MOST_BOXES:
        raise CannotOffloadError
    by_class = scores.tensor.take(1, classes.tolist()).transpose(1, 0)
    is_over = less(float(numpy.asarray(node.attributes["threshold"])), by_class)
    count = min(most, size)
    best = order(where(is_over, by_class * -1.0, nan), count, largest=False)
    rows = len(classes) * count
    values = take_along(by_class, 1, best, best.shape)
    space = RowSpace(take_along(is_over, 1, best, best.shape).reshape(rows))
    flat = take_rows(boxes.tensor, best.reshape(rows))
    numbers = Tensor.constant(numpy.repeat(labels.astype(numpy.int64), count))
    return [PaddedRows(tensor, 0, space) for tensor in (flat, values.reshape(rows), numbers)]


def suppress_rows(node: HostNode, given: OptionalRows) -> list[PaddedRows]:
    """NonMaxSuppression of one class: (rows, 3); those of the boxes that stay exist."""
    boxes, scores, *limits = given
    if boxes is None or scores is None:
        raise CannotOffloadError
    if scores.tensor.shape[:2] != (1, 1) or boxes.tensor.shape[0] != 1 or boxes.space is not scores.space:
        raise CannotOffloadError
    if any(each is not None and not each.is_constant for each in limits):
        raise CannotOffloadError
    size, space = scores.tensor.shape[2], boxes.space
    most, overlap, least = (
        None if each is None else each.tensor.numpy().item() for each in [*limits, None, None, None][:3]
    )
    staying = min(int(most or 0), size)
    if not 0 < staying <= MOST_STAYING or size > (MOST_BOXES if space else MOST_UNMASKED):
        raise CannotOffloadError
    if space is not None and (boxes.axis, scores.axis) != (1, 2):
        raise CannotOffloadError
    values = scores.tensor.reshape(size)
    mask = Tensor.constant(numpy.ones(size, bool)) if space is None else space.mask
    mask = mask if least is None else mask.apply("and", less(float(least), values), dtype="bool")
    # NaN comes last, so that the boxes that take part come first.
    best = order(where(mask, values * -1.0, nan), size, largest=False)
    corners = take_rows(_corners(boxes.tensor.reshape(size, 4), bool(node.attributes.get("center_point_box", 0))), best)
    places = suppression(corners, mask.cast("int64").sum(), float(overlap or 0), staying)
    stay = less(-1, places)
    chosen = take_along(best, 0, places.apply("maximum", 0), places.shape).reshape(staying, 1)
    triples = concatenate([Tensor.constant(numpy.zeros((staying, 2), numpy.int64)), chosen], 1)
    stayed = RowSpace(stay, True, RowSpace(mask) if space is None else space)
    return [PaddedRows(triples, 0, stayed, space, is_triple=True, is_suppressed=True)]


def _corners(boxes: Tensor, centred: bool) -> Tensor:
    """Boxes (N, 4) as (low, low, high, high)."""
    first, second = boxes.slice(1, 0, 2), boxes.slice(1, 2, 4)
    if centred:
        return concatenate([first - second * 0.5, first + second * 0.5], 1)
    return concatenate([first.apply("minimum", second), first.apply("maximum", second)], 1)
