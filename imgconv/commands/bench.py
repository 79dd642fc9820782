"""imgconv bench: measure the time of a run, frames per second, the time to the first result, and memory."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy
from rich.table import Table

from imgconv.arrays import Array, Arrays, Shapes, TensorSpecs
from imgconv.commands.shared_arguments import add_model_arguments, add_picture_arguments, add_precision_argument
from imgconv.commands.shared_arguments import add_strict_argument, check_sizes, number, positive
from imgconv.commands.command_line_inputs import declared_of, load_model
from imgconv.commands.profile import read_inputs
from imgconv.errors import InputError
from imgconv.files.container import is_container
from imgconv.loading.compiled import DEPTH
from imgconv.model import Model
from imgconv.reports import terminal
from imgconv.reports.bench import measure_latency, measure_sustained, onnxruntime_run, process_bytes
from imgconv.reports.first_result import times_to_first_result
from imgconv.precision.calibration_inputs import synthetic_inputs
from imgconv.precision.loss import relative_error

DESCRIPTION = """\
Measure a model after a warm-up:

  - the time of one run, from input arrays to output arrays, with percentiles;
  - frames per second with several frames in flight, for --seconds, because phones slow down when they get hot;
  - the time to the first result of a new process, both cold (nothing compiled before) and warm;
  - memory.

