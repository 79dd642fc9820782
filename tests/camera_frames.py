"""NV12 frames of a camera that lies on its side, with gaps between rows, and the boxes that models find in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
from PIL import Image

import imgconv
from imgconv import Plane, VideoFrame
from imgconv.answers import with_answers
from imgconv.cl.device import DeviceInfo
from imgconv.pictures.camera_frames import camera_frame
from imgconv.preprocess import Preparation
from imgconv.preprocessing.preparation import Format
from imgconv.tasks import Description
from imgconv.tensor import Tensor, build_graph, concatenate

# Programs print scores with four digits and coordinates with two.
SCORE, PIXELS = 1e-4, 0.01
# Changes of frame.cl that make pictures of a format wrong: a part of its text, and what takes its place.
CHANGES: list[tuple[Format, str, str]] = [
    ("nv12", "n[1] * x", "n[2] * x"),  # not turned
    ("grey", "n[5] * y", "(n[5] - 1) * y"),
    ("i420", "+ SHARED_X * SHARED_Y / 2", "+ 0"),  # rounded down
    ("nv21", "1 + number % 2", "2 - number % 2"),
    ("yuyv", "2 * pair + place / 2", "2 * pair"),
    ("rgb", "min(first + 3, last)", "min(first + 2, last)"),
]


@dataclass(frozen=True)
class Frames:
    """memory: uint8 (frames, rows of Y and then of UV, bytes of a row). width, height: of a frame in memory."""

    memory: Any
    width: int
    height: int

    @property
    def pitch(self) -> int:
        return int(self.memory.shape[2])

    @property
    def words(self) -> tuple[int, int, int]:
        """The arguments of the programs that read frames from a file."""
        return self.width, self.height, self.pitch

    def upright(self, number: int) -> VideoFrame:
        memory = self.memory[number]
        planes = [Plane(memory, self.pitch), Plane(memory, self.pitch, offset=self.pitch * self.height)]
        return VideoFrame(planes, self.width, self.height, rotation=90)


def noise() -> Frames:
    """Two small frames, for `small_detector`."""
    return Frames(numpy.random.default_rng(1).integers(0, 256, (2, 48 * 3 // 2, 72), numpy.uint8), 64, 48)


def small_detector(device: DeviceInfo | None = None) -> imgconv.Model:
    """A model whose boxes and scores are of noise and of the brightness of the picture there."""
    x = Tensor.input("x", (1, 3, 96, 64))
    sums = [x.pool("sum", [step] * 2, [step] * 2, scale=1 / (step * step * 255)) for step in (8, 16, 32)]
    bright = concatenate([each.mean([1]).reshape(1, -1, 1) for each in sums], 1)
    noise = numpy.random.default_rng(0).random((1, 12 * 8 + 6 * 4 + 3 * 2, 9), numpy.float32)
    graph = build_graph({"y": bright * 0.5 + Tensor.constant(noise) * 0.7}, [x])
    seen = imgconv.load(graph, device).preprocess((64, 48), "nv12", "letterbox")
    return with_answers(seen, Description(head="yolox", labels=("cat", "dog", "cow", "owl"), score=0.5))


def pictures(folder: Path) -> Frames:
    """The pictures of a folder as frames of a camera, for `yolox`, with noise between the rows."""
    names, width, height, pitch = sorted(folder.glob("*.jpg")), 640, 480, 704
    memory = numpy.random.default_rng(0).integers(0, 256, (len(names), height * 3 // 2, pitch), numpy.uint8)
    for made, name in zip(memory, names, strict=True):
        array = camera_frame(Image.open(name).convert("RGB"), (height, width), Preparation(format="nv12"))
        made[:height, :width] = numpy.rot90(array[:width])
        made[height:, :width] = numpy.rot90(array[width:].reshape(width // 2, height // 2, 2)).reshape(-1, width)
    return Frames(memory, width, height)


def yolox(folder: Path, device: DeviceInfo | None = None) -> imgconv.Model:
    """The file of `imgconv compile yolox_nano.onnx --picture nv12 480x640 --task detect --head yolox`."""
    model = imgconv.load(folder / "yolox_nano.onnx", device=device)
    seen = model.preprocess((640, 480), "nv12", "letterbox", "bilinear", "bgr")
    return with_answers(seen, Description(task="detect", head="yolox", score=0.5))


def expected_boxes(model: imgconv.Model, frames: Frames) -> Any:
    """Python's: frame, class, score and corners of each box."""
    rows = []
    for number in range(len(frames.memory)):
        rows += expected_rows(number, model.run({"picture": frames.upright(number)}))
    return numpy.array(rows)


def expected_rows(number: int, found: Mapping[str, Any]) -> list[tuple[float, ...]]:
    """Returns number, class, score and corners of each box in these outputs."""
    count = int(found["count"][0])
    assert 0 < count < len(found["scores"])
    answers = zip(found["classes"][:count], found["scores"], found["boxes"], strict=False)
    return [(number, kind, score, *box) for kind, score, box in answers]


def check_printed(text: str, rows: Any) -> None:
    """A program has printed these boxes."""
    expected = numpy.array(rows)
    found = numpy.array([list(map(float, line.split())) for line in text.splitlines()])
    numpy.testing.assert_array_equal(found[:, :2], expected[:, :2])
    numpy.testing.assert_allclose(found[:, 2], expected[:, 2], rtol=0, atol=SCORE)
    numpy.testing.assert_allclose(found[:, 3:], expected[:, 3:], rtol=0, atol=PIXELS)
