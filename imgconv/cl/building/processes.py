"""Builds programs in worker processes, for drivers that build only one program at a time in each process.

    this process                   a worker (worker.py)
    device, once   ------------->  opens it
                   <-------------  is ready
    source, options ------------>  builds the program
                   <-------------  its binary, or nothing

If a worker cannot start or ends early, the other workers and this process build its programs, and the log states why.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Semaphore, Thread, Timer
from types import TracebackType
from typing import TYPE_CHECKING, Union

from imgconv.cl.building.worker import READY, read_message, write_message
from imgconv.cl.drivers import environment_for
from imgconv.cl.opencl_library import library
from imgconv.cl.quirks import quirks_of

if TYPE_CHECKING:
    import pyopencl as cl

LOG = logging.getLogger("imgconv")
WORKER = Path(__file__).with_name("worker.py")

# A worker launches nothing. With one hardware queue instead of eight NVIDIA's driver (580, H200) opens the device for
# eight processes in 0.4 s instead of 1.0.
FEW_QUEUES = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
# NVIDIA's driver lets processes open the device step by step in turn: of twelve that begin together all are ready after
# 0.6 s, of three after 0.25 s, and can build while the next ones open it. Six cold loads of efficientnet_b0 each, on
# one H200: median 1.9 s instead of 2.1.
OPEN_AT_ONCE = 3
# A kernel takes a driver a few seconds at most; on a busy machine some times that.
APART_SECONDS = 120.0


class BuildCrashError(Exception):
    """A process ended in a build, or did not end it."""


def parallel_builds(platform: str) -> int:
    """Returns the number of programs that this process builds at once."""
    return 1 if quirks_of(platform).one_build_at_a_time else os.cpu_count() or 1


@dataclass(frozen=True, eq=False)
class DeviceAddress:
    """The address of a device for a worker. Its properties raise OSError if another process cannot find the device."""

    device: cl.Device

    @cached_property
    def message(self) -> str:
        """The first message to a worker."""
        opencl, platform = library(), self.device.platform
        if opencl is None:
            raise OSError("the OpenCL library was not found")
        return "\n".join((opencl._name, platform.name, str(platform.get_devices().index(self.device))))

    @cached_property
    def environment(self) -> dict[str, str]:
        """The worker's environment."""
        return environment_for(self.device.platform.name) | FEW_QUEUES


class BuildWorker:
    """A process that builds programs for a device.

    works: whether it has not ended by itself. reason: why it does not.
    """

    def __init__(self, address: DeviceAddress) -> None:
        """Starts the process, and does not wait for it. Raises OSError."""
        self.works, self._closed, self._address = True, False, address.message
        self.reason = ""
        # Isolated, because a user's module must not hide one of Python's. What the driver prints belongs to the build
        # in this process, which follows if a worker's fails.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", WORKER], env=address.environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )

    def is_ready(self) -> bool:
        """Has the process open the device, and waits for that; False if it ended instead."""
        self._send(self._address)
        answer = self._receive()
        if answer is not None and answer != READY:
            self._stop_using(f"could not open the device: {answer.decode(errors='replace')}")
        return self.works

    def build(self, source: str, options: Sequence[str]) -> bytes | None:
        """The binary of the program; None if the process ended, or the source has errors. Call `is_ready` before.

        Raises SystemExit if Ctrl-C has ended the load meanwhile.
        """
        self._send(" ".join(options) + "\n" + source)
        answer = self._receive()
        if self._closed:
            raise SystemExit
        return answer or None

    @property
    def crashed(self) -> bool:
        """Returns whether it ended by itself in a build."""
        return not self.works and not self._closed

    def kill(self) -> None:
        """Ends the process, as a crash would."""
        self._process.kill()

    def close(self) -> None:
        """Ends the process, without waiting for its end."""
        self._closed = True
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        # NVIDIA's driver takes 0.05 s to end a process with a device, one after the other. The interpreter's end waits
        # for the thread: a process that nobody waits for may stay in the system's table, in a container without init.
        Thread(target=self._process.wait).start()

    def _send(self, message: str) -> None:
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):  # it ended, or was closed, so there will be no answer
            write_message(self._process.stdin, message.encode())

    def _receive(self) -> bytes | None:
        assert self._process.stdout is not None
        answer = None
        with suppress(ValueError):  # it was closed
            answer = read_message(self._process.stdout)
        if answer is None and self.works:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(1)  # its output ended, and so will it
            self._stop_using(f"ended with status {self._process.returncode}")
        return answer

    def _stop_using(self, reason: str) -> None:
        """Gives the process no more programs, and logs the reason unless it was closed."""
        self.works, self.reason = False, reason
        if not self._closed:
            LOG.warning("a process that builds programs %s; the others continue", reason)


