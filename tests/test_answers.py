"""Answers made in the graph, against the decoders in numpy, for every head."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy
import pytest
from PIL import Image
from published import REAL, needs_models

import imgconv
from imgconv.arrays import Array, Arrays
from imgconv.cl.device import DeviceInfo
from imgconv.errors import ConfigError, InputError
from imgconv.graph.nodes import Graph
from imgconv.pictures.camera_frames import camera_frame
from imgconv.preprocess import Preparation
from imgconv.preprocessing.preparation import PictureInput
from imgconv.preprocessing.stage import PictureStage
from imgconv.tasks import (
    HEADS, Depth, Description, Detections, Picture, PicturePlacement, Pose, Segmentation, Task, Texts, draw, find_task,
)
from imgconv.tasks.answer_outputs import read_answers
from imgconv.tasks.detection import MOST_DETECTIONS, BoxDecoder
from imgconv.answers import CANDIDATES, OTHERS, AnswerStage, answer_stage, with_answers
from imgconv.tasks.maps import KeypointDecoder, SegmentationDecoder
from imgconv.tensor import Tensor, build_graph

SIZE = (96, 64)
FRAME = (120, 120)
CELLS = 12 * 8 + 6 * 4 + 3 * 2
ANCHORS = ({"stride": 16, "sizes": [[16, 16], [40, 24]]},)
GREY = Image.new("L", SIZE)
CLOSE = 2e-5  # of a coordinate up to 500: some roundings of float, and a device's exp is off by three units


def drawn(*shape: int, seed: int = 0, low: float = 0.0, high: float = 1.0) -> Array:
    made: Array = numpy.random.default_rng(seed).uniform(low, high, shape).astype(numpy.float32)
    return made


def rows(count: int, *others: int) -> Array:
    """Boxes by centre and size, then scores."""
    made = drawn(1, count, 4 + sum(others), seed=count)
    made[..., :4] *= [96, 64, 50, 40]
    return made


def corners(count: int, scale: tuple[int, int]) -> Array:
    low, size = drawn(1, count, 2, seed=5), drawn(1, count, 2, seed=6, high=0.5)
    return numpy.concatenate([low, low + size], axis=2) * numpy.float32([*scale, *scale])


def undecoded(*shape: int) -> Array:
    made = drawn(*shape, seed=4)
    made[..., 2:4] = made[..., 2:4] * 2 - 0.5
    return made


def by_stride(kinds: dict[str, int], strides: tuple[int, ...], **limits: float) -> Arrays:
    made = {}
    for stride in strides:
        count = -(-SIZE[0] // stride) * -(-SIZE[1] // stride)
        made |= {k.format(stride): drawn(1, count, n, seed=stride + n, **limits) for k, n in kinds.items()}  # type: ignore
    return made


def by_two(highs: Mapping[int, float]) -> Arrays:
    """Outputs of so many columns for each stride, with the highest number in them, of two anchors a cell."""
    counts = [2 * -(-SIZE[0] // stride) * -(-SIZE[1] // stride) for stride in (8, 16, 32)]
    kinds = [(n, high, count) for n, high in highs.items() for count in counts]
    return {f"{n}_{count}": drawn(1, count, n, high=high, seed=n + count) for n, high, count in kinds}


def fcos() -> Arrays:
    made = {}
    for level in range(3, 8):
        h, w = -(-SIZE[1] // 2**level), -(-SIZE[0] // 2**level)
        made[f"P{level}logits"] = drawn(1, 3, h, w, seed=level, low=-3, high=3)
        made[f"P{level}bbox_reg"] = drawn(1, 4, h, w, seed=level + 9, high=40)
        made[f"P{level}centerness"] = drawn(1, 1, h, w, seed=level + 18, low=-1, high=4)
    return made


def retinaface() -> Arrays:
    scores = drawn(1, 2 * CELLS, 2)
    return {"b": drawn(1, 2 * CELLS, 4, low=-2, high=2), "s": scores, "m": drawn(1, 2 * CELLS, 10, low=-3, high=3)}


def tensorflow() -> Arrays:
    return {
        "detection_boxes": corners(20, (1, 1)), "detection_scores": drawn(1, 20),
        "detection_classes": numpy.float32(numpy.arange(20) % 3 + 1)[None], "num_detections": numpy.float32([12]),
    }


def boxes() -> Arrays:
    return {"b": corners(20, SIZE)[0], "s": drawn(20), "k": numpy.arange(20) % 3}


def centernet(low: float = 0.0) -> Arrays:
    return {"hm": drawn(1, 3, 16, 24, low=low), "wh": drawn(1, 2, 16, 24, high=9), "reg": drawn(1, 2, 16, 24)}


def text() -> Arrays:
    made = drawn(1, 24, 5)
    made[0, :, 0] *= 1.4
    made[0, 3:6], made[0, 20] = made[0, 3], [0, 0, 0, 9, 0]
    return {"y": made}


def masks() -> Arrays:
    """YOLOv8-seg's: steps of a sixteenth, so that the masks' sums and their weights by halves are exact."""
    kinds, prototypes = drawn(1, CELLS, 5, seed=1, low=-1), drawn(1, 5, 16, 24, seed=2, low=-1)
    columns = numpy.concatenate([rows(CELLS, 4), numpy.round(kinds * 16) / 16], 2).transpose(0, 2, 1)
    return {"y": columns, "p": numpy.round(prototypes * 16) / 16}


def regions_of_text() -> Arrays:
    made = drawn(1, 1, 64, 96, high=0.2)
    made[0, 0, 8:20, 10:60] += 0.75
    made[0, 0, 36:50, 30:90] += 0.7
    return {"y": made}


CASES: dict[str, Callable[[], Arrays]] = {
    "yolox": lambda: {"y": undecoded(1, CELLS, 9)},
    "yolov5": lambda: {"y": rows(3 * CELLS, 5)},
    "yolov8": lambda: {"y": rows(CELLS, 4).transpose(0, 2, 1)},
    "yolov10": lambda: {"y": numpy.concatenate([corners(30, SIZE), drawn(1, 30, 1), drawn(1, 30, 1, high=3)], 2)},
    "yolov8-seg": masks,
    "yolov8-pose": lambda: {"y": (rows(CELLS, 1 + 9) * numpy.float32([1] * 5 + [60, 60, 1] * 3)).transpose(0, 2, 1)},
    "yolov5-face": lambda: {"y": rows(3 * CELLS, 1 + 10 + 1) * numpy.float32([1] * 5 + [60] * 10 + [1])},
    "retinaface": retinaface,
    "ssd": lambda: {"boxes": corners(40, (1, 1)), "scores": drawn(1, 40, 3)},
    "anchors": lambda: {"b": drawn(1, 48, 4, low=-2, high=2), "s": drawn(1, 48, 3)},
    "yunet": lambda: by_stride({"cls_{}": 1, "obj_{}": 1, "bbox_{}": 4, "kps_{}": 10}, (8, 16, 32)),
    "nanodet": lambda: {"y": drawn(1, CELLS + 2, 36, low=-2)},
    "nanodet-m": lambda: by_stride({"cls_pred_stride_{}": 3, "dis_pred_stride_{}": 32}, (8, 16, 32)),
    "scrfd": lambda: by_two({1: 1, 4: 2, 10: 4}),
    "fastestdet": lambda: {"y": drawn(1, 8, 4, 6, low=0.01)},
    "faceboxes": lambda: {"b": drawn(1, 129, 4, low=-2, high=2), "s": drawn(1, 129, 2)},
    "fcos": fcos,
    "tensorflow": tensorflow,
    "centernet": centernet,
    "boxes": boxes,
    "movenet": lambda: {"y": drawn(1, 1, 17, 3)},
    "simcc": lambda: {"w": drawn(1, 3, 192), "y": drawn(1, 3, 128, seed=1)},
    "heatmaps": lambda: {"y": drawn(1, 4, 16, 24)},
    "indices": lambda: {"y": numpy.random.default_rng(0).integers(0, 5, (1, 64, 96))},
    "logits": lambda: {"y": drawn(1, 5, 16, 24)},
    "mask": lambda: {"y": drawn(1, 1, 16, 24)},
    "map": lambda: {"y": drawn(1, 16, 24, high=9)},
    "image": lambda: {"y": drawn(1, 3, 32, 48, low=-20, high=300)},
    "scores": lambda: {"y": drawn(1, 50)},
    "ctc": text,
    "dbnet": regions_of_text,
}
SEEN = Description(answers=True, picture={"size": (640, 480), "model": (1, 1)})  # answers on the frame


def identity(arrays: Arrays) -> Graph:
    """A model that takes a picture and gives its other inputs as outputs."""
    inputs = [Tensor.input("x", (1, 3, SIZE[1], SIZE[0]))]
    inputs += [Tensor.input(f"in_{name}", array.shape, str(array.dtype)) for name, array in arrays.items()]
    named = zip(arrays, inputs[1:], strict=True)
    return build_graph({name: each * 1 for name, each in named}, inputs)


def task_of(head: str, arrays: Arrays, **said: Any) -> Task:
    said = {"anchors": ANCHORS if head == "anchors" else (), **said}
    outputs = {name: (str(array.dtype), array.shape) for name, array in arrays.items()}
    labels = tuple("abc") if head == "ctc" else ()
    task = find_task(outputs, SIZE, Description(head=head, labels=labels, **said))
    assert task
    return task


def both(
    head: str, arrays: Arrays, device: DeviceInfo | str, most: int = MOST_DETECTIONS, how: Preparation | None = None,
    **said: Any,
) -> tuple[Any, Any, Arrays]:
    """The answers of the graph and of numpy, and the graph's outputs."""
    task = task_of(head, arrays, **said)
    picture = PictureStage(PictureInput("x", "float32", (1, 3, SIZE[1], SIZE[0])), how) if how else None
    graph = identity(arrays)
    outputs = {name: (str(array.dtype), array.shape) for name, array in arrays.items()}
    shapes = {"picture": (FRAME[1], FRAME[0], 3)}
    declared = {value.name: (value.dtype, value.shape) for value in graph.inputs}
    given = {name: declared[name] for name in ("x",)}
    stage = answer_stage(given, shapes, outputs, task.description, picture, most)
    stage = AnswerStage(Task(head, stage.task.description), most, "x", picture)
    made = imgconv.load(stage.append_to(graph, shapes), device)
    inputs = {f"in_{name}": array for name, array in arrays.items()}
    found = made.run({"x": numpy.zeros((1, 3, SIZE[1], SIZE[0]), numpy.float32), **inputs})
    placement = PicturePlacement.of(FRAME, SIZE, how) if how else PicturePlacement(SIZE, SIZE, SIZE, (0, 0, *SIZE))
    picture_size = {"size": placement.picture, "model": SIZE}
    about = Description(labels=stage.task.description.labels, answers=True, picture=picture_size)
    answer, = Task(head, about).decode(found, placement).values()
    wanted, = task.decode(arrays, placement).values()
    return answer, wanted, found


