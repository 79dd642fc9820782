"""Boxes from made outputs, against decoders that take one row after another, by the formulas of each project."""

from __future__ import annotations

import math
import re
from itertools import product
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imgconv.errors import InputError
from imgconv.preprocess import Preparation
from imgconv.tasks import Description, Detections, PicturePlacement, find_task, suppress

SIZE = (96, 64)
CELLS = 12 * 8 + 6 * 4 + 3 * 2
LETTERBOX = PicturePlacement.of((300, 100), SIZE, Preparation("letterbox"))
SAME = PicturePlacement.of(SIZE, SIZE, Preparation())


def overlap(a: Any, b: Any) -> float:
    """Intersection over union."""
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    shared = max(width, 0) * max(height, 0)
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared
    return shared / union if union > 0 else 0.0


def slowly_suppressed(boxes: Any, scores: Any, most: float) -> list[int]:
    """A box stays unless a better one that stays overlaps it."""
    kept: list[int] = []
    for i in sorted(range(len(scores)), key=lambda i: (-scores[i], i)):
        if all(overlap(boxes[i], boxes[j]) <= most for j in kept):
            kept.append(i)
    return kept


def expected(rows: list[tuple[Any, Any]], least: float, most: float) -> list[tuple[int, float, list[float]]]:
    """(Class, score, corners), best first, of rows (corners, scores of the classes)."""
    found = []
    best = [max(range(len(scores)), key=lambda k: (scores[k], -k)) for _, scores in rows]
    for kind in range(len(rows[0][1])):
        mine = [i for i in range(len(rows)) if best[i] == kind and rows[i][1][kind] > least]
        for j in slowly_suppressed([rows[i][0] for i in mine], [rows[i][1][kind] for i in mine], most):
            found.append((kind, float(rows[mine[j]][1][kind]), [float(n) for n in rows[mine[j]][0]]))
    return sorted(found, key=lambda each: -each[1])


def check(answer: Any, wanted: list[tuple[int, float, list[float]]], size: tuple[int, int] = SIZE) -> None:
    assert isinstance(answer, Detections) and wanted
    assert [each.label.index for each in answer.found] == [kind for kind, _, _ in wanted]
    limits = [*size, *size]
    for each, (_, score, corners) in zip(answer.found, wanted, strict=True):
        assert each.label.score == pytest.approx(score, abs=1e-6)
        clipped = [min(max(n, 0), limit) for n, limit in zip(corners, limits)]
        assert each.box == pytest.approx(clipped, abs=1e-3)


def draw(seed: int, *shape: int) -> Any:
    return numpy.random.default_rng(seed).random(shape, numpy.float32)


