"""Measures specialisations on a device, problem after problem of a model, into a database of imgconv.tuning."""

from __future__ import annotations

import os
import random
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

import numpy

from imgconv.cl.device import Context
from imgconv.cl.queue import Launch, durations, enqueue
from imgconv.config import Config
from imgconv.errors import Error
from imgconv.graph import Graph, Node, Value
from imgconv.kernels import convolution, convolution_choice, product
from imgconv.lower import Target, lower
from imgconv.precision import relative_error
from imgconv.runner import Session
from imgconv.tuning import Database, Measured, Problem, Specialisation, key

TEMPLATES = ("conv.cl", "matmul.cl")
# How often each of many candidates is launched, and all of a few together.
ROUNDS = 10
LAUNCHES = 160
# Which of the seconds of repeated launches count: the least may be luck, the median is other programs' work on a CPU.
QUANTILE = 0.25


def problems_of(graph: Graph, config: Config, target: Target) -> dict[Problem, Node]:
    """The different problems of a graph after the passes, the most work first, each with a node that has it."""
    asked: list[Problem] = []

    def chooser(predicted: Callable[..., Any]) -> Callable[..., Any]:
        def choose(problem: Problem, kind: str, units: int) -> Any:
            asked.append(problem)
            return predicted(problem, kind, units)

        return choose

    listening = replace(
        target, choose_convolution=chooser(target.choose_convolution), choose_product=chooser(target.choose_product)
    )
    launches = [each for each in lower(graph, config, listening).launches if each.source.path in TEMPLATES]
    found: dict[Problem, Node] = {}
    # lower may go through the nodes twice, with the same answers.
    for problem, launch in zip(asked[-len(launches) :], launches, strict=True):
        found.setdefault(problem, graph.producers[launch.name])
    return dict(sorted(found.items(), key=lambda item: -item[0].multiply_adds))


def ranked(problem: Problem, target: Target) -> list[Specialisation]:
    """Every candidate, the one that the cost model would choose first."""
    kernel: Any = convolution_choice if isinstance(problem, convolution.Problem) else product
    made: list[Specialisation] = kernel.candidates(problem, target.kind)
    return sorted(made, key=lambda c: kernel.predicted_cost(problem, c, target.kind, target.compute_units))


