"""Known bad compilers: plans for their devices do without the kernels that they miscompile."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy
import pytest
from faulty_driver import run_python

import imgconv
from imgconv.cl import bad_compilers
from imgconv.cl.bad_compilers import BadCompiler
from imgconv.cl.device import DeviceInfo
from imgconv.graph.nodes import Graph
from imgconv.tensor import Tensor, build_graph

X = numpy.random.default_rng(1).uniform(-1, 1, (1, 8, 12, 12)).astype(numpy.float32)


def network() -> Graph:
    x, random = Tensor.input("x", X.shape), numpy.random.default_rng(0)
    weights = Tensor.constant(random.uniform(-1, 1, (8, 8, 3, 3)).astype(numpy.float32))
    return build_graph({"y": x.conv2d(weights, padding=1).relu()}, [x], "network")


def convolution(model: imgconv.Model) -> str:
    """The file of the kernel that convolves."""
    (path,) = (launch.source.path for launch in model.plan.launches if launch.kind == "compute")
    return path


def add(monkeypatch: pytest.MonkeyPatch, platform: str, versions: str, pattern: str) -> None:
    entry = BadCompiler(platform, versions, pattern, "this test")
    monkeypatch.setattr(bad_compilers, "BAD_COMPILERS", (*bad_compilers.BAD_COMPILERS, entry))


def test_plans_do_without_a_form(device: DeviceInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = imgconv.load(network(), device=device)
    model.save(tmp_path / "model.imgconv")
    path = convolution(model)
    add(monkeypatch, device.platform, re.escape(device.driver_version), f"^{re.escape(path)}$")
    for source in (network(), tmp_path / "model.imgconv"):
        other = imgconv.load(source, device=device)
        assert convolution(other) != path
        numpy.testing.assert_allclose(other.run({"x": X})["y"], model.run({"x": X})["y"], 0, 1e-5)


def test_other_compilers_keep_it(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    path = convolution(imgconv.load(network(), device=device))
    add(monkeypatch, "another platform", "", f"^{re.escape(path)}$")
    add(monkeypatch, device.platform, "another version", f"^{re.escape(path)}$")
    add(monkeypatch, device.platform, "", "^a text that no kernel has$")
    assert convolution(imgconv.load(network(), device=device)) == path


def test_an_adreno(tmp_path: Path) -> None:
    """An entry names the compiler by what the driver says of it. The kernel has the fault, and nothing is reported."""
    lines = """
import warnings
import numpy, imgconv
from imgconv.cl import bad_compilers
from checking.test_bad_compilers import X, convolution, network
warnings.simplefilter("error", RuntimeWarning)
entry = bad_compilers.BadCompiler("QUALCOMM Snapdragon(TM)", r"Compiler E031\\.37\\.", r"^conv\\.cl$", "a test")
bad_compilers.BAD_COMPILERS = (entry,)
model = imgconv.load(network())
print(convolution(model), float(numpy.abs(model.run({"x": X})["y"]).max()))
"""
    done: subprocess.CompletedProcess[str] = run_python(lines, "adreno;swap=chunk < INPUT_QUADS=>chunk < 1", tmp_path)
    assert done.returncode == 0, done.stderr
    path, most = done.stdout.split()
    assert path != "conv.cl" and float(most) > 0


def test_entries_name_their_source() -> None:
    for entry in bad_compilers.BAD_COMPILERS:
        assert entry.platform and entry.source
        re.compile(entry.versions), re.compile(entry.pattern)
