"""Hints of an ONNX file on its pictures, from a made file of each kind."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from onnx.helper import make_graph, make_model, make_node, make_tensor_value_info

from imgconv.onnx_import.picture_hints import PictureHints, hints_of


def written(nodes: list[Any], metadata: dict[str, str]) -> onnx.ModelProto:
    """A model whose input is x."""
    inputs, outputs = (make_tensor_value_info(name, onnx.TensorProto.FLOAT, (1, 3, 8, 8)) for name in "xy")
    made = make_model(make_graph(nodes, "test", [inputs], [outputs]))
    onnx.helper.set_model_props(made, metadata)
    return made


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({}, {}), ({"Image.NominalPixelRange": "NominalRange_0_255"}, {"scale": 1}),
        ({"Image.NominalPixelRange": "Normalized_1_1"}, {"scale": 1 / 127.5, "mean": (1,)}),
        ({"Image.BitmapPixelFormat": "Bgr8", "Image.NominalPixelRange": "?"}, {"order": "bgr"}),
        ({"names": "{0: 'cat'}", "stride": "32"}, {"scale": 1 / 255}),
    ],
)
def test_the_metadata_tells_the_range_and_order(metadata: dict[str, str], expected: Any) -> None:
    assert hints_of(written([make_node("Relu", ["x"], ["y"])], metadata), "x").preparation == expected


def test_metadata_of_ultralytics_has_names_and_a_task() -> None:
    about = {"names": "{0: 'cat', 1: 'dog'}", "stride": "32", "task": "pose", "kpt_shape": "[17, 3]"}
    found = hints_of(written([make_node("Relu", ["x"], ["y"])], about), "x")
    assert found.labels == ("cat", "dog") and found.head == "yolov8-pose"
    for names in ("import os", "{0: 'cat', 2: 'dog'}", "[" * 500):
        assert hints_of(written([make_node("Relu", ["x"], ["y"])], {"names": names}), "x") == PictureHints()


def test_metadata_of_a_recognizer_has_its_characters() -> None:
    found = hints_of(written([make_node("Relu", ["x"], ["y"])], {"character": "a\n\u2028\n#"}), "x")
    assert found.head == "ctc" and found.labels == ("a", "\u2028", "#"), "any character may be one"


def test_channels_that_are_turned_first_lie_last() -> None:
    for order, last in (([0, 3, 1, 2], True), ([0, 2, 1, 3], False)):
        nodes = [make_node("Cast", ["x"], ["c"], to=1), make_node("Transpose", ["c"], ["t"], perm=order)]
        assert hints_of(written([*nodes, make_node("Relu", ["t"], ["y"])], {}), "x").channels_last == last
