"""Operators of every family in half precision."""

from __future__ import annotations

from dataclasses import replace

import numpy
from operator_cases import Constant, floats, half, ints, several
from operator_cases.normalization import KNOWN

HALVES = [
    *several("Conv", (11,), [(half(1, 4, 6, 6), Constant(half(4, 4, 3, 3)), Constant(half(4)))],
        [{"pads": [1, 1, 1, 1]}]),
    *several("ConvTranspose", (11,), [(half(1, 4, 6, 6), Constant(half(4, 4, 3, 3)))], [{"strides": [2, 2]}]),
    *several("BatchNormalization", (15,), [(half(2, 3, 4), *KNOWN),
        (half(2, 3, 4), *(Constant(k.array.astype("f2")) for k in KNOWN))]),
    *several("InstanceNormalization", (7,), [(half(2, 3, 9), *(Constant(k.array.astype("f2")) for k in KNOWN[:2]))]),
    *several("LayerNormalization", (17,), [(half(2, 3) * 200, Constant(numpy.ones(3, "f2")))]),
    *several("GlobalAveragePool", (7,), [(half(1, 2, 300, 300) + 2,)]),
    *several("AveragePool", (11,), [(half(1, 2, 9, 9) * 20000,)], [{"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}]),
    *several("MaxPool", (12,), [(half(1, 2, 9, 9),)], [{"kernel_shape": [3, 3]}]),
    *several("ReduceMean", (13,), [(half(40, 50) * 20000,)], [{"axes": [1]}]),
    *several("ReduceL2", (13,), [(half(40, 50) * 1000,)], [{"axes": [1]}]),
    *several("ReduceLogSumExp", (13,), [(half(4, 5) * 20,)], [{"axes": [1]}]),
    *several("Resize", (13,), [(half(1, 2, 5, 4), None, floats(1, 1, 2, 1.6))],
        [{"mode": m} for m in ("nearest", "linear")]),
    *several("Gemm", (13,), [(half(3, 4), Constant(half(4, 5)), Constant(half(5)))]),
    *several("MatMul", (13,), [(half(3, 4), Constant(half(4, 5)))]),
    *several("Pad", (13,), [(half(3, 4), ints(1, 0, 2, 1), Constant(numpy.array(3, "f2")))]),
    *several("Elu", (7,), [(half(3, 4),)]),
    *several("Clip", (13,), [(half(3, 4), Constant(numpy.array(-1, "f2")))]),
    *several("Sum", (13,), [(half(3, 4), half(4), half(3, 1))]),
    *several("Concat", (13,), [(half(3, 4), Constant(half(2, 4)))], [{"axis": 0}]),
    *several("Gather", (13,), [(half(3, 4), numpy.array([2, -1]))]),
    *several("GatherElements", (13,), [(half(3, 4), numpy.array([[2, -1, 0, 1]]))]),
    *several("ScatterElements", (18,), [(half(3, 4), numpy.array([[2, -1]]), half(1, 2))]),
    *several("TopK", (11,), [(half(3, 9), ints(4))], outputs=2),
    *several("Trilu", (14,), [(half(3, 4),)]),
]
HALVES = [replace(case, tolerance=2e-3) for case in HALVES]
