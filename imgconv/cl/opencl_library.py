"""Functions of the OpenCL library that pyopencl does not wrap, called through ctypes.

pyopencl's `int_ptr` attributes are the handles that these functions accept.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyopencl as cl

NAMES = ("libOpenCL.so.1", "libOpenCL.so", "OpenCL.dll")
_POINTER, _STATUS, _COUNT, _SIZE = ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32, ctypes.c_size_t
# Result first, then the arguments.
LAUNCH = (_STATUS, _POINTER, _POINTER, _COUNT, _POINTER, _POINTER, _POINTER, _COUNT, _POINTER, _POINTER)
COPY = (_STATUS, _POINTER, _POINTER, _COUNT, _SIZE, _SIZE, _POINTER, _COUNT, _POINTER, _POINTER)
SET_POINTER = (_STATUS, _POINTER, _COUNT, _POINTER)
CONTEXT = (_POINTER, _POINTER, _COUNT, _POINTER, _POINTER, _POINTER, _POINTER)


class DriverFunction(Protocol):
    """A function of the OpenCL library: takes arguments of its C types, returns a status or a handle."""

    def __call__(self, *arguments: object) -> int: ...


@cache
def library() -> ctypes.CDLL | None:
    """The OpenCL library that pyopencl uses, which its wheels contain; None if it is not found."""
    for name in (*loaded_libraries("libOpenCL"), *NAMES, ctypes.util.find_library("OpenCL")):
        try:
            if name:
                return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def loaded_libraries(name: str) -> tuple[str, ...]:
    """The paths of this process's libraries that contain the name, on Linux and Android."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return ()
    paths = (line.split(maxsplit=5)[-1] for line in lines if name in line)
    return tuple(dict.fromkeys(paths))


@cache
def launch_function(is_first: bool = False) -> DriverFunction | None:
    """clEnqueueNDRangeKernel, called with the GIL held because it returns at once. None without the library.

    is_first: for a kernel's first launch, at which a driver may compile; the GIL is released.
    """
    opencl, kind = library(), ctypes.CFUNCTYPE if is_first else ctypes.PYFUNCTYPE
    return None if opencl is None else kind(*LAUNCH)(("clEnqueueNDRangeKernel", opencl))


@cache
def copy_function(name: str) -> DriverFunction | None:
    """clEnqueueWriteBuffer or clEnqueueReadBuffer, for copies that do not block; None without the library."""
    opencl = library()
    return None if opencl is None else ctypes.PYFUNCTYPE(*COPY)((name, opencl))


@cache
def pointer_function() -> DriverFunction | None:
    """clSetKernelArgSVMPointer, of OpenCL 2.0; None without the library, or if it is older."""
    opencl = library()
    if opencl is None or not hasattr(opencl, "clSetKernelArgSVMPointer"):
        return None
    return ctypes.PYFUNCTYPE(*SET_POINTER)(("clSetKernelArgSVMPointer", opencl))


def extension_function(platform: cl.Platform, name: str, kinds: Sequence[type]) -> DriverFunction | None:
    """A function of an extension, of these C types: the result's, then the arguments'. None if the driver has none."""
    opencl = library()
    if opencl is None:
        return None
    find = ctypes.CFUNCTYPE(_POINTER, _POINTER, ctypes.c_char_p)(("clGetExtensionFunctionAddressForPlatform", opencl))
    address = find(platform.int_ptr, name.encode())
    return ctypes.CFUNCTYPE(*kinds)(address) if address else None


def new_context(device: cl.Device, properties: Sequence[tuple[int, int]]) -> int:
    """A context that clCreateContext makes for a device with these (name, value) pairs; 0 if the driver refuses."""
    opencl, status = library(), _STATUS()
    if opencl is None:
        return 0
    numbers = [number for pair in properties for number in pair]
    listed = (ctypes.c_ssize_t * (len(numbers) + 1))(*numbers)
    create = ctypes.CFUNCTYPE(*CONTEXT)(("clCreateContext", opencl))
    made: int | None = create(listed, 1, ctypes.byref(_POINTER(device.int_ptr)), None, None, ctypes.byref(status))
    return made if made and status.value == 0 else 0


def device_number(device: cl.Device, parameter: int) -> int:
    """The unsigned number of a clGetDeviceInfo parameter of cl_ext.h; 0 if the driver does not know it."""
    found, opencl = ctypes.c_uint(0), library()
    if opencl is None:
        return 0
    status = opencl.clGetDeviceInfo(
        ctypes.c_void_p(device.int_ptr), ctypes.c_uint(parameter), ctypes.sizeof(found), ctypes.byref(found), None
    )
    return found.value if status == 0 else 0
