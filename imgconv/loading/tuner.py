"""Measures the specialisations of each problem of a model on a device, into a database of imgconv.stored.tuning."""

from __future__ import annotations

import os
import random
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace

import numpy

from imgconv.arrays import Array
from imgconv.compiling.choose import ChoiceRequest, CostModelChooser
from imgconv.compiling.compiler import PreparedGraph
from imgconv.config import Config
from imgconv.dtype import FLOAT32
from imgconv.errors import Error
from imgconv.graph.join import rename_values
from imgconv.graph.nodes import Graph, Node, Value
from imgconv.kernels.device_model.time_range import ranked_times
from imgconv.kernels.template_interface import Choice, FixedProblem, Problem, Specialisation
from imgconv.kernels.target import Target
from imgconv.kernels.templates import template_of
from imgconv.runtime.device import Device, KernelLaunch
from imgconv.runtime.programs import ProgressCallback
from imgconv.precision.loss import relative_error
from imgconv.runtime.session import Session
from imgconv.stored.tuning import Measurement, TuningDatabase, measurement_key

# How often each of many candidates is launched, and all of a few together.
ROUNDS = 10
LAUNCHES = 160
# The quantile of repeated launches that counts: the least may be luck, the median has other programs' work on a CPU.
QUANTILE = 0.25


def problems_of(prepared: PreparedGraph) -> dict[Problem, tuple[Node, ...]]:
    """The different problems of a graph's launches, the most work first, each with the nodes of one such launch."""
    found: dict[Problem, tuple[Node, ...]] = {}
    for launch in prepared.plan().launches:
        # Launches without values are a part of others, which are measured if their template says so.
        if launch.choice is not None and launch.values and template_of(launch.choice.problem).measured:
            problem = launch.choice.problem
            found.setdefault(problem, _nodes_of(problem, launch.values, prepared.graph))
    return dict(sorted(found.items(), key=lambda item: -item[0].multiply_adds))


def layers_of(prepared: PreparedGraph) -> dict[Problem, list[str]]:
    """The names of the launches of each problem, in the order of the plan."""
    found: dict[Problem, list[str]] = {}
    for launch in prepared.plan().launches:
        if launch.choice is not None and launch.values and template_of(launch.choice.problem).measured:
            found.setdefault(launch.choice.problem, []).append(launch.name)
    return found


def _nodes_of(problem: Problem, values: Sequence[str], graph: Graph) -> tuple[Node, ...]:
    """The nodes of a launch that makes values, and those before it without which its template is not used.

    For example, the pooling of a squeeze-and-excitation, which may be a launch of its own.
    """
    for nodes in template_of(problem).nodes(graph):
        if [node.output.name for node in nodes[-len(values) :]] == list(values):
            return nodes
    return tuple(graph.producers[name] for name in values)


def ranked_candidates(problem: Problem, target: Target) -> list[Specialisation]:
    """Every candidate, sorted by the cost model, its choice first."""
    template = template_of(problem)
    candidates = template.candidates(problem, target)
    return [candidates[n] for n in ranked_times([template.predict(problem, each, target) for each in candidates])]


@dataclass(frozen=True)
class FixedChooser:
    """A chooser with a given specialisation for each launch, by the name of the launch's value."""

    choices: Mapping[str, Specialisation]

    def choose_specialisation(self, request: ChoiceRequest) -> Choice | None:
        """The launch's given specialisation, else the cost model's; None for a template of another kind."""
        chosen = self.choices.get(request.name)
        if chosen is None or isinstance(request.problem, FixedProblem):
            return CostModelChooser().choose_specialisation(request)
        return request.choice(chosen) if type(chosen) is request.template.specialisation else None


