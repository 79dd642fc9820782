"""Every operator against onnxruntime: ranks, axes, attributes and the forms of each opset."""

from __future__ import annotations

import importlib
from typing import Any

import numpy
import pytest
from operator_cases import Case, Constant, Input, check, floats, ints, model_of, scalar
from operator_cases.activation import ACTIVATIONS
from operator_cases.constants import SHAPES_AND_CONSTANTS
from operator_cases.convolution import CONVOLUTIONS
from operator_cases.doubles import DOUBLES
from operator_cases.elementwise import ELEMENTWISE
from operator_cases.features import FEATURES, PREVIEWS
from operator_cases.fourier import FOURIER
from operator_cases.halves import HALVES
from operator_cases.indexing import INDEXING
from operator_cases.integers import INTEGERS, NARROW, wrapping_model
from operator_cases.microsoft import COMPUTED as MICROSOFT_COMPUTED
from operator_cases.microsoft import MICROSOFT
from operator_cases.movement import MOVEMENTS
from operator_cases.normalization import NORMALISATIONS
from operator_cases.pooling import POOLING
from operator_cases.product import PRODUCTS
from operator_cases.ranks import RANKS
from operator_cases.reduction import REDUCTIONS
from operator_cases.resize import RESIZES
from operator_cases.sampling import SAMPLINGS
from operator_cases.selection import SELECTIONS
from support import ENGINES, assert_close, run_model, run_oracle

from imgconv import ops
from imgconv.graph.evaluate import evaluate_graph
from imgconv.onnx_import import import_onnx
from imgconv.passes import run_passes

