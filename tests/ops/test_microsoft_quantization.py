"""Quantised operators of com.microsoft against onnxruntime: every integer is the same, also at ties."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy
import pytest
from operator_cases import Case, Constant, check, model_of
from support import ENGINES, assert_close, assert_refused, run_model
from test_quantization import draw, real, scales, single, weights

from imgconv.errors import DataDependentError, ModelError, UnsupportedError


def microsoft(op_type: str, inputs: Sequence[Any], tolerance: float = 2e-6, **attributes: Any) -> Case:
    return replace(Case(op_type, 17, tuple(inputs), attributes, tolerance=tolerance), domain="com.microsoft")


def tensor(dtype: str, *shape: int, scale: float = 0.0371, zero: int = 5) -> tuple[Any, Constant, Constant]:
    """Random integers, their scale and zero point."""
    return draw(dtype, *shape), single(scale), single(zero, dtype=dtype)


def matrix(dtype: str, *shape: int, scale: float, zero: int) -> tuple[Any, Constant, Constant]:
    """Weights, their scale and zero point."""
    return weights(dtype, *shape), single(scale), single(zero, dtype=dtype)


def binary() -> Iterator[Case]:
    for dtype in ("uint8", "int8"):
        for op_type in ("QLinearAdd", "QLinearMul"):
            for a, b in (((2, 3, 4), (2, 3, 4)), ((1, 4, 3, 3), (4, 1, 1)), ((3,), (2, 3)), ((1,), (5,))):
                first, second = tensor(dtype, *a), tensor(dtype, *b, scale=0.07, zero=-9 if dtype == "int8" else 9)
                yield microsoft(op_type, (*first, *second, single(0.05), single(3, dtype=dtype)))
            yield microsoft(op_type, (*tensor(dtype, 4, 5), *tensor(dtype, 4, 5), single(0.5)))
            # Every second result lies between two integers.
            ties = tensor(dtype, 8, 8, scale=0.5), tensor(dtype, 8, 8, scale=1.0)
            yield microsoft(op_type, (*ties[0], *ties[1], single(1.0), single(3, dtype=dtype)))


def unary() -> Iterator[Case]:
    for dtype in ("uint8", "int8"):
        end = single(0.04), single(7, dtype=dtype)
        for shape in ((), (7,), (2, 3, 4)):
            yield microsoft("QLinearLeakyRelu", (*tensor(dtype, *shape), *end))
            yield microsoft("QLinearSigmoid", (*tensor(dtype, *shape), single(1 / 256), single(0, dtype=dtype)))
        yield microsoft("QLinearLeakyRelu", (*tensor(dtype, 99, scale=0.5), single(1.0), end[1]), alpha=0.5)
        yield microsoft("QLinearLeakyRelu", (*tensor(dtype, 9)[:2], None, single(0.1), None), alpha=0.3)
        for opset, axis in ((13, -1), (13, 1), (11, 1), (11, 2), (12, 0)):
            x = tensor(dtype, 2, 3, 5, scale=0.1)
            ends = single(1 / 256), single(numpy.iinfo(dtype).min, dtype=dtype)
            yield microsoft("QLinearSoftmax", (*x, *ends), axis=axis, opset=opset)
        for step in (0.004, 1 / 255, 0.0041, 0.01):
            x = tensor(dtype, 9, 3, scale=0.02)
            yield microsoft("QLinearSoftmax", (*x[:2], None, single(step), end[1]), opset=13)
    for dtype in ("uint8", "int8", "uint16", "int16"):
        zero = single(7, dtype=dtype)
        yield microsoft("QuantizeLinear", (real(2, 3, 4), single(0.03), zero))
        yield microsoft("DequantizeLinear", (draw(dtype, 2, 3, 4), single(0.03), zero))
        by = scales(3), single(7, 3, dtype=dtype)
        yield microsoft("QuantizeLinear", (real(2, 3, 4), *by), axis=1)
        yield microsoft("DequantizeLinear", (draw(dtype, 2, 3, 4), *by), axis=1)


def pooling() -> Iterator[Case]:
    windows: tuple[dict[str, Any], ...] = (
        {"kernel_shape": [2, 3]}, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]},
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1},
        {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}, {"kernel_shape": [1, 2], "auto_pad": "SAME_UPPER"},
    )
    for dtype in ("uint8", "int8"):
        end = single(0.0531), single(9, dtype=dtype)
        for window in windows:
            yield microsoft("QLinearAveragePool", (*tensor(dtype, 2, 3, 7, 5), *end), **window)
        yield microsoft("QLinearAveragePool", (*tensor(dtype, 2, 7, 5, 3), *end), **windows[1], channels_last=1)
        yield microsoft("QLinearAveragePool", (*tensor(dtype, 1, 1, 8, 8, scale=1.0), single(1.0), end[1]),
                        kernel_shape=[1, 2])
        yield microsoft("QLinearAveragePool", (*tensor(dtype, 2, 3, 9), *end), kernel_shape=[3])
        yield microsoft("QLinearGlobalAveragePool", (*tensor(dtype, 2, 3, 7, 5), *end))
        yield microsoft("QLinearGlobalAveragePool", (*tensor(dtype, 2, 3, 2, 1, scale=1.0), single(1.0), end[1]))
        yield microsoft("QLinearGlobalAveragePool", (*tensor(dtype, 2, 7, 5, 3), *end), channels_last=1)
        yield microsoft("QLinearConcat", (*end, *tensor(dtype, 2, 3, 4), *tensor(dtype, 2, 2, 4, scale=0.1)), axis=1)
        yield microsoft("QLinearConcat", (*end, *tensor(dtype, 2, 3), *tensor(dtype, 2, 3, zero=9),
                                          *tensor(dtype, 2, 3)), axis=-1)
        yield microsoft("QLinearConcat", (single(1.0), end[1], *tensor(dtype, 9, scale=0.5)), axis=0)
        condition = numpy.arange(12).reshape(3, 4) % 3 == 0
        yield microsoft("QLinearWhere", (condition, *tensor(dtype, 3, 4), *tensor(dtype, 4, scale=0.1), *end))


def convolutions() -> Iterator[Case]:
    for x_type, w_type in (("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8")):
        weight = Constant(weights(w_type, 4, 3, 3, 2)), scales(4), single(0, 4, dtype=w_type)
        ends = single(0.9), single(9, dtype=x_type), Constant(draw("int32", 4, low=-999, high=999))
        yield microsoft("QLinearConv", (*tensor(x_type, 2, 3, 6, 7), *weight, *ends), strides=[2, 1])
        yield microsoft("QLinearConv", (*tensor(x_type, 2, 6, 7, 3), *weight, *ends[:2]), channels_last=1,
                        pads=[1, 0, 1, 2])


def products() -> Iterator[Case]:
    for a_type, b_type in (("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8")):
        a, b = tensor(a_type, 3, 5), matrix(b_type, 5, 4, scale=0.02, zero=2)
        columns = b[0], scales(4), single(2, 4, dtype=b_type)
        bias, end = Constant(draw("int32", 4, low=-999, high=999)), (single(0.1), single(9, dtype=a_type))
        for right in (b, columns):
            yield microsoft("QGemm", (*a, *right, bias, *end))
            yield microsoft("QGemm", (*a, *right, None, *end), alpha=0.5)
            yield microsoft("QGemm", (*a, *right, bias))
            ends = right[1], a[2], right[2]
            yield microsoft("MatMulIntegerToFloat", (a[0], b[0], a[1], *ends, real(4)))
        turned = draw(a_type, 5, 3), *a[1:], weights(b_type, 4, 5), *columns[1:]
        yield microsoft("QGemm", (*turned, bias, *end), transA=1, transB=1)
        yield microsoft("MatMulIntegerToFloat", (draw(a_type, 2, 3, 5), b[0], a[1], b[1]))
        several = draw(a_type, 2, 3, 5), weights(b_type, 2, 5, 4)
        yield microsoft("MatMulIntegerToFloat", (*several, a[1], b[1], a[2], b[2]))
        yield microsoft("DynamicQuantizeMatMul", (real(3, 5), *b, real(4)))
        yield microsoft("DynamicQuantizeMatMul", (real(2, 3, 5), *columns))
        yield microsoft("DynamicQuantizeMatMul", (abs(real(3, 5)) + 1, *b[:2]))
        yield microsoft("DynamicQuantizeMatMul", (numpy.zeros((3, 5), "f4"), *b[:2], None, real(4)))


def packed() -> Iterator[Case]:
    """MatMulNBits."""
    for bits, inner, block in ((4, 32, 16), (4, 50, 32), (2, 64, 16), (8, 40, 16)):
        blocks = -(-inner // block)
        blob, by = Constant(draw("uint8", 6, blocks, block * bits // 8)), scales(6, blocks)
        settings = {"K": inner, "N": 6, "bits": bits, "block_size": block}
        zeros = Constant(draw("uint8", 6, -(-blocks * bits // 8)))
        for shape in ((inner,), (3, inner), (2, 3, inner))[bits != 4 :]:
            yield microsoft("MatMulNBits", (real(*shape), blob, by), **settings)
        yield microsoft("MatMulNBits", (real(3, inner), blob, by, zeros), **settings)
        yield microsoft("MatMulNBits", (real(3, inner), blob, by, zeros, None, real(6)), **settings)
        if bits == 4:
            yield microsoft("MatMulNBits", (real(3, inner), blob, by, Constant(real(6, blocks))), **settings)


def recurrent() -> Iterator[Case]:
    """A batch of one: of more, onnxruntime's threads quantise the states of parts."""
    hidden, size, steps = 4, 5, 3
    for dtype in ("int8", "uint8"):
        for direction, count in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
            given = [Constant(weights(dtype, count, n, 4 * hidden)) for n in (size, hidden)]
            zero = single(3 if dtype == "int8" else 120, count, dtype=dtype)
            scale = Constant(scales(count).array / 10)  # no gate is saturated
            ends = scale, zero, scale, zero
            bias, state = Constant(real(count, 8 * hidden)), real(count, 1, hidden)
            settings = {"hidden_size": hidden, "direction": direction}
            middle = None, None, None, None, None
            inputs = real(steps, 1, size), *given, *middle, *ends
            yield replace(microsoft("DynamicQuantizeLSTM", inputs, **settings), outputs=3)
            middle = bias, None, state, state * 0.5, Constant(real(count, 3 * hidden))
            inputs = real(steps, 1, size), *given, *middle, *ends
            yield replace(microsoft("DynamicQuantizeLSTM", inputs, **settings), outputs=3)
        columns = Constant(scales(1, 4 * hidden).array / 10), single(0, 1, 4 * hidden, dtype="int8")
        if dtype == "int8":
            given = [Constant(weights(dtype, 1, n, 4 * hidden)) for n in (size, hidden)]
            middle = None, Constant(numpy.array([2], "i4")), None, None, None
            yield microsoft("DynamicQuantizeLSTM", (real(steps, 1, size), *given, *middle, *columns, *columns),
                            hidden_size=hidden, clip=2.0, activations=["Sigmoid", "Tanh", "Softsign"])


