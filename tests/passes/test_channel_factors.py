"""fuse_channel_factors: its Given and Result, where it must act and where it must not."""

from __future__ import annotations

from typing import Any

import numpy
from graphs import apply_pass, const, graph_of, image, numpy_convolution, pushed, shown, unchanged

from imgconv.graph.expression import Argument, apply
from imgconv.graph.nodes import Convolution, Graph
from imgconv.passes import run_passes
from imgconv.passes.channel_factors import fuse_channel_factors
from imgconv.passes.epilogues import fuse_epilogues
from imgconv.tensor import Tensor


def excited(x: Tensor, w: Tensor) -> tuple[Graph, Any]:
    """Squeeze-and-excite before a convolution, and its formula."""
    s = x.mean([2, 3], keepdims=True).sigmoid().named("s")
    def formula(x: Any) -> dict[str, Any]:
        factor = 1 / (1 + numpy.exp(-x.mean((2, 3), keepdims=True)))
        return {"y": numpy_convolution(x * factor, w.array)}
    return graph_of(y=(x * s).named("m").conv2d(w)), formula


def test_factors_given_and_result() -> None:
    graph, formula = excited(image(2, 8, 6, 6), const(4, 8, 1, 1, name="w"))
    after = apply_pass(fuse_channel_factors, graph, formula)
    assert shown(after)["y"] == "convolution(x, w, s)" and "m" not in after.producers
    # The whole pipeline ends there too.
    assert len(apply_pass(run_passes, graph, formula).nodes) == 2


def test_factors_in_either_order_and_for_several_readers() -> None:
    x, s = image(), image(1, 8, 1, 1, name="s")
    m = s * x
    one, two = const(4, 8, 1, 1), const(8, 8, 1, 1, seed=1)
    def formula(x: Any, s: Any) -> dict[str, Any]:
        y, z = (numpy_convolution(x * s, w.array) for w in (one, two))
        return {"y": y, "z": numpy.maximum(z, 0)}
    after = apply_pass(fuse_channel_factors, graph_of(x, s, y=m.conv2d(one), z=m.conv2d(two).relu()), formula)
    assert [len(n.operands) for n in after.nodes if isinstance(n.operation, Convolution)] == [3, 3]
    assert not any(n.epilogue == apply("multiply", Argument(0), Argument(1)) for n in after.nodes)


def test_factors_of_some_channels() -> None:
    """Convolutions that each read whole texels of the product, and one that reads parts of texels."""
    x, s = image(2, 16, 6, 6), image(2, 16, 1, 1, name="s")
    m = s * x
    w = const(4, 8, 1, 1)
    def formula(x: Any, s: Any) -> dict[str, Any]:
        return {name: numpy_convolution((x * s)[:, first : first + 8], w.array) for name, first in (("y", 0), ("z", 8))}
    y, z = (m.slice(1, first, first + 8).conv2d(w) for first in (0, 8))
    after = apply_pass(fuse_channel_factors, pushed(graph_of(x, s, y=y, z=z)), formula)
    assert [len(n.operands) for n in after.nodes] == [3, 3]
    odd = m.slice(1, 2, 10).conv2d(w)
    unchanged(fuse_channel_factors, pushed(graph_of(x, s, y=y, z=odd)))


def test_factors_stay_where_no_convolution_can_take_them() -> None:
    x, s = image(), image(1, 8, 1, 1, name="s")
    w = const(4, 8, 1, 1)
    for tensor in (
        (x * s).conv2d(const(4, 8, 3, 3)),  # each texel would be multiplied for each tap
        (x * s).conv2d(w, padding=1),
        (x * s).conv2d(const(8, 1, 1, 1), groups=8),
        (x + s).conv2d(w),
        (x * const(8, 1, 1)).conv2d(w),
        (x * image(1, 8, 6, 6, name="t")).conv2d(w),
        (x * image(1, 1, 6, 1, name="r")).conv2d(w),
        (x * s).relu().conv2d(w),
        (x.transpose(0, 1, 3, 2) * s).conv2d(w),
        (x * s).sum([1]),
        (x * s) @ const(6, 2),
        (x * s).transpose(0, 1, 3, 2).conv2d(w),
    ):
        unchanged(fuse_channel_factors, fuse_epilogues(pushed(graph_of(y=tensor))))
    m = x * s
    unchanged(fuse_channel_factors, graph_of(x, s, m=m, y=m.conv2d(w)))
    unchanged(fuse_channel_factors, graph_of(x, s, y=m.conv2d(w), z=m.max([1])))
    unchanged(fuse_channel_factors, fuse_epilogues(graph_of(x, s, y=m.conv2d(const(8, 8, 1, 1)) + m)))
