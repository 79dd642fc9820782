"""Fits the numbers of the cost models to measurements, and shows how well they fit.

    python -m benchmarks.fit [FILE.csv ...] [--folds N] [--json FILE]

The files are those of `python -m benchmarks.choice --csv` and `python -m benchmarks.slots`, by default all of
benchmarks/measured/. For each class of imgconv/kernels/device_model/costs.py, and for each template that was measured,
the fitted numbers are those of the least squares of log(predicted / measured), with each problem of the same weight
and outliers of less. A number that the measurements do not depend on stays as it is; so do those of separable.cl,
whose candidates no benchmark measures. Nothing is written: to change the numbers, edit costs.py.

    within 10 %  share of problems of which the candidate of the least predicted cost takes at most 1.1 times as long as
                 the fastest measured one
    time         the time of those candidates together, divided by that of the fastest ones
    rank         the median over problems of Spearman's rank correlation of predicted and measured
    error        the median over candidates of the distance between predicted and measured
    validated    the same by numbers fitted to the other problems only, in turn for each fold

For small GPUs, the slots that all lanes of a launch issue are fitted. Their cost model makes a time of them, of reads,
waves and bytes; `python -m benchmarks.choice --predicted` looks at that. Only candidates count whose items do not share
sums, whose weights are in an image, and which do not spill.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import chain
from math import exp, log
from pathlib import Path
from statistics import mean, median
from typing import Any, TypeVar

import numpy

from benchmarks.measure import Column, add_output_argument, digits, environment, environment_line, make_table, publish
from benchmarks.measure import run_main
from benchmarks.measurements import TEMPLATES, Measurement, read_measurements
from imgconv.commands.arguments import positive
from imgconv.errors import Error
from imgconv.kernels.conv import costs as conv_costs, problem as conv
from imgconv.kernels.device_model.costs import (
    CPU, LARGE, SMALL, CpuCosts, DeviceCosts, LargeGpuCosts, SmallGpuCosts, costs_of,
)
from imgconv.kernels.matmul import template as matmul

FOLDER = Path(__file__).parent / "measured"
WITHIN = 1.10
OUTLIER = 0.1  # the error from which on a candidate counts for less
DOUBT = 0.003  # the error of one problem that counts as much as a number e times as large as the one in use
CLOCK = 1.75e9  # of an H200 that computes, in Hz
START = 3.2e-6  # seconds that an H200's events show for any launch, beside its cycles: by the shortest launches
HOW_TO_MEASURE: dict[type[DeviceCosts], str] = {
    CpuCosts: "python -m benchmarks.choice --spread --csv FILE on a CPU",
    LargeGpuCosts: "python -m benchmarks.choice --spread --csv FILE on such a GPU",
    SmallGpuCosts: "python -m benchmarks.slots --csv FILE",
}
Costs = TypeVar("Costs", bound=DeviceCosts)


@dataclass(frozen=True)
class Outcome:
    """One problem: the time of the candidate of the least predicted cost, that of the fastest, and the rank
    correlation of the order. errors: of each candidate, log(predicted / measured)."""

    chosen: float
    fastest: float
    rank: float
    errors: tuple[float, ...]


@dataclass(frozen=True)
class Quality:
    """The quality of choices."""

    problems: int
    within: float
    time: float
    rank: float
    error: float

    @staticmethod
    def of(outcomes: Sequence[Outcome]) -> Quality:
        """The quality over at least one problem."""
        return Quality(
            len(outcomes), mean(o.chosen <= WITHIN * o.fastest for o in outcomes),
            sum(o.chosen for o in outcomes) / sum(o.fastest for o in outcomes), median(o.rank for o in outcomes),
            exp(median(abs(e) for o in outcomes for e in o.errors)) - 1,
        )


@dataclass(frozen=True)
class Group:
    """The measurements of one template on one class of device, problem by problem, and the numbers in use."""

    costs: DeviceCosts
    template: str
    problems: Sequence[Sequence[Measurement]]

    @property
    def free(self) -> list[str]:
        """The names of the numbers that a fit may change: floats of this template."""
        names = [field.name for field in fields(self.costs) if field.type == "float"]
        prefix = "product_" if self.template == "product" else ""
        return [n for n in names if n.startswith(prefix) and (prefix or not n.startswith(("product_", "separable_")))]


def measured(row: Measurement) -> float:
    """What a row took: cycles of a large GPU, slots of all lanes of a small one, or nanoseconds."""
    figures = row.figures
    if "seconds" in figures:
        large = isinstance(costs_of(row.kind, row.compute_units), LargeGpuCosts)
        return figures["seconds"] * (CLOCK if large else 1e9)
    return figures["lanes"] * figures["issue"]


def counts(row: Measurement) -> bool:
    """Whether a row's figures can be fitted: see this module's docstring."""
    if "seconds" in row.figures:
        return True
    chosen = row.specialisation
    return row.figures["spills"] == 0 and chosen.parts == 1 and (
        isinstance(chosen, matmul.Specialisation) or chosen.weights == "image"
    )


def predicted(row: Measurement, costs: DeviceCosts) -> float:
    """What the cost model says of a row, in the unit of `measured`, and with the constant part that it has besides."""
    start = START * CLOCK if isinstance(costs, LargeGpuCosts) else 0.0
    if isinstance(row.problem, conv.Problem):
        assert isinstance(row.specialisation, conv.Specialisation)
        if isinstance(costs, SmallGpuCosts):
            slots = conv_costs.slots_of_item(row.problem, row.specialisation, costs)
            return slots * row.figures["lanes"]
        cost = conv_costs.predicted_cost(row.problem, row.specialisation, row.kind, row.compute_units, costs)
        return cost + start
    assert isinstance(row.specialisation, matmul.Specialisation)
    return start + matmul.predicted_cost(row.problem, row.specialisation, row.kind, row.compute_units, costs)


def groups_of(rows: Iterable[Measurement]) -> list[Group]:
    """The rows by class of device and template, without problems of one candidate, which have no choice."""
    found: dict[tuple[DeviceCosts, str], dict[tuple[Any, ...], list[Measurement]]] = {}
    for row in filter(counts, rows):
        problems = found.setdefault((costs_of(row.kind, row.compute_units), row.template), {})
        problems.setdefault((row.device, row.float16, row.problem), []).append(row)
    made = [
        Group(costs, template, [rows for rows in problems.values() if len(rows) > 1])
        for (costs, template), problems in found.items()
    ]
    return [group for group in made if group.problems]


def outcomes(problems: Sequence[Sequence[Measurement]], costs: DeviceCosts) -> list[Outcome]:
    """The Outcomes of choices by these costs."""
    found = []
    for rows in problems:
        expected, taken = [predicted(row, costs) for row in rows], [measured(row) for row in rows]
        chosen = taken[expected.index(min(expected))]
        errors = tuple(log(p / m) for p, m in zip(expected, taken, strict=True))
        found.append(Outcome(chosen, min(taken), _rank_correlation(expected, taken), errors))
    return found


def _rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's rank correlation; 1 if all of one side are equal, because no order is wrong then."""
    from scipy.stats import rankdata

    a, b = rankdata(one), rankdata(other)
    return 1.0 if numpy.ptp(a) == 0 or numpy.ptp(b) == 0 else float(numpy.corrcoef(a, b)[0, 1])


