"""Imports Linux dma-bufs, such as camera buffers, as OpenCL buffers. native/src/external_memory.cpp does the same.

buffer = import_dma_buf(context.info, context.handle, descriptor, 460800)
with acquire_imported(context.queue, buffer):
    cl.enqueue_copy(context.queue, mine, buffer)
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Union, cast

import pyopencl as cl

from imgconv.cl.device_info import DeviceInfo
from imgconv.cl.opencl_library import DriverFunction, extension_function, library
from imgconv.errors import DeviceError, InputError

# cl_ext.h and Qualcomm's cl_ext_qcom.h.
DMA_BUF_KHR, DMA_BUF_ARM, IMPORT_TYPE_ARM = 0x2067, 0x40B4, 0x40B2
EXT_HOST_PTR, UNCACHED, IO_COHERENT, ION, DMA_BUF = 1 << 29, 0x40A4, 0x40A9, 0x40A8, 0x411D
READ_WRITE, USE_HOST_PTR = 1, 1 << 3
_POINTER, _STATUS, _COUNT, _SIZE, _FLAGS = (
    ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32, ctypes.c_size_t, ctypes.c_uint64,
)
# Result first, then the arguments.
CREATE_WITH_PROPERTIES = (_POINTER, _POINTER, _POINTER, _FLAGS, _SIZE, _POINTER, _POINTER)
CREATE = (_POINTER, _POINTER, _FLAGS, _SIZE, _POINTER, _POINTER)
IMPORT_ARM = (_POINTER, _POINTER, _FLAGS, _POINTER, _POINTER, _SIZE, _POINTER)
HAND_OVER = (_STATUS, _POINTER, _COUNT, _POINTER, _COUNT, _POINTER, _POINTER)

ImportedMemory = Union[cl.Buffer, cl.Image, None]
# Makes a buffer of a dma-buf: takes the device, its context, the descriptor and the size. Returns the buffer's handle,
# and what must live as long.
BufferImporter = Callable[[DeviceInfo, cl.Context, int, int], tuple[int, object]]


class _HostPointer(ctypes.Structure):
    """cl_mem_dmabuf_host_ptr and cl_mem_ion_host_ptr."""

    _fields_ = (
        ("type", _COUNT), ("cache_policy", _COUNT), ("descriptor", ctypes.c_int), ("pointer", _POINTER),
    )


# Mappings of buffers that are no more. A buffer drops its mapping before the driver drops the buffer.
_ended: list[mmap.mmap] = []


class _Mapping:
    """A dma-buf in the memory of this process."""

    def __init__(self, descriptor: int, size: int) -> None:
        self.memory = mmap.mmap(descriptor, size)

    def __del__(self) -> None:
        _ended.append(self.memory)


def import_dma_buf(info: DeviceInfo, context: cl.Context, descriptor: int, size: int) -> cl.Buffer:
    """A buffer of the first `size` bytes of a dma-buf. The descriptor stays the caller's, and may be closed.

    Raises InputError for another descriptor and a larger size, and DeviceError if the driver cannot import it.
    """
    _ended.clear()
    try:
        held = os.lseek(descriptor, 0, os.SEEK_END)
    except OSError as error:
        raise InputError(f"descriptor {descriptor} is not a dma-buf: {error}") from error
    if not 1 <= size <= held:
        raise InputError(f"the dma-buf has {held} bytes; {size} were requested")
    offered = {name: way for name, way in WAYS.items() if name in info.extensions}
    if not offered:
        raise DeviceError(
            f"{info.name} cannot import dma-bufs: its driver has none of {', '.join(WAYS)}. The memory of "
            "Model.mapped is read without a copy too, if device and host share theirs"
        )
    refused: list[DeviceError] = []
    for name, way in offered.items():
        try:
            number, kept = way(info, context, descriptor, size)
        except DeviceError as error:
            refused.append(error)
            continue
        buffer: Any = cl.Buffer.from_int_ptr(number, retain=False)
        buffer.is_handed_over, buffer.kept = name == "cl_khr_external_memory_dma_buf", kept
        return cast(cl.Buffer, buffer)
    raise refused[0]


@contextmanager
def acquire_imported(queue: cl.CommandQueue, *memory: ImportedMemory) -> Iterator[None]:
    """Makes imported buffers the device's for the commands that are enqueued inside. Other memory needs nothing."""
    imported = [each for each in memory if each is not None and getattr(each, "is_handed_over", False)]
    for each in imported:
        _enqueue_ownership_transfer(queue, "clEnqueueAcquireExternalMemObjectsKHR", each)
    yield
    for each in imported:
        _enqueue_ownership_transfer(queue, "clEnqueueReleaseExternalMemObjectsKHR", each)


