"""FLOAT16 on inputs that are far larger than the drawn ones: normalisations in pieces, and what only a run finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import imgconv
from imgconv.arrays import Array
from imgconv.cl.device import DeviceInfo
from imgconv.graph.evaluate import evaluate_graph
from imgconv.tensor import Tensor, build_graph
from tests.support import make_model

SPREADS = (1, 30, 300, 3000)
SHAPE = (1, 24, 96)
X = numpy.random.default_rng(0).standard_normal(SHAPE)
SCALARS = {"eps": 1e-5, "two": 2.0, "half": 0.5}
LAST = {"axes": [-1]}
# What halves cost: an input and a result are each rounded by 2**-11 of their size, and some values between them.
TOLERANCE = 2e-3

Nodes = Sequence[tuple[Any, ...]]
CENTRED: Nodes = [("ReduceMean", "x", "m", LAST), ("Sub", "x m", "d")]
BY_ROOT: Nodes = [("Add", "var eps", "ve"), ("Sqrt", "ve", "s")]
# Operator, inputs, output, attributes. Each value that may be too large is an output too, so that nothing is fused
# with it: it is stored.
CASES: Mapping[str, tuple[Nodes, str]] = {
    "layer norm": (
        [*CENTRED, ("Mul", "d d", "dd"), ("ReduceMean", "dd", "var", LAST), *BY_ROOT, ("Div", "d s", "y")],
        "y dd var ve"),
    "layer norm, Pow": (
        [*CENTRED, ("Pow", "d two", "dd"), ("ReduceMean", "dd", "var", LAST), *BY_ROOT, ("Reciprocal", "s", "r"),
         ("Mul", "d r", "y")], "y dd ve r"),
    "layer norm by moments": (
        [("Mul", "x x", "xx"), ("ReduceMean", "xx", "q", LAST), *CENTRED, ("Mul", "m m", "mm"), ("Sub", "q mm", "var"),
         *BY_ROOT, ("Div", "d s", "y")], "y ve mm"),
    "variance, reciprocal": (
        [*CENTRED, ("Mul", "d d", "dd"), ("ReduceMean", "dd", "var", LAST), ("Add", "var eps", "ve"),
         ("Reciprocal", "ve", "r"), ("Mul", "dd r", "y")], "y r"),
    "RMS norm": (
        [("Mul", "x x", "xx"), ("ReduceMean", "xx", "var", LAST), *BY_ROOT, ("Div", "x s", "y")], "y xx ve"),
    "RMS norm, Pow": (
        [("Pow", "x two", "xx"), ("ReduceMean", "xx", "var", LAST), ("Add", "var eps", "ve"), ("Pow", "ve half", "s"),
         ("Div", "x s", "y")], "y ve"),
    "ReduceSumSquare": ([("ReduceSumSquare", "x", "var", LAST), *BY_ROOT, ("Div", "x s", "y")], "y ve"),
    "ReduceL2": ([("ReduceL2", "x", "n", LAST), ("Max", "n eps", "s"), ("Div", "x s", "y")], "y s"),
    "ReduceL1": ([("ReduceL1", "x", "n", LAST), ("Add", "n eps", "s"), ("Div", "x s", "y")], "y s"),
    "instance norm": (
        [("ReduceMean", "x", "m", {"axes": [1, 2]}), ("Sub", "x m", "d"), ("Mul", "d d", "dd"),
         ("ReduceMean", "dd", "var", {"axes": [1, 2]}), *BY_ROOT, ("Div", "d s", "y")], "y ve"),
    "LayerNormalization": ([("LayerNormalization", "x ones", "y")], "y"),
    "LpNormalization": ([("LpNormalization", "x", "y", {"axis": -1})], "y"),
}


def model_of(form: str) -> onnx.ModelProto:
    nodes, outputs = CASES[form]
    made = [helper.make_node(kind, reads.split(), [made], **dict(*more)) for kind, reads, made, *more in nodes]
    known = {name: numpy.array(value, numpy.float32) for name, value in SCALARS.items()}
    known["ones"] = numpy.ones(SHAPE[-1], numpy.float32)
    used = {name for node in made for name in node.input}
    opset = 17 if form == "LayerNormalization" else 13
    weights = {name: array for name, array in known.items() if name in used}
    return make_model(made, {"x": X.astype(numpy.float32)}, outputs.split(), opset, weights)


def in_float64(model: onnx.ModelProto, x: Array) -> dict[str, Array]:
    """ONNX's reference implementation of the model in float64."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    for value in (*wide.graph.input, *wide.graph.output):
        value.type.tensor_type.elem_type = TensorProto.DOUBLE
    for tensor in wide.graph.initializer:
        array = numpy_helper.to_array(tensor).astype(numpy.float64)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    names = [value.name for value in wide.graph.output]
    return dict(zip(names, ReferenceEvaluator(wide).run(None, {"x": x}), strict=True))


@pytest.mark.filterwarnings("ignore:FLOAT16:RuntimeWarning")  # most of these small graphs stays float
@pytest.mark.parametrize("max_image", [None, 64])
@pytest.mark.parametrize("form", CASES)
def test_normalisations_in_pieces_serve_inputs_of_any_size(
    form: str, max_image: int | None, device: DeviceInfo
) -> None:
    """300 * 300 passes 65504. No input that load() measures on is so large."""
    model = model_of(form)
    loaded = imgconv.load(model, device, float16=1, max_image=max_image)
    for spread in SPREADS:
        given = (spread * X).astype(numpy.float32)
        made = loaded.run({"x": given})
        for name, expected in in_float64(model, given.astype(numpy.float64)).items():
            largest = numpy.abs(expected).max()
            numpy.testing.assert_allclose(made[name], expected, 0, TOLERANCE * largest, err_msg=f"{name}, {spread}")


def gated(x: Tensor) -> dict[str, Tensor]:
    """A product of two values, which is no square, divided by the mean of its magnitudes."""
    product = ((x.tanh() + x) * (x * 0.7 + 3)).named("product")
    return {"y": product / ((product * product).mean([2], keepdims=True).sqrt() + 1), "product": product}


def vanishing(x: Tensor) -> dict[str, Tensor]:
    """The reciprocal of a product of four values is 1e-10 for inputs of some hundred: zero as a half."""
    size = x.maximum(-x).max([1], keepdims=True)
    product = (size + 1) * (size * 0.7 + 3) * (size * 0.2 + 5) * (size * 1.2 + 2)
    small = (1.0 / product).named("small")
    return {"y": x * small * 1e4, "small": small}


def values_of(outputs: Mapping[str, Tensor], x: Array) -> dict[str, Array]:
    return evaluate_graph(build_graph(outputs), {"x": x.astype(numpy.float64)})


@pytest.mark.filterwarnings("ignore:FLOAT16:RuntimeWarning")
@pytest.mark.parametrize("make", [gated, vanishing])
def test_what_leaves_the_range_of_half_on_large_inputs_is_found_at_load(
    make: Callable[[Tensor], dict[str, Tensor]], device: DeviceInfo
) -> None:
    """No rule knows that the product of several values is large: an input of large range shows it."""
    outputs = make(Tensor.input("x", SHAPE))
    loaded = imgconv.load(build_graph(outputs), device, float16=1)
    for spread in (1, 30, 300):
        given = (spread * X).astype(numpy.float32)
        made = loaded.run({"x": given})
        for name, expected in values_of(outputs, given).items():
            largest = numpy.abs(expected).max()
            numpy.testing.assert_allclose(made[name], expected, 0, TOLERANCE * largest, err_msg=f"{name}, {spread}")
