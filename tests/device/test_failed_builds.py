"""Builds that fail, binaries that are not what they should be: the kernels are built one by one, or from source."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy
import pytest
from support import NothingKept

import imgconv
from imgconv.cl.building import processes, program
from imgconv.cl.context import Context
from imgconv.cl.device import DeviceInfo
from imgconv.cl.quirks import quirks_of
from imgconv.cl.building.program import Program, ProgramSource
from imgconv.errors import BuildError
from imgconv.files.disk_cache import DiskCache
from imgconv.graph.nodes import Graph
from imgconv.tensor import Tensor, build_graph

X = numpy.random.default_rng(0).random((1, 8, 9, 9), numpy.float32)
LAYERS = 4


def network() -> Graph:
    """Pooling layers, each with a kernel of its own: another window or another factor."""
    x = y = Tensor.input("x", X.shape)
    for number in range(LAYERS):
        y = y.max_pool(3, 1, 1) * float(number + 71)
    return build_graph({"y": y}, [x])


def expected() -> Any:
    """The network in numpy."""
    y = X
    for number in range(LAYERS):
        padded = numpy.pad(y, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-numpy.inf)
        y = numpy.max([padded[:, :, r : r + 9, c : c + 9] for r in range(3) for c in range(3)], axis=0) * (number + 71)
    return y


@pytest.fixture(autouse=True)
def nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No program of another test is taken, and no other process builds."""
    monkeypatch.setattr(program, "PROGRAMS", DiskCache(str(tmp_path / "programs"), 2**24))
    monkeypatch.setattr(program, "_built", OrderedDict())
    monkeypatch.setattr(processes, "_can_start", lambda: False)


class Compiler:
    """The driver's compiler, which refuses programs of more than `most` kernels, and those with `broken` in them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, most: int = 16, broken: str = "none is") -> None:
        self.most, self.broken, self.sources, self._compile = most, broken, list[str](), program.compile_text
        monkeypatch.setattr(program, "compile_text", self)

    def __call__(self, context: Context, part: ProgramSource) -> Program:
        self.sources.append(part.source)
        if part.source.count("__kernel") > self.most or self.broken in part.source:
            raise BuildError(part.name, "", launch=part.kernels[-1].launch, status=-6)
        return self._compile(context, part)


def test_kernels_that_fail_together_are_built_alone(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler(monkeypatch, most=1)
    model = imgconv.load(network(), device)
    numpy.testing.assert_array_equal(model.run({"x": X})["y"], expected())
    kernels = len({launch.source.text for launch in model.plan.launches})
    assert sum(source.count("__kernel") == 1 for source in compiler.sources) == kernels > 1
    monkeypatch.setattr(program, "_built", OrderedDict())
    compiler.sources.clear()
    numpy.testing.assert_array_equal(imgconv.load(network(), device).run({"x": X})["y"], expected())
    assert all(source.count("__kernel") == 1 for source in compiler.sources), "all kernels are not tried together again"
    assert not compiler.sources or quirks_of(device.platform).caches_programs, "the next load finds the programs"


def test_their_binaries_are_saved(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler = Compiler(monkeypatch, most=1)
    imgconv.load(network(), device).save(tmp_path / "m")
    compiler.sources.clear()
    monkeypatch.setattr(program, "_built", OrderedDict())
    numpy.testing.assert_array_equal(imgconv.load(tmp_path / "m", device).run({"x": X})["y"], expected())
    assert compiler.sources == []


def test_a_kernel_that_fails_alone_is_named(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    launches = imgconv.load(network(), device).plan.launches
    launch = next(launch for launch in launches if "73.0f" in launch.source.text)
    Compiler(monkeypatch, broken="73.0f")
    monkeypatch.setattr(program, "_built", OrderedDict())
    monkeypatch.setattr(program, "PROGRAMS", NothingKept("programs", 2**28))
    with pytest.raises(BuildError) as caught:
        imgconv.load(network(), device)
    error = caught.value
    assert (error.launch, error.source) == (repr(launch.name), launch.source.path)
    assert (error.status, error.log) == (-6, "") and str(error).endswith("status -6; its log is empty")


def test_the_status_and_the_log_are_the_drivers(context: Context) -> None:
    with pytest.raises(BuildError) as caught:
        program.build(context, "kernel void broken(global float *x) { x[0] = missing; }", "broken.cl")
    assert caught.value.status == -11 and "missing" in caught.value.log and "status -11" in str(caught.value)


@pytest.mark.parametrize("content", ["other kernels", "no kernel", "empty"])
def test_a_kept_binary_without_the_kernels_is_replaced(
    device: DeviceInfo, context: Context, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str
) -> None:
    if quirks_of(device.platform).caches_programs:
        pytest.skip("the driver itself keeps what it compiled")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(program, "_built", OrderedDict())
    imgconv.load(network(), device)
    folder = program.PROGRAMS.folder()
    entries = {path.name: program.PROGRAMS.read(path.name) or b"" for path in folder.iterdir()}
    text = {"other kernels": "kernel void other(global float *x) { x[0] = 1; }", "no kernel": "float f() { return 1; }"}
    useless = b"" if content == "empty" else program.program_binary(program.build(context, text[content], content))
    for key in entries:
        program.PROGRAMS.write(key, useless)
    monkeypatch.setattr(program, "_built", OrderedDict())
    compiler = Compiler(monkeypatch)
    numpy.testing.assert_array_equal(imgconv.load(network(), device).run({"x": X})["y"], expected())
    assert compiler.sources, "built from source"
    compiler.sources.clear()
    monkeypatch.setattr(program, "_built", OrderedDict())
    imgconv.load(network(), device)
    assert compiler.sources == [], "the entries were replaced"


def test_a_model_is_saved_without_binaries_if_there_are_none(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("imgconv.cl.opencl_device.program_binary", lambda made: b"")
    model = imgconv.load(network(), device)
    with pytest.warns(RuntimeWarning, match=r"no binaries .* compiles at its first load"):
        model.save(tmp_path / "m")
    monkeypatch.undo()
    numpy.testing.assert_array_equal(imgconv.load(tmp_path / "m", device).run({"x": X})["y"], expected())


def test_a_driver_that_refuses_to_give_binaries(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyopencl as cl

    class Refusing:
        def get_info(self, what: Any) -> Any:
            raise cl.LogicError("clGetProgramInfo failed: INVALID_VALUE")

    made = Program("x.cl", Refusing())  # type: ignore[arg-type]
    assert program.program_binary(made) == b""
