"""Frames in memory of any layout: the outputs of the picture that they show, rearranged on the host by numpy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest
from device.picture_reference import FLOAT, passing, reference
from device.video_frames import drawn, picture_of

import imgconv
from imgconv import InputError, Plane, VideoFrame
from imgconv.cl.device import DeviceInfo
from imgconv.preprocess import FORMATS, Preparation
from imgconv.preprocessing.video_frame import HEADER, PackedFrame
from imgconv.tensor import Tensor, build_graph

SIZE = 48, 40  # of the pictures; their arrays fit images of 64 x 64, if rows are not interleaved
TURNS = [(rotation, mirror) for rotation in (0, 90, 180, 270) for mirror in (False, True)]


def seen(device: DeviceInfo, format: str, size: tuple[int, int] = SIZE, **settings: Any) -> imgconv.Model:
    loaded = imgconv.load(passing(24, 20), device=device, **settings)
    return loaded.preprocess((size[1], size[0]), format)  # type: ignore[arg-type]


def window(rotation: int) -> tuple[int, int]:
    """Returns the size of the frame whose picture has SIZE."""
    return SIZE[:: -1 if rotation % 180 else 1]


@pytest.mark.parametrize("settings", [{}, {"max_image": 64}], ids=str)
@pytest.mark.parametrize("format", FORMATS)
def test_each_rotation(device: DeviceInfo, format: str, settings: dict[str, Any]) -> None:
    """The picture's own bits, and near float64."""
    model, how = seen(device, format, **settings), Preparation(format=format)  # type: ignore[arg-type]
    for number, (rotation, mirror) in enumerate(TURNS):
        memory = drawn(format, window(rotation), number, False, rotation=rotation, mirror=mirror)
        array = picture_of(format, memory)
        found = model.run({"picture": memory.frame})["y"]
        assert numpy.abs(found - reference(array, (24, 20), how)).max() < 255 * FLOAT, (rotation, mirror)
        numpy.testing.assert_array_equal(found, model.run({"picture": array})["y"])
        numpy.testing.assert_array_equal(found, model.submit({"picture": memory.frame}).result()["y"])


@pytest.mark.parametrize("format", ["nv12", "nv21", "p010", "i420"])
def test_three_planes(device: DeviceInfo, format: str) -> None:
    """Y, U and V each on its own, as Android gives them, whatever the format says of their order."""
    model = seen(device, format)
    memory = drawn(format, window(90), 1, True, rotation=90)
    found = model.run({"picture": memory.frame})["y"]
    numpy.testing.assert_array_equal(found, model.run({"picture": picture_of(format, memory)})["y"])


@pytest.mark.parametrize("format", ["nv12", "i420", "yuyv"])
@pytest.mark.parametrize("rotation", [0, 90])
def test_a_region_between_pixels_that_share_a_color(device: DeviceInfo, format: str, rotation: int) -> None:
    """Colors are averaged: at odd pixels four differ."""
    model = seen(device, format)
    memory = drawn(format, window(rotation), 2, False, rotation=rotation, at=(3, 1))
    found = model.run({"picture": memory.frame})["y"]
    numpy.testing.assert_array_equal(found, model.run({"picture": picture_of(format, memory)})["y"])


