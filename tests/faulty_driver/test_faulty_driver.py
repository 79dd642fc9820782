"""The driver that misbehaves does what its faults say, and nothing else: seen through pyopencl and imgconv."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from faulty_driver import ROOT, built, met, real_driver, run_python


def used_with(faults: Sequence[str], cache: Path, real: str = "intel") -> list[dict[str, Any]]:
    """The steps of use.py with some faults, one after the other in one process."""
    lines = f"import json\nfrom faulty_driver.use import used\nprint(json.dumps([used(each) for each in {faults!r}]))"
    made: list[dict[str, Any]] = ran("", cache, real, lines)
    return made


def ran(faults: str, cache: Path, real: str = "intel", lines: str = "") -> Any:
    """Returns what lines of Python print in a process with the faulty driver."""
    done = run_python(lines, faults, cache, real)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


# What is different with each fault.
DIFFERENCES: dict[str, dict[str, Any]] = {
    "fail=clCreateContext:-2": {"start": -2},
    "fail=clCreateCommandQueue:-6;fail=clCreateCommandQueueWithProperties:-6": {"start": -6},
    "fail=clCreateBuffer": {"start": -5},
    "fail=clEnqueueNDRangeKernel:-4@3-": {"run": -4, "run 256 items": -4},
    "fail=clFinish:-36@2-": {"run 256 items": -36},
    "fail=clEnqueueReadBuffer:-14": {"run": -14, "run 256 items": -14},
    "fail=clBuildProgram:-6": {"start": -6},
    "fail=execution:-36@3": {"run": -14, "run 256 items": -14},
    "late=1": {"run": -4, "run 256 items": -4},
    "work_group_size=128": {"run 256 items": -54, "work group size": 128},
    "work_group_size=128:native_": {"run 256 items": -54, "work group size": 128},
    "work_group_size=128:something else": {},
    "build_fail=1": {"start": -11},
    "build_fail=1:native_exp:-6": {"start": -6},
    "build_fail=2": {},
    "build_fail=0:something else": {},
    "binary=refuse": {"binary": -42},
    "binary=empty": {"binary has bytes": False},
    "binary=unbuilt": {"binary": -11},
    "binary=kernelless": {"binary": -46},
    "build_crash=something else;build_hang=something else;stall=clSetKernelArgSVMPointer": {},
}


@pytest.mark.parametrize("real", ("intel", "pocl"))
def test_faults(real: str, tmp_path: Path) -> None:
    without, *steps = used_with(["", *DIFFERENCES], tmp_path, real)
    assert set(without) == {"run", "run 256 items", "work group size", "binary has bytes"}
    assert isinstance(without["run"], list) and without["binary has bytes"] and without["work group size"] >= 256
    for (faults, changed), found in zip(DIFFERENCES.items(), steps, strict=True):
        assert found == (changed if "start" in changed else without | changed), faults
    names = {line.split()[0].rstrip(":") for line in met(tmp_path)}
    assert names == {"fail", "late", "work_group_size", "build_fail", "binary"}


def test_results_are_changed(tmp_path: Path) -> None:
    """exp(0.3) to an item of 0 in each of four launches. The seventh and eighth are those of the other kernel."""
    faults = ["", "lose=2", "swap=* 1=>* 2", "native=coarse"]
    exact, lost, swapped, coarse = (steps["run"][0] for steps in used_with(faults, tmp_path))
    assert exact == pytest.approx(4 * 1.34985881, rel=1e-3)
    assert (lost, swapped) == (exact / 2, exact * 2)
    assert coarse != exact and coarse == pytest.approx(exact, rel=2**-11)
    assert {line.split()[0] for line in met(tmp_path)} == {"lose", "swap", "native"}


def test_a_build_ends_the_process(tmp_path: Path) -> None:
    done = run_python("from faulty_driver.use import used\nused('build_crash=native_exp')", "", tmp_path)
    assert done.returncode == -signal.SIGSEGV and met(tmp_path) == ["build_crash native_exp"]


BLOCKED = """
import os, signal, threading, time
from faulty_driver.use import used
signal.signal(signal.SIGALRM, lambda *_: None)
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGALRM)).start()
begun = time.monotonic()
used(FAULT)
print(time.monotonic() - begun)
"""


@pytest.mark.parametrize("fault", ("stall=clFinish:1.2@1", "build_hang=native_exp:1.2"))
def test_a_call_blocks_whatever_signals_come(fault: str, tmp_path: Path) -> None:
    assert ran("", tmp_path, lines=BLOCKED.replace("FAULT", repr(fault))) > 1.2
    assert met(tmp_path) == [fault.replace("=", " ") + (", call 1" if "@" in fault else "")]


MODEL = '''
import dataclasses, json
import imgconv
from graphs import const, numbers
from imgconv.loading.device_target import target_of
from imgconv.tensor import Tensor, build_graph
x = Tensor.input("x", (1, 3, 12, 10))
y = x
for number in range(4):
    y = y.conv2d(const(5, y.shape[1], 3, 3, seed=number), const(5), padding=1).relu()
graph = build_graph({"y": y, "mean": y.mean((2, 3)).softmax(1)}, [x])
'''
RUN = MODEL + '''
model = imgconv.load(graph)
outputs = model.run({"x": numbers(1, 3, 12, 10)})
found = {"bits": {name: array.tobytes().hex() for name, array in outputs.items()}, "plan": str(model.plan)}
found["target"] = dataclasses.asdict(target_of(model.device))
print(json.dumps(found | dataclasses.asdict(model.device)))
'''


def test_without_faults_it_is_the_real_driver(tmp_path: Path) -> None:
    """A process with the real driver alone finds the same device, plans the same and computes the same bits."""
    vendors = tmp_path / "vendors"
    vendors.mkdir()
    alone = f"import os\n(os.environ.pop('FAULTY_DRIVER'), os.environ.update(OCL_ICD_VENDORS={str(vendors)!r}))\n"
    (vendors / "real.icd").write_text(real_driver("intel"))
    assert ran("", tmp_path / "a", lines=RUN) == ran("", tmp_path / "b", lines=alone + RUN)
    assert not met(tmp_path / "a")


LISTED = """
import dataclasses, json
from imgconv.cl.device import list_devices
print(json.dumps([dataclasses.asdict(device) for device in list_devices()]))
"""


@pytest.mark.parametrize("real", ("intel", "pocl"))
def test_an_adreno_is_listed(real: str, tmp_path: Path) -> None:
    """Its properties are those of adreno_640.json, except for limits of the real driver below it."""
    described = json.loads((ROOT / "imgconv" / "loading" / "devices" / "adreno_640.json").read_text())
    (found,) = ran("adreno;recordable;perf_hint", tmp_path, real, LISTED)
    names = described.keys() - {"sources", "byte_images", "fp16_arithmetic", "extensions"}
    names -= {"max_image_width", "max_image_height", "image_row_alignment", "image_base_alignment"}
    assert {name: found[name] for name in names} == {name: described[name] for name in names}
    assert set(found["extensions"]) >= {"cl_qcom_recordable_queues", "cl_qcom_perf_hint"}
    (plain,) = ran("adreno", tmp_path, real, LISTED)
    assert not [name for name in plain["extensions"] if "qcom" in name or "command_buffer" in name]


def test_an_adreno_is_planned_for_as_a_phone(tmp_path: Path) -> None:
    """With images and 32 KB of local memory, where the same driver without the fault is a CPU with linear memory."""
    phone, cpu = (ran(faults, tmp_path, lines=RUN)["target"] for faults in ("adreno", ""))
    assert (phone["kind"], phone["linear"], phone["local_memory_bytes"]) == ("gpu", None, 1 << 15)
    assert cpu["kind"] == "cpu" and cpu["linear"]


HINTED = MODEL + '''
from imgconv.cl.device import open_device, select_device
from imgconv.cl.opencl_library import new_context
context = open_device(select_device())
print(json.dumps(new_context(context.handle.devices[0], [(0x40C2, 0x40C3)]) != 0))
'''


def test_a_refused_hint(tmp_path: Path) -> None:
    assert ran("adreno;perf_hint", tmp_path, lines=HINTED) is True
    assert ran("adreno;perf_hint;refuse_hint", tmp_path, lines=HINTED) is False
    assert "refuse_hint" in met(tmp_path)


def test_the_library_is_built_once() -> None:
    assert built() == built() and (built().parent / "faulty.icd").read_text().strip() == str(built())


HANGS = """
import json, threading
import pyopencl as cl
from faulty_driver.use import TEXT
context = cl.Context(cl.get_platforms()[0].get_devices())
queue = cl.CommandQueue(context)
kernel = cl.Kernel(cl.Program(context, TEXT).build(), "add")
memory = cl.Buffer(context, 0, 1024)
kernel.set_args(memory)
events = [cl.enqueue_nd_range_kernel(queue, kernel, (8,), (8,)) for _ in range(2)]
queue.flush()
waiting = threading.Thread(target=queue.finish, daemon=True)
waiting.start()
waiting.join(0.5)
print(json.dumps([waiting.is_alive(), [event.command_execution_status for event in events]]))
"""


def test_a_launch_that_never_ends(tmp_path: Path) -> None:
    assert ran("stall=execution@2", tmp_path, lines=HANGS) == [True, [0, 1]]
    assert ran("", tmp_path, lines=HANGS) == [False, [0, 0]]
