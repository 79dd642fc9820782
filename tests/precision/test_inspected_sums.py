"""inspect says of each launch of a quantised network whether it sums integers, and why not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from command_line import in_folder
import numpy
import onnx.helper
import pytest
from planted import overflow_model
from support import make_model

from imgconv.compiling.choose import ChoiceRequest, CostModelChooser
from imgconv.compiling.compiler import PreparedGraph
from imgconv.config import Config
from imgconv.graph.nodes import Graph
from imgconv.kernels.layout import ImageAlignment, ImageLimits
from imgconv.kernels.target import Target
from imgconv.kernels.template_interface import Choice
from imgconv.onnx_import import import_onnx
from imgconv.passes import run_passes
from imgconv.precision.integer_sums import integer_sums
from imgconv.stored.compiled_file import DevicePlan, save_model

node = onnx.helper.make_node
PHONE = Target(ImageLimits(4096, 4096, 8), "gpu", 2, dot_product="khr")


class Integers(CostModelChooser):
    """Sums of integers wherever they are possible."""

    def choose_specialisation(self, request: ChoiceRequest) -> Choice | None:
        made = request.template.candidates(request.problem, request.target)
        integers = [each for each in made if getattr(each, "integers", False)]
        return request.choice(integers[0]) if integers else super().choose_specialisation(request)


def network() -> Graph:
    """Convolutions of levels: dense, depthwise, with weights of floats, then a product of activations."""
    random, constants, nodes, read = numpy.random.default_rng(0), {}, [], "x"
    constants |= {"scale": numpy.float32(1 / 16), "zero": numpy.uint8(0)}
    for name, shape, group in (("dense", (8, 8, 3, 3), 1), ("depthwise", (8, 1, 3, 3), 8), ("floats", (8, 8, 1, 1), 1)):
        w = random.integers(-8, 8, shape).astype("i1")
        constants[f"w_{name}"] = w if name != "floats" else random.uniform(-1, 1, shape).astype("f")
        nodes += [node("QuantizeLinear", [read, "scale", "zero"], [f"q_{name}"]),
                  node("DequantizeLinear", [f"q_{name}", "scale", "zero"], [f"d_{name}"])]
        if name != "floats":
            nodes.append(node("DequantizeLinear", [f"w_{name}", "scale"], [f"v_{name}"]))
        weights = f"{'w' if name == 'floats' else 'v'}_{name}"
        nodes.append(node("Conv", [f"d_{name}", weights], [name], group=group, pads=[w.shape[2] // 2] * 4))
        read = name
    nodes.append(node("MatMul", ["floats", "floats"], ["y"]))
    feeds = {"x": numpy.zeros((1, 8, 6, 6), "f")}
    return run_passes(import_onnx(make_model(nodes, feeds, ["y"], 13, constants)))


@pytest.mark.parametrize(("target", "dense"), [
    (PHONE, "integers"),
    (replace(PHONE, dot_product=""), "fp32: the device has no byte dot product that passed the test"),
    (replace(PHONE, compute_units=60), "fp32: only phone GPUs sum integers"),
    (replace(PHONE, kind="cpu"), "fp32: only phone GPUs sum integers"),
    (replace(PHONE, kind="cpu", linear=ImageAlignment(1, 8, 1 << 30)), "fp32: the input is stored as fp32"),
])
def test_each_launch_says_why(target: Target, dense: str) -> None:
    graph = network()
    floats = "the input is stored as fp32" if target.linear else "the weights are fp32"
    plan = PreparedGraph(graph, Config(), target, Integers()).plan()
    assert list(integer_sums(plan, graph, target).values()) == [
        dense, "fp32: depthwise: no products of several channels are summed", f"fp32: {floats}",
        "fp32: matmul.cl has no integer variant",
    ]


def test_a_float_network_has_no_column() -> None:
    graph = run_passes(import_onnx(overflow_model()))
    assert integer_sums(PreparedGraph(graph, Config(), PHONE).plan(), graph, PHONE) == {}


def test_inspect_shows_it_of_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    imgconv = in_folder(tmp_path, capsys, monkeypatch)
    graph = network()
    chosen = PreparedGraph(graph, Config(), PHONE, Integers())
    save_model(tmp_path / "m.imgconv", graph, Config(), [DevicePlan(chosen.plan(), "a | phone | here", PHONE)])
    status, out, err = imgconv("inspect", "m.imgconv", "--json")
    assert status == 0, err
    launches = json.loads(out)["plans"][0]["launches"]
    shown = {each["name"]: each["integer_sums"] for each in launches if "integer_sums" in each}
    assert shown == integer_sums(chosen.plan(), graph, PHONE)
    lines = [line.split("  ") for line in imgconv("inspect", "m.imgconv", "--all")[1].splitlines()]
    title, = (line for line in lines if "sums" in map(str.strip, line))
    assert sum("integers" in map(str.strip, line) for line in lines) == 1 and "writes" in title
