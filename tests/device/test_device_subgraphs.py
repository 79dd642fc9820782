"""Convolutions and products after a shape that depends on data run on the device, for rounded numbers of rows."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy
import onnx
import pytest

import imgconv
from imgconv.cl.device import DeviceInfo
from imgconv.cli import main
from imgconv.graph.onnx_nodes import HostGraph, HostNode
from imgconv.host.subgraphs import is_device_subgraph, row_inputs
from imgconv.onnx_import import import_onnx
from imgconv.loading.device_subgraphs import SESSIONS, DeviceSubgraph, padded_row_count
from tests.support import assert_close, make_model, run_oracle
from tests.host_fallback_models import CASES, PICTURE, node

TOLERANCE = 1e-5  # sums of up to 128 products in float, of values up to 10


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[DeviceSubgraph]:
    """The subgraphs that are made in a test. The device computes them, even if they are little work."""
    monkeypatch.setattr("imgconv.loading.device_subgraphs.WORTH_A_LAUNCH", 0)
    found: list[DeviceSubgraph] = []
    initialise = DeviceSubgraph.__init__

    def remember(self: DeviceSubgraph, *given: Any) -> None:
        initialise(self, *given)
        found.append(self)

    monkeypatch.setattr(DeviceSubgraph, "__init__", remember)
    return found


def bodies(graph: HostGraph) -> list[HostGraph]:
    """The bodies of all subgraphs."""
    inner = [body for n in graph.nodes for body in n.bodies.values()]
    own = [body for node in graph.nodes if is_device_subgraph(node) for body in node.bodies.values()]
    return own + [each for body in inner for each in bodies(body)]


def behind_rows(nodes: list[onnx.NodeProto], constants: dict[str, Any], outputs: str) -> onnx.ModelProto:
    """A model in which `rows`, (count, 8), are the elements of x of 8 that have a first one over zero."""
    chosen = [
        node("Reshape", "x eights", "all"), node("Gather", "all zero", "firsts", axis=1),
        node("Greater", "firsts nought", "over"), node("Compress", "all over", "rows", axis=0),
    ]
    constants = {"eights": numpy.array([-1, 8]), "zero": numpy.array(0), "nought": numpy.float32(0), **constants}
    return make_model([*chosen, *nodes], {"x": PICTURE}, outputs.split(), 13, constants)


def rows_over(count: int) -> Any:
    """An input of which `count` rows are chosen."""
    x = numpy.random.default_rng(count).uniform(-1, 1, (96, 8)).astype(numpy.float32)
    x[:, 0] = -1
    x[numpy.random.default_rng(3).permutation(96)[:count], 0] = 1
    return x.reshape(PICTURE.shape)


MATRIX = numpy.random.default_rng(1).uniform(-1, 1, (8, 512)).astype(numpy.float32)
PRODUCT = [node("MatMul", "rows matrix", "product"), node("Relu", "product", "y")]


@pytest.mark.parametrize("name", ["two_stage", "crops", "convolutions_in_bodies"])
def test_nothing_is_left_to_the_host(name: str, device: DeviceInfo, made: list[DeviceSubgraph]) -> None:
    model, inputs = CASES[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = imgconv.load(model, device)
        assert_close(loaded.run(inputs), run_oracle(model, inputs), TOLERANCE)
    assert made and any(subgraph._sessions for subgraph in made)
    assert not any(subgraph.on_host for subgraph in made)


def test_what_a_segment_takes_in() -> None:
    """The products, what lies between them and both heads; not the regions, which the host makes."""
    graph = import_onnx(CASES["crops"]()[0]).host_partition
    assert graph is not None
    (body,) = bodies(graph.graph)
    assert [n.op_type for n in body.nodes] == [
        "Flatten", "Gemm", "Relu", "MatMul", "Add", "Relu", "Gemm", "Gemm", "Softmax", "Add"
    ][1:]
    assert body.inputs == ("flat_crops", "moved_regions")
    assert set(body.outputs) == {"classes", "found"}
    assert not {"w1", "w2", "w3", "w4"} & set(graph.graph.constants)


def test_numbers_of_rows_are_rounded_up(device: DeviceInfo, made: list[DeviceSubgraph]) -> None:
    model = behind_rows(PRODUCT, {"matrix": MATRIX}, "y")
    loaded = imgconv.load(model, device)
    for count in (5, 6, 7, 8, 0, 33, 47, 1):
        given = {"x": rows_over(count)}
        found = loaded.run(given)
        assert found["y"].shape == (count, 512)
        assert_close(found, run_oracle(model, given), TOLERANCE)
    (subgraph,) = made
    assert [shapes[0][0] for shapes in subgraph._sessions] == [6, 8, 48, 1]


def test_sizes_are_kept_up_to_a_number(device: DeviceInfo, made: list[DeviceSubgraph]) -> None:
    model = behind_rows(PRODUCT, {"matrix": MATRIX}, "y")
    loaded = imgconv.load(model, device)
    for count in (1, 2, 3, 4, 6, 8, 12, 16, 24, 1, 96):
        assert_close(loaded.run({"x": rows_over(count)}), run_oracle(model, {"x": rows_over(count)}), TOLERANCE)
    assert [shapes[0][0] for shapes in made[0]._sessions] == [4, 6, 8, 12, 16, 24, 1, 96]
    assert len(made[0]._sessions) == SESSIONS


def test_rounded_up() -> None:
    assert [padded_row_count(count) for count in (1, 2, 3, 4, 5, 7, 9, 13, 150)] == [1, 2, 3, 4, 6, 8, 12, 16, 192]


MIXES = {
    "a softmax over the rows": [*PRODUCT[:1], node("Softmax", "product", "y", axis=0)],
    "rows turned into columns": [*PRODUCT[:1], node("Transpose", "product", "y", perm=[1, 0])],
    "rows put together": [*PRODUCT[:1], node("Reshape", "product together", "y")],
    "one of two rows of constants": [*PRODUCT[:1], node("Add", "product two_rows", "y")],
}


@pytest.mark.parametrize("name", MIXES)
def test_rows_that_mix_are_compiled_as_they_are(name: str, device: DeviceInfo, made: list[DeviceSubgraph]) -> None:
    constants = {"matrix": MATRIX, "together": numpy.array([1, -1]), "two_rows": numpy.float32([[1], [2]])}
    model = behind_rows(MIXES[name], constants, "y")
    loaded = imgconv.load(model, device)
    for count in ((2, 1) if "two" in name else (5, 7)):
        given = {"x": rows_over(count)}
        assert_close(loaded.run(given), run_oracle(model, given), TOLERANCE)
    assert [shapes[0][0] for shapes in made[0]._sessions] == ([2, 1] if "two" in name else [5, 7])


KEPT = [
    ("Gemm", ("x", "w"), {"transB": 1}, True), ("Gemm", ("x", "w"), {"transA": 1}, False), ("Neg", ("x",), {}, True),
    ("Add", ("x", "w"), {}, False), ("Softmax", ("x",), {"axis": -1}, True), ("Softmax", ("x",), {"axis": 0}, False),
    ("Transpose", ("x",), {"perm": (0, 1)}, True), ("Transpose", ("x",), {}, False),
    ("Flatten", ("x",), {"axis": 1}, True), ("Flatten", ("x",), {"axis": 0}, False),
]


@pytest.mark.parametrize(("op_type", "inputs", "attributes", "kept"), KEPT)
def test_which_operators_keep_rows(op_type: str, inputs: tuple[str, ...], attributes: Any, kept: bool) -> None:
    constants = {"w": numpy.ones((4, 4), numpy.float32)}
    body = HostGraph(("x",), ("y",), (HostNode("n", op_type, inputs, ("y",), attributes, 13),), constants)
    assert row_inputs(body, {"x": (4, 4)}, {"x": "float32"}) == ({"x"} if kept else set())


def test_a_path_through_the_host_ends_a_segment() -> None:
    """The second product waits for the host, which waits for the first: they are two subgraphs."""
    square = numpy.random.default_rng(2).uniform(-1, 1, (512, 16)).astype(numpy.float32)
    nodes = [
        *PRODUCT, node("TopK", "y three", "best positions", axis=0), node("ReduceMax", "best", "most", axes=[0]),
        node("Add", "y most", "sum"), node("MatMul", "sum square", "z"),
    ]
    model = behind_rows(nodes, {"matrix": MATRIX, "square": square, "three": numpy.array([3])}, "z")
    partition = import_onnx(model).host_partition
    assert partition is not None
    assert [[n.op_type for n in body.nodes] for body in bodies(partition.graph)] == [["MatMul", "Relu"], ["MatMul"]]
    order = [n.op_type for n in partition.graph.nodes if n.op_type in ("Subgraph", "TopK", "ReduceMax", "Add")]
    assert order == ["Subgraph", "TopK", "ReduceMax", "Add", "Subgraph"]


def test_doubles_are_the_hosts(device: DeviceInfo, made: list[DeviceSubgraph]) -> None:
    nodes = [node("Cast", "rows", "doubles", to=11), node("MatMul", "doubles matrix", "y")]
    model = behind_rows(nodes, {"matrix": MATRIX.astype(numpy.float64)}, "y")
    given = {"x": rows_over(7)}
    found = imgconv.load(model, device).run(given)
    assert found["y"].dtype == numpy.float64
    numpy.testing.assert_allclose(found["y"], run_oracle(model, given)["y"], 1e-13, 1e-13)
    assert not any(subgraph._sessions for subgraph in made)


def test_what_inspect_says(device: DeviceInfo, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "two_stage.onnx"
    onnx.save(CASES["two_stage"]()[0], path)
    assert main(["inspect", str(path), "--device", str(device.index)]) == 0
    shown = capsys.readouterr().out
    assert "nodes on the host, 1 of them subgraphs that run on the device" in " ".join(shown.split())
    text = str(import_onnx(path))
    assert "  y = Subgraph(copies)\n    conv_2 = Conv(copies, second)\n    pooled = GlobalAveragePool(conv_2)\n" in text


def test_little_work_stays_on_the_host(
    device: DeviceInfo, made: list[DeviceSubgraph], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two products of six rows: as many multiply-adds as are worth a launch, and one fewer."""
    nodes = [node("MatMul", "rows w", "hidden"), node("Relu", "hidden", "active"), node("Gemm", "active v", "y")]
    constants = {"w": numpy.ones((8, 512), numpy.float32), "v": numpy.ones((512, 4), numpy.float32)}
    model = behind_rows(nodes, constants, "y")
    work = 8 * 512 + 512 * 4
    for least, sessions in ((6 * work, 1), (6 * work + 1, 0)):
        monkeypatch.setattr("imgconv.loading.device_subgraphs.WORTH_A_LAUNCH", least)
        made.clear()
        assert_close(imgconv.load(model, device).run({"x": rows_over(6)}), run_oracle(model, {"x": rows_over(6)}), 1e-5)
        assert [len(subgraph._sessions) for subgraph in made] == [sessions]


@pytest.mark.parametrize("least", [0, 1 << 19])
def test_a_product_with_a_vector(
    device: DeviceInfo, made: list[DeviceSubgraph], monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    """It has one axis, and begins a subgraph as a matrix does."""
    nodes = [node("Tile", "rows repeats", "long"), node("MatMul", "long v", "y")]
    vector = numpy.random.default_rng(2).uniform(-1, 1, 4096).astype(numpy.float32)
    model = behind_rows(nodes, {"repeats": numpy.array([1, 512]), "v": vector}, "y")
    monkeypatch.setattr("imgconv.loading.device_subgraphs.WORTH_A_LAUNCH", least)
    found = imgconv.load(model, device).run({"x": rows_over(6)})
    assert_close(found, run_oracle(model, {"x": rows_over(6)}), 1e-4)  # sums of 4096 products in float
    assert len(made) == 1
