"""Inputs of imgconv run next to the picture, and the picture's own range and layout."""

from __future__ import annotations

import json

from command_line import Command, write_classifier, write_model, write_picture
import numpy
import onnx
import pytest
from onnx.helper import make_node

from imgconv.cl.device import DeviceInfo


def test_numbers_on_the_command_line(imgconv: Command, device: DeviceInfo) -> None:
    """One number, or a vector; what does not fit is said with the input's shape."""
    nodes = [
        make_node("GlobalAveragePool", ["x"], ["m"]), make_node("Mul", ["m", "gain"], ["n"]),
        make_node("Add", ["n", "p"], ["y"]),
    ]
    write_model("m.onnx", nodes, {"x": [1, 3, 8, 8], "gain": [1], "p": [1, 3, 1, 1]})
    write_picture("a.png", (10, 20, 30))
    command = ("run", "m.onnx", "a.png", "--task", "classify", "--device", device.index)
    status, out, err = imgconv(*command, "--input", "gain=0.5", "--input", "p=1,2,3", "--json")
    assert status == 0, err
    classes = json.loads(out)["results"][0]["answers"]["y"]["classes"]
    assert [each["score"] for each in sorted(classes, key=lambda each: each["index"])] == [6, 12, 18]
    status, _, err = imgconv(*command, "--input", "gain=0.5,1", "--input", "p=1,2,3")
    assert status == 1 and "--input gain=0.5,1: input 'gain' is [1], not 2 numbers" in err
    status, _, err = imgconv(*command)
    assert status == 1 and "--input gain=NUMBER --input p=FILE.npy" in err


def test_the_size_of_the_picture_is_given(imgconv: Command, device: DeviceInfo) -> None:
    """RT-DETR's boxes are parts of the picture times orig_target_sizes: they are placed on the picture once."""
    nodes = [
        make_node("Cast", ["orig_target_sizes"], ["size"], to=onnx.TensorProto.FLOAT),
        make_node("Concat", ["size", "size"], ["corners"], axis=1), make_node("Mul", ["corners", "parts"], ["boxes"]),
        make_node("ReduceMean", ["x"], ["mean"], axes=[1, 2], keepdims=0), make_node("Relu", ["mean"], ["scores"]),
        make_node("Add", ["zero", "zero"], ["labels"]),
    ]
    graph = onnx.helper.make_graph(
        nodes, "detr", [
            onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, 8, 1]),
            onnx.helper.make_tensor_value_info("orig_target_sizes", onnx.TensorProto.INT64, ["N", 2]),
        ], [
            onnx.helper.make_tensor_value_info("labels", onnx.TensorProto.INT64, [1, 1]),
            onnx.helper.make_tensor_value_info("boxes", onnx.TensorProto.FLOAT, ["N", 1, 4]),
            onnx.helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, [1, 1]),
        ], [
            onnx.numpy_helper.from_array(numpy.array([[[0.25, 0.5, 0.5, 1]]], "f"), "parts"),
            onnx.numpy_helper.from_array(numpy.array([[0]]), "zero"),
        ],
    )
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8), "d.onnx")
    write_picture("a.png", (255, 255, 255), (200, 100))
    status, out, err = imgconv("run", "d.onnx", "a.png", "--device", device.index, "--json")
    assert status == 0, err
    found, = json.loads(out)["results"][0]["answers"]["boxes"]["detections"]
    assert found["box"] == pytest.approx([50, 50, 100, 100]) and found["score"] == pytest.approx(1)


def test_scale_and_mean_replace_the_std_of_a_description(imgconv: Command, device: DeviceInfo) -> None:
    write_classifier()
    write_picture("a.png", (10, 20, 30))
    with open("means.task.json", "w") as file:
        file.write('{"preparation": {"order": "bgr", "mean": [1, 2, 3], "std": 50}}'.replace("50", "[50, 50, 50]"))
    command = ("run", "means.onnx", "a.png", "--device", device.index)
    assert "x = (pixel - (1, 2, 3)) / (50, 50, 50)" in imgconv(*command)[1]
    assert "bgr, stretched to 8x8, x = pixel * 0.5\n" in imgconv(*command, "--scale", "0.5")[1]


def test_an_open_input_with_its_channels_last(imgconv: Command, device: DeviceInfo) -> None:
    """Its first node tells."""
    nodes = [
        make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]), make_node("Div", ["t", "white"], ["s"]),
        make_node("GlobalAveragePool", ["s"], ["y"]),
    ]
    write_model("last.onnx", nodes, {"x": ["n", "h", "w", "c"]}, {"white": numpy.float32(255)})
    write_picture("a.png", (255, 51, 0), (40, 20))
    command = ("run", "last.onnx", "a.png", "--device", device.index)
    status, out, err = imgconv(*command)
    assert status == 0, err
    assert "x = pixel, 0 to 255" in out
    assert "y float32 1x3x1x1: 1, 0.2, 0\n" in out


def test_an_input_that_takes_no_picture_names_shape(imgconv: Command) -> None:
    write_model("m.onnx", [make_node("Relu", ["x"], ["y"])], {"x": [1, 7, "h", "w"]})
    write_picture("a.png", (1, 1, 1))
    status, _, err = imgconv("run", "m.onnx", "a.png")
    assert status == 1 and "--shape NAME=1,3,HEIGHT,WIDTH" in err
    write_model("row.onnx", [make_node("Relu", ["x"], ["y"])], {"x": [1, "n"]})
    status, _, err = imgconv("run", "row.onnx", "a.png")
    assert status == 1 and "no input is one picture" in err and "--shape" not in err
    for dimensions, said in (([10, 3, 8, 8], "'x' has a batch size above 1"), ([1, 8, 8, 4], "FILE.npy\n")):
        write_model("fixed.onnx", [make_node("Relu", ["x"], ["y"])], {"x": dimensions})
        status, _, err = imgconv("run", "fixed.onnx", "a.png")
        assert status == 1 and said in err and "--shape" not in err, err
