"""Launches that the driver replays by one call: cl_khr_command_buffer, and cl_qcom_recordable_queues on Adreno.

pyopencl wraps neither, so their functions are called through ctypes. Their C types are those of the OpenCL registry
(cl_khr_command_buffer, section "New Functions") and of Qualcomm's cl_ext_qcom.h. The functions used here are the same
in the provisional versions of command buffers (PoCL 3.1 has 0.9.0) and in 1.0.0.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pyopencl as cl

from imgconv.cl.context import Context, Launch, failure, refusal
from imgconv.cl.device_info import DeviceInfo
from imgconv.cl.loader import Function, device_number, library
from imgconv.errors import DeviceError

Functions = Mapping[str, Function]
# Result first, then the arguments.
Types = Mapping[str, tuple[type, ...]]

QUEUE_PROPERTIES_REQUIRED = 0x12AA
RECORDING_MAX_SIZE = 0x41DE
QUEUE_RECORDABLE = 1 << 30

_POINTER, _STATUS, _COUNT, _SIZE = ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32, ctypes.c_size_t
_SIZES = ctypes.POINTER(ctypes.c_size_t)

# Intel's CPU driver (2026.22) leaks 2 KB for each launch that it replays, and 10 KB for each that it records. Launches
# one by one leak nothing there, and take as long.
# `python -m benchmarks.leaks --replay` shows whether a version leaks.
LEAKING_PLATFORM = "Intel(R) OpenCL"

# Result first, then the arguments.
CORE = {
    "clGetExtensionFunctionAddressForPlatform": (_POINTER, _POINTER, ctypes.c_char_p),
    "clGetDeviceInfo": (_STATUS, _POINTER, _COUNT, _SIZE, _POINTER, _POINTER),
    "clEnqueueNDRangeKernel": (
        _STATUS, _POINTER, _POINTER, _COUNT, _SIZES, _SIZES, _SIZES, _COUNT, _POINTER, _POINTER,
    ),
}
COMMAND_BUFFER = {
    "clCreateCommandBufferKHR": (_POINTER, _COUNT, _POINTER, _POINTER, _POINTER),
    "clCommandNDRangeKernelKHR": (
        _STATUS, _POINTER, _POINTER, _POINTER, _POINTER, _COUNT, _SIZES, _SIZES, _SIZES, _COUNT, _POINTER, _POINTER,
        _POINTER,
    ),
    "clFinalizeCommandBufferKHR": (_STATUS, _POINTER),
    "clEnqueueCommandBufferKHR": (_STATUS, _COUNT, _POINTER, _POINTER, _COUNT, _POINTER, _POINTER),
    "clReleaseCommandBufferKHR": (_STATUS, _POINTER),
}
RECORDABLE_QUEUES = {
    "clNewRecordingQCOM": (_POINTER, _POINTER, _POINTER),
    "clEndRecordingQCOM": (_STATUS, _POINTER),
    "clEnqueueRecordingQCOM": (
        _STATUS, _POINTER, _POINTER, *(_SIZE, _POINTER) * 4, _COUNT, _POINTER, _POINTER,
    ),
    "clReleaseRecordingQCOM": (_STATUS, _POINTER),
}


class CommandBuffer:
    """Launches in a cl_khr_command_buffer. Its last replay must be over before the next one."""

    extension: ClassVar[str] = "cl_khr_command_buffer"

    def __init__(self, context: Context, launches: Sequence[Launch], functions: Functions) -> None:
        """Raises DeviceError if the driver refuses."""
        self._info, self._enqueue = context.info, functions["clEnqueueCommandBufferKHR"]
        if _required_properties(context, functions):
            raise DeviceError("command buffers need an out-of-order or a profiled queue here")
        queue = context.queue.int_ptr
        status = ctypes.c_int32()
        handle = functions["clCreateCommandBufferKHR"](
            1, ctypes.byref(ctypes.c_void_p(queue)), None, ctypes.byref(status)
        )
        _check(self._info, "clCreateCommandBufferKHR", status.value)
        # The kernels and the queue must outlive the buffer; not every driver retains them.
        _release_with(self, functions["clReleaseCommandBufferKHR"], handle, context, list(launches))
        self._handle = ctypes.c_void_p(handle)
        for kernel, global_size, local_size in launches:
            status_code = functions["clCommandNDRangeKernelKHR"](
                self._handle, None, None, kernel.int_ptr, len(global_size), None, _sizes(global_size),
                _sizes(local_size), 0, None, None, None,
            )
            _check(self._info, "clCommandNDRangeKernelKHR", status_code)
        _check(self._info, "clFinalizeCommandBufferKHR", functions["clFinalizeCommandBufferKHR"](self._handle))

    def replay(self) -> None:
        """Enqueues the launches on the context's queue. Raises DeviceError."""
        status = self._enqueue(0, None, self._handle, 0, None, None)
        if status:
            _check(self._info, "clEnqueueCommandBufferKHR", status)


