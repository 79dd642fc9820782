"""imgconv compile --task --head: files whose outputs are answers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy
import onnx
import pytest
from PIL import Image
from command_line import Command

import imgconv as engine
from imgconv.cl.device import DeviceInfo
from imgconv.commands.inspect_plans import short_description
from imgconv.onnx_export import export_onnx
from imgconv.stored.compiled_file import SavedModel
from imgconv.tensor import Tensor, build_graph

LABELS = ("cat", "dog", "cow", "owl")
CELLS = 12 * 8 + 6 * 4 + 3 * 2


def write_detector() -> None:
    """YOLOX's head for 96x64, of noise that the picture's brightness shifts a little; a picture; labels."""
    noise = numpy.random.default_rng(0).random((1, CELLS, 9), numpy.float32)
    x = Tensor.input("images", (1, 3, 64, 96))
    rows = Tensor.constant(noise) + x.mean() * 1e-4
    onnx.save(export_onnx(build_graph({"boxes": rows}, [x])), "a.onnx")
    pixels = numpy.random.default_rng(1).integers(0, 256, (64, 96, 3), numpy.uint8)
    Image.fromarray(pixels).resize((192, 96)).save("photo.png")
    Path("labels.txt").write_text("\n".join(LABELS))


def test_run_finds_the_same_in_the_file(imgconv: Command, device: DeviceInfo) -> None:
    """A file for frames, one for the network's input, and one of a plan without a device: as `run` of the model."""
    write_detector()
    meaning = ("--head", "yolox", "--labels", "labels.txt", "--score", "0.5", "--iou", "0.3")
    asked = ("--task", "detect", *meaning, "--most", "60")
    frames = ("--picture", "rgb", "192x96")
    device_option = ("--device", device.index)
    assert imgconv("compile", "a.onnx", *asked, *frames, *device_option, "-o", "frames.imgconv")[0] == 0
    assert imgconv("compile", "a.onnx", *asked, *device_option, "-o", "array.imgconv")[0] == 0
    assert imgconv("compile", "a.onnx", *asked, *frames, "--target", "generic", "-o", "phone.imgconv")[0] == 0
    _, out, _ = imgconv("run", "a.onnx", "photo.png", *meaning, "--json", *device_option)
    wanted = json.loads(out)["results"][0]["answers"]["boxes"]["detections"]
    assert 5 < len(wanted) < 60
    for file in ("frames.imgconv", "array.imgconv", "phone.imgconv"):
        _, out, err = imgconv("run", file, "photo.png", "--json", "--output", "drawn.png", *device_option)
        found = json.loads(out)["results"][0]["answers"]["boxes"]["detections"]
        assert [each["label"] for each in found] == [each["label"] for each in wanted], (file, err)
        # The device resizes without rounding to bytes, which shifts the brightness and so the boxes a little.
        boxes = [[each["box"] for each in them] for them in (found, wanted)]
        numpy.testing.assert_allclose(*boxes, atol=0.05)
        assert Image.open("drawn.png").size == (192, 96)


def test_boxes_of_a_file_that_takes_frames_are_on_the_picture(imgconv: Command, device: DeviceInfo) -> None:
    """A picture of another size is stretched to the frame; with answers in the file and without, boxes are on it."""
    write_detector()
    Image.open("photo.png").resize((384, 96)).save("wide.png")
    frames = ("a.onnx", "--head", "yolox", "--picture", "rgb", "192x96", "--device", device.index)
    assert imgconv("compile", *frames, "--score", "0.5", "-o", "answers.imgconv")[0] == 0
    assert imgconv("compile", "a.onnx", *frames[3:], "-o", "outputs.imgconv", "--resize", "letterbox")[0] == 0
    for file, meaning in (("answers.imgconv", ()), ("outputs.imgconv", ("--head", "yolox", "--score", "0.5"))):
        found = {}
        for picture in ("photo.png", "wide.png"):
            status, out, err = imgconv("run", file, picture, *meaning, "--json", "--device", device.index)
            assert status == 0, err
            result, = json.loads(out)["results"]
            found[picture] = numpy.array([each["box"] for each in result["answers"]["boxes"]["detections"]])
            assert result["size"] == list(Image.open(picture).size)
        assert len(found["photo.png"]) > 5
        numpy.testing.assert_allclose(found["wide.png"], found["photo.png"] * (2, 1, 2, 1), atol=0.05)
        _, out, _ = imgconv("run", file, "wide.png", *meaning, "--device", device.index)
        assert "pictures: stretched to frames of 192x96; " in out


