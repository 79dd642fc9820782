"""Convolutions that read some texels of a wider tensor, on every device, against float64 numpy."""

from __future__ import annotations

from typing import Any

import pytest
from graphs import assert_near, numbers
from running import choosing, run_tensors, target
from shuffled import shuffled, shuffled_in_numpy

from imgconv.cl.context import Context
from imgconv.compiling.plan import Plan
from imgconv.config import Config
from imgconv.kernels.conv.candidates import candidates
from imgconv.kernels.conv.problem import Problem, Specialisation
from imgconv.kernels.layout import ImageLimits

HALF = 21  # channels: half of them are neither whole texels nor even


def check(
    context: Context, wanted: Any, config: Config = Config(), units: int = 1, batch: int = 1, window: int = 1,
) -> Plan:
    x = numbers(batch, HALF, 5, 6, seed=3)
    y = shuffled(HALF, units, batch, window=window)
    plan, found = run_tensors({"y": y}, {"x": x}, context, config, wanted)
    # A half has 11 bits; each of the network's dozen convolutions rounds once.
    assert_near(found["y"], shuffled_in_numpy(x, HALF, units, window), 1e-2 if config.float16 else 2e-5)
    return plan


def test_shuffled_channels(context: Context) -> None:
    plan = check(context, target(context), units=2, batch=2)
    assert not [launch for launch in plan.launches if launch.kind == "copy"]


def test_shuffled_channels_in_tiles(context: Context) -> None:
    check(context, target(context, limits=ImageLimits(40, 40, 8), linear=None))


def test_shuffled_channels_in_half(context: Context) -> None:
    check(context, target(context, "gpu"), Config(float16=1))


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_each_way_to_read_the_input(kind: str, number: int, context: Context) -> None:
    """Input kept for several passes, copied to local memory, summed by several work items."""
    def choose(problem: Problem, kind: str, units: int) -> Specialisation:
        found: dict[Any, Specialisation] = {}
        for each in candidates(problem, kind, units):  # type: ignore[arg-type]
            found.setdefault((each.keep, each.has_barriers, each.parts > 1, each.passes > 1), each)
        return list(found.values())[number % len(found)]

    check(context, choosing(target(context, kind), convolution=choose), window=1 + 2 * (number % 2))
