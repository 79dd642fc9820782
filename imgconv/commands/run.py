"""imgconv run: run a model on pictures or arrays."""

from __future__ import annotations

import argparse
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy
from PIL import Image

from imgconv import terminal
from imgconv.commands.arguments import Declared, Shapes, add_model_arguments, count, named, number, numbers
from imgconv.commands.arguments import read_shapes, shown
from imgconv.errors import InputError
from imgconv.model import Model, load
from imgconv.onnx_import import declared_inputs
from imgconv.preprocess import FILTERS, ORDERS, RESIZES, Preparation, read_picture, resized, save_picture
from imgconv.preprocess import to_array, to_picture, with_color, written_whole
from imgconv.results import ImageOutput, Result, Scores, Summary, interpret, kind_of, read_labels, summarize

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
    parser.add_argument("pictures", metavar="PICTURE", nargs="*", help="any picture that Pillow reads")
    before = parser.add_argument_group("preparing a picture")
    before.add_argument(
        "--resize", choices=RESIZES, default="stretch",
        help="stretch: fill the model's size (default); crop: cover it, keep the middle; letterbox: fit in, top left",
    )
    before.add_argument(
        "--filter", choices=FILTERS, default="antialias",
        help="antialias: average all pixels that fall into one (default); bilinear: the four nearest, as OpenCV does",
    )
    before.add_argument("--pad", type=int, default=114, metavar="PIXEL", help="fills a letterbox (default: 114)")
    before.add_argument("--order", choices=ORDERS, help="channels (default: rgb, or y, the luma, where there is one)")
    before.add_argument("--scale", type=number, default=1.0, help="a number or a fraction such as 1/255 (default: 1)")
    before.add_argument("--mean", type=numbers, default=(0.0,), metavar="MEAN", help="one value, or three: 104,117,123")
    before.add_argument("--std", type=numbers, default=(1.0,), metavar="STD", help="one value, or three")
    before.add_argument(
        "--input", type=named, action="append", default=[], metavar="NAME=FILE.npy", help="the array of another input"
    )
    after = parser.add_argument_group("results")
    after.add_argument("--labels", metavar="FILE", help="names of the classes, one a line")
    after.add_argument("--top", type=count, default=5, metavar="N", help="classes to print (default: 5)")
    after.add_argument("--output", metavar="FILE.png", help="where to write an output image")
    after.add_argument("--save", metavar="FILE.npz", help="where to write the arrays of all outputs")


@dataclass(frozen=True)
class PictureInput:
    """The input that takes the picture. dimensions: a size, or a name or "" where the picture gives the size."""

    name: str
    dtype: str
    dimensions: Sequence[int | str]

    @property
    def channels_last(self) -> bool:
        """Whether it is (N, H, W, C) instead of (N, C, H, W)."""
        return self.dimensions[3] in (1, 3) and self.dimensions[1] not in (1, 3)

    @property
    def channels(self) -> int | None:
        """1 or 3; None where the model does not say."""
        found = self.dimensions[3 if self.channels_last else 1]
        return found if isinstance(found, int) else None

    @property
    def takes_one(self) -> bool:
        """Whether the batch is 1, or may be."""
        return self.dimensions[0] == 1 or isinstance(self.dimensions[0], str)

    def picture_size(self, own: tuple[int, int]) -> tuple[int, int]:
        """Width and height that the model takes, for a picture of its `own` width and height."""
        height, width = self.dimensions[1:3] if self.channels_last else self.dimensions[2:]
        return width if isinstance(width, int) else own[0], height if isinstance(height, int) else own[1]

    def array(self, picture: Image.Image, preparation: Preparation) -> Any:
        """The input's array for a picture that has its size; rounded and clipped where the model takes integers."""
        array = to_array(picture, preparation)
        array = array.transpose(0, 2, 3, 1) if self.channels_last else array
        if self.dtype.startswith("float"):
            return array.astype(self.dtype)
        limits = numpy.iinfo(self.dtype)
        return numpy.rint(array).clip(limits.min, limits.max).astype(self.dtype)


