"""The candidates of each different convolution and product of the networks, and how good the choice among them is."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measurements import Measurement
from benchmarks.networks import open_network
from imgconv.compiling.compiler import PreparedGraph, prepare
from imgconv.config import Config
from imgconv.graph.nodes import Node
from imgconv.kernels.conv import problem as conv
from imgconv.kernels.matmul import template as matmul
from imgconv.kernels.target import Target
from imgconv.kernels.template_interface import Problem, Specialisation
from imgconv.kernels.templates import template_of
from imgconv.loading.tuner import problems_of, ranked_candidates

DEFAULT_WITHIN, TUNED_WITHIN = 1.10, 1.03


@dataclass(frozen=True)
class Asked:
    """A problem, the nodes of a launch that has it, and the networks that it is in.

    candidates: the least predicted time first.
    """

    problem: Problem
    prepared: PreparedGraph
    nodes: tuple[Node, ...]
    networks: tuple[str, ...]
    candidates: Sequence[Specialisation]


@dataclass(frozen=True)
class Row:
    """The measurements of one problem: seconds by candidate. failure: why there are none.

    same_again: the slower of the default's two copies divided by the faster.
    error: the default's, relative to the largest result.
    """

    asked: Asked
    measured: int
    failure: str = ""
    error: float = 0.0
    seconds: tuple[float, ...] = ()
    tuned: int = 0
    same_again: float = 1.0

    @property
    def best(self) -> int:
        return min(range(len(self.seconds)), key=lambda n: self.seconds[n])

    def ratio(self, number: int) -> float | None:
        """Seconds of a candidate divided by the best one's."""
        return self.seconds[number] / self.seconds[self.best] if self.seconds else None

    def measurements(self, device: str, target: Target, config: Config) -> list[Measurement]:
        """One for each measured candidate, for benchmarks.fit."""
        kind, units, problem = target.kind, target.compute_units, self.asked.problem
        if not isinstance(problem, (conv.Problem, matmul.Problem)):
            return []
        return [
            Measurement(device, kind, units, config.float16, problem, specialisation, {"seconds": seconds})
            for specialisation, seconds in zip(self.asked.candidates, self.seconds, strict=False)
            if isinstance(specialisation, (conv.Specialisation, matmul.Specialisation))
        ]

    def to_json(self) -> dict[str, Any]:
        measured = zip(self.asked.candidates, self.seconds, strict=False)
        return {
            "problem": str(self.asked.problem), "name": describe(self.asked.problem), "networks": self.asked.networks,
            "failure": self.failure, "candidates": len(self.asked.candidates), "measured": self.measured,
            "error": self.error, "default_over_best": self.ratio(0), "tuned_over_best": self.ratio(self.tuned),
            "same_again": self.same_again,
            "seconds": [{"specialisation": str(c), "seconds": s} for c, s in measured],
        }


@dataclass(frozen=True)
class Share:
    """The rows of a network, or of all, that have figures."""

    name: str
    rows: Sequence[Row]

    def within(self, numbers: Sequence[int], limit: float) -> float:
        """The share of rows whose candidate is within a limit of the best. numbers: a candidate for each row."""
        good = sum((row.ratio(number) or 0) <= limit for row, number in zip(self.rows, numbers, strict=True))
        return good / max(1, len(self.rows))

    @property
    def default(self) -> float:
        return self.within([0] * len(self.rows), DEFAULT_WITHIN)

    @property
    def tuned(self) -> float:
        return self.within([row.tuned for row in self.rows], TUNED_WITHIN)

    def time(self, numbers: Sequence[int]) -> float:
        """The time of the candidates together, divided by that of the best ones."""
        taken = sum(row.seconds[number] for row, number in zip(self.rows, numbers, strict=True))
        return taken / (sum(row.seconds[row.best] for row in self.rows) or 1.0)

    @property
    def noise(self) -> float:
        """The median difference of the same kernel's two measurements."""
        return median([row.same_again - 1 for row in self.rows] or [0.0])

    def to_json(self) -> dict[str, Any]:
        return {
            "network": self.name, "problems": len(self.rows), "default_within_10_percent": self.default,
            "tuned_within_3_percent": self.tuned, "default_time": self.time([0] * len(self.rows)),
            "tuned_time": self.time([row.tuned for row in self.rows]), "same_again_median_distance": self.noise,
        }


def collect(networks: Sequence[str], config: Config, target: Target) -> list[Asked]:
    """Every different problem of the networks, those of the first network first."""
    found: dict[Problem, Asked] = {}
    with tempfile.TemporaryDirectory(prefix="imgconv-bench-") as folder:
        for name in networks:
            prepared = prepare(open_network(name, Path(folder)).graph, config, target)
            for problem, nodes in problems_of(prepared).items():
                new = Asked(problem, prepared, nodes, (), ranked_candidates(problem, prepared.target))
                known = found.get(problem, new)
                found[problem] = replace(known, networks=(*known.networks, name))
    return list(found.values())


def spread(problems: Sequence[Asked], count: int) -> list[Asked]:
    """The problems in a drawn order, `count` candidates first in each: half of the least predicted time, half any."""
    mixed = random.Random(0).sample(problems, len(problems))
    return [replace(asked, candidates=_some_of_all(asked.candidates, count)) for asked in mixed]


def _some_of_all(candidates: Sequence[Specialisation], count: int) -> tuple[Specialisation, ...]:
    best = candidates[: ceil(count / 2)]
    others, wanted = candidates[len(best) :], count - len(best)
    step = max(1.0, len(others) / max(1, wanted))
    drawn = [others[int((number + 0.5) * step)] for number in range(min(wanted, len(others)))]
    return tuple(dict.fromkeys((*best, *drawn, *others)))


def describe(problem: Problem) -> str:
    """A problem in a few words."""
    if isinstance(problem, matmul.Problem):
        return f"product {problem.batch} of {problem.rows}x{problem.inner} by {problem.inner}x{problem.columns}"
    if not isinstance(problem, conv.Problem):
        return f"{template_of(problem).name}, {problem.multiply_adds / 1e6:.1f} M multiply-adds"
    kind = f"depthwise {problem.channels}" if problem.depthwise else f"{problem.channels}->{problem.filters}"
    text = f"{problem.window[0]}x{problem.window[1]} {kind} at {'x'.join(map(str, problem.input_size))}"
    text += f" /{problem.strides[0]}" if max(problem.strides) > 1 else ""
    text += f" dilated {problem.dilations[0]}" if max(problem.dilations) > 1 else ""
    text += f" groups {problem.groups}" if problem.groups > 1 and not problem.depthwise else ""
    return text + (" transposed" if max(problem.phases) > 1 else "")
