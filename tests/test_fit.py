"""Measurements as CSV, and the fit of the device models to them; nothing here needs a device."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import chain
from math import exp
from pathlib import Path

import pytest

from benchmarks import adreno, candidates, fit, slots
from benchmarks.adreno_mesa import Kernel, Mesa
from benchmarks.measurements import Measurement, add_measurements, read_measurements
from benchmarks.predicted_choice import predicted_rows
from imgconv.config import Config
from imgconv.errors import InputError
from imgconv.kernels.conv import candidates as conv_candidates, mobile
from imgconv.kernels.conv.problem import Problem, work_items
from imgconv.kernels.conv.work import launch_work
from imgconv.kernels.device_model.adreno import A630
from imgconv.kernels.device_model.cpu import CPU as CPU_MODEL
from imgconv.kernels.device_model.desktop_gpu import DESKTOP_GPU
from imgconv.kernels.device_model.mobile_gpu import MOBILE_GPU
from imgconv.kernels.device_model.models import DeviceModel, device_model_for
from imgconv.kernels.layout import ImageLimits
from imgconv.kernels.matmul import template as matmul
from imgconv.kernels.target import Target, TargetKind

LIMITS = ImageLimits(16384, 16384, 2048)
CPU = Target(LIMITS, "cpu", 2)
PROBLEM = Problem(1, 64, (28, 28), 128, (14, 14), (3, 3), (2, 2), (1, 1), (1, 1), 1)
DEPTHWISE = replace(PROBLEM, filters=64, groups=64, depthwise=True)


def measurements(kind: str, units: int) -> list[Measurement]:
    """A few candidates of two convolutions and a product, each a microsecond longer than the one before."""
    found = [
        (problem, chosen)
        for problem in (PROBLEM, DEPTHWISE) for chosen in conv_candidates.candidates(problem, kind, units)[:40:8]
    ]
    multiplied = matmul.Problem(2, 49, 64, 49)
    made = [*found, *((multiplied, chosen) for chosen in matmul.candidates(multiplied, kind)[:3])]
    return [
        Measurement("a device, by name", kind, units, 0, problem, chosen, {"seconds": float(f"{n}e-6")})
        for n, (problem, chosen) in enumerate(made, 1)
    ]


@pytest.mark.parametrize(("kind", "units"), [("cpu", 2), ("gpu", 132)])
def test_measurements_are_read_as_they_were_written(kind: str, units: int, tmp_path: Path) -> None:
    made = measurements(kind, units)
    assert {each.template for each in made} == {"convolution", "product"}
    add_measurements(tmp_path / "a.csv", made)
    assert read_measurements(tmp_path / "a.csv") == made
    assert str(read_measurements(tmp_path / "a.csv")) == str(made), "1 is not True"
    slower, faster = (replace(made[n], figures={"seconds": 2.5e-6}) for n in (0, 3))
    add_measurements(tmp_path / "a.csv", [slower, faster])
    assert read_measurements(tmp_path / "a.csv") == [*made[:3], faster, *made[4:]]


def test_older_files_say_half_of_runs(tmp_path: Path) -> None:
    in_runs = replace(PROBLEM, sums="runs")
    made = [replace(each, problem=in_runs) for each in measurements("gpu", 2) if each.problem == PROBLEM]
    add_measurements(tmp_path / "a.csv", made)
    text = (tmp_path / "a.csv").read_text().replace(",sums,", ",half,").replace(",runs,", ",1,")
    (tmp_path / "a.csv").write_text(text)
    assert read_measurements(tmp_path / "a.csv") == made
    (tmp_path / "a.csv").write_text(text.replace("3x3,2x2,1x1,1x1,1,0,1x1,0x0,1,", "3x3,2x2,1x1,1x1,1,0,1x1,0x0,0,"))
    assert {each.problem for each in read_measurements(tmp_path / "a.csv")} == {PROBLEM}


def test_a_damaged_row_is_named(tmp_path: Path) -> None:
    add_measurements(tmp_path / "a.csv", measurements("cpu", 2))
    text = (tmp_path / "a.csv").read_text()
    (tmp_path / "a.csv").write_text(text.replace("28x28", "28 by 28"))
    with pytest.raises(InputError, match=r"a\.csv, line 2 .*28 by 28"):
        read_measurements(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text(text.replace("convolution", "correlation"))
    with pytest.raises(InputError, match=r"line 2 .*correlation"):
        read_measurements(tmp_path / "a.csv")


def test_problems_and_candidates_are_spread() -> None:
    asked = candidates.collect(["squeezenet"], Config(), CPU)
    mixed = candidates.spread(asked, 7)
    assert {each.problem for each in mixed[:6]} != {each.problem for each in asked[:6]}
    assert mixed == candidates.spread(asked, 7)
    known = {each.problem: each.candidates for each in asked}
    for each in mixed:
        likely, ranks = known[each.problem], [known[each.problem].index(c) for c in each.candidates]
        assert sorted(ranks) == list(range(len(likely))) and ranks[:4] == [0, 1, 2, 3]
        rest = len(likely) - 4
        assert [ranks[4 + n] for n in range(3)] == [4 + int(rest * (n + 0.5) / 3) for n in range(3)]
    few = replace(asked[0], candidates=asked[0].candidates[:3])
    assert candidates.spread([few], 7)[0].candidates == tuple(few.candidates)


def test_a_row_of_the_choice_is_measurements() -> None:
    asked = candidates.collect(["squeezenet"], Config(), CPU)[0]
    row = candidates.Row(asked, 2, seconds=(1e-6, 2e-6))
    made = row.measurements("x", CPU, Config())
    assert [(m.specialisation, m.figures) for m in made] == [
        (asked.candidates[0], {"seconds": 1e-6}), (asked.candidates[1], {"seconds": 2e-6}),
    ]
    assert {(m.device, m.kind, m.compute_units, m.float16, m.problem) for m in made} == {
        ("x", "cpu", 2, 0, asked.problem)
    }
    assert not candidates.Row(asked, 2, "WRONG").measurements("x", CPU, Config())


class MadeUpMesa(Mesa):
    """A compiler of straight code of 1,000 issue slots and 10 reads; the text of one kernel it refuses."""

    def compile(self, texts: Sequence[str], gpus: Sequence[int]) -> dict[int, dict[str, Kernel]]:
        block = {"n": 1000, "half_alu": 0, "sstall": 0, "systall": 0}
        made = {"blocks": [block], "full_regs": 24, "max_waves": 4, "stp": 0, "ldp": 2, "subgroup": 64, "shared": 0}
        listing = "code\n" + "isam (f32)(xyzw)r4.x, r0.x, s#0, t#0\n" * 10 + "(rpt988)nop\nend\n"
        kernels = dict.fromkeys(texts, Kernel(made, listing)) | {texts[1]: Kernel(error="no luck")}
        return dict.fromkeys(gpus, kernels)


def test_slots_of_candidates_are_measurements(tmp_path: Path) -> None:
    target, file = adreno.target_for(A630), tmp_path / "a.csv"
    problems = candidates.spread(candidates.collect(["squeezenet"], Config(), target), 4)[:2]
    options = slots.make_parser().parse_args(["--candidates", "4", "--csv", str(file)])
    assert slots.measure(MadeUpMesa(tmp_path, False), problems, options, Config(), target) == 7
    found = read_measurements(file)
    wanted = [(asked.problem, chosen) for asked in problems for chosen in asked.candidates[:4]]
    assert [(each.problem, each.specialisation) for each in found] == [wanted[0], *wanted[2:]]
    for each in found:
        lanes, reads = each.figures["lanes"], each.figures["reads"]
        assert each.figures == {
            "issue": 1000, "reads": reads, "registers": 24, "waves": 4, "spills": 2, "lanes": lanes,
        } and lanes % 64 == 0 and reads >= 10  # those of items that only return are divided among the others
    launches = slots.launches_of(problems[0], problems[0].candidates[:4])
    assert [launch.specialisation for launch in launches] == [str(chosen) for _, chosen in wanted[:4]]
    assert all("#define EPILOGUE(sum, column, row, quad) (sum)" in launch.source.text for launch in launches)


def test_a_predicted_row_has_the_seconds_of_the_model(tmp_path: Path) -> None:
    """The made-up compiler refuses the second of four candidates; the others differ by their waves."""
    problems = candidates.collect(["squeezenet"], Config(), adreno.target_for(A630))[:2]
    row, other = predicted_rows(problems, A630, MadeUpMesa(tmp_path, False), 4, 100.0)
    assert (row.asked, other.asked, row.measured) == (*problems, 4)
    assert row.seconds[1] == math.inf and row.ratio(1) == math.inf
    for choice, seconds in zip(row.asked.candidates[:4], row.seconds, strict=False):
        local = math.prod(choice.local_size or ())
        blocks = work_items(problems[0].problem, choice)
        groups = math.prod(math.ceil(n / size) for n, size in zip(blocks, choice.local_size or (), strict=True))
        rounds = math.ceil(groups * math.ceil(local / 64) / A630.units)
        if seconds < math.inf:
            assert seconds >= rounds * A630.units * 64 * 1000 / A630.narrow_slots + A630.launch
    assert list(predicted_rows(problems, A630, MadeUpMesa(tmp_path, False), 4, -1.0)) == []


# The fit


def problems_like(model: DeviceModel, kind: TargetKind, units: int) -> list[list[fit.Candidate]]:
    """Candidates of several convolutions that take exactly what the model says."""
    sizes = [(16, 32, 28), (64, 64, 14), (32, 128, 20), (128, 32, 7), (24, 48, 33)]
    asked = [
        replace(PROBLEM, channels=c, filters=k, input_size=(n, n), output_size=(n, n), window=(w, w), strides=(1, 1))
        for c, k, n in sizes for w in (1, 3)
    ]
    found = []
    for problem in asked:
        made = conv_candidates.candidates(problem, kind, units)[:: 4 if kind == "cpu" else 9]
        works = [launch_work(problem, chosen, kind, units) for chosen in made]
        found.append([fit.Candidate(work, units, model.seconds(work, units)) for work in works])
    return found


TRUE_CPU = replace(CPU_MODEL, read=2.6, write=1.0, step=2.0, multiply=0.4)
TRUE_DESKTOP = replace(DESKTOP_GPU, read=0.5, transaction=3.0, wait_read=150.0, wait_write=500.0)


@pytest.mark.parametrize(("true", "kind", "units"), [(TRUE_CPU, "cpu", 2), (TRUE_DESKTOP, "gpu", 24)])
def test_a_fit_finds_the_numbers_that_measurements_were_made_with(
    true: DeviceModel, kind: TargetKind, units: int
) -> None:
    start = device_model_for(kind, units)
    names = [name for name in vars(true) if getattr(true, name) != getattr(start, name)]
    problems = problems_like(true, kind, units)
    found = fit.fit(problems, start, names)
    for name in names:
        # Candidates within NEARLY of each other share the choice, which moves numbers by about as much.
        assert getattr(found, name) == pytest.approx(getattr(true, name), rel=0.05), name
    before, after = (fit.Quality.of(fit.outcomes(problems, model)) for model in (start, found))
    assert after.within == 1 and after.time < 1.001 and after.rank > 0.99 and after.error < fit.NEARLY
    assert before.error > 0.1 and before.rank < after.rank


def test_a_disturbed_measurement_moves_the_numbers_little() -> None:
    problems = problems_like(TRUE_CPU, "cpu", 2)
    problems[0][1] = replace(problems[0][1], measured=40 * problems[0][1].measured)
    found = fit.fit(problems, CPU_MODEL, ["read", "write", "step", "multiply"])
    for name in ("read", "step", "multiply"):
        assert getattr(found, name) == pytest.approx(getattr(TRUE_CPU, name), rel=0.05), name


def test_validation_judges_by_the_other_problems() -> None:
    problems = problems_like(TRUE_CPU, "cpu", 2)
    right = fit.validated(problems, CPU_MODEL, ["read", "write", "step", "multiply"], 5)
    assert right.problems == len(problems) and right.error < fit.NEARLY and right.within == 1
    # Problems measured on two CPUs in turn: each fold has one CPU's problems, so the other CPU's numbers judge them.
    one, other = (replace(CPU_MODEL, multiply=each) for each in (0.1, 1.6))
    of_one, of_other = (problems_like(model, "cpu", 2) for model in (one, other))
    crossed = fit.Quality.of([*fit.outcomes(of_one, other), *fit.outcomes(of_other, one)])
    in_turn = list(chain(*zip(of_one, of_other, strict=True)))
    found = fit.validated(in_turn, CPU_MODEL, ["multiply"], 2)
    assert found.error == pytest.approx(crossed.error, rel=0.05), "as exact as the fit of a number"


def outcome(chosen: float, rank: float = 1.0, errors: Sequence[float] = (0.0,)) -> fit.Outcome:
    return fit.Outcome(chosen, 1.0, rank, tuple(errors))


def test_quality() -> None:
    quality = fit.Quality.of([outcome(1.0), outcome(1.1, 0.5, [0.1, -0.2]), outcome(1.2, 0.0, [0.3])])
    assert (quality.problems, quality.rank) == (3, 0.5)
    assert (quality.within, quality.time) == pytest.approx((2 / 3, 3.3 / 3))
    assert quality.error == pytest.approx(exp(0.15) - 1)


def test_slots_of_a_phone() -> None:
    """Slots of all lanes are fitted, if no register is spilled; predicted seconds show the choices only."""
    chosen = conv_candidates.default_specialisation(PROBLEM, "gpu", 2)
    figures = {"issue": 100.0, "reads": 10.0, "registers": 24.0, "waves": 4.0, "spills": 0.0, "lanes": 256.0}
    row = Measurement("Mesa", "gpu", 2, 0, PROBLEM, chosen, figures)
    candidate = fit.candidate_of(row)
    assert candidate.measured == 256 * 100 and fit.counts(row)
    slots = MOBILE_GPU.slots(launch_work(PROBLEM, chosen, "gpu", 2))
    (outcome,) = fit.outcomes([[candidate]], MOBILE_GPU)
    assert outcome.errors == pytest.approx((math.log(slots / 100),))
    assert not fit.counts(replace(row, figures=figures | {"spills": 2.0}))
    assert not fit.counts(replace(row, figures={"seconds": math.inf}))
    seconds = [replace(row, figures={"seconds": each}, specialisation=c) for each, c in (
        (1e-6, chosen), (2e-6, replace(chosen, block_rows=1)),
    )]
    (group,) = fit.groups_of(seconds)
    assert group.unit == "seconds" and not group.free and fit.Report.of(group, 2).numbers == []


def test_groups_have_their_own_numbers() -> None:
    groups = {group.name: group for group in fit.groups_of([*measurements("cpu", 2), *measurements("gpu", 132)])}
    assert set(groups) == {"CpuModel, seconds", "DesktopGpuModel, seconds"}
    assert [len(group.problems) for group in groups.values()] == [3, 3], "convolutions and products together"
    assert {"read", "write"} <= set(groups["CpuModel, seconds"].free)
    assert not fit.GIVEN & {*groups["CpuModel, seconds"].free, *groups["DesktopGpuModel, seconds"].free}
    assert fit.groups_of(measurements("cpu", 2)[:1]) == [], "one candidate leaves no choice"


def test_at_most_fifty_numbers() -> None:
    """Fitted and estimated ones of the three models, and what Mesa's compiler does."""
    in_models = sum(len(fields(model)) for model in (CPU_MODEL, DESKTOP_GPU, MOBILE_GPU))
    of_mesa = {n for n, value in vars(mobile).items() if n.isupper() and isinstance(value, (int, float))}
    assert {"UNROLLED", "AHEAD"} <= of_mesa and in_models + len(of_mesa - {"LANES", "WAVE"}) <= 50


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        replace(row, figures={"seconds": CPU_MODEL.seconds(fit.candidate_of(row).work, 2)})
        for row in measurements("cpu", 2)
    ]
    add_measurements(tmp_path / "a.csv", rows)
    assert fit.main(fit.make_parser().parse_args([str(tmp_path / "a.csv"), "--folds", "2", "--json", "-"])) == 0
    (report,) = json.loads(capsys.readouterr().out)["reports"]
    assert report["name"] == "CpuModel, seconds" and report["qualities"]["fitted"]["within"] == 1
    assert fit.main(fit.make_parser().parse_args([str(tmp_path / "a.csv"), "--folds", "2"])) == 0
    assert "CpuModel, seconds" in capsys.readouterr().out


@pytest.mark.parametrize("file", sorted(fit.FOLDER.glob("*.csv")), ids=lambda file: file.stem)
def test_the_numbers_in_use_choose_well_among_what_was_measured(file: Path) -> None:
    """For 97 % of the problems, as `python -m benchmarks.fit` says; a candidate drawn by chance is right for 30 %."""
    for group in fit.groups_of(read_measurements(file)):
        quality = fit.Quality.of(fit.outcomes(group.problems, group.model))
        assert quality.within >= 0.95 and quality.time <= 1.03 and quality.rank >= 0.8, quality
