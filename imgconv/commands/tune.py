"""imgconv tune: choose kernels, or fp16 and fp32, by measuring a model on this device."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from imgconv.cl.device import DeviceInfo, open_device, select_device
from imgconv.commands.shared_arguments import add_model_arguments, add_picture_arguments, number, positive
from imgconv.commands.command_line_inputs import read_cases
from imgconv.config import Config, read_config
from imgconv.errors import ConfigError
from imgconv.files.disk import check_folder, atomic_write
from imgconv.graph.nodes import Graph
from imgconv.kernels.template_interface import Problem
from imgconv.kernels.target import HALF_MAX, Target
from imgconv.reports import terminal
from imgconv.reports.table import Column, print_table
from imgconv.loading.build_options_tuner import BuildOptionsTrial, tune_build_options
from imgconv.loading.plans import build_options_of, prepare_for
from imgconv.loading.native_functions import native_functions_fit
from imgconv.precision.choose import BOUND, PrecisionChoice, choose_precision
from imgconv.precision.share import HalfShare, half_share_of
from imgconv.loading.tuner import layers_of, ranked_candidates, tune
from imgconv.loading.replanning import replan_until_kernels_work
from imgconv.stored.precision_file import PrecisionFile, fingerprint
from imgconv.stored.precision_file import default_path as precision_path
from imgconv.stored.tuning import Measurement, TuningDatabase, default_path, open_tuning_database

BUDGET = 120.0
MOST = 16

DESCRIPTION = """\
Measure a model on this device, and write the results to a file next to the model.

Without --precision, choose the fastest kernels for the model's convolutions and matrix products. imgconv times the
candidates that the cost model ranks first, starting with the layers that do the most work, until --budget seconds have
passed; faster candidates are timed more often. On Qualcomm's platform it then compares options of the driver's
compiler, once all layers are measured: the width of waves, 16-bit acceleration, and one kernel per program. An option
is used if the whole model is at least 3 % faster with it. All results are written to a file with the model's name and
the suffix .tuning. If this file is next to the model, imgconv.load and every command use them for the same device and
driver. imgconv.load(..., tuning=FILE) uses another file. --merge FILE adds measurements of kernels from another file.

With --precision, choose fp16 or fp32 storage for each layer: as much fp16 as possible while the outputs on the given
pictures, or on synthetic ones, differ from the fp32 outputs by at most --tolerance. With FLOAT16=2, also choose how
each layer accumulates. The choice is written to a file with the model's name and the suffix .precision.json, for
imgconv run --precision FILE and imgconv.load(..., precision=FILE)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser, compiled=False)
    parser.add_argument("pictures", metavar="PICTURE", nargs="*", help="picture files, for --precision")
    parser.add_argument("--precision", action="store_true", help="choose fp16 or fp32 for each layer")
    parser.add_argument(
        "--tolerance", type=number, metavar="ERROR",
        help=f"maximum error of an output, relative to its largest value (default: {BOUND:g})",
    )
    parser.add_argument(
        "--budget", type=number, metavar="SECONDS", help=f"time to measure (default: {BUDGET:g})"
    )
    parser.add_argument(
        "--candidates", type=positive, metavar="N", help=f"maximum number of candidates per problem (default: {MOST})"
    )
    parser.add_argument("--all", action="store_true", help="show every column")
    parser.add_argument(
        "--merge", metavar="FILE", action="append", default=[], help="add the measurements in this file"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="file to write (default: next to the model)")
    add_picture_arguments(parser)


def execute(options: argparse.Namespace) -> None:
    """Measures, writes the file and prints its content. Raises what imgconv.load raises, and InputError."""
    check_folder(options.output)
    other = ("budget", "candidates", "merge") if options.precision else ("tolerance",)
    for name in other:
        if getattr(options, name) not in (None, []):
            use = "without" if options.precision else "with"
            raise ConfigError(f"--{name} can only be used {use} --precision")
    if options.budget is not None and not options.budget >= 0:
        raise ConfigError(f"--budget is {options.budget:g}; it must be at least 0")
    if options.precision:
        _tune_precision(options)
    else:
        _tune_kernels(options)


