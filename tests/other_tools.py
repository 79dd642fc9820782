"""Small networks, and the files that onnxruntime's optimizer and quantizer write of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import onnx
import onnx.helper
import onnxruntime
import onnxruntime.quantization as quantization
from support import make_model, skipping_what_is_new

node = onnx.helper.make_node
Feeds = dict[str, Any]


def draw(seed: int, *shape: int) -> Any:
    fan = int(numpy.prod(shape[1:])) if len(shape) > 1 else 8
    return (numpy.random.default_rng(seed).normal(size=shape) / numpy.sqrt(fan)).astype(numpy.float32)


def convolutional() -> tuple[onnx.ModelProto, Feeds]:
    """Convolutions with every activation that is fused, a residual, a depthwise one, pooling, and a classifier."""
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["c0"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["c0"], ["r0"]),
        node("Conv", ["r0", "w1", "b1"], ["c1"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], group=16),
        node("Clip", ["c1", "low", "high"], ["r1"]),
        node("Conv", ["r1", "w2", "b2"], ["c2"], kernel_shape=[1, 1]),
        node("Add", ["c2", "r0"], ["s"]), node("LeakyRelu", ["s"], ["l"], alpha=0.2),
        node("MaxPool", ["l"], ["m"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["m", "w3"], ["c3"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]), node("Sigmoid", ["c3"], ["g"]),
        node("Mul", ["c3", "g"], ["swish"]),
        # The mean of four integers may lie between two, where onnxruntime's float noise decides; that of nine does not.
        node("AveragePool", ["swish"], ["a"], kernel_shape=[3, 3], strides=[1, 1]),
        node("Conv", ["m", "w4", "b2"], ["c4"], kernel_shape=[3, 3]), node("LeakyRelu", ["c4"], ["l4"], alpha=0.1),
        node("Concat", ["a", "l4"], ["cat"], axis=1), node("GlobalAveragePool", ["cat"], ["p"]),
        node("Flatten", ["p"], ["f"]), node("Gemm", ["f", "w5", "b5"], ["o"], transB=1), node("Relu", ["o"], ["r5"]),
        node("MatMul", ["r5", "w6"], ["n"]), node("Softmax", ["n"], ["y"], axis=-1),
    ]
    constants = {
        "w0": draw(0, 16, 3, 3, 3), "b0": draw(1, 16), "w1": draw(2, 16, 1, 3, 3), "b1": draw(3, 16),
        "w2": draw(4, 16, 16, 1, 1), "b2": draw(5, 16), "w3": draw(6, 20, 16, 3, 3), "w4": draw(7, 16, 16, 3, 3),
        "w5": draw(8, 12, 36), "b5": draw(9, 12), "w6": draw(10, 12, 10),
        "low": numpy.float32(0), "high": numpy.float32(1.5),
    }
    x = numpy.random.default_rng(11).uniform(-2, 2, (2, 3, 20, 20)).astype(numpy.float32)
    return make_model(nodes, {"x": x}, ["y"], 13, constants), {"x": x}


def transformer() -> tuple[onnx.ModelProto, Feeds]:
    """A convolutional stem, then what becomes LayerNormalization, Gelu, FusedMatMul and BiasGelu."""
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["c0"], kernel_shape=[4, 4], strides=[4, 4]),
        node("Reshape", ["c0", "flat"], ["f"]), node("Transpose", ["f"], ["t"], perm=[0, 2, 1]),
        node("ReduceMean", ["t"], ["mean"], axes=[-1]), node("Sub", ["t", "mean"], ["d"]),
        node("Pow", ["d", "two"], ["dd"]), node("ReduceMean", ["dd"], ["v"], axes=[-1]),
        node("Add", ["v", "eps"], ["ve"]), node("Sqrt", ["ve"], ["sd"]), node("Div", ["d", "sd"], ["n"]),
        node("Mul", ["n", "scale"], ["ns"]), node("Add", ["ns", "shift"], ["ln"]),
        node("Transpose", ["ln"], ["lt"], perm=[0, 2, 1]), node("MatMul", ["ln", "lt"], ["qk"]),
        node("Mul", ["qk", "tenth"], ["qs"]), node("Softmax", ["qs"], ["p"], axis=-1),
        node("MatMul", ["p", "ln"], ["at"]), node("Add", ["at", "t"], ["skip"]),
        node("LayerNormalization", ["skip", "scale", "shift"], ["l2"]),
        node("MatMul", ["l2", "w1"], ["h0"]), node("Add", ["h0", "b1"], ["h"]),
        node("Div", ["h", "root"], ["hr"]), node("Erf", ["hr"], ["e"]), node("Add", ["e", "one"], ["e1"]),
        node("Mul", ["h", "e1"], ["he"]), node("Mul", ["he", "half"], ["gelu"]), node("MatMul", ["gelu", "w2"], ["y"]),
    ]
    constants = {
        "w0": draw(0, 16, 3, 4, 4), "b0": draw(1, 16), "flat": numpy.array([1, 16, 25]), "two": numpy.float32(2),
        "eps": numpy.float32(1e-5), "scale": draw(2, 16) + 1, "shift": draw(3, 16), "tenth": numpy.float32(0.1),
        "w1": draw(4, 16, 32), "b1": draw(5, 32), "root": numpy.float32(numpy.sqrt(2)), "one": numpy.float32(1),
        "half": numpy.float32(0.5), "w2": draw(6, 32, 16),
    }
    x = numpy.random.default_rng(11).uniform(-2, 2, (1, 3, 20, 20)).astype(numpy.float32)
    return make_model(nodes, {"x": x}, ["y"], 17, constants), {"x": x}


NETWORKS = {"convolutional": convolutional, "transformer": transformer}


def written(model: onnx.ModelProto, level: str, folder: Path, without: Sequence[str] = ()) -> onnx.ModelProto:
    """The model as onnxruntime's optimizer writes it at a level: BASIC, EXTENDED or ALL; without some of its steps."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level}")
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    with skipping_what_is_new():
        onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"], disabled_optimizers=list(without)
        )
    return onnx.load(folder / "optimised.onnx")


def assert_equal(found: Any, expected: Any, tolerance: float) -> None:
    assert numpy.abs(found - expected).max() <= tolerance * numpy.abs(expected).max()


class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
    """Inputs of the given shape for the quantizer."""

    def __init__(self, feeds: Feeds) -> None:
        draws = numpy.random.default_rng(1)
        self.rows = [{name: draws.uniform(-2, 2, x.shape).astype("f4") for name, x in feeds.items()} for _ in range(4)]

    def get_next(self) -> Feeds | None:
        return self.rows.pop() if self.rows else None
