"""Predictor: runs a model on batches of pictures in other processes, for example in Ray Data.

    dataset = ray.data.read_binary_files("photos", include_paths=True)
    rows = dataset.map_batches(Predictor, fn_constructor_args=("squeezenet.onnx",), batch_size=16, concurrency=4)
    rows.write_parquet("results")

examples/ray_folder.py is a complete program, which chooses devices and resumes after a failure.
"""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy
from PIL import Image

from imgconv.arrays import Array
from imgconv.errors import InputError
from imgconv.files.container import is_container
from imgconv.graph.nodes import Value
from imgconv.loading.compiled import DEPTH
from imgconv.model import Model, load, prepares_pictures
from imgconv.picture_settings import with_guessed_pixels, with_hints
from imgconv.pictures.host import open_upright, pixels_or_array
from imgconv.preprocessing.preparation import PictureInput, Preparation, picture_inputs
from imgconv.reports.terminal import to_json
from imgconv.tasks import Description, PicturePlacement, Task, find_task, read_description

if TYPE_CHECKING:
    from imgconv.runtime.pipeline import Frame

Batch = Mapping[str, Any]


@dataclass(frozen=True)
class _OpenedModel:
    """The model on the device of this process.

    task: None if the outputs are given as arrays; on_device: whether the device prepares the pictures.
    """

    model: Model
    target: PictureInput
    task: Task | None
    preparation: Preparation
    on_device: bool


class Predictor:
    """Runs a model on each picture of a batch. It can be pickled, and opens its device at the first batch.

        predictor = Predictor("yolox_nano.onnx")
        rows = predictor({"path": ["a.jpg"], "bytes": [Path("a.jpg").read_bytes()]})
        rows["answers"][0]          # '{"output": {"detections": [{"label": "person", "score": 0.88, ...}]}}'
        rows["error"][0]            # "" or why this picture gave nothing

    A batch has a column of pictures, as bytes of files or uint8 arrays (height, width, 3). Its other columns are kept.
    The column of pictures is replaced by `answers`, the JSON of `imgconv run --json` for each row; or, if the task is
    unknown or with raw=True, by a column for each output. An output whose size depends on data is an array of its own
    for each row. A picture that cannot be read keeps its row: `error` says why, its answers are "", its numbers 0.
    Pictures are prepared as `imgconv run` prepares them without options, but never in tiles.
    """

    def __init__(
        self, model: str | os.PathLike[str], column: str = "bytes", raw: bool = False,
        description: Description | None = None, **settings: Any,
    ) -> None:
        """column: the name of the column of pictures. description: see imgconv.tasks (default: the model's).

        settings: arguments of imgconv.load, such as device="Adreno", float16=1, shapes={"height": 480}. Sizes that the
        model leaves open must be given. By default the device is the one that the process finds; with Ray, that is the
        one of its resources.
        """
        self._model, self._column, self._raw = os.fspath(model), column, raw
        self._description, self._settings = description, settings
        self._opened: _OpenedModel | None = None

    def __repr__(self) -> str:
        given = {"column": self._column, "raw": self._raw, **self._settings}
        return f"Predictor({self._model!r}, {', '.join(f'{name}={value!r}' for name, value in given.items())})"

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out what belongs to the device of this process."""
        return {**vars(self), "_opened": None}

    def __call__(self, batch: Batch) -> dict[str, Array]:
        """The rows with their answers, in the batch's order. Raises InputError, and what `load` and `run` raise."""
        if self._column not in batch:
            raise InputError(f"the batch has no column {self._column!r} of pictures; it has {', '.join(batch)}")
        opened = self._opened = self._opened or self._open()
        rows = [*_run_pictures(opened, batch[self._column])]
        found: dict[str, Array] = {
            name: numpy.asarray(column) for name, column in batch.items() if name != self._column
        }
        if opened.task:
            found["answers"] = numpy.array([row.answers for row in rows], object)
        else:
            for value in opened.model.outputs.values():
                found[value.name] = _output_column(value, [row.outputs.get(value.name) for row in rows])
        return {**found, "error": numpy.array([row.error for row in rows], object)}

    def _open(self) -> _OpenedModel:
        model = load(self._model, **self._settings)
        declared: Any = {value.name: (value.dtype, value.shape) for value in model.inputs.values()}
        targets = picture_inputs(declared, {})
        if len(declared) != 1 or not targets:
            listed = ", ".join(map(str, model.inputs.values()))
            raise InputError(f"{self._model!r} has inputs {listed}: Predictor needs a model with one input, a picture")
        target, text = targets[0], model._source.description
        size = target.picture_size((0, 0))
        description = self._description or (read_description(text, self._model) if text else Description())
        if not is_container(self._model):
            _, description = with_hints(self._model, target, description)
        outputs: Any = {value.name: (value.dtype, value.shape) for value in model.outputs.values()}
        task = find_task(outputs, size, description)
        described = (task.description if task else description).preparation
        settings = with_guessed_pixels(described, model.graph, model.inputs[target.name], task)
        preparation = target.preparation(settings)
        on_device = prepares_pictures(model, target.name)
        return _OpenedModel(model, target, None if self._raw else task, preparation, on_device)


