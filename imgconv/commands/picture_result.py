"""The result of one picture: as text, as JSON, and as the files of --output and --save."""

from __future__ import annotations

import json
import math
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
from PIL import Image

from imgconv.arrays import Arrays
from imgconv.files.disk import atomic_write
from imgconv.model import Model
from imgconv.pictures.host import save_picture, with_color
from imgconv.preprocessing.preparation import ChannelOrder
from imgconv.reports.terminal import to_json
from imgconv.tasks import Answer, Answers, Classes, Depth, Detections, Picture, Pose, Segmentation, Texts, draw

SHOWN_TEXTS = 5  # strings of an output on its line
SHOWN_NUMBERS = 9  # of an output of no more
# An image of this many numbers is saturated if that many of them are within 1 % of its least or its largest.
MANY, NEARLY, MOST_AT_ENDS = 16, 0.98, 0.8


@dataclass(frozen=True)
class PictureResult:
    """One run: the outputs by name, their answers, the written files. picture: "" if there is none.

    position: the picture's number; task: "" if it is not known; error: why there is no result; frame: the drawing, if
    it becomes a frame of a video.
    """

    picture: str
    position: int = 1
    size: tuple[int, int] = (0, 0)
    task: str = ""
    outputs: Arrays = field(default_factory=dict)
    answers: Answers = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    error: str = ""
    frame: Image.Image | None = None


def as_json(outcome: PictureResult) -> dict[str, Any]:
    """Returns everything that `styled_lines` shows, as plain data."""
    named = {"picture": outcome.picture, "size": outcome.size} if outcome.picture else {}
    if outcome.error:
        return {"picture": outcome.picture, "error": outcome.error}
    answers = {name: answer.as_json() for name, answer in outcome.answers.items()}
    outputs = {}
    for name, array in outcome.outputs.items():
        found: dict[str, Any] = {"shape": array.shape, "dtype": _dtype_name(array), "file": outcome.files.get(name)}
        if name not in answers:
            found |= {"texts": array.tolist()} if array.dtype == object else value_statistics(array)
        outputs[name] = found | {"not_finite": count_non_finite(array)}
    return {
        **named, "task": outcome.task or None, "answers": answers, "outputs": outputs,
        "arrays_file": outcome.files.get(""),
    }


def _dtype_name(array: Any) -> str:
    """The element type; ONNX's name of strings, which numpy has as objects."""
    return "string" if array.dtype == object else str(array.dtype)


def count_non_finite(array: Any) -> int:
    """Returns the number of values that are NaN or infinite."""
    if array.dtype.kind != "f":
        return 0
    with numpy.errstate(all="ignore"):
        if math.isfinite(array.sum()):  # a NaN or an infinity makes the sum one; a tenth of the time of a count
            return 0
    return int(array.size - numpy.isfinite(array).sum())


def value_statistics(array: Any) -> dict[str, float]:
    """The spread of an array's finite values; NaN if it has none."""
    values = array[numpy.isfinite(array)] if count_non_finite(array) else array
    if not values.size:
        return dict.fromkeys(("minimum", "maximum", "mean"), math.nan)
    mean = values.mean(dtype=numpy.float64)
    return {"minimum": float(values.min()), "maximum": float(values.max()), "mean": float(mean)}


@dataclass(frozen=True)
class PrintableResult:
    """An outcome in printable form, small enough to go from one process to another.

    position: the picture's number; text: `as_json` as JSON, on one line; lines: text and its style; error: why there is
    no result.
    """

    position: int
    text: str
    lines: tuple[tuple[str, str], ...]
    error: str

    @property
    def result(self) -> Mapping[str, Any]:
        """The text as plain data."""
        return dict(json.loads(self.text))

    @staticmethod
    def from_result(outcome: PictureResult, with_lines: bool) -> PrintableResult:
        """Returns the printable form of an outcome. with_lines: they cost time, and JSON needs none."""
        lines = tuple(styled_lines(outcome)) if with_lines and not outcome.error else ()
        return PrintableResult(outcome.position, to_json(as_json(outcome)), lines, outcome.error)


@dataclass(frozen=True)
class DeviceSummary:
    """The first message of a device. size: of all pictures; possible_tasks: to choose from, () if the task is known;
    preparation: of pictures, as text; "" without pictures.
    """

    device: str
    name: str
    seconds: float
    size: tuple[int, int]
    possible_tasks: tuple[str, ...]
    preparation: str

    @staticmethod
    def from_model(
        model: Model, seconds: float, size: tuple[int, int], possible_tasks: tuple[str, ...], preparation: str
    ) -> DeviceSummary:
        """seconds: of a run on the warm device."""
        return DeviceSummary(model.device.key, model.device.name, seconds, size, possible_tasks, preparation)


def styled_lines(outcome: PictureResult) -> Iterator[tuple[str, str]]:
    """One run's results as text: lines, and the style of each."""
    if outcome.picture:
        yield f"{outcome.picture}: {outcome.size[0]}x{outcome.size[1]}", "bold"
    for name, array in outcome.outputs.items():
        shape, answer = "x".join(map(str, array.shape)) or "scalar", outcome.answers.get(name)
        head, *lines = _answer_lines(answer) if answer else [_summary_of_values(array)]
        yield f"  {name} {_dtype_name(array)} {shape}: {head}", ""
        for line in lines:
            yield f"    {line}".rstrip(), ""
        problem = _why_useless(array, answer)
        if problem:
            task = ". If it is not an image, pass --task segment, text or depth" if isinstance(answer, Picture) else ""
            pixels = ". If the model expects other pixel values, set --scale, --mean and --std"
            yield f"    {problem}{task}{pixels}" if outcome.picture else f"    {problem}", "red"
        if name in outcome.files:
            yield f"    written to {outcome.files[name]}", ""
    if "" in outcome.files:
        yield f"  all outputs written to {outcome.files['']}", ""