def check(head: str, answer: Any, wanted: Any) -> None:
    if isinstance(wanted, Detections):
        assert len(answer.found) == len(wanted.found) > 2
        assert [each.label.index for each in answer.found] == [each.label.index for each in wanted.found]
        for name in ("box", "points"):
            pair = [numpy.array([getattr(each, name) for each in them.found]) for them in (answer, wanted)]
            numpy.testing.assert_allclose(*pair, rtol=CLOSE, atol=CLOSE * 100)
        scores = [[each.label.score for each in them.found] for them in (answer, wanted)]
        numpy.testing.assert_allclose(*scores, rtol=CLOSE)
        if wanted.found[0].mask is not None:
            pair = [numpy.array([each.mask for each in them.found]) for them in (answer, wanted)]
            assert 0.01 < pair[1].mean() < 0.5
            # A pixel whose sum is 0 but for the rounding of a resized map may be on either side.
            assert (pair[0] != pair[1]).mean() < 1e-5
    elif isinstance(wanted, Pose):
        numpy.testing.assert_allclose(answer.points, wanted.points, rtol=CLOSE, atol=CLOSE)
    elif isinstance(wanted, Segmentation):
        assert len(numpy.unique(wanted.mask)) > 1
        numpy.testing.assert_array_equal(answer.mask, wanted.mask)
    elif isinstance(wanted, Depth):
        assert numpy.isnan(wanted.values).mean() < 0.7
        numpy.testing.assert_allclose(answer.values, wanted.values, rtol=CLOSE, atol=CLOSE)
    elif isinstance(wanted, Picture):
        pair = numpy.array([numpy.asarray(draw(GREY, each, "bgr"), int) for each in (answer, wanted)])
        # A byte that is rounded from half a step away may differ: by the device's order of a product.
        assert abs(pair[0] - pair[1]).max() <= 1 and (pair[0] != pair[1]).mean() < 1e-3 and len(numpy.unique(pair)) > 99
    elif isinstance(wanted, Texts):
        assert [each.text for each in answer.found] == [each.text for each in wanted.found]
        assert len(wanted.found) > 1 or len(wanted.found[0].text) > 3
        for each, other in zip(answer.found, wanted.found, strict=True):
            assert each.score == pytest.approx(other.score, rel=CLOSE)
            assert numpy.array(each.corners) == pytest.approx(numpy.array(other.corners))
    else:
        assert [each.index for each in answer.top] == [each.index for each in wanted.top]