def _tune_kernels(options: argparse.Namespace) -> None:
    if options.pictures:
        raise ConfigError("pictures can only be used with --precision: the time of a kernel does not depend on them")
    from imgconv.onnx_import import import_onnx

    config = read_config(options.float16, options.native_explog, options.max_image, options.device)
    with terminal.ProgressSpinner(f"reading {options.model}") as progress:
        _, shapes = read_cases(options)
        device = select_device(config.device)
        database = TuningDatabase(options.output or default_path(options.model), new=True)
        for other in options.merge:
            database.merge(other)
        context = open_device(device, profile=True)
        native = native_functions_fit(context, config)
        left: list[str] = []  # layers that are not measured
        trials: list[BuildOptionsTrial] = []

        def tune_on(info: DeviceInfo) -> list[dict[str, Any]]:
            prepared = prepare_for(info, import_onnx(options.model, shapes), config, native_functions=native)
            layers = layers_of(prepared)
            budget = BUDGET if options.budget is None else options.budget
            found = tune(prepared, context, database, budget, options.candidates or MOST, progress)
            left[:] = [name for problem, names in layers.items() if problem not in found for name in names]
            if budget and not left:
                tuned = prepare_for(info, import_onnx(options.model, shapes), config, database, native_functions=native)
                trials[:] = tune_build_options(tuned, context, database, progress)
            return [
                _row_of_problem(problem, measured, prepared.target, layers[problem])
                for problem, measured in found.items()
            ]

        rows = replan_until_kernels_work(device, tune_on)
    fastest = str(build_options_of(device, config, database))
    if options.json:
        content = {"model": options.model, "device": device.key, "file": str(database.path), "problems": rows}
        tried = [_trial_row(trial) for trial in trials]
        terminal.print_json({**content, "left": left, "build_options": {"fastest": fastest, "tried": tried}})
        return
    console = terminal.console()
    print_table(console, PROBLEMS, [_table_row(row) for row in rows], options.all, hint="--all")
    for line in summary(rows, left):
        console.print(line)
    for trial in trials:
        console.print(f"  {_trial_text(trial)}")
    if trials:
        console.print(f"build options: {fastest}")
    console.print(f"written to {database.path}")


OUTCOMES = {
    "refused": "the driver's compiler refuses it", "failed": "the model does not run",
    "wrong": "the results are different",
}


def _trial_text(trial: BuildOptionsTrial) -> str:
    if trial.seconds is None or trial.before is None:
        return f"{trial.option}: {OUTCOMES[trial.outcome]}"
    return f"{trial.option}: {trial.seconds * 1e3:.3f} ms a run, {trial.before * 1e3:.3f} without: {trial.outcome}"


def _trial_row(trial: BuildOptionsTrial) -> dict[str, Any]:
    return {
        "option": str(trial.option), "outcome": trial.outcome, "seconds": trial.seconds,
        "seconds_without": trial.before,
    }


def summary(rows: Sequence[Mapping[str, Any]], left: Sequence[str]) -> list[str]:
    """Returns what the model gained, by the layers whose first choice was timed, and what is left to measure."""
    timed = [row for row in rows if row["predicted_seconds"] is not None]
    before = sum(row["predicted_seconds"] * len(row["layers"]) for row in timed)
    after = sum(row["seconds"] * len(row["layers"]) for row in timed)
    count = sum(len(row["layers"]) for row in rows)
    lines = [f"{count} of {count + len(left)} layers are measured ({len(rows)} of different size)"]
    if timed:
        lines.append(f"these layers take {after * 1e3:.3f} ms a run, {before * 1e3:.3f} with the cost model's choice")
    if left:
        lines.append(f"left: {', '.join(left[:SHOWN])}{' ...' * (len(left) > SHOWN)}; repeat the command to continue")
    return lines


PROBLEMS = (
    Column("layers", text=True), Column("before ms", 1), Column("after ms"), Column("fastest", 2, text=True),
    Column("M multiply-adds", 3), Column("GFLOP/s", 4), Column("candidates", 5), Column("problem", 6, text=True),
)
SHOWN = 5  # layers that are left, by name


