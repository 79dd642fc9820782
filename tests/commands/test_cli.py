"""The command line: results, files, and one clear line for whatever goes wrong."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from command_line import Command, in_folder
import numpy
import onnx
import pytest
from onnx.helper import make_graph, make_model, make_node, make_opsetid
from PIL import Image
from support import make_input

from imgconv.cl.device import DeviceInfo, list_devices
from imgconv.commands import devices as devices_command
from imgconv.commands import run as run_command
from imgconv.errors import DeviceError
from imgconv.reports import terminal

ROOT = Path(__file__).parents[2]
COLORS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}


@pytest.fixture
def imgconv(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """Runs one command line in an empty folder: exit status, stdout, stderr."""
    return in_folder(tmp_path, capsys, monkeypatch)


def write_model(
    name: str, nodes: list[Any], inputs: dict[str, list[Any]], constants: dict[str, Any] | None = None
) -> None:
    """A model of float inputs whose only output is y."""
    graph = make_graph(
        nodes, "test", [make_input(key, numpy.float32, shape) for key, shape in inputs.items()],
        [onnx.ValueInfoProto(name="y")],
        [onnx.numpy_helper.from_array(numpy.asarray(array), key) for key, array in (constants or {}).items()],
    )
    onnx.save(make_model(graph, opset_imports=[make_opsetid("", 13)], ir_version=8), name)


def write_classifier(name: str = "means.onnx", height: Any = 8, width: Any = 8) -> None:
    """Three scores: the means of the channels."""
    write_model(name, [make_node("GlobalAveragePool", ["x"], ["y"], name="pool")], {"x": [1, 3, height, width]})


def write_convolution(name: str = "conv.onnx") -> None:
    """A 3x3 convolution and a Relu, 3 to 4 channels, for pictures 10 wide."""
    nodes = [make_node("Conv", ["x", "w"], ["a"], name="first"), make_node("Relu", ["a"], ["y"], name="second")]
    write_model(name, nodes, {"x": [1, 3, "h", 10]}, {"w": numpy.ones((4, 3, 3, 3), numpy.float32)})


def write_negative(name: str = "negative.onnx", channels: int = 3, white: float = 255) -> None:
    """white - x, for pictures of any size."""
    minus = make_node("Sub", ["white", "x"], ["y"], name="minus")
    write_model(name, [minus], {"x": ["n", channels, "h", "w"]}, {"white": numpy.float32(white)})


def write_picture(name: str, color: tuple[int, int, int], size: tuple[int, int] = (20, 16)) -> None:
    Image.new("RGB", size, color).save(name)


# Results


def test_classes_by_name(imgconv: Command, device: DeviceInfo) -> None:
    write_classifier()
    Path("labels.txt").write_text("\n".join(COLORS))
    for name, color in COLORS.items():
        write_picture(f"{name}.png", color)
    pictures = [f"{name}.png" for name in COLORS]
    command = ("run", "means.onnx", *pictures, "--device", device.index, "--scale", "1/255", "--labels", "labels.txt")
    status, out, err = imgconv(*command, "--top", 1)
    assert status == 0, err
    found = re.findall(r"^(\w+)\.png: 20x16, .* ms on .*\n.* scores, best 1\n +\d +1\.0000  (\w+)$", out, re.MULTILINE)
    assert found == [(name, name) for name in COLORS]
    status, out, _ = imgconv(*command, "--json")
    results = json.loads(out)["results"]
    assert [each["outputs"]["y"]["top"][0]["label"] for each in results] == list(COLORS)
    assert results[0]["picture"] == "red.png" and results[0]["size"] == [20, 16]
    assert len(results[0]["outputs"]["y"]["top"]) == 3


def test_pictures_of_several_sizes_and_each_filter(imgconv: Command, device: DeviceInfo) -> None:
    """The mean of a picture of two halves is theirs, whatever its size; a letterbox is half gray."""
    write_classifier()
    for name, size in ("small.png", (8, 8)), ("wide.png", (40, 20)), ("tall.png", (7, 30)):
        image = Image.new("RGB", size, (0, 80, 0))
        image.paste((200, 80, 0), (0, 0, size[0], size[1] // 2))
        image.save(name)
    options = ("--device", device.index, "--json")
    for name in ("antialias", "area", "bicubic", "bilinear"):
        _, out, err = imgconv("run", "means.onnx", "small.png", "wide.png", "tall.png", "--filter", name, *options)
        for each in json.loads(out)["results"]:
            assert scores_of(each) == pytest.approx({0: 100, 1: 80, 2: 0}, abs=0.5), err
    _, out, _ = imgconv("run", "means.onnx", "wide.png", "--resize", "letterbox", "--pad", 20, *options)
    assert scores_of(json.loads(out)["results"][0]) == pytest.approx({0: 60, 1: 50, 2: 10}, abs=0.5)


def test_an_input_may_be_called_picture(imgconv: Command, device: DeviceInfo) -> None:
    pool = make_node("GlobalAveragePool", ["picture"], ["y"], name="pool")
    write_model("named.onnx", [pool], {"picture": [1, 3, "h", "w"]})
    write_picture("a.png", (10, 20, 30))
    for shape in ((), ("--shape", "picture=1,3,5,9")):
        _, out, err = imgconv("run", "named.onnx", "a.png", "--device", device.index, "--json", *shape)
        assert scores_of(json.loads(out)["results"][0]) == pytest.approx({0: 10, 1: 20, 2: 30}, abs=1e-3), err


def scores_of(result: dict[str, Any]) -> dict[int, float]:
    return {each["index"]: each["score"] for each in result["outputs"]["y"]["top"]}


def test_order_mean_and_std(imgconv: Command, device: DeviceInfo) -> None:
    write_classifier()
    write_picture("a.png", (10, 20, 30))
    command = ("run", "means.onnx", "a.png", "--device", device.index, "--order", "bgr", "--mean", "30,10,0", "--json")
    _, out, _ = imgconv(*command, "--std", 2)
    scores = {each["index"]: each["score"] for each in json.loads(out)["results"][0]["outputs"]["y"]["top"]}
    assert scores == pytest.approx({0: 0, 1: 5, 2: 5}, abs=1e-4)


@pytest.mark.parametrize("resize", ["stretch", "crop", "letterbox"])
def test_a_compiled_file_takes_the_picture_as_its_model_does(imgconv: Command, device: DeviceInfo, resize: str) -> None:
    """One prepares it on the device, the other on the host: the results differ by the rounding of floats alone."""
    write_negative()
    noise = numpy.random.default_rng(3).integers(0, 256, (387, 500, 3), numpy.uint8)
    Image.fromarray(noise).save("a.png")
    sizes = ("--device", device.index, "--shape", "x=1,3,224,224")
    status, _, err = imgconv("compile", "negative.onnx", "-o", "negative.imgconv", *sizes)
    assert status == 0, err
    picture = ("a.png", "--resize", resize, "--filter", "bicubic", "--scale", "1/255", "--std", "0.2", "--order", "bgr")
    found = []
    for model in ("negative.onnx", "negative.imgconv"):
        shape = sizes if model == "negative.onnx" else sizes[:2]
        status, _, err = imgconv("run", model, *picture, *shape, "--save", "out.npz")
        assert status == 0, err
        found.append(numpy.load("out.npz")["y"])
    # 255 - x is rounded to 1.5e-5.
    numpy.testing.assert_allclose(found[0], found[1], rtol=0, atol=2e-5)


def test_images_of_any_size_are_written(imgconv: Command, device: DeviceInfo) -> None:
    write_negative()
    write_picture("a.png", (10, 20, 30))
    write_picture("b.png", (200, 100, 0), (17, 33))
    command = ("run", "negative.onnx", "a.png", "b.png", "--device", device.index, "--output", "out.png")
    status, out, err = imgconv(*command)
    assert status == 0, err
    for name, size, color in (("out-1.png", (20, 16), (245, 235, 225)), ("out-2.png", (17, 33), (55, 155, 255))):
        assert f"written to {name}" in out
        with Image.open(name) as image:
            assert image.size == size and image.getpixel((3, 3)) == color
    assert {path.name for path in Path().iterdir()} == {"a.png", "b.png", "negative.onnx", "out-1.png", "out-2.png"}


def test_bytes_with_the_channels_last(imgconv: Command, device: DeviceInfo) -> None:
    inputs = [make_input("x", numpy.uint8, [1, 8, 8, 3])]
    nodes = [
        make_node("Cast", ["x"], ["a"], name="cast", to=onnx.TensorProto.FLOAT),
        make_node("ReduceMean", ["a"], ["y"], name="mean", axes=[1, 2], keepdims=0),
    ]
    graph = make_graph(nodes, "test", inputs, [onnx.ValueInfoProto(name="y")])
    onnx.save(make_model(graph, opset_imports=[make_opsetid("", 13)], ir_version=8), "bytes.onnx")
    write_picture("a.png", (10, 20, 255))
    status, out, err = imgconv("run", "bytes.onnx", "a.png", "--device", device.index, "--scale", 2)
    assert status == 0, err
    scores = re.findall(r"^ +(\d) +([\d.]+)$", out, re.MULTILINE)
    assert scores == [("2", "255.0000"), ("1", "40.0000"), ("0", "20.0000")]


def test_luma_gets_its_color_back(imgconv: Command, device: DeviceInfo) -> None:
    write_negative("zero.onnx", channels=1, white=0)
    write_picture("a.png", (200, 50, 100))
    # 0 - (x - 0) / -255 is the luma from 0 to 1.
    command = ("run", "zero.onnx", "a.png", "--device", device.index, "--std=-255", "--output", "out.png")
    status, _, err = imgconv(*command)
    assert status == 0, err
    with Image.open("out.png") as image:
        numpy.testing.assert_allclose(image.getpixel((3, 3)), (200, 50, 100), atol=3)


def test_arrays_in_and_out(imgconv: Command, device: DeviceInfo) -> None:
    write_model("add.onnx", [make_node("Add", ["file", "b"], ["y"], name="add")], {"file": [2, "n"], "b": [2, "n"]})
    a, b = numpy.random.default_rng(3).random((2, 2, 5), numpy.float32)
    numpy.save("a.npy", a)
    numpy.save("b.npy", b)
    command = ("run", "add.onnx", "--input", "file=a.npy", "--input", "b=b.npy", "--device", device.index)
    status, out, err = imgconv(*command, "--save", "out.npz")
    assert status == 0, err
    assert "y float32 2x5:" in out
    numpy.testing.assert_allclose(numpy.load("out.npz")["y"], a + b, 1e-6)


def test_not_finite_is_said(imgconv: Command, device: DeviceInfo) -> None:
    write_model("log.onnx", [make_node("Log", ["x"], ["y"], name="log")], {"x": [2, 3]})
    numpy.save("x.npy", numpy.array([[1, 2, 0], [1, 1, 1]], numpy.float32))
    command = ("run", "log.onnx", "--input", "x=x.npy", "--device", device.index)
    assert "1 of 6 values are NaN or infinite" in imgconv(*command)[1]
    assert json.loads(imgconv(*command, "--json")[1])["results"][0]["outputs"]["y"]["not_finite"] == 1


def test_settings_reach_the_engine(imgconv: Command, device: DeviceInfo) -> None:
    write_convolution()
    command = ("inspect", "conv.onnx", "--shape", "h=12", "--device", device.index, "--json")
    plans = [json.loads(imgconv(*command, *extra)[1]) for extra in ((), ("--float16",), ("--max-image", "8"))]
    textures = [[each["writes"] for each in plan["launches"] if each["kind"] == "pack"][0] for plan in plans]
    half = "float16" if device.half_images else "float32"
    assert [texture["dtype"] for texture in textures] == ["float32", half, "float32"]
    assert [(texture["width"], texture["height"]) for texture in textures[:2]] == [(10, 12)] * 2
    assert textures[2]["tiles"] > 1 and max(textures[2]["width"], textures[2]["height"]) <= 8


# inspect, devices


def test_inspect_shows_every_launch(imgconv: Command, device: DeviceInfo) -> None:
    write_convolution()
    command = ("inspect", "conv.onnx", "--device", device.index, "--shape", "h=12")
    status, out, err = imgconv(*command)
    assert status == 0, err
    assert "input  x: float32[1, 3, 12, 10]" in out and "first, second" in out
    status, out, _ = imgconv(*command, "--json")
    plan = json.loads(out)
    assert plan["inputs"] == [{"name": "x", "shape": [1, 3, 12, 10], "dtype": "float32"}]
    launch, = (each for each in plan["launches"] if each["kind"] == "compute")
    assert launch["origin"] == ["first", "second"] and launch["multiply_adds"] == 4 * 10 * 8 * 27
    totals = plan["totals"]
    assert totals["launches"] == 1 and totals["multiply_adds"] == launch["multiply_adds"]
    assert totals["bytes"] == totals["weight_bytes"] + totals["activation_bytes"] + totals["host_buffer_bytes"]


def test_compile_and_run_what_was_compiled(
    imgconv: Command, device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IMGCONV_DEVICE", str(device.index))
    write_classifier()
    write_picture("a.png", (1, 2, 3))
    status, out, err = imgconv("compile", "means.onnx")
    assert status == 0 and "means.imgconv" in out, err
    expected = json.loads(imgconv("run", "means.onnx", "a.png", "--json")[1])["results"]
    found = json.loads(imgconv("run", "means.imgconv", "a.png", "--json")[1])["results"]
    assert [each["outputs"] for each in found] == [each["outputs"] for each in expected]
    plan = json.loads(imgconv("inspect", "means.imgconv", "--json")[1])
    assert plan["launches"] == json.loads(imgconv("inspect", "means.onnx", "--json")[1])["launches"]
    written = json.loads(imgconv("compile", "means.onnx", "-o", "other.imgconv", "--json")[1])
    assert written["file"] == "other.imgconv" and written["bytes"] == Path("other.imgconv").stat().st_size
    status, _, err = imgconv("run", "means.imgconv", "a.png", "--float16")
    assert status == 1 and "means.imgconv" in err and "cannot be changed" in err
    for command in ("compile", "verify", "tune"):
        status, _, err = imgconv(command, "means.imgconv")
        assert status == 1 and "means.imgconv" in err and "a compiled model: give the ONNX file" in err
    Path("means.imgconv").write_bytes(Path("other.imgconv").read_bytes()[:-100])
    status, _, err = imgconv("run", "means.imgconv", "a.png")
    assert status == 1 and "means.imgconv" in err and "cut off" in err


def test_devices_marks_the_default(imgconv: Command, device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IMGCONV_DEVICE", str(device.index))
    status, out, _ = imgconv("devices")
    assert status == 0
    marked = re.findall(r"^(.) \[(\d+)\] ", out, re.MULTILINE)
    assert marked == [("*" if each == device else " ", str(each.index)) for each in list_devices()]
    assert f"image limit        {device.max_image_width}x{device.max_image_height}" in out
    listed = json.loads(imgconv("devices", "--json")[1])["devices"]
    assert [each["name"] for each in listed if each["default"]] == [device.name]
    assert listed[device.index]["opencl_c_version"] == device.opencl_c_version


def test_devices_are_listed_where_the_chosen_one_is_missing(
    imgconv: Command, device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IMGCONV_DEVICE", "no such device")
    status, out, err = imgconv("devices")
    assert status == 1 and f"[{device.index}] {device.name}" in out and "'no such device'" in err


def test_devices_are_listed_whatever_other_settings_are(imgconv: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOAT16", "nonsense")
    assert imgconv("devices")[0] == 0


def test_no_driver_says_what_to_install(imgconv: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices_command, "list_devices", tuple)
    monkeypatch.setattr("imgconv.cl.device.list_devices", tuple)
    status, out, err = imgconv("devices")
    assert status == 1 and out == "" and "install" in err


# Errors


def prepare_errors() -> None:
    """The files that the bad command lines below use."""
    write_classifier()
    write_classifier("any.onnx", "h", "w")
    write_convolution()
    write_picture("a.png", (1, 2, 3))
    Path("text.onnx").write_text("this is not a model" * 9)
    Path("cut.onnx").write_bytes(Path("means.onnx").read_bytes()[:-20])
    Path("text.png").write_text("this is not a picture")
    Path("two.txt").write_text("one\ntwo")
    Path("text.npy").write_text("this is not an array")
    numpy.save("small.npy", numpy.zeros((1, 3, 2, 2), numpy.float32))
    numpy.save("whole.npy", numpy.zeros((1, 3, 8, 8), numpy.int64))
    strange = make_node("RandomUniformLike", ["x"], ["y"], name="noise")
    write_model("strange.onnx", [strange], {"x": [1]})
    write_model("vector.onnx", [make_node("Relu", ["x"], ["y"], name="relu")], {"x": [1, 7]})
    write_model("batch.onnx", [make_node("Relu", ["x"], ["y"], name="relu")], {"x": [2, 3, 8, 8]})


ERRORS = [
    ("run none.onnx a.png", ["none.onnx", "No such file"]),
    ("run text.onnx a.png", ["text.onnx", "not an ONNX"]),
    ("run cut.onnx a.png", ["cut.onnx"]),
    ("run . a.png", ["'.'", "Is a directory"]),
    ("run strange.onnx --input x=small.npy", ["strange.onnx", "RandomUniformLike", "noise", "unsupported"]),
    ("run means.onnx", ["'x'", "PICTURE"]),
    ("run means.onnx none.png", ["none.png", "No such file"]),
    ("run means.onnx text.png", ["text.png", "not a picture"]),
    ("run means.onnx a.png --labels two.txt", ["3 scores", "2 labels"]),
    ("run means.onnx a.png --labels none.txt", ["none.txt"]),
    ("run means.onnx a.png --output out.png", ["y", "--save"]),
    ("run means.onnx a.png --save none/out.npz", ["none/out.npz", "no folder 'none'"]),
    ("run means.onnx a.png --mean 1,2", ["mean", "2 values"]),
    ("run means.onnx a.png --order y", ["1 channels", "'x'"]),
    ("run means.onnx a.png --std 0", ["std"]),
    ("run means.onnx a.png --input z=small.npy", ["z", "inputs are x"]),
    ("run means.onnx --input x=text.npy", ["text.npy"]),
    ("run means.onnx --input x=none.npy", ["none.npy", "No such file"]),
    ("run means.onnx --input x=small.npy", ["'x'", "[1, 3, 2, 2]", "[1, 3, 8, 8]"]),
    ("run means.onnx --input x=whole.npy", ["'x'", "int64", "float32"]),
    ("run vector.onnx a.png", ["x [1, 7]", "--input"]),
    ("run batch.onnx a.png", ["x [2, 3, 8, 8]", "--input"]),
    ("run means.onnx a.png --device nonsense", ["nonsense"]),
    ("run means.onnx a.png --max-image 3", ["IMGCONV_MAX_IMAGE"]),
    ("run any.onnx a.png --shape x=1,3,4", ["x=1,3,4", "[1, 3, h, w]"]),
    ("run any.onnx a.png --shape x=one", ["x=one", "whole numbers"]),
    ("inspect any.onnx", ["'x'", "[1, 3, h, w]", "--shape x=1,3,224,224"]),
    ("inspect conv.onnx --shape h=99999 --max-image 8", ["tensor", "99999", "8x8"]),
    ("inspect none.onnx", ["none.onnx", "No such file"]),
    ("compile means.onnx -o none/m.imgconv", ["none/m.imgconv", "no folder 'none'"]),
    ("compile means.onnx -o means.onnx/m", ["means.onnx/m", "no folder 'means.onnx'"]),
    ("verify means.onnx --html none/m.html", ["none/m.html", "no folder 'none'"]),
    ("tune means.onnx --output none/m.tuning", ["none/m.tuning", "no folder 'none'"]),
    ("tune means.onnx --precision --output none/m.json", ["none/m.json", "no folder 'none'"]),
    (f"compile means.onnx -o {'m' * 300}", ["cannot write 'mm", "too long"]),
]


@pytest.mark.parametrize(("line", "parts"), ERRORS, ids=[line for line, _ in ERRORS])
def test_errors_are_one_clear_line(imgconv: Command, device: DeviceInfo, line: str, parts: list[str]) -> None:
    prepare_errors()
    before = sorted(Path().iterdir())
    chosen = () if "--device" in line else ("--device", device.index)
    status, out, err = imgconv(*line.split(), *chosen)
    assert status == 1 and out == ""
    message = err.splitlines()[-1] if "nonsense" not in line else err
    assert message.startswith("imgconv: ") and "Traceback" not in err and "fault" not in err
    for part in parts:
        assert part in message, f"{part!r} is not in {message!r}"
    assert sorted(Path().iterdir()) == before


PIPES = [
    "run pipe a.png", "inspect pipe", "verify pipe", "compile pipe", "run means.onnx pipe", "verify means.onnx pipe",
    "run means.onnx a.png --labels pipe", "run means.onnx --input x=pipe", "verify means.onnx --case pipe",
    "run means.onnx a.png --precision pipe", "tune means.onnx --output pipe", "tune means.onnx --merge pipe",
    "run external.onnx a.png",
]


@pytest.mark.parametrize("line", PIPES)
def test_a_pipe_is_refused(imgconv: Command, device: DeviceInfo, line: str) -> None:
    """Nobody writes to it: to open it would take for ever. Here a thread ends what reads it, so that the test fails."""
    write_classifier()
    write_picture("a.png", (1, 2, 3))
    write_external("external.onnx", "pipe")
    os.mkfifo("pipe")
    with ended("pipe"):
        status, out, err = imgconv(*line.split(), "--device", device.index)
    assert status == 1 and out == ""
    assert re.fullmatch("imgconv: .*'pipe'.*(no|not) regular file.*", err.splitlines()[-1]), err


def write_external(name: str, data: str) -> None:
    """x + b, with b in another file."""
    write_model(name, [make_node("Add", ["x", "b"], ["y"])], {"x": [1, 3, 8, 8]}, {"b": numpy.ones(8, numpy.float32)})
    model = onnx.load(name)
    (tensor,) = model.graph.initializer
    onnx.external_data_helper.set_external_data(tensor, data)
    tensor.ClearField("raw_data")
    onnx.save(model, name)


@contextmanager
def ended(path: str) -> Iterator[None]:
    """Whoever opens the pipe meanwhile finds it empty."""
    is_over = threading.Event()

    def write() -> None:
        while not is_over.is_set():
            Path(path).open("wb").close()

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        thread.join()
        os.close(reader)


def broken_nodes() -> dict[str, list[onnx.NodeProto]]:
    """Nodes that are refused, each for another reason; every name has a line break and a terminal's escape."""
    name, x = "two\nlines\x1b[31m", "in\nput"
    relu = make_node("Relu", [x], ["y"], name=name)
    return {
        "operator": [make_node("No\nsuch", [x], ["y"], name=name)],
        "domain": [make_node("Relu", [x], ["y"], name=name, domain="my\ndomain")],
        "attribute": [make_node("Relu", [x], ["y"], name=name, **{"at\ntribute": 1})],
        "tensor": [make_node("Relu", ["no\nthing"], ["y"], name=name)],
        "twice": [relu, relu], "no output": [make_node("Relu", [x], ["other"], name=name)], "open size": [relu],
    }


