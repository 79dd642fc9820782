"""The lazy front end: graphs of what is written, what they cost, and what each layer means in plain numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
from graphs import assert_near, const, numbers, numpy_convolution, target
from numpy.lib.stride_tricks import sliding_window_view

from imgconv.compiling.lower import lower
from imgconv.config import Config
from imgconv.errors import InputError
from imgconv.graph.evaluate import evaluate_graph
from imgconv.graph.nodes import Graph
from imgconv.passes import run_passes
from imgconv.tensor import Tensor, build_graph, concatenate, convolution, where
from models import Weights
from models.layers import Layers


def value_of(tensor: Tensor, **inputs: Any) -> Any:
    return evaluate_graph(build_graph({"y": tensor}), inputs)["y"]


def test_nothing_is_computed_while_a_network_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("computed")

    monkeypatch.setattr("imgconv.graph.lazy.evaluate_node", refuse)
    x = Tensor.input("x", (1, 3, 8, 8))
    w = Tensor.constant(numbers(4, 3, 3, 3))
    y = x.conv2d(w * 2.0).relu().global_average_pool().flatten().linear(Tensor.constant(numbers(2, 4)))
    assert y.shape == (1, 2)
    assert y.array is None


def test_the_same_subexpression_is_computed_once() -> None:
    x, w = Tensor.input("x", (1, 8, 8, 8)), const(8, 8, 3, 3)

    def branch() -> Tensor:
        return x.conv2d(w, padding=1).relu()

    once = branch()
    shared = lower(run_passes(build_graph({"y": once.max_pool(2, 2) + once.max_pool(2, 2)})), Config(), target())
    twice = lower(run_passes(build_graph({"y": branch().max_pool(2, 2) + branch().max_pool(2, 2)})), Config(), target())
    assert len(shared.compute_launches) == len(twice.compute_launches) == 2


def test_an_unused_branch_costs_nothing() -> None:
    def network(wanted: bool) -> Graph:
        x = Tensor.input("x", (1, 8, 8, 8))
        y = x.conv2d(const(8, 8, 3, 3), padding=1).relu()
        aside = y.conv2d(const(32, 8, 3, 3, seed=1)).silu().global_average_pool()
        return build_graph({"y": y.max_pool(2, 2), **({"z": aside} if wanted else {})})

    without, with_branch = network(False), network(True)
    assert len(without.nodes) < len(with_branch.nodes)
    assert sum(a.size for a in without.constants.values()) < sum(a.size for a in with_branch.constants.values())
    plan = lower(run_passes(without), Config(), target())
    assert [launch.name for launch in plan.compute_launches] and plan.multiply_adds == 8 * 8 * 9 * 64


def test_squeeze_and_excite_scales_in_the_convolution_that_follows() -> None:
    x = Tensor.input("x", (1, 16, 8, 8))
    net = Layers(Weights())
    wide = net.unit(x, "a", 16, 3, groups=16, activation=Tensor.silu)
    y = net.unit(net.squeeze_excite(wide, "b", 4, Tensor.silu, Tensor.sigmoid), "c", 8)
    plan = lower(run_passes(build_graph({"y": y.max_pool(2, 2)})), Config(), target())
    expected = ["convolution", "sum", "convolution", "max"]  # the sum's launch makes both products too
    assert [launch.description.split()[0] for launch in plan.compute_launches] == expected, str(plan)


def test_batch_norm() -> None:
    x, (scale, bias, mean) = numbers(2, 5, 3, 4), numbers(3, 5, seed=1)
    variance = numbers(5, seed=2, low=0.1, high=2)
    made = Tensor.input("x", x.shape).batch_norm(*map(Tensor.constant, (scale, bias, mean, variance)), epsilon=0.01)
    by = [p.astype(numpy.float64).reshape(5, 1, 1) for p in (scale, bias, mean, variance)]
    assert_near(value_of(made, x=x), (x - by[2]) / numpy.sqrt(by[3] + 0.01) * by[0] + by[1])


def test_linear() -> None:
    x, w, b = numbers(2, 5), numbers(3, 5, seed=1), numbers(3, seed=2)
    made = Tensor.input("x", x.shape).linear(Tensor.constant(w), Tensor.constant(b))
    assert_near(value_of(made, x=x), x.astype(numpy.float64) @ w.T + b)


def test_depthwise() -> None:
    x, w, b = numbers(2, 3, 5, 6), numbers(6, 1, 3, 3, seed=1), numbers(6, seed=2)
    made = Tensor.input("x", x.shape).depthwise(Tensor.constant(w), Tensor.constant(b), stride=2, padding=1)
    assert_near(value_of(made, x=x), numpy_convolution(x, w, (2, 2), (1, 1, 1, 1), groups=3) + b.reshape(6, 1, 1))


def test_conv_transpose2d() -> None:
    x, w, b = numbers(2, 3, 4, 5), numbers(3, 2, 3, 3, seed=1), numbers(2, seed=2)
    made = Tensor.input("x", x.shape).conv_transpose2d(Tensor.constant(w), Tensor.constant(b), stride=2, padding=1)
    whole = numpy.zeros((2, 2, 9, 11))
    for row, column in numpy.ndindex(4, 5):
        spread = numpy.einsum("nc,cokl->nokl", x[:, :, row, column].astype(numpy.float64), w)
        whole[:, :, 2 * row : 2 * row + 3, 2 * column : 2 * column + 3] += spread
    assert_near(value_of(made, x=x), whole[:, :, 1:-1, 1:-1] + b.reshape(2, 1, 1))


@pytest.mark.parametrize("call", [
    lambda x: x.mean(1), lambda x: x.sum(-1), lambda x: x.max(0), lambda x: x.sum((0, 2)),
    lambda x: x.reshape((4, -1)), lambda x: x.reshape([3, 8]), lambda x: x.transpose((2, 0, 1)),
])
def test_an_axis_alone_and_sizes_in_a_tuple_as_in_numpy(call: Callable[[Any], Any]) -> None:
    x = numbers(2, 3, 4)
    assert_near(value_of(call(Tensor.input("x", x.shape)), x=x), call(x.astype(numpy.float64)))


def test_pools() -> None:
    x = numbers(1, 2, 6, 7)
    tensor = Tensor.input("x", x.shape)
    assert_near(value_of(tensor.global_average_pool(), x=x), x.mean((2, 3), keepdims=True, dtype=numpy.float64))
    assert value_of(tensor.flatten(), x=x).shape == (1, 84)
    wide = numpy.pad(x, ((0, 0), (0, 0), (0, 1), (0, 0)), constant_values=-numpy.inf)
    expected = sliding_window_view(wide, (3, 3), (2, 3))[:, :, ::2, ::2].max((-2, -1))
    assert_near(value_of(tensor.max_pool(3, 2, round_up=True), x=x), expected)
    assert tensor.max_pool(3, 2).shape == (1, 2, 2, 3)
    # A window that would begin in the padding after the last column is left out.
    assert tensor.max_pool(2, 2, padding=1, round_up=True).shape == (1, 2, 4, 4)
    assert tensor.max_pool(2, 3, padding=1, round_up=True).shape == (1, 2, 3, 3)


def test_gated_recurrent_unit() -> None:
    weights = Weights()
    x, state = numbers(2, 5), numbers(2, 4, seed=1)
    made = Layers(weights).gated_recurrent_unit(Tensor.input("x", x.shape), Tensor.input("state", state.shape), "cell")
    a = {n: v.astype(numpy.float64) for n, v in weights.arrays.items()}
    one = numpy.split(x @ a["cell.weight_ih"].T + a["cell.bias_ih"], 3, axis=1)
    two = numpy.split(state @ a["cell.weight_hh"].T + a["cell.bias_hh"], 3, axis=1)
    reset, update = (1 / (1 + numpy.exp(-(one[i] + two[i]))) for i in range(2))
    new = numpy.tanh(one[2] + reset * two[2])
    assert_near(value_of(made, x=x, state=state), (1 - update) * new + update * state)


X, WHOLE = Tensor.input("x", (1, 8, 6, 6)), Tensor.input("n", (1, 8, 6, 6), "int32")
FILTERS, EIGHT = const(4, 8, 3, 3), const(8)
# A call, and what its error says.
WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "no name": (lambda: Tensor.input("", (1,)), r"Tensor.input\(name='', shape=\(1,\), .*: name has to be a text"),
    "a size by name": (lambda: Tensor.input("x", (1, "h")), "shape has to be a list of integers, each 0 or more"),
    "a type": (lambda: Tensor.input("x", (1,), numpy.float32), "dtype has to be one of float32, "),
    "texts": (lambda: Tensor.constant(["a"]), "array has to hold numbers, not <U1"),
    "a tensor as an array": (lambda: Tensor.constant(X), "array is a Tensor already"),
    "shapes": (lambda: X + const(1, 7, 6, 6), r"add\(a=x: float32\[1, 8, 6, 6\], b=float32.*: the shapes do"),
    "dtypes": (lambda: X * WHOLE, r"multiply\(.*b=n: int32.*: dtypes differ: cast\(\) one of them"),
    "a fraction": (lambda: WHOLE * 0.5, r"b=0.5\): a fraction and integers: cast\(\) the tensor to float32 first"),
    "an array": (lambda: X - numpy.ones(6), r"b=numpy float64\[6\]\): b has to be a Tensor .*: Tensor.constant\(b\)"),
    "an array first": (lambda: numpy.ones(6) * X, r"multiply\(a=numpy float64\[6\], .*: Tensor.constant\(a\)"),
    "a list": (lambda: X.maximum([1, 2]), r"b=\[1, 2\]\): b has to be a Tensor or a number, not list"),
    "clip": (lambda: X.clip(6, 0), "low=6, high=0.: low is above high"),
    "cast": (lambda: X.cast("float"), "dtype='float'.: dtype has to be one of"),
    "content": (lambda: X.numpy(), "has no content before a run: it depends on an input"),
    "reshape": (lambda: X.reshape(1, 7, -1), r"reshape\(self=x: .*, shape=\(1, 7, -1\)\): the tensor has 288 elements"),
    "two open sizes": (lambda: X.reshape(-1, -1), "one size at most can be -1"),
    "transpose": (lambda: X.transpose(0, 2, 2, 1), r"permutation=\(0, 2, 2, 1\)\): each axis has to occur once"),
    "expand": (lambda: X.expand(1, 9, 6, 6), "the tensor does not broadcast to that shape"),
    "slice": (lambda: X.slice(1, 0, 9), "axis=1, start=0, stop=9, step=1.: the axis has the positions 0 to 7"),
    "slice an axis": (lambda: X.slice(4, 0, 1), "there is no such axis: the tensor has 4"),
    "pad": (lambda: X.pad([0, 1], [0, 1]), "the tensor has 4 axes, and each needs a size"),
    "crop": (lambda: X.pad([0, 0, -4, 0], [0, 0, -3, 0]), "more is cropped than there is"),
    "take": (lambda: X.take(1, [0, -1]), r"positions=\[0, -1\]\): the axis has the positions 0 to 7"),
    "sum": (lambda: X.sum([2, 4]), r"sum\(self=.*, axes=\[2, 4\]\): there is no such axis: the tensor has 4"),
    "mean": (lambda: X.mean(4), "mean.*axes=4.: there is no such axis"),
    "softmax": (lambda: X.softmax(-5), "axis=-5.: there is no such axis"),
    "matmul": (lambda: X @ const(5, 6), "cannot multiply rows of 6 by columns of 5"),
    "matmul of an array": (lambda: X @ numpy.ones((6, 6), "f"), r"other has to be a Tensor, .*constant\(other\)"),
    "pool": (lambda: X.pool("max", [2, 2], [2]), r"window=\[2, 2\], strides=\[2\]\): window, strides and pads differ"),
    "max_pool": (lambda: X.max_pool(7, 1), "max_pool.*window=7, stride=1, padding=0.: the window is larger than"),
    "upsample": (lambda: X.upsample(2.0), "factor=2.0.: factor has to be an integer, 1 or more"),
    "depth_to_space": (lambda: X.depth_to_space(3), "block=3.: 8 channels are not a multiple of 9"),
    "global_average_pool": (lambda: EIGHT.global_average_pool(), r"float32\[8\].*the tensor must be \(N, C, H, W\)"),
    "channels": (lambda: X.conv2d(const(4, 3, 3, 3)), r"conv2d\(self=x: .*, weight=float32\[4, 3, 3, 3\], stride=1, "
                 r"padding=0, dilation=1, groups=1\): the weight has 3 input channels, the tensor has 8 channels"),
    "groups": (lambda: X.conv2d(const(5, 2, 3, 3), groups=4), "axis 0 of the weight is not a multiple of 4 groups"),
    "strides": (lambda: X.conv2d(FILTERS, stride=(2, 2)), r"stride=\(2, 2\).*: stride has to be an integer, 1 or more"),
    "padding": (lambda: X.conv2d(FILTERS, padding=-1), "padding has to be an integer, 0 or more"),
    "bias": (lambda: X.conv2d(FILTERS, EIGHT), r"bias=float32\[8\], .*: the bias must be \[4\]"),
    "a large window": (lambda: X.conv2d(const(4, 8, 3, 3), dilation=3), "the window is larger than the input"),
    "numpy weights": (lambda: X.conv2d(numbers(4, 8, 3, 3)), r"not ndarray: Tensor.constant\(weight\)"),
    "float64 weights": (lambda: X.conv2d(Tensor.constant(numpy.ones((4, 8, 3, 3)))), "weight=float64.*: dtypes differ"),
    "depthwise": (lambda: X.depthwise(const(8, 2, 3, 3)), "the weight has 16 input channels, the tensor has 8"),
    "conv_transpose2d": (lambda: X.conv_transpose2d(FILTERS), "the weight has 4 input channels, the tensor has 8"),
    "convolution": (lambda: convolution(X, const(4, 8, 3), [1], [0, 0], [1]), "one, two or three spatial axes"),
    "linear": (lambda: X.linear(const(3, 5)), "the weight has 5 input features, the tensor has 6 features"),
    "batch_norm": (lambda: X.batch_norm(EIGHT, EIGHT, EIGHT, const(4)), r"variance=float32\[4\]\): each .* be \[8\]"),
    "a variance that runs": (lambda: X.batch_norm(EIGHT, EIGHT, EIGHT, Tensor.input("v", (8,))), "depends on an input"),
    "where": (lambda: where(X.cast("bool"), 1, 0), r"a=1, b=0\): a or b must be a Tensor"),
    "concatenate": (lambda: concatenate([X, const(1, 8, 6, 7)], 1), "axis=1.: the sizes of the other axes differ"),
    "concatenate numbers": (lambda: concatenate([X, 1.0], 1), "tensors must be a list of Tensors"),
    "no outputs": (lambda: build_graph(X), "outputs has to be a dict of Tensors by name"),
    "a made input": (lambda: build_graph({"y": X.relu()}, [X.relu()]), r"a list of Tensor.input\(...\)"),
    "one name twice": (lambda: build_graph({"y": X + Tensor.input("x", (6,))}), "two inputs are called 'x'"),
    "an output as an input": (lambda: build_graph({"x": X.relu()}), "output 'x' has the name of an input"),
}


@pytest.mark.parametrize("call, message", WRONG.values(), ids=WRONG)
def test_a_wrong_call_is_refused_where_it_is_written(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
