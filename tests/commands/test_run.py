"""imgconv run on many pictures: where they come from, one plan, what goes wrong, and going on after a break."""

from __future__ import annotations

import argparse
import io
import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from command_line import (
    Command, means_of, write_classifier, write_convolution, write_model, write_negative, write_picture,
)
import numpy
import pytest
from onnx.helper import make_node
from PIL import Image
from support import HANG_TIMEOUT

import imgconv.loading.compiled as compiled_module
from imgconv.cl.device import DeviceInfo
from imgconv import cli
from imgconv.commands.command_line_inputs import ASKED, read_cases, read_preparation
from imgconv.commands.picture_loader import map_in_order
from imgconv.reports import counting
from imgconv.reports.counting import PictureProgress, summary
from imgconv.tasks import HEADS


def write_folder() -> dict[str, tuple[int, int, int]]:
    """Pictures of several sizes in folders, beside what is none; their colors by path."""
    colors = {"shots/a.png": (10, 20, 30), "shots/b.jpg": (200, 200, 200), "shots/deep/c.png": (1, 2, 3)}
    Path("shots/deep").mkdir(parents=True)
    for number, (name, color) in enumerate(colors.items()):
        write_picture(name, color, (20 + 7 * number, 16))
    Path("shots/notes.txt").write_text("no picture")
    Path("shots/.hidden.png").write_text("no picture")
    return colors


# Where pictures come from


@pytest.mark.parametrize("paths", [["shots"], ["shots/**/*.[jp]*g"], ["shots/?.*g", "shots/deep"]])
def test_folders_and_patterns(imgconv: Command, device: DeviceInfo, paths: list[str]) -> None:
    write_classifier()
    colors = write_folder()
    status, out, err = imgconv("run", "means.onnx", *paths, "--device", device.index, "--json")
    assert status == 0, err
    found = means_of(out)
    assert list(found) == sorted(colors)
    for name, color in colors.items():
        assert found[name] == pytest.approx(color, abs=2)


def test_a_file_may_be_called_as_a_pattern(imgconv: Command, device: DeviceInfo) -> None:
    write_classifier()
    write_picture("a[1].png", (9, 9, 9))
    _, out, err = imgconv("run", "means.onnx", "a[1].png", "--device", device.index, "--json")
    assert list(means_of(out)) == ["a[1].png"], err


def test_a_folder_without_pictures_is_refused(imgconv: Command) -> None:
    write_classifier()
    Path("empty").mkdir()
    status, _, err = imgconv("run", "means.onnx", "empty")
    assert status == 1 and "'empty' contains no picture" in err


def test_standard_input(imgconv: Command, device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    write_classifier()
    write_picture("a.png", (10, 20, 30))
    command = ("run", "means.onnx", "-", "--device", device.index, "--json")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(Path("a.png").read_bytes())))
    assert means_of(imgconv(*command)[1])["-"] == pytest.approx([10, 20, 30], abs=1e-3)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"nonsense")))
    status, _, err = imgconv(*command)
    assert status == 1 and "'-' is not a picture" in err


# One plan, several at once


