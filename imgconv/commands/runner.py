"""Runs one model on the pictures of a command line: a picture becomes its input, and its outputs a PictureResult."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Union

from PIL import Image

from imgconv.arrays import Array, Arrays
from imgconv.commands.command_line_inputs import CommandLineInputs, load_model, read_preparation, guessed_settings
from imgconv.commands.picture_result import PictureResult, draw_answer, is_folder, path_for, save_arrays, save_images
from imgconv.commands.recognizer import Recognizer
from imgconv.errors import InputError, ModelError
from imgconv.model import Model, prepares_pictures
from imgconv.pictures.camera_frames import camera_frame
from imgconv.pictures.host import input_array, pixels_or_array, resized
from imgconv.preprocessing.pixels import Pixels
from imgconv.preprocessing.preparation import PictureInput, Preparation, Size, as_text
from imgconv.pictures.sources import pictures
from imgconv.pictures.tiles import PictureTiling, default_overlap
from imgconv.pictures.video import is_video, is_video_file
from imgconv.runtime.programs import ProgressCallback
from imgconv.tasks import Answers, Description, Picture, PicturePlacement, Task, Texts, find_task

MULTIPLE = 32  # pixels
FRAME_DIGITS = 6  # in the names of files for frames of videos, which sort then as they follow each other
FUNCTIONS = ("parser", "command", "execute")  # options that the parser sets

# The inputs of a run by name: arrays, or a picture that the device prepares.
Run = Mapping[str, Union[Array, Pixels]]


@dataclass(frozen=True)
class RunArguments:
    """A command line, read and checked as far as possible without compiling the model.

    description: what the outputs mean, as far as it was said; paths: those of the pictures, without folders; several:
    whether files need the picture's number, as of several pictures or a video; same_named: the names, without folder
    and suffix, that several pictures have; guesses: whether the range of pixels is what the graph suggests.
    """

    options: argparse.Namespace
    given: CommandLineInputs
    description: Description
    paths: tuple[str, ...]
    several: bool
    same_named: frozenset[str]
    guesses: bool = False

    @staticmethod
    def from_options(options: argparse.Namespace, given: CommandLineInputs, description: Description) -> RunArguments:
        """The command line whose options.pictures are without folders and patterns."""
        paths = tuple(options.pictures)
        stems = Counter(Path(path).stem for path in paths)
        several = len(paths) > 1 or any(map(is_video, paths))
        return RunArguments(
            options, given, description, paths, several, frozenset(stem for stem, count in stems.items() if count > 1)
        )

    @property
    def writes_video(self) -> bool:
        """Returns whether --output is one video of all pictures."""
        return bool(self.options.output) and is_video_file(self.options.output)

    def sendable(self, **changed: Any) -> RunArguments:
        """The same for another process, with some options changed: without what holds functions, and without paths.

        The start of a process waits until it has read what it is sent, unless that is less than a pipe holds.
        """
        kept = {name: value for name, value in vars(self.options).items() if name not in FUNCTIONS}
        return replace(self, options=argparse.Namespace(**{**kept, "pictures": [], **changed}), paths=())


@dataclass(frozen=True)
class PictureItem:
    """A picture to run. position: its number, from 1; name: "" without a picture, and then nothing is read."""

    position: int
    name: str
    read: Callable[[], Image.Image] | None


@dataclass(frozen=True)
class Sample:
    """A picture that was read, where it lies in the model's input, and its tiles; or why it was not read."""

    item: PictureItem
    picture: Image.Image | None = None
    placement: PicturePlacement | None = None
    tiling: PictureTiling | None = None
    error: str = ""


def items_of(line: RunArguments) -> Iterator[PictureItem]:
    """Yields every picture of the command line; one item without a picture if there is none."""
    if not line.paths:
        yield PictureItem(1, "", None)
    for position, named in enumerate(pictures(line.paths, line.options.every), 1):
        yield PictureItem(position, named.name, named.read)


def first_picture_size(items: Iterable[PictureItem]) -> tuple[Size | None, Iterator[PictureItem]]:
    """Returns the size of the first picture that can be read, and all items; None if there is no such picture."""
    seen: list[PictureItem] = []
    waiting = iter(items)
    for item in waiting:
        if item.read is None:
            return None, chain([item], waiting)
        try:
            picture = item.read()
        except InputError as error:
            seen.append(replace(item, read=partial(raise_error, error)))
            continue
        return picture.size, chain([*seen, replace(item, read=lambda: picture)], waiting)
    return None, iter(seen)


def raise_error(error: InputError) -> Image.Image:
    """Raises the error: it stands for a picture that cannot be read."""
    raise error


def _unknown_task(outputs: Iterable[str]) -> InputError:
    """Returns the error of --output for outputs whose meaning is not known."""
    what = f"--output needs the task, which the output shapes do not show: {', '.join(outputs)}"
    return InputError(f"{what}; give --task, or write the arrays with --save")


