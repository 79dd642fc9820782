"""imgconv compile: compile a model for one or several devices and write it to a file that loads without planning."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from imgconv.arrays import Shapes, TensorSpecs
from imgconv.cl.device import DeviceInfo
from imgconv.commands.shared_arguments import add_model_arguments, add_precision_argument, add_strict_argument
from imgconv.commands.shared_arguments import (
    add_picture_arguments, add_target_argument, check_sizes, count, number, parse_name_and_value,
)
from imgconv.commands.shared_arguments import read_sizes
from imgconv.commands.command_line_inputs import (
    description_of, find_picture_input, infer_task_and_preparation, read_preparation,
)
from imgconv.commands.run import merged_description
from imgconv.commands.tune import search_precision
from imgconv.errors import ConfigError, DeviceError, InputError
from imgconv.files.disk import check_folder
from imgconv.loading.compiled import ModelSource
from imgconv.loading.device_descriptions import read_device_description as read_device
from imgconv.loading.offline_compile import save_for_devices
from imgconv.model import Model, Settings, open_source, read_settings
from imgconv.picture_settings import with_hints
from imgconv.precision.choose import BOUND
from imgconv.passes import run_passes
from imgconv.preprocessing.preparation import COLORS, FORMATS, PictureInput, Preparation, Size, as_text
from imgconv.preprocessing.stage import PICTURE, PictureStage, array_shape
from imgconv.reports import terminal
from imgconv.stored.compiled_file import SavedModel
from imgconv.stored.description_file import find_description
from imgconv.tasks import HEADS, TASKS, Description, read_description
from imgconv.answers import MOST, AnswerStage, answer_stage, description_with_answers

SUFFIX = ".imgconv"
ANSWERS = ("labels", "score", "overlap", "top", "most")  # options that are of answers
WITHOUT = "without a device, give --precision FILE, written by imgconv tune --precision on another machine"

DESCRIPTION = """\
Compile a model into one file, by default MODEL with the suffix .imgconv. The file contains the plan, the packed weights
and, for this machine's device, the program binaries built by the driver. imgconv.load, run, inspect and profile accept
it as a model. On the same device and driver it loads without reading ONNX, planning, packing or compiling; on another
device imgconv plans and compiles again.

--target compiles for a device that is not connected. This needs no OpenCL driver, except with --float16, which measures
on a device of this machine which values can be stored as fp16: for a limited time on synthetic pictures or, with
--pictures, without a time limit on the given pictures.

The file also includes the plan of --target generic, which runs on any phone that meets its limits. A device that is not
among the targets uses the first plan in the file whose limits it meets.

With --picture, the file accepts camera frames: its input "picture" is an array of a frame's bytes, and the device
resizes, converts and normalises the frame. The settings are those of the command line, else those that imgconv run
would use.

With --task or --head, the file returns decoded answers: the device decodes the outputs and suppresses overlapping
boxes. The answers have fixed shapes. Depending on the task they are boxes (in pixels of the frame) with scores, classes
and their number; classes with scores; a mask; points; a map; or an image."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser, compiled=False)
    add_precision_argument(parser)
    parser.add_argument(
        "--pictures", nargs="+", default=[], metavar="PICTURE", help="pictures on which --float16 measures"
    )
    add_picture_arguments(parser)
    parser.add_argument(
        "--picture", nargs=2, metavar=("FORMAT", "SIZE"),
        help=f"accept frames of this format and size, such as nv12 640x480; the formats are {', '.join(FORMATS)}",
    )
    meaning = parser.add_argument_group("answers instead of outputs")
    meaning.add_argument("--task", choices=TASKS, help="return the decoded answers of this task")
    meaning.add_argument(
        "--head", choices=HEADS, metavar="HEAD", help="the layout of the outputs; imgconv run --help lists the heads"
    )
    meaning.add_argument("--labels", metavar="FILE", help="class names, one per line")
    meaning.add_argument("--score", type=number, metavar="SCORE", help="minimum score of a detection")
    meaning.add_argument(
        "--overlap", "--iou", type=number, metavar="PART", help="maximum intersection over union of two detections"
    )
    meaning.add_argument(
        "--top", type=count, metavar="N", help="number of classes that a classifier returns (default: 5)"
    )
    meaning.add_argument("--most", type=count, metavar="N", help=f"maximum number of boxes (default: {MOST})")
    parser.add_argument("--colors", choices=COLORS, help="color standard of the frame (default: bt601)")
    parser.add_argument(
        "--outputs", nargs="+", default=[], metavar="NAME",
        help="cut the model at these tensors, which become its outputs",
    )
    parser.add_argument(
        "--state", type=parse_name_and_value, action="append", default=[], metavar="OUTPUT=INPUT",
        help="keep this output on the device and use it as this input of the next run; in the first run the input is 0",
    )
    parser.add_argument(
        "--player-only", action="store_true", help="leave out the graph; only the player, not Python, can load the file"
    )
    add_strict_argument(parser)
    add_target_argument(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE", help=f"file to write (default: MODEL with the suffix {SUFFIX})"
    )


