"""The choice among specialisations of matmul.cl on a phone's GPU, beside the time model on Mesa's a630 code."""

from __future__ import annotations

import pytest

from imgconv.kernels.matmul.template import Problem, Specialisation, candidates, default_specialisation, predicted_cost


# `python -m benchmarks.choice --predicted` of such products; its best candidate, and those within 10 % of it.
@pytest.mark.parametrize("problem, good", [
    (Problem(1, 256, 512, 256), {(8, 2, 1)}), (Problem(3, 196, 196, 64), {(8, 2, 1), (4, 4, 1)}),
    (Problem(8, 64, 32, 64), {(4, 2, 1)}), (Problem(1, 49, 64, 49), {(1, 1, 1)}),
    (Problem(1, 16, 256, 16), {(1, 1, 32), (4, 1, 16), (1, 1, 16)}),
])
def test_choice_on_a_phone(problem: Problem, good: set[tuple[int, int, int]]) -> None:
    chosen = default_specialisation(problem, "gpu", 2)
    assert (chosen.block_rows, chosen.block_quads, chosen.parts) in good


def test_a_cost_on_a_phone_is_a_time_of_the_model() -> None:
    """Nanoseconds: a launch takes 10 us at least, and four times the batch four times as long, but for the launch."""
    problem, chosen = Problem(1, 256, 512, 256), Specialisation(8, 2)
    one, four = (predicted_cost(Problem(n, 256, 512, 256), chosen, "gpu", 2) for n in (1, 4))
    assert four - 1e4 == pytest.approx(4 * (one - 1e4))
    assert all(predicted_cost(problem, each, "gpu", 2) > 1e4 for each in candidates(problem, "gpu", 2))
