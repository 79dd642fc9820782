"""Selections with equal elements and NaN, against onnxruntime: its order of equal elements is the one to keep."""

from __future__ import annotations

from typing import Any

import numpy
import onnx
import onnx.helper
import pytest
from support import run_oracle

from imgconv import host
from imgconv.arrays import Array
from imgconv.errors import ModelError, ResourceError
from imgconv.graph.onnx_nodes import HostGraph, HostNode


def run_host(op_type: str, inputs: dict[str, Array], outputs: int = 1, limit: int = 1 << 30, **attributes: Any) -> Any:
    names = tuple(f"y{n}" for n in range(outputs))
    node = HostNode("n", op_type, tuple(inputs), names, attributes, 18)
    return host.HostProgram.prepare(HostGraph(tuple(inputs), names, (node,)), limit).run(list(inputs.values()))


def run_onnxruntime(op_type: str, inputs: dict[str, Array], outputs: int = 1, **attributes: Any) -> list[Any]:
    declared = [
        onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in inputs.items()
    ]
    names = [f"y{n}" for n in range(outputs)]
    node = onnx.helper.make_node(op_type, list(inputs), names, **attributes)
    graph = onnx.helper.make_graph([node], "g", declared, [onnx.ValueInfoProto(name=n) for n in names])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8)
    return list(run_oracle(model, inputs).values())


def check(op_type: str, inputs: dict[str, Array], outputs: int = 1, **attributes: Any) -> None:
    found = run_host(op_type, inputs, outputs, **attributes)
    for have, want in zip(found, run_onnxruntime(op_type, inputs, outputs, **attributes), strict=True):
        assert have.dtype == want.dtype
        numpy.testing.assert_array_equal(have, want)


@pytest.mark.parametrize("centred", [0, 1])
@pytest.mark.parametrize("least", [None, 0.0, 0.4])
@pytest.mark.parametrize(("most", "overlap"), [(0, 0.5), (1, 0.5), (7, 0.0), (1000, 0.3), (1000, 0.9)])
def test_non_max_suppression(centred: int, least: float | None, most: int, overlap: float) -> None:
    for seed in range(3):
        random = numpy.random.default_rng(seed)
        # Coordinates and scores of few values: equal scores, equal boxes, boxes without area and swapped corners.
        boxes = random.integers(0, 12, (2, 60, 4)).astype(numpy.float32)
        scores = (random.integers(0, 6, (2, 3, 60)) / 5).astype(numpy.float32)
        inputs = {
            "boxes": boxes, "scores": scores, "most": numpy.array([most]), "overlap": numpy.float32([overlap]),
        }
        inputs |= {} if least is None else {"least": numpy.float32([least])}
        check("NonMaxSuppression", inputs, center_point_box=centred)


def test_non_max_suppression_of_many_boxes() -> None:
    random = numpy.random.default_rng(0)
    corner = random.random((1, 3000, 2), numpy.float32)
    boxes = numpy.concatenate([corner, corner + random.random((1, 3000, 2), numpy.float32) / 5], 2)
    scores = random.random((1, 5, 3000), numpy.float32)
    limits = {"most": numpy.array([100]), "overlap": numpy.float32([0.45]), "least": numpy.float32([0.3])}
    check("NonMaxSuppression", {"boxes": boxes, "scores": scores, **limits})


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32", "uint8"])
@pytest.mark.parametrize(("largest", "axis", "k"), [(1, -1, 5), (0, 0, 3), (1, 1, 0), (0, 1, 40)])
def test_top_k_of_equal_elements(dtype: str, largest: int, axis: int, k: int) -> None:
    x = numpy.random.default_rng(1).integers(0, 9, (6, 40)).astype(dtype)
    check("TopK", {"x": x, "k": numpy.array([k])}, 2, largest=largest, axis=axis)


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("k", [0, 1, 17, 900])
def test_top_k_of_a_vector(largest: int, k: int) -> None:
    x = numpy.random.default_rng(2).integers(-200, 200, 1000).astype(numpy.float32)
    x[:3] = [numpy.inf, -numpy.inf, -0.0]
    check("TopK", {"x": x, "k": numpy.array([k])}, 2, largest=largest)


