"""Values next to a tensor, around it and in spare lanes, none of which may leak into a result."""

from __future__ import annotations

import numpy
import pytest
from running import run_tensors, target

from imgconv.cl.context import Context
from imgconv.config import Config
from imgconv.tensor import Tensor, concatenate, convolution

POISON = [numpy.nan, numpy.inf, 1e30]


@pytest.mark.parametrize("poison", POISON)
def test_neighbours_do_not_leak(context: Context, poison: float) -> None:
    """A slice next to NaN, infinity or a huge number is what it would be alone, whatever reads it."""
    clean = numpy.random.default_rng(2).uniform(0.5, 2, (2, 5, 4, 3)).astype(numpy.float32)
    dirty = numpy.full((4, 8, 6, 5), poison, numpy.float32)
    dirty[1:3, :5, 1:5, 1:4] = clean

    def outputs(x: Tensor) -> dict[str, Tensor]:
        weights = Tensor.constant(numpy.full((3, 5, 3, 3), 0.25, numpy.float32))
        flat = x.reshape(2, 60)
        return {
            "convolution": x.conv2d(weights, padding=1), "raised": x.exp(),
            "padded": x.pad([1, 1, 1, 1], [1, 2, 1, 1]).exp(),
            "channels": x.sum([1]), "largest": x.max([1, 3]), "image": x.exp().sum([2, 3]), "pool": x.max_pool(3, 2, 1),
            "softmax": x.softmax(1), "joined": concatenate([x, x.exp()], 1), "product": flat @ flat.transpose(),
            "short": x.transpose(0, 2, 3, 1) @ Tensor.constant(numpy.ones((5, 3), numpy.float32)),
            "moved": x.transpose(0, 3, 1, 2), "enlarged": x.upsample(2),
        }

    inner = Tensor.input("x", dirty.shape)
    for axis, (start, stop) in enumerate(((1, 3), (0, 5), (1, 5), (1, 4))):
        inner = inner.slice(axis, start, stop)
    _, alone = run_tensors(outputs(Tensor.input("x", clean.shape)), {"x": clean}, context)
    _, beside = run_tensors(outputs(inner), {"x": dirty}, context, Config(max_image=8))
    for name, want in alone.items():
        assert numpy.isfinite(want).all(), name
        numpy.testing.assert_allclose(beside[name], want, 1e-5, err_msg=name)


@pytest.mark.parametrize("max_image", [None, 8])
def test_convolutions_spread_nothing(context: Context, max_image: int | None) -> None:
    """NaN and infinity reach only outputs whose window meets them: not through padding, batch rows or spare lanes."""
    array = numpy.ones((2, 5, 6, 6), numpy.float32)
    array[1, 0, 0, 0], array[1, 4, 5, 5] = numpy.nan, numpy.inf
    x, weights = Tensor.input("x", array.shape), numpy.full((3, 5, 3, 3), 0.5, numpy.float32)
    dense = convolution(x, Tensor.constant(weights), [1, 1], [1, 1, 1, 1], [1, 1])
    depthwise = convolution(x, Tensor.constant(weights[:1].reshape(5, 1, 3, 3)), [1, 1], [1] * 4, [1, 1], 5)
    outputs = {"dense": dense, "raised": dense.exp() * 1e-30, "depthwise": depthwise}
    _, made = run_tensors(outputs, {"x": array}, context, Config(max_image=max_image), target(context))
    meets = numpy.zeros((2, 6, 6), bool)
    meets[0, :2, :2] = meets[1, 4:, 4:] = True
    expected = {name: numpy.broadcast_to(meets.any(0), (3, 6, 6)) for name in ("dense", "raised")}
    expected["depthwise"] = numpy.stack([meets[0], *numpy.zeros((3, 6, 6), bool), meets[1]])
    for name, found in made.items():
        assert numpy.isfinite(found[0]).all(), name
        assert (~numpy.isfinite(found[1]) == expected[name]).all(), name


