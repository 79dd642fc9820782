"""Operators that the host runs, because a device is not exact or does not know the shape of the result."""

from __future__ import annotations

import numpy
import onnx.helper
import pytest
from operator_cases import Case, Constant, ints, model_of, scalar, whole
from support import make_model, run_model, run_oracle

from imgconv.errors import UnsupportedError
from imgconv.onnx_import import import_onnx

IMAGE = (1, 4, 6, 6)
CASES = [
    Case("Pow", 15, (numpy.arange(3), scalar(0.5)), {}),
    Case("BitwiseAnd", 18, (numpy.arange(3), ints(1)), {}),
    Case("BitwiseNot", 18, (numpy.arange(3),), {}),
    Case("BitShift", 11, (numpy.arange(3, dtype="u4"), Constant(numpy.ones(1, "u4"))), {"direction": "LEFT"}),
    Case("Compress", 11, (IMAGE, numpy.array([True])), {}),
    Case("NonZero", 13, (IMAGE,), {}),
    Case("Unique", 11, (IMAGE,), {}, outputs=4),
    Case("NonMaxSuppression", 11, ((1, 4, 4), (1, 1, 4), ints(3)), {}),
    Case("ScatterElements", 18, (whole(3, dtype="i1"), ints(0), whole(1, dtype="i1")), {"reduction": "add"}),
]


def test_a_network_behind_inexact_integers_is_refused() -> None:
    """It would run on the host from its first node on."""
    x = numpy.zeros((1, 1, 4, 4), numpy.int32)
    nodes = [
        onnx.helper.make_node("BitwiseNot", ["x"], ["a"], name="bits"),
        onnx.helper.make_node("Cast", ["a"], ["b"], to=1),
        onnx.helper.make_node("Conv", ["b", "w"], ["y"]),
    ]
    with pytest.raises(UnsupportedError, match="the bits of int32") as caught:
        import_onnx(make_model(nodes, {"x": x}, ["y"], 18, {"w": numpy.ones((1, 1, 3, 3), numpy.float32)}))
    assert caught.value.node == "bits"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.op_type)
def test_as_onnxruntime(case: Case) -> None:
    model, feeds = model_of(case)
    graph = import_onnx(model)
    assert graph.host_partition is not None
    assert not graph.outputs
    found, expected = run_model(model, feeds), run_oracle(model, feeds)
    for name, want in expected.items():
        assert (found[name].shape, found[name].dtype) == (want.shape, want.dtype)
        numpy.testing.assert_array_equal(found[name], want)
