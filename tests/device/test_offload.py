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
from imgconv.host.offload import KEPT_ROWS
from imgconv.onnx_export import export_onnx
from imgconv.tensor import Tensor, build_graph, suppression
from tests.support import assert_close, make_model, run_oracle
from tests.host_fallback_models import body, node

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
    fallback = loaded._last.fallback
    return [step.call.op_type for step in fallback.program.steps] if fallback else []


def suppresses(loaded: imgconv.Model) -> bool:
    return any(launch.operation == "suppression" for launch in loaded.plan.launches)


def assert_suppressed_on_the_device(model: onnx.ModelProto, inputs: dict[str, Array], device: DeviceInfo) -> None:
    """The kept rows are onnxruntime's, also for other boxes with the same labels."""
    loaded = imgconv.load(model, device)
    assert suppresses(loaded) and set(steps(loaded)) == {KEPT_ROWS}
    for step in (0.05, 0.001):
        given = {**drawn(len(inputs["labels"]), step), "labels": inputs["labels"]}
        assert_close(loaded.run(given), run_oracle(model, given), EXACT)


@pytest.mark.parametrize("count", [2, 3, 70, 300, 2500])
@pytest.mark.parametrize("overlap", [0.0, 0.45, 0.5])
def test_batched(count: int, overlap: float, device: DeviceInfo) -> None:
    inputs = drawn(count)
    model = batched(inputs, overlap, most=40)
    assert_suppressed_on_the_device(model, inputs, device)


def test_an_overlap_that_is_the_limit_when_it_is_rounded(device: DeviceInfo) -> None:
    """9 / 20 is larger than the float next to 0.45, and becomes it. onnxruntime compares floats."""
    for shared in (3, 5, 9, 14):
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


