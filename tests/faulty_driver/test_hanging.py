"""A driver that hangs, in processes of their own: waits and builds end by their bound, and by Ctrl-C."""

from __future__ import annotations

from pathlib import Path

import pytest

from faulty_driver import run_python

MODEL = """
import signal, threading, time
import numpy, imgconv
from imgconv.cl.building import program
from imgconv.tensor import Tensor, build_graph, convolution
from faulty_driver import set_faults

x = y = Tensor.input("x", (1, 4, 24, 20))
for number in range(4):
    weights = numpy.random.default_rng(number).normal(size=(4, 4, 3, 3)).astype("f4")
    y = convolution(y, Tensor.constant(weights), [1, 1], [1] * 4, [1, 1]).relu()
graph, given = build_graph({"y": y}, [x], "chain"), {"x": numpy.ones((1, 4, 24, 20), "f4")}
RUNS = {
    "run": lambda model: model.run(given), "submit": lambda model: model.submit(given).result(),
    "mapped": lambda model: model.mapped().run(),
}

def loaded():
    set_faults("adreno")
    return imgconv.load(graph, limits=imgconv.Limits(run_seconds=1))

def press():
    time.sleep(1)
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

def tried(name, what, *given):
    try:
        what(*given)
        print(name, "went on", flush=True)
    except imgconv.DeviceError as error:
        print(name, error, flush=True)
    except KeyboardInterrupt:
        print(name, "interrupted", flush=True)
"""
HUNG = "QUALCOMM Adreno(TM) did not finish within 1 s (Limits.run_seconds)"


def lines_of(code: str, faults: str, folder: Path) -> list[str]:
    done = run_python(MODEL + code, faults, folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_first_runs_that_hang_name_the_launch(tmp_path: Path) -> None:
    """Both if the launch never ends, and if the driver does not return from enqueuing it."""
    said = lines_of("""
for fault in "stall=execution@3", "stall=clEnqueueNDRangeKernel@3":
    for name, run in RUNS.items():
        model = loaded()
        set_faults("adreno;" + fault)
        tried(model.plan.launches[2].name, run, model)
""", "adreno", tmp_path)
    assert len(said) == 6
    for line in said:
        wanted, _, rest = line.partition(" ")
        assert rest.startswith(f"{HUNG}, launch {wanted!r}") and "Load the model again" in rest, line


def test_later_runs_that_hang(tmp_path: Path) -> None:
    said = lines_of("""
for name, run in RUNS.items():
    model = loaded()
    run(model)
    set_faults("adreno;stall=execution@3")
    tried(name, run, model)
    tried("again", run, model)
tried("load", lambda: RUNS["run"](loaded()))
""", "adreno", tmp_path)
    assert [line.split()[0] for line in said] == ["run", "again", "submit", "again", "mapped", "again", "load"]
    assert all(HUNG in line for line in said[:6]) and said[6] == "load went on"


def test_ctrl_c_ends_runs_that_hang(tmp_path: Path) -> None:
    """And the process, whose driver would wait at its end."""
    said = lines_of("""
for name, run in RUNS.items():
    model = loaded()
    run(model)
    model._source.context.watchdog.timeout = 60.0
    set_faults("adreno;stall=execution@3")
    threading.Thread(target=press).start()
    tried(name, run, model)
    model._source.context.watchdog.timeout = 1.0
    tried("again", run, model)
""", "adreno", tmp_path)
    assert said[::2] == ["run interrupted", "submit interrupted", "mapped interrupted"]
    assert all(HUNG in line for line in said[1::2])


@pytest.mark.parametrize("workers", [0, 12])
def test_builds_that_hang(workers: int, tmp_path: Path) -> None:
    """By the bound, and by Ctrl-C."""
    said = lines_of(f"""
program.MOST_PROCESSES = {workers}
load = lambda: imgconv.load(graph)
threading.Thread(target=press).start()
tried("first", load)
program.BUILD_SECONDS = 3
tried("second", load)
""", "adreno;build_hang=#define NAME k1", tmp_path)
    assert said[0] == "first interrupted"
    assert "has built no kernel for 3 s, and is still building" in said[1] and "its compiler hangs" in said[1]
