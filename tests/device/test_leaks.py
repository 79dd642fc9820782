"""Loading and running again and again takes no memory that does not come back."""

from __future__ import annotations

import gc
import json
import linecache
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy
import pytest
from support import HANG_TIMEOUT, wait_until

import imgconv
from benchmarks import leaks
from imgconv.cl.building import program
from imgconv.cl.device import DeviceInfo, open_device
from imgconv.graph.nodes import Graph
from imgconv.tensor import Tensor, build_graph, convolution

SHAPE = (1, 8, 128, 128)  # half a megabyte: a lost one is seen above what allocators keep
LOADS, RUNS = 30, 400
MANY_RUNS = 1000
NOISE = 4 << 20  # of the process: pages that allocators keep come and go

ROOT = Path(leaks.__file__).parents[1]

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def network() -> Graph:
    x = Tensor.input("x", SHAPE)
    weights = numpy.random.default_rng(0).normal(size=(8, 8, 3, 3)).astype(numpy.float32)
    return build_graph({"y": convolution(x, Tensor.constant(weights), [1, 1], [1] * 4, [1, 1]).relu()}, [x], "network")


def drawn() -> dict[str, Any]:
    return {"x": numpy.ones(SHAPE, numpy.float32)}


def process_bytes() -> int:
    gc.collect()
    return leaks.resident_bytes()


def assert_no_growth(device: DeviceInfo, repeat: int, work: Any) -> None:
    """Fails where the second half of the calls keeps a quarter of SHAPE's bytes each."""
    for _ in range(repeat // 2):
        work()
    early = process_bytes()
    for _ in range(repeat // 2):
        work()
    growth = process_bytes() - early
    assert growth < NOISE, f"{growth} bytes in {repeat // 2} calls on {device.name}"


def test_loads(device: DeviceInfo) -> None:
    graph, inputs = network(), drawn()

    def load() -> None:
        model = imgconv.load(graph, device=device)
        model.run(inputs)
        model.submit(inputs)

    assert_no_growth(device, LOADS, load)


def test_loads_share_programs(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Intel's driver keeps 25 KB of each program that was ever built, so one that was built is not built again."""
    graph, inputs = network(), drawn()
    expected = imgconv.load(graph, device=device).run(inputs)["y"]
    built: list[str] = []
    build = program._load_or_compile

    def build_and_note(*arguments: Any) -> Any:
        built.append(arguments[1].source)
        return build(*arguments)

    monkeypatch.setattr(program, "_load_or_compile", build_and_note)
    numpy.testing.assert_array_equal(imgconv.load(graph, device=device).run(inputs)["y"], expected)
    assert built == []
    monkeypatch.setattr(program, "_built", type(program._built)())
    monkeypatch.setattr(program, "PROGRAMS_KEPT", 2)
    for number in range(5):
        kernel = f"kernel void NAME(global float *x) {{ x[0] = {number}; }}"
        program.build_all(open_device(device), [program.ProgramSource(kernel.replace("NAME", "k"), "k.cl")])
    assert len(built) == 5 and len(program._built) == 2
    program.build_all(
        open_device(device), [program.ProgramSource(built[-1], "k.cl"), program.ProgramSource(built[0], "k.cl")]
    )
    assert built[5:] == built[:1]


def test_loads_leave_no_text(device: DeviceInfo) -> None:
    """pyopencl enters a text of each kernel into Python's cache of source lines."""
    before = set(linecache.cache)
    imgconv.load(network(), device=device).run(drawn())
    assert not [name for name in set(linecache.cache) - before if "pyopencl" in name]


def test_mapped_frames(device: DeviceInfo) -> None:
    model = imgconv.load(network(), device=device)

    def work() -> None:
        mapped = model.mapped()
        mapped.inputs["x"][...] = 1
        mapped.run()

    assert_no_growth(device, LOADS, work)


def test_objects(device: DeviceInfo) -> None:
    """A load leaves none of our objects behind."""
    graph, inputs = network(), drawn()

    def load() -> None:
        model = imgconv.load(graph, device=device)
        model.submit(inputs).result()
        model.run(inputs)
        model.mapped().run()

    def count() -> int:
        gc.collect()
        return sum(str(type(each).__module__).startswith("imgconv.") for each in gc.get_objects())

    load()
    time.sleep(0.1)  # the thread of the frames lets go of the last one
    before = count()
    load()
    wait_until(lambda: count() <= before, "objects are left behind")


def in_a_new_process(*arguments: str) -> str:
    """Returns Python's output, with malloc for its objects too: the memory from malloc is then known to the byte."""
    environment = os.environ | {"PYTHONMALLOC": "malloc"}
    command = [sys.executable, "-W", "ignore", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=HANG_TIMEOUT, cwd=ROOT, env=environment)
    return done.stdout


def test_many_launches(device: DeviceInfo) -> None:
    """Runs of many small launches, in every way, lose less than leaks.LIMIT bytes each."""
    arguments = ["-m", "benchmarks.leaks", "--runs", str(MANY_RUNS), "--device", str(device.index), "--json", "-"]
    rows = json.loads(in_a_new_process(*arguments))["rows"]
    assert {row["way"] for row in rows} == set(leaks.WAYS)
    for row in rows:
        assert row["least_bytes_a_run"] < leaks.LIMIT, f"{row} on {device.name}"


@pytest.mark.parametrize("lost", [f"libc.malloc({leaks.LIMIT})", f"kept.append(bytes({leaks.LIMIT}))", "None"])
def test_a_small_leak_is_seen(lost: str) -> None:
    """leaks.LIMIT bytes a run, of a driver's or of our own."""
    code = f"""
import ctypes
from benchmarks import leaks
libc, kept = ctypes.CDLL(None), []
libc.malloc.restype = ctypes.c_void_p
print(leaks.measure_growth(lambda: {lost}, {10 * MANY_RUNS}).least)"""
    assert (float(in_a_new_process("-c", code)) >= leaks.LIMIT) == (lost != "None")


def test_runs(device: DeviceInfo) -> None:
    model, inputs = imgconv.load(network(), device=device), drawn()
    assert_no_growth(device, RUNS, lambda: model.run(inputs))


def test_frames(device: DeviceInfo) -> None:
    model, inputs = imgconv.load(network(), device=device), drawn()
    assert_no_growth(device, RUNS, lambda: model.submit(inputs))