@dataclass(frozen=True)
class Request:
    """A command line that has been read and checked as far as that goes without compiling the model.

    target: the input that takes the pictures; arrays and shapes: what is given for the others.
    """

    options: argparse.Namespace
    target: PictureInput | None
    preparation: Preparation
    arrays: Mapping[str, Any]
    shapes: Shapes
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """One run: the outputs by name, what they show, the files that were written. picture: "" where there is none."""

    picture: str
    size: tuple[int, int]
    seconds: float
    outputs: Mapping[str, Any]
    results: Mapping[str, Result]
    files: Mapping[str, str]


def execute(options: argparse.Namespace) -> None:
    """Runs the model and prints the results. Raises what imgconv.load and Model.run raise, and InputError."""
    results = []
    for outcome, model in run_all(read_request(options)):
        if options.json:
            results.append(outcome_as_json(outcome))
        else:
            print_outcome(outcome, model)
    if options.json:
        terminal.print_json({"model": options.model, "device": model.device.key, "results": results})


def read_request(options: argparse.Namespace) -> Request:
    """Reads everything small, so that a slip is found before anything is compiled. Raises ModelError, InputError."""
    for path in (options.output, options.save):
        if path and not Path(path).absolute().parent.is_dir():
            raise InputError(f"cannot write {path!r}: there is no folder {str(Path(path).parent)!r}")
    declared = declared_inputs(options.model)
    arrays = {name: read_array(path) for name, path in options.input}
    unknown = [name for name in arrays if name not in declared]
    if unknown:
        raise InputError(f"--input {unknown[0]}: the model's inputs are {', '.join(declared)}")
    shapes = read_shapes(options.shape, declared)
    shapes |= {name: arrays[name].shape for name in arrays if name not in shapes and not is_fixed(declared[name][1])}
    target = find_target(declared, shapes, arrays) if options.pictures else None
    given = {*arrays, *([target.name] if target else [])}
    for name, (dtype, dimensions) in declared.items():
        if name not in given:
            remedy = f"--input {name}=FILE.npy" + ("" if options.pictures else ", or a PICTURE")
            raise InputError(f"input {name!r}, {dtype} {shown(dimensions)}, has no value: give it, as {remedy}")
    preparation = read_preparation(options, target)
    return Request(options, target, preparation, arrays, shapes, read_labels(options.labels) if options.labels else ())


def find_target(declared: Declared, shapes: Shapes, arrays: Mapping[str, Any]) -> PictureInput:
    """The one input that takes a picture of one or three channels. Raises InputError for none, or several."""
    found = []
    for name, (dtype, dimensions) in declared.items():
        target = PictureInput(name, dtype, with_sizes(name, dimensions, shapes))
        takes_pictures = len(target.dimensions) == 4 and target.takes_one and target.channels in (1, 3, None)
        if takes_pictures and name not in arrays:
            found.append(target)
    if len(found) == 1:
        return found[0]
    listed = ", ".join(f"{name} {shown(dimensions)}" for name, (_, dimensions) in declared.items())
    problem = "several inputs could take the picture" if found else "no input takes one picture of 1 or 3 channels"
    raise InputError(f"{problem}: {listed}; give the others as arrays, with --input NAME=FILE.npy")


def with_sizes(name: str, dimensions: list[int | str] | None, shapes: Shapes) -> Sequence[int | str]:
    """An input's dimensions with the sizes that --shape gives; four open ones where the model has no shape."""
    given = shapes.get(name)
    if isinstance(given, tuple):
        return given
    sizes = {name: size for name, size in shapes.items() if isinstance(size, int)}
    return [sizes.get(d, d) if isinstance(d, str) else d for d in dimensions or [""] * 4]


def read_preparation(options: argparse.Namespace, target: PictureInput | None) -> Preparation:
    """What --resize, --order and so on say. Raises InputError where the model has another number of channels."""
    order = options.order or ("y" if target and target.channels == 1 else "rgb")
    preparation = Preparation(
        options.resize, options.filter, order, options.scale, options.mean, options.std, options.pad
    )
    if target and target.channels not in (None, preparation.channels):
        problem = f"input {target.name!r} is {shown(target.dimensions)}"
        raise InputError(f"--order {order} gives {preparation.channels} channels; {problem}")
    return preparation


