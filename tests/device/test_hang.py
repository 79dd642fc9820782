"""A device that never finishes: waits end with a DeviceError, and so does the process."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import numpy
import pyopencl as cl
import pytest
from test_submit import SHAPE, assert_equal, drawn, network
from support import HANG_TIMEOUT

import imgconv
from imgconv.cl import queue
from imgconv.cl.device import Context, DeviceInfo, open_device
from imgconv.cl.ending import DriverUse
from imgconv.cl.image import create_buffer
from imgconv.cl.program import Kernel
from imgconv.running import frame_memory
from imgconv.running.device_memory import DeviceMemory
from imgconv.running.session import Session

BOUNDED = imgconv.Limits(run_seconds=60)
# A kernel that runs as long as its process, in front of the model's own.
HANGING = """
import os, sys, numpy, imgconv
from imgconv.cl.image import create_buffer
from imgconv.cl.program import build, kernel
from imgconv.cl.queue import enqueue, enqueue_marker, is_over
SPIN = '''__kernel void spin(__global volatile int *n) {{ while (n[0] == 0) n[1] += 1; }}'''
model = imgconv.load({path!r}, device={device}, limits={limits})
x = {{"x": numpy.zeros({shape}, "f4")}}
frames = [model.submit(x) for _ in range({frames})]
context = model._source.context
numbers = create_buffer(context, numpy.zeros(2, numpy.int32))
spin = kernel(build(context, SPIN, "spin"), "spin")
spin.set_args(numbers)
enqueue(context, spin, (1,), (1,))
hung = enqueue_marker(context)
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
object.__setattr__(context, "patience", 1.0)
frames += [model.submit(x) for _ in range(2)]
print("left", flush=True)
"""


@pytest.fixture
def hangs(device: DeviceInfo) -> None:
    if "rusticl" in device.platform or device.platform == "Oclgrind":
        pytest.skip("llvmpipe ends loops after 65,535 iterations, and oclgrind runs kernels while they are enqueued")


def run_hanging(code: str, device: DeviceInfo, folder: Path, limits: str, frames: int) -> str:
    """What a process prints whose device hangs, and which then does the rest of the code. It has to end by itself."""
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
    """At the end of a process, waits for them have the default bound, here a second."""
    assert run_hanging(LEFT, device, tmp_path, "None", 2) == "left\n"


def test_a_frame_that_nobody_waits_for(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails by default, and so does all that uses the model later."""
    model = imgconv.load(network(), device=device)
    expected = model.run(drawn(0))
    model.submit(drawn(0)).result()
    context = model._source.context
    assert not context.bounded
    object.__setattr__(context, "patience", 0.2)
    with monkeypatch.context() as hung:
        hung.setattr(frame_memory, "is_over", lambda events: False)
        frames = [model.submit(drawn(0)) for _ in range(2)]
        assert not wait(frames, timeout=HANG_TIMEOUT).not_done
    for use in (frames[0].result, frames[1].result, lambda: model.run(drawn(0)), lambda: model.submit(drawn(0))):
        with pytest.raises(imgconv.DeviceError, match="Load the model again"):
            use()
    assert_equal(imgconv.load(network(), device=device).run(drawn(0)), expected)


def test_results_of_bounded_waits(device: DeviceInfo) -> None:
    plain, bounded = (imgconv.load(network(), device=device, limits=each) for each in (None, BOUNDED))
    for seed in range(3):
        expected = plain.run(drawn(seed))
        assert_equal(bounded.run(drawn(seed)), expected)
        assert_equal(bounded.submit(drawn(seed)).result(), expected)
    mapped = bounded.mapped()
    mapped.inputs["x"][...] = drawn(1)["x"]
    assert_equal(mapped.run(), plain.run(drawn(1)))
    assert not bounded._source.context.copies


