"""Pictures through a model with everything at once: some are read while others are computed and others written."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

from imgconv.arrays import Arrays
from imgconv.model import DEPTH, Model
from imgconv.running.pipeline import Frame

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
WORKERS = min(8, os.cpu_count() or 1)


@dataclass(frozen=True)
class Job(Generic[B]):
    """What a picture becomes: the inputs of a run, of several if it is in tiles, of none if it cannot be read."""

    of: B
    runs: Iterable[Arrays]


@dataclass(frozen=True)
class Done(Generic[B]):
    """A job's outputs, one for each run, and the seconds that the device took for them.

    The time of a frame that waits for an earlier one begins when that is done.
    """

    of: B
    outputs: list[Arrays]
    seconds: float


class Flow:
    """The threads of one command: some read and write pictures, one waits for the device.

        with Flow(model) as flow:
            for outcome in flow.through(items, prepare, finish):
                print(outcome)
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._workers = ThreadPoolExecutor(WORKERS, "imgconv pictures")
        self._waiter = ThreadPoolExecutor(1, "imgconv results")
        self._is_warm = False
        self._last = 0.0

    def __enter__(self) -> Flow:
        return self

    def __exit__(self, *_: object) -> None:
        for pool in (self._workers, self._waiter):
            pool.shutdown(cancel_futures=True)

    def through(
        self, items: Iterable[A], prepare: Callable[[A], Job[B]], finish: Callable[[Done[B]], C]
    ) -> Iterator[C]:
        """finish(...) of every item, in order. The first run is made twice, so that all times are of a warm device.

        Raises what items, prepare, finish and Model.submit raise.
        """
        jobs = in_order(self._workers, prepare, items, 2 * WORKERS)
        frames = map(self._submitted, jobs)
        return in_order(self._workers, finish, in_order(self._waiter, self._finished, frames, DEPTH), 2 * WORKERS)

    def _submitted(self, job: Job[B]) -> tuple[Job[B], list[tuple[float, Frame]]]:
        frames = []
        for run in job.runs:
            if self._is_warm:
                self._model.compile_for(run)
            else:
                self._model.run(run)
                self._is_warm = True
            frames.append((time.perf_counter(), self._model.submit(run)))
        return job, frames

    def _finished(self, submitted: tuple[Job[B], list[tuple[float, Frame]]]) -> Done[B]:
        job, frames = submitted
        outputs: list[Arrays] = []
        seconds = 0.0
        for start, frame in frames:
            outputs.append(frame.result())
            now = time.perf_counter()
            seconds += now - max(start, self._last)
            self._last = now
        return Done(job.of, outputs, seconds)


def in_order(pool: ThreadPoolExecutor, work: Callable[[A], B], items: Iterable[A], ahead: int) -> Iterator[B]:
    """work(item) of every item, in order, each as soon as it is done.

    At most `ahead` of them are begun before the one that is waited for.
    """
    waiting: deque[Future[B]] = deque()
    for item in items:
        waiting.append(pool.submit(work, item))
        while waiting and (waiting[0].done() or len(waiting) > ahead):
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
