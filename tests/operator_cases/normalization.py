"""Normalisations."""

from __future__ import annotations

import numpy
from operator_cases import Constant, several

PARAMETERS = ((3,), (3,), (3,), Constant(numpy.float32([0.5, 2, 1e-6])))
KNOWN = tuple(Constant(numpy.float32(v)) for v in ([1, 2, 3], [0.5, -1, 0], [1, 0, -1], [0.5, 2, 1e-6]))
NORMALISATIONS = [
    *several("BatchNormalization", (7, 9, 14, 15), [
        ((2, 3, 4, 5), *PARAMETERS), ((2, 3), *KNOWN), ((2, 3, 4), *KNOWN), ((2, 3, 2, 2, 2), *KNOWN)],
        [{}, {"epsilon": 0.1}]),
    *several("InstanceNormalization", (7, 22), [((2, 3, 5), (3,), (3,)), ((2, 3, 5, 4), *KNOWN[:2]),
        ((1, 3, 2, 3, 4), (3,), (3,))],
             [{}, {"epsilon": 0.1}]),
    *several("LayerNormalization", (17,), [((2, 3, 4), (4,), (4,)), ((2, 3, 4), (4,))],
        [{}, {"axis": 2, "epsilon": 0.1}]),
    *several("LayerNormalization", (17,), [((2, 3, 4), (3, 4), (3, 4))], [{"axis": 1}, {"axis": -2}], outputs=3),
    *several("GroupNormalization", (21,), [((2, 6, 4, 3), (6,), (6,)), ((2, 6, 5), (6,), (6,))], [
        {"num_groups": 3}, {"num_groups": 1, "epsilon": 0.1}, {"num_groups": 6}]),
    *several("RMSNormalization", (23,), [((2, 3, 4), (4,))], [{}, {"epsilon": 0.1, "axis": 2}]),
    *several("LpNormalization", (7, 22), [((2, 3, 4),)], [{}, {"p": 1}, {"axis": 1}, {"axis": 0, "p": 1}]),
    *several("MeanVarianceNormalization", (9, 13), [((2, 3, 4, 5),)], [{}, {"axes": [1, 3]}, {"axes": [0, 1, 2, 3]}]),
    *several("LRN", (7, 13), [((2, 7, 4, 3),)], [{"size": 3}, {"size": 5, "alpha": 0.1, "beta": 0.5, "bias": 2.0},
        {"size": 9}]),
]
