"""sink_product_scales: its Given and Result, where it must act and where it must not."""

from __future__ import annotations

from typing import Any

import numpy
from graphs import apply_pass, const, graph_of, pushed, shown, unchanged

from imgconv.passes import run_passes
from imgconv.passes.products import sink_product_scales
from imgconv.tensor import Tensor


def matrix(*shape: int, name: str = "x") -> Tensor:
    return Tensor.input(name, shape or (5, 6))


def test_products_given_and_result() -> None:
    x, z = matrix(6, 5), matrix(6, 4, name="z")
    graph = pushed(graph_of(x, z, y=(x * 0.25).transpose(1, 0) @ z))
    after = apply_pass(sink_product_scales, graph, lambda x, z: {"y": 0.25 * x.T @ z})
    assert shown(after) == {"y": "product(x[i1, i0], z) then multiply($0, 0.25)"}


def test_products_of_attention() -> None:
    """Both operands are divided; the softmax reads the product."""
    q, k = matrix(2, 7, 8, name="q"), matrix(2, 7, 8, name="k")

    def formula(q: Any, k: Any) -> dict[str, Any]:
        raised = numpy.exp(numpy.einsum("nik,njk->nij", q, k) / 4)
        return {"y": raised / raised.sum(2, keepdims=True)}

    graph = pushed(graph_of(q, k, y=((q / 2.0) @ (0.5 * k).transpose(0, 2, 1)).softmax(2)))
    after = apply_pass(sink_product_scales, graph, formula)
    assert len(after.nodes) == len(graph.nodes) - 2
    assert len(apply_pass(run_passes, graph, formula).nodes) < len(graph.nodes) - 2


def test_products_of_padded_and_sliced_operands() -> None:
    """A fill of zero is zero times the factor too."""
    x, z = matrix(5, 6), matrix(8, 3, name="z")
    padded = (x.slice(0, 1, 4) * -3.0).pad([0, 1], [0, 1])
    after = apply_pass(
        sink_product_scales, pushed(graph_of(x, z, y=padded @ z)),
        lambda x, z: {"y": -3 * numpy.pad(x[1:4], ((0, 0), (1, 1))) @ z},
    )
    assert len(after.nodes) == 1


def test_products_of_operands_with_other_fill_values() -> None:
    """Padding before the factor is multiplied too, also after the product; padding after it is not."""
    x, z = matrix(3, 5), matrix(6, 4, name="z")
    after = pushed(graph_of(x, z, y=(x * 0.25).pad([0, 0], [0, 1], 1.0) @ z))
    unchanged(sink_product_scales, after)
    apply_pass(run_passes, after, lambda x, z: {"y": numpy.pad(x * 0.25, ((0, 0), (0, 1)), constant_values=1) @ z})
    before = pushed(graph_of(x, z, y=(x.pad([0, 0], [0, 1], 1.0) * 0.25) @ z))
    made = apply_pass(
        sink_product_scales, before, lambda x, z: {"y": numpy.pad(x, ((0, 0), (0, 1)), constant_values=1) * 0.25 @ z}
    )
    assert len(made.nodes) == len(before.nodes) - 1


def test_products_keep_what_others_read_and_what_is_no_factor() -> None:
    x, z = matrix(), matrix(6, 4, name="z")
    for scaled in (x + 0.5, x * 1e9, x * 1e-9, 2.0 / x, x * const(6), (x * 2.0).relu(), x * x):
        unchanged(sink_product_scales, pushed(graph_of(x, z, y=scaled @ z)))
    twice = x * 0.5
    unchanged(sink_product_scales, pushed(graph_of(x, z, y=twice @ z, s=twice)))
    unchanged(sink_product_scales, pushed(graph_of(x, z, y=twice @ z, w=twice.relu())))
    square = matrix(4, 4, name="z") * 0.5
    unchanged(sink_product_scales, pushed(graph_of(y=square @ square)))
