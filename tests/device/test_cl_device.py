"""imgconv.cl.device: choosing a device, finding drivers, opening one."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy
import pyopencl as cl
import pytest
from support import HANG_TIMEOUT

import imgconv
from imgconv.cl import device as device_module
from imgconv.cl import drivers as drivers_module
from imgconv.cl.context import Context
from imgconv.cl.device import DeviceInfo, default_device, no_driver_message, open_device, select_device
from imgconv.cl.opencl_library import new_context
from imgconv.cl.priority import context_hints
from imgconv.errors import DeviceError
from imgconv.tensor import Tensor, build_graph

# Choosing a device


def fabricated(index: int, kind: str, name: str, **changes: object) -> DeviceInfo:
    values = {field.name: 0 for field in dataclasses.fields(DeviceInfo)}
    texts = {"platform": "Fabric", "vendor": "", "driver_version": "1", "opencl_version": "", "opencl_c_version": ""}
    lists = {"max_work_item_sizes": (), "extensions": (), "float_images": True}
    return DeviceInfo(**{**values, **texts, **lists, "index": index, "kind": kind, "name": name, **changes})  # type: ignore[arg-type]


CPU = fabricated(0, "cpu", "Slow Core")
GPU = fabricated(1, "gpu", "QUALCOMM Adreno(TM)", platform="QUALCOMM", opencl_c_version="OpenCL C 2.0 Adreno(TM) 640")
OTHER_GPU = fabricated(2, "gpu", "Mali-G615", platform="ARM Platform")
THREE = (CPU, GPU, OTHER_GPU)


def test_default_is_the_first_gpu() -> None:
    assert default_device(THREE) is GPU
    assert default_device((OTHER_GPU, GPU, CPU)) is GPU
    assert default_device((CPU,)) is CPU
    assert select_device(None, THREE) is GPU


def test_default_has_float_images() -> None:
    assert default_device((CPU, dataclasses.replace(GPU, float_images=False))) is CPU


@pytest.mark.parametrize(
    ("choice", "chosen"),
    [
        (0, CPU),
        (2, OTHER_GPU),
        ("1", GPU),
        (" 2 ", OTHER_GPU),
        ("mali", OTHER_GPU),
        ("SLOW", CPU),
        ("qualcomm", GPU),
        ("640", None),
    ],
)
def test_select_by_index_or_name(choice: str | int, chosen: DeviceInfo | None) -> None:
    if chosen is None:
        with pytest.raises(DeviceError):
            select_device(choice, THREE)
    else:
        assert select_device(choice, THREE) is chosen


def test_select_tells_adrenos_apart() -> None:
    newer = dataclasses.replace(GPU, index=3, opencl_c_version="OpenCL C 3.0 Adreno(TM) 740")
    assert select_device("adreno(tm) 740", (*THREE, newer)) is newer
    assert newer.key != GPU.key


@pytest.mark.parametrize("choice", ["nvidia", 3, -1, "7"])
def test_unknown_choice_lists_every_device(choice: str | int) -> None:
    with pytest.raises(DeviceError) as caught:
        select_device(choice, THREE)
    message = str(caught.value)
    assert "no OpenCL device fits" in message
    assert repr(choice) in message
    assert all(str(device) in message for device in THREE)


def test_ambiguous_choice_lists_what_fits() -> None:
    with pytest.raises(DeviceError) as caught:
        select_device("ar", (CPU, OTHER_GPU, dataclasses.replace(OTHER_GPU, index=5)))
    message = str(caught.value)
    assert "more than one" in message
    assert "[2]" in message
    assert "[5]" in message
    assert "Slow Core" not in message


def test_no_device_says_what_to_install() -> None:
    for choice in (None, 0, "gpu"):
        with pytest.raises(DeviceError, match="no OpenCL driver found"):
            select_device(choice, ())


@pytest.mark.parametrize(
    ("system", "machine", "android", "parts"),
    [
        ("linux", "x86_64", False, ["pip install intel-opencl-rt intel-cmplr-lib-rt", "pocl-opencl-icd"]),
        ("linux", "aarch64", False, ["vendor's libOpenCL", "pocl-opencl-icd"]),
        ("linux", "aarch64", True, ["Termux", "LD_LIBRARY_PATH=/vendor/lib64", "pkg install ocl-icd"]),
        ("android", "aarch64", True, ["Termux", "LD_LIBRARY_PATH=/vendor/lib64"]),
        ("darwin", "arm64", False, ["macOS", "pocl"]),
        ("win32", "AMD64", False, ["vendor's driver"]),
    ],
)
def test_advice_fits_the_machine(system: str, machine: str, android: bool, parts: list[str]) -> None:
    message = no_driver_message(system, machine, android)
    assert system in message
    assert all(part in message for part in parts)
    if machine == "aarch64":
        assert "intel" not in message


# Finding drivers


def run_python(code: str, **environment: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name not in drivers_module.LOADER_VARIABLES}
    kept["PYTHONPATH"] = os.pathsep.join([str(Path(device_module.__file__).parents[2]), kept.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=HANG_TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


LIST = """
import json, os
from imgconv.cl.device import list_devices
first = [device.platform for device in list_devices()]
assert first == [device.platform for device in list_devices()]
assert "OCL_ICD_VENDORS" not in os.environ
print(json.dumps(first))
"""


def pip_driver_installed() -> bool:
    try:
        return bool(metadata.files("intel-opencl-rt"))
    except metadata.PackageNotFoundError:
        return False


@pytest.mark.skipif(not pip_driver_installed(), reason="intel-opencl-rt is not installed here")
def test_finds_the_driver_that_pip_installed_beside_the_system_ones() -> None:
    found = json.loads(run_python(LIST))
    assert "Intel(R) OpenCL" in found
    if Path("/etc/OpenCL/vendors/pocl.icd").exists():
        assert "Portable Computing Language" in found


@pytest.mark.skipif(not pip_driver_installed(), reason="intel-opencl-rt is not installed here")
def test_a_driver_that_the_environment_adds_hides_no_other(tmp_path: Path) -> None:
    """Intel's oneAPI sets OCL_ICD_FILENAMES for its own driver."""
    found = json.loads(run_python(LIST, OCL_ICD_FILENAMES=str(tmp_path / "libother.so")))
    assert "Intel(R) OpenCL" in found


