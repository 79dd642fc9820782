"""Quantised operators against onnxruntime, also where sums of integers pass 2**24, and what of them is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy
import onnx
import onnx.helper
import pytest
from operator_cases import Case, Constant, check, model_of
from support import ENGINES, assert_refused, make_model, run_model, run_oracle

from imgconv.errors import ModelError, UnsupportedError
from imgconv.graph.expression import function_names
from imgconv.graph.nodes import Convolution, Load
from imgconv.onnx_import import import_onnx
from imgconv.passes import run_passes

random = numpy.random.default_rng(3)


def draw(dtype: str, *shape: int, low: int | None = None, high: int | None = None) -> Any:
    """Random integers of the whole range of a type, or of a part of it."""
    limits = numpy.iinfo(dtype)
    first, last = limits.min if low is None else low, limits.max if high is None else high
    return random.integers(first, last, shape, endpoint=True).astype(dtype)


def weights(dtype: str, *shape: int, low: int = -64) -> Any:
    """Random integers, of 7 bits if signed: on CPUs without VNNI, onnxruntime adds two products of bytes in 16 bits."""
    return draw(dtype, *shape, low=low, high=63) if dtype == "int8" else draw(dtype, *shape)


def real(*shape: int, dtype: str = "float32") -> Any:
    return random.uniform(-3, 3, shape).astype(dtype)


def single(value: float, *shape: int, dtype: str = "float32") -> Constant:
    return Constant(numpy.full(shape, value, dtype))


def scales(*shape: int, dtype: str = "float32") -> Constant:
    return Constant(random.uniform(0.01, 0.1, shape).astype(dtype))


# Every multiple of a half: ties go to the even neighbour, what is past the range to its end.
TIES = numpy.arange(-300, 300, dtype=numpy.float32) / 2


def linear() -> Iterator[Case]:
    """QuantizeLinear and DequantizeLinear."""
    for opset in (10, 13, 19, 21, 23):
        for dtype in ("uint8", "int8"):
            zero = Constant(numpy.array(7, dtype))
            yield Case("QuantizeLinear", opset, (TIES, single(1.0), zero), {})
            yield Case("QuantizeLinear", opset, (real(2, 3, 4), single(0.03), zero), {})
            yield Case("DequantizeLinear", opset, (draw(dtype, 2, 3, 4), single(0.03), zero), {})
        yield Case("QuantizeLinear", opset, (real(2, 3), single(0.02)), {})
        yield Case("DequantizeLinear", opset, (draw("int32", 2, 3, low=-(2**20), high=2**20), single(0.02)), {})
    # The scale and the zero point may depend on an input.
    yield Case("QuantizeLinear", 13, (real(2, 3), real(1) ** 2, draw("uint8", 1)), {})
    yield Case("DequantizeLinear", 13, (draw("int8", 2, 3), real(), draw("int8")), {})
    for opset in (13, 21):
        for axis, length in ((0, 2), (1, 3), (-1, 4)):
            zero = Constant(draw("int8", length, low=-20, high=20))
            yield Case("QuantizeLinear", opset, (real(2, 3, 4), scales(length), zero), {"axis": axis})
            yield Case("DequantizeLinear", opset, (draw("int8", 2, 3, 4), scales(length), zero), {"axis": axis})
        yield Case("QuantizeLinear", opset, (real(2, 3), scales(3)), {})
    for axis, shape in ((1, (2, 3, 4)), (2, (2, 5, 2)), (-3, (1, 5, 4))):
        settings = {"axis": axis, "block_size": 2}
        for dtype in ("uint8", "int16", "uint16"):
            zero = Constant(draw(dtype, *shape, high=90))
            yield Case("QuantizeLinear", 21, (real(2, 5, 4), scales(*shape), zero), settings)
            yield Case("DequantizeLinear", 21, (draw(dtype, 2, 5, 4), scales(*shape), zero), settings)
    yield Case("QuantizeLinear", 21, (real(2, 3), single(0.001)), {"output_dtype": onnx.TensorProto.INT16})
    yield Case("QuantizeLinear", 21, (real(5, dtype="float16"), single(0.02, dtype="float16")), {})
    yield Case("DequantizeLinear", 21, (draw("uint16", 5), single(0.02, dtype="float16")), {}, tolerance=1e-3)
    yield Case("DynamicQuantizeLinear", 11, (real(3, 4),), {}, 3)
    yield Case("DynamicQuantizeLinear", 11, (abs(real(7)) + 1,), {}, 3)
    yield Case("DynamicQuantizeLinear", 11, (numpy.zeros((2, 3), "f"),), {}, 3)  # the scale is 1


def convolutions() -> Iterator[Case]:
    windows: tuple[dict[str, Any], ...] = (
        {}, {"strides": [2, 1], "pads": [1, 0, 1, 2]}, {"auto_pad": "SAME_UPPER"}, {"dilations": [1, 2]},
    )
    for x_type, w_type in (("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8")):
        x, w = draw(x_type, 2, 3, 6, 7), Constant(weights(w_type, 4, 3, 3, 2))
        zeros = single(5, dtype=x_type), single(3, dtype=w_type)
        output = single(0.06), single(9, dtype=x_type)
        for window in windows:
            if x_type == "uint8":
                yield Case("ConvInteger", 10, (x, w, *zeros), window)
            ends = (*output, Constant(draw("int32", 4, low=-9999, high=9999)))
            yield Case("QLinearConv", 10, (x, single(0.02), zeros[0], w, single(0.03), zeros[1], *ends), window)
        by_channel = w, scales(4), single(0, 4, dtype=w_type)
        yield Case("QLinearConv", 10, (x, single(0.02), zeros[0], *by_channel, *output), {})
    yield Case("ConvInteger", 10, (draw("uint8", 1, 2, 5, 5), draw("uint8", 2, 2, 3, 3)), {})
    groups = draw("uint8", 1, 4, 5, 5), single(0.02), single(120, dtype="uint8"), Constant(weights("int8", 6, 2, 3, 3))
    yield Case("QLinearConv", 10, (*groups, single(0.05), single(0, dtype="int8"), single(0.5),
                                   single(3, dtype="uint8")), {"group": 2})


def products() -> Iterator[Case]:
    for shape_a, shape_b in (((3, 5), (5, 4)), ((2, 3, 5), (2, 5, 4)), ((2, 1, 3, 5), (5, 4)), ((5,), (5, 4))):
        a, b = draw("uint8", *shape_a), weights("int8", *shape_b)
        yield Case("MatMulInteger", 10, (a, b), {})
        yield Case("MatMulInteger", 10, (a, Constant(b), single(100, dtype="uint8"), single(-3, dtype="int8")), {})
    for opset in (10, 21):
        for dtype in ("uint8", "int8"):
            b = Constant(weights(dtype, 5, 4))
            first = draw(dtype, 2, 3, 5), single(0.02), single(7, dtype=dtype)
            end = single(0.1), single(11, dtype=dtype)
            yield Case("QLinearMatMul", opset, (*first, b, single(0.04), single(2, dtype=dtype), *end), {})
            yield Case("QLinearMatMul", opset, (*first, b, scales(4), single(2, 4, dtype=dtype), *end), {})
    yield Case("MatMulInteger", 10, (draw("uint8", 3, 5), Constant(draw("uint8", 5, 4)), Constant(draw("uint8", 1)),
                                     Constant(draw("uint8", 4))), {})


def large_sums() -> Iterator[Case]:
    """Sums that pass 2**24, so that they are split: 700 channels of 2x2 products of up to 255 * 63."""
    for x_zero, dtype in ((0, "uint8"), (128, "uint8"), (-128, "int8")):
        x = draw(dtype, 1, 700, 3, 3, low=x_zero + 50 if x_zero != 128 else 0)
        w = Constant(weights("int8", 3, 700, 2, 2, low=20))
        inputs = x, single(0.02), single(x_zero, dtype=dtype), w, scales(3), single(0, dtype="int8")
        ends = single(9000.0), single(3, dtype=dtype)
        bias = Constant(draw("int32", 3, low=-(2**30), high=2**30))
        yield Case("QLinearConv", 10, (*inputs, *ends), {})
        yield Case("QLinearConv", 10, (*inputs, *ends, bias), {})
    a, b = draw("uint8", 4, 900), Constant(draw("uint8", 900, 5))
    yield Case("QLinearMatMul", 10, (a, single(0.02), single(0, dtype="uint8"), b, single(0.02),
                                     single(1, dtype="uint8"), single(25.0), single(9, dtype="uint8")), {})
    # What rises past 2**24 and falls back to a few units shows every unit that is lost on the way.
    up: Any = weights("int8", 2, 6000, low=40)
    x = draw("uint8", 1, 6000, low=250)
    less = x - (random.random(x.shape) < 2e-4).astype("uint8")
    signed, both = numpy.concatenate([up, -up], axis=1), numpy.concatenate([x, less], axis=1)
    first = single(1.0), single(0, dtype="uint8")
    second = single(1.0), single(0, dtype="int8")
    matrix = Constant(signed.reshape(2, -1, 1, 1))
    yield Case("QLinearConv", 10, (both.reshape(1, -1, 1, 1), *first, matrix, *second, *first), {})
    zero = single(3, dtype="uint8")
    yield Case("QLinearMatMul", 10, (both, single(1.0), zero, Constant(signed.T.copy()), *second, *first), {})


def folded() -> Iterator[Case]:
    """The sums of constants in int8 are int32, as those of inputs."""
    x, w = Constant(draw("int8", 1, 3, 4, 4)), Constant(weights("int8", 2, 3, 3, 3))
    one, zero = single(1.0), single(0, dtype="int8")
    yield Case("QLinearConv", 10, (x, one, zero, w, one, zero, single(900.0), zero), {})
    yield Case("MatMulInteger", 10, (Constant(draw("int8", 3, 5)), Constant(weights("int8", 5, 4))), {})


FAMILIES = {
    "linear": list(linear()), "integer convolutions": list(convolutions()), "integer products": list(products()),
    "large sums": list(large_sums()), "folded": list(folded()),
}
CASES = [
    pytest.param(case, id=f"{family}-{case}-{n}") for family, cases in FAMILIES.items() for n, case in enumerate(cases)
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", CASES)
def test_quantised(case: Case, engine: str) -> None:
    check(case, engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_weights_of_all_eight_bits(engine: str) -> None:
    """By numpy in int64."""
    x, w = draw("uint8", 1, 40, 4, 4), draw("int8", 6, 40, 1, 1)
    w.flat[:9] = -128
    zeros = numpy.uint8(7), numpy.int8(-128)
    sums = numpy.einsum("nchw,oc->nohw", x.astype(int) - 7, w[:, :, 0, 0].astype(int) + 128)
    nodes = [
        onnx.helper.make_node("ConvInteger", ["x", "w", "xz", "wz"], ["sums"]),
        onnx.helper.make_node("QLinearConv", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"], ["y"]),
    ]
    constants = {
        "w": w, "xz": zeros[0], "wz": zeros[1], "xs": numpy.float32(0.5), "ws": numpy.float32(0.25),
        "ys": numpy.float32(1024), "yz": numpy.uint8(3),
    }
    found = run_model(make_model(nodes, {"x": x}, ["sums", "y"], 10, constants), {"x": x}, engine)
    numpy.testing.assert_array_equal(found["sums"], sums)
    numpy.testing.assert_array_equal(found["y"], numpy.clip(numpy.rint(sums / 8192) + 3, 0, 255))


def test_sums_are_split_only_where_they_may_pass_the_exact_integers() -> None:
    """numpy's sums are exact either way; on a device the last cases of large_sums fail where nothing is split."""
    for channels, low in ((700, 20), (700, 100), (100, 20), (3000, 127)):
        w = draw("int8", 1, channels, 2, 1, low=low)
        zero, output = single(0, dtype="uint8"), (single(1.0), single(0, dtype="uint8"))
        inputs = draw("uint8", 1, channels, 2, 1), single(1.0), zero, Constant(w), single(1.0), single(0, dtype="int8")
        model, _ = model_of(Case("QLinearConv", 10, (*inputs, *output), {}))
        nodes = [n for n in import_onnx(model).nodes if isinstance(n.operation, Convolution)]
        needed = -(-255 * int(w.astype(int).sum()) // 2**24)
        assert needed <= len(nodes) <= needed + 1


def test_a_quantised_convolution_is_one_kernel_after_its_input_is_centred() -> None:
    w = Constant(draw("int8", 4, 3, 3, 3))
    zero, end = single(7, dtype="uint8"), (single(0.5), single(3, dtype="uint8"))
    inputs = draw("uint8", 1, 3, 6, 6), single(0.02), zero, w, scales(4), single(0, dtype="int8"), *end
    model, _ = model_of(Case("QLinearConv", 10, inputs, {}))
    nodes = run_passes(import_onnx(model)).nodes
    assert [type(n.operation) for n in nodes] == [Load, Convolution]
    assert "round" in function_names(nodes[-1].epilogue)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_network_in_the_qdq_form(engine: str) -> None:
    """Quantised weights and activations around float operators, as exporters write them."""
    node = onnx.helper.make_node
    constants = {
        "w": draw("int8", 4, 3, 3, 3), "ws": scales(4).array, "wz": numpy.zeros(4, "int8"),
        "b": draw("int32", 4, low=-500, high=500), "bs": scales(4).array * numpy.float32(0.02),
        "xs": numpy.float32(0.02), "xz": numpy.uint8(120), "ys": numpy.float32(0.05), "yz": numpy.uint8(0),
    }
    nodes = [
        node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]), node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=0),
        node("DequantizeLinear", ["b", "bs"], ["bd"], axis=0),
        node("Conv", ["xd", "wd", "bd"], ["c"], pads=[1, 1, 1, 1]), node("Relu", ["c"], ["r"]),
        node("QuantizeLinear", ["r", "ys", "yz"], ["rq"]), node("DequantizeLinear", ["rq", "ys", "yz"], ["y"]),
    ]
    model = make_model(nodes, {"x": real(1, 3, 6, 5)}, ["y"], 13, constants)
    feeds = {"x": real(1, 3, 6, 5)}
    # A sum of 27 products in another order may fall on the other side of a rounding step: one step of 0.05 at most.
    found, expected = run_model(model, feeds, engine)["y"], run_oracle(model, feeds)["y"]
    assert numpy.abs(found - expected).max() < 0.051
    assert (found != expected).mean() < 0.01


