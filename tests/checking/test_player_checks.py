"""The numbers that the player compares a launch's results with."""

from __future__ import annotations

import numpy
import pytest

from imgconv.checking.player_checks import _rounded_to_bounds


@pytest.mark.parametrize("relative", [1e-6, 1e-3, 0.5])
def test_values_are_as_exact_as_their_bounds_need(relative: float) -> None:
    random = numpy.random.default_rng(3)
    value = random.normal(size=2000) * 10.0 ** random.integers(-8, 8, 2000)
    bounds = relative * numpy.abs(value) * random.uniform(0.5, 2, 2000)
    made, wider = (each.astype(numpy.float32).astype(numpy.float64) for each in _rounded_to_bounds(value, bounds))
    assert (made - wider <= value - bounds).all() and (value + bounds <= made + wider).all()
    assert (wider <= 1.1 * bounds + 2.0**-22 * numpy.abs(value)).all()
    assert relative < 1e-3 or not (made.astype(numpy.float32).view(numpy.uint32) & 0x3F).any()


def test_a_bound_of_zero_leaves_the_value() -> None:
    made, wider = _rounded_to_bounds(numpy.float64([0, 3]), numpy.float64([0, 0]))
    assert made.tolist() == [0, 3] and wider[0] == 0 and 0 < wider[1] < 1e-6