def test_the_file_says_what_its_outputs_are(imgconv: Command, device: DeviceInfo) -> None:
    write_detector()
    about = ("--head", "yolox", "--labels", "labels.txt", "--picture", "nv12", "192x96", "--device", device.index)
    assert imgconv("compile", "a.onnx", *about)[0] == 0
    said = json.loads(SavedModel.open("a.imgconv").description)
    assert (said["task"], said["head"], tuple(said["labels"]), said["answers"]) == ("detect", "yolox", LABELS, True)
    outputs = engine.load("a.imgconv", device).outputs
    assert {name: (value.dtype, value.shape) for name, value in outputs.items()} == {
        "boxes": ("float32", (100, 4)), "scores": ("float32", (100,)), "classes": ("int32", (100,)),
        "count": ("int32", (1,)),
    }


def test_the_file_keeps_the_preparation_that_run_finds(imgconv: Command, device: DeviceInfo) -> None:
    """A guess, the options, and an exporter's metadata; without --picture the app prepares, and `run` of the file."""
    x = Tensor.input("x", (1, 3, 64, 96))
    onnx.save(export_onnx(build_graph({"y": x * 0.5 + 0.25}, [x])), "image.onnx")
    write_detector()
    model = onnx.load("a.onnx")
    onnx.helper.set_model_props(model, {"names": str(dict(enumerate(LABELS))), "stride": "32"})
    onnx.save(model, "named.onnx")
    for file, options, wanted in (
        ("image.onnx", ("--task", "image"), (1 / 255, (0.0,))),
        ("image.onnx", ("--task", "image", "--scale", "0.5", "--mean", "3"), (0.5, (3.0,))),
        ("named.onnx", ("--head", "yolox"), (1 / 255, (0.0,))),
        ("named.onnx", ("--head", "yolox", "--picture", "rgb", "192x96"), (1 / 255, (0.0,))),
    ):
        status, _, err = imgconv("compile", file, *options, "--target", "generic", "-o", "out.imgconv")
        assert status == 0, err
        said = json.loads(SavedModel.open("out.imgconv").description)
        preparation = said["preparation"]
        assert (preparation["scale"], tuple(preparation["mean"])) == wanted
        assert file != "named.onnx" or tuple(said["labels"]) == LABELS
    assert imgconv("compile", "image.onnx", "--task", "image", "--device", device.index)[0] == 0
    shown = []
    for file in ("image.onnx", "image.imgconv"):
        how = ("--resize", "stretch", "--output", f"{file}.png", "--device", device.index)
        assert imgconv("run", file, "photo.png", *how)[0] == 0
        shown.append(numpy.asarray(Image.open(f"{file}.png"), int))
    assert numpy.abs(shown[0] - shown[1]).max() <= 1


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (("--head", "dbnet"), "head 'dbnet' expects (1, 1, height, width)"),
        (("--most", "9"), "--most applies only to decoded answers"),
        (("--head", "fcos"), "are those of head 'yolox'"), (("--head", "ovals"), "invalid choice"),
        (("--head", "yolox", "--state", "boxes=images"), "--state names outputs"),
        (("--head", "yolox", "--labels", "two.txt"), "4 classes, but there are 2 labels"),
    ],
)
def test_answers_that_cannot_be(imgconv: Command, options: tuple[str, ...], match: str) -> None:
    write_detector()
    Path("two.txt").write_text("a\nb")
    status, _, err = imgconv("compile", "a.onnx", *options, "--target", "generic")
    assert status and match in err and not Path("a.imgconv").exists(), err


def test_inspect_shows_the_first_labels() -> None:
    found = short_description(json.dumps({"labels": ["cat", "dog", "cow", "owl"], "score": 0.4}))
    assert json.loads(found) == {"labels": ["cat", "dog", "cow", "... 4 in all"], "score": 0.4}
    assert short_description('{"labels": ["cat"]}') == '{"labels": ["cat"]}'
