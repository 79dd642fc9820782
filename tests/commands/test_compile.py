"""imgconv compile --target: for devices that are not at hand, without any driver; and what the player will refuse."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from command_line import Command, write_convolution
import numpy
import onnx
import pytest
from PIL import Image
from onnx.helper import make_graph, make_model, make_node, make_opsetid
from planted import overflow_model, picture
from support import make_input
from host_fallback_models import CASES

import imgconv as engine
from imgconv.cl.device import DeviceInfo
from imgconv.kernels.target import Target
from imgconv.config import Config
from imgconv.loading.file_plans import with_generic
from imgconv.loading.device_descriptions import read_device_description
from imgconv.loading.device_target import target_of
from imgconv.preprocess import FORMATS
from imgconv.stored.compiled_file import SavedModel
from imgconv.stored.precision_file import read_precision_file

ROOT = Path(__file__).parent.parent.parent
SIZE = ("--shape", "x=1,3,12,10")
PHONES = ("adreno_640", "adreno_740")
TARGETS = tuple(text for name in PHONES for text in ("--target", name))


def compile_without_device(imgconv: Command, *arguments: object) -> tuple[int, str, str]:
    """The command, if no driver is found."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("imgconv.cl.device._find_devices", list)
        return imgconv("compile", *arguments)


@pytest.mark.parametrize("settings", [{}, {"native_explog": True, "max_image": 64}], ids=str)
def test_the_same_file_as_with_a_device(imgconv: Command, device: DeviceInfo, settings: dict[str, Any]) -> None:
    write_convolution()
    model = engine.load("conv.onnx", device=device, shapes={"x": (1, 3, 12, 10)}, **settings)
    model.save("expected.imgconv", PHONES, generic=True)
    options = ("--native-explog", "--max-image", 64) if settings else ()
    status, out, err = compile_without_device(imgconv, "conv.onnx", *SIZE, *TARGETS, *options)
    assert status == 0 and "MB for adreno_640, adreno_740, and any other device\n" in out, err
    assert Path("conv.imgconv").read_bytes() == Path("expected.imgconv").read_bytes()


def test_a_file_ends_with_a_plan_for_any_phone(imgconv: Command, device: DeviceInfo) -> None:
    """With and without --target; once if it is a target; not if it cannot be."""
    write_convolution()
    least = read_device_description("generic").key
    for options, count in (("--device", device.index), 2), (TARGETS, 3), (("--target", "generic"), 1):
        status, _, err = imgconv("compile", "conv.onnx", *SIZE, *options)
        assert status == 0, err
        plans = SavedModel.open("conv.imgconv").table.plans
        devices = [plan.device for plan in plans]
        assert devices[-1] == least and devices.count(least) == 1 and len(devices) >= count
    model = engine.load("conv.onnx", device=device, shapes={"x": (1, 3, 12, 10)})
    prepared = with_generic([], model.graph, Config(float16=2), {}, {})
    assert prepared == []  # it has no arithmetic in half


def test_several_sizes_with_and_without_a_device(imgconv: Command, device: DeviceInfo) -> None:
    write_convolution()
    sizes = ("--shape", "h=12", "--shape", "h=20")
    engine.load("conv.onnx", device=device, shapes={"h": 12}).save("expected.imgconv", PHONES, [{"h": 20}], True)
    status, _, err = compile_without_device(imgconv, "conv.onnx", *sizes, *TARGETS)
    assert status == 0, err
    assert Path("conv.imgconv").read_bytes() == Path("expected.imgconv").read_bytes()
    shown = json.loads(imgconv("inspect", "conv.imgconv", "--json")[1])["plans"]
    assert [plan["inputs"][0]["shape"][2] for plan in shown] == [12] * 3 + [20] * 3
    status, _, err = imgconv("compile", "conv.onnx", "--device", device.index, *sizes)
    assert status == 0, err
    model = engine.load("conv.imgconv", device=device)
    assert [model(numpy.ones((1, 3, height, 10), "f4")).shape[2] for height in (20, 12)] == [18, 10]
    status, _, err = imgconv("compile", "conv.onnx", *sizes, *("--shape", "x=1,3,8,10") * 3)
    assert status == 1 and "--shape h is given 2 times, another name 3 times" in err


