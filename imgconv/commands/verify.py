"""imgconv verify: compare the outputs and every layer with onnxruntime, in fp32 and in fp16."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter

from imgconv.cl.device import DeviceInfo, open_device, select_device
from imgconv.commands.shared_arguments import add_model_arguments, add_picture_arguments, add_precision_argument, number
from imgconv.commands.command_line_inputs import read_cases
from imgconv.config import Config, read_config
from imgconv.errors import Error
from imgconv.files.disk import check_folder, atomic_write
from imgconv.reports import terminal
from imgconv.reports import verify_page
from imgconv.reports.table import Column, print_table
from imgconv.reports.verify import (
    FLOAT_BOUND, HALF_BOUND, SUM_TYPES, LayerErrors, as_json, check_oracle, first_problem, verify, wrong_outputs,
)
from imgconv.loading.plans import prepare_for
from imgconv.precision.calibration_inputs import synthetic_inputs
from imgconv.loading.native_functions import native_functions_fit
from imgconv.precision.choose import choose_precision
from imgconv.loading.replanning import replan_until_kernels_work
from imgconv.stored.precision_file import read_precision_file
from imgconv.stored.tuning import open_tuning_database

DESCRIPTION = f"""\
Run a model with imgconv and with onnxruntime, and print the difference of each output. If an output exceeds its bound,
the exit status is 1. The table of layers shows where differences start, and names the first layer over its bound. If
all outputs pass, a layer over its bound does not change the exit status.

In a quantised network, rounding may turn a value into the neighbouring quantised value. Larger differences are
therefore accepted if onnxruntime's own results differ as much: when its inputs change by 1e-7, or with and without its
graph optimisations.

A relative error is a difference divided by the layer's largest value. fp16 rounds each value by up to 5e-4. If a
network does not amplify errors, its relative error stays below {HALF_BOUND:g} in fp16 and below {FLOAT_BOUND:g} in
fp32. fp16 results are judged only with --float16, FLOAT16 or --precision FILE. Otherwise one line shows the error of
the outputs with all values stored as fp16, if it exceeds the bound.

Without a picture or --case, inputs get synthetic values from 0 to 1 with the spectrum of natural pictures."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser, compiled=False)
    add_precision_argument(parser)
    given = parser.add_mutually_exclusive_group()
    given.add_argument("picture", metavar="PICTURE", nargs="?", help="a picture file")
    given.add_argument(
        "--case", metavar="FILE.npz", help="a file written by numpy.savez, with an array for each input; the array for "
        "the input x is called x or in:x, and arrays called out:... are ignored",
    )
    add_picture_arguments(parser)
    parser.add_argument(
        "--bound", type=number, default=HALF_BOUND, metavar="ERROR",
        help=f"maximum relative error of fp16 results (default: {HALF_BOUND:g}); for fp32 results a tenth of it",
    )
    parser.add_argument("--all", action="store_true", help="show every layer and every column")
    parser.add_argument("--html", metavar="FILE", help="also write a page with a bar for each layer")


def execute(options: argparse.Namespace) -> None:
    """Prints outputs and layers. Raises Error naming an output over a bound, and what imgconv.load raises."""
    check_oracle("imgconv verify")
    check_folder(options.html)
    with terminal.ProgressSpinner(f"reading {options.model}") as progress:
        device, config, layers = measure(options, progress)
    if options.html:
        given = options.case or options.picture or "synthetic input"
        half = f"FLOAT16={config.float16}, " if config.float16 else ""
        about = f"{device.name}, {device.platform}, {half}{given}"
        with atomic_write(options.html) as file:
            file.write(verify_page.html_page(f"imgconv verify {options.model}", about, layers, options.bound).encode())
    if options.json:
        terminal.print_json({"model": options.model, "device": device.key, "bound": options.bound, **as_json(layers)})
    else:
        print_layers(device, layers, options.all, with_half=config.float16 > 0)
        if options.html:
            terminal.say(f"written to {options.html}")
    wrong, first = wrong_outputs(layers), first_problem(layers)
    if wrong and first:
        raise Error(f"{options.model}: {_describe_fault(wrong[0], first)}")


def _describe_fault(output: LayerErrors, first: LayerErrors) -> str:
    """Returns what is wrong with an output, and the layer in which it may begin."""
    origin = f" ({', '.join(first.origin)})" if first.origin else ""
    if output is first:
        return f"output {output.name!r}{origin} {output.fault}"
    begin = f"the first layer with a problem is {first.name!r}{origin}: it {first.problem}"
    return f"output {output.name!r} {output.fault}; {begin}"


