"""Drivers that allow fewer work items in a group for a kernel than for the device: the plan has smaller groups."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy
import pyopencl as cl
import pytest
from operator_cases import Case, ints, model_of
from snapshots import DEVICES, LARGE, NETWORKS, graph_of
from support import assert_close, run_oracle
from test_recurrent import case as recurrent

import imgconv
from imgconv.cl.building import program
from imgconv.cl.context import Context
from imgconv.cl.device import DeviceInfo
from imgconv.cl.quirks import QUIRKS, quirks_of
from imgconv.compiling.lower import lower
from imgconv.config import Config, Float16
from imgconv.errors import ResourceError
from imgconv.onnx_import import import_onnx
from imgconv.cl.opencl_device import OpenCLDevice
from imgconv.loading.replanning import replan_until_kernels_work
from imgconv.runtime.launches import WorkGroupError
from imgconv.tensor import Tensor, build_graph

WIDE = numpy.random.default_rng(2).random((1, 8, 96, 96), numpy.float32)
# Kernels with large work groups: recurrent.cl, order.cl, rows, moments, a reduction, conv.cl, matmul.cl.
CASES = (
    Case("TopK", 11, ((2, 3000), ints(30)), {}, 2),
    Case("LpNormalization", 1, ((6, 6000),), {"axis": 1, "p": 2}),
    Case("Softmax", 13, ((4, 8000),), {"axis": 1}),
    Case("InstanceNormalization", 6, (WIDE, (8,), (8,)), {}, tolerance=1e-5),
    Case("ReduceSum", 13, ((2, 9000), ints(1)), {}, tolerance=1e-5),
    Case("Conv", 11, ((1, 16, 40, 40), (24, 16, 3, 3)), {}, tolerance=1e-5),
    Case("MatMul", 13, ((3, 5, 600), (3, 600, 20)), {}, tolerance=1e-5),
    recurrent("LSTM", states=True),
)


def largest(plan: Any) -> int:
    return max(prod(launch.source.local_size or ()) for launch in plan.launches)


@pytest.fixture
def phone(device: DeviceInfo) -> DeviceInfo:
    """The device as a phone's GPU, for which work groups have a size."""
    return replace(device, kind="gpu", compute_units=2, max_work_group_size=1024)


@pytest.mark.parametrize("allowed", [128, 96, 32])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_plan_has_the_groups_that_kernels_allow(
    phone: DeviceInfo, case: Case, allowed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, feeds = model_of(case)
    monkeypatch.setattr(OpenCLDevice, "max_work_group_size", lambda self, launch: allowed)
    loaded = imgconv.load(import_onnx(model, shapes={name: array.shape for name, array in feeds.items()}), phone)
    assert largest(loaded.plan) <= allowed
    assert_close(loaded.run(feeds), run_oracle(model, feeds), case.tolerance)


def test_the_cases_have_large_groups_otherwise(phone: DeviceInfo) -> None:
    found = {}
    for case in CASES:
        model, feeds = model_of(case)
        graph = import_onnx(model, shapes={name: array.shape for name, array in feeds.items()})
        found[str(case)] = largest(imgconv.load(graph, phone).plan)
    assert min(found.values()) > 32 and max(found.values()) == 256, found


@pytest.mark.parametrize(("kind", "most", "float16"), [("large gpu", 64, 0), ("small gpu", 32, 2)])
@pytest.mark.parametrize("network", [name for name in NETWORKS if name not in LARGE])
def test_networks_are_planned_for_small_groups(network: str, kind: str, most: int, float16: Float16) -> None:
    plan = lower(graph_of(network, False), Config(float16), replace(DEVICES[kind], max_work_group=most))
    assert largest(plan) <= most


def test_no_kernel_is_small_enough(phone: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OpenCLDevice, "max_work_group_size", lambda self, launch: 8)
    model, feeds = model_of(CASES[0])
    with pytest.raises(ResourceError, match=r"tensor '.+': .*order.cl has no kernel with work groups of at most 8"):
        imgconv.load(import_onnx(model, shapes={name: array.shape for name, array in feeds.items()}), phone)


def test_the_driver_is_asked(context: Context) -> None:
    source = "__attribute__((reqd_work_group_size(4, 1, 1))) kernel void a(global float *x) { x[0] = 1; }"
    made = program.new_kernel(program.build(context, source, "a.cl"), "a")
    assert 4 <= program.max_work_group_size(context, made) <= context.info.max_work_group_size


def test_an_understated_size_is_not_used(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    platform = context.info.platform
    made = program.new_kernel(program.build(context, "kernel void a(global float *x) { x[0] = 1; }", "a.cl"), "a")
    monkeypatch.setattr(cl.Kernel, "get_work_group_info", lambda *_: 2)
    for understates, expected in ((False, 2), (True, context.info.max_work_group_size)):
        monkeypatch.setitem(QUIRKS, platform, replace(quirks_of(platform), understates_groups=understates))
        assert program.max_work_group_size(context, made) == expected


def test_a_saved_plan_is_not_used(phone: DeviceInfo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    x = Tensor.input("x", WIDE.shape)
    graph = build_graph({"y": x.softmax(3).sum([2, 3])}, [x])
    model = imgconv.load(graph, phone)
    model.save(tmp_path / "m")
    monkeypatch.setattr(OpenCLDevice, "max_work_group_size", lambda self, launch: 16)
    again = imgconv.load(tmp_path / "m", phone)
    assert largest(model.plan) > 16 >= largest(again.plan)
    numpy.testing.assert_allclose(again.run({"x": WIDE})["y"], model.run({"x": WIDE})["y"], 1e-5)


def test_the_kernel_that_allows_the_fewest_counts(
    context: Context, phone: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One further plan is made, not one for each kernel."""
    asked: list[int] = []

    def counted(info: DeviceInfo, make: Any) -> Any:
        return replan_until_kernels_work(info, lambda each: (asked.append(each.max_work_group_size), make(each))[1])

    monkeypatch.setattr("imgconv.loading.compiled.replan_until_kernels_work", counted)
    limits = iter([100, 50, 70])
    monkeypatch.setattr(OpenCLDevice, "max_work_group_size", lambda self, launch: next(limits, 64))
    imgconv.load(graph_of("attention", False), phone)
    assert asked == [1024, 50]


def test_an_error_that_is_no_smaller_ends_the_load(phone: DeviceInfo) -> None:
    def failing(info: DeviceInfo) -> None:
        raise WorkGroupError("too many", "y", info.max_work_group_size)

    with pytest.raises(WorkGroupError, match="tensor 'y': too many"):
        replan_until_kernels_work(phone, failing)