def test_threads_that_look_for_drivers_at_once() -> None:
    at_once = """
import os
from concurrent.futures import ThreadPoolExecutor
from imgconv.cl import device, drivers
drivers.unregistered_drivers = lambda: ["libabsent.so.1"]
with ThreadPoolExecutor(8) as pool:
    found = [*pool.map(lambda _: device.list_devices(), range(24))]
assert all(each == found[0] for each in found), found
assert "OCL_ICD_VENDORS" not in os.environ
"""
    run_python(at_once)


def test_uses_what_is_there_after_pyopencl_was_used() -> None:
    used_before = """
import pyopencl
def has_devices(platform):
    try:
        return bool(platform.get_devices())
    except pyopencl.Error:
        return False
try:
    before = sorted(platform.name for platform in pyopencl.get_platforms() if has_devices(platform))
except pyopencl.Error:
    before = []
from imgconv.cl.device import list_devices
assert sorted({device.platform for device in list_devices()}) == before, before
"""
    run_python(used_before)


def test_respects_the_loader_variables_and_reports_no_driver(tmp_path: Path) -> None:
    nothing_there = """
import os
from imgconv.cl.device import list_devices, select_device
from imgconv.errors import DeviceError
chosen = os.environ["OCL_ICD_VENDORS"]
assert list_devices() == ()
assert os.environ["OCL_ICD_VENDORS"] == chosen
try:
    select_device()
except DeviceError as error:
    print(error)
"""
    assert "no OpenCL driver found" in run_python(nothing_there, OCL_ICD_VENDORS=str(tmp_path))


def test_registered_drivers_leaves_out_paths_without_a_file(tmp_path: Path) -> None:
    library = tmp_path / "libreal.so"
    library.touch()
    lines = {
        "a": f"{library}\n",
        "b": "/opt/placeholder/libintelocl.so",
        "c": "libnamed.so.1",
        "d": "libnamed.so.1\n",
        "e": "",
    }
    for name, line in lines.items():
        (tmp_path / f"{name}.icd").write_text(line)
    (tmp_path / "bytes.icd").write_bytes(b"/opt/\xff.so")
    (tmp_path / "folder.icd").mkdir()
    assert drivers_module.registered_drivers([tmp_path, tmp_path / "absent"]) == [str(library), "libnamed.so.1"]


