"""Runs graphs as Adreno machine code in the simulator, and checks each launch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy

from benchmarks.adreno_mesa import Mesa
from benchmarks.adreno_simulator.launches import Counts, Simulator, compiled_by
from benchmarks.adreno_simulator.memory import Fault
from imgconv.checking.comparing import arithmetic_errors_of
from imgconv.checking.error_bounds import ArithmeticErrors, BoundedValues
from imgconv.checking.launched_nodes import LaunchedNodes, launched_nodes_of
from imgconv.checking.sampled import NotCoveredError, Positions, SampledEvaluator
from imgconv.compiling.compiler import PreparedGraph
from imgconv.compiling.plan import Launch, Plan
from imgconv.graph.evaluate import evaluate_node
from imgconv.graph.expression import function_names
from imgconv.graph.nodes import Graph

Array = Any
# The largest difference in parts of the largest value, by FLOAT16. Float: sums of up to 4608 products in another order.
# 1: values and weights are rounded to half, by 2^-11 each. 2: sums too, in runs or from end to end.
TOLERANCES = {0: 1e-5, 1: 4e-3, 2: 3e-2}
ROUNDING = frozenset({"round", "saturate"})


@dataclass(frozen=True)
class CheckedLaunch:
    """A launch that ran. error: the largest of the value that it completes, relative to this value's largest element;
    None if it completes no value.
    """

    launch: Launch
    counts: Counts
    error: float | None


@dataclass(frozen=True)
class Checked:
    """A graph that ran. worst: the largest error of a launch. wrong: launches over the tolerance, or that cannot run.
    """

    name: str
    launches: tuple[CheckedLaunch, ...]
    wrong: tuple[str, ...]
    seconds: float

    @property
    def worst(self) -> float:
        return max((each.error for each in self.launches if each.error is not None), default=0.0)

    @property
    def slots(self) -> int:
        return sum(each.counts.slots for each in self.launches)

    @property
    def reads(self) -> int:
        return sum(each.counts.reads for each in self.launches)

    @property
    def outside(self) -> int:
        return sum(each.counts.outside for each in self.launches)


def check(name: str, prepared: PreparedGraph, plan: Plan, mesa: Mesa, gpu: int) -> Checked:
    """Runs the plan of a graph launch by launch. float16 is that of `prepared`."""
    float16, began = prepared.config.float16, perf_counter()
    launches, wrong = list[CheckedLaunch](), list[str]()
    try:
        for each in check_launches(prepared, Simulator(plan, compiled_by(mesa, gpu))):
            launches.append(each)
            if each.error is not None and not each.error < TOLERANCES[float16]:
                wrong.append(f"{each.launch}: {each.error:.1e} off")
    except (Fault, NotImplementedError) as error:
        wrong.append(str(error))
    return Checked(name, tuple(launches), tuple(wrong), perf_counter() - began)


def check_launches(prepared: PreparedGraph, simulator: Simulator) -> Iterator[CheckedLaunch]:
    """Yields each launch after it ran.

    The value that it completes is compared with the graph's evaluation in float64 from the values that the simulator
    holds then. So rounding errors do not accumulate from launch to launch, and one tolerance does for all. If a launch
    rounds to quantised values, a value almost halfway between two of them may become either.
    """
    plan, graph = simulator.plan, prepared.graph
    subjects = launched_nodes_of(plan, graph, {})
    inputs = draw_inputs(prepared.graph)
    held: dict[str, Array] = {**graph.constants, **inputs}
    for number, (launch, counts) in enumerate(simulator.run(inputs)):
        error, name = None, plan.completed_values.get(number)
        if name is not None:
            found, wanted = simulator.value(plan.placements[name]), _evaluated(name, graph, held)
            subject = subjects.get(number)
            if subject and subject.value.name == name:
                arithmetic = arithmetic_errors_of(launch, subject, prepared.config)
                wanted = _rounded_either_way(found, wanted, subject, arithmetic, graph, held)
            error = _error(found, wanted)
            held[name] = found
        elif launch.kind == "unpack":
            found, wanted = simulator.output(launch.name), _evaluated(launch.name, graph, held)
            error = _error(found.reshape(wanted.shape), wanted)
        yield CheckedLaunch(launch, counts, error)


def draw_inputs(graph: Graph) -> dict[str, Array]:
    """Numbers from -1 to 1, or from 0 to 200 for bytes; the same ones each time."""
    random = numpy.random.default_rng(0)
    return {
        each.name: random.uniform(-1, 1, each.shape).astype(each.dtype) if each.dtype.startswith("float")
        else random.integers(0, 200 if each.dtype == "uint8" else 2, each.shape).astype(each.dtype)
        for each in graph.inputs
    }


def _evaluated(name: str, graph: Graph, held: Mapping[str, Array]) -> Array:
    """A value, evaluated from those that are held."""
    if name in held:
        return held[name]
    wanted, values = [name], dict(held)
    while wanted:
        node = graph.producers[wanted[-1]]
        missing = [each.value for each in node.all_operands if each.value not in values]
        wanted += missing
        if not missing:
            values[wanted.pop()] = evaluate_node(node, values)
    return values[name]


def _rounded_either_way(
    found: Array, wanted: Array, subject: LaunchedNodes, arithmetic: ArithmeticErrors, graph: Graph,
    held: Mapping[str, Array],
) -> Array:
    """Returns `wanted`, with the element of `found` where fp32 rounding errors before a tie can explain the difference.

    Returns `wanted` itself if the launch rounds to no quantised values, or if there are no error bounds for its nodes.
    """
    rounds = any(ROUNDING.intersection(function_names(node.epilogue)) for node in subject.nodes)
    differing = numpy.argwhere(found != wanted)
    if not rounds or not differing.size:
        return wanted

    def read(name: str, position: Positions) -> BoundedValues:
        is_float = graph.values[name].dtype.startswith("float")
        made = _evaluated(name, graph, held)[tuple(position)]
        return BoundedValues.exact(made.astype(numpy.float64 if is_float else numpy.int64))

    where = tuple(differing.T)
    *inner, last = subject.nodes
    evaluator = SampledEvaluator(
        read, {node.output.name: node for node in inner}, lambda at: BoundedValues.exact(found[tuple(at)]), arithmetic
    )
    try:
        bounded = evaluator.evaluate_at(last, where, len(differing))
    except NotCoveredError:
        return wanted
    explained = numpy.isfinite(bounded.error) & (abs(found[where] - bounded.value) <= bounded.error)
    result = wanted.copy()
    result[where] = numpy.where(explained, found[where], wanted[where])
    return result


def _error(found: Array, wanted: Array) -> float:
    """The largest difference relative to the largest element; NaN if an element was not written."""
    if not wanted.size:
        return 0.0
    wide = wanted.astype(numpy.float64)
    with numpy.errstate(all="ignore"):
        difference = numpy.where(found == wide, 0, abs(found - wide))
    return float(difference.max() / (abs(wide[numpy.isfinite(wide)]).max(initial=0.0) or 1.0))
