"""Elementwise operators."""

from __future__ import annotations

import numpy
from operator_cases import PAIRS, SHAPES, Constant, half, ints, scalar, several

ELEMENTWISE = [
    *(case for op in ("Abs", "Ceil", "Cos", "Erf", "Exp", "Floor", "Neg", "Round", "Sigmoid", "Sign", "Sin", "Tanh")
      for case in several(op, (13, 22), SHAPES)),
    *(case for op in ("Atan", "Asinh", "Cosh", "Sinh", "Tan") for case in several(op, (9, 22), [((2, 3, 4),)],
        tolerance=1e-5)),
    *(case for op in ("Sqrt", "Log", "Reciprocal") for case in several(op, (7, 13), SHAPES, low=0.1)),
    *several("Acosh", (9, 22), [((3, 4),)], low=1.1),
    *(case for op in ("Acos", "Asin", "Atanh")
      for case in several(op, (9, 22), [(numpy.linspace(-0.9, 0.9, 7, dtype=numpy.float32),)])),
    *(case for op in ("Add", "Sub", "Mul", "Div") for case in several(op, (7, 13, 14), PAIRS)),
    *(case for op in ("Min", "Max", "Sum", "Mean")
      for case in several(op, (8, 13), [((2, 3),), ((2, 3), (3,)), ((1, 3), (2, 1), (2, 3))])),
    *several("Pow", (7, 13, 15), PAIRS, low=0.1),
    *several("Pow", (13,), [((3, 4), scalar(2)), ((3, 4), scalar(3)), ((3, 4), ints(2)),
        ((3,), ints(*[2] * 6).array.reshape(2, 3))]),
    *several("Mod", (10, 13), PAIRS, [{"fmod": 1}]),
    *(case for f in (0, 1) for case in several("Mod", (10, 13), [(ints(7, -7, 7, -7), ints(3, 3, -3, -3))],
        [{"fmod": f}])),
    *several("Div", (7, 14), [(ints(7, -7, 7, -7, 2**62 + 1), ints(3, 3, -3, -3, 1))]),
    *(case for op in ("Less", "Greater", "Equal")
      for case in several(op, (11, 13), [*PAIRS, (numpy.arange(5), ints(2)),
          (numpy.float32([1, 2, numpy.nan]), scalar(2))])),
    *(case for op in ("Less", "Greater") for case in several(op, (7, 9), PAIRS)),
    *several("Equal", (7,), [(numpy.arange(5), ints(2)), (numpy.array([True, False]), numpy.array([True, True]))]),
    *(case for op in ("LessOrEqual", "GreaterOrEqual") for case in several(op, (12, 16), PAIRS)),
    *(case for op in ("And", "Or", "Xor")
      for case in several(op, (7,), [(numpy.array([True, False, True]), numpy.array([[True], [False]]))])),
    *several("Not", (7,), [(numpy.array([True, False]),)]),
    *several("Where", (9, 16), [
        (numpy.array([[True], [False]]), (2, 3), (3,)), (numpy.array([True, False, True]), scalar(1), (2, 3)),
        (numpy.array([True, False, True]), scalar(1), scalar(2)),
        (numpy.array([True, False]), ints(3, 4), numpy.arange(2)),
    ]),
    *several("IsNaN", (9, 13, 20), [(numpy.float32([1, numpy.nan, numpy.inf]),)]),
    *several("IsInf", (10, 20), [(numpy.float32([1, numpy.nan, numpy.inf, -numpy.inf]),)], [
        {}, {"detect_negative": 0}, {"detect_positive": 0}, {"detect_positive": 0, "detect_negative": 0}]),
    *several("Clip", (7,), [((2, 3),)], [{}, {"min": -0.5}, {"max": 0.5}]),
    *several("Clip", (11, 13), [((2, 3),), ((2, 3), scalar(-0.5)), ((2, 3), None, scalar(0.5)),
        ((2, 3), scalar(-1), ())]),
    *several("Cast", (9, 13, 19), [((2, 3),)], [{"to": n} for n in (1, 6, 7, 9, 10)]),
    *several("Cast", (13,), [(numpy.arange(6),), (numpy.array([True, False]),), (half(3),)],
        [{"to": 1}, {"to": 6}, {"to": 9}]),
    *several("CastLike", (19,), [((2, 3), ints(1))]),
    *several("Relu", (13, 14), [(half(3, 4),)], tolerance=1e-3),
    *several("Add", (14,), [(numpy.arange(5), ints(2)), (half(3), Constant(half(1)))], tolerance=1e-3),
]
