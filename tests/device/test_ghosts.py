"""Depthwise convolutions that write their input beside their result, on every device, against float64 numpy."""

from __future__ import annotations

import pytest
from graphs import assert_near, image, numbers
from running import run_tensors, target
from shuffled import ghost, ghost_in_numpy

from imgconv.cl.context import Context
from imgconv.config import Config
from imgconv.kernels.layout import ImageLimits
from imgconv.kernels.target import Target


def check(context: Context, on: Target, config: Config = Config(), batch: int = 1) -> list[str]:
    x = numbers(batch, 16, 5, 6, seed=3)
    given = image(batch, 16, 5, 6)
    plan, found = run_tensors({"y": ghost(ghost(given), 20) + given}, {"x": x}, context, config, on)
    # A half has 11 bits; four convolutions round once each.
    assert_near(found["y"], ghost_in_numpy(ghost_in_numpy(x), 20) + x, 5e-3 if config.float16 else 2e-5)
    return [launch.operation for launch in plan.launches if launch.kind not in ("pack", "unpack")]


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_ghosts(kind: str, context: Context) -> None:
    assert "movement" not in check(context, target(context, kind), batch=2)


def test_ghosts_fused_with_what_reads_them(context: Context) -> None:
    """On large GPUs a depthwise convolution and the 1x1 convolution that reads it are one launch."""
    found = check(context, target(context, "gpu", compute_units=132))
    assert found.count("separable convolution") == 1


def test_ghosts_in_tiles_and_in_half(context: Context) -> None:
    check(context, target(context, limits=ImageLimits(12, 12, 16), linear=None), Config(float16=1))
