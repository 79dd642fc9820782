"""fold_requantization: its Given and Result, where it must act and where it must not."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from graphs import apply_pass, const, graph_of, image, numbers, pushed, shown, unchanged

from imgconv.arrays import Array
from imgconv.graph.nodes import Graph
from imgconv.graph.quantization import quantizations_of
from imgconv.passes.epilogues import fuse_epilogues
from imgconv.passes.requantization import fold_requantization
from imgconv.tensor import Tensor, where


def fused(graph: Graph) -> Graph:
    return fuse_epilogues(pushed(graph))


def quantised(x: Any, scale: float, zero: float = 0) -> Any:
    """QuantizeLinear to uint8, less its zero point; of a tensor or an array."""
    if isinstance(x, Tensor):
        return ((x / scale).apply("round") + zero).clip(0, 255).apply("truncate") - zero
    return numpy.clip(numpy.rint(x / scale) + zero, 0, 255) - zero


def test_requantization_given_and_result() -> None:
    """A sum, a scale of each channel, a constant of each and a second quantised tensor, between roundings."""
    x, r = image(), Tensor.input("r", (1, 4, 6, 6))
    w, s, t = numbers(4, 8, 1, 1), numbers(4, 1, 1, low=0.5, high=2), numbers(4, 1, 1, seed=2)
    sums = x.conv2d(Tensor.constant(w, "w"))
    scaled = quantised(sums, 0.25, 9) * 0.25 * Tensor.constant(s, "s") + Tensor.constant(t, "t")
    y = quantised(scaled + quantised(r, 0.5) * 0.5, 0.125, 3) * 0.125

    def formula(x: Array, r: Array) -> dict[str, Array]:
        sums = numpy.einsum("nchw,oc->nohw", x, w[:, :, 0, 0])
        scaled = quantised(sums, 0.25, 9) * 0.25 * s + t
        return {"y": quantised(scaled + quantised(r, 0.5) * 0.5, 0.125, 3) * 0.125}

    after = apply_pass(fold_requantization, fused(graph_of(y=y)), formula)
    assert "round" not in shown(after)["y"] and shown(after)["y"].count("saturate") == 2
    assert shown(after)["y"].count("multiply_add") == 2 and shown(after)["y"].count("divide") == 1
    assert quantizations_of(after)["y"].low == -3 and quantizations_of(after)["y"].scale == 0.125


def test_a_first_division_stays() -> None:
    """onnxruntime divides too, and 1 / 0.3 is no float: a product may be on the other side of a half."""
    graph = fused(graph_of(y=quantised(image(), 0.3, 5)))
    after = apply_pass(fold_requantization, graph, lambda x: {"y": quantised(x, 0.3, 5)})
    assert shown(after)["y"] == "load(x) then saturate(divide($0, 0.3), -5, 250)"


@pytest.mark.parametrize(("second", "kept"), [((0.5, 9), 1), ((0.5, 3), 2), ((0.25, 9), 2)])
def test_levels_that_are_quantised_again_to_themselves_stay(second: tuple[float, int], kept: int) -> None:
    graph = fused(graph_of(y=quantised(quantised(image(), 0.5, 9) * 0.5, *second)))
    after = apply_pass(fold_requantization, graph, lambda x: {"y": quantised(quantised(x, 0.5, 9) * 0.5, *second)})
    assert shown(after)["y"].count("saturate") == kept


def test_the_product_of_two_quantised_tensors_has_one_factor() -> None:
    """The product is the SiLU of a quantised network: x * sigmoid(x)."""
    def silu(x: Any, sigmoid: Any) -> Any:
        level = quantised(x, 0.5, 9) * 0.5
        return quantised(level * (quantised(sigmoid(level), 2.0**-8) * 2.0**-8), 0.25, 9)

    graph = fused(graph_of(y=silu(image(), Tensor.sigmoid)))
    after = apply_pass(fold_requantization, graph, lambda x: {"y": silu(x, lambda v: 1 / (1 + numpy.exp(-v)))})
    assert shown(after)["y"].count("multiply(") == 3  # one by the scale in the sigmoid


def test_a_common_factor_is_applied_once() -> None:
    x, r = image(), Tensor.input("r", image().shape)
    graph = fused(graph_of(y=quantised(((x + r) + 1.0) * 0.5, 0.25)))
    after = apply_pass(fold_requantization, graph, lambda x, r: {"y": quantised((x + r + 1) * 0.5, 0.25)})
    assert "multiply_add(add($0, $1), 2, 2)" in shown(after)["y"]


def test_what_is_not_quantised_stays() -> None:
    x = image()
    unchanged(fold_requantization, fused(graph_of(y=(x / 0.5).apply("round") * 3.0)))
    unchanged(fold_requantization, fused(graph_of(y=(x / 0.5).clip(0, 255) * 3.0)))
    unchanged(fold_requantization, fused(graph_of(y=(x / 0.5).apply("round").clip(0.5, 255) * 3.0)))
    unchanged(fold_requantization, fused(graph_of(y=x.conv2d(const(4, 8, 1, 1)) * 3.0)))


def test_a_number_that_is_not_known_stays_so() -> None:
    """NaN marks integers that are not exact. A saturated NaN would be a level."""
    marked = (image() * 3.0).apply("less", 2.0**24)
    unchanged(fold_requantization, fused(graph_of(y=quantised(where(marked, image(), float("nan")), 0.5))))
