"""Small models whose ends depend on data, with their inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import onnx
import onnx.helper

from tests.support import make_input, make_model

RANDOM = numpy.random.default_rng(5)
PICTURE = RANDOM.uniform(-1, 1, (1, 3, 16, 16)).astype(numpy.float32)
FILTERS = RANDOM.uniform(-1, 1, (8, 3, 3, 3)).astype(numpy.float32)
HEAD = RANDOM.uniform(-1, 1, (7, 8, 1, 1)).astype(numpy.float32)

Case = tuple[onnx.ModelProto, dict[str, Any]]


def node(op_type: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """A node called as its first output; names are separated by spaces, and "-" is an absent input."""
    names = ["" if name == "-" else name for name in inputs.split()]
    return onnx.helper.make_node(op_type, names, outputs.split(), name=outputs.split()[0], **attributes)


def body(nodes: list[onnx.NodeProto], inputs: dict[str, Any], outputs: str) -> onnx.GraphProto:
    """A body. inputs: the dtype of each, which is a scalar, or its dtype and shape."""
    declared = [make_input(n, *((kind, ()) if isinstance(kind, str) else kind)) for n, kind in inputs.items()]
    made = onnx.helper.make_graph(nodes, "body", declared, [])
    made.output.extend(onnx.ValueInfoProto(name=name) for name in outputs.split())
    return made


BACKBONE = [node("Conv", "x w", "conv", strides=[2, 2], pads=[1, 1, 1, 1]), node("Relu", "conv", "features")]


def detector() -> Case:
    """Boxes and scores of 64 places, NonMaxSuppression, and what was kept."""
    nodes = [
        *BACKBONE, node("Conv", "features head", "maps"), node("Reshape", "maps flat", "rows"),
        node("Split", "rows parts", "corners logits", axis=1), node("Transpose", "corners", "boxes", perm=[0, 2, 1]),
        node("Sigmoid", "logits", "scores"), node("NonMaxSuppression", "boxes scores most overlap least", "picked"),
        node("Gather", "picked two", "number", axis=1), node("Squeeze", "boxes zero", "all_boxes"),
        node("Gather", "all_boxes number", "kept"), node("GatherND", "scores picked_columns", "kept_scores"),
        node("Gather", "picked columns", "picked_columns", axis=1), node("Cast", "class", "label", to=6),
        node("Gather", "picked one", "class", axis=1), node("Shape", "kept", "found"),
    ]
    constants = {
        "w": FILTERS, "head": HEAD, "flat": numpy.array([1, 7, 64]), "parts": numpy.array([4, 3]),
        "most": numpy.array([20]), "overlap": numpy.float32([0.3]), "least": numpy.float32([0.7]),
        "two": numpy.array(2), "one": numpy.array(1), "zero": numpy.array([0]), "columns": numpy.array([0, 1, 2]),
    }
    return make_model(nodes, {"x": PICTURE}, ["picked", "kept", "kept_scores", "label", "found"], 18, constants), {
        "x": PICTURE
    }


def non_zero() -> Case:
    """The positions of what is over a limit, and the features there; the features too, which the device makes."""
    nodes = [
        *BACKBONE, node("Greater", "features limit", "over"), node("NonZero", "over", "places"),
        node("Transpose", "places", "rows"), node("GatherND", "features rows", "values"),
        node("ReduceMax", "values", "largest", keepdims=0), node("Size", "values", "count"),
    ]
    constants = {"w": FILTERS, "limit": numpy.float32(1.5)}
    model = make_model(nodes, {"x": PICTURE}, ["features", "rows", "values", "largest", "count"], 18, constants)
    return model, {"x": PICTURE}


def if_on_data() -> Case:
    """Two branches of different shapes, which read names of the graph around them."""
    nodes = [
        *BACKBONE, node("ReduceMean", "features", "mean", keepdims=0), node("Greater", "mean limit", "bright"),
        node("If", "bright", "y", then_branch=body([node("Mul", "features limit", "scaled")], {}, "scaled"),
             else_branch=body([node("ReduceMax", "features", "most")], {}, "most")),
        node("Add", "y y", "twice"),
    ]
    model = make_model(nodes, {"x": PICTURE}, ["twice"], 13, {"w": FILTERS, "limit": numpy.float32(0.5)})
    return model, {"x": PICTURE}


def if_of_one_shape() -> Case:
    """Two branches of one shape: the device computes both, and nothing is left to the host."""
    nodes = [
        *BACKBONE, node("ReduceMean", "features", "mean", keepdims=0), node("Greater", "mean limit", "bright"),
        node("If", "bright", "y", then_branch=body([node("Mul", "features limit", "scaled")], {}, "scaled"),
             else_branch=body([node("Neg", "features", "negative")], {}, "negative")),
    ]
    return make_model(nodes, {"x": PICTURE}, ["y"], 13, {"w": FILTERS, "limit": numpy.float32(0.5)}), {"x": PICTURE}


def loop_on_data() -> Case:
    """Halves a value until it is small: the number of rounds depends on data. The halves are stacked."""
    inner = body([
        node("Mul", "before half", "after"), node("Greater", "after half", "go"), node("Add", "rounds one", "more"),
        node("Identity", "after", "element"),
    ], {"number": "int64", "condition": "bool", "before": "float32", "rounds": "int64"}, "go after more element")
    nodes = [
        *BACKBONE, node("ReduceSum", "features", "total", keepdims=0), node("Greater", "total half", "start"),
        node("Loop", "- start total none", "last count stacked", body=inner),
    ]
    constants = {
        "w": FILTERS, "half": numpy.float32(0.5), "none": numpy.array(0), "one": numpy.array(1),
    }
    return make_model(nodes, {"x": PICTURE}, ["last", "count", "stacked"], 13, constants), {"x": PICTURE}


def top_k_of_data() -> Case:
    """k is how many features are over a limit; the k largest, cut to whole tens by Range and Slice."""
    nodes = [
        *BACKBONE, node("Reshape", "features flat", "row"), node("Greater", "row limit", "over"),
        node("Cast", "over", "ones", to=7), node("ReduceSum", "ones", "k", keepdims=1),
        node("TopK", "row k", "values positions"), node("Squeeze", "k", "count"),
        node("Range", "start count ten", "tens"), node("Slice", "values start_1 k", "same"),
    ]
    constants = {
        "w": FILTERS, "flat": numpy.array([-1]), "limit": numpy.float32(1), "start": numpy.array(0),
        "ten": numpy.array(10), "start_1": numpy.array([0]),
    }
    return make_model(nodes, {"x": PICTURE}, ["values", "positions", "tens", "same"], 13, constants), {"x": PICTURE}


def integers() -> Case:
    """64-bit integers over 2**24 that reach the host, and a float64 input that it reads."""
    ids = numpy.array([2**40 + 1, 7, 2**53 + 1, -5])
    nodes = [
        *BACKBONE, node("ReduceMax", "features", "most", axes=[0, 2, 3], keepdims=0),
        node("Slice", "most from to", "four"), node("Greater", "four limit", "over"), node("Add", "ids ids", "twice"),
        node("Compress", "twice over", "chosen"), node("Compress", "doubles over", "kept_doubles"),
        node("Mul", "chosen big", "product"),
    ]
    constants = {
        "w": FILTERS, "from": numpy.array([0]), "to": numpy.array([4]), "limit": numpy.float32(2),
        "big": numpy.array(2**9 + 1),
    }
    given = {"x": PICTURE, "ids": ids, "doubles": numpy.array([0.1, 1e300, -1e-300, 3.0])}
    return make_model(nodes, given, ["chosen", "kept_doubles", "product"], 13, constants), given


def two_stage() -> Case:
    """A convolution, a crop and a product for each place that was found."""
    nodes = [
        *BACKBONE, node("Reshape", "features flat", "row"), node("Greater", "row limit", "over"),
        node("NonZero", "over", "places"), node("Transpose", "places", "column"),
        node("Gather", "features zeros", "copies"), node("Mul", "column zero", "zero_column"),
        node("Squeeze", "zero_column axis", "zeros"), node("Conv", "copies second", "conv_2", pads=[0, 1, 1, 0]),
        node("GlobalAveragePool", "conv_2", "pooled"), node("Flatten", "pooled", "rows"),
        node("Gemm", "rows matrix bias", "logits", transB=1), node("Softmax", "logits", "y", axis=1),
    ]
    random = numpy.random.default_rng(6)
    constants = {
        "w": FILTERS, "flat": numpy.array([-1]), "limit": numpy.float32(2.5), "zero": numpy.array(0),
        "axis": numpy.array([1]), "second": random.uniform(-1, 1, (6, 8, 2, 2)).astype(numpy.float32),
        "matrix": random.uniform(-1, 1, (5, 6)).astype(numpy.float32), "bias": numpy.float32([0, 1, 2, 3, 4]),
    }
    return make_model(nodes, {"x": PICTURE}, ["y"], 13, constants), {"x": PICTURE}


def crops() -> Case:
    """Faster R-CNN's second stage: regions by suppression, RoiAlign, two products and two heads, boxes and classes."""
    random = numpy.random.default_rng(7)
    nodes = [
        *BACKBONE, node("Conv", "features head", "maps"), node("Reshape", "maps flat", "rows"),
        node("Split", "rows parts", "corners logits", axis=1), node("Transpose", "corners", "boxes", perm=[0, 2, 1]),
        node("ReduceMax", "logits", "scores", axes=[1], keepdims=1),
        node("NonMaxSuppression", "boxes scores most overlap least", "picked"),
        node("Gather", "picked two", "number", axis=1), node("Squeeze", "boxes zero", "all_boxes"),
        node("Gather", "all_boxes number", "regions"), node("Gather", "picked zero_0", "batch", axis=1),
        node("RoiAlign", "features regions batch", "crops", output_height=4, output_width=4, sampling_ratio=2),
        node("Flatten", "crops", "flat_crops"), node("Gemm", "flat_crops w1 b1", "hidden", transB=1),
        node("Relu", "hidden", "active"), node("MatMul", "active w2", "product"), node("Add", "product b2", "second"),
        node("Relu", "second", "deep"), node("Gemm", "deep w3 b3", "class_logits"),
        node("Gemm", "deep w4", "shifts"), node("Softmax", "class_logits", "classes", axis=-1),
        node("Mul", "regions half", "moved_regions"), node("Add", "shifts moved_regions", "found"),
    ]

    def drawn(*shape: int) -> Any:
        return random.uniform(-0.3, 0.3, shape).astype(numpy.float32)

    constants = {
        "w": FILTERS, "head": HEAD, "flat": numpy.array([1, 7, 64]), "parts": numpy.array([4, 3]),
        "most": numpy.array([40]), "overlap": numpy.float32([0.6]), "least": numpy.float32([2]), "two": numpy.array(2),
        "zero": numpy.array([0]), "zero_0": numpy.array(0), "w1": drawn(48, 128), "b1": drawn(48), "w2": drawn(48, 96),
        "b2": drawn(96), "w3": drawn(96, 5), "b3": drawn(5), "w4": drawn(96, 4), "half": numpy.float32(0.5),
    }
    return make_model(nodes, {"x": PICTURE}, ["classes", "found"], 13, constants), {"x": PICTURE}