def grid() -> list[tuple[int, int, int]]:
    """Column, row and stride of each cell."""
    return [(x, y, s) for s in (8, 16, 32) for y in range(SIZE[1] // s) for x in range(SIZE[0] // s)]


def test_suppression_of_equal_scores_keeps_the_first() -> None:
    boxes = numpy.array([[0, 0, 10, 10], [1, 0, 11, 10], [20, 0, 30, 10], [0, 0, 10, 4]], float)
    assert suppress(boxes, numpy.array([0.8, 0.9, 0.7, 0.6]), 0.5).tolist() == [1, 2, 3]
    assert suppress(boxes, numpy.array([0.9, 0.9, 0.7, 0.6]), 0.5, most=2).tolist() == [0, 2]
    assert suppress(boxes[:0], numpy.array([]), 0.5).tolist() == []
    assert suppress(numpy.zeros((2, 4)), numpy.ones(2), 0.5).tolist() == [0, 1]


def test_groups_do_not_touch_each_other() -> None:
    boxes = numpy.tile(numpy.array([[0, 0, 10, 10], [0, 0, 10, 9]], numpy.float32), (3, 1))
    groups, scores = numpy.array([7, 7, 2, 2, 7, 5]), numpy.array([0.1, 0.2, 0.9, 0.3, 0.3, 0.4])
    assert suppress(boxes, scores, 0.5, groups=groups).tolist() == [2, 5, 4]
    assert suppress(boxes, scores, 0.95, most=2, groups=groups).tolist() == [2, 3, 5, 4, 1]


BOXES = st.lists(st.tuples(*[st.integers(0, 12)] * 4, st.integers(0, 9)), max_size=12)


@given(BOXES, st.sampled_from([0.0, 0.25, 0.5, 1.0]))
def test_suppression_is_greedy(drawn: list[tuple[int, ...]], most: float) -> None:
    boxes = [(x, y, x + w + 1, y + h + 1) for x, y, w, h, _ in drawn]
    scores = [score / 10 for *_, score in drawn]
    assert suppress(numpy.array(boxes), numpy.array(scores), most).tolist() == slowly_suppressed(boxes, scores, most)


def test_yolox() -> None:
    raw = draw(1, CELLS, 5 + 4)
    raw[:, 2:4] = raw[:, 2:4] * 2 - 0.5
    rows = []
    for (x, y, stride), row in zip(grid(), raw.astype(numpy.float64), strict=True):
        cx, cy = (row[0] + x) * stride, (row[1] + y) * stride
        w, h = math.exp(row[2]) * stride, math.exp(row[3]) * stride
        rows.append(([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], row[4] * row[5:]))
    task = find_task({"y": ("float32", (1, CELLS, 9))}, SIZE, Description(score=0.5, overlap=0.3))
    assert task and (task.name, task.head) == ("detect", "yolox")
    assert task.description.preparation == {"resize": "letterbox", "filter": "bilinear", "order": "bgr"}
    check(task.decode({"y": raw[None]}, SAME)["y"], expected(rows, 0.5, 0.3))


@pytest.mark.parametrize("head", ["yolov5", "yolov8"])
def test_boxes_in_pixels(head: str) -> None:
    """YOLOv5 has three rows for each cell and a score for any object; YOLOv8 has columns, without that score."""
    count = CELLS * (3 if head == "yolov5" else 1)
    raw = draw(2, count, 9)
    raw[:, :4] *= [96, 64, 60, 40]
    rows = []
    for cx, cy, w, h, *scores in raw.astype(numpy.float64):
        kinds = [scores[0] * n for n in scores[1:]] if head == "yolov5" else scores
        rows.append(([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], kinds))
    array = raw[None] if head == "yolov5" else raw.T[None]
    task = find_task({"y": ("float32", array.shape)}, SIZE, Description(score=0.6, labels=tuple("abcde")[: len(kinds)]))
    assert task and task.head == head and task.description.preparation["scale"] == 1 / 255
    answer = task.decode({"y": array}, SAME)["y"]
    check(answer, expected(rows, 0.6, 0.45))
    assert {each.label.name for each in answer.found} <= set("abcde")


def test_boxes_without_suppression() -> None:
    """YOLOv10's rows: equal boxes stay, those under the least score go."""
    rows = numpy.array([[[8, 4, 40, 20, 0.9, 2], [8, 4, 40, 20, 0.8, 2], [1, 2, 3, 4, 0.4, 0]]], numpy.float32)
    task = find_task({"y": ("float32", rows.shape)}, SIZE, Description(labels=tuple("abcd")))
    assert task and task.head == "yolov10" and task.description.preparation["resize"] == "letterbox"
    answer = task.decode({"y": rows}, SAME)["y"]
    check(answer, [(2, 0.9, [8, 4, 40, 20]), (2, 0.8, [8, 4, 40, 20])])
    assert {each.label.name for each in answer.found} == {"c"}
    assert find_task({"y": ("float32", (1, CELLS, 6))}, SIZE, Description()).head == "yolox"  # type: ignore[union-attr]


def test_boxes_are_placed_on_the_picture() -> None:
    """A letterbox of 300x100 in 96x64 is 96x32: a pixel of the input is 3.125 of the picture."""
    raw = numpy.zeros((1, 4 + 1, CELLS), numpy.float32)
    raw[0, :, 7] = 48, 16, 20, 10, 0.9
    task = find_task({"y": ("float32", raw.shape)}, SIZE, Description())
    found, = task.decode({"y": raw}, LETTERBOX)["y"].found  # type: ignore[union-attr]
    assert found.box == pytest.approx([118.75, 34.375, 181.25, 65.625])
    raw[0, :4, 7] = 48, 32, 200, 100
    found, = task.decode({"y": raw}, LETTERBOX)["y"].found  # type: ignore[union-attr]
    assert found.box == (0, 0, 300, 100)


def test_a_crop_is_placed_on_the_picture() -> None:
    placement = PicturePlacement.of((300, 100), (50, 50), Preparation("crop", crop=0.5))
    points = placement.to_picture(numpy.array([[0.0, 0.0], [50.0, 50.0], [25.0, 25.0]]))
    assert points.tolist() == [[125, 25], [175, 75], [150, 50]]


def test_keypoints_of_yolov8() -> None:
    raw = numpy.zeros((1, 5 + 6, CELLS), numpy.float32)
    raw[0, :, 7] = 48, 16, 20, 10, 0.9, 40, 12, 0.8, 50, 20, 0.3
    description = Description(head="yolov8-pose", labels=("person",))
    task = find_task({"y": ("float32", raw.shape)}, SIZE, description)
    assert task.name == "pose"
    found, = task.decode({"y": raw}, LETTERBOX)["y"].found  # type: ignore[union-attr]
    assert found.label.name == "person"
    assert numpy.array(found.points) == pytest.approx(numpy.array([[125, 37.5, 0.8], [156.25, 62.5, 0.3]]))


def priors(levels: list[tuple[int, tuple[int, ...]]]) -> list[tuple[float, float, float, float]]:
    """Centre and size of each anchor as parts of the input, as PriorBox of Pytorch_Retinaface makes them."""
    found = []
    for stride, sides in levels:
        for y in range(math.ceil(SIZE[1] / stride)):
            for x in range(math.ceil(SIZE[0] / stride)):
                for side in sides:
                    centre = (x + 0.5) * stride / SIZE[0], (y + 0.5) * stride / SIZE[1]
                    found.append((*centre, side / SIZE[0], side / SIZE[1]))
    return found


def decoded(row: Any, prior: Any) -> list[float]:
    """A box by box_utils.decode of Pytorch_Retinaface, variances 0.1 and 0.2, in pixels."""
    cx, cy = prior[0] + row[0] * 0.1 * prior[2], prior[1] + row[1] * 0.1 * prior[3]
    w, h = prior[2] * math.exp(row[2] * 0.2), prior[3] * math.exp(row[3] * 0.2)
    corners = cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2
    return [n * side for n, side in zip(corners, (*SIZE, *SIZE))]


def test_retinaface() -> None:
    anchors = priors([(8, (16, 32)), (16, (64, 128)), (32, (256, 512))])
    loc, marks, conf = draw(3, len(anchors), 4) - 0.5, draw(4, len(anchors), 10) - 0.5, draw(5, len(anchors), 2)
    rows = [(decoded(row, prior), scores[1:]) for row, prior, scores in zip(loc.astype(float), anchors, conf)]
    wanted = [(kind + 1, score, corners) for kind, score, corners in expected(rows, 0.5, 0.4)]
    arrays = {"loc": loc[None], "conf": conf[None], "landms": marks[None]}
    task = find_task({name: ("float32", array.shape) for name, array in arrays.items()}, SIZE, Description())
    assert task and task.head == "retinaface"
    answer = task.decode(arrays, SAME)["loc"]
    check(answer, wanted)
    first = max(range(len(rows)), key=lambda i: rows[i][1][0])
    prior = anchors[first]
    points = [
        ((prior[0] + x * 0.1 * prior[2]) * SIZE[0], (prior[1] + y * 0.1 * prior[3]) * SIZE[1])
        for x, y in marks[first].reshape(5, 2)
    ]
    assert [each[:2] for each in answer.found[0].points] == [pytest.approx(point, abs=1e-3) for point in points]
    assert {each.label.name for each in answer.found} == {"face"}


def test_anchors_of_a_description() -> None:
    """Sizes may be wide; there may be any number of classes, of which the first is the background."""
    levels = [{"stride": 16, "sizes": [[20, 20], [40, 10]]}, {"stride": 64, "sizes": [[60, 60]]}]
    anchors = [
        ((x + 0.5) * s / SIZE[0], (y + 0.5) * s / SIZE[1], w / SIZE[0], h / SIZE[1])
        for s, sizes in ((16, [(20, 20), (40, 10)]), (64, [(60, 60)]))
        for y in range(math.ceil(SIZE[1] / s)) for x in range(math.ceil(SIZE[0] / s)) for w, h in sizes
    ]
    loc, conf = draw(6, len(anchors), 4) - 0.5, draw(7, len(anchors), 4)
    conf[:, 0] = 0
    rows = [(decoded(row, prior), scores[1:]) for row, prior, scores in zip(loc.astype(float), anchors, conf)]
    wanted = [(kind + 1, score, corners) for kind, score, corners in expected(rows, 0.8, 0.3)]
    description = Description(head="anchors", anchors=tuple(levels), score=0.8, overlap=0.3, labels=("a", "b", "c"))
    arrays = {"scores": conf[None], "loc": loc[None]}
    task = find_task({name: ("float32", array.shape) for name, array in arrays.items()}, SIZE, description)
    # The scores have four numbers too: the output of boxes is the first with four.
    with_names = {"loc": arrays["loc"], "scores": arrays["scores"]}
    answer = task.decode(with_names, SAME)["loc"]
    check(answer, wanted)
    assert {each.label.name for each in answer.found} == {"a", "b", "c"}
    with pytest.raises(InputError, match="anchors"):
        find_task({}, SIZE, Description(head="anchors")).decode(with_names, SAME)
    fewer = Description(head="anchors", anchors=({"stride": 16, "sizes": [[20, 20]]},))
    with pytest.raises(InputError, match=f"{len(anchors)} boxes, and the description 24 anchors"):
        find_task({}, SIZE, fewer).decode(with_names, SAME)


def test_ssd_boxes_are_parts_of_the_input() -> None:
    corners, scores = draw(8, 200, 2) * 0.7, draw(9, 200, 3)
    boxes = numpy.concatenate([corners, corners + draw(10, 200, 2) * 0.3], axis=1)
    scores[:, 0] = 0
    rows = [(box.astype(float) * [*SIZE, *SIZE], row[1:]) for box, row in zip(boxes, scores)]
    wanted = [(kind + 1, score, found) for kind, score, found in expected(rows, 0.7, 0.3)]
    arrays = {"scores": scores[None], "boxes": boxes[None]}
    task = find_task({name: ("float32", array.shape) for name, array in arrays.items()}, SIZE, Description())
    assert task and task.head == "ssd"
    check(task.decode(arrays, SAME)["boxes"], wanted)


def test_ssd_boxes_may_be_relative_to_anchors() -> None:
    """To UltraFace's, or to those of the description; with others there is no way to decode them."""
    anchors = priors([(8, (10, 16, 24)), (16, (32, 48)), (32, (64, 96)), (64, (128, 192, 256))])
    loc, scores = draw(8, len(anchors), 4) * 4 - 2, draw(9, len(anchors), 2)
    rows = [(decoded(row, prior), each[1:]) for row, prior, each in zip(loc.astype(float), anchors, scores)]
    wanted = [(kind + 1, score, found) for kind, score, found in expected(rows, 0.7, 0.3)]
    arrays = {"scores": scores[None], "boxes": loc[None]}
    task = find_task({name: ("float32", array.shape) for name, array in arrays.items()}, SIZE, Description())
    assert task and task.head == "ssd"
    check(task.decode(arrays, SAME)["boxes"], wanted)
    with pytest.raises(InputError, match='the 40 boxes in .boxes. are not corners.*"anchors"'):
        task.decode({name: array[:, :40] for name, array in arrays.items()}, SAME)


def test_yolov5_face() -> None:
    """Landmarks stand between the score of a box and that of its class; YOLOv5's head takes them for no class."""
    raw = draw(12, 3 * CELLS, 16)
    raw[:, :4] *= [96, 64, 60, 40]
    raw[:, 5:15] *= 60
    rows = [
        ([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], [sure * kind])
        for cx, cy, w, h, sure, *_, kind in raw.astype(numpy.float64)
    ]
    answer = find_task({}, SIZE, Description(head="yolov5-face")).decode({"y": raw[None]}, SAME)["y"]
    check(answer, expected(rows, 0.5, 0.45))
    first = max(range(len(rows)), key=lambda i: rows[i][1][0])
    assert [each[:2] for each in answer.found[0].points] == [tuple(p) for p in raw[first, 5:15].reshape(5, 2).tolist()]
    assert {each.label.name for each in answer.found} == {"face"}
    guessed = find_task({"y": ("float32", (1, 3 * CELLS, 16))}, SIZE, Description())
    with pytest.raises(InputError, match="--head yolov5-face"):
        guessed.decode({"y": raw[None]}, SAME)


@pytest.mark.parametrize(
    ("head", "shape", "other"),
    [
        ("yolov8", (1, CELLS, 85), "yolox"), ("yolox", (1, 84, CELLS), "yolov8"),
        ("yolov10", (1, 3 * CELLS, 6), "yolov5"),
    ],
)
def test_a_head_that_the_shapes_contradict(head: str, shape: tuple[int, ...], other: str) -> None:
    """A layout of no head, as with a fourth stride or an unknown input size, may be the one that is named."""
    outputs, said = {"y": ("float32", shape)}, Description(head=head)
    with pytest.raises(InputError, match=f"head '{head}' expects .* are y .*those of head '{other}'"):
        find_task(outputs, SIZE, said)
    assert find_task(outputs, (0, 0), said).head == find_task(outputs, (1000, 1000), said).head == head


@pytest.mark.parametrize(
    ("head", "right", "wrong"),
    [
        ("yolov5-face", (1, 99, 16), (1, 99, 85)), ("yolov8-pose", (1, 56, 99), (1, 84, 99)),
        ("movenet", (1, 1, 13, 3), (1, 3, 64, 64)), ("heatmaps", (1, 17, 64, 48), (1, 17)),
        ("logits", (1, 3, 9, 9), (1, 21)), ("indices", (1, 64, 64), (1, 3, 64, 64)),
        ("mask", (1, 64, 64, 1), (1, 3, 64, 64)), ("map", (1, 64, 64), (1, 84, 99, 85)),
        ("dbnet", (1, 1, 64, 64), (1, 3, 64, 64)), ("ctc", (1, 40, 97), (1, 97)), ("anchors", None, (1, 99, 4)),
        ("simcc", None, (1, 17, 384)),
        ("scores", (1, 10), (1, 3, 64, 64)), ("image", (1, 3, 8, 8), (1, 1000)),
    ],
)
def test_a_head_that_cannot_have_these_shapes(head: str, right: tuple[int, ...] | None, wrong: tuple[int, ...]) -> None:
    """The error names both, before anything runs; shapes that the head may have, and unknown ones, are accepted."""
    said = Description(head=head)
    with pytest.raises(InputError, match=re.escape(f"head '{head}' expects") + ".*" + re.escape(f"y {list(wrong)}")):
        find_task({"y": ("float32", wrong)}, SIZE, said)
    for shape in (right, None, (-1, *wrong[1:])) if right else (None,):
        found = find_task({"y": ("float32", shape)}, SIZE, said)
        assert found and found.head == head


def test_yunet() -> None:
    """By postProcess of OpenCV's face_detect.cpp; scores a little outside of 0 to 1 are clamped."""
    arrays, rows, marks = {}, [], []
    for number, stride in enumerate((8, 16, 32)):
        count = (SIZE[0] // stride) * (SIZE[1] // stride)
        cls, obj = draw(20 + number, count, 1) * 1.2 - 0.1, draw(30 + number, count, 1) * 1.2 - 0.1
        bbox, kps = draw(40 + number, count, 4) - 0.5, draw(50 + number, count, 10)
        arrays |= {f"cls_{stride}": cls, f"obj_{stride}": obj, f"bbox_{stride}": bbox, f"kps_{stride}": kps}
        for index in range(count):
            r, c = divmod(index, SIZE[0] // stride)
            score = math.sqrt(min(max(cls[index, 0], 0), 1) * min(max(obj[index, 0], 0), 1))
            cx, cy = (c + float(bbox[index, 0])) * stride, (r + float(bbox[index, 1])) * stride
            w, h = math.exp(bbox[index, 2]) * stride, math.exp(bbox[index, 3]) * stride
            rows.append(([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], [score]))
            marks.append([((kps[index, 2 * n] + c) * stride, (kps[index, 2 * n + 1] + r) * stride) for n in range(5)])
    outputs = {name: array[None] for name, array in arrays.items()}
    task = find_task({name: ("float32", array.shape) for name, array in outputs.items()}, SIZE, Description(score=0.6))
    assert task and task.head == "yunet"
    answer, = task.decode(outputs, SAME).values()
    check(answer, expected(rows, 0.6, 0.3))
    best = max(range(len(rows)), key=lambda i: rows[i][1][0])
    assert numpy.array(answer.found[0].points)[:, :2] == pytest.approx(numpy.array(marks[best]), abs=1e-3)


def test_nanodet() -> None:
    """By NanoDetPlusHead.get_bboxes: softmax of eight distances, from the corner of the cell."""
    raw = draw(60, CELLS + 2, 4 + 32)
    raw[:, 4:] *= 6
    rows = []
    cells = [*grid(), (0, 0, 64), (1, 0, 64)]
    for (x, y, stride), row in zip(cells, raw.astype(float), strict=True):
        sides = []
        for part in row[4:].reshape(4, 8):
            total = sum(math.exp(n) for n in part)
            sides.append(sum(k * math.exp(n) / total for k, n in enumerate(part)) * stride)
        corners = [x * stride - sides[0], y * stride - sides[1], x * stride + sides[2], y * stride + sides[3]]
        rows.append((corners, row[:4]))
    task = find_task({"output": ("float32", (1, *raw.shape))}, SIZE, Description(score=0.7))
    assert task and task.head == "nanodet"
    check(task.decode({"output": raw[None]}, SAME)["output"], expected(rows, 0.7, 0.6))


def test_the_first_nanodet() -> None:
    """By GFLHead of NanoDet 0.3: as NanoDet-Plus, but from the middle of the cell, and in six outputs."""
    scores, logits = draw(61, CELLS, 4), draw(62, CELLS, 32) * 6
    rows = []
    for (x, y, stride), score, row in zip(grid(), scores, logits.astype(float), strict=True):
        weights = [[math.exp(n) for n in part] for part in row.reshape(4, 8)]
        sides = [sum(k * n for k, n in enumerate(part)) / sum(part) * stride for part in weights]
        middle = (x + 0.5) * stride, (y + 0.5) * stride
        corners = [middle[0] - sides[0], middle[1] - sides[1], middle[0] + sides[2], middle[1] + sides[3]]
        rows.append((corners, score))
    arrays, start = {}, 0
    for stride in (8, 16, 32):
        stop = start + SIZE[0] // stride * (SIZE[1] // stride)
        arrays[f"cls_pred_stride_{stride}"] = scores[None, start:stop]
        arrays[f"dis_pred_stride_{stride}"] = logits[None, start:stop]
        start = stop
    task = find_task({n: ("float32", a.shape) for n, a in arrays.items()}, SIZE, Description(score=0.7))
    assert task and task.head == "nanodet-m"
    check(task.decode(arrays, SAME)["cls_pred_stride_8"], expected(rows, 0.7, 0.6))


def test_the_first_nanodet_by_its_shapes() -> None:
    """Other names, and no batch, as some exports have them."""
    shapes = {n: (SIZE[0] // s * (SIZE[1] // s), last) for n, (s, last) in enumerate(product((16, 8, 32), (32, 6)))}
    task = find_task({str(n): ("float32", shape) for n, shape in shapes.items()}, SIZE, Description())
    assert task and task.head == "nanodet-m"


def test_scrfd() -> None:
    """By SCRFD.detect of insightface: distances from the cell's corner in strides, two anchors of a cell in turn."""
    arrays, rows, marks = {}, [], []
    for stride in (8, 16, 32):
        across, down = SIZE[0] // stride, SIZE[1] // stride
        count = 2 * across * down
        score, sides, points = (draw(n + stride, count, n) for n in (1, 4, 10))
        for n in range(count):
            x, y = n // 2 % across * stride, n // 2 // across * stride
            left, top, right, bottom = (float(each) * stride for each in sides[n])
            rows.append(([x - left, y - top, x + right, y + bottom], score[n]))
            marks.append([(x + float(a) * stride, y + float(b) * stride) for a, b in points[n].reshape(5, 2)])
        arrays |= {f"kps{stride}": points, f"bbox{stride}": sides, f"score{stride}": score}
    task = find_task({n: ("float32", a.shape) for n, a in arrays.items()}, SIZE, Description(score=0.9))
    assert task and task.head == "scrfd"
    answer = task.decode(arrays, SAME)["kps8"]
    check(answer, expected(rows, 0.9, 0.4))
    first = max(range(len(rows)), key=lambda n: rows[n][1][0])
    assert [each[:2] for each in answer.found[0].points] == [pytest.approx(point, abs=1e-3) for point in marks[first]]


def test_fastestdet() -> None:
    """By detection() of its example/onnx-runtime/runtime.py."""
    wide, high = 352 // 16, 288 // 16
    maps = draw(80, 85, high, wide)
    maps[1:5] = maps[1:5] * 2 - 1
    rows = []
    for y, x in product(range(high), range(wide)):
        numbers = [float(n) for n in maps[:, y, x]]
        middle = (x + math.tanh(numbers[1])) / wide * 352, (y + math.tanh(numbers[2])) / high * 288
        half = 352 / (1 + math.exp(-numbers[3])) / 2, 288 / (1 + math.exp(-numbers[4])) / 2
        corners = [middle[0] - half[0], middle[1] - half[1], middle[0] + half[0], middle[1] + half[1]]
        rows.append((corners, [numbers[0] ** 0.6 * n**0.4 for n in numbers[5:]]))
    size = (352, 288)
    task = find_task({"y": ("float32", (1, *maps.shape))}, size, Description(score=0.95))
    assert task and task.head == "fastestdet" and task.description.labels[0] == "person"
    answer = task.decode({"y": maps[None]}, PicturePlacement(size, size, size, (0, 0, *size)))["y"]
    check(answer, expected(rows, 0.95, 0.45), size)


def test_faceboxes() -> None:
    """By its PriorBox: of the two smallest sizes, 16 and 4 anchors a cell."""
    anchors = []
    for stride, sizes in ((32, (32, 64, 128)), (64, (256,)), (128, (512,))):
        for y, x in product(range(math.ceil(SIZE[1] / stride)), range(math.ceil(SIZE[0] / stride))):
            for side in sizes:
                shifts = {32: (0, 0.25, 0.5, 0.75), 64: (0, 0.5)}.get(side, (0.5,))
                anchors += [
                    ((x + dx) * stride / SIZE[0], (y + dy) * stride / SIZE[1], side / SIZE[0], side / SIZE[1])
                    for dy, dx in product(shifts, shifts)
                ]
    loc, conf = draw(90, len(anchors), 4) - 0.5, draw(91, len(anchors), 2)
    rows = [(decoded(row, anchor), scores[1:]) for row, anchor, scores in zip(loc.astype(float), anchors, conf)]
    wanted = [(kind + 1, score, corners) for kind, score, corners in expected(rows, 0.5, 0.3)]
    arrays = {"loc": loc[None], "conf": conf[None]}
    task = find_task({name: ("float32", array.shape) for name, array in arrays.items()}, SIZE, Description())
    assert task and task.head == "faceboxes"
    check(task.decode(arrays, SAME)["loc"], wanted)


def test_fcos() -> None:
    """By FCOSPostProcessor: locations in the middle of the cells, the root of two sigmoids."""
    arrays, rows = {}, []
    for level in range(3, 8):
        stride = 2**level
        high, wide = -(-SIZE[1] // stride), -(-SIZE[0] // stride)
        logits, sides, middle = (draw(70 + 10 * n + level, 1, n, high, wide) * 4 - 2 for n in (3, 4, 1))
        sides = abs(sides) * stride
        for name, array in (("logits", logits), ("bbox_reg", sides), ("centerness", middle)):
            arrays[f"P{level}{name}"] = array
        for y in range(high):
            for x in range(wide):
                place = stride * x + stride // 2, stride * y + stride // 2
                left, top, right, bottom = map(float, sides[0, :, y, x])
                scores = [
                    math.sqrt(1 / (1 + math.exp(-logits[0, k, y, x])) / (1 + math.exp(-middle[0, 0, y, x])))
                    for k in range(3)
                ]
                rows.append(([place[0] - left, place[1] - top, place[0] + right, place[1] + bottom], scores))
    task = find_task({n: ("float32", a.shape) for n, a in arrays.items()}, SIZE, Description())
    assert task and task.head == "fcos" and task.description.preparation["order"] == "bgr"
    each_class = [(box, [n * (i == k) for i, n in enumerate(scores)]) for box, scores in rows for k in range(3)]
    check(task.decode(arrays, SAME)["P3logits"], expected(each_class, 0.5, 0.6))


def test_tensorflow() -> None:
    """Corners are top, left, bottom, right as parts; classes count from 1; rows behind num_detections are none."""
    arrays = {
        "detection_boxes": numpy.array([[[0.25, 0.5, 0.5, 0.75], [0, 0, 1, 0.5], [0, 0, 1, 1]]], numpy.float32),
        "detection_classes": numpy.array([[3, 1, 2]], numpy.float32),
        "detection_scores": numpy.array([[0.9, 0.6, 0.8]], numpy.float32),
        "num_detections": numpy.array([2], numpy.float32),
    }
    said = Description(labels=("a", "b", "c"))
    task = find_task({n: ("float32", a.shape) for n, a in arrays.items()}, SIZE, said)
    assert task and task.head == "tensorflow"
    answer = task.decode(arrays, SAME)["detection_boxes"]
    check(answer, [(3, 0.9, [48, 16, 72, 32]), (1, 0.6, [0, 0, 48, 64])])
    assert [each.label.name for each in answer.found] == ["c", "a"]
    # Constants of 8 bits in a model make 2.99 of 3.
    rounded = {**arrays, "detection_classes": numpy.array([[2.988, 1.012, 2]], numpy.float32)}
    assert task.decode(rounded, SAME)["detection_boxes"] == answer
    none = {**arrays, "num_detections": numpy.zeros(1, numpy.float32)}
    assert task.decode(none, SAME)["detection_boxes"] == Detections(())


def test_centernet() -> None:
    """Two peaks, of which one has a larger neighbour of another class, which does not count; no suppression."""
    maps, sizes, offsets = (numpy.zeros((1, n, 16, 24), numpy.float32) for n in (3, 2, 2))
    maps[0, 0, 5, 7], maps[0, 0, 5, 8], maps[0, 2, 5, 8], maps[0, 1, 0, 23] = 0.6, 0.5, 0.9, 0.2
    sizes[0, :, 5, 7], sizes[0, :, 5, 8] = (4, 6), (4, 6)
    offsets[0, :, 5, 7], offsets[0, :, 5, 8] = (0.5, 0.25), (0, 0)
    arrays = {"hm": maps, "wh": sizes, "reg": offsets}
    task = find_task({name: ("float32", array.shape) for name, array in arrays.items()}, SIZE, Description())
    assert task and task.head == "centernet"
    answer = task.decode(arrays, SAME)["hm"]
    check(answer, [(2, 0.9, [24, 8, 40, 32]), (0, 0.6, [22, 9, 38, 33])])
    odds = numpy.clip(maps, 1e-6, 1 - 1e-6)
    again = task.decode({**arrays, "hm": numpy.log(odds / (1 - odds))}, SAME)["hm"]
    check(again, [(2, 0.9, [24, 8, 40, 32]), (0, 0.6, [22, 9, 38, 33])])


@pytest.mark.parametrize("batch", [False, True])
def test_boxes_that_the_model_has_suppressed(batch: bool) -> None:
    """Boxes are not suppressed again: they may overlap and share a class. The order of the outputs is free."""
    corners = numpy.array([[8, 8, 40, 30], [9, 8, 40, 30], [50, 0, 70, 20], [1, 1, 2, 2]], numpy.float32)
    values, kinds = numpy.array([0.9, 0.8, 0.7, 0.1], numpy.float32), numpy.array([2, 2, 0, 1], numpy.int64)
    arrays = {"labels": kinds, "scores": values, "boxes": corners}
    if batch:
        arrays = {name: array[None] for name, array in arrays.items()}
    declared = {name: (str(array.dtype), array.shape) for name, array in arrays.items()}
    task = find_task(declared, SIZE, Description(labels=("a", "b", "c")))
    assert task and task.head == "boxes"
    answer = task.decode(arrays, SAME)["boxes"]
    check(answer, [(2, 0.9, list(corners[0])), (2, 0.8, list(corners[1])), (0, 0.7, list(corners[2]))])
    assert [each.label.name for each in answer.found] == ["c", "c", "a"]
    one = {"boxes": corners[:1], "labels": kinds[:1], "scores": values[:1]}
    check(task.decode(one, SAME)["boxes"], [(2, 0.9, list(corners[0]))])
    none = {"labels": kinds[:0], "scores": values[:0], "boxes": corners[:0]}
    assert task.decode(none, SAME)["boxes"] == Detections(())
    with pytest.raises(InputError, match="head 'boxes' expects"):
        task.decode({"boxes": corners, "scores": values}, SAME)


def test_labels_of_another_number_are_refused() -> None:
    raw = numpy.full((1, CELLS, 5 + 4), 0.9, numpy.float32)
    task = find_task({"y": ("float32", raw.shape)}, SIZE, Description(labels=("a", "b")))
    with pytest.raises(InputError, match="4 classes, but there are 2 labels"):
        task.decode({"y": raw}, SAME)


def test_no_detections() -> None:
    raw = numpy.zeros((1, 4 + 3, CELLS), numpy.float32)
    task = find_task({"y": ("float32", raw.shape)}, SIZE, Description())
    assert task.decode({"y": raw}, SAME)["y"] == Detections(())
