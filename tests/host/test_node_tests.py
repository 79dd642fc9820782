"""ONNX's own node tests, run by the host's functions alone: every test whose operators all have one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy
import onnx
import onnx.numpy_helper
import pytest
from onnx.backend.test.loader import load_model_tests

from imgconv import host
from imgconv.onnx_import.file import opset_of
from imgconv.onnx_import.schema import ELEMENT_TYPES, dtype_name
from imgconv.onnx_import.scope import ImportScope, ImportState
from imgconv.onnx_import.partition import host_graph

# Of types that numpy has not; and the same again, put together from other operators.
LEFT_OUT = ("bf16", "bfloat16", "BFLOAT16", "_expanded")


def types_in(model: onnx.ModelProto) -> Iterator[str]:
    """The element types of a model's inputs, outputs and constants, also of its casts."""
    for value in (*model.graph.input, *model.graph.output):
        kind = value.type
        while kind.WhichOneof("value") in ("sequence_type", "optional_type"):
            kind = getattr(kind, kind.WhichOneof("value")).elem_type
        yield dtype_name(kind.tensor_type.elem_type)
    for node in model.graph.node:
        yield from (dtype_name(a.i) for a in node.attribute if a.name in ("to", "dtype"))


def is_run(test: Any) -> bool:
    if any(word in test.name for word in LEFT_OUT) or test.model is None:
        return False
    own = host.supported()
    return all(not n.domain and n.op_type in own for n in nodes_of(test.model.graph)) and all(
        each in ELEMENT_TYPES for each in types_in(test.model)
    )


def nodes_of(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            yield from nodes_of(attribute.g)


def plain(given: Any) -> Any:
    if isinstance(given, onnx.TensorProto):
        return onnx.numpy_helper.to_array(given)
    return [plain(each) for each in given] if isinstance(given, list) else given


def failure_of(test: Any) -> str:
    """Returns the error of the host's program or of the comparison with the test's outputs; empty if there is none."""
    scope = ImportScope(ImportState(None, test.model.ir_version), {"": opset_of(test.model)})
    try:
        program = host.HostProgram.prepare(host_graph(scope, test.model.graph))
        for inputs, expected in test.data_sets:
            found = program.run([plain(each) for each in inputs])
            for have, want in zip(found, map(plain, expected), strict=True):
                compare(have, want, test.rtol, test.atol)
    except Exception as error:
        return f"{test.name}: {type(error).__name__}: {error}"
    return ""


@pytest.mark.models
def test_nodes() -> None:
    """One test, as ONNX takes seconds to make its own: they would be made in each process that collects the tests."""
    tests = [test for kind in ("node", "simple") for test in load_model_tests(kind=kind) if is_run(test)]
    assert len(tests) > 450
    failures = [failure for test in tests if (failure := failure_of(test))]
    assert not failures, "\n\n".join(failures)


def compare(have: Any, want: Any, rtol: float, atol: float) -> None:
    if isinstance(want, list) or want is None:
        assert isinstance(have, type(want))
        for one, other in zip(have or (), want or (), strict=True):
            compare(one, other, rtol, atol)
        return
    want = numpy.asarray(want)
    assert (have.shape, have.dtype) == (want.shape, want.dtype)
    numpy.testing.assert_allclose(have, want, rtol, atol)