class BuilderPool:
    """The builders of a device's programs: this process, and workers, which run only inside of `with builders:`.

        with context.builders as builders:
            builders.start(3)                   # they get ready while this process does something else
            with builders.idle_builder() as worker:
                ...
    """

    def __init__(self, device: cl.Device) -> None:
        """Starts nothing."""
        self._address = DeviceAddress(device)
        self._workers: list[BuildWorker] = []
        self._idle: Idle = SimpleQueue()
        self._inside = 0
        self._opening = Semaphore(OPEN_AT_ONCE)  # for threads that wait for a worker to open the device
        self._lock = Lock()

    def start(self, count: int) -> None:
        """Starts workers, if this Python can start them and a thread is inside, unless some were started before."""
        with self._lock:
            if self._workers or not self._inside or not _can_start():
                return
            try:
                for _ in range(count):
                    self._workers.append(BuildWorker(self._address))
            except (OSError, ValueError) as error:  # ValueError: the driver lists the device no more
                LOG.warning("no process that builds programs can be started: %s", error)
            for worker in self._workers:
                Thread(target=self._add_to_idle_when_ready, args=(worker, self._idle), daemon=True).start()

    @contextmanager
    def idle_builder(self) -> Iterator[BuildWorker | None]:
        """A worker that is ready, or None for this process. Waits until one is idle; no two threads get the same.

        Raises SystemExit if Ctrl-C has ended the load meanwhile.
        """
        queue = self._idle
        who = queue.get()
        if queue is not self._idle:
            queue.put(None)  # for the next one that waits
            raise SystemExit
        try:
            yield who
        finally:
            if who is None or who.works:
                queue.put(who)

    def build_in_own_process(self, source: str, options: Sequence[str]) -> bytes | None:
        """The result of a process that builds nothing else; empty if it has none. None if no process can be started.

        Raises BuildCrashError if the process ends in the build, or does not end it within APART_SECONDS.
        """
        if not _can_start():
            return None
        try:
            worker = BuildWorker(self._address)
        except OSError:
            return None
        watchdog = Timer(APART_SECONDS, worker.kill)
        try:
            with self._opening:
                if not worker.is_ready():
                    return None
            began = time.monotonic()
            watchdog.start()
            content = worker.build(source, options)
            if worker.works:
                return content or b""
            if time.monotonic() - began >= APART_SECONDS:
                raise BuildCrashError(f"it was not built within {APART_SECONDS:g} s")
            raise BuildCrashError(f"the process that built it {worker.reason}")
        finally:
            watchdog.cancel()
            worker.close()

    def __enter__(self) -> BuilderPool:
        with self._lock:
            if not self._inside:
                for _ in range(parallel_builds(self._address.device.platform.name)):
                    self._idle.put(None)
            self._inside += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside:
                return
            left = self._idle
            ending, self._workers, self._idle = self._workers, [], SimpleQueue()
            left.put(None)
        for worker in ending:
            worker.close()

    def _add_to_idle_when_ready(self, worker: BuildWorker, idle: Idle) -> None:
        with self._opening:
            is_ready = worker.is_ready()
        if is_ready:
            idle.put(worker)


Idle = SimpleQueue[Union[BuildWorker, None]]


def _can_start() -> bool:
    """Returns whether sys.executable is Python. In an application that contains Python, it is the application."""
    return Path(sys.executable or "").name.lower().startswith(("python", "pypy"))
