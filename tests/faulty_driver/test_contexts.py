"""Drivers that refuse a context, or only its performance hint."""

from __future__ import annotations

from pathlib import Path

import pytest

from faulty_driver import met, run_python

LOAD = """
import numpy, imgconv
from imgconv.tensor import Tensor, build_graph
x = Tensor.input("x", (1, 4))
try:
    model = imgconv.load(build_graph({"y": x * 2}, [x]))
    print(model.run({"x": numpy.ones((1, 4), "f4")})["y"].tolist())
except imgconv.DeviceError as error:
    print(error)
"""
LIST = "from imgconv.cli import main; main(['devices'])"


@pytest.mark.parametrize(
    ("status", "name"), [(-2, "DEVICE_NOT_AVAILABLE"), (-5, "OUT_OF_RESOURCES"), (-6, "OUT_OF_HOST_MEMORY")]
)
def test_a_refused_context(status: int, name: str, tmp_path: Path) -> None:
    """The device is listed with the reason."""
    for lines in (LOAD, LIST):
        said = run_python(lines, f"adreno;fail=clCreateContext:{status}", tmp_path).stdout
        said = " ".join(said.split())
        assert name in said and f"status {status}" in said, said
    assert "cannot open this device" in said


def test_formats_that_are_refused(tmp_path: Path) -> None:
    said = run_python(LOAD, "adreno;fail=clGetSupportedImageFormats:-5", tmp_path).stdout
    assert "cannot be opened" in said and "clGetSupportedImageFormats" in said and "status -5" in said


def test_a_refused_hint(tmp_path: Path) -> None:
    """The device is used without it."""
    assert run_python(LOAD, "adreno;perf_hint;refuse_hint", tmp_path).stdout == "[[2.0, 2.0, 2.0, 2.0]]\n"
    assert any("hint" in line for line in met(tmp_path)), met(tmp_path)
