"""fuse_ghost_convolutions: its Given and Result, where it must act and where it must not."""

from __future__ import annotations

import numpy
import pytest
from graphs import apply_pass, const, graph_of, image, numbers, numpy_convolution, pushed, shown, unchanged
from shuffled import ghost, ghost_in_numpy

from imgconv.graph.evaluate import evaluate_graph
from imgconv.graph.nodes import Convolution
from imgconv.passes import run_passes
from imgconv.passes.ghost_convolutions import fuse_ghost_convolutions
from imgconv.tensor import Tensor, concatenate


def test_ghosts_given_and_result() -> None:
    x, w = image(), numbers(8, 1, 3, 3)
    d = x.conv2d(Tensor.constant(w, "w"), padding=1, groups=8).named("d")
    after = apply_pass(
        fuse_ghost_convolutions, pushed(graph_of(y=concatenate([x, d], 1))),
        lambda x: {"y": numpy.concatenate([x, numpy_convolution(x, w, pads=(1, 1, 1, 1), groups=8)], 1)},
    )
    assert shown(after) == {
        "d.joined": "convolution pads 1x1 groups 16(x[0, i1%8, i2, i3], d.weights)",
        "y": "load(d.joined) then where($1, $2, $0), $1=y.own[i1], $2=x[0, i1%8, i2, i3]",
    }


@pytest.mark.parametrize("batch", [1, 2])
def test_modules_copy_nothing(batch: int) -> None:
    x = image(batch, 16, 5, 6)
    graph = pushed(graph_of(y=ghost(ghost(x), 20) + x))
    after = apply_pass(fuse_ghost_convolutions, graph, lambda x: {"y": ghost_in_numpy(ghost_in_numpy(x), 20) + x})
    whole = run_passes(after)
    assert len(whole.nodes) == 4 and all(isinstance(n.operation, Convolution) for n in whole.nodes)


def test_an_infinity_stays_in_its_channels() -> None:
    """Its own channels are chosen, not multiplied by one and their neighbours by zero."""
    x = numbers(1, 8, 5, 5)
    x[0, 3, 2, 2] = numpy.inf
    graph = fuse_ghost_convolutions(pushed(graph_of(y=concatenate(
        [image(1, 8, 5, 5), image(1, 8, 5, 5).conv2d(const(8, 1, 3, 3), padding=1, groups=8)], 1
    ))))
    with numpy.errstate(invalid="ignore"):
        found = evaluate_graph(graph, {"x": x})["y"]
    numpy.testing.assert_array_equal(found[:, :8], x)


def test_ghosts_leaves_everything_else() -> None:
    x = image()
    thin = image(1, 6, 6, 6)
    w = const(8, 1, 3, 3)
    d = x.conv2d(w, padding=1, groups=8)
    for y in (
        concatenate([d, x], 1), concatenate([x, d], 2), concatenate([x, d, x], 1), concatenate([x.relu(), d], 1),
        concatenate([x, d + x], 1), concatenate([x, d * x.mean([2, 3], keepdims=True)], 1),
        concatenate([x, x.conv2d(const(8, 8, 1, 1))], 1), concatenate([x, x.conv2d(const(8, 2, 1, 1), groups=4)], 1),
        concatenate([x, x.conv2d(const(8, 1, 5, 5), padding=2, groups=8)], 1),
        concatenate([thin, thin.conv2d(const(6, 1, 3, 3), padding=1, groups=6)], 1),
    ):
        unchanged(fuse_ghost_convolutions, pushed(graph_of(y=y)))
    # Something else reads the second part, or it is an output.
    unchanged(fuse_ghost_convolutions, pushed(graph_of(y=concatenate([x, d], 1), z=d.tanh())))
    unchanged(fuse_ghost_convolutions, pushed(graph_of(y=concatenate([x, d], 1), z=d)))
