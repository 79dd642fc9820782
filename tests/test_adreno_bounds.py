"""The lower bounds of launches on an Adreno, and the layers that are compared with other engines."""

from __future__ import annotations

from dataclasses import replace

import numpy
import pytest

from benchmarks import adreno
from benchmarks.adreno_bounds import bound_of, groups_of, least_reads
from benchmarks.adreno_peers import compare, layers_of
from benchmarks.adreno_rows import Row, Total
from benchmarks.kernel_text import read_kernel
from benchmarks.published import NETWORKS, Layer
from imgconv.compiling.compiler import prepare
from imgconv.config import Accumulation, Config
from imgconv.kernels.conv.candidates import candidates
from imgconv.kernels.conv.problem import Problem
from imgconv.kernels.conv.work import launch_work
from imgconv.kernels.device_model.adreno import A630
from imgconv.kernels.device_model.mobile_gpu import MOBILE_GPU
from imgconv.kernels.device_model.time_range import NEARLY
from imgconv.tensor import Tensor, build_graph
from models import build

POINTWISE = Problem(1, 256, (28, 28), 256, (28, 28), (1, 1), (1, 1), (1, 1), (0, 0), 1)
WINDOW = Problem(1, 64, (56, 56), 32, (28, 28), (3, 3), (2, 2), (1, 1), (1, 1), 1)
DEPTHWISE = Problem(1, 96, (14, 14), 96, (14, 14), (3, 3), (1, 1), (1, 1), (1, 1), 96, depthwise=True)


def test_a_bound_by_hand() -> None:
    """21 of 24 registers hold 14 sums and 7 inputs: 15 reads for 224 multiply-adds."""
    assert POINTWISE.multiply_adds / least_reads(POINTWISE, 24) == pytest.approx(224 / 15)
    bound = bound_of([POINTWISE], 0, A630)
    arithmetic, texture = (POINTWISE.multiply_adds / rate for rate in (234e9, 11e9 * 9 * 16 * 4 / (9 + 4 * 4)))
    assert bound.seconds == pytest.approx(arithmetic + 1e-5)
    assert bound.pessimistic_seconds == pytest.approx(arithmetic + texture + 1e-5)


@pytest.mark.parametrize("sums", ["float", "half"])
@pytest.mark.parametrize("problem", [POINTWISE, WINDOW, DEPTHWISE], ids=["1x1", "3x3", "depthwise"])
def test_no_candidate_is_below_its_bound(problem: Problem, sums: Accumulation) -> None:
    problem = replace(problem, sums=sums)
    bound = bound_of([problem], 0, A630)
    made = candidates(problem, "gpu", A630.compute_units)
    assert made
    for chosen in made:
        time = MOBILE_GPU.time(launch_work(problem, chosen, "gpu", A630.compute_units), A630)
        assert time.seconds >= bound.seconds, chosen
        assert time.pessimistic_seconds >= bound.pessimistic_seconds or time.seconds > NEARLY * bound.seconds, chosen


def test_layers_of_a_network_are_those_of_its_paper() -> None:
    """MobileNetV2's, but the last one, which is a product here. Some depthwise layers share a launch with the next."""
    plan = prepare(build("mobilenet_v2"), Config(2), adreno.target_for(A630)).plan()
    rows = [Row(launch, A630, read_kernel(launch.source.text)) for launch in plan.launches]
    found = list(layers_of(rows))
    assert [layer for layer, _ in found][:52] == list(NETWORKS["MobileNetV2"])[:52]
    total = Total("mobilenet_v2", A630, rows)
    ours, *others = compare(total)
    groups = list(groups_of([total]))
    assert len(groups[0].rows) == sum(len(group.rows) for group in groups[1:]) == len(rows)
    assert ours.engine == "imgconv" and len(others) == 4 and len({each.layers for each in (ours, *others)}) == 1


def test_the_launches_of_winograd_are_one_layer() -> None:
    weights = Tensor.constant(numpy.ones((128, 128, 3, 3), numpy.float32))
    graph = build_graph({"y": Tensor.input("x", (1, 128, 28, 28)).conv2d(weights, padding=1)})
    plan = prepare(graph, Config(1), adreno.target_for(A630)).plan()
    (found,) = layers_of([Row(launch, A630, read_kernel(launch.source.text)) for launch in plan.compute_launches])
    assert found[0] == Layer("3x3", 128, 128, 28) and [row.launch.name for row in found[1]] == ["y.taps", "y.sums", "y"]