@pytest.mark.parametrize("head", CASES)
def test_the_graph_decodes_as_numpy(head: str, device: DeviceInfo) -> None:
    check(head, *both(head, CASES[head](), device, score=0.4)[:2])


@pytest.mark.parametrize("resize", ["letterbox", "crop", "stretch"])
@pytest.mark.parametrize("head", ["yolox", "yolov8-seg", "yunet", "heatmaps", "logits", "mask", "map"])
def test_answers_are_on_the_picture(head: str, resize: Any, device: DeviceInfo) -> None:
    how = Preparation(resize, crop=0.8 if resize == "crop" else 1.0)
    check(head, *both(head, CASES[head](), device, how=how, score=0.4)[:2])


def test_every_head_is_decoded() -> None:
    assert set(CASES) == set(HEADS)
    for head in CASES:
        assert isinstance(HEADS[head].decode, (BoxDecoder, KeypointDecoder, SegmentationDecoder)) or head in OTHERS


@pytest.mark.models
@needs_models
@pytest.mark.parametrize(("path", "head"), [("yolox_nano/yolox_nano.onnx", "yolox"), ("ultraface", "ssd")])
def test_published_models(path: str, head: str, device: DeviceInfo) -> None:
    """The boxes of each picture, given as a frame, are those that `tasks` decodes from the network's outputs."""
    file = REAL / path if path.endswith(".onnx") else sorted((REAL / path).glob("*.onnx"))[0]
    model = imgconv.load(file, device)
    outputs = {name: (value.dtype, value.shape) for name, value in model.outputs.items()}
    (taken,) = model.inputs.values()
    size = taken.shape[3], taken.shape[2]
    task = find_task(outputs, size, Description(head=head))
    assert task
    how = Preparation(**{**task.description.preparation, "format": "nv12"})
    seen = model.preprocess((480, 640), **vars(how))
    answers = with_answers(seen, task.description)
    count = 0
    for picture in sorted(file.parent.glob("*.jpg")):
        frame = camera_frame(Image.open(picture).convert("RGB"), (640, 480), how)
        place = PicturePlacement.of((640, 480), size, how)
        (wanted,) = task.decode(seen.run({"picture": frame}), place).values()
        found = read_answers("detect", answers.run({"picture": frame}), SEEN, place)["boxes"]
        assert isinstance(wanted, Detections) and isinstance(found, Detections)
        assert [each.label.index for each in found.found] == [each.label.index for each in wanted.found]
        for one, other in zip(found.found, wanted.found, strict=True):
            # Coordinates of up to 640 pixels, of a product and a sum in float.
            assert one.box == pytest.approx(other.box, abs=1e-3)
        count += len(wanted.found)
    assert count > 3


