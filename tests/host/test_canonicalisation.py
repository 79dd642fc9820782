"""Assignments that Paddle's exporter writes as a sum with zero, against onnxruntime."""

from __future__ import annotations

from dataclasses import dataclass

import numpy
import onnx
import pytest

import imgconv
from imgconv.cl.device import DeviceInfo
from imgconv.graph.onnx_nodes import HostGraph, HostNode
from imgconv.host.canonicalisation import canonicalised
from tests.support import make_model, run_oracle
from tests.host_fallback_models import node

X = numpy.array([-0.0, 0.0, -1.5, 3.0, 0.0, 2.0], numpy.float32)


@dataclass(frozen=True)
class Form:
    """The sum with `zero` and the axes around it, the nodes that are left of it, and what is read besides."""

    zero: float | list[float] | list[list[float]]
    nodes: str
    unsqueeze: int = 0
    squeeze: int = 0
    dtype: str = "float32"
    also: str = ""


FORMS = {
    "floats": Form(0.0, "Add"),
    "one number": Form([0.0], "Add"),
    "the last axis": Form(0.0, "Add", -1, -1),
    "integers": Form(0, "Identity", dtype="int64"),
    "not zero": Form(1.0, "Unsqueeze Add Squeeze"),
    "a matrix": Form([[0.0]], "Unsqueeze Add Squeeze"),
    "another axis": Form([0.0], "Unsqueeze Add Squeeze", 1, 1),
    "read elsewhere": Form(0.0, "Unsqueeze Add Squeeze", also="wide"),
    "an output": Form(0.0, "Unsqueeze Add Squeeze", also="same"),
}


def nodes_of(sum_of: str = "wide zero") -> list[onnx.NodeProto]:
    return [node("Unsqueeze", "x ends", "wide"), node("Add", sum_of, "same"), node("Squeeze", "same starts", "y")]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_what_is_left(form: Form) -> None:
    constants = {
        "zero": numpy.array(form.zero, form.dtype), "ends": numpy.array([form.unsqueeze]),
        "starts": numpy.array([form.squeeze]),
    }
    graph = HostGraph(("x",), tuple(filter(None, ("y", form.also))), tuple(
        HostNode("", each.op_type, tuple(each.input), tuple(each.output), {}, 17) for each in nodes_of()
    ), constants)
    assert [each.op_type for each in canonicalised(graph).nodes] == form.nodes.split()


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
@pytest.mark.parametrize("sum_of", ["wide zero", "zero wide"])
def test_results(form: Form, sum_of: str, device: DeviceInfo) -> None:
    """Behind a NonZero, so on the host. -0.0 becomes 0.0, as the quotient by it shows."""
    nodes = [
        node("NonZero", "given", "places"), node("Squeeze", "places first", "list"),
        node("Gather", "source list", "x"), *nodes_of(sum_of),
    ]
    constants = {
        "first": numpy.array([0]), "zero": numpy.array(form.zero, form.dtype), "ends": numpy.array([form.unsqueeze]),
        "starts": numpy.array([form.squeeze]), "source": X.astype(form.dtype),
    }
    if form.dtype == "float32":
        nodes += [node("Reciprocal", "y", "quotient")]
    outputs = ["y", *filter(None, [form.also]), *(["quotient"] if form.dtype == "float32" else [])]
    inputs = {"given": numpy.array([2, 0, 1, 1, 0, 4], numpy.float32)}
    model = make_model(nodes, inputs, outputs, 17, constants)
    expected = run_oracle(model, inputs)
    made = imgconv.load(model, device=device).run(inputs)
    assert made.keys() == expected.keys()
    for name, array in expected.items():
        assert made[name].dtype == array.dtype
        numpy.testing.assert_array_equal(made[name], array)


def test_a_zero_takes_no_name_of_another_value() -> None:
    nodes = (
        HostNode("", "Unsqueeze", ("x", "first"), ("wide",), {}, 17), HostNode("", "Add", ("wide", "zero"), ("same",)),
        HostNode("", "Squeeze", ("same", "first"), ("y",), {}, 17), HostNode("", "Mul", ("y", "y.zero"), ("z",)),
    )
    constants = {"zero": numpy.array([0], numpy.float32), "first": numpy.array([0])}
    total, product = canonicalised(HostGraph(("x",), ("z",), nodes, constants)).nodes
    assert total.inputs == ("x", "y.zero_") and product.inputs == ("y", "y.zero"), "y.zero is from outside"
