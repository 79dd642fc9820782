"""imgconv verify: compare every layer with onnxruntime, in float and in half."""

from __future__ import annotations

import argparse
from dataclasses import replace

from rich import box
from rich.table import Table

from imgconv.cl.device import DeviceInfo, open_device, select
from imgconv.commands.arguments import add_model_arguments, add_picture_arguments, add_precision_argument, number
from imgconv.commands.inputs import read_cases
from imgconv.config import Config, read_config
from imgconv.errors import Error
from imgconv.files.disk import check_folder, written_whole
from imgconv.reports import terminal
from imgconv.reports import verify_page
from imgconv.reports.verify import FLOAT_BOUND, HALF_BOUND, Layer, as_json, check_oracle, first_problem, verify
from imgconv.running.compiled import prepare_for
from imgconv.running.precision import drawn_inputs
from imgconv.stored.precision_file import read_precision_file
from imgconv.stored.tuning import open_beside

DESCRIPTION = f"""\
Run a model here and with onnxruntime, and print for each layer in order its largest value, how far float is from
onnxruntime and how far half is from float. The first layer that is over a bound is named, and the exit status is 1.

Half is everything in half, where FLOAT16=1 would keep some layers float; with --precision FILE it is what the file
says. A relative error is a difference in parts of the layer's largest value. Half rounds each value to 5e-4, so that a
network that amplifies no error stays below {HALF_BOUND:g}, and float below {FLOAT_BOUND:g}.

Without a picture or a case the input is drawn: values from 0 to 1 with the spectrum of pictures."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `imgconv verify`."""
    add_model_arguments(parser, compiled=False)
    add_precision_argument(parser)
    given = parser.add_mutually_exclusive_group()
    given.add_argument("picture", metavar="PICTURE", nargs="?", help="any picture that Pillow reads")
    given.add_argument("--case", metavar="FILE.npz", help="arrays by input name")
    add_picture_arguments(parser)
    parser.add_argument(
        "--bound", type=number, default=HALF_BOUND, metavar="ERROR",
        help=f"the relative error in half that is too much (default: {HALF_BOUND:g}); a tenth of it is in float",
    )
    parser.add_argument("--html", metavar="FILE", help="also write a page with a bar for each layer")


def execute(options: argparse.Namespace) -> None:
    """Prints every layer. Raises Error naming the first layer over a bound, and what imgconv.load raises."""
    check_oracle()
    check_folder(options.html)
    with terminal.Progress(f"reading {options.model}") as progress:
        device, config, layers = measure(options, progress)
    if options.html:
        given = options.case or options.picture or "drawn input"
        about = f"{device.name}, {device.platform}, FLOAT16={config.float16}, {given}"
        with written_whole(options.html) as file:
            file.write(verify_page.page(f"imgconv verify {options.model}", about, layers, options.bound).encode())
    if options.json:
        terminal.print_json({"model": options.model, "device": device.key, "bound": options.bound, **as_json(layers)})
    else:
        print_layers(device, layers)
    bad = first_problem(layers)
    if bad:
        origin = f" ({', '.join(bad.origin)})" if bad.origin else ""
        raise Error(f"{options.model}: the first layer with a problem is {bad.name!r}{origin}: it {bad.problem}")


def measure(options: argparse.Namespace, progress: terminal.Progress) -> tuple[DeviceInfo, Config, list[Layer]]:
    """The device, the settings of the half run (float16 is 0 if there is none), and every layer."""
    from imgconv.onnx_import import import_onnx

    options.pictures = [options.picture] if options.picture else []
    file = read_precision_file(options.precision) if options.precision else None
    config = read_config(options.float16, options.native_explog, options.max_image, options.device)
    device = select(config.device)
    without = options.float16 is False or not device.half_images
    mode = file.float16 if file else 0 if without else config.float16 or 1
    config = replace(config, float16=mode)
    cases, shapes = read_cases(options, options.case)
    prepared = prepare_for(device, import_onnx(options.model, shapes), config, open_beside(options.model))
    inputs = cases[0] if cases else drawn_inputs(prepared.graph)[0]
    precision = file.precision_of(prepared.graph) if file else None
    layers = verify(
        options.model, prepared, open_device(device), inputs, options.bound, precision, progress
    )
    return device, config, layers


def print_layers(device: DeviceInfo, layers: list[Layer]) -> None:
    """Prints a table of all layers."""
    console = terminal.console()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title, justify in (
        ("", "right"), ("layer", "left"), ("operation", "left"), ("float: difference", "right"), ("relative", "right"),
        ("half: difference", "right"), ("relative", "right"), ("rounding", "right"), ("largest", "right"),
        ("stored", "left"), ("sums", "left"), ("problem", "left"),
    ):
        table.add_column(title, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for place, layer in enumerate(layers):
        numbers = (layer.float_difference, layer.float_error, layer.half_difference, layer.half_error, layer.rounding)
        table.add_row(
            str(place), layer.name, layer.operation, *("" if n is None else f"{n:.1e}" for n in numbers),
            f"{layer.largest:.4g}", layer.stored, layer.sums, layer.problem, style="red" if layer.problem else None,
        )
    console.print(f"layers on {device}, beside onnxruntime")
    console.print(table)
