"""Functions of the OpenCL library that pyopencl has no wrapper for, called through ctypes.

pyopencl's `int_ptr` attributes are the handles that these functions take.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from functools import cache
from pathlib import Path
from typing import Any

NAMES = ("libOpenCL.so.1", "libOpenCL.so", "OpenCL.dll")


@cache
def library() -> ctypes.CDLL | None:
    """The OpenCL library that pyopencl uses, which its wheels bring along; None where it is not found."""
    for name in (*_loaded(), *NAMES, ctypes.util.find_library("OpenCL")):
        try:
            if name:
                return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def _loaded() -> tuple[str, ...]:
    """The OpenCL libraries of this process, on Linux and Android."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return ()
    paths = (line.split(maxsplit=5)[-1] for line in lines if "libOpenCL" in line)
    return tuple(dict.fromkeys(paths))


def device_number(device: Any, parameter: int) -> int:
    """An unsigned number that clGetDeviceInfo knows by a parameter of cl_ext.h; 0 where it does not."""
    found, opencl = ctypes.c_uint(0), library()
    if opencl is None:
        return 0
    status = opencl.clGetDeviceInfo(
        ctypes.c_void_p(device.int_ptr), ctypes.c_uint(parameter), ctypes.sizeof(found), ctypes.byref(found), None
    )
    return found.value if status == 0 else 0
