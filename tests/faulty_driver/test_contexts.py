"""Drivers that refuse a context, or only its performance hint."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from faulty_driver import met, run_python
from imgconv.cl.priority import context_hints
from imgconv.errors import ConfigError

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


def test_a_refused_context(tmp_path: Path) -> None:
    """The device is listed with the reason."""
    for lines in (LOAD, LIST):
        said = " ".join(run_python(lines, "adreno;fail=clCreateContext:-5", tmp_path).stdout.split())
        assert "OUT_OF_RESOURCES" in said and "status -5" in said, said
    assert "cannot open this device" in said


def test_formats_that_are_refused(tmp_path: Path) -> None:
    said = run_python(LOAD, "adreno;fail=clGetSupportedImageFormats:-5", tmp_path).stdout
    assert "cannot be opened" in said and "clGetSupportedImageFormats" in said and "status -5" in said


PRIORITIES = """
import numpy, imgconv
from imgconv.cli import main
from imgconv.tensor import Tensor, build_graph
x = Tensor.input("x", (1, 4))
for priority in (None, "high", "normal", "low"):
    model = imgconv.load(build_graph({"y": x * 2}, [x]), priority=priority)
    assert model.run({"x": numpy.ones((1, 4), "f4")})["y"].tolist() == [[2, 2, 2, 2]]
main(["devices"])
"""


def test_priorities(tmp_path: Path) -> None:
    """Contexts and queues get the hints, and `devices` says so; without the extensions there are none."""
    said = run_python(PRIORITIES, "adreno;perf_hint;priority", tmp_path).stdout
    assert "cl_khr_priority_hints, cl_qcom_perf_hint, cl_qcom_priority_hint" in " ".join(said.split())
    hints = [line for line in met(tmp_path) if line != "context hint 40c2: 40c3"]  # which all others have
    expected = [("40c9: 40ca", None, 1), ("40c9: 40cb", "40c2: 40c4", 2), ("40c9: 40cc", "40c2: 40c5", 4)]
    assert hints == [
        line for priority, clock, queue in expected for line in (
            *([f"context hint {clock}"] if clock else []), f"context hint {priority}", f"queue priority: {queue}",
        )
    ]
    (tmp_path / "faults.log").unlink()
    assert "ignored: no extension" in run_python(PRIORITIES, "adreno", tmp_path).stdout and not met(tmp_path)
    with pytest.raises(ConfigError, match="'urgent': use one of high, normal, low"):
        context_hints([], cast(Any, "urgent"))


def test_a_refused_hint(tmp_path: Path) -> None:
    """The device is used without it."""
    assert run_python(LOAD, "adreno;perf_hint;refuse_hint", tmp_path).stdout == "[[2.0, 2.0, 2.0, 2.0]]\n"
    assert any("hint" in line for line in met(tmp_path)), met(tmp_path)
