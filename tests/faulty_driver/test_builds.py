"""A driver whose builds fail, crash or hang, whose binaries are no good, and whose kernels take small work groups."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from faulty_driver import ROOT, environment, met, run_python

# The convolution is conv.cl with blocks of five columns; no other text has the factor.
NETWORK = """
import warnings, numpy, imgconv
from imgconv.cl.building import processes
from imgconv.graph.evaluate import evaluate_graph
from imgconv.tensor import Tensor, build_graph
random = numpy.random.default_rng(0)
x = Tensor.input("x", (1, 8, 20, 20))
weights = Tensor.constant(random.uniform(-1, 1, (16, 8, 3, 3)).astype("f4"))
y = x.conv2d(weights, padding=1).relu().max_pool(3, 2, 1) * 0.71875
graph, given = build_graph({"y": y}, [x]), random.uniform(-1, 1, (1, 8, 20, 20)).astype("f4")
def check(model):
    with_driver, exact = model.run({"x": given})["y"], evaluate_graph(graph, {"x": given})["y"]
    assert abs(with_driver - exact).max() < 1e-5
    print("right", [launch.specialisation for launch in model.plan.launches if launch.specialisation])
"""
LOAD = """
try:
    check(imgconv.load(graph))
except imgconv.Error as error:
    print(type(error).__name__, error)