@pytest.mark.parametrize("problem", broken_nodes())
def test_names_with_line_breaks_leave_errors_one_line(imgconv: Command, device: DeviceInfo, problem: str) -> None:
    write_model("m.onnx", broken_nodes()[problem], {"in\nput": [1, 3, "h\n", 8]})
    size = () if problem == "open size" else ("--shape", "h\n=8")
    for command in ("inspect", "run"):
        status, _, err = imgconv(command, "m.onnx", *size, "--device", device.index)
        assert status == 1 and err.startswith("imgconv: ") and "fault" not in err
        assert err.count("\n") == 1 and "\x1b" not in err


def test_pictures_may_stand_behind_options(imgconv: Command, device: DeviceInfo) -> None:
    write_classifier()
    for name in "abc":
        write_picture(f"{name}.png", (1, 2, 3))
    chosen = ("--device", device.index)
    status, out, err = imgconv("run", "means.onnx", "a.png", *chosen, "b.png", "--top", 1, "c.png", "--json")
    assert status == 0, err
    assert [each["picture"] for each in json.loads(out)["results"]] == ["a.png", "b.png", "c.png"]
    status, _, err = imgconv("profile", "means.onnx", "--repeat", 1, "a.png", *chosen)
    assert status == 0, err
    status, _, err = imgconv("profile", "means.onnx", "--repeat", 1, "a.png", *chosen, "none.png")
    assert status == 2 and "unrecognized arguments: none.png" in err


