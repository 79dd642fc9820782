"""The benchmarks' arithmetic, and what they write; nothing here needs a device."""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy
import pytest
from benchmark_graphs import CPU, GPU, small_graph, weights

from benchmarks import adreno, candidates, choice, engines, exported, growth, half_storage, half_sums, kernel, measure
from benchmarks import memory, model, networks, peers, survey
from imgconv.compiling.lower import lower
from imgconv.config import Config
from imgconv.errors import InputError
from imgconv.graph.evaluate import evaluate_graph
from imgconv.graph.nodes import Convolution
from imgconv.kernels.conv import candidates as conv_candidates
from imgconv.kernels.conv.problem import Problem
from imgconv.passes import run_passes
from imgconv.reports.peaks import Peaks
from imgconv.reports import timing
from imgconv.tensor import Tensor, build_graph, convolution


# Inputs on which no precision is chosen


def test_cases_beside_a_file_if_they_fit(tmp_path: Path) -> None:
    network = networks.Network("small", small_graph(), tmp_path / "small.onnx")
    (value,), graph = network.graph.inputs, run_passes(network.graph)
    what, inputs = half_sums.unmeasured(network, graph)
    assert what == "demo.png, noise" and [each[value.name].shape for each in inputs] == [value.shape] * 2
    assert all(0 <= each[value.name].min() < each[value.name].max() <= 1 for each in inputs)
    fits = numpy.full((*value.shape[:3], value.shape[3] + 5), 7, value.dtype)
    fits[..., -5:] = 8
    numpy.savez(tmp_path / "case_small.npz", **{f"in:{value.name}": fits, "out:y": numpy.zeros(1)})
    numpy.savez(tmp_path / "case_other.npz", **{f"in:{value.name}": fits[..., :-6]})
    what, inputs = half_sums.unmeasured(network, graph)
    assert what == "1 cases" and (inputs[0][value.name] == 7).all() and inputs[0][value.name].shape == value.shape


def test_pictures_are_of_the_range_that_the_network_is_made_for(tmp_path: Path) -> None:
    x = Tensor.input("x", (1, 8, 9, 3))
    graph = build_graph({"y": (x.transpose(0, 3, 1, 2) - 127) / 128})
    _, (shown, noise) = half_sums.unmeasured(networks.Network("bytes", graph, tmp_path / "a.onnx"), run_passes(graph))
    assert shown["x"].shape == noise["x"].shape == (1, 8, 9, 3)
    assert all(100 < each["x"].max() <= 255 and each["x"].min() >= 0 for each in (shown, noise))


def test_what_can_be_half_at_all() -> None:
    """Between 2000 and 2048 halves are 1 apart: a value moved there cannot be half, all others can."""
    x = Tensor.input("x", (1, 4, 12, 12))
    middle = x.conv2d(weights(4, 4, 3, 3), padding=1).tanh()
    graph = run_passes(build_graph({"y": (middle + 2000.0).max_pool(3, 1, 1) - 2000.0, "z": middle}))
    inputs = [{"x": numpy.random.default_rng(seed).uniform(0, 1, x.shape).astype(numpy.float32)} for seed in range(3)]
    case = half_storage.Stored(graph, inputs, list(graph.values.keys() - graph.constants.keys()))
    for name, array in evaluate_graph(graph, inputs[0]).items():
        assert case.run((), inputs[0])[name] == pytest.approx(array, rel=1e-3)
    assert max(case.errors(case.names, range(3))) > 0.1
    kept, best = set(case.names) - set(case.best(1e-2)), case.best(1e-2)
    assert max(case.errors(best, range(3))) <= 1e-2 and 0 < len(kept) < len(case.names) and "x" in best


