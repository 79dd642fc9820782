"""Processes that read pictures and outputs for one device, if that is faster than the threads of one process.

Threads of Python take turns for most of this work: beside an H200, one process prepares 400 pictures a second however
many cores there are, and the device could run 3,000. So the first pictures are run by threads. If the device waited for
them, the others are read by processes. Each shares memory with this one, in slots that hold inputs and outputs:

    process:      reads a picture -> input in its slot         tells what the outputs show, reads the next picture ...
    this process:                       submits it to the device, outputs -> the slot

This process enqueues every launch, so that messages about single pictures are a few bytes: READY says that a slot is
filled, in one pipe for all processes, and a byte that a slot's outputs are there.

They are started while the model is loaded, see pool.py. As long as the device waits for pictures, one more is used.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from selectors import EVENT_READ, DefaultSelector
from typing import TYPE_CHECKING, Generic, TypeVar

from imgconv.commands.flow import Flow
from imgconv.commands.outcome import Shown
from imgconv.commands.pool import Pool, Worker, can_fork
from imgconv.commands.reading import READY, SLOTS, Duty, Message
from imgconv.commands.runner import Item, Pictures, Runner
from imgconv.commands.sending import how_it_ended, is_named, sendable
from imgconv.commands.slots import Slots
from imgconv.errors import Error
from imgconv.model import Model
from imgconv.pictures.pixels import LARGEST, Pixels

if TYPE_CHECKING:
    from imgconv.running.pipeline import Frame

A = TypeVar("A")
B = TypeVar("B")
MANY = 400  # pictures, for which processes may be worth their start
CORES = 4  # at least, because one stays for this process
TRIED = 40  # pictures that the threads run first
BUSY = 0.8  # of the time: a device that is without work for less than the rest has no use for processes
WORTH = 0.5  # seconds that the other pictures have to take, so that it is worth to start processes
# Times the processes that the device needs on average: pictures differ, and threads of a core slow each other down.
SPARE = 1.5
WAITS = 0.05  # of the time, which the device may wait for pictures
PAUSE = 0.2  # seconds between two more processes
TOGETHER = 16  # pictures that a process gets and tells of at once, unless they take longer than a moment
MOMENT = 0.04  # seconds
BYTES = 1 << 30  # of shared memory, at most
TOLD = 64  # slots that are taken from the pipe at once


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def early_pool(pictures: int | None, share: int) -> Pool | None:
    """Begins to start processes if they may be worth it. share: of the cores.

    pictures: how many there are; None if that is not known.
    """
    is_worth = pictures is not None and pictures >= MANY and share >= CORES and can_fork()
    return Pool(share - 1) if is_worth else None


def by_threads_or_processes(
    runner: Runner, flow: Flow, items: Iterator[Item], total: int | None, with_lines: bool, share: int,
    pool: Pool | None,
) -> Iterator[Shown]:
    """What each picture shows, in order. Raises what Flow.through does.

    total: how many pictures there are, about, if that is known; share: of the cores; pool: processes that are there.
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
    if pictures and pool:
        together = max(1, min(TOGETHER, int(MOMENT / max(reading, 1e-6))))
        yield from by_threads(until(pool.is_ready, items))
        processes = Processes.start(runner.model, pool, duty_of(runner.model, pictures, together, with_lines), 1)
        if processes:
            with processes:
                while len(processes) < wanted and pool.is_ready() and processes.add():
                    pass
                yield from processes.through(items)
    elif pool:
        pool.close()
    yield from by_threads(items)


