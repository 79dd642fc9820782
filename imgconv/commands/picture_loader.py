"""PictureLoader: worker processes that read pictures and decode outputs for one device, like PyTorch's DataLoader.

Python threads run one at a time for most of this work. Next to an H200, one process prepares 400 pictures per second,
however many cores there are, but the device could run 3,000. Each worker has PREFETCH samples in memory that it shares
with this process:

    worker:         prepares a picture -> input of a sample      decodes its outputs, prepares the next one ...
    this process:                        submits it, outputs -> the sample

Workers are used for many picture files on machines with several cores; in all other cases threads do this work.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import send_handle
from selectors import EVENT_READ, DefaultSelector
from typing import TYPE_CHECKING, TypeVar

from imgconv.commands import picture_worker
from imgconv.commands.picture_result import DeviceSummary, PictureResult, PrintableResult
from imgconv.commands.runner import PictureItem, PictureRunner, Run, RunArguments
from imgconv.commands.shared_samples import SampleLayout, allocate_shared_memory, map_shared_memory
from imgconv.commands.picture_worker import Reply, exit_reason, ignore_interrupts
from imgconv.errors import Error
from imgconv.loading.compiled import DEPTH
from imgconv.model import Model, pin_in_place
from imgconv.pictures.video import VideoWriter, frame_rate_of
from imgconv.preprocessing.pixels import LARGEST, Pixels
from imgconv.preprocessing.preparation import Size
from imgconv.runtime.programs import ProgressCallback
from imgconv.tasks.heads import possible_tasks

if TYPE_CHECKING:
    from imgconv.runtime.pipeline import Frame

A = TypeVar("A")
B = TypeVar("B")
THREADS = min(8, os.cpu_count() or 1)
MANY = 400  # pictures, for which workers are worth their start
CORES = 4  # at least: one stays for this process
MOST_WORKERS = 16
PREFETCH = 3  # samples that a worker has at once: one is prepared while others are computed or wait
BYTES = 1 << 30  # of shared memory, at most
TIMED = 0.02  # seconds of runs, the shortest of which is reported


def available_cores() -> int:
    """Returns the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def worker_count(pictures: int | None, cores: int) -> int:
    """Returns the number of workers for this many pictures, on this many cores; 0 if threads do.

    pictures: None if their number is not known, as of a camera's.
    """
    can_fork = "forkserver" in multiprocessing.get_all_start_methods() and hasattr(os, "memfd_create")
    return min(cores - 1, MOST_WORKERS) if can_fork and (pictures or 0) >= MANY and cores >= CORES else 0


def run_pictures(
    line: RunArguments, size: Size | None, items: Iterator[PictureItem], workers: int, progress: ProgressCallback
) -> Generator[DeviceSummary | PrintableResult, None, None]:
    """Yields the DeviceSummary of the command line's device, and the result of each picture, in order.

    size: of the first picture. Raises what PictureRunner.load, PictureRunner.prepare, Model.submit and
    PictureLoader.run_all raise.
    """
    with_lines = not line.options.json
    with PictureLoader(workers) as loader, open_output_video(line) as add:
        runner = PictureRunner.load(line, size, progress)
        first, seconds = _first_results(runner, items)
        if first:
            outputs = {name: (str(array.dtype), array.shape) for name, array in first[-1].outputs.items()}
            is_known = runner.task is not None and bool(first[-1].answers or first[-1].error)
            tasks = () if is_known else possible_tasks(outputs)
            yield DeviceSummary.from_model(runner.model, seconds, runner.size, tasks, runner.preparation_text)
        yield from (PrintableResult.from_result(add(outcome), with_lines) for outcome in first)
        if loader.start_workers(runner, with_lines):
            yield from loader.run_all(items)
        else:
            yield from (
                PrintableResult.from_result(add(outcome), with_lines) for outcome in run_in_threads(runner, items)
            )


