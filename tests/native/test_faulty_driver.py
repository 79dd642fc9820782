"""The player on a driver that misbehaves: right results, or a status that says what failed, and in bounded time."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import faulty_driver
import numpy
import pytest
from camera_frames import CHANGES
from faulty_driver.matrix import FROM_THE_START, IN_RUNS, RECORDABLE_FROM_THE_START, RECORDABLE_IN_RUNS
from faulty_driver.matrix import NAMES, OF_BUILDS, REAL_CASES, problems, real_model
from faulty_driver.matrix import small_models, under
from faulty_driver.outcomes import Case, outcomes_of
from graphs import assert_near, const, image, numbers
from played import Play, assert_same_bits
from published import needs_models
from support import HANG_TIMEOUT

import imgconv
from imgconv.cl.device import DeviceInfo, list_devices
from imgconv.graph.evaluate import evaluate_graph
from imgconv.kernels.kernel_source import common_text
from imgconv.loading.device_descriptions import read_device_description
from imgconv.tensor import Tensor, build_graph

X = numbers(1, 8, 12, 12)
ADRENO = faulty_driver.ROOT / "imgconv" / "loading" / "devices" / "adreno_640.json"
Run = Callable[..., subprocess.CompletedProcess[str]]
FAULTS, FAULTS_IN_RUNS = FROM_THE_START | RECORDABLE_FROM_THE_START, IN_RUNS | RECORDABLE_IN_RUNS
# In the text of one kernel only.
ONLY_IN_ONE = "tanh("


@pytest.fixture(scope="module")
def model() -> imgconv.Model:
    """A model of 9 launches, each of its own kernel."""
    x = Tensor.input("x", X.shape)
    y = x.conv2d(const(12, 8, 3, 3), padding=1).relu().max_pool(2, 1)
    y = y.conv2d(const(16, 12, 3, 3), padding=1).relu().max_pool(3, 1)
    y = y.conv2d(const(4, 16, 1, 1)).tanh()
    return imgconv.load(build_graph({"y": y.global_average_pool().flatten(), "map": y}, [x]))


@pytest.fixture(scope="module")
def variables(environment: dict[str, str]) -> Callable[[str, Path], dict[str, str]]:
    """The environment of a player with these faults."""
    return lambda faults, folder: environment | faulty_driver.variables(faults, folder)


def described_with(environment: dict[str, str], built: Path) -> dict[str, Any]:
    """Returns what imgconv-run says of the only device."""
    command = [built / "imgconv-run", "--devices"]
    listed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    (found,) = json.loads(listed)["devices"]
    return dict(found)


@pytest.fixture(scope="module")
def adreno(built: Path, variables: Any, tmp_path_factory: pytest.TempPathFactory) -> DeviceInfo:
    """The device that the driver presents, as imgconv-run describes it."""
    folder = tmp_path_factory.mktemp("adreno")
    (folder / "phone.json").write_text(json.dumps(described_with(variables("adreno", folder), built)))
    return read_device_description(folder / "phone.json")


@pytest.fixture(scope="module")
def planned(model: imgconv.Model, adreno: DeviceInfo, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model's file for the adreno."""
    path = tmp_path_factory.mktemp("planned") / "model.imgconv"
    model.save(path, targets=[adreno])
    return path


@pytest.fixture
def run(built: Path, variables: Any, model: imgconv.Model, planned: Path, tmp_path: Path) -> Run:
    """Runs imgconv-run on model.imgconv, which is planned for the adreno, and compares its outputs with Python's."""
    (tmp_path / "model.imgconv").symlink_to(planned)
    numpy.save(tmp_path / "x.npy", X)
    references = []
    for name, array in model.run({"x": X}).items():
        numpy.save(tmp_path / f"{name}.npy", array)
        references += ["--reference", f"{name}={name}.npy"]

    def started(faults: str, *arguments: object, name: str = "model.imgconv") -> subprocess.CompletedProcess[str]:
        command = [built / "imgconv-run", name, "--input", "x=x.npy", *references, "--tolerance", "1e-4", *arguments]
        return subprocess.run(
            list(map(str, command)), cwd=tmp_path, env=variables(faults, tmp_path), capture_output=True, text=True,
            timeout=HANG_TIMEOUT,
        )

    return started


