"""Export of elementwise operations and epilogues to ONNX, judged by onnxruntime."""

from __future__ import annotations

import numpy
import pytest

from exported import check, one_node, operators
from graphs import numbers
from imgconv.graph import view
from imgconv.graph.expression import NUMBER, FUNCTIONS, TRUTH, Argument, Literal, apply
from imgconv.graph.nodes import Load
from imgconv.tensor import Tensor, build_graph, concatenate, elementwise, where

SPECIAL = [0.0, -0.5, 0.5, 1.5, -1.5, 2.5, 1e-6, 1e10]
DOMAINS = {
    "acosh": (1.0, 4.0), "asin": (-1.0, 1.0), "acos": (-1.0, 1.0), "atanh": (-0.9, 0.9), "log": (0.1, 4.0),
    "log1p": (-0.9, 4.0), "sqrt": (0.0, 4.0), "reciprocal": (0.2, 4.0), "power": (0.2, 4.0), "tan": (-1.4, 1.4),
}
WIDE = {"floor", "ceil", "round", "truncate", "sign", "absolute", "negative", "tanh", "sigmoid", "erf"}


def arity(name: str) -> int:
    return max(n for n in (1, 2, 3) if f"{{{n - 1}}}" in FUNCTIONS[name].opencl)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_operation(name: str) -> None:
    low, high = DOMAINS.get(name, (-3.0, 3.0))
    arrays = {f"x{i}": numbers(40, seed=i, low=low, high=high) for i in range(arity(name))}
    if name in WIDE:
        arrays["x0"][: len(SPECIAL)] = SPECIAL
    if FUNCTIONS[name].onnx.gives == TRUTH or name == "where":
        arrays["x0"][::3] = 0
        arrays |= {"x1": numpy.where(arrays["x0"] > 1, arrays["x0"], arrays["x1"])} if arity(name) == 2 else {}
    if name in ("isnan", "isinf"):
        arrays["x0"][:3] = numpy.nan, numpy.inf, -numpy.inf
    if name.startswith(("shift", "bit")):
        arrays = {key: numpy.abs(array * 3).round() for key, array in arrays.items()}
    tensors = [Tensor.input(key, array.shape) for key, array in arrays.items()]
    check(build_graph({"y": elementwise(name, *tensors)}), arrays)


@pytest.mark.parametrize("name", [n for n, row in FUNCTIONS.items() if row.onnx.operator and row.onnx.takes == NUMBER])
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
    added = elementwise("add", x, n, dtype="float32")
    outputs = {"sum": added, "halves": halves, "more": (n + 1).cast("float32"), "cut": (x * 9).cast("int32")}
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