@contextmanager
def open_output_video(line: RunArguments) -> Iterator[Callable[[PictureResult], PictureResult]]:
    """Yields a function that adds an outcome's frame to the video of --output, if that is one. Raises InputError."""
    if not line.writes_video:
        yield lambda outcome: outcome
        return
    path = line.options.output
    with VideoWriter(path, frame_rate_of(line.paths[0] if line.paths else "") / line.options.every) as video:

        def add(outcome: PictureResult) -> PictureResult:
            if outcome.frame:
                video.add(outcome.frame)
            return replace(outcome, frame=None)

        yield add


def _first_results(runner: PictureRunner, items: Iterator[PictureItem]) -> tuple[list[PictureResult], float]:
    """Returns the outcomes up to the first picture that can be read, and the seconds of its run on the warm device.

    No other thread runs meanwhile: threads of Python take turns, and a run of 0.3 ms would be one of 3 ms.
    """
    found, seconds = [], 0.0
    for item in items:
        sample, runs = runner.prepare(item)
        outputs = []
        for run in runs:
            outputs.append(runner.model.submit(run).result())
            seconds = seconds or _time_run(runner.model, run)
        found.append(runner.finish(sample, outputs))
        if seconds:
            break
    return found, seconds


def _time_run(model: Model, run: Run) -> float:
    """Returns the shortest time of a run, of a few if it is short."""
    arrays = {name: given for name, given in run.items() if not isinstance(given, Pixels)}
    taken: list[float] = []
    while sum(taken) < TIMED and len(taken) < 5:
        start = time.perf_counter()
        if len(arrays) == len(run):
            model.run(arrays)
        else:
            model.submit(run).result()
        taken.append(time.perf_counter() - start)
    return min(taken)


def run_in_threads(runner: PictureRunner, items: Iterable[PictureItem]) -> Iterator[PictureResult]:
    """Yields the outcome of each picture, in order. Raises what the runner and Model.submit raise."""
    workers, waiter = ThreadPoolExecutor(THREADS, "imgconv pictures"), ThreadPoolExecutor(1, "imgconv results")
    try:
        prepared = map_in_order(workers, runner.prepare, items, 2 * THREADS)
        submitted = ((sample, [runner.model.submit(run) for run in runs]) for sample, runs in prepared)
        done = map_in_order(waiter, lambda job: (job[0], [frame.result() for frame in job[1]]), submitted, DEPTH)
        yield from map_in_order(workers, lambda job: runner.finish(*job), done, 2 * THREADS)
    finally:
        for pool in (workers, waiter):
            pool.shutdown(cancel_futures=True)


def map_in_order(pool: ThreadPoolExecutor, work: Callable[[A], B], items: Iterable[A], ahead: int) -> Iterator[B]:
    """Yields work(item) for each item, in order, as soon as it is done; at most `ahead` of them are started early."""
    waiting: deque[Future[B]] = deque()
    for item in items:
        waiting.append(pool.submit(work, item))
        while waiting and (waiting[0].done() or len(waiting) > ahead):
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


