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
from imgconv.tasks import (
    Classes, Description, Detections, PicturePlacement, Pose, Task, find_description, find_task, read_description,
    read_labels,
)

VARIABLE = "IMGCONV_MODELS"
FOLDER = Path(os.environ.get(VARIABLE, ""))
pytestmark = [
    pytest.mark.models,
    pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} does not name a folder of models and cases"),
]


def needs(folder: str, source: str) -> pytest.MarkDecorator:
    """Skips a case whose model is not in the folder. source: where the model comes from."""
    return pytest.mark.skipif(not (FOLDER / folder).is_dir(), reason=f"{VARIABLE} has no folder {folder}: {source}")


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
    placement = PicturePlacement.of(picture.size, (416, 416), how)
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
    """Finds as many faces as the project's own script with score over 0.7 and overlap 0.3, each inside the picture."""
    outputs = read_case(f"ultraface/case_ultraface_rfb320_{name}.npz")
    shapes = {name: (str(array.dtype), array.shape) for name, array in outputs.items()}
    task = find_task(shapes, (320, 240), Description())
    assert task and task.head == "ssd" and task.description.preparation["std"] == (128.0,)
    with Image.open(FOLDER / f"ultraface/{name}.jpg") as picture:
        placement = PicturePlacement.of(picture.size, (320, 240), Preparation(**task.description.preparation))
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
    answer = task.decode(outputs, PicturePlacement.of((224, 224), (224, 224), Preparation()))["softmaxout_1"]
    assert isinstance(answer, Classes) and task.name == "classify"
    assert answer.top[0].index == 0 and answer.top[0].name.startswith("tench")
    assert answer.top[0].score == pytest.approx(0.7378, abs=1e-3)


@pytest.mark.parametrize(("name", "kind", "score"), [("T1", 1, 0.9999), ("F1", 2, 0.970), ("F2", 2, 0.980)])
def test_minifasnet(name: str, kind: int, score: float) -> None:
    outputs = read_case(f"minifasnet/case_fas_MiniFASNetV2_{name}.npz")
    shapes = {name: (str(array.dtype), array.shape) for name, array in outputs.items()}
    task = find_task(shapes, (80, 80), Description(labels=("spoof", "live", "other spoof")))
    answer, = task.decode(outputs, PicturePlacement.of((80, 80), (80, 80), Preparation())).values()
    assert isinstance(answer, Classes) and answer.top[0].index == kind
    assert answer.top[0].score == pytest.approx(score, abs=1e-3)


@needs("movenet", "movenet-lightning of npm's @vladmandic/human 3.3.6, converted by tf2onnx 1.17")
def test_movenet(device: DeviceInfo) -> None:
    """A skier's joints where they are seen in the picture, and where the reference outputs have them."""
    picture = read_picture(FOLDER / "yolox_nano/000000000785.jpg")
    model = imgconv.load(FOLDER / "movenet/movenet.onnx", device)
    task = task_of(model, (192, 192))
    assert (task.name, task.head) == ("pose", "movenet")
    how = Preparation(**task.description.preparation)
    pixels = to_array(picture, how, (192, 192)).round().astype(numpy.int32).transpose(0, 2, 3, 1)
    reference = read_case("movenet/case_movenet_785.npz")
    # Parts of a square whose upper rows the picture fills: a part is as wide and as high as the picture is wide.
    wanted = reference["Identity:0"].reshape(17, 3)[:, [1, 0, 2]] * [picture.width, picture.width, 1]
    for outputs in model.run({"input:0": pixels}), reference:
        pose = task.decode(outputs, PicturePlacement.of(picture.size, (192, 192), how))["Identity:0"]
        assert isinstance(pose, Pose)
        # The letterbox has whole rows, which moves its last one by a third of a pixel of the input.
        assert numpy.array(pose.points) == pytest.approx(wanted, abs=1.5)
        joints = dict(zip(pose.names, pose.points, strict=True))
        for name, place in {"nose": (363, 88), "right wrist": (298, 182), "left knee": (430, 287)}.items():
            assert joints[name][:2] == pytest.approx(place, abs=3)


@needs("handtrack", "ssd320fpnlite of npm's handtrackjs 0.1.5, converted by tf2onnx 1.17 without its resizing loop")
def test_tensorflows_detector(device: DeviceInfo) -> None:
    """Its suppression inside: the rows over 0.5, top, left, bottom and right times the picture."""
    path, picture = FOLDER / "handtrack/handtrack.onnx", read_picture(FOLDER / "ultraface/11.jpg")
    model = imgconv.load(path, device)
    shapes = {name: (value.dtype, value.shape) for name, value in model.outputs.items()}
    task = find_task(shapes, (320, 320), read_description(find_description(path)))
    assert task and task.head == "tensorflow"
    how = Preparation(**task.description.preparation)
    pixels = to_array(picture, how, (320, 320)).transpose(0, 2, 3, 1)
    reference = read_case("handtrack/case_handtrack_11.npz")
    likely = reference["detection_scores"][0] > 0.5
    corners = reference["detection_boxes"][0, likely][:, [1, 0, 3, 2]] * [*picture.size, *picture.size]
    kinds = reference["detection_classes"][0, likely]
    assert kinds.tolist() == [5, 2, 2, 2, 2]  # a face and four closed hands, three of which are faces
    for outputs in model.run({"input_tensor": pixels}), reference:
        found = task.decode(outputs, PicturePlacement.of(picture.size, (320, 320), how))["detection_boxes"]
        assert isinstance(found, Detections)
        assert [each.label.index for each in found.found] == kinds.tolist() and found.found[0].label.name == "face"
        assert numpy.array([each.box for each in found.found]) == pytest.approx(corners, abs=0.01)
