"""share_repeated: its Given and Result, where it must act and where it must not."""

from __future__ import annotations

import numpy
from graphs import apply_pass, graph_of, image, numbers, shown, unchanged

from imgconv.graph.nodes import Graph
from imgconv.passes.repeated import share_repeated
from imgconv.tensor import Tensor


def test_repeated_given_and_result() -> None:
    x = image()
    graph = graph_of(y=x.exp().named("a") + x.exp().named("b"))
    after = apply_pass(share_repeated, graph, lambda x: {"y": 2 * numpy.exp(x)})
    assert shown(after) == {"a": "load(x) then exp($0)", "y": "load(a) then add($0, $1), $1=a"}


def test_repeated_chains_and_constants_of_equal_content() -> None:
    x = image()
    k = numbers(8, 1, 1)
    one = (x * Tensor.constant(k, "k1")).relu().exp()
    two = (x * Tensor.constant(k.copy(), "k2")).relu().exp()
    after = apply_pass(share_repeated, graph_of(y=one - two), lambda x: {"y": 0 * x})
    assert len(after.nodes) == 4 and after.constants.keys() == {"k1"}


def test_repeated_leaves_what_differs_in_anything() -> None:
    x = image()
    k = numbers(8, 1, 1)
    same_bytes = Tensor.constant(k.reshape(1, 8, 1, 1).copy(), "k2")
    hidden = (
        x.exp(), x.tanh(), x.slice(2, 0, 3), x.slice(2, 1, 4), x.sum([1]), x.max([1]), x.sum([2]),
        x * Tensor.constant(k, "k1"), x * same_bytes, x.apply("less", 0.0), x.apply("less", 0.0, dtype="bool"),
        x.pad([0, 0, 1, 0], [0] * 4), x.pad([0, 0, 1, 0], [0] * 4, 1.0), x.reshape(1, 8, 36), x.reshape(8, 36),
    )
    unchanged(share_repeated, graph_of(**{f"y{i}": t.apply("cos", dtype="float32") for i, t in enumerate(hidden)}))


def test_repeated_never_drops_an_output() -> None:
    x = image()
    unchanged(share_repeated, graph_of(y=x.exp(), z=x.exp()))
    mixed = graph_of(y=x.exp(), z=x.exp() * 2)
    after = apply_pass(share_repeated, mixed, lambda x: {"y": numpy.exp(x), "z": 2 * numpy.exp(x)})
    assert shown(after) == {"y": "load(x) then exp($0)", "z": "load(y) then multiply($0, 2)"}
    constants = Graph((), ("c", "d"), (), {"c": numbers(2), "d": numbers(2)})
    assert apply_pass(share_repeated, constants).constants.keys() == {"c", "d"}
