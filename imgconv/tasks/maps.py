"""Decodes outputs that are maps: classes of pixels, depth, images, and keypoints from heatmaps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy
from PIL import Image

from imgconv.arrays import Array, Arrays, TensorSpecs
from imgconv.errors import InputError
from imgconv.preprocessing.preparation import Size
from imgconv.tasks.classification import MANY, are_probabilities
from imgconv.tasks.description import Description
from imgconv.tasks.dense import sigmoid
from imgconv.tasks.detection import single_output
from imgconv.tasks.values import Answers, Depth, Picture, PicturePlacement, Pose, Segmentation, map_on_picture


def _single_map(outputs: Arrays, size: Size, channels: int | None = None) -> tuple[str, Array]:
    """The first output as (C, H, W), C being 1 if it has three dimensions. Raises InputError for other shapes."""
    name, array = next(iter(outputs.items()))
    planes = array[0] if array.ndim == 4 else array
    if array.ndim == 4 and has_channels_last(array.shape, size):
        planes = planes.transpose(2, 0, 1)
    if planes.ndim != 3 or (array.ndim == 4 and array.shape[0] != 1) or channels not in (None, planes.shape[0]):
        wanted = f"(1, {channels or 'C'}, height, width)"
        raise InputError(f"output {name!r} is {list(array.shape)}; this head takes {wanted}")
    return name, planes


def has_channels_last(shape: Sequence[int], size: Size) -> bool:
    """Returns whether a map of four dimensions is (1, H, W, C), as TensorFlow's are. size: of the model's input.

    The aspect ratio decides, up to one row or column: has_channels_last((1, 33, 65, 21), (513, 257)) is True.
    """

    def is_like(height: int, width: int) -> bool:
        return abs(height * size[0] - width * size[1]) <= max(size)

    return is_like(shape[1], shape[2]) and not is_like(shape[2], shape[3])


@dataclass(frozen=True)
class ClassMap:
    """A map over the model's input, numpy or a GraphArray: classes, or the probability of class 1.

    output: the name of the output that it is from; plane: (height, width).
    """

    output: str
    plane: Array
    is_probability: bool = False


@dataclass(frozen=True)
class SegmentationDecoder:
    """The decoder of a segmenter: its formula, then the map's classes on the picture; -1 is what a crop leaves out.

    A probability counts from `score` on, after its map is enlarged. are_classes: tells by the values whether the
    outputs of a model whose task was inferred from their shapes are classes at all.
    """

    formula: Callable[[Arrays, Size], ClassMap]
    are_classes: Callable[[Arrays, Size], bool] | None = None

    def __call__(self, outputs: Arrays, description: Description, placement: PicturePlacement) -> Answers:
        is_inferred = not (description.task or description.head or description.labels)
        if is_inferred and self.are_classes and not self.are_classes(outputs, placement.model):
            return {}
        made = self.formula(outputs, placement.model)
        if made.is_probability:
            found = map_on_picture(made.plane, placement, Image.Resampling.BILINEAR, 0) > threshold_of(description)
        else:
            found = map_on_picture(made.plane, placement, Image.Resampling.NEAREST, -1)
        return {made.output: Segmentation(found.astype(numpy.int32), description.labels)}


def threshold_of(description: Description) -> float:
    """The least probability of a mask."""
    return description.score or 0.5


def segment_logits(outputs: Arrays, size: Size) -> ClassMap:
    """The class of each pixel: the largest of (1, classes, height, width)."""
    name, planes = _single_map(outputs, size)
    return ClassMap(name, planes.argmax(axis=0))


def are_segment_logits(outputs: Arrays, size: Size) -> bool:
    """Returns whether the channels are likely classes: they are MANY, or the probabilities of each pixel sum to 1.

    The channels of fewer may be quantities of different kinds, as an angle, an offset and a score.
    """
    _, planes = _single_map(outputs, size)
    return len(planes) >= MANY or are_probabilities(planes, axis=0)


def segment_indices(outputs: Arrays, size: Size) -> ClassMap:
    """The class of each pixel as the model gives it: (1, height, width) or (1, 1, height, width)."""
    name, planes = _single_map(outputs, size, 1)
    return ClassMap(name, planes[0])


def segment_mask(outputs: Arrays, size: Size) -> ClassMap:
    """Class 1 if (1, 1, height, width) is above `score`, else 0. Values outside of 0 to 1 go through a sigmoid."""
    name, planes = _single_map(outputs, size, 1)
    values = planes[0].astype(numpy.float64)
    outside = (values.min() < 0) | (values.max() > 1)
    return ClassMap(name, numpy.where(outside, sigmoid(values), values), is_probability=True)


def depth(outputs: Arrays, description: Description, placement: PicturePlacement) -> Answers:
    """A number for each pixel: (1, height, width) or (1, 1, height, width). What a crop leaves out is NaN."""
    name, plane = depth_plane(outputs, placement.model)
    return {name: Depth(map_on_picture(plane, placement, Image.Resampling.BILINEAR, numpy.nan))}


def depth_plane(outputs: Arrays, size: Size) -> tuple[str, Array]:
    """The name of the output, and its numbers (height, width). size: of the model's input."""
    name, planes = _single_map(outputs, size, 1)
    return name, planes[0]


