"""Repeated timing, and its statistics."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy

WARMUP_SECONDS = 0.5

Result = TypeVar("Result")


@dataclass(frozen=True)
class Timing:
    """Seconds of repeated runs. spread: the distance between the quartiles, divided by the median."""

    minimum: float
    median: float
    spread: float
    runs: int

    @staticmethod
    def from_seconds(seconds: Sequence[float]) -> Timing:
        """The statistics of at least one run."""
        middle = statistics.median(seconds)
        low, high = numpy.quantile(seconds, (0.25, 0.75))
        return Timing(min(seconds), middle, float(high - low) / middle if middle else 0.0, len(seconds))

    def to_json(self) -> dict[str, float]:
        return {
            "min_seconds": self.minimum, "median_seconds": self.median, "spread": self.spread, "runs": self.runs,
        }


def run_after_warm_up(run: Callable[[], Result], repeat: int) -> list[Result]:
    """The results of `repeat` calls of a function, after calls that only warm up.

    The warm-up ends after two calls and WARMUP_SECONDS, or after `repeat` calls if that is earlier.
    """
    start = time.perf_counter()
    for call in range(max(2, repeat)):
        run()
        if call and time.perf_counter() - start > WARMUP_SECONDS:
            break
    return [run() for _ in range(repeat)]


def time_repeatedly(run: Callable[[], float], repeat: int) -> Timing:
    """Statistics of `repeat` calls of a function that returns its seconds, after a warm-up."""
    return Timing.from_seconds(run_after_warm_up(run, repeat))


def seconds_of_call(function: Callable[[], object]) -> float:
    """Seconds that one call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start
