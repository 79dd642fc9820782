"""Pictures prepared on the device and on the host, against float64 numpy that shares no code with imgconv, and Pillow.

Tolerances, in parts of 255 before normalisation. ROUNDED: Pillow rounds to 8 bits after each direction, each time by up
to 1/2, and the second direction averages what the first rounded. CUBIC: there it adds up to 1.25 of it, for some of the
weights are negative. FLOAT: sums in float. HALF: half holds 128 .. 255 to
1/16 and rounds after each direction and after the colors, whose largest factor is 2.1.
"""

from __future__ import annotations

import json
import os
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy
import onnx
import onnx.helper
import onnx.numpy_helper
import pytest
from PIL import Image

import imgconv
from benchmarks import picture as benchmark
from examples.detect import PREPARATION, decode
from imgconv.cl.device import DeviceInfo
from imgconv.kernels.layout import HostBuffer, Texture
from imgconv.pictures.device import array_shape
from imgconv.pictures.preparation import placed
from imgconv.preprocess import FILTERS, RESIZES, Preparation, letterbox_scale, read_picture, to_array
from imgconv.tensor import Tensor, build_graph

ROUNDED, FLOAT, HALF = 1.0 + 1e-3, 2e-3, 4 / 16 * 2.1
CUBIC = ROUNDED + 0.125
MODELS = os.environ.get("IMGCONV_MODELS")
Size = tuple[int, int]


def passing(width: int, height: int, channels: int = 3) -> imgconv.graph.nodes.Graph:
    """A model that gives its input."""
    return build_graph({"y": Tensor.input("x", (1, channels, height, width)).maximum(-1e9)})


def draw(format: str, size: Size, low: int = 0, high: int = 255) -> Any:
    """Noise, the same for the same size."""
    random = numpy.random.default_rng(size)
    return random.integers(low, high + 1, array_shape(format, size), numpy.uint8)


# The reference: every output pixel weighs all pixels of the picture


def kernel(name: str, t: Any) -> Any:
    t = abs(t)
    if name == "area":
        return (t < 0.5) * 1.0
    if name == "bicubic":
        inner, outer = 1.5 * t**3 - 2.5 * t**2 + 1, -0.5 * t**3 + 2.5 * t**2 - 4 * t + 2
        return numpy.where(t <= 1, inner, numpy.where(t <= 2, outer, 0.0))
    return numpy.clip(1 - t, 0, None)


def resize_matrix(before: int, after: int, start: float, stop: float, name: str) -> Any:
    step = (stop - start) / after
    wide = step if step > 1 and name != "bilinear" else 1.0
    matrix = numpy.zeros((after, before))
    for o in range(after):
        matrix[o] = kernel(name, (numpy.arange(before) + 0.5 - (start + (o + 0.5) * step)) / wide)
    return matrix / matrix.sum(1, keepdims=True)


def reference(array: Any, size: Size, how: Preparation) -> Any:
    """The model's input (1, C, H, W) in float64."""
    a = array.astype(numpy.float64)
    if how.format == "nv12":
        height, width = a.shape[0] * 2 // 3, a.shape[1]
        planes = [a[:height], a[height:, 0::2], a[height:, 1::2]]
    else:
        height, width = a.shape[:2]
        planes = [a] if a.ndim == 2 else [a[..., 0], a[..., 1], a[..., 2]]
    left, top, right, bottom, (w, h) = 0.0, 0.0, float(width), float(height), size
    if how.resize == "letterbox":
        ratio = min(w / width, h / height)
        w, h = max(1, int(width * ratio)), max(1, int(height * ratio))
    elif how.resize == "crop":
        ratio = max(w / width, h / height)
        left, top = (width - w / ratio) / 2, (height - h / ratio) / 2
        right, bottom = width - left, height - top
    made = []
    for plane in planes:
        rows, columns = plane.shape[0] / height, plane.shape[1] / width
        down = resize_matrix(plane.shape[0], h, top * rows, bottom * rows, how.filter)
        across = resize_matrix(plane.shape[1], w, left * columns, right * columns, how.filter)
        made.append((down @ plane @ across.T).clip(0, 255))
    rgb = to_rgb(made, how.colors) if how.format == "nv12" else made * (4 - len(made)) if len(made) == 1 else made
    if how.order == "y":
        standard = (0.2126, 0.7152, 0.0722) if how.colors.startswith("bt709") else (0.299, 0.587, 0.114)
        channels = [made[0]] if how.format == "grey" else [sum(k * c for k, c in zip(standard, rgb))]
        if how.format == "nv12":
            channels = [made[0] if how.colors.endswith("full") else ((made[0] - 16) / 219 * 255).clip(0, 255)]
    else:
        channels = list(reversed(rgb)) if how.order == "bgr" else list(rgb)
    boxed = numpy.full((1, len(channels), size[1], size[0]), float(how.pad))
    for c, channel in enumerate(channels):
        boxed[0, c, :h, :w] = channel
    columns_of = [numpy.reshape(numpy.broadcast_to(v, len(channels)), (1, -1, 1, 1)) for v in (how.mean, how.std)]
    return (boxed * how.scale - columns_of[0]) / columns_of[1]