"""
CONVOLUTION, FACTOR = "BLOCK_COLUMNS 5", "0.71875"


def start(faults: str, cache: Path, lines: str = LOAD) -> subprocess.CompletedProcess[str]:
    return run_python(NETWORK + lines, faults, cache)


def test_kernels_that_fail_together(tmp_path: Path) -> None:
    assert start("adreno;build_fail=1", tmp_path).stdout.startswith("right")
    failed = met(tmp_path)
    assert failed, "the fault was met"
    assert start("adreno;build_fail=1", tmp_path).stdout.startswith("right")
    assert met(tmp_path) == failed, "and is not met again"


@pytest.mark.parametrize("status", [-6, -11])
def test_a_kernel_that_fails_alone_is_named(status: int, tmp_path: Path) -> None:
    out = start(f"adreno;build_fail=0:{FACTOR}:{status}", tmp_path).stdout
    assert out.startswith("BuildError generated, launch 'y'")
    assert f"status {status}; its log is empty" in out


def test_a_crash_names_the_kernel_at_the_next_start(tmp_path: Path) -> None:
    crash = f"adreno;build_crash={CONVOLUTION}"
    assert start(crash, tmp_path).returncode == -signal.SIGSEGV
    second = start(crash, tmp_path)
    assert second.stdout.startswith("right") and "block 5x" not in second.stdout, second.stderr
    assert "fails at conv.cl, launch 't" in second.stderr.replace("kernels/conv/", "") and "Adreno" in second.stderr
    crashes = met(tmp_path)
    third = start(crash, tmp_path)
    assert (third.stdout, third.stderr) == (second.stdout, "") and met(tmp_path) == crashes


def test_a_kernel_without_an_alternative(tmp_path: Path) -> None:
    crash = f"adreno;build_crash={FACTOR}"
    assert start(crash, tmp_path).returncode == -signal.SIGSEGV
    for _ in range(2):
        again = start(crash, tmp_path)
        assert again.stdout.startswith("BuildError generated, launch 'y'") and again.returncode == 0, again.stderr
        assert "the process that built it ended with status -11, and with -cl-opt-disable too" in again.stdout


def test_where_no_process_can_be_started(tmp_path: Path) -> None:
    """The second process builds the kernels alone, one after the other, and the third one knows the culprit."""
    alone = "processes._can_start = lambda: False" + LOAD
    crash = f"adreno;build_crash={CONVOLUTION}"
    assert [start(crash, tmp_path, alone).returncode for _ in range(2)] == [-signal.SIGSEGV] * 2
    third = start(crash, tmp_path, alone)
    assert third.stdout.startswith("right") and "two processes ended that built it" in third.stderr


def ended_in_a_build(faults: str, cache: Path, by: int = signal.SIGKILL) -> None:
    """Starts a process, and ends it by a signal while it builds, as if that took HANG_SECONDS."""
    hangs = "from imgconv.files import crash_marks\ncrash_marks.HANG_SECONDS = 0.0\n"
    running = subprocess.Popen(
        [sys.executable, "-c", NETWORK + hangs + LOAD], cwd=ROOT,
        env=environment(faults, cache) | {"PYTHONPATH": str(ROOT)},
    )
    while not any("build_hang" in line for line in met(cache)):
        assert running.poll() is None
        time.sleep(0.05)
    running.send_signal(by)
    running.wait(60)


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGINT])
def test_a_hang_names_the_kernel_at_the_next_start(tmp_path: Path, by: int) -> None:
    hang = f"adreno;build_hang={CONVOLUTION}"
    ended_in_a_build(hang, tmp_path, by)
    again = start(hang, tmp_path, "processes.APART_SECONDS = 5.0" + LOAD)
    assert again.stdout.startswith("right") and "block 5x" not in again.stdout
    assert "it was not built within 5 s" in again.stderr


def test_a_process_that_was_killed_is_no_crash(tmp_path: Path) -> None:
    """Its kernels are built again; none is refused."""
    ended_in_a_build(f"adreno;build_hang={CONVOLUTION}", tmp_path)
    again = start("adreno", tmp_path)
    assert "block 5x" in again.stdout and "a process ended while" in again.stderr and "fails at" not in again.stderr
    assert start("adreno", tmp_path).stderr == ""


def test_a_build_that_is_under_way_is_nobodys_crash(tmp_path: Path) -> None:
    faults = f"adreno;build_hang={CONVOLUTION}"
    running = subprocess.Popen(
        [sys.executable, "-c", NETWORK + LOAD], env=environment(faults, tmp_path) | {"PYTHONPATH": str(ROOT)}, cwd=ROOT,
    )
    try:
        while not met(tmp_path):
            assert running.poll() is None
            time.sleep(0.05)
        beside = start("adreno", tmp_path)
        assert beside.stdout.startswith("right") and beside.stderr == "" and running.poll() is None
    finally:
        running.kill()
        running.wait()


SAVE = """
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    imgconv.load(graph).save("{0}")
check(imgconv.load("{0}"))
print(len(warned))
"""


@pytest.mark.parametrize("binary", ["refuse", "empty", "unbuilt", "kernelless"])
def test_binaries_that_are_no_good(binary: str, tmp_path: Path) -> None:
    """Kept and saved programs are compiled from source again; a file without binaries is saved with a warning."""
    for _ in range(2):
        done = start(f"adreno;binary={binary}", tmp_path, SAVE.format(tmp_path / "model.imgconv"))
        assert done.stdout.startswith("right"), done.stderr
        assert done.stdout.endswith(f"{int(binary == 'empty')}\n")
    assert met(tmp_path)
    assert start("adreno", tmp_path).stdout.startswith("right")


LAYERS = """
import onnx, onnxruntime
from operator_cases import Case, ints, model_of
from support import assert_close, run_oracle
from test_recurrent import case as recurrent
import sys
wide = random.random((1, 8, 96, 96), "f4")
for case in (
    Case("TopK", 11, ((2, 3000), ints(30)), {}, 2), Case("Softmax", 13, ((4, 8000),), {"axis": 1}),
    Case("InstanceNormalization", 6, (wide, (8,), (8,)), {}, tolerance=1e-5),
    Case("Conv", 11, ((1, 16, 40, 40), (24, 16, 3, 3)), {}, tolerance=1e-5), recurrent("LSTM", states=True),
):
    model, feeds = model_of(case)
    assert_close(imgconv.load(model).run(feeds), run_oracle(model, feeds), case.tolerance)
print("right")
"""


@pytest.mark.parametrize("items", [128, 64])
def test_kernels_that_allow_few_work_items(items: int, tmp_path: Path) -> None:
    """LSTM, TopK, a softmax and a normalisation of long rows, a convolution: launches of more items fail there."""
    done = start(f"adreno;work_group_size={items}", tmp_path, "import sys; sys.path.append('tests/ops')" + LAYERS)
    assert done.stdout == "right\n", done.stderr


def test_no_work_group_is_small_enough(tmp_path: Path) -> None:
    lines = """
from operator_cases import Case, ints, model_of
model, feeds = model_of(Case("TopK", 11, ((2, 3000), ints(30)), {}, 2))
try:
    imgconv.load(model)
except imgconv.ResourceError as error:
    print(error)
"""
    done = start("adreno;work_group_size=8", tmp_path, lines)
    assert "order.cl has no kernel with work groups of at most 8 work items" in done.stdout, done.stderr