def test_a_device_that_was_given_up(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that uses it fails at once; a new load has a context of its own."""
    model = imgconv.load(network(), device=device, limits=BOUNDED)
    expected, frame = model.run(drawn(0)), model.submit(drawn(0))
    frame.result()
    object.__setattr__(model._source.context, "patience", 0.2)
    with monkeypatch.context() as hung:
        hung.setattr(queue, "is_over", lambda events: False)
        with pytest.raises(imgconv.DeviceError, match=r"did not finish within 0.2 s \(Limits.run_seconds\)"):
            model.run(drawn(0))
    # A driver may wait for what hangs when it allocates memory.
    monkeypatch.setattr(DeviceMemory, "new_ports", lambda *given: pytest.fail("it is used"))
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


def test_what_hangs_is_kept_if_its_release_waits(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """One reference more to each thing of the driver; to those made later, at the end."""
    monkeypatch.setattr("imgconv.cl.device.WAITING", (device.platform,))
    use = DriverUse()
    monkeypatch.setattr("imgconv.cl.device.driver_use", use)
    model = imgconv.load(network(), device=device, limits=BOUNDED)
    model.run(drawn(0))
    context = model._source.context
    object.__setattr__(context, "patience", 0.2)
    buffer = create_buffer(context, numpy.zeros(64, numpy.uint8))
    mapped, _ = cl.enqueue_map_buffer(context.queue, buffer, cl.map_flags.READ, 0, (64,), numpy.uint8)
    own = [mapped.base, *things_of(context)]
    assert {type(each) for each in own} == {cl.MemoryMap, cl.Buffer, Kernel, cl.CommandQueue}
    before = references(own)
    with monkeypatch.context() as hung:
        hung.setattr(queue, "is_over", lambda events: False)
        with pytest.raises(imgconv.DeviceError):
            model.run(drawn(0))
    assert all(after > count for after, count in zip(references(own), before, strict=True))
    again = imgconv.load(network(), device=device, limits=BOUNDED)
    again.run(drawn(0))
    own = [again._source.context.handle, *things_of(again._source.context)]
    before = references(own)
    use.end()
    assert all(after > count for after, count in zip(references(own), before, strict=True))


def things_of(context: Context) -> list[Any]:
    kinds = cl.Buffer, Kernel, cl.CommandQueue
    return [
        each for each in gc.get_objects() if type(each) in kinds and each.context.int_ptr == context.handle.int_ptr
    ]


def references(things: list[Any]) -> list[int]:
    return [sys.getrefcount(each) for each in things]


def test_ctrl_c_ends_a_bounded_wait(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    model, looks = imgconv.load(network(), device=device, limits=BOUNDED), iter([False, False])
    expected = model.run(drawn(0))

    def interrupted(events: Any) -> bool:
        if next(looks, None) is None:
            monkeypatch.undo()
            raise KeyboardInterrupt
        return False

    monkeypatch.setattr(queue, "is_over", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.run(drawn(0))
    assert_equal(model.run(drawn(0)), expected)


def test_first_runs_are_bounded(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without run_seconds, all waits until a run of the model has ended. Later ones are the driver's own."""
    patience: list[float] = []
    look = queue.wait_within

    def recorded(context: Context, *given: Any) -> None:
        patience.append(context.patience)
        look(context, *given)

    monkeypatch.setattr(queue, "wait_within", recorded)

    def bounded(use: Callable[[], object]) -> bool:
        patience.clear()
        use()
        return bool(patience)

    model, waiting = imgconv.load(network(), device=device), imgconv.load(network(), device=device)
    assert bounded(lambda: model.run(drawn(0)))
    assert set(patience) == {600.0}
    assert not bounded(lambda: model.run(drawn(0)))
    assert not bounded(lambda: model.submit(drawn(0)).result())
    assert not model._source.context.copies
    assert bounded(lambda: waiting.submit(drawn(0)).result())
    assert not bounded(lambda: waiting.run(drawn(0)))
    # As for another size of a model.
    again = Session(model.plan, model._source.context)
    assert bounded(lambda: again.run(drawn(0)))
    assert not bounded(lambda: again.run(drawn(0)))
    endless = imgconv.load(network(), device=device, limits=imgconv.Limits(run_seconds=numpy.inf))
    assert not bounded(lambda: endless.run(drawn(0)))
    # A measurement at load takes hundreds of steps, in which the first ones show that the kernels end.
    session = Session(model.plan, open_device(device))
    assert bounded(lambda: list(session.steps(drawn(0))))
    assert not bounded(lambda: list(session.steps(drawn(0))))


def test_the_bound_is_a_number_above_zero() -> None:
    with pytest.raises(imgconv.ConfigError, match="run_seconds is 0"):
        imgconv.Limits(run_seconds=0)