def to_rgb(planes: list[Any], colors: str) -> list[Any]:
    """The matrices as their standards print them, to four digits and better."""
    y, u, v = planes[0], planes[1] - 128, planes[2] - 128
    if not colors.endswith("full"):
        y, u, v = (y - 16) * 255 / 219, u * 255 / 224, v * 255 / 224
    if colors.startswith("bt709"):
        rgb = [y + 1.5748 * v, y - 0.1873242729 * u - 0.4681242729 * v, y + 1.8556 * u]
    else:
        rgb = [y + 1.402 * v, y - 0.3441362862 * u - 0.7141362862 * v, y + 1.772 * u]
    return [c.clip(0, 255) for c in rgb]


def check(
    device: DeviceInfo, own: Size, size: Size, how: Preparation, tolerance: float = FLOAT, **settings: Any
) -> imgconv.Model:
    array = draw(how.format, own)
    channels = 1 if how.order == "y" else 3
    model = imgconv.load(passing(*size, channels), device, **settings).preprocess(
        (own[1], own[0]), how.format, how.resize, how.filter, how.order, how.scale, how.mean, how.std, how.pad,
        how.colors,
    )
    found = model(array)
    assert found.shape == (1, channels, size[1], size[0])
    gain = abs(how.scale) / min(map(abs, how.std))
    expected = reference(array, size, how)
    off = abs(found - expected).max()
    assert off <= tolerance * gain, f"{off / gain} of 255"
    if how.format == "rgb":
        off = abs(to_array(Image.fromarray(array), how, size) - expected).max()
        assert off <= FLOAT * gain, f"{off / gain} of 255 on the host"
    return model


# Odd sizes to resize to: at an even one a pixel can lie on the very edge of a box, where rounding decides.
SIZES = [((37, 23), (17, 21)), ((16, 12), (16, 12)), ((30, 17), (61, 41)), ((64, 48), (17, 9)), ((5, 31), (25, 7))]
EVEN = [((38, 26), (17, 21)), ((16, 12), (16, 12)), ((30, 18), (61, 41)), ((64, 48), (17, 9)), ((6, 32), (25, 7))]
ORDERS = cycle(["rgb", "bgr", "y", "bgr"])
NUMBERS = cycle([
    {}, {"mean": (104.0, 117.0, 123.0)}, {"scale": 1 / 255, "mean": (0.5,), "std": (0.25,)},
    {"std": (58.0, 57.0, 59.0), "pad": 7},
])
COLORS = cycle(["bt601", "bt709", "bt601-full", "bt709-full", "bt601"])


def drawn_cases() -> list[Any]:
    """Each format with each way to resize and each filter, and some of the other settings each."""
    cases = []
    for format in ("rgb", "rgba", "grey", "nv12"):
        for number, (resize, filter) in enumerate((r, f) for r in RESIZES for f in FILTERS):
            own, size = (EVEN if format == "nv12" else SIZES)[number % 5]
            order, numbers = next(ORDERS), dict(next(NUMBERS))
            if order == "y":
                numbers = {key: (value[:1] if isinstance(value, tuple) else value) for key, value in numbers.items()}
            colors = next(COLORS) if format == "nv12" else "bt601"
            how = Preparation(resize, filter, order, **numbers, format=format, colors=colors)
            cases.append(pytest.param(own, size, how, id=f"{format}-{resize}-{filter}-{order}-{number % 5}"))
    return cases


@pytest.mark.parametrize(("own", "size", "how"), drawn_cases())
def test_every_format_and_way_to_resize(device: DeviceInfo, own: Size, size: Size, how: Preparation) -> None:
    check(device, own, size, how)