class PictureLoader:
    """Worker processes, the memory that they share with this one, and the device's frames in flight. count: at most.

        with PictureLoader(worker_count(1000, available_cores())) as loader:
            runner = ...
            if loader.start_workers(runner, with_lines=True):
                for result in loader.run_all(items):
                    print(result)
    """

    def __init__(self, count: int) -> None:
        """Starts the server that forks the workers: it imports what they need while the model is loaded."""
        self.count = count
        self._processes: dict[Connection, BaseProcess] = {}
        if count:
            multiprocessing.set_forkserver_preload([picture_worker.__name__])
            with ignore_interrupts(), suppress(OSError):
                forkserver.ensure_running()

    def __enter__(self) -> PictureLoader:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.terminate()
        for connection, process in self._processes.items():
            process.join()
            connection.close()

    def start_workers(self, runner: PictureRunner, with_lines: bool) -> bool:
        """Starts the workers; returns whether they can run the pictures. Those in tiles are for threads."""
        pictures, target = runner.for_workers() if self.count else None, runner.line.given.target
        if pictures is None or target is None:
            return False
        self._model, self._others, self._size = runner.model, runner.line.given.arrays, runner.size
        self._input = runner.model.inputs[target.name]
        layout = SampleLayout(self._input, tuple(runner.model.outputs.values()), LARGEST if pictures.on_device else 0)
        most = min(self.count, BYTES // (PREFETCH * layout.bytes))
        count = most * PREFETCH
        context = multiprocessing.get_context("forkserver")
        with suppress(EOFError, OSError):  # the server was ended, or the system has no memory: there are fewer workers
            file = allocate_shared_memory(count * layout.bytes)
            memory = pin_in_place(self._model, map_shared_memory(os.dup(file), count * layout.bytes))
            self._buffers = [layout.buffers(memory, number) for number in range(count)]
            try:
                for _ in range(most):
                    ours, theirs = context.Pipe()
                    with theirs:
                        given = theirs, pictures, layout, count, with_lines
                        process = context.Process(target=picture_worker.work, args=given, daemon=True)
                        process.start()
                    self._processes[ours] = process
                    send_handle(ours, file, process.pid)
            finally:
                os.close(file)
        return bool(self._processes)

    def run_all(self, items: Iterator[PictureItem]) -> Iterator[PrintableResult]:
        """Yields the result of each picture, in order.

        Raises what Model.submit raises, a worker's Error, and Error if a worker is killed.
        """
        self._items = items
        self._connections = list(self._processes)
        self._frames: deque[tuple[int, Frame]] = deque()
        self._order: deque[int] = deque()  # positions that are not yielded
        self._done: dict[int, PrintableResult] = {}
        self._given: dict[int, PictureItem] = {}  # by the number of the sample
        with DefaultSelector() as self._selector:
            for connection in self._connections:
                self._selector.register(connection, EVENT_READ, connection)
            for number in sorted(range(len(self._connections) * PREFETCH), key=lambda number: number % PREFETCH):
                self._assign_next_picture(number)
            while self._order:
                self._poll()
                while self._order and self._order[0] in self._done:
                    yield self._done.pop(self._order.popleft())

    def _assign_next_picture(self, number: int) -> None:
        """Gives the sample's worker the next picture for it."""
        item = next(self._items, None)
        if item:
            self._order.append(item.position)
            self._given[number] = item
            self._send(number, picture_worker.sendable(item))

    def _send(self, number: int, item: PictureItem | None) -> None:
        with suppress(OSError):  # it ended, which its connection says
            self._connections[number // PREFETCH].send((number, item))

    def _poll(self) -> None:
        """Takes the workers' replies; if there are none, waits for the device, or without frames for a reply."""
        ready = self._selector.select(0 if self._frames else None)
        for key, _ in ready:
            self._handle_reply(key.data)
        if self._frames and not ready:
            self._await_oldest_frame()
        while self._frames and self._frames[0][1].done():
            self._await_oldest_frame()

    def _await_oldest_frame(self) -> None:
        """Waits for the oldest frame, whose outputs are in its sample then, and tells its worker."""
        number, frame = self._frames.popleft()
        frame.result()
        self._send(number, None)

    def _handle_reply(self, connection: Connection) -> None:
        """Takes a worker's reply: submits its sample, or gives it another picture."""
        try:
            reply: Reply = connection.recv()
        except (EOFError, OSError) as error:
            place = self._connections.index(connection)
            had = ", ".join(item.name for number, item in self._given.items() if number // PREFETCH == place)
            reason = exit_reason(self._processes[connection])
            raise Error(f"the worker that had {had} failed: {reason}") from error
        if isinstance(reply, Error):
            raise reply
        number, found = reply
        if isinstance(found, PrintableResult):
            self._done[found.position] = found
            del self._given[number]
            self._assign_next_picture(number)
            return
        buffers = self._buffers[number]
        packed = [buffers.packed[:found]]
        pixels = Pixels(self._input.shape, self._size, packed, stays_unchanged=True) if found else None
        picture = pixels or buffers.input
        frame = self._model.submit({**self._others, self._input.name: picture}, outputs=buffers.outputs)
        self._frames.append((number, frame))
