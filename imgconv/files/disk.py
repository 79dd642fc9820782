"""Reads regular files only, and writes files so that they appear whole or not at all."""

from __future__ import annotations

import errno
import glob
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from imgconv.errors import InputError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def check_regular(path: str | os.PathLike[str]) -> None:
    """Raises OSError for a path that is neither a file nor a folder: opening a pipe may never return."""
    mode = os.stat(path).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A file to write that replaces `path` at the end of the `with` block; after an error nothing is left of it.

        with atomic_write("out.bin") as file:
            file.write(content)

    Until then it has a temporary name, so that a crash leaves the older file. Leftovers of killed processes for this
    path are removed. Several threads and processes may write one path: the last one stays. Raises InputError naming the
    path if it cannot be written.
    """
    path = Path(path)
    try:
        _remove_abandoned(path)
        with _open_partial(path) as file:
            try:
                yield file
                file.flush()
                os.fsync(file.fileno())
                if fcntl is None:
                    file.close()  # Windows cannot rename an open file
                os.replace(file.name, path)
            except BaseException:
                file.close()
                with suppress(OSError):
                    os.unlink(file.name)
                raise
    except OSError as error:
        raise InputError(f"cannot write {os.fspath(path)!r}: {error.strerror or error}") from error


def _open_partial(path: Path) -> IO[bytes]:
    """A new file next to `path`, locked for as long as it is open."""
    while True:
        file = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part").open("xb")
        # On a file system without locks the leftovers of killed processes stay.
        with suppress(OSError):
            lock(file, wait=True)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # another writer removed it before it was locked


def _remove_abandoned(path: Path) -> None:
    """Removes the files of `_open_partial` whose writers have ended."""
    for partial in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        with suppress(OSError), partial.open("rb") as file:
            lock(file, wait=False)
            partial.unlink()


def lock(file: IO[bytes], wait: bool) -> None:
    """Locks a file for as long as it is open.

    Raises OSError if the file system has no locks, or if `wait` is False and the file is locked."""
    if fcntl is None:
        raise OSError("no locks")
    fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def check_folder(*paths: str | os.PathLike[str] | None) -> None:
    """Raises InputError for the first path whose folder does not exist, before long work starts. None is skipped."""
    for path in paths:
        if path and not Path(path).absolute().parent.is_dir():
            raise InputError(f"cannot write {os.fspath(path)!r}: there is no folder {str(Path(path).parent)!r}")
