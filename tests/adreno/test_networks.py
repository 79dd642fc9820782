"""Launches of whole networks as Mesa's code for an Adreno 630, where Mesa was built: see benchmarks/adreno.py."""

from __future__ import annotations

from typing import Any

from adreno.simulator import Simulator
import numpy
import pytest

from benchmarks.adreno import gpu_of, target_for
from benchmarks.adreno_mesa import Mesa, find_mesa
from imgconv.compiling.compiler import prepare
from imgconv.config import Config
from imgconv.errors import Error
from imgconv.graph.evaluate import evaluate_node
from models import build

GPU = 630
# Half of values, and half of sums of up to 4608 products.
TOLERANCE = {0: 1e-5, 1: 4e-3, 2: 3e-2}


@pytest.fixture(scope="module")
def mesa() -> Mesa:
    try:
        return find_mesa(integer_coordinates=True)
    except Error:
        pytest.skip("Mesa's compiler for Adreno was not built here")


@pytest.mark.models
@pytest.mark.parametrize("float16", [0, 1, 2])
@pytest.mark.parametrize("name", ["squeezenet", "mobilenet_v2", "supercombo"])
def test_every_value_is_right(mesa: Mesa, name: str, float16: int) -> None:
    """Each value that a launch completes is that of the graph's evaluation in float64."""
    prepared = prepare(build(name), Config(float16=float16), target_for(gpu_of(GPU, None)))
    plan, random = prepared.plan(), numpy.random.default_rng(0)
    inputs = {each.name: random.uniform(-1, 1, each.shape).astype(each.dtype) for each in plan.inputs}
    values: dict[str, Any] = {**prepared.graph.constants, **inputs}
    for node in prepared.graph.nodes:
        values[node.output.name] = evaluate_node(node, values)
    mesa.compile([launch.source.text for launch in plan.launches], [GPU])
    simulator = Simulator(plan, lambda text: mesa.machine_code(text, GPU))
    for number, (launch, counts) in enumerate(simulator.run(inputs)):
        if number in plan.made:
            wanted = values[plan.made[number]]
            off = abs(simulator.value(plan.placements[plan.made[number]]) - wanted).max() / abs(wanted).max()
            assert off < TOLERANCE[float16], launch
        assert counts.slots > 0
