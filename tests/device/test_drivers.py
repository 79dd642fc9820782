"""Each workaround of a driver is still needed; which versions do not need it, tests/drivers.py says."""

from __future__ import annotations

import re

import pytest
from drivers import ROOT, WORKAROUNDS, Workaround, outcome, version

from imgconv.cl.device import DeviceInfo


@pytest.mark.parametrize("workaround", WORKAROUNDS, ids=lambda each: each.name)
def test_a_workaround_is_needed(workaround: Workaround, device: DeviceInfo) -> None:
    """If a driver is mended, this says so."""
    if device.platform not in workaround.platforms:
        pytest.skip("a workaround of another driver")
    if not workaround.always:
        pytest.skip("tried by python -m tests.drivers only")
    needed, _ = outcome(workaround, device)
    if workaround.is_expected(device):
        assert needed, (
            f"{device.platform} {device.driver_version} is mended: {workaround.reason}. Say so by `mended` in "
            f"tests/drivers.py and in docs/drivers.md; if older versions need not work, drop {workaround.where}"
        )
    else:
        assert not needed, f"{device.platform} {device.driver_version} has the fault again: {workaround.reason}"


def test_the_table_for_people_has_every_probe() -> None:
    """With a * if it is a test."""
    table = (ROOT / "docs" / "drivers.md").read_text(encoding="utf-8")
    found = set(re.findall(r'(\* )?"([a-z ]+)"(?=.*\|$)', table, re.MULTILINE))
    assert found == {("* " if each.always else "", each.name) for each in WORKAROUNDS}


def test_versions_are_compared_by_their_numbers() -> None:
    assert version("3.1+debian") == (3, 1) < version("7.0") < version("22.3.6") < version("2026.22.10.0.01_160000")