def fit(problems: Sequence[Sequence[Measurement]], costs: Costs, names: Sequence[str]) -> Costs:
    """The costs with the named numbers fitted to the measurements. Each is positive and stays so."""
    from scipy.optimize import least_squares

    rows = list(chain(*problems))
    taken = numpy.log([measured(row) for row in rows])
    weights = numpy.array([len(each) ** -0.5 for each in problems for _ in each])
    free_scale = rows[0].template == "product"

    start = numpy.log([getattr(costs, name) for name in names])

    def with_numbers(logs: Any) -> Costs:
        numbers: dict[str, Any] = {name: exp(value) for name, value in zip(names, logs, strict=True)}
        return replace(costs, **numbers)

    def residuals(logs: Any) -> Any:
        made = with_numbers(logs)
        errors = numpy.log([predicted(row, made) for row in rows]) - taken
        errors -= numpy.median(errors) if free_scale else 0.0
        return numpy.append(weights * errors, DOUBT * (logs - start))

    scale = OUTLIER * float(numpy.median(weights))
    found = least_squares(residuals, start, loss="soft_l1", f_scale=scale, diff_step=1e-3, xtol=1e-5, ftol=1e-5)
    return with_numbers(found.x)


def validated(
    problems: Sequence[Sequence[Measurement]], costs: DeviceCosts, names: Sequence[str], folds: int
) -> Quality:
    """The quality of choices for each problem by numbers that were fitted to problems of other folds."""
    found: list[Outcome] = []
    for fold in range(min(folds, len(problems))):
        others = [rows for number, rows in enumerate(problems) if number % folds != fold]
        if others:
            found += outcomes(problems[fold::folds], fit(others, costs, names))
    return Quality.of(found)


