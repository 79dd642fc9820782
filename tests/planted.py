"""Models with a planted fault of half precision."""

from __future__ import annotations

from typing import Any

import numpy
import onnx
from onnx.helper import make_node
from support import make_model

SHAPE = (1, 3, 12, 10)
LAYERS = ("first", "big", "back", "y")


def overflow_model(factor: float = 1e6, middle: str = "big") -> onnx.ModelProto:
    """Four 3x3 convolutions; the second one is scaled by a factor, the third one by its inverse."""
    random = numpy.random.default_rng(3)
    scales = {"first": 1.0, middle: factor, "back": 1 / factor, "y": 1.0}
    nodes, constants, read, channels = [], {}, "x", 3
    for name, scale in scales.items():
        weights = random.uniform(0.5, 1.5, (5, channels, 3, 3)) * scale / (9 * channels)
        constants[f"w_{name}"] = weights.astype(numpy.float32)
        nodes.append(make_node("Conv", [read, f"w_{name}"], [name], name=f"conv_{name}", pads=[1, 1, 1, 1]))
        read, channels = name, 5
    return make_model(nodes, {"x": numpy.zeros(SHAPE, numpy.float32)}, ["y"], 13, constants)


def offset_model(offset: float = 1000.0) -> onnx.ModelProto:
    """Three 1x1 convolutions; the second adds a number to values near 1 and the third takes it away again."""
    eye = numpy.eye(4, dtype=numpy.float32)[:, :, None, None]
    up, down = (numpy.full(4, number, numpy.float32) for number in (offset, -offset))
    constants = {"w": eye[:, :3], "e": eye, "up": up, "down": down}
    nodes = [
        make_node("Conv", ["x", "w"], ["first"]), make_node("Conv", ["first", "e", "up"], ["high"]),
        make_node("Conv", ["high", "e", "down"], ["y"]),
    ]
    return make_model(nodes, {"x": numpy.zeros(SHAPE, numpy.float32)}, ["y"], 13, constants)


def quantised_model() -> onnx.ModelProto:
    """Two 3x3 convolutions of levels of 8 bits, as quantizers write them."""
    random, nodes, read, channels = numpy.random.default_rng(5), [], "x", 3
    constants = {"scale": numpy.float32(1 / 255), "zero": numpy.uint8(0)}
    for name in ("first", "y"):
        constants[f"w_{name}"] = random.uniform(-0.2, 0.3, (5, channels, 3, 3)).astype(numpy.float32)
        nodes += [
            make_node("QuantizeLinear", [read, "scale", "zero"], [f"levels_{name}"]),
            make_node("DequantizeLinear", [f"levels_{name}", "scale", "zero"], [f"read_{name}"]),
            make_node("Conv", [f"read_{name}", f"w_{name}"], [name], pads=[1, 1, 1, 1]),
        ]
        read, channels = name, 5
    return make_model(nodes, {"x": numpy.zeros(SHAPE, numpy.float32)}, ["y"], 13, constants)


def step_model() -> onnx.ModelProto:
    """A 1x1 convolution to about 30 steps. If one changes, that is 3 % of the output."""
    weights = numpy.random.default_rng(6).uniform(5, 15, (4, 3, 1, 1)).astype(numpy.float32)
    nodes = [make_node("Conv", ["x", "w"], ["first"]), make_node("Floor", ["first"], ["y"])]
    return make_model(nodes, {"x": numpy.zeros((1, 3, 128, 128), numpy.float32)}, ["y"], 13, {"w": weights})


def cancelling_model() -> onnx.ModelProto:
    """Three 1x1 convolutions; the second takes u from u * (1 + 2**-10), which half stores but cannot multiply."""
    weights = numpy.zeros((4, 4, 1, 1), numpy.float32)
    weights[:, 0], weights[:, 1] = 1 + 2**-10, -1
    constants = {
        "mean": numpy.full((4, 3, 1, 1), 1 / 3, numpy.float32), "w": weights,
        "e": numpy.eye(4, dtype=numpy.float32)[:, :, None, None],
    }
    nodes = [
        make_node("Conv", ["x", "mean"], ["first"]), make_node("Conv", ["first", "w"], ["difference"]),
        make_node("Conv", ["difference", "e"], ["y"]),
    ]
    return make_model(nodes, {"x": numpy.zeros(SHAPE, numpy.float32)}, ["y"], 13, constants)


def summing_model() -> onnx.ModelProto:
    """`cancelling_model`, with sums of 2048 terms before its difference: 1, then 2047 times 2**-16.

    In half these are lost beside the 1, 3 % of the sum. In short runs only those of the first run are.
    """
    long = numpy.full((4, 2048, 1, 1), 2.0**-16, numpy.float32)
    long[:, 0] = 1
    model = cancelling_model()
    for tensor in model.graph.initializer:
        if tensor.name == "mean":
            tensor.CopyFrom(onnx.numpy_helper.from_array(numpy.full((2048, 3, 1, 1), 1 / 3, numpy.float32), "mean"))
    model.graph.initializer.append(onnx.numpy_helper.from_array(long, "long_weights"))
    model.graph.node.insert(1, make_node("Conv", ["first", "long_weights"], ["long"]))
    model.graph.node[2].input[0] = "long"
    return model


def picture(seed: int = 5) -> Any:
    """An input of 0 .. 1 for all of them."""
    return numpy.random.default_rng(seed).uniform(0, 1, SHAPE).astype(numpy.float32)
