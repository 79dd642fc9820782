"""The command line: results, files, what it prints of plans and devices, and progress."""

from __future__ import annotations

import io
import json
import logging
import re
import warnings
from pathlib import Path
from typing import Any

from command_line import Command, write_classifier, write_convolution, write_model, write_negative, write_picture
import numpy
import onnx
import pytest
from onnx.helper import make_graph, make_model, make_node, make_opsetid
from PIL import Image
from planted import overflow_model
from support import make_input
from host_fallback_models import CASES

from imgconv.cl.device import DeviceInfo, list_devices
from imgconv.cli import log_to_stderr
from imgconv.commands import devices as devices_command
from imgconv.loading.device_descriptions import read_device_description
from imgconv.loading.progress import CLEAR
from imgconv.reports import terminal

COLORS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}


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
    found = re.findall(r"^(\w+)\.png: 20x16\n.* scores, best 1\n +\d +1\.0000  (\w+)$", out, re.MULTILINE)
    assert re.match(r"means.onnx: [\d.]+ ms a run on ", out) and found == [(name, name) for name in COLORS]
    said = "rgb, stretched to 8x8, x = pixel * 0.003922"
    assert out.splitlines()[1] == f"pictures: {said}"
    status, out, _ = imgconv(*command, "--json")
    assert json.loads(out)["preparation"] == said
    results = json.loads(out)["results"]
    assert [each["answers"]["y"]["classes"][0]["label"] for each in results] == list(COLORS)
    assert results[0]["picture"] == "red.png" and results[0]["size"] == [20, 16]
    assert len(results[0]["answers"]["y"]["classes"]) == 3 and results[0]["task"] == "classify"


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
        command = ("run", "named.onnx", "a.png", "--task", "classify", "--device", device.index)
        _, out, err = imgconv(*command, "--json", *shape)
        assert scores_of(json.loads(out)["results"][0]) == pytest.approx({0: 10, 1: 20, 2: 30}, abs=1e-3), err


def scores_of(result: dict[str, Any]) -> dict[int, float]:
    return {each["index"]: each["score"] for each in result["answers"]["y"]["classes"]}


def test_order_mean_and_std(imgconv: Command, device: DeviceInfo) -> None:
    write_classifier()
    write_picture("a.png", (10, 20, 30))
    command = ("run", "means.onnx", "a.png", "--device", device.index, "--order", "bgr", "--mean", "30,10,0", "--json")
    _, out, _ = imgconv(*command, "--std", 2)
    assert scores_of(json.loads(out)["results"][0]) == pytest.approx({0: 0, 1: 5, 2: 5}, abs=1e-4)


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
    assert "y float32 1x3: 20, 40, 255\n" in out and "the output shapes do not show the task" in err
    status, _, err = imgconv("run", "bytes.onnx", "a.png", "--device", device.index, "--output", "b.png")
    assert status == 1 and "--output needs the task, which the output shapes do not show: y [1, 3]" in err


def test_luma_gets_its_color_back(imgconv: Command, device: DeviceInfo) -> None:
    write_negative("zero.onnx", channels=1, white=0)
    write_picture("a.png", (200, 50, 100))
    # 0 - (x - 0) / -255 is the luma from 0 to 1.
    command = ("run", "zero.onnx", "a.png", "--device", device.index, "--std=-255", "--task", "image")
    status, _, err = imgconv(*command, "--output", "out.png")
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
    assert "input  x: float32[1, 3, 12, 10]" in out and "output y" in out and "first, second" in out
    assert "= convolution" not in out and "constant" not in out
    _, out, _ = imgconv(*command, "--graph")
    assert "= convolution" in out and "constants of " in out and "  constant " not in out
    status, out, _ = imgconv(*command, "--json")
    plan = json.loads(out)
    assert plan["inputs"] == [{"name": "x", "shape": [1, 3, 12, 10], "dtype": "float32"}]
    launch, = (each for each in plan["launches"] if each["kind"] == "compute")
    assert launch["origin"] == ["first", "second"] and launch["multiply_adds"] == 4 * 10 * 8 * 27
    totals = plan["totals"]
    assert totals["launches"] == len(plan["launches"]) == 1 + totals["packing_launches"]
    assert totals["multiply_adds"] == launch["multiply_adds"]
    assert totals["bytes"] == totals["weight_bytes"] + totals["activation_bytes"] + totals["host_buffer_bytes"]


