"""Several pictures in one run: the same answers as one by one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from command_line import Command, write_classifier, write_model, write_picture
import numpy
import pytest
from onnx.helper import make_node

from imgconv.cl.device import DeviceInfo
from imgconv.commands import batching, runner
from imgconv.commands import bench as bench_command
from imgconv.commands.batching import batch_shapes, grouped
from imgconv.errors import InputError
from imgconv.model import Model
from imgconv.reports import bench


def write_open() -> None:
    """Three scores of each picture: the means of its channels."""
    write_model("open.onnx", [make_node("GlobalAveragePool", ["x"], ["y"])], {"x": ["n", 3, 8, 8]})


def reds(out: str) -> dict[str, float]:
    """The first score of each picture that could be read."""
    found = {}
    for result in json.loads(out)["results"]:
        if "error" not in result:
            assert result["outputs"]["y"]["shape"] == [1, 3, 1, 1]
            found[result["picture"]] = {e["index"]: e["score"] for e in result["answers"]["y"]["classes"]}[0]
    return found


def test_answers_are_those_of_one_by_one(
    imgconv: Command, device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nineteen pictures and a bad one in runs of four; the last is not full."""
    write_open()
    for number in range(19):
        write_picture(f"{number:02}.png", (5 * number, 0, 0), (9 + number % 4, 12))
    Path("05x.png").write_text("no picture")
    batches: list[int] = []
    submit = Model.submit

    def noted(self: Model, inputs: Any, *rest: Any) -> Any:
        batches.append(inputs["x"].shape[0])
        return submit(self, inputs, *rest)

    monkeypatch.setattr(Model, "submit", noted)
    status, out, err = imgconv("run", "open.onnx", ".", "--device", device.index, "--json", "--batch", 4)
    assert status == 1 and "'05x.png'" in err and batches == [4] * 5
    wanted = {f"{number:02}.png": pytest.approx(5 * number, abs=1e-3) for number in range(19)}
    assert reds(out) == wanted
    batches.clear()
    # Many pictures: it measures, and takes several at once if that is faster.
    monkeypatch.setattr(runner, "MANY", 3)
    monkeypatch.setattr(batching, "_seconds", lambda model, inputs: 1 + inputs["x"].shape[0] / 100)
    command = ("run", "open.onnx", ".", "--device", device.index, "--json")
    assert reds(imgconv(*command)[1]) == wanted and set(batches) == {8}
    batches.clear()
    monkeypatch.setattr(batching, "_seconds", lambda model, inputs: float(inputs["x"].shape[0]))
    assert reds(imgconv(*command)[1]) == wanted and set(batches) == {1}


def test_models_that_take_one(imgconv: Command, device: DeviceInfo) -> None:
    """One with a batch of 1, and one that joins the pictures of a batch."""
    write_classifier()
    write_picture("a.png", (1, 2, 3))
    nodes = [make_node("Reshape", ["x", "flat"], ["a"]), make_node("ReduceMean", ["a"], ["y"], axes=[1])]
    write_model("joins.onnx", nodes, {"x": ["n", 3, 8, 8]}, {"flat": numpy.array([1, -1])})
    for model in ("means.onnx", "joins.onnx"):
        status, _, err = imgconv("run", model, "a.png", "a.png", "--device", device.index, "--batch", 2)
        assert status == 1 and "--batch 2: the model does not take several pictures at once" in err
    assert imgconv("run", "joins.onnx", "a.png", "--device", device.index, "--batch", 1)[0] == 0


def test_shapes_of_a_batch() -> None:
    declared: Any = {"x": ("float32", ["n", 3, "h", 8]), "s": ("float32", [1, 4])}
    assert batch_shapes(declared, {"h": 6}, 5) == {"h": 6, "x": (5, 3, 6, 8)}
    assert batch_shapes(declared, {"x": (1, 3, 2, 8)}, 5) == {"x": (5, 3, 2, 8)}
    with pytest.raises(InputError, match="no input of the model leaves its batch open"):
        batch_shapes({"s": ("float32", [1, 4])}, {}, 5)


def test_groups_keep_the_order() -> None:
    """A job without a run, of a picture that cannot be read, stays in its place."""
    jobs = [(name, [] if name == "b" else [{"x": numpy.zeros(1)}]) for name in "abcde"]
    assert [group.jobs for group in grouped(jobs, 3)] == [
        [("a", True), ("b", False), ("c", True), ("d", True)], [("e", True)]
    ]
    first, last = grouped(jobs, 3)
    assert first.joined(3)["x"].shape == last.joined(3)["x"].shape == (3,)


def test_bench(imgconv: Command, device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "WARM_UP", 0.0)
    monkeypatch.setattr(bench_command, "LATENCY_SECONDS", 0.01)
    write_open()
    write_picture("a.png", (1, 2, 3), (8, 8))
    command = ("bench", "open.onnx", "a.png", "--batch", 4, "--device", device.index, "--seconds", 0, "--no-first")
    status, out, err = imgconv(*command, "--compare", "onnxruntime")
    assert status == 0 and "4 pictures in each of " in out, err
    assert json.loads(imgconv(*command, "--json")[1])["batch"] == 4
    write_classifier()
    status, _, err = imgconv("bench", "means.onnx", "--batch", 4)
    assert status == 1 and "no input of the model leaves its batch open" in err
