"""Models that take pictures: what is compiled, shared, saved and refused; the benchmark of one; a camera's frame."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy
import onnx
import onnx.helper
import onnx.numpy_helper
import pytest
from PIL import Image
from picture_reference import FLOAT, draw, passing, reference

import imgconv
from benchmarks import picture as benchmark
from imgconv.cl.device import DeviceInfo
from imgconv.preprocess import Preparation, read_picture, to_array
from imgconv.tasks import Description, PicturePlacement, find_task
from imgconv.tensor import Tensor, build_graph

MODELS = os.environ.get("IMGCONV_MODELS")


def test_the_stage_joins_the_first_layer(device: DeviceInfo) -> None:
    """Two launches before the convolution, the second of which normalises, in place of the one that packs floats."""
    weights = numpy.random.default_rng(0).normal(size=(8, 3, 3, 3)).astype(numpy.float32)
    x = Tensor.input("x", (1, 3, 20, 16))
    model = imgconv.load(build_graph({"y": x.conv2d(Tensor.constant(weights), stride=2)}), device)
    ready = model.preprocess((23, 37), mean=(1, 2, 3), std=50.0)
    assert [launch.kind for launch in model.plan.launches] == ["pack", "compute", "unpack"]
    assert [launch.kind for launch in ready.plan.launches] == ["compute", "compute", "compute", "unpack"]
    how = Preparation(mean=(1.0, 2.0, 3.0), std=(50.0,))
    array = draw("rgb", (37, 23))
    expected = model(reference(array, (16, 20), how).astype(numpy.float32))
    numpy.testing.assert_allclose(ready(array), expected, rtol=0, atol=1e-3)


def test_any_size_is_compiled_when_it_comes(device: DeviceInfo) -> None:
    model = imgconv.load(passing(16, 12), device).preprocess(resize="crop")
    with pytest.raises(imgconv.InputError, match="picture's size is not known"):
        _ = model.plan
    for own in ((37, 23), (20, 30), (37, 23)):
        array = draw("rgb", own)
        found = model.run({"picture": array})["y"]
        assert abs(found - reference(array, (16, 12), Preparation("crop"))).max() <= FLOAT
    assert len(model._plans) == 2
    model.run({"picture": draw("rgb", (9, 9))})
    assert model.inputs["picture"].shape == (9, 9, 3) and len(model._plans) == 3


def test_weights_and_kernels_are_shared(device: DeviceInfo) -> None:
    """With the model itself, and between pictures of several sizes.

    The window is 5x5: whether a 3x3 one goes through Winograd's transform depends on how large a picture's values are.
    """
    x = Tensor.input("x", (1, 3, 12, 16))
    weights = numpy.random.default_rng(1).normal(size=(4, 3, 5, 5)).astype(numpy.float32)
    model = imgconv.load(build_graph({"y": x.conv2d(Tensor.constant(weights)).relu()}), device)
    ready = model.preprocess((12, 16), order="bgr")
    sessions = [model._last.session, ready._last.session]
    ready.run({"picture": draw("rgb", (20, 30))})
    sessions.append(ready._last.session)
    for before, after in zip(sessions, sessions[1:]):
        kernels = before.programs.kernels, after.programs.kernels
        texts = kernels[0].keys() & kernels[1].keys()
        assert texts and all(kernels[0][text] is kernels[1][text] for text in texts)
        held = before.plan.content.keys() & after.plan.content.keys()
        assert held and all(before.memory[storage] is after.memory[storage] for storage in held)


def test_the_last_preparation_counts(device: DeviceInfo) -> None:
    """It takes the place of an earlier one, whose size is forgotten."""
    array = draw("nv12", (20, 12))
    once = imgconv.load(passing(8, 8), device).preprocess((9, 9), scale=0.0)
    found = once.preprocess(format="nv12").run({"picture": array})["y"]
    assert abs(found - reference(array, (8, 8), Preparation(format="nv12"))).max() <= FLOAT


def test_a_camera_feeds_a_stream(device: DeviceInfo) -> None:
    """A running sum of frames, kept on the device."""
    x, total = Tensor.input("x", (1, 3, 8, 8)), Tensor.input("total", (1, 3, 8, 8))
    model = imgconv.load(build_graph({"sum": x + total, "y": (x + total).maximum(0)}), device)
    stream = model.preprocess((12, 20), "nv12", input="x").stream({"sum": "total"})
    array = draw("nv12", (20, 12))
    expected = reference(array, (8, 8), Preparation(format="nv12"))
    for frame in range(1, 4):
        assert abs(stream.run({"picture": array})["y"] - frame * expected).max() <= frame * FLOAT


def write_model(dimensions: list[Any], dtype: int = onnx.TensorProto.FLOAT, name: str = "x") -> onnx.ModelProto:
    nodes = [onnx.helper.make_node("Identity", [name], ["y"])]
    graph = onnx.helper.make_graph(
        nodes, "g", [onnx.helper.make_tensor_value_info(name, dtype, dimensions)],
        [onnx.helper.make_tensor_value_info("y", dtype, None)],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)


def test_an_open_size_is_that_of_the_picture(device: DeviceInfo) -> None:
    model = imgconv.load(write_model(["n", "c", "h", "w"]), device).preprocess()
    for own in ((20, 12), (9, 7)):
        array = draw("rgb", own)
        numpy.testing.assert_array_equal(model.run({"picture": array})["y"][0], array.transpose(2, 0, 1))


def test_bytes_with_the_channels_last(device: DeviceInfo) -> None:
    model = imgconv.load(write_model([1, 8, 10, 3], onnx.TensorProto.UINT8), device)
    found = model.preprocess((16, 20), filter="area", scale=3)(numpy.full((16, 20, 3), 60, numpy.uint8))
    assert found.shape == (1, 8, 10, 3) and found.dtype == numpy.uint8 and (found == 180).all()
    clipped = model.preprocess((16, 20), scale=3)(numpy.full((16, 20, 3), 100, numpy.uint8))
    assert (clipped == 255).all()


def test_names_give_way(device: DeviceInfo) -> None:
    """A model may call its own values, and the input itself, as the stage does."""
    proto = write_model([1, 3, 4, 4], name="picture")
    array = draw("rgb", (4, 4))
    numpy.testing.assert_array_equal(
        imgconv.load(proto, device).preprocess((4, 4))(array)[0], array.transpose(2, 0, 1)
    )
    x = Tensor.input("x", (1, 3, 4, 4))
    names = {name: (x * float(n)).exp().named(name) for n, name in enumerate(["picture", "t1", "t2", "t3", "t4"])}
    graph = build_graph({"y": sum(list(names.values())[1:], names["picture"])})
    assert "picture" in graph.values
    found = imgconv.load(graph, device).preprocess((4, 4), scale=1 / 255)(array)
    expected = imgconv.load(graph, device)((array / 255).astype(numpy.float32).transpose(2, 0, 1)[None])
    numpy.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_saved_model_keeps_its_picture(device: DeviceInfo, tmp_path: Path) -> None:
    array = draw("nv12", (20, 12))
    model = imgconv.load(passing(8, 8), device).preprocess((12, 20), "nv12", "letterbox")
    expected = model(array)
    model.save(tmp_path / "m.imgconv")
    again = imgconv.load(tmp_path / "m.imgconv", device)
    numpy.testing.assert_array_equal(again(array), expected)
    with pytest.raises(imgconv.ConfigError, match="inputs are fixed"):
        again.preprocess((12, 20))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"format": "yuv"}, "format is 'yuv'"), ({"colors": "bt2020"}, "bt2020"), ({"resize": "fit"}, "fit"),
        ({"mean": (1, 2)}, "mean has 2"), ({"std": 0}, "std is 0"), ({"order": "y"}, "1 channels"),
        ({"size": (9, 8), "format": "nv12"}, "8x9"), ({"input": "z"}, "'z' is not a picture"),
    ],
)
def test_settings_that_do_not_fit(device: DeviceInfo, settings: dict[str, Any], named: str) -> None:
    model = imgconv.load(passing(8, 8), device)
    with pytest.raises(imgconv.InputError, match=named):
        model.preprocess(**{"size": (8, 8), **settings})


def test_inputs_that_take_no_picture_and_arrays_that_are_none(device: DeviceInfo) -> None:
    x, z = Tensor.input("x", (1, 3, 8, 8)), Tensor.input("z", (1, 3, 8, 8))
    two = imgconv.load(build_graph({"y": x + z}), device)
    with pytest.raises(imgconv.InputError, match="2 inputs can be the picture.*say which"):
        two.preprocess((8, 8))
    ready, array = two.preprocess((8, 8), input="z"), draw("rgb", (8, 8))
    found = ready.run({"picture": array, "x": numpy.ones((1, 3, 8, 8), numpy.float32)})["y"]
    numpy.testing.assert_array_equal(found[0], array.transpose(2, 0, 1) + 1.0)
    with pytest.raises(imgconv.InputError, match="no inputs can be the picture"):
        imgconv.load(build_graph({"y": Tensor.input("x", (1, 5, 8, 8)) + 1.0}), device).preprocess((8, 8))
    one = imgconv.load(passing(8, 8), device)
    for wrong in (array[..., 0], array[..., :2], array.transpose(2, 0, 1)):
        with pytest.raises(imgconv.InputError, match=r"not a picture in rgb; one of 640x480 is \[480, 640, 3\]"):
            one.preprocess().run({"picture": wrong})
    with pytest.raises(imgconv.InputError, match="dtype float32"):
        one.preprocess((8, 8))(array.astype(numpy.float32))
    with pytest.raises(imgconv.InputError, match="not a picture in nv12"):
        one.preprocess(format="nv12").run({"picture": numpy.zeros((10, 8), numpy.uint8)})


@pytest.mark.parametrize("format", ["nv12", "rgb", "grey"])
def test_the_benchmark_checks_its_result(
    device: DeviceInfo, format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx.save(write_model([1, 3, 32, 40]), tmp_path / "m.onnx")
    command = [str(tmp_path / "m.onnx"), "--size", "96x64", "--format", format, "--device", str(device.index)]
    options = benchmark.make_parser().parse_args([*command, "--repeat", "2", "--json", "-"])
    assert benchmark.main(options) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["right"] and found["pixel_error"] <= found["pixel_tolerance"] and found["cost"]["device"] > -1
    assert [row["name"] for row in found["rows"]] == ["network", "prepared"]
    assert found["rows"][1]["picture"]["median_seconds"] > 0 == found["rows"][0]["picture"]["median_seconds"]
    monkeypatch.setattr(benchmark, "on_host", lambda frame, *rest: numpy.float32(500))
    assert benchmark.main(options) == 1
    wrong = json.loads(capsys.readouterr().out)
    assert not wrong["right"] and wrong["rows"][1]["device"] is None


# A camera's frame


def to_nv12(picture: Image.Image) -> Any:
    """BT.601 of limited range; a color is the mean of its four pixels."""
    r, g, b = numpy.moveaxis(numpy.asarray(picture).astype(numpy.float64), 2, 0)
    y = 0.299 * r + 0.587 * g + 0.114 * b
    colors = []
    for plane in ((b - y) / 1.772, (r - y) / 1.402):
        four = plane.reshape(picture.height // 2, 2, picture.width // 2, 2).mean((1, 3))
        colors.append(128 + four * 224 / 255)
    rows = numpy.stack(colors, 2).reshape(picture.height // 2, picture.width)
    return numpy.rint(numpy.concatenate([16 + y * 219 / 255, rows])).clip(0, 255).astype(numpy.uint8)


@pytest.mark.models
@pytest.mark.skipif(MODELS is None, reason="IMGCONV_MODELS does not name a folder of models and cases")
@pytest.mark.parametrize("name", ["000000000139.jpg", "000000000632.jpg", "000000000785.jpg"])
def test_detections_in_a_camera_frame(device: DeviceInfo, name: str) -> None:
    """The answers of Pillow's preparation: the same objects, boxes within 4 of 1920 pixels and scores within 0.03.

    The frame has half the colors' resolution, and the reference's is rounded to 8 bits.
    """
    folder = Path(str(MODELS)) / "yolox_nano"
    picture = read_picture(folder / name).resize((1920, 1080), Image.Resampling.BICUBIC)
    model = imgconv.load(folder / "yolox_nano.onnx", device)
    task = find_task({"output": ("float32", (1, 3549, 85))}, (416, 416), Description())
    how = Preparation(**task.description.preparation)
    ready = model.preprocess((1080, 1920), "nv12", how.resize, how.filter, how.order)
    arrays = ready(to_nv12(picture)), model(to_array(picture, how, (416, 416)))
    placement = PicturePlacement.of(picture.size, (416, 416), how)
    found, expected = (task.decode({"output": array}, placement)["output"].found for array in arrays)
    assert expected and [each.label.name for each in found] == [each.label.name for each in expected]
    for box, other in zip(found, expected, strict=True):
        assert abs(box.label.score - other.label.score) <= 0.03
        assert numpy.abs(numpy.subtract(box.box, other.box)).max() <= 4
