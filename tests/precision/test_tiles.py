"""The layers that use Winograd's F(4x4, 3x3): measured choices, and the same search with costs that are given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
from graphs import Taking, prefer_large_tiles

from imgconv.cl.context import Context
from imgconv.cl.device import DeviceInfo
from imgconv.compiling.compiler import PreparedGraph
from imgconv.compiling.plan import Plan
from imgconv.config import Config, Precision
from imgconv.kernels.winograd.problem import Specialisation
from imgconv.loading.device_target import target_of
from imgconv.passes import run_passes
from imgconv.precision import tiles
from imgconv.precision.choose import choose_precision
from imgconv.precision.search import TrialBudget
from imgconv.precision.tiles import choose_tiles
from imgconv.runtime.session import Session
from imgconv.tensor import Tensor, build_graph

RANDOM = numpy.random.default_rng(8)
CHOOSER = Taking(winograd2d=lambda problem, *_: Specialisation((4, 4, 4), problem.tile))


@pytest.fixture(autouse=True)
def no_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Phones' plans use Winograd's filtering wherever they can, and the larger tiles wherever they may."""
    prefer_large_tiles(monkeypatch)
    monkeypatch.setattr(tiles, "CostModelChooser", lambda: CHOOSER)


def prepared_of(device: DeviceInfo) -> tuple[PreparedGraph, dict[str, numpy.ndarray]]:
    """One layer, and an input of halves. F(4x4, 3x3) costs about 1e-3 of the largest output, F(2x2, 3x3) half of it."""
    if not device.half_images:
        pytest.skip("the device has no textures of halves")
    weights = Tensor.constant(RANDOM.normal(size=(16, 16, 3, 3)).astype(numpy.float32))
    x = Tensor.input("x", (1, 16, 24, 24))
    graph = run_passes(build_graph({"y": x.conv2d(weights, padding=1)}))
    given = RANDOM.normal(size=x.shape).astype(numpy.float16).astype(numpy.float32)
    return PreparedGraph(graph, Config(float16=1), target_of(device)), {"x": given}


def large_launches(plan: Plan) -> int:
    return sum("#define TILE 4\n" in launch.source.text for launch in plan.launches)


@pytest.mark.parametrize(("bound", "large"), [(0.1, "y"), (8e-4, "")])
def test_large_tiles_keep_the_bound(device: DeviceInfo, context: Context, bound: float, large: str) -> None:
    """Also where the device is no phone; its own plan stays as it is."""
    prepared, inputs = prepared_of(device)
    choice = choose_precision(prepared, context, None, [inputs], bound)
    assert choice.precision.large_tiles == frozenset(large) and choice.error <= bound
    config = replace(prepared.config, precision=choice.precision)
    assert large_launches(tiles.for_phone(prepared).plan(config)) == 2 * len(large)
    assert not large_launches(choice.session.plan) or prepared.target.is_mobile


def test_a_load_on_a_phone_measures_them(
    device: DeviceInfo, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chosen plan has them, and the plan without them is not built again. A load on another device leaves them out.
    """
    plans: list[Plan] = []

    def session(plan: Plan, *others: Any, **named: Any) -> Session:
        plans.append(plan)
        return Session(plan, *others, **named)

    monkeypatch.setattr(tiles, "Session", session)
    prepared, _ = prepared_of(device)
    target = replace(prepared.target, kind="gpu", compute_units=2, linear=None)
    phone = replace(prepared, target=target, chooser=CHOOSER)
    choice = choose_precision(phone, context, bound=1.0, started=perf_counter() - 60)
    assert choice.precision.large_tiles == {"y"} and large_launches(choice.session.plan) == 2
    assert [large_launches(plan) for plan in plans] == [2]
    if not prepared.target.is_mobile:
        elsewhere = choose_precision(prepared, context, bound=1.0, started=perf_counter() - 60)
        assert not elsewhere.precision.large_tiles


@dataclass
class GivenTiles:
    """`TileTrials` of layers whose large tiles cost what a function says, and may cost 1e-3."""

    costs: Mapping[str, float]
    seconds: float = 1.0
    precision: Precision = Precision()
    judged_runs: tuple[SimpleNamespace, ...] = (SimpleNamespace(room=1e-3),)
    storage: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(inputs=[None]))
    budget: TrialBudget = field(default_factory=TrialBudget)

    @property
    def sizes(self) -> dict[str, int]:
        return dict.fromkeys(self.costs, 1)

    def cost(self, large: frozenset[str]) -> float:
        self.budget.spend()
        return float(sum(self.costs[name] ** 2 for name in large) ** 0.5)

    def trial(self, large: frozenset[str]) -> tuple[None, list[float]]:
        return None, [self.cost(large)]

    def allowed(self, large: frozenset[str]) -> bool:
        return self.cost(large) <= 1e-3


COSTS = {"first": 1e-4, "sensitive": 1.0, "third": 1e-4, "last": 1e-4}


@pytest.mark.parametrize(("costs", "seconds", "large"), [
    (COSTS, None, {"first", "third", "last"}), (COSTS, 1.0, set()), (COSTS, 100.0, {"first", "third", "last"}),
    (dict.fromkeys(COSTS, 1e-4), 0.0, set(COSTS)),
])
def test_as_many_layers_as_the_bound_allows(costs: dict[str, float], seconds: float | None, large: set[str]) -> None:
    """Without time for trials, all or none."""
    found = choose_tiles(GivenTiles(costs), seconds=seconds)
    assert found is not None and found[0].large_tiles == large and found[1] <= 1e-3


def test_without_such_layers_nothing_is_measured() -> None:
    assert choose_tiles(GivenTiles({})) is None
