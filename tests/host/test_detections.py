"""Ends of detectors that are rewritten, against onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
import onnx
import onnx.helper
import onnx.numpy_helper
import pytest

from imgconv import host
from imgconv.arrays import Array
from imgconv.graph.onnx_nodes import HostGraph
from imgconv.host import detections
from imgconv.host.detections import BEST_OF_CLASSES, speed_up_detections
from imgconv.onnx_import import import_onnx
from tests.support import make_model, run_oracle
from tests.host_fallback_models import body, node

BOXES, CLASSES, MOST = 50, 6, 8
RANDOM = numpy.random.default_rng(11)


def of_class(number: int, threshold: str = "threshold") -> list[onnx.NodeProto]:
    """Returns the nodes of torchvision's SSD for one class; they find the positions twice."""
    c = f"c{number}_"
    return [
        node("Gather", f"scores {c}class", f"{c}column", axis=1), node("Greater", f"{c}column {threshold}", f"{c}over"),
        node("NonZero", f"{c}over", f"{c}at"), node("Transpose", f"{c}at", f"{c}places", perm=[1, 0]),
        node("NonZero", f"{c}over", f"{c}at2"), node("Transpose", f"{c}at2", f"{c}places2", perm=[1, 0]),
        node("GatherND", f"{c}column {c}places", f"{c}chosen"), node("GatherND", f"boxes {c}places2", f"{c}boxes"),
        node("Shape", f"{c}chosen", f"{c}shape"), node("Gather", f"{c}shape zero", f"{c}size", axis=0),
        node("Unsqueeze", f"{c}size zeros", f"{c}sizes"), node("Concat", f"most {c}sizes", f"{c}both", axis=0),
        node("ReduceMin", f"{c}both", f"{c}fewer", keepdims=0), node("Reshape", f"{c}fewer ones", f"{c}count"),
        node("TopK", f"{c}chosen {c}count", f"{c}best {c}order", axis=-1, largest=1, sorted=1),
        node("Gather", f"{c}boxes {c}order", f"{c}kept", axis=0), node("Shape", f"{c}best", f"{c}found"),
        onnx.helper.make_node("ConstantOfShape", [f"{c}found"], [f"{c}label"], f"{c}label", value=label(10 + number)),
    ]


def label(number: int) -> onnx.TensorProto:
    return onnx.numpy_helper.from_array(numpy.array([number], numpy.int64))


def detector(
    scores: Array, boxes: Array, classes: Sequence[int] = (1, 2, 4, 5), swapped: bool = False, odd: bool = False
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """swapped: the boxes are merged in another order; odd: one class has a threshold of its own."""
    nodes = [each for n in classes for each in of_class(n, "other" if odd and n == classes[-1] else "threshold")]
    for name, part, turned in (("b", "kept", swapped), ("s", "best", False), ("l", "label", False)):
        order = [*reversed(classes)] if turned else classes
        nodes.append(node("Concat", " ".join(f"c{n}_{part}" for n in order), name, axis=0))
    constants: dict[str, Any] = {
        "threshold": numpy.float32(0.5), "other": numpy.float32(0.2), "most": numpy.array([MOST]),
        "zero": numpy.array(0), "zeros": numpy.array([0]), "ones": numpy.array([1]),
    } | {f"c{n}_class": numpy.array(n) for n in classes}
    inputs = {"scores": scores, "boxes": boxes}
    return make_model(nodes, inputs, ["b", "s", "l"], 18, constants), inputs


def partition_of(model: onnx.ModelProto) -> HostGraph:
    partition = import_onnx(model).host_partition
    assert partition is not None
    return partition.graph


def check(model: onnx.ModelProto, inputs: dict[str, Array]) -> HostGraph:
    """The rewritten graph, whose values are those of the graph before and of onnxruntime."""
    before = partition_of(model)
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in before.inputs if name not in inputs)
    graph, expected = speed_up_detections(before), run_oracle(model, inputs)
    for each in (before, graph):
        found = host.HostProgram.prepare(each).run([{**expected, **inputs}[name] for name in each.inputs])
        for name, array in zip(each.outputs, found, strict=True):
            assert array.dtype == expected[name].dtype
            numpy.testing.assert_array_equal(array, expected[name])
    return graph


def kinds(graph: HostGraph) -> list[str]:
    return [node.op_type for node in graph.nodes if node.op_type != "Constant"]


def drawn_boxes() -> Array:
    return RANDOM.uniform(0, 99, (BOXES, 4)).astype(numpy.float32)


