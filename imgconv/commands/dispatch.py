"""imgconv run --devices: one process per device. Each process requests pictures when it can accept more."""

from __future__ import annotations

import multiprocessing
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from itertools import islice
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Union

from imgconv.cl.device import DeviceInfo, list_devices, select_device
from imgconv.commands.picture_loader import available_cores, run_pictures, worker_count
from imgconv.commands.picture_result import DeviceSummary, PrintableResult
from imgconv.commands.picture_worker import exit_reason, ignore_interrupts, sendable
from imgconv.commands.runner import PictureItem, RunArguments
from imgconv.errors import DeviceError, Error
from imgconv.preprocessing.preparation import Size

CHUNK = 16  # pictures that a process asks for at once, at most
CHUNKS = 16  # for each device, at least: the last ones to be handed out keep only one device busy

# From a process: None asks for pictures, "" says that it has ended, any other text why it failed.
Message = Union[None, DeviceSummary, PrintableResult, str]


def devices_of(asked: str) -> list[DeviceInfo]:
    """Returns the devices of --devices: "all", or as for --device with commas between them. Raises DeviceError."""
    if asked == "all":
        return [device for device in list_devices() if device.float_images]
    return [select_device(part) for part in asked.split(",")]


def dispatch(
    line: RunArguments, size: Size | None, items: Iterator[PictureItem], total: int | None,
    devices: Sequence[DeviceInfo]
) -> Generator[DeviceSummary | PrintableResult, None, None]:
    """Yields a DeviceSummary for each device, and the result of each picture, as soon as it is done.

    size: of the first picture; total: the number of pictures, if it is known. Raises DeviceError if a process fails
    or is killed.
    """
    share = None if total is None else total // len(devices)
    chunk = max(1, min(CHUNK, (share or 0) // CHUNKS))
    workers = worker_count(share, max(1, available_cores() // len(devices)))
    processes: dict[Connection, tuple[DeviceInfo, BaseProcess]] = {}
    try:
        for device in devices:
            connection, process = _start_process(line.sendable(device=str(device.index)), size, workers)
            processes[connection] = device, process
        running = set(processes)
        while running:
            for connection in [each for each in wait(running) if isinstance(each, Connection)]:
                try:
                    message: Message = connection.recv()
                    if message is None:
                        connection.send([sendable(item) for item in islice(items, chunk)])
                        continue
                except (EOFError, OSError):
                    message = exit_reason(processes[connection][1])
                if message == "":
                    running.remove(connection)
                elif isinstance(message, str):
                    device = processes[connection][0]
                    raise DeviceError(f"[{device.index}] {device.name}: {message}")
                else:
                    yield message
    finally:
        for _, process in processes.values():
            process.terminate()
        for _, process in processes.values():
            process.join()


def _start_process(line: RunArguments, size: Size | None, workers: int) -> tuple[Connection, BaseProcess]:
    # A fork would share the parent's driver. No daemon: it may start processes of its own.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_run_requested_pictures, args=(theirs, line, size, workers))
    with theirs, ignore_interrupts():
        process.start()
    return ours, process


def _run_requested_pictures(connection: Connection, line: RunArguments, size: Size | None, workers: int) -> None:
    """Runs in a device's process: sends the results of the pictures that it asks for, until there are no more."""
    try:
        with closing(run_pictures(line, size, _requested_items(connection), workers, lambda *_: None)) as messages:
            for message in messages:
                connection.send(message)
        connection.send("")
    except Error as error:
        connection.send(str(error))
    except (EOFError, ConnectionError):
        pass  # the parent has ended


def _requested_items(connection: Connection) -> Iterator[PictureItem]:
    """Yields the pictures that the other side hands out."""
    while True:
        connection.send(None)
        items: list[PictureItem] = connection.recv()
        if not items:
            return
        yield from items
