"""Every operator against onnxruntime: ranks, axes, attributes and the forms of each opset.

onnxruntime 1.31 knows opsets up to 26, so nothing newer is compared with it.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy
import onnx
import onnx.helper
import pytest
from support import ENGINES, OLD_ORACLE, OLD_ORACLE_REASON, assert_close, make_model, run_model, run_oracle

from imgconv import ops
from imgconv.cl.device import DeviceInfo
from imgconv.errors import ModelError, UnsupportedError
from imgconv.evaluate import evaluate_graph
from imgconv.onnx_import import import_onnx
from imgconv.passes import run_passes

NEWEST = 26  # onnxruntime's
LARGE = 2**31 - 1
Input = Any  # a shape (random floats), an array, a Constant or None where the input is absent


@dataclass(frozen=True)
class Constant:
    """An input that the model holds as an initializer."""

    array: Any


@dataclass(frozen=True)
class Case:
    """A model of one node. outputs: how many of its outputs are compared; low: the least random input."""

    op_type: str
    opset: int
    inputs: tuple[Input, ...]
    attributes: dict[str, Any]
    outputs: int = 1
    low: float = -2.0
    tolerance: float = 2e-6

    def __str__(self) -> str:
        return f"{self.op_type}-{self.opset}"


def ints(*values: int) -> Constant:
    """A constant int64 vector."""
    return Constant(numpy.array(values, numpy.int64))


def floats(*values: float) -> Constant:
    """A constant float vector."""
    return Constant(numpy.array(values, numpy.float32))


def scalar(value: float) -> Constant:
    """A constant float of rank 0."""
    return Constant(numpy.array(value, numpy.float32))


def half(*shape: int) -> Any:
    """Random half values."""
    return numpy.random.default_rng(7).uniform(-2, 2, shape).astype(numpy.float16)


def several(
    op_type: str, opsets: Sequence[int], inputs: Sequence[Sequence[Input]],
    attributes: Sequence[dict[str, Any]] = ({},),
    outputs: int = 1, low: float = -2.0, tolerance: float = 2e-6,
) -> Iterator[Case]:
    """Each opset with each inputs and each attributes."""
    for opset in opsets:
        for row in inputs:
            for settings in attributes:
                yield Case(op_type, opset, tuple(row), settings, outputs, low, tolerance)


def model_of(case: Case) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """The case's model, and arrays for its inputs."""
    random = numpy.random.default_rng(1)
    feeds: dict[str, Any] = {}
    constants: dict[str, Any] = {}
    names = []
    for number, given in enumerate(case.inputs):
        name = "" if given is None else f"x{number}"
        names.append(name)
        if isinstance(given, Constant):
            constants[name] = given.array
        elif isinstance(given, tuple):
            feeds[name] = random.uniform(case.low, 2, given).astype(numpy.float32)
        elif given is not None:
            feeds[name] = given
    outputs = [f"y{i}" for i in range(case.outputs)]
    node = onnx.helper.make_node(case.op_type, names, outputs, name="node", **case.attributes)
    return make_model([node], feeds, outputs, case.opset, constants), feeds


def check(case: Case, engine: str | DeviceInfo) -> None:
    model, feeds = model_of(case)
    expected = run_oracle(model, feeds)
    assert_close(run_model(model, feeds, engine), expected, case.tolerance)


AUTO_PADS = ({"auto_pad": "SAME_UPPER"}, {"auto_pad": "SAME_LOWER"}, {"auto_pad": "VALID"})
SHAPES = (((),), ((3,),), ((2, 3),), ((1, 5, 4, 3),), ((2, 1, 3, 2, 2),))
PAIRS = (((2, 3, 4), (3, 1)), ((4,), (2, 3, 4)), ((2, 1), (1, 3)), ((), (2, 2)),
    ((1, 4, 3, 3), Constant(numpy.float32([3.5]))))
MATRIX_PAIRS = (
    ((3, 4), (4, 5)), ((4,), (4,)), ((4,), (4, 5)), ((3, 4), (4,)), ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (5, 4, 2)), ((4,), (2, 4, 5)), ((2, 3, 4), (4,)),
    ((3, 4), Constant(numpy.ones((4, 6), numpy.float32))),
)

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
    *several("ThresholdedRelu", (10, 22), SHAPES, [{}, {"alpha": -0.3}]),
    *several("Shrink", (9,), SHAPES, [{}, {"lambd": 0.8, "bias": 0.2}]),
]

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

REDUCTIONS = [
    *(case for op in (
        "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare",
        "ReduceLogSum", "ReduceLogSumExp") for case in [
            *several(op, (7, 11, 12), [((2, 3, 4),)],
                [{}, {"axes": [1]}, {"axes": [0, 2], "keepdims": 0}, {"keepdims": 0}], low=0.1),
            *several(op, (11,), [((2, 3, 4, 2),)], [{"axes": [-1, 1]}], low=0.1),
            *several(op, (18, 20), [((2, 3, 4),), ((2, 3, 4), ints(1)), ((2, 3, 4), ints(0, -1)),
                ((2, 3, 4), ints())], [
                {}, {"keepdims": 0}], low=0.1)]),
    *(case for op in ("ReduceSum", "ReduceMax", "ReduceMean")
      for case in several(op, (18,), [((2, 3, 4), ints())], [{"noop_with_empty_axes": 1}])),
    *several("ReduceSum", (13,), [((2, 3, 4), ints(1)), ((2, 3, 4),)], [{}, {"keepdims": 0}]),
    *several("ReduceLogSumExp", (13,), [(numpy.float32([[100, 200], [-300, -400]]),)], [{"axes": [1]}]),
    *(case for op in ("Softmax", "LogSoftmax") for case in [
        *several(op, (7, 11), [((2, 3, 4),), (numpy.float32([[1000, 1001, -1000]]),)], [{}, {"axis": 0}]),
        *several(op, (11,), [((2, 3, 4, 2),)], [{"axis": 2}, {"axis": -1}, {"axis": -3}]),
        *several(op, (13,), [((2, 3, 4, 2),)], [{}, {"axis": 0}, {"axis": 1}, {"axis": -2}]),
        *several(op, (13,), [(half(2, 50),)], tolerance=2e-3)]),
]