def test_pictures_of_all_sizes_share_one_plan(
    imgconv: Command, device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_classifier()
    for number in range(12):
        write_picture(f"{number:02}.png", (number, 0, 0), (9 + 5 * number, 40 - number))
    made: list[Any] = []
    compile_once = compiled_module.ModelSource.compile

    def counted(self: Any, *rest: Any) -> Any:
        made.append(rest)
        return compile_once(self, *rest)

    monkeypatch.setattr(compiled_module.ModelSource, "compile", counted)
    _, out, err = imgconv("run", "means.onnx", ".", "--device", device.index, "--json")
    found = means_of(out)
    assert [found[f"{number:02}.png"][0] for number in range(12)] == pytest.approx(range(12), abs=1e-3), err
    assert len(made) == 1


def test_a_model_of_any_size_is_compiled_once(
    imgconv: Command, device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the first picture's size, rounded up to 32 as this model needs it: it halves and doubles its input."""
    pooled = make_node("MaxPool", ["x"], ["a"], kernel_shape=[2, 2], strides=[2, 2])
    doubled = make_node("Resize", ["a", "", "scales"], ["b"], mode="nearest")
    added = make_node("Add", ["x", "b"], ["c"])
    nodes = [pooled, doubled, added, make_node("GlobalAveragePool", ["c"], ["y"])]
    write_model("open.onnx", nodes, {"x": [1, 3, "h", "w"]}, {"scales": numpy.float32([1, 1, 2, 2])})
    for number, size in enumerate([(33, 20), (20, 33), (64, 32), (7, 90)]):
        write_picture(f"{number}.png", (10 * number, 0, 0), size)
    shapes: list[Any] = []
    compile_once = compiled_module.ModelSource.compile

    def noted(self: Any, given: Any, *rest: Any) -> Any:
        made = compile_once(self, given, *rest)
        shapes.append(given["x"])
        return made

    monkeypatch.setattr(compiled_module.ModelSource, "compile", noted)
    command = ("--task", "classify", "--device", device.index, "--json")
    status, out, err = imgconv("run", "open.onnx", ".", *command, "--pad", 0)
    assert status == 0 and shapes == [(1, 3, 32, 64)], err
    assert "all pictures are resized to 64x32" in err and "--shape x=1,3,HEIGHT,WIDTH" in err
    # Letterboxed: 20x33 covers 19 of 64 columns, and 20 of those that are doubled.
    assert [means_of(out)[f"{n}.png"][0] for n in (2, 1)] == pytest.approx([20 + 20, 10 * (19 + 20) / 64])
    status, out, err = imgconv("run", "open.onnx", "0.png", *command, "--shape", "x=1,3,8,8")
    assert status == 0 and shapes[1:] == [(1, 3, 8, 8)] and "any size" not in err


def test_an_image_network_of_any_size_takes_tiles(imgconv: Command, device: DeviceInfo) -> None:
    """Every picture keeps its own size, and none is compiled for."""
    negative = make_node("Sub", ["white", "x"], ["y"], name="minus")
    write_model("open.onnx", [negative], {"x": [1, 3, "h", "w"]}, {"white": numpy.float32(255)})
    for number, size in enumerate([(40, 36), (90, 50), (17, 60)]):
        write_picture(f"{number}.png", (10 * number, 0, 200), size)
    status, _, err = imgconv("run", "open.onnx", ".", "--device", device.index, "--output", "made/")
    assert status == 0, err
    for number, size in enumerate([(40, 36), (90, 50), (17, 60)]):
        with Image.open(f"made/{number}.png") as made:
            assert made.size == size
            assert made.getpixel((size[0] - 1, size[1] - 1)) == (255 - 10 * number, 255, 55)


def test_results_come_in_order_and_at_once() -> None:
    """Three of six wait for each other, which they can only do side by side; later ones are done before the first."""
    together = threading.Barrier(3, timeout=HANG_TIMEOUT)

    def work(number: int) -> int:
        if number < 3:
            together.wait()
        return number * number

    with ThreadPoolExecutor(3) as pool:
        assert list(map_in_order(pool, work, range(6), 4)) == [0, 1, 4, 9, 16, 25]


def test_few_are_begun_before_the_first_is_taken() -> None:
    begun: list[int] = []
    taken = threading.Event()

    def work(number: int) -> int:
        taken.wait(HANG_TIMEOUT)
        return number

    def items() -> Any:
        for number in range(50):
            begun.append(number)
            if number == 4:
                taken.set()
            yield number

    with ThreadPoolExecutor(2) as pool:
        results = map_in_order(pool, work, items(), 4)
        assert next(results) == 0 and len(begun) == 5
        assert list(results) == list(range(1, 50))


# What goes wrong


def test_bad_pictures_are_named_and_the_others_go_on(imgconv: Command, device: DeviceInfo) -> None:
    write_classifier()
    write_folder()
    Path("shots/b.jpg").write_bytes(Path("shots/b.jpg").read_bytes()[:200])
    command = ("run", "means.onnx", "shots", "none.png", "--device", device.index, "--json")
    status, out, err = imgconv(*command)
    results = {each["picture"]: each for each in json.loads(out)["results"]}
    assert list(results) == ["shots/a.png", "shots/b.jpg", "shots/deep/c.png", "none.png"]
    assert ["error" in each for each in results.values()] == [False, True, False, True]
    assert status == 1 and "2 of 4 pictures cannot be read; the first is 'shots/b.jpg'" in err.splitlines()[-1]
    assert "'none.png': No such file" in err and "Traceback" not in err
    for _ in range(2):
        status, _, err = imgconv(*command, "--jsonl", "r.jsonl")
        assert status == 1 and "2 of 4 pictures cannot be read" in err.splitlines()[-1]
    status, out, err = imgconv("run", "means.onnx", "none.png", "nor.png", "--device", device.index)
    assert status == 1 and out == "" and "2 of 2 pictures cannot be read" in err


def test_a_broken_off_run_goes_on(imgconv: Command, device: DeviceInfo) -> None:
    """Also after a line that was not written to its end; what has a line is not run again."""
    write_classifier()
    write_folder()
    command = ("run", "means.onnx", "shots", "--device", device.index, "--jsonl", "r.jsonl")
    status, out, err = imgconv(*command)
    assert status == 0 and out.count("scores, best 3") == 3, err
    whole = Path("r.jsonl").read_text()
    lines = whole.splitlines(keepends=True)
    assert [json.loads(line)["picture"] for line in lines] == ["shots/a.png", "shots/b.jpg", "shots/deep/c.png"]
    Path("r.jsonl").write_text(lines[0] + lines[1][:30])
    status, out, err = imgconv(*command)
    assert status == 0 and "shots/a.png" not in out and out.count("scores, best 3") == 2, err
    again = [json.loads(line) for line in Path("r.jsonl").read_text().splitlines()]
    first = [json.loads(line) for line in lines]
    assert [each["picture"] for each in again] == [each["picture"] for each in first]
    assert [each["answers"] for each in again] == [each["answers"] for each in first]
    status, out, err = imgconv(*command)
    assert (status, out) == (0, "") and "all 3 pictures are in 'r.jsonl'" in err


@pytest.mark.parametrize("content", ["no line of ours\n", "nor this", '{"model": "other.onnx", "picture": "a.png"}\n'])
def test_a_file_of_something_else_is_left_alone(imgconv: Command, content: str) -> None:
    write_classifier()
    write_picture("a.png", (1, 2, 3))
    Path("r.jsonl").write_text(content)
    status, _, err = imgconv("run", "means.onnx", "a.png", "--jsonl", "r.jsonl")
    assert status == 1 and "choose another file" in err and Path("r.jsonl").read_text() == content


# What is written


def test_files_in_a_folder_have_the_pictures_names(imgconv: Command, device: DeviceInfo) -> None:
    write_negative()
    write_folder()
    write_picture("shots/deep/a.png", (5, 5, 5))
    status, _, err = imgconv("run", "negative.onnx", "shots", "--device", device.index, "--output", "out/")
    assert status == 0, err
    assert sorted(path.name for path in Path("out").iterdir()) == ["a-1.png", "a-3.png", "b.png", "c.png"]
    with Image.open("out/a-3.png") as image:
        assert image.getpixel((3, 3)) == (250, 250, 250)


def write_detector() -> None:
    """YOLOv8's form for 32x32, one class: a box of 16x8 at (12, 14), whose score is the mean of the picture / 255."""
    cells = 16 + 4 + 1
    box = numpy.zeros((1, 5, cells), numpy.float32)
    box[0, :4, 0] = 12, 14, 16, 8
    pick = numpy.zeros((1, 5, cells), numpy.float32)
    pick[0, 4, 0] = 1
    nodes = [
        make_node("ReduceMean", ["x"], ["m"], keepdims=1, axes=[1, 2, 3]),
        make_node("Reshape", ["m", "one"], ["mean"]),
        make_node("Mul", ["mean", "pick"], ["score"]), make_node("Add", ["score", "box"], ["y"]),
    ]
    constants = {"box": box, "pick": pick, "one": numpy.array([1, 1, 1], numpy.int64)}
    write_model("detector.onnx", nodes, {"x": [1, 3, 32, 32]}, constants)


def test_detections(imgconv: Command, device: DeviceInfo) -> None:
    """Told by the outputs, placed on the picture, printed, drawn, and written as COCO's JSON."""
    write_detector()
    write_picture("light.png", (255, 255, 255), (128, 64))
    write_picture("dark.png", (20, 20, 20), (32, 32))
    command = ("run", "detector.onnx", "light.png", "dark.png", "--device", device.index)
    status, out, err = imgconv(*command, "--output", "o.png", "--coco", "c.json", "--pad", 255)
    assert status == 0, err
    assert "1 found" in out and "1.00  16,40 .. 80,64" in out and "0 found" in out
    with Image.open("o-1.png") as drawn:
        assert drawn.size == (128, 64) and drawn.getpixel((16, 50)) != (255, 255, 255) == drawn.getpixel((100, 20))
    content = json.loads(Path("c.json").read_text())
    assert [each["bbox"] for each in content["annotations"]] == [[16, 40, 64, 24]] and len(content["images"]) == 2
    _, out, _ = imgconv(*command, "--score", "1.1", "--json")
    (answer,) = json.loads(out)["results"][0]["answers"].values()
    assert answer["detections"] == [] and 0 < answer["best_score"] < 1.1 and answer["least_score"] == 1.1
    said = f"0 found; the best score is {answer['best_score']:.4g}, and --score is 1.1"
    assert said in imgconv(*command, "--score", "1.1")[1]


def test_a_description_beside_the_model(imgconv: Command, device: DeviceInfo) -> None:
    """It says what the outputs are and how pictures are prepared; a compiled file keeps it; options win."""
    write_classifier()
    write_picture("a.png", (10, 20, 30))
    said = {"labels": ["r", "g", "b"], "top": 1, "preparation": {"order": "bgr", "scale": 2}}
    Path("means.task.json").write_text(json.dumps(said))
    assert imgconv("compile", "means.onnx", "--device", device.index)[0] == 0
    for model in ("means.onnx", "means.imgconv"):
        command = ("run", model, "a.png", "--device", device.index)
        assert "0    60.0000  r" in imgconv(*command)[1]
        assert "2    60.0000  b" in imgconv(*command, "--order", "rgb")[1]
        Path("means.task.json").unlink(missing_ok=True)
    Path("means.task.json").write_text('{"tusk": 1}')
    status, _, err = imgconv("run", "means.onnx", "a.png", "--device", device.index)
    assert status == 1 and "means.task.json" in err and "'tusk'" in err


def test_a_crop_of_500_by_387(imgconv: Command, device: DeviceInfo) -> None:
    write_classifier("c.onnx", 224, 224)
    write_picture("a.png", (10, 20, 30), (500, 387))
    for command in ("run", "verify"):
        for part in ((), ("--crop", "0.875")):
            status, _, err = imgconv(command, "c.onnx", "a.png", "--resize", "crop", *part, "--device", device.index)
            assert status == 0, err


def test_an_unknown_task_is_asked_for(imgconv: Command, device: DeviceInfo) -> None:
    """The outputs are summed up all the same; a task that the shapes leave open lists its heads."""
    write_convolution()
    write_picture("a.png", (10, 20, 30), (10, 12))
    command = ("run", "conv.onnx", "a.png", "--device", device.index)
    status, out, err = imgconv(*command)
    assert status == 0 and "y float32 1x4x10x8: 540 .. 540" in out
    assert "--task classify|detect|segment|pose|depth|image" in err
    status, _, err = imgconv(*command, "--task", "pose")
    assert status == 1 and "heatmaps: (1, keypoints, height, width)" in err and "simcc" in err
    status, out, err = imgconv(*command, "--task", "segment")
    assert status == 0 and "mask of 1 classes" in out and "--task" not in err


# Tiles


def write_smoother(size: int) -> None:
    """A 5x5 mean over zeros at the edges, twice as large: a network that looks two pixels far."""
    weights = numpy.zeros((3, 3, 5, 5), numpy.float32)
    for channel in range(3):
        weights[channel, channel] = 1 / 25
    nodes = [
        make_node("Conv", ["x", "w"], ["a"], pads=[2, 2, 2, 2]),
        make_node("Resize", ["a", "", "scales"], ["y"], mode="nearest", coordinate_transformation_mode="asymmetric",
                  nearest_mode="floor"),
    ]
    constants = {"w": weights, "scales": numpy.array([1, 1, 2, 2], numpy.float32)}
    write_model("smooth.onnx", nodes, {"x": [1, 3, size, size]}, constants)


@pytest.mark.parametrize("size", [(70, 50), (32, 90), (20, 24)])
def test_tiles_have_no_seams(imgconv: Command, device: DeviceInfo, size: tuple[int, int]) -> None:
    """The result is that of the whole picture, to the rounding of floats; a small picture is not stretched."""
    write_smoother(32)
    noise = numpy.random.default_rng(5).integers(0, 256, (size[1], size[0], 3), numpy.uint8)
    Image.fromarray(noise).save("a.png")
    command = ("run", "smooth.onnx", "a.png", "--device", device.index, "--save", "o.npz", "--output", "o.png")
    command = (*command, "--scale", 1)
    for extra in ((), ("--tile",), ("--tile", "12")):
        status, _, err = imgconv(*command, *extra)
        assert status == 0, err
        found = numpy.load("o.npz")["y"][0]
        # A tile's row and column past the picture repeat the last ones, where the whole picture has zeros.
        inner = (slice(None), slice(0, 2 * size[1] - 4), slice(0, 2 * size[0] - 4))
        numpy.testing.assert_allclose(found[inner], smoothed(noise)[inner], atol=1e-3)
        with Image.open("o.png") as image:
            assert image.size == (2 * size[0], 2 * size[1])
    status, _, err = imgconv(*command, "--resize", "stretch")
    assert numpy.load("o.npz")["y"].shape == (1, 3, 64, 64), err


def smoothed(pixels: Any) -> Any:
    padded = numpy.pad(pixels.astype(float), ((2, 2), (2, 2), (0, 0)))
    windows = numpy.lib.stride_tricks.sliding_window_view(padded, (5, 5), (0, 1))
    return windows.mean((3, 4)).transpose(2, 0, 1).repeat(2, 1).repeat(2, 2)


def test_tiles_that_cannot_be(imgconv: Command, device: DeviceInfo) -> None:
    write_smoother(32)
    write_picture("a.png", (1, 2, 3), (70, 50))
    command = ("run", "smooth.onnx", "a.png", "--device", device.index)
    status, _, err = imgconv(*command, "--tile", "17")
    assert status == 1 and "32x32 can overlap by 0 to 16" in err
    status, _, err = imgconv(*command, "--tile", "--resize", "crop")
    assert status == 1 and "does not resize the picture" in err


# COCO's JSON


def test_cocos_json_is_for_detections(imgconv: Command, device: DeviceInfo) -> None:
    write_classifier()
    write_picture("a.png", (255, 0, 0))
    status, out, err = imgconv("run", "means.onnx", "a.png", "--coco", "c.json", "--device", device.index)
    assert status == 1 and out == "" and "the task of this model is 'classify'" in err and not Path("c.json").exists()


# Progress


def test_the_rate_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(counting, "EVERY", 0.0)
    with PictureProgress(5) as told:
        for _ in range(2):
            told.step()
    assert capsys.readouterr().err.count(" of 5 pictures, ") == 2
    assert told.line(0.5) == "2 of 5 pictures, 4.0 a second, 1 s left"
    assert PictureProgress(None).line(2.0) == "0 pictures, 0.0 a second"


def test_the_end_tells_the_rate_and_its_limit() -> None:
    said = "60 pictures in 2.0 s, 30.0 a second; the device ran for "
    assert summary(60, 2.0, 0.005) == said + "15 % of that: reading pictures and writing results took longer"
    assert summary(60, 2.0, 0.03) == said + "90 % of that: it is the limit"
    assert summary(3, 2.0, 0.03) == "3 pictures in 2.0 s, 1.5 a second"
    assert summary(1, 0.01, 0.001) == "1 picture in less than a second"
    assert summary(20, 0.01, 0.001) == "20 pictures in less than a second"


def test_one_picture_is_told_by_its_own_error(imgconv: Command) -> None:
    write_classifier()
    status, _, err = imgconv("run", "means.onnx", "none.png")
    assert status == 1 and err == "imgconv: cannot read picture 'none.png': No such file or directory\n"


def write_image_network(name: str, bias: float, subtract: float = 0.0) -> None:
    """A 1x1 convolution of x - subtract, with a bias; three channels in and out."""
    nodes = [
        make_node("Sub", ["x", "m"], ["a"]), make_node("Conv", ["a", "w", "b"], ["y"], name="first"),
    ][0 if subtract else 1 :]
    if not subtract:
        nodes[0].input[0] = "x"
    weights = numpy.eye(3, dtype=numpy.float32).reshape(3, 3, 1, 1)
    constants = {"m": numpy.float32(subtract), "w": weights, "b": bias * numpy.float32([1, 0.8, 0.9])}
    used = {key: array for key, array in constants.items() if any(key in node.input for node in nodes)}
    write_model(name, nodes, {"x": [1, 3, 16, 16]}, used)


@pytest.mark.parametrize(("bias", "subtract", "text", "largest"), [
    (0.5, 0.0, "x = pixel * 0.003922; guessed, set --scale, --mean and --std if wrong", 200 / 255 + 0.5),
    (30.0, 0.0, "x = pixel, 0 to 255", 230.0),
    (0.1, 117.0, "x = pixel, 0 to 255", 83.1),
])
def test_the_graph_tells_the_range_of_pixels(
    imgconv: Command, device: DeviceInfo, bias: float, subtract: float, text: str, largest: float
) -> None:
    """The bias of a first layer is as large as its response to a picture; a mean that is subtracted tells it, too."""
    write_image_network("net.onnx", bias, subtract)
    Image.new("RGB", (16, 16), (200, 10, 100)).save("a.png")
    status, out, err = imgconv("run", "net.onnx", "a.png", "--device", device.index, "--save", "o.npz")
    assert status == 0 and f"pictures: rgb, whole or in tiles of 16x16, {text}\n" in out, out + err
    assert numpy.load("o.npz")["y"].max() == pytest.approx(largest, abs=1e-3)
    (case,), _ = read_cases(cli.parse(["tune", "--precision", "net.onnx", "a.png"]))
    assert case["x"].max() == pytest.approx(largest - bias + subtract, abs=1e-3), "what tune and verify measure on"


def test_what_the_user_says_of_pixels_is_whole() -> None:
    """--mean beside a head takes the place of the head's scale and std too."""
    options = argparse.Namespace(**{**dict.fromkeys(ASKED), "mean": (10.0,)})
    head = HEADS["dbnet"].defaults["preparation"]
    made = read_preparation(options, None, head)
    assert (made.scale, made.mean, made.std) == (1, (10.0,), (1.0,)) and made.resize == "letterbox"


def test_a_map_of_one_channel_may_be_anything(imgconv: Command, device: DeviceInfo) -> None:
    """A mask, text, depth or an image: the output is described, and the line names the tasks for such a map."""
    mean = [make_node("ReduceMean", ["x"], ["m"], axes=[1]), make_node("Sigmoid", ["m"], ["y"])]
    write_model("map.onnx", mean, {"x": [1, 3, 16, 16]})
    write_picture("a.png", (200, 10, 100))
    status, out, err = imgconv("run", "map.onnx", "a.png", "--device", device.index)
    assert status == 0 and "pictures: rgb, stretched to 16x16, x = pixel * 0.003922; guessed" in out, out + err
    assert "  y float32 1x1x16x16: 0.5" in out and ": image" not in out
    assert "imgconv: the output shapes do not show the task: give --task segment|text|depth|image\n" in err
    status, out, err = imgconv("run", "map.onnx", "a.png", "--device", device.index, "--task", "depth")
    assert status == 0 and "depth, 0.5" in out and "do not show" not in err


def test_a_useless_picture_is_said(imgconv: Command, device: DeviceInfo) -> None:
    """An image that is white all over, or black and white only; a picture's own range is no reason."""
    clip = [make_node("Mul", ["x", "k"], ["a"]), make_node("Clip", ["a", "low", "high"], ["y"])]
    for name, factor in (("clipped.onnx", 50.0), ("right.onnx", 0.9)):
        constants = {"k": numpy.float32(factor), "low": numpy.float32(0), "high": numpy.float32(1)}
        write_model(name, clip, {"x": [1, 3, 16, 16]}, constants)
    noise = numpy.random.default_rng(1).integers(0, 256, (16, 16, 3), numpy.uint8)
    Image.fromarray(noise).save("noise.png")
    Image.new("RGB", (16, 16), (200, 10, 100)).save("grey.png")
    command = ("--device", device.index)
    _, out, _ = imgconv("run", "clipped.onnx", "noise.png", *command)
    assert "% of the values are 0 or 1. If it is not an image, pass --task segment, text or depth. If" in out
    _, out, _ = imgconv("run", "clipped.onnx", "grey.png", *command)
    assert "all values are 1. If it is not an image" in out, out
    _, out, _ = imgconv("run", "right.onnx", "noise.png", *command)
    assert "If the model" not in out, out
