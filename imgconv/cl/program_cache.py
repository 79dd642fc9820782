"""Built programs on disk, so that the next process does not compile them again.

If the folder or an entry cannot be used, a build takes longer; the first such problem is a warning.

    <the user's cache folder>/imgconv/programs/      mode 0700
        <key>       MAGIC, BLAKE2b of key and binary, the binary

An entry appears whole, by a rename, so processes need no lock. No other user can plant one: folder and entries are
used only if they belong to this user and nobody else can write to them. If all entries together are larger than LIMIT
bytes, the least recently used are deleted.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import platformdirs

from imgconv.cl.device import DeviceInfo

LIMIT = 256 * 2**20  # the programs of a network take 0.5 to 5 MB
MAGIC = b"imgconv1"
HEAD = len(MAGIC) + 32

_troubles: list[OSError] = []


def program_key(info: DeviceInfo, source: str, options: Sequence[str]) -> str:
    """The name of a program's entry: a hash of source, compiler options, device and driver."""
    about = [info.key, info.vendor, info.opencl_version, *options]
    return _digest(json.dumps(about).encode(), source.encode()).hex()


def read_binary(key: str) -> bytes | None:
    """The binary that `write_binary` stored under the key; None if there is none, or if it is damaged."""
    try:
        entry = _folder() / key
        _check_ours(entry, stat.S_IFREG)
        content = entry.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        _say(error)
        return None
    binary = content[HEAD:]
    if content[:HEAD] != _head(key, binary):
        return None
    with suppress(OSError):
        os.utime(entry)  # its last use, for _make_room
    return binary


def write_binary(key: str, binary: bytes) -> None:
    """Stores a binary under the key, replacing an older one."""
    try:
        folder = _folder()
        number, part = tempfile.mkstemp(prefix=".", suffix=".part", dir=folder)
        try:
            with os.fdopen(number, "wb") as file:
                file.write(_head(key, binary))
                file.write(binary)
            os.replace(part, folder / key)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(part)
        _make_room(folder)
    except OSError as error:
        _say(error)


def _folder() -> Path:
    """The folder, made if it does not exist. Raises OSError if it cannot be made, or others can write to it."""
    try:
        folder = platformdirs.user_cache_path("imgconv") / "programs"
    except RuntimeError as error:  # a user without a home
        raise OSError(str(error)) from error
    if not folder.is_absolute():  # the same, in older versions of platformdirs: "~"
        raise OSError(f"there is no folder {folder.parts[0]}")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_ours(folder, stat.S_IFDIR)
    return folder


def _check_ours(path: Path, kind: int) -> None:
    """Raises OSError unless the path is of the kind (S_IFDIR, S_IFREG), owned and only writable by this user."""
    status = path.lstat()
    if stat.S_IFMT(status.st_mode) != kind:
        raise OSError(f"{path} is not a {'folder' if kind == stat.S_IFDIR else 'plain file'}; delete it")
    if hasattr(os, "geteuid") and (status.st_uid != os.geteuid() or status.st_mode & 0o022):
        raise OSError(f"{path}: others than this user can write to it; delete it")


def _make_room(folder: Path) -> None:
    """Deletes leftovers of ended processes, and the least recently used entries until the rest is within LIMIT."""
    files = []
    with os.scandir(folder) as found:
        for each in found:
            with suppress(FileNotFoundError):  # another process deleted it
                status = each.stat(follow_symlinks=False)
                files.append((status.st_mtime, status.st_size, each.path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= LIMIT:
            break
        with suppress(FileNotFoundError):
            os.unlink(path)
        total -= size


def _head(key: str, binary: bytes) -> bytes:
    return MAGIC + _digest(key.encode(), binary)


def _digest(*parts: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=HEAD - len(MAGIC))
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


def _say(error: OSError) -> None:
    """Warns of the first problem in the process."""
    _troubles.append(error)
    if len(_troubles) == 1:
        message = f"compiled programs cannot be kept for the next load, which takes longer: {error}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
