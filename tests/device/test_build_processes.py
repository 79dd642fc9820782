"""Programs that other processes build: their results, and what happens if such a process fails."""

from __future__ import annotations

from dataclasses import replace
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy
import pytest
from support import HANG_TIMEOUT, NothingKept, wait_until

from imgconv.cl.quirks import QUIRKS, quirks_of
from imgconv.cl.building import processes, program
from imgconv.cl.building.processes import BuildWorker, DeviceAddress
from imgconv.cl.context import Context
from imgconv.cl.device import DeviceInfo, open_device
from imgconv.cl.building.program import Program, ProgramSource
from imgconv.errors import BuildError

SOURCE = "kernel void store(global float *values) {{ values[0] = {}.5f; }}"


@pytest.fixture
def worker(context: Context) -> Iterator[BuildWorker]:
    made = BuildWorker(DeviceAddress(context.handle.devices[0]))
    yield made
    made.close()


def stored_by(context: Context, built: Program) -> float:
    launch = program.new_kernel(built, "store")
    buffer = context.buffer(4)
    launch.set_args(buffer)
    context.enqueue(launch, (1,))
    return float(context.read(buffer, (1,), numpy.float32)[0])


def test_a_worker_builds_one_program_after_another(context: Context, worker: BuildWorker) -> None:
    assert worker.is_ready()
    for number in range(2):
        content = worker.build(SOURCE.format(number), ())
        assert content is not None
        built = program.build_binary(context, content, "store.cl")
        assert built is not None and stored_by(context, built) == number + 0.5


def test_a_worker_gets_the_options(worker: BuildWorker) -> None:
    source = "kernel void store(global float *values) { values[0] = NUMBER; }"
    assert worker.is_ready()
    assert worker.build(source, ()) is None
    assert worker.build(source, ["-w", "-D NUMBER=1.5f"]) is not None


def test_a_source_with_errors_is_reported_here(worker: BuildWorker) -> None:
    assert worker.is_ready()
    assert worker.build("kernel void store( {", ()) is None and worker.works
    assert worker.build(SOURCE.format(3), ()) is not None, "the next program"


def test_a_worker_that_ended(worker: BuildWorker) -> None:
    assert worker.is_ready()
    assert worker.build(SOURCE.format(0), ()) is not None
    os.kill(worker._process.pid, signal.SIGKILL)
    assert worker.build(SOURCE.format(1), ()) is None and not worker.works
    assert worker.build(SOURCE.format(2), ()) is None


def test_an_interrupt_of_the_terminal_ends_no_worker(worker: BuildWorker) -> None:
    """It goes to all processes, and the one that started the others decides."""
    assert worker.is_ready()
    os.kill(worker._process.pid, signal.SIGINT)
    assert worker.build(SOURCE.format(4), ()) is not None


def test_a_worker_that_ends_before_it_is_ready(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeviceAddress, "message", "no library\nno platform\n0")
    worker = BuildWorker(DeviceAddress(context.handle.devices[0]))
    assert not worker.is_ready()
    assert worker.build(SOURCE.format(1), ()) is None
    worker.close()


