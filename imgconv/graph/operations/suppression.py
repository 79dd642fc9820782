"""Suppression: non-maximum suppression of boxes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy

from imgconv.arrays import Array
from imgconv.graph.intervals import Range
from imgconv.graph.operations.operation import Operation, RangeOf
from imgconv.graph.values import Operand, Value
from imgconv.graph.view import Shape
from imgconv.suppression import suppress


@dataclass(frozen=True)
class Suppression(Operation):
    """The positions of the boxes that survive suppression, in order, then -1.

    operands: boxes (N, 4), left, top, right, bottom, the best first, and the number of them that take part, (1). A box
    stays if its intersection over union with each better one that stays is at most `overlap`. The output has the shape
    (K), and no more than K stay. A box without an area touches none. Boxes (N, 5) have a group, such as a class: boxes
    of different groups do not touch each other.
    """

    overlap: float

    def fits(self, views: Sequence[Shape], shape: Shape) -> bool:
        return len(views) == 2 and views[0][1:] in ((4,), (5,)) and views[1] == (1,) and len(shape) == 1

    def combine(self, loaded: Sequence[Array], output: Value) -> Array:
        boxes, most = loaded[0][: int(loaded[1].item())], output.shape[0]
        groups = boxes[:, 4] if boxes.shape[1] == 5 else None
        falling = -numpy.arange(len(boxes), dtype=numpy.float64)
        stay = numpy.sort(suppress(boxes[:, :4], falling, self.overlap, most, groups))[:most]
        return numpy.pad(stay, (0, most - len(stay)), constant_values=-1)

    def bounds(self, operands: Sequence[Operand], of: RangeOf, shape: Shape) -> Range:
        return -1, max(0, operands[0].view.shape[0] - 1)

    def __str__(self) -> str:
        return f"suppression over {self.overlap:g}"