@dataclass(frozen=True)
class Trial:
    """Specialisations of one launch's nodes, built side by side on a device, each with its launch.

    session: has the memory that the launches read and write. outputs: each one's result for `inputs`.
    """

    choices: Sequence[Specialisation]
    launches: Sequence[KernelLaunch]
    session: Session
    inputs: dict[str, Array]
    outputs: Sequence[Array]

    @staticmethod
    def build(
        prepared: PreparedGraph, nodes: tuple[Node, ...], choices: Sequence[Specialisation], context: Device
    ) -> Trial:
        """Builds and runs each choice for nodes of one launch, with their own epilogues, on drawn inputs.

        context: opened with profile=True. Raises Error if two differ in their results: one of them is wrong.
        """
        copies = prepare_copies(prepared, nodes, choices)
        plan = copies.plan()
        session = Session(plan, context)
        drawn = numpy.random.default_rng(0)
        inputs = {v.name: drawn.random(v.shape).astype(v.dtype) for v in copies.graph.inputs}
        made = session.run(inputs)
        outputs = [made[name] for name in copies.graph.outputs]
        _check_equal_outputs(outputs, choices, prepared.config)
        # One output for all: the place of memory changes a short launch's time by a fifth on an H200.
        launches = session.share_output_buffer([n for n, launch in enumerate(plan.launches) if launch.specialisation])
        return Trial(choices, launches, session, inputs, outputs)

    def seconds(self, numbers: Sequence[int], rounds: int) -> list[float]:
        """The lower quartile of the seconds of `rounds` launches of each of the numbered choices.

        They take turns, so that busy or fast periods of the machine affect all equally. Each round has another order:
        the first launch after a pause waits for threads or clocks to wake, and the others find the caches as the
        previous launch left them.
        """
        order, shuffle = list(numbers), random.Random(0).shuffle
        seconds: dict[int, list[float]] = {n: [] for n in numbers}
        for _ in range(rounds):
            shuffle(order)
            for number, taken in zip(order, self.session.seconds_of([self.launches[n] for n in order]), strict=True):
                seconds[number].append(taken)
        return [float(numpy.quantile(seconds[n], QUANTILE)) for n in numbers]

    def measure(self, numbers: Sequence[int]) -> list[float]:
        """`seconds` of each; the faster half is measured again with more launches."""
        seconds: dict[int, float] = {}
        left = list(numbers)
        while left:
            found = self.seconds(left, max(ROUNDS, LAUNCHES // len(left)))
            seconds |= dict(zip(left, found, strict=True))
            left = sorted(left, key=lambda n: seconds[n])[: len(left) // 2] if len(left) > 3 else []
        return [seconds[n] for n in numbers]


def prepare_copies(
    prepared: PreparedGraph, nodes: tuple[Node, ...], choices: Sequence[Specialisation]
) -> PreparedGraph:
    """Copies of nodes side by side, each with its own choice."""
    copies = duplicate_nodes(prepared.graph, nodes, len(choices))
    chooser = FixedChooser(dict(zip(copies.outputs, choices, strict=True)))
    return replace(prepared, graph=copies, chooser=chooser, refused=frozenset())


def duplicate_nodes(graph: Graph, nodes: tuple[Node, ...], count: int) -> Graph:
    """A graph of `count` copies of nodes, whose last nodes make its outputs. Values of other nodes are inputs."""
    made = [node.output.name for node in nodes]
    values = {o.value: graph.values[o.value] for node in nodes for o in node.all_operands if o.value not in made}
    constants = {name: graph.constants[name] for name in values if name in graph.constants}
    inputs = tuple(Value(v.name, v.shape, v.dtype) for v in values.values() if v.name not in constants)
    part = Graph(inputs, (made[-1],), nodes, constants, graph.name)
    copies = [
        rename_values(part, {name: graph.unused_name(f"{name}.{number}") for name in made}) for number in range(count)
    ]
    outputs = tuple(copy.outputs[0] for copy in copies)
    return replace(part, outputs=outputs, nodes=tuple(node for copy in copies for node in copy.nodes)).validate()


def _check_equal_outputs(outputs: Sequence[Array], choices: Sequence[Specialisation], config: Config) -> None:
    for choice, other in zip(choices[1:], outputs[1:], strict=True):
        if relative_error({"y": other}, {"y": outputs[0]}) > allowed_difference(config):
            raise Error(f"two specialisations give different results: {choices[0]} and {choice}")


def allowed_difference(config: Config) -> float:
    """Returns the largest relative difference between right results of the same computation.

    Kernels add in different orders: errors of 2**-24, in half 2**-11, in some thousand terms that mostly cancel.
    """
    return 1e-3 if config.storage == FLOAT32 else 3e-2


def build_trials(
    wanted: Sequence[tuple[PreparedGraph, tuple[Node, ...], Sequence[Specialisation]]], context: Device
) -> Iterator[Future[Trial]]:
    """Yields the Future of each trial, in order; its result() raises the errors of `Trial.build`.

    For a GPU as many are built at once as the host has cores, the next ones while the caller measures one. A CPU builds
    nothing while it measures.
    """
    cores = 1 if context.info.kind == "cpu" else os.cpu_count() or 1
    waiting: list[Future[Trial]] = []
    # Each build changes the process's warning filters and restores them; with threads the order is not defined.
    with warnings.catch_warnings(), ThreadPoolExecutor(cores) as pool:
        warnings.simplefilter("ignore")
        try:
            for each in wanted:
                waiting.append(pool.submit(Trial.build, *each, context))
                if len(waiting) == cores:
                    wait(waiting[:1])
                    yield waiting.pop(0)
            yield from waiting
        finally:
            pool.shutdown(cancel_futures=True)


def tune(
    prepared: PreparedGraph, context: Device, database: TuningDatabase, budget: float, most: int,
    progress: ProgressCallback,
) -> dict[Problem, list[Measurement]]:
    """Measures up to `most` candidates of each problem, until `budget` seconds have passed, and records them at once.

    Rows of the database are not measured again. The result has every problem that was reached, its measurements
    shortest first.
    """
    end = time.monotonic() + budget
    device, config = context.info.key, prepared.config
    problems = problems_of(prepared)
    waiting: dict[Problem, tuple[PreparedGraph, tuple[Node, ...], Sequence[Specialisation]]] = {}
    for problem, nodes in problems.items():
        done = {m.specialisation for m in database.find(device, measurement_key(problem, config, prepared.target))}
        left = [c for c in ranked_candidates(problem, prepared.target)[:most] if c not in done]
        if left:
            waiting[problem] = (prepared, nodes, left)
    done_now = 0
    if budget > 0:
        trials = build_trials(list(waiting.values()), context)
        for number, (problem, (_, nodes, _)) in enumerate(waiting.items()):
            progress(number, len(waiting), f"measuring {nodes[-1].output.name}")
            trial = next(trials).result()
            seconds = trial.measure(range(len(trial.choices)))
            new = [Measurement(c, s) for c, s in zip(trial.choices, seconds, strict=True)]
            database.record(device, measurement_key(problem, config, prepared.target), new)
            done_now = number + 1
            if time.monotonic() > end:
                break
    progress(done_now, len(waiting), "measured")
    found = {problem: database.find(device, measurement_key(problem, config, prepared.target)) for problem in problems}
    return {problem: measured for problem, measured in found.items() if measured}