def test_padding_after_elementwise_work(context: Context, way: tuple[Config, str]) -> None:
    """exp(0) is not 0: zeros after the work are not zeros before it, and so with a maximum over padded windows."""
    array = numpy.random.default_rng(8).uniform(-2, 0, (2, 5, 4, 3)).astype(numpy.float32)
    x, raised = Tensor.input("x", array.shape), numpy.exp(array.astype(numpy.float64))
    amounts = [(0, 0), (1, 2), (1, 0), (2, 1)]
    before, after = [b for b, _ in amounts], [a for _, a in amounts]
    padded = x.exp().pad(before, after)
    outputs = {
        "padded": padded, "again": padded * 2 + x.pad(before, after, 1.0),
        "summed": x.exp().pool("sum", [3, 3], [1, 1], [1] * 4),
        "largest": (x - 5).pool("max", [3, 3], [2, 2], [1] * 4), "crossed": x.pad(before, after, 2.0).exp(),
    }
    outputs["total"] = padded.sum([1, 2])
    zeros, ones = (numpy.pad(a, amounts, constant_values=c) for a, c in ((raised, 0), (array, 1)))
    ring = numpy.pad(raised, [(0, 0), (0, 0), (1, 1), (1, 1)])
    low = numpy.pad(array - 5.0, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=-numpy.inf)
    taps = [(ky, kx) for ky in range(3) for kx in range(3)]
    expected = {
        "padded": zeros, "again": zeros * 2 + ones, "summed": sum(ring[:, :, y : y + 4, z : z + 3] for y, z in taps),
        "largest": numpy.max([low[:, :, y : y + 3 : 2, z : z + 3 : 2] for y, z in taps], axis=0),
        "crossed": numpy.exp(numpy.pad(array, amounts, constant_values=2)), "total": zeros.sum((1, 2)),
    }
    config = Config(max_image=way[0].max_image)
    _, found = run_tensors(outputs, {"x": array}, context, config, target(context, way[1]))
    for name, want in expected.items():
        numpy.testing.assert_allclose(found[name], want, 1e-5, 1e-5, err_msg=name)


def test_spare_lanes_do_not_leak(context: Context) -> None:
    """log(0) and 1/0 in the lanes past the last channel would turn what reads them into NaN."""
    array = numpy.random.default_rng(4).uniform(0.5, 2, (2, 5, 3, 3)).astype(numpy.float32)
    wide, x = array.astype(numpy.float64), Tensor.input("x", array.shape)
    weights = numpy.random.default_rng(5).uniform(-1, 1, (6, 5, 1, 1)).astype(numpy.float32)
    logs, inverse = x.log(), x.apply("reciprocal")
    eye = Tensor.constant(numpy.eye(5, dtype=numpy.float32))
    outputs = {
        "convolved": convolution(logs, Tensor.constant(weights), [1, 1], [0] * 4, [1, 1]),
        "again": convolution(
            convolution(x, Tensor.constant(weights[:5]), [1, 1], [0] * 4, [1, 1]).apply("absolute").apply("reciprocal"),
            Tensor.constant(weights), [1, 1], [0] * 4, [1, 1],
        ),
        "product": (x.max([2, 3]) @ eye).log() @ eye, "sum": inverse.max_pool(2, 1).sum([1]),
        "joined": concatenate([inverse.max_pool(1, 1), logs.max_pool(1, 1)], 1).sum([1]),
    }
    kernel = weights[:, :, 0, 0].astype(numpy.float64)
    largest = numpy.max([1 / wide[:, :, i : 2 + i, j : 2 + j] for i in (0, 1) for j in (0, 1)], axis=0)
    first = 1 / numpy.abs(numpy.einsum("nchw,oc->nohw", wide, kernel[:5]))
    expected = {
        "convolved": numpy.einsum("nchw,oc->nohw", numpy.log(wide), kernel),
        "again": numpy.einsum("nchw,oc->nohw", first, kernel), "product": numpy.log(wide.max((2, 3))),
        "sum": largest.sum(1), "joined": (1 / wide + numpy.log(wide)).sum(1),
    }
    for max_image in (None, 8):
        _, made = run_tensors(outputs, {"x": array}, context, Config(max_image=max_image))
        for name, want in expected.items():
            numpy.testing.assert_allclose(made[name], want, 1e-4, 1e-5, err_msg=name)
