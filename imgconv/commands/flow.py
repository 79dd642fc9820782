"""Pictures through a model with everything at once: some are read while others are computed and others written."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, Union, cast

from imgconv.arrays import Array, Arrays
from imgconv.commands.batching import Row, grouped
from imgconv.model import DEPTH, Model
from imgconv.pictures.pixels import Pixels

# The inputs of a run by name: arrays, or a picture that the device prepares.
Run = Mapping[str, Union[Array, Pixels]]
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
TIMED = 0.02  # seconds of runs, of which the shortest is told
WORKERS = min(8, os.cpu_count() or 1)


@dataclass(frozen=True)
class Job(Generic[B]):
    """The runs of a picture: one, several if it is in tiles, none if it cannot be read. runs: the inputs of each."""

    of: B
    runs: Iterable[Run]


@dataclass(frozen=True)
class Done(Generic[B]):
    """A job's outputs, one for each run."""

    of: B
    outputs: list[Arrays]


class Flow:
    """The threads of one command: some read and write pictures, one waits for the device.

    seconds: what a run takes on the warm device, alone, from arrays to arrays; 0 before the first. batch: how many
    pictures the model takes at once.

        with Flow(model) as flow:
            for outcome in flow.through(items, prepare, finish):
                print(outcome)
    """

    def __init__(self, model: Model, batch: int = 1) -> None:
        """batch: how many pictures the model takes at once; then each job has one run, or none."""
        self._model, self.batch = model, batch
        self._workers = ThreadPoolExecutor(WORKERS, "imgconv pictures")
        self._waiter = ThreadPoolExecutor(1, "imgconv results")
        self.seconds = 0.0

    def __enter__(self) -> Flow:
        return self

    def __exit__(self, *_: object) -> None:
        for pool in (self._workers, self._waiter):
            pool.shutdown(cancel_futures=True)

    def through(
        self, items: Iterable[A], prepare: Callable[[A], Job[B]], finish: Callable[[Done[B]], C]
    ) -> Iterator[C]:
        """finish(...) of every item, in order. The first run is made more than once: `seconds` is of a warm device.

        Raises what items, prepare, finish and Model.submit raise.
        """
        jobs = self._prepared(iter(items), prepare)
        frames = map(self._submitted, jobs) if self.batch == 1 else self._together(jobs)
        return in_order(self._workers, finish, in_order(self._waiter, self._finished, frames, DEPTH), 2 * WORKERS)

    def _prepared(self, items: Iterator[A], prepare: Callable[[A], Job[B]]) -> Iterator[Job[B]]:
        """The jobs, in order; by this thread alone until the first run has its time.

        Threads of Python take turns: beside others, a run of 0.3 ms is one of 3 ms.
        """
        for item in items:
            yield prepare(item)
            if self.seconds:
                break
        yield from in_order(self._workers, prepare, items, 2 * WORKERS)

    def _together(self, jobs: Iterator[Job[B]]) -> Iterator[tuple[Job[B], list[Future[Arrays] | Row]]]:
        """Does what `_submitted` does for every job, with several in a run."""
        for group in grouped(((job, cast("list[Arrays]", [*job.runs])) for job in jobs), self.batch):
            if group.inputs and not self.seconds:
                self._timed(group.inputs[0])
            run = self._submit(group.joined(self.batch)) if group.inputs else None
            row = 0
            for job, has_run in group.jobs:
                yield job, [Row(run, row)] if run and has_run else []
                row += has_run

    def _submitted(self, job: Job[B]) -> tuple[Job[B], list[Future[Arrays] | Row]]:
        return job, [self._submit(run) if self.seconds else self._timed(run) for run in job.runs]

    def _submit(self, run: Run) -> Future[Arrays]:
        frame: Future[Any] = self._model.submit(run)
        return frame

    def _timed(self, run: Run) -> Future[Arrays]:
        """The first run: once to warm the device up, then with the clock, several times if it is short."""
        arrays = {name: given for name, given in run.items() if not isinstance(given, Pixels)}

        def result() -> Arrays:
            return self._model.run(arrays) if len(arrays) == len(run) else self._submit(run).result()

        result()
        taken: list[float] = []
        while sum(taken) < TIMED and len(taken) < 5:
            start = time.perf_counter()
            outputs = result()
            taken.append(time.perf_counter() - start)
        self.seconds = min(taken)
        done: Future[Arrays] = Future()
        done.set_result(outputs)
        return done

    def _finished(self, submitted: tuple[Job[B], list[Future[Arrays] | Row]]) -> Done[B]:
        job, frames = submitted
        return Done(job.of, [frame.result() for frame in frames])


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