WRONG_USAGE = [
    "run a.onnx --json a.png --nonsense", "inspect a.onnx --json a.png", "verify a.onnx --case a.npz --json a.png",
    "", "walk", "run", "run a.onnx --scale x", "run a.onnx --resize no", "run a.onnx --shape x", "run a.onnx --top -1",
]


@pytest.mark.parametrize("line", WRONG_USAGE)
def test_wrong_usage_is_2(imgconv: Command, line: str) -> None:
    status, _, err = imgconv(*line.split())
    assert status == 2 and "usage: imgconv" in err


def test_interrupt_is_130(imgconv: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run_command, "execute", interrupted)
    assert imgconv("run", "a.onnx", "a.png") == (130, "", "imgconv: interrupted\n")


INTERRUPTED = """
import os, runpy, signal, sys

class Interrupt:
    def find_spec(self, name, *rest):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
runpy.run_module("imgconv", run_name="__main__")
"""


@pytest.mark.parametrize("module", ["imgconv.cli", "imgconv.model", "numpy", "numpy.linalg", "imgconv.commands.tune"])
def test_an_interrupt_while_modules_are_imported(module: str) -> None:
    """numpy and most of imgconv are imported behind the place where Ctrl-C is caught."""
    found = subprocess.run([sys.executable, "-c", INTERRUPTED, module], capture_output=True, text=True, cwd=ROOT)
    assert (found.returncode, found.stderr) == (130, "imgconv: interrupted\n")


