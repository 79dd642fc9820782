"""Operators of every family in float64, which is computed in float: the outputs are float64 again."""

from __future__ import annotations

from typing import Any

import numpy
from operator_cases import Constant, ints, several


def double(*shape: int) -> Any:
    """Random float64 values."""
    return numpy.random.default_rng(7).uniform(-2, 2, shape)


def fixed(*shape: int) -> Constant:
    return Constant(double(*shape))


DOUBLES = [
    *several("Add", (13,), [(double(3, 4), double(4)), (double(3, 4), fixed(4))]),
    *several("Mul", (13,), [(double(3, 4), Constant(numpy.array(1 / 3)))]),
    *several("Div", (13,), [(double(3, 4), fixed(4))]),
    *several("Relu", (13,), [(double(3, 4),)]),
    *several("Sigmoid", (13,), [(double(3, 4),)]),
    *several("Clip", (13,), [(double(3, 4), Constant(numpy.array(-1.0)), Constant(numpy.array(0.5)))]),
    *several("Where", (9,), [(double(3, 4) > 0, double(3, 4), fixed(4))]),
    *several("MatMul", (13,), [(double(3, 4), fixed(4, 5)), (double(2, 3, 4), double(4, 5))]),
    *several("Gemm", (13,), [(double(3, 4), fixed(5, 4), fixed(5))], [{"transB": 1}]),
    *several("Softmax", (11, 13), [(double(3, 4),)]),
    *several("ReduceMean", (13,), [(double(3, 4, 5),)], [{"axes": [1]}]),
    *several("ReduceMax", (13,), [(double(3, 4, 5),)], [{"axes": [1]}]),
    *several("ArgMax", (13,), [(double(3, 4),)]),
    *several("MaxPool", (12,), [(double(1, 2, 9, 9),)], [{"kernel_shape": [3, 3]}]),
    *several("BatchNormalization", (15,), [(double(2, 3, 4), *(Constant(double(3) ** 2 + 0.1) for _ in range(4)))]),
    *several("Concat", (13,), [(double(3, 4), fixed(2, 4))], [{"axis": 0}]),
    *several("Gather", (13,), [(double(3, 4), ints(2, -1))]),
    *several("Transpose", (13,), [(double(3, 4),)]),
    *several("Cast", (13,), [(double(3, 4),)], [{"to": n} for n in (1, 6, 7, 10)]),
    *several("Cast", (13,), [((3, 4),), (ints(1, 2).array,), (double(3) > 0,)], [{"to": 11}]),
    *several("Less", (13,), [(double(3, 4), double(4))]),
    *several("TopK", (11,), [(double(3, 9), ints(4))], outputs=2),
    *several("LayerNormalization", (17,), [(double(3, 4), fixed(4), fixed(4))]),
]