def test_loader_variable_is_set_for_the_call_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in drivers_module.LOADER_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(drivers_module, "registered_drivers", lambda folders: ["libold.so"])
    monkeypatch.setattr(drivers_module, "unregistered_drivers", lambda: ["/here/libold.so", "/here/libnew.so"])
    with drivers_module.make_drivers_visible():
        folder = Path(os.environ["OCL_ICD_VENDORS"])
        assert sorted(file.read_text() for file in folder.glob("*.icd")) == ["/here/libnew.so\n", "libold.so\n"]
    assert "OCL_ICD_VENDORS" not in os.environ
    assert not folder.exists()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="drivers register themselves elsewhere")
def test_finds_a_driver_that_no_file_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drivers_module, "NVIDIA_DRIVER", "libabsent.so.1")
    assert "libabsent.so.1" not in drivers_module.unregistered_drivers()
    monkeypatch.setattr(drivers_module, "NVIDIA_DRIVER", "libc.so.6")
    assert "libc.so.6" in drivers_module.unregistered_drivers()


def test_what_became_of_each_driver(tmp_path: Path) -> None:
    """A folder of drivers: one without a file, one that is no driver, and those that are not looked for."""
    (tmp_path / "a.icd").write_text("/opt/placeholder/libintelocl.so")
    (tmp_path / "b.icd").write_text("libc.so.6")
    code = """
from imgconv.cl.device import list_devices
from imgconv.commands.driver_list import list_drivers
for driver in list_drivers({device.platform for device in list_devices()}):
    print(driver.library, "|", driver.named_by, "|", driver.problem)
"""
    found = run_python(code, OCL_ICD_VENDORS=str(tmp_path), OCL_ICD_FILENAMES="/elsewhere/libother.so").splitlines()
    assert found[0] == f"/opt/placeholder/libintelocl.so | {tmp_path / 'a.icd'} | there is no such file"
    assert found[1] == f"libc.so.6 | {tmp_path / 'b.icd'} | cannot be loaded: it is not an OpenCL driver"
    assert found[-1].startswith("/elsewhere/libother.so | OCL_ICD_FILENAMES | only the Khronos loader")
    assert all("not searched for, because OCL_ICD_VENDORS" in line for line in found[2:-1])
    assert len(found) > 3 or not pip_driver_installed()


def test_the_driver_of_each_device_is_listed() -> None:
    code = """
from imgconv.cl.device import list_devices
from imgconv.commands.driver_list import list_drivers
platforms = {device.platform for device in list_devices()}
listed = list_drivers(platforms)
assert {name for driver in listed for name in driver.platforms} >= platforms, listed
assert not [driver for driver in listed if driver.named_by.endswith("intel-cpu.icd")], listed  # its path is unfilled
missing = list_drivers(set())
assert all(driver.problem for driver in missing), missing
"""
    run_python(code)


def test_missing_pyopencl_is_a_device_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    with pytest.raises(DeviceError, match="pyopencl cannot be imported"):
        device_module.list_devices()


# Devices


@pytest.mark.parametrize(("vendor", "reported", "known"), [(0x5143, 9999, 2), (0x5143, 3, 3), (0x10DE, 9999, 9999)])
def test_mesa_does_not_know_the_compute_units_of_an_adreno(vendor: int, reported: int, known: int) -> None:
    made = SimpleNamespace(vendor_id=vendor, max_compute_units=reported)
    assert device_module._compute_units(cast(cl.Device, made)) == known


def test_device_is_described(device: DeviceInfo) -> None:
    assert device.kind in ("gpu", "cpu", "accelerator")
    for field in ("platform", "name", "driver_version", "opencl_c_version"):
        assert getattr(device, field) in device.key
    assert min(device.max_image_width, device.max_image_height) >= 2048
    assert device.max_read_images >= 8
    assert device.max_write_images >= 8
    assert device.float_images
    assert device.fp16_arithmetic == ("cl_khr_fp16" in device.extensions)
    assert json.loads(json.dumps(dataclasses.asdict(device)))["index"] == device.index
    assert select_device(device.index) == device