def test_sums_are_written_as_json(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    row = half_sums.Row("small", "2 cases", 1e-4, 2e-4, 3e-4, 2e-4, Counter(["half", "float", "half"]))
    half_sums.show(argparse.Namespace(json=str(file)), measure.environment(), [row])
    (found,) = json.loads(file.read_text())["networks"]
    assert found["sums"] == {"half": 2, "float": 1} and found["runs"] == 2e-4


# Statistics


def test_timing() -> None:
    found = timing.Timing.from_seconds([4.0, 1.0, 2.0, 3.0, 5.0])
    assert found == timing.Timing(1.0, 3.0, pytest.approx(2 / 3), 5)
    assert timing.Timing.from_seconds([0.0]).spread == 0
    assert found.to_json() == {"min_seconds": 1.0, "median_seconds": 3.0, "spread": pytest.approx(2 / 3), "runs": 5}


def test_repeated_warms_up_first(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = iter(range(1000))
    assert timing.time_repeatedly(lambda: float(next(calls)), 3) == timing.Timing.from_seconds([3.0, 4.0, 5.0])
    monkeypatch.setattr(timing, "WARMUP_SECONDS", 0.0)
    assert timing.time_repeatedly(lambda: float(next(calls)), 5).minimum == 6 + 2


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (1234.5, "1234"), (12.345, "12.3"), (0.00123456, "0.00123"), (math.inf, "-"), (None, "-")],
)
def test_digits(value: float | None, text: str) -> None:
    assert measure.digits(value) == text


def test_relative_error() -> None:
    want = {"y": numpy.array([1.0, -4.0, 2.0])}
    assert measure.relative_error({"y": numpy.array([1.0, -4.0, 2.5])}, want) == 0.125
    assert measure.relative_error({"y": numpy.array([1.0, numpy.nan, 2.0])}, want) == math.inf
    assert measure.relative_error({"y": numpy.ones(2)}, want) == math.inf
    assert measure.relative_error({}, want) == math.inf
    infinite = {"y": numpy.array([numpy.inf, numpy.nan])}
    assert measure.relative_error(infinite, infinite) == 0
    assert measure.relative_error({"y": -infinite["y"]}, infinite) == math.inf


def test_inputs_are_the_same_each_time() -> None:
    values = small_graph().inputs
    first, second = measure.draw_inputs(values), measure.draw_inputs(values)
    numpy.testing.assert_array_equal(first["x"], second["x"])
    assert first["x"].dtype == numpy.float32 and first["x"].min() >= 0 and first["x"].max() < 1


def test_peaks_name_the_binding_one() -> None:
    least = Peaks(operations=100.0, reads=10.0, bytes=1.0).least_seconds(200.0, 10.0, 3.0)
    assert least == {"multiply-adds": 2.0, "texture reads": 1.0, "bandwidth": 3.0}


# Networks and rows


def test_problems_of_a_graph_have_its_sizes() -> None:
    x = Tensor.input("x", (1, 8, 13, 17))
    plain = convolution(x, weights(12, 4, 3, 3), [2, 2], [1, 1, 0, 1], [1, 1], 2)
    wide = convolution(plain, weights(12, 7, 3, 2), [2, 3], [1, 0, 1, 1], [1, 2], 1, None, True)
    graph = run_passes(build_graph({"y": wide}, [x]))
    found = kernel.problems_of(graph)
    nodes = [node for node in graph.nodes if isinstance(node.operation, Convolution)]
    assert [problem.output_size for problem in found] == [node.output.shape[2:] for node in nodes]
    assert kernel.describe(found[0]) == "3x3 8->12 at 13x17 /2 groups 2"
    assert kernel.describe(found[1]).endswith("transposed")
    (product,) = (p for p in kernel.problems_of(run_passes(small_graph())) if not hasattr(p, "window"))
    assert kernel.describe(product) == "product 1x32 by 32x10"
    assert product.constant == "b"


