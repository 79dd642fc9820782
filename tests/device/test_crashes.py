"""Kernels at which a compiler crashed: what is remembered of them, and what is built and planned then."""

from __future__ import annotations

import json
import os
import signal
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
from support import NothingKept

import imgconv
from imgconv.cl.building import crashes, processes, program
from imgconv.cl.building.crashes import (
    RefusedError, distrusted_kernels, mark_as_being_built, note_crash_suspects, refuse, refused_kernels,
)
from imgconv.cl.building.processes import BuildCrashError, BuildWorker, BuilderPool
from imgconv.cl.building.program_source import BuiltKernel
from imgconv.cl.context import Context
from imgconv.cl.device import DeviceInfo
from imgconv.cl.building.program import Program, ProgramSource
from imgconv.files.disk_cache import DiskCache
from imgconv.files.crash_marks import crash_mark
from imgconv.graph.evaluate import evaluate_graph
from imgconv.graph.nodes import Graph
from imgconv.tensor import Tensor, build_graph

ONE, OTHER = BuiltKernel("k0", "aa", "conv.cl", "'y' (nodes Conv_3)"), BuiltKernel("k1", "bb", "generated", "'z'")
X = numpy.random.default_rng(1).uniform(-1, 1, (1, 8, 12, 12)).astype(numpy.float32)
FACTOR = 0.71875


def network() -> Graph:
    """A convolution, and a generated kernel that alone has the factor."""
    x = Tensor.input("x", X.shape)
    weights = Tensor.constant(numpy.random.default_rng(0).uniform(-1, 1, (8, 8, 3, 3)).astype(numpy.float32))
    return build_graph({"y": x.conv2d(weights, padding=1).max_pool(3, 1, 1) * FACTOR}, [x])


def check(model: imgconv.Model) -> None:
    numpy.testing.assert_allclose(model.run({"x": X})["y"], evaluate_graph(network(), {"x": X})["y"], 0, 1e-5)


@pytest.fixture(autouse=True)
def nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "PROGRAMS", DiskCache(str(tmp_path / "programs"), 2**24))
    monkeypatch.setattr(program, "_built", OrderedDict())


@pytest.fixture
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def end_of_a_process(info: DeviceInfo, kernels: Sequence[BuiltKernel]) -> None:
    """Leaves the mark that a process leaves which ends in a build."""
    with mark_as_being_built(info, kernels):
        (mark,) = crashes.CRASHES.folder().glob("*.mark")
        content = mark.read_bytes()
    mark.write_bytes(content)


# What is remembered


def test_kernels_are_suspects_until_they_are_built(device: DeviceInfo) -> None:
    assert distrusted_kernels(device) == {}
    end_of_a_process(device, [ONE, OTHER])
    assert distrusted_kernels(device) == {"aa": (str(ONE), ""), "bb": (str(OTHER), "")} and not refused_kernels(device)
    crashes.clear_suspicion(device, [ONE])
    assert list(distrusted_kernels(device)) == ["bb"]


def test_two_ends_of_processes_refuse_a_kernel(device: DeviceInfo) -> None:
    """Not if the second one built several: any of them may be it."""
    end_of_a_process(device, [ONE, OTHER])
    distrusted_kernels(device)
    end_of_a_process(device, [ONE, OTHER])
    assert not refused_kernels(device)
    end_of_a_process(device, [ONE])
    with pytest.warns(RuntimeWarning, match=r"fails at conv.cl, launch 'y' \(nodes Conv_3\): two processes ended"):
        assert refused_kernels(device) == {"aa"}
    crashes.clear_suspicion(device, [ONE])
    assert refused_kernels(device) == {"aa"}


def test_drivers_are_told_apart(device: DeviceInfo, quiet: None) -> None:
    other = replace(device, driver_version="another")
    with pytest.raises(RefusedError, match="launch 'y'"):
        refuse(device, ONE, (), "it hangs")
    assert refused_kernels(device) == {"aa"} and not distrusted_kernels(other)


def test_where_nothing_can_be_written(
    device: DeviceInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet: None
) -> None:
    """This process still knows, so that its next plan does without the kernel."""
    (tmp_path / "file").touch()
    monkeypatch.setattr(crashes, "CRASHES", DiskCache(str(tmp_path / "file"), 1))
    with pytest.raises(RefusedError):
        refuse(device, ONE, (), "it hangs")
    assert refused_kernels(device) == {"aa"}


@pytest.mark.parametrize("content", [b"x", b"[]", b"{}", b'{"driver": 1, "kernels": 2}', b"\xff"])
def test_marks_of_somebody_else(device: DeviceInfo, content: bytes) -> None:
    (crashes.CRASHES.folder() / "other.mark").write_bytes(content)
    assert distrusted_kernels(device) == {}


def test_a_build_that_is_under_way_is_no_crash(device: DeviceInfo) -> None:
    with mark_as_being_built(device, [ONE]):
        assert distrusted_kernels(device) == {}
    with crash_mark(crashes.CRASHES, json.dumps({"driver": device.key, "kernels": {"aa": "it"}}).encode()):
        assert distrusted_kernels(device) == {}


# What is built


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """The options of builds in processes of their own; the process ends at the factor unless it does not optimise."""
    made: list[Sequence[str]] = []
    build_in_own_process = BuilderPool.build_in_own_process

    def crashing(self: BuilderPool, source: str, options: Sequence[str]) -> bytes | None:
        made.append(options)
        if str(FACTOR) in source and crashes.WITHOUT_OPTIMISATION not in options:
            raise BuildCrashError("the process that built it ended with status -11")
        return build_in_own_process(self, source, options)

    monkeypatch.setattr(BuilderPool, "build_in_own_process", crashing)
    return made


