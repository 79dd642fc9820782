"""Times every candidate for each different convolution and product of the networks: how good is the choice?

    python -m benchmarks.choice [NAME or FILE.onnx ...] [--device DEVICE] [--candidates N] [--budget SECONDS]

The candidates of a problem run side by side with the node's own epilogue. The cost model's choice is first compared
with numpy in float64, and the others with it; a problem with a wrong one is reported and not timed. Then `imgconv
tune`'s own measurement makes its choice, and afterwards all candidates are measured anew, in turn, by the device's
events, as `imgconv tune` does (the lower quartile counts), and those close to the fastest once more, more often.

    default     the cost model's choice, and its time divided by the best candidate's
    tuned       the choice of `imgconv tune` (among its first 16 candidates), and its time divided by the best one's
    same again  the default's kernel, built and measured twice, the slower time divided by the faster: the noise

--candidates measures only those of the least predicted cost, for devices that build slowly. --csv adds the
measurements to a file, to which `python -m benchmarks.fit` fits the cost models. --spread makes such a file good for
a fit if the budget is short: the problems come in a drawn order, and half of the candidates are of any predicted cost.
The files of benchmarks/measured/ are made by:

    python -m benchmarks.choice --spread --candidates 6 --budget 270 --csv h200.csv   # six minutes at most
    taskset -c 0 python -m benchmarks.choice --spread --candidates 12 --budget 560 --repeat 10 --csv cpu.csv
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any

import imgconv
from benchmarks.measure import (
    HALF_TOLERANCE, Column, add_run_arguments, digits, environment, environment_line, make_table, publish,
    relative_error, run_main, steps,
)
from benchmarks.measurements import Measurement, add_measurements
from benchmarks.networks import DEFAULT, open_network
from imgconv.cl.device import open_device, select
from imgconv.commands.arguments import positive
from imgconv.commands.tune import MOST
from imgconv.compiling.compiler import Prepared, limited, prepare
from imgconv.config import Config, read_config
from imgconv.graph.evaluate import evaluate_graph
from imgconv.graph.nodes import Node
from imgconv.kernels import conv, matmul
from imgconv.kernels.step import Problem, Specialisation
from imgconv.kernels.target import Target
from imgconv.kernels.templates import template_of
from imgconv.running.target import target_of
from imgconv.running.tuner import Trial, built, problems_of, ranked, side_by_side

DEFAULT_WITHIN, TUNED_WITHIN = 1.10, 1.03
# For sums of up to some thousand products, rounded to 24 bits each; relative to the largest result.
FLOAT_TOLERANCE = 1e-5
# Those within this part of the fastest are measured this many times as often as the others.
CLOSE, OFTEN = 0.2, 4


@dataclass(frozen=True)
class Asked:
    """A problem, the nodes of a launch that has it, and the networks that it is in.

    candidates: the least predicted cost first.
    """

    problem: Problem
    prepared: Prepared
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


COLUMNS = (
    Column("problem", lambda r: describe(r.asked.problem)), Column("in", lambda r: str(len(r.asked.networks))),
    Column("candidates", lambda r: f"{r.measured} of {len(r.asked.candidates)}"),
    Column("error", lambda r: f"{r.error:.0e}"),
    Column("best us", lambda r: digits(r.seconds[r.best] * 1e6) if r.seconds else "-"),
    Column("default", lambda r: digits(r.ratio(0))), Column("tuned", lambda r: digits(r.ratio(r.tuned))),
    Column("same again", lambda r: digits(r.same_again) if r.seconds else "-"),
    Column("best", lambda r: r.failure[:160] or str(r.asked.candidates[r.best]), True),
    Column("default", lambda r: str(r.asked.candidates[0]) if r.seconds and r.best else "", True),
)
SHARES = (
    Column("network", lambda s: s.name), Column("problems", lambda s: str(len(s.rows))),
    Column(f"default <= {DEFAULT_WITHIN:.2f}", lambda s: f"{s.default:.0%}"),
    Column(f"tuned <= {TUNED_WITHIN:.2f}", lambda s: f"{s.tuned:.0%}"),
    Column("time by default", lambda s: digits(s.time([0] * len(s.rows)))),
    Column("tuned", lambda s: digits(s.time([row.tuned for row in s.rows]))),
    Column("same again off by", lambda s: f"{s.noise:.1%}"),
)


def collect(networks: Sequence[str], config: Config, target: Target) -> list[Asked]:
    """Every different problem of the networks, those of the first network first."""
    found: dict[Problem, Asked] = {}
    with tempfile.TemporaryDirectory(prefix="imgconv-bench-") as folder:
        for name in networks:
            prepared = prepare(open_network(name, Path(folder)).graph, config, target)
            for problem, nodes in problems_of(prepared).items():
                new = Asked(problem, prepared, nodes, (), ranked(problem, prepared.target))
                known = found.get(problem, new)
                found[problem] = replace(known, networks=(*known.networks, name))
    return list(found.values())


def spread(problems: Sequence[Asked], count: int) -> list[Asked]:
    """The problems in a drawn order, `count` candidates first in each: half of the least predicted cost, half any."""
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


def measure(asked: Asked, trial: Trial, repeat: int, tolerance: float) -> Row:
    """Checks and times the candidates; the last choice of the trial is the first one again."""
    alone = side_by_side(asked.prepared.graph, asked.nodes, 1)
    (expected,) = evaluate_graph(alone, trial.inputs).values()
    error = relative_error({"y": trial.outputs[0]}, {"y": expected})
    count = len(trial.choices) - 1
    if not error <= tolerance:
        return Row(asked, count, f"WRONG: {asked.candidates[0]}", error)
    by_tuner = trial.measure(range(min(MOST, count)))
    tuned = by_tuner.index(min(by_tuner))
    found = trial.seconds(range(count + 1), repeat)
    close = {n for n in range(count) if found[n] <= (1 + CLOSE) * min(found)} | {0, tuned, count}
    again = trial.seconds(sorted(close), OFTEN * repeat)
    for number, seconds in zip(sorted(close), again, strict=True):
        found[number] = seconds
    faster, slower = sorted((found[0], found[count]))
    return Row(asked, count, "", error, tuple(found[:count]), tuned, slower / faster)


def rows_of(problems: Sequence[Asked], config: Config, options: argparse.Namespace) -> Iterator[Row]:
    """The rows one after another, until the budget is spent."""
    context = open_device(select(config.device), profile=True)
    tolerance = HALF_TOLERANCE if config.float16 else FLOAT_TOLERANCE
    chosen = [asked.candidates[: options.candidates] for asked in problems]
    wanted = [
        (asked.prepared, asked.nodes, (*choices, choices[0])) for asked, choices in zip(problems, chosen, strict=True)
    ]
    end = time.monotonic() + options.budget
    trials = built(wanted, context)
    for asked, choices in zip(problems, chosen, strict=True):
        if time.monotonic() > end:
            return
        try:
            yield measure(asked, next(trials).result(), options.repeat, tolerance)
        except imgconv.Error as error:
            yield Row(asked, len(choices), " ".join(str(error).split()))


def main(options: argparse.Namespace) -> int:
    """Measures every problem of the networks; 1 if a result is wrong."""
    config = read_config(options.float16, options.native_explog, options.max_image, options.device)
    device = select(config.device)
    target = limited(target_of(device), config)
    names = options.network or DEFAULT
    problems = collect(names, config, target)
    if options.spread:
        problems = spread(problems, options.candidates or MOST)
    rows: list[Row] = []
    with steps([describe(asked.problem) for asked in problems]) as walk:
        made = rows_of(problems, config, options)
        for _ in walk:
            row = next(made, None)
            if row is None:
                break
            rows.append(row)
            if options.csv:
                add_measurements(Path(options.csv), row.measurements(device.name, target, config))
    good = [row for row in rows if row.seconds]
    shares = [Share(name, [row for row in good if name in row.asked.networks]) for name in names]
    shares.append(Share("all", good))
    found = environment(device)
    content = {
        "environment": found, "asked": len(problems), "shares": [share.to_json() for share in shares],
        "rows": [row.to_json() for row in rows],
    }
    line = f"{len(rows)} of {len(problems)} problems were measured, {len(rows) - len(good)} of them failed"
    tables = make_table("Candidates", COLUMNS, rows), make_table("Shares of the problems", SHARES, shares)
    publish(options, content, environment_line(found), *tables, line)
    return 1 if len(good) < len(rows) else 0


def make_parser() -> argparse.ArgumentParser:
    described = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m benchmarks.choice", description=__doc__, formatter_class=described)
    parser.add_argument("network", nargs="*", help=f"a name of models/ or an ONNX file (default: {' '.join(DEFAULT)})")
    parser.add_argument(
        "--candidates", type=positive, metavar="N", help="measure this many of the least predicted cost (default: all)"
    )
    parser.add_argument(
        "--budget", type=float, default=float("inf"), metavar="SECONDS", help="when to stop (default: never)"
    )
    parser.add_argument("--spread", action="store_true", help="problems and candidates as a fit needs them")
    parser.add_argument("--csv", metavar="FILE", help="add the seconds of every candidate to a CSV file")
    add_run_arguments(parser)
    return parser


if __name__ == "__main__":
    sys.exit(run_main(make_parser(), main))
