"""Pictures of any size that a device prepares, against float64 numpy that shares no code with imgconv."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle
from mmap import mmap
from typing import Any

import numpy
import pytest
from PIL import Image
from picture_reference import FLOAT, Size, draw, passing, reference

import imgconv
from imgconv.cl.device import DeviceInfo
from imgconv.errors import InputError
from imgconv.graph.nodes import Graph
from imgconv.model import pin_in_place
from imgconv.preprocessing import pixels as module
from imgconv.preprocessing.pixels import Pixels
from imgconv.preprocessing.preparation import PictureInput
from imgconv.preprocess import FILTERS, RESIZES, Preparation
from imgconv.runtime import pipeline
from imgconv.tensor import Tensor, build_graph

# At an even size a pixel can lie on the very edge of a box of the 'area' filter, where rounding decides.
SIZES = [(37, 23), (17, 21), (13, 11), (29, 17), (64, 48), (5, 31), (1, 1), (701, 5)]
ORDERS = cycle(["rgb", "bgr", "y"])
NUMBERS = cycle([
    {}, {"mean": (104.0, 117.0, 123.0)}, {"scale": 1 / 255, "mean": (0.5,), "std": (0.25,)},
    {"std": (58.0, 57.0, 59.0), "pad": 7},
])


def target_of(size: Size, channels: int, last: bool) -> PictureInput:
    return PictureInput("x", "float32", (1, size[1], size[0], channels) if last else (1, channels, size[1], size[0]))


def passing_last(size: Size, channels: int) -> Graph:
    return build_graph({"y": Tensor.input("x", (1, size[1], size[0], channels)).maximum(-1e9)})


def drawn_cases() -> list[Any]:
    """Each way to resize with each filter, in both orders of the axes, and some of the other settings each."""
    cases = []
    for resize in RESIZES:
        for filter in FILTERS:
            for last in (False, True):
                order, numbers = next(ORDERS), dict(next(NUMBERS))
                if order == "y":
                    numbers = {k: (v[:1] if isinstance(v, tuple) else v) for k, v in numbers.items()}
                crop = 0.93 if resize == "crop" and last else 1.0
                cases.append(pytest.param(Preparation(resize, filter, order, **numbers, crop=crop), last))
    return cases


def off(found: Any, array: Any, size: Size, how: Preparation, last: bool) -> float:
    """The largest difference from the reference, in parts of 255 before normalisation."""
    expected = reference(array, size, how)
    difference = abs(found - (expected.transpose(0, 2, 3, 1) if last else expected)).max()
    return float(difference * min(map(abs, how.std)) / abs(how.scale))


@pytest.mark.parametrize(("how", "last"), drawn_cases())
def test_every_way_to_resize_in_one_plan(device: DeviceInfo, how: Preparation, last: bool) -> None:
    """Pictures of several sizes in flight; an array between them."""
    size, channels = (17, 21), how.channels
    model = imgconv.load(passing_last(size, channels) if last else passing(*size, channels), device)
    target = target_of(size, channels, last)
    arrays = [draw("rgb", own) for own in SIZES]
    frames = []
    for array in arrays:
        pixels = Pixels.from_picture(Image.fromarray(array), target, how)
        assert pixels
        frames.append(model.submit({"x": pixels}))
    plain = numpy.random.default_rng(0).random(pixels.shape).astype(numpy.float32)
    frames.insert(3, model.submit({"x": plain}))
    numpy.testing.assert_array_equal(frames.pop(3).result()["y"], plain)
    for frame, array in zip(frames, arrays, strict=True):
        assert off(frame.result()["y"], array, size, how, last) <= FLOAT, array.shape


@pytest.mark.parametrize("way", ["shared", "copied", "queues"])
def test_each_way_to_the_device(device: DeviceInfo, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory that is shared, copied on the one queue, and with queues of its own; arrays and pictures in turn.

    A picture in memory that stays is copied from there; the next one takes its place as soon as its frame is done.
    """
    monkeypatch.setattr(pipeline, "SMALL_FRAME", 0)
    if way == "queues":
        monkeypatch.setattr(pipeline, "BEHIND", -1.0)
    model = imgconv.load(passing(17, 21), replace(device, shares_memory=way == "shared"))
    target, how = target_of((17, 21), 3, False), Preparation("letterbox")
    memory = pin_in_place(model, numpy.frombuffer(mmap(-1, 1 << 22), numpy.uint8))
    for number in range(9):
        # Some are larger than the memory that was made for those before.
        array = draw("rgb", (30 + number, 40 - number) if number < 5 else (500, 200 * number))
        pixels = Pixels.from_picture(Image.fromarray(array), target, how)
        assert pixels
        plain = numpy.full((1, 3, 21, 17), number, numpy.float32)
        pixels.write(memory)
        staying = replace(pixels, parts=[memory[: pixels.bytes]], stays_unchanged=True)
        first, second, third = (model.submit({"x": each}) for each in (pixels, plain, staying))
        assert off(first.result()["y"], array, (17, 21), how, False) <= FLOAT
        numpy.testing.assert_array_equal(second.result()["y"], plain)
        assert off(third.result()["y"], array, (17, 21), how, False) <= FLOAT


def test_a_picture_that_is_too_large_is_left_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bytes, or its columns at the height of the result; the part that is cropped away does not count."""
    target = target_of((10, 10), 3, False)
    wide, tall = Image.new("RGB", (2000, 10)), Image.new("RGB", (10, 2000))
    assert Pixels.from_picture(wide, target, Preparation()) and Pixels.from_picture(tall, target, Preparation())
    monkeypatch.setattr(module, "LARGEST", 50_000)
    module._pixel_plan.cache_clear()
    assert Pixels.from_picture(wide, target, Preparation()) is None
    assert Pixels.from_picture(tall, target, Preparation()) is None
    assert Pixels.from_picture(wide, target, Preparation("crop"))
    monkeypatch.undo()
    monkeypatch.setattr(module, "MIDDLE", 200_000)
    module._pixel_plan.cache_clear()
    assert Pixels.from_picture(wide, target, Preparation()) is None and Pixels.from_picture(tall, target, Preparation())
    monkeypatch.undo()
    module._pixel_plan.cache_clear()


def test_the_parts_are_the_bytes() -> None:
    pixels = Pixels.from_picture(Image.new("RGB", (4, 5)), target_of((10, 10), 3, False), Preparation())
    assert pixels
    memory = numpy.full(pixels.bytes + 1, 7, numpy.uint8)
    pixels.write(memory)
    assert memory.tobytes() == b"".join(map(bytes, pixels.parts)) + b"\7"


def test_what_takes_no_pixels_says_so(device: DeviceInfo) -> None:
    pixels = Pixels.from_picture(Image.new("RGB", (4, 5)), target_of((10, 10), 3, False), Preparation())
    assert pixels
    other = imgconv.load(passing(9, 9), device)
    with pytest.raises(InputError, match=r"input 'x' expects \[1, 3, 9, 9\], the picture is \[1, 3, 10, 10\]"):
        other.submit({"x": pixels})
    whole = imgconv.load(build_graph({"y": Tensor.input("x", (1, 3, 10, 10), "int32") + 1}), device)
    with pytest.raises(InputError, match="input 'x' takes no Pixels: it is not float32"):
        whole.submit({"x": pixels})
    with pytest.raises(InputError, match="input 'x' is given as Pixels, which submit"):
        imgconv.load(passing(10, 10), device).run({"x": pixels})
