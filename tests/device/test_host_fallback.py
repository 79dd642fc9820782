"""Models whose ends depend on data: the device computes up to the values that decide, the host the rest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import onnx
import pytest

import imgconv
from imgconv.cl.device import DeviceInfo
from imgconv.errors import InputError, UnsupportedError
from imgconv.onnx_import import import_onnx
from tests.support import assert_close, make_model, run_model, run_oracle
from tests.host_fallback_models import BACKBONE, CASES, FILTERS, PICTURE, Case, if_of_one_shape, node

TOLERANCE = 1e-5  # one small convolution in float, of values up to 10


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]()


def test_in_numpy(case: Case) -> None:
    model, inputs = case
    assert_close(run_model(model, inputs), run_oracle(model, inputs), TOLERANCE)


def test_on_a_device(case: Case, device: DeviceInfo) -> None:
    model, inputs = case
    loaded, expected = imgconv.load(model, device), run_oracle(model, inputs)
    for _ in range(2):
        assert_close(loaded.run(inputs), expected, TOLERANCE)
    assert list(loaded.run(inputs)) == [value.name for value in model.graph.output] == list(loaded.outputs)
    frames = [loaded.submit(inputs) for _ in range(4)]
    for frame in frames:
        assert_close(frame.result(), expected, TOLERANCE)


def test_other_data_gives_other_shapes(device: DeviceInfo) -> None:
    model, inputs = CASES["detector"]()
    loaded = imgconv.load(model, device)
    counts = set()
    for scale in (0.0, 0.3, 0.6, 1.0):
        given = {"x": PICTURE * numpy.float32(scale)}
        found = loaded.run(given)
        assert_close(found, run_oracle(model, given), TOLERANCE)
        counts.add(len(found["picked"]))
    assert len(counts) > 2


def test_results_are_new_arrays(device: DeviceInfo) -> None:
    model, inputs = CASES["integers"]()
    loaded = imgconv.load(model, device)
    first = loaded.run(inputs)
    kept = {name: array.copy() for name, array in first.items()}
    for array in first.values():
        array[...] = 0
    assert_close(loaded.run(inputs), kept, 0)


def test_outputs_share_no_memory(device: DeviceInfo) -> None:
    """A Cast to the tensor's own type gives the tensor itself."""
    nodes = [node("NonZero", "x", "at"), node("Neg", "at", "y"), node("Cast", "y", "z", to=onnx.TensorProto.INT64)]
    inputs = {"x": numpy.eye(2, 3, dtype=numpy.float32)}
    made = imgconv.load(make_model(nodes, inputs, ["y", "z"], 17), device=device).run(inputs)
    assert not numpy.shares_memory(made["y"], made["z"])
    assert made["y"].tolist() == made["z"].tolist() == [[0, -1], [0, -1]]


def test_outputs_of_the_caller(device: DeviceInfo) -> None:
    model, inputs = CASES["non_zero"]()
    loaded = imgconv.load(model, device)
    expected = loaded.run(inputs)
    mine = {name: numpy.empty_like(expected[name]) for name in ("features", "values")}
    found = loaded.run(inputs, mine)
    assert all(found[name] is mine[name] for name in mine)
    assert_close(found, expected, 0)
    again = {name: numpy.empty_like(array) for name, array in mine.items()}
    found = loaded.submit(inputs, outputs=again).result()
    assert all(found[name] is again[name] for name in again)
    assert_close(found, expected, 0)
    with pytest.raises(InputError, match=r"output 'values' is float32 \[\d+\] and does not fit an array float32 \[3\]"):
        loaded.run(inputs, {"values": numpy.empty(3, numpy.float32)})
    with pytest.raises(InputError, match="no output is called 'over'"):
        loaded.run(inputs, {"over": numpy.empty(3, numpy.float32)})


def test_what_crosses_is_small() -> None:
    """The boxes are copied once: the host moves and gathers them. Integers and doubles of inputs are not copied."""
    graph = import_onnx(CASES["detector"]()[0])
    assert graph.host_partition is not None
    assert set(graph.outputs) == {"corners", "scores"} or set(graph.outputs) == {"boxes", "scores"}
    graph = import_onnx(CASES["integers"]()[0])
    assert graph.host_partition is not None
    assert graph.outputs == ("over",)
    assert {"ids", "doubles"} <= set(graph.host_partition.graph.inputs)


