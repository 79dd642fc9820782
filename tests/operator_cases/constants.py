"""Shapes and constants."""

from __future__ import annotations

import numpy
import onnx.helper
from operator_cases import Case, Constant, ints, scalar, several

SHAPES_AND_CONSTANTS = [
    *several("Shape", (7, 13), [((2, 3, 4),), ((),)]),
    *several("Shape", (15, 21), [((2, 3, 4),)], [{"start": 1}, {"end": -1}, {"start": -9, "end": 9},
        {"start": -2, "end": 2}]),
    *several("Size", (7, 13), [((2, 3, 4),)]),
    *several("ConstantOfShape", (9, 20), [(ints(2, 3),), (ints(),)], [
        {}, {"value": onnx.helper.make_tensor("v", 7, [1], [5])},
        {"value": onnx.helper.make_tensor("v", 1, [1], [0.5])}]),
    *several("Range", (11,), [(scalar(0), scalar(2), scalar(0.3)),
        tuple(Constant(numpy.array(n)) for n in (10, 0, -3))]),
    *several("Constant", (12, 13), [()], [
        {"value_float": 0.1}, {"value_floats": [0.1, 2]}, {"value_int": 2**40}, {"value_ints": [1, -2]},
        {"value": onnx.helper.make_tensor("v", 1, [2], [0.5, 1])}]),
    *several("Dropout", (7, 10), [((2, 3),)], [{"ratio": 0.3}]),
    *(Case("MelWeightMatrix", 17, tuple(Constant(numpy.array(v, t)) for v, t in zip(row, "iiiff")), {})
      for row in ((8, 16, 8192, 0, 4096), (20, 64, 16000, 100, 7600), (3, 16, 100, 5, 45))),
    *several("Dropout", (12, 13), [((2, 3),), ((2, 3), scalar(0.3)),
        ((2, 3), scalar(0.3), Constant(numpy.array(False)))], outputs=2),
]
