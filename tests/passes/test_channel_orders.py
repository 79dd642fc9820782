"""sort_channels_by_readers: its Given and Result, where it must act and where it must not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from graphs import apply_pass, const, graph_of, image, numbers, pushed, shown, unchanged
from shuffled import shuffled, shuffled_in_numpy

from imgconv.graph.nodes import Concatenation, Convolution, Graph, Load
from imgconv.passes import run_passes
from imgconv.passes.channel_orders import MOST_LINKS, sort_channels_by_readers
from imgconv.tensor import Tensor, concatenate


def mixed(y: Tensor) -> Tensor:
    n, c, h, w = y.shape
    return y.reshape(n, 2, c // 2, h, w).transpose(0, 2, 1, 3, 4).reshape(n, c, h, w)


def test_channel_orders_given_and_result() -> None:
    x = image()
    a, b = (x.conv2d(const(8, 8, 1, 1, seed=n, name=f"{name}w")).named(name) for n, name in enumerate("ab"))
    y = concatenate([a, b], 1).named("y")
    c = mixed(y).slice(1, 8, 16).conv2d(const(8, 8, 1, 1, seed=2, name="v")).named("c")
    d = c.relu().conv2d(const(8, 8, 1, 1, seed=3, name="dw")).named("d")
    z = concatenate([mixed(y).slice(1, 0, 8), d], 1)
    after = apply_pass(sort_channels_by_readers, pushed(graph_of(z=z)))
    found = shown(after)
    assert found["y.ordered"] == "concatenation axis 1(a.ordered, b.ordered)"
    assert found["c"] == "convolution(y.ordered[0, i1%4 + (i1/4)*8, i2, i3], c.ordered)"
    assert found["z.ordered"] == "concatenation axis 1(y.ordered, d.ordered)"
    assert found["z"] == "load(z.ordered[0, table16[i1], i2, i3])"


@pytest.mark.parametrize(("half", "units", "batch", "window"), [
    (8, 1, 1, 1), (16, 3, 2, 1), (12, 2, 1, 3), (58, 3, 1, 1), (24, 7, 1, 1), (31, 2, 1, 1),
])
def test_units_are_appended_to_one_concatenation(half: int, units: int, batch: int, window: int) -> None:
    graph = pushed(graph_of(y=shuffled(half, units, batch, window=window)))
    after = apply_pass(sort_channels_by_readers, graph, lambda x: {"y": shuffled_in_numpy(x, half, units, window)})
    nested = [n for n in after.nodes if isinstance(n.operation, Concatenation) and n.output.name.endswith(".ordered")]
    assert len(nested) == units + 1
    whole = run_passes(after)
    assert not [n for n in whole.nodes if isinstance(n.operation, Load)], "something is copied"
    assert all(o.view.shape[1] % 4 == 0 for n in whole.nodes if isinstance(n.operation, Concatenation)
               for o in n.operands)


def test_a_texel_holds_only_channels_of_the_same_readers() -> None:
    """No convolution multiplies a channel that is not its own by zero: an infinity there would be NaN."""
    after = sort_channels_by_readers(pushed(graph_of(y=shuffled(10, 3))))
    for node in after.nodes:
        if isinstance(node.operation, Convolution) and node.operands[0].value.endswith(".ordered"):
            weights = after.constants[node.operands[1].value]
            unread = (weights == 0).all((0, 2, 3)).reshape(-1, 4)
            # What fills a texel repeats the channel before it.
            assert not unread[:, 0].any() and (unread[:, 1:] >= unread[:, :-1]).all()


def reading(graph: Graph, name: str) -> str:
    return shown(graph)[name]


def test_other_readers_get_the_channels_in_their_order() -> None:
    x = image()
    y = concatenate([x.conv2d(const(8, 8, 1, 1, seed=n)).relu() for n in (1, 2)], 1).named("y")
    right = mixed(y).slice(1, 8, 16)
    graph = graph_of(
        c=right.conv2d(const(4, 8, 1, 1, seed=3)), pooled=y.max_pool(3, 2, 1), y=y,
        deep=mixed(y).conv2d(const(16, 1, 3, 3), groups=16), wide=mixed(y).conv2d(const(4, 16, 1, 1, seed=5)),
    )
    after = apply_pass(sort_channels_by_readers, pushed(graph))
    assert ".ordered" in reading(after, "c") and "load(y.ordered" in reading(after, "y")
    # This one shares the copy that the depthwise convolution needs.
    assert ".ordered" not in reading(after, "wide")


def parts(*others: Tensor) -> list[Tensor]:
    return [image().conv2d(const(8, 8, 1, 1, seed=n)).relu() for n in (1, 2)] + list(others)


def test_channel_orders_leaves_everything_else() -> None:
    x = image()
    w = const(4, 16, 1, 1)
    a, b = parts()
    # Nothing is shuffled.
    unchanged(sort_channels_by_readers, pushed(graph_of(y=concatenate([a, b], 1).conv2d(w))))
    # Parts that no convolution makes, that something else reads too, or that are outputs.
    for first, extra in (
        (x, {}), (const(1, 8, 6, 6), {}), (Tensor.constant(numbers(8, 1, 1)).expand(1, 8, 6, 6), {}),
        (x.max_pool(3, 1, 1), {}), (a, {"other": a.tanh()}), (a, {"other": a}),
        (x.conv2d(const(8, 1, 3, 3), padding=1, groups=8), {}), (a + x, {}), (a * x.mean([2, 3], keepdims=True), {}),
    ):
        unchanged(sort_channels_by_readers, pushed(graph_of(y=mixed(concatenate([first, b], 1)).conv2d(w), **extra)))
    # Readers that are no convolutions, or of several groups.
    y = mixed(concatenate([a, b], 1))
    unchanged(sort_channels_by_readers, pushed(graph_of(y=y.max_pool(3, 1, 1))))
    unchanged(sort_channels_by_readers, pushed(graph_of(y=y.conv2d(const(4, 4, 1, 1), groups=4))))
    # Few channels: whole texels would be mostly padding.
    unchanged(sort_channels_by_readers, pushed(graph_of(y=shuffled(3, 2))))


@pytest.mark.parametrize("activation", [lambda x: x.leaky_relu(0.1), Tensor.hardswish, Tensor.silu, Tensor.elu])
def test_elementwise_work_in_several_nodes(activation: Callable[[Tensor], Tensor]) -> None:
    """y = where(x < 0, 0.1 x, x) reads the convolution's result three times."""
    x = image()
    made = [x.conv2d(const(8, 8, 1, 1, seed=n), const(8, seed=n)) for n in (1, 2)]
    y = mixed(concatenate(list(map(activation, made)), 1))
    graph = pushed(graph_of(y=y.conv2d(const(4, 16, 1, 1))))
    after = apply_pass(sort_channels_by_readers, graph)
    assert after.nodes != graph.nodes
    assert not [n for n in run_passes(after).nodes if isinstance(n.operation, Load)]
    # A node in between is read from elsewhere too.
    unchanged(sort_channels_by_readers, pushed(graph_of(y=y.conv2d(const(4, 16, 1, 1)), z=made[0].tanh())))


def test_a_long_chain_is_cut() -> None:
    after = apply_pass(
        sort_channels_by_readers, pushed(graph_of(y=shuffled(32, MOST_LINKS, size=(1, 2)))),
        lambda x: {"y": shuffled_in_numpy(x, 32, MOST_LINKS)},
    )
    nested = [n for n in after.nodes if isinstance(n.operation, Concatenation) and n.output.name.endswith(".ordered")]
    assert len(nested) == MOST_LINKS
