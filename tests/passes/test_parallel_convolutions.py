"""merge_parallel_convolutions: its Given and Result, RepVGG's and MobileOne's blocks, and what stays apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest
from graphs import apply_pass, assert_near, const, graph_of, image, numbers, numpy_convolution, pushed, shown

from imgconv.graph.expression import function_names
from imgconv.graph.nodes import Convolution, Graph
from imgconv.passes import run_passes
from imgconv.passes.parallel_convolutions import merge_parallel_convolutions
from imgconv.tensor import Tensor


def given(**outputs: Tensor) -> Graph:
    return pushed(graph_of(**outputs))


def convolutions(graph: Graph) -> int:
    return sum(isinstance(node.operation, Convolution) for node in graph.nodes)


def test_parallel_given_and_result() -> None:
    x = image()
    v, w = numbers(8, 8, 1, 1), numbers(8, 8, 3, 3)
    y = x.conv2d(Tensor.constant(v, "v")) + x.conv2d(Tensor.constant(w, "w"), padding=1) + x

    def formula(x: Any) -> dict[str, Any]:
        return {"y": numpy_convolution(x, v) + numpy_convolution(x, w, pads=(1,) * 4) + x}

    after = apply_pass(merge_parallel_convolutions, given(y=y), formula)
    assert shown(after) == {"y.sum": "convolution pads 1x1(x, y.weights)", "y": "load(y.sum)"}
    expected = w.astype(numpy.float64)
    expected[:, :, 1, 1] += v[:, :, 0, 0] + numpy.eye(8)
    assert_near(after.constants["y.weights"], expected, 1e-7)


def block(x: Tensor, groups: int, order: int = 0) -> Tensor:
    """Convolutions of 3x3 and 1x1, and the tensor itself, each normalised; then an activation."""
    channels = x.shape[1]
    each = [
        x.conv2d(const(channels, channels // groups, 3, 3), padding=1, groups=groups),
        x.conv2d(const(channels, channels // groups, 1, 1, seed=1), groups=groups),
        x.conv2d(const(channels, channels // groups, 3, 3, seed=2), padding=1, groups=groups), x,
    ]
    normal = [
        branch * const(channels, 1, 1, seed=number, low=0.5) + const(channels, 1, 1, seed=9 + number)
        for number, branch in enumerate(each)
    ]
    normal = normal[order:] + normal[:order]
    total: Tensor = normal[0] + normal[1] + normal[2] + normal[3]
    return total.silu()


@pytest.mark.parametrize("groups", [1, 2, 8])
@pytest.mark.parametrize("order", range(4))
def test_parallel_branches_with_batch_normalization(groups: int, order: int) -> None:
    after = apply_pass(merge_parallel_convolutions, given(y=block(image(2, 8, 5, 6), groups, order)))
    assert convolutions(after) == 1
    (node,) = run_passes(after).nodes
    assert function_names(node.epilogue).count("add") == 1


def test_parallel_branches_beside_a_residual() -> None:
    x = image()
    inner = x.conv2d(const(8, 8, 1, 1)).relu()
    y = x + (inner.conv2d(const(8, 8, 3, 3), padding=1) - inner.conv2d(const(8, 8, 1, 1, seed=1)) / 2.0)
    after = apply_pass(merge_parallel_convolutions, given(y=y))
    assert convolutions(after) == 2


def test_parallel_windows_of_other_strides_and_dilations() -> None:
    """A dilated window within a larger one, and strides that all branches have."""
    x = image(1, 8, 12, 12)
    dilated = x.conv2d(const(4, 8, 5, 5), padding=2) + x.conv2d(const(4, 8, 3, 3), padding=2, dilation=2)
    strided = x.conv2d(const(4, 8, 3, 3, seed=1), padding=1, stride=2) + x.conv2d(const(4, 8, 1, 1), stride=2)
    after = apply_pass(merge_parallel_convolutions, given(y=dilated.relu(), z=strided.relu()))
    assert convolutions(after) == 2
    made = [n for n in after.nodes if isinstance(n.operation, Convolution)]
    assert {n.operands[1].view.shape[2:] for n in made} == {(5, 5), (3, 3)}


X = image(1, 8, 9, 9)
APART: dict[str, Callable[[], dict[str, Tensor]]] = {
    "of different tensors": lambda: {
        "y": X.conv2d(const(8, 8, 3, 3), padding=1) + X.conv2d(const(8, 8, 1, 1)).relu().conv2d(const(8, 8, 1, 1)),
    },
    "one is an output": lambda: (lambda a: {"a": a, "y": a + X.conv2d(const(8, 8, 3, 3), padding=1)})(
        X.conv2d(const(8, 8, 1, 1))
    ),
    "one is read twice": lambda: (lambda a: {"z": a.exp(), "y": a + X.conv2d(const(8, 8, 3, 3), padding=1)})(
        X.conv2d(const(8, 8, 1, 1))
    ),
    "multiplied": lambda: {"y": X.conv2d(const(8, 8, 3, 3), padding=1) * X.conv2d(const(8, 8, 1, 1))},
    "with an activation": lambda: {"y": X.conv2d(const(8, 8, 3, 3), padding=1) + X.conv2d(const(8, 8, 1, 1)).tanh()},
    "windows of which neither has the other": lambda: {
        "y": X.conv2d(const(8, 8, 3, 3), padding=1) + X.conv2d(const(8, 8, 3, 3, seed=1), padding=2, dilation=2),
    },
    "of other groups": lambda: {"y": X.conv2d(const(8, 8, 1, 1)) + X.conv2d(const(8, 4, 1, 1), groups=2)},
    "a factor that is not finite": lambda: {
        "y": X.conv2d(const(8, 8, 1, 1)) + X.conv2d(const(8, 8, 1, 1, seed=1)) * 1e300 * 1e300,
    },
}


@pytest.mark.parametrize("name", APART)
def test_parallel_convolutions_that_stay(name: str) -> None:
    before = given(**APART[name]())
    after = merge_parallel_convolutions(before)
    assert after is before


def test_parallel_half_of_a_window_is_no_branch() -> None:
    """A 1x1 window whose padding puts it outside of the 3x3 one stays."""
    x = image()
    shifted = x.pad([0, 0, 2, 0], [0, 0, 0, 0]).slice(2, 0, 6).conv2d(const(8, 8, 1, 1))
    before = given(y=x.conv2d(const(8, 8, 3, 3), padding=1) + shifted)
    assert convolutions(merge_parallel_convolutions(before)) == 2