def test_inspect_says_what_is_half(imgconv: Command, device: DeviceInfo) -> None:
    """The second convolution's values are near 1e6."""
    onnx.save(overflow_model(), "big.onnx")
    status, out, err = imgconv("inspect", "big.onnx", "--device", device.index, "--float16")
    assert status == 0, err
    line, = (line for line in out.splitlines() if line.startswith("float16=1: "))
    assert "near 65504" in line
    marked, = (line for line in out.splitlines() if ", fp32: near 65504" in line)
    assert "big" in marked
    half = json.loads(imgconv("inspect", "big.onnx", "--device", device.index, "--float16", "--json")[1])["half"]
    assert half["values"] - half["half"] == len(half["reasons"]) and "big" in half["reasons"]


def test_inspect_shows_the_plans_of_a_file_without_a_device(
    imgconv: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planned for targets, and read from the file that was compiled for them, plans are the same."""
    monkeypatch.setattr("imgconv.cl.device._find_devices", lambda: pytest.fail("a device was looked for"))
    monkeypatch.setenv("FLOAT16", "0")
    write_convolution()
    Path("conv.task.json").write_text('{"task": "image"}')
    command = ("conv.onnx", "--shape", "h=12", "--target", "generic", "--target", "adreno_740")
    status, out, err = imgconv("compile", *command)
    assert status == 0, err
    status, out, err = imgconv("inspect", "conv.imgconv", "--json")
    assert status == 0, err
    read, planned = json.loads(out), json.loads(imgconv("inspect", *command, "--json")[1])
    assert read["plans"] and read["description"] == planned["description"] == {"task": "image"}
    assert read["bytes"] == Path("conv.imgconv").stat().st_size
    for each, before in zip(read["plans"], planned["plans"], strict=True):
        assert each.pop("target") | {"vector_floats": 0} == before.pop("target") | {"vector_floats": 0}
        assert each.pop("model") != before.pop("model")
        assert each == before and each["predicted_ms"] > 0 and each["launches"]
        memory = each["memory"]
        assert memory["peak"] == sum(memory[name] for name in ("weights", "activations", "states", "buffers"))
    for what in ("conv.imgconv",), command:
        lines = imgconv("inspect", *what)[1].splitlines()
        assert "inputs   x: float32[1, 3, 12, 10]" in lines and "outputs  y: float32[1, 4, 10, 8]" in lines
        assert [line.split()[:2] for line in lines[-2:]] == [["0", "generic,"], ["1", "QUALCOMM"]]
    assert "first, second" in imgconv("inspect", "conv.imgconv", "--all")[1]
    status, _, err = imgconv("inspect", *command, "--float16")
    assert status == 1 and "--float16" in err and "compile" in err


def test_devices_shows_one_alone(imgconv: Command, device: DeviceInfo) -> None:
    found = json.loads(imgconv("devices", "--json", "--device", device.index)[1])
    assert [each["index"] for each in found["devices"]] == [device.index]
    Path("device.json").write_text(json.dumps(found))
    assert read_device_description("device.json") == device


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
    assert [each["answers"] for each in found] == [each["answers"] for each in expected]
    plan = json.loads(imgconv("inspect", "means.imgconv", "--device", device.index, "--json")[1])
    assert plan["launches"] == json.loads(imgconv("inspect", "means.onnx", "--json")[1])["launches"]
    written = json.loads(imgconv("compile", "means.onnx", "-o", "other.imgconv", "--json")[1])
    assert written["file"] == "other.imgconv" and written["bytes"] == Path("other.imgconv").stat().st_size
    status, _, err = imgconv("run", "means.imgconv", "a.png", "--float16")
    assert status == 1 and "means.imgconv" in err and "cannot be changed" in err
    for command in ("compile", "verify", "tune"):
        status, _, err = imgconv(command, "means.imgconv")
        assert status == 1 and "means.imgconv" in err and "this is a compiled file: pass the ONNX file" in err
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
    words = " ".join(out.split())  # a long line is wrapped
    assert all(f"instruction set {each.instruction_set}" in words for each in list_devices() if each.kind == "cpu")
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
    assert status == 1 and "install" in err and "imgconv devices lists" in err
    assert out.splitlines()[0].startswith(("drivers", "no driver: no .icd file in ")) and "has no device" in out


# Progress


def test_quick_work_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with terminal.ProgressSpinner("reading") as progress:
        progress(0, 5, "compiling")
    assert capsys.readouterr().err == ""


def test_slow_work_is_shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "PATIENCE", 0.0)
    with terminal.ProgressSpinner("reading") as progress:
        progress(3, 5, "compiling")
        progress(5, 5, "ready")
        progress(0, 0, "running")
    lines = capsys.readouterr().err.splitlines()
    assert lines[-2:] == ["compiling, 3 of 5", "running"]


def test_a_terminal_has_one_line_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(shown, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stderr", shown)
    monkeypatch.setattr("imgconv.loading.progress.PATIENCE", 0.0)
    monkeypatch.setattr("imgconv.loading.progress.BETWEEN", 0.0)
    with terminal.ProgressSpinner("reading " + "a" * 500) as progress:
        assert shown.getvalue().startswith(f"{CLEAR}imgconv: reading a") and len(shown.getvalue()) < 500
        progress(3, 5, "compiling")
    assert shown.getvalue().endswith(CLEAR) and "compiling" in shown.getvalue()


def test_json_has_no_nan(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.print_json({"a": (1.5, float("nan")), "b": [float("inf")]})
    assert json.loads(capsys.readouterr().out) == {"a": [1.5, None], "b": [None]}


# What depends on data


def test_what_the_host_computes_is_shown(imgconv: Command, device: DeviceInfo) -> None:
    onnx.save(CASES["detector"]()[0], "detector.onnx")
    options = ("--device", device.index)
    status, out, err = imgconv("inspect", "detector.onnx", *options)
    assert status == 0, err
    assert "on the host, because of node 'picked': NonMaxSuppression" in out
    assert "9 nodes on the host; 1.8 kB come from the device: boxes 1.0, scores 0.8" in out
    _, out, _ = imgconv("inspect", "detector.onnx", *options, "--json")
    host = json.loads(out)["host"]
    assert host["node"] == "picked" and host["boundary_bytes"] == {"boxes": 1024, "scores": 768}
    assert host["outputs"][0]["shape"] == [-1]
    write_picture("red.png", (255, 0, 0))
    status, out, err = imgconv("run", "detector.onnx", "red.png", *options, "--scale", "1/255")
    assert status == 0 and "found int64 2" in out, err


def test_the_time_of_the_host(imgconv: Command, device: DeviceInfo) -> None:
    onnx.save(CASES["detector"]()[0], "detector.onnx")
    status, out, err = imgconv(
        "profile", "detector.onnx", "--device", device.index, "--repeat", 2, "--trace", "trace.json", "--json"
    )
    assert status == 0, err
    host = json.loads(out)["host"]
    assert [each["op_type"] for each in host["nodes"]][0] == "NonMaxSuppression" and len(host["nodes"]) == 9
    assert 0 < host["nodes"][0]["end"] <= host["seconds"]
    events = json.loads(Path("trace.json").read_text())["traceEvents"]
    shown = [each for each in events if each["ph"] == "X" and each["tid"] == 3]
    assert [each["cat"] for each in shown][0] == "NonMaxSuppression" and len(shown) == 9


@pytest.mark.parametrize("command", ["run", "inspect", "profile", "compile"])
def test_strict_refuses_what_needs_the_host(imgconv: Command, device: DeviceInfo, command: str) -> None:
    onnx.save(CASES["detector"]()[0], "detector.onnx")
    write_picture("red.png", (255, 0, 0))
    pictures = ["red.png"] if command == "run" else []
    status, _, err = imgconv(command, "detector.onnx", *pictures, "--strict", "--device", device.index)
    assert status == 1 and "node 'picked': strict: the host would compute it and what follows it" in err
    assert not Path("detector.imgconv").exists()


def test_what_is_half_is_said_once(imgconv: Command, device: DeviceInfo) -> None:
    """The message on fp16 values is one line, without the file and line of a Python warning."""
    write_convolution()
    status, _, err = imgconv("inspect", "conv.onnx", "--float16", "--shape", "x=1,3,8,10", "--device", device.index)
    told = [line for line in err.splitlines() if "float16=1" in line]
    assert status == 0 and len(told) == 1 and re.match(r"imgconv: float16=1: \d of \d values are fp16", told[0]), err


def test_warnings_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with log_to_stderr():
        logging.getLogger("imgconv").info("one")
        warnings.warn("one; and what to do", RuntimeWarning, stacklevel=1)
        warnings.warn("two", RuntimeWarning, stacklevel=1)
        warnings.warn("two", RuntimeWarning, stacklevel=1)
    assert capsys.readouterr().err == "imgconv: one\nimgconv: two\n"