def unmasked(boxes: Array, centred: int, most: int, overlap: float) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A suppression without a mask in front, with a threshold of its own, and its inputs: boxes (1, N, 4)."""
    boxes = boxes.astype(numpy.float32)
    inputs = {"boxes": boxes, "scores": RANDOM.uniform(0, 1, (1, 1, boxes.shape[1])).astype(numpy.float32)}
    nodes = [
        node("NonMaxSuppression", "boxes scores most overlap least", "picked", center_point_box=centred),
        node("Gather", "picked two", "number", axis=1), node("Squeeze", "boxes zero", "all_boxes"),
        node("Gather", "all_boxes number", "kept", axis=0), node("Mul", "kept kept", "squares"),
    ]
    constants = {
        "most": numpy.array([most]), "overlap": numpy.float32([overlap]), "least": numpy.float32([0.4]),
        "two": numpy.array(2), "zero": numpy.array([0]),
    }
    return make_model(nodes, inputs, ["squares"], 13, constants), inputs


@pytest.mark.parametrize("centred", [0, 1])
@pytest.mark.parametrize("count", [2, 33, 700])
def test_all_boxes(centred: int, count: int, device: DeviceInfo) -> None:
    """Any two corners."""
    model, inputs = unmasked(RANDOM.uniform(0, 50, (1, count, 4)), centred, 25, 0.3)
    loaded = imgconv.load(model, device)
    assert suppresses(loaded)
    assert_close(loaded.run(inputs), run_oracle(model, inputs), 1e-6)  # one product in float


def test_boxes_whose_sides_are_of_negative_length(device: DeviceInfo) -> None:
    """One negative side: no area. Two: an area."""
    boxes = numpy.concatenate([RANDOM.uniform(0, 50, (1, 200, 2)), RANDOM.uniform(-20, 20, (1, 200, 2))], 2)
    model, inputs = unmasked(boxes, 1, 100, 0.05)
    loaded = imgconv.load(model, device)
    assert suppresses(loaded)
    assert_close(loaded.run(inputs), run_oracle(model, inputs), 1e-6)  # one product in float


def chain(*steps: str) -> list[onnx.NodeProto]:
    """Nodes written as "output = Op(inputs) attribute=value": one line each."""
    made = []
    for step in steps:
        outputs, call = step.split(" = ")
        op_type, rest = call.split("(")
        inputs, attributes = rest.split(")")
        settings = {name: int(value) for name, value in (each.split("=") for each in attributes.split())}
        made.append(node(op_type, inputs, outputs, **settings))
    return made


def filled(sizes: str, output: str, value: int) -> onnx.NodeProto:
    """ConstantOfShape of an integer."""
    return node("ConstantOfShape", sizes, output, value=onnx.numpy_helper.from_array(numpy.array([value])))


def picked_by_mask(inputs: dict[str, Array]) -> onnx.ModelProto:
    """Ultralytics' export: boxes by a mask, class offsets of the mask's own count, at most 100 of those that stay."""
    nodes = [
        *chain("mask = Greater(scores threshold)", "at1 = NonZero(mask)", "rows1 = Transpose(at1)",
               "some_boxes = GatherND(boxes rows1)", "at2 = NonZero(mask)", "rows2 = Transpose(at2)",
               "some_scores = GatherND(scores rows2)", "at3 = NonZero(mask)", "rows3 = Transpose(at3)",
               "some_labels = GatherND(labels rows3)", "shape = Shape(some_labels)", "number = Gather(shape zero)",
               "sizes = Unsqueeze(number first)", "column = Concat(sizes one) axis=0",
               "tall = Reshape(some_labels column)", "wide = Concat(sizes four) axis=0", "rank = Shape(wide)"),
        filled("rank", "ones", 1),
        *chain("none = Mul(ones minus)", "is_kept = Equal(wide none)", "wanted = Where(is_kept ones wide)",
               "offsets = Expand(tall wanted)", "far = Mul(offsets hundred)", "apart = Add(some_boxes far)",
               "batch = Unsqueeze(apart first)", "row = Unsqueeze(some_scores firsts)",
               "picked = NonMaxSuppression(batch row most overlap)", "numbers = Gather(picked two) axis=1",
               "keep = Squeeze(numbers last)", "best = Slice(keep first ends first)", "y = Gather(some_boxes best)",
               "chosen = Gather(some_scores best)", "s = Reshape(chosen tall_sizes)", "l = Gather(some_labels best)",
               "dets = Concat(y s) axis=1"),
    ]
    constants: dict[str, Any] = {
        "threshold": numpy.float32(0.3), "zero": numpy.array(0), "first": numpy.array([0]), "one": numpy.array([1]),
        "four": numpy.array([4]), "minus": numpy.array(-1), "hundred": numpy.float32(100),
        "firsts": numpy.array([0, 1]), "two": numpy.array([2]), "last": numpy.array([1]), "ends": numpy.array([20]),
        "most": numpy.array([numpy.iinfo(numpy.int64).max]), "overlap": numpy.float32([0.5]),
        "tall_sizes": numpy.array([-1, 1]),
    }
    return make_model(nodes, inputs, ["dets", "l"], 13, constants)


@pytest.mark.parametrize("count", [2, 60, 500])
def test_boxes_that_a_mask_picks(count: int, device: DeviceInfo) -> None:
    inputs = drawn(count)
    model = picked_by_mask(inputs)
    assert_suppressed_on_the_device(model, inputs, device)


def test_rows_go_to_the_host_where_it_goes_on(device: DeviceInfo) -> None:
    """Two stages: regions are suppressed on the device; the host crops what is there, and suppresses again."""
    corner = RANDOM.uniform(0, 12, (120, 2))
    inputs: dict[str, Array] = {
        "boxes": numpy.concatenate([corner, corner + RANDOM.uniform(1, 4, (120, 2))], 1).astype(numpy.float32),
        "scores": RANDOM.uniform(0, 1, 120).astype(numpy.float32),
        "features": RANDOM.normal(size=(1, 8, 16, 16)).astype(numpy.float32),
    }
    nodes = [
        *chain("batch = Unsqueeze(boxes first)", "row = Unsqueeze(scores firsts)",
               "picked = NonMaxSuppression(batch row thirty overlap)", "numbers = Gather(picked two) axis=1",
               "keep = Squeeze(numbers last)", "regions = Gather(boxes keep)", "count = Shape(keep)"),
        filled("count", "ids", 0),
        *chain("crops = RoiAlign(features regions ids) output_height=3 output_width=3 sampling_ratio=2",
               "flat = Flatten(crops)", "logits = Gemm(flat weights)", "again = Sigmoid(logits)",
               "across = Transpose(again)", "row2 = Unsqueeze(across first)", "batch2 = Unsqueeze(regions first)",
               "picked2 = NonMaxSuppression(batch2 row2 thirty less)", "numbers2 = Gather(picked2 two) axis=1",
               "keep2 = Squeeze(numbers2 last)", "y = Gather(regions keep2)"),
    ]
    constants: dict[str, Any] = {
        "first": numpy.array([0]), "firsts": numpy.array([0, 1]), "last": numpy.array([1]), "two": numpy.array([2]),
        "thirty": numpy.array([30]), "overlap": numpy.float32([0.5]), "less": numpy.float32([0.1]),
        "weights": RANDOM.normal(size=(72, 1)).astype(numpy.float32),
    }
    model = make_model(nodes, inputs, ["y", "again"], 16, constants)
    loaded = imgconv.load(model, device)
    assert suppresses(loaded) and {KEPT_ROWS, "RoiAlign", "NonMaxSuppression"} <= set(steps(loaded))
    # Sums of 72 products of bilinear samples, in another order.
    assert_close(loaded.run(inputs), run_oracle(model, inputs), 1e-5)


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