def test_pieces_of_one_tensor_cross_as_one() -> None:
    """Each class is taken out of the scores and compared on the host: the scores are copied once."""
    nodes = [*BACKBONE, node("Reshape", "features flat", "rows"), node("Softmax", "rows", "scores", axis=1)]
    for number in range(1, 8):
        nodes += [
            node("Gather", f"scores class{number}", f"column{number}", axis=1),
            node("Greater", f"column{number} limit", f"over{number}"), node("NonZero", f"over{number}", f"at{number}"),
            node("Transpose", f"at{number}", f"places{number}"),
            node("GatherND", f"column{number} places{number}", f"y{number}"),
        ]
    constants = {"w": FILTERS, "flat": numpy.array([-1, 8]), "limit": numpy.float32(0.2)}
    constants |= {f"class{number}": numpy.array(number) for number in range(1, 8)}
    model = make_model(nodes, {"x": PICTURE}, [f"y{number}" for number in range(1, 8)], 13, constants)
    graph = import_onnx(model)
    assert graph.outputs == ("scores",)
    assert_close(run_model(model, {"x": PICTURE}), run_oracle(model, {"x": PICTURE}), TOLERANCE)


def test_a_static_shape_stays_on_the_device() -> None:
    """The host compares, because it reads what is compared anyway."""
    graph = import_onnx(CASES["non_zero"]()[0])
    assert graph.host_partition is not None
    assert [n.op_type for n in graph.host_partition.graph.nodes] == [
        "Greater", "NonZero", "Transpose", "GatherND", "ReduceMax", "Size"
    ]
    assert str(graph).endswith("output count: int64 [-1]") or "on the host, because of node 'places'" in str(graph)


def test_branches_of_one_shape_stay_on_the_device(device: DeviceInfo) -> None:
    model, inputs = if_of_one_shape()
    loaded = imgconv.load(model, device, strict=True)
    for scale in (0.1, 1.0):
        given = {"x": inputs["x"] * numpy.float32(scale)}
        assert_close(loaded.run(given), run_oracle(model, given), TOLERANCE)


def test_layers_on_the_host_are_said() -> None:
    """A product of two tensors that depend on data is no subgraph: no matrix is known."""
    nodes = [
        onnx.helper.make_node("NonZero", ["x"], ["places"], name="places"),
        onnx.helper.make_node("Cast", ["places"], ["floats"], to=1),
        onnx.helper.make_node("Transpose", ["floats"], ["columns"]),
        onnx.helper.make_node("MatMul", ["floats", "columns"], ["y"]),
    ]
    with pytest.warns(RuntimeWarning, match="1 convolutions and products run on the host, after node 'places'"):
        import_onnx(make_model(nodes, {"x": PICTURE}, ["y"], 13))


