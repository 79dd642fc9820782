"""Pictures through a model in threads: some are read while others are computed and others written."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from imgconv.commands.outcome import Outcome
from imgconv.commands.runner import Item, Runner
from imgconv.loading.compiled import DEPTH

A = TypeVar("A")
B = TypeVar("B")
WORKERS = min(8, os.cpu_count() or 1)


def outcomes(runner: Runner, items: Iterable[Item]) -> Iterator[Outcome]:
    """Yields the outcome of each picture, in order. Raises what the runner and Model.submit raise."""
    workers, waiter = ThreadPoolExecutor(WORKERS, "imgconv pictures"), ThreadPoolExecutor(1, "imgconv results")
    try:
        prepared = in_order(workers, runner.prepare, items, 2 * WORKERS)
        submitted = ((sample, [runner.model.submit(run) for run in runs]) for sample, runs in prepared)
        done = in_order(waiter, lambda job: (job[0], [frame.result() for frame in job[1]]), submitted, DEPTH)
        yield from in_order(workers, lambda job: runner.finish(*job), done, 2 * WORKERS)
    finally:
        for pool in (workers, waiter):
            pool.shutdown(cancel_futures=True)


def in_order(pool: ThreadPoolExecutor, work: Callable[[A], B], items: Iterable[A], ahead: int) -> Iterator[B]:
    """Yields work(item) for each item, in order, as soon as it is done; at most `ahead` of them are started early."""
    waiting: deque[Future[B]] = deque()
    for item in items:
        waiting.append(pool.submit(work, item))
        while waiting and (waiting[0].done() or len(waiting) > ahead):
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
