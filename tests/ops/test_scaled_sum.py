"""Sums of products of quantised tensors are exact, and scaled once: scales are such that most sums are nearly ties."""

from __future__ import annotations

from typing import Any

import numpy
from numpy.lib.stride_tricks import sliding_window_view
import onnx.helper
import pytest
from running import run_graph
from support import make_model

from imgconv.cl.context import Context
from imgconv.onnx_import import import_onnx

node = onnx.helper.make_node
X_SCALE, Y_SCALE = numpy.float32(0.1), numpy.float32(0.01)
CHANNELS, FILTERS = 9, 6
# Times X_SCALE / Y_SCALE about a half, a quarter and three halves of a level.
SCALES = numpy.float32([0.05, 0.025, 0.15, 0.05, 0.025, 0.15])
LIMITS = {"": (-numpy.inf, numpy.inf), "Relu": (0, numpy.inf), "Clip": (0, 0.6)}
LAYERS = [("Conv", "", 7), ("Conv", "Relu", 0), ("Conv", "Clip", 3), ("MatMul", "", 131), ("Gemm", "Relu", 0)]


def layer(op_type: str, after: str, zero: int, by_output: bool) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
    """Nodes from x to the numbers s, constants and the input."""
    random, window = numpy.random.default_rng(3), (3, 3) if op_type == "Conv" else ()
    w = random.integers(-2, 3, (FILTERS, CHANNELS, *window)).astype("i1")
    scale = SCALES if by_output else SCALES[0]
    bias = random.integers(-20, 20, FILTERS).astype("i4")
    # Conv and Gemm, which is transposed, have a scale for each row, MatMul for each column.
    axis = {"axis": 0 if op_type != "MatMul" else 1} if by_output else {}
    constants = {
        "xs": X_SCALE, "z": numpy.uint8(zero), "w": w.T if op_type == "MatMul" else w, "ws": scale, "b": bias,
        "bs": X_SCALE * scale, "low": numpy.float32(0), "high": numpy.float32(LIMITS[after][1]),
    }
    nodes = [
        node("QuantizeLinear", ["x", "xs", "z"], ["q"]), node("DequantizeLinear", ["q", "xs", "z"], ["d"]),
        node("DequantizeLinear", ["w", "ws"], ["v"], **axis),
        node("DequantizeLinear", ["b", "bs"], ["c"], **({"axis": 0} if by_output else {})),
    ]
    attributes = {"Conv": {"pads": [1] * 4}, "Gemm": {"transB": 1}}.get(op_type, {})
    nodes.append(node(op_type, ["d", "v"] + ["c"] * (op_type != "MatMul"), ["s" if not after else "t"], **attributes))
    if after:
        nodes.append(node(after, ["t", "low", "high"] if after == "Clip" else ["t"], ["s"]))
    low = max(0, zero - 10)
    levels = random.integers(low, low + 30, (1, CHANNELS, 8, 7) if op_type == "Conv" else (50, CHANNELS))
    return nodes, constants, {"x": ((levels - zero) * X_SCALE).astype("f")}


def integer_sums(op_type: str, constants: dict[str, Any], x: Any) -> Any:
    """The sums in int64, with the outputs on the last axis, and the bias."""
    levels = numpy.rint(x / X_SCALE).astype(numpy.int64)
    w = constants["w"].astype(numpy.int64)
    if op_type == "Conv":
        windows = sliding_window_view(numpy.pad(levels, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
        return numpy.einsum("nchwij,ocij->nhwo", windows, w) + constants["b"]
    return levels @ w if op_type == "MatMul" else levels @ w.T + constants["b"]


@pytest.mark.parametrize("by_output", [False, True])
@pytest.mark.parametrize(("op_type", "after", "zero"), LAYERS)
def test_levels_are_those_of_integers_scaled_once(
    op_type: str, after: str, zero: int, by_output: bool, context: Context
) -> None:
    """Levels as QLinearConv, QLinearMatMul and QGemm of onnxruntime have them: sum * (x_scale * w_scale / y_scale)."""
    nodes, constants, feeds = layer(op_type, after, zero, by_output)
    constants |= {"ys": Y_SCALE}
    nodes.append(node("QuantizeLinear", ["s", "ys", "z"], ["y"]))
    _, found = run_graph(import_onnx(make_model(nodes, feeds, ["y"], 13, constants)), feeds, context)
    scaled = integer_sums(op_type, constants, feeds["x"]).astype("f") * (X_SCALE * constants["ws"] / Y_SCALE)
    low, high = (numpy.float32(limit) / Y_SCALE for limit in LIMITS[after])
    expected = numpy.clip(numpy.rint(numpy.clip(scaled, low, high)) + zero, 0, 255)
    made = numpy.moveaxis(found["y"], 1, -1)
    assert len(numpy.unique(expected)) > 20
    numpy.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize(("op_type", "axis"), [("Conv", 1), ("Gemm", 1), ("MatMul", 0)])
def test_scales_of_inputs_are_no_scales_of_outputs(op_type: str, axis: int, context: Context) -> None:
    """Weights with as many inputs as outputs, and a scale for each input."""
    random = numpy.random.default_rng(4)
    w = random.integers(-64, 64, (6, 6, 1, 1) if op_type == "Conv" else (6, 6)).astype("i1")
    x = random.integers(0, 256, (1, 6, 5, 4) if op_type == "Conv" else (9, 6)).astype("u1")
    nodes = [node("DequantizeLinear", ["x", "xs"], ["d"]), node("DequantizeLinear", ["w", "ws"], ["v"], axis=axis)]
    nodes.append(node(op_type, ["d", "v"], ["y"], **({"transB": 1} if op_type == "Gemm" else {})))
    model = make_model(nodes, {"x": x}, ["y"], 13, {"xs": X_SCALE, "w": w, "ws": SCALES})
    _, found = run_graph(import_onnx(model), {"x": x}, context)
    numbers = x.astype(float) * X_SCALE
    matrix = w.reshape(6, 6) * (SCALES[:, None] if axis == 0 else SCALES)
    expected = numpy.einsum("nchw,oc->nohw", numbers, matrix) if op_type == "Conv" else numbers @ (
        matrix.T if op_type == "Gemm" else matrix
    )
    # A sum of six products in float.
    numpy.testing.assert_allclose(found["y"], expected, 1e-5, 1e-3)
