"""Chooses the values of a model that are stored in half, and how its layers sum, by measuring it.

Rounding to half has a relative error of 2^-11 at each value. Most networks do not amplify it. A few do, above all in
their first layers of few channels, whose errors pass through all later layers. And half ends at 65504.

Known beforehand: squares, long sums and inputs of logarithms are float in any plan (compiling/textures.py), and a
quantised network stays float: an error at a level is a whole level, and other pictures have others.

Measured: the plan in float runs on the inputs and shows which values come near 65504. It runs again with all others
rounded (loss.py). If the outputs lose too much, the search (search.py) finds the values that stay float. Each choice is
confirmed by the outputs of the chosen plan itself. With float16=2 the same search then finds how layers sum (sums.py).

At load there are only synthetic inputs (inputs.py), on which outputs lose as little as a third of what they lose on
photographs. So less than the bound is accepted on them, and still less of a search, which fits its choice to them.

At load as many runs are made as fit into the time that the float plan took to load, by the measured time of a run,
less the time to build what kernels the plan in half needs of its own. Where kernels are shared, as textures are images,
it is half of that time. The first runs are for as many inputs as there is time for, the others are the search's. What
is undecided then stays float. Nothing else depends on time: without `started` all inputs are measured, and the search
runs to its end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from time import perf_counter

import numpy

from imgconv.arrays import Arrays
from imgconv.compiling.compiler import Prepared
from imgconv.compiling.plan import Plan
from imgconv.config import Float16, Precision
from imgconv.graph.expression import operations
from imgconv.graph.nodes import Convolution, Graph, Product, Reduction
from imgconv.kernels.layout import Texture
from imgconv.kernels.target import HALF_MAX
from imgconv.precision.inputs import MARGIN, overflow_probes, synthetic_inputs
from imgconv.precision.loss import Simulation, is_lost, items_of, least_scales, relative_error, scales_of
from imgconv.precision.search import Budget, Found, search
from imgconv.precision.share import UNDECIDED
from imgconv.precision.statistics import building_statistics, measured
from imgconv.precision.sums import Sums, choose_sums
from imgconv.runtime.device import Device
from imgconv.runtime.programs import Progress
from imgconv.runtime.session import Session

BOUND = 1e-2
# Of the bound, what outputs may lose on synthetic inputs with everything in half, and with what a search found. XFeat
# is 1.05e-2 off on a photograph, 0.8e-2 on these.
PART_OF_ALL, PART_OF_FOUND = 2 / 3, 0.4
# Of what is accepted, what half values may cost by the rule of squares, in turn.
MOST = (1.4, 1.2, 1.0, 0.85, 0.7, 0.5, 0.35, 0.25, 0.125)
# Of the inputs, those on which the cost of a block is measured: the worst with all in half; at load the worst one only.
WORST = 2
# Of the time of a float load, what the choice may take at load: at most, and without the search, where building leaves
# less.
PART_WITH_SHARED_KERNELS, PART_OF_LOAD, LEAST_PART_OF_LOAD = 0.5, 1.0, 0.2
# Runs on each input, and on each overflow probe, without the search: in float, rounded, and by the chosen plan.
RUNS_ON_INPUT, RUNS_ON_PROBE = 3, 2
# If more of the values pass 65504 in overflow probes, the model is not made for these.
OUTLIERS = 0.25
STEPS = frozenset({"round", "floor", "ceil", "truncate", "sign"})

NEAR = "near 65504: {:.3g} on the measured inputs"
NOT_FINITE = "not finite in float either"
SENSITIVE = "too sensitive to rounding"
LOST = "in a model whose outputs are lost in half if inputs are large"
OF_LEVELS = "in a quantised network, whose levels halves would change"


@dataclass(frozen=True)
class PrecisionChoice:
    """The values that stay wider, and the largest relative error of the outputs on the inputs.

    half_error: the error with everything in half storage that is not near 65504; NaN if that was not measured.
    largest: the largest magnitude of every measured value. session: the chosen plan on the device.
    """

    precision: Precision
    error: float
    half_error: float
    largest: Mapping[str, float] = field(repr=False)
    session: Session = field(repr=False, compare=False)


def choose_precision(
    prepared: Prepared, context: Device, progress: Progress | None = None, inputs: Sequence[Arrays] = (),
    bound: float = BOUND, runs: int | None = None, started: float | None = None,
) -> PrecisionChoice:
    """The PrecisionChoice by which the settings' float16 changes the outputs by at most `bound` on the inputs.

    inputs: arrays by input name (default: synthetic pictures). runs: the most runs of each search. started: the
    perf_counter() at which a load began that must not take long. Raises what Session raises.
    """
    graph, float16 = prepared.graph, prepared.config.float16
    nothing = Precision(frozenset(graph.values))
    if not inputs and is_quantised(graph):
        kept = Precision().and_storage(nothing.storage, OF_LEVELS)
        plan = prepared.plan(replace(prepared.config, precision=kept))
        return PrecisionChoice(kept, 0.0, float("nan"), {}, Session(plan, context, progress))
    storage = _Storage(prepared, context, progress, tuple(inputs), bound, started)
    if not storage.inputs:
        kept = Precision().and_storage(nothing.storage, UNDECIDED)
        return PrecisionChoice(kept, 0.0, float("nan"), storage.largest, storage.reference)
    if storage.loses_outputs():
        kept = Precision().and_storage(nothing.storage, LOST)
        return PrecisionChoice(kept, 0.0, float("nan"), storage.largest, storage.reference)
    if started is not None:
        runs = storage.runs_within(started)
    storage.search(Budget(runs))
    precision, errors, session = storage.precision, storage.errors, storage.session
    error = max(errors, default=0.0)
    if float16 == 2:
        sums = Sums(prepared, context, progress, storage.reference, session, precision, storage.inputs, storage.exact,
                    storage.scales, tuple(errors), bound)
        seconds = None if started is None else PART_OF_LOAD * (storage.ready - started)
        precision, error, session = choose_sums(sums, ends_in_softmax(graph), runs, seconds)
    return PrecisionChoice(precision, error, storage.half_error, storage.largest, session)


class _Storage:
    """The search for the values that are stored in half.

    reference: the plan with all values in float, which ready tells the time of; build: the seconds of its kernels.
    exact: its outputs for the inputs; largest: the largest magnitude of each value; probes: overflow probes.
    near: the Precision of the values that half could not hold; half: the plan with all others in half.
    precision, errors, session: the last choice that was accepted, its errors on the inputs, and its plan on the device.
    """

    def __init__(
        self, prepared: Prepared, context: Device, progress: Progress | None, given: tuple[Arrays, ...], bound: float,
        started: float | None = None,
    ) -> None:
        self.prepared, self.context, self.progress = prepared, context, progress
        self.accepted = bound if given else PART_OF_ALL * bound
        self.accepted_of_found = bound if given else PART_OF_FOUND * bound
        graph, every = prepared.graph, Precision(frozenset(prepared.graph.values))
        plan, begin = self.plan(1, every), perf_counter()
        # Inputs are made while the driver compiles.
        with building_statistics(context), ThreadPoolExecutor(1) as beside:
            drawn = beside.submit(
                copy_context().run, lambda: (given, ()) if given else (synthetic_inputs(graph), overflow_probes(graph))
            )
            self.reference = Session(plan, context, progress)
            self.build, self.ready = perf_counter() - begin, perf_counter()
            inputs, self.probes = drawn.result()
        self.half, begin = self.plan(1, Precision()), perf_counter()
        self.exact, found = measured(self.reference, inputs[:1], progress)
        self.run_seconds = perf_counter() - begin
        self.inputs = inputs if started is None else inputs[: self.inputs_within(started)]
        if not self.inputs:
            self.largest = found
            return
        more, of_more = measured(self.reference, self.inputs[1:], progress)
        self.probe_outputs, of_probes = measured(self.reference, self.probes, progress)
        self.exact += more
        found = {name: float(numpy.maximum(value, of_more[name])) for name, value in found.items()}
        self.scales = scales_of(self.exact, least_scales(graph))
        self.found, self.of_probes = found, of_probes
        # Probes that are far out of the model's range say nothing of it.
        out_of_range = sum(not value <= HALF_MAX for value in of_probes.values()) > OUTLIERS * len(of_probes)
        self._simulate(not out_of_range)
        self.precision, self.session, self.errors = every, self.reference, [0.0] * len(self.inputs)
        self.half_error, self.budget = float("nan"), Budget()

    def plan(self, float16: Float16, precision: Precision) -> Plan:
        """A plan of the graph."""
        return self.prepared.plan(replace(self.prepared.config, float16=float16, precision=precision))

    def _simulate(self, with_probes: bool) -> None:
        """Prepares the simulation of the plan with all values in half that are not near 65504."""
        # Probes need no margin: most models are not made for such inputs.
        probes = self.of_probes if with_probes else dict.fromkeys(self.of_probes, 0.0)
        graph = self.prepared.graph
        self.largest = {
            name: float(numpy.maximum(value, probes[name] / MARGIN)) for name, value in self.found.items()
            if name in graph.values
        }
        over = {name: value for name, value in self.largest.items() if not value * MARGIN <= HALF_MAX}
        reasons = {n: NEAR.format(value) if numpy.isfinite(value) else NOT_FINITE for n, value in over.items()}
        self.near = Precision(frozenset(over), reasons=reasons)
        if over:
            self.half = self.plan(1, self.near)
        self.items = items_of(self.half, self.reference.plan, graph)
        self.simulation = Simulation(self.reference, self.items)

    def loses_outputs(self) -> bool:
        """Returns whether half loses an output of an overflow probe that float has.

        If it does, the largest values in the probes count; then again.
        """
        for again in (True, False):
            made = (self.simulation.outputs(self.items, inputs) for inputs in self.probes)
            if not any(map(is_lost, made, self.probe_outputs)):
                return False
            self.simulation.restore()
            if again:
                self._simulate(True)
        return True

    def inputs_within(self, started: float) -> int:
        """The number of inputs that are measured at load; 0 if runs take too long. started: when the load began."""
        least = LEAST_PART_OF_LOAD * (self.ready - started)
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

    def search(self, budget: Budget) -> None:
        """Chooses the values in half, as many as the bound allows."""
        self.budget = Budget()  # the trial of all is always made
        names = frozenset(self.items)
        try:
            errors = self._simulated(names)
            self.half_error = max(errors, default=0.0)
            order = sorted(range(len(errors)), key=lambda number: -errors[number])
            worst = order[: WORST if budget.left is None else 1]
            allowed = self.half_error <= self.accepted and self._is_confirmed(names, frozenset())
            if not allowed:
                self.budget, self.accepted = budget, self.accepted_of_found
                most = [part * self.accepted for part in MOST]
                sizes = {name: item.size for name, item in self.items.items()}
                found = search(
                    sizes, lambda block: max(self._simulated(block, worst)),
                    lambda half: half != names and self._is_allowed(half, order), most, budget,
                )
                self._name_reasons(found)
        finally:
            self.simulation.restore()

    def _simulated(self, half: frozenset[str], numbers: Sequence[int] | None = None) -> list[float]:
        """The errors on some of the inputs (default: all) if these items are in half."""
        found = list[float]()
        for number in range(len(self.inputs)) if numbers is None else numbers:
            if self.progress:
                total = self.budget.left or len(self.items)
                self.progress(min(len(found), total), total, "measuring what half storage costs")
            self.budget.spend()
            made = self.simulation.outputs(half, self.inputs[number])
            found.append(relative_error(made, self.exact[number], self.scales))
        return found

    def _is_allowed(self, half: frozenset[str], order: Sequence[int]) -> bool:
        """Returns whether these items may be in half. order: the inputs, the worst first."""
        if any(error > self.accepted for number in order for error in self._simulated(half, [number])):
            return False
        return self._is_confirmed(half, frozenset())

    def _is_confirmed(self, half: frozenset[str], undecided: frozenset[str]) -> bool:
        """Returns whether the plan itself keeps the bound; then it is the choice."""
        kept = [item.values for name, item in self.items.items() if name not in half]
        precision = self.near.and_storage(frozenset().union(*kept), SENSITIVE)
        self.simulation.restore()
        session = Session(self.plan(1, precision), self.context, self.progress, [self.reference, self.session])
        pairs = zip(self.inputs, self.exact, strict=True)
        self.budget.spend(len(self.inputs))
        errors = [relative_error(session.run(each), exact, self.scales) for each, exact in pairs]
        if max(errors, default=0.0) > self.accepted:
            return False
        self.precision, self.session, self.errors = precision, session, errors
        return True

    def _name_reasons(self, found: Found) -> None:
        """Says why values stay float."""
        undecided = frozenset().union(*(self.items[name].values for name in found.undecided))
        other = SENSITIVE if found.narrow or not undecided else UNDECIDED
        kept = self.precision.storage
        self.precision = self.near.and_storage(undecided, UNDECIDED).and_storage(kept, other)


def is_quantised(graph: Graph) -> bool:
    """Returns whether most convolutions and products read the levels of a quantised network: what round makes."""
    steps = {
        node.output.name for node in graph.nodes
        if not STEPS.isdisjoint(operations(node.epilogue))
        or isinstance(node.operation, Reduction) and not STEPS.isdisjoint(operations(node.operation.body))
    }
    layers = [node for node in graph.nodes if isinstance(node.operation, (Convolution, Product))]
    return 2 * sum(not steps.isdisjoint(node.reads) for node in layers) > len(layers)


def ends_in_softmax(graph: Graph) -> bool:
    """Returns whether exponentials are summed after the last convolutions and products."""
    inner: set[str] = set()  # what a convolution or a product depends on
    for node in reversed(graph.nodes):
        if isinstance(node.operation, (Convolution, Product)) or node.output.name in inner:
            inner.update(node.reads)
    exponentials = {node.output.name for node in graph.nodes if "exp" in operations(node.epilogue)}
    return any(
        isinstance(node.operation, Reduction) and node.operation.kind == "sum" and node.output.name not in inner
        and ("exp" in operations(node.operation.body) or not exponentials.isdisjoint(node.reads))
        for node in graph.nodes
    )