def test_states_are_kept_with_and_without_a_device(imgconv: Command, device: DeviceInfo) -> None:
    nodes = [make_node("Add", ["x", "before"], ["after"]), make_node("Relu", ["after"], ["y"])]
    graph = make_graph(
        nodes, "sum", [make_input("x", "f4", (1, 4)), make_input("before", "f4", (1, 4))],
        [onnx.ValueInfoProto(name=name) for name in ("after", "y")],
    )
    onnx.save(make_model(graph, opset_imports=[make_opsetid("", 13)]), "sum.onnx")
    engine.load("sum.onnx", device=device).stream({"after": "before"}).save("expected.imgconv", PHONES, generic=True)
    status, _, err = compile_without_device(imgconv, "sum.onnx", *TARGETS, "--state", "after=before")
    assert status == 0, err
    assert Path("sum.imgconv").read_bytes() == Path("expected.imgconv").read_bytes()
    status, _, err = imgconv("compile", "sum.onnx", "--device", device.index, "--state", "after=before")
    assert status == 0, err
    model = engine.load("sum.imgconv", device=device)
    assert [model(numpy.ones((1, 4)))[0, 0] for _ in range(3)] == [1, 2, 3]
    assert imgconv("inspect", "sum.imgconv")[1].splitlines()[3] == "states   after feeds before"
    for state, text in (("z=before", "no output is called 'z'"), ("after=z", "no input is called 'z'")):
        for more in ((), ("--target", "generic")):
            status, _, err = imgconv("compile", "sum.onnx", "--state", state, *more)
            assert status == 1 and text in err, err


def test_in_a_process_without_any_driver(tmp_path: Path) -> None:
    """Its OpenCL loader finds an empty folder."""
    (tmp_path / "none").mkdir()
    variables = {**os.environ, "OCL_ICD_VENDORS": str(tmp_path / "none"), "OCL_ICD_FILENAMES": "", "FLOAT16": "0"}
    write_convolution(str(tmp_path / "conv.onnx"))
    command = [sys.executable, "-m", "imgconv", "compile", tmp_path / "conv.onnx", *SIZE]

    def run(*last: str) -> subprocess.CompletedProcess[str]:
        words = list(map(str, [*command, *last]))
        return subprocess.run(words, env=variables, cwd=ROOT, capture_output=True, text=True)

    assert "no OpenCL driver found" in run().stderr
    done = run(*TARGETS)
    assert done.returncode == 0, done.stderr
    plans = SavedModel.open(tmp_path / "conv.imgconv").table.plans
    assert [plan.device for plan in plans] == [read_device_description(name).key for name in (*PHONES, "generic")]


def test_pictures_measure_what_can_be_half(imgconv: Command, device: DeviceInfo) -> None:
    """The choice is that of tune --precision on the same pictures."""
    onnx.save(overflow_model(), "planted.onnx")
    Image.fromarray((255 * picture()[0].transpose(1, 2, 0)).astype(numpy.uint8)).save("picture.png")
    about = ["--device", device.index, "--float16"]
    status, _, err = imgconv("compile", "planted.onnx", *about, "--pictures", "picture.png")
    assert status == 0, err
    status, _, err = imgconv("tune", "--precision", "planted.onnx", "picture.png", *about)
    assert status == 0, err
    found, tuned = SavedModel.open("planted.imgconv").config, read_precision_file("planted.precision.json")
    assert found.float16 == 1 and "big" in found.precision.storage
    assert found.precision.storage == tuned.precision.storage
    status, _, err = imgconv(
        "compile", "planted.onnx", *about, "--pictures", "picture.png", "--precision", "planted.precision.json"
    )
    assert status == 1 and "give only one" in err


def test_half_takes_a_device_or_a_precision_file(imgconv: Command, device: DeviceInfo) -> None:
    write_convolution()
    half = ("conv.onnx", *SIZE, *TARGETS, "--float16")
    status, _, err = compile_without_device(imgconv, *half)
    assert status == 1 and "no OpenCL driver found" in err and "give --precision FILE" in err
    assert not Path("conv.imgconv").exists()
    status, _, err = imgconv("tune", "conv.onnx", *SIZE, "--precision", "--device", device.index)
    assert status == 0, err
    assert imgconv("compile", *half, "--device", device.index, "-o", "measured.imgconv")[0] == 0
    status, _, err = compile_without_device(imgconv, *half, "--precision", "conv.precision.json")
    assert status == 0, err
    found, measured = SavedModel.open("conv.imgconv"), SavedModel.open("measured.imgconv")
    assert found.config.float16 == 1 and found.config.precision.storage == measured.config.precision.storage
    plan = found.plan_for(*key_and_target(PHONES[0]))
    assert plan is not None and "float16" in {texture.dtype for texture in plan.plan.textures}


