"""imgconv run: run a model on pictures or arrays."""

from __future__ import annotations

import argparse
import time
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy
from PIL import Image

from imgconv.arrays import Arrays, Shapes
from imgconv.commands.arguments import add_model_arguments, add_picture_arguments, add_precision_argument, count
from imgconv.commands.arguments import shown
from imgconv.commands.inputs import GivenInputs, read_given
from imgconv.errors import InputError
from imgconv.files.disk import check_folder, written_whole
from imgconv.model import Model, Settings, open_source
from imgconv.pictures.device import PictureStage
from imgconv.preprocess import read_picture, resized, save_picture, to_picture, with_color
from imgconv.reports import terminal
from imgconv.reports.results import ImageOutput, Result, Scores, Summary, interpret, kind_of, read_labels, summarize
from imgconv.running.compiled import Source
from imgconv.running.programs import Progress

DESCRIPTION = """\
Run a model on each picture and print what its outputs show: the best classes, an image, or a summary of each tensor.

A picture becomes the model's input as x = (pixel * scale - mean) / std, with pixels from 0 to 255, resized to the size
that the model takes; a model of any size takes the picture's own.

In an output image of bytes black and white are 0 and 255; in one of floats too, if its largest value is above 4, else
0 and 1. With --order y it gets the colors of the picture, enlarged with bicubic interpolation. With several pictures
the names of the files that are written get the picture's number: out-1.png, out-2.png."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `imgconv run`."""
    add_model_arguments(parser)
    add_precision_argument(parser)
    parser.add_argument("pictures", metavar="PICTURE", nargs="*", help="any picture that Pillow reads")
    add_picture_arguments(parser)
    after = parser.add_argument_group("results")
    after.add_argument("--labels", metavar="FILE", help="names of the classes, one a line")
    after.add_argument("--top", type=count, default=5, metavar="N", help="classes to print (default: 5)")
    after.add_argument("--output", metavar="FILE.png", help="where to write an output image")
    after.add_argument("--save", metavar="FILE.npz", help="where to write the arrays of all outputs")


@dataclass(frozen=True)
class CommandLine:
    """A command line, read and checked as far as possible without compiling the model."""

    options: argparse.Namespace
    given: GivenInputs
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """One run: the outputs by name, their Results, the written files. picture: "" if there is none."""

    picture: str
    size: tuple[int, int]
    seconds: float
    outputs: Arrays
    results: Mapping[str, Result]
    files: Mapping[str, str]


def execute(options: argparse.Namespace) -> None:
    """Runs the model and prints the results. Raises what imgconv.load and Model.run raise, and InputError."""
    results = []
    for outcome, model in run_all(read_command_line(options)):
        if options.json:
            results.append(outcome_as_json(outcome))
        else:
            print_outcome(outcome, model)
    if options.json:
        terminal.print_json({"model": options.model, "device": model.device.key, "results": results})


def read_command_line(options: argparse.Namespace) -> CommandLine:
    """Reads all small inputs, so that mistakes are found before compiling. Raises ModelError, InputError."""
    check_folder(options.output, options.save)
    given = read_given(options)
    for name, (dtype, dimensions) in given.missing.items():
        remedy = f"--input {name}=FILE.npy" + ("" if options.pictures else ", or a PICTURE")
        raise InputError(f"input {name!r}, {dtype} {shown(dimensions)}, has no value: give it, as {remedy}")
    return CommandLine(options, given, read_labels(options.labels) if options.labels else ())


def run_all(line: CommandLine) -> Iterator[tuple[Outcome, Model]]:
    """Runs one picture after another; the model is loaded once, and compiled again for a picture of another size."""
    options, given = line.options, line.given
    model: Model | None = None
    for position, path in enumerate(options.pictures or [""], 1):
        picture = read_picture(path) if path else None
        arrays, shapes = given.for_model(options.model, picture)
        with terminal.Progress(f"reading {options.model}") as progress:
            model = model or load_model(line, shapes, lambda *told: progress(*told))
            model.compile_for(arrays)
            progress(0, 0, f"running {path or options.model}")
            start = time.perf_counter()
            outputs = model.run(arrays)
            seconds = time.perf_counter() - start
        results = {name: interpret(name, array, options.top, line.labels) for name, array in outputs.items()}
        suffix = f"-{position}" if len(options.pictures) > 1 else ""
        files = save(line, outputs, results, picture, suffix)
        yield Outcome(path, picture.size if picture else (0, 0), seconds, outputs, results, files), model


