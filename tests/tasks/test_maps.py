"""Masks, keypoints, depth and images from made outputs."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

from imgconv.errors import InputError
from imgconv.preprocess import Preparation
from imgconv.tasks import HEADS, Depth, Description, Picture, PicturePlacement, Pose, Segmentation, find_task
from imgconv.tasks.maps import has_channels_last

SIZE = (32, 24)
SAME = PicturePlacement.of(SIZE, SIZE, Preparation())


def decode(arrays: dict[str, Any], placement: PicturePlacement = SAME, **said: Any) -> Any:
    outputs = {name: (str(array.dtype), array.shape) for name, array in arrays.items()}
    task = find_task(outputs, SIZE, Description(**said))
    assert task
    return next(iter(task.decode(arrays, placement).values()))


def test_the_largest_logit_is_the_class() -> None:
    logits = numpy.random.default_rng(0).normal(size=(1, 5, 24, 32)).astype(numpy.float32)
    found = decode({"y": logits}, labels=tuple("abcde"))
    assert isinstance(found, Segmentation)
    for y in range(24):
        for x in range(32):
            assert logits[0, found.mask[y, x], y, x] == logits[0, :, y, x].max()
    shares = found.shares()
    assert sum(each.score for each in shares) == pytest.approx(1) and {each.name for each in shares} == set("abcde")


@pytest.mark.parametrize(
    ("channels", "size", "said"),
    [
        (12, (24, 32), {}), *((channels, size, said) for size in ((24, 32), (12, 16)) for channels, said in (
            (5, {"task": "segment"}), (1, {"task": "segment"}), (1, {"task": "depth"}), (7, {"head": "heatmaps"}),
        )),
    ],
)
def test_maps_of_tensorflow_have_their_channels_last(
    channels: int, size: tuple[int, int], said: dict[str, Any]
) -> None:
    first = numpy.random.default_rng(1).normal(size=(1, channels, *size)).astype(numpy.float32)
    last = numpy.ascontiguousarray(first.transpose(0, 2, 3, 1))
    assert str(decode({"y": last}, **said).as_json()) == str(decode({"y": first}, **said).as_json())


@pytest.mark.parametrize(
    ("shape", "size", "last"),
    [
        ((1, 257, 257, 21), (257, 257), True), ((1, 21, 257, 257), (257, 257), False),
        ((1, 33, 65, 21), (513, 257), True), ((1, 21, 33, 65), (513, 257), False),
        ((1, 128, 128, 128), (512, 512), False),  # either way: ONNX's own order
        ((1, 17, 64, 48), (192, 256), False), ((1, 64, 48, 17), (192, 256), True),
    ],
)
def test_the_aspect_ratio_tells_where_channels_lie(shape: tuple[int, ...], size: tuple[int, int], last: bool) -> None:
    assert has_channels_last(shape, size) is last


MIXED = numpy.stack([numpy.full((24, 32), value) for value in (0.2, -1.4, 0.6, 0.1)])[None].astype(numpy.float32)
SOFTMAX = numpy.exp(MIXED) / numpy.exp(MIXED).sum(axis=1, keepdims=True)


def test_few_channels_are_classes_if_they_are_probabilities() -> None:
    """Others may be an angle, offsets and scores, as of a network for fingerprints, unless the task is said."""
    task = find_task({"y": ("float32", MIXED.shape)}, SIZE, Description())
    assert task and task.decode({"y": MIXED}, SAME) == {}
    for said in ({"task": "segment"}, {"head": "logits"}, {"labels": tuple("abcd")}):
        assert isinstance(decode({"y": MIXED}, **said), Segmentation)
    assert decode({"y": SOFTMAX}).shares()[0].index == 2
    assert decode({"y": SOFTMAX.transpose(0, 2, 3, 1)}).shares()[0].index == 2


def test_a_mask_is_enlarged_to_the_picture() -> None:
    """Half of the input is class 7; a letterbox of 64x24 fills 32x12 of it, a crop shows the middle."""
    mask = numpy.zeros((1, 24, 32), numpy.int64)
    mask[:, :, 16:] = 7
    found = decode({"y": mask}, PicturePlacement.of((64, 24), SIZE, Preparation("letterbox")))
    assert found.mask.shape == (24, 64) and (found.mask[:, :32] == 0).all() and (found.mask[:, 32:] == 7).all()
    found = decode({"y": mask}, PicturePlacement.of((64, 24), SIZE, Preparation("crop")))
    assert (found.mask[:, :16] == -1).all() and (found.mask[:, 48:] == -1).all()
    assert (found.mask[:, 16:32] == 0).all() and (found.mask[:, 32:48] == 7).all()


def test_one_channel_is_a_mask_if_it_is_said() -> None:
    logits = numpy.full((1, 1, 24, 32), -3.0, numpy.float32)
    logits[..., 10:] = 2.0
    found = decode({"y": logits}, task="segment")
    assert isinstance(found, Segmentation) and found.mask.sum() == 22 * 24
    likely = numpy.where(logits > 0, 0.6, 0.4)
    assert decode({"y": likely}, task="segment").mask.sum() == 22 * 24
    assert decode({"y": likely}, task="segment", score=0.7).mask.sum() == 0
    assert isinstance(decode({"y": likely}, task="depth"), Depth)
    assert isinstance(decode({"y": likely.astype(numpy.float32)}, task="image"), Picture)


def test_masks_of_yolov8() -> None:
    """Two prototypes, left and right half: a detection over both takes what its coefficients choose, in its box."""
    cells = 4 * 3 + 2 * 2 + 1
    columns = numpy.zeros((1, 4 + 2 + 2, cells), numpy.float32)
    columns[0, :, 3] = 16, 12, 20, 16, 0.1, 0.9, -4, 4
    prototypes = numpy.zeros((1, 2, 6, 8), numpy.float32)
    prototypes[0, 0, :, :4] = prototypes[0, 1, :, 4:] = 1
    answer = decode({"y": columns, "p": prototypes}, PicturePlacement.of((64, 48), SIZE, Preparation()))
    found, = answer.found
    assert found.box == (12, 8, 52, 40) and found.label.index == 1
    wanted = numpy.zeros((48, 64), bool)
    wanted[8:40, 32:52] = True
    assert (found.mask == wanted).all()


def test_heatmaps() -> None:
    """Decoding as in SimpleBaseline: the largest value, moved a quarter of a step towards its larger neighbour."""
    maps = numpy.zeros((1, 4, 6, 8), numpy.float32)
    maps[0, 0, 2, 3], maps[0, 0, 2, 4], maps[0, 0, 1, 3] = 0.9, 0.5, 0.4
    maps[0, 1, 4, 5], maps[0, 1, 4, 4] = 0.8, 0.1
    maps[0, 2, 0, 7] = 0.7
    # The first two rows and columns and the last are not moved.
    maps[0, 3, 2, 1], maps[0, 3, 2, 2], maps[0, 3, 3, 1] = 0.6, 0.5, 0.4
    placement = PicturePlacement.of((64, 48), SIZE, Preparation())
    found = decode({"y": maps}, placement, head="heatmaps", labels=tuple("abcd"))
    assert isinstance(found, Pose) and found.names == ("a", "b", "c", "d")
    wanted = [(3.25 * 8, 1.75 * 8, 0.9), (4.75 * 8, 4 * 8, 0.8), (7 * 8, 0, 0.7), (8, 2 * 8, 0.6)]
    assert numpy.array(found.points) == pytest.approx(numpy.array(wanted))


def test_simcc() -> None:
    across, down = numpy.zeros((1, 2, 64), numpy.float32), numpy.zeros((1, 2, 48), numpy.float32)
    across[0, 0, 21] = down[0, 0, 30] = 0.9
    across[0, 1, 0], down[0, 1, 47] = 0.5, 0.3
    found = decode({"x": across, "y": down})
    assert numpy.array(found.points) == pytest.approx(numpy.array([(10.5, 15, 0.9), (0, 23.5, 0.3)]))


def test_movenet() -> None:
    """Points are fractions of the letterboxed input, whose upper half a picture of 64x24 fills."""
    points = numpy.zeros((1, 1, 17, 3), numpy.float32)
    points[0, 0, 1] = 0.25, 0.75, 0.9
    found = decode({"y": points}, PicturePlacement.of((64, 24), SIZE, Preparation("letterbox")))
    assert isinstance(found, Pose) and found.names[1] == "left eye"
    assert found.points[1] == pytest.approx((48, 12, 0.9))


@pytest.mark.parametrize("shape", [(1, 17, 3), (1, 17, 1, 3), (1, 51)])
def test_movenet_without_its_axes_of_one(shape: tuple[int, ...]) -> None:
    points = numpy.random.default_rng(2).random((1, 1, 17, 3), numpy.float32)
    assert decode({"y": points.reshape(shape)}, head="movenet") == decode({"y": points})


def test_depth_keeps_its_unit() -> None:
    plane = numpy.linspace(-3, 9, 24 * 32, dtype=numpy.float32).reshape(1, 24, 32)
    found = decode({"y": plane}, task="depth")
    numpy.testing.assert_allclose(found.values, plane[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("arrays", "said", "named"),
    [
        ({"y": (1, 17, 6, 8)}, {"task": "pose"}, "heatmaps"), ({"y": (1, 9)}, {"task": "detect"}, "yolov8"),
        ({"y": (1, 9)}, {"head": "squares"}, "use yolox"),
        ({"y": (1, 9)}, {"head": "scores", "task": "pose"}, "'classify'"),
    ],
)
def test_an_unknown_head_is_asked_for(arrays: dict[str, Any], said: dict[str, str], named: str) -> None:
    outputs = {name: ("float32", shape) for name, shape in arrays.items()}
    with pytest.raises(InputError, match=named):
        find_task(outputs, SIZE, Description(**said))


@pytest.mark.parametrize(
    ("shape", "dtype", "head"),
    [
        ((1, 5), "float32", "scores"), ((1, 5, 1, 1), "float16", "scores"), ((5,), "float32", "scores"),
        ((1, 3, 32, 20), "float32", "image"), ((1, 1, 48, 64), "float16", "image"), ((1, 3, 32, 32), "uint8", "image"),
        ((1, 1, 24, 32), "float32", None), ((1, 1, 48, 32), "float32", None), ((1, 1, 24, 32), "uint8", None),
        ((1, 3, 7, 7), "float32", None), ((1, 2, 32, 32), "float32", None), ((2, 3, 32, 32), "float32", None),
        ((1, 10, 4), "float32", None), ((), "float32", None), ((1, 5), "int64", None), ((0, 5), "float32", None),
        ((1, 21, 24, 32), "float32", "logits"), ((1, 24, 32), "int64", "indices"), ((1, 1, 24, 32), "int32", "indices"),
        ((1, 17, 6, 8), "float32", None), ((1, 24, 32), "float32", None), ((1, 1, 1, 24, 32), "int32", None),
        ((1, 512), "float32", None), ((1, 136), "float32", None), ((1, 195, 1, 1), "float32", None),
        ((1076, 1), "float32", None),
    ],
)
def test_what_shapes_show(shape: tuple[int, ...], dtype: str, head: str | None) -> None:
    task = find_task({"y": (dtype, shape)}, SIZE, Description())
    assert (task.head if task else None) == head


def test_an_image_next_to_features_is_no_image_network() -> None:
    """XFeat's outputs, with a heat map as large as the picture: tiles of its features cannot be joined."""
    image, features = ("float32", (1, 1, *SIZE[::-1])), ("float32", (1, 64, 3, 4))
    assert find_task({"heat": image, "features": features}, SIZE, Description()) is None
    two = find_task({"alpha": image, "foreground": ("float32", (1, 3, *SIZE[::-1]))}, SIZE, Description())
    assert two and two.head == "image"


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize(
    "shapes", [[], [()], [(7,)], [(1, 9)], [(1, 3, 4)], [(1, 40, 4), (1, 40)], [(1, 17, 6, 8)], [(3, 4), (3,)]], ids=str
)
def test_outputs_of_another_head_are_named(head: str, shapes: list[tuple[int, ...]]) -> None:
    """By an InputError with the head, or the number of something: never by what numpy says of an index or an axis."""
    arrays = {f"y{number}": numpy.zeros(shape, numpy.float32) for number, shape in enumerate(shapes)}
    outputs = {name: ("float32", array.shape) for name, array in arrays.items()}
    try:
        task = find_task(outputs, SIZE, Description(head=head))
        assert task
        task.decode(arrays, SAME)
    except InputError as error:
        leaked = "out of bounds", "axis", "broadcast", "unpack", "shape mismatch"
        assert not any(words in str(error) for words in leaked)