def execute(options: argparse.Namespace) -> None:
    """Compiles the model and writes the file. Raises what imgconv.load and Model.save raise."""
    path = options.output or str(Path(options.model).with_suffix(SUFFIX))
    check_folder(path)
    if options.picture:
        read_size(options.picture[1])
    description_of(options.model)  # raises for what would be kept and refused later
    devices = [read_device(each) for each in options.target]
    with terminal.ProgressSpinner(f"compiling {options.model}") as progress:
        own = _write(path, options, devices, progress)
    saved = SavedModel.open(path)
    size, refused, frames = os.path.getsize(path), saved.refused_by_player, describe_frames(saved, description_of(path))
    if options.json:
        keys = [info.key for info in devices or [own]]
        found = {"file": path, "bytes": size, "device": keys[0], "devices": keys, "frames": frames or None}
        terminal.print_json({**found, "refused_by_player": refused or None})
        return
    names = ", ".join(options.target) or str(own)  # an Adreno's name may lack its number
    others = set(saved.devices) - {info.key for info in devices or [own]}
    if read_device("generic").key in others:
        names += ", and any other device"
    terminal.console().print(f"{path}: {size / 1e6:.1f} MB for {names}", soft_wrap=True)
    if frames:
        terminal.console().print(frames, soft_wrap=True)
    if refused:
        about = f"Python can run this file; the native player cannot: {refused}"
        terminal.console().print(about, soft_wrap=True)


def _write(
    path: str, options: argparse.Namespace, devices: Sequence[DeviceInfo], progress: terminal.ProgressSpinner
) -> DeviceInfo:
    """Writes the file; returns the device of the plan. With --target no device is opened unless one has to measure."""
    from imgconv.onnx_import import declared_inputs

    declared = declared_inputs(options.model, options.outputs)
    shapes, *sizes = read_sizes(options.shape, declared)
    if options.picture and sizes:
        raise ConfigError("a file with --picture has one size: give each --shape once")
    for each in (shapes, *sizes) if not options.picture else ():
        check_sizes(declared, each)
    settings = Settings(
        options.device, options.float16, options.native_explog, shapes, options.max_image, progress, options.precision,
        strict=options.strict, outputs=tuple(options.outputs),
    )
    if options.pictures:
        if options.precision:
            raise ConfigError("--precision FILE contains the result that --pictures would measure: give only one")
        if options.outputs:
            raise ConfigError("--pictures measures the whole model: leave out --outputs, and cut the ONNX file instead")
        _, _, file, _ = search_precision(options, BOUND, progress)
        settings = replace(settings, precision=file, float16=None)
    config, precision = read_settings(settings)
    states = dict(options.state)
    stage, description = None, find_description(options.model)
    if options.colors and not options.picture:
        raise ConfigError("--colors applies only to frames: also give --picture")
    if options.picture:
        stage, shapes, description = read_picture_stage(options, declared, shapes)
    answers, asked = None, [name for name in ANSWERS if getattr(options, name) is not None]
    if asked and not (options.task or options.head):
        raise ConfigError(f"--{asked[0]} applies only to decoded answers: also give --task or --head")
    if options.task or options.head:
        if states:
            raise ConfigError("--state names outputs of the model, but --task and --head replace these with answers")
        answers, description = read_answer_stage(options, declared, shapes, stage, description)
    if devices and (precision or not config.float16):
        save_for_devices(
            path, options.model, devices, config, shapes, precision, options.strict, stage, description, states,
            options.outputs, sizes, True, answers, options.player_only,
        )
        return devices[0]
    try:
        source = open_source(options.model, settings)
        assert isinstance(source, ModelSource)
        source = replace(source, picture=stage, description=description, answers=answers, cached=False)
        model = Model(replace(source, shapes=shapes))
    except DeviceError as error:
        if not devices:
            raise
        remedy = f"--float16 measures on a device of this machine which values can be fp16; {WITHOUT}"
        raise DeviceError(f"{error}\n{remedy}") from error
    (model.stream(states) if states else model).save(path, devices, sizes, True, options.player_only)
    return model.device


