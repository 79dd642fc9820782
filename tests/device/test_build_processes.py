"""Programs that other processes build: their results, and what happens if such a process fails."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator

import numpy
import pytest

from imgconv.cl import image, program, queue
from imgconv.cl.build_processes import Turns, Worker
from imgconv.cl.device import Context
from imgconv.cl.program import Part, Program
from imgconv.errors import BuildError

SOURCE = "kernel void store(global float *values) {{ values[0] = {}.5f; }}"


@pytest.fixture
def worker(context: Context) -> Iterator[Worker]:
    made = Worker(context.info)
    yield made
    made.close()


def stored_by(context: Context, built: Program) -> float:
    launch = program.kernel(built, "store")
    buffer = image.create_buffer(context, 4)
    launch.set_args(buffer)
    queue.enqueue(context, launch, (1,))
    return float(image.download_buffer(context, buffer, (1,), numpy.float32)[0])


def test_a_worker_builds_one_program_after_another(context: Context, worker: Worker) -> None:
    for number in range(2):
        content = worker.build(SOURCE.format(number), "store.cl", ())
        assert content is not None
        built = program.build_binary(context, content, "store.cl")
        assert built is not None and stored_by(context, built) == number + 0.5


def test_a_source_with_errors_is_reported_here(context: Context, worker: Worker) -> None:
    assert worker.build("kernel void store( {", "store.cl", ()) is None
    assert worker.build(SOURCE.format(3), "store.cl", ()) is not None, "the next program"


def test_a_worker_that_ended(context: Context, worker: Worker) -> None:
    assert worker.build(SOURCE.format(0), "store.cl", ()) is not None
    assert worker._process is not None
    os.kill(worker._process.pid, signal.SIGKILL)
    assert worker.build(SOURCE.format(1), "store.cl", ()) is None
    assert worker.build(SOURCE.format(2), "store.cl", ()) is None


def test_an_application_that_contains_python_has_no_workers(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/opt/camera/camera")
    turns = Turns(context.info, 1, 3)
    with turns.next() as who:
        assert who is None and turns._idle.empty()


@pytest.fixture
def in_processes(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine with four cores, with a driver that builds one program at a time."""
    monkeypatch.setattr(program, "ONE_AT_A_TIME", (context.info.platform,))
    monkeypatch.setattr(program, "IN_PROCESSES", (context.info.platform,))
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(program, "read_binary", lambda key: None)


@pytest.mark.parametrize("failing", [False, True])
def test_programs_come_in_order(
    context: Context, in_processes: None, monkeypatch: pytest.MonkeyPatch, failing: bool
) -> None:
    asked: list[str] = []
    build = Worker.build

    def counted(self: Worker, source: str, *rest: object) -> bytes | None:
        asked.append(source)
        return None if failing else build(self, source, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Worker, "build", counted)
    parts = [Part(SOURCE.format(10 + 2 * failing + 100 * number), "store.cl") for number in range(6)]
    found = [stored_by(context, built) for built in program.build_all(context, parts)]
    assert found == [10.5 + 2 * failing + 100 * number for number in range(6)]
    assert asked, "some were given to a worker"


def test_the_error_of_a_program_names_it(context: Context, in_processes: None) -> None:
    sources = {"good.cl": SOURCE.format(20), "bad.cl": "kernel void store( {", "next.cl": SOURCE.format(21)}
    with pytest.raises(BuildError, match=r"bad\.cl"):
        list(program.build_all(context, [Part(source, name) for name, source in sources.items()]))
