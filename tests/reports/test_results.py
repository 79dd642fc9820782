"""The spread of an output."""

from __future__ import annotations

import numpy

from imgconv.reports.results import Summary, summarize


def test_summary_counts_what_is_not_finite() -> None:
    array = numpy.array([[1.0, numpy.nan], [3.0, numpy.inf]], numpy.float32)
    assert summarize(array) == Summary(1, 3, 2, 2)