def _enqueue_ownership_transfer(queue: cl.CommandQueue, name: str, memory: cl.Buffer | cl.Image) -> None:
    enqueue = _extension_function(queue.context, name, HAND_OVER)
    status = enqueue(queue.int_ptr, 1, ctypes.byref(_POINTER(memory.int_ptr)), 0, None, None)
    _check(status, name)


def _by_khronos(info: DeviceInfo, context: cl.Context, descriptor: int, size: int) -> tuple[int, object]:
    opencl, status = library(), _STATUS()
    if opencl is None or not hasattr(opencl, "clCreateBufferWithProperties"):
        raise DeviceError("the OpenCL library has no clCreateBufferWithProperties: update it")
    create = ctypes.CFUNCTYPE(*CREATE_WITH_PROPERTIES)(("clCreateBufferWithProperties", opencl))
    given = os.dup(descriptor)  # the driver owns the one that it takes
    properties = (ctypes.c_uint64 * 3)(DMA_BUF_KHR, given, 0)
    made: int = create(context.int_ptr, properties, READ_WRITE, size, None, ctypes.byref(status))
    if status.value:
        os.close(given)
    _check(status.value, f"importing a dma-buf of {size} bytes by cl_khr_external_memory_dma_buf")
    return made, None


def _by_qualcomm(type: int, info: DeviceInfo, context: cl.Context, descriptor: int, size: int) -> tuple[int, object]:
    opencl, status = library(), _STATUS()
    assert opencl is not None
    try:
        mapping = _Mapping(descriptor, size)
    except OSError as error:
        raise InputError(f"descriptor {descriptor} cannot be mapped: {error}") from error
    place = ctypes.addressof(ctypes.c_char.from_buffer(mapping.memory))
    policy = IO_COHERENT if "cl_qcom_ext_host_ptr_iocoherent" in info.extensions else UNCACHED
    about = ctypes.byref(_HostPointer(type, policy, descriptor, place))
    create = ctypes.CFUNCTYPE(*CREATE)(("clCreateBuffer", opencl))
    flags = READ_WRITE | USE_HOST_PTR | EXT_HOST_PTR
    made: int = create(context.int_ptr, flags, size, about, ctypes.byref(status))
    _check(status.value, f"importing a dma-buf of {size} bytes by cl_qcom_ext_host_ptr")
    return made, mapping


def _by_arm(info: DeviceInfo, context: cl.Context, descriptor: int, size: int) -> tuple[int, object]:
    status, create = _STATUS(), _extension_function(context, "clImportMemoryARM", IMPORT_ARM)
    properties = (ctypes.c_ssize_t * 3)(IMPORT_TYPE_ARM, DMA_BUF_ARM, 0)
    memory = ctypes.byref(ctypes.c_int(descriptor))
    made = create(context.int_ptr, READ_WRITE, properties, memory, size, ctypes.byref(status))
    _check(status.value, f"importing a dma-buf of {size} bytes by cl_arm_import_memory")
    return made, None


# By the names of the extensions, the first one first.
WAYS: dict[str, BufferImporter] = {
    "cl_khr_external_memory_dma_buf": _by_khronos, "cl_qcom_dmabuf_host_ptr": partial(_by_qualcomm, DMA_BUF),
    "cl_qcom_ion_host_ptr": partial(_by_qualcomm, ION), "cl_arm_import_memory_dma_buf": _by_arm,
}


def _extension_function(context: cl.Context, name: str, kinds: tuple[type, ...]) -> DriverFunction:
    found = extension_function(context.devices[0].platform, name, kinds)
    if found is None:
        raise DeviceError(f"the driver has no {name}, though it lists the extension")
    return found


def _check(status: int, what: str) -> None:
    if status:
        raise DeviceError(f"{what}: OpenCL's status {status}; update the driver, or pass an array")
