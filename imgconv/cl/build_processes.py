"""Builds in other processes, because some drivers build one program at a time in each process.

    this process                   a worker (build_worker.py)
    device, once   ------------->  opens it
    source, name   ------------->  builds the program
                   <-------------  its binary, or nothing

A worker starts when it is first needed. If it cannot start or ends early, this process builds in its place.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import IO

from imgconv.cl.device import DeviceInfo

SIZE = 8  # bytes in front of each message: how many follow
# The program's own folder and a user's module of the same name must not hide what is imported here.
COMMAND = "import sys; sys.path[:] = sys.argv[1:]; from imgconv.cl.build_worker import main; main()"


class Worker:
    """A process that builds programs for a device."""

    def __init__(self, info: DeviceInfo) -> None:
        """Starts nothing: the first `build` does."""
        self._info = info
        self._process: subprocess.Popen[bytes] | None = None

    def build(self, source: str, name: str, options: Sequence[str]) -> bytes | None:
        """The binary of the program; None if the process cannot start, ends early, or the source has errors."""
        try:
            if self._process is None:
                self._process = _start()
                self._ask(json.dumps(asdict(self._info)).encode())
            self._ask(json.dumps([source, name, list(options)]).encode())
            assert self._process.stdout is not None
            return read_message(self._process.stdout) or None
        except OSError:
            return None

    def close(self) -> None:
        """Ends the process."""
        if self._process is None:
            return
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        self._process.wait()

    def _ask(self, message: bytes) -> None:
        assert self._process is not None and self._process.stdin is not None
        write_message(self._process.stdin, message)


class Turns:
    """Who builds next: this process or one of its workers. No two threads get the same one.

        with Turns(context.info, 4, 3) as turns, turns.next() as worker:
            ...
    """

    def __init__(self, info: DeviceInfo, here: int, elsewhere: int) -> None:
        """here: builds at once in this process. elsewhere: workers, none if this Python cannot start another."""
        self._workers = [Worker(info) for _ in range(elsewhere if _can_start() else 0)]
        self._idle: SimpleQueue[Worker | None] = SimpleQueue()
        for each in [None] * here + self._workers:
            self._idle.put(each)

    @contextmanager
    def next(self) -> Iterator[Worker | None]:
        """A worker, or None for this process. Waits until one is idle."""
        who = self._idle.get()
        try:
            yield who
        finally:
            self._idle.put(who)

    def __enter__(self) -> Turns:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.close()


def write_message(stream: IO[bytes], content: bytes) -> None:
    """Sends what `read_message` receives. Raises OSError if the other process has ended."""
    stream.write(len(content).to_bytes(SIZE, "little") + content)
    stream.flush()


def read_message(stream: IO[bytes]) -> bytes:
    """Waits for a message; empty if the other process has ended."""
    size = int.from_bytes(stream.read(SIZE), "little")
    content = stream.read(size)
    return content if len(content) == size else b""


def _can_start() -> bool:
    """Whether sys.executable is Python. In an application that contains Python, it is the application."""
    return Path(sys.executable or "").name.lower().startswith(("python", "pypy"))


def _start() -> subprocess.Popen[bytes]:
    # What the driver prints belongs to the build in this process, which follows if a worker's fails.
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, *filter(None, map(os.path.abspath, sys.path))],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )
