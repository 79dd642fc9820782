"""fold_scales: its Given and Result, where it must act and where it must not."""

from __future__ import annotations

from typing import Any

import numpy
from graphs import (
    apply_pass, assert_near, const, graph_of, image, node_of, numbers, numpy_convolution, pushed, shown, unchanged,
)

from imgconv.graph.expression import function_names
from imgconv.graph.nodes import Graph
from imgconv.passes.epilogues import fuse_epilogues
from imgconv.passes.scales import fold_scales
from imgconv.tensor import Tensor, convolution


def fused(graph: Graph) -> Graph:
    return fuse_epilogues(pushed(graph))


def test_scales_given_and_result() -> None:
    x = image()
    w, b, s, t = numbers(4, 8, 3, 3), numbers(4, 1, 1), numbers(4, 1, 1, seed=1), numbers(4, 1, 1, seed=2)
    k = [Tensor.constant(a, n) for a, n in ((b, "b"), (s, "s"), (t, "t"))]
    y = ((x.conv2d(Tensor.constant(w, "w"), padding=1) + k[0]) * k[1] + k[2]).relu()
    def formula(x: Any) -> dict[str, Any]:
        return {"y": numpy.maximum((numpy_convolution(x, w, pads=(1,) * 4) + b) * s + t, 0)}
    after = apply_pass(fold_scales, fused(graph_of(y=y)), formula)
    assert shown(after) == {"y": "convolution pads 1x1(x, y.weights) then maximum(add($0, $1), 0), $1=y.bias[i1]"}
    assert_near(after.constants["y.weights"], w * s[..., None], 1e-6)
    assert_near(after.constants["y.bias"], (b * s + t).ravel(), 1e-6)
    assert after.constants["y.weights"].dtype == numpy.float32


def test_scales_are_rounded_once() -> None:
    """The fold is in float64: a chain of factors that float32 would round at each step."""
    x = image(1, 1, 1, 1)
    w = numpy.array([[[[1.1]]]], numpy.float32)
    factors = [numpy.float32(f) for f in (1.7, 0.3, 3.3, 0.7, 1.9)]
    y = x.conv2d(Tensor.constant(w))
    for number, factor in enumerate(factors):
        y = y * Tensor.constant(numpy.full((1, 1, 1), factor), f"f{number}")
    after = apply_pass(fold_scales, fused(graph_of(y=y)))
    expected = numpy.prod([numpy.float64(v) for v in (w.item(), *factors)])
    assert after.constants["y.weights"].item() == numpy.float32(expected)


def test_scales_of_every_form_of_step() -> None:
    x = image()
    w = numbers(4, 8, 1, 1)
    k = numbers(4, 1, 1, low=0.5, high=2)
    c = Tensor.constant(k, "k")
    def conv() -> Tensor:
        return x.conv2d(Tensor.constant(w, "w"))
    cases: list[tuple[Tensor, Any]] = [
        (conv() / c, lambda v: v / k),
        (conv() - c - 1.0, lambda v: v - k - 1),
        (2.0 * (3.0 - conv()), lambda v: 2 * (3 - v)),
        (c - conv(), lambda v: k - v),
        (conv() * 2 + 1, lambda v: 2 * v + 1),
        ((conv() + c) / 4.0, lambda v: (v + k) / 4),
        ((conv() * c).silu(), lambda v: v * k / (1 + numpy.exp(-v * k))),
    ]
    for tensor, function in cases:
        after = apply_pass(
            fold_scales, fused(graph_of(y=tensor)), lambda x, f=function: {"y": f(numpy_convolution(x, w))}
        )
        left = function_names(node_of(after, "y").epilogue)
        assert set(left) <= {"add", "multiply", "sigmoid"} and left.count("add") <= 1
        assert "multiply" not in left or "sigmoid" in left


def test_scales_of_grouped_and_transposed_convolutions_and_products() -> None:
    x = image()
    s = numbers(8, 1, 1, low=0.5, high=2)
    grouped = x.conv2d(const(8, 2, 3, 3), padding=1, groups=4) * Tensor.constant(s, "s")
    after = apply_pass(fold_scales, fused(graph_of(y=grouped)))
    assert function_names(node_of(after, "y").epilogue) == ()
    w = const(8, 4, 2, 2, name="w")
    up = convolution(x, w, [2, 2], [0] * 4, [1, 1], 2, [12, 12], transposed=True) * Tensor.constant(s, "s")
    after = apply_pass(fold_scales, fused(graph_of(y=up)))
    assert function_names(node_of(after, "y").epilogue) == ()
    m, k = numbers(6, 5), numbers(5, seed=1)
    product = (x @ Tensor.constant(m, "m")) * Tensor.constant(k, "k") + 1.0
    after = apply_pass(fold_scales, fused(graph_of(y=product)), lambda x: {"y": (x @ m) * k + 1})
    assert function_names(node_of(after, "y").epilogue) == ("add",)


def test_scales_of_products_with_a_matrix_for_each_of_a_batch() -> None:
    matrices, x = numbers(2, 5, 4), Tensor.input("x", (2, 3, 5))
    for by in (numpy.float32(0.5), numbers(4, seed=1)):
        product = (x @ Tensor.constant(matrices, "m")) * Tensor.constant(numpy.asarray(by), "k")
        after = apply_pass(fold_scales, fused(graph_of(y=product)), lambda x, by=by: {"y": (x @ matrices) * by})
        assert function_names(node_of(after, "y").epilogue) == ()


def test_scales_leave_what_is_no_constant_of_a_channel() -> None:
    x = image()
    def conv() -> Tensor:
        return x.conv2d(const(4, 8, 1, 1, name="w"))
    for tensor in (
        conv() + const(4, 1, 1),  # a bias is what is wanted
        conv() - const(4, 1, 1),
        conv().relu() * const(4, 1, 1),
        conv() * const(1, 4, 6, 6),  # of each position
        conv() * const(6),  # of a column
        conv() * image(4, 1, 1, name="z"),  # an input
        const(4, 1, 1) / conv(),
        conv() * Tensor.constant(numpy.array([[[1]], [[2]], [[numpy.inf]], [[3]]], numpy.float32)),
        conv() / Tensor.constant(numpy.array([[[1]], [[2]], [[0]], [[3]]], numpy.float32)),
        x.sum([1], keepdims=True) * 2,
    ):
        unchanged(fold_scales, fused(graph_of(y=tensor)))
    c = conv()
    unchanged(fold_scales, fused(graph_of(y=c + c.sigmoid())))
    w = image(4, 8, 1, 1, name="w")
    unchanged(fold_scales, fused(graph_of(x, w, y=x.conv2d(w) * 2)))


def test_scales_of_shared_weights_and_taken_names() -> None:
    x = image()
    w, b = numbers(4, 8, 1, 1), numbers(4, 1, 1)
    weights, bias = Tensor.constant(w, "y.weights"), Tensor.constant(b, "y.bias")
    graph = graph_of(y=(x.conv2d(weights) + bias) * 3.0, z=x.conv2d(weights), u=x.slice(1, 0, 4) + bias)
    after = apply_pass(
        fold_scales, fused(graph),
        lambda x: {"y": 3 * (numpy_convolution(x, w) + b), "z": numpy_convolution(x, w), "u": x[:, :4] + b},
    )
    assert after.constants["y.weights"] is w and after.constants["y.weights_"].shape == w.shape