def measure(
    options: argparse.Namespace, progress: terminal.ProgressSpinner
) -> tuple[DeviceInfo, Config, list[LayerErrors]]:
    """The device, the settings that are judged (float16 is 0 if only float is), and every layer."""
    from imgconv.onnx_import import import_onnx

    options.pictures = [options.picture] if options.picture else []
    file = read_precision_file(options.precision) if options.precision else None
    config = read_config(options.float16, options.native_explog, options.max_image, options.device)
    device = select_device(config.device)
    without = options.float16 is False or not device.half_images
    mode = file.float16 if file else 0 if without else config.float16 or 1
    judged = bool(file) or config.float16 > 0
    config = replace(config, float16=mode)
    cases, shapes = read_cases(options, options.case)
    context, tuning = open_device(device), open_tuning_database(options.model)
    native = native_functions_fit(context, config)

    def verify_on(info: DeviceInfo) -> list[LayerErrors]:
        started = perf_counter()
        prepared = prepare_for(info, import_onnx(options.model, shapes), config, tuning, native_functions=native)
        inputs = cases[0] if cases else synthetic_inputs(prepared.graph)[0]
        precision = file.precision_of(prepared.graph) if file else None
        if judged and mode and not file:
            precision = choose_precision(prepared, context, progress, started=started).precision
        return verify(options.model, prepared, context, inputs, options.bound, precision, progress, judged)

    return device, replace(config, float16=mode if judged else 0), replan_until_kernels_work(device, verify_on)


OUTPUTS = (
    Column("output", text=True), Column("shape", 3, text=True), Column("fp32", 1), Column("fp16", 2),
    Column("verdict", text=True, wraps=True),
)
LAYERS = (
    Column("#"), Column("layer", text=True), Column("operation", 5, text=True), Column("fp32: difference", 8),
    Column("fp32: relative", 2), Column("fp16: difference", 8), Column("fp16: relative", 1), Column("rounding", 9),
    Column("largest", 4), Column("problem", 3, text=True), Column("stored", 6, text=True), Column("sums", 7, text=True),
)
WORST = 10


def print_layers(
    device: DeviceInfo, layers: Sequence[LayerErrors], everything: bool = False, with_half: bool = True
) -> None:
    """Prints the outputs with their verdict, then the WORST layers in order.

    everything: all layers and columns; with_half: whether fp16 is judged.
    """
    if not with_half and not everything:
        layers = [replace(each, half_difference=None, half_error=None, stored="", sums="") for each in layers]
    console = terminal.console()
    console.print(f"outputs on {device}, compared with onnxruntime", style="bold")
    outputs = [layer for layer in layers if layer.is_output]
    rows = [_verdict(layer) for layer in outputs]
    print_table(console, OUTPUTS, rows, everything, ["red" if each.fault else None for each in outputs])
    would = [layer for layer in outputs if layer.in_half]
    if would:
        console.print(f"{would[0].name} {in_conditional_mood(would[0].in_half)}: --float16 keeps such values in fp32")
    numbered = [*enumerate(layers)]
    worst = numbered if everything else sorted(sorted(numbered, key=lambda pair: -pair[1].worst)[:WORST])
    over = sum(bool(layer.problem) for layer in layers)
    which = "all layers" if len(worst) == len(layers) else f"the {WORST} layers with the largest errors (all: --all)"
    console.print(f"\n{which}; {over} of {len(layers)} over a bound", style="bold")
    rows = [_table_row(place, layer) for place, layer in worst]
    print_table(console, LAYERS, rows, everything, ["red" if each.problem else None for _, each in worst], "--all")


def in_conditional_mood(problem: str) -> str:
    """A problem of fp16, see `problem_of`, as one that would be: "is off by 0.1" becomes "would be off by 0.1"."""
    said = problem.partition(" in fp16")[0].partition(":")[0]
    for now, then in (("is not ", "would not be "), ("is ", "would be "), ("overflows", "would overflow")):
        if said.startswith(now):
            said = then + said.removeprefix(now)
            break
    return said if said.endswith(" fp16") else f"{said} in fp16"


def _verdict(layer: LayerErrors) -> tuple[str, ...]:
    shape = "x".join(map(str, layer.shape)) or "scalar"
    by_itself = f"right; onnxruntime differs from itself by {layer.unstable or 0:.2g} {layer.yardstick}"
    verdict = layer.fault or (by_itself if layer.unstable else "right")
    return layer.name, shape, _error_as_text(layer.float_error), _error_as_text(layer.half_error), verdict


def _table_row(place: int, layer: LayerErrors) -> tuple[str, ...]:
    numbers = (layer.float_difference, layer.float_error, layer.half_difference, layer.half_error, layer.rounding)
    return (
        str(place), layer.name, layer.operation, *map(_error_as_text, numbers), f"{layer.largest:.4g}", layer.problem,
        layer.stored, SUM_TYPES.get(layer.sums, ""),
    )


def _error_as_text(number: float | None) -> str:
    return "" if number is None else f"{number:.1e}"
