"""A device that never finishes: waits end with a DeviceError, and so does the process."""

from __future__ import annotations

from dataclasses import replace
import gc
import itertools
import re
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy
import pyopencl as cl
import pytest
from test_submit import SHAPE, assert_equal, drawn, network
from support import HANG_TIMEOUT, wait_until

import imgconv

from imgconv.cl.quirks import QUIRKS, quirks_of
from imgconv.cl.context import Context
from imgconv.cl import launch_sequence
from imgconv.cl.device import DeviceInfo, open_device
from imgconv.cl.shutdown import ShutdownGuard
from imgconv.cl.building.program import Kernel
from imgconv.cl.watchdog import DriverCall, Watchdog
from imgconv.runtime.device_memory import DeviceMemory
from imgconv.runtime.session import Session

BOUNDED = imgconv.Limits(run_seconds=60)
# A kernel that runs as long as its process, in front of the model's own.
HANGING = """
import os, sys, numpy, imgconv
from imgconv.cl.building.program import build, new_kernel
from imgconv.cl.context import is_over
SPIN = '''__kernel void spin(__global volatile int *n) {{ while (n[0] == 0) n[1] += 1; }}'''
model = imgconv.load({path!r}, device={device}, limits={limits})
x = {{"x": numpy.zeros({shape}, "f4")}}
model.run(x)
frames = [model.submit(x) for _ in range({frames})]
context = model._source.context
numbers = context.buffer(numpy.zeros(2, numpy.int32))
spin = new_kernel(build(context, SPIN, "spin"), "spin")
spin.set_args(numbers)
context.enqueue(spin, (1,), (1,))
hung = context.marker()
"""
TRIED = """
def tried(what):
    try:
        what()
    except imgconv.DeviceError as error:
        return "run_seconds" in str(error)
for what in (lambda: model.run(x), lambda: model.run(x), lambda: model.submit(x).result(), model.mapped):
    print(tried(what), is_over([hung]))
# It works if the driver runs other kernels beside one that hangs.
again = tried(lambda: imgconv.load({path!r}, device={device}, limits=imgconv.Limits(run_seconds=1)).run(x))
print("again", again in (None, True), flush=True)
"""
LEFT = """
for frame in frames:
    frame.result()
frames += [model.submit(x) for _ in range(2)]
print("left", flush=True)
"""
INTERRUPTED = """
import signal, threading, time
main = threading.main_thread().ident
def press():
    time.sleep(1)
    signal.pthread_kill(main, signal.SIGINT)
for what in (lambda: model.run(x), lambda: model.submit(x).result()):
    threading.Thread(target=press).start()
    try:
        what()
    except KeyboardInterrupt:
        print("interrupted", is_over([hung]), flush=True)
"""


@pytest.fixture
def hangs(device: DeviceInfo) -> None:
    if "rusticl" in device.platform or device.platform == "Oclgrind":
        pytest.skip("llvmpipe ends loops after 65,535 iterations, and oclgrind runs kernels while they are enqueued")


def run_hanging(code: str, device: DeviceInfo, folder: Path, limits: str, frames: int) -> str:
    """Returns the output of a process whose device hangs, and which then does the rest of the code. It must end."""
    path = folder / "network.onnx"
    imgconv.export_onnx(network(), path)
    known = {"path": str(path), "device": device.index, "shape": SHAPE, "limits": limits, "frames": frames}
    command = [sys.executable, "-W", "ignore", "-c", (HANGING + code).format(**known)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=HANG_TIMEOUT, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.usefixtures("hangs")
@pytest.mark.parametrize("frames", [0, 2])
def test_a_device_that_hangs(device: DeviceInfo, tmp_path: Path, frames: int) -> None:
    said = run_hanging(TRIED, device, tmp_path, "imgconv.Limits(run_seconds=1)", frames)
    assert said == "True False\n" * 4 + "again True\n"


@pytest.mark.usefixtures("hangs")
def test_frames_that_are_left(device: DeviceInfo, tmp_path: Path) -> None:
    """The end of a process waits for them until the bound."""
    assert run_hanging(LEFT, device, tmp_path, "imgconv.Limits(run_seconds=1)", 2) == "left\n"


@pytest.mark.usefixtures("hangs")
@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="there are no signals to a thread")
def test_ctrl_c_leaves_a_device_that_hangs(device: DeviceInfo, tmp_path: Path) -> None:
    """Also the process, which has the bound of a frame that was left."""
    said = run_hanging(INTERRUPTED, device, tmp_path, "imgconv.Limits(run_seconds=4)", 0)
    assert said == "interrupted False\n" * 2


