"""Selections: the largest, the first, those that are not zero."""

from __future__ import annotations

import numpy
from operator_cases import Constant, either, floats, half, ints, scalar, several, whole

TIES = whole(2, 3, 7, low=0, high=4).astype(numpy.float32)
LONG_TIES = whole(2, 333, low=0, high=4).astype(numpy.float32) * numpy.float32(-0.0)
LONG_TIES[:, ::3] = whole(2, 111, low=0, high=4)
MISSING = numpy.where(whole(2, 40, low=0, high=5) == 0, numpy.float32("nan"), whole(2, 40, low=-3, high=3) / 2)
MISSING[0, [3, 20]] = numpy.inf, -numpy.inf
MISSING = MISSING.astype(numpy.float32)
SELECTIONS = [
    *(case for op in ("ArgMax", "ArgMin") for case in [
        *several(op, (7, 11), [(TIES,), ((2, 3, 4),)], [{}, {"axis": 1}, {"axis": 2, "keepdims": 0}]),
        *several(op, (12, 13), [(TIES,)], [{"axis": a, "select_last_index": s} for a in (-1, 1, 0) for s in (0, 1)]),
        *several(op, (13,), [((1, 7, 3, 2),), (numpy.float32([[-numpy.inf, -numpy.inf]]),),
            (whole(5, 4, low=-3, high=3, dtype=numpy.int32),), (half(3, 5),), (whole(9, 2, dtype=numpy.int8),),
            (whole(9, 2, low=0, dtype=numpy.uint8),)], [{"axis": 1}, {"axis": -1, "keepdims": 0}])]),
    *several("Hardmax", (7, 11), [(TIES,)], [{}, {"axis": 0}, {"axis": 2}]),
    *several("Hardmax", (13,), [(TIES,), ((1, 5, 3, 2),)], [{}, {"axis": 0}, {"axis": 1}]),
    *several("TopK", (7,), [(TIES,), ((9,),)], [{"k": 2, "axis": a} for a in (-1, 0)], outputs=2),
    *several("TopK", (10,), [(TIES, ints(3)), ((1, 6, 3, 2), ints(2))], [{}, {"axis": 1}], outputs=2),
    *several("TopK", (11, 24), [(TIES, ints(3)), ((1, 6, 3, 2), ints(1)), (whole(3, 7), ints(3))], [
        {"axis": a, "largest": n} for a in (-1, 1) for n in (0, 1)], outputs=2),
    *several("TopK", (11,), [((40,), ints(40))], [{"largest": 0}], outputs=2),
    *several("TopK", (11,), [(LONG_TIES, ints(5)), (MISSING, ints(5)), (MISSING, ints(40)), (MISSING[..., :9], ints(9)),
        (whole(3, 4, 50), ints(7)), (half(3, 300), ints(257))], [{"largest": n} for n in (0, 1)], outputs=2),
    *several("TopK", (11,), [((2, 70, 3), ints(65)), (LONG_TIES.transpose(1, 0), ints(3))], [
        {"axis": -2, "sorted": 1}, {"axis": -2, "largest": 0}], outputs=2),
    *several("TopK", (11,), [((5000,), ints(4999))], [{}, {"largest": 0}], outputs=2),
    *several("OneHot", (9, 11), [*either(whole(2, 3, low=0, high=5), ints(5), (2,)),
        *either(whole(3, low=0, high=5), ints(5), numpy.array([0, 7])),
        (numpy.float32([[1, 4], [0, 2]]), floats(5), floats(0.5, 2))],
        [{}, {"axis": 0}, {"axis": 1}]),
    *several("OneHot", (11,), either(numpy.array([-1, 0, -5, 5, -6, 9]), ints(5), (2,))),
    *several("CumSum", (11, 14), [((3, 4, 5), Constant(numpy.array(a))) for a in (0, 1, -1)], [
        {"exclusive": e, "reverse": r} for e in (0, 1) for r in (0, 1)]),
    *several("CumSum", (14,), [((2, 300), Constant(numpy.array(1))),
        (whole(3, 5, dtype=numpy.int32), Constant(numpy.array(1)))], [{}, {"exclusive": 1, "reverse": 1}],
        tolerance=1e-5),
    *several("Trilu", (14,), [((3, 4),), ((2, 3, 3),), ((4, 3), Constant(numpy.array(1))),
        ((1, 2, 4, 5), Constant(numpy.array(-2))), (whole(3, 3), Constant(numpy.array(-1)))], [{}, {"upper": 0}]),
    *several("EyeLike", (9,), [((3, 4),), (whole(4, 2),)], [{}, {"k": 1}, {"k": -2}, {"dtype": 7}, {"dtype": 1}]),
    *several("NonZero", (9, 13), [(Constant(numpy.array([[1, 0, 2], [0, 3, 0]])),), (floats(0, -1, 0.5),)]),
    *several("Unique", (11,), [(floats(2, 1, 1, 3, 4, 3),)], [{}, {"sorted": 0}], outputs=4),
    *several("Unique", (11,), [(Constant(numpy.float32([[1, 0, 0], [1, 0, 0], [2, 3, 4]])),)],
        [{"axis": 0}, {"axis": -1}], outputs=4),
]
BOXES = Constant(numpy.float32([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [1, 11, 0, 10], [0, 10.1, 1, 11.1],
    [0, 100, 1, 101]]]))
SCORES = Constant(numpy.float32([[[0.9, 0.75, 0.6, 0.95, 0.5, 0.3], [0.5, 0.5, 0.1, 0.2, 0.9, 0.3]]]))
SELECTIONS += [
    *several("NonMaxSuppression", (10, 11), [(BOXES, SCORES, ints(n), scalar(t), scalar(0.25)) for n in (2, 9)
        for t in (0.5, 0)], [{}, {"center_point_box": 1}]),
    *several("NonMaxSuppression", (11,), [(BOXES, SCORES), (BOXES, SCORES, ints(3))]),
]
