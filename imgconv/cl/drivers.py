"""Finds the installed OpenCL drivers, and makes all of them visible to the OpenCL loader.

The loader reads the .icd files of one folder; each contains the name of a driver's library. Some drivers have no .icd
file.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import metadata
from pathlib import Path

from imgconv.cl.driver_links import path_without_spaces
from imgconv.cl.opencl_library import loaded_libraries

NVIDIA_DRIVER = "libnvidia-opencl.so.1"
# Each names the folder of all drivers. OCL_ICD_FILENAMES does not: Khronos's loader adds the drivers that it names to
# the others, and ocl-icd, which pyopencl's wheels contain, does not know it.
LOADER_VARIABLES = ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH")
ADDED = "OCL_ICD_FILENAMES"
# By these, drivers of CPUs compile for another CPU: Intel's and PoCL's.
CPU_VARIABLES = ("CL_CONFIG_CPU_TARGET_ARCH", "POCL_LLVM_CPU_NAME", "POCL_KERNELLIB_NAME")
PLATFORM_NAME = 0x0902  # CL_PLATFORM_NAME
_EXTENSION = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p)
_PLATFORMS = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p)
_INFO = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p
)


@contextmanager
def make_drivers_visible() -> Iterator[None]:
    """Lets OpenCL's loader see drivers that are installed but registered in no folder that it reads.

    The loader looks once, at the first OpenCL call of the process, so its variable is set for that call only. In a
    process that used OpenCL before, this changes nothing. The variables are the loader's, not imgconv's, so config.py
    does not read them. If the user set one, it stays as it is.
    """
    cpu_variables()  # the drivers that are loaded now read the same
    registered = registered_drivers(vendor_folders())
    names = {Path(driver).name for driver in registered}
    added = [driver for driver in unregistered_drivers() if Path(driver).name not in names]
    if _loader_variable_set_by_user() or not added:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="imgconv-opencl-") as folder:
        for number, driver in enumerate(registered + added):
            Path(folder, f"{number}.icd").write_text(driver + "\n")
        os.environ["OCL_ICD_VENDORS"] = folder
        try:
            yield
        finally:
            del os.environ["OCL_ICD_VENDORS"]


@cache
def cpu_variables() -> dict[str, str]:
    """Returns the CPU_VARIABLES that are set. Drivers read them when they are loaded: later changes do not count."""
    return {name: os.environ[name] for name in CPU_VARIABLES if os.environ.get(name)}


def environment_options() -> list[str]:
    """The compiler options that pyopencl adds to every build."""
    return os.environ.get("PYOPENCL_BUILD_OPTIONS", "").split()


def environment_for(platform: str) -> dict[str, str]:
    """The environment of a process that uses one platform: its loader sees the driver that this process sees.

    A driver without an .icd file is named by its path, which both ocl-icd and Khronos's loader then take. Raises
    OSError if a driver cannot be loaded.
    """
    environment = {name: value for name, value in os.environ.items() if name not in CPU_VARIABLES} | cpu_variables()
    if _loader_variable_set_by_user():
        return environment
    names = {Path(driver).name for driver in registered_drivers(vendor_folders())}
    for driver in unregistered_drivers():
        if Path(driver).name not in names and platform in platforms_of(driver):
            path = next(iter(loaded_libraries(Path(driver).name)), driver)
            environment |= {LOADER_VARIABLES[0]: path, ADDED: path}
    return environment


def vendor_folders() -> list[Path]:
    """The folders in which .icd files are looked for, if the user names none."""
    return [Path(root, "etc/OpenCL/vendors") for root in dict.fromkeys(("/", sys.prefix, sys.base_prefix))]


def registered_drivers(folders: Iterable[Path]) -> list[str]:
    """The libraries that the .icd files of ``folders`` name, without paths at which there is no file.

    The wheel of Intel's CPU driver contains an .icd file with an unfilled path.
    """
    lines = [line for _, line in icd_files(folders)]
    return [line for line in dict.fromkeys(lines) if line and (not os.path.isabs(line) or os.path.exists(line))]


def icd_files(folders: Iterable[Path]) -> list[tuple[Path, str]]:
    """Every .icd file that can be read, and the library that it names."""
    found = []
    for file in (file for folder in folders for file in sorted(folder.glob("*.icd"))):
        with suppress(OSError):  # the loader cannot read it either
            found.append((file, file.read_text(encoding="utf-8", errors="replace").strip()))
    return found


def unregistered_drivers() -> list[str]:
    """Drivers that often come without a valid .icd file: pip's Intel CPU driver, and NVIDIA's inside containers."""
    if not sys.platform.startswith("linux"):
        return []
    drivers = [str(path_without_spaces(library)) for library in intel_wheel_files() if library.name == "libintelocl.so"]
    try:
        ctypes.CDLL(NVIDIA_DRIVER)
        drivers.append(NVIDIA_DRIVER)
    except OSError:
        pass
    return drivers


def intel_wheel_files() -> list[Path]:
    """The files that pip's package of Intel's CPU driver installed; none without it."""
    try:
        files = metadata.files("intel-opencl-rt") or []
    except metadata.PackageNotFoundError:
        return []
    return [Path(os.path.normpath(str(file.locate()))) for file in files]


def platforms_of(library: str) -> tuple[str, ...]:
    """The names of a driver's platforms, by cl_khr_icd. Raises OSError if the library cannot be loaded."""
    driver = ctypes.CDLL(library)
    try:
        find = _EXTENSION(("clGetExtensionFunctionAddress", driver))
    except AttributeError as error:
        raise OSError("it is not an OpenCL driver") from error
    listing, info = find(b"clIcdGetPlatformIDsKHR"), find(b"clGetPlatformInfo")
    if not listing:
        raise OSError("it has no clIcdGetPlatformIDsKHR, which OpenCL's loader needs")
    count = ctypes.c_uint32(0)
    if _PLATFORMS(listing)(0, None, ctypes.byref(count)) or not count.value:
        return ()
    handles = (ctypes.c_void_p * count.value)()
    _PLATFORMS(listing)(count.value, handles, None)
    ask = _INFO(info) if info else _INFO(("clGetPlatformInfo", driver))
    names, text = [], ctypes.create_string_buffer(1024)
    for handle in handles:
        if ask(handle, PLATFORM_NAME, len(text), text, None) == 0:
            names.append(" ".join(text.value.decode(errors="replace").split()))
    return tuple(names)


def _loader_variable_set_by_user() -> str | None:
    """The variable of the loader by which the user named the folder of all drivers; None without one."""
    return next((name for name in LOADER_VARIABLES if os.environ.get(name)), None)


def driver_folder_set_by_user() -> tuple[str, Path] | None:
    """The variable by which the user named the folder of all drivers, and the folder; None without one."""
    chosen = _loader_variable_set_by_user()
    return None if chosen is None else (chosen, Path(os.environ[chosen]))


def drivers_added_by_user() -> list[str]:
    """The drivers' libraries that ADDED names."""
    return [library for library in os.environ.get(ADDED, "").split(os.pathsep) if library]