class RecordedQueue:
    """Launches in recordings of cl_qcom_recordable_queues, each as long as the device allows."""

    extension: ClassVar[str] = "cl_qcom_recordable_queues"

    def __init__(self, context: Context, launches: Sequence[Launch], functions: Functions) -> None:
        """Raises DeviceError if the driver refuses."""
        self._info, self._enqueue = context.info, functions["clEnqueueRecordingQCOM"]
        self._queue = ctypes.c_void_p(context.queue.int_ptr)
        longest = device_number(context.handle.devices[0], RECORDING_MAX_SIZE)
        if longest < 1:
            raise DeviceError("its recordings hold no launches")
        # The driver refuses the queue if it has any other property too.
        properties: Any = QUEUE_RECORDABLE  # not one of pyopencl's own flags
        recorder = cl.CommandQueue(context.handle, context.handle.devices[0], properties=properties)
        self._handles = []
        for start in range(0, len(launches), longest):
            self._handles.append(self._record(recorder, launches[start : start + longest], functions, context))

    def _record(
        self, recorder: cl.CommandQueue, launches: Sequence[Launch], functions: Functions, context: Context
    ) -> ctypes.c_void_p:
        queue, status = ctypes.c_void_p(recorder.int_ptr), ctypes.c_int32()
        handle = functions["clNewRecordingQCOM"](queue, ctypes.byref(status))
        _check(self._info, "clNewRecordingQCOM", status.value)
        kept = (context, recorder, list(launches))
        _release_with(self, functions["clReleaseRecordingQCOM"], handle, *kept)
        for kernel, global_size, local_size in launches:
            status_code = functions["clEnqueueNDRangeKernel"](
                queue, kernel.int_ptr, len(global_size), None, _sizes(global_size), _sizes(local_size), 0, None, None
            )
            _check(self._info, "clEnqueueNDRangeKernel", status_code)
        _check(self._info, "clEndRecordingQCOM", functions["clEndRecordingQCOM"](ctypes.c_void_p(handle)))
        return ctypes.c_void_p(handle)

    def replay(self) -> None:
        """Enqueues the launches on the context's queue. Raises DeviceError."""
        for handle in self._handles:
            status = self._enqueue(self._queue, handle, 0, None, 0, None, 0, None, 0, None, 0, None, None)
            if status:
                _check(self._info, "clEnqueueRecordingQCOM", status)


WAYS: tuple[tuple[type[CommandBuffer] | type[RecordedQueue], Types], ...] = (
    (CommandBuffer, COMMAND_BUFFER), (RecordedQueue, RECORDABLE_QUEUES),
)


def record(context: Context, launches: Sequence[Launch]) -> CommandBuffer | RecordedQueue | None:
    """The launches as a command buffer; None if the driver has none or leaks. Raises DeviceError if it refuses."""
    info = context.info
    way = next((each for each in WAYS if each[0].extension in info.extensions), None)
    if way is None or info.platform == LEAKING_PLATFORM:
        return None
    kind, types = way
    try:
        return kind(context, launches, load_functions(context, types))
    except cl.Error as error:
        raise refusal(info, "recording the launches", error) from error


def load_functions(context: Context, types: Types) -> dict[str, Function]:
    """The driver's functions by name, and those of CORE. Raises DeviceError, naming one that the driver lacks."""
    opencl = library()
    if opencl is None:
        raise DeviceError("the OpenCL library is not found")
    found: dict[str, Function] = {
        name: ctypes.CFUNCTYPE(result, *arguments)((name, opencl)) for name, (result, *arguments) in CORE.items()
    }
    for name, (result, *arguments) in types.items():
        address = found["clGetExtensionFunctionAddressForPlatform"](
            context.handle.devices[0].platform.int_ptr, name.encode()
        )
        if not address:
            raise DeviceError(f"the driver lacks {name}")
        found[name] = ctypes.CFUNCTYPE(result, *arguments)(address)
    return found


def _sizes(sizes: tuple[int, ...] | None) -> ctypes.Array[ctypes.c_size_t] | None:
    return None if sizes is None else (ctypes.c_size_t * len(sizes))(*sizes)


def _required_properties(context: Context, functions: Functions) -> int:
    """The cl_command_queue_properties that a queue needs for command buffers."""
    bits = ctypes.c_uint64()
    device = context.handle.devices[0].int_ptr
    size = ctypes.sizeof(bits)
    status = functions["clGetDeviceInfo"](device, QUEUE_PROPERTIES_REQUIRED, size, ctypes.byref(bits), None)
    _check(context.info, "clGetDeviceInfo", status)
    return bits.value


def _check(info: DeviceInfo, function: str, status: int) -> None:
    if status:
        raise failure(info, function, status, _status_name(status))


def _release_with(owner: object, function: Function, handle: int, *kept: object) -> None:
    """Releases a recording when its owner is collected, and keeps the objects that it uses until then.

    It is not released when the interpreter ends: another thread may still replay it.
    """
    weakref.finalize(owner, _release, function, handle, *kept).atexit = False


def _release(function: Function, handle: int, *kept: object) -> None:
    function(ctypes.c_void_p(handle))


def _status_name(status: int) -> str:
    names = {number: name for name, number in vars(cl.status_code).items() if isinstance(number, int)}
    return names.get(status, str(status))
