"""A process that reads pictures into slots of shared memory and tells what their outputs show.

What it is sent: pictures to read, several at once, and the numbers of slots whose outputs are there. What it sends: a
slot as soon as a picture is in it, and what pictures show, several at once: a message takes the other side as long as
it takes to enqueue some launches.
"""

from __future__ import annotations

import os
import time
from collections import deque
from contextlib import suppress
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
# What it sends: a slot and how many bytes of a packed picture it holds (0: the model's input), what pictures show, or
# what went wrong.
Message = Union[tuple[int, int], list[Shown], Error]


def read(
    connection: Connection, pictures: Pictures, slots: Slots, memory: SharedMemory, together: int, with_lines: bool
) -> None:
    """The life of a process, until the other side ends it. together: how many pictures it tells of at once."""
    if hasattr(os, "nice"):
        os.nice(LESS)
    tasks: SimpleQueue[Task | None] = SimpleQueue()
    # The other side must never wait until it is heard: it would not read what this one sends.
    Thread(target=_receive, args=(connection, tasks), daemon=True).start()
    reader = Reader(connection, tasks, pictures, slots, memory, together, with_lines)
    with suppress(EOFError, OSError):  # the parent has ended
        while True:
            try:
                reader.step()
            except Error as error:
                connection.send(error)


def _receive(connection: Connection, tasks: SimpleQueue[Task | None]) -> None:
    """Takes what is sent as it comes; None is the end."""
    with suppress(EOFError, OSError):
        while True:
            tasks.put(connection.recv())
    tasks.put(None)


class Reader:
    """What a process has to do: pictures to read, slots that are free or hold one, and what is not told yet."""

    def __init__(
        self, connection: Connection, tasks: SimpleQueue[Task | None], pictures: Pictures, slots: Slots,
        memory: SharedMemory, together: int, with_lines: bool,
    ) -> None:
        self._connection, self._tasks = connection, tasks
        self._pictures, self._with_lines = pictures, with_lines
        self._input, self._together = slots.input.name, together
        self._slots = [slots.slot(memory, number) for number in range(SLOTS)]
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
            self._connection.send((number, used))
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
