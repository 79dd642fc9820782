"""Preview operators of old converters, and those of ai.onnx.ml."""

from __future__ import annotations

from dataclasses import replace

import numpy
from operator_cases import SHAPES, Case, Constant, ints, several, whole

PICTURE = (2, 3, 4, 5)
PREVIEWS = [
    *several("ImageScaler", (7, 9), [(PICTURE,)],
        [{"scale": 2.0, "bias": [1.0, -2.0, 0.5]}, {"bias": [0.0, 1.0, 2.0]}]),
    *(case for op in ("Affine", "ScaledTanh", "ParametricSoftplus")
      for case in several(op, (7, 9), SHAPES[1:], [{"alpha": 0.3, "beta": 1.5}, {"alpha": 2.0, "beta": -0.5}])),
    *several("Crop", (7, 9), [(PICTURE,)], [
        {"border": [0, 0, 0, 0]}, {"border": [1, 0, 2, 1]}, {"border": [1, 2, 0, 0], "scale": [2, 3]}]),
    *several("ThresholdedRelu", (7, 9), SHAPES, [{}, {"alpha": -0.3}]),
]
FEATURES = [replace(case, domain="ai.onnx.ml") for case in (
    *several("Scaler", (13,), [((3,),), ((2, 3),)], [{"offset": [0.5], "scale": [2.0]}]),
    *several("Scaler", (13,), [((2, 3),), (whole(2, 3),), (whole(2, 3, dtype=numpy.int32),)],
        [{"offset": [0.5, 1.0, -1.0], "scale": [2.0, 0.5, 3.0]}]),
    *several("ArrayFeatureExtractor", (13,), [((5,), ints(3, 1)), ((2, 5), ints(3, 1, 3)), ((2, 5), ints(0)),
        ((2, 3, 5), Constant(numpy.array([[4, 0]]))), ((2, 5), numpy.array([3, 1])), (whole(2, 5), ints(2, 1)),
        (whole(2, 5, dtype=numpy.int32), ints(2, 1))]),
)]
REFUSED = [
    (Case("Affine", 7, (PICTURE,), {"alpha": 1.0}), "no attribute beta"),
    (replace(Case("Scaler", 13, (numpy.ones(3, "i1"),), {"offset": [0.0], "scale": [1.0]}), domain="ai.onnx.ml"),
     "int8"),
    (replace(Case("TreeEnsembleRegressor", 13, ((2, 3),), {}), domain="ai.onnx.ml"), "ai.onnx.ml.TreeEnsemble"),
]
WRONG = [
    (Case("ImageScaler", 7, (PICTURE,), {"bias": [1.0]}), "1 biases"),
    (Case("Crop", 7, (PICTURE,), {"border": [3, 0, 2, 0]}), "leave nothing"),
    (Case("Crop", 7, (PICTURE,), {"border": [3, 0, 2, 0], "scale": [4, 3]}), "outside of it"),
    *((replace(case, domain="ai.onnx.ml"), message) for case, message in (
        (Case("Scaler", 13, ((2, 3),), {"offset": [0.0, 1.0], "scale": [1.0, 1.0]}), "2 offsets"),
        (Case("ArrayFeatureExtractor", 13, ((2, 3), ints(-1)), {}), "negative"),
        (Case("ArrayFeatureExtractor", 13, ((2, 3), ints(3)), {}), "outside"),
        (Case("ZipMap", 13, ((2, 3),), {"classlabels_int64s": [1, 2]}), "needs a name"))),
]
