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


def chain(*steps: str) -> list[onnx.NodeProto]:
    """Nodes written as "output.. = Op(input..) attribute=value": one line each."""
    made = []
    for step in steps:
        outputs, call = step.split(" = ")
        op_type, rest = call.split("(")
        inputs, attributes = rest.split(")")
        settings = {name: int(value) for name, value in (each.split("=") for each in attributes.split())}
        made.append(node(op_type, inputs, outputs, **settings))
    return made


def second_stage(levels: int = 2, classes: int = 4, extra: str = "") -> tuple[onnx.ModelProto, dict[str, Array]]:
    """torchvision's Faster R-CNN behind its region suppression, which keeps 30 of 120.

    Each region is pooled from the map of its level, by its area. Two products give classes and boxes. Boxes of all
    classes but the first are cut to the picture; those over a threshold and not small are suppressed class by class.
    """
    corner = RANDOM.uniform(0, 48, (120, 2))
    inputs: dict[str, Array] = {
        "proposals": numpy.concatenate([corner, corner + RANDOM.uniform(4, 30, (120, 2))], 1).astype(numpy.float32),
        "objectness": RANDOM.uniform(0, 1, 120).astype(numpy.float32),
        **{f"map{n}": RANDOM.normal(size=(1, 8, 16 >> n, 16 >> n)).astype(numpy.float32) for n in range(levels)},
    }
    pooled, merged = [], "zeros"
    for level in range(levels):
        n = f"_{level}"
        pooled += chain(
            f"on{n} = Equal(level level{n})", f"at{n} = NonZero(on{n})", f"row{n} = Squeeze(at{n} first)",
            f"some{n} = Gather(regions row{n})", f"first{n} = Gather(ids row{n})",
        )
        pooled.append(node("RoiAlign", f"map{level} some{n} first{n}", f"crop{n}", output_height=3, output_width=3,
                           sampling_ratio=2, spatial_scale=0.25 / 2**level))
        pooled += chain(
            f"sizes{n} = Shape(crop{n})", f"index{n} = Reshape(row{n} column)",
            f"spread{n} = Expand(index{n} sizes{n})",
            f"merged{n} = ScatterElements({merged} spread{n} crop{n}) axis=0",
        )
        merged = f"merged{n}"
    nodes = [
        *chain("batch = Unsqueeze(proposals first)", "row = Unsqueeze(objectness firsts)",
               "picked = NonMaxSuppression(batch row thirty overlap)", "numbers = Gather(picked two) axis=1",
               "keep = Squeeze(numbers last)", "best = Slice(keep first thirty first)",
               "regions = Gather(proposals best)"),
        # The level of a region: 0 if its width is under 16.
        *chain("left = Gather(regions zero) axis=1", "right = Gather(regions two0) axis=1",
               "width = Sub(right left)", "wide = Greater(width sixteen)", "level = Cast(wide) to=7",
               "ids = Mul(level none)"),
        *chain("shape = Shape(regions)", "many = Gather(shape first)", "target = Concat(many pooled_shape) axis=0",
               "zeros = ConstantOfShape(target)"),
        *pooled,
        *chain(f"flat = Flatten({merged})", "hidden = Gemm(flat w1 b1)", "active = Relu(hidden)",
               "logits = Gemm(active w2 b2)", "probabilities = Softmax(logits) axis=-1", "deltas = MatMul(active w3)",
               "by_class = Reshape(deltas box_shape)", "own = Unsqueeze(regions last)", "moved = Add(by_class own)",
               "cut = Clip(moved low high)", "real = Slice(cut last ends last)", "boxes = Reshape(real rows4)",
               "chosen = Slice(probabilities last ends last)", "scores = Reshape(chosen rows)",
               "count = Shape(chosen)", "all_labels = Expand(label_row count)", "labels = Reshape(all_labels rows)",
               "over = Greater(scores threshold)", "at = NonZero(over)", "places = Squeeze(at first)",
               "boxes1 = Gather(boxes places)", "scores1 = Gather(scores places)", "labels1 = Gather(labels places)"),
        *chain("x0 = Gather(boxes1 zero) axis=1", "x1 = Gather(boxes1 two0) axis=1", "wide1 = Sub(x1 x0)",
               "large = GreaterOrEqual(wide1 one)", "at2 = NonZero(large)", "places2 = Squeeze(at2 first)",
               "some_boxes = Gather(boxes1 places2)", "some_scores = Gather(scores1 places2)",
               "some_labels = Gather(labels1 places2)", "reach = ReduceMax(some_boxes) keepdims=0",
               "step = Add(reach one)", "offsets = Mul(some_labels step)", "column1 = Unsqueeze(offsets last)",
               "apart = Add(some_boxes column1)", "batch1 = Unsqueeze(apart first)",
               "row1 = Unsqueeze(some_scores firsts)", "picked1 = NonMaxSuppression(batch1 row1 most overlap)",
               "numbers1 = Gather(picked1 two) axis=1", "keep1 = Squeeze(numbers1 last)",
               "found = Slice(keep1 first ten first)", "y = Gather(some_boxes found)", "s = Gather(some_scores found)",
               "l = Gather(some_labels found)"),
    ]

    def weights(*shape: int) -> Array:
        return RANDOM.normal(size=shape, scale=shape[0] ** -0.5).astype(numpy.float32)

    constants: dict[str, Any] = {
        "first": numpy.array([0]), "last": numpy.array([1]), "firsts": numpy.array([0, 1]), "two": numpy.array([2]),
        "two0": numpy.array(2), "zero": numpy.array(0), "none": numpy.array(0), "thirty": numpy.array([30]),
        "overlap": numpy.float32([0.5]), "sixteen": numpy.float32(16), "column": numpy.array([-1, 1, 1, 1]),
        "pooled_shape": numpy.array([8, 3, 3]), "w1": weights(72, 80), "b1": weights(80),
        "w2": weights(80, classes), "b2": weights(classes), "w3": weights(80, 4 * classes),
        "box_shape": numpy.array([-1, classes, 4]), "low": numpy.float32(0), "high": numpy.float32(64),
        "ends": numpy.array([classes]), "rows4": numpy.array([-1, 4]), "rows": numpy.array([-1]),
        "label_row": numpy.arange(1, classes).reshape(1, -1).astype(numpy.float32), "threshold": numpy.float32(0.2),
        "one": numpy.float32(1), "most": numpy.array([100]), "ten": numpy.array([10]),
        **{f"level_{n}": numpy.array(n) for n in range(levels)},
    }
    return make_model(nodes, inputs, ["y", "s", "l", *extra.split()], 16, constants), inputs