def load_model(line: CommandLine, shapes: Shapes, progress: Progress) -> Model:
    """The compiled model. Raises InputError if --output asks for an image and no output is one."""
    options, given = line.options, line.given
    settings = Settings(
        options.device, options.float16, options.native_explog, shapes, options.max_image, progress, options.precision
    )
    source = open_source(options.model, settings)
    if given.target and isinstance(source, Source):
        source = replace(source, picture=PictureStage(given.target, given.preparation))
    model = Model(source)
    if options.output and not any(kind_of(value.shape, value.dtype) == "image" for value in model.outputs.values()):
        listed = ", ".join(str(value) for value in model.outputs.values())
        raise InputError(f"--output writes an image, and no output of the model is one: {listed}; --save writes arrays")
    return model


def save(
    line: CommandLine, outputs: Arrays, results: Mapping[str, Result], picture: Image.Image | None,
    suffix: str,
) -> dict[str, str]:
    """Writes the files of --output and --save; their names by output name, "" for the file of --save."""
    options, given, files = line.options, line.given, {}
    images = {name: result for name, result in results.items() if isinstance(result, ImageOutput)}
    for name, result in images.items() if options.output else ():
        path = with_suffix(options.output, suffix + (f"-{safe(name)}" if len(images) > 1 else ""))
        image = to_picture(result.channels_first, "bgr" if given.preparation.order == "bgr" else "rgb")
        if picture and given.target and given.preparation.order == "y" and image.mode == "L":
            image = with_color(image, resized(picture, given.target.picture_size(picture.size), given.preparation))
        save_picture(image, path)
        files[name] = path
    if options.save:
        files[""] = with_suffix(options.save, suffix)
        save_arrays(outputs, files[""])
    return files


def save_arrays(arrays: Arrays, path: str) -> None:
    """Writes a .npz file. Raises InputError."""
    # numpy.savez takes names as keyword arguments, so a name of its own arguments, such as "file", is not allowed.
    with written_whole(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                numpy.lib.format.write_array(entry, numpy.asarray(array), allow_pickle=False)


def with_suffix(path: str, suffix: str) -> str:
    """The path with a suffix before the extension: out.png and -1 make out-1.png."""
    return str(Path(path).with_stem(Path(path).stem + suffix))


def safe(name: str) -> str:
    """A tensor's name, changed so that it can be part of a file's name."""
    return "".join(c if c.isalnum() or c in "._" else "_" for c in name)


def print_outcome(outcome: Outcome, model: Model) -> None:
    """Prints one run's results as text."""
    console = terminal.console()
    size = f" {outcome.size[0]}x{outcome.size[1]}," if outcome.picture else ""
    took = f"{outcome.seconds * 1e3:.1f} ms on {model.device.name}"
    console.print(f"{outcome.picture or 'run'}:{size} {took}", style="bold")
    for name, array in outcome.outputs.items():
        result, spread = outcome.results[name], summarize(array)
        shape = "x".join(map(str, array.shape)) or "scalar"
        console.print(f"  {name} {array.dtype} {shape}: {result_as_text(result, spread)}")
        if isinstance(result, Scores):
            for score in result.top:
                console.print(f"    {score.index:5} {score.score:10.4f}  {score.label}".rstrip())
        if spread.not_finite:
            console.print(f"    {spread.not_finite} of {array.size} values are NaN or infinite", style="red")
        if name in outcome.files:
            console.print(f"    written to {outcome.files[name]}")
    if "" in outcome.files:
        console.print(f"  all outputs written to {outcome.files['']}")


def result_as_text(result: Result, spread: Summary) -> str:
    """A result in a few words."""
    span = f"{spread.minimum:.4g} .. {spread.maximum:.4g}, mean {spread.mean:.4g}"
    if isinstance(result, Scores):
        return f"scores, best {len(result.top)}"
    return f"image, {span}" if isinstance(result, ImageOutput) else span


def outcome_as_json(outcome: Outcome) -> dict[str, Any]:
    """Everything that print_outcome shows, as plain data."""
    outputs = {}
    for name, array in outcome.outputs.items():
        result = outcome.results[name]
        kind = kind_of(array.shape, str(array.dtype))
        outputs[name] = {"kind": kind, "shape": array.shape, "dtype": str(array.dtype), **asdict(summarize(array))}
        if isinstance(result, Scores):
            outputs[name]["top"] = [asdict(score) for score in result.top]
        outputs[name]["file"] = outcome.files.get(name)
    named_picture = {"picture": outcome.picture, "size": outcome.size} if outcome.picture else {}
    return {**named_picture, "seconds": outcome.seconds, "outputs": outputs, "arrays_file": outcome.files.get("")}
