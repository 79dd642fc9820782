"""The list of drivers that `imgconv devices` prints, for users whose device is missing."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from imgconv.cl.driver_links import path_problem
from imgconv.cl.drivers import (
    ADDED, NVIDIA_DRIVER, driver_folder_set_by_user, drivers_added_by_user, icd_files, intel_wheel_files, platforms_of,
    unregistered_drivers, vendor_folders,
)

HINTS = {"rusticl": ": set RUSTICL_ENABLE=freedreno for an Adreno, RUSTICL_ENABLE=llvmpipe for the CPU"}


@dataclass(frozen=True)
class Driver:
    """A driver's library. named_by: the .icd file or what else names it; problem: why its devices are missing, or "".

    platforms: the names of its platforms, as DeviceInfo.platform has them.
    """

    library: str
    named_by: str
    platforms: tuple[str, ...] = ()
    problem: str = ""


def searched_folders() -> list[Path]:
    """The folders whose .icd files name the drivers."""
    chosen = driver_folder_set_by_user()
    return vendor_folders() if chosen is None else [chosen[1]]


def list_drivers(found: Iterable[str]) -> tuple[Driver, ...]:
    """Every driver that is named somewhere, and why its devices are missing. found: the platforms that have devices.

    Loads the drivers' libraries, as OpenCL's loader does: call it after list_devices().
    """
    chosen, present = driver_folder_set_by_user(), frozenset(found)
    named: dict[str, str] = {}
    unfilled = {file for file in intel_wheel_files() if file.suffix == ".icd"}  # they name no path that exists
    for file, line in icd_files(searched_folders()):
        if file not in unfilled:
            named.setdefault(line, str(file))
    drivers = [_probe_driver(line, by, present) for line, by in named.items()]
    known = {Path(each).name for each in named if os.path.exists(each) or not os.path.isabs(each)}
    for library in unregistered_drivers():
        if Path(library).name not in known:
            drivers.append(_unregistered_driver(library, chosen[0] if chosen else None, present))
    for library in drivers_added_by_user():
        if Path(library).name not in known | {Path(each.library).name for each in drivers if each.platforms}:
            problem = f"only the Khronos loader reads {ADDED}: write the path into a file /etc/OpenCL/vendors/NAME.icd"
            drivers.append(Driver(library, ADDED, (), problem))
    return tuple(drivers)


def _unregistered_driver(library: str, chosen: str | None, found: frozenset[str]) -> Driver:
    by = "the system's libraries" if library == NVIDIA_DRIVER else "pip's package intel-opencl-rt"
    if chosen is None:
        return _probe_driver(library, by, found)
    return Driver(library, by, (), f"not searched for, because {chosen} is set: unset it")


def _probe_driver(library: str, by: str, found: frozenset[str]) -> Driver:
    """Returns a report on a driver that the loader tried to load."""
    if os.path.isabs(library) and not os.path.exists(library):
        return Driver(library, by, (), "there is no such file")
    try:
        platforms = platforms_of(library)
    except OSError as error:
        return Driver(library, by, (), f"cannot be loaded: {error}")
    missing = [name for name in platforms if name not in found]
    if not platforms:
        return Driver(library, by, (), "has no platform: it found no device, or may not open it")
    problems = [f"{name} has no device{HINTS.get(name, '')}" for name in missing]
    problems += filter(None, [path_problem(library)])
    return Driver(library, by, platforms, "; ".join(problems))
