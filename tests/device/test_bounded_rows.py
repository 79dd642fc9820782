"""Suppression and what is around it on the device, for rows whose number depends on data, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy
import onnx
import pytest

import imgconv
from imgconv.arrays import Array
from imgconv.cl.device import DeviceInfo
from imgconv.graph.evaluate import evaluate_graph
from imgconv.host.bounded import KEPT_ROWS
from imgconv.onnx_export import export_onnx
from imgconv.tensor import Tensor, build_graph, suppression
from tests.support import assert_close, make_model, run_oracle
from tests.tail_models import body, node

RANDOM = numpy.random.default_rng(21)
EXACT = 0.0  # rows are chosen, and integers of few bits are added
NAMES = ("boxes", "scores", "labels")


def drawn(count: int, step: float = 0.05, side: int = 60) -> dict[str, Array]:
    """Boxes of whole pixels, which often overlap by exactly a half; scores of which many are equal; labels."""
    corner = RANDOM.integers(0, side, (count, 2))
    boxes = numpy.concatenate([corner, corner + RANDOM.integers(0, 21, (count, 2))], 1)
    scores = numpy.round(RANDOM.uniform(0, 1, count) / step) * step
    return {
        "boxes": boxes.astype(numpy.float32), "scores": scores.astype(numpy.float32),
        "labels": RANDOM.integers(1, 4, count).astype(numpy.float32),
    }


def batched(
    inputs: dict[str, Array], overlap: float = 0.5, most: int = 300, threshold: float = 0.3, ends: int | None = None,
    extra: str = "",
) -> onnx.ModelProto:
    """torchvision's: boxes over a threshold, shifted by class, suppression if there are any, the best of them."""
    suppress = [
        node("ReduceMax", "some_boxes", "reach", keepdims=0), node("Add", "reach one", "step"),
        node("Mul", "some_labels step", "offsets"), node("Unsqueeze", "offsets last", "column"),
        node("Add", "some_boxes column", "apart"), node("Unsqueeze", "apart first", "batch"),
        node("Unsqueeze", "some_scores firsts", "row"), node("NonMaxSuppression", "batch row most overlap", "picked"),
        node("Gather", "picked two", "numbers", axis=1), node("Squeeze", "numbers last", "keep"),
    ]
    nothing = [node("Constant", "", "none", value=onnx.numpy_helper.from_array(numpy.zeros(0, numpy.int64)))]
    nodes = [
        node("Greater", "scores threshold", "over"), node("NonZero", "over", "at"),
        node("Squeeze", "at first", "places"),
        *(node("Gather", f"{name} places", f"some_{name}") for name in NAMES),
        node("Shape", "some_boxes", "shape"), node("ReduceProd", "shape", "size", keepdims=0),
        node("Equal", "size zero", "empty"),
        node("If", "empty", "kept", then_branch=body(nothing, {}, "none"), else_branch=body(suppress, {}, "keep")),
        node("Slice", "kept first ends first", "chosen"),
        *(node("Gather", f"some_{name} chosen", f"chosen_{name}") for name in NAMES),
        node("Split", "chosen_boxes ones", "left top right bottom", axis=1), node("Mul", "left half", "scaled"),
        node("Concat", "scaled top right bottom", "made", axis=1), node("Cast", "chosen_labels", "classes", to=7),
    ]
    constants: dict[str, Any] = {
        "threshold": numpy.float32(threshold), "first": numpy.array([0]), "last": numpy.array([1]),
        "firsts": numpy.array([0, 1]), "one": numpy.float32(1), "two": numpy.array([2]), "zero": numpy.array(0),
        "most": numpy.array([most]), "overlap": numpy.float32([overlap]), "ends": numpy.array([ends or most]),
        "ones": numpy.ones(4, numpy.int64), "half": numpy.float32(0.5),
    }
    outputs = ["made", "chosen_scores", "classes", *extra.split()]
    return make_model(nodes, inputs, outputs, 13, constants)


def steps(loaded: imgconv.Model) -> list[str]:
    """The op types that the host computes."""
    tail = loaded._last.tail
    return [step.call.op_type for step in tail.program.steps] if tail else []


def suppresses(loaded: imgconv.Model) -> bool:
    return any(launch.operation == "suppression" for launch in loaded.plan.launches)


