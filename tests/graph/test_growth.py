"""The growth of values with their operands."""

from __future__ import annotations

from collections.abc import Callable

import numpy
import pytest

from imgconv.graph import growth
from imgconv.graph.growth import Growth, growth_of
from imgconv.graph.nodes import Product
from imgconv.passes import run_passes
from imgconv.tensor import Tensor, build_graph, concatenate

HALF_MAX = 65504.0
N = 100


def const(*shape: int) -> Tensor:
    return Tensor.constant(numpy.full(shape, 0.5, numpy.float32))


def variance(x: Tensor) -> Tensor:
    off = x - x.mean([1], keepdims=True)
    return (off * off).mean([1], keepdims=True)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda x: x * 3 + 1, Growth(1, 1)),
        (lambda x: x * x, Growth(2, 1)),
        (lambda x: x**2.0, Growth(2, 1)),
        (lambda x: (x * x).relu() + x, Growth(2, 1)),
        (lambda x: x * x.sigmoid(), Growth(1, 1)),
        (lambda x: x.sigmoid() * x.sigmoid(), Growth(0, 1)),
        (lambda x: x.relu().minimum(6.0) * x.relu().minimum(6.0), Growth(0, 1)),
        (lambda x: (x * x).sqrt(), Growth(1, 1)),
        (lambda x: 1.0 / (x * x + 1), Growth(-2, 1)),
        (lambda x: x.sum([1], keepdims=True), Growth(1, N)),
        (lambda x: x.sum([1], keepdims=True) * 2, Growth(1, N)),
        (lambda x: x.mean([1], keepdims=True), Growth(1, 1)),
        (lambda x: x.sum([1], keepdims=True) / N, Growth(1, 1)),
        (lambda x: (x * x).sum([1], keepdims=True), Growth(2, N)),
        (lambda x: (x * x).sum([1], keepdims=True).sqrt(), Growth(1, N**0.5)),
        (variance, Growth(2, 1)),
        (lambda x: (variance(x) + 1e-5).sqrt(), Growth(1, 1)),
        (lambda x: x / (variance(x) + 1e-5).sqrt(), Growth(0, 1)),
        (lambda x: x.mean([1], keepdims=True) * x.mean([1], keepdims=True), Growth(2, 1)),
        (lambda x: concatenate([x, x * x], 0), Growth(2, 1)),
        (lambda x: (x * x).max([1], keepdims=True), Growth(2, 1)),
        (lambda x: (x * x).matmul(const(N, 3)), Growth(1, 1)),
        (lambda x: x.exp().sum([1], keepdims=True), Growth(1, N)),
    ],
)
def test_growth(make: Callable[[Tensor], Tensor], expected: Growth) -> None:
    graph = run_passes(build_graph({"y": make(Tensor.input("x", (7, N)))}))
    found = growth_of(graph, HALF_MAX)["y"]
    assert (found.power, found.terms) == pytest.approx((expected.power, expected.terms))


def test_bytes_and_what_fits_are_bounded() -> None:
    """255 * 255 is less than 65504."""
    x = Tensor.input("x", (7, N), "uint8").cast("float32")
    found = growth_of(run_passes(build_graph({"square": x * x, "cube": x * x * x})), HALF_MAX)
    assert found["square"] == Growth(0, 1) and found["cube"].power == 0


def test_an_operation_without_an_entry_stays_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(growth.GROWTHS, Product)
    graph = run_passes(build_graph({"y": Tensor.input("x", (7, N)).matmul(const(N, 3))}))
    assert growth_of(graph, HALF_MAX)["y"].power > 1
