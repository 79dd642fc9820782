"""The search for the values that are stored as fp16.

A plan in fp32 runs on the inputs and shows which values come near 65504. It runs again with all other values rounded
(loss.py). If the error of the outputs is too large, the search (search.py) finds the values that stay fp32. Each choice
is confirmed by the outputs of the chosen plan itself.

On synthetic inputs the error can be as little as a third of that on photographs. So the search accepts less than the
bound on synthetic inputs. If a search chose the values, it accepts still less, because the choice fits these inputs.

At load the search has a time budget: the time that loading the fp32 plan took, minus the time to build the kernels that
only the fp16 plan needs. If textures are images, so that both plans share kernels, it is half of that loading time,
minus the same. The budget and the measured time of a run give the number of runs. The first runs are for as many inputs
as the budget allows, the others for the search. Values that are undecided at the end stay fp32.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from time import perf_counter

import numpy

from imgconv.arrays import Arrays
from imgconv.compiling.compiler import PreparedGraph
from imgconv.compiling.plan import Plan
from imgconv.config import Float16, Precision
from imgconv.kernels.layout import Texture
from imgconv.kernels.target import HALF_MAX
from imgconv.precision.calibration_inputs import MARGIN, overflow_probes, synthetic_inputs
from imgconv.precision.loss import HalfSimulation, is_lost, least_scales, relative_error, scales_of, storage_groups
from imgconv.precision.search import TrialBudget, search
from imgconv.precision.share import UNDECIDED
from imgconv.precision.statistics import build_statistics_in_background, measure_outputs
from imgconv.runtime.device import Device
from imgconv.runtime.programs import ProgressCallback
from imgconv.runtime.session import Session

# Of the bound, what outputs may lose on synthetic inputs with everything in half, and with what a search found. XFeat
# is 1.05e-2 off on a photograph, 0.8e-2 on these.
PART_OF_ALL, PART_OF_FOUND = 2 / 3, 0.4
# Of what is accepted, what half values may cost by the rule of squares, in turn.
MOST = (1.4, 1.2, 1.0, 0.85, 0.7, 0.5, 0.35, 0.25, 0.125, 0.06)
# The number of inputs on which the cost of a block is measured, the worst with all in half. By one alone, YOLOX-Nano's
# search finds nothing that the other inputs allow.
WORST = 2
# Of the time of a float load, what the choice may take at load: at most, and without the search, where building leaves
# less. Runs of tiny models may always take LEAST_SECONDS.
PART_WITH_SHARED_KERNELS, PART_OF_LOAD, LEAST_PART_OF_LOAD, LEAST_SECONDS = 0.5, 1.0, 0.2, 0.1
# Runs on each input, and on each overflow probe, without the search: in float, rounded with and without small weights,
# and by the chosen plan.
RUNS_ON_INPUT, RUNS_ON_PROBE = 4, 2
# If more of the values pass 65504 in overflow probes, the model is not made for these.
OUTLIERS = 0.25

CHOOSING = "choosing fp16 and fp32"
NEAR = "near 65504: {:.3g} on the measured inputs"
NOT_FINITE = "not finite in fp32 either"
SENSITIVE = "too sensitive to rounding"


class StorageSearch:
    """The search for the values that are stored as fp16.

    reference: the plan with all values in fp32 on the device, since `ready`; build: the seconds for building its
    kernels. exact: its outputs for the inputs; largest: the largest magnitude of each value; probes: overflow probes.
    near: the Precision of the values that fp16 could not hold; half: the plan with all other values in fp16. precision,
    errors, session: the last choice that was accepted, its errors on the inputs, and its plan on the device.
    """

    def __init__(
        self, prepared: PreparedGraph, context: Device, progress: ProgressCallback | None, given: tuple[Arrays, ...],
        bound: float, started: float | None = None,
    ) -> None:
        """given: the user's own inputs, if any. started: see choose_precision. Raises what Session raises."""
        self.prepared, self.context, self.bound = prepared, context, bound
        self._progress, self._runs = progress, 0
        self.accepted = (bound, bound) if given else (PART_OF_ALL * bound, PART_OF_FOUND * bound)
        graph, every, begin = prepared.graph, Precision(frozenset(prepared.graph.values)), perf_counter()
        # Inputs are made while the driver compiles.
        with build_statistics_in_background(context), ThreadPoolExecutor(1) as beside:
            drawn = beside.submit(
                copy_context().run, lambda: (given, ()) if given else (synthetic_inputs(graph), overflow_probes(graph))
            )
            self.reference = Session(self.plan(1, every), context, progress)
            self.ready = perf_counter()
            inputs, self.probes = drawn.result()
        self.build, self.run_seconds, self.near = self.ready - begin, float("inf"), Precision(small_weights=True)
        self.half = self.plan(1, self.near)
        for each in inputs[:2]:  # a driver may compile in the first run
            begin = perf_counter()
            self.report_run()
            _, self.largest = measure_outputs(self.reference, [each])
            self.run_seconds = min(self.run_seconds, perf_counter() - begin)
        self.inputs = inputs if started is None else inputs[: self.inputs_within(started)]
        self.probes = self.probes if self.inputs else ()
        self.exact, self.found = measure_outputs(self.reference, self.inputs)
        self.probe_outputs, self.of_probes = measure_outputs(self.reference, self.probes)
        self.scales = scales_of(self.exact, least_scales(graph))
        # Probes that are far out of the model's range say nothing of it.
        out_of_range = sum(not value <= HALF_MAX for value in self.of_probes.values())
        self._simulate(out_of_range <= OUTLIERS * len(self.of_probes), small_weights=True)
        self.precision, self.session, self.errors = every, self.reference, [0.0] * len(self.inputs)
        self.half_error, self.budget, self.order = float("nan"), TrialBudget(), list(range(len(self.inputs)))

    def report_run(self) -> None:
        """Reports a further run. All runs and the builds between them are one step of a load, of unknown length."""
        self._runs += 1
        if self._progress:
            self._progress(self._runs, 0, CHOOSING)

    def plan(self, float16: Float16, precision: Precision) -> Plan:
        return self.prepared.plan(replace(self.prepared.config, float16=float16, precision=precision))

    def _simulate(self, with_probes: bool, small_weights: bool) -> None:
        """Prepares the simulation of the plan with all values in half that are not near 65504."""
        graph = self.prepared.graph
        # Probes need no margin: most models are not made for such inputs.
        self.largest = {
            name: float(numpy.maximum(value, self.of_probes[name] / MARGIN * with_probes))
            for name, value in self.found.items() if name in graph.values
        }
        over = {name: value for name, value in self.largest.items() if not value * MARGIN <= HALF_MAX}
        reasons = {n: NEAR.format(value) if numpy.isfinite(value) else NOT_FINITE for n, value in over.items()}
        self._set_near(Precision(frozenset(over), reasons=reasons, small_weights=small_weights))

    def _set_near(self, near: Precision) -> None:
        """Prepares the simulation of the plan of this Precision."""
        if near != self.near:
            self.half = self.plan(1, near)
        self.near, self.items = near, storage_groups(self.half, self.reference.plan, self.prepared.graph)
        self.simulation = HalfSimulation(self.reference, self.items)

    def loses_outputs(self) -> bool:
        """Returns whether half loses an output of an overflow probe that float has.

        If it does, the largest values in the probes count, and small weights stay float; then again.
        """
        for again in (True, False):
            made = [self.simulation.outputs(self.items, inputs) for inputs in self.probes]
            self.simulation.restore()
            if not any(map(is_lost, made, self.probe_outputs)):
                return False
            if again:
                self._simulate(True, small_weights=False)
        return True

    def inputs_within(self, started: float) -> int:
        """The number of inputs that are measured at load; 0 if runs take too long. started: when the load began."""
        least = max(LEAST_PART_OF_LOAD * (self.ready - started), LEAST_SECONDS)
        runs = int(max(self._seconds_within(started), least) / self.run_seconds)
        probing = RUNS_ON_PROBE * len(self.probes)
        return max((runs // 2 - probing) // RUNS_ON_INPUT, int(runs >= probing + RUNS_ON_INPUT), 0)

    def runs_within(self, started: float) -> int:
        """The runs that a search at load makes. started: when the load began."""
        return max(int(self._seconds_within(started) / self.run_seconds), 0)

    def _seconds_within(self, started: float) -> float:
        """The time that is left to a load, without that of building the plan in half."""
        known = {launch.source.text for launch in self.reference.plan.launches}
        wanted = {launch.source.text for launch in self.half.launches}
        linear = any(isinstance(s, Texture) and s.tiling.linear for s in self.reference.plan.textures)
        part = PART_OF_LOAD if linear else PART_WITH_SHARED_KERNELS
        build = self.build * len(wanted - known) / max(len(wanted), 1)
        return part * (self.ready - started) - (perf_counter() - self.ready) - build

    def search(self, runs: int | None) -> None:
        """Chooses as many values to be half as the bound allows. It always tries all of them, whatever `runs` is.

        Small weights are half only if all values are.
        """
        self.budget = TrialBudget(runs)
        try:
            if self._is_allowed(frozenset(self.items)):
                self.precision = self.near
                return
            self.simulation.restore()
            before = self.half
            self._set_near(replace(self.near, small_weights=False))
            # Without small weights the plan of all values is the one that was just tried.
            refused = self.items.keys() if list(before.content) == list(self.half.content) else None
            sizes = {name: item.size for name, item in self.items.items()}
            found = search(
                sizes, self._cost, lambda half: half != refused and self._is_allowed(half),
                [part * self.accepted[1] for part in MOST], self.budget,
            )
        finally:
            self.simulation.restore()
        undecided = frozenset().union(*(self.items[name].values for name in found.undecided))
        reason = SENSITIVE if found.narrow or not undecided else UNDECIDED
        kept = self.precision.storage
        self.precision = self.near.with_float_values(undecided, UNDECIDED).with_float_values(kept, reason)

    def _loss(self, half: frozenset[str], number: int) -> float:
        """Returns the loss of the outputs of one input if these items are in half."""
        self.budget.spend()
        self.report_run()
        return relative_error(self.simulation.outputs(half, self.inputs[number]), self.exact[number], self.scales)

    def _cost(self, half: frozenset[str]) -> float:
        """Returns the loss of the outputs if these items are in half, on the worst inputs."""
        return max(self._loss(half, number) for number in self.order[:WORST])

    def _is_allowed(self, half: frozenset[str]) -> bool:
        """Returns whether these items may be in half; then they are the choice."""
        accepted = self.accepted[half != self.items.keys()]
        if half == self.items.keys():
            losses = [self._loss(half, number) for number in range(len(self.inputs))]
            self.half_error, self.order = max(losses), sorted(self.order, key=lambda number: -losses[number])
            is_within = self.half_error <= accepted
        else:
            is_within = all(self._loss(half, number) <= accepted for number in self.order)
        return is_within and self._is_confirmed(half, accepted)

    def _is_confirmed(self, half: frozenset[str], accepted: float) -> bool:
        """Returns whether the plan itself loses no more; then it is the choice."""
        kept = [item.values for name, item in self.items.items() if name not in half]
        precision = self.near.with_float_values(frozenset().union(*kept), SENSITIVE)
        self.simulation.restore()
        self.report_run()
        session = Session(self.plan(1, precision), self.context, share_with=[self.reference, self.session])
        self.budget.spend(len(self.inputs))
        pairs = zip(self.inputs, self.exact, strict=True)
        errors = [relative_error(session.run(each), exact, self.scales) for each, exact in pairs]
        if max(errors) > accepted:
            return False
        self.precision, self.session, self.errors = precision, session, errors
        return True