@pytest.mark.parametrize("filter", FILTERS)
@pytest.mark.parametrize("resize", RESIZES)
def test_is_that_of_pillow(device: DeviceInfo, resize: str, filter: str) -> None:
    """Values from 64 to 191, for Pillow clips what a cubic overshoots after each direction."""
    for own, size in ((37, 23), (16, 20)), ((30, 17), (61, 40)):
        array = draw("rgb", own, 64, 191)
        model = imgconv.load(passing(*size), device).preprocess((own[1], own[0]), resize=resize, filter=filter)
        (width, height), box = placed(own, size, resize)
        expected = numpy.full((size[1], size[0], 3), 114.0)
        expected[:height, :width] = by_pillow(Image.fromarray(array), (width, height), box, filter)
        off = abs(model(array)[0] - expected.transpose(2, 0, 1)).max()
        assert off <= (CUBIC if filter == "bicubic" else ROUNDED)


def by_pillow(picture: Image.Image, size: Size, box: tuple[float, float, float, float], filter: str) -> Any:
    """The part of the picture in `box` at that size, (height, width, 3)."""
    ways = {"antialias": "BILINEAR", "area": "BOX", "bicubic": "BICUBIC"}
    if filter in ways:
        return numpy.asarray(picture.resize(size, Image.Resampling[ways[filter]], box))
    return numpy.asarray(picture.transform(size, Image.Transform.EXTENT, box, Image.Resampling.BILINEAR))


@pytest.mark.parametrize(("resize", "filter"), list(zip([*RESIZES, "crop"], FILTERS, strict=True)))
def test_host_and_device_agree(device: DeviceInfo, resize: str, filter: str) -> None:
    """At even sizes too, where a pixel lies on the very edge of a box: one place says what it weighs."""
    for order, own, size in ("bgr", (500, 387), (224, 224)), ("y", (64, 48), (16, 24)):
        how, array = Preparation(resize, filter, order), draw("rgb", own)
        model = imgconv.load(passing(*size, how.channels), device)
        found = model.preprocess((own[1], own[0]), resize=resize, filter=filter, order=order)(array)
        numpy.testing.assert_allclose(found, to_array(Image.fromarray(array), how, size), rtol=0, atol=FLOAT)


@pytest.mark.parametrize("size", [(30, 61), (61, 17), (61, 40)])
def test_a_cubic_overshoots_in_no_direction(device: DeviceInfo, size: Size) -> None:
    """It would reach from -34 to 289 beside an edge between black and white."""
    array = numpy.where(numpy.indices((17, 30)).sum(0)[..., None] % 8 < 4, 0, [255] * 3).astype(numpy.uint8)
    found = imgconv.load(passing(*size), device).preprocess((17, 30), filter="bicubic")(array)
    numpy.testing.assert_allclose(found, reference(array, size, Preparation(filter="bicubic")), atol=FLOAT)
    assert found.min() == 0 and found.max() == 255


def test_nothing_is_lost_where_nothing_is_resized(device: DeviceInfo) -> None:
    """All 256 bytes in one launch: with rows of whole texels, with a whole picture of them, and from a buffer."""
    for width, height in ((16, 16), (18, 16), (17, 15)):
        array = numpy.arange(height * width * 3).reshape(height, width, 3).astype(numpy.uint8)
        model = imgconv.load(passing(width, height), device).preprocess((height, width), order="bgr")
        numpy.testing.assert_array_equal(model(array)[0], array.transpose(2, 0, 1)[::-1])
        assert len(model.plan.launches) == 1


@pytest.mark.parametrize("format", ["rgb", "nv12"])
def test_pictures_past_the_image_limit(device: DeviceInfo, format: str) -> None:
    """A row of 300 pixels is past 64 texels, as are 80 rows: bytes then come from a buffer, and the rest is tiled."""
    how = Preparation("letterbox", order="bgr", format=format)
    model = check(device, (300, 200), (80, 72), how, max_image=64)
    assert isinstance(model.plan.input_buffers["picture"], HostBuffer)
    assert any(texture.tiling.tiles > 1 for texture in model.plan.textures)


@pytest.mark.parametrize("format", ["rgb", "nv12"])
def test_half(device: DeviceInfo, format: str) -> None:
    check(device, (64, 48), (40, 40), Preparation("letterbox", order="bgr", format=format), HALF, float16=1)


