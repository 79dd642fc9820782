"""DiskCache: files that one process stores for later ones. Everything also works without the cache.

If the folder or an entry cannot be used, the next load takes longer; the first such problem causes a warning.

    <the user's cache folder>/imgconv/<name>/      mode 0700
        <key>       MAGIC, BLAKE2b of key and content, the content

An entry appears whole, by a rename, so processes need no lock. Other users cannot plant entries: folder and entries are
used only if they belong to this user and nobody else can write to them. If all entries together exceed the folder's
limit, the least recently used ones are deleted.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from imgconv.files.disk import lock

MAGIC = b"imgconv1"
HEAD = len(MAGIC) + 32

# To look through thousands of entries takes as long as to write several: done at the first entry that a process writes,
# and each time it has written this part of a folder's limit.
CHECKS = 64

_written: dict[str, int] = {}  # bytes since then, by the folder's name
_troubles: list[str] = []


@dataclass(frozen=True)
class DiskCache:
    """A folder of entries by key. limit: bytes of all entries together.

    DiskCache("programs", 2**28).write(digest(b"source").hex(), b"binary")
    """

    name: str
    limit: int

    def read(self, key: str) -> bytes | None:
        """The content that `write` stored under the key; None if there is none, or if it is damaged."""
        try:
            entry = self.folder() / key
            _check_private(entry, stat.S_IFREG)
            stored = entry.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            _warn_once(error)
            return None
        content = stored[HEAD:]
        if stored[:HEAD] != _entry_header(key, content):
            return None
        with suppress(OSError):
            os.utime(entry)  # its last use, for _make_room
        return content

    def write(self, key: str, content: bytes) -> None:
        """Stores a content under the key, replacing an older one."""
        try:
            folder = self.folder()
            number, part = tempfile.mkstemp(prefix=".", suffix=".part", dir=folder)
            try:
                with os.fdopen(number, "wb") as file:
                    file.write(_entry_header(key, content))
                    file.write(content)
                os.replace(part, folder / key)
            except OSError as error:  # such as of a full disk
                error.filename = error.filename or str(folder)
                raise
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(part)
            written = _written.get(self.name, self.limit) + len(content)
            if written >= self.limit // CHECKS:
                self._make_room(folder)
                written = 0
            _written[self.name] = written
        except OSError as error:
            _warn_once(error)

    def folder(self) -> Path:
        return own_folder(self.name)

    def _make_room(self, folder: Path) -> None:
        """Deletes leftovers of ended processes, and the least recently used entries, until the rest is within limit."""
        files = []
        with os.scandir(folder) as found:
            for each in found:
                with suppress(FileNotFoundError):  # another process deleted it
                    status = each.stat(follow_symlinks=False)
                    files.append((status.st_mtime, status.st_size, each.path))
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= self.limit:
                break
            with suppress(FileNotFoundError):
                os.unlink(path)
            total -= size


def own_folder(name: str) -> Path:
    """A folder of the cache, made if it does not exist. Raises OSError if it cannot be made, or others can write to it.

        own_folder("programs")      # ~/.cache/imgconv/programs
    """
    try:
        folder = platformdirs.user_cache_path("imgconv") / name
    except RuntimeError as error:  # a user without a home
        raise OSError(str(error)) from error
    if not folder.is_absolute():  # the same, in older versions of platformdirs: "~"
        raise OSError(f"there is no folder {folder.parts[0]}")
    return private_folder(folder)


@contextmanager
def one_process_at_a_time(name: str) -> Iterator[None]:
    """Lets this user's processes into the `with` block one after another; all at once where no file can be locked."""
    with ExitStack() as opened:
        with suppress(OSError):
            lock(opened.enter_context((own_folder("locks") / name).open("ab")), wait=True)
        yield


def private_folder(folder: Path) -> Path:
    """The folder, made if it does not exist. Raises OSError if it cannot be made, or others can write to it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_private(folder, stat.S_IFDIR)
    return folder


def hash_of(*parts: bytes | memoryview) -> bytes:
    """A hash of several contents, which tells ("a", "b") from ("ab",)."""
    made = hashlib.blake2b(digest_size=HEAD - len(MAGIC))
    for part in parts:
        made.update(len(part).to_bytes(8, "little"))
        made.update(part)
    return made.digest()


def _entry_header(key: str, content: bytes) -> bytes:
    return MAGIC + hash_of(key.encode(), content)


def _check_private(path: Path, kind: int) -> None:
    """Raises OSError unless the path is of the kind (S_IFDIR, S_IFREG), owned and only writable by this user."""
    status = path.lstat()
    if stat.S_IFMT(status.st_mode) != kind:
        raise OSError(f"{path} is not a {'folder' if kind == stat.S_IFDIR else 'plain file'}; delete it")
    if hasattr(os, "geteuid") and (status.st_uid != os.geteuid() or status.st_mode & 0o022):
        raise OSError(f"{path}: others than this user can write to it; delete it")


def _warn_once(error: OSError) -> None:
    """Warns of the first problem in the process."""
    if not _troubles:
        _troubles.append(str(error))  # the error itself would keep the frames of its traceback, and what they hold
        message = f"the results of this load cannot be cached, so the next load takes as long: {error}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
