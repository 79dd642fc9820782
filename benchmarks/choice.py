"""Times every candidate for each different convolution and product of the networks: how good is the choice?

    python -m benchmarks.choice [NAME or FILE.onnx ...] [--device DEVICE] [--candidates N] [--budget SECONDS]

The candidates of a problem run side by side with the node's own epilogue. The cost model's choice is first compared
with numpy in float64, and the others with it; a problem with a wrong one is reported and not timed. Then `imgconv
tune`'s own measurement makes its choice, and afterwards all candidates are measured anew, in turn, by the device's
events, as `imgconv tune` does (the lower quartile counts), and those close to the fastest once more, more often.

    default     the cost model's choice, and its time divided by the best candidate's
    tuned       the choice of `imgconv tune` (among its first 16 candidates), and its time divided by the best one's
    same again  the default's kernel, built and measured twice, the slower time divided by the faster: the noise

--candidates measures only those of the least predicted time, for devices that build slowly. --csv adds the
measurements to a file, to which `python -m benchmarks.fit` fits the device models. --spread makes such a file good for
a fit if the budget is short: the problems come in a drawn order, and half of the candidates are of any predicted time.
--predicted needs no device: the candidates are compiled by Mesa for an Adreno 630, and their times are those of the
model that `python -m benchmarks.adreno` explains. The cost model knows only what is known before compiling. Products of
two computed matrices count as convolutions do, in FILE.onnx for example; the default networks have none.
Files of benchmarks/measured/ are made by:

    python -m benchmarks.choice --spread --candidates 6 --budget 270 --csv h200.csv   # six minutes at most
    taskset -c 0 python -m benchmarks.choice --spread --candidates 12 --budget 560 --repeat 10 --csv cpu.csv
    python -m benchmarks.choice --predicted --spread --candidates 16 --csv a630_seconds.csv  # FLOAT16=0 and 2
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import imgconv
from benchmarks import adreno, adreno_mesa, published
from benchmarks.candidates import DEFAULT_WITHIN, TUNED_WITHIN, Asked, Row, Share, collect, describe, spread
from benchmarks.measure import (
    HALF_TOLERANCE, Column, add_run_arguments, digits, environment, environment_line, make_table, publish,
    relative_error, run_main, steps,
)
from benchmarks.measurements import add_measurements
from benchmarks.networks import DEFAULT
from benchmarks.predicted_choice import predicted_rows
from imgconv.cl.device import open_device, select_device
from imgconv.commands.shared_arguments import positive
from imgconv.commands.tune import MOST
from imgconv.compiling.compiler import with_image_limit
from imgconv.config import Config, read_config
from imgconv.graph.evaluate import evaluate_graph
from imgconv.kernels.device_model.adreno import A630
from imgconv.loading.device_target import target_of
from imgconv.loading.tuner import Trial, build_trials, duplicate_nodes

# For sums of up to some thousand products, rounded to 24 bits each; relative to the largest result.
FLOAT_TOLERANCE = 1e-5
# Those within this part of the fastest are measured this many times as often as the others.
CLOSE, OFTEN = 0.2, 4

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
# Columns of what only a device shows.
MEASURED = ("error", "tuned", "same again", f"tuned <= {TUNED_WITHIN:.2f}", "same again off by")


def measure(asked: Asked, trial: Trial, repeat: int, tolerance: float) -> Row:
    """Checks and times the candidates; the last choice of the trial is the first one again."""
    alone = duplicate_nodes(asked.prepared.graph, asked.nodes, 1)
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
    context = open_device(select_device(config.device), profile=True)
    tolerance = HALF_TOLERANCE if config.float16 else FLOAT_TOLERANCE
    chosen = [asked.candidates[: options.candidates] for asked in problems]
    wanted = [
        (asked.prepared, asked.nodes, (*choices, choices[0])) for asked, choices in zip(problems, chosen, strict=True)
    ]
    end = time.monotonic() + options.budget
    trials = build_trials(wanted, context)
    for asked, choices in zip(problems, chosen, strict=True):
        if time.monotonic() > end:
            return
        try:
            yield measure(asked, next(trials).result(), options.repeat, tolerance)
        except imgconv.Error as error:
            yield Row(asked, len(choices), " ".join(str(error).split()))


def main(options: argparse.Namespace) -> int:
    """Measures every problem of the networks, or predicts it; 1 if a result is wrong."""
    config = read_config(options.float16, options.native_explog, options.max_image, options.device)
    device = None if options.predicted else select_device(config.device)
    target = adreno.target_for(A630) if device is None else with_image_limit(target_of(device), config)
    names = options.network or DEFAULT
    problems = collect(names, config, target)
    if options.spread:
        problems = spread(problems, options.candidates or MOST)
    if device is None:
        mesa = adreno_mesa.find_mesa(False)
        made = predicted_rows(problems, A630, mesa, options.candidates, options.budget)
    else:
        made = rows_of(problems, config, options)
    rows: list[Row] = []
    with steps([describe(asked.problem) for asked in problems]) as walk:
        for _ in walk:
            row = next(made, None)
            if row is None:
                break
            rows.append(row)
            if options.csv:
                name = f"Mesa's {A630.name} code" if device is None else device.name
                add_measurements(Path(options.csv), row.measurements(name, target, config))
    return report(options, environment(device), names, len(problems), rows)


def report(
    options: argparse.Namespace, found: dict[str, Any], names: Sequence[str], asked: int, rows: Sequence[Row]
) -> int:
    """Prints the tables and writes the JSON; 1 if a row failed."""
    good = [row for row in rows if row.seconds]
    shares = [Share(name, [row for row in good if name in row.asked.networks]) for name in names]
    shares.append(Share("all", good))
    content = {
        "environment": found, "predicted": options.predicted, "asked": asked,
        "shares": [share.to_json() for share in shares], "rows": [row.to_json() for row in rows],
    }
    lines = [f"{len(rows)} of {asked} problems were measured, {len(rows) - len(good)} of them failed"]
    hidden = MEASURED if options.predicted else ()
    columns, of_shares = _without(hidden, COLUMNS), _without(hidden, SHARES)
    if options.predicted:
        lines = [lines[0].replace("measured", "predicted"), published.honesty(A630)]
    tables = make_table("Candidates", columns, rows), make_table("Shares of the problems", of_shares, shares)
    publish(options, content, environment_line(found), *tables, *lines)
    return 1 if len(good) < len(rows) else 0


def _without(headings: Sequence[str], columns: Sequence[Column]) -> tuple[Column, ...]:
    return tuple(column for column in columns if column.heading not in headings)


def make_parser() -> argparse.ArgumentParser:
    described = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m benchmarks.choice", description=__doc__, formatter_class=described)
    parser.add_argument("network", nargs="*", help=f"a name of models/ or an ONNX file (default: {' '.join(DEFAULT)})")
    parser.add_argument(
        "--candidates", type=positive, metavar="N", help="measure this many of the least predicted time (default: all)"
    )
    parser.add_argument(
        "--budget", type=float, default=float("inf"), metavar="SECONDS", help="when to stop (default: never)"
    )
    parser.add_argument("--spread", action="store_true", help="problems and candidates as a fit needs them")
    parser.add_argument(
        "--predicted", action="store_true",
        help="by the time model of an Adreno 630 on Mesa's machine code, in place of a device"
    )
    parser.add_argument("--csv", metavar="FILE", help="add the seconds of every candidate to a CSV file")
    add_run_arguments(parser)
    return parser


if __name__ == "__main__":
    sys.exit(run_main(make_parser(), main))