@dataclass(frozen=True)
class Report:
    """A group, the numbers that were fitted to it, and the quality of choices by the numbers of each name."""

    group: Group
    fitted: DeviceCosts
    qualities: Sequence[tuple[str, Quality]]

    @staticmethod
    def of(group: Group, folds: int) -> Report:
        """Fits the group's numbers."""
        fitted = fit(group.problems, group.costs, group.free)
        return Report(group, fitted, (
            ("in use", Quality.of(outcomes(group.problems, group.costs))),
            ("fitted", Quality.of(outcomes(group.problems, fitted))),
            ("validated", validated(group.problems, group.costs, group.free, folds)),
        ))

    @property
    def name(self) -> str:
        return name_of(type(self.group.costs), self.group.template)

    @property
    def candidates(self) -> int:
        return sum(map(len, self.group.problems))

    @property
    def numbers(self) -> list[tuple[str, float, float]]:
        """Each free number: its name, in use, fitted."""
        return [(name, getattr(self.group.costs, name), getattr(self.fitted, name)) for name in self.group.free]

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name, "candidates": self.candidates,
            "numbers": [dict(zip(("name", "in_use", "fitted"), n, strict=True)) for n in self.numbers],
            "qualities": {name: asdict(quality) for name, quality in self.qualities},
        }


def name_of(costs: type[DeviceCosts], template: str) -> str:
    """The title of a report."""
    return f"{costs.__name__}, {template}"


NUMBERS = (
    Column("number", lambda n: n[0]), Column("in use", lambda n: digits(n[1])),
    Column("fitted", lambda n: digits(n[2]) if abs(n[2] / n[1] - 1) > 1e-6 else "not measured"),
)
QUALITIES = (
    Column("numbers", lambda q: q[0]), Column("problems", lambda q: str(q[1].problems)),
    Column("within 10 %", lambda q: f"{q[1].within:.0%}"), Column("time", lambda q: digits(q[1].time)),
    Column("rank", lambda q: digits(q[1].rank)), Column("error", lambda q: f"{q[1].error:.0%}"),
)


def main(options: argparse.Namespace) -> int:
    """Fits every group with measurements, and names those without."""
    files = [Path(name) for name in options.file] or sorted(FOLDER.glob("*.csv"))
    rows = [row for file in files for row in read_measurements(file)]
    try:
        reports = [Report.of(group, options.folds) for group in groups_of(rows)]
    except ImportError:
        raise Error("the fit is scipy's: pip install scipy") from None
    shown: list[Any] = []
    for report in reports:
        title = f"{report.name}: {report.candidates} candidates of {len(report.group.problems)} problems"
        shown += [make_table(title, QUALITIES, report.qualities), make_table("Numbers", NUMBERS, report.numbers)]
    known = {report.name for report in reports}
    every = [(type(costs), template) for costs in (CPU, LARGE, SMALL) for template in TEMPLATES]
    missing = {name: HOW_TO_MEASURE[made] for made, template in every if (name := name_of(made, template)) not in known}
    shown += [f"{name}: no measurements; {how}" for name, how in missing.items()]
    found = environment()
    content = {"environment": found, "files": list(map(str, files)), "reports": [r.to_json() for r in reports]}
    publish(options, content | {"missing": list(missing)}, environment_line(found), *shown)
    return 0


def make_parser() -> argparse.ArgumentParser:
    described = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fit", description=__doc__, formatter_class=described)
    parser.add_argument("file", nargs="*", help="CSV files (default: benchmarks/measured/*.csv)")
    parser.add_argument(
        "--folds", type=positive, default=5, metavar="N", help="of the cross validation (default: %(default)s)"
    )
    add_output_argument(parser)
    return parser


if __name__ == "__main__":
    sys.exit(run_main(make_parser(), main))
