"""The table of heads (output layouts of known kinds of models), and the choice of one for a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from imgconv.arrays import Arrays, TensorSpecs
from imgconv.errors import InputError
from imgconv.preprocessing.preparation import Size
from imgconv.tasks import anchors, classification, dense, detection, maps, text
from imgconv.tasks.answer_outputs import read_answers
from imgconv.tasks.coco import KEYPOINTS, NAMES
from imgconv.tasks.dense import NANODET_STRIDES
from imgconv.tasks.description import TASKS, Description
from imgconv.tasks.detection import STRIDES, BoxDecoder, count_cells
from imgconv.tasks.maps import KeypointDecoder, SegmentationDecoder
from imgconv.tasks.values import Answers, PicturePlacement

OutputShapes = list[tuple[int, ...]]  # of the outputs
YOLO = {"score": 0.5, "overlap": 0.45}
NANODET = {
    "score": 0.4, "overlap": 0.6, "preparation": {
        "filter": "bilinear", "order": "bgr", "mean": (103.53, 116.28, 123.675), "std": (57.375, 57.12, 58.395),
    },
}
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
LETTERBOX = {"resize": "letterbox", "filter": "bilinear", "order": "bgr"}
YOLO_PICTURE = {**LETTERBOX, "order": "rgb", "scale": 1 / 255}


@dataclass(frozen=True)
class Head:
    """The layout of a model's outputs, and the function that decodes it.

    outputs: in words, for people; decode: the outputs as answers; defaults: fields of a Description;
    matches: whether outputs of these shapes and dtypes are this head's, for an input of this width and height;
    accepts: whether the decoder can read outputs of these shapes, for heads that the user has to name.
    """

    task: str
    outputs: str
    decode: Callable[[Arrays, Description, PicturePlacement], Answers]
    matches: Callable[[TensorSpecs, Size], bool] | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    accepts: Callable[[OutputShapes], bool] | None = None


def _shapes(outputs: TensorSpecs) -> OutputShapes:
    return [tuple(int(n) for n in shape or ()) for _, shape in outputs.values()]


def _is_yolo(outputs: TensorSpecs, size: Size, rows: int, axis: int, columns: int) -> bool:
    """Returns whether the only output is (1, a, b): `rows` for each cell along the axis, and at least `columns`."""
    shapes = _shapes(outputs)
    if len(shapes) != 1 or len(shapes[0]) != 3 or shapes[0][0] != 1:
        return False
    # The heads that take the cells as they are may have a fourth stride.
    known = [STRIDES] if (rows, axis) == (1, 1) else [STRIDES, NANODET_STRIDES]
    counts = [rows * count_cells(size, strides) for strides in known]
    return shapes[0][axis] in counts and shapes[0][3 - axis] >= columns


def _is_yolov8_seg(outputs: TensorSpecs, size: Size) -> bool:
    shapes = _shapes(outputs)
    if [len(shape) for shape in shapes] != [3, 4]:
        return False
    (_, columns, cells), (_, count, height, width) = shapes
    return cells == count_cells(size) and columns > 4 + count and (4 * width, 4 * height) == size


def _is_yolov10(outputs: TensorSpecs, size: Size) -> bool:
    shapes = _shapes(outputs)
    most = detection.MOST_DETECTIONS
    return [len(shape) for shape in shapes] == [3] and shapes[0][::2] == (1, 6) and shapes[0][1] <= most


def _has_anchors(outputs: TensorSpecs, lasts: Sequence[int], count: int) -> bool:
    """Returns whether the outputs are (1, count, last), one for each of `lasts`, in any order."""
    return sorted(_shapes(outputs)) == [(1, count, last) for last in lasts]


def _is_nanodet(outputs: TensorSpecs, size: Size) -> bool:
    shapes = _shapes(outputs)
    return len(shapes) == 1 and shapes[0][:-1] == (1, count_cells(size, NANODET_STRIDES)) and shapes[0][-1] > 32


def _has_strides(outputs: TensorSpecs, size: Size, anchors: int, lasts: Sequence[int]) -> bool:
    """Returns whether the outputs are (anchors of the cells, last) for each stride and each of `lasts`."""
    counts = [anchors * count_cells(size, (stride,)) for stride in STRIDES]
    found = sorted((math.prod(shape[:-1]), shape[-1]) for shape in _shapes(outputs) if shape)
    return found == sorted((count, last) for count in counts for last in lasts)


def _is_nanodet_m(outputs: TensorSpecs, size: Size) -> bool:
    bins = 4 * dense.NANODET_BINS
    classes = {shape[-1] for shape in _shapes(outputs) if shape} - {bins}
    return len(classes) == 1 and _has_strides(outputs, size, 1, [bins, *classes])


def _is_scrfd(outputs: TensorSpecs, size: Size) -> bool:
    return _has_strides(outputs, size, 2, [1, 4, 10]) or _has_strides(outputs, size, 2, [1, 4])


def _is_fastestdet(outputs: TensorSpecs, size: Size) -> bool:
    shapes = _shapes(outputs)
    return len(shapes) == 1 and shapes[0] == (1, 5 + len(NAMES), size[1] // 16, size[0] // 16)


def _is_yunet(outputs: TensorSpecs, size: Size) -> bool:
    return set(outputs) == {f"{kind}_{stride}" for kind in ("cls", "obj", "bbox", "kps") for stride in STRIDES}


def _is_ssd(outputs: TensorSpecs, size: Size) -> bool:
    # Both known families call them so; the numbers of undecoded anchors have the same shapes.
    return set(outputs) == {"boxes", "scores"} and [len(s) for s in _shapes(outputs)] == [3, 3]


def _is_boxes(outputs: TensorSpecs, size: Size) -> bool:
    # torchvision's detectors and RT-DETR's family; TensorFlow's SSD has scores for each class, and more axes.
    if set(outputs) != {"boxes", "labels", "scores"}:
        return False
    boxes, labels, scores = (tuple(outputs[name][1] or ()) for name in ("boxes", "labels", "scores"))
    return boxes[-1:] == (4,) and boxes[:-1] == labels == scores and outputs["labels"][0] in ("int32", "int64")


def _is_segment_logits(outputs: TensorSpecs, size: Size) -> bool:
    shapes = _shapes(outputs)
    if len(shapes) != 1 or len(shapes[0]) != 4:
        return False
    last = maps.has_channels_last(shapes[0], size)
    (classes, *places) = (shapes[0][3], *shapes[0][1:3]) if last else shapes[0][1:]
    return classes > 3 and tuple(places[::-1]) == size


def _is_segment_indices(outputs: TensorSpecs, size: Size) -> bool:
    (dtype, _), shapes = next(iter(outputs.values())), _shapes(outputs)
    whole = dtype.startswith(("int", "uint")) and dtype != "uint8"
    return whole and len(shapes) == 1 and shapes[0][-2:] == size[::-1] and shapes[0][:-2] in ((1,), (1, 1))


def _is_simcc(outputs: TensorSpecs, size: Size) -> bool:
    shapes = _shapes(outputs)
    if [len(shape) for shape in shapes] != [3, 3] or shapes[0][:2] != shapes[1][:2]:
        return False
    return (shapes[0][2], shapes[1][2]) == (2 * size[0], 2 * size[1])


def _is_movenet(outputs: TensorSpecs, size: Size) -> bool:
    return _shapes(outputs) == [(1, 1, len(KEYPOINTS), 3)]


def _are_keypoints(shapes: OutputShapes) -> bool:
    """Returns whether the first output is (1, keypoints, 3), perhaps flattened or with further axes of one."""
    batch, *others = shapes[0]
    axes = [n for n in others if n != 1]
    return batch == 1 and axes[1:] in ([], [3]) and math.prod(axes) % 3 == 0


def _are_planes(shapes: OutputShapes) -> bool:
    return len(shapes[0]) == 3 or len(shapes[0]) == 4 and shapes[0][0] == 1


def _is_single_plane(shapes: OutputShapes) -> bool:
    shape = shapes[0]
    return _are_planes(shapes) and 1 in ((shape[0],) if len(shape) == 3 else (shape[1], shape[3]))


def _are_boxes_and_scores(shapes: OutputShapes) -> bool:
    """Returns whether an output is (1, n, 4), and another one (1, n, classes)."""
    boxes = [number for number, shape in enumerate(shapes) if len(shape) == 3 and shape[2] == 4]
    others = [shape[:2] for number, shape in enumerate(shapes) if number not in boxes[:1]]
    return bool(boxes) and shapes[boxes[0]][:2] in others


# In the order in which they are looked for.
HEADS: Mapping[str, Head] = {
    "yolox": Head(
        "detect", "(1, cells, 5 + classes), undecoded", BoxDecoder(detection.yolox),
        lambda outputs, size: _is_yolo(outputs, size, 1, 1, 6),
        {**YOLO, "preparation": LETTERBOX},
    ),
    "yolov5": Head(
        "detect", "(1, 3 * cells, 5 + classes)", BoxDecoder(detection.yolov5),
        lambda outputs, size: _is_yolo(outputs, size, 3, 1, 6), {**YOLO, "preparation": YOLO_PICTURE},
    ),
    "yolov5-face": Head(
        "detect", "(1, 3 * cells, 16), five landmarks before the class", BoxDecoder(detection.yolov5_face), None,
        {**YOLO, "labels": ("face",), "preparation": YOLO_PICTURE},
        lambda shapes: len(shapes[0]) == 3 and shapes[0][2] == detection.FACE_COLUMNS,
    ),
    "yolov8": Head(
        "detect", "(1, 4 + classes, cells), YOLOv8 and v11", BoxDecoder(detection.yolov8),
        lambda outputs, size: _is_yolo(outputs, size, 1, 2, 5), {**YOLO, "preparation": YOLO_PICTURE},
    ),
    "yolov10": Head(
        "detect", "(1, n, 6), YOLOv10 and YOLO26: corners in pixels, score, class", BoxDecoder(detection.yolov10),
        _is_yolov10,
        {"score": 0.5, "overlap": 1.0, "preparation": YOLO_PICTURE},
    ),
    "yolov8-seg": Head(
        "detect", "(1, 4 + classes + k, cells), (1, k, height / 4, width / 4)", BoxDecoder(detection.yolov8_seg),
        _is_yolov8_seg,
        {**YOLO, "preparation": YOLO_PICTURE},
    ),
    "yolov8-pose": Head(
        "pose", "(1, 5 + 3 * keypoints, cells)", BoxDecoder(detection.yolov8_pose), None,
        {**YOLO, "preparation": YOLO_PICTURE},
        lambda shapes: len(shapes[0]) == 3 and shapes[0][1] > 5 and (shapes[0][1] - 5) % 3 == 0,
    ),
    "retinaface": Head(
        "detect", "(1, n, 4), (1, n, 2), (1, n, 10), relative to anchors", BoxDecoder(anchors.retinaface),
        lambda outputs, size: _has_anchors(outputs, (2, 4, 10), 2 * count_cells(size)),
        {
            "score": 0.5, "overlap": 0.4, "anchors": anchors.RETINAFACE, "labels": ("face",),
            "preparation": {"order": "bgr", "mean": (104.0, 117.0, 123.0), "resize": "letterbox"},
        },
    ),
    "faceboxes": Head(
        "detect", "(1, n, 4), (1, n, 2), relative to FaceBoxes' anchors", BoxDecoder(anchors.anchors),
        lambda outputs, size: _has_anchors(outputs, (2, 4), len(anchors.anchors_of(size, anchors.FACEBOXES)[0])),
        {
            "score": 0.5, "overlap": 0.3, "anchors": anchors.FACEBOXES, "labels": ("face",),
            "preparation": {"order": "bgr", "mean": (104.0, 117.0, 123.0)},
        },
    ),
    "ssd": Head(
        "detect", "boxes (1, n, 4), corners as fractions of the input size; scores (1, n, classes), background first",
        BoxDecoder(anchors.ssd), _is_ssd,
        {"score": 0.7, "overlap": 0.3, "preparation": {"filter": "bilinear", "mean": (127.0,), "std": (128.0,)}},
    ),
    "anchors": Head(
        "detect", "(1, n, 4), (1, n, classes), relative to the anchors of MODEL.task.json", BoxDecoder(anchors.anchors),
        None, {"score": 0.5, "overlap": 0.45}, _are_boxes_and_scores,
    ),
    "yunet": Head(
        "detect", "cls, obj, bbox and kps for each of the strides 8, 16 and 32, as cls_8",
        BoxDecoder(dense.yunet), _is_yunet,
        {"score": 0.9, "overlap": 0.3, "labels": ("face",), "preparation": {**LETTERBOX, "pad": 0}},
    ),
    "nanodet": Head(
        "detect", "(1, cells, classes + 32), NanoDet-Plus", BoxDecoder(dense.nanodet), _is_nanodet, NANODET
    ),
    "nanodet-m": Head(
        "detect", "(1, cells, classes) and (1, cells, 32) for each of the strides 8, 16 and 32",
        BoxDecoder(dense.nanodet_m),
        _is_nanodet_m, NANODET,
    ),
    "scrfd": Head(
        "detect", "(1, 2 * cells, 1), (1, 2 * cells, 4), (1, 2 * cells, 10) for each of the strides 8, 16 and 32",
        BoxDecoder(dense.scrfd), _is_scrfd,
        {
            "score": 0.5, "overlap": 0.4, "labels": ("face",),
            "preparation": {**LETTERBOX, "order": "rgb", "mean": (127.5,), "std": (128.0,), "pad": 0},
        },
    ),
    "fastestdet": Head(
        "detect", "(1, 5 + classes, height / 16, width / 16)", BoxDecoder(dense.fastestdet), _is_fastestdet,
        {"score": 0.65, "overlap": 0.45, "preparation": {"order": "bgr", "scale": 1 / 255}},
    ),
    "fcos": Head(
        "detect", "P3logits (1, classes, h, w), P3bbox_reg (1, 4, h, w), P3centerness (1, 1, h, w), to P7",
        BoxDecoder(dense.fcos),
        lambda outputs, size: {"P3logits", "P7centerness"} <= set(outputs),
        {
            "score": 0.5, "overlap": 0.6,
            "preparation": {**LETTERBOX, "mean": (102.9801, 115.9465, 122.7717), "pad": 0},
        },
    ),
    "tensorflow": Head(
        "detect", "detection_boxes (1, n, 4), detection_scores and detection_classes (1, n), num_detections (1)",
        BoxDecoder(anchors.tensorflow), lambda outputs, size: {"detection_boxes", "num_detections"} <= set(outputs),
        {"score": 0.5, "overlap": 1.0},
    ),
    "centernet": Head(
        "detect", "hm (1, classes, h, w), wh and reg (1, 2, h, w)", BoxDecoder(dense.centernet),
        lambda outputs, size: set(outputs) == {"hm", "wh", "reg"},
        {
            "score": 0.3, "overlap": 1.0, "preparation": {
                **LETTERBOX, "scale": 1 / 255, "mean": (0.408, 0.447, 0.470), "std": (0.289, 0.274, 0.278), "pad": 0,
            },
        },
    ),
    "boxes": Head(
        "detect", "boxes (n, 4) in pixels of the input, scores (n), labels (n), after suppression (torchvision)",
        BoxDecoder(detection.boxes), _is_boxes, {"score": 0.5, "overlap": 1.0, "preparation": {"scale": 1 / 255}},
    ),
    "movenet": Head(
        "pose", "(1, 1, 17, 3), y, x and score of each keypoint", KeypointDecoder(maps.movenet), _is_movenet,
        {"labels": KEYPOINTS, "preparation": {"resize": "letterbox", "filter": "bilinear", "pad": 0}},
        _are_keypoints,
    ),
    "simcc": Head(
        "pose", "(1, keypoints, 2 * width), (1, keypoints, 2 * height)", KeypointDecoder(maps.simcc), _is_simcc, {},
        lambda shapes: [len(shape) for shape in shapes[:2]] == [3, 3] and shapes[0][:2] == shapes[1][:2],
    ),
    "heatmaps": Head("pose", "(1, keypoints, height, width)", KeypointDecoder(maps.heatmaps), accepts=_are_planes),
    "indices": Head(
        "segment", "(1, height, width) or (1, 1, height, width) of integers", SegmentationDecoder(maps.segment_indices),
        _is_segment_indices, {}, _is_single_plane,
    ),
    "logits": Head(
        "segment", "(1, classes, height, width)", SegmentationDecoder(maps.segment_logits, maps.are_segment_logits),
        _is_segment_logits, {}, _are_planes,
    ),
    "mask": Head("segment", "(1, 1, height, width)", SegmentationDecoder(maps.segment_mask), accepts=_is_single_plane),
    "map": Head("depth", "(1, height, width) or (1, 1, height, width)", maps.depth, accepts=_is_single_plane),
    "scores": Head(
        "classify", "a score for each class", classification.scores, classification.may_be_classes, {},
        lambda shapes: any(classification.is_scores(shape, "float32") for shape in shapes),
    ),
    "dbnet": Head(
        "text", "(1, 1, height, width), the probability of text", text.dbnet, None,
        {
            "score": 0.6, "preparation": {**LETTERBOX, "scale": 1 / 255, "pad": 0, **IMAGENET},
        },
        lambda shapes: len(shapes[0]) == 4 and shapes[0][1] == 1,
    ),
    "ctc": Head(
        "text", "(1, steps, classes), the blank first", text.ctc, None,
        {"preparation": {**LETTERBOX, "scale": 1 / 255, "mean": (0.5,), "std": (0.5,), "pad": 127}},
        lambda shapes: len(shapes[0]) == 3,
    ),
    "image": Head(
        "image", "(1, 1 or 3, height, width), 16x16 or larger", maps.image, maps.are_likely_images, {},
        # Of any size: tiles become a larger image.
        lambda shapes: any(len(shape) == 4 and shape[0] == 1 and shape[1] in (1, 3) for shape in shapes),
    ),
}


@dataclass(frozen=True)
class Task:
    """A head with its description: it decodes a model's outputs. description: with the head's own values."""

    head: str
    description: Description

    @property
    def name(self) -> str:
        """One of TASKS."""
        return HEADS[self.head].task

    def decode(self, outputs: Arrays, placement: PicturePlacement) -> Answers:
        """The answers; none if the shapes are those of scores, and the values are not.

        Raises InputError if the outputs are not the head's, or the labels not of its number.
        """
        if self.description.answers:
            return read_answers(self.name, outputs, self.description, placement)
        with self.errors_with_head_name(outputs):
            return HEADS[self.head].decode(outputs, self.description, placement)

    @contextmanager
    def errors_with_head_name(self, outputs: Arrays) -> Iterator[None]:
        """A context in which errors about the outputs' shapes become an InputError that names the head."""
        try:
            yield
        except (ValueError, IndexError, KeyError, StopIteration) as error:
            declared = {name: (str(array.dtype), array.shape) for name, array in outputs.items()}
            raise InputError(_mismatch(self.head, declared)) from error