def test_a_second_stage(device: DeviceInfo) -> None:
    model, inputs = second_stage()
    loaded = imgconv.load(model, device)
    assert set(steps(loaded)) == {KEPT_ROWS}
    assert sum(launch.operation == "suppression" for launch in loaded.plan.launches) == 2
    for scale in (1.0, 0.3, 0.0):
        given = {**inputs, "map0": inputs["map0"] * numpy.float32(scale)}
        expected = run_oracle(model, given)
        assert len(expected["y"])
        # Sums of 72 and 80 products, then differences of boxes of 64 pixels.
        assert_close(loaded.run(given), expected, 2e-5)


def test_a_second_stage_whose_pooled_regions_the_host_reads(device: DeviceInfo) -> None:
    model, inputs = second_stage(extra="merged_1 level")
    loaded = imgconv.load(model, device)
    assert set(steps(loaded)) == {KEPT_ROWS}
    assert_close(loaded.run(inputs), run_oracle(model, inputs), 2e-5)


def test_a_second_stage_without_any_box(device: DeviceInfo) -> None:
    """Reading of what nothing is in gives an error in onnxruntime: ReduceMax has no smallest float."""
    model, inputs = second_stage()
    model.graph.initializer[[i.name for i in model.graph.initializer].index("threshold")].CopyFrom(
        onnx.numpy_helper.from_array(numpy.float32(2), "threshold")
    )
    found = imgconv.load(model, device).run(inputs)
    assert {name: array.shape for name, array in found.items()} == {"y": (0, 4), "s": (0,), "l": (0,)}
