"""Levels of a quantised network are bytes in images: a quarter of the memory, and the same numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import onnx.helper
import pytest
from running import run_graph, target
from support import make_model, run_oracle

from imgconv.checking.session_checks import SessionUnderTest, check_launches
from imgconv.cl.context import Context
from imgconv.compiling import textures
from imgconv.compiling.plan import Plan
from imgconv.compiling.compiler import PreparedGraph
from imgconv.config import Config
from imgconv.kernels.layout import Texture
from imgconv.kernels.target import Target
from imgconv.onnx_import import import_onnx
from imgconv.passes import run_passes
from imgconv.runtime.session import Session
from imgconv.stored.compiled_file import DevicePlan, SavedModel, save_model

node = onnx.helper.make_node
ZEROS = [("uint8", 0), ("uint8", 128), ("uint8", 153), ("uint8", 255), ("int8", 0), ("int8", -128), ("int8", 50)]


class Network:
    """A model of quantised layers. Sums of numbers that are powers of two times integers, as with unit 1, are exact."""

    def __init__(self, dtype: str, zero: int, unit: float) -> None:
        self.random, self.unit = numpy.random.default_rng(0), unit
        self.constants: dict[str, Any] = {"zero": numpy.array(zero, dtype), "w_scale": numpy.float32(1 / 8)}
        self.nodes: list[onnx.NodeProto] = []

    def add(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op_type}{len(self.nodes)}"
        self.nodes.append(node(op_type, list(inputs), [name], **attributes))
        return name

    def levels(self, x: str, scale: float) -> str:
        """Adds QuantizeLinear and DequantizeLinear after x and returns the name of their result."""
        name = f"scale{scale}"
        self.constants[name] = numpy.float32(scale * self.unit)
        return self.add("DequantizeLinear", self.add("QuantizeLinear", x, name, "zero"), name, "zero")

    def convolution(self, x: str, shape: tuple[int, ...], **attributes: Any) -> str:
        name = f"w{len(self.nodes)}"
        self.constants[name] = self.random.integers(-8, 9, shape).astype("i1")
        return self.add("Conv", x, self.add("DequantizeLinear", name, "w_scale"), **attributes)


def layers(dtype: str, zero: int, unit: float = 1.0) -> tuple[onnx.ModelProto, Any]:
    """Dense, depthwise and strided convolutions, pooling, resizing, concatenation and addition of levels."""
    made, batch, channels = Network(dtype, zero, unit), 2, 6
    x = made.levels("x", 1 / 16)
    a = made.levels(made.convolution(x, (8, channels, 3, 3), pads=[1, 1, 1, 1]), 1 / 4)
    b = made.levels(made.convolution(a, (8, 1, 3, 3), pads=[1, 1, 1, 1], group=8), 1 / 4)
    c = made.levels(made.convolution(b, (10, 8, 1, 1)), 1 / 2)
    d = made.levels(made.convolution(a, (10, 8, 3, 3), pads=[1, 1, 1, 1]), 1 / 2)
    e = made.levels(made.add("Add", c, d), 1 / 2)
    f = made.levels(made.add("Concat", c, e, a, axis=1), 1 / 2)
    g = made.levels(made.add("MaxPool", f, kernel_shape=[2, 2], strides=[2, 2]), 1 / 2)
    made.constants["sizes"] = numpy.array([1, 1, 2, 2], "f")
    h = made.levels(made.add("Resize", g, "", "sizes", mode="nearest", coordinate_transformation_mode="asymmetric",
                             nearest_mode="floor"), 1 / 2)
    i = made.levels(made.convolution(h, (5, 28, 3, 3), strides=[2, 1], pads=[0, 1, 1, 0]), 2.0)
    j = made.levels(made.add("GlobalAveragePool", i), 1 / 8)
    y = made.levels(made.add("Transpose", j, perm=[0, 2, 3, 1]), 1 / 8)
    z = made.levels(made.add("AveragePool", i, kernel_shape=[2, 2], pads=[1, 0, 0, 1]), 1 / 2)
    feeds = {"x": made.random.integers(-200, 200, (batch, channels, 8, 12)).astype("f") / 16 * numpy.float32(unit)}
    return make_model(made.nodes, feeds, [y, z, e], 13, made.constants), feeds


def in_bytes(plan: Plan) -> set[str]:
    places = {name: place.storage for name, place in plan.placements.items()}
    return {name for name, storage in places.items() if isinstance(storage, Texture) and storage.quantization}


def with_images(context: Context) -> Target:
    """The device with images also if it is a CPU, none of bytes: weights would be parts of 127, which are not exact."""
    return target(context, linear=None, byte_images=False)


@pytest.mark.parametrize(
    ("dtype", "zero", "config"),
    [
        *((*each, Config()) for each in ZEROS), *((*each, Config(max_image=12)) for each in ZEROS[1::3]),
        *((*each, Config(float16=1)) for each in ZEROS[2::3]),
    ],
)
def test_levels_are_those_of_onnxruntime(dtype: str, zero: int, config: Config, context: Context) -> None:
    """Sums and scales are exact, so that the levels are equal and not only near."""
    model, feeds = layers(dtype, zero)
    plan, found = run_graph(import_onnx(model), feeds, context, config, with_images(context))
    assert len(in_bytes(plan)) >= 8
    for name, expected in run_oracle(model, feeds).items():
        numpy.testing.assert_array_equal(found[name], expected)


@pytest.mark.parametrize("scale", [1 / 64, 0.0391, 0.27])
def test_a_sigmoid_of_levels_is_that_of_onnxruntime(scale: float, context: Context) -> None:
    """SiLU with each step quantised, of all levels. A level may differ where the number is halfway within 2e-4."""
    made = Network("uint8", 120, 1.0)
    x = made.levels("x", scale)
    made.constants |= {"low": numpy.uint8(0), "of_sigmoid": numpy.float32(1 / 255)}
    sigmoid = made.add("QuantizeLinear", made.add("Sigmoid", x), "of_sigmoid", "low")
    floats = made.add("DequantizeLinear", sigmoid, "of_sigmoid", "low")
    y = made.levels(made.add("Mul", x, floats), scale)
    feeds = {"x": ((numpy.arange(1024) % 256 - 120) * scale).reshape(1, 4, 16, 16).astype("f")}
    model = make_model(made.nodes, feeds, [floats, y], 13, made.constants)
    graph = import_onnx(model)
    plan, found = run_graph(graph, feeds, context, wanted=with_images(context))
    assert floats in in_bytes(plan)
    whole = numpy.rint(feeds["x"] / numpy.float32(scale)).astype(numpy.float64)
    exact = 255 / (1 + numpy.exp(-whole * numpy.float32(scale)))
    tie = numpy.abs(exact % 1 - 0.5) < 2e-4
    numpy.testing.assert_array_equal(numpy.rint(found[floats] * 255)[~tie], numpy.rint(exact)[~tie])
    for name, expected in run_oracle(model, feeds).items():
        numpy.testing.assert_allclose(found[name][~tie], expected[~tie], 1e-6)


@pytest.mark.parametrize(("dtype", "zero"), ZEROS[1::3])
def test_bytes_change_no_number(dtype: str, zero: int, context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """Levels times any scale are the numbers that textures of floats hold, in a quarter of the memory."""
    model, feeds = layers(dtype, zero, unit=0.0173)
    plan, found = run_graph(import_onnx(model), feeds, context, wanted=with_images(context))
    monkeypatch.setattr(textures, "quantizations_of", lambda graph: {})
    of_floats, expected = run_graph(import_onnx(model), feeds, context, wanted=with_images(context))
    assert in_bytes(plan) and not in_bytes(of_floats)
    assert {n: 4 * plan.placements[n].bytes for n in in_bytes(plan)} == {
        n: of_floats.placements[n].bytes for n in in_bytes(plan)
    }
    for name, array in expected.items():
        numpy.testing.assert_array_equal(found[name], array)


def test_checks_of_launches_read_bytes_as_numbers(context: Context) -> None:
    """The check of each launch, and the samples for the player, are right about layers of levels."""
    model, feeds = layers("uint8", 153)
    graph, config = run_passes(import_onnx(model)), Config()
    session = Session(PreparedGraph(graph, config, with_images(context)).plan(), context)
    findings = [finding for _, finding in check_launches(SessionUnderTest(session, graph, config))]
    assert {finding.verdict for finding in findings} in ({"right"}, {"right", "not covered"}), findings


def test_a_file_says_which_bytes_are_levels(context: Context, tmp_path: Path) -> None:
    model, _ = layers("uint8", 153, unit=0.0173)
    graph, config, on = run_passes(import_onnx(model)), Config(), with_images(context)
    plan = PreparedGraph(graph, config, on).plan()
    save_model(tmp_path / "m", graph, config, [DevicePlan(plan, "the device", on)])
    found = SavedModel.open(tmp_path / "m").plan_for("the device", on)
    assert found and in_bytes(found.plan) == in_bytes(plan) != set()
    assert found.plan.placements == plan.placements