MOVEMENTS = [
    *several("Identity", (7, 14), [((2, 3),)]),
    *several("Reshape", (7, 13), [((2, 3, 4), ints(*s)) for s in ((24,), (4, -1), (0, 0, 2, 2), (-1, 0, 2),
        (1, 2, 3, 2, 2))]),
    *several("Reshape", (14, 19, 21), [((2, 3, 4), ints(0, -1))], [{}, {"allowzero": 0}]),
    *several("Reshape", (14,), [((2, 3, 4), ints(6, -1))], [{"allowzero": 1}]),
    *several("Reshape", (14,), [((1, 1), ints())]),
    *several("Flatten", (7, 9), [((2, 3, 4, 5),)], [{"axis": a} for a in range(5)] + [{}]),
    *several("Flatten", (11, 13, 21), [((2, 3, 4),)], [{"axis": -1}, {"axis": -3}, {"axis": 3}]),
    *several("Squeeze", (7, 11), [((1, 3, 1, 2),)], [{}, {"axes": [0]}, {"axes": [2, 0]}]),
    *several("Squeeze", (11,), [((1, 3, 1, 2),)], [{"axes": [-2]}]),
    *several("Squeeze", (13, 21), [((1, 3, 1, 2),), ((1, 3, 1, 2), ints(-2)), ((1, 3, 1, 2), ints(0, 2))]),
    *several("Unsqueeze", (7, 11), [((2, 3),)], [{"axes": [0]}, {"axes": [3, 1]}]),
    *several("Unsqueeze", (13, 21), [((2, 3), ints(0)), ((2, 3), ints(-1, 1)), ((), ints(0))]),
    *several("Transpose", (7, 13, 21), [((2, 3, 4),)], [{}, {"perm": [1, 2, 0]}, {"perm": [0, 2, 1]}]),
    *several("Expand", (8, 13), [((3, 1), ints(2, 1, 4)), ((3, 1), ints(1)), ((1, 2), ints(3, 1)), ((), ints(2, 2))]),
    *several("Tile", (7, 13), [((2, 3), ints(2, 1)), ((2, 3), ints(3, 2)), ((2,), ints(1)),
        ((1, 2, 3), ints(2, 2, 2))]),
    *several("Concat", (7, 11, 13), [((2, 3), (2, 1), (2, 4))], [{"axis": 1}]),
    *several("Concat", (11, 13), [((2, 3, 4), (2, 3, 4)), ((2, 3, 4), Constant(numpy.ones((2, 3, 4), "f"))),
        ((1, 2, 2),)], [
        {"axis": -1}, {"axis": 0}, {"axis": -2}]),
    *several("Split", (7, 11), [((2, 6, 3),)], [{"axis": 1}, {"axis": 1, "split": [1, 2, 3]}], outputs=3),
    *several("Split", (11,), [((6, 2),)], [{}], outputs=3),
    *several("Split", (13,), [((2, 6), ints(1, 2, 3)), ((2, 6),)], [{"axis": -1}], outputs=3),
    *several("Split", (18,), [((2, 7),)], [{"axis": 1, "num_outputs": 3}], outputs=3),
    *several("Split", (18,), [((2, 7), ints(1, 4, 2))], [{"axis": 1}], outputs=3),
    *several("Slice", (7, 9), [((4, 5, 6),)], [
        {"starts": [1], "ends": [3]}, {"starts": [-3, 0], "ends": [LARGE, -1], "axes": [2, 1]},
        {"starts": [0, 1, 2], "ends": [9, 9, 3]}]),
    *several("Slice", (10, 11, 13), [
        ((4, 5, 6), ints(1), ints(3)), ((4, 5, 6), ints(1, -2), ints(LARGE, -1), ints(2, 0)),
        ((4, 5, 6), ints(0, 1), ints(LARGE, 5), ints(2, 1), ints(2, 3)),
        ((4, 5, 6), ints(-1), ints(-(2**63)), ints(1), ints(-1)),
        ((4, 5, 6), ints(9, 3), ints(-9, 0), ints(1, 2), ints(-2, -1)),
        ((4, 5, 6), ints(2), ints(2**63 - 1), ints(1), None)]),
    *several("Slice", (13,), [((4, 5, 6), ints(1), ints(3), ints(-1), ints(1))]),
    *several("Gather", (7, 11, 13), [((4, 5), ints(2, 0, 0)), ((4, 5), Constant(numpy.array(1))),
        ((4, 5), Constant(numpy.array([[1, 2], [3, 0]])))],
             [{}, {"axis": 1}]),
    *several("Gather", (11,), [((4, 5), ints(-1, 0, -2)), ((4, 5), Constant(numpy.array([1, 3], numpy.int32)))],
        [{"axis": -1}]),
    *several("Pad", (7, 10), [((2, 3, 4),)], [
        {"pads": [0, 1, 2, 1, 0, 3]}, {"pads": [0, 1, 2, 0, 2, 3], "mode": "reflect"},
        {"pads": [1, 1, 2, 0, 2, 5], "mode": "edge"},
        {"pads": [0, -1, 2, 1, 0, -3], "value": 1.5}]),
    *several("Pad", (11, 13, 18, 19, 21), [
        ((2, 3, 4), ints(0, 1, 2, 1, 0, 3)), ((2, 3, 4), ints(0, -1, 2, 1, 0, -2), scalar(2.5)),
        ((2, 3, 4), ints(0, 1, 2, 0, 2, 3), None)],
             [{"mode": "constant"}]),
    *several("Pad", (11, 18, 19), [((2, 3, 4), ints(0, 1, 2, 0, 2, 3))], [{"mode": "reflect"}, {"mode": "edge"}]),
    *several("Pad", (18, 19), [((2, 3, 4), ints(1, 2, 0, 3), None, ints(2, 1)),
        ((2, 3, 4), ints(1, 2), scalar(3), ints(-1))]),
    *several("Pad", (19, 21), [((2, 3, 4), ints(0, 1, 2, 1, 0, 3)), ((2, 3, 4), ints(0, 3, 4, 2, 2, 3))],
        [{"mode": "wrap"}]),
    *several("DepthToSpace", (7, 11, 13), [((2, 12, 2, 3),)], [{"blocksize": 2}]),
    *several("DepthToSpace", (11, 13), [((2, 12, 2, 3),)], [{"blocksize": 2, "mode": m} for m in ("CRD", "DCR")]),
    *several("SpaceToDepth", (7, 13), [((2, 3, 4, 6),)], [{"blocksize": 2}]),
]

PRODUCTS = [
    *several("MatMul", (7, 9, 13), MATRIX_PAIRS),
    *several("Gemm", (7, 11, 13), [((3, 4), (4, 5), (5,)), ((3, 4), (4, 5), (3, 1)), ((3, 4), (4, 5), (1,))], [
        {}, {"alpha": 0.5, "beta": 2.0}, {"beta": 0.0}]),
    *several("Gemm", (7, 13), [((4, 3), (5, 4), (3, 5))], [{"transA": 1, "transB": 1}]),
    *several("Gemm", (11, 13), [((3, 4), (5, 4))], [{"transB": 1, "alpha": 0.3}]),
]

SHAPES_AND_CONSTANTS = [
    *several("Shape", (7, 13), [((2, 3, 4),), ((),)]),
    *several("Shape", (15, 21), [((2, 3, 4),)], [{"start": 1}, {"end": -1}, {"start": -9, "end": 9},
        {"start": -2, "end": 2}]),
    *several("Size", (7, 13), [((2, 3, 4),)]),
    *several("ConstantOfShape", (9, 20), [(ints(2, 3),), (ints(),)], [
        {}, {"value": onnx.helper.make_tensor("v", 7, [1], [5])},
        {"value": onnx.helper.make_tensor("v", 1, [1], [0.5])}]),
    *several("Range", (11,), [(scalar(0), scalar(2), scalar(0.3)),
        tuple(Constant(numpy.array(n)) for n in (10, 0, -3))]),
    *several("Constant", (12, 13), [()], [
        {"value_float": 0.1}, {"value_floats": [0.1, 2]}, {"value_int": 2**40}, {"value_ints": [1, -2]},
        {"value": onnx.helper.make_tensor("v", 1, [2], [0.5, 1])}]),
    *several("Dropout", (7, 10), [((2, 3),)], [{"ratio": 0.3}]),
    *(Case("MelWeightMatrix", 17, tuple(Constant(numpy.array(v, t)) for v, t in zip(row, "iiiff")), {})
      for row in ((8, 16, 8192, 0, 4096), (20, 64, 16000, 100, 7600), (3, 16, 100, 5, 45))),
    *several("Dropout", (12, 13), [((2, 3),), ((2, 3), scalar(0.3)),
        ((2, 3), scalar(0.3), Constant(numpy.array(False)))], outputs=2),
]

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

COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
ROI = floats(0, 0, 0.1, 0.2, 1, 1, 0.8, 1.3)
RESIZES = [
    *several("Upsample", (7,), [((1, 2, 3, 4),)], [{"mode": m, "scales": [1.0, 1.0, 2.0, 1.5]} for m in ("nearest",
        "linear")]),
    *several("Upsample", (9,), [((1, 2, 3, 4), floats(1, 1, 2, 1.5))], [{"mode": "nearest"}, {"mode": "linear"}]),
    *several("Resize", (10,), [((1, 2, 5, 4), floats(1, 1, h, w)) for h,
        w in ((2, 3), (0.6, 0.5), (1.7, 1), (0.3, 2.6))], [
        {"mode": "nearest"}, {"mode": "linear"}]),
    *several("Resize", (11, 13, 19), [
        ((1, 2, 5, 4), floats(), floats(1, 1, 2, 1.6)), ((1, 2, 5, 4), floats(), floats(1, 1, 0.6, 0.3)),
        ((1, 2, 5, 4), floats(), floats(), ints(1, 2, 3, 7)),
        ((1, 2, 5, 4), floats(), floats(), ints(1, 2, 1, 1))],
        [{"mode": "nearest", "coordinate_transformation_mode": c, "nearest_mode": n} for c in COORDINATES
         for n in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")] +
        [{"mode": m, "coordinate_transformation_mode": c} for m in ("linear", "cubic") for c in COORDINATES] +
        [{"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": e} for e in (0, 1)]),
    *several("Resize", (11,), [((1, 2, 5, 4), floats(), floats(1, 1, 2, 0.7))], [
        {"mode": "nearest", "coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": "floor"}]),
    *several("Resize", (19,), [((1, 2, 5, 4), None, floats(1, 1, 1.3, 0.7)),
        ((1, 2, 5, 4), None, None, ints(1, 2, 3, 7))], [
        {"mode": m, "coordinate_transformation_mode": "half_pixel_symmetric"} for m in ("nearest", "linear", "cubic")]),
    *several("Resize", (11, 13, 19), [((1, 2, 5, 4), ROI, floats(), ints(1, 2, 6, 3)),
        ((1, 2, 5, 4), ROI, floats(), ints(1, 2, 1, 3))], [
        {"mode": m, "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 9.0}
        for m in ("nearest", "linear", "cubic")]),
    *several("Resize", (18, 19), [((1, 2, 9, 10), None, floats(1, 1, 0.4, 0.55)),
        ((1, 2, 9, 10), None, None, ints(1, 2, 3, 14)),
                                  ((1, 2, 9, 10), None, floats(1, 1, 1.5, 1.3))], [
        {"antialias": 1, **settings} for settings in (
            {"mode": "linear"}, {"mode": "cubic"}, {"mode": "cubic", "exclude_outside": 1},
            {"mode": "linear", "exclude_outside": 1},
            {"mode": "linear", "coordinate_transformation_mode": "align_corners"})], tolerance=5e-6),
    *several("Resize", (11, 19), [((1, 2, 5, 4), floats(0, 0, 0, 0.5, 1, 1, 1, 1.5), floats(1, 1, 2.5, 1.7))], [
        {"mode": m, "coordinate_transformation_mode": "tf_crop_and_resize"} for m in ("nearest", "linear", "cubic")]),
    *several("Resize", (18, 19), [((1, 2, 6, 4), None, None, ints(9, 10))], [
        {"axes": axes, "mode": "linear", "keep_aspect_ratio_policy": p}
        for p in ("stretch", "not_larger", "not_smaller") for axes in ([2, 3], [3, 2])]),
    *several("Resize", (18,), [((1, 2, 6, 4), None, floats(2, 0.5))], [{"axes": [-1, -2], "mode": "nearest"}]),
    *several("Resize", (13,), [((6, 4), None, floats(2, 0.5))], [{"mode": m} for m in ("nearest", "linear", "cubic")]),
    *several("Resize", (13,), [((1, 2, 3, 4, 3), None, floats(1, 1, 2, 0.5, 1.5)),
        ((1, 2, 3, 4, 3), None, None, ints(1, 2, 2, 5, 3))], [
        {"mode": "nearest"}, {"mode": "linear"}]),
    *several("Resize", (13,), [((4,), None, floats(2.5)), ((3, 2, 4), None, floats(2.5, 1, 0.5))],
        [{"mode": "nearest"}]),
]

def whole(*shape: int, low: int = -9, high: int = 10, dtype: Any = numpy.int64, seed: int = 3) -> Any:
    """Random integers."""
    return numpy.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def either(*inputs: Input) -> list[tuple[Input, ...]]:
    """The inputs, and the same with every integer array a constant of the model."""
    fixed = tuple(Constant(x) if isinstance(x, numpy.ndarray) and x.dtype.kind == "i" else x for x in inputs)
    return [inputs, fixed]


def different(*shape: int) -> Any:
    """Integers as floats, each once, in disorder."""
    values = numpy.random.default_rng(5).permutation(int(numpy.prod(shape)))
    return values.reshape(shape).astype(numpy.float32)


TIES = whole(2, 3, 7, low=0, high=4).astype(numpy.float32)
DATA = (4, 5, 6)
POINTS = numpy.array([[[0, 1], [-1, 4]], [[2, -5], [3, 0]]])
LINES = numpy.array([[0], [-1], [2]])
INDEXING = [
    *(case for index in (whole(3, low=-4, high=4), whole(2, 3, low=-4, high=4), numpy.array(-2),
        whole(2, low=0, high=4, dtype=numpy.int32))
      for case in several("Gather", (7, 11, 13) if (index >= 0).all() else (11, 13), either(DATA, index),
          [{}, {"axis": 1}, {"axis": 2}])),
    *several("Gather", (11,), either((9,), whole(2, 2, low=-9, high=9)), [{"axis": -1}]),
    *several("Gather", (13,), either((2, 3, 4, 2, 3), whole(3, low=-4, high=4)), [{"axis": 2}]),
    *several("Gather", (13,), [(numpy.arange(12).reshape(3, 4), numpy.array([[2, 0]]))], [{"axis": 1}]),
    *several("GatherElements", (11, 13), either(DATA, whole(4, 5, 6, low=-4, high=4)), [{}, {"axis": -2}, {"axis": 2}]),
    *several("GatherElements", (13,), either(DATA, whole(2, 7, 3, low=-5, high=5)), [{"axis": 1}]),
    *several("GatherElements", (13,), either((1, 6, 5, 4), whole(1, 6, 5, 4, low=0, high=4)), [{"axis": a}
        for a in (2, 3)]),
    *several("GatherElements", (13,), either((7,), whole(3, low=-7, high=7))),
    *several("GatherND", (11, 12, 13), [*either(DATA, POINTS), *either(DATA, LINES),
        *either(DATA, whole(2, 3, low=-4, high=4)), *either((9,), whole(4, 1, low=-9, high=9))]),
    *several("GatherND", (12, 13), [*either((2, 5, 6), whole(2, 3, 1, low=-5, high=5)),
        *either((2, 5, 6), whole(2, 2, low=-5, high=5))], [{"batch_dims": 1}]),
    *several("GatherND", (13,), either((2, 3, 4, 5), whole(2, 3, 2, 1, low=-4, high=4)), [{"batch_dims": 2}]),
    *several("Scatter", (9,), either(DATA, whole(2, 3, 4, low=0, high=4), (2, 3, 4)), [{}, {"axis": 1}, {"axis": 2}]),
    *several("ScatterElements", (11, 13, 16, 18), either(DATA, numpy.array([[[-1, 2, 0]], [[1, -3, 3]]]), (2, 1, 3)), [
        {}, {"axis": 1}, {"axis": -1}]),
    *several("ScatterElements", (18,), either(DATA, whole(4, 5, 6, low=-4, high=4), (4, 5, 6)), [
        {"reduction": r, "axis": a} for r in ("add", "mul", "max", "min") for a in (0, 2)]),
    *several("ScatterElements", (16,), either((9,), whole(5, low=-9, high=9), (5,)), [{"reduction": "add"},
        {"reduction": "mul"}]),
    *several("ScatterElements", (18,), [(whole(6), whole(4, low=0, high=6), whole(4))], [{"reduction": r}
        for r in ("none", "add", "mul", "max", "min")]),
    *several("ScatterND", (11, 13, 16, 18), [*either(DATA, numpy.array([[1], [-1], [0]]), (3, 5, 6)),
        *either(DATA, POINTS, (2, 2, 6)), *either((9,), numpy.array([[3], [-2]]), (2,))]),
    *several("ScatterND", (18,), [*either(DATA, whole(7, 2, low=-4, high=4), (7, 6)),
        *either(DATA, whole(9, 3, low=-4, high=4), (9,))], [{"reduction": r} for r in ("add", "mul", "max", "min")]),
    *several("ReverseSequence", (10,), either((5, 3, 2), numpy.array([2, 5, 1]))),
    *several("ReverseSequence", (10,), either((3, 4), numpy.array([1, 4, 2])), [{"batch_axis": 0, "time_axis": 1}]),
    *several("Compress", (9, 11), [((3, 4), Constant(numpy.array(c))) for c in ([True, False, True], [False, True])], [
        {}, {"axis": 0}, {"axis": 1}]),
    *several("Compress", (11,), [((3, 4), Constant(numpy.array([False, True, True])))], [{"axis": -1}]),
]

SELECTIONS = [
    *(case for op in ("ArgMax", "ArgMin") for case in [
        *several(op, (7, 11), [(TIES,), ((2, 3, 4),)], [{}, {"axis": 1}, {"axis": 2, "keepdims": 0}]),
        *several(op, (12, 13), [(TIES,)], [{"axis": a, "select_last_index": s} for a in (-1, 1, 0) for s in (0, 1)]),
        *several(op, (13,), [((1, 7, 3, 2),), (numpy.float32([[-numpy.inf, -numpy.inf]]),),
            (whole(5, 4, low=-3, high=3, dtype=numpy.int32),), (half(3, 5),), (whole(9, 2, dtype=numpy.int8),),
            (whole(9, 2, low=0, dtype=numpy.uint8),)], [{"axis": 1}, {"axis": -1, "keepdims": 0}])]),
    *several("Hardmax", (7, 11), [(TIES,)], [{}, {"axis": 0}, {"axis": 2}]),
    *several("Hardmax", (13,), [(TIES,), ((1, 5, 3, 2),)], [{}, {"axis": 0}, {"axis": 1}]),
    *several("TopK", (7,), [(TIES,), ((9,),)], [{"k": 2, "axis": a} for a in (-1, 0)], outputs=2),
    *several("TopK", (10,), [(TIES, ints(3)), ((1, 6, 3, 2), ints(2))], [{}, {"axis": 1}], outputs=2),
    *several("TopK", (11, 24), [(TIES, ints(3)), ((1, 6, 3, 2), ints(1)), (whole(3, 7), ints(3))], [
        {"axis": a, "largest": n} for a in (-1, 1) for n in (0, 1)], outputs=2),
    *several("TopK", (11,), [((40,), ints(40))], [{"largest": 0}], outputs=2),
    *several("OneHot", (9, 11), [*either(whole(2, 3, low=0, high=5), ints(5), (2,)),
        *either(whole(3, low=0, high=5), ints(5), numpy.array([0, 7])),
        (numpy.float32([[1, 4], [0, 2]]), floats(5), floats(0.5, 2))],
        [{}, {"axis": 0}, {"axis": 1}]),
    *several("OneHot", (11,), either(numpy.array([-1, 0, -5, 5, -6, 9]), ints(5), (2,))),
    *several("CumSum", (11, 14), [((3, 4, 5), Constant(numpy.array(a))) for a in (0, 1, -1)], [
        {"exclusive": e, "reverse": r} for e in (0, 1) for r in (0, 1)]),
    *several("CumSum", (14,), [((2, 300), Constant(numpy.array(1))),
        (whole(3, 5, dtype=numpy.int32), Constant(numpy.array(1)))], [{}, {"exclusive": 1, "reverse": 1}],
        tolerance=1e-5),
    *several("Trilu", (14,), [((3, 4),), ((2, 3, 3),), ((4, 3), Constant(numpy.array(1))),
        ((1, 2, 4, 5), Constant(numpy.array(-2))), (whole(3, 3), Constant(numpy.array(-1)))], [{}, {"upper": 0}]),
    *several("EyeLike", (9,), [((3, 4),), (whole(4, 2),)], [{}, {"k": 1}, {"k": -2}, {"dtype": 7}, {"dtype": 1}]),
    *several("NonZero", (9, 13), [(Constant(numpy.array([[1, 0, 2], [0, 3, 0]])),), (floats(0, -1, 0.5),)]),
    *several("Unique", (11,), [(floats(2, 1, 1, 3, 4, 3),)], [{}, {"sorted": 0}], outputs=4),
    *several("Unique", (11,), [(Constant(numpy.float32([[1, 0, 0], [1, 0, 0], [2, 3, 4]])),)],
        [{"axis": 0}, {"axis": -1}], outputs=4),
]

BOXES = Constant(numpy.float32([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [1, 11, 0, 10], [0, 10.1, 1, 11.1],
    [0, 100, 1, 101]]]))
SCORES = Constant(numpy.float32([[[0.9, 0.75, 0.6, 0.95, 0.5, 0.3], [0.5, 0.5, 0.1, 0.2, 0.9, 0.3]]]))
SELECTIONS += [
    *several("NonMaxSuppression", (10, 11), [(BOXES, SCORES, ints(n), scalar(t), scalar(0.25)) for n in (2, 9)
        for t in (0.5, 0)], [{}, {"center_point_box": 1}]),
    *several("NonMaxSuppression", (11,), [(BOXES, SCORES), (BOXES, SCORES, ints(3))]),
]

GRID = numpy.random.default_rng(8).uniform(-1.7, 1.7, (2, 3, 5, 2)).astype(numpy.float32)
GRID_3D = numpy.random.default_rng(8).uniform(-1.5, 1.5, (2, 2, 3, 2, 3)).astype(numpy.float32)
PADDINGS = ("zeros", "border", "reflection")
REGIONS = numpy.float32([[0.4, 1.1, 6.7, 5.2], [2, 0, 3, 7.9], [-2, -3, 9, 4], [5, 5, 5.2, 5.1]])
SAMPLINGS = [
    *several("GridSample", (16,), [((2, 3, 6, 5), GRID)], [
        {"mode": m, "padding_mode": p, "align_corners": a} for m in ("bilinear", "nearest", "bicubic")
        for p in PADDINGS for a in (0, 1)], tolerance=2e-5),
    *several("GridSample", (20, 22), [((2, 3, 6, 5), GRID)], [
        {"mode": m, "padding_mode": p, "align_corners": a} for m in ("linear", "nearest", "cubic")
        for p in PADDINGS for a in (0, 1)], tolerance=2e-5),
    *several("GridSample", (20,), [((2, 3, 4, 6, 5), GRID_3D)], [
        {"mode": m, "padding_mode": p, "align_corners": a} for m in ("linear", "nearest")
        for p in PADDINGS for a in (0, 1)], tolerance=2e-5),
    *several("GridSample", (20,), [((2, 3, 6, 5), Constant(GRID))], tolerance=2e-5),
    *several("AffineGrid", (20,), [((2, 2, 3), ints(2, 1, 4, 3)), ((2, 3, 4), ints(2, 3, 4, 3, 5))],
        [{}, {"align_corners": 1}]),
    *(case for op in (10, 16) for rois in (Constant(REGIONS), REGIONS) for case in several(
        "RoiAlign", (op,), either((2, 3, 8, 7), rois, numpy.array([1, 0, 1, 0])), [
            {"output_height": 3, "output_width": 2, "sampling_ratio": 2, "spatial_scale": 0.8, "mode": m}
            for m in ("avg", "max")])),
    *several("RoiAlign", (10, 16), either((2, 3, 8, 7), Constant(REGIONS), numpy.array([1, 0, 1, 0])), [
        {"output_height": 2, "output_width": 3, "mode": m} for m in ("avg", "max")]),
    *several("RoiAlign", (16,), [((2, 3, 8, 7), REGIONS, numpy.array([1, 0, 1, 0]))], [
        {"sampling_ratio": 1, "coordinate_transformation_mode": "output_half_pixel"}]),
    *several("MaxRoiPool", (7,), [((2, 3, 8, 7), numpy.float32([[1, 0, 1, 5, 6], [0, 2, 2, 3, 3], [1, 0, 0, 13, 15]]))],
        [{"pooled_shape": [3, 2]}, {"pooled_shape": [2, 2], "spatial_scale": 0.5}]),
    *several("MaxPool", (8, 12), [(different(2, 3, 9, 8),)], [
        {"kernel_shape": [3, 2], "strides": [2, 2], "storage_order": s, **more} for s in (0, 1)
        for more in ({}, {"pads": [1, 0, 1, 1]}, {"auto_pad": "SAME_UPPER"})], outputs=2),
    *several("MaxPool", (10, 22), [(different(1, 3, 9, 8),)], [
        {"kernel_shape": [3, 2], "strides": [2, 3], "ceil_mode": 1, "pads": [1, 1, 1, 0]},
        {"kernel_shape": [2, 3], "dilations": [2, 2], "pads": [1, 2, 0, 1]}], outputs=2),
    *several("MaxPool", (12,), [(different(2, 3, 9),)], [{"kernel_shape": [3], "pads": [1, 1]}], outputs=2),
    *several("MaxPool", (12,), [(different(1, 2, 4, 5, 6),)],
        [{"kernel_shape": [2, 3, 2], "strides": [1, 2, 2], "storage_order": s} for s in (0, 1)], outputs=2),
    *several("MaxPool", (12,), [(whole(1, 2, 6, 5, low=-128, high=-126, dtype=numpy.int8),)],
        [{"kernel_shape": [2, 2], "pads": [1, 1, 0, 0]}], outputs=2),
    *several("MaxUnpool", (9, 11), either((1, 1, 2, 2), numpy.array([[[[5, 2], [8, 15]]]])), [
        {"kernel_shape": [2, 2], "strides": [2, 2]}]),
    *several("MaxUnpool", (11,), either((1, 2, 2, 2), numpy.array([[[[0, 3], [8, 11]], [[21, 19], [24, 31]]]])), [
        {"kernel_shape": [2, 2], "strides": [2, 2]}]),
    *several("MaxUnpool", (9,), either((1, 1, 3), numpy.array([[[1, 3, 4]]])), [{"kernel_shape": [2], "strides": [2]}]),
    *several("LpPool", (7, 11, 18, 22), [((2, 3, 9, 8),)], [
        {"kernel_shape": [3, 2], **more} for more in (
            {}, {"p": 1}, {"p": 3, "strides": [2, 2]}, {"strides": [2, 2], "pads": [1, 0, 1, 1]},
            *({"strides": [2, 3], **a} for a in AUTO_PADS))], tolerance=1e-5),
    *several("LpPool", (18, 22), [((2, 3, 9, 8),)], [
        {"kernel_shape": [3, 3], "dilations": [2, 2]}, {"kernel_shape": [2, 2], "strides": [3, 3], "ceil_mode": 1}],
        tolerance=1e-5),
    *several("LpPool", (11, 18), [((2, 3, 9),), ], [{"kernel_shape": [3]}], tolerance=1e-5),
    *several("LpPool", (18,), [((1, 2, 4, 5, 3),), ], [{"kernel_shape": [2, 2, 2]}], tolerance=1e-5),
    *several("GlobalLpPool", (7,), [((2, 3, 5),), ((2, 3, 4, 5),)], [{}, {"p": 1}, {"p": 3}], tolerance=1e-5),
    *several("Col2Im", (18,), [((2, 12, 9), ints(4, 4), ints(2, 2))], [{}]),
    *several("Col2Im", (18,), [((1, 12, 4), ints(5, 6), ints(2, 3)), ], [{"strides": [3, 3]}, ]),
    *several("Col2Im", (18,), [((1, 18, 12), ints(5, 6), ints(3, 3))], [{"pads": [1, 0, 1, 0]} | {"strides": [2, 1]}]),
    *several("Col2Im", (18,), [((1, 8, 12), ints(5, 5), ints(2, 2))],
        [{"dilations": [2, 1], "pads": [0, 0, 0, 0]}]),
    *several("CenterCropPad", (18,), [((3, 6, 5), ints(4, 4, 5)), ((3, 7, 6), ints(3, 10, 9)),
        ((3, 7, 6), ints(2, 4, 3))]),
    *several("CenterCropPad", (18,), [((3, 6, 5), ints(9, 2))], [{"axes": [1, 2]}, {"axes": [-1, 0]}]),
    *several("Det", (11, 22), [((2, 2),), ((5, 3, 3),), ((2, 1, 4, 4),), ((1, 1),)], tolerance=1e-5),
]

NARROW = (numpy.int8, numpy.uint8, numpy.int16, numpy.uint16)
WIDE = (numpy.int32, numpy.int64, numpy.uint32, numpy.uint64)


def integers(dtype: Any, *shape: int, seed: int = 2, small: bool = False) -> Any:
    """Random integers over a type's range, or within 2**11; for 32 and 64 bits always within 2**11."""
    limits = numpy.iinfo(dtype)
    reach = 2**11 if small or limits.bits > 16 else limits.max + 1
    return numpy.random.default_rng(seed).integers(max(limits.min, -reach), reach, shape).astype(dtype)


def divisors(dtype: Any, *shape: int) -> Any:
    """Integers without zero."""
    found = integers(dtype, *shape, seed=4) // 16
    return numpy.where(found == 0, 3, found).astype(dtype)


INTEGERS = [
    *(case for dtype in NARROW + WIDE for op in ("Add", "Sub", "Mul") for case in several(op, (14,), [
        (numpy.maximum(integers(dtype, 3, 7), integers(dtype, 7, seed=4)), integers(dtype, 7, seed=4))
        if op == "Sub" and dtype in (numpy.uint32, numpy.uint64) else
        (integers(dtype, 3, 7), integers(dtype, 7, seed=4)), ])),
    *(case for dtype in NARROW + WIDE for case in several("Div", (14,), [(integers(dtype, 9, 7), divisors(dtype, 7)),
        (integers(dtype, 9, 7), Constant(numpy.array(3, dtype)))])),
    *(case for dtype in NARROW + WIDE
      for case in several("Mod", (10, 13), [(integers(dtype, 9, 7), divisors(dtype, 7))], [{}, {"fmod": 1}])),
    *(case for op in ("Neg", "Abs") for case in several(op, (13,), [(numpy.array([-128, 0, 127, -5], numpy.int8),),
        (whole(5, dtype=numpy.int32),), (numpy.array([-32768, 32767, 4], numpy.int16),)])),
    *(case for dtype in (numpy.int32, numpy.int64) for case in several("Pow", (13, 15), [
        (whole(4, 7, dtype=dtype), Constant(numpy.arange(7, dtype=dtype))),
        (whole(4, 7, dtype=dtype), numpy.arange(7).astype(dtype)), (whole(5, dtype=dtype), scalar(3)),
        (numpy.array([2, -1, 1, 0], dtype), numpy.array([24, 31, 99, 64], dtype))])),
    *(case for op in ("Min", "Max") for dtype in (numpy.int8, numpy.uint8, *WIDE)
      for case in several(op, (13,), [(integers(dtype, 3, 5), integers(dtype, 5, seed=4))])),
    *(case for op in ("ReduceSum", "ReduceMean", "ReduceSumSquare", "ReduceL1", "ReduceL2", "ReduceProd")
      for dtype in (numpy.int32, numpy.int64)
      for case in several(op, (11,), [(whole(3, 4, 2, low=-5, high=6, dtype=dtype),)],
          [{"axes": [1]}, {"axes": [0, 2], "keepdims": 0}])),
    *(case for op in ("ReduceMax", "ReduceMin") for dtype in (numpy.int8, numpy.uint8, numpy.int32, numpy.int64)
      for case in several(op, (13,), [(integers(dtype, 3, 4, 2),)], [{"axes": [1]}])),
    *(case for dtype in NARROW for case in several("Cast", (13,), [(whole(9, low=-70000, high=70000),),
        (whole(9, low=0, high=2**24, dtype=numpy.int32),)],
        [{"to": onnx.helper.np_dtype_to_tensor_dtype(numpy.dtype(dtype))}])),
    *several("Cast", (13,), [(integers(numpy.int8, 9),), (integers(numpy.uint8, 9),)],
        [{"to": n} for n in (2, 3, 6, 7)]),
    *(case for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor") for dtype in NARROW
      for case in several(op, (18,), [(integers(dtype, 3, 7), integers(dtype, 7, seed=4)),
          (integers(dtype, 7), Constant(integers(dtype, 7, seed=4)))])),
    *(case for dtype in NARROW for case in several("BitwiseNot", (18,), [(integers(dtype, 9),)])),
    *(case for d in ("LEFT", "RIGHT") for case in several("BitShift", (11,), [
        (integers(numpy.uint8, 4, 7), numpy.arange(7, dtype=numpy.uint8)),
        (Constant(integers(numpy.uint32, 7)), Constant(numpy.arange(7, dtype=numpy.uint32))),
    ], [{"direction": d}])),
    *(case for op in ("Less", "Equal", "Greater") for case in several(op, (13,),
        [(integers(numpy.int32, 3, 5), integers(numpy.int32, 5, seed=4))])),
]

TRUTH = numpy.random.default_rng(3).random((2, 1, 3, 4)) < 0.5
SPECIAL = numpy.float32([[1, numpy.nan], [numpy.inf, -numpy.inf]]).reshape(2, 1, 2)
# Further ranks of operators whose rows above have one only.
RANKS = [
    *(case for op in ("And", "Or", "Xor")
      for case in several(op, (7,), [
          (TRUTH, TRUTH[0, 0]), (TRUTH[0], TRUTH[1, 0, 0]), (TRUTH[0, 0, 0], ~TRUTH[0, 0, 0])])),
    *several("Not", (7,), [(TRUTH,), (TRUTH[0, 0],)]),
    *several("IsNaN", (9, 13, 20), [(SPECIAL,), (SPECIAL.reshape(1, 2, 2, 1),)]),
    *several("IsInf", (10, 20), [(SPECIAL,), (SPECIAL.reshape(1, 2, 2, 1),)], [{}, {"detect_negative": 0}]),
    *several("CastLike", (19,), [((2, 3, 4), ints(1)), ((1, 5, 2, 3), half(1)), ((3,), scalar(1))]),
    *(case for op in ("Asin", "Acos", "Atanh", "Atan", "Asinh", "Sinh", "Cosh", "Tan")
      for case in several(op, (9 if op in ("Atanh", "Asinh", "Sinh", "Cosh") else 7,), [
          (numpy.linspace(-0.9, 0.9, 30, dtype=numpy.float32).reshape(shape),) for shape in ((30,), (1, 5, 2, 3))])),
    *several("Acosh", (9,), [
        (numpy.linspace(1.1, 4, 30, dtype=numpy.float32).reshape(shape),) for shape in ((30,), (1, 5, 2, 3))]),
    *several("Clip", (7,), [((3,),), ((1, 5, 2, 3),)], [{"min": -0.5}, {"min": -1.0, "max": 0.5}]),
    *several("Clip", (11, 13), [((5,), scalar(-0.5), scalar(1)), ((1, 5, 2, 3), None, scalar(0.5))]),
    *(case for op in ("Max", "Min", "Sum", "Mean") for case in several(op, (8, 13), [
        ((4,), (4,)), ((1, 5, 2, 3), (5, 1, 1), (3,))])),
    *several("PRelu", (9, 16), [((3, 4), (4,)), ((1, 5, 2, 3), (5, 1, 1))]),
    *several("Identity", (7, 14), [((),), ((1, 5, 2, 3),)]),
    *several("Size", (7, 13), [((3,),), ((2, 3, 4),)]),
    *several("MeanVarianceNormalization", (9, 13), [((3, 4, 5),)], [{"axes": [0, 2]}, {"axes": [1]}]),
    *several("RMSNormalization", (23,), [((3, 4), (4,)), ((1, 2, 3, 4), (4,))], [{}, {"epsilon": 0.1}]),
    *several("LpNormalization", (7,), [((3, 4),), ((1, 5, 2, 3),)], [{}, {"p": 1, "axis": 1}]),
    *several("Transpose", (7, 13), [((2, 3),), ((4,),), ((1, 2, 3, 4, 2),)]),
    *several("Transpose", (13,), [((1, 6, 3, 4),)], [{"perm": [0, 2, 3, 1]}, {"perm": [3, 1, 0, 2]}]),
    *several("Squeeze", (7, 11), [((1, 3),), ((2, 1, 1, 3, 1),)]),
    *several("Unsqueeze", (7, 11), [((3,),), ((2, 3, 4),)], [{"axes": [0]}, {"axes": [0, 2]}]),
    *several("Slice", (10, 13), [
        ((7,), ints(6), ints(-8), ints(0), ints(-2)), ((1, 8, 5, 6), ints(1, 1), ints(7, 5), ints(1, 3), ints(3, 2))]),
    *several("Range", (11,), [(Constant(numpy.array(2, "i8")), Constant(numpy.array(9, "i8")),
                               Constant(numpy.array(3, "i8")))]),
]

FAMILIES = {
    "elementwise": ELEMENTWISE, "activation": ACTIVATIONS, "convolution": CONVOLUTIONS, "pooling": POOLING,
    "normalization": NORMALISATIONS, "reduction": REDUCTIONS, "movement": MOVEMENTS, "product": PRODUCTS,
    "ranks": RANKS, "constants": SHAPES_AND_CONSTANTS, "half": HALVES, "resize": RESIZES,
    "indexing": INDEXING, "selection": SELECTIONS, "sampling": SAMPLINGS, "integer": INTEGERS,
}
ALL = [pytest.param(case, id=f"{family}-{case}-{n}") for family, cases in FAMILIES.items() for n,
    case in enumerate(cases)]


# Where OLD_ORACLE is no oracle: operator, opset and number of outputs.
NEW_ORACLE_ONLY = {
    ("AveragePool", 19, 1), ("AveragePool", 22, 1), ("LpNormalization", 22, 1), ("Resize", 18, 1), ("MaxPool", 12, 2),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", ALL)
def test_operator(case: Case, engine: str) -> None:
    if OLD_ORACLE and (case.op_type, case.opset, case.outputs) in NEW_ORACLE_ONLY:
        pytest.skip(OLD_ORACLE_REASON)
    check(case, engine)


# What onnxruntime does not do, or not as ONNX's text says: the expected values are computed here.


def test_every_operator_has_a_case() -> None:
    families = [FAMILIES]
    for file in ("deformable", "einsum", "quantization", "recurrent"):
        families.append(importlib.import_module(f"test_{file}").FAMILIES)
    compared = {case.op_type for each in families for cases in each.values() for case in cases}
    # tests/test_control_flow.py has models of more than one node.
    assert set(ops.supported()) - compared == {"Swish", "CumProd", "If", "Loop", "Scan"}


@pytest.mark.parametrize("op_type", ["Conv", "MaxPool", "AveragePool"])
@pytest.mark.parametrize(("auto_pad", "pads"), [("SAME_UPPER", [1, 1, 1, 2]), ("SAME_LOWER", [1, 2, 1, 1])])
def test_same_padding_counts_dilations(op_type: str, auto_pad: str, pads: list[int]) -> None:
    inputs: tuple[Input, ...] = ((1, 2, 9, 8),)
    inputs += (Constant(numpy.ones((2, 2, 3, 3), numpy.float32)),) if op_type == "Conv" else ()
    settings = {"kernel_shape": [3, 3], "strides": [2, 2], "dilations": [2, 2]}
    # 9 -> 5 needs 8 + 5 - 9 = 4 positions more, 8 -> 4 needs 6 + 5 - 8 = 3.
    pads = [2, pads[1], 2, pads[3]]
    same, feeds = model_of(Case(op_type, 22, inputs, {**settings, "auto_pad": auto_pad}))
    stated, _ = model_of(Case(op_type, 22, inputs, {**settings, "pads": pads}))
    assert_close(run_model(same, feeds), run_oracle(stated, feeds), 1e-6)


@pytest.mark.parametrize("size", [2, 4, 6])
def test_lrn_of_an_even_size_reaches_further_up(size: int) -> None:
    x = numpy.random.default_rng(2).normal(size=(1, 7, 2)).astype(numpy.float32)
    model, _ = model_of(Case("LRN", 13, (x,), {"size": size, "alpha": 0.5}))
    squares = [(x[:, max(0, c - (size - 1) // 2) : c + size // 2 + 1] ** 2).sum(axis=1) for c in range(7)]
    expected = x / (1 + 0.5 / size * numpy.stack(squares, axis=1)) ** 0.75
    assert_close(run_model(model, {"x0": x}), {"y0": expected}, 1e-6)


X = numpy.linspace(-3, 3, 24, dtype=numpy.float32).reshape(1, 4, 2, 3)
COMPUTED = [
    (Case("Clip", 7, (X,), {"min": 1.0, "max": -1.0}), numpy.full_like(X, -1)),
    (Case("Swish", 24, (X,), {}), X / (1 + numpy.exp(-X))),
    (Case("Swish", 28, (X,), {"alpha": 2.0}), X / (1 + numpy.exp(-2 * X))),
    (Case("Celu", 28, (X,), {}), numpy.maximum(X, 0) + numpy.expm1(numpy.minimum(X, 0))),
    (Case("Relu", 28, (X,), {}), numpy.maximum(X, 0)),
    (Case("SpaceToDepth", 28, (X.reshape(1, 2, 2, 6),), {"blocksize": 2, "mode": "CRD"}),
     X.reshape(1, 2, 1, 2, 3, 2).transpose(0, 1, 3, 5, 2, 4).reshape(1, 8, 1, 3)),
    (Case("SpaceToDepth", 28, (X.reshape(1, 2, 2, 6),), {"blocksize": 2}),
     X.reshape(1, 2, 1, 2, 3, 2).transpose(0, 3, 5, 1, 2, 4).reshape(1, 8, 1, 3)),
    (Case("Range", 27, (scalar(1), scalar(2), scalar(0.25)), {}), numpy.float32([1, 1.25, 1.5, 1.75])),
    (Case("LpNormalization", 22, (X * 0,), {}), X * 0),
    (Case("Resize", 19, (X, None, floats(1, 1, 0.5, 1)),
     {"antialias": 1, "mode": "nearest", "nearest_mode": "floor"}), X[:, :, :1]),
    (Case("GlobalLpPool", 22, (X,), {}), numpy.sqrt((X * X).sum(axis=(2, 3), keepdims=True))),
    (Case("CumProd", 26, (X, Constant(numpy.array(-1))), {}), numpy.cumprod(X, axis=-1)),
    (Case("CumProd", 26, (X, Constant(numpy.array(1))), {"reverse": 1}), numpy.cumprod(X[:, ::-1], axis=1)[:, ::-1]),
    (Case("CumProd", 26, (X, Constant(numpy.array(1))), {"exclusive": 1}),
     numpy.concatenate([X[:, :1] * 0 + 1, numpy.cumprod(X, axis=1)[:, :-1]], axis=1)),
    (Case("OneHot", 28, (numpy.array([2, -1]), ints(3), floats(0, 1)), {}), numpy.float32([[0, 0, 1], [0, 0, 1]])),
    (Case("BitShift", 28, (numpy.array([-5, 100, 3, 1], "i1"), numpy.array([1, 1, 9, -1], "i1")),
          {"direction": "LEFT"}), numpy.array([-10, -56, 0, 0], "i1")),
    (Case("BitShift", 28, (numpy.array([-5, 100, -3, -1], "i1"), numpy.array([1, 1, 9, -1], "i1")),
          {"direction": "RIGHT"}), numpy.array([-3, 50, -1, -1], "i1")),
    (Case("ReduceMax", 20, (Constant(numpy.zeros((2, 0), "f")), ints(1)), {}), numpy.full((2, 1), -numpy.inf, "f")),
    (Case("MaxUnpool", 11, (numpy.float32([[[[5, 6], [7, 8]]]]), numpy.array([[[[5, 7], [13, 15]]]]),
                            ints(1, 1, 5, 5)), {"kernel_shape": [2, 2], "strides": [2, 2]}),
     numpy.pad(numpy.float32([[0, 0, 0, 0], [0, 5, 0, 6], [0, 0, 0, 0], [0, 7, 0, 8]]), (0, 1))[None, None]),
    (Case("ReduceSumSquare", 18, (X, ints()), {"noop_with_empty_axes": 1}), X * X),
    (Case("ReduceMean", 18, (numpy.zeros((0, 3), numpy.int32), ints(1)), {}), numpy.zeros((0, 1), numpy.int32)),
    (Case("ReduceMean", 18, ((2, 0, 3), ints(1)), {}), numpy.full((2, 1, 3), numpy.nan, numpy.float32)),
    (Case("Pad", 18, (X, ints(0, 4), None, ints(2)), {"mode": "reflect"}), X[:, :, [0, 1, 0, 1, 0, 1]]),
    (Case("Pad", 13, (X, ints(0, -1, 0, 2, 0, 0, 0, -1)), {"mode": "edge"}), X[:, 1:][..., [0, 0, 0, 1]]),
    (Case("GroupNormalization", 18, (X, floats(1, 2), floats(0, 5)), {"num_groups": 2, "epsilon": 0.0}),
     numpy.concatenate([
        (g - g.mean()) / g.std() * s + b for g, s, b in ((X[:, :2], 1, 0), (X[:, 2:], 2, 5))], axis=1)),
    (Case("BatchNormalization", 7, (X, *(Constant(X[0] * 0 + v) for v in (2, 3, 1, 4))),
     {"spatial": 0, "epsilon": 0.0}), X + 2),
    (Case("Upsample", 7, (X,), {"mode": "bilinear", "scales": [1.0, 1.0, 1.0, 1.0]}), X),
    (Case("ReduceLogSumExp", 18, (numpy.float32([[-numpy.inf, -numpy.inf], [numpy.inf, 0]]), ints(1)), {"keepdims": 0}),
     numpy.float32([-numpy.inf, numpy.inf])),
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("case", "expected"), [pytest.param(c, e, id=f"{c}-{n}") for n, (c, e) in enumerate(COMPUTED)])
def test_computed(case: Case, expected: Any, engine: str) -> None:
    model, feeds = model_of(case)
    assert_close(run_model(model, feeds, engine), {"y0": expected}, 2e-6)


def wrapping_model(dtype: Any) -> tuple[onnx.ModelProto, dict[str, Any], dict[str, Any]]:
    """A model that reads, as float, what wrapped around; its inputs and what numpy says."""
    a, b = integers(dtype, 3, 7), integers(dtype, 7, seed=4)
    kind = onnx.helper.np_dtype_to_tensor_dtype(numpy.dtype(dtype))
    wide = {"Add": a + b, "Sub": a - b, "Mul": a * b, "Cast": a.astype(numpy.int32) * 5}
    nodes = [onnx.helper.make_node(op, ["a", "b"], [op], name=op) for op in ("Add", "Sub", "Mul")]
    nodes += [
        onnx.helper.make_node("Cast", ["a"], ["wide"], to=onnx.TensorProto.INT32),
        onnx.helper.make_node("Mul", ["wide", "five"], ["five_times"]),
        onnx.helper.make_node("Cast", ["five_times"], ["Cast"], to=kind),
        *(onnx.helper.make_node("Cast", [name], [f"{name}_read"], to=onnx.TensorProto.FLOAT) for name in wide),
    ]
    feeds = {"a": a, "b": b}
    model = make_model(nodes, feeds, [f"{name}_read" for name in wide], 14, {"five": numpy.array(5, numpy.int32)})
    return model, feeds, {f"{n}_read": array.astype(dtype).astype(numpy.float32) for n, array in wide.items()}


@pytest.mark.parametrize("dtype", NARROW)
def test_narrow_integers_wrap_around_before_they_are_read(dtype: Any) -> None:
    """After the passes nothing is stored in the narrow type any more."""
    model, feeds, expected = wrapping_model(dtype)
    graph = run_passes(import_onnx(model))
    assert_close(evaluate_graph(graph, feeds), expected, 0)


IMAGE = (1, 4, 6, 6)
WEIGHT = (2, 4, 3, 3)
REFUSED = [
    # ONNX allows these, imgconv does not do them.
    (Case("MaxPool", 12, (IMAGE,), {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "VALID", "ceil_mode": 1}),
     "use pads"),
    (Case("BatchNormalization", 15, (IMAGE, *[(4,)] * 4), {"training_mode": 1}), "training"),
    (Case("BatchNormalization", 9, (IMAGE, *[(4,)] * 4), {}, outputs=5), "training"),
    (Case("Dropout", 13, (IMAGE, scalar(0.5), Constant(numpy.array(True))), {}), "training_mode"),
    (Case("Reshape", 13, (IMAGE, numpy.array([4, 36])), {}), "shape must be constant"),
    (Case("Pad", 13, ((2, 2), numpy.array([1, 0, 0, 0])), {}), "pads must be constant"),
    (Case("Slice", 13, ((2, 2), numpy.array([1]), ints(2)), {}), "starts must be constant"),
    (Case("Resize", 13, (IMAGE, None, numpy.ones(4, "f")), {}), "scales must be constant"),
    (Case("Resize", 13, (IMAGE, floats(0, 0, 0, 0, 1, 1, 0.5, 0.5), floats(1, 1, 2, 2)),
          {"coordinate_transformation_mode": "tf_crop_and_resize"}), "use sizes"),
    (Case("Resize", 13, (numpy.ones((1, 1, 2, 2), "u1"), None, floats(1, 1, 2, 2)), {"mode": "linear"}), "Cast"),
    (Case("Conv", 11, ((1, 1, 2, 2, 2, 2), (1, 1, 1, 1, 1, 1)), {}), "4 spatial axes"),
    (Case("Cast", 13, (IMAGE,), {"to": 11}), "float64"),
    (Case("Cast", 13, (IMAGE,), {"to": 16}), "bfloat16"),
    (Case("Cast", 19, (IMAGE,), {"to": 17}), "float8e4m3fn"),
    (Case("Cast", 13, (numpy.arange(3),), {"to": 12}), "negative"),
    (Case("Pow", 15, (numpy.arange(3), scalar(0.5)), {}), "broken power"),
    (Case("Pow", 15, (numpy.arange(3), (3,)), {}), "exponent"),
    (Case("ReduceLogSum", 13, (numpy.arange(3),), {}), "Cast them to float"),
    (Case("BitwiseAnd", 18, (numpy.arange(3), ints(1)), {}), "the bits of int64"),
    (Case("BitwiseNot", 18, (numpy.arange(3),), {}), "the bits of int64"),
    (Case("BitShift", 11, (numpy.arange(3, dtype="u4"), Constant(numpy.ones(1, "u4"))), {"direction": "LEFT"}),
     "the bits of uint32"),
    (Case("TopK", 11, (IMAGE, ints(1).array), {}, outputs=2), "k must be constant"),
    (Case("NonZero", 13, (IMAGE,), {}), "input must be constant"),
    (Case("Unique", 11, (IMAGE,), {}), "input must be constant"),
    (Case("Compress", 11, (IMAGE, numpy.array([True])), {}), "condition must be constant"),
    (Case("NonMaxSuppression", 11, ((1, 4, 4), (1, 1, 4)), {}), "boxes must be constant"),
    (Case("RoiAlign", 16, (IMAGE, (1, 4), ints(0)), {}), "sampling_ratio"),
    (Case("Det", 11, ((5, 5),), {}), "5 rows"),
    (Case("ScatterElements", 18, (whole(3, dtype="i1"), ints(0), whole(1, dtype="i1")), {"reduction": "add"}),
     "int8 tensors"),
    (Case("Shrink", 9, (numpy.arange(3),), {}), "Cast them to float"),
    (Case("MatMul", 13, (numpy.ones((2, 2), "i4"), numpy.ones((2, 2), "i4")), {}), "Cast them to float"),
    (Case("Squeeze", 13, (IMAGE, ints()), {}), "empty axes"),
    (Case("Constant", 13, (), {"value_string": "a"}), "value_string"),
    (Case("LayerNormalization", 17, (IMAGE, (6,)), {"stash_type": 16}), "stash_type"),
]
WRONG = [
    # ONNX does not allow these.
    (Case("Conv", 11, (IMAGE, (2, 3, 3, 3)), {}), "does not match"),
    (Case("Conv", 11, (IMAGE, WEIGHT), {"group": 2}), "does not match"),
    (Case("Conv", 11, (IMAGE, WEIGHT, (3,)), {}), "bias"),
    (Case("Conv", 11, (IMAGE, WEIGHT), {"kernel_shape": [2, 2]}), "kernel_shape"),
    (Case("Conv", 11, (IMAGE, WEIGHT), {"pads": [1, 1]}), "pads"),
    (Case("Conv", 11, (IMAGE, WEIGHT), {"pads": [-1, 0, 0, 0]}), "pads"),
    (Case("Conv", 11, (IMAGE, WEIGHT), {"strides": [0, 1]}), "strides"),
    (Case("Conv", 11, (IMAGE, WEIGHT), {"dilations": [3, 3]}), "does not fit"),
    (Case("Conv", 11, (IMAGE, WEIGHT), {"auto_pad": "SAME"}), "auto_pad is 'SAME'"),
    (Case("Conv", 11, (IMAGE, (2, 4, 3)), {}), "equal ranks"),
    (Case("Conv", 11, (IMAGE, WEIGHT), {"stride": [1, 1]}), "not valid ONNX"),
    (Case("ConvTranspose", 11, (IMAGE, (4, 2, 3, 3)), {"output_shape": [5]}), "output_shape"),
    (Case("ConvTranspose", 11, (IMAGE, (3, 2, 3, 3)), {}), "does not match"),
    (Case("Add", 13, (IMAGE, (5,)), {}), "broadcast"),
    (Case("Add", 13, (IMAGE, half(1)), {}), "float16"),
    (Case("Add", 13, (IMAGE,), {}), "not valid ONNX"),
    (Case("Mod", 13, (IMAGE, IMAGE), {}), "fmod"),
    (Case("PRelu", 9, ((2, 3), (4, 2, 3)), {}), "does not broadcast"),
    (Case("Reshape", 13, (IMAGE, ints(5, -1)), {}), "cannot have the shape"),
    (Case("Reshape", 13, (IMAGE, ints(-1, -1)), {}), "cannot have the shape"),
    (Case("Transpose", 13, (IMAGE,), {"perm": [0, 1, 2]}), "perm"),
    (Case("Concat", 13, (IMAGE, (1, 4, 5, 6)), {"axis": 1}), "differ"),
    (Case("Concat", 13, (IMAGE,), {"axis": 4}), "no axis 4"),
    (Case("Concat", 13, (IMAGE,), {}), "not valid ONNX"),
    (Case("Gather", 13, ((3,), ints(3)), {}), "outside"),
    (Case("GatherElements", 13, ((3, 4), ints(0, 1)), {}), "indices of"),
    (Case("GatherND", 13, ((3, 4), ints(0, 1, 2)), {}), "batch_dims"),
    (Case("GatherND", 13, ((3, 4), Constant(numpy.zeros((2, 1), int))), {"batch_dims": 1}), "differ"),
    (Case("ScatterND", 18, ((3, 4), Constant(numpy.zeros((2, 1), int)), (2, 3)), {}), "updates of"),
    (Case("ScatterElements", 18, ((3,), ints(0), (2,)), {}), "updates of"),
    (Case("ReverseSequence", 10, ((3, 2), ints(1, 4)), {}), "sequence_lens"),
    (Case("Compress", 11, ((2,), Constant(numpy.array([False, False, True]))), {}), "condition"),
    (Case("TopK", 11, ((3,), ints(4)), {}, outputs=2), "first 4 of 3"),
    (Case("OneHot", 11, (numpy.array([0]), ints(2), (3,)), {}), "values of shape"),
    (Case("Trilu", 14, ((3,),), {}), "no matrix"),
    (Case("EyeLike", 9, ((3, 2, 2),), {}), "no matrix"),
    (Case("Det", 11, ((3, 2),), {}), "no square matrix"),
    (Case("GridSample", 16, (IMAGE, (1, 2, 2, 3)), {}), "a grid of"),
    (Case("GridSample", 16, (IMAGE, (1, 2, 2, 2)), {"mode": "area"}), "mode is"),
    (Case("AffineGrid", 20, ((1, 2, 3), ints(2, 1, 2, 2)), {}), "theta of"),
    (Case("RoiAlign", 16, (IMAGE, (1, 5), ints(0)), {}), "regions of"),
    (Case("MaxRoiPool", 7, (IMAGE, (1, 4)), {"pooled_shape": [2, 2]}), "regions of"),
    (Case("MaxUnpool", 11, (IMAGE, whole(1, 4, 6, 5)), {"kernel_shape": [2, 2]}), "indices of"),
    (Case("Col2Im", 18, ((1, 4, 5), ints(3, 3), ints(2, 2)), {}), "blocks of"),
    (Case("CenterCropPad", 18, (IMAGE, ints(1)), {}), "for axes"),
    (Case("Split", 13, ((7,),), {}, outputs=2), "equal pieces"),
    (Case("Split", 13, ((7,), ints(3, 3)), {}, outputs=2), "do not split"),
    (Case("Squeeze", 13, (IMAGE, ints(1)), {}), "length 1"),
    (Case("Unsqueeze", 13, (IMAGE, ints(1, 1)), {}), "twice"),
    (Case("Softmax", 13, (IMAGE,), {"axis": 4}), "no axis 4"),
    (Case("ReduceSum", 13, (IMAGE, ints(7)), {}), "no axis 7"),
    (Case("Upsample", 13, (IMAGE, floats(1, 1, 2, 2)), {}), "use Resize"),
    (Case("Resize", 13, (IMAGE,), {}), "either scales or sizes"),
    (Case("Resize", 13, (IMAGE, None, floats(1, 1, 2, 2), ints(1, 4, 12, 12)), {}), "either scales or sizes"),
    (Case("Resize", 13, (IMAGE, None, floats(2, 2)), {}), "scales"),
    (Case("Resize", 13, (IMAGE, None, floats(1, 1, 0.1, 1)), {}), "nothing"),
    (Case("Resize", 13, (IMAGE, None, floats(1, 1, 2, 2)), {"mode": "area"}), "mode is 'area'"),
    (Case("DepthToSpace", 13, ((1, 6, 2, 2),), {"blocksize": 2}), "blocks of 2"),
    (Case("MatMul", 13, ((2, 3), (2, 3)), {}), "cannot multiply"),
    (Case("Gemm", 13, ((2, 3), (3, 2), (2, 2, 2)), {}), "does not broadcast"),
    (Case("Slice", 13, (IMAGE, ints(0), ints(1), ints(0), ints(0)), {}), "do not match"),
    (Case("Pad", 13, (IMAGE, ints(1, 1)), {}), "2 pads for 4 axes"),
    (Case("InstanceNormalization", 7, (IMAGE, (3,), (4,)), {}), "4 channels"),
    (Case("Clip", 13, (IMAGE, (6,)), {}), "no scalar"),
    (Case("AveragePool", 11, (IMAGE,), {"kernel_shape": [1, 1], "pads": [1, 0, 0, 0]}), "nothing but padding"),
    (Case("ReduceSum", 13, (IMAGE,), {"keepdims": 2}), "neither 0 nor 1"),
    (Case("Celu", 12, (IMAGE,), {"alpha": 0.0}), "division by zero"),
    (Case("GlobalMaxPool", 7, (Constant(numpy.zeros((1, 2, 0, 0), "f")),), {}), "zero-size"),
    (Case("Constant", 13, (), {}), "one value attribute"),
    (Case("Tile", 13, (IMAGE, ints(1)), {}), "repeats"),
    (Case("Expand", 13, (IMAGE, ints(5)), {}), "broadcast"),
]


@pytest.mark.parametrize(("case", "fragment"), [pytest.param(*row, id=f"{row[0]}-{n}") for n,
    row in enumerate(REFUSED)])
def test_refused(case: Case, fragment: str) -> None:
    model, feeds = model_of(case)
    with pytest.raises(UnsupportedError, match=fragment) as caught:
        run_model(model, feeds)
    assert caught.value.node == "node"


@pytest.mark.parametrize(("case", "fragment"), [pytest.param(*row, id=f"{row[0]}-{n}") for n, row in enumerate(WRONG)])
def test_wrong(case: Case, fragment: str) -> None:
    model, feeds = model_of(case)
    with pytest.raises(ModelError, match=fragment) as caught:
        run_model(model, feeds)
    assert caught.value.node == "node"
    assert not isinstance(caught.value, UnsupportedError)
