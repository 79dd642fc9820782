"""Fixtures for tests that need a device: they run once on every OpenCL device found, and fail where there is none."""

from __future__ import annotations

import functools
import gc
import os
import platform
import re
import signal
import sys
import uuid
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path

import numpy
import pytest
from hypothesis import HealthCheck, settings

from imgconv.cl.building import crashes, program
from imgconv.cl.context import Context
from imgconv.cl.device import DeviceInfo, list_devices, no_driver_message, open_device
from imgconv.config import Config
from imgconv.files.disk_cache import DiskCache
from imgconv.kernels import kernel_source
from imgconv.loading import plan_cache
from imgconv.precision import storage
from imgconv.reports import peaks
from imgconv.stored import precision_file

# Float, as a CPU and as a GPU has it; half in tiles, on the plan of a GPU.
WAYS = {
    "float": (Config(), "cpu"), "float gpu": (Config(), "gpu"),
    "half tiled gpu": (Config(float16=1, max_image=8), "gpu"),
}


@functools.cache
def found_devices() -> tuple[DeviceInfo, ...]:
    return list_devices()


@functools.cache
def opened(device: DeviceInfo) -> Context:
    return open_device(device)


def pytest_configure() -> None:
    """Lets examples take any time, since machines differ, and takes Ctrl-C, which jobs of a script's shell ignore."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    settings.register_profile("imgconv", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("imgconv")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """True for ONNX's own tests unless -m asks for them: their import takes seconds in every process."""
    unasked = "not models" in config.option.markexpr
    return True if unasked and collection_path.name == "test_onnx_backend_cases.py" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """The garbage collector leaves the 900,000 objects of all tests alone while they are made, and from then on."""
    # It takes 4 s of the collection, and then 0.6 s of each gc.collect(), of which a test of leaks has eleven.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "device" in metafunc.fixturenames:
        devices = found_devices() or (None,)
        metafunc.parametrize("device", devices, ids=device_id, indirect=True, scope="session")


def device_id(device: DeviceInfo | None) -> str:
    """Returns the name of a device in test ids: its number and its platform."""
    return re.sub(r"\W+", "-", f"{device.index}-{device.platform}").strip("-").lower() if device else "no-device"


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> DeviceInfo:
    """Each OpenCL device of this machine in turn."""
    if request.param is None:
        message = no_driver_message(sys.platform, platform.machine(), hasattr(sys, "getandroidapilevel"))
        pytest.fail(f"this test needs an OpenCL device: {message}", pytrace=False)
    assert isinstance(request.param, DeviceInfo)
    return request.param


@pytest.fixture(scope="session")
def context(device: DeviceInfo) -> Context:
    """Each OpenCL device of this machine in turn, opened once for the whole session."""
    return opened(device)


@pytest.fixture
def half_arithmetic(device: DeviceInfo) -> None:
    """Skips the test on a device that does not compute in half."""
    if not device.fp16_arithmetic:
        pytest.skip("the device does not compute in half: it lacks cl_khr_fp16")


@pytest.fixture(autouse=True)
def random_numbers_of_its_own(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test draws the same from its module's RANDOM on every device, alone and after others."""
    if isinstance(getattr(request.module, "RANDOM", None), numpy.random.Generator):
        parameters = request.node.callspec.params if hasattr(request.node, "callspec") else {}
        name = request.node.name.replace(device_id(parameters.get("device")), "device")
        seed = zlib.crc32(name.encode())
        monkeypatch.setattr(request.module, "RANDOM", numpy.random.default_rng(seed))


@pytest.fixture(autouse=True)
def choices(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees what another one, or the user, has chosen under FLOAT16, or which kernels ended processes there.

    Plans are not cached.
    """
    folder = tmp_path_factory.getbasetemp() / f"kept-{uuid.uuid4().hex}"
    monkeypatch.setattr(precision_file, "CHOICES", DiskCache(str(folder / "precision"), 2**20))
    monkeypatch.setattr(plan_cache, "PLANS", DiskCache(str(folder / "plans"), 0))
    monkeypatch.setattr(crashes, "CRASHES", DiskCache(str(folder / "crashes"), 2**20))
    monkeypatch.setattr(crashes, "_seen", {})


@pytest.fixture(autouse=True)
def kernels_in_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under oclgrind, a program has k0 to k9, k10 to k19, ...: no name is the beginning of another one."""
    # Oclgrind (21.10) counts the local memory of k10 as k1's too, and then refuses launches of k1.
    if any(device.platform == "Oclgrind" for device in found_devices()):
        monkeypatch.setattr(kernel_source, "KERNELS_IN_A_PROGRAM", 10)


@pytest.fixture(autouse=True, scope="session")
def builds_in_this_process() -> Iterator[None]:
    """Turns off build processes if tests run on every core: there they only cost the time that they take to start."""
    with pytest.MonkeyPatch.context() as patch:
        if "PYTEST_XDIST_WORKER" in os.environ:
            patch.setattr(program, "MOST_PROCESSES", 0)
        yield


@pytest.fixture(autouse=True, scope="session")
def peaks_in_little_time() -> Iterator[None]:
    """A profile measures the device's peaks twice, with every core; no test needs them to be exact."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(peaks, "MEASURED_SECONDS", 0.02)
        yield


@pytest.fixture(autouse=True, scope="session")
def precision_to_the_end() -> Iterator[None]:
    """Loads search to the end: what they find in their time differs between machines."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("PART_OF_LOAD", "PART_WITH_SHARED_KERNELS", "LEAST_PART_OF_LOAD"):
            patch.setattr(storage, name, 1e6)
        yield


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> tuple[Config, str]:
    """Settings, and the kind of device to plan for."""
    return WAYS[request.param]
