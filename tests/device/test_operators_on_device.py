"""One case of every operator on every OpenCL device, against onnxruntime; tests/test_operators.py has them all."""

from __future__ import annotations

import pytest
from support import OLD_ORACLE
from test_operators import FAMILIES, NEW_ORACLE_ONLY, Case, check

from imgconv.cl.device import DeviceInfo


def first_cases(cases: list[Case]) -> list[Case]:
    """The first case of each operator."""
    usable = [c for c in cases if not (OLD_ORACLE and (c.op_type, c.opset) in NEW_ORACLE_ONLY)]
    first = {c.op_type: c for c in reversed(usable)}
    return list(first.values())


@pytest.mark.parametrize("family", FAMILIES)
def test_one_case_of_each_operator(family: str, device: DeviceInfo) -> None:
    for case in first_cases(FAMILIES[family]):
        check(case, device)
