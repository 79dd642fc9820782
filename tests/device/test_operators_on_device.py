"""One case of every operator on every OpenCL device, against onnxruntime; the files of tests/ have them all."""

from __future__ import annotations

import pytest
import test_attention
import test_einsum
import test_microsoft_quantization
import test_operators
import test_quantization
import test_recurrent
from operators import Case, check, has_oracle
from operators.integers import NARROW, wrapping_model
from support import assert_close, run_model

from imgconv.cl.device import DeviceInfo


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


@pytest.mark.parametrize("family", FAMILIES)
def test_one_case_of_each_operator(family: str, device: DeviceInfo) -> None:
    for case in first_cases(FAMILIES[family]):
        check(case, device)