def test_undecoded_boxes_of_ssd(device: DeviceInfo) -> None:
    """Boxes that are no corners are relative to anchors."""
    arrays = {"boxes": drawn(1, 48, 4, low=-2, high=2), "scores": drawn(1, 48, 3)}
    check("ssd", *both("ssd", arrays, device, score=0.4, anchors=ANCHORS)[:2])


def test_centernets_logits(device: DeviceInfo) -> None:
    """Values outside of 0 to 1 go through a sigmoid."""
    check("centernet", *both("centernet", centernet(-1.0), device, score=0.4)[:2])


def test_boxes_of_several_classes_among_many_cells(device: DeviceInfo) -> None:
    """More cells than candidates: those with the best scores are found first. Many scores are equal."""
    arrays = {"hm": drawn(1, 5, 48, 64), "wh": drawn(1, 2, 48, 64, high=9), "reg": drawn(1, 2, 48, 64)}
    assert 48 * 64 > CANDIDATES
    arrays["hm"] = numpy.round(arrays["hm"] * 64) / 64
    check("centernet", *both("centernet", arrays, device, score=0.97)[:2])


def test_equal_scores_are_in_order_of_position_and_most_cuts(device: DeviceInfo) -> None:
    """Boxes of one place and another class stay, those of the same class go; of equal ones the first is taken."""
    array = numpy.zeros((1, 30, 6), numpy.float32)
    array[0, :, :4] = numpy.repeat(corners(10, SIZE)[0], 3, axis=0)
    array[0, :, 4] = 0.75
    array[0, :, 5] = numpy.tile([1, 0, 1], 10)
    answer, wanted, _ = both("yolov10", {"y": array}, device, score=0.5, overlap=0.9)
    assert len(wanted.found) == 20 and [each.label.index for each in wanted.found] == [1, 0] * 10
    check("yolov10", answer, wanted)
    few, _, arrays = both("yolov10", {"y": array}, device, most=3, score=0.5, overlap=0.9)
    assert few.found == answer.found[:3] and arrays["boxes"].shape == (3, 4)


