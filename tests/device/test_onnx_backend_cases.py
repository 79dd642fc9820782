"""ONNX's own tests of backends, by its own runner: nodes, PyTorch's exports, simple and light models.

They take minutes on each device, and run with -m models: ONNX makes them at import, in seconds, so that conftest.py
leaves the file out otherwise. onnx_excluded.txt names the tests that are not run; every one of them must be refused
with an error of imgconv's, or be one that ONNX itself gets wrong.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import onnx
import onnx.backend.base
import onnx.backend.test
import onnx.checker
import onnx.numpy_helper
import pytest
from conftest import device_id, found_devices
from onnx.backend.test.loader import load_model_tests

import imgconv
from imgconv.cl.device import DeviceInfo

pytestmark = pytest.mark.models

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "real")
EXCLUDED_FILE = Path(__file__).parent / "onnx_excluded.txt"
WRONG_REFERENCE = "ONNX's expected output is wrong"
BRIEF = "bfloat16 outputs come as float32"


def read_excluded() -> dict[str, str]:
    """Reason by name: a line "# reason" heads the names below it."""
    found: dict[str, str] = {}
    reason = ""
    for line in EXCLUDED_FILE.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            reason = line[1:].strip()
        elif line.strip():
            assert line not in found, f"{line} is listed twice"
            found[line.strip()] = reason
    return found


EXCLUDED = read_excluded()


class Prepared(onnx.backend.base.BackendRep):
    """A loaded model, whose inputs and outputs are in the file's order."""

    def __init__(self, model: onnx.ModelProto, info: DeviceInfo) -> None:
        onnx.checker.check_model(model)
        constants = {tensor.name for tensor in model.graph.initializer}
        self.inputs = [value.name for value in model.graph.input if value.name not in constants]
        self.outputs = [value.name for value in model.graph.output]
        self.model = imgconv.load(model, info)

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        found = self.model.run(dict(zip(self.inputs, inputs, strict=True)))
        return tuple(found[name] for name in self.outputs)


def backend_on(info: DeviceInfo) -> type[onnx.backend.base.Backend]:
    """The backend with ONNX's device "CPU" standing for this one, so that each test runs once."""

    class OnDevice(onnx.backend.base.Backend):
        @classmethod
        def supports_device(cls, device: str) -> bool:
            return device == "CPU"

        @classmethod
        def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **_: Any) -> bool:
            """False for a model that makes larger weights than `load` allows: ONNX's cases skip it."""
            try:
                Prepared(model, info)
            except imgconv.LimitExceededError:
                return False
            return True

        @classmethod
        def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **_: Any) -> Prepared:
            return Prepared(model, info)

    return OnDevice


for info in found_devices():
    runner = onnx.backend.test.BackendTest(backend_on(info), __name__)
    runner.exclude("_cuda$")
    for name in EXCLUDED:
        runner.exclude(f"^{name}_cpu$")
    for name, case in runner.test_cases.items():
        case.__name__ = case.__qualname__ = f"{name}_{device_id(info).replace('-', '_')}"
        globals()[case.__name__] = case
    del name, case


@functools.cache
def backend_tests() -> dict[str, Any]:
    return {test.name: test for kind in KINDS for test in load_model_tests(kind=kind)}


def test_the_list_names_tests_that_there_are() -> None:
    assert set(EXCLUDED) <= set(backend_tests())
    assert all(EXCLUDED.values())


def data_of(test: Any) -> Iterator[tuple[list[Any], list[Any]]]:
    """The inputs and the expected outputs of a test, which may hold them or lie in files beside its model."""
    for inputs, expected in test.data_sets or ():
        yield [arrays_of(t) for t in inputs], [arrays_of(t) for t in expected]
    for folder in sorted(Path(test.model_dir or "nothing").glob("test_data_set_*")):
        yield tuple(
            [onnx.numpy_helper.to_array(onnx.load_tensor(path)) for path in sorted(folder.glob(f"{kind}_*.pb"))]
            for kind in ("input", "output")
        )


def arrays_of(given: Any) -> Any:
    return onnx.numpy_helper.to_array(given) if isinstance(given, onnx.TensorProto) else given


def named(*reasons: str) -> list[str]:
    return sorted(name for name, reason in EXCLUDED.items() if reason in reasons)


@pytest.mark.parametrize("name", named(*{*EXCLUDED.values()} - {WRONG_REFERENCE, BRIEF}))
def test_what_is_excluded_is_refused(name: str) -> None:
    """A wrong result never hides in the list, and what works by now has to leave it."""
    test = backend_tests()[name]
    model = test.model or onnx.load(Path(test.model_dir) / "model.onnx")
    with pytest.raises(imgconv.Error):
        prepared = backend_on(found_devices()[0]).prepare(model)
        for inputs, _ in data_of(test):
            prepared.run(inputs)


@pytest.mark.parametrize("name", named(BRIEF))
def test_bfloat16_is_right_in_float32(name: str) -> None:
    test = backend_tests()[name]
    model = test.model or onnx.load(Path(test.model_dir) / "model.onnx")
    prepared = backend_on(found_devices()[0]).prepare(model)
    for inputs, expected in data_of(test):
        found = prepared.run(inputs)
        for have, want in zip(found, expected, strict=True):
            assert have.dtype == ("float32" if str(want.dtype) == "bfloat16" else want.dtype)
            # bfloat16 has eight bits; ONNX's reference rounds more than once on the way.
            numpy.testing.assert_allclose(have, want.astype(have.dtype), 2**-7, 2**-7)