class Stalled:
    """A driver in whose calls threads stay, once it is on, until it is off."""

    def __init__(self) -> None:
        self.passes, self.entered = threading.Event(), threading.Event()
        self.passes.set()
        self.held: list[DriverCall[Any]] = []

    def __enter__(self) -> Stalled:
        self.entered.clear()
        self.passes.clear()
        return self

    def __exit__(self, *error: object) -> None:
        self.passes.set()

    def call(self, function: Callable[[], Any]) -> DriverCall[Any]:
        """DriverCall(function), which stays if the driver is on."""

        def stay() -> Any:
            self.entered.set()
            self.passes.wait()
            return function()

        if self.passes.is_set():
            return DriverCall(function)
        self.held.append(DriverCall(stay))
        return self.held[-1]

    def wait(self) -> None:
        """Waits until no thread is in the driver: PoCL 3.1 aborts if what such a thread uses is released meanwhile."""
        self.passes.set()
        wait_until(lambda: all(call.is_over for call in self.held), "the calls that were held")


@pytest.fixture
def stalled(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stalled]:
    made = Stalled()
    monkeypatch.setattr("imgconv.cl.watchdog.DriverCall", made.call)
    monkeypatch.setattr(Context, "_ends_soon", lambda self: False)  # else short runs of a GPU need no other thread
    yield made
    made.wait()


def test_the_bound_by_default(device: DeviceInfo) -> None:
    assert imgconv.Limits().run_seconds == open_device(device).watchdog.timeout == 600
    assert imgconv.load(network(), device=device)._source.context.watchdog.timeout == 600


@pytest.mark.parametrize(("limits", "is_bounded"), [(imgconv.Limits(), False), (BOUNDED, True)])
def test_a_driver_whose_own_wait_is_used(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, limits: imgconv.Limits, is_bounded: bool
) -> None:
    """Once a first run has ended, unless the caller gives a bound: a wait through another thread would take longer."""
    bounded: list[str] = []
    call = Watchdog.call

    def noted(self: Watchdog, function: Callable[[], Any], *rest: Any) -> Any:
        bounded.append(str(function))
        return call(self, function, *rest)

    monkeypatch.setitem(QUIRKS, device.platform, replace(quirks_of(device.platform), waits_directly=True))
    monkeypatch.setattr(Watchdog, "call", noted)
    monkeypatch.setattr(Context, "_ends_soon", lambda self: False)  # as a GPU's run may
    model = imgconv.load(network(), device=device, limits=limits)
    first = model.run(drawn(1))
    assert bounded
    bounded.clear()
    assert_equal(model.run(drawn(1)), first)
    assert bool(bounded) == is_bounded


