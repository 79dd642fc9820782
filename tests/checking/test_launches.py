"""The check of launches on devices: a launch that is right is never reported, and what covers them."""

from __future__ import annotations

import pytest
from test_operators_on_device import FAMILIES, first_cases
from operators import Case, model_of

import imgconv
from imgconv.checking.proving import Running, check_launches
from imgconv.cl.device import DeviceInfo
from imgconv.errors import Error


def running(model: imgconv.Model) -> Running:
    """The plan of a model's last run."""
    compiled = model._last
    return Running(compiled.session, compiled.graph, compiled.config)


def reported(case: Case, device: DeviceInfo, float16: int) -> list[str]:
    """The verdicts on a case's launches that are not "right"."""
    model, _ = model_of(case)
    try:
        loaded = imgconv.load(model, device=device, float16=float16)
        found = list(check_launches(running(loaded)))
    except Error:
        return []
    return [f"{case}: {finding}" for _, finding in found if finding.verdict != "right"]


@pytest.mark.parametrize("float16", [0, 1])
@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_is_reported(family: str, float16: int, device: DeviceInfo) -> None:
    lines = [line for case in first_cases(FAMILIES[family]) for line in reported(case, device, float16)]
    assert not [line for line in lines if ": wrong: " in line], "\n".join(lines)
