"""push_into_concatenation: its Given and Result, MixNet's layers, and where elementwise work stays."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from graphs import apply_pass, const, graph_of, image, numpy_convolution, pushed, shown, unchanged

from imgconv.graph.nodes import Concatenation, Convolution, Graph, Load
from imgconv.passes import run_passes
from imgconv.passes.concatenation_parts import push_into_concatenation
from imgconv.passes.elementwise import merge_elementwise
from imgconv.tensor import Tensor, concatenate


X = image(1, 8, 6, 6)


def given(**outputs: Tensor) -> Graph:
    return merge_elementwise(pushed(graph_of(**outputs)))


def mixed(x: Tensor, first: int = 8, second: int = 4) -> tuple[Tensor, Any]:
    """Two convolutions of different windows, concatenated, and their formula."""
    v, w = const(first, 8, 1, 1), const(second, 8, 3, 3)
    def formula(x: Any) -> Any:
        return numpy.concatenate([numpy_convolution(x, v.array), numpy_convolution(x, w.array, pads=(1,) * 4)], 1)
    return concatenate([x.conv2d(v), x.conv2d(w, padding=1)], 1), formula


def test_the_last_part_may_end_inside_a_texel() -> None:
    whole, formula = mixed(X, 8, 5)
    after = apply_pass(push_into_concatenation, given(y=whole.exp()), lambda x: {"y": numpy.exp(formula(x))})
    assert isinstance(after.producers["y"].operation, Concatenation)


def test_parts_given_and_result() -> None:
    x, other = image(1, 8, 6, 6), image(1, 12, 6, 6, name="o")
    whole, formula = mixed(x)
    after = apply_pass(
        push_into_concatenation, given(y=(whole + other).exp()), lambda x, o: {"y": numpy.exp(formula(x) + o)}
    )
    texts = shown(after)
    first, second = (node.output.name for node in after.nodes if isinstance(node.operation, Convolution))
    assert texts["y.part0"] == f"load({first}) then exp(add($0, $1)), $1=o[0, i1, i2, i3]"
    assert texts["y.part1"] == f"load({second}) then exp(add($0, $1)), $1=o[0, i1 + 8, i2, i3]"
    assert texts["y"] == "concatenation axis 1(y.part0, y.part1)"


def test_parts_take_a_normalisation_an_activation_and_a_residual() -> None:
    """A block of MixNet: the whole pipeline leaves two convolutions and the concatenation."""
    x = image(2, 8, 6, 6)
    whole, formula = mixed(x, 4, 4)
    scale, shift = const(8, 1, 1, low=0.5), const(8, 1, 1, seed=1)
    def expected(x: Any) -> dict[str, Any]:
        sums = formula(x) * scale.array + shift.array
        return {"y": sums / (1 + numpy.exp(-sums)) + x}
    after = apply_pass(run_passes, graph_of(y=(whole * scale + shift).silu() + x), expected)
    kinds = [type(node.operation) for node in after.nodes]
    assert kinds == [Convolution, Convolution, Concatenation]


def test_what_is_copied_takes_the_work() -> None:
    """A block of InceptionNeXt: some channels are convolved, the others copied; both take the scale after them."""
    x = image(1, 8, 6, 6)
    w, scale = const(4, 4, 3, 3), const(8, 1, 1, low=0.5)
    whole = concatenate([x.slice(1, 0, 4), x.slice(1, 4, 8).conv2d(w, padding=1)], 1)
    def expected(x: Any) -> dict[str, Any]:
        made = [x[:, :4], numpy_convolution(x[:, 4:], w.array, pads=(1,) * 4)]
        return {"y": numpy.concatenate(made, 1) * scale.array}
    after = apply_pass(run_passes, graph_of(y=whole * scale), expected)
    assert [type(node.operation) for node in after.nodes] == [Load, Convolution, Concatenation]


def test_loads_that_make_parts_take_the_work() -> None:
    """Parts that share texels are one load, which the work is merged into."""
    x = image(1, 8, 6, 6)
    w = const(8, 8, 1, 1)
    whole = concatenate([x.slice(1, 0, 2), x.slice(1, 6, 8), x.conv2d(w)], 1)
    def expected(x: Any) -> dict[str, Any]:
        return {"y": numpy.exp(numpy.concatenate([x[:, :2], x[:, 6:], numpy_convolution(x, w.array)], 1))}
    after = apply_pass(run_passes, graph_of(y=whole.exp()), expected)
    assert [type(node.operation) for node in after.nodes] == [Load, Convolution, Concatenation]


WHOLE = mixed(X)[0]


@pytest.mark.parametrize("outputs", [
    {"w": WHOLE, "y": WHOLE.exp()},  # the concatenation is an output
    {"y": WHOLE.exp(), "z": WHOLE.sum([2, 3])},  # something else reads it
    {"y": WHOLE.slice(1, 0, 8).exp()},  # a part of it is read
    {"y": concatenate([image(1, 8, 8, 8, name="p").max_pool(3, 1), X.conv2d(const(4, 8, 1, 1))], 1).exp()},  # a maximum
    {"y": mixed(X, 6, 6)[0].exp()},  # parts share texels
    {"y": concatenate([X.conv2d(const(8, 8, 1, 1)), X.conv2d(const(8, 8, 1, 1, seed=1))], 3).exp()},  # along columns
], ids=range(6))
def test_parts_stay(outputs: dict[str, Tensor]) -> None:
    unchanged(push_into_concatenation, given(**outputs))


def test_parts_of_one_concatenation_beside_another() -> None:
    """The work on the first goes to its parts; the second is read elsewhere too."""
    first, _ = mixed(X)
    second = concatenate([X.conv2d(const(4, 8, 1, 1, seed=3)), X.conv2d(const(4, 8, 1, 1, seed=4))], 1)
    graph = given(y=first.exp(), z=second.exp(), p=second.sum([2, 3]))
    after = apply_pass(push_into_concatenation, graph)
    assert isinstance(after.producers["y"].operation, Concatenation)
    assert after.producers["z"] == graph.producers["z"]