def test_a_frame_that_nobody_waits_for(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails by default, and so does all that uses the model later."""
    model = imgconv.load(network(), device=device)
    expected = model.run(drawn(0))
    model.submit(drawn(0)).result()
    model._source.context.watchdog.timeout = 0.2
    with monkeypatch.context() as hung:
        hung.setattr(Context, "is_over", lambda self, events: False)
        frames = [model.submit(drawn(0)) for _ in range(2)]
        assert not wait(frames, timeout=HANG_TIMEOUT).not_done
    for use in (frames[0].result, frames[1].result, lambda: model.run(drawn(0)), lambda: model.submit(drawn(0))):
        with pytest.raises(imgconv.DeviceError, match="Load the model again"):
            use()
    assert_equal(imgconv.load(network(), device=device).run(drawn(0)), expected)


def test_a_device_that_was_given_up(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, stalled: Stalled) -> None:
    """All that uses it fails at once; a new load has a context of its own."""
    model = imgconv.load(network(), device=device, limits=BOUNDED)
    expected, frame = model.run(drawn(0)), model.submit(drawn(0))
    frame.result()
    model._source.context.watchdog.timeout = 0.2
    with stalled, pytest.raises(imgconv.DeviceError, match=r"did not finish within 0.2 s \(Limits.run_seconds\)"):
        model.run(drawn(0))
    # A driver may wait for what hangs when it allocates memory.
    monkeypatch.setattr(DeviceMemory, "new_bindings", lambda *given: pytest.fail("it is used"))
    uses = (
        lambda: model.run(drawn(0)), lambda: model.submit(drawn(0)).result(), model.mapped,
        lambda: Session(model.plan, model._source.context),
    )
    for use in uses:
        with pytest.raises(imgconv.DeviceError, match="Load the model again"):
            use()
    again = imgconv.load(network(), device=device, limits=BOUNDED)
    assert again._source.context.handle is not model._source.context.handle
    assert_equal(again.run(drawn(0)), expected)


def test_arrays_of_a_run_that_hangs_are_kept(device: DeviceInfo, stalled: Stalled) -> None:
    """Its kernels may write to them later."""
    model = imgconv.load(network(), device=device)
    model.run(drawn(0))
    x = drawn(1)["x"]
    kept = weakref.ref(x)
    model._source.context.watchdog.timeout = 0.2
    with stalled, pytest.raises(imgconv.DeviceError, match="Load the model again"):
        model.run({"x": x})
    del x, model
    gc.collect()
    assert kept() is not None


def test_the_launch_of_a_first_run_that_hangs_is_named(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    model = imgconv.load(network(), device=device)
    model._source.context.watchdog.timeout = 0.2
    released, calls, launch = threading.Event(), itertools.count(), launch_sequence.launch_function(is_first=True)
    made: list[int] = []
    assert launch is not None

    def stuck(*arguments: Any) -> int:
        if next(calls) == 1:
            released.wait()
        made.append(launch(*arguments))
        return made[-1]

    monkeypatch.setattr(launch_sequence, "launch_function", lambda is_first=False: stuck)
    name = model.plan.launches[1].name
    with pytest.raises(imgconv.DeviceError, match=re.escape(f"launch {name!r}")):
        model.run(drawn(0))
    released.set()
    wait_until(lambda: len(made) == len(model.plan.launches), "the launches that were held")


def test_what_hangs_is_kept_if_its_release_waits(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, stalled: Stalled
) -> None:
    """One reference more to each thing of the driver; to those made later, at the end."""
    monkeypatch.setitem(QUIRKS, device.platform, replace(quirks_of(device.platform), releases_wait=True))
    use = ShutdownGuard()
    monkeypatch.setattr("imgconv.cl.watchdog.shutdown_guard", use)
    model = imgconv.load(network(), device=device)
    model.run(drawn(0))
    context = model._source.context
    context.watchdog.timeout = 0.2
    buffer = context.buffer(numpy.zeros(64, numpy.uint8))
    mapped, _ = cl.enqueue_map_buffer(context.queue, buffer, cl.map_flags.READ, 0, (64,), numpy.uint8)
    own = [mapped.base, *things_of(context)]
    assert {type(each) for each in own} == {cl.MemoryMap, cl.Buffer, Kernel, cl.CommandQueue}
    before = references(own)
    with stalled, pytest.raises(imgconv.DeviceError):
        model.run(drawn(0))
    stalled.wait()
    assert all(after > count for after, count in zip(references(own), before, strict=True))
    again = imgconv.load(network(), device=device, limits=BOUNDED)
    again.run(drawn(0))
    own = [again._source.context.handle, *things_of(again._source.context)]
    before = references(own)
    use.close_and_wait()
    assert all(after > count for after, count in zip(references(own), before, strict=True))


def things_of(context: Context) -> list[Any]:
    kinds = cl.Buffer, Kernel, cl.CommandQueue
    return [
        each for each in gc.get_objects() if type(each) in kinds and each.context.int_ptr == context.handle.int_ptr
    ]


def references(things: list[Any]) -> list[int]:
    return [sys.getrefcount(each) for each in things]


@contextmanager
def pressed_in(stalled: Stalled) -> Iterator[None]:
    """Presses Ctrl-C once a thread stays in the driver."""
    main = threading.main_thread().ident
    assert main is not None

    def press() -> None:
        stalled.entered.wait()
        signal.pthread_kill(main, signal.SIGINT)

    with stalled:
        threading.Thread(target=press).start()
        with pytest.raises(KeyboardInterrupt):
            yield


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="there are no signals to a thread")
def test_ctrl_c_leaves_a_wait(device: DeviceInfo, stalled: Stalled) -> None:
    """Later runs give the right results; a frame stays in flight."""
    if quirks_of(device.platform).waits_directly:
        pytest.skip("the driver's own wait is used, which hears no Ctrl-C")
    model = imgconv.load(network(), device=device)
    expected = {seed: model.run(drawn(seed)) for seed in range(3)}
    mapped = model.mapped()
    model.submit(drawn(0)).result()
    for seed in range(3):
        with pressed_in(stalled):
            model.run(drawn(seed))
        assert_equal(model.run(drawn(seed)), expected[seed])
        frame = model.submit(drawn(seed))
        with pressed_in(stalled):
            frame.result()
        assert not frame.done()
        assert_equal(frame.result(), expected[seed])
        mapped.inputs["x"][...] = drawn(seed)["x"]
        with pressed_in(stalled):
            mapped.run()
        mapped.inputs["x"][...] = drawn(seed)["x"]
        assert_equal(mapped.run(), expected[seed])
    context = model._source.context
    model.run(drawn(0))
    watchdog = context.watchdog
    assert not (watchdog.in_use or watchdog.left or context._copies or watchdog.first_launches)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="there are no signals to a thread")
def test_ctrl_c_leaves_a_first_run(device: DeviceInfo, stalled: Stalled) -> None:
    """The next run waits until another thread has enqueued its launches."""
    model = imgconv.load(network(), device=device)
    expected = imgconv.load(network(), device=device).run(drawn(0))
    with pressed_in(stalled):
        model.run(drawn(1))
    assert_equal(model.run(drawn(0)), expected)


def test_the_bound_is_a_number_above_zero() -> None:
    with pytest.raises(imgconv.ConfigError, match="run_seconds is 0"):
        imgconv.Limits(run_seconds=0)
