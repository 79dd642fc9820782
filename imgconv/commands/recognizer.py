"""The second model of --task text: it reads each line of text that the first model finds."""

from __future__ import annotations

import argparse
import math
from dataclasses import replace

from PIL import Image

from imgconv.commands.command_line_inputs import declared_of, description_of
from imgconv.errors import InputError
from imgconv.model import Model, Settings, open_source
from imgconv.pictures.host import input_array
from imgconv.preprocessing.preparation import PictureInput, Preparation, Size, picture_inputs
from imgconv.tasks import PicturePlacement, Task, Text, Texts, find_task

HEIGHT = 48  # of a line, in pixels, if the model takes any: PP-OCR's since its third version
WIDTHS = (320, 640, 1280)  # of a line, if the model takes any; a longer line is compressed
TALL = 1.5  # height of a line divided by its width, from which on it is turned
LEAST_SCORE = 0.5  # as PaddleOCR's: below it, a line is no text


class Recognizer:
    """Reads lines of text.

        recognizer = Recognizer.load(options)                   # of --recognizer ppocr_rec.onnx
        recognizer.read(picture, found).found[0].text           # "EXIT"
    """

    def __init__(self, model: Model, target: PictureInput, task: Task) -> None:
        self._model, self._target, self._task = model, target, task
        self._preparation = Preparation(**task.description.preparation)

    @staticmethod
    def load(options: argparse.Namespace) -> Recognizer:
        """Compiles the model of --recognizer. Raises what imgconv.load raises, and InputError."""
        path = options.recognizer
        declared, description = declared_of(path), description_of(path)
        targets = picture_inputs(declared, {})
        if len(declared) != 1 or not targets:
            raise InputError(f"{path!r} is not a recognizer: a picture must be its only input")
        if not description.labels:
            raise InputError(f'{path!r} has no characters: put {{"labels": "characters.txt"}} into its .task.json')
        target = targets[0]
        shapes = {target.name: target.shape((WIDTHS[0], HEIGHT), 3)} if target.is_open else {}
        model = Model(open_source(path, Settings(options.device, options.float16, shapes=shapes)))
        outputs = {name: (value.dtype, value.shape) for name, value in model.outputs.items()}
        task = find_task(outputs, target.picture_size((WIDTHS[0], HEIGHT)), replace(description, task="text"))
        if task is None or task.head != "ctc":
            raise InputError(f"{path!r} is not a recognizer: {', '.join(map(str, model.outputs.values()))}")
        return Recognizer(model, target, task)

    def read(self, picture: Image.Image, texts: Texts) -> Texts:
        """Returns the lines with their text, without empty and unsure ones. Raises what Model.run raises."""
        lines = (self._recognize_line(picture, text) for text in texts.found)
        return Texts(tuple(line for line in lines if line.text.strip() and line.score >= LEAST_SCORE))

    def _recognize_line(self, picture: Image.Image, text: Text) -> Text:
        upright = cut_out_upright(picture, text)
        size = self._target.picture_size(input_size_for(upright.size))
        scale = size[1] / upright.height
        if upright.width * scale > size[0]:
            upright = upright.resize(size, Image.Resampling.BICUBIC)
        # At the model's height, and the least of its widths.
        target = PictureInput(
            self._target.name, self._target.dtype, self._target.shape(input_size_for(upright.size), 3)
        )
        outputs = self._model.run({target.name: input_array(upright, target, self._preparation)})
        answer, = self._task.decode(outputs, PicturePlacement.of(upright.size, size, self._preparation)).values()
        assert isinstance(answer, Texts)
        found, = answer.found
        return Text(found.text, found.score, text.corners)


def input_size_for(line: Size) -> Size:
    """The least width of WIDTHS that takes a line of this width and height, at HEIGHT."""
    wide = line[0] * HEIGHT / line[1]
    return next((width for width in WIDTHS if width >= wide), WIDTHS[-1]), HEIGHT


def cut_out_upright(picture: Image.Image, text: Text) -> Image.Image:
    """The part of the picture in a line's corners, upright."""
    first, second, third, last = text.corners
    width = max(1, round(max(math.dist(first, second), math.dist(last, third))))
    height = max(1, round(max(math.dist(second, third), math.dist(first, last))))
    corners = (*first, *last, *third, *second)  # in Pillow's order
    part = picture.transform((width, height), Image.Transform.QUAD, corners, Image.Resampling.BICUBIC)
    return part.transpose(Image.Transpose.ROTATE_90) if height >= TALL * width else part
