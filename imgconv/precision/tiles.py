"""The search for the layers that may use Winograd's F(4x4, 3x3) on phones' GPUs.

It runs whole plans of a phone, also on other devices. F(4x4, 3x3) rounds several times as much as F(2x2, 3x3), and a
large value costs the accuracy of its neighbours. So layers are judged like those that sum in fp16 (sums.py): on the
same inputs, of which one is larger than the measured ones, and by the same part of the bound.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from time import perf_counter

from imgconv.compiling.choose import CostModelChooser
from imgconv.compiling.compiler import PreparedGraph
from imgconv.compiling.plan import Plan
from imgconv.config import Precision
from imgconv.kernels.device_model.adreno import A630
from imgconv.kernels.winograd.problem import Problem
from imgconv.precision.loss import relative_error
from imgconv.precision.search import TrialBudget, search, trials_within
from imgconv.precision.storage import StorageSearch
from imgconv.precision.sums import MOST, NONE, ReferenceRun, reference_runs
from imgconv.runtime.session import Session


class TileTrials:
    """A phone's plans that differ in the layers with F(4x4, 3x3), and the errors of their outputs.

    precision: what else was chosen; chosen: its plan on the device. prepared: the graph for a phone. seconds: of the
    last trial, without building.
    """

    def __init__(self, storage: StorageSearch, precision: Precision, chosen: Session) -> None:
        self.storage, self.precision, self.chosen = storage, precision, chosen
        self.prepared = for_phone(storage.prepared)
        self.budget, self.seconds = TrialBudget(), 0.0
        self._known: dict[frozenset[str], tuple[Session, list[float]]] = {}

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The multiply-adds of the layers that use F(4x4, 3x3) if all may."""
        sizes: dict[str, int] = {}
        for products, launch in pairwise(self._plan(frozenset(self.prepared.graph.values)).launches):
            problem = launch.choice.problem if launch.choice else None
            if isinstance(problem, Problem) and problem.to_outputs and problem.tile == 4:
                sizes |= dict.fromkeys(launch.values, products.multiply_adds)
        return sizes

    @cached_property
    def judged_runs(self) -> list[ReferenceRun]:
        """The inputs on which layers are judged, with the errors of the plan without F(4x4, 3x3)."""
        storage = self.storage
        errors = [
            relative_error(self.small.run(inputs), exact, storage.scales)
            for inputs, exact in zip(storage.inputs, storage.exact, strict=True)
        ]
        return reference_runs(storage, self.small, errors)

    @cached_property
    def small(self) -> Session:
        """The plan without F(4x4, 3x3) on the device: on a phone the chosen one."""
        return self.chosen if self.prepared is self.storage.prepared else self._session(NONE)

    def trial(self, large: frozenset[str]) -> tuple[Session, list[float]]:
        """The plan in which these layers use F(4x4, 3x3), and its errors on what is judged."""
        if large not in self._known:
            self.budget.spend()
            judged, session = self.judged_runs, self._session(large) if large else self.small
            begin = perf_counter()
            errors = [each.error_of(session) for each in judged]
            self.seconds = perf_counter() - begin
            self._known[large] = session, errors
        return self._known[large]

    def allowed(self, large: frozenset[str]) -> bool:
        """Returns whether these layers may use F(4x4, 3x3) together."""
        _, errors = self.trial(large)
        return all(each.allows(error) for error, each in zip(errors, self.judged_runs, strict=True))

    def cost(self, large: frozenset[str]) -> float:
        """The change of the outputs of the first input if only these layers use F(4x4, 3x3)."""
        self.budget.spend()
        inputs = self.judged_runs[0].inputs
        return relative_error(self._session(large).run(inputs), self.small.run(inputs))

    def _plan(self, large: frozenset[str]) -> Plan:
        precision = replace(self.precision, large_tiles=large)
        return self.prepared.plan(replace(self.prepared.config, precision=precision))

    def _session(self, large: frozenset[str]) -> Session:
        self.storage.report_run()
        share_with = [self.chosen, *(session for session, _ in list(self._known.values())[:2])]
        return Session(self._plan(large), self.storage.context, share_with=share_with)


def for_phone(prepared: PreparedGraph) -> PreparedGraph:
    """Returns the graph prepared for a phone's GPU with the limits of this device; as it is if the device is one."""
    if prepared.target.is_mobile:
        return prepared
    target = replace(prepared.target, kind="gpu", compute_units=A630.compute_units, linear=None)
    return replace(prepared, target=target, chooser=CostModelChooser())


def choose_tiles(
    tiles: TileTrials, runs: int | None = None, seconds: float | None = None
) -> tuple[Precision, float, Session] | None:
    """Returns the Precision with F(4x4, 3x3) for as many layers as the bound allows, its error and its phone's plan.

    None if no layer would use it. runs: the maximum number of trials; seconds: the time for them, measured on the first
    one.
    """
    every = frozenset(tiles.sizes)
    if not every or not tiles.judged_runs:
        return None
    tiles.trial(every)
    tiles.budget = TrialBudget(trials_within(seconds, tiles.seconds, runs))
    most = [part * min(each.room for each in tiles.judged_runs) for part in MOST]
    found = search(tiles.sizes, tiles.cost, tiles.allowed, most, tiles.budget)
    session, errors = tiles.trial(found.narrow)
    error = max(errors[: len(tiles.storage.inputs)])
    return replace(tiles.precision, large_tiles=found.narrow), error, session
