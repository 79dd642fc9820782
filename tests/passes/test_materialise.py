"""materialise_operands: its Given and Result, where it must act and where it must not."""

from __future__ import annotations

from graphs import apply_pass, const, graph_of, image, node_of, numbers, numpy_convolution, pushed, shown, unchanged

from imgconv.passes.materialise import materialise_operands
from imgconv.tensor import Tensor


def test_materialise_given_and_result() -> None:
    x = image()
    w = numbers(4, 8, 1, 1)
    table = [5, 0, 3, 3]
    e = (x * 2.0).named("e")
    graph = pushed(graph_of(y=e.take(2, table).conv2d(Tensor.constant(w, "w"))))
    after = apply_pass(
        materialise_operands, graph, lambda x: {"y": numpy_convolution(2 * x[:, :, table], w)}
    )
    assert shown(after) == {
        "e": "load(x) then multiply($0, 2)", "y.input": "load(e[0, i1, table4[i2], i3])",
        "y": "convolution(y.input, w)",
    }


def test_materialise_makes_one_node_for_equal_reads() -> None:
    x = image()
    moved = x.transpose(0, 1, 3, 2)
    graph = pushed(graph_of(y=moved.conv2d(const(4, 8, 1, 1)), z=moved.conv2d(const(4, 8, 1, 1, seed=1))))
    after = apply_pass(materialise_operands, graph)
    assert [n.output.name for n in after.nodes] == ["y.input", "y", "z"]


def test_materialise_of_each_kind_of_movement() -> None:
    x = image()
    for moved in (
        x.slice(2, 1, 6), x.slice(3, 5, -1, -1), x.upsample(2), x.pad([0, 0, 1, 1], [0, 0, 1, 1], 1.0),
        x.take(1, [1, 0, 2, 3, 4, 5, 6, 7]), x.reshape(1, 8, 4, 9), x.slice(1, 2, 6), x.slice(1, 4, 7),
    ):
        graph = pushed(graph_of(y=moved.conv2d(const(4, moved.shape[1], 1, 1))))
        after = apply_pass(materialise_operands, graph)
        assert node_of(after, "y").operands[0].view.is_identity and len(after.nodes) == 2


def test_materialise_leaves_what_is_read_in_its_own_order() -> None:
    x = image()
    weights = const(4, 8, 1, 1)
    unchanged(materialise_operands, pushed(graph_of(y=x.conv2d(weights))))
    # Reshapes that only add or drop axes of length one.
    line = image(1, 8, 36, name="l")
    unchanged(materialise_operands, pushed(graph_of(y=line.reshape(1, 8, 1, 36).conv2d(weights))))
    # Whole texels of channels.
    unchanged(materialise_operands, pushed(graph_of(y=image(2, 16, 5, 5).slice(1, 4, 12).conv2d(weights))))
    moved = x.transpose(0, 1, 3, 2)
    unchanged(materialise_operands, pushed(graph_of(y=moved.exp(), z=moved.sum([1]), p=moved @ const(6, 2))))
