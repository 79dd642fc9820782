"""The ranges of values, as they are known of what a convolution reads."""

from __future__ import annotations

from collections.abc import Callable

import numpy
import pytest

from imgconv.graph.value_ranges import ValueRanges
from imgconv.graph.view import samples
from imgconv.passes import run_passes
from imgconv.tensor import Tensor, build_graph, concatenate, gather, order, where

WEIGHTS = Tensor.constant(numpy.full((4, 4, 3, 3), 9, numpy.float32))
SHAPE = (1, 4, 6, 6)


def small(make: Callable[[Tensor], Tensor], dtype: str = "float32", largest: float = 100) -> bool:
    """Returns whether a convolution of make(x) is known to read small values, before the passes and after them."""
    x = Tensor.input("x", SHAPE, dtype)
    graph = build_graph({"y": make(x).conv2d(WEIGHTS)}, [x])
    found = set()
    for each in (graph, run_passes(graph)):
        ranges = ValueRanges(each)
        for node in each.nodes:
            if node.output.name == "y":
                low, high = ranges.of_operand(node.operands[0])
                found.add(-largest <= low and high <= largest)
            ranges.known[node.output.name] = ranges.of_node(node)
    assert len(found) == 1
    return found.pop()


BOUNDED: dict[str, Callable[[Tensor], Tensor]] = {
    "clip": lambda x: x.clip(-100, 100), "sigmoid": lambda x: x.sigmoid() * 100, "tanh": lambda x: 99 - x.tanh(),
    "hardsigmoid": lambda x: x.hardsigmoid() / 0.01, "after a convolution": lambda x: x.conv2d(WEIGHTS).clip(0, 6),
    "sine": lambda x: -x.apply("sin"), "mask": lambda x: (x.apply("isnan", dtype="bool")).cast("float32"),
    "mean": lambda x: x.clip(0, 100).mean([2, 3], keepdims=True).expand(*SHAPE),
    "max": lambda x: x.clip(0, 6).pool("max", [3, 3]), "padded": lambda x: x.tanh().pad([0] * 4, [0, 0, 2, 2], 100),
    "join": lambda x: concatenate([x.slice(1, 0, 2).tanh(), x.slice(1, 2, 4).clip(0, 9)], 1),
    "either": lambda x: where(x.apply("isnan", dtype="bool"), x.tanh(), x.sigmoid()),
    "constant": lambda x: x.tanh() * Tensor.constant(numpy.float32([[[-100.0]]])),
    "resized": lambda x: x.tanh().resample({3: ([[0, 1], [2, 3], [4, 5]], [[0.5, 0.5]] * 3)}),
}
UNBOUNDED: dict[str, Callable[[Tensor], Tensor]] = {
    "input": lambda x: x, "relu": lambda x: x.relu(), "hardswish": lambda x: x.hardswish(), "silu": lambda x: x.silu(),
    "clip": lambda x: x.clip(-101, 100), "convolution": lambda x: x.clip(0, 6).conv2d(WEIGHTS),
    "sum": lambda x: x.clip(0, 6).sum([2, 3], keepdims=True).expand(*SHAPE), "exp": lambda x: x.exp(),
    "padded": lambda x: x.tanh().pad([0] * 4, [0, 0, 2, 2], 101), "by zero": lambda x: x.tanh() / x.sigmoid(),
    "join": lambda x: concatenate([x.slice(1, 0, 2).tanh(), x.slice(1, 2, 4)], 1),
    "either": lambda x: where(x.apply("isnan", dtype="bool"), x, x.sigmoid()),
    "constant": lambda x: x.tanh() * Tensor.constant(numpy.float32([[[numpy.inf]]])),
    "less itself": lambda x: x.clip(0, 90) * x.clip(-2, 1), "zero by infinity": lambda x: x * x.sigmoid() * 0.5,
}


@pytest.mark.parametrize("name", BOUNDED)
def test_bounded(name: str) -> None:
    assert small(BOUNDED[name])


@pytest.mark.parametrize("name", UNBOUNDED)
def test_unbounded(name: str) -> None:
    assert not small(UNBOUNDED[name])


def test_types_are_bounds() -> None:
    assert small(lambda x: x.cast("float32") - 128, "uint8", 128) and small(lambda x: x.cast("float32"), "bool", 1)
    assert not small(lambda x: x.cast("float32"), "uint8", 254) and not small(lambda x: x.cast("float32"), "int32")


def test_an_order_gives_positions() -> None:
    assert small(lambda x: order(x, 6).cast("float32"), largest=5)
    assert not small(lambda x: order(x, 6).cast("float32"), largest=4)


def test_a_gather_reads_its_fill() -> None:
    def shifted(x: Tensor, fill: float) -> Tensor:
        seen = samples(SHAPE, {3: [list(range(6))] * 6})
        return gather(x.tanh(), seen, [x], fill)

    assert small(lambda x: shifted(x, 100)) and not small(lambda x: shifted(x, 101))
