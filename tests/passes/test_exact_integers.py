"""mark_inexact_integers: its Given and Result, where it must act and where it must not."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from graphs import apply_pass, graph_of, image, shown, unchanged

from imgconv.errors import UnsupportedError
from imgconv.graph.evaluate import evaluate_graph
from imgconv.passes import run_passes
from imgconv.passes.exact_integers import mark_inexact_integers
from imgconv.tensor import Tensor, build_graph, concatenate, less, order, where


def whole(name: str = "x", dtype: str = "int32") -> Tensor:
    return Tensor.input(name, (4, 6), dtype)


def test_products_of_integers_are_guarded_and_so_is_what_compares_them() -> None:
    x, y = whole(), whole("y")
    p = (x * y).named("p")
    after = apply_pass(mark_inexact_integers, graph_of(x, y, c=less(p, 5)), lambda x, y: {"c": x * y < 5})
    assert shown(after) == {
        "p": "load(x) then where(less(absolute(multiply($0, $1)), 16777216), multiply($0, $1), nan), $1=y",
        "c": "load(p) then add(less($0, 5), multiply($0, 0))",
    }


def test_integers_that_are_small_are_not_guarded() -> None:
    x, pixels = whole(), whole("pixels", "uint8").cast("int32")
    shifted = pixels * 1000 + 77
    outputs = {
        "sum": shifted.sum([0]), "chosen": where(less(x, 3), x, shifted).maximum(7), "rest": x.apply("modulo", 10) * 9,
        "far": x.apply("quotient", 3), "position": x.argmax(0) + 1, "single": x.cast("float32") * 1e9,
    }
    unchanged(mark_inexact_integers, build_graph(outputs))


def test_sums_of_integers_of_both_signs_are_guarded_by_the_sum_of_their_sizes() -> None:
    x = whole()
    graph = graph_of(x, s=x.sum([1]), n=x.apply("absolute").sum([1]), m=(x * x).max([1]))
    after = apply_pass(mark_inexact_integers, graph, lambda x: {"s": x.sum(1), "n": abs(x).sum(1), "m": (x * x).max(1)})
    texts = shown(after)
    assert [name for name in texts if texts[name].startswith("sum of absolute")] == ["s.sum0"]
    assert "where(less($1, 16777216), $0, nan)" in texts["s"] and "less(absolute($0)" in texts["n"]
    # A maximum passes over NaN: a sum of the same does not.
    assert "add($0, multiply($1, 0))" in texts["m"]
    back = {"x": numpy.int64([[2**24 - 1, 1, 1, -(2**24) + 1, 0, 0]] * 4)}
    assert (evaluate_graph(after, back)["s"] != 2).all()


@pytest.mark.parametrize("step", [mark_inexact_integers, run_passes])
def test_sums_of_bytes_are_not_guarded_but_floats_may_be_anything(step: Any) -> None:
    weights = Tensor.constant(numpy.full((4, 8, 3, 3), 100, numpy.int8).astype(numpy.int32))
    pixels = Tensor.input("p", (1, 8, 6, 6), "uint8").cast("int32")
    after = step(build_graph({"y": pixels.conv2d(weights) + 5, "f": image().cast("int32") * 2}))
    texts = shown(after)
    assert "nan" not in texts["y"] and "nan" in texts["f"]


def test_the_order_of_integers_that_may_be_inexact_is_guarded() -> None:
    """NaN in one row, a product past 2**24, makes every place of the row NaN, and none of the others."""
    x = whole()
    outputs = {"places": order(x * x, 2).named("places"), "free": order(x, 3)}
    after = apply_pass(mark_inexact_integers, graph_of(x, **outputs), lambda x: {
        "places": numpy.argsort(-x * x, 1, "stable")[:, :2], "free": numpy.argsort(-x, 1, "stable")[:, :3],
    })
    assert "add($0, multiply($1, 0))" in shown(after)["places"] and "add" not in shown(after)["free"]
    far = evaluate_graph(after, {"x": numpy.int64([[1, 2, 3, 4, 5, 6]] * 3 + [[5000, 1, 2, 3, 4, 5]])})["places"]
    assert far[:3].tolist() == [[5, 4]] * 3 and 0 not in far[3]


def test_integers_that_only_move_are_left_to_the_host() -> None:
    x = whole()
    known = Tensor.constant(numpy.full((1, 6), 2**31 - 7, numpy.int32))
    moved = concatenate([x.transpose(1, 0).transpose(1, 0), known], 0)
    unchanged(mark_inexact_integers, graph_of(x, y=moved.slice(0, 1, 5)))
    with pytest.raises(UnsupportedError, match="constant integer above"):
        mark_inexact_integers(graph_of(x, y=moved.slice(0, 1, 5) + 1))
