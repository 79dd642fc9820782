"""Measures the speed of a model: the time of a run and the rate with frames in flight; both also for onnxruntime."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from imgconv.arrays import Arrays
from imgconv.errors import Error
from imgconv.model import Model
from imgconv.reports.verify import check_oracle
from imgconv.runtime.pipeline import Frame

LEAST_RUNS = 5
WARM_UP = 0.5  # seconds


@dataclass(frozen=True)
class Latency:
    """The seconds of runs, one after another, from arrays to arrays. p90 and p99: 90 and 99 of 100 were no slower."""

    runs: int
    median: float
    p90: float
    p99: float
    least: float

    @staticmethod
    def from_seconds(seconds: Sequence[float]) -> Latency:
        """Example: Latency.from_seconds([0.1, 0.3, 0.2]).median is 0.2."""
        median, p90, p99, least = (float(n) for n in numpy.percentile(seconds, (50, 90, 99, 0)))
        return Latency(len(seconds), median, p90, p99, least)


@dataclass(frozen=True)
class Sustained:
    """Frames with several in flight. first and last: frames a second in the first and the last quarter of the time.

    A device that gets hot has a lower `last`.
    """

    frames: int
    seconds: float
    first: float
    last: float

    @property
    def rate(self) -> float:
        """Frames a second."""
        return self.frames / self.seconds

    @staticmethod
    def from_frame_ends(ends: Sequence[float], start: float) -> Sustained:
        """Computes the rates from the frames' ends. Example: Sustained.from_frame_ends([1.0, 2.0], 0.0).rate is 1."""
        total = ends[-1] - start
        quarter = total / 4
        early = sum(end <= start + quarter for end in ends)
        late = sum(end > ends[-1] - quarter for end in ends)
        return Sustained(len(ends), total, early / quarter, late / quarter)


def warm_up(run: Callable[[], object]) -> None:
    """Runs until drivers and caches have settled: for half a second, and three times at least."""
    end, runs = time.perf_counter() + WARM_UP, 0
    while runs < 3 or time.perf_counter() < end:
        run()
        runs += 1


def measure_latency(run: Callable[[], object], seconds: float) -> Latency:
    """Times runs for `seconds`, LEAST_RUNS at least, after `warm_up`."""
    warm_up(run)
    taken: list[float] = []
    end = time.perf_counter() + seconds
    while len(taken) < LEAST_RUNS or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return Latency.from_seconds(taken)


def measure_sustained(model: Model, inputs: Arrays, seconds: float, depth: int) -> Sustained:
    """Runs frames for `seconds`, with `depth` in flight. Raises what Model.submit raises."""
    warm_up(lambda: model.run(inputs))
    waiting: deque[Frame] = deque()
    ends: list[float] = []
    start = time.perf_counter()
    while len(ends) < LEAST_RUNS or time.perf_counter() < start + seconds:
        waiting.append(model.submit(inputs, depth))
        if len(waiting) >= depth:
            waiting.popleft().result()
            ends.append(time.perf_counter())
    for frame in waiting:
        frame.result()
        ends.append(time.perf_counter())
    return Sustained.from_frame_ends(ends, start)


def onnxruntime_run(path: str | os.PathLike[str], inputs: Arrays) -> Callable[[], dict[str, Any]]:
    """A run of onnxruntime on the CPU, with its own settings. Raises MissingPackageError, Error if it cannot run it."""
    check_oracle("imgconv bench --compare")
    import onnxruntime

    try:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # no warnings, which would stand between the figures
        session = onnxruntime.InferenceSession(os.fspath(path), options, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        session.run(names, dict(inputs))
    except Exception as error:  # its errors have no common class but this
        raise Error(f"onnxruntime cannot run {os.fspath(path)!r}: {' '.join(str(error).split())}") from error
    return lambda: dict(zip(names, session.run(names, dict(inputs)), strict=True))


def process_bytes() -> int | None:
    """The most memory that this process has had, in bytes; None if the system does not say."""
    try:
        import resource
        import sys
    except ImportError:  # Windows
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
