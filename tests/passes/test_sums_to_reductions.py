"""reduce_dynamic_weights: its Given and Result, where it must act and where it must not."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from graphs import apply_pass, const, graph_of, image, numpy_convolution, shown, unchanged

from imgconv.graph.nodes import Convolution
from imgconv.passes.sums_to_reductions import reduce_dynamic_weights
from imgconv.tensor import convolution


def test_dynamic_weights_given_and_result() -> None:
    x, w = image(), image(4, 8, 3, 3, name="w")
    graph = graph_of(x, w, y=x.conv2d(w))
    after = apply_pass(reduce_dynamic_weights, graph, lambda x, w: {"y": numpy_convolution(x, w)})
    assert shown(after) == {"y": "sum of multiply($0, $1)(x[0, i4, i2 + i5, i3 + i6], w[i1, i4, i5, i6])"}


@pytest.mark.parametrize("groups", [1, 2, 8])
@pytest.mark.parametrize("strides, pads, dilations", [((1, 1), (1, 1, 1, 1), (1, 1)), ((2, 1), (0, 2, 1, 0), (1, 2))])
def test_dynamic_weights_of_every_attribute(groups: int, strides: Any, pads: Any, dilations: Any) -> None:
    x, w = image(2, 8, 6, 7), image(8, 8 // groups, 3, 2, name="w")
    graph = graph_of(x, w, y=convolution(x, w.tanh(), strides, pads, dilations, groups).relu())
    def formula(x: Any, w: Any) -> dict[str, Any]:
        return {"y": numpy.maximum(numpy_convolution(x, numpy.tanh(w), strides, pads, dilations, groups), 0)}
    after = apply_pass(reduce_dynamic_weights, graph, formula)
    assert not any(isinstance(n.operation, Convolution) for n in after.nodes)


def test_dynamic_weights_of_transposed_convolutions() -> None:
    """A transposed convolution adds each input, times the window, to the output at stride times its position."""
    x, w = image(1, 4, 3, 3), image(4, 3, 3, 2, name="w")
    for groups, pads in ((1, (0, 0)), (2, (1, 0))):
        size = [(3 - 1) * 2 + 3 - pads[0], (3 - 1) * 3 + 2 - pads[1]]
        made = convolution(x, w, [2, 3], [*pads, 0, 0], [1, 1], groups, size, transposed=True)
        def formula(x: Any, w: Any, groups: int = groups, pads: Any = pads) -> dict[str, Any]:
            full = numpy.zeros((1, 3 * groups, 7, 8))
            for c in range(4):
                first = c // (4 // groups) * 3
                for i, j in numpy.ndindex(3, 3):
                    full[0, first : first + 3, 2 * i : 2 * i + 3, 3 * j : 3 * j + 2] += x[0, c, i, j] * w[c]
            return {"y": full[:, :, pads[0] :, pads[1] :]}
        apply_pass(reduce_dynamic_weights, graph_of(x, w, y=made), formula)


def test_dynamic_weights_leave_constant_ones() -> None:
    x = image()
    graph = graph_of(y=x.conv2d(const(4, 8, 1, 1)), z=x.sum([1]), p=x @ image(6, 2, name="m"))
    unchanged(reduce_dynamic_weights, graph)
