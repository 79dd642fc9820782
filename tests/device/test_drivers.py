"""Each workaround of a driver is still needed; which versions do not need it, tests/tools/drivers.py says."""

from __future__ import annotations

import re
from dataclasses import Field, fields
from typing import Any

import pytest
from driver_table import PAGE, ROWS, page, row_of
from drivers import WORKAROUNDS, Workaround, outcome, version

from imgconv.cl.device import DeviceInfo
from imgconv.cl.quirks import QUIRKS, Quirks


@pytest.mark.parametrize("workaround", WORKAROUNDS, ids=lambda each: each.name)
def test_a_workaround_is_needed(workaround: Workaround, device: DeviceInfo) -> None:
    """Fails if a driver no longer has its fault, or has it again."""
    if device.platform not in workaround.platforms:
        pytest.skip("a workaround of another driver")
    if not workaround.always:
        pytest.skip("tried by python -m tests.tools.drivers only")
    needed, _ = outcome(workaround, device)
    row = row_of(workaround.name)
    if workaround.is_expected(device):
        assert needed, (
            f"{device.platform} {device.driver_version} is mended: {row.fault}. Say so by `mended` in "
            "tests/tools/drivers.py and in tests/tools/driver_table.py; if older versions need not work, drop "
            f"{row.done}"
        )
    else:
        assert not needed, f"{device.platform} {device.driver_version} has the fault again: {row.fault}"


def test_the_page_has_the_table() -> None:
    """Write it by python -m tests.tools.driver_table."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_the_table_has_every_probe() -> None:
    """With a * if it is a test."""
    found = {each for row in ROWS for each in re.findall(r'(\* )?"([a-z ]+)"', row.tells)}
    assert found == {("* " if each.always else "", each.name) for each in WORKAROUNDS}


@pytest.mark.parametrize("field", fields(Quirks), ids=lambda each: each.name)
def test_the_table_has_every_quirk(field: Field[Any]) -> None:
    """Each value that is no default has a row that names it and the driver."""
    drivers = {
        "Intel(R) OpenCL": "Intel", "NVIDIA CUDA": "NVIDIA", "Oclgrind": "oclgrind", "rusticl": "rusticl",
        "Portable Computing Language": "PoCL", "QUALCOMM Snapdragon(TM)": "Qualcomm",
    }
    rows = [row for row in ROWS if f"`{field.name}`" in row.done]
    assert rows
    for platform, quirks in QUIRKS.items():
        if getattr(quirks, field.name) != field.default:
            assert any(drivers[platform] in row.drivers for row in rows), platform


def test_versions_are_compared_by_their_numbers() -> None:
    assert version("3.1+debian") == (3, 1) < version("7.0") < version("22.3.6") < version("2026.22.10.0.01_160000")
