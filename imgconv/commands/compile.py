"""imgconv compile: write a model for one device to a file that loads at once."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from imgconv.commands.arguments import add_model_arguments, add_precision_argument, add_strict_argument
from imgconv.commands.arguments import check_sizes, read_shapes
from imgconv.files.disk import check_folder
from imgconv.model import load
from imgconv.reports import terminal
from imgconv.running.description import known_devices, read_description

SUFFIX = ".imgconv"

DESCRIPTION = f"""\
Compile a model and write its plan, its packed weights and the driver's programs to one file, by default the model's
name with the suffix {SUFFIX}. imgconv.load, run, inspect and profile take that file as a model. On the same device
and driver it loads without reading ONNX, planning, packing or compiling; on another device it is planned and compiled
anew. With --target it is planned for a device that is not at hand."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `imgconv compile`."""
    add_model_arguments(parser, compiled=False)
    add_precision_argument(parser)
    add_strict_argument(parser)
    parser.add_argument(
        "--target", action="append", default=[], metavar="FILE",
        help="plan for the device that this file describes, which `imgconv devices --json` wrote there, or for one of "
        f"{', '.join(known_devices())}; several times for several devices in one file",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help=f"where to write (default: MODEL with {SUFFIX})")


def execute(options: argparse.Namespace) -> None:
    """Compiles the model and writes the file. Raises what imgconv.load and Model.save raise."""
    from imgconv.onnx_import import declared_inputs

    path = options.output or str(Path(options.model).with_suffix(SUFFIX))
    check_folder(path)
    devices = [read_description(each) for each in options.target]
    with terminal.Progress(f"compiling {options.model}") as progress:
        declared = declared_inputs(options.model)
        shapes = read_shapes(options.shape, declared)
        check_sizes(declared, shapes)
        model = load(
            options.model, options.device, options.float16, options.native_explog, shapes, options.max_image, progress,
            options.precision, strict=options.strict,
        )
        model.save(path, devices)
    size = os.path.getsize(path)
    if options.json:
        keys = [info.key for info in devices] or [model.device.key]
        terminal.print_json({"file": path, "bytes": size, "device": keys[0], "devices": keys})
    else:
        names = ", ".join(options.target) or model.device  # an Adreno's name may lack its number
        terminal.console().print(f"{path}: {size / 1e6:.1f} MB for {names}", soft_wrap=True)