def test_after_the_count_there_is_nothing(device: DeviceInfo) -> None:
    _, wanted, found = both("yolov10", CASES["yolov10"](), device, score=0.9, most=50)
    count = int(found["count"][0])
    assert 0 < count == len(wanted.found) < 30
    assert not found["boxes"][count:].any() and not found["scores"][count:].any()
    assert (found["classes"][count:] == -1).all()
    assert {name: (array.dtype, array.shape) for name, array in found.items()} == {
        "boxes": (numpy.float32, (50, 4)), "scores": (numpy.float32, (50,)), "classes": (numpy.int32, (50,)),
        "count": (numpy.int32, (1,)),
    }
    _, _, nothing = both("yolov10", CASES["yolov10"](), device, score=1.5)
    assert nothing["count"].tolist() == [0]


def test_answers_are_on_the_frame_as_it_is_shown(device: DeviceInfo) -> None:
    """A bright pixel in memory, back from its place in the picture by the table of docs/native.md."""
    x = Tensor.input("x", (1, 3, SIZE[1], SIZE[0]))
    model = imgconv.load(build_graph({"y": x * 1}, [x]), device).preprocess(SIZE[::-1])
    seen = with_answers(model, Description(head="heatmaps"))
    for rotation, mirror in itertools.product((0, 90, 180, 270), (False, True)):
        width, height = SIZE[::-1] if rotation % 180 else SIZE
        left, top, column, row = 4, 6, 24, 17
        memory = numpy.zeros((height + 10, width + 8, 3), numpy.uint8)
        memory[row, column] = 255
        region = left, top, width, height
        frame = imgconv.VideoFrame([imgconv.Plane(memory)], width + 8, height + 10, rotation, mirror, region)
        across, down = seen.run({"picture": frame})["points"][0, :2] + 0.5  # the middle of the pixel
        if mirror:
            across = SIZE[0] - across
        back = {
            0: (left + across, top + down), 90: (left + down, top + height - across),
            180: (left + width - across, top + height - down), 270: (left + width - down, top + across),
        }
        assert back[rotation] == (column + 0.5, row + 0.5), (rotation, mirror)


def test_labels_are_by_the_number_of_the_class() -> None:
    arrays = CASES["ssd"]()
    outputs = {name: (str(array.dtype), array.shape) for name, array in arrays.items()}
    given = {"x": ("float32", (1, 3, 64, 96))}
    for labels in (("a", "b"), ("background", "a", "b")):
        stage = answer_stage(given, {}, outputs, Description(head="ssd", labels=labels), None)
        assert stage.task.description.labels == ("background", "a", "b")
    with pytest.raises(InputError, match="2 classes, but there are 4 labels"):
        answer_stage(given, {}, outputs, Description(head="ssd", labels=tuple("abcd")), None)


def test_outputs_of_another_head_are_refused() -> None:
    with pytest.raises(InputError, match="head 'yolox' expects"):
        answer_stage(
            {"x": ("float32", (1, 3, 64, 96))}, {}, {"y": ("float32", (1, 7, 9))},
            Description(head="yolox", labels=tuple("abcd")), None,
        )


def test_a_model_with_answers_is_saved_with_its_labels(device: DeviceInfo, tmp_path: Any) -> None:
    x = Tensor.input("x", (1, 3, SIZE[1], SIZE[0]))
    noise = Tensor.constant(undecoded(1, CELLS, 9))
    graph = build_graph({"boxes": noise * (x.mean() * 0 + 1)}, [x])
    model = imgconv.load(graph, device)
    labels = ("a", "b", "c", "ä")
    made = with_answers(model.preprocess((120, 120)), Description(head="yolox", labels=labels, score=0.4), most=9)
    frame = numpy.full((120, 120, 3), 7, numpy.uint8)
    wanted = made.run({"picture": frame})
    assert wanted["count"][0] > 2 and wanted["boxes"].shape == (9, 4)
    path = tmp_path / "a.imgconv"
    made.save(path)
    loaded = imgconv.load(path, device)
    for name, array in loaded.run({"picture": frame}).items():
        numpy.testing.assert_array_equal(array, wanted[name])
    with pytest.raises(ConfigError, match="outputs are fixed"):
        with_answers(loaded)
    half = imgconv.load(graph, device, float16=1).preprocess((120, 120))
    answered = with_answers(half, Description(head="yolox", labels=labels, score=0.4), most=9)
    numpy.testing.assert_allclose(answered.run({"picture": frame})["boxes"], wanted["boxes"], atol=0.25)
