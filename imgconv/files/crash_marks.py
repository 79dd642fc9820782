"""Marks: small files that record what a process is doing, in case it does not survive.

    <folder of a DiskCache>/<random>.mark    locked while its process lives

If a mark's lock is free, its process ended inside `crash_mark`. The marks of running processes are locked. A process
that ends in order, as after Ctrl-C, removes the marks of work that has taken less than HANG_SECONDS.
"""

from __future__ import annotations

import atexit
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import IO

from imgconv.files.disk import lock
from imgconv.files.disk_cache import DiskCache

SUFFIX = ".mark"
HANG_SECONDS = 10.0  # work that takes longer may hang: its mark stays after Ctrl-C

_starts: dict[tuple[int, str], float] = {}  # of work, by the process and the mark's path: forked ones inherit it


@contextmanager
def crash_mark(where: DiskCache, content: bytes) -> Iterator[None]:
    """Keeps a mark while the `with` block runs. Without one where files cannot be written or locked."""
    file = _open(where, content)
    try:
        yield
    finally:
        if file is not None:
            _starts.pop((os.getpid(), file.name), None)
            with suppress(OSError):
                os.unlink(file.name)
            file.close()


def marks_of_ended_processes(where: DiskCache) -> list[bytes]:
    """The contents of the marks whose processes have ended; removes them."""
    found: list[bytes] = []
    with suppress(OSError):
        for path in sorted(where.folder().glob(f"*{SUFFIX}")):
            with suppress(OSError), path.open("rb") as file:
                lock(file, wait=False)
                content = file.read()
                path.unlink()  # raises if the block has ended since the file was opened: its process lives
                if content:
                    found.append(content)
    return found


def _open(where: DiskCache, content: bytes) -> IO[bytes] | None:
    file = None
    try:
        file = (where.folder() / f"{secrets.token_hex(8)}{SUFFIX}").open("xb")
        lock(file, wait=False)
        file.write(content)
        file.flush()
        atexit.unregister(_remove_recent_marks)
        atexit.register(_remove_recent_marks)
        _starts[os.getpid(), file.name] = monotonic()
        return file
    except OSError:
        if file is not None:
            with suppress(OSError):
                os.unlink(file.name)
            file.close()
        return None


def _remove_recent_marks() -> None:
    """Removes the marks of abandoned work that does not seem to hang, when this process ends in order."""
    for (process, path), start in list(_starts.items()):
        if process == os.getpid() and monotonic() - start < HANG_SECONDS:
            with suppress(OSError):
                os.unlink(path)
