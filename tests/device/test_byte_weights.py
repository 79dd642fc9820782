"""Quantised weights are one byte each on a device, and the results those of onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy
import onnx
import onnx.helper
import pytest
from running import Wanted, choosing, run_graph, target
from support import assert_close, make_model, run_oracle

from imgconv.cl.context import Context
from imgconv.config import Config
from imgconv.kernels.conv import candidates as conv_candidates, problem as conv, work as conv_work
from imgconv.kernels.layout import HostBuffer, Texture
from imgconv.onnx_import import import_onnx

PLACES = ("buffer", "image")
random = numpy.random.default_rng(11)
node = onnx.helper.make_node


def quantised(w: Any, x: tuple[int, ...], by_channel: bool, **attributes: Any) -> tuple[onnx.ModelProto, Any]:
    """Relu(Conv(x, DequantizeLinear(w), b)), and an input for it."""
    count = w.shape[0]
    zero = 0 if w.dtype == numpy.int8 else 128
    constants = {
        "w": w, "b": random.normal(size=count).astype("f"),
        "scale": random.uniform(0.01, 0.1, count if by_channel else ()).astype("f"),
        "zero": numpy.full(count if by_channel else (), zero, w.dtype),
    }
    axis: dict[str, Any] = {"axis": 0} if by_channel else {}
    nodes = [
        node("DequantizeLinear", ["w", "scale", "zero"], ["real"], **axis),
        node("Conv", ["x", "real", "b"], ["sum"], **attributes), node("Relu", ["sum"], ["y"]),
    ]
    feeds = {"x": random.normal(size=x).astype("f")}
    return make_model(nodes, feeds, ["y"], 13, constants), feeds


def draw(dtype: str, *shape: int) -> Any:
    """Integers that are within -127 .. 127 of the type's middle; the ends occur."""
    low = -127 if dtype == "int8" else 1
    made = random.integers(low, low + 254, shape, endpoint=True).astype(dtype)
    made.flat[0], made.flat[-1] = low, low + 254
    return made


def keeping(context: Context, place: str, **changes: Any) -> Wanted:
    """The device, with the weights of every convolution in one place: a buffer or an image."""
    if place == "image" and not (changes or context.info.byte_images):
        pytest.skip("this device has no images of bytes; test_a_device_without_byte_images_keeps_floats is for it")

    def choose(problem: conv.Problem, kind: str, units: int) -> conv.Specialisation:
        made = [c for c in conv_candidates.candidates(problem, kind) if c.weights_in_buffer == (place == "buffer")]
        return min(made, key=lambda c: conv_work.predicted_time(problem, c, kind, units))

    return choosing(target(context, "gpu", **changes), convolution=choose)


def weights_of(plan: Any) -> list[Texture | HostBuffer]:
    return [storage for storage in plan.content if storage.name.endswith(".weights")]


CASES: list[tuple[Any, Any, bool, dict[str, Any]]] = [
    (draw("int8", 8, 16, 3, 3), (1, 16, 9, 8), True, {"pads": [1, 1, 1, 1]}),
    (draw("uint8", 8, 16, 3, 3), (2, 16, 7, 8), False, {"strides": [2, 1]}),
    (draw("uint8", 6, 16, 1, 1), (1, 16, 7, 8), True, {}),
    (draw("int8", 16, 1, 3, 3), (2, 16, 9, 8), True, {"group": 16}),
    (draw("int8", 8, 4, 3, 3), (1, 8, 9, 8), True, {"group": 2, "dilations": [2, 1]}),
    (draw("int8", 4, 8, 5), (2, 8, 11), True, {}),
    (draw("int8", 4, 4, 2, 3, 3), (1, 4, 4, 6, 6), True, {}),
]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("w", "x", "by_channel", "attributes"), CASES)
def test_byte_weights(
    w: Any, x: tuple[int, ...], by_channel: bool, attributes: Any, place: str, context: Context
) -> None:
    model, feeds = quantised(w, x, by_channel, **attributes)
    plan, found = run_graph(import_onnx(model), feeds, context, wanted=keeping(context, place))
    assert {s.dtype for s in weights_of(plan)} == {"int8"}
    assert_close(found, run_oracle(model, feeds), 3e-6)


@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("place", PLACES)
def test_byte_weights_with_half(place: str, mode: int, context: Context) -> None:
    wanted = keeping(context, place)
    if mode == 2 and not wanted.target.half_arithmetic:
        pytest.skip("this device does not compute in half")
    model, feeds = quantised(*CASES[0][:3], **CASES[0][3])
    plan, found = run_graph(import_onnx(model), feeds, context, Config(float16=mode), wanted)
    assert {s.dtype for s in weights_of(plan)} == {"int8"}
    # Inputs and outputs are rounded to 11 bits; 144 terms.
    assert_close(found, run_oracle(model, feeds), 3e-3)


@pytest.mark.parametrize("place", PLACES)
def test_weights_take_a_quarter(place: str, context: Context) -> None:
    w = draw("int8", 64, 64, 3, 3)
    model, feeds = quantised(w, (1, 64, 4, 4), True)
    plan, _ = run_graph(import_onnx(model), feeds, context, wanted=keeping(context, place))
    # Beside them a scale and a bias of a float for each channel.
    assert plan.weight_bytes == prod(w.shape) + 2 * 4 * 64


def test_a_device_without_byte_images_keeps_floats(context: Context) -> None:
    model, feeds = quantised(*CASES[0][:3], **CASES[0][3])
    wanted = keeping(context, "image", byte_images=False)
    plan, found = run_graph(import_onnx(model), feeds, context, wanted=wanted)
    assert {s.dtype for s in weights_of(plan)} == {"float32"}
    assert_close(found, run_oracle(model, feeds), 3e-6)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("channels", [30, 2000])
def test_sums_of_integers_with_byte_weights_are_exact(channels: int, mode: int, place: str, context: Context) -> None:
    """Sums that rise far and fall back to a few units show any rounding on the way; they are exact in every fp16 mode.

    The reference is numpy in int64: onnxruntime adds pairs of products in 16 bits on CPUs without VNNI.
    """
    wanted = keeping(context, place)
    if mode == 2 and not wanted.target.half_arithmetic:
        pytest.skip("this device does not compute in half")
    up, x = draw("int8", 4, channels), random.integers(200, 256, (1, channels)).astype("u1")
    less = x - (random.random(x.shape) < 2 / channels).astype("u1")
    constants: Mapping[str, Any] = {
        "w": numpy.concatenate([up, -up], axis=1).reshape(4, -1, 1, 1), "one": numpy.float32(1),
        "zero": numpy.uint8(0), "wzero": numpy.int8(0), "yzero": numpy.uint8(128),
    }
    scales = ["one", "zero", "w", "one", "wzero", "one", "yzero"]
    feeds = {"x": numpy.concatenate([x, less], axis=1).reshape(1, -1, 1, 1)}
    nodes = [node("QLinearConv", ["x", *scales], ["q"]), node("DequantizeLinear", ["q", "one", "yzero"], ["y"])]
    model = make_model(nodes, feeds, ["y"], 13, constants)
    plan, found = run_graph(import_onnx(model), feeds, context, Config(float16=mode), wanted)
    # Whole weights of a byte are exact as halves, which an image read converts without a rounding.
    assert {s.dtype for s in weights_of(plan)} == {"float16" if place == "image" else "int8"}
    sums = constants["w"].reshape(4, -1).astype(int) @ feeds["x"].reshape(-1).astype(int)
    numpy.testing.assert_array_equal(found["y"].reshape(-1), numpy.clip(sums, -128, 127))
