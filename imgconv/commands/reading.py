"""A process that reads pictures into slots of shared memory and tells what their outputs show.

What it is sent: its Duty, then pictures to read, several at once, and the number of each slot whose outputs are there,
as one byte.
What it sends: what pictures show, several at once; and READY, in a pipe that all processes share, as soon as a picture
is in a slot.
"""

from __future__ import annotations

import os
import pickle
import struct
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Union

import numpy

from imgconv.commands.flow import Done
from imgconv.commands.outcome import Shown
from imgconv.commands.runner import Item, Pictures, Seen
from imgconv.commands.slots import SharedMemory, Slots
from imgconv.errors import Error
from imgconv.pictures.pixels import Pixels

SLOTS = 3  # pictures that a process has at once: one is read while others are computed or wait
MOMENT = 0.05  # seconds, after which it tells what it has found even if that is little
LESS = 5  # how much less urgent it is than the process that enqueues launches, which others wait for

# What it is sent: a slot whose outputs are there, or pictures.
Task = Union[int, list[Item]]
# What it sends: what pictures show, or what went wrong.
Message = Union[list[Shown], Error]
# A process, one of its slots, and how many bytes of a packed picture that holds (0: the model's input).
READY = struct.Struct("<HHI")


@dataclass(frozen=True)
class Duty:
    """What a process is told first. together: how many pictures it gets and tells of at once."""

    pictures: Pictures
    slots: Slots
    together: int
    with_lines: bool


def read(number: int, connection: Connection, ready: Connection, memory: SharedMemory) -> None:
    """The life of a process, until the other side ends it. number: its own; ready: where READY goes."""
    if hasattr(os, "nice"):
        os.nice(LESS)
    tasks: SimpleQueue[Task | None] = SimpleQueue()

    def tell(slot: int, used: int) -> None:
        os.write(ready.fileno(), READY.pack(number, slot, used))  # whole, as less than PIPE_BUF bytes are

    with suppress(EOFError, OSError):  # the parent has ended, or needs no process
        duty: Duty = connection.recv()
        memory.map(SLOTS * duty.slots.bytes)
        reader = Reader(connection, tell, tasks, memory, duty)
        # The other side must never wait until it is heard: it would not read what this one sends.
        Thread(target=_receive, args=(connection, tasks), daemon=True).start()
        while True:
            try:
                reader.step()
            except Error as error:
                connection.send(error)


def _receive(connection: Connection, tasks: SimpleQueue[Task | None]) -> None:
    """Takes what is sent as it comes; None is the end."""
    with suppress(EOFError, OSError):
        while True:
            data = connection.recv_bytes()
            tasks.put(data[0] if len(data) == 1 else pickle.loads(data))
    tasks.put(None)


class Reader:
    """What a process has to do: pictures to read, slots that are free or hold one, and what is not told yet."""

    def __init__(
        self, connection: Connection, ready: Callable[[int, int], None], tasks: SimpleQueue[Task | None],
        memory: SharedMemory, duty: Duty,
    ) -> None:
        """ready: called with a slot that holds a picture, and how many bytes that has; 0 for the model's input."""
        self._connection, self._ready, self._tasks = connection, ready, tasks
        self._pictures, self._with_lines = duty.pictures, duty.with_lines
        self._input, self._together = duty.slots.input.name, duty.together
        self._slots = [duty.slots.slot(memory.bytes, number) for number in range(SLOTS)]
        self._free = [*range(SLOTS)]
        self._seen: dict[int, Seen] = {}
        self._unread: deque[Item] = deque()
        self._found: list[Shown] = []
        self._told = time.monotonic()

    def step(self) -> None:
        """Takes what was sent, or waits for it if there is nothing to do; then reads a picture if there is room.

        Raises EOFError if nothing more will be sent.
        """
        with suppress(Empty):
            while True:
                self._take(self._tasks.get(timeout=self._patience()))
        if self._unread and self._free:
            self._read(self._unread.popleft())
        is_late = time.monotonic() - self._told >= MOMENT
        if self._found and (is_late or len(self._found) >= self._together or not (self._unread or self._seen)):
            self._connection.send(self._found)
            self._found, self._told = [], time.monotonic()

    def _take(self, task: Task | None) -> None:
        if task is None:
            raise EOFError
        if isinstance(task, int):
            self._finish(task)
        else:
            self._unread.extend(task)

    def _patience(self) -> float | None:
        """Seconds to wait for a message; None if there is nothing else to do."""
        if self._unread and self._free:
            return 0.0
        if not self._found:
            return None
        return max(0.0, self._told + MOMENT - time.monotonic()) if self._unread or self._seen else 0.0

    def _read(self, item: Item) -> None:
        """Prepares a picture into a slot, and says so; what cannot be read is found at once."""
        job = self._pictures.prepare(item)
        number = self._free[-1]
        for run in job.runs:
            made, used = run[self._input], 0
            if isinstance(made, Pixels):
                made.write(self._slots[number].packed)
                used = made.bytes
            else:
                numpy.copyto(self._slots[number].input, made)
            self._seen[self._free.pop()] = job.of
            self._ready(number, used)
            return
        self._add(Done(job.of, []))

    def _finish(self, number: int) -> None:
        """Reads the outputs in a slot."""
        self._free.append(number)
        self._add(Done(self._seen.pop(number), [self._slots[number].outputs]))

    def _add(self, done: Done[Seen]) -> None:
        if not self._found:
            self._told = time.monotonic()  # of what was found first
        self._found.append(Shown.of(self._pictures.finish(done), self._with_lines))