def test_what_no_plan_avoids_is_built_without_optimisation(
    device: DeviceInfo, apart: list[Sequence[str]], quiet: None
) -> None:
    note_crash_suspects(device, [ONE])  # a driver whose compiler has crashed builds nothing in this process
    model = imgconv.load(network(), device)
    check(model)
    assert sum(crashes.WITHOUT_OPTIMISATION in options for options in apart) == 1
    assert any(launch.source.key in refused_kernels(device) for launch in model.plan.launches)


def test_a_worker_that_ends_ends_nothing_else(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, quiet: None
) -> None:
    """The kernel at which a worker crashes is found, and no process of the user's is risked for it."""
    launches = imgconv.load(network(), device).plan.launches
    convolution = next(launch for launch in launches if launch.specialisation).source
    build = BuildWorker.build

    def crashing(self: BuildWorker, source: str, options: Sequence[str]) -> bytes | None:
        if convolution.text in source:
            os.kill(self._process.pid, signal.SIGKILL)
        return build(self, source, options)

    monkeypatch.setattr(program, "_built", OrderedDict())
    monkeypatch.setattr(program, "PROGRAMS", NothingKept("programs", 2**28))
    monkeypatch.setattr(program, "compile_text", None)
    monkeypatch.setattr(processes, "parallel_builds", lambda platform: 0)
    monkeypatch.setattr("imgconv.cl.opencl_device.build_workers_for", lambda context, kernels: 1)
    # A second program would wait for the only builder, which has ended.
    monkeypatch.setattr("imgconv.cl.opencl_device.best_program_count", lambda context, kernels: 1)
    monkeypatch.setattr(BuildWorker, "build", crashing)
    model = imgconv.load(network(), device)
    check(model)
    assert refused_kernels(device) == {convolution.key}
    assert convolution.text not in {launch.source.text for launch in model.plan.launches}


def test_a_plan_takes_another_specialisation(device: DeviceInfo, quiet: None) -> None:
    first = imgconv.load(network(), device)
    convolution = next(launch for launch in first.plan.launches if launch.specialisation)
    with pytest.raises(RefusedError):
        refuse(device, BuiltKernel("k", convolution.source.key, "conv.cl"), (), "it hangs")
    second = imgconv.load(network(), device)
    assert convolution.source.key not in {launch.source.key for launch in second.plan.launches}
    assert [launch.name for launch in first.plan.launches] == [launch.name for launch in second.plan.launches]
    check(second)


def test_a_saved_plan_with_the_kernel_is_not_used(device: DeviceInfo, tmp_path: Path, quiet: None) -> None:
    model = imgconv.load(network(), device)
    model.save(tmp_path / "m")
    convolution = next(launch for launch in model.plan.launches if launch.specialisation)
    with pytest.raises(RefusedError):
        refuse(device, BuiltKernel("k", convolution.source.key, "conv.cl"), (), "it hangs")
    again = imgconv.load(tmp_path / "m", device)
    assert convolution.source.key not in {launch.source.key for launch in again.plan.launches}
    check(again)


def test_rows_are_computed_by_several_launches_instead(device: DeviceInfo, quiet: None) -> None:
    x = Tensor.input("x", X.shape)
    graph = build_graph({"y": x.softmax(3)}, [x])
    first = imgconv.load(graph, device)
    rows = next(launch for launch in first.plan.launches if len(launch.values) > 1)
    with pytest.raises(RefusedError):
        refuse(device, BuiltKernel("k", rows.source.key, "generated"), (), "it hangs")
    second = imgconv.load(graph, device)
    assert len(second.plan.launches) > len(first.plan.launches)
    numpy.testing.assert_allclose(second.run({"x": X})["y"], first.run({"x": X})["y"], 1e-5)


def test_a_program_of_no_plan(context: Context, apart: list[Sequence[str]], quiet: None) -> None:
    source = f"kernel void store(global float *x) {{ x[0] = {FACTOR}f; }}"
    note_crash_suspects(context.info, [ONE])
    with pytest.raises(RefusedError, match=r"store\.cl"):
        program.build(context, source, "store.cl")
    assert isinstance(program.build(context, source, "store.cl"), Program)


def test_a_build_apart_is_bounded(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    def waiting(self: BuildWorker, source: str, options: Sequence[str]) -> bytes | None:
        os.kill(self._process.pid, signal.SIGSTOP)
        return build(self, source, options)

    build = BuildWorker.build
    monkeypatch.setattr(BuildWorker, "build", waiting)
    monkeypatch.setattr(processes, "APART_SECONDS", 0.5)
    with pytest.raises(BuildCrashError, match=r"not built within 0\.5 s"):
        context.builders.build_in_own_process("kernel void a(global float *x) { x[0] = 1; }", ())


def test_one_of_a_plan_is_marked_by_its_text(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks are there while the driver builds, and only then."""
    seen: list[dict[str, str]] = []
    def building(*arguments: object, **options: object) -> object:
        for path in crashes.CRASHES.folder().glob("*.mark"):
            seen.append(json.loads(path.read_bytes())["kernels"])
        return build(*arguments, **options)

    build = program.cl.Program.build
    monkeypatch.setattr(program.cl.Program, "build", building)
    part = ProgramSource("kernel void k0(global float *x) { x[0] = 4; }", "conv.cl", None, (ONE,))
    program.build_all(context, [part])
    program.build_all(context, [part])
    assert seen == [{"aa": str(ONE)}]
    assert not list(crashes.CRASHES.folder().glob("*.mark"))
