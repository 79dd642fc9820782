"""Appends a decoder to a model's graph: its outputs become answers (boxes, classes, masks ...) computed on the device.

    decoder = with_answers(model.preprocess((480, 640), "nv12", "letterbox"), Description(head="yolox"))
    decoder.run({"picture": frame})     # {"boxes": (100, 4), "scores": (100,), "classes": (100,), "count": (1,)}

The decoders are those of imgconv/tasks, applied to GraphArrays. The outputs of each task:

detect, pose of people   boxes (most, 4): left, top, right, bottom; scores (most), classes (most), count (1), best
                         first. Heads with landmarks add points (most, k, 3): x, y and a score. Heads with
                         masks add masks (most, height, width): bytes, 1 inside the mask
pose                     points (k, 3)
classify                 classes (top), scores (top)
segment                  mask (height, width): the class of each pixel; -1 outside the crop
depth                    map (height, width); NaN outside the crop
image                    image (height, width, 1 or 3): bytes, grey or RGB, in the network's output size
text                     ctc: classes (steps), scores (steps), count (1), by best-path decoding;
                         dbnet: map (height, width), the probability of text, which is not yet divided into lines

Coordinates, masks and maps refer to the picture: a camera frame after its region, rotation and mirroring, or the
model's input if the model accepts no frames. Floats are float32, images and boxes' masks uint8, other integers int32.
After the first `count` rows, boxes, masks and scores are 0, and classes are -1.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy
from PIL import Image

from imgconv.arrays import Arrays, Shapes, TensorSpecs
from imgconv.config import Precision
from imgconv.errors import ConfigError, InputError
from imgconv.graph.join import join_graphs, rename_values
from imgconv.graph.nodes import Graph
from imgconv.loading.compiled import ModelSource
from imgconv.model import Model
from imgconv.pictures.host import LARGEST_OF_ONE
from imgconv.preprocessing.preparation import Size, picture_inputs, taps
from imgconv.preprocessing.stage import PICTURE, PictureStage, size_of_array
from imgconv.tasks import classification, text
from imgconv.tasks.description import Description, read_description
from imgconv.tasks.detection import BoxDecoder, Candidates, count_classes, pixels_inside, single_output
from imgconv.tasks.graph_array import GraphArray, take_or_fill, tensor_of
from imgconv.tasks.heads import HEADS, Task, find_task
from imgconv.tasks.maps import KeypointDecoder, SegmentationDecoder, depth_plane, is_image, threshold_of
from imgconv.tasks.values import PicturePlacement, map_on_picture
from imgconv.tensor import Tensor, build_graph, order, origin, suppression

MOST = 100  # boxes, unless the caller says otherwise
CANDIDATES = 2048  # boxes that take part in the suppression, the best ones: the number that one work group sorts
ORIGIN = "answers"


@dataclass(frozen=True)
class AnswerStage:
    """The decoding of a task's outputs after a model. most: how many boxes; picture: the preparation before the model.

    picture_input: the name of the input that the picture becomes.
    """

    task: Task
    most: int
    picture_input: str
    picture: PictureStage | None = None

    def append_to(self, model: Graph, shapes: Shapes) -> Graph:
        """The model's graph with answers in place of its outputs. shapes: those of all inputs, with the picture's.

        Raises InputError if the outputs are not the head's.
        """
        if model.host_partition:
            raise InputError("the host computes outputs of this model, so the device cannot decode them")
        values = [model.values[name] for name in model.outputs]
        inputs = {value.name: Tensor.input(value.name, value.shape, value.dtype) for value in values}
        with origin(ORIGIN):
            arrays = {name: GraphArray(each) for name, each in inputs.items()}
            found = self._answers(arrays, self.placement(model, shapes))
            tensors = {name: array.tensor for name, array in found.items()}
            made = {name: each.cast(_dtype(each)) for name, each in tensors.items()}
            model, names = _without_name_clashes(model, made)
            # Inputs of the second graph have the names that the model's outputs have now.
            for name, tensor in inputs.items():
                tensor.name = names.get(name, name)
            return join_graphs(model, build_graph(made, list(inputs.values()), model.name))

    def with_float_answers(self, precision: Precision, graph: Graph) -> Precision:
        """The precision with the answers in float: a half cannot say where in a large picture a pixel is."""
        mine = (node.output.name for node in graph.nodes if ORIGIN in node.origin)
        return precision.with_float_values(frozenset(mine), "answers are always fp32")

    def placement(self, model: Graph, shapes: Shapes) -> PicturePlacement:
        """The place of the picture in the model's input; the input itself if no picture is prepared."""
        value = model.values[self.picture_input]
        target = next(each for each in picture_inputs({value.name: (value.dtype, value.shape)}, {}))
        size = target.picture_size((0, 0))
        if self.picture is None:
            return PicturePlacement(size, size, size, (0, 0, *size))
        shape = shapes[PICTURE]
        assert not isinstance(shape, int)
        return PicturePlacement.of(size_of_array(self.picture.how.format, shape), size, self.picture.how)

    def _answers(self, given: Mapping[str, Any], placement: PicturePlacement) -> dict[str, Any]:
        """The arrays by the names of the outputs. given: GraphArrays; the formulas are typed for numpy's arrays."""
        decode, description = HEADS[self.task.head].decode, self.task.description
        with self.task.errors_with_head_name(given):
            if isinstance(decode, BoxDecoder):
                candidates = decode.formula(given, description, placement.model)
                return _suppressed_boxes(candidates, description, placement, self.most)
            if isinstance(decode, KeypointDecoder):
                found = decode.formula(given, placement.model)
                places = placement.to_picture(found.places)
                return {"points": numpy.concatenate([places, found.scores[:, None]], axis=1)}
            if isinstance(decode, SegmentationDecoder):
                return {"mask": _class_mask(decode, given, description, placement)}
            return OTHERS[self.task.head](given, description, placement)


