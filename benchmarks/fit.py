"""Fits the numbers of the device models to measurements, and shows how well they choose.

    python -m benchmarks.fit [FILE.csv ...] [--folds N] [--json FILE]

The files are those of `python -m benchmarks.choice --csv`, by default all of benchmarks/measured/; docs/cost_model.md
explains the models. The fitted numbers of a model are the floats of its class, except those whose comment says
"estimated" or where they come from. Nothing is written: to change the numbers, edit imgconv/kernels/device_model/.

The fit minimises two sums over the problems: the errors log(predicted / measured) of the candidates, of which the
fastest count most and outliers less, and the squared loss by the choice, log(chosen / fastest), where candidates that
are predicted to take nearly as long share the choice.

    within 10 %  share of problems of which the candidate of the least predicted time takes at most 1.1 times as long as
                 the fastest measured one
    time         the time of those candidates together, divided by that of the fastest ones
    rank         the median over problems of Spearman's rank correlation of predicted and measured
    error        the median over candidates of the distance between predicted and measured
    validated    the same by numbers fitted to the other problems only, in turn for each fold
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from math import exp, inf, log
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy

from benchmarks.measure import Column, add_output_argument, digits, environment, environment_line, make_table, publish
from benchmarks.measure import run_main
from benchmarks.measurements import Measurement, read_measurements
from imgconv.commands.shared_arguments import positive
from imgconv.errors import Error
from imgconv.kernels.conv import problem as conv
from imgconv.kernels.device_model.desktop_gpu import CLOCK, DesktopGpuModel
from imgconv.kernels.device_model.mobile_gpu import MobileGpuModel
from imgconv.kernels.device_model.models import DeviceModel, device_model_for
from imgconv.kernels.device_model.work import LaunchWork
from imgconv.kernels.layout import ImageLimits
from imgconv.kernels.target import Target
from imgconv.kernels.templates import template_of

FOLDER = Path(__file__).parent / "measured"
WITHIN = 1.10
OUTLIER = 0.1  # the error from which on a candidate counts for less
CHOICE = 8.0  # how much the loss by the choice counts beside the errors
BAD = 0.5  # a loss by the choice above which a candidate is no worse
NEARLY = 0.03  # the error within which candidates share the choice
DOUBT = 0.001  # the error of one problem that counts as much as a number e times as large as the one in use
# Numbers that no measurement in benchmarks/measured/ shows.
GIVEN = {"share", "launch", "spill", "wait", "hidden"}
# Seconds that an H200's events show for any launch; the driver takes more.
EVENT = 3.7e-6


@dataclass(frozen=True)
class Candidate:
    """A measured candidate: its work, and the seconds that it took; or if it has lanes, the issue slots of all."""

    work: LaunchWork
    compute_units: int
    measured: float
    lanes: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """One problem: the time of the candidate of the least predicted time, that of the fastest, and the rank
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
    """The measurements of one unit on one class of device, problem by problem, and the model in use."""

    model: DeviceModel
    unit: str
    problems: Sequence[Sequence[Candidate]]

    @property
    def free(self) -> list[str]:
        """The names of the numbers that a fit may change. Predicted seconds of a phone's GPU only show the choices."""
        if isinstance(self.model, MobileGpuModel) and self.unit == "seconds":
            return []
        return [field.name for field in fields(self.model) if field.type == "float" and field.name not in GIVEN]

    @property
    def name(self) -> str:
        return f"{type(self.model).__name__}, {self.unit}"


def candidate_of(row: Measurement) -> Candidate:
    """The work of a row and what it took."""
    target = Target(ImageLimits(1 << 14, 1 << 14, 1 << 11), row.kind, row.compute_units)
    work, figures = template_of(row.problem).work(row.problem, row.specialisation, target), row.figures
    if "seconds" in figures:
        return Candidate(work, row.compute_units, figures["seconds"])
    return Candidate(work, row.compute_units, figures["issue"] * figures["lanes"], figures["lanes"])


def groups_of(rows: Iterable[Measurement]) -> list[Group]:
    """The rows by class of device, without problems of one candidate, which have no choice."""
    found: dict[tuple[DeviceModel, str], dict[tuple[Any, ...], list[Candidate]]] = {}
    for row in filter(counts, rows):
        unit = "seconds" if "seconds" in row.figures else "slots"
        problems = found.setdefault((measured_by(device_model_for(row.kind, row.compute_units)), unit), {})
        problems.setdefault((row.device, row.float16, row.problem), []).append(candidate_of(row))
    made = [
        Group(model, unit, [rows for rows in problems.values() if len(rows) > 1])
        for (model, unit), problems in found.items()
    ]
    return [group for group in made if group.problems]


def counts(row: Measurement) -> bool:
    """Returns whether a row's figures can be fitted: slots of today's candidates that do not spill, or seconds."""
    chosen = row.specialisation
    if "seconds" in row.figures:
        return row.figures["seconds"] < inf
    return not row.figures["spills"] and isinstance(chosen, conv.Specialisation) and chosen.weights == "image"


def measured_by(model: DeviceModel) -> DeviceModel:
    """The model of what events show: less of a launch than the driver takes."""
    return replace(model, launch=EVENT * CLOCK) if isinstance(model, DesktopGpuModel) else model


def outcomes(problems: Sequence[Sequence[Candidate]], model: DeviceModel) -> list[Outcome]:
    """The Outcomes of choices by this model."""
    found = []
    for rows in problems:
        expected, taken = [_predicted(row, model) for row in rows], [row.measured for row in rows]
        chosen = taken[expected.index(min(expected))]
        errors = tuple(log(p / m) for p, m in zip(expected, taken, strict=True))
        found.append(Outcome(chosen, min(taken), _rank_correlation(expected, taken), errors))
    return found


