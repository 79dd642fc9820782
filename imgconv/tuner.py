"""Measures specialisations on a device, problem after problem of a model, into a database of imgconv.tuning."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy

from imgconv.cl.device import Context
from imgconv.config import Config
from imgconv.errors import Error
from imgconv.graph import Graph, Node, Value
from imgconv.kernels import convolution, product
from imgconv.lower import Target, lower
from imgconv.precision import relative_error
from imgconv.runner import Session
from imgconv.tuning import Database, Measured, Problem, Specialisation, key

BATCH = 16  # candidates that are compiled and measured together
ROUNDS = 15


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
    launches = [launch for launch in lower(graph, config, listening).launches if launch.choice]
    found: dict[Problem, Node] = {}
    for problem, launch in zip(asked, launches, strict=True):
        found.setdefault(problem, graph.producers[launch.name])
    return dict(sorted(found.items(), key=lambda item: -item[0].multiply_adds))


def ranked(problem: Problem, target: Target) -> list[Specialisation]:
    """Every candidate, the one that the cost model would choose first."""
    kernel: Any = convolution if isinstance(problem, convolution.Problem) else product
    made: list[Specialisation] = kernel.candidates(problem, target.kind)
    return sorted(made, key=lambda c: kernel.predicted_cost(problem, c, target.kind, target.compute_units))


def measure(
    graph: Graph, node: Node, choices: Sequence[Specialisation], config: Config, target: Target, context: Context,
    rounds: int,
) -> list[Measured]:
    """The least seconds of `rounds` launches of each choice for a node of the graph, with the node's own epilogue.

    context: opened with profile=True. The choices take turns, so that a busy moment of the machine meets all. Raises
    Error where two differ in their results: one of them is wrong.
    """
    copies = _side_by_side(graph, node, len(choices))
    waiting = iter(choices)

    def choose(problem: Problem, kind: str, units: int) -> Any:
        return next(waiting)

    plan = lower(copies, config, replace(target, choose_convolution=choose, choose_product=choose))
    session = Session(plan, context)
    random = numpy.random.default_rng(0)
    outputs = session.run({v.name: random.random(v.shape).astype(v.dtype) for v in copies.inputs})
    _compare([outputs[name] for name in copies.outputs], choices, config)
    numbers = [number for number, launch in enumerate(plan.launches) if launch.choice]
    seconds = numpy.min([session.launch_seconds() for _ in range(rounds)], axis=0)
    return [Measured(c, float(seconds[number])) for c, number in zip(choices, numbers, strict=True)]


def _side_by_side(graph: Graph, node: Node, count: int) -> Graph:
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
    found: dict[Problem, list[Measured]] = {}
    problems = problems_of(graph, config, target)
    for number, (problem, node) in enumerate(problems.items()):
        progress(number, len(problems), f"measuring {node.output.name}")
        known = database.find(device, key(problem, config))
        done = {m.specialisation for m in known}
        waiting = [c for c in ranked(problem, target)[:most] if c not in done]
        for start in range(0, len(waiting), BATCH):
            if time.monotonic() > end:
                break
            new = measure(graph, node, waiting[start : start + BATCH], config, target, context, ROUNDS)
            database.record(device, key(problem, config), new)
            known = [*known, *new]
        if known:
            found[problem] = sorted(known, key=lambda m: m.seconds)
    progress(len(problems), len(problems), "measured")
    return found
