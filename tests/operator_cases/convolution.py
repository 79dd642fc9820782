"""Convolutions."""

from __future__ import annotations

import numpy
from operator_cases import AUTO_PADS, Constant, several

CONVOLUTIONS = [
    *several("Conv", (7, 11, 22), [((2, 4, 9, 8), (6, 4, 3, 2), (6,)),
        ((1, 4, 5, 7), Constant(numpy.ones((2, 4, 3, 3), "f")))], [
        {}, *AUTO_PADS, {"pads": [1, 0, 2, 1]}, {"strides": [2, 3], "auto_pad": "SAME_UPPER"},
        {"strides": [3, 2], "pads": [2, 1, 0, 1], "dilations": [2, 1]}]),
    *several("Conv", (11,), [((2, 4, 6, 6), (6, 2, 3, 3))],
        [{"group": 2}, {"group": 2, "pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}]),
    *several("Conv", (11,), [((1, 4, 6, 6), (8, 1, 3, 3), (8,))], [{"group": 4, "strides": [2, 2]}]),
    *several("Conv", (11,), [((1, 4, 0, 6), (8, 4, 1, 3), (8,))], [{"pads": [1, 1, 1, 1]}]),
    *several("Conv", (7, 11), [((2, 3, 10), (4, 3, 3), (4,))], [
        {}, *AUTO_PADS, {"strides": [2], "pads": [2, 1]}, {"dilations": [3], "pads": [0, 4]}]),
    *several("Conv", (11,), [((2, 4, 4, 5, 6), (6, 2, 2, 3, 3), (6,))], [
        {"group": 2}, {"group": 2, "strides": [2, 1, 2], "pads": [1, 0, 1, 2, 1, 0]},
        {"group": 2, "dilations": [2, 1, 2], "pads": [1, 0, 1, 1, 0, 1]},
        {"group": 2, "auto_pad": "SAME_LOWER", "strides": [2, 2, 2]}]),
    *several("ConvTranspose", (7, 11, 22), [((2, 4, 5, 4), (4, 3, 3, 2), (3,))], [
        {}, {"auto_pad": "SAME_UPPER"}, {"auto_pad": "VALID"}, {"pads": [1, 0, 0, 1]},
        {"strides": [2, 3], "auto_pad": "SAME_LOWER"},
        {"strides": [2, 3], "pads": [1, 1, 0, 0]}, {"strides": [2, 3], "output_padding": [1, 2]},
        {"strides": [2, 3], "output_shape": [10, 12]},
        {"strides": [2, 3], "output_shape": [10, 11], "auto_pad": "SAME_UPPER"},
        {"strides": [2, 3], "output_shape": [10, 10], "auto_pad": "SAME_LOWER"},
        {"dilations": [2, 2], "pads": [1, 2, 1, 0]},
        {"strides": [3, 3]}, {"strides": [2, 3], "output_shape": [12, 12]}, {"strides": [1, 1], "output_shape": [4, 4]},
        {"strides": [2, 2], "auto_pad": "SAME_UPPER", "output_padding": [1, 1]},
        {"strides": [2, 2], "output_padding": [1, 1], "output_shape": [9, 7]}]),
    *several("ConvTranspose", (11,), [((2, 4, 5, 4), (4, 3, 3, 2))],
        [{"group": 2}, {"group": 4, "strides": [2, 2], "pads": [1, 1, 1, 0]}]),
    *several("ConvTranspose", (11,), [((2, 4, 5), (4, 3, 3), (3,))],
        [{}, {"strides": [2], "pads": [1, 0], "output_padding": [1]}]),
    *several("ConvTranspose", (11,), [((1, 4, 3, 4, 3), (4, 2, 3, 2, 3), (4,))], [
        {"group": 2}, {"group": 2, "strides": [2, 3, 2], "pads": [1, 0, 1, 0, 1, 1], "output_padding": [1, 0, 1]},
        {"group": 2, "dilations": [2, 1, 2]}]),
]