def key_and_target(name: str) -> tuple[str, Target]:
    info = read_device_description(name)
    return info.key, target_of(info)


def test_what_the_player_will_refuse(imgconv: Command) -> None:
    """tests/native/test_player.py says that it does."""
    onnx.save(CASES["detector"]()[0], "boxes.onnx")
    status, out, err = compile_without_device(imgconv, "boxes.onnx", *TARGETS)
    assert status == 0 and "the native player cannot: node 'picked' and what follows it" in out, err
    status, _, err = compile_without_device(imgconv, "boxes.onnx", *TARGETS, "--strict")
    assert status == 1 and "node 'picked'" in err
    write_choice_of_integers()
    status, out, err = compile_without_device(imgconv, "chosen.onnx", *TARGETS, "--json")
    refused = json.loads(out)["refused_by_player"]
    assert status == 0 and refused.startswith("output 'o', of node 'choose', holds integers"), (err, refused)
    write_convolution()
    _, out, _ = compile_without_device(imgconv, "conv.onnx", *SIZE, *TARGETS, "--json")
    assert json.loads(out)["refused_by_player"] is None


def test_a_file_for_the_player_only(imgconv: Command) -> None:
    """Python names the remedy, and a model that the player refuses has no such file; tests/native/ runs one."""
    write_convolution()
    for name, options in (("whole", ()), ("only", ("--player-only",))):
        status, _, err = compile_without_device(imgconv, "conv.onnx", *SIZE, *TARGETS, "-o", name, *options)
        assert status == 0, err
    assert Path("only").stat().st_size < Path("whole").stat().st_size
    whole, only = SavedModel.open("whole"), SavedModel.open("only")
    assert only.inputs == whole.inputs and only.shapes == whole.shapes and not only.refused_by_player
    for saved, has_reports in ((whole, True), (only, False)):
        for launch in saved.table.plans[0].launches:
            assert launch.name and bool(launch.description) == bool(launch.argument_names) == has_reports
    numpy.save("x.npy", numpy.zeros((1, 3, 12, 10), "float32"))
    for command in (("run", "only", "--input", "x=x.npy"), ("inspect", "only")):
        status, _, err = imgconv(*command)
        assert status == 1 and "file 'only': it was compiled with --player-only" in err and "without this option" in err
    with pytest.raises(engine.ModelError, match="it was compiled with --player-only"):
        engine.load("only")
    onnx.save(CASES["detector"]()[0], "boxes.onnx")
    status, _, err = compile_without_device(imgconv, "boxes.onnx", *TARGETS, "--player-only")
    assert status == 1 and "the player refuses this model: node 'picked'" in err
    write_choice_of_integers()
    status, _, err = compile_without_device(imgconv, "chosen.onnx", *TARGETS, "--player-only")
    assert status == 1 and "the player refuses this model: output 'o', of node 'choose'" in err
    assert not Path("boxes.imgconv").exists() and not Path("chosen.imgconv").exists()


def write_choice_of_integers() -> None:
    """o = table[k], and twice the table, which the device computes."""
    nodes = [make_node("Gather", ["table", "k"], ["o"], name="choose"), make_node("Add", ["table", "table"], ["twice"])]
    inputs = [make_input("table", numpy.int64, [4]), make_input("k", numpy.int64, [2])]
    graph = make_graph(nodes, "test", inputs, [onnx.ValueInfoProto(name=name) for name in ("o", "twice")])
    onnx.save(make_model(graph, opset_imports=[make_opsetid("", 13)], ir_version=8), "chosen.onnx")


# Frames of a camera


