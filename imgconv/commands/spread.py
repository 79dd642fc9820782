"""imgconv run --devices: a process for each device, which asks for the next picture as soon as it has room for it."""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Union

from imgconv.cl.device import DeviceInfo, list_devices, select
from imgconv.commands.flow import Flow
from imgconv.commands.outcome import Head, Shown
from imgconv.commands.processes import by_threads_or_processes, cores, early_pool
from imgconv.commands.runner import CommandLine, Item, Runner
from imgconv.commands.sending import how_it_ended, is_named, sendable, without_interrupts
from imgconv.errors import DeviceError, Error
from imgconv.pictures.preparation import Size

MOMENT = 0.05  # seconds: a process asks for as many pictures at once as it does in this time
AT_ONCE = 64  # at most

# What a process sends: how many pictures it wants, what it is and what it found, or why it can do nothing.
Message = Union[int, Head, Shown, str]


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

    def some(self, number: int) -> list[Item]:
        """The next pictures, as many as asked for if they are sent by name, else one; [] if there is none."""
        found: list[Item] = []
        while len(found) < number and (item := self.next()):
            found.append(item)
            if not is_named(item):
                break
        return found

    def put_back(self, items: Sequence[Item]) -> None:
        """Takes pictures back."""
        self._lost.extend(items)

    def is_empty(self) -> bool:
        """Whether there is none; it looks for the next one."""
        item = self.next()
        if item:
            self._lost.appendleft(item)
        return item is None


@dataclass(frozen=True)
class _About:
    """What a process is told. size: of the first picture; pictures: about how many it will get, if that is known."""

    size: Size | None
    pictures: int | None
    cores: int


@dataclass
class Worker:
    """A process for a device. given: the pictures that it has, by their numbers."""

    device: DeviceInfo
    process: BaseProcess
    given: dict[int, Item] = field(default_factory=dict)


def spread(
    line: CommandLine, size: Size | None, items: Iterator[Item], total: int | None, devices: Sequence[DeviceInfo]
) -> Iterator[Head | Shown]:
    """What every process tells: a Head for each device, and what each picture shows, as soon as it is done.

    total: how many pictures there are, if that is known. If a process ends before its time, the others get its
    pictures. Raises Error if none is left.
    """
    todo = Todo(items)
    while devices:
        devices, problem = yield from _round(line, size, todo, total, devices)
        if todo.is_empty():
            return
    raise DeviceError(f"no device is left: {problem}")


def _round(
    line: CommandLine, size: Size | None, todo: Todo, total: int | None, devices: Sequence[DeviceInfo]
) -> Generator[Head | Shown, None, tuple[list[DeviceInfo], str]]:
    """Starts the processes and hands out pictures until each has ended; gives the devices that did so well."""
    about = _About(size, None if total is None else total // len(devices), max(1, cores() // len(devices)))
    workers: dict[Connection, Worker] = {}
    processes: list[BaseProcess] = []
    well, problem = [], ""
    try:
        for device in devices:
            ours, worker = _started(line.sendable(device=str(device.index)), about, device)
            workers[ours] = worker
            processes.append(worker.process)
        while workers:
            for connection in wait(list(workers)):
                assert isinstance(connection, Connection)
                worker = workers[connection]
                try:
                    message: Message = connection.recv()
                    if isinstance(message, int):
                        items = todo.some(message)
                        worker.given |= {item.position: item for item in items}
                        connection.send(items)
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
        for process in processes:
            process.join()
    return well, problem


def _started(line: CommandLine, about: _About, device: DeviceInfo) -> tuple[Connection, Worker]:
    # A fork would share the parent's driver. No daemon: it may start processes of its own.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, line, about))
    with without_interrupts():
        process.start()
    theirs.close()
    return ours, Worker(device, process)


def _work(connection: Connection, line: CommandLine, about: _About) -> None:
    """The life of a process: it loads the model, and tells what each picture shows until there is no more."""
    try:
        with ExitStack() as stack:
            pool = stack.enter_context(early_pool(about.pictures, about.cores) or nullcontext())
            runner = Runner.load(line, about.size, lambda *_: None)
            flow = stack.enter_context(Flow(runner.model, runner.batch))
            told = by_threads_or_processes(
                runner, flow, _asked(connection), about.pictures, not line.options.json, about.cores, pool
            )
            for place, shown in enumerate(told):
                if not place:
                    connection.send(Head.of(runner.model, flow.seconds, runner.size, runner.task is not None))
                connection.send(shown)
    except Error as error:
        connection.send(str(error))
    except (EOFError, ConnectionError):
        pass  # the parent has ended


def _asked(connection: Connection) -> Iterator[Item]:
    """The pictures that the other side hands out."""
    number = 1
    while True:
        start = time.perf_counter()
        connection.send(number)
        items: list[Item] = connection.recv()
        if not items:
            return
        yield from items
        taken = (time.perf_counter() - start) / len(items)
        number = max(1, min(AT_ONCE, int(MOMENT / taken)))