def with_answers(model: Model, description: Description | None = None, most: int = MOST) -> Model:
    """The model with the answers of its task as outputs, made on the device; see the module. Shares the weights.

    description: by default the one next to the model. Raises ConfigError for a compiled file, and what `find_task`
    raises.
    """
    if not isinstance(model, Model):
        raise InputError(f"answers are added to a loaded model, not to a {type(model).__name__}: load it first")
    source = model._source
    if not isinstance(source, ModelSource):
        raise ConfigError("a compiled file's outputs are fixed: call with_answers first, and compile its result")
    given = description or (read_description(source.description) if source.description else Description())
    outputs: Any = {value.name: (value.dtype, value.shape) for value in model.outputs.values()}
    stage = answer_stage(source.declared_inputs(), source.shapes, outputs, given, source.picture, most)
    text = description_with_answers(stage, json.loads(source.description or "{}"))
    return Model(replace(source, answers=stage, description=text), model._sessions)


def answer_stage(
    declared: TensorSpecs, shapes: Shapes, outputs: TensorSpecs, description: Description, picture: PictureStage | None,
    most: int = MOST,
) -> AnswerStage:
    """The stage for a model with these inputs and outputs. Raises InputError."""
    targets = [picture.target] if picture else picture_inputs(declared, shapes)
    if len(targets) != 1:
        raise InputError(f"answers need one picture as input, but {len(targets) or 'no'} inputs can be a picture")
    size = targets[0].picture_size((0, 0))
    if picture:
        shape = shapes.get(PICTURE)
        if shape is None or isinstance(shape, int):
            raise InputError("answers need the size of the picture: pass size=(height, width) to preprocess")
        size = targets[0].picture_size(size_of_array(picture.how.format, shape))
    task = find_task(outputs, size, description)
    if task is None:
        raise InputError("the output shapes do not show the task: set a head, see imgconv.tasks.HEADS")
    if most < 1:
        raise InputError(f"most is {most}: at least one box is needed")
    labels = _labels(task, outputs, size)
    return AnswerStage(Task(task.head, replace(task.description, labels=labels)), most, targets[0].name, picture)


def _labels(task: Task, outputs: TensorSpecs, size: Size) -> tuple[str, ...]:
    """The labels by the number of the class in the answers: with the background or the blank, where a model has one.

    Raises InputError if there are labels of another number, or if the outputs are not the head's.
    """
    labels, decode = task.description.labels, HEADS[task.head].decode
    zeros = {name: numpy.zeros(shape or (), dtype) for name, (dtype, shape) in outputs.items()}  # type: ignore[arg-type]
    with task.errors_with_head_name(zeros):
        if task.head == "ctc":
            return ("", *text.characters_of(labels, single_output(zeros)[1].shape[-1]))
        if not (isinstance(decode, BoxDecoder) and labels):
            return labels
        candidates = decode.formula(zeros, task.description, size)
    classes, first = count_classes(candidates, task.description), candidates.first
    if len(labels) not in (classes, classes + first):
        raise InputError(f"the model has {classes} classes, but there are {len(labels)} labels")
    return labels if len(labels) == classes + first else (*["background"] * first, *labels)


def description_with_answers(stage: AnswerStage, text: Mapping[str, Any]) -> str:
    """The description for the compiled file, as JSON: the task, its head and labels, and that outputs are answers."""
    about = stage.task.description
    said = {"task": stage.task.name, "head": stage.task.head, "labels": about.labels, "answers": True}
    limits = {name: value for name in ("score", "overlap") if (value := getattr(about, name)) is not None}
    return json.dumps({**text, **said, **limits, "top": about.top}, ensure_ascii=False)