def write_threshold() -> None:
    """y = 1 where red is above a half."""
    nodes = [
        make_node("Slice", ["x", "zero", "one", "axis"], ["red"]), make_node("Greater", ["red", "half"], ["above"]),
        make_node("Cast", ["above"], ["y"], to=onnx.TensorProto.FLOAT),
    ]
    constants = {"zero": [0], "one": [1], "axis": [1]}
    given = [onnx.numpy_helper.from_array(numpy.array(v, numpy.int64), name) for name, v in constants.items()]
    given.append(onnx.numpy_helper.from_array(numpy.float32(0.5), "half"))
    graph = make_graph(
        nodes, "test", [make_input("x", numpy.float32, [1, 3, 24, 32])], [onnx.ValueInfoProto(name="y")], given
    )
    onnx.save(make_model(graph, opset_imports=[make_opsetid("", 13)], ir_version=8), "red.onnx")


def half_red() -> Image.Image:
    """Red on the right, blue on the left; each color shared by pixels is of one side."""
    pixels = numpy.zeros((48, 64, 3), numpy.uint8)
    pixels[:, :32, 2] = pixels[:, 32:, 0] = 255
    return Image.fromarray(pixels)


@pytest.mark.parametrize("format", FORMATS)
def test_a_file_that_takes_frames(imgconv: Command, device: DeviceInfo, format: str) -> None:
    """`run` makes the frame of a picture; a plan without a device takes it too."""
    write_threshold()
    half_red().save("half.png")
    about = ("red.onnx", "--scale", "1/255", "--picture", format, "64x48")
    assert compile_without_device(imgconv, *about, *TARGETS, "-o", "phone.imgconv")[0] == 0
    status, _, err = imgconv("compile", *about, "--device", device.index)
    assert status == 0, err
    for file in ("red.imgconv", "phone.imgconv"):
        status, out, err = imgconv("run", file, "half.png", "--save", "y.npz", "--device", device.index)
        assert status == 0, err
        expected = numpy.zeros((24, 32))
        if format != "grey":
            expected[:, 16:] = 1
        found = numpy.load("y.npz")["y"].reshape(24, 32)
        numpy.testing.assert_array_equal(found[:, :15], expected[:, :15])
        numpy.testing.assert_array_equal(found[:, 17:], expected[:, 17:])


def test_a_frame_is_an_array_of_its_bytes(imgconv: Command, device: DeviceInfo) -> None:
    """The same as Model.preprocess gives, with what a description says of the preparation."""
    write_threshold()
    Path("red.task.json").write_text(json.dumps({"preparation": {"scale": 1 / 255, "resize": "letterbox"}}))
    status, out, err = imgconv(
        "compile", "red.onnx", "--picture", "nv12", "40x48", "--colors", "bt709", "--device", device.index
    )
    assert status == 0, err
    passed, becomes = out.splitlines()[1].split("; ")
    assert passed == "input picture: nv12 40x48 as uint8 [72, 40]"
    assert becomes == "converted to rgb, letterboxed in 32x24, x = pixel * 0.003922"
    frame = numpy.random.default_rng(0).integers(0, 256, (72, 40), numpy.uint8)
    found = engine.load("red.imgconv", device)(frame)
    seen = engine.load("red.onnx", device).preprocess((48, 40), "nv12", "letterbox", scale=1 / 255, colors="bt709")
    numpy.testing.assert_array_equal(found, seen(frame))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (("--picture", "nv12", "63x48"), "cannot be 63x48"), (("--picture", "nv13", "64x48"), "use rgb, "),
        (("--picture", "nv12", "64"), "WIDTHxHEIGHT"),
        (("--picture", "nv12", "0x48"), "WIDTHxHEIGHT"), (("--colors", "bt709"), "applies only to frames"),
        (("--picture", "rgb", "64x48", "--order", "y"), "expects 3"),
    ],
)
def test_frames_that_cannot_be(imgconv: Command, options: tuple[str, ...], match: str) -> None:
    write_threshold()
    status, _, err = compile_without_device(imgconv, "red.onnx", *options, *TARGETS)
    assert status == 1 and match in err and not Path("red.imgconv").exists()


def test_a_file_that_takes_frames_keeps_its_preparation(imgconv: Command, device: DeviceInfo) -> None:
    write_threshold()
    half_red().save("half.png")
    assert imgconv("compile", "red.onnx", "--picture", "rgb", "64x48", "--device", device.index)[0] == 0
    status, _, err = imgconv("run", "red.imgconv", "half.png", "--scale", "1/255", "--device", device.index)
    assert status == 1 and "--scale" in err and "set it in imgconv compile" in err
