"""The result of one picture, as JSON and as lines."""

from __future__ import annotations

import numpy
import pytest

from imgconv.commands.picture_result import PictureResult, as_json, styled_lines

FLOATS = {
    "finite": ([1.0, 2.0], 0), "nan": ([1.0, numpy.nan], 1), "both infinities": ([numpy.inf, -numpy.inf, 1.0], 2),
    "a sum past the largest": ([3e38, 3e38], 0), "none": ([], 0),
}


@pytest.mark.parametrize(("values", "count"), FLOATS.values(), ids=FLOATS)
def test_what_is_not_finite_is_counted(values: list[float], count: int) -> None:
    made = as_json(PictureResult("a.png", outputs={"y": numpy.array(values, numpy.float32)}))
    found, finite = made["outputs"]["y"], [value for value in values if numpy.isfinite(value)]
    assert found["not_finite"] == count
    spread = (min(finite), max(finite), sum(finite) / len(finite)) if finite else (numpy.nan,) * 3
    assert (found["minimum"], found["maximum"], found["mean"]) == pytest.approx(spread, nan_ok=True)


def test_an_output_without_rows_is_empty() -> None:
    result = PictureResult("a.png", outputs={"y": numpy.zeros((0, 7), numpy.float32)})
    lines = [text for text, _ in styled_lines(result)]
    assert lines[1:] == ["  y float32 0x7: empty"]


def test_integers_are_finite() -> None:
    made = as_json(PictureResult("a.png", outputs={"y": numpy.array([2**63 - 1, 2**63 - 1])}))["outputs"]["y"]
    assert made["not_finite"] == 0