FAMILIES = {
    "quantised arithmetic": list(binary()), "quantised functions": list(unary()), "quantised pooling": list(pooling()),
    "quantised convolutions": list(convolutions()), "quantised products": list(products()), "packed": list(packed()),
    "quantised recurrent": list(recurrent()),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", [
    pytest.param(case, id=f"{family}-{case}-{n}") for family, cases in FAMILIES.items() for n, case in enumerate(cases)
])
def test_quantised(case: Case, engine: str) -> None:
    check(case, engine)


def test_an_accuracy_level_never_quantises_the_input() -> None:
    """accuracy_level is the least that is asked for; onnxruntime quantises A at 4."""
    inputs = real(3, 32), Constant(draw("uint8", 6, 2, 8)), scales(6, 2)
    settings = {"K": 32, "N": 6, "block_size": 16}
    expected = run_model(*model_of(microsoft("MatMulNBits", inputs, **settings)))
    found = run_model(*model_of(microsoft("MatMulNBits", inputs, **settings, accuracy_level=4)))
    assert_close(found, expected, 0)


BYTES, ONE, ZERO = draw("uint8", 3, 5), single(1.0), single(0, dtype="uint8")
MANY = {"K": 32, "N": 6, "block_size": 16}
PACKED = Constant(draw("uint8", 6, 2, 8))
REFUSED = [
    (microsoft("DynamicQuantizeLSTM", (real(3, 1, 2),) * 12, hidden_size=1), "input W of type float32"),
    (microsoft("QGemm", (BYTES, scales(3), single(0, 3, dtype="uint8"), BYTES.T, ONE, ZERO)), "each row"),
    (microsoft("QGemm", (BYTES, ONE, ZERO, BYTES.T, ONE, ZERO), beta=1.0), "attribute beta"),
    (microsoft("QLinearAdd", (BYTES, ONE, ZERO, BYTES.astype("int8"), ONE, ZERO, ONE, ZERO)), "with one of uint8"),
    (microsoft("QLinearConcat", (ONE, ZERO, BYTES.astype("int32"), ONE, ZERO), axis=0), "type int32"),
    (microsoft("MatMulNBits", (real(3, 32), PACKED, scales(6, 2), None, Constant(draw("int32", 32))), **MANY), "g_idx"),
    (microsoft("MatMulNBits", (real(3, 32), PACKED, scales(6, 2)), **MANY, bits=3), "bits 3"),
    (microsoft("MatMulNBits", (real(3, 32), PACKED, scales(6, 2)), **MANY, weight_prepacked=1), "prepacked"),
]
ON_DATA = [(microsoft("MatMulNBits", (real(3, 32), PACKED.array, scales(6, 2)), **MANY), "B must be constant")]
WRONG = [
    (microsoft("QLinearAdd", (BYTES, scales(3), ZERO, BYTES, ONE, ZERO, ONE, ZERO)), "not a scalar"),
    (microsoft("QLinearConcat", (ONE, ZERO, BYTES, ONE), axis=0), "needs a scale"),
    (microsoft("QLinearConcat", (ONE, ZERO, BYTES, ONE, ZERO, BYTES[:, :2], ONE, ZERO), axis=0), "differ"),
    (microsoft("QuantizeLinear", (real(3, 5), scales(5), single(0, 5, dtype="uint8"))), "without axis"),
    (microsoft("QLinearSoftmax", (BYTES, ONE, ZERO, ONE, ZERO)), "opset is 0"),
    (microsoft("MatMulNBits", (real(3, 31), PACKED, scales(6, 2)), **MANY), "for K 32"),
    (microsoft("MatMulNBits", (real(3, 32), PACKED, scales(6, 3)), **MANY), "B needs"),
    (microsoft("QGemm", (BYTES, ONE, ZERO, BYTES.T, ONE, ZERO, None, ONE)), "or neither"),
    (microsoft("DynamicQuantizeMatMul", (real(3, 5), BYTES.T, ONE, None, real(5))), "bias"),
]


@pytest.mark.parametrize(
    ("case", "message", "error"),
    [(*row, error) for rows, error in (
        (REFUSED, UnsupportedError), (ON_DATA, DataDependentError), (WRONG, ModelError),
    ) for row in rows],
)
def test_refused(case: Case, message: str, error: type[ModelError]) -> None:
    model, feeds = model_of(case)
    assert_refused(model, feeds, message, error)
