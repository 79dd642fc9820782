"""Gathers and scatters."""

from __future__ import annotations

import numpy
from operator_cases import Constant, either, several, whole

DATA = (4, 5, 6)
POINTS = numpy.array([[[0, 1], [-1, 4]], [[2, -5], [3, 0]]])
LINES = numpy.array([[0], [-1], [2]])
INDEXING = [
    *(case for index in (whole(3, low=-4, high=4), whole(2, 3, low=-4, high=4), numpy.array(-2),
        whole(2, low=0, high=4, dtype=numpy.int32))
      for case in several("Gather", (7, 11, 13) if (index >= 0).all() else (11, 13), either(DATA, index),
          [{}, {"axis": 1}, {"axis": 2}])),
    *several("Gather", (11,), either((9,), whole(2, 2, low=-9, high=9)), [{"axis": -1}]),
    *several("Gather", (13,), either((2, 3, 4, 2, 3), whole(3, low=-4, high=4)), [{"axis": 2}]),
    *several("Gather", (13,), [(numpy.arange(12).reshape(3, 4), numpy.array([[2, 0]]))], [{"axis": 1}]),
    *several("GatherElements", (11, 13), either(DATA, whole(4, 5, 6, low=-4, high=4)), [{}, {"axis": -2}, {"axis": 2}]),
    *several("GatherElements", (13,), either(DATA, whole(2, 7, 3, low=-5, high=5)), [{"axis": 1}]),
    *several("GatherElements", (13,), either((1, 6, 5, 4), whole(1, 6, 5, 4, low=0, high=4)), [{"axis": a}
        for a in (2, 3)]),
    *several("GatherElements", (13,), either((7,), whole(3, low=-7, high=7))),
    *several("GatherND", (11, 12, 13), [*either(DATA, POINTS), *either(DATA, LINES),
        *either(DATA, whole(2, 3, low=-4, high=4)), *either((9,), whole(4, 1, low=-9, high=9))]),
    *several("GatherND", (12, 13), [*either((2, 5, 6), whole(2, 3, 1, low=-5, high=5)),
        *either((2, 5, 6), whole(2, 2, low=-5, high=5))], [{"batch_dims": 1}]),
    *several("GatherND", (13,), either((2, 3, 4, 5), whole(2, 3, 2, 1, low=-4, high=4)), [{"batch_dims": 2}]),
    *several("Scatter", (9,), either(DATA, whole(2, 3, 4, low=0, high=4), (2, 3, 4)), [{}, {"axis": 1}, {"axis": 2}]),
    *several("ScatterElements", (11, 13, 16, 18), either(DATA, numpy.array([[[-1, 2, 0]], [[1, -3, 3]]]), (2, 1, 3)), [
        {}, {"axis": 1}, {"axis": -1}]),
    *several("ScatterElements", (18,), either(DATA, whole(4, 5, 6, low=-4, high=4), (4, 5, 6)), [
        {"reduction": r, "axis": a} for r in ("add", "mul", "max", "min") for a in (0, 2)]),
    *several("ScatterElements", (16,), either((9,), whole(5, low=-9, high=9), (5,)), [{"reduction": "add"},
        {"reduction": "mul"}]),
    *several("ScatterElements", (18,), [(whole(6), whole(4, low=0, high=6), whole(4))], [{"reduction": r}
        for r in ("none", "add", "mul", "max", "min")]),
    *several("ScatterND", (11, 13, 16, 18), [*either(DATA, numpy.array([[1], [-1], [0]]), (3, 5, 6)),
        *either(DATA, POINTS, (2, 2, 6)), *either((9,), numpy.array([[3], [-2]]), (2,))]),
    *several("ScatterND", (18,), [*either(DATA, whole(7, 2, low=-4, high=4), (7, 6)),
        *either(DATA, whole(9, 3, low=-4, high=4), (9,))], [{"reduction": r} for r in ("add", "mul", "max", "min")]),
    *several("ReverseSequence", (10,), either((5, 3, 2), numpy.array([2, 5, 1]))),
    *several("ReverseSequence", (10,), either((3, 4), numpy.array([1, 4, 2])), [{"batch_axis": 0, "time_axis": 1}]),
    *several("Compress", (9, 11), [((3, 4), Constant(numpy.array(c))) for c in ([True, False, True], [False, True])], [
        {}, {"axis": 0}, {"axis": 1}]),
    *several("Compress", (11,), [((3, 4), Constant(numpy.array([False, True, True])))], [{"axis": -1}]),
]
