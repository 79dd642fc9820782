"""fold_padding: its Given and Result, where it must act and where it must not."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from graphs import apply_pass, const, graph_of, image, node_of, numbers, numpy_convolution, pushed, shown, unchanged

from imgconv.graph.nodes import Convolution
from imgconv.passes.padding import fold_padding
from imgconv.tensor import Tensor, convolution

W3 = numbers(4, 8, 3, 3, seed=3)


def test_padding_given_and_result() -> None:
    x = image(1, 8, 8, 8)
    graph = pushed(graph_of(y=x.pad([0, 0, 1, 1], [0, 0, 1, 1]).conv2d(Tensor.constant(W3, "w"))))
    assert "where 1 <= i2 < 9 and 1 <= i3 < 9" in shown(graph)["y"]
    after = apply_pass(fold_padding, graph, lambda x: {"y": numpy_convolution(x, W3, pads=(1, 1, 1, 1))})
    assert shown(after) == {"y": "convolution pads 1x1(x, w)"}


@pytest.mark.parametrize("before, after_", [((2, 0), (0, 1)), ((0, 3), (1, 0)), ((0, 0), (2, 2))])
@pytest.mark.parametrize("own", [0, 1])
def test_padding_of_any_side_adds_to_the_convolutions_own(before: Any, after_: Any, own: int) -> None:
    x = image(2, 8, 5, 6)
    padded = x.pad([0, 0, *before], [0, 0, *after_])
    graph = pushed(graph_of(y=padded.conv2d(Tensor.constant(W3), stride=2, padding=own)))
    pads = (before[0] + own, before[1] + own, after_[0] + own, after_[1] + own)
    after = apply_pass(fold_padding, graph, lambda x: {"y": numpy_convolution(x, W3, (2, 2), pads)})
    assert node_of(after, "y").operands[0].view.is_identity
    operation = node_of(after, "y").operation
    assert isinstance(operation, Convolution) and operation.pads == pads[:2]


def test_padding_of_rows_or_columns_of_one() -> None:
    x = image(1, 8, 1, 1)
    graph = pushed(graph_of(y=x.pad([0, 0, 1, 1], [0, 0, 1, 1]).conv2d(Tensor.constant(W3))))
    after = apply_pass(fold_padding, graph, lambda x: {"y": numpy_convolution(x, W3, pads=(1, 1, 1, 1))})
    assert node_of(after, "y").operands[0].view.is_identity


def test_padding_that_is_not_zeros_around_the_image_stays() -> None:
    x = image(1, 8, 6, 6)
    w = Tensor.constant(W3)
    nines = Tensor.constant(numbers(4, 9, 3, 3))
    for padded, weights in (
        (x.pad([0, 0, 1, 1], [0, 0, 1, 1], 1.0), w),  # ones
        (x.pad([0, 1, 0, 0], [0, 0, 0, 0]), nines),  # channels
        (x.transpose(0, 1, 3, 2).pad([0, 0, 1, 1], [0, 0, 1, 1]), w),  # moved besides
        (x.pad([0, 0, 1, 1], [0, 0, 1, 1]).slice(3, 7, -1, -1), w),
        (x.slice(2, 0, 6, 2).pad([0, 0, 1, 1], [0, 0, 1, 1]), w),
        (x.pad([0, 0, 1, 1], [0, 0, 1, 1]).upsample(2), w),
        (x.pad([1, 0, 0, 0], [0, 0, 0, 0]), w),  # the batch
    ):
        graph = pushed(graph_of(y=padded.conv2d(weights)))
        assert not node_of(graph, "y").operands[0].view.is_identity
        unchanged(fold_padding, graph)


@pytest.mark.parametrize(("start", "stop", "step"), [(4, 12, 1), (3, 11, 1), (7, -1, -1)])
def test_padding_of_some_channels(start: int, stop: int, step: int) -> None:
    x = image(1, 12, 6, 7)
    padded = x.slice(1, start, stop, step).pad([0, 0, 1, 0], [0, 0, 2, 1])
    def formula(x: Any) -> dict[str, Any]:
        taken = x[:, start : None if stop < 0 else stop : step]
        return {"y": numpy_convolution(taken, W3, pads=(1, 0, 2, 1))}
    after = apply_pass(fold_padding, pushed(graph_of(y=padded.conv2d(Tensor.constant(W3)))), formula)
    node = node_of(after, "y")
    assert not node.operands[0].view.bounds and node.operation == Convolution(pads=(1, 0))


@pytest.mark.parametrize("own", [0, 1])
@pytest.mark.parametrize("before, after_", [((-1, 2), (0, 0)), ((2, 0), (-2, 0)), ((0, 1), (0, -1)), ((1, -1), (1, 2))])
def test_padding_beside_a_crop_stays(before: Any, after_: Any, own: int) -> None:
    """The convolution's own padding would read what the crop cut off."""
    x = image(1, 8, 6, 6)
    graph = pushed(graph_of(y=x.pad([0, 0, *before], [0, 0, *after_]).conv2d(Tensor.constant(W3), padding=own)))
    def formula(x: Any) -> dict[str, Any]:
        wide = numpy.pad(x, ((0, 0), (0, 0), (2, 2), (2, 2)))
        cut = wide[:, :, 2 - before[0] : 8 + after_[0], 2 - before[1] : 8 + after_[1]]
        return {"y": numpy_convolution(cut, W3, pads=(own,) * 4)}
    apply_pass(fold_padding, graph, formula)


def test_padding_of_other_readers_and_of_transposed_convolutions_stays() -> None:
    x = image(1, 8, 6, 6)
    padded = x.pad([0, 0, 1, 1], [0, 0, 1, 1])
    unchanged(fold_padding, pushed(graph_of(y=padded.sum([1]), z=padded.exp(), p=padded @ const(8, 2))))
    w = const(8, 4, 2, 2)
    made = convolution(padded, w, [2, 2], [0] * 4, [1, 1], 1, [16, 16], transposed=True)
    unchanged(fold_padding, pushed(graph_of(y=made)))
