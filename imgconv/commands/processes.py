"""Processes that read pictures and outputs for one device, if that is faster than the threads of one process.

Threads of Python take turns for most of this work: beside an H200, one process prepares 400 pictures a second however
many cores there are, and the device could run 3,000. So the first pictures are run by threads. If the device waited for
them, the others are read by processes. They share memory with this one, which holds inputs and outputs:

    process:      reads a picture -> input in its slot                   outputs in its slot -> what they show
    this process:                       submits it to the device, fetches its outputs
"""

from __future__ import annotations

import math
import multiprocessing
import os
import shutil
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import TYPE_CHECKING, Union

import numpy

from imgconv.arrays import Array, Arrays
from imgconv.commands.flow import Done, Flow, Job
from imgconv.commands.outcome import Shown
from imgconv.commands.runner import Item, Pictures, Runner, Seen
from imgconv.commands.spread import how_it_ended, sendable, without_interrupts
from imgconv.errors import Error
from imgconv.graph.nodes import Value
from imgconv.model import Model

if TYPE_CHECKING:
    from multiprocessing.shared_memory import SharedMemory

    from imgconv.running.pipeline import Frame

TRIED = 100  # pictures that the threads run first
BUSY = 0.5  # of the time, which the device has to be without processes
WORTH = 2.0  # seconds that the other pictures have to take, so that it is worth to start processes
# Processes. Beside an H200 with 16 cores, 5 took 14.2 s for 6,000 pictures of SqueezeNet, 8 took 16.3, 15 took 22.8.
MOST = 6
SLOTS = 3  # pictures that a process has at once: one is read while others are computed or wait
ALIGNED = 64  # bytes
SHARED = "/dev/shm"  # where Linux keeps shared memory; a container may have little of it

# What a process is sent: a slot with a picture to read, or a slot that has outputs. What it sends: a slot with the
# model's input, or with what a picture shows; or what went wrong.
Task = tuple[int, Union[Item, None]]
Message = tuple[int, Union[Shown, Error, None]]


def by_threads_or_processes(
    runner: Runner, flow: Flow, items: Iterator[Item], total: int | None, with_lines: bool
) -> Iterator[Shown]:
    """What each picture shows, in order. total: how many there are, if that is known. Raises what Flow.through does."""

    def by_threads(some: Iterator[Item]) -> Iterator[Shown]:
        for outcome in flow.through(some, runner.prepare, runner.finish):
            yield Shown.of(outcome, with_lines)

    count, start = 0, time.perf_counter()
    for each in by_threads(islice(items, TRIED)):
        if not count:
            start = time.perf_counter()  # the model is compiled, and the device warm
        count += 1
        yield each
    taken = (time.perf_counter() - start) / max(count - 1, 1)
    wanted = number_of(taken, flow.seconds, (total or 0) - count, os.cpu_count() or 1)
    pictures = runner.apart() if wanted and flow.batch == 1 else None
    processes = pictures and Processes.start(runner.model, pictures, wanted, with_lines)
    if not processes:
        yield from by_threads(items)
        return
    with processes:
        yield from processes.through(items)


def number_of(taken: float, computing: float, left: int, cores: int) -> int:
    """How many processes to start; 0 if threads are enough, or all pictures will be done soon.

    taken: seconds for each picture with threads; computing: of them, those of the device; left: pictures. With four
    cores and more: one stays for this process. Example: number_of(0.0025, 0.001, 1900, 16) is 5.
    """
    if computing >= BUSY * taken or left * taken < WORTH or cores < 4:
        return 0
    return min(cores - 1, MOST, math.ceil(2 * taken / max(computing, 1e-6)))


@dataclass(frozen=True)
class Slots:
    """How the shared memory is divided. values: what each slot holds, the model's input first, then its outputs."""

    values: tuple[Value, ...]

    @property
    def bytes(self) -> int:
        """Those of a slot."""
        return sum(map(_aligned, self.values))

    def arrays(self, memory: SharedMemory, slot: int) -> list[Array]:
        """The arrays of a slot, in the order of `values`; they are the shared memory itself."""
        made, start = [], slot * self.bytes
        for value in self.values:
            made.append(numpy.ndarray(value.shape, value.dtype, memory.buf, start))
            start += _aligned(value)
        return made


