"""Running an ONNX model with imgconv and with onnxruntime, the oracle."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy
import onnx
import onnx.helper
import onnxruntime
import pytest

import imgconv
from imgconv.cl.device import DeviceInfo
from imgconv.errors import ModelError
from imgconv.files.disk_cache import DiskCache
from imgconv.graph.evaluate import evaluate_graph
from imgconv.onnx_import import import_onnx
from imgconv.runtime.host_fallback import HostFallback

Arrays = dict[str, Any]

ORACLE_VERSION = tuple(int(part) for part in onnxruntime.__version__.split(".")[:2])
# 1.23 is the last onnxruntime for Python 3.10. It lacks some operators of newer opsets and is wrong in others.
OLD_ORACLE = ORACLE_VERSION < (1, 24)
OLD_ORACLE_REASON = f"onnxruntime {onnxruntime.__version__} lacks this or is wrong; a newer one, on Python 3.11, is not"

# Seconds after which a test says that something hangs. It bounds nothing else: machines differ in how long they take.
HANG_TIMEOUT = 300.0

# Every test that runs a model does so on each of these.
ENGINES = ("reference",)


def run_model(model: Any, inputs: Mapping[str, Any], engine: str | DeviceInfo = "reference") -> Arrays:
    """The outputs of a path or ModelProto, computed by imgconv: in numpy ("reference") or on a device."""
    graph = import_onnx(model, shapes={name: array.shape for name, array in inputs.items()})
    if isinstance(engine, DeviceInfo):
        return imgconv.load(graph, device=engine).run(inputs)
    assert engine == "reference"
    made, fallback = evaluate_graph(
        graph, inputs), HostFallback.prepare(graph.host_partition, graph.inputs, graph.outputs
    )
    return made if fallback is None else fallback.finish(made, fallback.arrays_of_inputs(inputs))


def one_thread() -> onnxruntime.SessionOptions:
    """Others would wait in busy loops, beside the tests of other processes."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return options


def run_oracle(model: onnx.ModelProto, inputs: Mapping[str, Any]) -> Arrays:
    """The outputs of a model, computed by onnxruntime on the CPU in one thread, without rewriting the graph.

    Skips the test, with the reason, where an old onnxruntime cannot.
    """
    options = one_thread()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    with skipping_what_is_new():
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        names = [o.name for o in session.get_outputs()]
        return dict(zip(names, session.run(names, dict(inputs)), strict=True))


@contextmanager
def skipping_what_is_new() -> Iterator[None]:
    """Skips the test, with the reason, where an old onnxruntime raises an error."""
    try:
        yield
    except Exception as error:
        if not (OLD_ORACLE and type(error).__module__.startswith("onnxruntime")):
            raise
        pytest.skip(f"{OLD_ORACLE_REASON}: {str(error)[:200]}")


class NothingKept(DiskCache):
    """A folder of entries in which none is found again."""

    def read(self, key: str) -> bytes | None:
        return None


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Waits until the condition is true; fails if it never is. what: what that means."""
    end = time.monotonic() + HANG_TIMEOUT
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def assert_close(found: Mapping[str, Any], expected: Mapping[str, Any], tolerance: float) -> None:
    """The same names, shapes and dtypes; floats within tolerance of the largest finite expected value."""
    assert found.keys() == expected.keys()
    for name, want in expected.items():
        have = found[name]
        assert have.shape == want.shape, (name, have.shape, want.shape)
        assert have.dtype == want.dtype, (name, have.dtype, want.dtype)
        if want.dtype.kind != "f":
            numpy.testing.assert_array_equal(have, want, err_msg=name)
            continue
        finite = numpy.abs(want[numpy.isfinite(want)]).astype(float)
        largest = max(finite.max(initial=0.0), 1e-3)
        numpy.testing.assert_allclose(have.astype(float), want.astype(float), 0, tolerance * largest, err_msg=name)


def make_model(
    nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, Any], outputs: Sequence[str], opset: int,
    constants: Mapping[str, Any] | None = None,
) -> onnx.ModelProto:
    """A model whose inputs have the dtypes and shapes of the arrays; the outputs' types are left to be inferred."""
    graph = onnx.helper.make_graph(
        list(nodes), "test",
        [make_input(name, array.dtype, array.shape) for name, array in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [onnx.numpy_helper.from_array(numpy.asarray(array), name) for name, array in (constants or {}).items()],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=8)


def make_input(name: str, dtype: Any, shape: Sequence[int | str | None]) -> onnx.ValueInfoProto:
    """The declaration of a tensor; a dimension may be a size, a name or None."""
    kind = onnx.helper.np_dtype_to_tensor_dtype(numpy.dtype(dtype))
    return onnx.helper.make_tensor_value_info(name, kind, list(shape))


def model_with(dimensions: Sequence[Any], nodes: Sequence[Any] = (), dtype: Any = "float32",
    opset: int = 13) -> onnx.ModelProto:
    """A model with one input x of the given dimensions and one output y; by default y = Relu(x)."""
    model = make_model(nodes or [onnx.helper.make_node("Relu", ["x"], ["y"], name="relu")], {}, ["y"], opset)
    model.graph.input.append(make_input("x", dtype, dimensions))
    return model


def damaged(content: bytes) -> Iterator[bytes]:
    """Cut at every 1 % of its length, and with one byte flipped at 200 places."""
    for percent in range(100):
        yield content[: len(content) * percent // 100]
    generator = random.Random(0)
    for _ in range(200):
        at = generator.randrange(len(content))
        yield content[:at] + bytes([content[at] ^ generator.randrange(1, 256)]) + content[at + 1 :]


def assert_refused(
    model: onnx.ModelProto, feeds: Mapping[str, Any], message: str, error: type[ModelError], node: str = "node"
) -> None:
    """Asserts that importing and running a model raises this very error, which names the node."""
    with pytest.raises(ModelError, match=message) as caught:
        run_model(model, feeds)
    assert type(caught.value) is error
    assert caught.value.node == node
