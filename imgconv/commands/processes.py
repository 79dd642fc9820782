"""Processes that read pictures and outputs for one device, if that is faster than the threads of one process.

Threads of Python take turns for most of this work: beside an H200, one process prepares 400 pictures a second however
many cores there are, and the device could run 3,000. So the first pictures are run by threads. If the device waited for
them, the others are read by processes. They share memory with this one, in slots that hold inputs and outputs:

    process:      reads a picture -> input in its slot         tells what the outputs show, reads the next picture ...
    this process:                       submits it to the device, outputs -> the slot

A server process imports this module while the model is loaded. It forks the others, each in some milliseconds.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from selectors import EVENT_READ, DefaultSelector
from typing import TYPE_CHECKING, Generic, TypeVar, Union

import numpy

from imgconv.arrays import Arrays
from imgconv.commands.flow import Done, Flow, Job
from imgconv.commands.outcome import Shown
from imgconv.commands.runner import Item, Pictures, Runner, Seen
from imgconv.commands.sending import how_it_ended, sendable, without_interrupts
from imgconv.commands.slots import SharedMemory, Slots
from imgconv.errors import Error
from imgconv.model import Model

if TYPE_CHECKING:
    from imgconv.running.pipeline import Frame

A = TypeVar("A")
B = TypeVar("B")
MANY = 400  # pictures, for which processes may be worth their start
CORES = 4  # at least, because one stays for this process
TRIED = 40  # pictures that the threads run first
BUSY = 0.5  # of the time, which the device has to be without processes
WORTH = 0.5  # seconds that the other pictures have to take, so that it is worth to start processes
# Times the processes that the device needs on average: pictures differ, and threads of a core slow each other down.
SPARE = 1.5
SLOTS = 3  # pictures that a process has at once: one is read while others are computed or wait
BYTES = 1 << 30  # of shared memory, at most

# What a process is sent: a slot whose outputs are there if it holds a picture, and the next picture to read into it.
Task = tuple[int, Union[Item, None]]
# What it sends: a slot, what it has found, and whether the slot has an input to compute; or what went wrong.
Message = Union[Error, tuple[int, list[Shown], bool]]


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start_server(pictures: int | None, share: int) -> None:
    """Starts the server, without waiting for it, if processes may be worth it. share: of the cores.

    pictures: how many there are; None if that is not known.
    """
    if pictures is not None and pictures >= MANY and share >= CORES and can_fork():
        multiprocessing.set_forkserver_preload([__name__])
        with without_interrupts(), suppress(OSError):  # without a server, threads do the work
            forkserver.ensure_running()


def can_fork() -> bool:
    """Whether the system has servers that fork."""
    return "forkserver" in multiprocessing.get_all_start_methods()


def by_threads_or_processes(
    runner: Runner, flow: Flow, items: Iterator[Item], total: int | None, with_lines: bool, share: int
) -> Iterator[Shown]:
    """What each picture shows, in order. Raises what Flow.through does.

    total: how many pictures there are, about, if that is known; share: of the cores.
    """

    def by_threads(some: Iterator[Item]) -> Iterator[Shown]:
        for outcome in flow.through(some, runner.prepare, runner.finish):
            yield Shown.of(outcome, with_lines)

    prepare, finish = Timed(runner.prepare), Timed(runner.finish)
    count, start = 0, time.perf_counter()
    for outcome in flow.through(islice(items, TRIED), prepare, finish):
        if not count:
            start = time.perf_counter()  # the model is compiled, and the device warm
        count += 1
        yield Shown.of(outcome, with_lines)
    taken, reading = (time.perf_counter() - start) / max(count - 1, 1), prepare.median + finish.median
    wanted = number_of(taken, reading, flow.seconds, (total or 0) - count, share)
    pictures = runner.apart() if wanted and flow.batch == 1 else None
    if pictures:
        with ThreadPoolExecutor(1) as starter:
            starting = starter.submit(Processes.start, runner.model, pictures, wanted, with_lines)
            yield from by_threads(until(starting, items))
        processes = starting.result()
        if processes:
            with processes:
                yield from processes.through(items)
    yield from by_threads(items)


def until(end: Future[A], items: Iterator[Item]) -> Iterator[Item]:
    """The items until this is done."""
    while not end.done() and (item := next(items, None)):
        yield item


class Timed(Generic[A, B]):
    """A function whose times on its core are kept; that of a core which waits is not counted."""

    def __init__(self, function: Callable[[A], B]) -> None:
        self._function = function
        self._seconds: list[float] = []

    def __call__(self, given: A) -> B:
        """What the function gives."""
        start = time.thread_time()
        made = self._function(given)
        self._seconds.append(time.thread_time() - start)
        return made

    @property
    def median(self) -> float:
        """Seconds; 0 before the first call."""
        return statistics.median(self._seconds or [0])


def number_of(taken: float, reading: float, computing: float, left: int, share: int) -> int:
    """How many processes to start; 0 if threads are enough, or all pictures will be done soon.

    taken: seconds for each picture with threads; reading: of one core for it; computing: of the device; left: pictures;
    share: cores, of which many systems count each for two. Example: number_of(0.0025, 0.003, 0.001, 1900, 16) is 5.
    """
    if computing >= BUSY * taken or left * taken < WORTH or share < CORES:
        return 0
    return min(max(share // 2, CORES - 1), math.ceil(SPARE * reading / max(computing, 1e-6)))


@dataclass
class Worker:
    """A process. free: its slots that hold nothing; given: the pictures that it has not told of, by their numbers."""

    process: BaseProcess
    connection: Connection
    free: list[int]
    given: dict[int, Item] = field(default_factory=dict)


class Processes:
    """Some processes, the memory that they share with this one, and the device's frames in flight.

        with Processes.start(model, pictures, 8, with_lines=True) as processes:
            for shown in processes.through(items):
                print(shown)
    """

    def __init__(
        self, model: Model, others: Arrays, slots: Slots, memory: SharedMemory, workers: Sequence[Worker]
    ) -> None:
        """others: the model's inputs that are not the picture."""
        self._model, self._others = model, others
        self._names = [value.name for value in slots.values]
        self._arrays = [slots.arrays(memory, slot) for slot in range(len(workers) * SLOTS)]
        self._workers = list(workers)
        self._selector = DefaultSelector()
        for worker in workers:
            self._selector.register(worker.connection, EVENT_READ, worker)
        self._frames: deque[tuple[Worker, int, Frame]] = deque()
        self._items: Iterator[Item] = iter(())
        self._lost: deque[Item] = deque()
        # What was begun and not told, by positions, in their order; and what is done.
        self._order: deque[int] = deque()
        self._done: dict[int, Shown] = {}

    @staticmethod
    def start(model: Model, pictures: Pictures, count: int, with_lines: bool) -> Processes | None:
        """Starts `count` processes, or fewer if slots are large; None if the system cannot share memory with them."""
        assert pictures.given.target is not None
        slots = Slots((model.inputs[pictures.given.target.name], *model.outputs.values()))
        count = min(count, BYTES // (SLOTS * slots.bytes))
        memory = SharedMemory.make(count * SLOTS * slots.bytes) if count and can_fork() else None
        if memory is None:
            return None
        start_server(MANY, CORES)
        context, workers = multiprocessing.get_context("forkserver"), []
        for first in range(0, count * SLOTS, SLOTS):
            ours, theirs = context.Pipe()
            process = context.Process(target=work, args=(theirs, pictures, slots, memory, with_lines), daemon=True)
            try:
                process.start()
            except (EOFError, OSError):  # no memory, or the server was ended
                break
            theirs.close()
            workers.append(Worker(process, ours, [*range(first, first + SLOTS)]))
        memory.close_file()
        return Processes(model, pictures.given.arrays, slots, memory, workers) if workers else None

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.process.terminate()
        for worker in self._workers:
            worker.process.join()
            worker.connection.close()
        self._selector.close()

    def through(self, items: Iterator[Item]) -> Iterator[Shown]:
        """What each picture shows, in order. Raises what prepare, finish and Model.submit raise, and Error."""
        self._items = items
        self._fill()
        while self._order:
            # If no process has anything to say, this one waits for the device.
            ready = self._selector.select(0 if self._frames else None)
            for key, _ in ready:
                self._hear(key.data)
            if self._frames and not ready:
                self._fetch_oldest()
            while self._frames and self._frames[0][2].done():
                self._fetch_oldest()
            while self._order and self._order[0] in self._done:
                yield self._done.pop(self._order.popleft())

    def _fill(self) -> None:
        """Gives the processes pictures for their free slots: each one, then each the next one."""
        for _ in range(SLOTS):
            for worker in self._workers:
                item = self._next() if worker.free else None
                if item:
                    self._send(worker, worker.free.pop(), item)

    def _next(self) -> Item | None:
        """The next picture, ready to go to a process; None if there is none."""
        if self._lost:
            return self._lost.popleft()
        item = next(self._items, None)
        if item:
            self._order.append(item.position)
        return item and sendable(item)

    def _send(self, worker: Worker, slot: int, item: Item | None) -> None:
        if item:
            worker.given[item.position] = item
        with suppress(OSError):  # it ended, which the next wait tells
            worker.connection.send((slot, item))

    def _hear(self, worker: Worker) -> None:
        """Takes what a process sent."""
        try:
            message: Message = worker.connection.recv()
        except (EOFError, OSError):
            self._lose(worker)
            return
        if isinstance(message, Error):
            raise message
        slot, found, has_input = message
        for shown in found:
            self._done[shown.position] = shown
            del worker.given[shown.position]
        if has_input:
            inputs = {**self._others, self._names[0]: self._arrays[slot][0]}
            self._frames.append((worker, slot, self._model.submit(inputs)))
            return
        worker.free.append(slot)
        item = self._next()
        if item:
            self._send(worker, worker.free.pop(), item)

    def _fetch_oldest(self) -> None:
        """Puts the outputs of the oldest frame into its slot, and tells its process."""
        worker, slot, frame = self._frames.popleft()
        outputs = frame.result()
        if worker not in self._workers:
            return  # another one computes this picture again
        for name, array in zip(self._names[1:], self._arrays[slot][1:], strict=True):
            numpy.copyto(array, outputs[name])
        self._send(worker, slot, self._next())

    def _lose(self, worker: Worker) -> None:
        """A process ended before its time: the others get its pictures. Raises Error if there is no other."""
        worker.process.join()
        self._workers.remove(worker)
        self._selector.unregister(worker.connection)
        worker.connection.close()
        names = ", ".join(item.name for item in worker.given.values())
        problem = f"of a process that read {names}: {how_it_ended(worker.process, True)}"
        if not self._workers:
            raise Error(f"no process is left that reads pictures: {problem}")
        print(f"imgconv: {problem}; the others get its pictures", file=sys.stderr)
        self._lost.extend(worker.given.values())
        self._fill()


def work(
    connection: Connection, pictures: Pictures, slots: Slots, memory: SharedMemory, with_lines: bool
) -> None:
    """The life of a process: it fills slots with inputs and reads outputs, until the other side ends it."""
    name, *names = [value.name for value in slots.values]
    seen: dict[int, Seen] = {}

    def shown(of: Seen, outputs: list[Arrays]) -> Shown:
        return Shown.of(pictures.finish(Done(of, outputs)), with_lines)

    with suppress(EOFError, OSError):  # the parent has ended
        while True:
            task: Task = connection.recv()
            slot, item = task
            array, *outputs = slots.arrays(memory, slot)
            found = []
            try:
                if slot in seen:
                    found.append(shown(seen.pop(slot), [dict(zip(names, outputs, strict=True))]))
                if item:
                    job: Job[Seen] = pictures.prepare(item)
                    for run in job.runs:
                        numpy.copyto(array, run[name])
                        seen[slot] = job.of
                    if slot not in seen:
                        found.append(shown(job.of, []))
                message: Message = (slot, found, slot in seen)
            except Error as error:
                message = error
            connection.send(message)