@pytest.mark.parametrize("count", [1, 3, 70, 300, 2500])
@pytest.mark.parametrize("overlap", [0.0, 0.45, 0.5])
def test_batched(count: int, overlap: float, device: DeviceInfo) -> None:
    inputs = drawn(count)
    model = batched(inputs, overlap, most=40)
    loaded = imgconv.load(model, device)
    assert suppresses(loaded) and set(steps(loaded)) == {KEPT_ROWS}
    for step in (0.05, 0.001):
        given = {**drawn(count, step), "labels": inputs["labels"]}
        assert_close(loaded.run(given), run_oracle(model, given), EXACT)


def test_an_overlap_that_is_the_limit_when_it_is_rounded(device: DeviceInfo) -> None:
    """9 / 20 is larger than the float next to 0.45, and becomes it. onnxruntime compares floats."""
    for shared in range(1, 20):
        boxes = numpy.float32([[0, 0, 20, 1], [0, 0, shared, 1]])
        inputs = {"boxes": boxes, "scores": numpy.float32([1, 0.9]), "labels": numpy.ones(2, numpy.float32)}
        model = batched(inputs, shared / 20)
        assert_close(imgconv.load(model, device).run(inputs), run_oracle(model, inputs), EXACT)


def test_no_box_or_all_of_them(device: DeviceInfo) -> None:
    inputs = drawn(90)
    model = batched(inputs, most=90)
    loaded = imgconv.load(model, device)
    for scores in (numpy.zeros(90), numpy.ones(90), numpy.full(90, numpy.inf), numpy.full(90, numpy.nan)):
        given = {**inputs, "scores": scores.astype(numpy.float32)}
        assert_close(loaded.run(given), run_oracle(model, given), EXACT)


def test_the_first_of_those_that_stay(device: DeviceInfo) -> None:
    inputs = drawn(200, side=300)
    model = batched(inputs, most=100, ends=7)
    loaded = imgconv.load(model, device)
    assert suppresses(loaded) and loaded.run(inputs)["classes"].shape == (7,)
    assert_close(loaded.run(inputs), run_oracle(model, inputs), EXACT)


def test_places_that_the_host_reads_stay_with_the_host(device: DeviceInfo) -> None:
    """They are places among the boxes over the threshold, and not among all."""
    inputs = drawn(80)
    model = batched(inputs, extra="chosen")
    loaded = imgconv.load(model, device)
    assert not suppresses(loaded)
    assert_close(loaded.run(inputs), run_oracle(model, inputs), EXACT)


@pytest.mark.parametrize("centred", [0, 1])
@pytest.mark.parametrize("count", [1, 33, 700])
def test_all_boxes(centred: int, count: int, device: DeviceInfo) -> None:
    """Without a mask in front, any two corners, and a threshold of the suppression's own."""
    corners = RANDOM.uniform(0, 50, (1, count, 4)).astype(numpy.float32)
    inputs = {"boxes": corners, "scores": RANDOM.uniform(0, 1, (1, 1, count)).astype(numpy.float32)}
    nodes = [
        node("NonMaxSuppression", "boxes scores most overlap least", "picked", center_point_box=centred),
        node("Gather", "picked two", "number", axis=1), node("Squeeze", "boxes zero", "all_boxes"),
        node("Gather", "all_boxes number", "kept", axis=0), node("Mul", "kept kept", "squares"),
    ]
    constants = {
        "most": numpy.array([25]), "overlap": numpy.float32([0.3]), "least": numpy.float32([0.4]),
        "two": numpy.array(2), "zero": numpy.array([0]),
    }
    model = make_model(nodes, inputs, ["squares"], 13, constants)
    loaded = imgconv.load(model, device)
    assert suppresses(loaded)
    assert_close(loaded.run(inputs), run_oracle(model, inputs), 1e-6)  # one product in float


def test_in_half_the_host_suppresses(device: DeviceInfo) -> None:
    inputs = drawn(80)
    model = batched(inputs)
    loaded = imgconv.load(model, device, float16=1)
    assert not suppresses(loaded)
    assert_close(loaded.run(inputs), run_oracle(model, inputs), EXACT)


def test_suppression_as_onnx() -> None:
    boxes, count = Tensor.input("boxes", (50, 4)), Tensor.input("count", (1,), "int64")
    graph = build_graph({"y": suppression(boxes, count, 0.4, 12)}, [boxes, count])
    for taking_part in (0, 5, 50):
        given = {"boxes": drawn(50)["boxes"], "count": numpy.array([taking_part])}
        assert_close(evaluate_graph(graph, given), run_oracle(export_onnx(graph), given), EXACT)
