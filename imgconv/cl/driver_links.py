"""Links to drivers whose path has a space, in a folder whose path has none.

Intel's CPU driver (2026.22) finds the folder of its other files in /proc/self/maps, and reads a path there only up to
the first space. The path of a hard link appears in /proc/self/maps; that of a symbolic link does not.

    <the user's cache folder>/imgconv/drivers/<key>/
        libintelocl.so      a hard link, or a copy if the cache is on another file system
        ...                 symbolic links to the other files of the driver's folder

If the cache folder is not writable, or its path also has a space, the folder for temporary files is used instead.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from imgconv.cl.opencl_library import loaded_libraries
from imgconv.files.disk_cache import hash_of, own_folder, private_folder

SPACE = re.compile(r"\s", re.ASCII)
SENSITIVE = "libintelocl.so"


def path_without_spaces(library: Path) -> Path:
    """A path without spaces of a driver's library; the library's own if there can be none."""
    if not SPACE.search(str(library)):
        return library
    for find in (_cache_folder, _temporary_folder):
        with suppress(OSError):
            link = _find_or_make_link(find(), library)
            if link.exists():
                return link
    return library


def _cache_folder() -> Path:
    return own_folder("drivers")


def _temporary_folder() -> Path:
    """A folder of this user for all processes, where the cache cannot be written or has a space too."""
    return private_folder(Path(tempfile.gettempdir(), f"imgconv-drivers-{os.geteuid()}"))


def _find_or_make_link(folder: Path, library: Path) -> Path:
    """The link to a library in a folder, made if there is none. Raises OSError if it cannot be made."""
    if SPACE.search(str(folder)):
        raise OSError(f"{folder} has a space")
    status = library.stat()
    key = hash_of(*(str(each).encode() for each in (library, status.st_size, status.st_mtime_ns))).hex()
    link = folder / key / library.name
    if not link.exists():
        _remove_dangling(folder)
        _link_files_of_driver(folder / key, library)
    return link


def path_problem(library: str | None = None) -> str:
    """A sentence on a driver that does not work because its path has a space; "" if there is none.

    library: its path; by default that of the driver in this process.
    """
    paths = loaded_libraries(SENSITIVE) if library is None else (library,)
    wrong = next((path for path in paths if Path(path).name.startswith(SENSITIVE) and SPACE.search(path)), None)
    if wrong is None:
        return ""
    return (
        f"Intel's driver works only from a path without spaces, unlike {wrong!r}: install it in another folder, or set "
        "XDG_CACHE_HOME or TMPDIR to a folder without one, where imgconv then puts a link to it"
    )


def _link_files_of_driver(folder: Path, library: Path) -> None:
    """Makes the folder, whole or not at all; another process may make the same one."""
    made = Path(tempfile.mkdtemp(prefix=".", suffix=".part", dir=folder.parent))
    try:
        for each in library.parent.iterdir():
            if each.is_file() and each.name != library.name:
                (made / each.name).symlink_to(each)
        try:
            os.link(library, made / library.name)
        except OSError:
            shutil.copy2(library, made / library.name)
        with suppress(OSError):  # another process was first
            made.rename(folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _remove_dangling(folder: Path) -> None:
    """Removes the folders of drivers that are gone."""
    for each in folder.iterdir():
        if any(link.is_symlink() and not link.exists() for link in each.iterdir()):
            shutil.rmtree(each, ignore_errors=True)