def _output_column(value: Value, arrays: Sequence[Array | None]) -> Array:
    """An output of all rows. If its size depends on data, the rows are arrays of their own, or None."""
    if min(value.shape, default=0) < 0:
        rows = numpy.empty(len(arrays), object)
        for number, array in enumerate(arrays):  # numpy would make one array of rows of equal shape
            rows[number] = array
        return rows
    blank = numpy.zeros(value.shape, value.dtype)
    return numpy.stack([blank if array is None else array for array in arrays])


@dataclass(frozen=True)
class _BatchRow:
    answers: str = ""
    outputs: Mapping[str, Array] | Any = None
    error: str = ""


def _run_pictures(opened: _OpenedModel, pictures: Sequence[Any]) -> Iterator[_BatchRow]:
    """A row for each picture, in order. The device computes one while the next is read."""
    waiting: deque[tuple[Frame | str, PicturePlacement | None]] = deque()
    for picture in pictures:
        if len(waiting) >= DEPTH:
            yield _finish_row(opened, *waiting.popleft())
        try:
            image = _decode_picture(picture)
        except InputError as error:
            waiting.append((str(error), None))
            continue
        size = opened.target.picture_size(image.size)
        made = pixels_or_array(image, opened.target, opened.preparation, opened.on_device)
        frame = opened.model.submit({opened.target.name: made}, DEPTH)
        waiting.append((frame, PicturePlacement.of(image.size, size, opened.preparation)))
    while waiting:
        yield _finish_row(opened, *waiting.popleft())


def _finish_row(opened: _OpenedModel, frame: Frame | str, placement: PicturePlacement | None) -> _BatchRow:
    if isinstance(frame, str) or placement is None:
        return _BatchRow(outputs={}, error=str(frame))
    outputs = frame.result()
    if opened.task is None:
        return _BatchRow(outputs=outputs)
    answers = {name: answer.as_json() for name, answer in opened.task.decode(outputs, placement).items()}
    return _BatchRow(to_json(answers))


def _decode_picture(picture: Any) -> Image.Image:
    """A picture from the bytes of its file, or from an array. Raises InputError."""
    if isinstance(picture, (bytes, bytearray, memoryview)):
        return open_upright("the row's picture", io.BytesIO(picture))
    array = numpy.asarray(picture)
    if array.dtype != numpy.uint8 or array.ndim != 3 or array.shape[2] != 3 or not array.size:
        given = f"{array.dtype} {list(array.shape)}"
        raise InputError(f"a picture is the bytes of a file or uint8 (height, width, 3), not {given}")
    return Image.fromarray(array)
