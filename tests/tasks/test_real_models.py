"""Decoders on the outputs of trained models, against the results that the models' projects publish.

IMGCONV_MODELS names the folder of models and cases, as in tests/device/test_models.py; without it they are skipped.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy
import pytest
from PIL import Image

import imgconv
from examples.detect import find
from imgconv.cl.device import DeviceInfo
from imgconv.preprocess import Preparation, read_picture, to_array
from imgconv.tasks import Classes, Description, Detections, Placement, Task, find_task, read_labels

VARIABLE = "IMGCONV_MODELS"
FOLDER = Path(os.environ.get(VARIABLE, ""))
pytestmark = [
    pytest.mark.models,
    pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} does not name a folder of models and cases"),
]


def task_of(model: imgconv.Model, size: tuple[int, int], **said: Any) -> Task:
    """The task that the model's outputs show."""
    outputs = {name: (value.dtype, value.shape) for name, value in model.outputs.items()}
    task = find_task(outputs, size, Description(**said))
    assert task
    return task


def read_case(path: str) -> dict[str, Any]:
    """The reference outputs of a case, by name."""
    with numpy.load(FOLDER / path) as arrays:
        return {name[4:]: arrays[name] for name in arrays.files if name.startswith("out:")}


# By YOLOX's own demo with these pictures: the best of each, and the names of COCO's classes.
YOLOX = {
    "139": [("tv", 0.90), ("person", 0.69), ("clock", 0.64)], "632": [("bed", 0.87), ("potted plant", 0.78)],
    "785": [("person", 0.88), ("skis", 0.74)],
}


@pytest.mark.parametrize("name", YOLOX)
def test_yolox_nano(device: DeviceInfo, name: str) -> None:
    """A picture through the model on the device, and the reference outputs: the published classes and scores."""
    picture = read_picture(FOLDER / f"yolox_nano/000000000{name}.jpg")
    model = imgconv.load(FOLDER / "yolox_nano/yolox_nano.onnx", device)
    task = task_of(model, (416, 416))
    assert (task.name, task.head) == ("detect", "yolox")
    how = Preparation(**task.description.preparation)
    placement = Placement.of(picture.size, (416, 416), how)
    own = model.run({"images": to_array(picture, how, (416, 416))})
    for outputs in own, read_case(f"yolox_nano/case_yolox_nano_{name}.npz"):
        found = task.decode(outputs, placement)["output"]
        assert isinstance(found, Detections)
        best = [(each.label.name, each.label.score) for each in found.found[: len(YOLOX[name])]]
        for wanted, (label, score) in zip(YOLOX[name], best, strict=True):
            # Pictures are resized a little differently, and published scores have two digits.
            assert wanted[0] == label and score == pytest.approx(wanted[1], abs=0.01)


@pytest.mark.parametrize(("name", "faces"), [("1", 46), ("11", 25)])
def test_ultraface(name: str, faces: int) -> None:
    """As many faces as the project's own script finds, score over 0.7, overlap 0.3, each inside of the picture."""
    outputs = read_case(f"ultraface/case_ultraface_rfb320_{name}.npz")
    shapes = {name: (str(array.dtype), array.shape) for name, array in outputs.items()}
    task = find_task(shapes, (320, 240), Description())
    assert task and task.head == "ssd" and task.description.preparation["std"] == (128.0,)
    with Image.open(FOLDER / f"ultraface/{name}.jpg") as picture:
        placement = Placement.of(picture.size, (320, 240), Preparation(**task.description.preparation))
    found = task.decode(outputs, placement)["boxes"]
    assert isinstance(found, Detections) and len(found.found) == faces
    for each in found.found:
        left, top, right, bottom = each.box
        assert 0 <= left < right <= placement.picture[0] and 0 <= top < bottom <= placement.picture[1]


@pytest.mark.parametrize(
    ("model", "picture", "count"),
    [("yolox_nano/yolox_nano", "yolox_nano/000000000785", 2), ("ultraface/ultraface_rfb320", "ultraface/11", 25)],
)
def test_the_example(device: DeviceInfo, model: str, picture: str, count: int, tmp_path: Path) -> None:
    out = tmp_path / "out.png"
    found = find(str(FOLDER / f"{model}.onnx"), str(FOLDER / f"{picture}.jpg"), str(device.index), str(out))
    assert len(found.found) == count
    with Image.open(out) as drawn, Image.open(FOLDER / f"{picture}.jpg") as own:
        assert drawn.size == own.size


def test_squeezenet(device: DeviceInfo) -> None:
    """fish.png is a tench with 0.7378, as the model's project says."""
    model = imgconv.load(FOLDER / "squeezenet/squeezenet.onnx", device)
    task = task_of(model, (224, 224), labels=read_labels(FOLDER / "squeezenet/labels.txt"))
    outputs = model.run({"data_0": to_array(read_picture(FOLDER / "squeezenet/fish.png"), Preparation(order="bgr"))})
    answer = task.decode(outputs, Placement.of((224, 224), (224, 224), Preparation()))["softmaxout_1"]
    assert isinstance(answer, Classes) and task.name == "classify"
    assert answer.top[0].index == 0 and answer.top[0].name.startswith("tench")
    assert answer.top[0].score == pytest.approx(0.7378, abs=1e-3)


@pytest.mark.parametrize(("name", "kind", "score"), [("T1", 1, 0.9999), ("F1", 2, 0.970), ("F2", 2, 0.980)])
def test_minifasnet(name: str, kind: int, score: float) -> None:
    outputs = read_case(f"minifasnet/case_fas_MiniFASNetV2_{name}.npz")
    shapes = {name: (str(array.dtype), array.shape) for name, array in outputs.items()}
    task = find_task(shapes, (80, 80), Description(labels=("spoof", "live", "other spoof")))
    answer, = task.decode(outputs, Placement.of((80, 80), (80, 80), Preparation())).values()
    assert isinstance(answer, Classes) and answer.top[0].index == kind
    assert answer.top[0].score == pytest.approx(score, abs=1e-3)
