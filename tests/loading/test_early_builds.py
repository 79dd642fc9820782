"""Workers start before the plan is made, if no earlier load of the graph left a note."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest

from imgconv.cl.build_processes import Builders
from imgconv.cl.device import Context
from imgconv.config import Config
from imgconv.graph.nodes import Graph
from imgconv.loading import early_builds
from imgconv.loading.early_builds import kernels_foreseen, workers_started
from imgconv.tensor import Tensor, build_graph


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int]:
    """How many workers were asked for, each time."""
    counts: list[int] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(early_builds, "workers_for", lambda context, kernels: kernels if kernels > 1 else 0)
    monkeypatch.setattr(Builders, "start", lambda self, count: counts.append(count))
    return counts


def network(layers: int, size: int = 8) -> Graph:
    x = Tensor.input("x", (1, 4, size, size))
    for _ in range(layers):
        x = x.conv2d(Tensor.constant(numpy.ones((4, 4, 1, 1), numpy.float32)))
    return build_graph({"y": x})


def load(graph: Graph, config: Config, context: Context) -> None:
    with workers_started(graph, config, context):
        pass


def test_a_second_load_starts_none(context: Context, started: list[int]) -> None:
    for _ in range(2):
        load(network(6), Config(), context)
    assert started == [6]


def test_another_size_or_setting_starts_them_again(context: Context, started: list[int]) -> None:
    load(network(6), Config(), context)
    load(network(6, 9), Config(), context)
    load(network(6), Config(float16=1), context)
    assert started == [6, 6, 6]


def test_a_load_that_failed_leaves_no_note(context: Context, started: list[int]) -> None:
    with pytest.raises(KeyboardInterrupt), workers_started(network(6), Config(), context):
        raise KeyboardInterrupt
    load(network(6), Config(), context)
    assert started == [6, 6]


def test_few_kernels_need_no_workers(context: Context, started: list[int]) -> None:
    load(network(1), Config(), context)
    assert not started


def test_depthwise_convolutions_share_a_kernel_with_the_next_one() -> None:
    x = Tensor.input("x", (1, 4, 8, 8))
    depthwise, dense = (Tensor.constant(numpy.ones(shape, numpy.float32)) for shape in ((4, 1, 3, 3), (6, 4, 1, 1)))
    y = x.conv2d(depthwise, groups=4).conv2d(dense).mean((2, 3)) @ Tensor.constant(numpy.ones((6, 2), numpy.float32))
    assert kernels_foreseen(build_graph({"y": y})) == 2
