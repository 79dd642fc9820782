"""Models whose sizes, or whose shape inputs, are only known when they run."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy
import onnx
import onnx.helper
import onnx.numpy_helper
import pyopencl
import pytest
from support import assert_close, make_input, run_oracle

import imgconv
from imgconv.cl.device import DeviceInfo
from imgconv.model import PLANS

WEIGHTS = numpy.random.default_rng(0).normal(size=(64, 3, 3, 3)).astype(numpy.float32)


def node(*arguments: Any, **attributes: Any) -> onnx.NodeProto:
    return onnx.helper.make_node(*arguments, **attributes)


def model_of(nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], output: str = "y") -> onnx.ModelProto:
    graph = onnx.helper.make_graph(
        nodes, "g", inputs, [onnx.ValueInfoProto(name=output)], [onnx.numpy_helper.from_array(WEIGHTS, "w")]
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)


def convolution(*dimensions: int | str) -> onnx.ModelProto:
    return model_of([node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])], [make_input("x", "f4", dimensions)])


def check(model: imgconv.Model, proto: onnx.ModelProto, *arrays: Any) -> None:
    feeds = dict(zip([v.name for v in proto.graph.input], arrays))
    assert_close(model.run(feeds), run_oracle(proto, feeds), 1e-6)


def picture(*shape: int) -> Any:
    return numpy.random.default_rng(sum(shape)).normal(size=shape).astype(numpy.float32)


def test_the_first_run_fixes_sizes(device: DeviceInfo) -> None:
    proto = convolution("n", 3, "h", "w")
    model = imgconv.load(proto, device=device)
    with pytest.raises(imgconv.InputError, match="size of axis 2 is unknown"):
        _ = model.plan
    check(model, proto, picture(1, 3, 5, 6))
    assert model.inputs["x"].shape == (1, 3, 5, 6)
    first = model.plan
    check(model, proto, picture(2, 3, 8, 4))
    assert model.outputs["y"].shape == (2, 64, 8, 4)
    check(model, proto, picture(1, 3, 5, 6))
    assert model.plan is first


def test_a_call_takes_the_only_input_of_any_size(device: DeviceInfo) -> None:
    proto = convolution("n", 3, "h", "w")
    model = imgconv.load(proto, device=device)
    for shape in ((1, 3, 5, 6), (2, 3, 8, 4)):
        assert_close({"y": model(picture(*shape))}, run_oracle(proto, {"x": picture(*shape)}), 1e-6)
    two = model_of([node("Add", ["x", "z"], ["y"])], [make_input(name, "f4", [1, 3, "h", "w"]) for name in "xz"])
    with pytest.raises(imgconv.InputError, match=r"2 inputs \(x, z\): use run"):
        imgconv.load(two, device=device)(picture(1, 3, 5, 6))


def test_a_call_takes_an_input_whose_content_must_be_known(device: DeviceInfo) -> None:
    """Once it is known, the plan has no input at all."""
    proto = model_of([node("ConstantOfShape", ["n"], ["y"])], [make_input("n", "i8", [2])])
    model = imgconv.load(proto, device=device)
    for shape in ([2, 3], [3, 2], [2, 3]):
        assert model(numpy.array(shape)).shape == tuple(shape)


def test_a_call_takes_a_picture_of_any_size(device: DeviceInfo) -> None:
    model = imgconv.load(convolution(1, 3, 8, 8), device=device).preprocess()
    for height in (9, 12):
        assert model(numpy.full((height, 10, 3), 7, numpy.uint8)).shape == (1, 64, 8, 8)


def test_a_batch_is_one_until_a_run_says_otherwise(device: DeviceInfo) -> None:
    proto = convolution("batch", 3, 4, 4)
    model = imgconv.load(proto, device=device)
    assert model.inputs["x"].shape == (1, 3, 4, 4)
    check(model, proto, picture(3, 3, 4, 4))


def test_plans_are_bounded_and_share_the_weights(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    proto = convolution(1, 3, "h", 4)
    copying = dataclasses.replace(device, shares_memory=False)
    model = imgconv.load(proto, device=copying, shapes={"h": 2}, check=False)  # a check uploads too
    first, uploads = model.plan, []
    original = pyopencl.enqueue_copy

    def counted(queue: Any, destination: Any, source: Any, **options: Any) -> Any:
        if isinstance(source, numpy.ndarray):
            uploads.append(source.nbytes)
        return original(queue, destination, source, **options)

    monkeypatch.setattr(pyopencl, "enqueue_copy", counted)
    for height in range(3, 3 + PLANS):
        check(model, proto, picture(1, 3, height, 4))
    # One upload a run: the picture.
    assert uploads == [3 * height * 4 * 4 for height in range(3, 3 + PLANS)]
    check(model, proto, picture(1, 3, 2, 4))
    assert model.plan is not first, "the oldest plan of eight was dropped"


def test_arrays_that_do_not_fit(device: DeviceInfo) -> None:
    model = imgconv.load(convolution("n", 3, 4, 4), device=device)
    for inputs, message in (
        ({"x": picture(1, 2, 4, 4)}, "has shape .1, 2, 4, 4., the model expects .1, 3, 4, 4."),
        ({"z": picture(1, 3, 4, 4)}, "no input is called 'z'"), ({}, "'x' is missing"),
        ({"x": picture(3, 4, 4)}, "has shape"), ({"x": numpy.zeros((1, 3, 4, 4), complex)}, "dtype complex"),
    ):
        with pytest.raises(imgconv.InputError, match=message):
            model.run(inputs)


def test_content_that_shapes_the_model(device: DeviceInfo) -> None:
    """A shape and a scale as inputs of the model: known when it runs, and compiled for."""
    nodes = [node("Reshape", ["x", "shape"], ["r"]), node("Resize", ["r", "", "scales"], ["y"], mode="nearest")]
    proto = model_of(
        nodes, [make_input("x", "f4", [12]), make_input("shape", "i8", [4]), make_input("scales", "f4", [4])]
    )
    model = imgconv.load(proto, device=device)
    with pytest.raises(imgconv.UnsupportedError, match="depends on input shape, known only in a run"):
        _ = model.plan
    x = picture(12)
    for shape, scales in (([1, 1, 3, 4], [1, 1, 2, 2]), ([1, 2, 3, 2], [1, 1, 1, 3]), ([1, 1, 3, 4], [1, 1, 2, 2])):
        check(model, proto, x, numpy.int64(shape), numpy.float32(scales))
    assert model.needs_content == ("scales", "shape")
    assert [value.name for value in model.plan.inputs] == ["x"]
    with pytest.raises(imgconv.InputError, match="'shape' is missing"):
        model.run({"x": x, "scales": numpy.ones(4, numpy.float32)})
    with pytest.raises(imgconv.ModelError, match="cannot have the shape"):
        model.run({"x": x, "shape": numpy.int64([5, 1, 1, 1]), "scales": numpy.ones(4, numpy.float32)})
    ones = numpy.ones(4, numpy.float32)
    with pytest.raises(imgconv.InputError, match="'shape' has dtype float64, the model expects int64"):
        model.run({"x": x, "shape": numpy.float64([1, 1, 3.5, 4]), "scales": ones})
    assert model.run({"x": x, "shape": numpy.int8([1, 1, -1, 4]), "scales": ones})["y"].shape == (1, 1, 3, 4)
    with pytest.raises(imgconv.ModelError, match="cannot have the shape"):
        model.run({"x": x, "shape": numpy.uint8([1, 1, 255, 4]), "scales": ones})
    with pytest.raises(imgconv.InputError, match="cannot be a stream"):
        model.stream({"y": "x"})


def test_data_is_never_compiled_for(device: DeviceInfo) -> None:
    """A picture is no shape: an operator that must know it is the host's, and refused if it may not be."""
    nodes = [node("Cast", ["x"], ["i"], to=7), node("Reshape", ["w", "i"], ["y"])]
    proto = model_of(nodes, [make_input("x", "f4", [2, 2])])
    with pytest.raises(imgconv.UnsupportedError, match="shape must be constant"):
        imgconv.load(proto, device=device, strict=True)
    assert imgconv.load(proto, device=device).graph.host_partition is not None


def test_unknown_sizes_of_one_name_differ(device: DeviceInfo) -> None:
    """Exporters call every size that they do not know "?": a picture need not be square."""
    proto = convolution("?", 3, "?", "?")
    model = imgconv.load(proto, device=device)
    check(model, proto, picture(1, 3, 5, 8))
    check(model, proto, picture(2, 3, 6, 4))