def test_plan_figures_and_a_models_row() -> None:
    graph = run_passes(small_graph())
    plan = lower(graph, Config(), GPU)
    figures = model.plan_figures(plan)
    assert figures["multiply_adds"] == 16 * 16 * (3 * 16 * 9 + 16 * 32) + 320
    assert figures["launches"] + figures["transfers"] == len(plan.launches)
    assert figures["traffic_bytes"] == sum(launch.moved_bytes for launch in plan.launches)
    took = timing.Timing(0.5, 1.0, 0.1, 3)
    row = model.Row("small", "1x3x16x16", 256, 1e-6, 1e-3, figures, took, took, 2.0, 1.0)
    content = json.loads(json.dumps(row.to_json()))
    assert content["right"] and content["gflops"] == pytest.approx(2e-9 * figures["multiply_adds"])
    assert content["device"]["median_seconds"] == 1.0 and content["first_result_cold_seconds"] == 2.0
    wrong = model.Row("small", "1x3x16x16", 256, 0.5, 1e-3, figures)
    assert not wrong.right and wrong.to_json()["gflops"] is None
    assert measure.make_table("t", model.COLUMNS + model.COST, [row, wrong]).row_count == 2


def test_unknown_networks_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'nothing'.*mobilenet_v2"):
        networks.open_network("nothing", tmp_path)
    assert networks.sized("a", ()) == [("a", None)]
    assert networks.sized("a", (1, 2)) == [("a", 1), ("a", 2)]


class FakePeer:
    """Takes a second longer each time it is asked."""

    def __init__(self, name: str, first: float) -> None:
        self.name, self.seconds = name, first

    def run(self) -> float:
        self.seconds += 1
        return self.seconds


def test_peers_take_turns_and_give_ratios(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "WARMUP_SECONDS", 0.0)
    monkeypatch.setattr(peers, "PAUSE", 0.0)
    rows = {name: peers.Row("small", name, "", 0.0) for name in ("imgconv", "onnxruntime")}
    rows["ncnn"] = peers.Row("small", "ncnn", "pnnx is not installed")
    fakes: Any = [FakePeer("imgconv", 0), FakePeer("onnxruntime", 10)]
    made = {row.engine: row for row in peers.timed_rows(rows, fakes, 3)}
    assert made["imgconv"].timing == timing.Timing.from_seconds([5.0, 6.0, 7.0]) and made["imgconv"].ratio == 1
    assert made["onnxruntime"].ratio == pytest.approx(16 / 6)
    assert made["ncnn"].timing is None and made["ncnn"].to_json()["problem"] == "pnnx is not installed"
    assert json.loads(json.dumps([row.to_json() for row in made.values()]))[1]["note"] == "CPU"
    assert measure.make_table("t", peers.COLUMNS, list(made.values())).row_count == 3


def test_a_converter_that_is_missing_is_no_crash(tmp_path: Path) -> None:
    with pytest.raises(ImportError, match="no-such-converter is not installed"):
        engines._convert(["no-such-converter"], str(tmp_path))