X, ZERO = draw("uint8", 1, 2, 4, 4), single(0, dtype="uint8")
REFUSED = [
    (Case("ConvInteger", 10, (draw("uint8", 1, 600, 2, 2), single(127, 1, 600, 1, 1, dtype="int8")), {}), "reach"),
    (Case("MatMulInteger", 10, (draw("uint8", 2, 300), draw("uint8", 300, 2)), {}), "2\\*\\*24"),
    # Of the levels alone the sums reach 700 * 128 * 127, less than 2**24; with the zero point of a run twice that.
    (Case("MatMulInteger", 10, (draw("int8", 2, 700), single(127, 700, 2, dtype="int8"), draw("int8", 1)[0]), {}),
     "reach"),
    (Case("ConvInteger", 10, (draw("int8", 1, 700, 2, 2), single(127, 1, 700, 1, 1, dtype="int8"), draw("int8", 1)[0]),
          {}), "reach"),
    (Case("QuantizeLinear", 21, (real(3), single(1.0)), {"output_dtype": onnx.TensorProto.INT4}), "to int4"),
    (Case("QuantizeLinear", 23, (real(3), single(1.0)), {"precision": onnx.TensorProto.FLOAT16}), "precision"),
]
WRONG = [
    (Case("QuantizeLinear", 19, (real(3), single(1.0)), {"output_dtype": onnx.TensorProto.UINT8}), "not valid"),
    (Case("QuantizeLinear", 13, (real(2, 3), scales(2)), {}), "for axis 1"),
    (Case("QuantizeLinear", 21, (real(2, 5), scales(2, 2)), {"block_size": 2}), "blocks of 2"),
    (Case("QuantizeLinear", 21, (real(3), single(1.0), ZERO), {"output_dtype": 3}), "output_dtype"),
    (Case("QLinearConv", 10, (X, single(1), ZERO, Constant(X[:, :, :1, :1]), scales(3), ZERO, single(1), ZERO), {}),
     "w_scale"),
    (Case("QLinearMatMul", 10, (X, single(1), ZERO, Constant(X), scales(3), ZERO, single(1), ZERO), {}), "columns"),
    (Case("QuantizeLinear", 13, (real(2, 3), None, ZERO), {}), "input 1"),
    (Case("DequantizeLinear", 13, (X, None, ZERO), {}), "input 1"),
    (Case("DequantizeLinear", 13, (X, single(1, dtype="int32"), ZERO), {}), "x_scale"),
    (Case("DequantizeLinear", 13, (X, single(1), single(0, dtype="int8")), {}), "x_zero_point"),
    (Case("QLinearConv", 10, (X, None, ZERO, Constant(X[:, :, :1, :1]), single(1), ZERO, single(1), ZERO), {}),
     "input 1"),
]


@pytest.mark.parametrize(
    ("case", "message", "error"), [(*row, UnsupportedError) for row in REFUSED] + [(*row, ModelError) for row in WRONG]
)
def test_refused(case: Case, message: str, error: type[ModelError]) -> None:
    model, feeds = model_of(case)
    assert_refused(model, feeds, message, error)