def convolutions_in_bodies() -> Case:
    """Convolutions in the branches of an If of two shapes, and in a Loop of as many rounds as data say."""
    random = numpy.random.default_rng(8)
    turn = body([
        node("Conv", "before turn_filters", "turned", pads=[1, 1, 1, 1]), node("Tanh", "turned", "after"),
        node("ReduceMax", "after", "size", keepdims=0), node("Greater", "size limit", "go"),
    ], {"number": "int64", "condition": "bool", "before": ("float32", (1, 8, 8, 8))}, "go after")
    nodes = [
        *BACKBONE, node("ReduceMean", "features", "mean", keepdims=0), node("Greater", "mean limit", "bright"),
        node("If", "bright", "y",
             then_branch=body([node("Conv", "features narrow", "n"), node("Relu", "n", "active")], {}, "active"),
             else_branch=body([node("Conv", "features wide", "w_0")], {}, "w_0")),
        node("Softmax", "y", "shares", axis=1), node("Loop", "rounds bright features", "last", body=turn),
    ]
    constants = {
        "w": FILTERS, "limit": numpy.float32(0.4), "rounds": numpy.array(5),
        "narrow": random.uniform(-1, 1, (4, 8, 3, 3)).astype(numpy.float32),
        "wide": random.uniform(-1, 1, (5, 8, 1, 1)).astype(numpy.float32),
        "turn_filters": random.uniform(-0.2, 0.2, (8, 8, 3, 3)).astype(numpy.float32),
    }
    return make_model(nodes, {"x": PICTURE}, ["shares", "last"], 13, constants), {"x": PICTURE}


def host_alone() -> Case:
    """Nothing is left for the device."""
    x = numpy.float32([[0, 2, 0], [3, 0, 1]])
    return make_model([node("NonZero", "x", "y"), node("Cast", "y", "z", to=1)], {"x": x}, ["y", "z"], 13), {"x": x}


CASES: dict[str, Callable[[], Case]] = {
    "detector": detector, "non_zero": non_zero, "if": if_on_data, "loop": loop_on_data, "top_k": top_k_of_data,
    "integers": integers, "two_stage": two_stage, "host_alone": host_alone,
    "crops": crops, "convolutions_in_bodies": convolutions_in_bodies,
}
