"""Export of each form of node to ONNX, judged by onnxruntime."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from exported import check, counted, one_node, operators
from graphs import const, inputs_of, numbers
from imgconv.graph import view
from imgconv.graph.evaluate import evaluate_graph
from imgconv.graph.expression import Argument, apply
from imgconv.graph.nodes import IDENTITY, Concatenation, Convolution, Gather, Product, Reduction
from imgconv.onnx_export.nodes import REDUCTIONS
from imgconv.tensor import Tensor, build_graph, convolution, less, order, recurrence
from support import OLD_ORACLE, OLD_ORACLE_REASON
from test_view import CONSTRUCTORS


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


@pytest.mark.parametrize("largest", [True, False])
def test_orders(largest: bool) -> None:
    array = numpy.random.default_rng(4).integers(0, 3, (2, 3, 20)).astype(numpy.float32)
    x, few = Tensor.input("x", array.shape), Tensor.input("few", (2, 1))
    turned, repeated = order(x.transpose(2, 0, 1), 2, largest), order(few.expand(2, 5) * 2, 3, largest)
    outputs = {"whole": order(x, 20, largest), "turned": turned, "repeated": repeated,
               "bools": order(less(x, 1), 4, largest), "later": order(x, 3, largest).cast("float32") * 2}
    model = check(build_graph(outputs), {"x": array, "few": array[:, :1, 0]})
    assert operators(model).count("TopK") == 5


def test_recurrences() -> None:
    """One with several states and others; one whose last gate multiplies another state; both ways, given weights."""
    total = apply("add", Argument(0), Argument(1))
    stopped = apply("where", apply("less", Argument(5), Argument(4)), apply("tanh", total), Argument(2))
    reset = apply("add", apply("sigmoid", apply("add", Argument(0), Argument(2))), apply("tanh", Argument(3)))
    shapes = {"x": (5, 2, 2, 2, 3), "w": (2, 3, 2, 3), "h": (2, 2, 3), "p": (2, 2, 3)}
    t = {name: Tensor.input(name, shape) for name, shape in shapes.items()}
    both = [stopped, apply("add", Argument(3), 0.5)]
    one = [t["x"].slice(3, 0, 1), t["w"].slice(2, 1, 2)]
    outputs = {
        "both": recurrence(*one, [t["h"], t["p"]], [t["p"] * 3], both, None, (False, True)),
        "inner": recurrence(t["x"], t["w"], [t["h"]], [], [reset], apply("multiply", Argument(4), 0.5), (True, True)),
    }
    arrays = {name: numbers(*shape, seed=n) for n, (name, shape) in enumerate(shapes.items())}
    model = check(build_graph(outputs), arrays)
    assert operators(model).count("Scan") == 4


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
    repeated = view.expand((2, 1, 1), (2, 5, 4)).composed_with(view.reshape((2, 1), (2, 1, 1)))
    operands = [
        (x, view.identity(x.shape)), (numbers(2, 1), repeated),
        (x, view.pad(x.shape, (0, 0, 0), (0, 2, 0))), (counted((2, 1, 4), "int32"), view.identity((2, 1, 4))),
    ]
    graph, arrays = one_node((2, 14, 4), Concatenation(1), operands, 2.5, epilogue=apply("negative", IDENTITY))
    check(graph, arrays)


def test_resampling() -> None:
    x = Tensor.input("x", (1, 2, 3, 4))
    made = x.resample({2: ([[0, 1], [1, 2], [2, 2], [0, 2]], [[0.5, 0.5], [0.25, 0.75], [1, 0], [0.5, 0.5]])})
    graph = build_graph({"y": made.upsample(2)})
    check(graph, inputs_of(graph))
