"""imgconv run --devices: a process for each device, which asks for the next picture as soon as it has room for it."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import threading
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Union

from imgconv.cl.device import DeviceInfo, list_devices, select
from imgconv.commands.flow import Flow
from imgconv.commands.outcome import Head, Shown
from imgconv.commands.runner import CommandLine, Item, Runner, raising
from imgconv.errors import DeviceError, Error, InputError
from imgconv.pictures.preparation import Size

# What a process sends: None for "the next picture", what it is and what it found, or why it can do nothing.
Message = Union[None, Head, Shown, str]


def devices_of(asked: str) -> list[DeviceInfo]:
    """The devices of --devices: "all", or as for --device with commas between them. Raises DeviceError."""
    if asked == "all":
        return [device for device in list_devices() if device.float_images]
    return [select(part) for part in asked.split(",")]


class Todo:
    """The pictures that no process has yet; those that a process loses come back."""

    def __init__(self, items: Iterator[Item]) -> None:
        self._items = items
        self._lost: deque[Item] = deque()

    def next(self) -> Item | None:
        """The next picture, ready to go to another process; None if there is none."""
        if self._lost:
            return self._lost.popleft()
        item = next(self._items, None)
        return item and sendable(item)

    def put_back(self, items: Sequence[Item]) -> None:
        """Takes pictures back."""
        self._lost.extend(items)

    def is_empty(self) -> bool:
        """Whether there is none; it looks for the next one."""
        item = self.next()
        if item:
            self._lost.appendleft(item)
        return item is None


def sendable(item: Item) -> Item:
    """The same picture: a file by its name, anything else, such as a frame of a video, with its pixels."""
    if item.read is None or isinstance(item.read, partial):
        return item
    try:
        return replace(item, read=item.read().copy)
    except InputError as error:
        return replace(item, read=partial(raising, error))


@dataclass
class Worker:
    """A process for a device. given: the pictures that it has, by their numbers."""

    device: DeviceInfo
    process: BaseProcess
    given: dict[int, Item] = field(default_factory=dict)


def spread(
    line: CommandLine, size: Size | None, items: Iterator[Item], devices: Sequence[DeviceInfo]
) -> Iterator[Head | Shown]:
    """What every process tells: a Head for each device, and what each picture shows, as soon as it is done.

    If a process ends before its time, the others get its pictures. Raises Error if none is left.
    """
    todo = Todo(items)
    while devices:
        devices, problem = yield from _round(line, size, todo, devices)
        if todo.is_empty():
            return
    raise DeviceError(f"no device is left: {problem}")


def _round(
    line: CommandLine, size: Size | None, todo: Todo, devices: Sequence[DeviceInfo]
) -> Generator[Head | Shown, None, tuple[list[DeviceInfo], str]]:
    """Starts the processes and hands out pictures until each has ended; gives the devices that did so well."""
    workers = dict(_started(line, size, device) for device in devices)
    processes = [worker.process for worker in workers.values()]
    well, problem = [], ""
    try:
        while workers:
            for connection in wait(list(workers)):
                assert isinstance(connection, Connection)
                worker = workers[connection]
                try:
                    message: Message = connection.recv()
                    if message is None:
                        _answer(connection, worker, todo)
                        continue
                except (EOFError, OSError):
                    worker.process.join()
                    message = how_it_ended(worker.process, bool(worker.given))
                if isinstance(message, str):
                    if message:
                        problem = f"[{worker.device.index}] {worker.device.name}: {message}"
                        print(f"imgconv: {problem}; the others get its pictures", file=sys.stderr)
                        todo.put_back(list(worker.given.values()))
                    else:
                        well.append(worker.device)
                    del workers[connection]
                    continue
                if isinstance(message, Shown):
                    del worker.given[message.position]
                yield message
    finally:
        for process in processes:
            process.terminate()
    return well, problem


def _started(line: CommandLine, size: Size | None, device: DeviceInfo) -> tuple[Connection, Worker]:
    # A fork would share the parent's driver.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    own = line.sendable(device=str(device.index))
    process = context.Process(target=_work, args=(theirs, own, size), daemon=True)
    with without_interrupts():
        process.start()
    theirs.close()
    return ours, Worker(device, process)


def _answer(connection: Connection, worker: Worker, todo: Todo) -> None:
    """Gives the process the next picture, or None if there is no more."""
    item = todo.next()
    if item:
        worker.given[item.position] = item
    connection.send(item)


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


def how_it_ended(process: BaseProcess, has_work: bool) -> str:
    """"" if the process did all it had to do."""
    code = process.exitcode or 0
    if not (code or has_work):
        return ""
    return f"its process was ended by {signal.Signals(-code).name}" if code < 0 else f"its process ended with {code}"


def _work(connection: Connection, line: CommandLine, size: Size | None) -> None:
    """The life of a process: it loads the model, and tells what each picture shows until there is no more."""
    def asked() -> Iterator[Item]:
        while True:
            connection.send(None)
            item = connection.recv()
            if item is None:
                return
            yield item

    try:
        runner = Runner.load(line, size, lambda *_: None)
        with Flow(runner.model, runner.batch(None)) as flow:
            for place, outcome in enumerate(flow.through(asked(), runner.prepare, runner.finish)):
                if not place:
                    connection.send(Head.of(runner.model, flow.seconds, runner.size, runner.task is not None))
                connection.send(Shown.of(outcome, with_lines=not line.options.json))
    except Error as error:
        connection.send(str(error))
    except (EOFError, BrokenPipeError):
        pass  # the parent has ended
