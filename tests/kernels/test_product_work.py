"""The choice among specialisations of matmul.cl on a phone's GPU, compared with the time model on Mesa's a630 code."""

from __future__ import annotations

import pytest

from imgconv.compiling.choose import cheapest_choice
from imgconv.kernels.layout import ImageLimits
from imgconv.kernels.matmul.template import TEMPLATE, Problem, Specialisation
from imgconv.kernels.target import Target

PHONE = Target(ImageLimits(16384, 16384, 2048), "gpu", 2)


# `python -m benchmarks.choice --predicted` of such products; its best candidate, and those within 10 % of it.
@pytest.mark.parametrize("problem, good", [
    (Problem(1, 256, 512, 256), {(8, 2, 1)}), (Problem(3, 196, 196, 64), {(8, 2, 1), (4, 4, 1)}),
    (Problem(8, 64, 32, 64), {(4, 2, 1)}), (Problem(1, 49, 64, 49), {(1, 1, 1)}),
    (Problem(1, 16, 256, 16), {(1, 1, 32), (4, 1, 16), (1, 1, 16)}),
])
def test_choice_on_a_phone(problem: Problem, good: set[tuple[int, int, int]]) -> None:
    choice = cheapest_choice(TEMPLATE, problem, PHONE)
    assert choice is not None
    chosen = choice.specialisation
    assert (chosen.block_rows, chosen.block_quads, chosen.parts) in good


def test_seconds_on_a_phone() -> None:
    """A launch takes 10 us at least, 30 at most. Four times as many waves take four times as long otherwise."""
    problem, chosen = Problem(1, 256, 512, 256), Specialisation(8, 2)
    one, four = (TEMPLATE.predict(Problem(n, 256, 512, 256), chosen, PHONE) for n in (4, 16))
    assert four.least - 1e-5 == pytest.approx(4 * (one.least - 1e-5))
    assert four.most - 3e-5 == pytest.approx(4 * (one.most - 3e-5))
    assert all(TEMPLATE.predict(problem, each, PHONE).least > 1e-5 for each in TEMPLATE.candidates(problem, PHONE))