def read_picture_stage(
    options: argparse.Namespace, declared: TensorSpecs, shapes: Shapes
) -> tuple[PictureStage, Shapes, str]:
    """The preparation of --picture, all shapes with the frame's, and the description that the file keeps.

    The settings are those of `imgconv run`. Raises InputError.
    """
    from imgconv.onnx_import import import_onnx

    format, size = options.picture[0], read_size(options.picture[1])
    if format not in FORMATS:
        raise InputError(f"--picture {format}: use {', '.join(FORMATS)}")
    target, found = described_target(options, declared, shapes)
    network = target.picture_size(size)
    channels = target.channels or 3
    shown = {**shapes, target.name: target.shape(size, channels)}
    graph = run_passes(import_onnx(options.model, shown, outputs=options.outputs))
    task, prepared = infer_task_and_preparation(options, target, graph, found)
    settings = {**prepared, "format": format}
    if options.colors:
        settings["colors"] = options.colors
    how = read_preparation(options, target, settings)
    text = json.loads(find_description(options.model) or "{}")
    if task:
        text.setdefault("head", task.head)
    if found.labels:
        text.setdefault("labels", found.labels)
    about = {"preparation": vars(how), "picture": {"size": size, "model": network}}
    shapes = {name: shape for name, shape in shapes.items() if name != target.name}
    return PictureStage(target, how), {**shapes, PICTURE: array_shape(format, size)}, json.dumps({**text, **about})


def read_answer_stage(
    options: argparse.Namespace, declared: TensorSpecs, shapes: Shapes, stage: PictureStage | None, text: str
) -> tuple[AnswerStage, str]:
    """The decoding of --task and --head, and the description that the file keeps. Raises InputError.

    stage: the preparation of frames, which the text describes; without it, the file keeps that of `imgconv run`.
    """
    from imgconv.onnx_import import import_onnx

    target, said = described_target(options, declared, shapes)
    if stage:
        said = merged_description(options, read_description(text))
    graph = import_onnx(options.model, stage.model_input_shapes(shapes) if stage else shapes, outputs=options.outputs)
    made: TensorSpecs = {name: (graph.values[name].dtype, graph.values[name].shape) for name in graph.outputs}
    inputs: TensorSpecs = {value.name: (value.dtype, value.shape) for value in graph.inputs}
    found, kept = answer_stage(inputs, shapes, made, said, stage, options.most or MOST), json.loads(text or "{}")
    if stage is None:
        _, settings = infer_task_and_preparation(options, target, run_passes(graph), said)
        kept["preparation"] = vars(read_preparation(options, target, settings))
    return found, description_with_answers(found, kept)


def described_target(
    options: argparse.Namespace, declared: TensorSpecs, shapes: Shapes
) -> tuple[PictureInput, Description]:
    """The input that takes the picture, and the description, as `imgconv run` finds them. Raises InputError."""
    target, stored = with_hints(options.model, find_picture_input(declared, shapes, {}), description_of(options.model))
    return target, merged_description(options, stored)


def describe_frames(saved: SavedModel, description: Description) -> str:
    """The frames that a file takes, and what it makes of them, in one line; "" if it takes none."""
    if not description.picture:
        return ""
    how, size = Preparation(**description.preparation), description.picture["size"]
    dtype, shape = saved.inputs[PICTURE]
    frame = f"{how.format} {size[0]}x{size[1]} as {dtype} {shape}"
    return f"input {PICTURE}: {frame}; converted to {as_text(how, description.picture['model'])}"


def read_size(text: str) -> Size:
    """Width and height of WIDTHxHEIGHT. Raises InputError."""
    width, _, height = text.partition("x")
    if not (width.isdecimal() and height.isdecimal() and int(width) and int(height)):
        raise InputError(f"--picture {text}: the size of a frame is WIDTHxHEIGHT, such as 480x640")
    return int(width), int(height)