def _mismatch(head: str, outputs: TensorSpecs) -> str:
    """Returns the error of outputs that are not this head's."""
    return f"head {head!r} expects {HEADS[head].outputs}; the outputs of the model are {_shapes_as_text(outputs)}"


def _shapes_as_text(outputs: TensorSpecs) -> str:
    return ", ".join(f"{name} {list(shape or ())}" for name, (_, shape) in outputs.items())


def find_task(outputs: TensorSpecs, size: Size, description: Description) -> Task | None:
    """The task of a model with these outputs, and with an input of this width and height; None if it is unknown.

    Raises InputError if the description names an unknown head, a head that cannot have outputs of these shapes, or a
    task whose head the shapes do not show.

        find_task({"y": ("float32", (1, 1000))}, (224, 224), Description()).name     # 'classify'
    """
    head = description.head or _matching_head(outputs, size, description.task)
    if not head:
        return None
    if head not in HEADS:
        raise InputError(f"head is {head!r}; use {', '.join(HEADS)}")
    if description.task not in ("", HEADS[head].task):
        raise InputError(f"head {head!r} is for task {HEADS[head].task!r}, not for {description.task!r}")
    defaults = dict(HEADS[head].defaults)
    if not description.answers:
        _check_head(head, outputs, size)
    if outputs and not description.answers and _class_count(head, _shapes(outputs)) == len(NAMES):
        defaults["labels"] = NAMES
    return Task(head, description.with_defaults(defaults))