def test_a_worker_knows_nothing_of_the_folder_it_starts_in(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ctypes.py").write_text("raise SystemExit")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    worker = BuildWorker(DeviceAddress(context.handle.devices[0]))
    assert worker.is_ready()
    worker.close()


def test_a_closed_worker_is_not_ready(worker: BuildWorker) -> None:
    worker.close()
    assert not worker.is_ready()


def test_few_workers_open_the_device_at_once(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, now, most = Lock(), 0, 0
    is_ready = BuildWorker.is_ready

    def counted(worker: BuildWorker) -> bool:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        try:
            return is_ready(worker)
        finally:
            with lock:
                now -= 1

    monkeypatch.setattr(BuildWorker, "is_ready", counted)
    monkeypatch.setattr(processes, "OPEN_AT_ONCE", 2)
    builders = open_device(context.info).builders
    with builders:
        builders.start(5)
        idle = 5 + processes.parallel_builds(context.info.platform)
        ready = [builders._idle.get(timeout=HANG_TIMEOUT) for _ in range(idle)]
    assert sum(worker is not None for worker in ready) == 5 and most == 2


def test_workers_run_only_inside(context: Context) -> None:
    builders = open_device(context.info).builders
    builders.start(2)
    assert not builders._workers, "nobody is inside"
    with builders:
        with builders:
            builders.start(2)
            builders.start(1)
        assert len(builders._workers) == 2, "somebody still is"
        processes = [worker._process for worker in builders._workers]
    assert [process.wait(HANG_TIMEOUT) for process in processes] == [-signal.SIGKILL] * 2
    assert not builders._workers


def test_an_interrupt_ends_the_workers(context: Context) -> None:
    builders, processes = open_device(context.info).builders, []
    with pytest.raises(KeyboardInterrupt), builders:
        builders.start(2)
        processes += [worker._process for worker in builders._workers]
        raise KeyboardInterrupt
    assert [process.wait(HANG_TIMEOUT) for process in processes] == [-signal.SIGKILL] * 2


def test_a_process_leaves_no_dead_worker_behind(device: DeviceInfo) -> None:
    """Somebody has waited for each worker before the process ends."""
    code = """
import atexit, sys
from imgconv.cl.device import open_device, select_device
with open_device(select_device(int(sys.argv[1]))).builders as builders:
    builders.start(2)
    processes = [worker._process for worker in builders._workers]
atexit.register(lambda: print([process.returncode for process in processes]))
"""
    command = [sys.executable, "-c", code, str(device.index)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_TIMEOUT)
    assert done.stdout.strip() == "[-9, -9]", done.stderr


def test_a_dead_worker_gets_no_more_programs(context: Context) -> None:
    builders = open_device(context.info).builders
    with builders:
        builders.start(1)
        while True:
            with builders.idle_builder() as who:
                if who is not None:
                    os.kill(who._process.pid, signal.SIGKILL)
                    assert who.build(SOURCE.format(1), ()) is None
                    break
        idle = [builders._idle.get() for _ in range(builders._idle.qsize())]
        assert idle and not any(idle)


def test_the_log_says_that_a_worker_was_lost(context: Context, caplog: pytest.LogCaptureFixture) -> None:
    """No other one is started in its place: a driver that fails always would start processes for ever."""
    builders = open_device(context.info).builders
    with builders:
        builders.start(2)
        lost: list[int] = []

        def lose() -> bool:
            with builders.idle_builder() as who:
                if who is not None:
                    lost.append(who._process.pid)
                    os.kill(who._process.pid, signal.SIGKILL)
                    assert who.build(SOURCE.format(1), ()) is None
            builders.start(2)
            return len(lost) == 2

        wait_until(lose, "a worker gets no programs")
        assert len(builders._workers) == 2
    assert [record.message for record in caplog.records] == [
        "a process that builds programs ended with status -9; the others continue"
    ] * 2


def test_the_log_says_why_a_device_is_not_opened(
    context: Context, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    device = context.handle.devices[0]
    library, *_ = DeviceAddress(device).message.split("\n")
    monkeypatch.setattr(DeviceAddress, "message", f"{library}\nno platform\n3")
    worker = BuildWorker(DeviceAddress(device))
    assert not worker.is_ready() and not worker.works
    assert "could not open the device: no device 3 on platform 'no platform'" in caplog.text
    worker.close()


def test_an_application_that_contains_python_has_no_workers(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/opt/camera/camera")
    with open_device(context.info).builders as builders:
        builders.start(3)
        assert not builders._workers


@pytest.fixture
def in_processes(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the driver build one program at a time, and the disk cache return none, so that processes build."""
    platform = context.info.platform
    monkeypatch.setitem(QUIRKS, platform, replace(quirks_of(platform), one_build_at_a_time=True))
    monkeypatch.setattr(program, "PROGRAMS", NothingKept("programs", 2**28))


@pytest.mark.parametrize("failing", [False, True])
def test_programs_come_in_order(
    context: Context, in_processes: None, monkeypatch: pytest.MonkeyPatch, failing: bool
) -> None:
    asked: list[str] = []
    build = BuildWorker.build

    def counted(self: BuildWorker, source: str, options: Sequence[str]) -> bytes | None:
        asked.append(source)
        return None if failing else build(self, source, options)

    def built_here(*arguments: Any) -> Program:
        wait_until(lambda: asked, "no worker is ready")
        return compile_text(*arguments)

    compile_text = program.compile_text
    monkeypatch.setattr(program, "compile_text", built_here)

    monkeypatch.setattr(BuildWorker, "build", counted)
    parts = [ProgramSource(SOURCE.format(10 + 2 * failing + 100 * number), "store.cl") for number in range(6)]
    found = [stored_by(context, built) for built in program.build_all(context, parts, 3)]
    assert found == [10.5 + 2 * failing + 100 * number for number in range(6)]
    assert asked, "some were given to a worker"


def test_the_error_of_a_program_names_it(context: Context, in_processes: None) -> None:
    sources = {"good.cl": SOURCE.format(20), "bad.cl": "kernel void store( {", "next.cl": SOURCE.format(21)}
    with pytest.raises(BuildError, match=r"bad\.cl"):
        program.build_all(context, [ProgramSource(source, name) for name, source in sources.items()], 3)