def _without_name_clashes(model: Graph, made: Mapping[str, Any]) -> tuple[Graph, dict[str, str]]:
    """The model without values of the answers' names, and their new names. Raises InputError if an input has one."""
    taken_names = [name for name in made if name in model.values]
    own = {value.name for value in model.inputs}
    for name in taken_names:
        if name in own:
            raise InputError(f"the model has an input {name!r} already: rename it")
    names = {name: model.unused_name(f"{name}_of_model") for name in taken_names}
    return rename_values(model, names), names


def _suppressed_boxes(
    candidates: Candidates, description: Description, placement: PicturePlacement, most: int
) -> dict[str, Any]:
    """The boxes of `detection.detections`, as operations of a graph."""
    scores: Any = candidates.scores
    least, classes, kinds, rows = description.score or 0.0, scores.shape[-1], candidates.kinds, None
    if candidates.several and len(scores) > CANDIDATES:
        # The best scores are in the rows with the best ones; equal scores stay in order of position.
        rows = _top_candidates(scores.max(axis=1), least)
        rows = take_or_fill(rows, GraphArray(order(tensor_of(rows), CANDIDATES, largest=False)))
        scores = take_or_fill(scores, rows)
    best: Any = scores if kinds is not None else scores.reshape(-1) if candidates.several else scores.max(axis=1)
    place = _top_candidates(best, least)
    part = len(place)
    row = place // classes if candidates.several else place
    if candidates.several:
        kind = place % classes
    else:
        kind = take_or_fill(scores.argmax(axis=1) if kinds is None else kinds, place)
    found_scores = take_or_fill(best, place)
    row = row if rows is None else take_or_fill(rows, row)
    corners = take_or_fill(candidates.corners, row)
    grouped: Any = numpy.concatenate([corners, kind[:, None]], axis=1)
    count = GraphArray((found_scores > least).tensor.cast("int64")).sum()
    stays: Any = GraphArray(suppression(tensor_of(grouped), count.tensor, description.overlap or 0.45, min(most, part)))
    if most > part:
        stays = numpy.pad(stays, ((0, most - part),), constant_values=-1)
    found = stays > -1
    limits = numpy.array([*placement.picture, *placement.picture])
    placed: Any = numpy.where(found[:, None], placement.to_picture(take_or_fill(corners, stays)).clip(0, limits), 0.0)
    made = {
        "boxes": placed,
        "scores": take_or_fill(found_scores, stays),
        "classes": numpy.where(found, take_or_fill(kind, stays) + candidates.first, -1),
        "count": GraphArray(found.tensor.cast("int64").sum().reshape(1)),
    }
    if candidates.points is not None:
        made["points"] = _keypoints_on_picture(candidates.points, take_or_fill(row, stays, -1.0), found, placement)
    if candidates.masks is not None:
        mine = take_or_fill(candidates.masks.coefficients, take_or_fill(row, stays, -1.0))
        made["masks"] = _instance_masks(mine, candidates.masks.prototypes, placed, placement)
    return made


def _top_candidates(scores: Any, least: float) -> Any:
    """The places of the best scores, at most CANDIDATES. Nothing comes before one above `least`, not NaN either."""
    positive = numpy.where(scores > least, scores, -1.0)
    return GraphArray(order(tensor_of(positive), min(scores.size, CANDIDATES)))


def _keypoints_on_picture(points: Any, row: Any, found: Any, placement: PicturePlacement) -> Any:
    """The points of the boxes that stay, on the picture."""
    mine = take_or_fill(points, row)
    places = placement.to_picture(mine[:, :, :2])
    return numpy.where(found[:, None, None], numpy.concatenate([places, mine[:, :, 2:]], axis=2), 0.0)


def _instance_masks(coefficients: Any, prototypes: Any, boxes: Any, placement: PicturePlacement) -> Any:
    """The masks of `detection.BoxDecoder`, (n, height, width), as operations of a graph."""
    count, *size = prototypes.shape
    sums = (coefficients @ prototypes.reshape(count, -1)).reshape(-1, *size)
    whole = _resized_to_picture(sums, placement, -1.0) > 0
    return GraphArray((whole & pixels_inside(boxes, placement.picture)).tensor.cast("uint8"))


def _dtype(answer: Tensor) -> str:
    """The dtype of an answer."""
    return "float32" if answer.is_float else "uint8" if answer.dtype == "uint8" else "int32"


