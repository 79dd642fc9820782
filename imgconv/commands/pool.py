"""Processes for reading pictures that are started before they are needed, while the model is loaded.

A start takes some milliseconds, on some systems a tenth of a second. So a thread starts one after another. Each waits
until it is told what to do, see reading.py.
"""

from __future__ import annotations

import multiprocessing
import os
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from threading import Thread

from imgconv.commands import reading
from imgconv.commands.reading import SLOTS, Duty, read
from imgconv.commands.runner import Item
from imgconv.commands.sending import without_interrupts
from imgconv.commands.slots import SharedMemory, Slot
from imgconv.model import Model, pinned


@dataclass
class Worker:
    """A process. given: the pictures that it has not told of, by their numbers; has_read: whether it has read one."""

    number: int
    process: BaseProcess
    connection: Connection
    memory: SharedMemory
    slots: list[Slot] = field(default_factory=list)
    given: dict[int, Item] = field(default_factory=dict)
    has_read: bool = False

    def begin(self, duty: Duty, model: Model) -> bool:
        """Tells it what to do, and allocates slots for the model; False if the system has no memory for them."""
        if not self.memory.allocate(SLOTS * duty.slots.bytes):
            return False
        memory = pinned(model, self.memory.bytes)
        self.slots = [duty.slots.slot(memory, number) for number in range(SLOTS)]
        with suppress(OSError):  # it ended, which the next wait tells
            self.connection.send(duty)
        return True

    def end(self) -> None:
        """Ends the process, without waiting for it."""
        self.process.terminate()
        self.connection.close()


def can_fork() -> bool:
    """Whether the system has servers that fork, and memory that processes share without a name."""
    return "forkserver" in multiprocessing.get_all_start_methods() and hasattr(os, "memfd_create")


class Pool:
    """At most so many processes, started in a thread, by a server process that has imported what they need.

    ready: where all of them send reading.READY.

        with Pool(7) as pool:
            worker = pool.take()
    """

    def __init__(self, most: int) -> None:
        """Begins, without waiting for the server."""
        self.most, self._ended = most, False
        self.ready, self._to_ready = multiprocessing.Pipe(duplex=False)
        # None is the end: the system starts no more.
        self._started: SimpleQueue[Worker | None] = SimpleQueue()
        if can_fork():
            multiprocessing.set_forkserver_preload([reading.__name__])
            with without_interrupts(), suppress(OSError):  # without a server, threads do the work
                forkserver.ensure_running()
            Thread(target=self._start, name="imgconv processes", daemon=True).start()
        else:
            self._started.put(None)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def is_ready(self) -> bool:
        """Whether `take` would return at once."""
        return not self._started.empty()

    def take(self) -> Worker | None:
        """The next process, as soon as it is started; None if there is none."""
        worker = self._started.get()
        if worker is None:
            self._started.put(None)
        return worker

    def close(self) -> None:
        """Ends the processes that nobody took, and starts no more."""
        self._ended = True
        with suppress(Empty):
            while True:
                worker = self._started.get_nowait()
                if worker:
                    worker.end()
        self._started.put(None)

    def _start(self) -> None:
        with suppress(EOFError, OSError):  # the server was ended, or the system has no memory
            for number in range(self.most):
                if self._ended:
                    break
                self._started.put(self._worker(number))
        self._started.put(None)
        if self._ended:
            self.close()

    def _worker(self, number: int) -> Worker:
        memory, (ours, theirs) = SharedMemory.make(), multiprocessing.Pipe()
        try:
            process = multiprocessing.get_context("forkserver").Process(
                target=read, args=(number, theirs, self._to_ready, memory), daemon=True
            )
            process.start()
        except BaseException:
            ours.close()
            memory.close_file()
            raise
        finally:
            theirs.close()
        return Worker(number, process, ours, memory)