An input without a picture or an array gets synthetic values from 0 to 1 with the spectrum of natural pictures. The
times do not include reading and preprocessing pictures; imgconv run prints a rate that includes them."""

LATENCY_SECONDS = 2.0
SETTINGS = "float16", "native_explog", "max_image", "precision", "strict"  # of load, that options have too


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    add_precision_argument(parser)
    add_strict_argument(parser)
    parser.add_argument("picture", metavar="PICTURE", nargs="?", help="a picture file")
    parser.add_argument(
        "--seconds", type=number, default=5.0, metavar="S",
        help="duration of the measurement with several frames in flight (default: 5)"
    )
    parser.add_argument(
        "--depth", type=positive, default=DEPTH, metavar="N", help="frames in flight (default: %(default)s)"
    )
    parser.add_argument(
        "--batch", type=positive, metavar="N", help="pictures per run, if the model's batch size is dynamic"
    )
    parser.add_argument("--compare", choices=("onnxruntime",), help="also measure this engine, on the CPU")
    parser.add_argument("--no-first", action="store_true", help="do not measure the first result of a new process")
    add_picture_arguments(parser)


def execute(options: argparse.Namespace) -> None:
    """Prints the figures. Raises what imgconv.load and Model.run raise, InputError, and Error."""
    if options.compare and is_container(options.model):
        raise InputError(f"--compare {options.compare} needs an ONNX file, but {options.model!r} is a compiled file")
    with terminal.ProgressSpinner(f"reading {options.model}") as progress:
        arrays, shapes = read_inputs(options)
        if options.batch:
            shapes = batch_shapes(declared_of(options.model), shapes, options.batch)
            arrays = repeated_to_batch(arrays, shapes)
        model = load_model(options, shapes, progress)
        inputs = {**synthetic_inputs(model.graph)[0], **arrays}
        figures = measure_figures(options, model, inputs, progress)
        if not options.no_first:
            progress(0, 0, "starting new processes for the first result")
            given = {} if is_container(options.model) else {"shapes": {n: list(a.shape) for n, a in inputs.items()}}
            settings = {name: getattr(options, name) for name in SETTINGS} | {"device": model.device.index}
            cold, warm = times_to_first_result(options.model, inputs, settings | given)
            figures["first_result"] = {"cold": cold, "warm": warm}
    if options.json:
        terminal.print_json(figures)
    else:
        print_figures(figures)


def batch_shapes(declared: TensorSpecs, shapes: Shapes, batch: int) -> Shapes:
    """Returns the shapes of the inputs that leave their batch open, with this batch. Raises InputError if none does."""
    check_sizes(declared, shapes)
    found: dict[str, Sequence[int] | int] = dict(shapes)
    sizes = {name: size for name, size in shapes.items() if isinstance(size, int)}
    for name, (_, dimensions) in declared.items():
        if dimensions and isinstance(dimensions[0], str):
            given = shapes.get(name, dimensions)
            rest = [] if isinstance(given, int) else [*given][1:]
            found[name] = (batch, *(each if isinstance(each, int) else sizes[each] for each in rest))
    if found == dict(shapes):
        raise InputError(f"--batch {batch}: no input of the model has a dynamic batch size")
    return found


def repeated_to_batch(arrays: Arrays, shapes: Shapes) -> dict[str, Any]:
    """Repeats the arrays of one picture to a batch."""
    made = {}
    for name, array in arrays.items():
        shape = shapes.get(name)
        count = 1 if shape is None or isinstance(shape, int) else shape[0] // array.shape[0]
        made[name] = numpy.concatenate([array] * count) if count > 1 else array
    return made


def measure_figures(
    options: argparse.Namespace, model: Model, inputs: dict[str, Array], progress: terminal.ProgressSpinner
) -> dict[str, Any]:
    """Returns all figures except the first result as plain data: seconds, frames a second and bytes."""
    progress(0, 0, "measuring runs")
    own = measure_latency(lambda: model.run(inputs), LATENCY_SECONDS)
    progress(0, 0, f"measuring frames in flight for {options.seconds:g} s")
    flight = measure_sustained(model, inputs, options.seconds, options.depth)
    figures = {
        "model": options.model, "device": model.device.key, "name": model.device.name, "run": asdict(own),
        "sustained": asdict(flight) | {"rate": flight.rate, "depth": options.depth},
        "batch": options.batch or 1,
        "memory": asdict(model.plan.memory) | {"process": process_bytes()},
    }
    if options.compare:
        progress(0, 0, "measuring onnxruntime")
        other = onnxruntime_run(options.model, inputs)
        difference = relative_error(model.run(inputs), other())
        found = asdict(measure_latency(other, LATENCY_SECONDS))
        figures["compared"] = {"engine": options.compare, "difference": difference, **found}
    return figures


def print_figures(figures: dict[str, Any]) -> None:
    """Prints the headline and a line for each figure."""
    console = terminal.console()
    run, flight, memory = figures["run"], figures["sustained"], figures["memory"]
    name = Path(figures["model"]).name
    rate, batch = f"{flight['rate']:.1f} frames a second", figures["batch"]
    unit = "frames" if batch == 1 else "runs"
    if batch > 1:
        rate = f"{batch} pictures in each of {flight['rate']:.1f} runs a second, {batch * flight['rate']:.1f} pictures"
    console.print(f"{name} on {figures['name']}: {run['median'] * 1e3:.1f} ms, {rate}", style="bold")
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_row("run", latency_as_text(run))
    table.add_row(
        f"{flight['depth']} in flight", f"{flight['rate']:.1f} {unit} a second for {flight['seconds']:.1f} s: "
        f"{flight['first']:.1f} in the first quarter, {flight['last']:.1f} in the last",
    )
    if "first_result" in figures:
        first = figures["first_result"]
        table.add_row("first result", f"{first['cold']:.2f} s cold, {first['warm']:.2f} s warm")
    process = f"; process {memory['process'] / 1e6:.0f} MB" if memory["process"] else ""
    table.add_row(
        "memory", f"{memory['peak'] / 1e6:.1f} MB on the device: weights {memory['weights'] / 1e6:.1f}, activations "
        f"{memory['activations'] / 1e6:.1f}{process}",
    )
    if "compared" in figures:
        other = figures["compared"]
        table.add_row(other["engine"], f"{latency_as_text(other)}; results differ by {other['difference']:.1e}")
    console.print(table)


def latency_as_text(found: dict[str, Any]) -> str:
    """'median 8.1 ms, 90 % within 9.0, 99 % within 12.1, minimum 7.9 (240 runs)'. found: the fields of a Latency."""
    median, p90, p99, least = (f"{found[name] * 1e3:.1f}" for name in ("median", "p90", "p99", "least"))
    return f"median {median} ms, 90 % within {p90}, 99 % within {p99}, minimum {least} ({found['runs']} runs)"