def _load_model(line: RunArguments, size: Size | None, progress: ProgressCallback) -> tuple[Model, PictureInput | None]:
    """The model, compiled once for all pictures, and the input that takes them, with the sides that it has now.

    An open side of the model is the first picture's. If layers do not fit that, it is rounded up to a multiple of 32,
    which networks need that halve their maps five times. Raises what imgconv.load raises.
    """
    options, given = line.options, line.given
    if given.target is None or size is None or given.frame:
        return load_model(options, given.shapes, progress), given.target
    rounded = -(-size[0] // MULTIPLE) * MULTIPLE, -(-size[1] // MULTIPLE) * MULTIPLE
    shape, other = (given.target.shape(each, given.preparation.channels) for each in (size, rounded))
    try:
        model = load_model(options, {**given.shapes, given.target.name: shape}, progress)
    except ModelError as error:
        if shape == other:
            raise
        try:
            model, shape = load_model(options, {**given.shapes, given.target.name: other}, progress), other
        except ModelError:
            raise error from None
    return model, replace(given.target, dimensions=(given.target.dimensions[0], *shape[1:]))


class PictureProcessor:
    """Turns pictures into a model's input, and its outputs into answers. Worker processes have it: it needs no device.

    task: None if it is unknown.
    """

    def __init__(
        self, line: RunArguments, task: Task | None, preparation: Preparation, recognizer: Recognizer | None = None,
        on_device: bool = False,
    ) -> None:
        """on_device: whether the device prepares the pictures, as far as they are not too large for it."""
        self.task, self._recognizer = task, recognizer
        self.line, self._preparation = line, preparation
        self.on_device = on_device

    @property
    def size(self) -> Size:
        """Width and height of the pictures that the model takes."""
        target = self.line.given.target
        return target.picture_size((0, 0)) if target else (0, 0)

    @property
    def preparation_text(self) -> str:
        """The preparation of pictures in one line; "" if the model takes none."""
        if not self.line.given.target:
            return ""
        guess = "; guessed, set --scale, --mean and --std if wrong" if self.line.guesses else ""
        frame = self.line.given.frame
        before = f"stretched to frames of {frame[0]}x{frame[1]}; " if frame else ""
        return before + as_text(self._preparation, self.size, self.may_tile) + guess

    @property
    def may_tile(self) -> bool:
        """Returns whether a picture may take several runs: --tile, or an image network's own size is kept."""
        if self.line.given.frame:
            return False
        options, is_image = self.line.options, self.task is not None and self.task.name == "image"
        return options.tile is not None or (is_image and self._preparation.resize == "stretch" and not options.resize)

    def prepare(self, item: PictureItem) -> tuple[Sample, Iterable[Run]]:
        """Reads a picture and makes runs of it: one, several if it is in tiles, none if it cannot be read."""
        given, target = self.line.given, self.line.given.target
        if item.read is None or target is None:
            return Sample(item), [given.arrays]
        try:
            picture = item.read()
        except InputError as error:
            return Sample(item, error=str(error)), []
        size = target.picture_size(picture.size)
        tiling = self._tiling(picture.size, size)
        if tiling is None:
            placement = PicturePlacement.of(given.frame or picture.size, size, self._preparation)
            if given.frame:
                placement = placement.stretched(picture.size)
                made: Array | Pixels = camera_frame(picture, given.frame, self._preparation)
            else:
                made = pixels_or_array(picture, target, self._preparation, self.on_device)
            return Sample(item, picture, placement), [{**given.arrays, target.name: made}]
        last = target.channels_last
        whole = replace(target, dimensions=(1, "", "", target.channels or 3) if last else (1, 3, "", ""))
        array = input_array(picture, whole, self._preparation)
        placement = PicturePlacement.of(picture.size, picture.size, self._preparation)
        tiles = tiling.cut(array, (2, 1) if last else (3, 2))
        return Sample(item, picture, placement, tiling), ({**given.arrays, target.name: tile} for tile in tiles)

    def _tiling(self, picture: Size, size: Size) -> PictureTiling | None:
        """The tiles of a picture: if they are asked for, or an image network takes another size."""
        overlap = self.line.options.tile
        if picture == size or not self.may_tile:
            return None
        if self._preparation.resize != "stretch":
            raise InputError(f"--tile does not resize the picture: leave out resize {self._preparation.resize!r}")
        return PictureTiling(picture, size, default_overlap(size) if overlap in (None, -1) else overlap)

    def finish(self, sample: Sample, runs: Sequence[Arrays]) -> PictureResult:
        """Decodes the outputs of its runs and writes the files. Raises InputError."""
        if sample.error:
            return PictureResult(sample.item.name, sample.item.position, error=sample.error)
        outputs = runs[0]
        if sample.tiling:
            joined = sample.tiling.join
            outputs = {name: joined([each[name] for each in runs]) for name in outputs}
        placement = sample.placement or PicturePlacement((0, 0), (0, 0), (1, 1), (0, 0, 1, 1))
        answers = self._recognize_lines(sample.picture, self.task.decode(outputs, placement) if self.task else {})
        if self.line.options.output and not answers:  # the shapes may be those of scores, and the values not
            raise _unknown_task(f"{name} {list(array.shape)}" for name, array in outputs.items())
        made = PictureResult(
            sample.item.name, sample.item.position, sample.picture.size if sample.picture else (0, 0),
            self.task.name if self.task and answers else "", outputs, answers,
        )
        images = self._output_images(sample, made) if self.line.options.output else {}
        if self.line.writes_video:
            return replace(made, frame=next(iter(images.values()), None), files=self._save(sample, made, {}))
        return replace(made, files=self._save(sample, made, images))

    def _recognize_lines(self, picture: Image.Image | None, answers: Answers) -> Answers:
        """The answers, with the text of each line that was found."""
        reads = self._recognizer
        if reads is None or picture is None:
            return answers
        return {name: reads.read(picture, each) if isinstance(each, Texts) else each for name, each in answers.items()}

    def _output_images(self, sample: Sample, made: PictureResult) -> dict[str, Image.Image]:
        """Returns the images of --output by output name."""
        picture, target, order = sample.picture, self.line.given.target, self._preparation.order
        if picture and target and not sample.tiling and any(isinstance(a, Picture) for a in made.answers.values()):
            # An image shows the part of the picture that the model was given.
            seen = picture.resize(self.line.given.frame) if self.line.given.frame else picture
            picture = resized(seen, target.picture_size(seen.size), self._preparation)
        images = {name: draw_answer(picture, answer, order) for name, answer in made.answers.items()}
        return {name: image for name, image in images.items() if image is not None}

    def _save(self, sample: Sample, made: PictureResult, images: Mapping[str, Image.Image]) -> dict[str, str]:
        """Writes the files of --output and --save; their names by output name, "" for the file of --save."""
        options = self.line.options
        files = save_images(images, self._output_path(options.output, sample.item, ".png")) if images else {}
        if options.save:
            files[""] = self._output_path(options.save, sample.item, ".npz")
            save_arrays(made.outputs, files[""])
        return files

    def _output_path(self, path: str, item: PictureItem, suffix: str) -> str:
        several = Path(item.name).stem in self.line.same_named if is_folder(path) else self.line.several
        digits = FRAME_DIGITS if any(map(is_video, self.line.paths)) else 1
        return path_for(path, item.name, item.position, several, suffix, digits)


class PictureRunner(PictureProcessor):
    """Pictures, and the loaded model that they are for."""

    def __init__(self, line: RunArguments, model: Model, task: Task | None, preparation: Preparation) -> None:
        target = line.given.target
        on_device = target is not None and not line.given.frame and prepares_pictures(model, target.name)
        recognizer = Recognizer.load(line.options) if line.options.recognizer else None
        super().__init__(line, task, preparation, recognizer, on_device)
        self.model = model

    @staticmethod
    def load(line: RunArguments, size: Size | None, progress: ProgressCallback) -> PictureRunner:
        """Compiles the model. size: that of the first picture. Raises what imgconv.load raises, and InputError."""
        options, model, target = line.options, *_load_model(line, size, progress)
        outputs = {name: (value.dtype, value.shape) for name, value in model.outputs.items()}
        task = find_task(outputs, target.picture_size((0, 0)) if target else (0, 0), line.description)
        if options.output and task is None:
            raise _unknown_task(map(str, model.outputs.values()))
        if options.coco and (task is None or task.name not in ("detect", "pose")):
            known = repr(task.name) if task else "unknown: give --task"
            raise InputError(f"--coco writes detections, but the task of this model is {known}")
        described = task.description.preparation if task else line.description.preparation
        if line.given.target and line.given.target.is_open and (task is None or task.name != "image"):
            described = {"resize": "letterbox", **described}
        if target and not line.given.frame:
            guessed = guessed_settings(options, described, model.graph, model.inputs[target.name], task)
        else:
            guessed = described
        preparation = read_preparation(options, target, guessed)
        arrays = {**line.given.arrays, **(line.given.sizes_of(target.picture_size((0, 0))) if target else {})}
        given = replace(line.given, target=target, arrays=arrays)
        line = replace(line, given=given, guesses=guessed != described)
        return PictureRunner(line, model, task, preparation)

    def for_workers(self) -> PictureProcessor | None:
        """Returns what worker processes need to prepare pictures and to decode outputs; None if they cannot."""
        sizes = [size for value in self.model.outputs.values() for size in value.shape]
        if self._recognizer or self.may_tile or self.line.given.target is None or min(sizes, default=0) < 0:
            return None
        return PictureProcessor(self.line.sendable(), self.task, self._preparation, on_device=self.on_device)