def assert_right(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, f"{done.returncode}: {done.stderr}"


def assert_said(done: subprocess.CompletedProcess[str], *texts: str) -> None:
    assert done.returncode == 2 and all(text in done.stderr for text in texts), f"{done.returncode}: {done.stderr}"


def test_a_plan_for_any_phone(run: Run, model: imgconv.Model, tmp_path: Path) -> None:
    """Kernels may have no more than 128 work items, and images lie in no buffers."""
    model.save(tmp_path / "generic.imgconv", targets=["generic"])
    assert_right(run("adreno;work_group_size=128;fail=image_in_buffer", name="generic.imgconv"))


def test_the_player_meets_it(play: Play, tmp_path: Path) -> None:
    """It is listed as an Adreno 640, runs the plan for that one, and replays its launches."""
    variables = faulty_driver.variables("adreno;recordable", tmp_path)
    (found,) = json.loads(str(play("results['json'] = numpy.array(devices_json())", **variables)["json"]))["devices"]
    described = json.loads(ADRENO.read_text())
    same = "platform", "name", "kind", "driver_version", "opencl_c_version", "local_memory_bytes", "compute_units"
    assert {name: found[name] for name in same} == {name: described[name] for name in same}
    x = image(1, 3, 9, 7)
    graph = build_graph({"y": x.conv2d(const(6, 3, 3, 3), const(6), padding=1).relu().softmax(1)}, [x])
    imgconv.load(graph).save(tmp_path / "m", targets=[ADRENO])
    lines = f"""
        player = Player({str(tmp_path / "m")!r})
        results.update(player.run(given))
        results["replay"] = numpy.array(LIBRARY.imgconv_replay(player._model))
    """
    inputs = {"x": numbers(1, 3, 9, 7)}
    made = play(lines, inputs, **variables)
    assert_near(made["y"], evaluate_graph(graph, inputs)["y"])
    assert bytes(made["replay"]) == b"cl_qcom_recordable_queues"


# All faults, as Python meets them

REMEDIES = (
    "a smaller input or FLOAT16=1 takes less, and so does ending what else uses the device",
    "the device was lost or reset: open the model again; if that fails too, start another process",
    "update the driver, or choose another device", "the driver has to be updated",
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    return small_models(tmp_path_factory.mktemp("models"))


def compiled(case: Case, adreno: DeviceInfo, folder: Path) -> Case:
    """The case for the player, with a plan for work groups of up to 64 items too."""
    small = replace(adreno, max_work_group_size=64, driver_version="small")
    imgconv.load(case.model).save(folder / "m.imgconv", targets=[adreno, small])
    return replace(case, model=str(folder / "m.imgconv"), player=True)


@pytest.mark.parametrize("name", NAMES)
def test_models_under_faults(
    models: dict[str, Case], adreno: DeviceInfo, environment: dict[str, str], name: str, tmp_path: Path
) -> None:
    """Right, or an error that says what was refused and what to do."""
    case = compiled(models[name], adreno, tmp_path)
    for faults, from_the_start in (FAULTS, True), (FAULTS_IN_RUNS, False):
        found, status = outcomes_of(under(case, faults, from_the_start), tmp_path, library(environment))
        assert not list(problems(faults, found, REMEDIES)) and status == 0


def library(environment: dict[str, str]) -> dict[str, str]:
    """Returns the player's variables that the faulty driver's environment does not set."""
    return {name: environment[name] for name in ("LD_LIBRARY_PATH", "IMGCONV_LIBRARY")}


def test_builds_that_fail(
    models: dict[str, Case], adreno: DeviceInfo, environment: dict[str, str], tmp_path: Path
) -> None:
    case = compiled(models["convolutions"], adreno, tmp_path)
    cases = under(case, OF_BUILDS, True)
    for number in range(len(cases)):
        (tmp_path / str(number)).mkdir()
    cases = [replace(each, cache=str(tmp_path / str(number))) for number, each in enumerate(cases)]
    found, status = outcomes_of(cases, tmp_path, library(environment))
    assert not list(problems(OF_BUILDS, found, ("",))) and status == 0


@pytest.mark.models
@needs_models
@pytest.mark.parametrize("path", REAL_CASES)
def test_real_models_under_faults(
    adreno: DeviceInfo, environment: dict[str, str], path: str, tmp_path: Path
) -> None:
    case = compiled(real_model(path), adreno, tmp_path)
    for faults, from_the_start in (FAULTS, True), (FAULTS_IN_RUNS, False):
        found, status = outcomes_of(under(case, faults, from_the_start), tmp_path, library(environment), seconds=1800)
        assert not list(problems(faults, found, REMEDIES)) and status == 0


# Replays

@pytest.mark.parametrize("kept", [0, 1, 7])
def test_a_replay_that_is_cut_off_is_not_used(run: Run, tmp_path: Path, kept: int) -> None:
    done = run(f"adreno;recordable;replay={kept}", "--bench", "--json", "--seconds", 0)
    assert_right(done)
    assert json.loads(done.stdout)["replay"] == "" and any("replay" in line for line in faulty_driver.met(tmp_path))


def test_a_replay_that_is_whole_is_used(run: Run) -> None:
    done = run("adreno;recordable", "--bench", "--json", "--seconds", 0)
    assert_right(done)
    assert json.loads(done.stdout)["replay"] == "cl_qcom_recordable_queues"


# Drivers that do not return

SET_FAULTS = """
    import ctypes, os
    def set_faults(faults):
        driver = os.path.join(os.environ["OCL_ICD_VENDORS"], "libfaulty_driver.so")
        ctypes.CDLL(driver).faulty_driver_set(faults.encode())
    def status_of(work):
        try:
            work()
        except PlayerError as error:
            return f"{error.status}: {error.message}"
        return "OK"
"""


def test_a_wrong_kernel_of_camera_frames_is_found(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening names it, for there is no other one, and `check` reports it, as it does one that is lost.

    A file without checks of launches has it too.
    """
    x = Tensor.input("x", (1, 3, 8, 12))
    model = imgconv.load(build_graph({"y": x * 1}, [x]))
    for format, _, _ in CHANGES:
        model.preprocess((8, 12), format).save(tmp_path / format, targets=[ADRENO])
    with monkeypatch.context() as patch:
        patch.setattr("imgconv.loading.file_plans.with_checks", lambda plan, *_: plan)
        model.preprocess((8, 12), CHANGES[0][0]).save(tmp_path / "unchecked", targets=[ADRENO])
    last, files = CHANGES[-1][0], {**{each[0]: each for each in CHANGES}, "unchecked": CHANGES[0]}
    lines = SET_FAULTS + f"""
    for name, (_, old, new) in {files!r}.items():
        set_faults(f"adreno;swap={{old}}=>{{new}}")
        results[name] = numpy.array(status_of(lambda: Player(name)))
    model = Player({last!r}, check=False)
    found = [each["name"] for each in model.check()["launches"] if each["verdict"] == "wrong"]
    set_faults("adreno")
    model = Player({last!r})
    set_faults("adreno;lose=2")
    results["wrong"] = numpy.array([*found, model.check()["launches"][-1]["verdict"]])
    """
    found = play(lines, **faulty_driver.variables("adreno", tmp_path))
    for name, (format, _, _) in files.items():
        said = f"WRONG: .*launch 'frames of {format}', kernel frame.cl: element .*computes it wrongly"
        assert re.match(said, str(found[name]), re.DOTALL), found[name]
    assert list(found["wrong"]) == [f"frames of {last}", "wrong"]


def test_hangs_are_given_up(run: Run, play: Play, variables: Any, tmp_path: Path) -> None:
    """Every later call says so at once; one that is under way in another thread ends; closing does not hang."""
    calls = [
        ("clFinish", "run(given)"), ("clEnqueueNDRangeKernel", "run(given)"), ("clEnqueueReadBuffer", "run(given)"),
        ("clFinish", "reset()"), ("clEnqueueNDRangeKernel", "submit(given)"), ("clEnqueueMapBuffer", "map_input('x')"),
        ("clWaitForEvents", "wait(model.submit(given))"), ("execution", "run(given)"), ("clFinish", "close()"),
    ]
    lines = SET_FAULTS + f"""
    from pathlib import Path
    from threading import Thread
    from time import sleep
    log, models, threads = Path("faults.log"), [], []
    log.touch()
    for number, (stalled, call) in enumerate({calls!r}):
        set_faults("adreno")
        model = Player("model.imgconv", cache="programs", timeout=20_000)
        assert model.run(given)
        set_faults("adreno;stall=" + stalled)
        def work(number=number, model=model, call=call):
            results[f"{{number}} {{call}}"] = status_of(lambda: eval("model." + call, dict(globals(), model=model)))
        threads.append(Thread(target=work))
        threads[-1].start()
        while log.read_text().count("stall") <= number:
            sleep(0.01)
        models.append(model)
    set_faults("adreno")
    for model in models[:-1]:
        threads.append(Thread(target=lambda model=model: status_of(lambda: model.run(given))))
        threads[-1].start()
    for thread in threads:
        thread.join()
    for number, model in enumerate(models[:-1]):
        for _ in range(10):
            results[f"later {{number}}"] = status_of(lambda: model.run(given))
        model.close()
    numpy.savez("results.npz", **results)
    os._exit(0)  # a driver may wait for what hangs
    """
    (tmp_path / "programs").mkdir()
    assert_right(run("adreno", "--cache", "programs"))
    found = {name: str(said) for name, said in play(lines, {"x": X}, **variables("adreno", tmp_path)).items()}
    assert found.pop("8 close()") == "OK" and len(found) == 16
    said = "TIMEOUT: the device did not finish within 20 s (options.timeout_ms): "
    assert all(text.startswith(said) for text in found.values()), found


def test_a_hang_while_opening(run: Run, model: imgconv.Model, tmp_path: Path) -> None:
    """The error names the build of a kernel, or the launch of the first run, that hangs."""
    assert_said(run("adreno;stall=clCreateContext", "--timeout", 1), "within 1 s", "opening the model")
    last, count = model.plan.launches[-1].name, len(model.plan.launches)
    expected = {f"build_hang={ONLY_IN_ONE}": ("building ", "launch 'map'")}
    expected |= {f"stall={each}@{count}": (f"launch '{last}'",) for each in ("clEnqueueNDRangeKernel", "execution")}
    with ThreadPoolExecutor() as pool:
        found = pool.map(lambda fault: run(f"adreno;{fault}", "--timeout", 10), expected)
        for done, texts in zip(found, expected.values()):
            assert_said(done, *texts)


# Progress

@pytest.fixture
def small(adreno: DeviceInfo, tmp_path: Path) -> Path:
    """The file of a model of few kernels."""
    x = Tensor.input("x", X.shape)
    graph = build_graph({"map": x.conv2d(const(4, 8, 1, 1)).tanh()}, [x])
    imgconv.load(graph).save(tmp_path / "small.imgconv", targets=[adreno])
    return tmp_path / "small.imgconv"


def test_progress_and_cancelling(small: Path, play: Play, variables: Any, tmp_path: Path) -> None:
    """In each phase, where one step takes long, opening can be cancelled: nothing is kept, and the next one opens."""
    (tmp_path / "programs").mkdir()
    lines = SET_FAULTS + f"""
    def opened(phase=None, **options):
        seen = []
        def progress(*step):
            seen.append(step)
            assert step[1] <= step[2]
            return step[0] != phase
        said = status_of(lambda: Player("{small}", cache="programs", progress=progress, **options).run(given))
        assert sum(step[0] == phase for step in seen) <= 1, seen  # it is not called again after it has cancelled
        return said, [step[0] for step in seen]
    slow = {{phase: f"slow={{s}}:{ONLY_IN_ONE}" for phase, s in (("CHECK", 0.3), ("TUNE", 0.05), ("RUN", 0.6))}}
    slow["BUILD"] = "build_hang={ONLY_IN_ONE}:0.6"
    for phase, fault in slow.items():
        set_faults("adreno;" + fault)
        options = dict(check=phase != "RUN", tune=60_000 if phase == "TUNE" else 0)
        said, seen = opened(phase, **options)
        assert said == "CANCELLED: the opening of the model was cancelled" and seen[-1] == phase, (said, seen)
        assert not os.listdir("programs")
    set_faults("adreno;" + slow["BUILD"])
    said, seen = opened()
    assert said == "OK" and "BUILD" in seen and seen == sorted(seen, key=PHASES.index), (said, seen)
    """
    play(lines, {"x": X}, **variables("adreno", tmp_path))


def test_cancelling_after_the_last_step(small: Path, play: Play, variables: Any, tmp_path: Path) -> None:
    """Opening does not return a model whose later builds would throw."""
    (tmp_path / "programs").mkdir()
    lines = SET_FAULTS + f"""
    import time
    def progress(*step):
        while all(name.endswith(".building") for name in os.listdir("programs")):
            time.sleep(0.01)
        time.sleep(0.3)  # after the programs are written, little is left of opening
        return False
    set_faults("adreno")
    said = status_of(lambda: Player("{small}", cache="programs", progress=progress, check=False))
    assert said == "CANCELLED: the opening of the model was cancelled", said
    """
    play(lines, **variables("adreno", tmp_path))


def test_cancelling_while_the_driver_compiles(small: Path, play: Play, variables: Any, tmp_path: Path) -> None:
    """Cancelling does not wait for the driver. The next start does not take the end of the process for a crash."""
    (tmp_path / "programs").mkdir()
    lines = f"""
    import os
    def progress(*step):
        return step[0] != "BUILD" or not os.listdir("programs")  # until there is a mark
    try:
        Player("{small}", cache="programs", progress=progress)
    except PlayerError as error:
        results["said"] = numpy.array(str(error.status))
    results["left"] = numpy.array(os.listdir("programs"), "U")
    numpy.savez("results.npz", **results)
    if HANGS: os._exit(0)  # a normal end waits for the driver
    """
    for seconds in "", ":2":
        faults = variables(f"adreno;build_hang={ONLY_IN_ONE}{seconds}", tmp_path)
        found = play(lines.replace("HANGS", str(not seconds)), **faults)
        assert str(found["said"]) == "CANCELLED" and not found["left"].size


def test_progress_on_a_terminal(small: Path, built: Path, variables: Any, tmp_path: Path) -> None:
    """A line, which is gone at the end, and none where stderr is a file."""
    slow = variables(f"adreno;build_hang={ONLY_IN_ONE}:2", tmp_path)
    reading, writing = os.openpty()
    with (tmp_path / "log").open("w") as log:
        started = [subprocess.Popen([built / "imgconv-run", small], env=slow, stderr=to) for to in (writing, log)]
        assert [process.wait(HANG_TIMEOUT) for process in started] == [0, 0]
    shown = os.read(reading, 65536).decode()
    os.close(reading)
    os.close(writing)
    assert re.search(r"imgconv: compiling kernels, \d+ of \d+\r\x1b\[2K", shown), shown
    assert "compiling" not in (tmp_path / "log").read_text()


# Contexts

@pytest.mark.parametrize(("status", "name"), [(-2, "DEVICE_NOT_AVAILABLE"), (-5, "OUT_OF_RESOURCES")])
def test_a_refused_context(run: Run, built: Path, variables: Any, tmp_path: Path, status: int, name: str) -> None:
    faults, said = f"adreno;fail=clCreateContext:{status}", f"opening QUALCOMM Adreno(TM): CL_{name} ({status})"
    assert_said(run(faults), said)
    described = described_with(variables(faults, tmp_path), built)
    assert described["problem"] == said and "float_images" not in described


def test_a_refused_hint(run: Run, built: Path, variables: Any, tmp_path: Path) -> None:
    faults = "adreno;perf_hint;refuse_hint"
    assert_right(run(faults))
    described = described_with(variables(faults, tmp_path), built)
    assert described["float_images"] and not described["problem"]
    assert "refuse_hint" in faulty_driver.met(tmp_path)


@pytest.mark.parametrize(("priority", "number"), [("high", 1), ("normal", 2), ("low", 3)])
def test_priorities(small: Path, built: Path, variables: Any, tmp_path: Path, priority: str, number: int) -> None:
    """Context and queue get the hints; without the extensions there are none."""
    command = [built / "imgconv-run", small, "--unchecked", "--priority", priority]
    for faults in "adreno;perf_hint;priority", "adreno":
        subprocess.run(command, env=variables(faults, tmp_path), check=True, timeout=HANG_TIMEOUT)
    hints = [f"context hint 40c2: {0x40C2 + number:x}", f"context hint 40c9: {0x40C9 + number:x}"]
    listed = "context hint 40c2: 40c3"  # before that, to list the device
    assert faulty_driver.met(tmp_path) == [listed, *hints, f"queue priority: {1 << (number - 1)}"]


# Builds

def test_kernels_that_are_built_alone(run: Run) -> None:
    assert_right(run("adreno;build_fail=1"))


@pytest.mark.parametrize(("status", "name"), [(-11, "BUILD_PROGRAM_FAILURE"), (-6, "OUT_OF_HOST_MEMORY")])
def test_a_kernel_that_is_not_built(run: Run, status: int, name: str) -> None:
    """It is named, with its file, and no other one is."""
    done = run(f"adreno;build_fail=0:{ONLY_IN_ONE}:{status}")
    assert_said(done, "conv.cl, launch 'map'", f"status CL_{name} ({status}); its log is empty")
    assert done.stderr.count("launch") == 1


def test_a_kernel_that_crashes_the_compiler(run: Run, tmp_path: Path) -> None:
    """A start after two crashes names it instead of crashing again, until the mark is removed."""
    (tmp_path / "programs").mkdir()
    crash = f"adreno;build_crash={ONLY_IN_ONE}"
    for _ in range(2):
        assert run(crash, "--cache", "programs").returncode == -11
    for _ in range(2):
        said = "processes ended while the driver of QUALCOMM Adreno(TM) compiled", "launch 'map'"
        assert_said(run(crash, "--cache", "programs"), *said)
    for mark in (tmp_path / "programs").glob("*.building"):
        mark.unlink()
    assert_right(run("adreno", "--cache", "programs"))
    assert {path.suffix for path in (tmp_path / "programs").iterdir()} == {".program"}


def test_a_kernel_that_crashes_the_compiler_alone(run: Run, tmp_path: Path) -> None:
    """One of a program that is not built together."""
    (tmp_path / "programs").mkdir()
    before = common_text().splitlines()[-1]
    crash = f"adreno;build_fail=1;build_crash={before}\n#define NAME k1\n"  # others come before it if it is not alone
    for _ in range(2):
        assert run(crash, "--cache", "programs").returncode == -11
    done = run(crash, "--cache", "programs")
    assert_said(done, "processes ended while the driver of QUALCOMM Adreno(TM) compiled", "launch 't3'")
    assert done.stderr.count("launch '") == 1


def test_a_process_that_was_ended_while_it_compiled(run: Run, tmp_path: Path) -> None:
    """The next start compiles, though the file has no other plan."""
    (tmp_path / "programs").mkdir()
    assert run(f"adreno;build_crash={ONLY_IN_ONE}", "--cache", "programs").returncode == -11
    assert list((tmp_path / "programs").glob("*.building"))
    assert_right(run("adreno", "--cache", "programs"))
    assert not list((tmp_path / "programs").glob("*.building"))


def test_processes_that_build_at_once_do_not_blame_each_other(
    run: Run, built: Path, variables: Any, tmp_path: Path
) -> None:
    (tmp_path / "programs").mkdir()
    command = [built / "imgconv-run", "model.imgconv", "--cache", "programs"]
    slow = variables(f"adreno;build_hang={ONLY_IN_ONE}:5", tmp_path)
    with subprocess.Popen(command, cwd=tmp_path, env=slow, stderr=subprocess.PIPE, text=True) as first:
        while first.poll() is None and not list((tmp_path / "programs").glob("*.building")):
            time.sleep(0.01)
        assert_right(run("adreno", "--cache", "programs"))
        assert first.wait(HANG_TIMEOUT) == 0, first.stderr and first.stderr.read()
    assert not list((tmp_path / "programs").glob("*.building"))


# Plans

@pytest.fixture
def two_plans(run: Run, model: imgconv.Model, adreno: DeviceInfo, tmp_path: Path) -> str:
    """The file of a model with plans for the adreno, and for a CPU, whose work groups have one item."""
    small = replace(adreno, kind="cpu", image_row_alignment=0, driver_version="small")
    model.save(tmp_path / "two.imgconv", targets=[adreno, small])
    return "two.imgconv"


def test_kernels_of_small_work_groups(run: Run, two_plans: str) -> None:
    """The plan whose work groups fit is taken; without one, the launch is named."""
    said = "work items of a work group: kernel k", " in launch '", "QUALCOMM Adreno(TM) allows it 32"
    assert_said(run("adreno;work_group_size=32"), *said)
    assert_right(run("adreno;work_group_size=32", name=two_plans))


def test_another_plan_in_place_of_one_that_fails(
    run: Run, two_plans: str, model: imgconv.Model, adreno: DeviceInfo, tmp_path: Path
) -> None:
    (tmp_path / "programs").mkdir()
    large = "write_only image2d_t output"  # which kernels for CPUs have not
    assert_said(run(f"adreno;build_fail=0:{large}"), "the driver cannot build this kernel source")
    assert_right(run(f"adreno;build_fail=0:{large}", name=two_plans))
    crash = f"adreno;build_crash={large}"
    assert run(crash, "--cache", "programs", name=two_plans).returncode == -11
    assert_right(run(crash, "--cache", "programs", name=two_plans))


# Binaries

@pytest.mark.parametrize("fault", ["refuse", "unbuilt", "kernelless", "empty"])
def test_binaries_that_are_of_no_use(run: Run, model: imgconv.Model, tmp_path: Path, fault: str) -> None:
    """Useless binaries of the folder and of the file: the source is compiled."""
    (tmp_path / "programs").mkdir()
    intel = next((each for each in list_devices() if each.platform == "Intel(R) OpenCL"), None)
    if intel is None:
        pytest.skip("the faulty driver is over Intel's, which is not seen here")
    model.save(tmp_path / "own.imgconv")
    for presented, name in (("adreno", "model.imgconv"), ("", "own.imgconv")):
        if fault != "empty":
            assert_right(run(presented, "--cache", "programs", name=name))
        for _ in range(2):
            assert_right(run(f"{presented};binary={fault}", "--cache", "programs", name=name))
    assert faulty_driver.met(tmp_path)


# Memory

@pytest.mark.parametrize(
    "refused", ["clCreateSubBuffer:-13", "clCreateSubBuffer:-13@3-", "image_in_buffer:-40", "image_in_buffer:-65@2-"]
)
def test_parts_of_a_buffer_that_are_refused(run: Run, tmp_path: Path, refused: str) -> None:
    """They have memory of their own."""
    assert_right(run(f"adreno;fail={refused}"))
    assert faulty_driver.met(tmp_path)


@pytest.mark.parametrize("call", ["run(given)", "wait(model.submit(given))"])
def test_a_launch_that_fails_while_it_runs(run: Run, play: Play, variables: Any, tmp_path: Path, call: str) -> None:
    """clFinish is successful then. In a first run the launch is named."""
    assert_said(run("adreno;fail=execution:-5@3"), "launch 't4', kernel k2: CL_OUT_OF_RESOURCES (-5)")
    lines = SET_FAULTS + f"""
    model = Player("model.imgconv")
    model.run(given)
    set_faults("adreno;fail=execution:-5@3")
    results["said"] = numpy.array(status_of(lambda: model.{call}))
    """
    said = str(play(lines, {"x": X}, **variables("adreno", tmp_path))["said"])
    assert said.startswith("MEMORY: ") and "CL_OUT_OF_RESOURCES (-5)" in said


def test_out_of_resources_has_one_status(run: Run, play: Play, variables: Any, tmp_path: Path) -> None:
    """Any call may fail with it; the next run is right."""
    calls = {
        "clEnqueueRecordingQCOM": "run", "clEnqueueReadBuffer": "run", "clEnqueueWriteBuffer": "run", "clFinish": "run",
        "clEnqueueMapBuffer": "map_input", "clEnqueueMarkerWithWaitList": "run",
    }
    lines = SET_FAULTS + f"""
    model = Player("model.imgconv")
    assert model.replay == "cl_qcom_recordable_queues"
    expected = model.run(given)
    for function, call in {calls!r}.items():
        set_faults("adreno;recordable;fail=" + function + ":-5@1")
        said = status_of(lambda: model.map_input("x") if call == "map_input" else model.run(given))
        assert said.startswith("MEMORY: ") and "CL_OUT_OF_RESOURCES (-5)" in said, (function, said)
        assert all(expected[name].tobytes() == array.tobytes() for name, array in model.run(given).items()), function
    results.update(expected)
    """
    found = play(lines, {"x": X}, **variables("adreno;recordable", tmp_path))
    assert_same_bits(found, found)