def _why_useless(array: Any, answer: Answer | None) -> str:
    """The reason why an output is useless, or an empty string."""
    wrong = count_non_finite(array)
    if wrong:
        return f"{wrong} of {array.size} values are NaN or infinite"
    if array.dtype.kind != "f" or array.size < MANY:
        return ""
    low, high = float(array.min()), float(array.max())
    if low == high:
        return f"all values are {low:.4g}"
    if isinstance(answer, Picture):
        ends = numpy.abs(array - (low + high) / 2) >= (high - low) / 2 * NEARLY
        if ends.mean() > MOST_AT_ENDS:
            return f"{ends.mean():.0%} of the values are {low:.4g} or {high:.4g}"
    return ""


def _summary_of_values(array: Any) -> str:
    if array.dtype == object:
        shown = [str(text) for text in array.flat[:SHOWN_TEXTS]]
        return ", ".join(shown + ["..."] * bool(array.size > SHOWN_TEXTS))
    if array.size == 0:
        return "empty"
    if array.size <= SHOWN_NUMBERS:
        return ", ".join(f"{v:.4g}" if isinstance(v, float) else str(v) for v in array.reshape(-1).tolist())
    return "{minimum:.4g} .. {maximum:.4g}, mean {mean:.4g}".format(**value_statistics(array))


def _answer_lines(answer: Answer) -> Iterator[str]:
    """Yields an answer in a few words, then a line for each thing in it."""
    if isinstance(answer, Classes):
        yield f"scores, best {len(answer.top)}"
        for label in answer.top:
            yield f"{label.index:5} {label.score:10.4f}  {label.name}"
    elif isinstance(answer, Detections):
        is_low = not answer.found and answer.best is not None
        why = f"; the best score is {answer.best:.4g}, and --score is {answer.least:g}" if is_low else ""
        yield f"{len(answer.found)} found{why}"
        for each in answer.found:
            box = "{:.0f},{:.0f} .. {:.0f},{:.0f}".format(*each.box)
            yield f"{each.label.score:6.2f}  {box:22}  {each.label.name or each.label.index}"
    elif isinstance(answer, Segmentation):
        shares = answer.shares()
        yield f"mask of {len(shares)} classes"
        for label in shares:
            yield f"{label.score:6.1%}  {label.index if label.index >= 0 else 'not seen'}  {label.name}"
    elif isinstance(answer, Pose):
        yield f"{len(answer.points)} points"
        for number, (x, y, score) in enumerate(answer.points):
            yield f"{score:6.2f}  {x:.0f},{y:.0f}  {answer.names[number] if number < len(answer.names) else number}"
    elif isinstance(answer, Texts):
        yield f"{len(answer.found)} line{'s' * (len(answer.found) != 1)}"
        for line in answer.found:
            place = " .. ".join(f"{x:.0f},{y:.0f}" for x, y in line.corners[::2])
            yield f"{line.score:6.2f}  {place:22}  {line.text}"
    elif isinstance(answer, Depth):
        yield f"depth, {numpy.nanmin(answer.values):.4g} .. {numpy.nanmax(answer.values):.4g}"
    else:
        yield f"image, {_summary_of_values(answer.channels_first)}"


def draw_answer(picture: Image.Image | None, answer: Answer, order: ChannelOrder) -> Image.Image | None:
    """Returns the image of --output for an answer; luma gets the colors of the picture. None without a picture."""
    if picture is None and not isinstance(answer, (Picture, Depth)):
        return None
    image = draw(picture or Image.new("RGB", (1, 1)), answer, order)
    return with_color(image, picture) if picture and order == "y" and image.mode == "L" else image


def save_images(images: Mapping[str, Image.Image], path: str) -> dict[str, str]:
    """Writes an image for each output; the names of the files by output. Several get the outputs' names."""
    files = {}
    for name, image in images.items():
        files[name] = with_suffix(path, f"-{safe_file_name(name)}" if len(images) > 1 else "")
        save_picture(image, files[name])
    return files


def save_arrays(arrays: Arrays, path: str) -> None:
    """Writes a .npz file. Raises InputError."""
    # numpy.savez takes names as keyword arguments, so a name of its own arguments, such as "file", is not allowed.
    with atomic_write(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                plain = numpy.asarray(array, str if array.dtype == object else None)  # objects would be pickled
                numpy.lib.format.write_array(entry, plain, allow_pickle=False)


def path_for(path: str, picture: str, number: int, several: bool, suffix: str, digits: int = 1) -> str:
    """The file to write for a picture: in a folder it has the picture's name; of several pictures, its number.

    path_for("out.png", "a.jpg", 2, True, ".png") is "out-2.png", path_for("boxes/", "b/a.jpg", 2, False, ".png")
    "boxes/a.png". several: whether there are several pictures, or in a folder several of this name; digits: the least
    number of digits of a number, as of frames.
    """
    if is_folder(path):
        frame = re.sub(r"\d+", lambda found: found[0].zfill(digits), picture[len(picture.partition("#")[0]) :])
        path = os.path.join(path, safe_file_name(Path(picture).stem + frame) + suffix)
    return with_suffix(path, f"-{number:0{digits}}") if several else path


def is_folder(path: str) -> bool:
    """Returns whether it names a folder to write into."""
    return path.endswith(("/", os.sep)) or os.path.isdir(path)


def with_suffix(path: str, suffix: str) -> str:
    """The path with a suffix before the extension: out.png and -1 make out-1.png."""
    return str(Path(path).with_stem(Path(path).stem + suffix))


def safe_file_name(name: str) -> str:
    """Replaces the characters of a name that are unsafe in a file's name."""
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in name)