FAMILIES = {
    "elementwise": ELEMENTWISE, "activation": ACTIVATIONS, "convolution": CONVOLUTIONS, "pooling": POOLING,
    "normalization": NORMALISATIONS, "reduction": REDUCTIONS, "movement": MOVEMENTS, "product": PRODUCTS,
    "ranks": RANKS, "constants": SHAPES_AND_CONSTANTS, "half": HALVES, "resize": RESIZES,
    "indexing": INDEXING, "selection": SELECTIONS, "sampling": SAMPLINGS, "integer": INTEGERS, "microsoft": MICROSOFT,
    "double": DOUBLES, "preview": PREVIEWS, "features": FEATURES, "fourier": FOURIER,
}
ALL = [
    pytest.param(case, id=f"{family}-{case}-{n}") for family, cases in FAMILIES.items() for n, case in enumerate(cases)
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", ALL)
def test_operator(case: Case, engine: str) -> None:
    check(case, engine)


def test_every_operator_has_a_case() -> None:
    families = [FAMILIES]
    for file in ("attention", "deformable", "einsum", "microsoft_quantization", "quantization", "recurrent"):
        families.append(importlib.import_module(f"test_{file}").FAMILIES)
    cases = [case for each in families for cases in each.values() for case in cases]
    cases += [case for case, _ in MICROSOFT_COMPUTED]
    compared = {ops.qualified(case.domain, case.op_type) for case in cases}
    # tests/ops/test_control_flow.py has models of more than one node.
    assert set(ops.supported()) - compared == {"Swish", "CumProd", "If", "Loop", "Scan", "ai.onnx.ml.ZipMap"}


# What onnxruntime does not do, or not as ONNX's text says: the expected values are computed here.


@pytest.mark.parametrize("op_type", ["Conv", "MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize(("auto_pad", "pads"), [("SAME_UPPER", [1, 1, 1, 2]), ("SAME_LOWER", [1, 2, 1, 1])])
def test_same_padding_counts_dilations(op_type: str, auto_pad: str, pads: list[int]) -> None:
    """SAME padding counts dilations, as ONNX specifies; onnxruntime's pooling does not, and then has fewer outputs."""
    inputs: tuple[Input, ...] = ((1, 2, 9, 8),)
    inputs += (Constant(numpy.ones((2, 2, 3, 3), numpy.float32)),) if op_type == "Conv" else ()
    settings = {"kernel_shape": [3, 3], "strides": [2, 2], "dilations": [2, 2]}
    # 9 -> 5 needs 8 + 5 - 9 = 4 positions more, 8 -> 4 needs 6 + 5 - 8 = 3.
    pads = [2, pads[1], 2, pads[3]]
    same, feeds = model_of(Case(op_type, 22, inputs, {**settings, "auto_pad": auto_pad}))
    stated, _ = model_of(Case(op_type, 22, inputs, {**settings, "pads": pads}))
    assert_close(run_model(same, feeds), run_oracle(stated, feeds), 1e-6)


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
def test_same_padding_of_strides_larger_than_the_window(op_type: str, auto_pad: str) -> None:
    """ceil(7 / 3) outputs, of which none needs padding: onnxruntime finds negative pads and refuses the node."""
    model, feeds = model_of(Case(op_type, 22, ((1, 2, 7),), {
        "kernel_shape": [1], "strides": [3], "auto_pad": auto_pad}))
    expected = feeds["x0"][:, :, ::3]
    assert_close(run_model(model, feeds), {"y0": abs(expected) if op_type == "LpPool" else expected}, 1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_resize_by_a_scale_that_leaves_the_size(dtype: str) -> None:
    """floor(12 * 1.03) is 12, and each element lies elsewhere: onnxruntime copies instead."""
    x = numpy.random.default_rng(3).normal(size=(1, 1, 12)).astype(dtype)
    scales = Constant(numpy.array([1, 1, 1.03], numpy.float32))
    model, _ = model_of(Case("Resize", 19, (x, None, scales), {"mode": "linear"}))
    places = (numpy.arange(12) + 0.5) / 1.03 - 0.5
    expected = numpy.interp(places, numpy.arange(12), x[0, 0].astype(float))[None, None].astype(dtype)
    assert_close(run_model(model, {"x0": x}), {"y0": expected}, 1e-5 if dtype == "float32" else 2e-3)


@pytest.mark.parametrize("settings", [
    {"alpha": -1.0}, {"alpha": -1.0, "beta": 2.0}, {"bias": -5.0}, {"bias": -5.0, "beta": 3.0}, {"beta": 0.0},
    {"beta": -1.0, "bias": -5.0}, {"alpha": float("inf")}, {"alpha": 1e30},
])
def test_lrn_of_any_base(settings: dict[str, float]) -> None:
    """A power of a negative base is NaN, unless the exponent is whole; onnxruntime refuses some of them."""
    x = numpy.random.default_rng(2).normal(size=(1, 5, 3)).astype(numpy.float32)
    model, feeds = model_of(Case("LRN", 13, (x,), {"size": 3, **settings}))
    given = {"alpha": 1e-4, "beta": 0.75, "bias": 1.0, **settings}
    wide = numpy.pad(x.astype(float) ** 2, ((0, 0), (1, 1), (0, 0)))
    with numpy.errstate(all="ignore"):
        base = given["bias"] + given["alpha"] / 3 * (wide[:, :-2] + wide[:, 1:-1] + wide[:, 2:])
        expected = x / base ** given["beta"]
    assert_close(run_model(model, feeds), {"y0": expected.astype(numpy.float32)}, 1e-5)


@pytest.mark.parametrize("size", [2, 4, 6])
def test_lrn_of_an_even_size_reaches_further_up(size: int) -> None:
    x = numpy.random.default_rng(2).normal(size=(1, 7, 2)).astype(numpy.float32)
    model, _ = model_of(Case("LRN", 13, (x,), {"size": size, "alpha": 0.5}))
    squares = [(x[:, max(0, c - (size - 1) // 2) : c + size // 2 + 1] ** 2).sum(axis=1) for c in range(7)]
    expected = x / (1 + 0.5 / size * numpy.stack(squares, axis=1)) ** 0.75
    assert_close(run_model(model, {"x0": x}), {"y0": expected}, 1e-6)


X = numpy.linspace(-3, 3, 24, dtype=numpy.float32).reshape(1, 4, 2, 3)
COMPUTED = [
    (Case("Clip", 7, (X,), {"min": 1.0, "max": -1.0}), numpy.full_like(X, -1)),
    (Case("Swish", 24, (X,), {}), X / (1 + numpy.exp(-X))),
    (Case("Swish", 28, (X,), {"alpha": 2.0}), X / (1 + numpy.exp(-2 * X))),
    (Case("Celu", 28, (X,), {}), numpy.maximum(X, 0) + numpy.expm1(numpy.minimum(X, 0))),
    (Case("Relu", 28, (X,), {}), numpy.maximum(X, 0)),
    (Case("SpaceToDepth", 28, (X.reshape(1, 2, 2, 6),), {"blocksize": 2, "mode": "CRD"}),
     X.reshape(1, 2, 1, 2, 3, 2).transpose(0, 1, 3, 5, 2, 4).reshape(1, 8, 1, 3)),
    (Case("SpaceToDepth", 28, (X.reshape(1, 2, 2, 6),), {"blocksize": 2}),
     X.reshape(1, 2, 1, 2, 3, 2).transpose(0, 3, 5, 1, 2, 4).reshape(1, 8, 1, 3)),
    (Case("Range", 27, (scalar(1), scalar(2), scalar(0.25)), {}), numpy.float32([1, 1.25, 1.5, 1.75])),
    (Case("LpNormalization", 22, (X * 0,), {}), X * 0),
    (Case("Resize", 19, (X, None, floats(1, 1, 0.5, 1)),
     {"antialias": 1, "mode": "nearest", "nearest_mode": "floor"}), X[:, :, :1]),
    (Case("GlobalLpPool", 22, (X,), {}), numpy.sqrt((X * X).sum(axis=(2, 3), keepdims=True))),
    (Case("CumProd", 26, (X, Constant(numpy.array(-1))), {}), numpy.cumprod(X, axis=-1)),
    (Case("CumProd", 26, (X, Constant(numpy.array(1))), {"reverse": 1}), numpy.cumprod(X[:, ::-1], axis=1)[:, ::-1]),
    (Case("CumProd", 26, (X, Constant(numpy.array(1))), {"exclusive": 1}),
     numpy.concatenate([X[:, :1] * 0 + 1, numpy.cumprod(X, axis=1)[:, :-1]], axis=1)),
    (Case("OneHot", 28, (numpy.array([2, -1]), ints(3), floats(0, 1)), {}), numpy.float32([[0, 0, 1], [0, 0, 1]])),
    (Case("BitShift", 28, (numpy.array([-5, 100, 3, 1], "i1"), numpy.array([1, 1, 9, -1], "i1")),
          {"direction": "LEFT"}), numpy.array([-10, -56, 0, 0], "i1")),
    (Case("BitShift", 28, (numpy.array([-5, 100, -3, -1], "i1"), numpy.array([1, 1, 9, -1], "i1")),
          {"direction": "RIGHT"}), numpy.array([-3, 50, -1, -1], "i1")),
    (Case("ReduceMax", 20, (Constant(numpy.zeros((2, 0), "f")), ints(1)), {}), numpy.full((2, 1), -numpy.inf, "f")),
    (Case("MaxUnpool", 11, (numpy.float32([[[[5, 6], [7, 8]]]]), numpy.array([[[[5, 7], [13, 15]]]]),
                            ints(1, 1, 5, 5)), {"kernel_shape": [2, 2], "strides": [2, 2]}),
     numpy.pad(numpy.float32([[0, 0, 0, 0], [0, 5, 0, 6], [0, 0, 0, 0], [0, 7, 0, 8]]), (0, 1))[None, None]),
    (Case("ReduceSumSquare", 18, (X, ints()), {"noop_with_empty_axes": 1}), X * X),
    (Case("ReduceMean", 18, (numpy.zeros((0, 3), numpy.int32), ints(1)), {}), numpy.zeros((0, 1), numpy.int32)),
    (Case("ReduceMean", 18, ((2, 0, 3), ints(1)), {}), numpy.full((2, 1, 3), numpy.nan, numpy.float32)),
    (Case("Pad", 18, (X, ints(0, 4), None, ints(2)), {"mode": "reflect"}), X[:, :, [0, 1, 0, 1, 0, 1]]),
    (Case("Pad", 13, (X, ints(0, -1, 0, 2, 0, 0, 0, -1)), {"mode": "edge"}), X[:, 1:][..., [0, 0, 0, 1]]),
    (Case("GroupNormalization", 18, (X, floats(1, 2), floats(0, 5)), {"num_groups": 2, "epsilon": 0.0}),
     numpy.concatenate([
        (g - g.mean()) / g.std() * s + b for g, s, b in ((X[:, :2], 1, 0), (X[:, 2:], 2, 5))], axis=1)),
    (Case("BatchNormalization", 7, (X, *(Constant(X[0] * 0 + v) for v in (2, 3, 1, 4))),
     {"spatial": 0, "epsilon": 0.0}), X + 2),
    (Case("Upsample", 7, (X,), {"mode": "bilinear", "scales": [1.0, 1.0, 1.0, 1.0]}), X),
    (Case("ReduceLogSumExp", 18, (numpy.float32([[-numpy.inf, -numpy.inf], [numpy.inf, 0]]), ints(1)), {"keepdims": 0}),
     numpy.float32([-numpy.inf, numpy.inf])),
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("case", "expected"), [
    pytest.param(case, expected, id=f"{case}-{n}") for n, (case, expected) in enumerate(COMPUTED + MICROSOFT_COMPUTED)
])
def test_computed(case: Case, expected: Any, engine: str) -> None:
    model, feeds = model_of(case)
    assert_close(run_model(model, feeds, engine), {"y0": expected}, 2e-6)


@pytest.mark.parametrize("names", [{"classlabels_int64s": [5, 7, 9]}, {"classlabels_strings": ["cat", "dog", "cow"]}])
def test_the_output_of_zip_map_is_the_tensor_of_its_numbers(names: Any) -> None:
    """One row for each element of the batch, the columns in the order of the classes."""
    model, feeds = model_of(Case("ZipMap", 13, ((4, 3),), names, domain="ai.onnx.ml"))
    model.opset_import[1].version = 3
    (labels,) = names.values()
    rows = [[row[label] for label in labels] for row in run_oracle(model, feeds)["y0"]]
    assert_close(run_model(model, feeds), {"y0": numpy.float32(rows)}, 0)


@pytest.mark.parametrize("dtype", NARROW)
def test_narrow_integers_wrap_around_before_they_are_read(dtype: Any) -> None:
    """After the passes nothing is stored in the narrow type any more."""
    model, feeds, expected = wrapping_model(dtype)
    graph = run_passes(import_onnx(model))
    assert_close(evaluate_graph(graph, feeds), expected, 0)
