"""Reductions and softmax."""

from __future__ import annotations

import numpy
from operator_cases import half, ints, several

REDUCTIONS = [
    *(case for op in (
        "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare",
        "ReduceLogSum", "ReduceLogSumExp") for case in [
            *several(op, (7, 11, 12), [((2, 3, 4),)],
                [{}, {"axes": [1]}, {"axes": [0, 2], "keepdims": 0}, {"keepdims": 0}], low=0.1),
            *several(op, (11,), [((2, 3, 4, 2),)], [{"axes": [-1, 1]}], low=0.1),
            *several(op, (18, 20), [((2, 3, 4),), ((2, 3, 4), ints(1)), ((2, 3, 4), ints(0, -1)),
                ((2, 3, 4), ints())], [
                {}, {"keepdims": 0}], low=0.1)]),
    *(case for op in ("ReduceSum", "ReduceMax", "ReduceMean")
      for case in several(op, (18,), [((2, 3, 4), ints())], [{"noop_with_empty_axes": 1}])),
    *several("ReduceSum", (13,), [((2, 3, 4), ints(1)), ((2, 3, 4),)], [{}, {"keepdims": 0}]),
    *several("ReduceLogSumExp", (13,), [(numpy.float32([[100, 200], [-300, -400]]),)], [{"axes": [1]}]),
    *(case for op in ("Softmax", "LogSoftmax") for case in [
        *several(op, (7, 11), [((2, 3, 4),), (numpy.float32([[1000, 1001, -1000]]),)], [{}, {"axis": 0}]),
        *several(op, (11,), [((2, 3, 4, 2),)], [{"axis": 2}, {"axis": -1}, {"axis": -3}]),
        *several(op, (13,), [((2, 3, 4, 2),)], [{}, {"axis": 0}, {"axis": 1}, {"axis": -2}]),
        *several(op, (13,), [(half(2, 50),)], tolerance=2e-3)]),
]
