"""imgconv bench: its figures, and that it compares results before it says how fast they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from command_line import Command, write_classifier, write_convolution, write_model, write_picture
import numpy
import onnxruntime
import pytest
from onnx.helper import make_node

from imgconv.cl.device import DeviceInfo
from imgconv.commands import bench as command
from imgconv.commands.bench import batch_shapes
from imgconv.errors import InputError
from imgconv.reports import bench
from imgconv.reports.bench import Latency, Sustained


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few runs only."""
    monkeypatch.setattr(bench, "WARM_UP", 0.0)
    monkeypatch.setattr(command, "LATENCY_SECONDS", 0.01)


def test_percentiles() -> None:
    found = Latency.from_seconds([n / 100 for n in range(101)][::-1])
    assert (found.runs, found.least) == (101, 0)
    assert (found.median, found.p90, found.p99) == pytest.approx((0.5, 0.9, 0.99))


def test_a_device_that_slows_down_is_seen() -> None:
    """Ten frames a second for two seconds, five for two more, from second 3 on."""
    ends = [3 + n / 10 for n in range(1, 21)] + [5 + n / 5 for n in range(1, 11)]
    found = Sustained.from_frame_ends(ends, 3.0)
    assert (found.frames, found.seconds) == (30, pytest.approx(4)) and found.rate == pytest.approx(7.5)
    assert found.first == pytest.approx(10) and found.last == pytest.approx(5)


def test_figures(imgconv: Command, device: DeviceInfo) -> None:
    write_convolution()
    command = ("bench", "conv.onnx", "--shape", "h=12", "--device", device.index, "--seconds", "0.05", "--no-first")
    status, out, err = imgconv(*command, "--json", "--compare", "onnxruntime", "--depth", 2)
    assert status == 0, err
    found = json.loads(out)
    for run in found["run"], found["compared"]:
        assert run["runs"] >= bench.LEAST_RUNS and 0 < run["least"] <= run["median"] <= run["p90"] <= run["p99"]
    flight = found["sustained"]
    assert flight["depth"] == 2 and flight["frames"] >= bench.LEAST_RUNS
    assert flight["rate"] == pytest.approx(flight["frames"] / flight["seconds"])
    assert found["compared"]["difference"] < 1e-5 and found["memory"]["peak"] > 0
    status, out, _ = imgconv(*command, "--compare", "onnxruntime")
    assert status == 0 and out.startswith("conv.onnx on ") and "frames a second" in out and "onnxruntime" in out


def test_onnxruntime_does_not_warn(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """By itself it warns of a constant that no node reads, on the process's stderr."""
    path, spare = str(tmp_path / "spare.onnx"), {"spare": numpy.zeros(3, numpy.float32)}
    write_model(path, [make_node("Relu", ["x"], ["y"])], {"x": [1, 3]}, spare)
    onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert "spare" in capfd.readouterr().err
    bench.onnxruntime_run(path, {"x": numpy.zeros((1, 3), numpy.float32)})()
    assert capfd.readouterr().err == ""


def test_a_difference_is_told(imgconv: Command, device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong result of the other engine shows in `difference`: the first results are compared, not only timed."""
    write_classifier()

    def zeros(path: str, inputs: Any) -> Any:
        return lambda: {"y": numpy.full((1, 3, 1, 1), 1e-3, numpy.float32)}

    monkeypatch.setattr(command, "onnxruntime_run", zeros)
    options = ("--device", device.index, "--seconds", "0.01", "--no-first", "--json", "--compare", "onnxruntime")
    assert json.loads(imgconv("bench", "means.onnx", *options)[1])["compared"]["difference"] > 10


def test_the_first_result(imgconv: Command, device: DeviceInfo) -> None:
    """In a new process, with the picture given, of a compiled file too."""
    write_classifier()
    write_picture("a.png", (1, 2, 3))
    options = ("--device", device.index, "--seconds", "0.01")
    assert imgconv("compile", "means.onnx", "--device", device.index)[0] == 0
    status, out, err = imgconv("bench", "means.imgconv", "a.png", *options, "--json")
    assert status == 0, err
    assert min(json.loads(out)["first_result"].values()) > 0
    status, _, err = imgconv("bench", "means.imgconv", *options, "--compare", "onnxruntime")
    assert status == 1 and "needs an ONNX file" in err


def test_shapes_of_a_batch() -> None:
    declared: Any = {"x": ("float32", ["n", 3, "h", 8]), "s": ("float32", [1, 4])}
    assert batch_shapes(declared, {"h": 6}, 5) == {"h": 6, "x": (5, 3, 6, 8)}
    assert batch_shapes(declared, {"x": (1, 3, 2, 8)}, 5) == {"x": (5, 3, 2, 8)}
    with pytest.raises(InputError, match="no input of the model has a dynamic batch size"):
        batch_shapes({"s": ("float32", [1, 4])}, {}, 5)


def test_a_batch(imgconv: Command, device: DeviceInfo) -> None:
    write_model("open.onnx", [make_node("GlobalAveragePool", ["x"], ["y"])], {"x": ["n", 3, 8, 8]})
    write_picture("a.png", (1, 2, 3), (8, 8))
    command = ("bench", "open.onnx", "a.png", "--batch", 4, "--device", device.index, "--seconds", 0, "--no-first")
    status, out, err = imgconv(*command, "--compare", "onnxruntime")
    assert status == 0 and "4 pictures in each of " in out, err
    assert json.loads(imgconv(*command, "--json")[1])["batch"] == 4
    write_classifier()
    status, _, err = imgconv("bench", "means.onnx", "--batch", 4)
    assert status == 1 and "no input of the model has a dynamic batch size" in err
