"""imgconv run --devices: a process for each device, which asks for pictures as it has room for them."""

from __future__ import annotations

import multiprocessing
import sys
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Union

from imgconv.cl.device import DeviceInfo, list_devices, select
from imgconv.commands.flow import Flow
from imgconv.commands.loader import Loader, answers, cores, worker_count
from imgconv.commands.outcome import DeviceSummary, Shown
from imgconv.commands.runner import CommandLine, Item, Runner
from imgconv.commands.worker import exit_reason, sendable, without_interrupts
from imgconv.errors import DeviceError, Error
from imgconv.pictures.preparation import Size

CHUNK = 16  # pictures that a process asks for at once, at most
CHUNKS = 16  # for each device, at least: the last ones to be handed out keep only one device busy

# From a process: it wants pictures, what it is and what it found, or that it has ended, with the reason if it failed.
Message = Union[None, DeviceSummary, Shown, str]


def devices_of(asked: str) -> list[DeviceInfo]:
    """Returns the devices of --devices: "all", or as for --device with commas between them. Raises DeviceError."""
    if asked == "all":
        return [device for device in list_devices() if device.float_images]
    return [select(part) for part in asked.split(",")]


@dataclass(frozen=True)
class _Share:
    """A process's share. size: of the first picture; pictures: about how many it gets, if that is known."""

    size: Size | None
    pictures: int | None
    cores: int


@dataclass
class _Consumer:
    """A process for a device. given: the pictures that it has, by their numbers."""

    device: DeviceInfo
    process: BaseProcess
    given: dict[int, Item] = field(default_factory=dict)


def spread(
    line: CommandLine, size: Size | None, items: Iterator[Item], total: int | None, devices: Sequence[DeviceInfo]
) -> Iterator[DeviceSummary | Shown]:
    """Yields a DeviceSummary for each device, and what each picture shows, as soon as it is done.

    total: how many pictures there are, if that is known. If a process ends before its time, the others get its
    pictures. Raises DeviceError if none is left.
    """
    waiting: deque[Item] = deque()
    while devices:
        devices, problem = yield from _round(line, size, waiting, items, total, devices)
        waiting.extend(islice(items, 1))
        if not waiting:
            return
    raise DeviceError(f"no device is left: {problem}")


def _round(
    line: CommandLine, size: Size | None, waiting: deque[Item], items: Iterator[Item], total: int | None,
    devices: Sequence[DeviceInfo],
) -> Generator[DeviceSummary | Shown, None, tuple[list[DeviceInfo], str]]:
    """Starts the processes and hands out pictures until each has ended.

    waiting: pictures to hand out before the others; those of a process that fails are added. Returns the devices that
    did not fail, and the last failure.
    """
    share = _Share(size, None if total is None else total // len(devices), max(1, cores() // len(devices)))
    chunk = max(1, min(CHUNK, (share.pictures or 0) // CHUNKS))
    consumers: dict[Connection, _Consumer] = {}
    well, problem = [], ""
    try:
        for device in devices:
            connection, consumer = _started(line.sendable(device=str(device.index)), share, device)
            consumers[connection] = consumer
        running = dict(consumers)
        while running:
            for connection in [each for each in wait(list(running)) if isinstance(each, Connection)]:
                consumer = running[connection]
                try:
                    message: Message = connection.recv()
                    if message is None:
                        some = [waiting.popleft() for _ in range(min(chunk, len(waiting)))] or [*islice(items, chunk)]
                        consumer.given |= {item.position: item for item in some}
                        connection.send([sendable(item) for item in some])
                        continue
                except (EOFError, OSError):
                    message = exit_reason(consumer.process)
                if isinstance(message, str):
                    del running[connection]
                    if message:
                        problem = f"[{consumer.device.index}] {consumer.device.name}: {message}"
                        print(f"imgconv: {problem}; the others get its pictures", file=sys.stderr)
                        waiting.extend(consumer.given.values())
                    else:
                        well.append(consumer.device)
                    continue
                if isinstance(message, Shown):
                    del consumer.given[message.position]
                yield message
    finally:
        for consumer in consumers.values():
            consumer.process.terminate()
        for consumer in consumers.values():
            consumer.process.join()
    return well, problem


def _started(line: CommandLine, share: _Share, device: DeviceInfo) -> tuple[Connection, _Consumer]:
    # A fork would share the parent's driver. No daemon: it may start processes of its own.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_consume, args=(theirs, line, share))
    with without_interrupts():
        process.start()
    theirs.close()
    return ours, _Consumer(device, process)


def _consume(connection: Connection, line: CommandLine, share: _Share) -> None:
    """The life of a process: it loads the model, and tells what each picture shows until there is no more."""
    try:
        with ExitStack() as stack:
            loader = stack.enter_context(Loader(worker_count(share.pictures, share.cores)))
            runner = Runner.load(line, share.size, lambda *_: None)
            flow = stack.enter_context(Flow(runner.model, runner.batch))
            for place, shown in enumerate(answers(runner, flow, _asked(connection), loader, not line.options.json)):
                if not place:
                    connection.send(DeviceSummary.of(runner.model, flow.seconds, runner.size, runner.task is not None))
                connection.send(shown)
        connection.send("")
    except Error as error:
        connection.send(str(error))
    except (EOFError, ConnectionError):
        pass  # the parent has ended


def _asked(connection: Connection) -> Iterator[Item]:
    """Yields the pictures that the other side hands out."""
    while True:
        connection.send(None)
        items: list[Item] = connection.recv()
        if not items:
            return
        yield from items