@pytest.mark.parametrize("ordered", [0, 1])
def test_unique(ordered: int) -> None:
    x = numpy.random.default_rng(3).integers(0, 9, (7, 5)).astype(numpy.float32)
    check("Unique", {"x": x}, 4, sorted=ordered)
    check("Unique", {"x": x // 5}, 4, sorted=ordered, axis=1)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (4, 5, 2)])
def test_non_zero(shape: tuple[int, ...]) -> None:
    check("NonZero", {"x": numpy.random.default_rng(4).integers(0, 2, shape).astype(numpy.int64)})


def test_non_zero_of_a_scalar() -> None:
    """A scalar has no axis: its positions are (0, count), as ONNX says. onnxruntime gives (1, count)."""
    (found,) = run_host("NonZero", {"x": numpy.array(3.0)})
    assert (found.shape, found.dtype) == ((0, 1), numpy.int64)


def test_a_tensor_over_the_limit_is_named() -> None:
    with pytest.raises(ResourceError, match=r"node 'n', Expand, makes a tensor \[1000, 1000\] of 4 MB on the host"):
        run_host("Expand", {"x": numpy.zeros((1000, 1), "float32"), "s": numpy.array([1, 1000])}, limit=1_000_000)
    with pytest.raises(ResourceError, match=r"'n', Mul, makes a tensor \[600, 600\]"):
        run_host("Mul", {"a": numpy.zeros((600, 1)), "b": numpy.zeros((1, 600))}, limit=1_000_000)
    with pytest.raises(ResourceError, match="ConstantOfShape"):
        run_host("ConstantOfShape", {"s": numpy.array([1 << 40, 1 << 20])})


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("index", [0, 2, -1, -3])
def test_one_slice(axis: int, index: int) -> None:
    check("Gather", {"x": numpy.arange(60.0).reshape(3, 4, 5)[:, :3, :3], "i": numpy.array(index)}, axis=axis)


def test_an_index_that_is_not_there_is_named() -> None:
    with pytest.raises(ModelError, match="node 'n': Gather: an index of -4 .. -4 is outside of an axis of 3"):
        run_host("Gather", {"x": numpy.arange(3), "i": numpy.array(-4)})
    with pytest.raises(ModelError, match="node 'n': Gather: an index of 3 .. 3 is outside of an axis of 3"):
        run_host("Gather", {"x": numpy.arange(3), "i": numpy.array([3])})
    with pytest.raises(ModelError, match="node 'n': Reshape: cannot reshape"):
        run_host("Reshape", {"x": numpy.arange(3), "s": numpy.array([2, 2])})


def test_non_max_suppression_of_boxes_shifted_by_class() -> None:
    """One class of more boxes than are compared at once: classes lie apart, one has boxes without area and with NaN."""
    random = numpy.random.default_rng(3)
    number, centre = numpy.arange(3000) % 20, random.uniform(0, 300, (3000, 2))
    size = random.uniform(0, 80, (3000, 2)) * (random.uniform(0, 1, (3000, 1)) > 0.1)
    boxes = numpy.concatenate([centre - size, centre + size], 1) + 500.0 * number[:, None]
    boxes = boxes.astype(numpy.float32)[None]
    scores = (random.integers(0, 400, (1, 1, 3000)) / 400).astype(numpy.float32)
    for most, overlap in ((3000, 0.5), (1500, 0.0), (2000, 0.9), (300, 0.0), (7, 0.5), (500, 0.9)):
        inputs = {
            "boxes": boxes, "scores": scores, "most": numpy.array([most]), "overlap": numpy.float32([overlap]),
        }
        check("NonMaxSuppression", inputs)
    boxes[0, 7, 2] = numpy.nan
    inputs |= {"boxes": boxes, "most": numpy.array([3000]), "overlap": numpy.float32([0.5])}
    check("NonMaxSuppression", inputs)