def _class_mask(
    decode: SegmentationDecoder, given: Arrays, description: Description, placement: PicturePlacement
) -> GraphArray:
    """The mask of `maps.SegmentationDecoder`, as operations of a graph."""
    made = decode.formula(given, placement.model)
    plane: Any = made.plane
    if made.is_probability:
        return GraphArray((_resized_to_picture(plane, placement, 0.0) > threshold_of(description)).tensor.cast("int64"))
    rows, columns = plane.shape
    left, top, right, bottom = (round(edge) for edge in placement.box)
    # Pillow says which row and column of the map a pixel of the picture is of.
    grid = numpy.indices((rows, columns))
    whole = replace(placement, picture=(right - left, bottom - top), box=(0, 0, right - left, bottom - top))
    across, down = (
        map_on_picture(grid[axis], whole, Image.Resampling.NEAREST, -1).astype(int) for axis in (1, 0)
    )
    nearest = tensor_of(plane).take(0, down[:, 0].tolist()).take(1, across[0].tolist())
    return GraphArray(nearest.pad(*_letterbox_margins(placement), -1))


def _resized_to_picture(plane: Any, placement: PicturePlacement, outside: float) -> GraphArray:
    """Maps (..., height, width) by `map_on_picture` with Pillow's BILINEAR, as operations of a graph."""
    left, top, right, bottom = (round(edge) for edge in placement.box)
    others, size = [0] * (plane.ndim - 2), plane.shape[-2:]
    weights = {
        len(others) + axis: taps(n, wanted, 0, placement.inner[1 - axis] * n / placement.model[1 - axis], "antialias")
        for axis, n, wanted in ((0, size[0], bottom - top), (1, size[1], right - left))
    }
    before, after = _letterbox_margins(placement)
    return GraphArray(tensor_of(plane).resample(weights).pad([*others, *before], [*others, *after], outside))


def _letterbox_margins(placement: PicturePlacement) -> tuple[list[int], list[int]]:
    """The rows and columns of the picture before the part that the model saw, and after it."""
    left, top, right, bottom = (round(edge) for edge in placement.box)
    width, height = placement.picture
    return [top, left], [height - bottom, width - right]


def _depth_map(outputs: Arrays, description: Description, placement: PicturePlacement) -> dict[str, Any]:
    """The map of `maps.depth`, as operations of a graph."""
    return {"map": _resized_to_picture(depth_plane(outputs, placement.model)[1], placement, numpy.nan)}


def _text_probabilities(outputs: Arrays, description: Description, placement: PicturePlacement) -> dict[str, Any]:
    """The probability of text, which `text.dbnet` finds lines in, on the picture."""
    planes: Any = text.plane_of(outputs)[1]
    return {"map": _resized_to_picture(planes, placement, 0.0)}


def _image_bytes(outputs: Arrays, description: Description, placement: PicturePlacement) -> dict[str, Any]:
    """The bytes that `pictures.host.to_picture` makes of an image, as operations of a graph."""
    planes: Any = next((array[0] for array in outputs.values() if is_image(array.shape, str(array.dtype))), None)
    if planes is None:
        raise ValueError("no output is an image")
    if planes.dtype.kind == "f":
        white = numpy.where(planes.max() > LARGEST_OF_ONE, 255.0, 1.0)
        planes = (planes * (255 / white)).clip(0, 255).round()
    if description.preparation.get("order") == "bgr":
        planes = planes[[*range(len(planes))][::-1]]
    return {"image": GraphArray(planes.transpose(1, 2, 0).tensor.cast("uint8"))}


def _best_classes(outputs: Arrays, description: Description, placement: PicturePlacement) -> dict[str, Any]:
    """The classes of `classification.scores`, as operations of a graph."""
    each = classification.outputs_of_scores(outputs)
    if len(each) != 1:
        raise InputError(f"{len(each)} outputs are scores of classes: choose one with --outputs")
    values: Any = outputs[each[0]].reshape(-1)
    labels = description.labels
    if labels and len(labels) != values.size:
        raise InputError(f"the model has {values.size} scores, but there are {len(labels)} labels")
    classes = GraphArray(order(tensor_of(values), min(description.top, values.size)))
    return {"classes": classes, "scores": take_or_fill(values, classes)}


def _ctc_classes(outputs: Arrays, description: Description, placement: PicturePlacement) -> dict[str, Any]:
    """The classes of the steps that count, which the characters are of."""
    rows: Any = single_output(outputs)[1]
    best, counts = text.best_path(rows)
    steps = len(rows)
    place: Any = GraphArray(order(tensor_of(numpy.where(counts, steps - numpy.arange(steps), 0)), steps))
    count: Any = GraphArray(tensor_of(counts).cast("int64").sum().reshape(1))
    found = count > numpy.arange(steps)
    return {
        "classes": numpy.where(found, take_or_fill(best, place), -1),
        "scores": numpy.where(found, take_or_fill(rows.max(axis=1), place), 0.0),
        "count": count,
    }


OTHERS: Mapping[str, Callable[[Arrays, Description, PicturePlacement], dict[str, Any]]] = {
    "scores": _best_classes, "ctc": _ctc_classes, "dbnet": _text_probabilities, "map": _depth_map,
    "image": _image_bytes,
}
