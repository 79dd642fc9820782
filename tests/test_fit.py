"""Measurements as CSV, and the fit of the cost models to them; nothing here needs a device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import choice
from benchmarks.measurements import Measurement, add_measurements, read_measurements
from imgconv.config import Config
from imgconv.errors import InputError
from imgconv.kernels import convolution_choice, product
from imgconv.kernels.convolution import Problem
from imgconv.layout import ImageLimits
from imgconv.lower import Target

LIMITS = ImageLimits(16384, 16384, 2048)
CPU = Target(LIMITS, "cpu", 2)
PROBLEM = Problem(1, 64, (28, 28), 128, (14, 14), (3, 3), (2, 2), (1, 1), (1, 1), 1)
DEPTHWISE = replace(PROBLEM, filters=64, groups=64, depthwise=True)


def measurements(kind: str, units: int) -> list[Measurement]:
    """A few candidates of two convolutions and a product, each a microsecond longer than the one before."""
    found = [
        (problem, chosen)
        for problem in (PROBLEM, DEPTHWISE) for chosen in convolution_choice.candidates(problem, kind)[:40:8]
    ]
    multiplied = product.Problem(2, 49, 64, 49)
    made = [*found, *((multiplied, chosen) for chosen in product.candidates(multiplied, kind)[:3])]
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
    asked = choice.collect(["squeezenet"], Config(), CPU)
    mixed = choice.spread(asked, 7)
    assert {each.problem for each in mixed[:6]} != {each.problem for each in asked[:6]}
    assert mixed == choice.spread(asked, 7)
    known = {each.problem: each.candidates for each in asked}
    for each in mixed:
        likely, ranks = known[each.problem], [known[each.problem].index(c) for c in each.candidates]
        assert sorted(ranks) == list(range(len(likely))) and ranks[:4] == [0, 1, 2, 3]
        rest = len(likely) - 4
        assert [ranks[4 + n] for n in range(3)] == [4 + int(rest * (n + 0.5) / 3) for n in range(3)]
    few = replace(asked[0], candidates=asked[0].candidates[:3])
    assert choice.spread([few], 7)[0].candidates == tuple(few.candidates)


def test_a_row_of_the_choice_is_measurements() -> None:
    asked = choice.collect(["squeezenet"], Config(), CPU)[0]
    row = choice.Row(asked, 2, seconds=(1e-6, 2e-6))
    made = row.measurements("x", CPU, Config())
    assert [(m.specialisation, m.figures) for m in made] == [
        (asked.candidates[0], {"seconds": 1e-6}), (asked.candidates[1], {"seconds": 2e-6}),
    ]
    assert {(m.device, m.kind, m.compute_units, m.float16, m.problem) for m in made} == {
        ("x", "cpu", 2, 0, asked.problem)
    }
    assert not choice.Row(asked, 2, "WRONG").measurements("x", CPU, Config())