@dataclass(frozen=True)
class Keypoints:
    """Keypoints, numpy arrays or GraphArrays: places (n, 2) in pixels of the model's input, and their scores (n)."""

    output: str
    places: Array
    scores: Array


@dataclass(frozen=True)
class KeypointDecoder:
    """The decoder of keypoints: their formula, then their places on the picture."""

    formula: Callable[[Arrays, Size], Keypoints]

    def __call__(self, outputs: Arrays, description: Description, placement: PicturePlacement) -> Answers:
        made = self.formula(outputs, placement.model)
        points = placement.to_picture(made.places.astype(numpy.float64))
        listed = tuple((float(x), float(y), float(score)) for (x, y), score in zip(points, made.scores, strict=True))
        return {made.output: Pose(listed, description.labels)}


def heatmaps(outputs: Arrays, size: Size) -> Keypoints:
    """Keypoints at the maxima of (1, keypoints, height, width).

    A point is moved by a quarter towards its larger neighbours, as in Xiao et al., arXiv:1804.06208.
    """
    name, planes = _single_map(outputs, size)
    count, height, width = planes.shape
    flat = planes.reshape(count, -1)
    best = flat.argmax(axis=1)
    rows, columns = best // width, best % width
    padded = numpy.pad(planes, ((0, 0), (1, 1), (1, 1))).reshape(count, -1)
    middle = (rows + 1) * (width + 2) + columns + 1

    def offset_at(step: int) -> Array:
        found: Array = numpy.take_along_axis(padded, (middle + step)[:, None], axis=1)[:, 0]
        return found

    across, down = numpy.sign(offset_at(1) - offset_at(-1)), numpy.sign(offset_at(width + 2) - offset_at(-width - 2))
    # That project moves no point of the first two rows and columns, nor of the last.
    moves = 0.25 * ((columns > 1) & (columns < width - 1) & (rows > 1) & (rows < height - 1))
    places = numpy.stack([columns + moves * across, rows + moves * down], axis=1)
    steps = numpy.array(size) / numpy.array([width, height])
    return Keypoints(name, places * steps, flat.max(axis=1))


def simcc(outputs: Arrays, size: Size) -> Keypoints:
    """Keypoints of SimCC (Li et al., arXiv:2107.03332): (1, keypoints, k * width) and (1, keypoints, k * height)."""
    (name, across), (_, down) = ((name, array[0]) for name, array in list(outputs.items())[:2])
    places = numpy.stack([across.argmax(axis=1), down.argmax(axis=1)], axis=1)
    steps = numpy.array(size) / numpy.array([across.shape[1], down.shape[1]])
    return Keypoints(name, places * steps, numpy.minimum(across.max(axis=1), down.max(axis=1)))


def movenet(outputs: Arrays, size: Size) -> Keypoints:
    """Keypoints of MoveNet (tfhub.dev/google/movenet): (1, 1, points, 3), each y, x as parts of the input, a score."""
    name, rows = single_output(outputs)
    points = rows.reshape(-1, 3)
    return Keypoints(name, points[:, [1, 0]] * numpy.array(size), points[:, 2])


def image(outputs: Arrays, description: Description, placement: PicturePlacement) -> Answers:
    """Returns every output that is an image: (1, 1 or 3, height, width)."""
    found = {name: Picture(array[0]) for name, array in outputs.items() if is_image(array.shape, str(array.dtype))}
    if not found:
        raise ValueError("no output is an image")
    return found


SMALLEST_IMAGE = 16


def is_image(shape: tuple[int, ...], dtype: str) -> bool:
    """Returns whether an output is an image: (1, 1 or 3, H, W) of floats or bytes, at least 16 pixels high and wide."""
    is_pixels = dtype.startswith("float") or dtype == "uint8"
    return is_pixels and len(shape) == 4 and shape[0] == 1 and shape[1] in (1, 3) and min(shape[2:]) >= SMALLEST_IMAGE


def are_images(outputs: TensorSpecs) -> bool:
    """Returns whether every output may be an image by its shape."""
    return bool(outputs) and all(is_image(tuple(map(int, shape or ())), dtype) for dtype, shape in outputs.values())


def are_likely_images(outputs: TensorSpecs, size: Size) -> bool:
    """Returns whether the outputs are images rather than masks or depth. size: of the model's input.

    Of one channel only a map larger than the input is: a super-resolution of the luma.
    """

    def is_likely(channels: int, height: int, width: int) -> bool:
        return channels == 3 or (width > size[0] > 0 and height > size[1] > 0)

    return are_images(outputs) and any(is_likely(*map(int, (shape or ())[1:])) for _, shape in outputs.values())
