"""What processes send each other, how they are started, and how they ended."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing.process import BaseProcess

from imgconv.commands.runner import Item, raising
from imgconv.errors import InputError


def is_named(item: Item) -> bool:
    """Whether another process can read the picture by its name; else it goes with its pixels."""
    return item.read is None or isinstance(item.read, partial)


def sendable(item: Item) -> Item:
    """The same picture: a file by its name, anything else, such as a frame of a video, with its pixels."""
    if item.read is None or is_named(item):
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


def how_it_ended(process: BaseProcess, has_work: bool) -> str:
    """"" if the process did all it had to do."""
    code = process.exitcode or 0
    if not (code or has_work):
        return ""
    return f"its process was ended by {signal.Signals(-code).name}" if code < 0 else f"its process ended with {code}"
