"""Export to ONNX, judged by onnxruntime: each operation, any view, each form of node, and networks pass by pass."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import onnx.checker
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import imgconv
from graphs import Network, Pass, const, inputs_of, networks, numbers
from imgconv.graph import view
from imgconv.graph.evaluate import evaluate_graph
from imgconv.graph.expression import NUMBER, OPERATIONS, TRUTH, Argument, Literal, apply
from imgconv.graph.nodes import (
    IDENTITY, Concatenation, Convolution, Gather, Graph, Load, Node, Operand, Operation, Product, Reduction, Value,
)
from imgconv.graph.view import View
from imgconv.onnx_export.nodes import REDUCTIONS
from imgconv.onnx_import import import_onnx
from imgconv.passes import PIPELINE
from imgconv.tensor import Tensor, build_graph, concatenate, convolution, elementwise, origin, where
from models import MODELS
from pass_by_pass import check_pass_by_pass
from support import OLD_ORACLE, OLD_ORACLE_REASON, assert_close, run_oracle
from test_view import CONSTRUCTORS


def check(graph: Graph, arrays: dict[str, Any], tolerance: float = 1e-5) -> onnx.ModelProto:
    """The exported graph is valid and gives in onnxruntime what the graph means in numpy."""
    model = imgconv.export_onnx(graph.validate())
    onnx.checker.check_model(model, full_check=True)
    assert_close(run_oracle(model, arrays), evaluate_graph(graph, arrays), tolerance)
    return model


def one_node(
    shape: tuple[int, ...], operation: Operation, operands: list[tuple[Any, View]], fill: float = 0.0,
    dtype: str = "float32", **rest: Any,
) -> tuple[Graph, dict[str, Any]]:
    """A graph of one node and its inputs: an array and a view of it for each operand."""
    arrays = {f"x{i}": array for i, (array, _) in enumerate(operands)}
    reads = tuple(Operand(name, seen, fill) for name, (_, seen) in zip(arrays, operands, strict=True))
    inputs = tuple(Value(name, array.shape, str(array.dtype)) for name, array in arrays.items())
    return Graph(inputs, ("y",), (Node(Value("y", shape, dtype), operation, reads, **rest),)), arrays


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


# Elementwise

SPECIAL = [0.0, -0.5, 0.5, 1.5, -1.5, 2.5, 1e-6, 1e10]
DOMAINS = {
    "acosh": (1.0, 4.0), "asin": (-1.0, 1.0), "acos": (-1.0, 1.0), "atanh": (-0.9, 0.9), "log": (0.1, 4.0),
    "log1p": (-0.9, 4.0), "sqrt": (0.0, 4.0), "reciprocal": (0.2, 4.0), "power": (0.2, 4.0), "tan": (-1.4, 1.4),
}
WIDE = {"floor", "ceil", "round", "truncate", "sign", "absolute", "negative", "tanh", "sigmoid", "erf"}


def arity(name: str) -> int:
    return max(n for n in (1, 2, 3) if f"{{{n - 1}}}" in OPERATIONS[name].opencl)


@pytest.mark.parametrize("name", OPERATIONS)
def test_each_operation(name: str) -> None:
    low, high = DOMAINS.get(name, (-3.0, 3.0))
    arrays = {f"x{i}": numbers(40, seed=i, low=low, high=high) for i in range(arity(name))}
    if name in WIDE:
        arrays["x0"][: len(SPECIAL)] = SPECIAL
    if OPERATIONS[name].onnx.gives == TRUTH or name == "where":
        arrays["x0"][::3] = 0
        arrays |= {"x1": numpy.where(arrays["x0"] > 1, arrays["x0"], arrays["x1"])} if arity(name) == 2 else {}
    if name in ("isnan", "isinf"):
        arrays["x0"][:3] = numpy.nan, numpy.inf, -numpy.inf
    if name.startswith(("shift", "bit")):
        arrays = {key: numpy.abs(array * 3).round() for key, array in arrays.items()}
    tensors = [Tensor.input(key, array.shape) for key, array in arrays.items()]
    check(build_graph({"y": elementwise(name, *tensors)}), arrays)


@pytest.mark.parametrize("name", [n for n, row in OPERATIONS.items() if row.onnx.operator and row.onnx.takes == NUMBER])
def test_whole_numbers_stay_exact(name: str) -> None:
    """2**40 + 1 is no float32; the quotient of integers is cut towards zero."""
    arrays = {"x0": numpy.array([2**40 + 1, -7, 7, 0, -(2**33) - 5]), "x1": numpy.array([2, 2, -2, 5, -3])}
    arrays["x2"] = arrays["x0"][::-1].copy()
    inputs = [Tensor.input(key, array.shape, "int64") for key, array in arrays.items()]
    operands = [inputs[0].cast("bool"), *inputs[1:]] if name == "where" else inputs[: arity(name)]
    check(build_graph({"y": elementwise(name, *operands, dtype="int64")}, inputs), arrays)


def test_a_whole_number_beside_a_float_is_one() -> None:
    x, n = Tensor.input("x", (4,)), Tensor.input("n", (4,), "int32")
    arrays = {"x": numbers(4), "n": numpy.array([-7, 3, 0, 8], "int32")}
    halves = elementwise("multiply", n, 0.5, dtype="float32")
    outputs = {"sum": x + n, "halves": halves, "more": (n + 1).cast("float32"), "cut": (x * 9).cast("int32")}
    check(build_graph(outputs, [x, n]), arrays)


@pytest.mark.parametrize("dtype", ["float16", "bool", "uint8", "int32", "int64"])
def test_values_keep_their_dtype(dtype: str) -> None:
    array = numpy.array([[0, 1, 2], [3, 0, 1]], dtype)
    x = Tensor.input("x", (2, 3), dtype)
    outputs = {"moved": x.transpose(1, 0), "padded": x.pad([0, 1], [1, 0], 1), "joined": concatenate([x, x], 1)}
    outputs["chosen"] = where(x.cast("bool"), x, x.slice(0, 1, -1, -1))
    check(build_graph(outputs), {"x": array})


def test_half_is_computed_in_float() -> None:
    """The square of 300 is no half, its root is one."""
    root = apply("sqrt", apply("multiply", Argument(0), Argument(0)))
    graph, arrays = one_node(
        (2,), Load(), [(numpy.array([300, 7], "float16"), view.identity((2,)))], dtype="float16", epilogue=root
    )
    assert operators(check(graph, arrays)) == ["Cast", "Mul", "Sqrt", "Cast"]


def test_literals_of_any_size() -> None:
    x = Tensor.input("x", (3,))
    tiny = x * 1e-30 + 3.14159265358979
    outputs = {"tiny": tiny, "infinite": x.minimum(-numpy.inf), "number": (x * 0).maximum(2.5)}
    check(build_graph(outputs), {"x": numbers(3)}, 1e-7)


def test_relu_and_clip_are_written_as_such() -> None:
    x = Tensor.input("x", (4,))
    arrays = {"x": numpy.array([-numpy.inf, -1, 9, numpy.inf], "float32")}
    assert operators(check(build_graph({"y": x.relu()}), arrays)) == ["Relu"]
    assert operators(check(build_graph({"y": x.clip(0, 6)}), arrays)) == ["Relu", "Clip"]
    assert operators(check(build_graph({"y": x.clip(-1, 6)}), arrays)) == ["Max", "Min"]


def test_parts_that_are_shared_are_computed_once() -> None:
    e = apply("exp", Argument(0))
    graph, arrays = one_node((5,), Load(), [(numbers(5), view.identity((5,)))], epilogue=apply("multiply", e, e))
    assert operators(check(graph, arrays)) == ["Exp", "Mul"]


def test_an_epilogue_that_reads_nothing() -> None:
    graph, arrays = one_node((2, 3), Load(), [(numbers(2, 3), view.identity((2, 3)))], epilogue=Literal(4.0))
    check(graph, arrays)


# Views

def counted(shape: tuple[int, ...], dtype: str) -> Any:
    return (1 + numpy.arange(numpy.prod(shape, dtype=int))).reshape(shape).astype(dtype)


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_any_view(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    dtype = data.draw(st.sampled_from(["float32", "float32", "float16", "int64", "bool", "uint8"]))
    source = counted(shape, dtype)
    seen, moved = view.identity(shape), source
    for _ in range(data.draw(st.integers(1, 4))):
        made, moved = data.draw(data.draw(st.sampled_from(CONSTRUCTORS))(moved))
        seen = made.over(seen)
        if moved.size > 3000 or moved.ndim > 7:
            break
    fill = data.draw(st.sampled_from([0.0, 1.0, 7.0]))
    graph, arrays = one_node(seen.shape, Load(), [(source, seen)], fill, dtype)
    check(graph, arrays, 0)
    # The same of a constant, beside something that broadcasts.
    constant = Operand("c", seen, fill)
    joined = replace(
        graph.nodes[0], epilogue=apply("add", IDENTITY, Argument(1)), epilogue_operands=(constant,),
        output=Value("y", seen.shape, "float32"),
    )
    check(replace(graph, nodes=(joined,), constants={"c": numbers(*shape)}), arrays, 1e-6)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (view.identity((2, 3)), ["Identity"]),
        (view.reshape((2, 6), (3, 4)), ["Reshape"]),
        (view.reshape((1, 6, 1), (6,)), ["Reshape"]),
        (view.transpose((2, 3, 4), (2, 0, 1)), ["Transpose"]),
        (view.transpose((1, 3, 4, 5), (0, 2, 3, 1)), ["Transpose"]),
        (view.transpose((1, 3, 1, 4), (2, 1, 3, 0)), ["Reshape"]),
        (view.expand((3, 1), (2, 3, 4)), ["Reshape", "Expand"]),
        (view.slice_((5, 6), (1, 5), (2, 6), (2, -1)), ["Slice", "Slice"]),
        (view.pad((2, 3), (1, 0), (0, 2)), ["Pad"]),
        (view.pad((4, 5), (-1, 2), (0, 0)), ["Slice", "Gather", "Where"]),
        (view.take((2, 5), 1, (4, 0, 1)), ["Gather"]),
        (view.windows((1, 2, 9), (4,), (3,), (2,), (1,), (0,)), ["Gather", "Reshape"]),
        (view.windows((2, 8, 8), (3, 3), (3, 3), (2, 2), (1, 1), (0, 0)), ["Gather", "Gather", "Reshape", "Transpose"]),
    ],
)
def test_views_of_one_kind_are_few_operators(seen: View, expected: list[str]) -> None:
    graph, arrays = one_node(seen.shape, Load(), [(counted(seen.source, "float32"), seen)])
    assert operators(check(graph, arrays, 0)) == expected


def test_depth_to_space_is_three_operators() -> None:
    graph = build_graph({"y": Tensor.input("x", (1, 8, 3, 5)).depth_to_space(2)})
    assert operators(check(graph, inputs_of(graph), 0)) == ["Reshape", "Transpose", "Reshape"]


def test_empty_and_scalar_tensors() -> None:
    x, s = Tensor.input("x", (2, 0, 3)), Tensor.input("s", ())
    outputs = {
        "flat": x.reshape(0, 6), "zero": x.sum([1]), "padded": x.pad([0, 1, 0], [0, 1, 0], 3.0),
        "wide": s.expand(2, 3), "twice": s * 2, "row": s.reshape(1, 1),
    }
    check(build_graph(outputs), {"x": numpy.zeros((2, 0, 3), "float32"), "s": numpy.array(1.5, "float32")})


# Forms of nodes

def two(data: st.DataObject, low: int, high: int) -> tuple[int, int]:
    return data.draw(st.tuples(st.integers(low, high), st.integers(low, high)))


@pytest.mark.skipif(OLD_ORACLE, reason=OLD_ORACLE_REASON)
@given(st.data())
@settings(max_examples=150, deadline=None)
def test_convolutions_of_any_size(data: st.DataObject) -> None:
    """The output may be shorter or longer than the pads before it suggest, by less or more than a stride."""
    groups, each_in, each_out = (data.draw(st.integers(1, 3)) for _ in range(3))
    operation = Convolution(two(data, 1, 3), two(data, 1, 2), two(data, -1, 3), groups, data.draw(st.booleans()))
    x = numbers(data.draw(st.integers(1, 2)), groups * each_in, *two(data, 1, 6))
    first, second = (groups * each_in, each_out) if operation.transposed else (groups * each_out, each_in)
    w = numbers(first, second, *two(data, 1, 3), seed=1)
    shape = (x.shape[0], groups * each_out, *two(data, 1, 9))
    graph, arrays = one_node(shape, operation, [(x, view.identity(x.shape)), (w, view.identity(w.shape))])
    check(graph, arrays)


def test_a_convolution_of_scaled_channels() -> None:
    x, w, factor = numbers(2, 3, 5, 5), numbers(4, 3, 3, 3), numbers(2, 3, 1, 1)
    operands = [(a, view.identity(a.shape)) for a in (x, w, factor)]
    graph, arrays = one_node((2, 4, 5, 5), Convolution(pads=(1, 1)), operands)
    assert operators(check(graph, arrays)) == ["Mul", "Conv"]


def test_usual_convolutions_need_one_operator() -> None:
    x = Tensor.input("x", (1, 4, 9, 9))
    outputs = {
        "same": x.conv2d(const(6, 4, 3, 3), padding=1), "half": x.conv2d(const(6, 4, 3, 3), stride=2),
        "even": x.slice(2, 0, 8).conv2d(const(6, 4, 3, 3), stride=2, padding=1),
        "up": convolution(x, const(4, 6, 3, 3), [2, 2], [1, 1, 0, 0], [1, 1], output=[18, 18], transposed=True),
    }
    graph = build_graph(outputs)
    assert sorted(operators(check(graph, inputs_of(graph)))) == ["Conv", "Conv", "Conv", "ConvTranspose", "Slice"]


@pytest.mark.parametrize("kind", REDUCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "int64", "float16"])
def test_reductions(kind: str, dtype: str) -> None:
    x = Tensor.input("x", (2, 3, 4, 5), dtype)
    square = apply("multiply", Argument(0), Argument(0))
    outputs = {
        "all": x.reduce(kind), "last": x.reduce(kind, [3]), "kept": x.reduce(kind, [1, 3], keepdims=True),
        "squares": x.reduce(kind, [0], body=square), "doubled": x.reduce(kind, [2], epilogue=apply("add", _A, _A)),
    }
    array = numpy.ones(x.shape, dtype)
    array[:, :, 1, 2:] = 2
    arrays = {"x": array}
    assert set(operators(check(build_graph(outputs), arrays))) <= {
        REDUCTIONS[kind], "Mul", "Add", "Reshape", "Cast"
    }


_A = Argument(0)


def test_positions_of_the_largest() -> None:
    array = numpy.random.default_rng(4).integers(0, 3, (2, 3, 4, 5)).astype(numpy.float32)
    x = Tensor.input("x", array.shape)
    pooled = x.pool("argmax", [2, 3], [2, 1], [1] * 4)
    outputs = {"last": x.argmax(3), "of_squares": (x * x).argmax(1), "window": pooled}
    model = check(build_graph(outputs), {"x": array})
    assert operators(model).count("ArgMax") == 3


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_gathers_through_any_view(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    array, (seen, moved) = numbers(*shape), data.draw(data.draw(st.sampled_from(CONSTRUCTORS))(numbers(*shape)))
    rank = data.draw(st.integers(0, moved.ndim - 1))
    assume(0 < moved.size <= 3000)
    count = moved.ndim - rank
    fill = data.draw(st.sampled_from([0.0, -1.5]))
    operands = [(array, seen)]
    for number in range(count):
        index = numbers(*moved.shape[:rank], seed=number, low=-1.4, high=moved.shape[rank + number] + 0.4)
        whole = data.draw(st.booleans())
        index = numpy.asarray(numpy.rint(index), numpy.int64) if whole else index
        operands.append((index, view.identity(moved.shape[:rank])))
    check(*one_node(moved.shape[:rank], Gather(), operands, fill))


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_reductions_of_two_operands_through_any_views(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    first, moved = data.draw(data.draw(st.sampled_from(CONSTRUCTORS))(numbers(*shape)))
    assume(moved.size <= 3000)
    second = view.expand(tuple(n if data.draw(st.booleans()) else 1 for n in moved.shape), moved.shape)
    rank = data.draw(st.integers(0, moved.ndim - 1))
    kind = data.draw(st.sampled_from(list(REDUCTIONS)))
    body = apply("add", Argument(1), apply("tanh", Argument(0))) if data.draw(st.booleans()) else Argument(1)
    operands = [(numbers(*shape), first), (numbers(*second.source, seed=1), second)]
    graph, arrays = one_node(moved.shape[:rank], Reduction(kind, body), operands)
    # Summands of two signs cancel; rounding is a part of what they are without signs.
    made, size = (
        max(float(abs(array).max(initial=1e-3)) for array in evaluate_graph(graph, given).values())
        for given in (arrays, {name: abs(array) for name, array in arrays.items()})
    )
    check(graph, arrays, 1e-5 * max(1.0, size / made))


@given(st.data())
@settings(max_examples=120, deadline=None)
def test_pools(data: st.DataObject) -> None:
    kind, fill = data.draw(st.sampled_from([("max", -numpy.inf), ("sum", 0.0), ("min", numpy.inf), ("max", 0.0)]))
    x = numbers(1, 2, *two(data, 1, 7))
    window, strides, dilations = two(data, 1, 3), two(data, 1, 3), two(data, 1, 2)
    pads, sizes = two(data, 0, 2), two(data, 1, 5)
    seen = view.windows(x.shape, sizes, window, strides, dilations, pads)
    graph, arrays = one_node((1, 2, *sizes), Reduction(kind, IDENTITY), [(x, seen)], fill)
    check(graph, arrays)


def test_windows_of_nothing_but_padding() -> None:
    x = numbers(1, 2, 1, 3)
    seen = view.windows(x.shape, (1, 3), (2, 1), (1, 1), (2, 1), (1, 0))
    graph, arrays = one_node((1, 2, 1, 3), Reduction("max", IDENTITY), [(x, seen)], -numpy.inf)
    assert "MaxPool" not in operators(check(graph, arrays))


def test_usual_pools_need_one_operator() -> None:
    x = Tensor.input("x", (1, 4, 8, 8))
    outputs = {"max": x.max_pool(3, 2, 1), "whole": x.max_pool(2, 2), "mean": x.mean([2, 3], keepdims=True)}
    outputs["average"] = x.pool("sum", [3, 3], [1, 1], [1, 1, 1, 1], scale=1 / 9)
    graph = build_graph(outputs)
    expected = ["AveragePool", "AveragePool", "MaxPool", "MaxPool", "Mul", "Mul", "Mul", "Mul"]
    assert sorted(operators(check(graph, inputs_of(graph)))) == expected


@pytest.mark.parametrize(
    "shapes", [((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((2, 1, 2, 3), (5, 3, 4)), ((3,), (2, 3, 4))], ids=str
)
def test_products(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = (Tensor.input(name, shape) for name, shape in zip("ab", shapes, strict=True))
    graph = build_graph({"y": a @ b + 1, "turned": b.transpose() @ a.transpose() if a.rank == b.rank == 2 else a @ b})
    check(graph, inputs_of(graph))
    whole = build_graph({"y": a.cast("int64") @ b.cast("int64")})
    check(whole, {v.name: 9 * numbers(*v.shape) for v in whole.inputs})


def test_products_of_repeated_operands() -> None:
    row, matrix = (1, 3), (3, 4)
    repeated = view.expand(row, (5, 2, 3))
    operands = [(numbers(*row), repeated), (numbers(*matrix), view.expand(matrix, (5, 3, 4)))]
    graph, arrays = one_node((5, 2, 4), Product(), operands)
    check(graph, arrays)


def test_concatenations() -> None:
    x = numbers(2, 3, 4)
    repeated = view.expand((2, 1, 1), (2, 5, 4)).over(view.reshape((2, 1), (2, 1, 1)))
    operands = [
        (x, view.identity(x.shape)), (numbers(2, 1), repeated),
        (x, view.pad(x.shape, (0, 0, 0), (0, 2, 0))), (counted((2, 1, 4), "int32"), view.identity((2, 1, 4))),
    ]
    graph, arrays = one_node((2, 14, 4), Concatenation(1), operands, 2.5, epilogue=apply("negative", IDENTITY))
    check(graph, arrays)


def test_resampling() -> None:
    x = Tensor.input("x", (1, 2, 3, 4))
    made = x.resample(2, [[0, 1], [1, 2], [2, 2], [0, 2]], [[0.5, 0.5], [0.25, 0.75], [1, 0], [0.5, 0.5]])
    graph = build_graph({"y": made.upsample(2)})
    check(graph, inputs_of(graph))


# The model as a whole

def test_names_and_origins_are_kept() -> None:
    x = Tensor.input("pixels", (1, 3, 4, 4))
    with origin("stem/Conv"):
        stem = x.conv2d(const(8, 3, 3, 3, name="stem.weight")).named("stem")
    graph = build_graph({"scores": stem.relu()}, name="tiny")
    model = check(graph, inputs_of(graph))
    assert model.graph.name == "tiny"
    assert [i.name for i in model.graph.input] == ["pixels"]
    assert [o.name for o in model.graph.output] == ["scores"]
    assert [(n.op_type, *n.input, *n.output) for n in model.graph.node] == [
        ("Conv", "pixels", "stem.weight", "stem"), ("Relu", "stem", "scores")
    ]
    assert [n.doc_string for n in model.graph.node] == ["stem/Conv", ""]
    assert [i.name for i in model.graph.initializer] == ["stem.weight"]


def test_names_that_the_exporter_would_choose_itself() -> None:
    x = Tensor.input("y.reshape", (2, 3))
    graph = build_graph({"y": (x.reshape(3, 2) + 1).transpose(), "y.constant": x * 2, "y.add": x + 3})
    check(graph, inputs_of(graph))


def test_inputs_and_constants_may_be_outputs() -> None:
    x = Value("x", (2,), "float32")
    graph = Graph((x,), ("x", "c"), (), {"c": numbers(3)})
    check(graph, {"x": numbers(2)})


def test_unused_constants_are_left_out() -> None:
    graph = build_graph({"y": Tensor.input("x", (2,)) + 1})
    model = check(replace(graph, constants={"unused": numbers(9)}), inputs_of(graph))
    assert "unused" not in {i.name for i in model.graph.initializer}


def test_what_is_exported_can_be_imported() -> None:
    graph = small_networks()["squeeze and excite"]
    again = import_onnx(imgconv.export_onnx(graph))
    assert again.inputs == graph.inputs
    arrays = inputs_of(graph)
    assert_close(evaluate_graph(again, arrays), evaluate_graph(graph, arrays), 1e-5)


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.onnx"
    graph = build_graph({"y": Tensor.input("x", (2,)) + 1})
    model = imgconv.export_onnx(graph, path)
    assert onnx.load(path) == model

    def fail(number: int) -> None:
        raise OSError(errno.ENOSPC, "the disk is full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(imgconv.InputError, match="cannot write .*full"):
        imgconv.export_onnx(build_graph({"y": Tensor.input("x", (2,)) * 2}), str(path))
    assert onnx.load(path) == model
    assert list(tmp_path.iterdir()) == [path]


# Pass by pass

def small_networks() -> dict[str, Graph]:
    """What real networks are made of, each at a small size."""
    x = Tensor.input("x", (1, 3, 16, 16))
    stem = (x.conv2d(const(8, 3, 3, 3), const(8), stride=2, padding=1) * const(8, 1, 1) + const(8, 1, 1, seed=1)).relu()
    gate = stem.mean([2, 3], keepdims=True).conv2d(const(4, 8, 1, 1), const(4)).relu()
    gate = gate.conv2d(const(8, 4, 1, 1), const(8)).sigmoid()
    centred = stem - stem.mean([2, 3], keepdims=True)
    normal = centred / ((centred * centred).mean([2, 3], keepdims=True) + 1e-5).sqrt()
    up = convolution(stem, const(8, 4, 2, 2), [2, 2], [0, 0, 0, 0], [1, 1], output=[16, 16], transposed=True)
    wide = stem.pad([0, 0, 1, 1], [0, 0, 1, 1]).conv2d(const(8, 1, 3, 3), groups=8)
    pooled = stem.max_pool(3, 2, 1)
    outputs = {
        "residual": (stem + wide.silu().conv2d(const(8, 8, 1, 1), const(8))).relu(),
        "squeeze and excite": (stem * gate).conv2d(const(6, 8, 1, 1)).hardswish(),
        "concatenations": concatenate([stem, wide, stem.slice(1, 0, 3), x.slice(2, 0, 8).slice(3, 8, 16)], 1).tanh(),
        "instance norm": (normal * const(8, 1, 1, seed=2) + const(8, 1, 1, seed=3)).elu(),
        "softmax head": (pooled.reshape(1, -1) @ const(128, 10, low=-0.2, high=0.2) + const(10)).softmax(1),
        "transposed convolution": concatenate([up + const(4, 1, 1), x], 1).conv2d(const(2, 7, 1, 1)).sigmoid(),
        "depth to space": stem.depth_to_space(2).conv2d(const(3, 2, 3, 3), const(3), padding=1).softmax(1),
        "average pool": stem.pool("sum", [2, 2], [2, 2], scale=0.25).leaky_relu(0.1).upsample(2) + stem,
    }
    return {name: build_graph({"y": tensor}) for name, tensor in outputs.items()}


@pytest.mark.parametrize("name", small_networks())
def test_small_networks_pass_by_pass(name: str) -> None:
    graph = small_networks()[name]
    check_pass_by_pass(graph, inputs_of(graph))


def test_a_reduction_that_is_split_pass_by_pass() -> None:
    x = Tensor.input("x", (1, 2, 600, 500))
    graph = build_graph({"y": (x - x.mean([2, 3], keepdims=True)).max([2, 3])})
    assert "y.rows" in check_pass_by_pass(graph, inputs_of(graph)).values


@given(networks())
@settings(max_examples=40, deadline=None)
def test_random_networks_pass_by_pass(network: Network) -> None:
    graph = network.graph
    # A gather that no output needs has left its indices without a reader.
    check_pass_by_pass(graph, {value.name: network.inputs[value.name] for value in graph.inputs})


def drop_bias(graph: Graph) -> Graph:
    """A pass broken on purpose: what is added by channel is forgotten."""
    added = apply("add", IDENTITY, Argument(1))
    without = (replace(n, epilogue=IDENTITY, epilogue_operands=()) if n.epilogue == added else n for n in graph.nodes)
    return replace(graph, nodes=tuple(without))


def shift_views(graph: Graph) -> Graph:
    """A pass broken on purpose: views with bounds read one position further along their last axis."""
    def shifted(operand: Operand) -> Operand:
        index = operand.view.index
        moved = replace(operand.view, index=(*index[:-1], index[-1] + 1))
        return replace(operand, view=moved) if operand.view.bounds else operand

    return replace(graph, nodes=tuple(replace(n, operands=tuple(map(shifted, n.operands))) for n in graph.nodes))


def swap_parts(graph: Graph) -> Graph:
    """A pass broken on purpose: concatenations turn round parts of equal shape."""
    swapped = (
        replace(n, operands=n.operands[::-1]) if isinstance(n.operation, Concatenation) else n for n in graph.nodes
    )
    return replace(graph, nodes=tuple(swapped))


def double_pads(graph: Graph) -> Graph:
    """A pass broken on purpose: convolutions pad twice as much before their input."""
    def padded(node: Node) -> Node:
        if not isinstance(node.operation, Convolution):
            return node
        top, left = node.operation.pads
        return replace(node, operation=replace(node.operation, pads=(2 * top, 2 * left)))

    return replace(graph, nodes=tuple(map(padded, graph.nodes)))


@pytest.mark.parametrize("broken", [drop_bias, shift_views, swap_parts, double_pads], ids=lambda f: f.__name__)
@pytest.mark.parametrize("place", [0, 6])
def test_a_broken_pass_is_named(broken: Pass, place: int) -> None:
    x = Tensor.input("x", (1, 4, 8, 8))
    made = x.conv2d(const(4, 4, 3, 3), const(4), padding=1)
    graph = build_graph({"y": concatenate([made, x], 1).max_pool(3, 2, 1)})
    passes = (*PIPELINE[:place], broken, *PIPELINE[place:])
    with pytest.raises(AssertionError, match=rf"after pass {place + 1} of {len(passes)}, {broken.__name__}: "):
        check_pass_by_pass(graph, inputs_of(graph), passes)


# Whole models


@pytest.mark.parametrize("name", MODELS)
def test_models_pass_by_pass(name: str) -> None:
    """Narrow and at a reduced size, so that this is quick; batch 2, so that nothing relies on one."""
    graph = MODELS[name](width=0.25, size=64, batch=2)
    check_pass_by_pass(graph, inputs_of(graph))


@pytest.mark.models
@pytest.mark.parametrize("name", MODELS)
def test_models_of_full_size_pass_by_pass(name: str) -> None:
    graph = MODELS[name]()
    check_pass_by_pass(graph, inputs_of(graph))


FILES = sorted(Path(os.environ.get("IMGCONV_MODELS", os.devnull)).glob("*/*.onnx"))


@pytest.mark.models
@pytest.mark.skipif(not FILES, reason="IMGCONV_MODELS is not set: give the folder with the real models")
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_real_models_pass_by_pass(path: Path) -> None:
    cases = (numpy.load(p) for p in sorted(path.parent.glob("case_*.npz")))
    graph = import_onnx(path)
    known = {v.name: (v.shape, v.dtype) for v in graph.inputs}
    for case in cases:
        arrays = {key[3:]: case[key] for key in case.files if key.startswith("in:")}
        if {name: (a.shape, str(a.dtype)) for name, a in arrays.items()} == known:
            half = "float16" in {v.dtype for v in graph.values.values()}
            check_pass_by_pass(graph, arrays, tolerance=3e-2 if half else 1e-4)
            return
    pytest.fail(f"no case fits {path}")