def until(is_over: Callable[[], bool], items: Iterator[Item]) -> Iterator[Item]:
    """The items until this is over."""
    while not is_over() and (item := next(items, None)):
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
    share: cores, of which many systems count each for two: half of them, without that of this process, are the most to
    begin with. Example: number_of(0.0025, 0.003, 0.001, 1900, 16) is 5.
    """
    if computing >= BUSY * taken or left * taken < WORTH or share < CORES:
        return 0
    return min(max(share // 2 - 1, CORES - 1), math.ceil(SPARE * reading / max(computing, 1e-6)))


def duty_of(model: Model, pictures: Pictures, together: int, with_lines: bool) -> Duty:
    """What each process is told. together: how many pictures it gets and tells of at once."""
    given = pictures.given.target
    assert given is not None
    packed = LARGEST if pictures.on_device else 0
    slots = Slots(model.inputs[given.name], tuple(model.outputs.values()), packed)
    return Duty(pictures, slots, together, with_lines)


class Processes:
    """Some processes, the memory that they share with this one, and the device's frames in flight.

        with Processes.start(model, pool, duty_of(model, pictures, 8, with_lines=True), 4) as processes:
            for shown in processes.through(items):
                print(shown)
    """

    def __init__(self, model: Model, pool: Pool, duty: Duty) -> None:
        self._model, self._pool, self._duty = model, pool, duty
        self._most = min(pool.most, BYTES // (SLOTS * duty.slots.bytes))  # processes
        self._others = duty.pictures.given.arrays
        self._input, self._size = duty.slots.input, duty.pictures.size
        self._workers: dict[int, Worker] = {}  # by their numbers
        self._selector = DefaultSelector()
        self._selector.register(pool.ready, EVENT_READ, None)
        self._frames: deque[tuple[Worker, int, Frame]] = deque()
        self._items: Iterator[Item] = iter(())
        self._lost: deque[Item] = deque()
        # What was begun and not told, by positions, in their order; and what is done.
        self._order: deque[int] = deque()
        self._done: dict[int, Shown] = {}
        # Seconds that the device waited since the last process came to it, and when that was.
        self._waited, self._since = 0.0, time.perf_counter()

    @staticmethod
    def start(model: Model, pool: Pool, duty: Duty, count: int) -> Processes | None:
        """Takes so many processes, or fewer if slots are large; None if the system has no memory for slots."""
        made = Processes(model, pool, duty)
        while len(made) < count and made.add():
            pass
        return made if len(made) else None

    def __len__(self) -> int:
        return len(self._workers)

    def add(self) -> bool:
        """Takes one process more from the pool; whether there is one."""
        worker = self._pool.take() if len(self) < self._most else None
        if worker and not worker.begin(self._duty, self._model):
            worker.end()
            worker = None
        self._waited, self._since = 0.0, time.perf_counter()
        if worker is None:
            self._most = len(self)
            return False
        self._workers[worker.number] = worker
        self._selector.register(worker.connection, EVENT_READ, worker)
        return True

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers.values():
            worker.process.terminate()
        for worker in self._workers.values():
            worker.process.join()
            worker.connection.close()
        self._selector.close()
        self._pool.close()

    def through(self, items: Iterator[Item]) -> Iterator[Shown]:
        """What each picture shows, in order. Raises what prepare, finish and Model.submit raise, and Error."""
        self._items = items
        self._fill([*self._workers.values()])
        while self._order:
            self._step()
            while self._order and self._order[0] in self._done:
                yield self._done.pop(self._order.popleft())

    def _step(self) -> None:
        """Hears what processes say; if none has anything to say, waits for the device, or without frames for them."""
        is_idle, start = not self._frames, time.perf_counter()
        ready = self._selector.select(None if is_idle else 0)
        if is_idle and all(worker.has_read for worker in self._workers.values()):
            self._waited += time.perf_counter() - start
            self._grow()
        for key, _ in ready:
            if key.data is None:
                self._submit_ready()
            else:
                self._hear(key.data)
        if self._frames and not ready:
            self._fetch_oldest()
        self._fetch_done()

    def _grow(self) -> None:
        """Takes one process more if the device waits for pictures, and there are some for it."""
        passed = time.perf_counter() - self._since
        is_late = passed >= PAUSE and self._waited >= WAITS * passed
        if not (is_late and len(self) < self._most and self._pool.is_ready()):
            return
        item = self._next()
        if item is None:
            self._most = len(self)
            return
        self._lost.append(item)
        if self.add():
            self._fill([*self._workers.values()][-1:])

    def _fill(self, workers: list[Worker]) -> None:
        """Gives processes their first pictures, or more of those that another one has lost."""
        for _ in range(SLOTS):
            for worker in workers:
                self._give(worker, self._duty.together)

    def _give(self, worker: Worker, number: int) -> int:
        """Gives a process the next pictures, one if it is sent with its pixels; how many these are."""
        items: list[Item] = []
        while len(items) < number and (item := self._next()):
            items.append(item)
            if not is_named(item):
                break
        if items:
            worker.given |= {item.position: item for item in items}
            with suppress(OSError):  # it ended, which the next wait tells
                worker.connection.send(items)
        return len(items)

    def _next(self) -> Item | None:
        """The next picture, ready to go to a process; None if there is none."""
        if self._lost:
            return self._lost.popleft()
        item = next(self._items, None)
        if item:
            self._order.append(item.position)
        return item and sendable(item)

    def _hear(self, worker: Worker) -> None:
        """Takes what a process sent."""
        try:
            message: Message = worker.connection.recv()
        except (EOFError, OSError):
            self._lose(worker)
            return
        if isinstance(message, Error):
            raise message
        for shown in message:
            self._done[shown.position] = shown
            del worker.given[shown.position]
        wanted = len(message)
        while wanted and (given := self._give(worker, wanted)):
            wanted -= given

    def _submit_ready(self) -> None:
        """Submits the pictures that processes have read."""
        for number, place, used in READY.iter_unpack(os.read(self._pool.ready.fileno(), READY.size * TOLD)):
            worker = self._workers.get(number)
            if worker is None:  # it was lost, and another one reads its pictures
                continue
            worker.has_read, slot = True, worker.slots[place]
            picture = Pixels(self._input.shape, self._size, [slot.packed[:used]], stays=True) if used else slot.input
            frame = self._model.submit({**self._others, self._input.name: picture}, outputs=slot.outputs)
            self._frames.append((worker, place, frame))
            self._fetch_done()

    def _fetch_done(self) -> None:
        while self._frames and self._frames[0][2].done():
            self._fetch_oldest()

    def _fetch_oldest(self) -> None:
        """Waits for the oldest frame, whose outputs are in its slot then, and tells its process."""
        worker, place, frame = self._frames.popleft()
        frame.result()
        with suppress(OSError):  # it ended, which the next wait tells, or was lost
            worker.connection.send_bytes(bytes([place]))

    def _lose(self, worker: Worker) -> None:
        """A process ended before its time: the others get its pictures. Raises Error if there is no other."""
        worker.process.join()
        del self._workers[worker.number]
        self._selector.unregister(worker.connection)
        worker.connection.close()
        names = ", ".join(item.name for item in worker.given.values())
        problem = f"of a process that read {names}: {how_it_ended(worker.process, True)}"
        if not self._workers:
            raise Error(f"no process is left that reads pictures: {problem}")
        print(f"imgconv: {problem}; the others get its pictures", file=sys.stderr)
        self._lost.extend(worker.given.values())
        self._fill([*self._workers.values()])
