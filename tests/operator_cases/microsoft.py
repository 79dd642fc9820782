"""Operators of com.microsoft that compute in floats, which onnxruntime's optimizer writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy
from operator_cases import AUTO_PADS, SHAPES, Case, Constant, Input, half, several

X = numpy.random.default_rng(8).uniform(-2, 2, (2, 3, 4, 5)).astype(numpy.float32)


def microsoft(
    op_type: str, inputs: Sequence[Sequence[Input]], attributes: Sequence[dict[str, Any]] = ({},), outputs: int = 1,
    tolerance: float = 2e-6,
) -> Iterator[Case]:
    """Each inputs with each attributes."""
    for case in several(op_type, (17,), inputs, attributes, outputs, tolerance=tolerance):
        yield replace(case, domain="com.microsoft")


ACTIVATED = (
    {}, {"activation": "Relu"}, {"activation": "Sigmoid"}, {"activation": "Tanh"},
    {"activation": "LeakyRelu", "activation_params": [0.3]}, {"activation": "Clip", "activation_params": [-3.0, 5.0]},
    {"activation": "HardSigmoid", "activation_params": [0.3, 0.4]},
)
GEMM_ACTIVATED = (
    {"activation": "Relu", "transB": 1}, {"activation": "LeakyRelu", "activation_alpha": 0.3, "transB": 1},
    {"activation": "Sigmoid", "transA": 1, "alpha": 0.5}, {"activation": "Tanh", "beta": 2.0},
    {"activation": "HardSigmoid", "activation_alpha": 0.3, "activation_beta": 0.4},
    {"activation": "Elu", "activation_alpha": 0.5}, {"activation": "Softplus"}, {"activation": "Softsign"},
    {"activation": "ThresholdedRelu", "activation_alpha": 0.5},
)
SKIPS = [((2, 3, 8), (2, 3, 8), (8,), (8,)), ((2, 3, 8), (2, 3, 8), (8,), (8,), (8,)), ((2, 3, 8), (3, 8), (8,), (8,)),
    ((2, 3, 8), (1, 3, 8), (8,), None, (8,)), ((5, 8), (5, 8), (8,), (8,))]
SIMPLE_SKIPS = [((2, 3, 8), (2, 3, 8), (8,)), ((2, 3, 8), (2, 3, 8), (8,), (8,)), ((5, 8), (5, 8), (8,), (8,))]
MATRICES = [((3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((2, 2, 3, 4), (2, 2, 4, 5)), ((2, 3, 4), (4, 5))]

MICROSOFT = [
    *microsoft("FusedConv", [((2, 4, 9, 8), (6, 4, 3, 2), (6,))], [
        *ACTIVATED, *({**each, "activation": "Relu"} for each in AUTO_PADS),
        {"strides": [3, 2], "pads": [2, 1, 0, 1], "dilations": [2, 1], "activation": "Relu"}]),
    *microsoft("FusedConv", [((1, 4, 6, 6), (8, 2, 3, 3), (8,), (1, 8, 4, 4)), ((1, 4, 6, 6), (8, 2, 3, 3), None)],
        [{"group": 2, "activation": "Relu"}, {"group": 2}]),
    *microsoft("FusedConv", [((2, 3, 10), (4, 3, 3), (4,))], [{"activation": "Tanh", "pads": [1, 0]}]),
    *microsoft("FusedGemm", [((4, 4), (4, 4), (4,)), ((4, 4), (4, 4), None), ((4, 4), (4, 4), (4, 1))],
        GEMM_ACTIVATED),
    *microsoft("FusedGemm", [((4, 3), (5, 4), (3, 5))], [{"transA": 1, "transB": 1, "activation": "Relu"}]),
    *(case for op in ("FusedMatMul", "TransposeMatMul") for case in microsoft(op, MATRICES, [{}, {"alpha": 0.3}])),
    *microsoft("FusedMatMul", [((4, 3), (5, 4)), ((2, 4, 3), (2, 5, 4))], [{"transA": 1, "transB": 1}]),
    *microsoft("FusedMatMul", [((4,), (4, 5)), ((4,), (4,))], [{"transA": 1}]),
    *microsoft("FusedMatMul", [((3, 4), (4,))], [{"transB": 1}]),
    *microsoft("FusedMatMul", [((3, 2, 4), (2, 4, 5))], [{"transBatchA": 1}]),
    *microsoft("FusedMatMul", [((4, 2, 3), (4, 2, 5))], [{"transBatchA": 1, "transA": 1, "transBatchB": 1}]),
    *microsoft("FusedMatMul", [((3, 2, 6, 4), (2, 6, 4, 5))], [{"transBatchA": 1, "alpha": 2.0}]),
    *microsoft("Gelu", SHAPES),
    *microsoft("BiasGelu", [((3,), (3,)), ((2, 3), (3,)), ((1, 5, 4, 3), (3,))]),
    *microsoft("FastGelu", [*SHAPES[1:], ((2, 3), (3,)), ((1, 5, 4, 3), (3,))], tolerance=1e-5),
    *microsoft("QuickGelu", SHAPES, [{}, {"alpha": 0.5}, {"alpha": 1.0}]),
    *microsoft("SkipLayerNormalization", SKIPS, [{}, {"epsilon": 0.1}]),
    *microsoft("SkipSimplifiedLayerNormalization", SIMPLE_SKIPS, [{}, {"epsilon": 0.1}]),
    *microsoft("SkipLayerNormalization", [(half(2, 3, 8), half(2, 3, 8) * 3, half(8), half(8))], tolerance=2e-3),
    *microsoft("SkipSimplifiedLayerNormalization", [(half(2, 3, 8), half(2, 3, 8) * 3, half(8))], tolerance=2e-3),
    *several("SimplifiedLayerNormalization", (7, 13, 17), [((2, 3, 8), (8,)), ((5, 8), (8,))],
        [{}, {"epsilon": 0.1}, {"axis": -1, "stash_type": 1}]),
    *several("SimplifiedLayerNormalization", (17,), [((2, 3, 8), (3, 8))], [{"axis": 1}]),
    *several("LayerNormalization", (7, 13), [((2, 3, 8), (8,), (8,)), ((5, 8), (8,))], [{}, {"epsilon": 0.1}]),
    *several("LayerNormalization", (13,), [((2, 3, 8), (3, 8))], [{"axis": 1}], outputs=3),
    *microsoft("NhwcMaxPool", [(numpy.random.default_rng(2).integers(0, 255, (2, 6, 5, 3)).astype(dtype),)
        for dtype in (numpy.uint8, numpy.int8)], [{"kernel_shape": [3, 2]}, {"kernel_shape": [2, 2], "strides": [2, 2],
        "pads": [1, 0, 1, 0]}, {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
        {"kernel_shape": [2, 2], "dilations": [2, 1]}, {"kernel_shape": [2, 2], "auto_pad": "SAME_UPPER"}]),
]


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + numpy.exp(-x))


def _grouped(x: Any, groups: int, scale: Any, shift: Any, epsilon: float = 1e-5) -> Any:
    """GroupNormalization of (N, C, H, W) in float64."""
    split = x.astype(float).reshape(len(x), groups, -1)
    mean, variance = split.mean(-1, keepdims=True), split.var(-1, keepdims=True)
    made = ((split - mean) / numpy.sqrt(variance + epsilon)).reshape(x.shape)
    return made * scale.reshape(-1, 1, 1) + shift.reshape(-1, 1, 1)


def _convolved(x: Any, weight: Any, bias: Any, step: int) -> Any:
    """A convolution of (N, C, H, W) without padding, in float64."""
    high, wide = ((n - k) // step + 1 for n, k in zip(x.shape[2:], weight.shape[2:], strict=True))
    made = numpy.zeros((len(x), len(weight), high, wide))
    for row in range(high):
        for column in range(wide):
            seen = x[:, :, row * step :, column * step :][..., : weight.shape[2], : weight.shape[3]].astype(float)
            made[:, :, row, column] = numpy.einsum("nchw,ochw->no", seen, weight) + bias
    return made


def _last(x: Any) -> Any:
    return x.transpose(0, 2, 3, 1).copy()


random = numpy.random.default_rng(6)
IMAGE, SKIP = (random.normal(size=(2, 8, 3, 4)).astype(numpy.float32) for _ in range(2))
SCALE, SHIFT, BIAS = (random.normal(size=8).astype(numpy.float32) for _ in range(3))
WEIGHT, SMALL = (random.normal(size=(8, 8, k, 2)).astype(numpy.float32) for k in (3, 1))
GROUPED = {"activation": 0, "groups": 4}
TOTAL = IMAGE + SKIP + BIAS.reshape(-1, 1, 1)
NORMED = _grouped(IMAGE, 4, SCALE, SHIFT)
# No CPU kernel of onnxruntime has these: the expected values are computed here, by the operators' formulas.
COMPUTED: list[tuple[Case, Any]] = [
    (Case("GroupNorm", 17, (_last(IMAGE), SCALE, SHIFT), GROUPED), _last(NORMED)),
    (Case("GroupNorm", 17, (IMAGE, SCALE, SHIFT), {**GROUPED, "channels_last": 0}), NORMED),
    (Case("GroupNorm", 17, (_last(IMAGE), Constant(SCALE), Constant(SHIFT)), {"activation": 1, "groups": 4}),
     _last(NORMED * _sigmoid(NORMED))),
    (Case("GroupNorm", 17, (_last(IMAGE), SCALE, SHIFT), {"activation": 0, "groups": 1, "epsilon": 0.5}),
     _last(_grouped(IMAGE, 1, SCALE, SHIFT, 0.5))),
    (Case("SkipGroupNorm", 17, (_last(IMAGE), SCALE, SHIFT, _last(SKIP), BIAS), GROUPED),
     _last(_grouped(TOTAL, 4, SCALE, SHIFT))),
    (Case("SkipGroupNorm", 17, (_last(IMAGE), SCALE, SHIFT, SKIP[:, :, 0, 0]), GROUPED),
     _last(_grouped(IMAGE + SKIP[:, :, :1, :1], 4, SCALE, SHIFT))),
    (Case("SkipGroupNorm", 17, (_last(IMAGE), SCALE, SHIFT, _last(SKIP[:, :, :1, :1])), GROUPED),
     _last(_grouped(IMAGE + SKIP[:, :, :1, :1], 4, SCALE, SHIFT))),
    (Case("NhwcConv", 17, (_last(IMAGE), Constant(_last(WEIGHT)), SHIFT), {"kernel_shape": [3, 2]}),
     _last(_convolved(IMAGE, WEIGHT, SHIFT, 1))),
    (Case("NhwcConv", 17, (_last(IMAGE), Constant(_last(SMALL)), SHIFT), {"strides": [2, 2]}),
     _last(_convolved(IMAGE, SMALL, SHIFT, 2))),
    (Case("NhwcFusedConv", 17, (_last(IMAGE), Constant(WEIGHT), SHIFT), {"activation": "Relu"}),
     _last(_convolved(IMAGE, WEIGHT, SHIFT, 1).clip(0))),
    (Case("NhwcFusedConv", 17, (_last(IMAGE), Constant(SMALL), SHIFT, _last(SKIP)[..., :3, :]), {}),
     _last(_convolved(IMAGE, SMALL, SHIFT, 1) + SKIP[..., :3])),
]
COMPUTED = [(replace(case, domain="com.microsoft"), made.astype(numpy.float32)) for case, made in COMPUTED]
REFUSED = [
    (Case("FusedConv", 17, (X, (2, 3, 1, 1)), {"activation": "Selu"}), "activation Selu"),
    (Case("FusedConv", 17, (X, (2, 3, 1, 1)), {"activation": "Clip"}), "activation Clip with 0 parameters"),
    (Case("FusedConv", 17, (X, (2, 3, 1, 1)), {"own": 1}), "attribute own"),
    (Case("FusedGemm", 17, (X[0, 0], (5, 2)), {"activation": "Selu", "activation_alpha": 1.0}), "activation Selu"),
    (Case("FusedMatMul", 17, ((3, 4), (4, 5)), {"transBatchA": 1}), "transBatchA of rank 2"),
    (Case("Gelu", 17, ((3, 4), (4,), (4,)), {}), "input 2"),
    (Case("NhwcMaxPool", 17, (numpy.ones((1, 2, 2, 1), "i4"),), {"kernel_shape": [1, 1]}), "int32"),
    (Case("SkipSimplifiedLayerNormalization", 17, SIMPLE_SKIPS[0], {}, outputs=2), "second output"),
]
REFUSED = [(replace(case, domain="com.microsoft"), message) for case, message in REFUSED]
