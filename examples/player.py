"""Runs imgconv-run, the command of native/, on the drivers that Python finds."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from imgconv.cl.drivers import LOADER_VARIABLES, registered_drivers, unregistered_drivers
from imgconv.cl.opencl_library import library
from imgconv.errors import DeviceError

PLAYER = Path(__file__).parent.parent / "build" / "installed" / "bin" / "imgconv-run"


def loader_variables(folder: Path) -> dict[str, str]:
    """Environment variables with which a program loads the OpenCL library and the drivers that Python uses.

    Both may be in Python's environment only, as wheels bring them. folder: an empty one, for links to them. Raises
    DeviceError without a library.
    """
    opencl = library()
    if opencl is None:
        raise DeviceError("no OpenCL library is found: install a driver")
    (folder / "libOpenCL.so").symlink_to(opencl._name)
    variables = dict(os.environ, LD_LIBRARY_PATH=str(folder))
    if not any(os.environ.get(name) for name in LOADER_VARIABLES):
        vendors = folder / "vendors"
        vendors.mkdir()
        registered = registered_drivers([Path(root, "etc/OpenCL/vendors") for root in ("/", sys.prefix)])
        for number, driver in enumerate(dict.fromkeys([*registered, *unregistered_drivers()])):
            (vendors / f"{number}.icd").write_text(driver + "\n")
        variables["OCL_ICD_VENDORS"] = str(vendors)
    return variables


def run_player(arguments: Sequence[object], variables: dict[str, str]) -> None:
    """Runs imgconv-run, which prints what it does. Raises DeviceError if it fails or is not built."""
    if not PLAYER.exists():
        raise DeviceError(f"{PLAYER} is not there: run make native")
    if subprocess.run([PLAYER, *map(str, arguments)], env=variables).returncode:
        raise DeviceError("imgconv-run failed")
