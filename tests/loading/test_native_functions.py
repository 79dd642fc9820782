"""The device's native functions: how exact they are, and that FLOAT16 takes only those that are exact enough."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest
from faulty_driver import run_python

from imgconv.cl.context import Context
from imgconv.config import Config
from imgconv.files.disk_cache import DiskCache
from imgconv.loading import native_functions
from imgconv.loading.native_functions import (
    RANGE, UNITS, device_results, largest_error, native_errors, sampled_arguments
)
from imgconv.loading.native_functions import native_functions_fit

GPU_LOADS = """
import json, numpy
import imgconv
from imgconv.loading import native_functions
from imgconv.tensor import Tensor, build_graph
measured, original = [], native_functions.device_results
native_functions.device_results = lambda *given: measured.append(1) or original(*given)
x, found = Tensor.input("x", (1, 8, 16, 16)), {}
graph = build_graph({"y": x.sigmoid().conv2d(Tensor.constant(numpy.ones((8, 8, 3, 3), numpy.float32) / 8))})
for name, settings in SETTINGS.items():
    model = imgconv.load(graph, **settings)
    found[name] = any("native_" in launch.source.text for launch in model.plan.launches)
print(json.dumps({"kind": model.device.kind, "native": found, "measured": len(measured)}))
"""


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder of its own for what is measured."""
    monkeypatch.setattr(native_functions, "MEASURED", DiskCache(str(tmp_path / "native"), 2**20))
    yield


def test_errors_are_measured_in_units_that_grow_with_the_argument() -> None:
    x = sampled_arguments()
    x = x[numpy.abs(x) <= RANGE]
    exact = numpy.exp(x.astype(numpy.float64))
    assert largest_error("exp", x, exact.astype(numpy.float32)) < 1
    off = exact * (1 + 5 * 2.0**-23 * (1 + numpy.abs(x)))
    assert largest_error("exp", x, off.astype(numpy.float32)) == pytest.approx(5, abs=1)  # rounded: 0.5 at each x
    # Rounded to 11 bits, as by an approximation with a table.
    assert largest_error("exp", x, (exact * (1 + 2.0**-12)).astype(numpy.float32)) > 10 * UNITS


@pytest.mark.parametrize(
    ("name", "x", "wrong"),
    [("exp", 1000.0, 3e38), ("exp", -1000.0, 1e-30), ("sigmoid", -1000.0, math.nan), ("sigmoid", 1000.0, 0.5),
     ("exp", math.inf, math.nan)],
)
def test_results_past_the_range_of_a_float_count_too(name: str, x: float, wrong: float) -> None:
    given = numpy.array([x], numpy.float32)
    with numpy.errstate(over="ignore"):
        right = numpy.exp(given) if name == "exp" else 1 / (1 + numpy.exp(-given))
    assert largest_error(name, given, right) == 0
    assert largest_error(name, given, numpy.array([wrong], numpy.float32)) > UNITS


def test_the_device_computes_them_at_all_arguments(context: Context) -> None:
    """All drivers' native functions are right in the first three digits; inside of the range that is measured."""
    x = sampled_arguments()
    made = device_results(context, x)
    inside = numpy.abs(x) <= RANGE
    for name, function in {"exp": numpy.exp, "sigmoid": lambda v: 1 / (1 + numpy.exp(-v))}.items():
        numpy.testing.assert_allclose(made[name][inside], function(x[inside].astype(numpy.float64)), rtol=2e-3)


def test_a_device_is_measured_once(context: Context, kept: None, monkeypatch: pytest.MonkeyPatch) -> None:
    first = native_errors(context)
    monkeypatch.setattr(native_functions, "device_results", lambda *_: pytest.fail("measured again"))
    assert native_errors(context) == first
    other = copy(context)
    other.info = replace(context.info, driver_version="another")
    with pytest.raises(pytest.fail.Exception, match="again"):
        native_errors(other)


@pytest.mark.parametrize(
    ("settings", "kind", "error", "fit"),
    [
        ({"float16": 1}, "gpu", 0.9 * UNITS, True), ({"float16": 2}, "gpu", 0.9 * UNITS, True),
        ({"float16": 1}, "gpu", 1.1 * UNITS, False), ({"float16": 1}, "gpu", math.inf, False),
        ({}, "gpu", 0.0, False), ({"float16": 1}, "cpu", 0.0, False),
        ({"float16": 1, "native_explog": True}, "gpu", 0.0, False),
    ],
)
def test_they_are_measured_for_half_on_gpus(
    settings: Any, kind: Any, error: float, fit: bool, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other plan takes them by a measurement, so that no other load waits for one."""
    asked = []
    monkeypatch.setattr(native_functions, "native_errors", lambda _: asked.append(1) or {"exp": 0.0, "sigmoid": error})
    on = copy(context)
    on.info = replace(context.info, kind=kind)
    assert native_functions_fit(on, Config(**settings)) == fit
    assert bool(asked) == (kind == "gpu" and settings == {"float16": settings.get("float16")})


@pytest.mark.parametrize(("real", "faults", "native"), [
    ("intel", "adreno", False), ("pocl", "adreno", True),
    ("pocl", "adreno;swap=native_exp(x[n])=>native_exp(1.0001f * x[n])", False),
])
def test_a_gpu_with_coarse_functions_computes_without_them(
    real: str, faults: str, native: bool, tmp_path: Path
) -> None:
    """Intel's native_exp is 2.3e-4 off, PoCL's is exact. Two loads measure once, and float never."""
    settings = {"float": {"float16": 0}, "half": {"float16": 1}, "asked": {"float16": 1, "native_explog": True}}
    lines = GPU_LOADS.replace("SETTINGS", repr(settings | {"half again": {"float16": 1}}))
    done = run_python(lines, faults, tmp_path, real)
    assert done.returncode == 0, done.stderr
    used = {"float": False, "half": native, "asked": True, "half again": native}
    assert json.loads(done.stdout.splitlines()[-1]) == {"kind": "gpu", "native": used, "measured": 1}


def test_a_saved_model_has_a_plan_without_them_too(tmp_path: Path) -> None:
    """The first one is for the device on which they were measured, which loads it; the other one for all others."""
    lines = f"""
import json, numpy
import imgconv
from imgconv.stored.compiled_file import SavedModel
from imgconv.tensor import Tensor, build_graph
path, x = {str(tmp_path / "m.imgconv")!r}, Tensor.input("x", (1, 8, 16, 16))
weights = Tensor.constant(numpy.ones((8, 8, 3, 3), numpy.float32) / 8)
imgconv.load(build_graph({{"y": x.sigmoid().conv2d(weights)}}), float16=1).save(path)
used = any("native_" in launch.source.text for launch in imgconv.load(path).plan.launches)
plans = SavedModel.open(path).table.plans
found = [[plan.target.native_functions, any("native_exp(" in k.text for k in plan.kernels)] for plan in plans]
print(json.dumps([used, found]))
"""
    done = run_python(lines, "adreno", tmp_path, "pocl")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [True, [[True, True], [False, False]]]
