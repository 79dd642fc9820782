"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from imgconv.errors import InputError


@contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A file to write that takes the place of `path` once it is complete; nothing stays behind otherwise.

    It has a name of its own until then, so that a crash leaves what was there before. Raises InputError naming the path
    where it cannot be written.
    """
    path = Path(path)
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise InputError(f"cannot write {os.fspath(path)!r}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            partial.unlink()


def check_folder(*paths: str | os.PathLike[str] | None) -> None:
    """Raises InputError for the first path that no file can have, before there is work to lose."""
    for path in paths:
        if path and not Path(path).absolute().parent.is_dir():
            raise InputError(f"cannot write {os.fspath(path)!r}: there is no folder {str(Path(path).parent)!r}")