def _check_head(head: str, outputs: TensorSpecs, size: Size) -> None:
    """Raises InputError if the decoder cannot read these outputs, or, of a detector, if they are another head's.

    Outputs of a detector that no head matches may be this head's: with other strides, or other names.
    """
    accepts, shapes = HEADS[head].accepts, _shapes(outputs)
    are_known = bool(shapes) and all(shape and min(shape) >= 0 for shape in shapes)
    if accepts and are_known and not accepts(shapes):
        raise InputError(_mismatch(head, outputs))
    detectors = {name: each for name, each in HEADS.items() if each.task == "detect" and each.matches}
    matching = [name for name, each in detectors.items() if each.matches and each.matches(outputs, size)]
    if head in detectors and matching and head not in matching:
        raise InputError(f"{_mismatch(head, outputs)}, which are those of head {matching[0]!r}")


def possible_tasks(outputs: TensorSpecs) -> tuple[str, ...]:
    """Returns the tasks that outputs of these shapes may be for: of a map with one channel, four of TASKS."""
    is_map = maps.are_images(outputs) and all(shape[1] == 1 for shape in _shapes(outputs))
    return ("segment", "text", "depth", "image") if is_map else TASKS


def _matching_head(outputs: TensorSpecs, size: Size, task: str) -> str:
    """Returns the first head that matches these outputs; of one task if it is given. Raises InputError if none does."""
    heads = {name: head for name, head in HEADS.items() if task in ("", head.task)}
    for name, head in heads.items():
        if head.matches and head.matches(outputs, size):
            return name
    if not task:
        return ""
    if len(heads) == 1:
        return next(iter(heads))
    if task == "text":
        return "ctc" if len(next(iter(_shapes(outputs)))) == 3 else "dbnet"
    if task == "segment":
        shape, *others = _shapes(outputs)
        if not others and len(shape) == 4:
            return "mask" if shape[3 if maps.has_channels_last(shape, size) else 1] == 1 else "logits"
    listed = "; ".join(f"{name}: {head.outputs}" for name, head in heads.items())
    have = f"the outputs of the model, {_shapes_as_text(outputs)}, do not show the head"
    raise InputError(f"{have}: pass --head, or set \"head\" in MODEL.task.json. {listed}")


# By head: the axis of the first output that has the classes, and what else is on it.
_BESIDE_CLASSES = {
    "yolox": (-1, 5), "yolov5": (-1, 5), "yolov8": (1, 4), "yolov8-seg": (1, 4), "nanodet": (-1, 32),
    "nanodet-m": (-1, 0), "fastestdet": (1, 5), "centernet": (1, 0), "fcos": (1, 0),
}


def _class_count(head: str, shapes: OutputShapes) -> int:
    """Returns the number of classes of a head that is usually trained on COCO; 0 for others."""
    if head not in _BESIDE_CLASSES or any(len(shape) < 2 for shape in shapes):
        return 0
    axis, others = _BESIDE_CLASSES[head]
    coefficients = shapes[1][1] if head == "yolov8-seg" and len(shapes) == 2 else 0
    return shapes[0][axis] - others - coefficients
