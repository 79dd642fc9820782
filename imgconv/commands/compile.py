"""imgconv compile: write a model for one device to a file that loads at once."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from imgconv.arrays import Declared, Shapes
from imgconv.cl.device import DeviceInfo
from imgconv.commands.arguments import add_model_arguments, add_precision_argument, add_strict_argument
from imgconv.commands.arguments import add_picture_arguments, add_target_argument, check_sizes, count, named, number
from imgconv.commands.arguments import read_sizes
from imgconv.commands.inputs import description_of, find_target, found_preparation, read_preparation
from imgconv.commands.run import describe
from imgconv.commands.tune import chosen_precision
from imgconv.errors import ConfigError, DeviceError, InputError
from imgconv.files.disk import check_folder
from imgconv.loading.compiled import Source
from imgconv.loading.description import read_description as read_device
from imgconv.loading.targets import save_for_devices
from imgconv.model import Model, Settings, open_source, read_settings
from imgconv.precision.choose import BOUND
from imgconv.passes import run_passes
from imgconv.preprocessing.preparation import COLORS, FORMATS, Preparation, Size, as_text
from imgconv.preprocessing.stage import PICTURE, PictureStage, array_shape
from imgconv.reports import terminal
from imgconv.stored.compiled_file import SavedModel
from imgconv.stored.description_file import description_beside
from imgconv.tasks import HEADS, TASKS, Description, read_description
from imgconv.answers import MOST, AnswerStage, answer_stage, described

SUFFIX = ".imgconv"
ANSWERS = ("labels", "score", "overlap", "top", "most")  # options that are of answers
WITHOUT = "without one, give --precision FILE, which imgconv tune --precision makes where there is a device"

DESCRIPTION = """\
Compile a model and write its plan, its packed weights and the driver's programs to one file, by default MODEL with the
suffix .imgconv. imgconv.load, run, inspect and profile take that file as a model. On the same device and driver it
loads without reading ONNX, planning, packing or compiling; any other device plans and compiles it again. --target plans
for a device that is not present. This machine then needs no OpenCL driver, except for --float16, which measures which
values can be half: on synthetic pictures within the time of a load, or to the end on those of --pictures, as imgconv
tune --precision does.

The file ends with a plan for any phone, that of --target generic: a device that is not among the targets takes the
first plan whose limits it meets.

With --picture the file takes a camera's frames: its input "picture" is an array of their bytes, and the device resizes,
converts and normalises them. The settings are those of imgconv run: of the command line, MODEL.task.json and the head.

With --task or --head the file gives answers: the device decodes the outputs and suppresses boxes. The answers are
outputs of a fixed size: boxes in pixels of the frame, scores, classes and their count; classes and scores; a mask; or
points."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser, compiled=False)
    add_precision_argument(parser)
    parser.add_argument(
        "--pictures", nargs="+", default=[], metavar="PICTURE", help="measure on these what can be half (FLOAT16=1, 2)"
    )
    add_picture_arguments(parser)
    parser.add_argument(
        "--picture", nargs=2, metavar=("FORMAT", "SIZE"),
        help=f"put the preparation of such frames into the file: nv12 640x480; formats: {', '.join(FORMATS)}",
    )
    meaning = parser.add_argument_group("answers in place of outputs")
    meaning.add_argument("--task", choices=TASKS, help="put the decoding of these answers into the file, for apps")
    meaning.add_argument("--head", choices=HEADS, metavar="HEAD", help="the layout of the outputs: see imgconv run")
    meaning.add_argument("--labels", metavar="FILE", help="names of the classes, one per line")
    meaning.add_argument("--score", type=number, metavar="SCORE", help="the lowest score of a detection")
    meaning.add_argument(
        "--overlap", "--iou", type=number, metavar="PART", help="the largest overlap of two detections"
    )
    meaning.add_argument("--top", type=count, metavar="N", help="number of classes (default: 5)")
    meaning.add_argument("--most", type=count, metavar="N", help=f"number of boxes (default: {MOST})")
    parser.add_argument("--colors", choices=COLORS, help="the standard of a frame's colors (default: bt601)")
    parser.add_argument(
        "--outputs", nargs="+", default=[], metavar="NAME",
        help="cut the model at these tensors; any tensor will do",
    )
    parser.add_argument(
        "--state", type=named, action="append", default=[], metavar="OUTPUT=INPUT",
        help="keep this output on the device as that input of the next run; zero at first",
    )
    parser.add_argument(
        "--player-only", action="store_true", help="leave out the graph, which only Python needs: load refuses the file"
    )
    add_strict_argument(parser)
    add_target_argument(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help=f"where to write (default: MODEL with {SUFFIX})")


def execute(options: argparse.Namespace) -> None:
    """Compiles the model and writes the file. Raises what imgconv.load and Model.save raise."""
    path = options.output or str(Path(options.model).with_suffix(SUFFIX))
    check_folder(path)
    if options.picture:
        read_size(options.picture[1])
    description_of(options.model)  # raises for what would be kept and refused later
    devices = [read_device(each) for each in options.target]
    with terminal.Progress(f"compiling {options.model}") as progress:
        own = _write(path, options, devices, progress)
    saved = SavedModel.open(path)
    size, refused, frames = os.path.getsize(path), saved.refused_by_player, frames_text(saved, description_of(path))
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
        about = f"imgconv runs it; libimgconv, the player for apps, does not: {refused}"
        terminal.console().print(about, soft_wrap=True)


