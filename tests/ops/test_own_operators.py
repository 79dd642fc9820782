"""Operators that users register for a domain of their own, as docs/operators.md shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy
import onnx
import onnx.helper
import pytest
from support import assert_close, make_model, run_model

import imgconv
from imgconv.ops import registry
from imgconv.tensor import Tensor

X = numpy.linspace(-3, 3, 12, dtype=numpy.float32).reshape(1, 3, 4)


@pytest.fixture(autouse=True)
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes what a test registers."""
    monkeypatch.setattr(registry, "_OPERATORS", dict(registry._OPERATORS))


def model_with(*names: str, **attributes: Any) -> onnx.ModelProto:
    nodes = [
        onnx.helper.make_node(name, ["x"], [f"y{n}"], name=f"node{n}", domain="my.domain", **attributes)
        for n, name in enumerate(names)
    ]
    model = make_model(nodes, {"x": X}, [f"y{n}" for n in range(len(names))], 13)
    model.opset_import.append(onnx.helper.make_opsetid("my.domain", 3))
    return model


def test_the_example_of_the_documentation(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "operators.md").read_text(encoding="utf-8")
    (code,) = [text for text in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "ScaledSwish" in text]
    loaded = []
    monkeypatch.setattr(imgconv, "load", loaded.append)
    exec(compile(code, "operators.md", "exec", dont_inherit=True), {})
    assert loaded == ["with_scaled_swish.onnx"]
    found = run_model(model_with("ScaledSwish", alpha=2.0), {"x": X})
    assert_close(found, {"y0": X / (1 + numpy.exp(-2 * X))}, 1e-6)


def test_a_domain_without_functions_is_refused_with_what_to_do() -> None:
    with pytest.raises(imgconv.UnsupportedError) as caught:
        run_model(model_with(*["Once"] * 9, "Twice"), {"x": X})
    message = str(caught.value)
    assert "my.domain.Once (9 nodes: node0, node1, node2, node3, node4, node5, ...)" in message
    assert "my.domain.Twice (1 node: node9)" in message
    assert '@imgconv.ops.operator("Once", domain="my.domain")' in message


def test_a_function_sees_the_version_of_its_domain() -> None:
    @imgconv.ops.operator("Version", domain="my.domain")
    def version(call: imgconv.ops.Call) -> Tensor:
        return call.input(0) * call.version

    assert_close(run_model(model_with("Version"), {"x": X}), {"y0": X * 3}, 1e-6)


def test_what_a_signature_does_not_list_is_refused() -> None:
    takes = imgconv.ops.Signature({"x": "T", "y": "T?"}, {"T": ("float32",)}, ("alpha",))

    @imgconv.ops.operator("Listed", domain="my.domain", signature=takes)
    def listed(call: imgconv.ops.Call) -> Tensor:
        return call.input(0)

    assert_close(run_model(model_with("Listed", alpha=1.0), {"x": X}), {"y0": X}, 0)
    with pytest.raises(imgconv.UnsupportedError, match="'node0': Listed: unsupported: attribute beta"):
        run_model(model_with("Listed", beta=1.0), {"x": X})
    more = model_with("Listed")
    more.graph.node[0].input.extend(["x", "x"])
    with pytest.raises(imgconv.UnsupportedError, match="input 2; it has 2 inputs"):
        run_model(more, {"x": X})
    other = model_with("Listed")
    other.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.INT32
    with pytest.raises(imgconv.UnsupportedError, match="input x of type int32; use float32"):
        run_model(other, {"x": X.astype("int32")})
    del other.graph.node[0].input[:]
    with pytest.raises(imgconv.ModelError, match="input x is missing"):
        run_model(other, {"x": X.astype("int32")})


def test_an_operator_is_registered_once() -> None:
    for domain in ("", "my.domain"):
        imgconv.ops.operator("Mine", domain=domain)(lambda call: call.input(0))
        with pytest.raises(imgconv.Error, match="Mine is registered twice"):
            imgconv.ops.operator("Mine", domain=domain)(lambda call: call.input(0))
    with pytest.raises(imgconv.Error, match="Relu is registered twice"):
        imgconv.ops.operator("Relu")(lambda call: call.input(0))


def test_our_operators_of_other_domains_have_signatures() -> None:
    for (domain, op_type), entry in registry._OPERATORS.items():
        assert not domain or entry.signature is not None, op_type