def test_stale_device_is_refused(device: DeviceInfo) -> None:
    for changes in ({"index": 99}, {"name": "gone"}):
        with pytest.raises(DeviceError, match="no longer exists"):
            open_device(dataclasses.replace(device, **changes))


def test_device_without_float_images_is_refused(device: DeviceInfo) -> None:
    with pytest.raises(DeviceError, match="RGBA fp32 images"):
        open_device(dataclasses.replace(device, float_images=False))


def test_a_device_is_described_in_one_context(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVIDIA's driver takes 0.1 s to make a context, and a GPU's description asks for it twice."""
    monkeypatch.setattr("imgconv.cl.context.handles", {})
    monkeypatch.setattr(device_module, "_looked_at", {})
    monkeypatch.setattr(device_module, "_kind", lambda device: "gpu")
    made, new_handle = [], device_module._new_context
    monkeypatch.setattr(device_module, "_new_context", lambda *about: made.append(about) or new_handle(*about))
    device_module._describe(device.index, device_module._find_devices()[device.index])
    assert len(made) == 1


def test_a_device_has_one_context(device: DeviceInfo) -> None:
    one, other = open_device(device), open_device(device, profile=True)
    assert one.handle == other.handle and one.queue != other.queue


def test_a_lost_device(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run fails with a DeviceError, submitted frames too, and a new load has a context of its own."""
    x = Tensor.input("x", (1, 4))
    graph, inputs = build_graph({"y": x * 2}, [x]), {"x": numpy.ones((1, 4), numpy.float32)}
    model, before = imgconv.load(graph, device=device), open_device(device).handle
    model.run(inputs)

    def lost(*_: object) -> None:
        raise cl.LogicError(cl._cl._ErrorRecord("", -36, "the watchdog has reset the device"))

    with monkeypatch.context() as broken:
        broken.setattr(cl, "wait_for_events", lost)
        with pytest.raises(DeviceError, match="watchdog"):
            model.submit(inputs).result(timeout=HANG_TIMEOUT)
    again = imgconv.load(graph, device=device)
    assert open_device(device).handle != before == model._source.context.handle
    assert again.run(inputs)["y"].tolist() == [[2, 2, 2, 2]]


class Adreno:
    """A device of a made-up driver that has hints."""

    extensions = "cl_khr_fp16 cl_qcom_perf_hint cl_qcom_priority_hint"
    int_ptr = 17
    platform = SimpleNamespace(int_ptr=23)


@pytest.mark.parametrize("refused", [False, True])
def test_performance_hint(monkeypatch: pytest.MonkeyPatch, refused: bool) -> None:
    """Asked for where the driver names the extension; a context without it where the driver refuses all the same."""
    asked: list[object] = []

    def new_context(device: object, properties: object) -> int:
        asked.append(properties)
        return 0 if refused else 5

    made = SimpleNamespace(from_int_ptr=lambda number, retain: ("hinted", number, retain))
    plain = type("Context", (), {"__new__": lambda cls, devices: "plain", **vars(made)})
    monkeypatch.setattr(device_module, "new_context", new_context)
    monkeypatch.setattr(cl, "Context", plain)
    # CL_CONTEXT_PLATFORM; CL_CONTEXT_PERF_HINT_QCOM and CL_PERF_HINT_HIGH_QCOM of cl_ext_qcom.h.
    hints = context_hints(Adreno.extensions.split(), None)
    assert device_module._new_context(Adreno(), hints) == ("plain" if refused else ("hinted", 5, False))
    assert asked == [[(0x1084, 23), (0x40C2, 0x40C3)]]
    asked.clear()
    assert device_module._new_context(Adreno(), context_hints(["cl_khr_fp16"], None)) == "plain" and asked == []


def test_contexts_with_properties(context: Context) -> None:
    """A context is made with a property that the drivers here know; a property that they do not know is rejected."""
    device = context.handle.devices[0]
    number = new_context(device, [(device_module.CONTEXT_PLATFORM, device.platform.int_ptr)])
    assert number
    made = cl.Context.from_int_ptr(number, retain=False)
    assert made.devices == [device] and made != context.handle
    cl.CommandQueue(made, device).finish()
    assert new_context(device, [(0x40C2, 0x40C3)]) == 0
