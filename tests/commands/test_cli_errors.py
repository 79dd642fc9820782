"""The command line: one clear line for whatever goes wrong, and the exit status."""

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

from command_line import Command, write_classifier, write_convolution, write_model, write_picture
import numpy
import onnx
import pytest
from onnx.helper import make_node

from imgconv.cl.device import DeviceInfo
from imgconv.cli import COMMANDS
from imgconv.commands import devices as devices_command
from imgconv.commands import run as run_command
from imgconv.errors import DeviceError

ROOT = Path(__file__).parents[2]


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
    ("run conv.onnx a.png --output out.png", ["y", "--task", "--save"]),
    ("run conv.onnx a.png --task detect", ["y [1, 4, 14, 8]", "--head", "yolox", "retinaface"]),
    ("run means.onnx a.png --task pose", ["y [1, 3, 1, 1]", "--head", "heatmaps", "simcc"]),
    ("run means.onnx a.png --head yolox", ["y [1, 3, 1, 1]", "'yolox'", "5 + classes"]),
    ("run means.onnx a.png --task detect --head scores", ["'classify'", "'detect'"]),
    ("run means.onnx a.png --tile", ["[1, 3, 1, 1]", "8x8", "tiles"]),
    ("run means.onnx *.none", ["no file matches '*.none'"]),
    ("run means.onnx a.png --crop 0.5", ["'stretch' crops nothing"]),
    ("run means.onnx a.png --output none/deep/", ["none/deep", "no folder 'none'"]),
    ("run means.onnx a.png --output a.png/", ["cannot make the folder 'a.png/'"]),
    ("run means.onnx a.png --jsonl text.png", ["text.png", "choose another file"]),
    ("run means.onnx a.png --jsonl none/a.jsonl", ["none/a.jsonl", "no folder 'none'"]),
    ("run means.onnx a.mkv", ["a.mkv"]),
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
    ("run any.onnx a.png --shape x=one", ["x=one", "integers"]),
    ("inspect any.onnx", ["'x'", "[1, 3, h, w]", "--shape x=1,3,224,224"]),
    ("inspect conv.onnx --shape h=99999 --max-image 8", ["tensor", "99999", "8x8"]),
    ("inspect none.onnx", ["none.onnx", "No such file"]),
    ("compile means.onnx -o none/m.imgconv", ["none/m.imgconv", "no folder 'none'"]),
    ("compile means.onnx --picture nv12 8 8", ["--picture 8", "WIDTHxHEIGHT"]),
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
    assert re.fullmatch("imgconv: .*'pipe'.*not a (regular|plain) file.*", err.splitlines()[-1]), err


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
    assert status == 2 and "usage: imgconv" in err and len(err.splitlines()) == 2, "the message is not buried"


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
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
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


@pytest.mark.parametrize("columns", [80, 120])
def test_help_fits_the_terminal(imgconv: Command, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for command in COMMANDS:
        lines = imgconv(command.__name__.rpartition(".")[2], "--help")[1].splitlines()
        assert max(map(len, lines)) < columns
    assert "\n  classify: scores\n" in imgconv("run", "--help")[1]  # a list stays one


def test_module_is_the_command() -> None:
    command = [sys.executable, "-m", "imgconv", "run", "none.onnx", "a.png"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 1 and result.stdout == ""
    assert result.stderr == "imgconv: file 'none.onnx': cannot read the file: No such file or directory\n"


def test_device_error_is_the_message(imgconv: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(options: object) -> None:
        raise DeviceError("the driver refused")

    monkeypatch.setattr(devices_command, "execute", refused)
    assert imgconv("devices") == (1, "", "imgconv: the driver refused\n")
