"""Movement."""

from __future__ import annotations

import numpy
from operator_cases import Constant, ints, scalar, several

LARGE = 2**31 - 1
MOVEMENTS = [
    *several("Identity", (7, 14), [((2, 3),)]),
    *several("Reshape", (7, 13), [((2, 3, 4), ints(*s)) for s in ((24,), (4, -1), (0, 0, 2, 2), (-1, 0, 2),
        (1, 2, 3, 2, 2))]),
    *several("Reshape", (14, 19, 21), [((2, 3, 4), ints(0, -1))], [{}, {"allowzero": 0}]),
    *several("Reshape", (14,), [((2, 3, 4), ints(6, -1))], [{"allowzero": 1}]),
    *several("Reshape", (14,), [((1, 1), ints())]),
    *several("Flatten", (7, 9), [((2, 3, 4, 5),)], [{"axis": a} for a in range(5)] + [{}]),
    *several("Flatten", (11, 13, 21), [((2, 3, 4),)], [{"axis": -1}, {"axis": -3}, {"axis": 3}]),
    *several("Squeeze", (7, 11), [((1, 3, 1, 2),)], [{}, {"axes": [0]}, {"axes": [2, 0]}]),
    *several("Squeeze", (11,), [((1, 3, 1, 2),)], [{"axes": [-2]}]),
    *several("Squeeze", (13, 21), [((1, 3, 1, 2),), ((1, 3, 1, 2), ints(-2)), ((1, 3, 1, 2), ints(0, 2))]),
    *several("Unsqueeze", (7, 11), [((2, 3),)], [{"axes": [0]}, {"axes": [3, 1]}]),
    *several("Unsqueeze", (13, 21), [((2, 3), ints(0)), ((2, 3), ints(-1, 1)), ((), ints(0))]),
    *several("Transpose", (7, 13, 21), [((2, 3, 4),)], [{}, {"perm": [1, 2, 0]}, {"perm": [0, 2, 1]}]),
    *several("Expand", (8, 13), [((3, 1), ints(2, 1, 4)), ((3, 1), ints(1)), ((1, 2), ints(3, 1)), ((), ints(2, 2))]),
    *several("Tile", (7, 13), [((2, 3), ints(2, 1)), ((2, 3), ints(3, 2)), ((2,), ints(1)),
        ((1, 2, 3), ints(2, 2, 2))]),
    *several("Concat", (7, 11, 13), [((2, 3), (2, 1), (2, 4))], [{"axis": 1}]),
    *several("Concat", (11, 13), [((2, 3, 4), (2, 3, 4)), ((2, 3, 4), Constant(numpy.ones((2, 3, 4), "f"))),
        ((1, 2, 2),)], [
        {"axis": -1}, {"axis": 0}, {"axis": -2}]),
    *several("Split", (7, 11), [((2, 6, 3),)], [{"axis": 1}, {"axis": 1, "split": [1, 2, 3]}], outputs=3),
    *several("Split", (11,), [((6, 2),)], [{}], outputs=3),
    *several("Split", (13,), [((2, 6), ints(1, 2, 3)), ((2, 6),)], [{"axis": -1}], outputs=3),
    *several("Split", (18,), [((2, 7),)], [{"axis": 1, "num_outputs": 3}], outputs=3),
    *several("Split", (18,), [((2, 7), ints(1, 4, 2))], [{"axis": 1}], outputs=3),
    *several("Slice", (7, 9), [((4, 5, 6),)], [
        {"starts": [1], "ends": [3]}, {"starts": [-3, 0], "ends": [LARGE, -1], "axes": [2, 1]},
        {"starts": [0, 1, 2], "ends": [9, 9, 3]}]),
    *several("Slice", (10, 11, 13), [
        ((4, 5, 6), ints(1), ints(3)), ((4, 5, 6), ints(1, -2), ints(LARGE, -1), ints(2, 0)),
        ((4, 5, 6), ints(0, 1), ints(LARGE, 5), ints(2, 1), ints(2, 3)),
        ((4, 5, 6), ints(-1), ints(-(2**63)), ints(1), ints(-1)),
        ((4, 5, 6), ints(9, 3), ints(-9, 0), ints(1, 2), ints(-2, -1)),
        ((4, 5, 6), ints(2), ints(2**63 - 1), ints(1), None)]),
    *several("Slice", (13,), [((4, 5, 6), ints(1), ints(3), ints(-1), ints(1))]),
    *several("Gather", (7, 11, 13), [((4, 5), ints(2, 0, 0)), ((4, 5), Constant(numpy.array(1))),
        ((4, 5), Constant(numpy.array([[1, 2], [3, 0]])))],
             [{}, {"axis": 1}]),
    *several("Gather", (11,), [((4, 5), ints(-1, 0, -2)), ((4, 5), Constant(numpy.array([1, 3], numpy.int32)))],
        [{"axis": -1}]),
    *several("Pad", (7, 10), [((2, 3, 4),)], [
        {"pads": [0, 1, 2, 1, 0, 3]}, {"pads": [0, 1, 2, 0, 2, 3], "mode": "reflect"},
        {"pads": [1, 1, 2, 0, 2, 5], "mode": "edge"},
        {"pads": [0, -1, 2, 1, 0, -3], "value": 1.5}]),
    *several("Pad", (11, 13, 18, 19, 21), [
        ((2, 3, 4), ints(0, 1, 2, 1, 0, 3)), ((2, 3, 4), ints(0, -1, 2, 1, 0, -2), scalar(2.5)),
        ((2, 3, 4), ints(0, 1, 2, 0, 2, 3), None)],
             [{"mode": "constant"}]),
    *several("Pad", (11, 18, 19), [((2, 3, 4), ints(0, 1, 2, 0, 2, 3))], [{"mode": "reflect"}, {"mode": "edge"}]),
    *several("Pad", (18, 19), [((2, 3, 4), ints(1, 2, 0, 3), None, ints(2, 1)),
        ((2, 3, 4), ints(1, 2), scalar(3), ints(-1))]),
    *several("Pad", (19, 21), [((2, 3, 4), ints(0, 1, 2, 1, 0, 3)), ((2, 3, 4), ints(0, 3, 4, 2, 2, 3))],
        [{"mode": "wrap"}]),
    *several("DepthToSpace", (7, 11, 13), [((2, 12, 2, 3),)], [{"blocksize": 2}]),
    *several("DepthToSpace", (11, 13), [((2, 12, 2, 3),)], [{"blocksize": 2, "mode": m} for m in ("CRD", "DCR")]),
    *several("SpaceToDepth", (7, 13), [((2, 3, 4, 6),)], [{"blocksize": 2}]),
]
