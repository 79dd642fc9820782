"""imgconv tune: candidates are measured on the device, and load chooses what was fastest."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest
from graphs import const

import imgconv
from imgconv import cli
from imgconv.cl.device import DeviceInfo, open_device
from imgconv.compiling.compiler import PreparedGraph, prepare
from imgconv.config import Config
from imgconv.errors import Error
from imgconv.graph.evaluate import evaluate_graph
from imgconv.graph.nodes import Graph
from imgconv.kernels.layout import ImageLimits
from imgconv.kernels.separable import problem as separable
from imgconv.kernels.target import Target
from imgconv.loading import tuner
from imgconv.runtime import measuring
from imgconv.loading.device_target import target_of
from imgconv.stored.tuning import Measurement, TunedChooser, TuningDatabase, measurement_key
from imgconv.tensor import Tensor, build_graph

X = numpy.random.default_rng(0).normal(size=(1, 8, 9, 9)).astype(numpy.float32)


def network() -> Graph:
    """Two equal convolutions with different epilogues, another one, a product with a constant and one without."""
    x = Tensor.input("x", X.shape)
    a = x.conv2d(const(8, 8, 3, 3), padding=1).relu()
    b = a.conv2d(const(8, 8, 3, 3, seed=1), const(8), padding=1) + x
    c = b.depthwise(const(8, 1, 3, 3), stride=2).reshape(8, 16).matmul(const(16, 12)).named("c")
    return build_graph({"y": c @ c.transpose(1, 0)}, [x])


def prepared(device: DeviceInfo) -> PreparedGraph:
    return prepare(network(), Config(), target_of(device))


def tune(device: DeviceInfo, database: TuningDatabase, budget: float = 600.0, most: int = 3) -> dict[str, int]:
    """Measurements by problem."""
    context = open_device(device, profile=True)
    found = tuner.tune(prepared(device), context, database, budget, most, lambda done, total, what: None)
    return {measurement_key(problem, Config(), target_of(device)): len(measured) for problem, measured in found.items()}


def test_every_problem_is_measured_once(device: DeviceInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = TuningDatabase(tmp_path / "t", new=True)
    found, made = tune(device, database), prepared(device)
    problems = tuner.problems_of(made)
    assert found == {
        measurement_key(problem, made.config, made.target): min(3, len(tuner.ranked_candidates(problem, made.target)))
        for problem in problems
    }
    best = database.best(device.key)
    assert best.keys() == found.keys()
    assert all(measured.seconds > 0 for measured in best.values())

    def refuse(*arguments: object) -> None:
        raise AssertionError("everything is known")

    monkeypatch.setattr(tuner.Trial, "build", refuse)
    assert tune(device, database) == found


def test_equal_convolutions_are_one_problem() -> None:
    """The elementwise work that follows does not matter."""
    on = Target(ImageLimits(4096, 4096, 8), "gpu", 16)
    made = prepare(network(), Config(), on)
    first, second, *others = (launch.choice.problem for launch in made.plan().launches if launch.specialisation)
    assert first == second and tuner.problems_of(made).keys() == {first, *others} and len({first, *others}) == 4


def test_the_faster_half_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    first, later = [1.0, 1.1, 2.0, 0.9, 3.0], {0: 1.05, 3: 0.8}
    calls = []

    def seconds(trial: tuner.Trial, numbers: Sequence[int], rounds: int) -> list[float]:
        calls.append((list(numbers), rounds))
        return [first[n] if len(numbers) == 5 else later[n] for n in numbers]

    monkeypatch.setattr(tuner.Trial, "seconds", seconds)
    unused: Any = None
    trial = tuner.Trial([unused] * 5, [unused] * 5, unused, {}, [])
    assert trial.measure(range(5)) == [1.05, 1.1, 2.0, 0.8, 3.0]
    assert calls == [([0, 1, 2, 3, 4], tuner.LAUNCHES // 5), ([3, 0], tuner.LAUNCHES // 2)]


def test_trials_come_in_order_and_fail_alone(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    made = prepared(device)
    wanted = [
        (made, nodes, tuner.ranked_candidates(problem, made.target)[:2]) for problem,
        nodes in tuner.problems_of(made).items()
    ]
    wrong = wanted[1][2][-1]
    compare = tuner._check_equal_outputs

    def fail(outputs: Sequence[Any], choices: Sequence[Any], config: Config) -> None:
        if choices is wanted[1][2]:
            raise Error(f"no luck with {wrong}")
        compare(outputs, choices, config)

    monkeypatch.setattr(tuner, "_check_equal_outputs", fail)
    context = open_device(device, profile=True)
    for number, trying in enumerate(tuner.build_trials(wanted, context)):
        if number == 1:
            with pytest.raises(Error, match="no luck"):
                trying.result()
            continue
        trial = trying.result()
        assert list(trial.choices) == list(wanted[number][2])
        assert len(trial.launches) == len(trial.outputs) == len(trial.choices)
        seconds = trial.seconds([len(trial.choices) - 1, 0], 2)
        assert len(seconds) == 2 and all(s > 0 for s in seconds)
    assert number == len(wanted) - 1


def test_choices_write_to_one_output(device: DeviceInfo) -> None:
    made, context = prepared(device), open_device(device, profile=True)
    problem, nodes = next(iter(tuner.problems_of(made).items()))
    choices = tuner.ranked_candidates(problem, made.target)[:3]
    trial = tuner.Trial.build(made, nodes, choices, context)
    session = trial.session
    first = next(launch for launch in session.plan.launches if launch.specialisation).writes
    for number, output in enumerate(trial.outputs):
        context.upload(session.memory[first], numpy.full(first.bytes // 4, 7, numpy.float32)).wait()
        context.enqueue(*trial.launches[number])
        numpy.testing.assert_array_equal(session.value(first.name).reshape(output.shape), output)


def test_a_gpu_is_busy_while_a_round_is_enqueued(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    made, context = prepared(device), open_device(device, profile=True)
    context.info = replace(device, kind="gpu")
    problem, nodes = next(iter(tuner.problems_of(made).items()))
    choices = tuner.ranked_candidates(problem, made.target)[:2]
    trial = tuner.Trial.build(made, nodes, choices, context)
    launched: list[str] = []

    enqueue = context.enqueue

    def listening(*launch: Any) -> Any:
        launched.append(launch[0].function_name)
        return enqueue(*launch)

    monkeypatch.setattr(context, "enqueue", listening)
    assert len(trial.seconds([0, 1], 2)) == 2
    rounds, rest = divmod(len(launched), 3)  # those that a GPU finished too early are made again
    assert rounds >= 2 and not rest and [name == "keep_busy" for name in launched] == [True, False, False] * rounds


@pytest.mark.parametrize("early", [0, 2, 100])
def test_work_that_ended_too_early_is_repeated_and_longer(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, early: int
) -> None:
    """early: how often the work is over before the host has enqueued the last launch."""
    monkeypatch.setattr(measuring, "STEPS_OF_LAUNCH", 1)
    context = open_device(device, profile=True)
    work, over, steps = measuring.QueueFiller(context), [True] * early, context.buffer(numpy.ones(1, numpy.int32))
    launch = context.launch(work._program, "keep_busy", [work._number, steps], (1,), (1,))
    monkeypatch.setattr(context, "is_over", lambda events: bool(over) and over.pop())
    assert len(context.durations(work.enqueue_after_work([launch, launch]))) == 2
    tried = min(early + 1, measuring.ATTEMPTS)
    assert len(over) == max(0, early - tried) and work._steps_of_launch == 2 ** min(early, measuring.ATTEMPTS)
    (found,) = context.read(work._number, (1,), numpy.float32)
    taken = sum(2 * 2**n + 2 for n in range(tried))  # steps; the number is halved and increased by one at each
    assert found == numpy.float32(2.0 - 2.0 ** (1 - taken))


def test_a_busy_device_takes_steps_for_each_launch(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "STEPS_OF_LAUNCH", 1)
    context = open_device(device)
    work, found = measuring.QueueFiller(context), []
    for launches in (1, 3):
        work.enqueue(launches)
        found += list(context.read(work._number, (1,), numpy.float32))
    assert found == [1.0, 1.875]  # from 0, halved and increased by one at each step


def test_pairs_of_convolutions_are_tuned_too(device: DeviceInfo, tmp_path: Path) -> None:
    """A pair that a large GPU computes in one launch: copies of both nodes are measured, and the fastest is taken."""
    x = Tensor.input("x", (1, 32, 14, 14))
    pair = x.depthwise(const(32, 1, 3, 3), padding=1).relu().conv2d(const(16, 32, 1, 1))
    large = replace(target_of(device), kind="gpu", compute_units=132)
    made = prepare(build_graph({"y": pair.apply("exp")}, [x]), Config(), large)
    (problem,) = (problem for problem in tuner.problems_of(made) if isinstance(problem, separable.Problem))
    assert [node.output.name for node in tuner.problems_of(made)[problem]] == list(made.plan().launches[1].values)
    database = TuningDatabase(tmp_path / "t", new=True)
    found = tuner.tune(made, open_device(device, profile=True), database, 600.0, 2, lambda done, total, what: None)
    assert len(found[problem]) == 2
    database.record(
        device.key, measurement_key(problem, Config(), large), [Measurement(found[problem][-1].specialisation, 1e-12)]
    )
    (launch,) = replace(made, chooser=TunedChooser(database, device.key)).plan().compute_launches
    assert launch.choice is not None and launch.choice.template == "separable" and launch.choice.seconds == 1e-12
    assert launch.choice.specialisation == found[problem][-1].specialisation


def test_the_budget(device: DeviceInfo, tmp_path: Path) -> None:
    assert tune(device, TuningDatabase(tmp_path / "t", new=True), budget=0.0) == {}


def test_load_takes_what_was_measured(device: DeviceInfo, tmp_path: Path) -> None:
    """Also where the slowest is recorded as the fastest: the choice is the file's, the result the same."""
    database = TuningDatabase(tmp_path / "t", new=True)
    tune(device, database)
    expected = evaluate_graph(network(), {"x": X})["y"]
    for problem in tuner.problems_of(prepared(device)):
        name = measurement_key(problem, Config(), target_of(device))
        slowest = database.find(device.key, name)[-1]
        database.record(device.key, name, [type(slowest)(slowest.specialisation, 1e-12)])
    model = imgconv.load(network(), device, tuning=database.path)
    best = {str(measured.specialisation) for measured in database.best(device.key).values()}
    launches = [launch for launch in model.plan.launches if launch.specialisation]
    assert {launch.specialisation for launch in launches} == best
    assert all("the fastest measured, 0.0 us; predicted: " in str(launch.choice) for launch in launches)
    numpy.testing.assert_allclose(model.run({"x": X})["y"], expected, 0, 1e-5 * numpy.abs(expected).max())


