"""ONNX's interface of backends: devices, models and single nodes."""

from __future__ import annotations

import numpy
import onnx
import onnx.helper
import pytest
from conftest import found_devices

import imgconv
from imgconv import onnx_backend

NODE = onnx.helper.make_node("Concat", ["a", "b"], ["c"], axis=0)
A, B = numpy.float32([1, 2]), numpy.float32([3])


def test_run_node() -> None:
    (found,) = onnx_backend.run_node(NODE, [A, B])
    numpy.testing.assert_array_equal(found, [1, 2, 3])
    old = onnx.helper.make_node("Clip", ["x"], ["y"], min=0.0, max=2.0)
    (found,) = onnx_backend.run_node(old, [A * 2], opset_version=6)
    numpy.testing.assert_array_equal(found, [2, 2])


def test_run_model_by_order_and_by_name() -> None:
    graph = onnx.helper.make_graph(
        [NODE], "g", [onnx.helper.make_tensor_value_info(n, 1, [None]) for n in "ab"],
        [onnx.helper.make_tensor_value_info("c", 1, [None])],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
    prepared = onnx_backend.prepare(model)
    for inputs in ([A, B], {"b": B, "a": A}):
        numpy.testing.assert_array_equal(prepared.run(inputs)["c"], [1, 2, 3])
    numpy.testing.assert_array_equal(onnx_backend.run_model(model, [B, B])[0], [3, 3])
    with pytest.raises(imgconv.InputError, match="1 arrays for the 2 inputs a, b"):
        prepared.run([A])


def test_devices() -> None:
    kinds = {info.kind for info in found_devices()}
    assert onnx_backend.supports_device("CPU") == ("cpu" in kinds)
    assert onnx_backend.supports_device("CUDA") == ("gpu" in kinds)
    assert not onnx_backend.supports_device("no such device")
    assert all(onnx_backend.supports_device(str(info.index)) for info in found_devices())


def test_is_compatible() -> None:
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("StringNormalizer", ["x"], ["y"])], "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.STRING, [1])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.STRING, [1])],
    )
    assert not onnx_backend.is_compatible(onnx.helper.make_model(graph))