def test_faults_of_our_own_are_one_line_too(imgconv: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(options: object) -> None:
        raise AssertionError("two is not three")

    monkeypatch.setattr(run_command, "execute", broken)
    status, _, err = imgconv("run", "a.onnx", "a.png")
    assert status == 1 and err.count("\n") == 1 and "AssertionError: two is not three" in err
    with pytest.raises(AssertionError):
        imgconv("--traceback", "run", "a.onnx", "a.png")


def test_help_and_version(imgconv: Command) -> None:
    assert imgconv("--version")[1].startswith("imgconv 0.")
    for command in ("run", "inspect", "devices"):
        assert command in imgconv("--help")[1]
        assert imgconv(command, "--help")[0] == 0


def test_module_is_the_command() -> None:
    command = [sys.executable, "-m", "imgconv", "run", "none.onnx", "a.png"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 1 and result.stdout == ""
    assert result.stderr == "imgconv: file 'none.onnx': cannot read the file: No such file or directory\n"


# Progress


def test_quick_work_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with terminal.Progress("reading") as progress:
        progress(0, 5, "compiling")
    assert capsys.readouterr().err == ""


def test_slow_work_is_shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "PATIENCE", 0.0)
    with terminal.Progress("reading") as progress:
        progress(3, 5, "compiling")
        progress(0, 0, "running")
    lines = capsys.readouterr().err.splitlines()
    assert lines[-2:] == ["compiling: 3 of 5", "running"]


def test_json_has_no_nan(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.print_json({"a": (1.5, float("nan")), "b": [float("inf")]})
    assert json.loads(capsys.readouterr().out) == {"a": [1.5, None], "b": [None]}


def test_device_error_is_the_message(imgconv: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(options: object) -> None:
        raise DeviceError("the driver refused")

    monkeypatch.setattr(devices_command, "execute", refused)
    assert imgconv("devices") == (1, "", "imgconv: the driver refused\n")