@pytest.mark.parametrize("whole", [0, detections.SORTED_WHOLE], ids=["left out first", "sorted whole"])
@pytest.mark.parametrize("least", [0.0, 0.45, 0.9, 1.0], ids=["most are over", "many", "few", "none"])
def test_all_classes_are_selected_at_once(least: float, whole: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detections, "SORTED_WHOLE", whole)
    for step in (0.05, 0.001):  # many scores are equal, or few
        scores = numpy.round(RANDOM.uniform(0, 1, (BOXES, CLASSES)) / step) * step
        scores = numpy.where(scores > least, scores, 0).astype(numpy.float32)
        assert kinds(check(*detector(scores, drawn_boxes()))) == [BEST_OF_CLASSES]


def test_nan_is_over_no_threshold() -> None:
    scores = RANDOM.uniform(0, 1, (BOXES, CLASSES)).astype(numpy.float32)
    scores[::5] = numpy.nan
    check(*detector(scores, drawn_boxes()))


def test_classes_in_any_order() -> None:
    scores = RANDOM.uniform(0, 1, (BOXES, CLASSES)).astype(numpy.float32)
    assert kinds(check(*detector(scores, drawn_boxes(), (5, 0, 3)))) == [BEST_OF_CLASSES]


@pytest.mark.parametrize("change", ["swapped", "odd"])
def test_what_differs_between_classes_stays(change: str) -> None:
    scores = RANDOM.uniform(0, 1, (BOXES, CLASSES)).astype(numpy.float32)
    assert BEST_OF_CLASSES not in kinds(check(*detector(scores, drawn_boxes(), **{change: True})))


def test_what_others_read_is_kept() -> None:
    model, inputs = detector(RANDOM.uniform(0, 1, (BOXES, CLASSES)).astype(numpy.float32), drawn_boxes())
    model.graph.output.append(onnx.ValueInfoProto(name="c2_best"))
    graph = check(model, inputs)
    assert kinds(graph).count("TopK") == 1 and BEST_OF_CLASSES in kinds(graph)


# Suppression whose first boxes are read

def suppression(end: int, inside: bool, more: str = "") -> tuple[onnx.ModelProto, dict[str, Array]]:
    """inside: in a branch of an If. more: a further output, which reads all that is kept."""
    suppress = [
        node("NonMaxSuppression", "boxes scores most overlap", "picked"), node("Gather", "picked two", "n", axis=1),
        node("Squeeze", "n ones", "numbers"),
    ]
    if inside:
        none = onnx.helper.make_node("Constant", [], ["none"], value_ints=[7])
        both = {"then_branch": body(suppress, {}, "numbers"), "else_branch": body([none], {}, "none")}
        mean = [node("ReduceMean", "scores", "mean", keepdims=0), node("Greater", "mean zero", "go")]
        suppress = [*mean, node("If", "go", "numbers", **both)]
    nodes = [*suppress, node("Slice", "numbers zeros end zeros", "y")]
    nodes += [node("Shape", "numbers", more)] if more else []
    corner = RANDOM.uniform(0, 50, (1, BOXES, 2))
    inputs = {
        "boxes": numpy.concatenate([corner, corner + RANDOM.uniform(1, 9, (1, BOXES, 2))], 2).astype(numpy.float32),
        "scores": RANDOM.uniform(0, 1, (1, 2, BOXES)).astype(numpy.float32),
    }
    constants: dict[str, Any] = {
        "most": numpy.array([30]), "overlap": numpy.float32([0.4]), "two": numpy.array([2]), "ones": numpy.array([1]),
        "zeros": numpy.array([0]), "end": numpy.array([end]), "zero": numpy.float32(0),
    }
    return make_model(nodes, inputs, ["y", *([more] if more else [])], 18, constants), inputs


def limits_of(graph: HostGraph) -> list[int]:
    """Returns the limit on boxes of a class of each suppression in a graph and its bodies."""
    found = [int(graph.constants[n.inputs[2]].item()) for n in graph.nodes
             if n.op_type == "NonMaxSuppression" and n.inputs[2] in graph.constants]
    return found + [limit for n in graph.nodes for each in n.bodies.values() for limit in limits_of(each)]


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(("end", "most"), [(0, 0), (3, 3), (29, 29), (45, 30)])
def test_suppression_keeps_what_is_read(end: int, most: int, inside: bool) -> None:
    assert limits_of(check(*suppression(end, inside))) == [most]


def test_suppression_of_which_all_is_read() -> None:
    assert 5 not in limits_of(check(*suppression(5, False, "count")))
