"""Pooling."""

from __future__ import annotations

import numpy
from operator_cases import AUTO_PADS, several

POOLING = [
    *several("MaxPool", (7, 8), [((2, 3, 9, 8),)], [
        {"kernel_shape": [3, 2]}, {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 0, 1, 1]},
        *({"kernel_shape": [3, 2], "strides": [2, 3], **a} for a in AUTO_PADS)]),
    *several("MaxPool", (10, 11, 12, 22), [((2, 3, 9, 8),)], [
        {"kernel_shape": [2, 3], "strides": [2, 3], "ceil_mode": 1}, {"kernel_shape": [3, 3], "dilations": [2, 3]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1, "storage_order": 1},
        {"kernel_shape": [2, 2], "strides": [3, 3], "pads": [0, 0, 1, 1], "ceil_mode": 1},
        {"kernel_shape": [1, 1], "strides": [2, 2], "ceil_mode": 1},
        *({"kernel_shape": [3, 2], "strides": [2, 3], "ceil_mode": 1, **a} for a in AUTO_PADS),
        {"kernel_shape": [3, 2], "strides": [2, 2], "dilations": [2, 2], "pads": [2, 1, 1, 0], "ceil_mode": 1}]),
    *several("MaxPool", (11,), [((2, 3, 9),)], [{"kernel_shape": [3], "strides": [2], "pads": [1, 1]}]),
    *several("MaxPool", (11,), [((1, 2, 5, 6, 4),)],
        [{"kernel_shape": [3, 2, 2], "strides": [2, 2, 1], "ceil_mode": 1}]),
    *several("MaxPool", (12,), [(numpy.arange(-16, 0, dtype=numpy.int8).reshape(1, 1, 4, 4),)], [
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}]),
    *several("AveragePool", (7, 10, 11, 19, 22), [((2, 3, 9, 8),)], [
        {"kernel_shape": [3, 2], "count_include_pad": c, **settings} for c in (0, 1) for settings in (
            {}, {"strides": [2, 2], "pads": [1, 0, 1, 1]}, *({"strides": [2, 3], **a} for a in AUTO_PADS))]),
    *several("AveragePool", (19, 22), [((2, 3, 9, 8),)], [
        {"kernel_shape": [3, 3], "count_include_pad": c, **settings} for c in (0, 1) for settings in (
            *({"strides": [2, 3], "ceil_mode": 1, **a} for a in AUTO_PADS[:2]),
            {"strides": [2, 2], "dilations": [2, 2], "auto_pad": "VALID"},
            {"strides": [2, 2], "ceil_mode": 1}, {"strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1},
            {"dilations": [2, 3], "pads": [1, 2, 0, 1]}, {"strides": [3, 3], "pads": [0, 0, 1, 1], "ceil_mode": 1})]),
    *several("AveragePool", (11, 19), [((2, 3, 9),)], [{"kernel_shape": [4], "strides": [3], "pads": [1, 2]}]),
    *several("AveragePool", (11, 19), [((1, 2, 5, 6, 4),)],
        [{"kernel_shape": [3, 2, 2], "strides": [2, 2, 1], "pads": [1, 0, 1, 0, 1, 0]}]),
    *(case for op in ("GlobalAveragePool", "GlobalMaxPool")
      for case in several(op, (7, 22), [((2, 3, 5),), ((2, 3, 5, 4),), ((1, 2, 3, 4, 2),)])),
]
