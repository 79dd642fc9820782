"""One case of every operator on every OpenCL device, against onnxruntime; the files of tests/ have them all."""

from __future__ import annotations

import pytest
import test_attention
import test_einsum
import test_microsoft_quantization
import test_operators
import test_quantization
import test_recurrent
from operator_cases import Case, has_oracle, model_of
from operator_cases.integers import NARROW, wrapping_model
from support import assert_close, run_model, run_oracle

import imgconv
from imgconv.checking.session_checks import SessionUnderTest, check_launches
from imgconv.cl.device import DeviceInfo
from imgconv.onnx_import import import_onnx


FAMILIES = {
    **test_operators.FAMILIES, **test_einsum.FAMILIES, **test_quantization.FAMILIES, **test_recurrent.FAMILIES,
    **test_microsoft_quantization.FAMILIES, **test_attention.FAMILIES,
}


def first_cases(cases: list[Case]) -> list[Case]:
    """The first case of each operator."""
    first = {c.op_type: c for c in reversed(cases) if has_oracle(c)}
    return list(first.values())


def test_narrow_integers_wrap_around(device: DeviceInfo) -> None:
    for dtype in NARROW:
        model, feeds, expected = wrapping_model(dtype)
        assert_close(run_model(model, feeds, device), expected, 0)


def running(model: imgconv.Model) -> SessionUnderTest:
    """The plan of a model's last run."""
    compiled = model._last
    return SessionUnderTest(compiled.session, compiled.graph, compiled.config)


@pytest.mark.parametrize("family", FAMILIES)
def test_one_case_of_each_operator(family: str, device: DeviceInfo) -> None:
    """Outputs are those of the oracle, and the check of launches reports none as wrong."""
    for case in first_cases(FAMILIES[family]):
        model, feeds = model_of(case)
        shapes = {name: array.shape for name, array in feeds.items()}
        loaded = imgconv.load(import_onnx(model, shapes=shapes), device=device)
        assert_close(loaded.run(feeds), run_oracle(model, feeds), case.tolerance)
        wrong = [finding for _, finding in check_launches(running(loaded)) if finding.verdict == "wrong"]
        assert not wrong, f"{case}: {wrong}"
