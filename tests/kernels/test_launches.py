"""Numbers and kinds of the launches of small networks: a pass that stops fusing fails here."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from graphs import apply_pass, check_plan, const, numbers, target

from imgconv.compiling.lower import lower
from imgconv.compiling.plan import Plan
from imgconv.config import Config
from imgconv.passes import run_passes
from imgconv.tensor import Tensor, build_graph, concatenate, convolution


def planned(**outputs: Tensor) -> Plan:
    graph = build_graph(outputs)
    after = apply_pass(run_passes, graph)
    plan = lower(after, Config(), target())
    check_plan(plan, target().limits)
    return plan


def image(*shape: int, name: str = "x") -> Tensor:
    return Tensor.input(name, shape or (1, 8, 8, 8))


def computing(**outputs: Tensor) -> int:
    """Launches other than the packing of inputs and the unpacking of outputs; none of them only copies."""
    plan = planned(**outputs)
    assert not [n for n in plan.launches if n.kind == "copy"], str(plan)
    return len(plan.compute_launches)


def conv(x: Tensor, filters: int, window: int = 1, seed: int = 0, **options: int) -> Tensor:
    groups = options.get("groups", 1)
    w = const(filters, x.shape[1] // groups, window, window, seed=seed)
    return x.conv2d(w, const(filters, seed=seed + 1), padding=window // 2, **options)


def normalised(x: Tensor, seed: int = 5) -> Tensor:
    """BatchNormalization, as an importer spells it."""
    c = x.shape[1]
    mean, scale, shift = (const(c, 1, 1, seed=seed + i) for i in range(3))
    variance = Tensor.constant(numbers(c, 1, 1, seed=seed + 3, low=0.1, high=2))
    return (x - mean) / (variance + 1e-5).sqrt() * scale + shift


def fire(x: Tensor) -> Tensor:
    squeeze = conv(x, 4).relu()
    return concatenate([conv(squeeze, 8, 1, 1).relu(), conv(squeeze, 8, 3, 2).relu()], 1)


def test_fire_module() -> None:
    assert computing(y=conv(fire(image()), 4).relu()) == 3 + 1
    assert computing(y=conv(fire(fire(image())), 4)) == 6 + 1


def test_dense_block() -> None:
    """Every layer reads a concatenation of all that came before, and each part is written once, in its place."""
    parts = [conv(image(), 8)]
    for number in range(1, 5):
        read = normalised(concatenate(parts, 1)).relu() if number > 1 else parts[0].relu()
        parts.append(conv(conv(read, 8, seed=number).relu(), 4, 3, seed=number + 9))
    assert computing(y=conv(normalised(concatenate(parts, 1)).relu(), 4)) == 1 + 4 * 3 + 2


def test_dense_block_of_convolutions_alone() -> None:
    """A kernel cannot write into the image that it reads: of the two parts the smaller one is copied."""
    parts = [conv(image(), 16).named("p0")]
    for number in range(1, 4):
        parts.append(conv(concatenate(parts, 1) if number > 1 else parts[0], 4, 3, number).named(f"p{number}"))
    plan = planned(y=conv(concatenate(parts, 1), 4))
    copied = [launch.description for launch in plan.launches if launch.kind == "copy"]
    assert copied == ["copy p1", "copy p2", "copy p3"]


def test_layers_that_share_weights_share_their_packing() -> None:
    x, z, w = image(), image(name="z"), const(8, 8, 3, 3)

    def packings(**outputs: Tensor) -> list[str]:
        return [storage.name for storage in planned(**outputs).content if storage.name.endswith(".weights")]

    assert packings(a=x.conv2d(w, padding=1), b=z.conv2d(w, padding=1).relu()) == ["a.weights"]
    deconvolved = convolution(z, w, [1, 1], [1, 1, 1, 1], [1, 1], output=[8, 8], transposed=True)
    assert len(packings(a=x.conv2d(w), b=deconvolved)) == 2
    assert len(packings(a=x.conv2d(w), b=z.conv2d(const(8, 8, 3, 3, seed=1)))) == 2


def test_residual_block() -> None:
    x = conv(image(), 8)
    assert computing(y=(conv(conv(x, 8, 3, 1).relu(), 8, 3, 2) + x).relu()) == 1 + 2


def test_residual_block_with_a_projection() -> None:
    x = conv(image(), 8)
    assert computing(y=(conv(conv(x, 16, 3, 1).relu(), 16, 3, 2) + conv(x, 16, 1, 3)).relu()) == 1 + 3


def test_convolution_batch_normalization_silu() -> None:
    assert computing(y=normalised(conv(image(), 8, 3)).silu()) == 1


@pytest.mark.parametrize(
    "activation",
    [
        lambda t: t.relu(), lambda t: t.clip(0, 6), lambda t: t.leaky_relu(0.1), lambda t: t.elu(),
        lambda t: t.hardswish(), lambda t: t.sigmoid(), lambda t: t.tanh(), lambda t: t.leaky_relu(const(8, 1, 1)),
        lambda t: (t / 2**0.5).apply("erf") * t,
    ],
)
def test_every_activation_joins_its_convolution(activation: Callable[[Tensor], Tensor]) -> None:
    assert computing(y=activation(normalised(conv(image(), 8, 3)))) == 1


def test_depthwise_separable_block() -> None:
    x = conv(image(), 8)
    y = normalised(conv(normalised(conv(x, 8, 3, 1, groups=8)).relu(), 16, 1, 2)).relu()
    assert computing(y=y) == 1 + 1


def test_inverted_residual_with_squeeze_and_excite() -> None:
    """Expand, depthwise, the factors, project with these as it reads, and the sum."""
    x = conv(image(), 8)
    wide = conv(conv(x, 16, 1, 1).relu(), 16, 3, 2, groups=16).relu()
    squeeze = conv(conv(wide.mean([2, 3], keepdims=True), 4, 1, 3).relu(), 16, 1, 4).hardsigmoid()
    assert computing(y=conv(wide * squeeze, 8, 1, 5) + x) == 1 + 2 + 1 + 1


def test_softmax() -> None:
    x = conv(image(), 8)
    for axis in (1, 2, 3):
        plan = planned(y=x.softmax(axis))
        assert [n.description for n in plan.compute_launches] == [
            "convolution + add", "max, sum of exp(subtract($0, $1)), subtract exp divide",
        ]


def test_softmax_of_a_mean() -> None:
    """The mean of each channel, then all of the softmax over channels: these are other rows."""
    assert computing(y=conv(image(), 8).mean([2, 3], keepdims=True).softmax(1)) == 1 + 2


def test_instance_normalization() -> None:
    x = conv(image(), 8)
    mean = x.mean([2, 3], keepdims=True)
    d = x - mean
    y = d / ((d * d).mean([2, 3], keepdims=True) + 1e-5).sqrt() * const(8, 1, 1) + const(8, 1, 1, seed=1)
    assert computing(y=y.relu()) == 1 + 1


def standardised(x: Tensor, *axes: int) -> Tensor:
    d = x - x.mean(axes, keepdims=True)
    return d / ((d * d).mean(axes, keepdims=True) + 1e-5).sqrt()


def test_group_normalization() -> None:
    """One launch where the channels of a group are whole texels; else one for each statistic and one for the result."""
    x = conv(image(), 8).relu()
    assert computing(y=standardised(x.reshape(1, 2, 4, 8, 8), 2, 3, 4).reshape(1, 8, 8, 8)) == 1 + 1
    assert computing(y=standardised(x.reshape(1, 4, 2, 8, 8), 2, 3, 4).reshape(1, 8, 8, 8)) == 1 + 3


def test_normalization_of_a_normalization_is_one_launch() -> None:
    assert computing(y=standardised(standardised(image(2, 5, 40), 2) * 3, 2)) == 1


def test_rows_of_different_axes_are_apart() -> None:
    x = image()
    assert computing(y=x - x.max([1], keepdims=True) * x.max([2], keepdims=True)) == 1 + 1


def test_a_statistic_that_others_read_is_a_launch_of_its_own() -> None:
    x = image()
    mean = x.mean([2, 3], keepdims=True)
    assert computing(y=x - mean, z=mean) == 2
    assert computing(y=x - mean, z=conv(mean, 4)) == 3


@pytest.mark.parametrize(("length", "launches"), [(8, 1), (5, 3)])
def test_rows_are_whole_texels_of_the_result(length: int, launches: int) -> None:
    """Rows side by side in a texture of rank 1: of five elements they would share texels."""
    x, state = image(3, length), image(3 * length, name="state")
    graph = build_graph({"y": x.softmax(1).reshape(3 * length) + state})
    plan = lower(apply_pass(run_passes, graph), Config(), target(), {"y": "state"})
    assert len([n for n in plan.launches if n.kind == "compute"]) == launches, str(plan)


def test_windows_that_overlap_are_no_rows() -> None:
    x = image()
    assert computing(y=x - x.max_pool(3, 1, 1)) == 1, "the difference is the pooling's epilogue"
    x = image(1, 1, 8, 8)
    first = x.pool("sum", [8, 1], pads=[4, 0, 0, 0], sizes=[1, 8])
    assert computing(y=x / first) == 2, "a window that is half outside is no row"


def test_classifier_head() -> None:
    x = conv(image(), 8)
    y = x.mean([2, 3]).reshape(1, 8) @ const(8, 10) + const(10)
    assert computing(y=y) == 1 + 2


def test_sub_pixel_upsampling_is_done_while_unpacking() -> None:
    x = conv(image(), 8)
    plan = planned(y=conv(x, 12, 3, 1).depth_to_space(2))
    assert [n.kind for n in plan.launches] == ["pack", "compute", "compute", "unpack"]
    clipped = planned(y=conv(x, 12, 3, 1).depth_to_space(2).clip(0, 1))
    assert len(clipped.launches) == len(plan.launches)


def test_nearest_upsampling_joins_the_sum_that_reads_it() -> None:
    """A feature pyramid: the lateral convolution adds the coarser level as it stores."""
    x, coarse = conv(image(), 8), conv(image(1, 8, 4, 4, name="c"), 8, 1, 1)
    assert computing(y=conv(x, 8, 1, 2) + coarse.upsample(2)) == 3


def test_explicit_padding_joins_the_convolution() -> None:
    x = conv(image(), 8)
    assert computing(y=x.pad([0, 0, 1, 1], [0, 0, 1, 1]).conv2d(const(8, 8, 3, 3)).relu()) == 1 + 1


def test_pooling_after_an_activation() -> None:
    x = conv(image(), 8).relu()
    assert computing(y=conv(x.max_pool(3, 2, 1), 4, 1, 1)) == 3


def test_channel_shuffle() -> None:
    """Two groups interleaved: the shuffle is one launch at most, in front of the convolution."""
    x = conv(image(), 8)
    shuffled = x.reshape(1, 2, 4, 8, 8).transpose(0, 2, 1, 3, 4).reshape(1, 8, 8, 8)
    plan = planned(y=conv(shuffled, 8, 1, 1))
    assert [n.kind for n in plan.compute_launches] == ["compute", "copy", "compute"]


def test_work_that_is_shared_is_done_once() -> None:
    x = image()
    one, two = conv(x, 8, 3).relu(), conv(x, 8, 3).relu()
    assert computing(y=conv(one, 4, 1, 3), z=conv(two, 4, 1, 4)) == 3
