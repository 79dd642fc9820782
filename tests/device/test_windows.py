"""Pooling whose windows overlap: several outputs of a work item share their reads; against float64 numpy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems.pooling import PoolingProblem
from running import check, device_settings, target

from imgconv.cl.context import Context
from imgconv.compiling.plan import Launch
from imgconv.config import Config
from imgconv.kernels.target import Target

P = PoolingProblem
OVERLAPPING = [
    P((1, 8, 40, 40), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    P((1, 8, 41, 43), (3, 3), (2, 2), (1, 1, 1, 1), (1, 1), "max", True),
    P((1, 8, 40, 37), (3, 3), (2, 2), (0, 0, 1, 1), (1, 1), "average"),
    P((2, 5, 33, 31), (5, 5), (1, 1), (2, 2, 2, 2), (1, 1), "min"),
    P((1, 8, 33, 33), (13, 13), (1, 1), (6, 6, 6, 6), (1, 1)),
    P((1, 8, 40, 40), (3, 3), (1, 1), (2, 2, 2, 2), (2, 2), "sum"),
    P((1, 8, 40, 40), (5, 1), (1, 1), (2, 0, 2, 0), (1, 1)),
    P((1, 8, 40, 40), (2, 5), (2, 1), (0, 2, 0, 2), (1, 1), "average"),
    P((1, 5, 12, 12, 12), (3, 3, 3), (1, 1, 1), (1,) * 6, (1, 1, 1)),
]
APART = [P((1, 8, 40, 40), (2, 2), (2, 2), (0, 0, 0, 0), (1, 1)), P((1, 8, 40, 40), (3, 3), (3, 3), (0,) * 4, (1, 1))]


def wanted(context: Context, kind: str) -> Target:
    """A device of few units: with more of them each output of so small a picture has an item of its own."""
    return target(context, kind, compute_units=2 if kind == "cpu" else 1)


def shares(launch: Launch) -> bool:
    return "column1" in launch.source.text


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_windows_that_overlap_share_reads(context: Context, kind: str) -> None:
    plan = check([*OVERLAPPING, *APART], context, Config(), wanted(context, kind))
    pools = [launch for launch in plan.compute_launches if launch.operation == "reduction"]
    assert [shares(launch) for launch in pools] == [True] * len(OVERLAPPING) + [False] * len(APART)


def test_windows_in_half_and_in_tiles(context: Context) -> None:
    check(OVERLAPPING[::2], context, Config(float16=1, max_image=32), wanted(context, "gpu"))
    check(OVERLAPPING[1::2], context, Config(max_image=32))


def test_few_outputs_have_items_of_their_own(context: Context) -> None:
    small = [replace(problem, shape=(1, 8, 14, 14)) for problem in OVERLAPPING[:3]]
    plan = check(small, context, Config(), target(context, "gpu"))
    assert not any(shares(launch) for launch in plan.compute_launches)


@device_settings(max_examples=6)
@given(
    sizes=st.tuples(st.integers(9, 34), st.integers(9, 34)), window=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)), dilation=st.integers(1, 2), channels=st.integers(1, 9),
    kind=st.sampled_from(["max", "min", "sum", "average"]), rounds_up=st.booleans(), seed=st.integers(0, 99),
)
def test_drawn_windows(
    context: Context, sizes: tuple[int, int], window: tuple[int, int], strides: tuple[int, int], dilation: int,
    channels: int, kind: str, rounds_up: bool, seed: int,
) -> None:
    pads = tuple(seed // (a + 1) % k for a, k in enumerate((*window, *window)))
    problem = P((1 + seed % 2, channels, *sizes), window, strides, pads, (dilation, dilation), kind, rounds_up)
    config = Config(seed % 2, max_image=(None, 16, 64)[seed % 3])
    check([problem], context, config, wanted(context, ("cpu", "gpu")[seed // 6 % 2]))