def _predicted(row: Candidate, model: DeviceModel) -> float:
    if row.lanes and isinstance(model, MobileGpuModel):
        return row.lanes * model.slots(row.work)
    return model.seconds(row.work, row.compute_units)


def _rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's rank correlation; 1 if all of one side are equal, because no order is wrong then."""
    from scipy.stats import rankdata

    a, b = rankdata(one), rankdata(other)
    return 1.0 if numpy.ptp(a) == 0 or numpy.ptp(b) == 0 else float(numpy.corrcoef(a, b)[0, 1])


def fit(problems: Sequence[Sequence[Candidate]], model: DeviceModel, names: Sequence[str]) -> DeviceModel:
    """The model with the named numbers fitted to the measurements. Each is positive and stays so."""
    from scipy.optimize import least_squares

    taken = [numpy.log([row.measured for row in rows]) for rows in problems]
    weights = [numpy.exp(logs.min() - logs) * len(logs) ** -0.5 for logs in taken]
    usual = float(numpy.median(numpy.concatenate(weights)))
    start = numpy.log([getattr(model, name) for name in names])

    def with_numbers(logs: Any) -> DeviceModel:
        numbers: dict[str, Any] = {name: exp(value) for name, value in zip(names, logs, strict=True)}
        return replace(model, **numbers)

    def residuals(logs: Any) -> Any:
        made, found = with_numbers(logs), [DOUBT * (logs - start)]
        for rows, measured, weight in zip(problems, taken, weights, strict=True):
            expected = numpy.log([_predicted(row, made) for row in rows])
            scaled = weight * (expected - measured) / (OUTLIER * usual)
            found.append(OUTLIER * usual * numpy.sqrt(2 * (numpy.sqrt(1 + scaled**2) - 1)))
            shares = numpy.exp((expected.min() - expected) / NEARLY)
            loss = shares / shares.sum() @ numpy.minimum(measured - measured.min(), BAD)
            found.append([CHOICE * usual * loss])
        return numpy.concatenate(found)

    return with_numbers(least_squares(residuals, start, diff_step=1e-3, xtol=1e-6, ftol=1e-6).x)


def validated(
    problems: Sequence[Sequence[Candidate]], model: DeviceModel, names: Sequence[str], folds: int
) -> Quality:
    """The quality of choices for each problem by numbers that were fitted to problems of other folds."""
    found: list[Outcome] = []
    for fold in range(min(folds, len(problems))):
        others = [rows for number, rows in enumerate(problems) if number % folds != fold]
        if others:
            found += outcomes(problems[fold::folds], fit(others, model, names))
    return Quality.of(found)


@dataclass(frozen=True)
class Report:
    """A group, the numbers that were fitted to it, and the quality of choices by the numbers of each name."""

    group: Group
    fitted: DeviceModel
    qualities: Sequence[tuple[str, Quality]]

    @staticmethod
    def of(group: Group, folds: int) -> Report:
        """Fits the group's numbers, if any are free."""
        if not group.free:
            return Report(group, group.model, [("in use", Quality.of(outcomes(group.problems, group.model)))])
        fitted = fit(group.problems, group.model, group.free)
        return Report(group, fitted, (
            ("in use", Quality.of(outcomes(group.problems, group.model))),
            ("fitted", Quality.of(outcomes(group.problems, fitted))),
            ("validated", validated(group.problems, group.model, group.free, folds)),
        ))

    @property
    def candidates(self) -> int:
        return sum(map(len, self.group.problems))

    @property
    def numbers(self) -> list[tuple[str, float, float]]:
        """Each free number: its name, in use, fitted."""
        return [(name, getattr(self.group.model, name), getattr(self.fitted, name)) for name in self.group.free]

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.group.name, "candidates": self.candidates,
            "numbers": [dict(zip(("name", "in_use", "fitted"), n, strict=True)) for n in self.numbers],
            "qualities": {name: asdict(quality) for name, quality in self.qualities},
        }


NUMBERS = (Column("number", lambda n: n[0]), Column("in use", lambda n: digits(n[1])),
           Column("fitted", lambda n: digits(n[2])))
QUALITIES = (
    Column("numbers", lambda q: q[0]), Column("problems", lambda q: str(q[1].problems)),
    Column("within 10 %", lambda q: f"{q[1].within:.0%}"), Column("time", lambda q: digits(q[1].time)),
    Column("rank", lambda q: digits(q[1].rank)), Column("error", lambda q: f"{q[1].error:.0%}"),
)


def main(options: argparse.Namespace) -> int:
    """Fits the model of every class of device that has measurements."""
    files = [Path(name) for name in options.file] or sorted(FOLDER.glob("*.csv"))
    groups = groups_of(row for file in files for row in read_measurements(file))
    try:
        reports = [Report.of(group, options.folds) for group in groups]
    except ImportError:
        raise Error("the fit is scipy's: pip install scipy") from None
    shown: list[Any] = []
    for report in reports:
        title = f"{report.group.name}: {report.candidates} candidates of {len(report.group.problems)} problems"
        shown.append(make_table(title, QUALITIES, report.qualities))
        shown += [make_table("Numbers", NUMBERS, report.numbers)] if report.numbers else []
    found = environment()
    content = {"environment": found, "files": list(map(str, files)), "reports": [r.to_json() for r in reports]}
    publish(options, content, environment_line(found), *shown)
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
