"""Indices that only a run shows to be out of range: a device raises no error, so the results are NaN, not silent."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from operator_cases import Case, Constant, check, ints, model_of
from support import run_model, run_oracle

from imgconv.cl.device import DeviceInfo
from imgconv.errors import ModelError

X = numpy.arange(1, 13, dtype=numpy.float32).reshape(3, 4)
ROIS = numpy.float32([[0, 0, 3, 3], [1, 1, 2, 2]])
PICTURES = numpy.arange(1, 33, dtype=numpy.float32).reshape(2, 1, 4, 4)


def found(op_type: str, inputs: Any, device: DeviceInfo, **attributes: Any) -> list[Any]:
    """Returns the results of the reference and of the device for a node of opset 18."""
    model, feeds = model_of(Case(op_type, 18, inputs, attributes))
    return [run_model(model, feeds, engine)["y0"] for engine in ("reference", device)]


@pytest.mark.parametrize("stray", [3, -4, 2**20])
@pytest.mark.parametrize("op_type", ["Gather", "GatherElements", "GatherND"])
def test_gathers(op_type: str, stray: int, device: DeviceInfo) -> None:
    shape = {"Gather": (3,), "GatherElements": (3, 1), "GatherND": (3, 1)}[op_type]
    for made in found(op_type, (X, numpy.array([0, stray, -1]).reshape(shape)), device):
        rows = made.reshape(3, -1)
        assert numpy.isnan(rows[1]).all() and not numpy.isnan(rows[[0, 2]]).any()
        numpy.testing.assert_array_equal(rows[2, 0], X[2, 0])


@pytest.mark.parametrize("reduction", ["none", "add", "max"])
@pytest.mark.parametrize("stray", [3, -4])
@pytest.mark.parametrize("op_type", ["ScatterElements", "ScatterND"])
def test_scatters(op_type: str, stray: int, reduction: str, device: DeviceInfo) -> None:
    index, updates = numpy.array([[0], [stray]]), X[:2, :1] if op_type == "ScatterElements" else X[:2]
    for made in found(op_type, (X, index, updates), device, reduction=reduction):
        assert numpy.isnan(made).all()
    for made in found(op_type, (X, index * 0 - 1, updates), device, reduction=reduction):
        assert not numpy.isnan(made).any()


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("stray", [2, -1])
def test_regions_of_no_picture(stray: int, mode: str, device: DeviceInfo) -> None:
    inputs = PICTURES, ROIS, numpy.array([1, stray])
    for made in found("RoiAlign", inputs, device, mode=mode, sampling_ratio=1):
        assert numpy.isnan(made[1]).all() and not numpy.isnan(made[0]).any()


def test_max_unpool_outside_of_the_window(device: DeviceInfo) -> None:
    """The third element's index lies in the fourth one's window."""
    inputs = numpy.float32([[[[1, 2], [3, 4]]]]), numpy.array([[[[0, 3], [11, 15]]]])
    for made in found("MaxUnpool", inputs, device, kernel_shape=[2, 2], strides=[2, 2]):
        assert numpy.isnan(made[0, 0, 2:, :2]).all()
        numpy.testing.assert_array_equal(made[0, 0, :2], [[1, 0, 0, 2], [0, 0, 0, 0]])


@pytest.mark.parametrize(("kernel", "strides", "places"), [
    ([2, 2], [2, 2], [0, 0, 0, 0]), ([2, 2], [2, 2], [5, 6, 2, 1]), ([2, 2], [2, 2], [0, 15, 8, 15]),
    ([3, 3], [2, 2], [0, 2, 8, 24]), ([2, 2], [3, 3], [0, 2, 8, 10]), ([1, 3], [1, 2], [1, 2, 3, 3]),
])
def test_max_unpool_of_known_indices(kernel: Any, strides: Any, places: Any, device: DeviceInfo) -> None:
    """Anywhere, also several times: the last one stays."""
    case = Case("MaxUnpool", 11, (numpy.float32([[[[5, 6], [4, 3]]]]), ints(*places)), {
        "kernel_shape": kernel, "strides": strides})
    known = numpy.array(places).reshape(1, 1, 2, 2)
    for engine in ("reference", device):
        check(Case(case.op_type, 11, (case.inputs[0], Constant(known)), case.attributes), engine)


def test_max_unpool_of_overlapping_windows(device: DeviceInfo) -> None:
    """Two neighbours name the element that both windows have: the last one stays, though the first one is larger."""
    case = Case("MaxUnpool", 11, (numpy.float32([[[9, 5, 7]]]), numpy.array([[[2, 2, 4]]])), {
        "kernel_shape": [3], "strides": [2]})
    for engine in ("reference", device):
        check(case, engine)


@pytest.mark.parametrize("stray", [99, -1])
def test_max_unpool_of_a_known_index_outside(stray: int) -> None:
    model, feeds = model_of(Case("MaxUnpool", 11, (X.reshape(1, 1, 3, 4), Constant(numpy.full((1, 1, 3, 4), stray))), {
        "kernel_shape": [2, 2], "strides": [2, 2]}))
    with pytest.raises(ModelError, match="an index is outside of a result of"):
        run_model(model, feeds)


@pytest.mark.parametrize("unordered", [0, 1])
def test_top_k_is_in_order_also_if_it_need_not_be(unordered: int, device: DeviceInfo) -> None:
    x = numpy.random.default_rng(1).normal(size=(3, 50)).astype(numpy.float32)
    model, feeds = model_of(Case("TopK", 11, (x, ints(7)), {"sorted": unordered}, outputs=2))
    expected = run_oracle(model_of(Case("TopK", 11, (x, ints(7)), {}, outputs=2))[0], feeds)
    for engine in ("reference", device):
        made = run_model(model, feeds, engine)
        assert all(numpy.array_equal(made[name], expected[name]) for name in expected)
