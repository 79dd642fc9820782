"""Prepares a model's inputs from the command line: pictures, arrays, a test case of the file, or synthetic values."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy
from PIL import Image

from imgconv.arrays import Array, Arrays, Shapes, TensorSpecs
from imgconv.commands.shared_arguments import check_sizes, dimensions_as_text, read_shapes
from imgconv.commands.array_arguments import SIZE_INPUTS, read_case, read_value, picture_size_inputs
from imgconv.errors import InputError
from imgconv.files.container import is_container
from imgconv.graph.nodes import Graph, Value
from imgconv.model import Model, load
from imgconv.passes import run_passes
from imgconv.picture_settings import with_guessed_pixels, with_hints
from imgconv.preprocessing.preparation import RANGE, PictureInput, Preparation, Size, merged_settings, picture_inputs
from imgconv.preprocess import input_array, read_picture
from imgconv.preprocessing.stage import PICTURE
from imgconv.pictures.camera_frames import camera_frame
from imgconv.runtime.programs import ProgressCallback
from imgconv.stored.compiled_file import SavedModel
from imgconv.stored.description_file import description_path, find_description
from imgconv.tasks import Description, Task, find_task, read_description


ASKED = ("resize", "crop", "filter", "order", "scale", "mean", "std", "pad")  # options that are fields of a Preparation

@dataclass(frozen=True)
class CommandLineInputs:
    """The inputs of the command line, checked as far as possible without compiling the model.

    target: the input that takes the pictures; preparation: that of the description and the command line; arrays and
    shapes: those of the other inputs; missing: the inputs that have neither; description: the model's; frame: width and
    height of the frames that the file takes in place of the network's input; None if it takes none; sized: the inputs
    that are the picture's size, see SIZE_INPUTS.
    """

    target: PictureInput | None
    preparation: Preparation
    arrays: Arrays
    shapes: Shapes
    missing: TensorSpecs
    description: Description
    frame: Size | None = None
    sized: TensorSpecs = field(default_factory=dict)

    def sizes_of(self, model: Size) -> dict[str, Array]:
        """The arrays of `sized`, for pictures that become this width and height."""
        return {
            name: numpy.array([SIZE_INPUTS[name](*model)], dtype) for name, (dtype, _) in self.sized.items()
        }

    def with_picture(self, picture: Image.Image | None) -> tuple[dict[str, Array], Shapes]:
        """Returns all arrays, the picture prepared on the host, and the shapes to load the model with."""
        arrays, shapes = dict(self.arrays), dict(self.shapes)
        if self.frame and picture:
            arrays[PICTURE] = camera_frame(picture, self.frame, self.preparation)
        elif self.target and picture:
            arrays[self.target.name] = input_array(picture, self.target, self.preparation)
            shapes[self.target.name] = shape = arrays[self.target.name].shape
            arrays |= self.sizes_of(self.target.picture_size((shape[-1], shape[-2])))
        return arrays, shapes


def declared_of(model: str) -> TensorSpecs:
    """dtype and dimensions of every input of an ONNX file or a compiled one. Raises ModelError."""
    if is_container(model):
        return SavedModel.open(model).inputs
    from imgconv.onnx_import import declared_inputs

    return declared_inputs(model)


def description_of(model: str) -> Description:
    """Returns the description next to an ONNX file, or in a compiled one. Raises ModelError, InputError."""
    if is_container(model):
        text, where = SavedModel.open(model).description, f"the description of {model!r}"
    else:
        text, where = find_description(model), repr(str(description_path(model)))
    return read_description(text, where) if text else Description()


def load_model(options: argparse.Namespace, shapes: Shapes, progress: ProgressCallback) -> Model:
    """Loads options.model with the settings of the command line. Raises what imgconv.load raises."""
    return load(
        options.model, options.device, options.float16, options.native_explog, shapes, options.max_image, progress,
        getattr(options, "precision", None), strict=options.strict,
    )


def parse_inputs(options: argparse.Namespace) -> CommandLineInputs:
    """Reads --input and --shape, and finds the input for options.pictures. Raises ModelError, InputError."""
    declared = declared_of(options.model)
    unknown = [name for name, _ in options.input if name not in declared]
    if unknown:
        raise InputError(f"--input {unknown[0]}: the model's inputs are {', '.join(declared)}")
    arrays = {name: read_value(name, text, declared[name]) for name, text in options.input}
    stated = read_shapes(options.shape, declared)
    found = {name: arrays[name].shape for name in arrays if name not in stated and not is_fixed(declared[name][1])}
    sized = picture_size_inputs(declared, arrays) if options.pictures else {}
    shapes: Shapes = {**stated, **found, **dict.fromkeys(sized, (1, 2))}
    description = description_of(options.model)
    frame = description.picture["size"] if description.picture and is_container(options.model) else None
    if frame:
        target: PictureInput | None = camera_frame_input(options, description)
    else:
        target, description = find_picture(options, declared, shapes, arrays, description)
    given = {*arrays, *sized, *([target.name] if target and options.pictures else [])}
    missing = {name: declaration for name, declaration in declared.items() if name not in given}
    preparation = read_preparation(options, target, description.preparation)
    return CommandLineInputs(target, preparation, arrays, shapes, missing, description, frame, sized)


def find_picture(
    options: argparse.Namespace, declared: TensorSpecs, shapes: Shapes, arrays: Arrays, description: Description
) -> tuple[PictureInput | None, Description]:
    """The input that takes the pictures, None without any, and the description with what an ONNX file tells itself.

    Raises InputError.
    """
    if not options.pictures:
        return None, description
    target = find_picture_input(declared, shapes, arrays)
    return (target, description) if is_container(options.model) else with_hints(options.model, target, description)


def read_cases(options: argparse.Namespace, case: str | None = None) -> tuple[list[dict[str, Array]], Shapes]:
    """The arrays of all inputs for each picture, or for the file `case`; none if synthetic inputs are needed.

    Second, the shapes to import the model with. Raises ModelError and InputError; the pictures must be of one size.
    """
    given = parse_inputs(options)
    if case:
        arrays = read_case(case) | dict(given.arrays)
        inputs = {*given.missing, *given.arrays}
        unknown = [name for name in arrays if name not in inputs]
        if unknown:
            listed = ", ".join(sorted(inputs))
            raise InputError(f"{case!r} has an array {unknown[0]!r}; the model's inputs are {listed}")
        return [arrays], {**given.shapes, **{name: array.shape for name, array in arrays.items()}}
    if not options.pictures and not given.arrays:
        check_sizes(given.missing, given.shapes)
        return [], given.shapes
    check_complete(options, given)
    cases: list[dict[str, Array]] = []
    shapes = given.shapes
    for path in options.pictures or [""]:
        picture = read_picture(path) if path else None
        if picture and not cases:
            given = with_preparation_of_run(options, given, picture.size)
        arrays, found = given.with_picture(picture)
        if cases and found != shapes:
            raise InputError(f"{path!r} and {options.pictures[0]!r} differ in size: choose a size with --shape")
        cases, shapes = [*cases, arrays], found
    return cases, shapes


def with_preparation_of_run(options: argparse.Namespace, given: CommandLineInputs, size: Size) -> CommandLineInputs:
    """Returns the inputs with the preparation that `imgconv run` finds for pictures of an ONNX file.

    size: of the first picture.
    """
    from imgconv.onnx_import import import_onnx

    target = given.target
    if target is None or given.frame:
        return given
    shapes = {**given.shapes, target.name: target.shape(size, given.preparation.channels)}
    graph = run_passes(import_onnx(options.model, shapes))
    _, settings = infer_task_and_preparation(options, target, graph, given.description)
    return replace(given, preparation=read_preparation(options, target, settings))


def infer_task_and_preparation(
    options: argparse.Namespace, target: PictureInput, graph: Graph, description: Description
) -> tuple[Task | None, Mapping[str, Any]]:
    """The task of a graph, if its outputs show it, and its settings of a Preparation. graph: after the passes."""
    value = graph.values[target.name]
    made = {name: (graph.values[name].dtype, graph.values[name].shape) for name in graph.outputs}
    shape = value.shape[1:3] if target.channels_last else value.shape[2:4]
    task = find_task(made, (shape[1], shape[0]), description)
    described = task.description if task else description
    return task, guessed_settings(options, described.preparation, graph, value, task)


def check_complete(options: argparse.Namespace, given: CommandLineInputs) -> None:
    """Raises InputError with all inputs that have no value."""
    if not given.missing:
        return
    listed = ", ".join(
        f"{name!r} ({dtype} {dimensions_as_text(sizes)})" for name, (dtype, sizes) in given.missing.items()
    )
    remedy = " ".join(f"--input {name}={input_placeholder(sizes)}" for name, (_, sizes) in given.missing.items())
    for_picture = [] if options.pictures else picture_inputs(given.missing, given.shapes)
    also = f", or a PICTURE for {for_picture[0].name!r}" if for_picture else ""
    raise InputError(f"inputs without a value: {listed}; give {remedy}{also}")


def input_placeholder(dimensions: Sequence[int | str] | None) -> str:
    """The form of --input for an input of these dimensions: a number if it has one element."""
    return "NUMBER" if dimensions is not None and all(d == 1 for d in dimensions) else "FILE.npy"


def find_picture_input(declared: TensorSpecs, shapes: Shapes, arrays: Arrays) -> PictureInput:
    """The one input that takes a picture of one or three channels. Raises InputError for none, or several."""
    found = [target for target in picture_inputs(declared, shapes) if target.name not in arrays]
    if len(found) > 1:
        found = [target for target in found if target.picture_size((0, 0)) != (1, 1)]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(f"{name} {dimensions_as_text(dimensions)}" for name, (_, dimensions) in declared.items())
    problem = "several inputs could be the picture" if found else "no input is one picture with 1 or 3 channels"
    ranked = {name: dims for name, (_, dims) in declared.items() if dims is None or len(dims) == 4}
    also = ""
    if not found and any(not is_fixed(dims) for dims in ranked.values()):
        also = " If the picture's is another one, give its size, as --shape NAME=1,3,HEIGHT,WIDTH."
    batches = [name for name, dims in ranked.items() if picture_inputs({name: ("float32", [1, *(dims or ())[1:]])}, {})]
    if not found and batches:
        also = f" {batches[0]!r} has a batch size above 1: export the model with batch size 1."
    raise InputError(f"{problem}: {listed}; pass the inputs as arrays, with --input NAME=FILE.npy.{also}".rstrip("."))


def camera_frame_input(options: argparse.Namespace, description: Description) -> PictureInput:
    """The network's input that a file makes of frames by itself. Raises InputError for options that it fixed."""
    asked = [name for name in ASKED if getattr(options, name) is not None]
    if asked:
        raise InputError(f"--{asked[0]}: {options.model!r} contains its preprocessing: set it in imgconv compile")
    width, height = description.picture["model"]
    return PictureInput(PICTURE, "float32", (1, 1 if description.preparation.get("order") == "y" else 3, height, width))


def read_preparation(
    options: argparse.Namespace, target: PictureInput | None, described: Mapping[str, Any]
) -> Preparation:
    """The Preparation of --resize, --order and so on, else of `described`, fields of a Preparation.

    If one of --scale, --mean and --std is given, all three are the user's. Raises InputError if the model has other
    channels.
    """
    asked = {name: value for name in ASKED if (value := getattr(options, name)) is not None}
    settings = merged_settings(asked, described)
    return target.preparation(settings) if target else Preparation(**settings)


def guessed_settings(
    options: argparse.Namespace, settings: Mapping[str, Any], graph: Graph, value: Value, task: Task | None
) -> Mapping[str, Any]:
    """The settings of `with_guessed_pixels`; as they are if --scale, --mean or --std is given."""
    asked = any(getattr(options, name) is not None for name in RANGE)
    return settings if asked else with_guessed_pixels(settings, graph, value, task)


def is_fixed(dimensions: Sequence[int | str] | None) -> bool:
    """Returns whether the model itself gives every size."""
    return dimensions is not None and all(isinstance(d, int) for d in dimensions)
