"""Remembers, for each driver, the kernels at which its compiler crashed or hung, or whose results were wrong.

a build                         has a mark on disk while it runs, which lists the kernels that it builds
the process ends in the build   the mark stays; for the next process its kernels are suspects
a suspect                       is built alone, if possible in a separate process; so are all other kernels then
that process ends, or hangs     the kernel is rejected: plans use another one, or it is built without optimisation
it builds the kernel            the kernel is no longer a suspect
its results are wrong           the kernel is rejected too: see imgconv.checking
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from threading import Lock
from typing import NoReturn

from imgconv.cl.building.program_source import BuiltKernel
from imgconv.cl.device_info import DeviceInfo
from imgconv.errors import BuildError
from imgconv.files.crash_marks import crash_mark, marks_of_ended_processes
from imgconv.files.disk_cache import DiskCache, hash_of

LOG = logging.getLogger("imgconv")
CRASHES = DiskCache("crashes", 2**20)
WITHOUT_OPTIMISATION = "-cl-opt-disable"
WRONG = "its result is wrong"

DistrustedKernels = dict[str, tuple[str, str]]
"""By a kernel's key: its file and launch, and how its build ended; that is empty for a suspect."""


class RefusedError(BuildError):
    """The driver's compiler crashes or hangs at a kernel. A new plan leaves the kernel out if it can."""


def key_with_options(key: str, options: Sequence[str]) -> str:
    """A kernel's key, if it is built with these options."""
    return f"{key} {WITHOUT_OPTIMISATION}" if WITHOUT_OPTIMISATION in options else key


def distrusted_kernels(info: DeviceInfo) -> DistrustedKernels:
    """The suspects and the refused kernels of a device's driver."""
    for content in marks_of_ended_processes(CRASHES):
        with suppress(AttributeError, KeyError, TypeError, ValueError):  # somebody else's file
            mark = json.loads(content)
            _record_crash(str(mark["driver"]), {str(key): str(about) for key, about in mark["kernels"].items()})
    known = _read_distrusted_kernels(info.key)
    if not _wrong_ones_count:
        return {key: (about, how) for key, (about, how) in known.items() if not how.startswith(WRONG)}
    return known


@contextmanager
def retry_wrong_kernels() -> Iterator[None]:
    """Kernels whose results were wrong are not refused inside, for a report about them."""
    global _wrong_ones_count
    _wrong_ones_count = False
    try:
        yield
    finally:
        _wrong_ones_count = True


def refused_kernels(info: DeviceInfo) -> frozenset[str]:
    """The keys of the kernels that a device's driver cannot build."""
    return frozenset(key for key, (_, how) in distrusted_kernels(info).items() if how)


def mark_as_being_built(info: DeviceInfo, kernels: Sequence[BuiltKernel]) -> AbstractContextManager[None]:
    """Marks the kernels as being built by this process, for the process that comes after it."""
    content = {"driver": info.key, "kernels": {kernel.key: str(kernel) for kernel in kernels}}
    return crash_mark(CRASHES, json.dumps(content).encode())


def note_crash_suspects(info: DeviceInfo, kernels: Sequence[BuiltKernel]) -> None:
    """Notes that a process has ended that built these kernels."""
    with _edit_distrusted_kernels(info.key) as known:
        for kernel in kernels:
            known.setdefault(kernel.key, (str(kernel), ""))


def clear_suspicion(info: DeviceInfo, kernels: Sequence[BuiltKernel]) -> None:
    """Notes that the kernels were built: they are no suspects."""
    with _edit_distrusted_kernels(info.key) as known:
        for key in [kernel.key for kernel in kernels if known.get(kernel.key, ("", "refused"))[1] == ""]:
            del known[key]


def refuse(info: DeviceInfo, kernel: BuiltKernel, options: Sequence[str], how: str) -> NoReturn:
    """Notes that the kernel, built alone, ended the process or hung. Warns of it, and raises RefusedError."""
    with _edit_distrusted_kernels(info.key) as known:
        known[key_with_options(kernel.key, options)] = str(kernel), how
    _warn_of_refused_kernel(info.key, str(kernel), how)
    raise RefusedError(kernel.path, how, launch=kernel.launch)


def refuse_wrong_kernel(info: DeviceInfo, kernel: BuiltKernel, text: str) -> None:
    """Notes that the kernel gives wrong results: it is refused as one that cannot be built. Warns of it."""
    how = f"{WRONG}: {text}"
    with _edit_distrusted_kernels(info.key) as known:
        known[kernel.key] = str(kernel), how
    _warn_of_refused_kernel(info.key, str(kernel), how)


def _record_crash(driver: str, kernels: dict[str, str]) -> None:
    """Takes in the mark of a process that has ended. A suspect is refused if nothing else was built again."""
    LOG.warning("a process ended while %s built %s", driver, "; ".join(kernels.values()))
    with _edit_distrusted_kernels(driver) as known:
        for key, about in kernels.items():
            if key not in known:
                known[key] = about, ""
            elif len(kernels) == 1 and not known[key][1]:
                known[key] = about, "two processes ended that built it"
                _warn_of_refused_kernel(driver, *known[key])


def _warn_of_refused_kernel(driver: str, about: str, how: str) -> None:
    message = (
        f"the compiler of {driver} fails at {about}: {how}. Another kernel takes its place if there is one, else it is "
        f"built without optimisation. To try it again, delete the folder {CRASHES.name} in imgconv's cache"
    )
    warnings.warn(message, RuntimeWarning, stacklevel=2)


_lock = Lock()
_wrong_ones_count = True
_seen: dict[str, DistrustedKernels] = {}  # by this process, which may have no folder to write to


@contextmanager
def _edit_distrusted_kernels(driver: str) -> Iterator[DistrustedKernels]:
    """Yields the known kernels of a driver, and keeps what is changed."""
    with _lock:
        known = _seen[driver] = _read_distrusted_kernels(driver)
        before = dict(known)
        yield known
        if known != before:
            CRASHES.write(_cache_key(driver), json.dumps(known).encode())


def _read_distrusted_kernels(driver: str) -> DistrustedKernels:
    content = CRASHES.read(_cache_key(driver))
    stored = {} if content is None else {key: (about, how) for key, (about, how) in json.loads(content).items()}
    return stored or dict(_seen.get(driver, {}))


def _cache_key(driver: str) -> str:
    return hash_of(driver.encode()).hex()
