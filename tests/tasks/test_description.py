"""The JSON beside a model, labels, best classes, COCO's JSON, and drawings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
from PIL import Image

from imgconv.arrays import Array
from imgconv.errors import InputError
from imgconv.tasks import Classes, Depth, Description, Detection, Detections, Label, Picture, PicturePlacement, Pose
from imgconv.tasks import Segmentation, coco_json, draw, find_description, find_task, read_description, read_labels

NOWHERE = PicturePlacement((1, 1), (1, 1), (1, 1), (0, 0, 1, 1))


def test_a_description_is_read(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("0 cat\n1 dog\n")
    (tmp_path / "m.task.json").write_text(
        '{"task": "detect", "head": "yolox", "labels": "names.txt", "score": 0.4, "preparation": {"resize": "crop", '
        '"crop": 0.875, "scale": "1/255", "mean": [1, 2, 3]}, "anchors": [{"stride": 8, "sizes": [[16, 16]]}]}'
    )
    text = find_description(tmp_path / "m.onnx")
    found = read_description(text)
    assert (found.task, found.head, found.labels, found.score) == ("detect", "yolox", ("cat", "dog"), 0.4)
    wanted = {"resize": "crop", "crop": 0.875, "scale": 1 / 255, "mean": (1.0, 2.0, 3.0)}
    assert found.preparation == wanted and found.anchors == ({"stride": 8, "sizes": [[16, 16]]},)
    assert find_description(tmp_path / "other.onnx") == ""


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{", "is not a description"), ("[]", "not a JSON object"), ('{"kind": 1}', "no field 'kind'"),
        ('{"task": "walk"}', "task is 'walk'; use classify, "),
        ('{"preparation": {"size": 3}}', "no 'size'"),
        ('{"labels": "none.txt"}', "cannot read labels '.*none.txt': No such file"),
        ('{"labels": 3}', "is not a description"), ('{"preparation": []}', "is not a description"),
        ('{"picture": {"size": [640, 480]}}', "'size' and 'model'"),
    ],
)
def test_wrong_descriptions_are_named(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "m.task.json").write_text(text)
    with pytest.raises(InputError, match=named) as caught:
        read_description(find_description(tmp_path / "m.onnx"), "m.task.json")
    assert "m.task.json" in str(caught.value)


def test_the_description_wins_over_the_head() -> None:
    said = Description(score=0.1, preparation={"order": "rgb"})
    found = find_task({"y": ("float32", (1, 3549, 85))}, (416, 416), said).description
    assert found.score == 0.1 and found.overlap == 0.45 and found.labels[0] == "person"
    assert found.preparation == {"resize": "letterbox", "filter": "bilinear", "order": "rgb"}


def test_embeddings_are_scores_only_if_they_are_said_to_be() -> None:
    """An output of 512 floats next to one of 5 is none; alone it is, with task classify."""
    arrays = {"f": numpy.zeros((1, 512), numpy.float32), "y": numpy.full((1, 5), 0.2, numpy.float32)}
    shapes = {name: ("float32", array.shape) for name, array in arrays.items()}
    task = find_task(shapes, (8, 8), Description())
    assert task and list(task.decode(arrays, NOWHERE)) == ["y"]
    del arrays["y"], shapes["y"]
    assert find_task(shapes, (8, 8), Description()) is None
    said = find_task(shapes, (8, 8), Description(task="classify"))
    assert said and list(said.decode(arrays, NOWHERE)) == ["f"]


SOFTMAX, ANGLES = numpy.array([[0.7, 0.2, 0.1]]), numpy.array([[-12.5, 3.0, 40.0]])
LOGITS, MARKS = numpy.arange(10.0)[None], numpy.full((1, 10), 0.5)


@pytest.mark.parametrize(
    ("arrays", "classes"),
    [
        ({"y": SOFTMAX}, ["y"]), ({"y": LOGITS}, ["y"]), ({"y": ANGLES}, []), ({"y": ANGLES / 100 + 0.5}, []),
        ({"y": ANGLES, "gender": SOFTMAX}, ["gender"]), ({"marks": MARKS, "face": SOFTMAX}, ["face"]),
        ({"age": SOFTMAX, "gender": SOFTMAX[:, ::-1]}, ["age", "gender"]),
    ],
)
def test_a_few_numbers_are_scores_if_they_are_probabilities(arrays: dict[str, Array], classes: list[str]) -> None:
    """Others may be angles, landmarks or a box, unless the task is said."""
    arrays = {name: array.astype(numpy.float32) for name, array in arrays.items()}
    shapes = {name: ("float32", array.shape) for name, array in arrays.items()}
    task = find_task(shapes, (8, 8), Description())
    assert task and list(task.decode(arrays, NOWHERE)) == classes
    said = find_task(shapes, (8, 8), Description(task="classify"))
    assert said and list(said.decode(arrays, NOWHERE)) == list(arrays)


@pytest.mark.parametrize("shapes", [{"y": (1, 512, 1)}, {"y": (1, 77), "boxes": (1, 77, 16)}, {"eyes": (1, 213)}])
def test_anchors_and_landmarks_are_no_classes(shapes: dict[str, tuple[int, ...]]) -> None:
    assert find_task({name: ("float32", shape) for name, shape in shapes.items()}, (8, 8), Description()) is None


@pytest.mark.parametrize("shape", [(5,), (1, 5), (1, 5, 1, 1)])
def test_scores_of_any_shape(shape: tuple[int, ...]) -> None:
    array = numpy.array([0.1, 0.4, 0.05, 0.4, 0.05], numpy.float32).reshape(shape)
    task = find_task({"y": ("float32", shape)}, (8, 8), Description(top=2, labels=("a", "b", "c", "d", "e")))
    answer = task.decode({"y": array}, NOWHERE)["y"]
    assert isinstance(answer, Classes) and [(each.index, each.name) for each in answer.top] == [(1, "b"), (3, "d")]
    few = find_task({"y": ("float32", shape)}, (8, 8), Description(labels=("a", "b")))
    with pytest.raises(InputError, match="5 scores.*2 labels"):
        few.decode({"y": array}, NOWHERE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cat\ndog\n", ("cat", "dog")), ("0,cat\n1,dog, hound\n\n", ("cat", "dog, hound")),
        ("0: cat\n1: dog", ("cat", "dog")), ("0\n1\n2", ("0", "1", "2")), ("1 cat\n2 dog", ("1 cat", "2 dog")),
        ("cat\n1 dog", ("cat", "1 dog")),
    ],
)
def test_label_files(tmp_path: Path, text: str, expected: tuple[str, ...]) -> None:
    (tmp_path / "labels.txt").write_text(text)
    assert read_labels(tmp_path / "labels.txt") == expected


def test_unreadable_labels_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00")
    for name in ("empty.txt", "binary.txt", "none.txt"):
        with pytest.raises(InputError, match=name):
            read_labels(tmp_path / name)


def test_cocos_json() -> None:
    cat = Detection((1, 2, 11, 22), Label(3, 0.9, "cat"), ((4, 5, 0.5),))
    results = [
        {"picture": "broken.jpg", "error": "it is broken"},
        {"picture": "a.jpg", "size": (30, 40), "answers": {"y": Detections((cat,)).as_json()}},
        {"picture": "b.jpg", "size": (30, 40), "answers": {"y": Detections(()).as_json()}},
    ]
    found = coco_json(results)
    assert [each["file_name"] for each in found["images"]] == ["a.jpg", "b.jpg"]
    assert found["categories"] == [{"id": 4, "name": "cat"}]
    assert found["annotations"] == [{
        "id": 1, "image_id": 1, "category_id": 4, "bbox": [1, 2, 10, 20], "area": 200, "score": 0.9, "iscrowd": 0,
        "keypoints": [4, 5, 2], "num_keypoints": 1,
    }]


GREY = Image.new("RGB", (64, 48), (100, 100, 100))
HALF = numpy.zeros((48, 64), numpy.int32)
HALF[:, 32:] = 3


@pytest.mark.parametrize(
    ("answer", "changed", "kept"),
    [
        (Detections((Detection((10, 20, 50, 40), Label(0, 0.5, "")),)), (10, 30), (30, 30)),
        (Detections((Detection((10, 20, 50, 40), Label(0, 0.5, ""), (), HALF > 0),)), (40, 44), (20, 30)),
        (Segmentation(HALF), (40, 20), (20, 20)), (Pose(((20, 30, 1),)), (20, 30), (40, 10)),
        (Classes((Label(0, 0.5, "cat"),)), None, (60, 40)),
    ],
)
def test_what_is_drawn(answer: Any, changed: tuple[int, int] | None, kept: tuple[int, int]) -> None:
    drawn = draw(GREY, answer)
    assert drawn.size == GREY.size and drawn.getpixel(kept) == (100, 100, 100)
    assert numpy.any(numpy.asarray(drawn) != 100) if changed is None else drawn.getpixel(changed) != (100, 100, 100)
    assert GREY.getpixel((10, 30)) == (100, 100, 100)


def test_a_label_at_the_right_edge_is_drawn_whole() -> None:
    def letters(left: float) -> int:
        found = Detections((Detection((left, 30, left + 6, 40), Label(0, 0.5, "cat")),))
        return int((numpy.asarray(draw(wide, found))[:28].min(axis=2) > 120).sum())

    wide = Image.new("RGB", (300, 48), (100, 100, 100))
    assert letters(290) == letters(120) > 0


def test_images_and_depth_take_the_place_of_the_picture() -> None:
    values = numpy.linspace(0, 5, 12, dtype=numpy.float32).reshape(3, 4)
    values[0, 0] = numpy.nan
    drawn = draw(GREY, Depth(values))
    assert drawn.size == (4, 3) and drawn.getpixel((0, 0)) == (0, 0, 0) and drawn.getpixel((3, 2)) == (250, 230, 40)
    planes = numpy.zeros((3, 2, 2), numpy.float32)
    planes[2] = 1
    assert draw(GREY, Picture(planes)).getpixel((0, 0)) == (0, 0, 255)
    assert draw(GREY, Picture(planes), "bgr").getpixel((0, 0)) == (255, 0, 0)
