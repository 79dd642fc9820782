"""Running command lines of imgconv in a test, and writing the models and pictures that they name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import onnx
import pytest
from onnx.helper import make_graph, make_model, make_node, make_opsetid
from PIL import Image
from support import make_input

from imgconv import cli

Command = Callable[..., tuple[int, str, str]]


def in_folder(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *last: object
) -> Command:
    """Goes to the folder and forgets imgconv's environment; then runs command lines that end with `last`.

    Each gives its exit status, stdout and stderr.
    """
    for name in ("IMGCONV_DEVICE", "IMGCONV_MAX_IMAGE", "FLOAT16", "NATIVE_EXPLOG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(folder)

    def run(*arguments: object) -> tuple[int, str, str]:
        try:
            status = cli.main([str(argument) for argument in (*arguments, *last)])
        except SystemExit as stop:
            status = int(stop.code or 0)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


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
    """Three scores: the means of the channels, which are no probabilities: a description says that they are scores."""
    Path(name).with_suffix(".task.json").write_text('{"task": "classify"}')
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


def means_of(out: str) -> dict[str, list[float]]:
    """The scores of write_classifier's model, by picture, from --json."""
    found = {}
    for result in json.loads(out)["results"]:
        scores = {each["index"]: each["score"] for each in result["answers"]["y"]["classes"]}
        found[result["picture"]] = [scores[n] for n in range(3)]
    return found
