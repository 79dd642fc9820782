"""load(outputs=) and compile --outputs: a model cut at any of its tensors, against onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy
import onnx
import onnxruntime
import pytest
from command_line import Command
from onnx.helper import make_graph, make_model, make_node, make_opsetid
from onnx.numpy_helper import from_array
from support import make_input, one_thread

import imgconv as engine
from imgconv.cl.device import DeviceInfo

X = numpy.random.default_rng(0).random((1, 3, 8, 8), numpy.float32)
OTHER = numpy.random.default_rng(1).random((1, 4, 8, 8), numpy.float32)


def model(*outputs: str) -> onnx.ModelProto:
    """Two convolutions; `other` is needed by the second alone, and the positions of y depend on data."""
    weights = numpy.random.default_rng(2).random((4, 3, 3, 3), numpy.float32)
    nodes = [
        make_node("Conv", ["x", "w"], ["neck_out"], name="neck", pads=[1, 1, 1, 1]),
        make_node("Relu", ["neck_out"], ["relu"]), make_node("Mul", ["relu", "other"], ["y"]),
        make_node("NonZero", ["y"], ["positions"]), make_node("Cast", ["positions"], ["where"], to=1),
    ]
    graph = make_graph(
        nodes, "cut", [make_input("x", "f4", X.shape), make_input("other", "f4", OTHER.shape)],
        [onnx.ValueInfoProto(name=name) for name in outputs or ("y",)], [from_array(weights, "w")],
    )
    return make_model(graph, opset_imports=[make_opsetid("", 13)])


def expected(*outputs: str) -> dict[str, numpy.ndarray]:
    session = onnxruntime.InferenceSession(model(*outputs).SerializeToString(), one_thread())
    return dict(zip(outputs, session.run(list(outputs), {"x": X, "other": OTHER}), strict=True))


@pytest.mark.parametrize("outputs", [("neck_out",), ("relu", "neck_out"), ("y", "relu"), ("where",)], ids=str)
def test_what_is_cut_is_what_onnxruntime_makes(device: DeviceInfo, outputs: tuple[str, ...]) -> None:
    whole = model()
    before = whole.SerializeToString()
    cut = engine.load(whole, device=device, outputs=outputs)
    needed = {"x": X, "other": OTHER} if {"y", "where"} & set(outputs) else {"x": X}
    assert list(cut.inputs) == list(needed) and list(cut.outputs) == list(outputs)
    found = cut.run(needed)
    for name, wanted in expected(*outputs).items():
        numpy.testing.assert_allclose(found[name], wanted, 1e-5)  # 27 products in another order
    assert whole.SerializeToString() == before


@pytest.mark.parametrize(("name", "text"), [
    ("neck_ou", "'neck_out'"), ("neck", "the node 'neck' makes 'neck_out'"), ("w", "'y'"), ("zzz", "near it are 'y'"),
])
def test_a_wrong_name_is_answered_with_near_ones(device: DeviceInfo, name: str, text: str) -> None:
    with pytest.raises(engine.InputError, match=f"no tensor is called '{name}'.*{text}"):
        engine.load(model(), device=device, outputs=[name])


def test_what_cannot_be_cut(device: DeviceInfo, tmp_path: Path) -> None:
    cut = engine.load(model(), device=device, outputs=["relu"])
    cut.save(tmp_path / "m")
    for source in (cut.graph, tmp_path / "m"):
        with pytest.raises(engine.ConfigError):
            engine.load(source, device=device, outputs=["relu"])


def test_compile_cuts_with_and_without_a_device(imgconv: Command, device: DeviceInfo) -> None:
    onnx.save(model(), "m.onnx")
    engine.load("m.onnx", device=device, outputs=["relu"]).save("expected.imgconv", ["generic"])
    status, _, err = imgconv("compile", "m.onnx", "--outputs", "relu", "--target", "generic")
    assert status == 0, err
    assert Path("m.imgconv").read_bytes() == Path("expected.imgconv").read_bytes()
    status, _, err = imgconv("compile", "m.onnx", "--outputs", "relu", "--device", device.index)
    assert status == 0, err
    found = engine.load("m.imgconv", device=device)(X)
    numpy.testing.assert_allclose(found, expected("relu")["relu"], 1e-5)
