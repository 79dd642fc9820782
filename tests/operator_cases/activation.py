"""Activations."""

from __future__ import annotations

import numpy
from operator_cases import SHAPES, Constant, several

ACTIVATIONS = [
    *several("Relu", (7, 13, 14), SHAPES),
    *several("LeakyRelu", (7, 16), SHAPES, [{}, {"alpha": 0.3}, {"alpha": -0.3}, {"alpha": 1.7}]),
    *several("PRelu", (7, 9, 16), [((2, 3, 4), (3, 1)), ((2, 3, 4), Constant(numpy.float32([0.25]))),
        ((2, 3, 4), (2, 3, 4))]),
    *several("Elu", (7, 22), SHAPES, [{}, {"alpha": 0.3}]),
    *several("Selu", (7, 22), SHAPES, [{}, {"alpha": 1.2, "gamma": 2.0}]),
    *several("Celu", (12,), SHAPES, [{}, {"alpha": 0.3}, {"alpha": 2.0}]),
    *several("HardSigmoid", (7, 22), SHAPES, [{}, {"alpha": 0.5, "beta": 0.3}]),
    *several("HardSwish", (14, 22), SHAPES),
    *several("Mish", (18, 22), SHAPES),
    *several("Gelu", (20,), SHAPES, [{}, {"approximate": "tanh"}]),
    *several("Softplus", (7, 22), [*SHAPES, (numpy.float32([-90, -20, 0, 20, 90]),)]),
    *several("Softsign", (7, 22), SHAPES),
    *several("ThresholdedRelu", (7, 9, 10, 22), SHAPES, [{}, {"alpha": -0.3}]),
    *several("Shrink", (9,), SHAPES, [{}, {"lambd": 0.8, "bias": 0.2}]),
]