def _aligned(value: Value) -> int:
    size = math.prod(value.shape) * numpy.dtype(value.dtype).itemsize
    return -(-size // ALIGNED) * ALIGNED


@dataclass
class Worker:
    """A process. free: its slots that hold nothing; given: the pictures in its other slots."""

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
        self._model, self._others, self._slots, self._memory = model, others, slots, memory
        self._workers = list(workers)
        self._selector = DefaultSelector()
        for worker in workers:
            self._selector.register(worker.connection, EVENT_READ, worker)
        self._frames: deque[tuple[Worker, int, Frame]] = deque()
        self._lost: deque[Item] = deque()
        # What was begun and not told, by positions, in their order; and what is done.
        self._order: deque[int] = deque()
        self._done: dict[int, Shown] = {}

    @staticmethod
    def start(model: Model, pictures: Pictures, count: int, with_lines: bool) -> Processes | None:
        """Starts `count` processes, or fewer if there is little shared memory; None if there is none."""
        assert pictures.given.target is not None
        slots = Slots((model.inputs[pictures.given.target.name], *model.outputs.values()))
        if Path(SHARED).is_dir():
            count = min(count, shutil.disk_usage(SHARED).free // (2 * SLOTS * slots.bytes))
        if count < 1:
            return None
        try:
            from multiprocessing.shared_memory import SharedMemory  # Android has none

            memory = SharedMemory(create=True, size=count * SLOTS * slots.bytes)
        except (ImportError, OSError):
            return None
        context, workers = multiprocessing.get_context("spawn"), []  # a fork would share the driver
        for first in range(0, count * SLOTS, SLOTS):
            ours, theirs = context.Pipe()
            process = context.Process(target=work, args=(theirs, pictures, slots, memory, with_lines), daemon=True)
            with without_interrupts():
                process.start()
            theirs.close()
            workers.append(Worker(process, ours, [*range(first, first + SLOTS)]))
        return Processes(model, pictures.given.arrays, slots, memory, workers)

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.process.terminate()
            worker.process.join()
        self._selector.close()
        self._memory.unlink()
        self._memory.close()

    def through(self, items: Iterator[Item]) -> Iterator[Shown]:
        """What each picture shows, in order. Raises what prepare, finish and Model.submit raise, and Error."""
        for worker in self._workers:
            self._hand_out(worker, items)
        while self._order:
            # If no process has anything to say, this one waits for the device.
            ready = self._selector.select(0 if self._frames else None)
            for key, _ in ready:
                self._hear(key.data, items)
            if self._frames and not ready:
                self._fetch_oldest()
            while self._frames and self._frames[0][2].done():
                self._fetch_oldest()
            while self._order and self._order[0] in self._done:
                yield self._done.pop(self._order.popleft())

    def _hand_out(self, worker: Worker, items: Iterator[Item]) -> None:
        """Gives a process pictures for its free slots."""
        while worker.free:
            item = self._lost.popleft() if self._lost else next(items, None)
            if item is None:
                return
            if item.position not in self._order:
                self._order.append(item.position)
            worker.given[worker.free[-1]] = item = sendable(item)
            self._send(worker, (worker.free.pop(), item))

    def _send(self, worker: Worker, task: Task) -> None:
        with suppress(BrokenPipeError):  # it ended, which the next wait tells
            worker.connection.send(task)

    def _hear(self, worker: Worker, items: Iterator[Item]) -> None:
        """Takes what a process sent."""
        try:
            message: Message = worker.connection.recv()
        except (EOFError, OSError):
            self._lose(worker, items)
            return
        slot, shown = message
        if isinstance(shown, Error):
            raise shown
        if shown is None:
            array, name = self._slots.arrays(self._memory, slot)[0], self._slots.values[0].name
            self._frames.append((worker, slot, self._model.submit({**self._others, name: array})))
            return
        self._done[shown.position] = shown
        del worker.given[slot]
        worker.free.append(slot)
        self._hand_out(worker, items)

    def _fetch_oldest(self) -> None:
        """Puts the outputs of the oldest frame into its slot, and tells its process."""
        worker, slot, frame = self._frames.popleft()
        outputs, arrays = frame.result(), self._slots.arrays(self._memory, slot)
        for value, array in zip(self._slots.values[1:], arrays[1:], strict=True):
            numpy.copyto(array, outputs[value.name])
        self._send(worker, (slot, None))

    def _lose(self, worker: Worker, items: Iterator[Item]) -> None:
        """A process ended before its time: the others get its pictures. Raises Error if there is no other."""
        worker.process.join()
        self._workers.remove(worker)
        self._selector.unregister(worker.connection)
        names = ", ".join(item.name for item in worker.given.values())
        problem = f"of a process that read {names}: {how_it_ended(worker.process, True)}"
        if not self._workers:
            raise Error(f"no process is left that reads pictures: {problem}")
        print(f"imgconv: {problem}; the others get its pictures", file=sys.stderr)
        self._lost.extend(worker.given.values())
        for other in self._workers:
            self._hand_out(other, items)


def work(
    connection: Connection, pictures: Pictures, slots: Slots, memory: SharedMemory, with_lines: bool
) -> None:
    """The life of a process: it fills slots with inputs and reads outputs, until the other side ends it."""
    name, *names = [value.name for value in slots.values]
    seen: dict[int, Seen] = {}
    try:
        while True:
            slot, item = connection.recv()
            array, *outputs = slots.arrays(memory, slot)
            made: Shown | Error | None = None
            try:
                job = Job(seen.pop(slot), []) if item is None else pictures.prepare(item)
                runs = [*job.runs]
                if runs:
                    numpy.copyto(array, runs[0][name])
                    seen[slot] = job.of
                else:
                    found: list[Arrays] = [] if item else [dict(zip(names, outputs, strict=True))]
                    made = Shown.of(pictures.finish(Done(job.of, found)), with_lines)
            except Error as error:
                made = error
            connection.send((slot, made))
    except (EOFError, BrokenPipeError):
        pass  # the parent has ended
