"""Bounds on what a model may ask of the import: a line instead of a minute or of all memory."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy
import onnx
import onnx.helper
import pytest
from support import assert_close, make_input, make_model, run_model

from imgconv import limits
from imgconv.errors import ConfigError, ModelError, UnsupportedError
from imgconv.graph.evaluate import evaluate_graph
from imgconv.limits import Limits, load_budget
from imgconv.onnx_import import import_onnx
from imgconv.passes import run_passes

node = onnx.helper.make_node
X = numpy.random.default_rng(0).normal(size=(1, 3, 8, 8)).astype(numpy.float32)
WEIGHT = numpy.ones((2, 3, 3, 3), numpy.float32)


def chain(length: int) -> onnx.ModelProto:
    nodes = [node("Tanh", [f"t{i}"], [f"t{i + 1}"]) for i in range(length)]
    return make_model(nodes, {"t0": X}, [f"t{length}"], 17)


def single(op_type: str, opset: int = 17, constants: Any = {}, x: Any = X, **attributes: Any) -> onnx.ModelProto:
    """A model of one node, which reads x and the constants."""
    return make_model([node(op_type, ["x", *constants], ["y"], **attributes)], {"x": x}, ["y"], opset, constants)


def nested(op_type: str, levels: int) -> onnx.ModelProto:
    """Functions of which each calls the one below it twice."""
    functions = []
    for level in range(levels):
        called, domain = (f"F{level - 1}", "own") if level else (op_type, "")
        inner = [node(called, ["a"], ["b"], domain=domain), node(called, ["b"], ["c"], domain=domain)]
        versions = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("own", 1)]
        functions.append(onnx.helper.make_function("own", f"F{level}", ["a"], ["c"], inner, versions))
    model = make_model([node(f"F{levels - 1}", ["x"], ["y"], domain="own")], {"x": X}, ["y"], 17)
    model.functions.extend(functions)
    model.opset_import.append(onnx.helper.make_opsetid("own", 1))
    return model


def ifs(levels: int) -> onnx.ModelProto:
    """Branches in branches."""
    inner = [node("Relu", ["x"], ["y0"])]
    for level in range(levels):
        made = [onnx.ValueInfoProto(name=f"y{level}")]
        body = onnx.helper.make_graph(inner, "body", [], made)
        other = onnx.helper.make_graph([node("Relu", ["x"], [f"y{level}"])], "body", [], made)
        inner = [node("If", ["yes"], [f"y{level + 1}"], then_branch=body, else_branch=other)]
    return make_model(inner, {"x": X}, [f"y{levels}"], 17, {"yes": numpy.array(True)})


def growing(trips: int, first: str) -> onnx.ModelProto:
    """A loop whose tensor doubles."""
    body = onnx.helper.make_graph(
        [node("Concat", ["a", "a"], ["b"], axis=0), node("Identity", ["c"], ["d"])], "body",
        [make_input("i", "i8", []), make_input("c", "?", []), onnx.ValueInfoProto(name="a")],
        [onnx.ValueInfoProto(name="d"), onnx.ValueInfoProto(name="b")],
    )
    nodes = [node("Loop", ["m", "", first], ["z"], body=body), node("ReduceMax", ["z"], ["q"], keepdims=0)]
    constants = {"m": numpy.array(trips), "w": numpy.ones(8, numpy.float32)}
    return make_model([*nodes, node("Add", ["x", "q"], ["y"])], {"x": X}, ["y"], 17, constants)


def test_long_chains_are_refused_before_they_are_read() -> None:
    with pytest.raises(UnsupportedError, match=r"more than 50000 nodes; load\(..., limits=Limits\(nodes=...\)\)"):
        import_onnx(chain(50_001))


def test_the_caller_sets_the_limits() -> None:
    with load_budget(Limits(nodes=20)):
        assert len(import_onnx(chain(20)).nodes) == 20
    with load_budget(Limits(nodes=19)), pytest.raises(UnsupportedError, match="more than 19 nodes"):
        import_onnx(chain(20))
    with load_budget(Limits(bytes=X.nbytes)):
        import_onnx(chain(3))
    with load_budget(
        Limits(bytes=X.nbytes - 1)), pytest.raises(UnsupportedError, match=f"takes {X.nbytes} bytes, more"
    ):
        import_onnx(chain(3))
    with load_budget(Limits(seconds=1e-9)), pytest.raises(UnsupportedError, match="exceeds the limit of 1e-09 s"):
        import_onnx(chain(3))
    with load_budget(Limits(seconds=1e-9)), pytest.raises(UnsupportedError, match="exceeds the limit"):
        run_passes(GRAPH)


GRAPH = import_onnx(chain(1))


@pytest.mark.parametrize("name", ["bytes", "seconds", "nodes"])
def test_limits_that_are_none(name: str) -> None:
    with pytest.raises(ConfigError, match=f"limits: {name} is 0"):
        Limits(**{name: 0})


@pytest.mark.parametrize("levels", [30, 400])
def test_functions_that_double(levels: int) -> None:
    with pytest.raises(UnsupportedError, match="more than 50000 nodes"):
        import_onnx(nested("Relu", levels))
    found = run_model(nested("Relu", 3), {"x": X})
    assert_close(found, {"y": numpy.maximum(X, 0)}, 0)


def test_a_function_that_calls_itself() -> None:
    model = nested("Relu", 2)
    model.functions[0].node[0].op_type, model.functions[0].node[0].domain = "F1", "own"
    with pytest.raises(ModelError, match="the function 'F[01]' calls itself"):
        import_onnx(model)


def test_branches_in_branches_are_read_once() -> None:
    assert_close(run_model(ifs(24), {"x": X}), {"y24": numpy.maximum(X, 0)}, 0)


def test_a_loop_that_grows_a_constant_is_left_to_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FOLDED_BYTES", 2**16)
    graph = run_passes(import_onnx(growing(14, "w")))
    largest = max(array.nbytes for array in graph.constants.values())
    assert largest <= 2**16 < 8 * 4 * 2**14 and any("Loop" in name for n in graph.nodes for name in n.origin)
    assert_close(evaluate_graph(graph, {"x": X}), {"y": X + 1}, 0)


def test_constants_that_double_take_no_more_memory_than_a_tensor_may() -> None:
    """Folded constants have at most `bytes` in all, and take at most as much meanwhile."""
    nodes = [node("Concat", [f"t{i}", f"t{i}"], [f"t{i + 1}"], axis=0) for i in range(40)]
    nodes += [node("ReduceSum", ["t40"], ["q"], keepdims=0), node("Add", ["x", "q"], ["y"])]
    model, bound = make_model(nodes, {"x": X}, ["y"], 17, {"t0": numpy.ones(4, numpy.float32)}), 2**24
    tracemalloc.start()
    try:
        with load_budget(Limits(bytes=bound)), pytest.raises(UnsupportedError, match=r"Concat_\d+': a tensor float32"):
            import_onnx(model)
        assert tracemalloc.get_traced_memory()[1] < 2 * bound
    finally:
        tracemalloc.stop()


def test_a_loop_that_grows_an_input_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"node 'Loop_0/Concat_0': a tensor float32 .* takes \d+ bytes"):
        import_onnx(growing(40, "x"))


def test_a_network_of_constants_is_left_to_the_device() -> None:
    weight = numpy.ones((64, 64, 3, 3), numpy.float32) / 576
    nodes = [node("Conv", [f"t{i}", "w"], [f"t{i + 1}"], pads=[1] * 4) for i in range(4)]
    nodes += [node("ReduceMean", ["t4"], ["q"], keepdims=0), node("Add", ["x", "q"], ["y"])]
    constants = {"t0": numpy.ones((1, 64, 224, 224), numpy.float32), "w": weight}
    graph = run_passes(import_onnx(make_model(nodes, {"x": X}, ["y"], 17, constants)))
    assert sum(str(n).count("convolution") for n in graph.nodes) >= 3


HUGE = {
    "pad": lambda n: single("Pad", constants={"p": numpy.array([0, 0, n, 0, 0, 0, 0, 0])}),
    "pad edge": lambda n: single("Pad", constants={"p": numpy.array([0, 0, n, 0, 0, 0, 0, 0])}, mode="edge"),
    "conv pads": lambda n: single("Conv", constants={"w": WEIGHT}, pads=[n, 0, 0, 0]),
    "conv dilations": lambda n: single("Conv", constants={"w": WEIGHT}, pads=[n, 0, n, 0], dilations=[n, 1]),
    "max kernel": lambda n: single("MaxPool", kernel_shape=[n, 1], pads=[n // 2, 0, n // 2, 0]),
    "average kernel": lambda n: single("AveragePool", kernel_shape=[n, 1], auto_pad="SAME_UPPER"),
    "average pads": lambda n: single("AveragePool", kernel_shape=[1, 1], pads=[n, 0, n, 0], count_include_pad=1),
    "expand": lambda n: single("Expand", constants={"s": numpy.array([n, 3, 8, 8])}),
    "resize": lambda n: make_model(
        [node("Resize", ["x", "", "", "s"], ["y"])], {"x": X}, ["y"], 17, {"s": numpy.array([1, 3, n, 8])}),
    "resize to many": lambda n: make_model(
        [node("Resize", ["x", "", "", "s"], ["y"], mode="cubic")], {"x": X}, ["y"], 17,
        {"s": numpy.array([1, 3, n // 2**8, 8])}),
    "one hot": lambda n: make_model(
        [node("OneHot", ["x", "d", "v"], ["y"])], {"x": numpy.zeros(3, numpy.int64)}, ["y"], 17,
        {"d": numpy.array(n), "v": numpy.float32([0, 1])}),
    "constant of shape": lambda n: make_model(
        [node("ConstantOfShape", ["s"], ["c"]), node("Add", ["x", "c"], ["y"])], {"x": X}, ["y"], 17,
        {"s": numpy.array([n])}),
    "range": lambda n: make_model(
        [node("Range", ["a", "b", "c"], ["r"]), node("ReduceSum", ["r"], ["y"])], {"x": X}, ["y"], 17,
        {"a": numpy.array(0), "b": numpy.array(n), "c": numpy.array(1)}),
    "roi align": lambda n: make_model(
        [node("RoiAlign", ["x", "r", "b"], ["y"], sampling_ratio=n)], {"x": X, "r": numpy.zeros((1, 4), "f")}, ["y"],
        17, {"b": numpy.array([0])}),
    "roi align of a huge region": lambda n: make_model(
        [node("RoiAlign", ["x", "r", "b"], ["y"], output_height=7, output_width=7)], {"x": X}, ["y"], 17,
        {"r": numpy.float32([[0, 0, 1e6, 1e6]]), "b": numpy.array([0])}),
}


@pytest.mark.parametrize("exponent", [31, 62])
@pytest.mark.parametrize("name", HUGE)
def test_huge_numbers_are_refused_at_once(name: str, exponent: int) -> None:
    with pytest.raises(ModelError, match="more than|too large"):
        import_onnx(HUGE[name](2**exponent))


@pytest.mark.parametrize("size", [2**31, 2**62, 7, 8])
def test_lrn_of_more_channels_than_there_are(size: int) -> None:
    found = run_model(single("LRN", size=size, alpha=float(size)), {"x": X})["y"]
    assert_close({"y": found}, {"y": X / (1 + (X * X).sum(axis=1, keepdims=True)) ** 0.75}, 1e-6)
