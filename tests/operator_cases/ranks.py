"""Further ranks of operators whose other cases have one only."""

from __future__ import annotations

import numpy
from operator_cases import Constant, half, ints, scalar, several

TRUTH = numpy.random.default_rng(3).random((2, 1, 3, 4)) < 0.5
SPECIAL = numpy.float32([[1, numpy.nan], [numpy.inf, -numpy.inf]]).reshape(2, 1, 2)
RANKS = [
    *(case for op in ("And", "Or", "Xor")
      for case in several(op, (7,), [
          (TRUTH, TRUTH[0, 0]), (TRUTH[0], TRUTH[1, 0, 0]), (TRUTH[0, 0, 0], ~TRUTH[0, 0, 0])])),
    *several("Not", (7,), [(TRUTH,), (TRUTH[0, 0],)]),
    *several("IsNaN", (9, 13, 20), [(SPECIAL,), (SPECIAL.reshape(1, 2, 2, 1),)]),
    *several("IsInf", (10, 20), [(SPECIAL,), (SPECIAL.reshape(1, 2, 2, 1),)], [{}, {"detect_negative": 0}]),
    *several("CastLike", (19,), [((2, 3, 4), ints(1)), ((1, 5, 2, 3), half(1)), ((3,), scalar(1))]),
    *(case for op in ("Asin", "Acos", "Atanh", "Atan", "Asinh", "Sinh", "Cosh", "Tan")
      for case in several(op, (9 if op in ("Atanh", "Asinh", "Sinh", "Cosh") else 7,), [
          (numpy.linspace(-0.9, 0.9, 30, dtype=numpy.float32).reshape(shape),) for shape in ((30,), (1, 5, 2, 3))])),
    *several("Acosh", (9,), [
        (numpy.linspace(1.1, 4, 30, dtype=numpy.float32).reshape(shape),) for shape in ((30,), (1, 5, 2, 3))]),
    *several("Clip", (7,), [((3,),), ((1, 5, 2, 3),)], [{"min": -0.5}, {"min": -1.0, "max": 0.5}]),
    *several("Clip", (11, 13), [((5,), scalar(-0.5), scalar(1)), ((1, 5, 2, 3), None, scalar(0.5))]),
    *(case for op in ("Max", "Min", "Sum", "Mean") for case in several(op, (8, 13), [
        ((4,), (4,)), ((1, 5, 2, 3), (5, 1, 1), (3,))])),
    *several("PRelu", (9, 16), [((3, 4), (4,)), ((1, 5, 2, 3), (5, 1, 1))]),
    *several("Identity", (7, 14), [((),), ((1, 5, 2, 3),)]),
    *several("Size", (7, 13), [((3,),), ((2, 3, 4),)]),
    *several("MeanVarianceNormalization", (9, 13), [((3, 4, 5),)], [{"axes": [0, 2]}, {"axes": [1]}]),
    *several("RMSNormalization", (23,), [((3, 4), (4,)), ((1, 2, 3, 4), (4,))], [{}, {"epsilon": 0.1}]),
    *several("LpNormalization", (7,), [((3, 4),), ((1, 5, 2, 3),)], [{}, {"p": 1, "axis": 1}]),
    *several("Transpose", (7, 13), [((2, 3),), ((4,),), ((1, 2, 3, 4, 2),)]),
    *several("Transpose", (13,), [((1, 6, 3, 4),)], [{"perm": [0, 2, 3, 1]}, {"perm": [3, 1, 0, 2]}]),
    *several("Squeeze", (7, 11), [((1, 3),), ((2, 1, 1, 3, 1),)]),
    *several("Unsqueeze", (7, 11), [((3,),), ((2, 3, 4),)], [{"axes": [0]}, {"axes": [0, 2]}]),
    *several("Slice", (10, 13), [
        ((7,), ints(6), ints(-8), ints(0), ints(-2)), ((1, 8, 5, 6), ints(1, 1), ints(7, 5), ints(1, 3), ints(3, 2))]),
    *several("Range", (11,), [(Constant(numpy.array(2, "i8")), Constant(numpy.array(9, "i8")),
                               Constant(numpy.array(3, "i8")))]),
]
