"""A worker process of a PictureLoader: prepares pictures in shared memory, and decodes the outputs that come back."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import recv_handle
from typing import Union

import numpy

from imgconv.commands.picture_result import PrintableResult
from imgconv.commands.runner import PictureItem, PictureProcessor, Sample, raise_error
from imgconv.commands.shared_samples import SampleLayout, map_shared_memory
from imgconv.errors import Error, InputError
from imgconv.preprocessing.pixels import Pixels

NICENESS = 5  # above that of the process that enqueues launches, for which all others wait

# To a worker: the number of a sample, and a picture to prepare there, or None if its outputs are there.
PictureRequest = tuple[int, Union[PictureItem, None]]
# From a worker: a sample with the bytes of its packed picture (0: it is the model's input), or with its result.
Reply = Union[tuple[int, Union[int, PrintableResult]], Error]


def work(
    connection: Connection, pictures: PictureProcessor, layout: SampleLayout, count: int, with_lines: bool
) -> None:
    """Answers requests until the other side ends. count: samples of all workers, whose memory is sent first."""
    os.nice(NICENESS)
    samples: dict[int, Sample] = {}
    with suppress(EOFError, OSError):  # the loader has ended
        memory = map_shared_memory(recv_handle(connection), count * layout.bytes)
        buffers = [layout.buffers(memory, number) for number in range(count)]

        def handle_request(number: int, item: PictureItem | None) -> Reply:
            if item is None:
                outcome = pictures.finish(samples.pop(number), [buffers[number].outputs])
                return number, PrintableResult.from_result(outcome, with_lines)
            sample, runs = pictures.prepare(item)
            for run in runs:
                samples[number] = sample
                made = run[layout.input.name]
                if isinstance(made, Pixels):
                    made.write(buffers[number].packed)
                    return number, made.bytes
                numpy.copyto(buffers[number].input, made)
                return number, 0
            return number, PrintableResult.from_result(pictures.finish(sample, []), with_lines)

        while True:
            request: PictureRequest = connection.recv()
            try:
                connection.send(handle_request(*request))
            except Error as error:
                connection.send(error)


def sendable(item: PictureItem) -> PictureItem:
    """The same picture: a file by its name, anything else, such as a frame of a video, with its pixels."""
    if item.read is None or isinstance(item.read, partial):
        return item
    try:
        return replace(item, read=item.read().copy)
    except InputError as error:
        return replace(item, read=partial(raise_error, error))


@contextmanager
def ignore_interrupts() -> Iterator[None]:
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
    """Returns how a process ended: "its process was killed by SIGKILL", "its process exited with status 1"."""
    process.join()
    code = process.exitcode or 0
    if code < 0:
        return f"its process was killed by {signal.Signals(-code).name}"
    return f"its process exited with status {code}"