def test_a_wrong_kernel_is_found(device: DeviceInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuner, "relative_error", lambda got, expected: 1.0)
    with pytest.raises(Error, match="two specialisations give different results: block "):
        tune(device, TuningDatabase(tmp_path / "t", new=True))


def test_the_command(
    device: DeviceInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IMGCONV_DEVICE", str(device.index))
    imgconv.export_onnx(network(), "m.onnx")
    assert cli.main(["tune", "m.onnx", "--candidates", "2", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    problems = len(tuner.problems_of(prepared(device)))
    assert content["file"] == "m.tuning" and Path("m.tuning").is_file() and len(content["problems"]) == problems
    assert all(row["seconds"] > 0 and row["gflops"] > 0 for row in content["problems"])
    assert cli.main(["tune", "m.onnx", "--candidates", "2", "--merge", "m.tuning", "--output", "other"]) == 0
    out = capsys.readouterr().out
    assert f"layers are measured ({problems} of different size)" in out and "written to other" in out
    assert cli.main(["inspect", "m.onnx", "--why"]) == 0
    chosen = [launch for launch in prepared(device).plan().launches if launch.specialisation]
    assert capsys.readouterr().out.count("the fastest measured") == len(chosen) > problems
    with pytest.raises(SystemExit, match="2"):
        cli.main(["tune", "m.onnx", "--candidates", "0"])
    assert "--candidates" in capsys.readouterr().err
