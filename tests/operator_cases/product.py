"""Matrix products."""

from __future__ import annotations

import numpy
from operator_cases import Constant, several

MATRIX_PAIRS = (
    ((3, 4), (4, 5)), ((4,), (4,)), ((4,), (4, 5)), ((3, 4), (4,)), ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (5, 4, 2)), ((4,), (2, 4, 5)), ((2, 3, 4), (4,)),
    ((3, 4), Constant(numpy.ones((4, 6), numpy.float32))),
)
PRODUCTS = [
    *several("MatMul", (7, 9, 13), MATRIX_PAIRS),
    *several("Gemm", (7, 11, 13), [((3, 4), (4, 5), (5,)), ((3, 4), (4, 5), (3, 1)), ((3, 4), (4, 5), (1,))], [
        {}, {"alpha": 0.5, "beta": 2.0}, {"beta": 0.0}]),
    *several("Gemm", (7, 13), [((4, 3), (5, 4), (3, 5))], [{"transA": 1, "transB": 1}]),
    *several("Gemm", (11, 13), [((3, 4), (5, 4))], [{"transB": 1, "alpha": 0.3}]),
]