def _write(
    path: str, options: argparse.Namespace, devices: Sequence[DeviceInfo], progress: terminal.Progress
) -> DeviceInfo:
    """Writes the file; returns the device of the plan. With --target no device is opened unless one has to measure."""
    from imgconv.onnx_import import declared_inputs

    declared = declared_inputs(options.model, options.outputs)
    shapes, *sizes = read_sizes(options.shape, declared)
    if options.picture and sizes:
        raise ConfigError("--picture makes a file of one size: give each --shape once")
    for each in (shapes, *sizes) if not options.picture else ():
        check_sizes(declared, each)
    settings = Settings(
        options.device, options.float16, options.native_explog, shapes, options.max_image, progress, options.precision,
        strict=options.strict, outputs=tuple(options.outputs),
    )
    if options.pictures:
        if options.precision:
            raise ConfigError("--precision gives what --pictures measures: give one of them")
        if options.outputs:
            raise ConfigError("--pictures measures the whole model: with --outputs leave it out, or cut the ONNX file")
        _, _, file, _ = chosen_precision(options, BOUND, progress)
        settings = replace(settings, precision=file, float16=None)
    config, precision = read_settings(settings)
    states = dict(options.state)
    stage, description = None, description_beside(options.model)
    if options.colors and not options.picture:
        raise ConfigError("--colors describes the frames of --picture: give both")
    if options.picture:
        stage, shapes, description = read_frames(options, declared, shapes)
    answers, asked = None, [name for name in ANSWERS if getattr(options, name) is not None]
    if asked and not (options.task or options.head):
        raise ConfigError(f"--{asked[0]} is for the answers of --task or --head: give one of these too")
    if options.task or options.head:
        if states:
            raise ConfigError("--state names outputs, which --task and --head replace by answers")
        answers, description = read_answers(options, declared, shapes, stage, description)
    if devices and (precision or not config.float16):
        save_for_devices(
            path, options.model, devices, config, shapes, precision, options.strict, stage, description, states,
            options.outputs, sizes, True, answers, options.player_only,
        )
        return devices[0]
    try:
        source = open_source(options.model, settings)
        assert isinstance(source, Source)
        model = Model(replace(source, shapes=shapes, picture=stage, description=description, answers=answers))
    except DeviceError as error:
        if not devices:
            raise
        raise DeviceError(f"{error}\nWith --float16 a device here measures what can be half; {WITHOUT}") from error
    (model.stream(states) if states else model).save(path, devices, sizes, True, options.player_only)
    return model.device


def read_frames(
    options: argparse.Namespace, declared: Declared, shapes: Shapes
) -> tuple[PictureStage, Shapes, str]:
    """The preparation of --picture, all shapes with the frame's, and the description that the file keeps.

    The settings are those of `imgconv run`. Raises InputError.
    """
    from imgconv.onnx_import import import_onnx

    format, size = options.picture[0], read_size(options.picture[1])
    if format not in FORMATS:
        raise InputError(f"--picture {format}: use {', '.join(FORMATS)}")
    target, found = find_target(declared, shapes, {}), describe(options, description_of(options.model))
    network = target.picture_size(size)
    channels = target.channels or 3
    shown = {**shapes, target.name: target.shape(size, channels)}
    graph = run_passes(import_onnx(options.model, shown, outputs=options.outputs))
    task, prepared = found_preparation(options, target, graph, found)
    settings = {**prepared, "format": format}
    if options.colors:
        settings["colors"] = options.colors
    how = read_preparation(options, target, settings)
    text = json.loads(description_beside(options.model) or "{}")
    if task:
        text.setdefault("head", task.head)
    about = {"preparation": vars(how), "picture": {"size": size, "model": network}}
    shapes = {name: shape for name, shape in shapes.items() if name != target.name}
    return PictureStage(target, how), {**shapes, PICTURE: array_shape(format, size)}, json.dumps({**text, **about})


def read_answers(
    options: argparse.Namespace, declared: Declared, shapes: Shapes, stage: PictureStage | None, text: str
) -> tuple[AnswerStage, str]:
    """The decoding of --task and --head, and the description that the file keeps. Raises InputError."""
    from imgconv.onnx_import import import_onnx

    said = describe(options, read_description(text) if text else Description())
    graph = import_onnx(options.model, stage.shapes_after(shapes) if stage else shapes, outputs=options.outputs)
    made: Declared = {name: (graph.values[name].dtype, graph.values[name].shape) for name in graph.outputs}
    inputs: Declared = {value.name: (value.dtype, value.shape) for value in graph.inputs}
    found = answer_stage(inputs, shapes, made, said, stage, options.most or MOST)
    return found, described(found, json.loads(text or "{}"))


def frames_text(saved: SavedModel, description: Description) -> str:
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
        raise InputError(f"--picture {text}: a frame's size is one word, WIDTHxHEIGHT, such as 480x640")
    return int(width), int(height)