def test_torch_runs_what_is_exported(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from benchmarks.torch_onnx import TorchModel
    from imgconv import export_onnx

    graph, file = small_graph(), tmp_path / "small.onnx"
    export_onnx(graph, file)
    inputs = measure.draw_inputs(graph.inputs)
    (made,) = TorchModel(file, "cpu")(torch.from_numpy(inputs["x"]))
    assert measure.relative_error({"y": made.numpy()}, measure.run_oracle(file, inputs)) < 1e-5


# The choice of kernels, and growth


def choice_row(seconds: tuple[float, ...], tuned: int, again: float = 1.0) -> candidates.Row:
    (asked, *_) = candidates.collect(["squeezenet"], Config(), CPU)
    return candidates.Row(asked, len(seconds), "", 1e-7, seconds, tuned, again)


def test_a_module_that_cannot_be_recorded_is_no_crash(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object) -> exported.Row:
        raise RuntimeError("no copies\nfrom the host")

    monkeypatch.setattr(exported, "measure", refuse)
    row = exported.tried("fcn_resnet50", tmp_path, cast(Any, None), 1)
    assert (row.size, row.problem, row.ratio) == (512, "RuntimeError: no copies from the host", None)
    assert exported.file_of("timm/dla34", tmp_path) == tmp_path / "timm_dla34.onnx"
    halved = replace(row, wall=timing.Timing.from_seconds([2.0]), graph=timing.Timing.from_seconds([1.0]))
    assert halved.ratio == 0.5


def test_a_survey_judges_by_float64_if_onnxruntime_is_off_too() -> None:
    graph, row = small_graph(), survey.Row("a.onnx", survey.WRONG, error=1e-2)
    inputs = {"x": numpy.ones((1, 3, 16, 16), numpy.float32)}
    exact = evaluate_graph(graph, inputs)
    near, far = ({name: array * factor for name, array in exact.items()} for factor in (1.01, 1.03))
    assert survey.judged_by_float64(row, graph, inputs, near, far).result == survey.RIGHT
    assert survey.judged_by_float64(row, graph, inputs, far, near).result == survey.WRONG
    assert survey.difference({"y": numpy.array([1, 2])}, {"y": numpy.array([1, 3])}) == 0.5


def test_a_survey_judges_half_beside_the_scale_of_an_output() -> None:
    """An almost empty mask beside a full one of another picture; integers by the part that differs."""
    masks = [{"mask": numpy.array([1.0, 0.5])}, {"mask": numpy.array([1e-5, 0.0])}, {"mask": numpy.array([0.8, 0.2])}]
    half = [{"mask": each["mask"] + numpy.array([0.0, 1e-3])} for each in masks]
    assert survey.error_of_half(masks, half, {"mask": 0.0}) == pytest.approx(1e-3 / 0.8)
    assert survey.error_of_half(masks[1:2], half[1:2], {"mask": 0.01}) == pytest.approx(0.1)
    assert survey.error_of_half([{"n": numpy.array([1, 2])}], [{"n": numpy.array([1, 3])}], {}) == 0.5
    grey = survey.with_picture({"x": numpy.zeros((1, 1, 8, 9), numpy.uint8), "n": numpy.zeros(2)}, survey.PICTURE)
    assert grey["x"].dtype == numpy.uint8 and grey["x"].max() > 100 and grey["n"].shape == (2,)


def test_open_dimensions_of_a_surveyed_file() -> None:
    assert survey.shape_of(["N", 3, "h", "w"], (48, 320), 7) == (1, 3, 48, 320)
    assert survey.shape_of([1, "h", "w", 3], (48, 320), 7) == (1, 48, 320, 3)
    assert survey.shape_of(["N", "length"], (48, 320), 7) == (1, 7)


def test_every_problem_is_asked_once_with_the_default_first() -> None:
    found = candidates.collect(["squeezenet", "squeezenet"], Config(), CPU)
    assert len({asked.problem for asked in found}) == len(found) > 10
    for asked in found:
        assert isinstance(asked.problem, Problem)
        assert asked.candidates[0] == conv_candidates.default_specialisation(asked.problem, "cpu", 2)
        assert asked.networks == ("squeezenet", "squeezenet")
    assert candidates.describe(found[0].problem) == "1x1 512->1000 at 13x13"


def test_shares_of_good_choices() -> None:
    right, near, far = (
        choice_row((1.0, 2.0), 0), choice_row((1.1, 1.0), 0), choice_row((1.2, 1.04, 1.0), 1)
    )
    assert [row.ratio(0) for row in (right, near, far)] == pytest.approx([1.0, 1.1, 1.2])
    share = candidates.Share("all", (right, near, far))
    assert share.default == pytest.approx(2 / 3) and share.tuned == pytest.approx(1 / 3)
    assert share.to_json()["default_time"] == pytest.approx(3.3 / 3)
    assert share.to_json()["tuned_time"] == pytest.approx((1.0 + 1.1 + 1.04) / 3)
    assert candidates.Share("off", [choice_row((1.0, 2.0), 0, 1.25)]).noise == pytest.approx(0.25)
    content = json.loads(json.dumps(far.to_json()))
    assert content["default_over_best"] == pytest.approx(1.2) and content["tuned_over_best"] == pytest.approx(1.04)
    failed = candidates.Row(right.asked, 2, "WRONG", 1.0)
    assert failed.to_json()["default_over_best"] is None
    assert measure.make_table("t", choice.COLUMNS, [right, far, failed]).row_count == 3
    assert measure.make_table("t", choice.SHARES, [share, candidates.Share("none", [])]).row_count == 2


def growth_row(size: int, limit: int | None, wall: float, launches: tuple[float, ...]) -> growth.Row:
    x = Tensor.input("x", (1, 3, size, size))
    graph = build_graph({"y": (x.relu().sum((2, 3)) + 1.0).named("z") * 2.0}, [x])
    network = networks.Network("small", graph, Path("small.onnx"))
    case = growth.Case(network, limit, 0.0, "", None, {}, None)
    return growth.Row(case, timing.Timing.from_seconds([wall]), launches)


def test_growth_is_beside_the_reference_size() -> None:
    rows = growth.with_growth([
        growth_row(224, None, 1.0, (1.0,)), growth_row(448, 64, 2.2, (2.5,)), growth_row(448, None, 2.0, (1.5, 0.5)),
        growth_row(896, None, 8.0, (8.0,)),
    ])
    assert [row.wall_growth for row in rows] == pytest.approx([2.0, 1.1, 1.0, 1.0])
    assert [row.device_growth for row in rows] == pytest.approx([2.0, 1.25, 1.0, 1.0])
    assert [row.good for row in rows] == [True, False, True, True], "below the reference's size it may cost more"
    assert json.loads(json.dumps(rows[1].to_json()))["wall_nanoseconds_per_pixel"] == pytest.approx(2.2e9 / 448**2)
    failed = replace(rows[3], wall=None, launches=(), case=replace(rows[3].case, failure="refused"))
    assert not failed.good
    assert measure.make_table("t", growth.COLUMNS, [*rows, failed]).row_count == 5
    small = growth.with_growth([growth_row(96, None, 1.0, (1.0,)), growth_row(64, None, 1.0, (1.0,))])
    assert [row.wall_growth for row in small] == pytest.approx([4 / 9, 1.0])


# Memory


def test_memory_cases_mean_what_their_numpy_says() -> None:
    """At sizes at which numpy can say so; the benchmark checks each on the device before it measures."""
    for case in memory.cases():
        shape = tuple(min(n, 14) for n in case.shape)
        x = numpy.random.default_rng(2).standard_normal(shape).astype(numpy.float32)
        (found,) = evaluate_graph(build_graph({"y": case.make(Tensor.input("x", shape))}), {"x": x}).values()
        numpy.testing.assert_allclose(found, case.compute(x.astype(numpy.float64)), 1e-5, 1e-6)
    assert {str(c) for c in memory.select_cases(["5x5", "relu"])} == {
        "max pool 5x5 1x192x20x20", "relu 1x64x56x56", "relu 1x64x256x256",
    }


def test_a_memory_row_that_is_wrong_has_no_rate() -> None:
    case = memory.cases()[0]
    row = memory.Row(case, 1, 8_000_000, 1e-7, 1e-5, 1e9, timing.Timing(0.004, 0.008, 0.0, 3))
    assert (row.right, row.rate, row.share) == (True, 1e9, 1.0)
    wrong = replace(row, error=1e-3, timing=None)
    assert (wrong.right, wrong.rate, wrong.share) == (False, None, None) and wrong.to_json()["right"] is False


# Command lines


@pytest.mark.parametrize("module", [model, kernel, peers, adreno, choice, growth, exported])
def test_command_lines(module: Any) -> None:
    options = module.make_parser().parse_args(["squeezenet", "--json", "-"])
    assert options.network == ["squeezenet"] and options.json == "-"
    assert memory.make_parser().parse_args(["relu", "--json", "-"]).name == ["relu"]


@pytest.mark.parametrize("text", ["", "0", "-1", "x", "1,"])
def test_numbers_on_the_command_line(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        measure.positives(text)


def test_json_only_or_beside_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "out.json"
    content = {"value": math.nan, "environment": measure.environment()}
    measure.publish(argparse.Namespace(json=str(file)), content, "a line")
    assert capsys.readouterr().out == "a line\n"
    measure.publish(argparse.Namespace(json="-"), content, "a line")
    printed = capsys.readouterr().out
    assert json.loads(printed) == json.loads(file.read_text()) and json.loads(printed)["value"] is None