@dataclass(frozen=True)
class Trial:
    """Specialisations of one node, built side by side on a device: each with its launch.

    session: holds what the launches read and write. outputs: each one's result for `inputs`.
    """

    choices: Sequence[Specialisation]
    launches: Sequence[Launch]
    session: Session
    inputs: dict[str, Any]
    outputs: Sequence[Any]

    @staticmethod
    def of(
        graph: Graph, node: Node, choices: Sequence[Specialisation], config: Config, target: Target, context: Context
    ) -> Trial:
        """Builds and runs each choice for a node of the graph, with the node's own epilogue, on drawn inputs.

        context: opened with profile=True. Raises Error where two differ in their results: one of them is wrong.
        """
        copies = side_by_side(graph, node, len(choices))
        waiting = cycle(choices)  # lower may go through the nodes twice

        def choose(problem: Problem, kind: str, units: int) -> Any:
            return next(waiting)

        plan = lower(copies, config, replace(target, choose_convolution=choose, choose_product=choose))
        session = Session(plan, context)
        drawn = numpy.random.default_rng(0)
        inputs = {v.name: drawn.random(v.shape).astype(v.dtype) for v in copies.inputs}
        made = session.run(inputs)
        outputs = [made[name] for name in copies.outputs]
        _compare(outputs, choices, config)
        # One output for all: where memory lies makes a fifth of a short launch's time on an H200.
        launches = session.to_one_output([n for n, launch in enumerate(plan.launches) if launch.choice])
        return Trial(choices, launches, session, inputs, outputs)

    def seconds(self, numbers: Sequence[int], rounds: int) -> list[float]:
        """The lower quartile of the seconds of `rounds` launches of each of the numbered choices.

        They take turns, so that a busy moment of the machine, or a faster one, meets all. Each round has another order:
        the first launch after a pause waits for threads or clocks to wake, and others find in the caches what the one
        before left there.
        """
        context, order, shuffle = self.session.context, list(numbers), random.Random(0).shuffle
        seconds: dict[int, list[float]] = {n: [] for n in numbers}
        for _ in range(rounds):
            shuffle(order)
            with context.lock:
                self.session.keep_busy(len(order))
                found = durations(context, [enqueue(context, *self.launches[n]) for n in order])
            for number, taken in zip(order, found, strict=True):
                seconds[number].append(taken)
        return [float(numpy.quantile(seconds[n], QUANTILE)) for n in numbers]

    def measure(self, numbers: Sequence[int]) -> list[float]:
        """What `seconds` finds for each; the faster half is measured anew, with more launches."""
        seconds: dict[int, float] = {}
        left = list(numbers)
        while left:
            found = self.seconds(left, max(ROUNDS, LAUNCHES // len(left)))
            seconds |= dict(zip(left, found, strict=True))
            left = sorted(left, key=lambda n: seconds[n])[: len(left) // 2] if len(left) > 3 else []
        return [seconds[n] for n in numbers]


def side_by_side(graph: Graph, node: Node, count: int) -> Graph:
    """A graph of `count` copies of one node; what other nodes make is an input."""
    values = {o.value: graph.values[o.value] for o in node.all_operands}
    constants = {name: graph.constants[name] for name in values if name in graph.constants}
    inputs = tuple(Value(v.name, v.shape, v.dtype) for v in values.values() if v.name not in constants)
    names = [graph.unused(f"{node.output.name}.{number}") for number in range(count)]
    nodes = tuple(replace(node, output=replace(node.output, name=name)) for name in names)
    return Graph(inputs, tuple(names), nodes, constants, graph.name).validate()


def _compare(outputs: Sequence[Any], choices: Sequence[Specialisation], config: Config) -> None:
    for choice, other in zip(choices[1:], outputs[1:], strict=True):
        # Choices add in different orders: 2**-24, or 2**-11 in half, of some thousand terms that mostly cancel.
        if relative_error({"y": other}, {"y": outputs[0]}) > (3e-2 if config.float16 else 1e-3):
            raise Error(f"two specialisations give different results: {choices[0]} and {choice}")


def built(
    wanted: Sequence[tuple[Graph, Node, Sequence[Specialisation]]], config: Config, target: Target, context: Context
) -> Iterator[Future[Trial]]:
    """A trial of each, as `Trial.of` makes or refuses it, in order.

    For a GPU as many as the host has cores are built at once, the next ones while one that was given is measured. A CPU
    that measures builds nothing.
    """
    cores = 1 if target.kind == "cpu" else os.cpu_count() or 1
    waiting: list[Future[Trial]] = []
    # Each build changes the process's filters of warnings, and puts back what it found: here in no certain order.
    with warnings.catch_warnings(), ThreadPoolExecutor(cores) as pool:
        warnings.simplefilter("ignore")
        try:
            for each in wanted:
                waiting.append(pool.submit(Trial.of, *each, config, target, context))
                if len(waiting) == cores:
                    wait(waiting[:1])
                    yield waiting.pop(0)
            yield from waiting
        finally:
            pool.shutdown(cancel_futures=True)


def tune(
    graph: Graph, config: Config, target: Target, context: Context, database: Database, budget: float, most: int,
    progress: Callable[[int, int, str], None],
) -> dict[Problem, list[Measured]]:
    """Measures up to `most` candidates of each problem, until `budget` seconds have passed, and records them at once.

    What the database knows already is not measured again. The results are of every problem that was reached, the
    shortest first.
    """
    end = time.monotonic() + budget
    device = context.info.key
    problems = problems_of(graph, config, target)
    waiting: dict[Problem, tuple[Graph, Node, Sequence[Specialisation]]] = {}
    for problem, node in problems.items():
        done = {m.specialisation for m in database.find(device, key(problem, config))}
        left = [c for c in ranked(problem, target)[:most] if c not in done]
        if left:
            waiting[problem] = (graph, node, left)
    if budget > 0:
        trials = built(list(waiting.values()), config, target, context)
        for number, (problem, (_, node, _)) in enumerate(waiting.items()):
            progress(number, len(waiting), f"measuring {node.output.name}")
            trial = next(trials).result()
            seconds = trial.measure(range(len(trial.choices)))
            new = [Measured(c, s) for c, s in zip(trial.choices, seconds, strict=True)]
            database.record(device, key(problem, config), new)
            if time.monotonic() > end:
                break
    progress(len(waiting), len(waiting), "measured")
    found = {problem: database.find(device, key(problem, config)) for problem in problems}
    return {problem: measured for problem, measured in found.items() if measured}