@pytest.mark.parametrize(("format", "size"), [("rgb", (7, 5)), ("grey", (7, 3)), ("bgr", (3, 3)), ("i420", (6, 2))])
def test_arrays_that_end_within_a_texel(device: DeviceInfo, format: str, size: tuple[int, int]) -> None:
    """The number of elements is no multiple of four, and the planes end with the last pixel."""
    model, array = seen(device, format, size), drawn_array(format, size)
    count, content = size[0] * size[1], array.tobytes()
    starts = (0, count, count * 5 // 4) if format == "i420" else (0,)
    frame = VideoFrame([Plane(content, offset=start) for start in starts], *size)
    numpy.testing.assert_array_equal(model.run({"picture": frame})["y"], model.run({"picture": array})["y"])


def test_planes_share_memory(device: DeviceInfo) -> None:
    """The planes of nv12 in Android's YUV_420_888: V's bytes are U's, from the second on. Each is uploaded once."""
    model, array = seen(device, "nv12"), drawn_array("nv12")
    content = bytearray(array.tobytes())  # of writable memory too
    (width, height), view = SIZE, memoryview(content)
    y, colors = view[: width * height], view[width * height :]
    planes = [Plane(y, width, 1), Plane(colors[:-1], width, 2), Plane(colors[1:], width, 2)]
    frame = VideoFrame(planes, *SIZE)
    numpy.testing.assert_array_equal(model.run({"picture": frame})["y"], model.run({"picture": array})["y"])
    assert PackedFrame.from_frame(frame, "nv12").bytes == HEADER + len(content)


def drawn_array(format: str, size: tuple[int, int] = SIZE) -> Any:
    return picture_of(format, drawn(format, size, 3, False))


def test_rows_from_the_bottom(device: DeviceInfo) -> None:
    """By a negative row stride, as bitmaps are; and a plane without gaps says nothing."""
    model, array = seen(device, "rgb"), drawn_array("rgb")
    expected = model.run({"picture": array})["y"]
    plane = Plane(numpy.ascontiguousarray(array[::-1]), -3 * SIZE[0], offset=3 * SIZE[0] * (SIZE[1] - 1))
    for each in (plane, Plane(array)):
        numpy.testing.assert_array_equal(model.run({"picture": VideoFrame([each], *SIZE)})["y"], expected)


def test_frames_of_many_sizes(device: DeviceInfo) -> None:
    """Smaller and larger ones in turn, mixed with arrays; then all of them in flight."""
    model = seen(device, "nv12")
    frames, arrays = [], []
    for extra in (0, 400, 10):
        array = drawn_array("nv12") ^ (extra & 255)
        padded = numpy.zeros((len(array), SIZE[0] + extra), numpy.uint8)
        padded[:, : SIZE[0]] = array
        pitch = SIZE[0] + extra
        frames.append(VideoFrame([Plane(padded, pitch), Plane(padded, pitch, offset=pitch * SIZE[1])], *SIZE))
        arrays.append(array)
    expected = [model.run({"picture": array})["y"] for array in arrays]
    given = [each for pair in zip(frames, arrays) for each in pair]
    for found in ([model.run({"picture": each})["y"] for each in given],
                  [each.result()["y"] for each in [model.submit({"picture": each}) for each in given]]):
        for number, each in enumerate(found):
            numpy.testing.assert_array_equal(each, expected[number // 2])


def test_a_compiled_file_and_a_stream(device: DeviceInfo, tmp_path: Path) -> None:
    x = Tensor.input("x", (1, 3, 20, 24))
    state = Tensor.input("state", (1, 3, 20, 24))
    graph = build_graph({"after": x + state * 0.5}, [x, state])
    model = imgconv.load(graph, device=device).preprocess((SIZE[1], SIZE[0]), "yuyv", input="x")
    memory = drawn("yuyv", window(270), 4, False, rotation=270)
    array, zeros = picture_of("yuyv", memory), numpy.zeros((1, 3, 20, 24), numpy.float32)
    expected = model.run({"picture": array, "state": zeros})["after"]
    model.save(tmp_path / "m.imgconv")
    loaded = imgconv.load(tmp_path / "m.imgconv", device)
    streams = model.stream({"after": "state"}), loaded.stream({"after": "state"})
    found = [loaded.run({"picture": memory.frame, "state": zeros})["after"]]
    assert all(not stream.run({"picture": memory.frame}) for stream in streams)
    numpy.testing.assert_array_equal(found[0], expected)
    turned = VideoFrame(memory.frame.planes, *window(0), rotation=0)
    model.run({"picture": replace(turned, rotation=90), "state": zeros})  # which is compiled for that size
    for use in (loaded.run, loaded.submit):
        with pytest.raises(InputError, match="expects 48x40; the frame's region, after its rotation, is 40x48"):
            use({"picture": replace(turned, rotation=90), "state": zeros})


def nv12(width: int = SIZE[0], height: int = SIZE[1], **about: Any) -> VideoFrame:
    y, colors = numpy.zeros(width * height, numpy.uint8), numpy.zeros(width * height // 2, numpy.uint8)
    return VideoFrame([Plane(y), Plane(colors)], width, height, **about)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: nv12(rotation=45), "rotation is 45"),
        (lambda: nv12(region=(2, 0, *SIZE)), "not inside the frame of 48x40"),
        (lambda: nv12(region=(-2, 0, *SIZE)), "not inside"),
        (lambda: nv12(region=(0, 0, 47, 40)), "cannot be 47x40"),
        (lambda: VideoFrame([Plane(bytes(100))], *SIZE), "has 2 or 3 planes, not 1: give a Plane"),
        (lambda: VideoFrame([Plane(bytes(1920), 47), Plane(bytes(960))], *SIZE), "row stride of 47 bytes; .* take 48"),
        (lambda: VideoFrame([Plane(bytes(1920)), Plane(bytes(960), -47)], *SIZE), "plane 1 has a row stride of -47"),
        (lambda: VideoFrame([Plane(bytes(1920)), Plane(bytes(959))], *SIZE), "plane 1 has 959 bytes"),
        (lambda: VideoFrame([Plane(bytes(1920), 49), Plane(bytes(960))], *SIZE), "plane 0 has 1920 bytes"),
        (lambda: VideoFrame([Plane(bytes(1920), -48), Plane(bytes(960))], *SIZE), "in bytes -1872 to 48"),
        (lambda: VideoFrame([Plane(numpy.zeros((40, 50))[:, :48]), Plane(bytes(960))], *SIZE), "not a contiguous"),
        (lambda: VideoFrame([Plane(bytes(4000), 1 << 40), Plane(bytes(9))], 2, 2, region=(0, 0, 2, 1)), "cannot be"),
    ],
)
def test_bad_frames(device: DeviceInfo, make: Any, match: str) -> None:
    model = seen(device, "nv12")
    for use in (model.run, lambda inputs: model.submit(inputs).result()):
        with pytest.raises(InputError, match=match):
            use({"picture": make()})


def test_a_stride_that_no_device_computes(device: DeviceInfo) -> None:
    model = seen(device, "grey", (48, 1))
    with pytest.raises(InputError, match="2 GB"):
        model.run({"picture": VideoFrame([Plane(bytes(48), 1 << 40)], 48, 1)})


def test_models_that_take_no_frame(device: DeviceInfo) -> None:
    with pytest.raises(InputError, match="input 'x' accepts no VideoFrame"):
        imgconv.load(passing(24, 20), device=device).run({"x": nv12()})
    x = Tensor.input("x", (1, SIZE[1], SIZE[0], 3), "uint8")
    model = imgconv.load(build_graph({"y": x.transpose(0, 3, 1, 2)}, [x]), device=device)
    frame = VideoFrame([Plane(bytes(3 * SIZE[0] * SIZE[1]))], *SIZE)
    with pytest.raises(InputError, match="'x' accepts no VideoFrame"):
        model.run({"x": frame})
