"""Strings that a model only passes through, from constants to its outputs, beside onnxruntime."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path

import numpy
import onnx
import pytest
from onnx import TensorProto
from onnx.helper import make_node, make_tensor, make_tensor_value_info

import imgconv
from imgconv.cl.device import DeviceInfo
from imgconv.commands.picture_result import PictureResult, as_json, styled_lines, save_arrays
from imgconv.errors import ModelError, UnsupportedError
from imgconv.reports.verify import _host_errors
from tests.support import assert_close, run_model, run_oracle

X = numpy.random.default_rng(4).uniform(-1, 1, (2, 4, 5, 5)).astype(numpy.float32)
TEXT = TensorProto.STRING
LABELS = ("cat", "dög", "fox", "owl")


def text(name: str, shape: list[int], *texts: str) -> TensorProto:
    return make_tensor(name, TensorProto.STRING, shape, [t.encode() for t in texts])


def number(name: str, *values: int) -> TensorProto:
    return make_tensor(name, TensorProto.INT64, [len(values)], values)


def branch(name: str, value: str) -> onnx.GraphProto:
    output = make_tensor_value_info(name, TensorProto.STRING, [1])
    node = make_node("Identity", ["inner"], [name])
    return onnx.helper.make_graph([node], name, [], [output], [text("inner", [1], value)])


BEST = [make_node("GlobalMaxPool", ["x"], ["p"]), make_node("Flatten", ["p"], ["s"])]
BEST += [make_node("ArgMax", ["s"], ["i"], axis=1, keepdims=0)]
# The nodes behind the scores `s` (2, 4) and the best of each row, `i`, and the initializers.
CASES: dict[str, tuple[list[onnx.NodeProto], list[TensorProto]]] = {
    "label": ([make_node("Gather", ["labels", "i"], ["y"])], [text("labels", [4], *LABELS)]),
    "row of a table": (
        [make_node("Gather", ["labels", "i"], ["rows"], axis=1), make_node("Transpose", ["rows"], ["y"])],
        [text("labels", [2, 4], *LABELS, *(each.upper() for each in LABELS))],
    ),
    "one": (
        [
            make_node("ReduceMax", ["i"], ["last"], keepdims=0), make_node("Gather", ["labels", "last"], ["one"]),
            make_node("Unsqueeze", ["one", "zero"], ["y"]),
        ],
        [text("labels", [4], *LABELS), number("zero", 0)],
    ),
    "where": (
        [make_node("Greater", ["s", "half"], ["c"]), make_node("Where", ["c", "yes", "no"], ["y"])],
        [make_tensor("half", 1, [], [0.9]), text("yes", [], "yes"), text("no", [1], "")],
    ),
    "constants": (
        [
            make_node("Constant", [], ["a"], value_strings=["one", "two"]),
            make_node("Constant", [], ["b"], value=text("", [2], "three", "four")),
            make_node("Constant", [], ["c"], value_string="five"), make_node("Reshape", ["c", "one"], ["d"]),
            make_node("Concat", ["a", "b", "d"], ["all"], axis=0), make_node("Gather", ["all", "i"], ["y"]),
        ],
        [number("one", 1)],
    ),
    "if": (
        [
            make_node("ReduceMax", ["s"], ["m"], keepdims=0), make_node("Less", ["m", "zero"], ["c"]),
            make_node("If", ["c"], ["y"], then_branch=branch("then", "low"), else_branch=branch("else", "high")),
        ],
        [make_tensor("zero", 1, [], [0.0])],
    ),
    "straight": ([make_node("Identity", ["labels"], ["y"])], [text("labels", [2, 0])]),
}


def model_of(name: str, opset: int = 17) -> onnx.ModelProto:
    nodes, stored = CASES[name]
    kinds = {"s": TensorProto.FLOAT, "y": TensorProto.STRING}
    outputs = [make_tensor_value_info(name, kind, None) for name, kind in kinds.items()]
    x = make_tensor_value_info("x", TensorProto.FLOAT, X.shape)
    graph = onnx.helper.make_graph([*BEST, *nodes], "g", [x], outputs, stored)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=8)


def assert_same(found: Mapping[str, numpy.ndarray], expected: Mapping[str, numpy.ndarray]) -> None:
    assert_close({"s": found["s"]}, {"s": expected["s"]}, 1e-6)
    assert found["y"].dtype == object and found["y"].shape == expected["y"].shape
    assert found["y"].tolist() == expected["y"].tolist()


@pytest.mark.parametrize("name", CASES)
def test_as_onnxruntime(name: str, device: DeviceInfo) -> None:
    model = model_of(name)
    before = model.SerializeToString()
    loaded = imgconv.load(model, device)
    assert loaded.outputs["y"].dtype == "string" and model.SerializeToString() == before
    for x in (X, -X):
        assert_same(run_model(model, {"x": x}), run_oracle(model, {"x": x}))
        assert_same(loaded.run({"x": x}), run_oracle(model, {"x": x}))
        assert_same(loaded.submit({"x": x}).result(), run_oracle(model, {"x": x}))


def test_an_old_opset(device: DeviceInfo) -> None:
    """Constant has strings since opset 12."""
    model = model_of("label", 9)
    assert_same(imgconv.load(model, device).run({"x": X}), run_oracle(model, {"x": X}))


@pytest.mark.parametrize("name", CASES)
def test_in_a_compiled_file(name: str, device: DeviceInfo, tmp_path: Path) -> None:
    model = model_of(name)
    imgconv.load(model, device).save(tmp_path / "m.imgconv")
    assert_same(imgconv.load(tmp_path / "m.imgconv", device).run({"x": X}), run_oracle(model, {"x": X}))


def test_strict_refuses_them(device: DeviceInfo) -> None:
    with pytest.raises(UnsupportedError, match="strict: .*strings are the host's"):
        imgconv.load(model_of("label"), device, strict=True)


def test_what_computes_with_them_is_refused(device: DeviceInfo) -> None:
    model = model_of("label")
    model.graph.node.append(make_node("StringConcat", ["y", "y"], ["z"]))
    model.graph.output.append(make_tensor_value_info("z", TensorProto.STRING, None))
    model.opset_import[0].version = 20
    with pytest.raises(ModelError, match="StringConcat"):
        imgconv.load(model, device)


def behind_labels(*nodes: onnx.NodeProto, dtype: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """A model whose output `z` these nodes make of the strings `y`."""
    model = model_of("label", 20)
    model.graph.node.extend(nodes)
    model.graph.output.append(make_tensor_value_info("z", dtype, None))
    return model


FOUR = make_node("Constant", [], ["four"], value_ints=[1, 1, 1, 2])


@pytest.mark.parametrize("nodes", [
    [FOUR, make_node("Reshape", ["y", "four"], ["r"]), make_node("DepthToSpace", ["r"], ["z"], "it", blocksize=1)],
    [make_node("Concat", ["y", "y"], ["r"], axis=0), make_node("NonZero", ["r"], ["z"], "it")],
    [make_node("Add", ["y", "y"], ["z"], "it")],
    [make_node("SequenceConstruct", ["y", "y"], ["q"]), make_node("SequenceAt", ["q", "zero"], ["a"]),
     make_node("Relu", ["a"], ["z"], "it")],
    [make_node("Identity", ["y"], ["u"]), make_node("ReduceMax", ["u"], ["z"], "it")],
], ids=lambda nodes: nodes[-1].op_type)
def test_operators_without_strings_are_refused_at_load(device: DeviceInfo, nodes: list[onnx.NodeProto]) -> None:
    model = behind_labels(*nodes)
    model.graph.initializer.append(make_tensor("zero", TensorProto.INT64, [], [0]))
    with pytest.raises(UnsupportedError, match=f"{nodes[-1].op_type}: not supported for strings") as caught:
        imgconv.load(model, device)
    assert caught.value.node == "it"


def test_strings_in_a_body_are_found_at_load(device: DeviceInfo) -> None:
    """A Loop whose state is strings, beside one that sums them."""
    state = make_tensor_value_info("state", TensorProto.STRING, None)
    head = [make_tensor_value_info("n", TensorProto.INT64, []), make_tensor_value_info("c", TensorProto.BOOL, [])]
    going = make_node("Identity", ["c"], ["on"])

    def model(*body: onnx.NodeProto) -> onnx.ModelProto:
        outputs = [make_tensor_value_info("on", TensorProto.BOOL, []),
                   make_tensor_value_info("next", TensorProto.STRING, None)]
        inner = onnx.helper.make_graph([going, *body], "body", [*head, state], outputs)
        trips = make_node("ReduceMax", ["i"], ["trips"], keepdims=0)
        return behind_labels(trips, make_node("Loop", ["trips", "", "y"], ["z"], "loop", body=inner), dtype=TEXT)

    good = model(make_node("Identity", ["state"], ["next"]))
    assert imgconv.load(good, device).run({"x": X})["z"].dtype == object
    with pytest.raises(UnsupportedError, match="Add: not supported for strings, as 'state' holds") as caught:
        imgconv.load(model(make_node("Add", ["state", "state"], ["next"], "sum")), device)
    assert caught.value.node == "loop/sum"


def test_they_are_shown_and_saved(tmp_path: Path) -> None:
    labels = numpy.array([*LABELS, "a", "b"], object)
    outcome = PictureResult("", outputs={"y": labels})
    shown = json.loads(json.dumps(as_json(outcome)))["outputs"]["y"]
    assert (shown["dtype"], shown["texts"], shown["shape"]) == ("string", labels.tolist(), [6])
    assert list(styled_lines(outcome)) == [("  y string 6: cat, dög, fox, owl, a, ...", "")]
    save_arrays({"y": labels}, str(tmp_path / "y.npz"))
    with numpy.load(io.BytesIO((tmp_path / "y.npz").read_bytes())) as arrays:
        assert arrays["y"].tolist() == labels.tolist() and arrays["y"].dtype.kind == "U"


def test_verify_compares_them() -> None:
    mine = numpy.array(["cat", "dog"], object)
    other = numpy.array(["cat", "fox"], object)
    assert _host_errors("y", mine.copy(), mine).float_error == 0 and _host_errors("y", other, mine).float_error > 0
    assert _host_errors("y", mine[:1], mine).float_error == numpy.inf
    assert _host_errors("y", mine, mine, other).half_error > 0
