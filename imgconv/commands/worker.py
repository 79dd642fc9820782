"""A worker process of a Loader: prepares pictures in slots of shared memory, and decodes the outputs that come back."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Union

import numpy

from imgconv.commands.flow import Done
from imgconv.commands.outcome import Shown
from imgconv.commands.runner import Item, Pictures, Seen, raising
from imgconv.commands.slots import SharedMemory, Slots
from imgconv.errors import Error, InputError
from imgconv.pictures.pixels import Pixels

SLOTS = 3  # pictures that a worker has at once: one is prepared while others are computed or wait
NICENESS = 5  # above that of the process that enqueues launches, for which all others wait


@dataclass(frozen=True)
class Work:
    """The first message to a worker. count: of all workers' slots."""

    pictures: Pictures
    slots: Slots
    count: int
    with_lines: bool


# To a worker: a picture and the slot for it, or a slot whose outputs are there.
Request = Union[tuple[int, Item], int]
# From a worker: a slot that holds a picture, with its packed bytes (0: it is the model's input); a slot that is free
# again, with what its picture shows; or what went wrong.
Reply = Union[tuple[int, int], tuple[int, Shown], Error]


def work(connection: Connection, memory: SharedMemory) -> None:
    """Answers requests until the other side ends. Its first message is Work."""
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    with suppress(EOFError, OSError):  # the loader has ended, or needs no worker
        given: Work = connection.recv()
        worker = _Worker(given, memory)
        while True:
            request: Request = connection.recv()
            try:
                connection.send(worker.reply(request))
            except Error as error:
                connection.send(error)


class _Worker:
    def __init__(self, given: Work, memory: SharedMemory) -> None:
        array = memory.array(given.count * given.slots.bytes)
        self._slots = [given.slots.slot(array, number) for number in range(given.count)]
        self._input, self._pictures, self._with_lines = given.slots.input.name, given.pictures, given.with_lines
        self._seen: dict[int, Seen] = {}

    def reply(self, request: Request) -> Reply:
        """Prepares a picture, or decodes the outputs of one; what cannot be read is decoded at once."""
        if isinstance(request, int):
            return request, self._shown(Done(self._seen.pop(request), [self._slots[request].outputs]))
        number, item = request
        job = self._pictures.prepare(item)
        for run in job.runs:
            made, slot = run[self._input], self._slots[number]
            self._seen[number] = job.of
            if isinstance(made, Pixels):
                made.write(slot.packed)
                return number, made.bytes
            numpy.copyto(slot.input, made)
            return number, 0
        return number, self._shown(Done(job.of, []))

    def _shown(self, done: Done[Seen]) -> Shown:
        return Shown.of(self._pictures.finish(done), self._with_lines)


def sendable(item: Item) -> Item:
    """The same picture: a file by its name, anything else, such as a frame of a video, with its pixels."""
    if item.read is None or isinstance(item.read, partial):
        return item
    try:
        return replace(item, read=item.read().copy)
    except InputError as error:
        return replace(item, read=partial(raising, error))


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Processes that are started in here ignore Ctrl-C, which goes to all: this process ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield  # no other thread may change a handler, and the main thread gets Ctrl-C
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def exit_reason(process: BaseProcess) -> str:
    """Returns how a process ended: "its process was ended by SIGKILL", "its process ended with 1"."""
    process.join()
    code = process.exitcode or 0
    return f"its process was ended by {signal.Signals(-code).name}" if code < 0 else f"its process ended with {code}"
