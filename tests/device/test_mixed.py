"""MixNet's layers, whose convolutions read and write some of the channels, on every device, against float64 numpy."""

from __future__ import annotations

import pytest
from graphs import assert_near, const, image, numbers
from running import run_tensors, target

from imgconv.cl.context import Context
from imgconv.config import Config
from imgconv.graph.evaluate import evaluate_graph
from imgconv.kernels.layout import ImageLimits
from imgconv.kernels.target import Target
from imgconv.tensor import Tensor, build_graph, concatenate


def normalised(x: Tensor, seed: int) -> Tensor:
    scaled = x * const(x.shape[1], 1, 1, seed=seed, low=0.5)
    return scaled + const(x.shape[1], 1, 1, seed=seed + 1)


def halves(x: Tensor) -> list[Tensor]:
    return [x.slice(1, first, first + x.shape[1] // 2) for first in (0, x.shape[1] // 2)]


def block(x: Tensor) -> Tensor:
    """Expand, filter with windows of 3 and 5 and uneven padding, squeeze and excite, project, add; all in halves."""
    wide = concatenate([part.conv2d(const(8, 4, 1, 1, seed=n)) for n, part in enumerate(halves(x))], 1)
    wide = normalised(wide, 2).silu()
    parts = [
        part.pad([0, 0, n, n], [0, 0, n + 2, n + 2]).conv2d(const(8, 1, 3 + 2 * n, 3 + 2 * n, seed=4), groups=8)
        for n, part in enumerate(halves(wide))
    ]
    mixed = normalised(concatenate(parts, 1), 5).silu()
    gate = mixed.mean([2, 3], keepdims=True).conv2d(const(4, 16, 1, 1)).silu().conv2d(const(16, 4, 1, 1)).sigmoid()
    made = [part.conv2d(const(4, 8, 1, 1, seed=7 + n)) for n, part in enumerate(halves(mixed * gate))]
    return normalised(concatenate(made, 1), 9) + x


def check(context: Context, on: Target, config: Config = Config(), batch: int = 1) -> list[str]:
    outputs, arrays = {"y": block(block(image(batch, 8, 6, 7)))}, {"x": numbers(batch, 8, 6, 7, seed=3)}
    plan, found = run_tensors(outputs, arrays, context, config, on)
    # A half has 11 bits; each block rounds six times.
    assert_near(found["y"], evaluate_graph(build_graph(outputs), arrays)["y"], 1e-2 if config.float16 else 2e-5)
    return [launch.operation for launch in plan.launches if launch.kind not in ("pack", "unpack")]


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_nothing_is_copied(kind: str, context: Context) -> None:
    wanted = target(context, kind)
    found = check(context, wanted, batch=2)
    assert "movement" not in found and "elementwise" not in found
    assert found.count("squeeze-and-excitation") == (2 if wanted.kind == "gpu" else 0)


def test_in_tiles_and_in_half(context: Context) -> None:
    check(context, target(context, limits=ImageLimits(12, 12, 16), linear=None), Config(float16=1))
