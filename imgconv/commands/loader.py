"""A fixed number of worker processes that read pictures and outputs for one device, as PyTorch's DataLoader has.

Threads of Python take turns for most of this work: beside an H200, one process prepares 400 pictures a second however
many cores there are, and the device could run 3,000. Each worker has slots of memory that it shares with this process:

    worker:         prepares a picture -> input in a slot        decodes the slot's outputs, prepares the next one ...
    this process:                        submits it, outputs -> the slot

Workers start while the model is compiled. They are used for many pictures in files, on machines of several cores.
"""

from __future__ import annotations

import multiprocessing
import os
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from selectors import EVENT_READ, DefaultSelector
from threading import Thread
from typing import TYPE_CHECKING

from imgconv.commands import worker
from imgconv.commands.flow import Flow
from imgconv.commands.outcome import Outcome, Shown
from imgconv.commands.runner import Item, Runner
from imgconv.commands.slots import SharedMemory, Slots
from imgconv.commands.worker import SLOTS, Reply, Work, exit_reason, without_interrupts
from imgconv.errors import Error
from imgconv.model import pinned
from imgconv.pictures.pixels import LARGEST, Pixels

if TYPE_CHECKING:
    from imgconv.runtime.pipeline import Frame

MANY = 400  # pictures, for which workers are worth their start
CORES = 4  # at least: one stays for this process
MOST_WORKERS = 16
BYTES = 1 << 30  # of shared memory, at most


