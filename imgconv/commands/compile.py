"""imgconv compile: write a model for one device to a file that loads at once."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from imgconv.cl.device import DeviceInfo
from imgconv.commands.arguments import add_model_arguments, add_precision_argument, add_strict_argument
from imgconv.commands.arguments import add_picture_arguments, check_sizes, read_shapes
from imgconv.commands.inputs import description_of
from imgconv.commands.tune import chosen_precision
from imgconv.errors import ConfigError, DeviceError
from imgconv.files.disk import check_folder
from imgconv.loading.description import known_devices, read_description
from imgconv.loading.targets import save_for_devices
from imgconv.model import Model, Settings, open_source, read_settings
from imgconv.reports import terminal
from imgconv.precision.choose import BOUND
from imgconv.stored.compiled_file import SavedModel

SUFFIX = ".imgconv"
WITHOUT = "without one, give --precision FILE, which imgconv tune --precision makes where there is a device"

DESCRIPTION = f"""\
Compile a model and write its plan, its packed weights and the driver's programs to one file, by default the model's
name with the suffix {SUFFIX}. imgconv.load, run, inspect and profile take that file as a model. On the same device
and driver it loads without reading ONNX, planning, packing or compiling; another device plans and compiles it
again. With --target it is planned for a device that is not at hand; this machine then needs no OpenCL driver, except to
measure what can be half for --float16. --pictures measures that on pictures of yours and to the end, as imgconv tune
--precision does; without them a load measures it on synthetic pictures in little time."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `imgconv compile`."""
    add_model_arguments(parser, compiled=False)
    add_precision_argument(parser)
    parser.add_argument(
        "--pictures", nargs="+", default=[], metavar="PICTURE", help="measure on these what can be half (FLOAT16=1, 2)"
    )
    add_picture_arguments(parser)
    add_strict_argument(parser)
    parser.add_argument(
        "--target", action="append", default=[], metavar="FILE",
        help="plan for the device that this file describes, which `imgconv devices --json` wrote there, or for one of "
        f"{', '.join(known_devices())}; several times for several devices in one file",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help=f"where to write (default: MODEL with {SUFFIX})")


def execute(options: argparse.Namespace) -> None:
    """Compiles the model and writes the file. Raises what imgconv.load and Model.save raise."""
    path = options.output or str(Path(options.model).with_suffix(SUFFIX))
    check_folder(path)
    description_of(options.model)  # raises for what would be kept and refused later
    devices = [read_description(each) for each in options.target]
    with terminal.Progress(f"compiling {options.model}") as progress:
        own = _write(path, options, devices, progress)
    size, refused = os.path.getsize(path), SavedModel.open(path).refused_by_player
    if options.json:
        keys = [info.key for info in devices or [own]]
        found = {"file": path, "bytes": size, "device": keys[0], "devices": keys, "refused_by_player": refused or None}
        terminal.print_json(found)
        return
    names = ", ".join(options.target) or own  # an Adreno's name may lack its number
    terminal.console().print(f"{path}: {size / 1e6:.1f} MB for {names}", soft_wrap=True)
    if refused:
        about = f"imgconv runs it; libimgconv, the player for apps, does not: {refused}"
        terminal.console().print(about, soft_wrap=True)


def _write(
    path: str, options: argparse.Namespace, devices: Sequence[DeviceInfo], progress: terminal.Progress
) -> DeviceInfo:
    """Writes the file; returns the device of the plan. With --target no device is opened unless one has to measure."""
    from imgconv.onnx_import import declared_inputs

    declared = declared_inputs(options.model)
    shapes = read_shapes(options.shape, declared)
    check_sizes(declared, shapes)
    settings = Settings(
        options.device, options.float16, options.native_explog, shapes, options.max_image, progress, options.precision,
        strict=options.strict,
    )
    if options.pictures:
        if options.precision:
            raise ConfigError("--precision gives what --pictures measures: give one of them")
        _, _, file = chosen_precision(options, BOUND, progress)
        settings = replace(settings, precision=file, float16=None)
    config, precision = read_settings(settings)
    if devices and (precision or not config.float16):
        save_for_devices(path, options.model, devices, config, shapes, precision, options.strict)
        return devices[0]
    try:
        model = Model(open_source(options.model, settings))
    except DeviceError as error:
        if not devices:
            raise
        raise DeviceError(f"{error}\nWith --float16 a device here measures what can be half; {WITHOUT}") from error
    model.save(path, devices)
    return model.device
