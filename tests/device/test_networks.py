"""models/ on every OpenCL device, float and half, against onnxruntime on the exported graph."""

from __future__ import annotations

import functools
from typing import Any

import numpy
import pytest
from support import run_oracle

import imgconv
from imgconv.cl.device import DeviceInfo
from imgconv.graph.nodes import Graph
from models import MODELS, build

NAMES = sorted(MODELS)
TOLERANCE = {0: 1e-3, 1: 3e-2}  # of the largest value, by float16
# Always tested, with small pictures: other plans have some fifty kernels, which take a CPU driver seconds to build.
REDUCED = (("squeezenet", 1),)


@functools.cache
def network(name: str, full: bool) -> tuple[Graph, dict[str, Any], dict[str, Any]]:
    """The graph, its inputs and onnxruntime's outputs."""
    graph = build(name) if full else build(name, size=64)
    generator = numpy.random.default_rng(0)
    scale, shift = (60, 128) if name == "yolo" else (1, 0)
    inputs = {v.name: (generator.standard_normal(v.shape) * scale + shift).astype(v.dtype) for v in graph.inputs}
    return graph, inputs, run_oracle(imgconv.export_onnx(graph), inputs)


def parts(name: str, output: Any) -> dict[str, Any]:
    """Numbers of one kind, each to be compared with the largest of its kind."""
    return {"boxes": output[..., :4], "scores": output[..., 4:]} if name == "yolo" else {"output": output}


def check(name: str, device: DeviceInfo, float16: int, full: bool) -> None:
    graph, inputs, expected = network(name, full)
    found = imgconv.load(graph, device=device, float16=float16).run(inputs)
    assert found.keys() == expected.keys()
    for key, wanted in expected.items():
        for kind, reference in parts(name, wanted).items():
            off = numpy.abs(parts(name, found[key])[kind].astype(float) - reference).max() / numpy.abs(reference).max()
            assert off <= TOLERANCE[float16], f"{kind}: {off:.2g} of the largest value"


@pytest.mark.parametrize(("name", "float16"), REDUCED)
def test_a_network_agrees_with_onnxruntime(name: str, device: DeviceInfo, float16: int) -> None:
    check(name, device, float16, full=False)


@pytest.mark.models
@pytest.mark.parametrize("float16", TOLERANCE)
@pytest.mark.parametrize("name", NAMES)
def test_a_network_of_full_size_agrees_with_onnxruntime(name: str, device: DeviceInfo, float16: int) -> None:
    check(name, device, float16, full=True)


@pytest.mark.models
def test_a_batch_and_a_width(device: DeviceInfo) -> None:
    """Factors of squeeze-and-excite by picture, pools and products by row."""
    graph = build("mobilenet_v3_small", width=0.5, size=65, batch=3, classes=7)
    picture = numpy.random.default_rng(1).standard_normal((3, 3, 65, 65)).astype(numpy.float32)
    expected = run_oracle(imgconv.export_onnx(graph), {"input": picture})["output"]
    found = imgconv.load(graph, device=device).run({"input": picture})["output"]
    assert numpy.abs(found - expected).max() <= 1e-3 * numpy.abs(expected).max()