def cores() -> int:
    """Returns how many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def worker_count(pictures: int | None, share: int) -> int:
    """Returns the number of workers for this many pictures, on this many cores; 0 if threads do.

    pictures: None if their number is not known, as of a camera's.
    """
    can_fork = "forkserver" in multiprocessing.get_all_start_methods() and hasattr(os, "memfd_create")
    return min(share - 1, MOST_WORKERS) if can_fork and (pictures or 0) >= MANY and share >= CORES else 0


def answers(runner: Runner, flow: Flow, items: Iterator[Item], loader: Loader, with_lines: bool) -> Iterator[Shown]:
    """Yields what each picture shows, in order: by the loader's workers if they can do it, else by threads.

    Raises what Flow.through and Loader.through raise.
    """
    for some in (islice(items, 1), items) if loader.count else (items,):
        for outcome in flow.through(some, runner.prepare, runner.finish):  # the first one tells how long a run takes
            yield Shown.of(outcome, with_lines)
        if some is not items and loader.begin(runner, with_lines):
            yield from loader.through(items)


class Loader:
    """Worker processes, the memory that they share with this one, and the device's frames in flight. count: at most.

        with Loader(worker_count(1000, cores())) as loader:
            runner = ...
            if loader.begin(runner, with_lines=True):
                for shown in loader.through(items):
                    print(shown)
    """

    def __init__(self, count: int) -> None:
        """Starts the workers in a thread, which waits for a server that has imported what they need."""
        self.count, self._ended = count, False
        self._processes: dict[Connection, BaseProcess] = {}
        if count:
            self._memory = SharedMemory()
            multiprocessing.set_forkserver_preload([worker.__name__])
            with without_interrupts(), suppress(OSError):
                forkserver.ensure_running()
        self._starter = Thread(target=self._start, name="imgconv workers", daemon=True)
        self._starter.start()

    def _start(self) -> None:
        context = multiprocessing.get_context("forkserver")
        with suppress(EOFError, OSError):  # the server was ended, or the system has no memory: there are fewer workers
            for _ in range(self.count):
                ours, theirs = context.Pipe()
                with theirs:
                    process = context.Process(target=worker.work, args=(theirs, self._memory), daemon=True)
                    process.start()
                self._processes[ours] = process
                if self._ended:
                    return

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        self._starter.join()
        for process in self._processes.values():
            process.terminate()
        for connection, process in self._processes.items():
            process.join()
            connection.close()

    def begin(self, runner: Runner, with_lines: bool) -> bool:
        """Tells the workers what to do; whether they can. Pictures in tiles and in batches are for threads."""
        self._starter.join()
        pictures = runner.apart() if self._processes and runner.batch == 1 else None
        target = runner.given.target
        if pictures is None or target is None:
            return False
        self._model, self._others, self._size = runner.model, runner.given.arrays, runner.size
        self._input = runner.model.inputs[target.name]
        slots = Slots(self._input, tuple(runner.model.outputs.values()), LARGEST if pictures.on_device else 0)
        count = min(len(self._processes), BYTES // (SLOTS * slots.bytes)) * SLOTS
        try:
            self._memory.allocate(count * slots.bytes)
        except OSError:
            return False
        array = pinned(self._model, self._memory.array(count * slots.bytes))
        self._slots = [slots.slot(array, number) for number in range(count)]
        for connection in islice(self._processes, count // SLOTS):
            with suppress(OSError):  # it ended, which `through` finds
                connection.send(Work(pictures, slots, count, with_lines))
        return count > 0

    def through(self, items: Iterator[Item]) -> Iterator[Shown]:
        """Yields what each picture shows, in order. Raises what Model.submit raises, and a worker's Error.

        The pictures of a worker that ends before its time have errors.
        """
        self._items, self._selector = items, DefaultSelector()
        self._frames: deque[tuple[Connection, int, Frame]] = deque()
        self._order: deque[int] = deque()  # positions that are not yielded
        self._done: dict[int, Shown] = {}
        self._given: dict[Connection, dict[int, Item]] = {}  # by slot
        workers = [*islice(self._processes, len(self._slots) // SLOTS)]
        for number, connection in enumerate(workers):
            self._selector.register(connection, EVENT_READ, connection)
            self._given[connection] = {}
        for number in sorted(range(len(self._slots)), key=lambda number: number % SLOTS):
            self._give(workers[number // SLOTS], number)
        with self._selector:
            while self._order:
                self._step()
                while self._order and self._order[0] in self._done:
                    yield self._done.pop(self._order.popleft())

    def _give(self, connection: Connection, number: int) -> None:
        """Gives a worker the next picture, for a slot of its own."""
        item = next(self._items, None) if connection in self._given else None
        if item:
            self._order.append(item.position)
            self._given[connection][number] = item
            with suppress(OSError):
                connection.send((number, worker.sendable(item)))

    def _step(self) -> None:
        """Takes what workers say; if none says anything, waits for the device, or without frames for them."""
        ready = self._selector.select(0 if self._frames else None)
        for key, _ in ready:
            self._take(key.data)
        if self._frames and not ready:
            self._fetch()
        while self._frames and self._frames[0][2].done():
            self._fetch()

    def _fetch(self) -> None:
        """Waits for the oldest frame, whose outputs are in its slot then, and tells its worker."""
        connection, number, frame = self._frames.popleft()
        frame.result()
        with suppress(OSError):
            connection.send(number)

    def _take(self, connection: Connection) -> None:
        """Takes a worker's reply: submits its picture, or gives it another one."""
        try:
            reply: Reply = connection.recv()
        except (EOFError, OSError):
            self._lose(connection)
            return
        if isinstance(reply, Error):
            raise reply
        number, found = reply
        if isinstance(found, Shown):
            self._done[found.position] = found
            del self._given[connection][number]
            self._give(connection, number)
            return
        slot = self._slots[number]
        picture = Pixels(self._input.shape, self._size, [slot.packed[:found]], stays=True) if found else slot.input
        frame = self._model.submit({**self._others, self._input.name: picture}, outputs=slot.outputs)
        self._frames.append((connection, number, frame))

    def _lose(self, connection: Connection) -> None:
        """Takes a worker out that ended before its time: its pictures have errors. Raises Error if none is left."""
        self._selector.unregister(connection)
        reason, lost = exit_reason(self._processes[connection]), self._given.pop(connection).values()
        for item in lost:
            outcome = Outcome(item.name, item.position, error=f"{item.name} was not read: {reason}")
            self._done[item.position] = Shown.of(outcome, False)
        if not self._given:
            raise Error(f"no process is left that reads pictures: of {', '.join(i.name for i in lost)}: {reason}")