def _table_row(row: dict[str, Any]) -> tuple[str, ...]:
    predicted = "" if row["predicted_seconds"] is None else f"{row['predicted_seconds'] * 1e3:.3f}"
    first, *others = row["layers"]
    return (
        first + f" and {len(others)} more" * bool(others), predicted, f"{row['seconds'] * 1e3:.3f}",
        row["specialisation"], f"{row['multiply_adds'] / 1e6:.1f}", f"{row['gflops']:.1f}", str(row["candidates"]),
        row["problem"],
    )


def _row_of_problem(
    problem: Problem, measured: list[Measurement], target: Target, layers: Sequence[str]
) -> dict[str, Any]:
    """The measurements of a problem. layers: the launches that have it.

    predicted_seconds: those of the cost model's choice, if it was timed.
    """
    predicted = ranked_candidates(problem, target)[0]
    seconds = {m.specialisation: m.seconds for m in measured}
    return {
        "layers": list(layers), "problem": str(problem), "multiply_adds": problem.multiply_adds,
        "candidates": len(measured),
        "specialisation": str(measured[0].specialisation), "seconds": measured[0].seconds,
        "gflops": 2e-9 * problem.multiply_adds / measured[0].seconds, "predicted_seconds": seconds.get(predicted),
    }


def search_precision(
    options: argparse.Namespace, tolerance: float, progress: terminal.ProgressSpinner
) -> tuple[Config, PrecisionChoice, PrecisionFile, HalfShare]:
    """The settings, what stays float by a search to its end on options.pictures, the file with it, and the share.

    Raises what imgconv.load raises, and InputError.
    """
    from imgconv.onnx_import import import_onnx

    config = read_config(options.float16, options.native_explog, options.max_image, options.device)
    config = replace(config, float16=config.float16 or 1)
    cases, shapes = read_cases(options)
    device = select_device(config.device)
    context, tuning = open_device(device), open_tuning_database(options.model)
    native = native_functions_fit(context, config)

    def search_on(info: DeviceInfo) -> tuple[Graph, PrecisionChoice]:
        prepared = prepare_for(info, import_onnx(options.model, shapes), config, tuning, native_functions=native)
        return prepared.graph, choose_precision(prepared, context, progress, cases, tolerance)

    graph, choice = replan_until_kernels_work(device, search_on)
    file = PrecisionFile(fingerprint(graph), config.float16, tolerance, choice.error, choice.precision)
    half_share = half_share_of(choice.session.plan, graph, replace(config, precision=choice.precision))
    return config, choice, file, half_share


def _tune_precision(options: argparse.Namespace) -> None:
    tolerance = BOUND if options.tolerance is None else options.tolerance
    if not tolerance > 0:
        raise ConfigError(f"--tolerance is {tolerance:g}; it must be above 0")
    with terminal.ProgressSpinner(f"reading {options.model}") as progress:
        config, choice, file, half_share = search_precision(options, tolerance, progress)
    path = Path(options.output) if options.output else precision_path(options.model)
    with atomic_write(path) as written:
        written.write(file.to_json().encode())
    summary = as_json(config, choice, half_share, str(path))
    if options.json:
        terminal.print_json({"model": options.model, "device": choice.session.context.info.key, **summary})
        return
    console = terminal.console()
    for name in (name for name in choice.largest if name in choice.precision.storage):
        console.print(f"  fp32  {name}, largest value {choice.largest[name]:.4g}")
    console.print(half_share.text)
    if config.float16 == 2:
        sums = f"{summary['float_arithmetic']} accumulate in fp32, {summary['short_runs']} in chunks of fp16"
        console.print(f"of the layers in fp16, {sums}")
    console.print(f"error of the outputs: {choice.error:.2g}; {tolerance:g} is allowed")
    if choice.half_error > choice.error:
        console.print(f"with fp16 for all values except those near {HALF_MAX:.0f} it is {choice.half_error:.2g}")
    console.print(f"written to {path}")


def as_json(config: Config, choice: PrecisionChoice, half_share: HalfShare, path: str) -> dict[str, Any]:
    """The choice as plain data."""
    return {
        "file": path, "float16": config.float16, "values": half_share.values, "error": choice.error,
        "half_error": choice.half_error, "float_storage": half_share.values - half_share.half,
        "float_arithmetic": len(choice.precision.arithmetic), "short_runs": len(choice.precision.runs),
    }
