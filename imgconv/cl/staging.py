"""The host memory of inputs and outputs: staging buffers, and buffers that host and device share."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from typing import Union

import numpy as np
import numpy.typing as npt
import pyopencl as cl

from imgconv.arrays import Array
from imgconv.cl.context import READ_WRITE, Buffer, Context, Event, Memory, Queue, driver_error
from imgconv.cl.opencl_library import copy_function

Events = Union[Sequence[Event], None]


def pin_in_place(context: Context, array: Array) -> Array:
    """The same memory as an array from which the device copies without the host's help, if it has memory of its own.

    array: contiguous; from the start of a page on. If the driver refuses, it is the array itself.
    """
    if context.info.shares_memory or not array.nbytes:
        return array
    try:
        buffer = cl.Buffer(context.handle, cl.mem_flags.READ_ONLY | cl.mem_flags.USE_HOST_PTR, hostbuf=array)
    except cl.Error:
        return array
    return np.asarray(_Pinned(array, buffer))


class _Pinned:
    """The base of an array of `pin_in_place`. A buffer pins the memory that it was made with, as long as it exists.

    The buffer itself is not used: copies take the address of the array.
    """

    def __init__(self, array: Array, buffer: Buffer) -> None:
        self.__array_interface__ = array.__array_interface__
        self._buffer = buffer  # refers to the array


class StagingBuffer:
    """Memory of the device, and an array in pinned memory of the host; the device copies between them."""

    shares = False

    def __init__(self, context: Context, memory: Memory, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
        """Raises ResourceError."""
        self.memory, self.array = memory, context.pinned_array(shape, dtype)
        self._write = _bound_copy(context, "clEnqueueWriteBuffer", memory, self.array)
        self._read = _bound_copy(context, "clEnqueueReadBuffer", memory, self.array)

    def to_device(self, context: Context, queue: Queue, awaited: bool, instead: Array | None = None) -> list[Event]:
        """Enqueues the copy of the array to the device. Its event, if `awaited`. Raises DeviceError.

        instead: an array to copy in its place, no larger; the caller keeps it, as it is, until the copy is over.
        """
        array = self.array if instead is None else instead
        if self._write is not None and queue is context.queue and not awaited and self._write(array) == 0:
            return []
        return [context.upload(self.memory, array, queue)]

    def to_host(self, context: Context, queue: Queue, awaited: bool, wait_for: Events = None) -> list[Event]:
        """Enqueues the copy to the array. Its event, if `awaited`. Raises DeviceError."""
        if self._read is not None and queue is context.queue and not awaited and self._read(self.array) == 0:
            return []
        return [context.download(self.array, self.memory, queue, wait_for)]


class SharedBuffer:
    """A buffer that host and device use in turn: nothing is copied if their memory is the same.

    memory: the buffer. array: its content while the host has it, as at first.
    """

    shares = True

    def __init__(self, context: Context, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
        """Raises ResourceError."""
        self._shape, self._dtype = shape, np.dtype(dtype)
        size = int(np.prod(shape)) * self._dtype.itemsize
        try:
            flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
            self.memory = cl.Buffer(context.handle, flags, size)
            context.wait(context.watchdog.call(partial(self.to_host, context, context.queue, True)))
        except cl.Error as error:
            raise driver_error(context.info, f"{size} bytes of shared memory", error, "", shape) from error

    def to_device(self, context: Context, queue: Queue, awaited: bool, instead: Array | None = None) -> list[Event]:
        """Enqueues the unmap: the buffer goes to the device, and the array must not be used. Raises DeviceError."""
        memory_map = self.array.base
        assert isinstance(memory_map, cl.MemoryMap)
        try:
            return [memory_map.release(queue)]
        except cl.Error as error:
            raise driver_error(context.info, f"giving up {self.array.nbytes} bytes of shared memory", error) from error

    def to_host(self, context: Context, queue: Queue, awaited: bool, wait_for: Events = None) -> list[Event]:
        """Enqueues the map: the buffer goes to the host, as a new array. Its event. Raises DeviceError."""
        try:
            self.array, event = cl.enqueue_map_buffer(
                queue, self.memory, READ_WRITE, 0, self._shape, self._dtype, wait_for=wait_for, is_blocking=False
            )
        except cl.Error as error:
            raise driver_error(context.info, f"taking {self.memory.size} bytes of shared memory", error) from error
        return [event]


HostBinding = Union[StagingBuffer, SharedBuffer]


def _bound_copy(context: Context, name: str, memory: Memory, array: Array) -> Callable[[Array], int] | None:
    """A copy between a buffer and the array, or another one, on the context's queue: the driver's function.

    It makes no event, and returns the driver's status. None for an image, or without that function.
    """
    function = copy_function(name)
    if function is None or not isinstance(memory, cl.Buffer) or not array.nbytes:
        return None
    first = partial(function, ctypes.c_void_p(context.queue.int_ptr), ctypes.c_void_p(memory.int_ptr), 0, 0)
    return lambda given: int(first(given.nbytes, ctypes.c_void_p(given.ctypes.data), 0, None, None))
