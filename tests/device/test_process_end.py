"""The end of a process while frames are in flight, or while daemon threads are at work; forked processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_submit import SHAPE, network
from support import HANG_TIMEOUT

import imgconv
from imgconv.cl.device import DeviceInfo


def ended(device: DeviceInfo, folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Runs code with a `model` and its inputs `x` in a process, and returns the process once it has ended."""
    imgconv.export_onnx(network(), folder / "network.onnx")
    before = (
        "import threading, time, numpy, imgconv\n"
        f"model = imgconv.load({str(folder / 'network.onnx')!r}, device={device.index})\n"
        f"x = {{'x': numpy.zeros({SHAPE}, 'f4')}}\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", before + code]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG_TIMEOUT)


@pytest.mark.parametrize("how", ["", "raise KeyboardInterrupt"])
def test_the_process_ends_with_frames_under_way(device: DeviceInfo, tmp_path: Path, how: str) -> None:
    """They are finished."""
    code = f"""
frames = [model.submit(x) for _ in range(3)]
frames[-1].add_done_callback(lambda frame: print('finished', flush=True))
print('submitted', flush=True)
{how}"""
    result = ended(device, tmp_path, code)
    assert result.stdout == "submitted\nfinished\n"
    assert result.returncode == (130 if how and sys.platform == "win32" else -2 if how else 0), result.stderr


RUNNING = ("model.submit(x)", "model.submit(x).result()", "model.run(x)", "model.mapped().run()")


@pytest.mark.parametrize("work", [RUNNING, ("imgconv.load(model.graph)",)], ids=["run", "load"])
def test_the_process_ends_with_daemon_threads_at_work(
    device: DeviceInfo, tmp_path: Path, work: tuple[str, ...]
) -> None:
    """Threads that come out of the driver while the interpreter is finalised abort it."""
    code = f"""
def loop(work):
    while True:
        work()
        begun.release()
begun = threading.Semaphore(0)
work = [{", ".join(f"lambda: {each}" for each in work)}]
for each in work:
    threading.Thread(target=loop, args=(each,), daemon=True).start()
for _ in range(10):
    begun.acquire()
"""
    for _ in range(2):
        result = ended(device, tmp_path, code)
        assert result.returncode == 0, result.stderr
        assert result.stderr == "" or work is not RUNNING  # a thread pool may say that it takes no more work


def test_the_process_ends_while_a_thread_begins_to_submit(device: DeviceInfo, tmp_path: Path) -> None:
    """The thread that finishes frames may be made, and not be started yet."""
    code = """
start, begun = threading.Thread.start, threading.Event()
def late(thread):
    if thread.name == 'imgconv frames':
        begun.set()
        time.sleep(0.5)
    start(thread)
threading.Thread.start = late
threading.Thread(target=model.submit, args=(x,), daemon=True).start()
begun.wait()
"""
    result = ended(device, tmp_path, code)
    assert (result.returncode, result.stderr) == (0, "")


def test_the_process_ends_with_frames_that_submit_the_next(device: DeviceInfo, tmp_path: Path) -> None:
    result = ended(device, tmp_path, "def again(_): model.submit(x).add_done_callback(again)\nagain(None)")
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_is_told(device: DeviceInfo, tmp_path: Path) -> None:
    """Every call would wait for ever: for the driver's threads with PoCL, for a lock that another thread holds here."""
    code = """
import os
frames = [model.submit(x) for _ in range(2)]
calls = model.run, model.submit, lambda x: imgconv.load(model.graph), lambda x: frames[1].result()
pipeline, held, forked = model._last.pipeline, threading.Event(), threading.Event()
def hold():
    with model._lock, pipeline._lock:
        held.set()
        forked.wait()
threading.Thread(target=hold).start()
held.wait()
child = os.fork()
if not child:
    for call in calls:
        try:
            call(x)
        except imgconv.DeviceError as error:
            print('spawn' in str(error), flush=True)
    os._exit(0)
forked.set()
print(os.waitpid(child, 0)[1], len([frame.result() for frame in frames]), model.run(x)['y'].max(), flush=True)
"""
    result = ended(device, tmp_path, code)
    assert (result.stdout, result.returncode) == ("True\n" * 4 + "0 2 0.0\n", 0), result.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_process_that_forks_first_works(device: DeviceInfo) -> None:
    code = f"""
import os
from imgconv.cl.device import list_devices
if os.fork():
    raise SystemExit(os.wait()[1])
assert len(list_devices()) > {device.index}
"""
    command = [sys.executable, "-W", "ignore", "-c", code]
    assert subprocess.run(command, timeout=HANG_TIMEOUT, check=False).returncode == 0