def test_strict(device: DeviceInfo) -> None:
    with pytest.raises(UnsupportedError, match="NonMaxSuppression.*must be constant") as caught:
        imgconv.load(CASES["detector"]()[0], device, strict=True)
    assert caught.value.node == "picked"
    plain = onnx.helper.make_model(onnx.helper.make_graph(
        [onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [onnx.helper.make_tensor_value_info("x", 1, [2])],
        [onnx.helper.make_tensor_value_info("y", 1, [2])],
    ), ir_version=8)
    assert imgconv.load(plain, device, strict=True).run({"x": numpy.float32([-1, 1])})["y"].tolist() == [0, 1]


def test_mapped_memory_is_refused(device: DeviceInfo) -> None:
    with pytest.raises(InputError, match="output 'picked' is made on the host: use run or submit"):
        imgconv.load(CASES["detector"]()[0], device).mapped()


def test_half(device: DeviceInfo) -> None:
    """Boundary tensors are measured: the boxes may be off by half's rounding, their number is the same here."""
    model, inputs = CASES["non_zero"]()
    loaded = imgconv.load(model, device, float16=1)
    found, expected = loaded.run(inputs), run_oracle(model, inputs)
    numpy.testing.assert_allclose(found["largest"], expected["largest"], 1e-2)


@pytest.mark.parametrize("name", ["integers", "host_alone"])
def test_half_beside_inputs_that_only_the_host_reads(device: DeviceInfo, name: str) -> None:
    model, inputs = CASES[name]()
    found, expected = imgconv.load(model, device, float16=1).run(inputs), run_oracle(model, inputs)
    assert {key: (array.dtype, array.shape) for key, array in found.items()} == {
        key: (array.dtype, array.shape) for key, array in expected.items()
    }


def test_a_compiled_file(case: Case, device: DeviceInfo, tmp_path: Path) -> None:
    model, inputs = case
    loaded = imgconv.load(model, device)
    loaded.save(tmp_path / "m.imgconv")
    again = imgconv.load(tmp_path / "m.imgconv", device)
    assert_close(again.run(inputs), loaded.run(inputs), 0)
    assert again.outputs == loaded.outputs
    assert str(again.graph.host_partition) == str(loaded.graph.host_partition)
    with pytest.raises(UnsupportedError, match="strict: "):
        imgconv.load(tmp_path / "m.imgconv", device, strict=True)


def test_a_compiled_file_needs_no_onnx(device: DeviceInfo, tmp_path: Path) -> None:
    model, inputs = CASES["detector"]()
    loaded = imgconv.load(model, device)
    loaded.save(tmp_path / "m.imgconv")
    numpy.savez(tmp_path / "expected.npz", **loaded.run(inputs), x=PICTURE)
    code = """
import sys, numpy, imgconv
sys.modules["onnx"] = None
expected = numpy.load("expected.npz")
found = imgconv.load("m.imgconv").run({"x": expected["x"]})
assert all(numpy.array_equal(found[name], expected[name]) for name in found) and len(found) == 5
"""
    environment = {**os.environ, "IMGCONV_DEVICE": str(device.index)}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True)


def test_a_stream(device: DeviceInfo) -> None:
    """The state stays on the device, the host's outputs follow it."""
    nodes = [
        onnx.helper.make_node("Add", ["x", "state"], ["after"]),
        onnx.helper.make_node("Greater", ["after", "two"], ["over"]),
        onnx.helper.make_node("NonZero", ["over"], ["places"]),
    ]
    x = numpy.float32([1, 0, 2])
    model = make_model(nodes, {"x": x, "state": x}, ["places", "after"], 13, {"two": numpy.float32(2)})
    loaded = imgconv.load(model, device)
    loaded.run({"x": x, "state": x})
    stream = loaded.stream({"after": "state"})
    assert [stream.run({"x": x})["places"].tolist() for _ in range(3)] == [[[]], [[2]], [[0, 2]]]
    of_host = make_model(nodes[:1] + nodes[2:], {"x": x, "state": x}, ["over", "after"], 13)
    del of_host.graph.node[1:]
    of_host.graph.node.append(onnx.helper.make_node("Compress", ["after", "bits"], ["over"]))
    of_host.graph.node.append(onnx.helper.make_node("Cast", ["after"], ["bits"], to=9))
    reading = imgconv.load(of_host, device)
    reading.run({"x": x, "state": x})
    with pytest.raises(InputError, match="the host reads 'after', so it cannot be a state"):
        reading.stream({"after": "state"})


def test_it_is_not_exported() -> None:
    with pytest.raises(UnsupportedError, match="the host computes a part of the model, which is not written"):
        imgconv.export_onnx(import_onnx(CASES["detector"]()[0]))


def test_preprocess(device: DeviceInfo) -> None:
    """The device makes the input that the host reads too."""
    model, _ = CASES["host_alone"]()
    del model.graph.input[:]
    model.graph.input.append(onnx.helper.make_tensor_value_info("x", 1, [1, 3, 4, 4]))
    seen = imgconv.load(model, device).preprocess((4, 4))
    picture = numpy.zeros((4, 4, 3), numpy.uint8)
    picture[1, 2, 0] = 9
    assert seen.run({"picture": picture})["y"].tolist() == [[0], [0], [1], [2]]


def test_a_file(device: DeviceInfo, tmp_path: Path) -> None:
    model, inputs = CASES["detector"]()
    path = tmp_path / "detector.onnx"
    onnx.save(model, path)
    found: dict[str, Any] = imgconv.load(path, device).run(inputs)
    assert_close(found, run_oracle(model, inputs), TOLERANCE)