def read_array(path: str) -> Any:
    """The array in a .npy file. Raises InputError naming the file."""
    try:
        array = numpy.load(path, allow_pickle=False)
    except OSError as error:
        raise InputError(f"cannot read {path!r}: {error.strerror or error}") from error
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path!r} is not a whole .npy file of numbers: {error}") from error
    if not isinstance(array, numpy.ndarray):
        raise InputError(f"{path!r} holds several arrays; a .npy file holds one")
    return array


def is_fixed(dimensions: Sequence[int | str] | None) -> bool:
    """Whether the model itself says every size."""
    return dimensions is not None and all(isinstance(d, int) for d in dimensions)


def run_all(request: Request) -> Iterator[tuple[Outcome, Model]]:
    """Runs picture after picture; the model is compiled once, and again for a picture that needs another size."""
    options, target = request.options, request.target
    loaded: tuple[Shapes, Model] | None = None
    for position, path in enumerate(options.pictures or [""], 1):
        arrays, shapes = dict(request.arrays), dict(request.shapes)
        picture = original = read_picture(path) if path else None
        if target and original:
            picture = resized(original, target.picture_size(original.size), request.preparation)
            arrays[target.name] = target.array(picture, request.preparation)
            shapes[target.name] = arrays[target.name].shape
        with terminal.Progress(f"reading {options.model}") as progress:
            if loaded is None or loaded[0] != shapes:
                loaded = shapes, load_model(options, shapes, progress)
            model = loaded[1]
            progress(0, 0, f"running {path or options.model}")
            start = time.perf_counter()
            outputs = model.run(arrays)
            seconds = time.perf_counter() - start
        results = {name: interpret(name, array, options.top, request.labels) for name, array in outputs.items()}
        suffix = f"-{position}" if len(options.pictures) > 1 else ""
        files = save(request, outputs, results, picture, suffix)
        yield Outcome(path, original.size if original else (0, 0), seconds, outputs, results, files), model


def load_model(options: argparse.Namespace, shapes: Shapes, progress: terminal.Progress) -> Model:
    """The compiled model. Raises InputError where --output asks for an image and no output is one."""
    model = load(
        options.model, options.device, options.float16, options.native_explog, shapes, options.max_image, progress
    )
    if options.output and not any(kind_of(value.shape, value.dtype) == "image" for value in model.outputs.values()):
        listed = ", ".join(str(value) for value in model.outputs.values())
        raise InputError(f"--output writes an image, and no output of the model is one: {listed}; --save writes arrays")
    return model


def save(
    request: Request, outputs: Mapping[str, Any], results: Mapping[str, Result], picture: Image.Image | None,
    suffix: str,
) -> dict[str, str]:
    """Writes what --output and --save ask for; the files' names, by output name, "" for the one of --save."""
    options, files = request.options, {}
    images = {name: result for name, result in results.items() if isinstance(result, ImageOutput)}
    for name, result in images.items() if options.output else ():
        path = with_suffix(options.output, suffix + (f"-{safe(name)}" if len(images) > 1 else ""))
        order = "bgr" if request.preparation.order == "bgr" else "rgb"
        image = to_picture(result.channels_first, order)
        if picture and request.preparation.order == "y" and image.mode == "L":
            image = with_color(image, picture)
        save_picture(image, path)
        files[name] = path
    if options.save:
        files[""] = with_suffix(options.save, suffix)
        save_arrays(outputs, files[""])
    return files


def save_arrays(arrays: Mapping[str, Any], path: str) -> None:
    """Writes a .npz file. Raises InputError."""
    # numpy.savez takes the names as keyword arguments, among which its own, such as "file", are not allowed.
    with written_whole(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                numpy.lib.format.write_array(entry, numpy.asarray(array), allow_pickle=False)


def with_suffix(path: str, suffix: str) -> str:
    """out.png and -1 make out-1.png."""
    return str(Path(path).with_stem(Path(path).stem + suffix))


def safe(name: str) -> str:
    """A tensor's name as a part of a file's name."""
    return "".join(c if c.isalnum() or c in "._" else "_" for c in name)


def print_outcome(outcome: Outcome, model: Model) -> None:
    """One run's results as text."""
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
    """What an output is, in a few words."""
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
