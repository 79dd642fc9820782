"""fuse_epilogues: its Given and Result, where it must act and where it must not."""

from __future__ import annotations

import numpy
from graphs import apply_pass, const, graph_of, image, node_of, numbers, numpy_convolution, pushed, shown, unchanged

from imgconv.graph.expression import Apply
from imgconv.graph.nodes import Convolution, Load, Product, Reduction
from imgconv.passes import concatenations
from imgconv.passes.epilogues import fuse_epilogues
from imgconv.tensor import Tensor, concatenate, origin


def test_epilogues_given_and_result() -> None:
    x = image()
    w, b = numbers(4, 8, 1, 1), numbers(4, 1, 1)
    graph = graph_of(y=(x.conv2d(Tensor.constant(w, "w")).named("c") + Tensor.constant(b, "bias")).relu())
    after = apply_pass(fuse_epilogues, graph, lambda x: {"y": numpy.maximum(numpy_convolution(x, w) + b, 0)})
    assert shown(after) == {"y": "convolution(x, w) then maximum(add($0, $1), 0), $1=bias[i1, 0, 0]"}


def test_epilogues_of_every_kind_of_producer() -> None:
    x = image()
    m = numbers(6, 5)
    after = apply_pass(
        fuse_epilogues, graph_of(p=(x @ Tensor.constant(m)).tanh(), r=x.sum([1]).exp(), q=x.max_pool(2, 2).relu() * 2),
        lambda x: {"p": numpy.tanh(x @ m), "r": numpy.exp(x.sum(1))},
    )
    assert [type(n.operation) for n in after.nodes] == [Product, Reduction, Reduction]
    assert all(isinstance(n.epilogue, Apply) for n in after.nodes)


def test_epilogues_take_operands_of_every_view() -> None:
    x = image()
    small = image(1, 4, 3, 3, name="s")
    w = numbers(4, 8, 1, 1)
    graph = pushed(graph_of(x, small, y=x.conv2d(Tensor.constant(w, "w")) * small.upsample(2)))
    after = apply_pass(
        fuse_epilogues, graph,
        lambda x, s: {"y": numpy_convolution(x, w) * s.repeat(2, 2).repeat(2, 3)},
    )
    assert shown(after) == {"y": "convolution(x, w) then multiply($0, $1), $1=s[0, i1, i2/2, i3/2]"}


def test_epilogues_read_the_result_twice() -> None:
    x = image()
    w = numbers(4, 8, 1, 1)
    c = x.conv2d(Tensor.constant(w, "w"))
    after = apply_pass(
        fuse_epilogues, graph_of(y=c * c.sigmoid()),
        lambda x: {"y": (v := numpy_convolution(x, w)) / (1 + numpy.exp(-v))},
    )
    assert shown(after) == {"y": "convolution(x, w) then multiply($0, sigmoid($0))"}


def test_epilogues_of_a_residual_go_to_the_one_made_last() -> None:
    x = image()
    first = x.conv2d(const(8, 8, 1, 1)).named("first")
    second = first.relu().conv2d(const(8, 8, 1, 1, seed=1)).named("second")
    after = apply_pass(fuse_epilogues, graph_of(y=first + second))
    assert [n.output.name for n in after.nodes][0] == "first" and node_of(after, "y").reads >= {"first"}
    # Either order of the addition; and the later one that depends on the former.
    other = apply_pass(fuse_epilogues, graph_of(y=second + first))
    assert len(after.nodes) == len(other.nodes)


def test_epilogues_never_make_a_cycle() -> None:
    """y reads c and e, where e is computed from c: c's kernel cannot read e."""
    x = image()
    c = x.conv2d(const(8, 8, 1, 1)).named("c")
    e = c.sum([2, 3], keepdims=True).named("e")
    graph = graph_of(y=c - e)
    after = apply_pass(fuse_epilogues, graph)
    assert "c" in after.producers and not isinstance(node_of(after, "y").operation, Convolution)


def test_epilogues_leave_outputs_several_readers_and_other_positions() -> None:
    x = image()
    c = x.conv2d(const(8, 8, 1, 1))
    unchanged(fuse_epilogues, graph_of(c=c, y=c.relu()))
    unchanged(fuse_epilogues, graph_of(y=c.relu(), z=c.max([1])))
    unchanged(fuse_epilogues, pushed(graph_of(y=c.transpose(0, 1, 3, 2).exp())))
    both = c.exp() + c.slice(2, 5, -1, -1)
    after = apply_pass(fuse_epilogues, pushed(graph_of(y=both)))
    assert [type(n.operation) for n in after.nodes] == [Convolution, Load]
    unchanged(fuse_epilogues, graph_of(y=concatenate([x.tanh(), x.exp()], 1).sigmoid()))


def test_epilogues_keep_where_the_work_came_from() -> None:
    x = image()
    with origin("Conv_0"):
        c = x.conv2d(const(4, 8, 1, 1))
    with origin("Relu_1"):
        y = c.relu()
    after = apply_pass(fuse_epilogues, graph_of(y=y))
    assert node_of(after, "y").origin == ("Conv_0", "Relu_1")


def test_epilogues_keep_the_number_of_operands_in_bounds() -> None:
    x = image()
    others = [image(name=f"x{i:02}") for i in range(16)]
    total = x.conv2d(const(8, 8, 1, 1, name="w"))
    for one in others:
        total = total + one
    after = apply_pass(fuse_epilogues, graph_of(x, *others, y=total))
    assert max(len(n.all_operands) for n in after.nodes) <= concatenations.MOST_OPERANDS
    assert len(after.nodes) == 2