def test_bytes_are_uploaded_as_they_are(device: DeviceInfo) -> None:
    """No launch packs the picture, and the host converts nothing: the image is as large as the array."""
    for format, size in (("rgb", (20, 10)), ("rgba", (21, 10)), ("grey", (20, 10)), ("nv12", (20, 10))):
        model = imgconv.load(passing(8, 8), device).preprocess((10, size[0]), format)
        storage = model.plan.input_buffers["picture"]
        assert isinstance(storage, Texture) and storage.dtype == "uint8"
        assert storage.bytes == draw(format, size).nbytes and len(model.plan.launches) == (2 if format != "nv12" else 4)
    odd = imgconv.load(passing(8, 8), device).preprocess((10, 21)).plan.input_buffers["picture"]
    assert isinstance(odd, HostBuffer) and odd.bytes == 630


# Models


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
    model.compile_for({"picture": draw("rgb", (9, 9))})
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
        kernels = before.programs._kernels, after.programs._kernels
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
    with pytest.raises(imgconv.ConfigError, match="keeps its inputs"):
        again.preprocess((12, 20))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"format": "yuv"}, "format is 'yuv'"), ({"colors": "bt2020"}, "bt2020"), ({"resize": "fit"}, "fit"),
        ({"mean": (1, 2)}, "mean has 2"), ({"std": 0}, "std is 0"), ({"order": "y"}, "1 channels"),
        ({"size": (9, 8), "format": "nv12"}, "8x9"), ({"input": "z"}, "'z' does not take a picture"),
    ],
)
def test_settings_that_do_not_fit(device: DeviceInfo, settings: dict[str, Any], named: str) -> None:
    model = imgconv.load(passing(8, 8), device)
    with pytest.raises(imgconv.InputError, match=named):
        model.preprocess(**{"size": (8, 8), **settings})


def test_inputs_that_take_no_picture_and_arrays_that_are_none(device: DeviceInfo) -> None:
    x, z = Tensor.input("x", (1, 3, 8, 8)), Tensor.input("z", (1, 3, 8, 8))
    two = imgconv.load(build_graph({"y": x + z}), device)
    with pytest.raises(imgconv.InputError, match="2 inputs take a picture.*say which"):
        two.preprocess((8, 8))
    ready, array = two.preprocess((8, 8), input="z"), draw("rgb", (8, 8))
    found = ready.run({"picture": array, "x": numpy.ones((1, 3, 8, 8), numpy.float32)})["y"]
    numpy.testing.assert_array_equal(found[0], array.transpose(2, 0, 1) + 1.0)
    with pytest.raises(imgconv.InputError, match="no inputs take a picture"):
        imgconv.load(build_graph({"y": Tensor.input("x", (1, 5, 8, 8)) + 1.0}), device).preprocess((8, 8))
    one = imgconv.load(passing(8, 8), device)
    for wrong in (array[..., 0], array[..., :2], array.transpose(2, 0, 1)):
        with pytest.raises(imgconv.InputError, match=r"no rgb picture; its shape is \(height, width, 3\)"):
            one.preprocess().run({"picture": wrong})
    with pytest.raises(imgconv.InputError, match="dtype float32"):
        one.preprocess((8, 8))(array.astype(numpy.float32))
    with pytest.raises(imgconv.InputError, match="no nv12 picture"):
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
    """Those of Pillow's preparation: the same objects, boxes within 4 of 1920 pixels and scores within 0.03.

    The frame has half the colors' resolution, and the reference's is rounded to 8 bits.
    """
    folder = Path(str(MODELS)) / "yolox_nano"
    picture = read_picture(folder / name).resize((1920, 1080), Image.Resampling.BICUBIC)
    model = imgconv.load(folder / "yolox_nano.onnx", device)
    ready = model.preprocess((1080, 1920), "nv12", PREPARATION.resize, PREPARATION.filter, PREPARATION.order)
    arrays = ready(to_nv12(picture)), model(to_array(picture, PREPARATION, (416, 416)))
    scale = letterbox_scale(picture.size, (416, 416))
    found, expected = (decode(array[0], (416, 416), scale, 0.5) for array in arrays)
    assert expected and [box.label for box in found] == [box.label for box in expected]
    for box, other in zip(found, expected, strict=True):
        assert abs(box.score - other.score) <= 0.03
        assert numpy.abs(numpy.subtract(box.corners, other.corners)).max() <= 4
