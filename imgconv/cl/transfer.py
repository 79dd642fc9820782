"""Copies between host and device that do not block, pinned and shared memory, and a caller's own buffers and images.

The code that enqueues a copy keeps its event until the copy is over: the event keeps the host's array alive. If it is
dropped earlier, dropping it waits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeGuard, Union

import numpy as np
import numpy.typing as npt
import pyopencl as cl

from imgconv.arrays import Array
from imgconv.cl.device import Context, refusal
from imgconv.cl.image import Buffer, Image
from imgconv.cl.loader import copy_function
from imgconv.cl.queue import wait, wait_for_all

Queue = cl.CommandQueue
Memory = Union[Buffer, Image]
Events = Sequence[cl.Event] | None
READ_WRITE: Any = cl.map_flags.READ | cl.map_flags.WRITE  # by its types, pyopencl makes an int and takes map_flags


def new_queue(context: Context) -> cl.CommandQueue:
    """A further in-order queue of the context, which records times if the context's own does. Raises DeviceError."""
    properties = {"properties": cl.command_queue_properties.PROFILING_ENABLE} if context.profile else {}
    try:
        return cl.CommandQueue(context.handle, context.handle.devices[0], **properties)
    except cl.Error as error:
        raise refusal(context.info, "opening a queue", error) from error


def is_memory(value: object) -> TypeGuard[Memory]:
    """Returns whether a value is an OpenCL buffer or image."""
    return isinstance(value, (cl.Buffer, cl.Image))


def is_image(value: object) -> TypeGuard[Image]:
    """Returns whether a value is an OpenCL image."""
    return isinstance(value, cl.Image)


def enqueue_upload(
    context: Context, memory: Memory, array: Array, queue: cl.CommandQueue | None = None, wait_for: Events = None
) -> cl.Event:
    """Enqueues a copy of a contiguous array to a buffer or an image of its size. Raises DeviceError."""
    return _enqueue(context, memory, memory, array, queue, wait_for, "an upload")


def upload_array(context: Context, memory: Memory, array: Array, tensor: str) -> None:
    """Copies a contiguous array to a buffer or an image of its size, and waits. Raises DeviceError with the tensor."""
    what = f"tensor {tensor!r}: an upload"
    wait(context, [context.within(partial(_enqueue, context, memory, memory, array, None, None, what))])


def enqueue_download(
    context: Context, array: Array, memory: Memory, queue: cl.CommandQueue | None = None, wait_for: Events = None
) -> cl.Event:
    """Enqueues a copy of a buffer or an image to a contiguous array of its size. Raises DeviceError."""
    return _enqueue(context, memory, array, memory, queue, wait_for, "a download")


def enqueue_copy(context: Context, destination: Memory, source: Memory) -> cl.Event:
    """Enqueues a copy of a buffer or an image to another buffer or image of its size. Raises DeviceError."""
    try:
        return cl.enqueue_copy(context.queue, destination, source, **_extent(destination, source))
    except cl.Error as error:
        raise refusal(context.info, "a copy on the device", error) from error


def pinned_array(context: Context, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """An array of undefined content in memory that the device copies from and to without the host's help.

    Raises ResourceError if there is no such memory.
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if not size:
        return np.empty(shape, dtype)
    try:
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
        buffer = cl.Buffer(context.handle, flags, size)
        # It stays mapped as long as a reference to the array exists. rusticl ends the process if the reference goes
        # before the map is made.
        array: Array
        map_it = partial(cl.enqueue_map_buffer, context.queue, buffer, READ_WRITE, 0, shape, np.dtype(dtype))
        array, _ = context.within(map_it)
    except cl.Error as error:
        raise refusal(context.info, f"{size} bytes of pinned memory", error, "", shape) from error
    return array


def pinned(context: Context, array: Array) -> Array:
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
    """The base of an array of `pinned`. A buffer pins the memory that it was made with, as long as it exists.

    The buffer itself is not used: copies take the address of the array.
    """

    def __init__(self, array: Array, buffer: Buffer) -> None:
        self.__array_interface__ = array.__array_interface__
        self._buffer = buffer  # refers to the array


class StagedPort:
    """Memory of the device, and an array in pinned memory of the host; the device copies between them."""

    shares = False

    def __init__(self, context: Context, memory: Memory, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
        """Raises ResourceError."""
        self.memory, self.array = memory, pinned_array(context, shape, dtype)
        self._write = _bound_copy(context, "clEnqueueWriteBuffer", memory, self.array)
        self._read = _bound_copy(context, "clEnqueueReadBuffer", memory, self.array)

    def to_device(
        self, context: Context, queue: cl.CommandQueue, awaited: bool, instead: Array | None = None
    ) -> list[cl.Event]:
        """Enqueues the copy of the array to the device. Its event, if `awaited`. Raises DeviceError.

        instead: an array to copy in its place, no larger; the caller keeps it, as it is, until the copy is over.
        """
        array = self.array if instead is None else instead
        if self._write is not None and queue is context.queue and not awaited and self._write(array) == 0:
            return []
        return [enqueue_upload(context, self.memory, array, queue)]

    def to_host(
        self, context: Context, queue: cl.CommandQueue, awaited: bool, wait_for: Events = None
    ) -> list[cl.Event]:
        """Enqueues the copy to the array. Its event, if `awaited`. Raises DeviceError."""
        if self._read is not None and queue is context.queue and not awaited and self._read(self.array) == 0:
            return []
        return [enqueue_download(context, self.array, self.memory, queue, wait_for)]


class SharedPort:
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
            wait_for_all(context, context.within(partial(self.to_host, context, context.queue, True)))
        except cl.Error as error:
            raise refusal(context.info, f"{size} bytes of shared memory", error, "", shape) from error

    def to_device(
        self, context: Context, queue: cl.CommandQueue, awaited: bool, instead: Array | None = None
    ) -> list[cl.Event]:
        """Enqueues the unmap: the buffer goes to the device, and the array must not be used. Raises DeviceError."""
        memory_map = self.array.base
        assert isinstance(memory_map, cl.MemoryMap)
        try:
            return [memory_map.release(queue)]
        except cl.Error as error:
            raise refusal(context.info, f"giving up {self.array.nbytes} bytes of shared memory", error) from error

    def to_host(
        self, context: Context, queue: cl.CommandQueue, awaited: bool, wait_for: Events = None
    ) -> list[cl.Event]:
        """Enqueues the map: the buffer goes to the host, as a new array. Its event. Raises DeviceError."""
        try:
            self.array, event = cl.enqueue_map_buffer(
                queue, self.memory, READ_WRITE, 0, self._shape, self._dtype, wait_for=wait_for, is_blocking=False
            )
        except cl.Error as error:
            raise refusal(context.info, f"taking {self.memory.size} bytes of shared memory", error) from error
        return [event]


Port = Union[StagedPort, SharedPort]


def _bound_copy(context: Context, name: str, memory: Memory, array: Array) -> Callable[[Array], int] | None:
    """A copy between a buffer and the array, or another one, on the context's queue: the driver's function.

    It makes no event, and returns the driver's status. None for an image, or without that function.
    """
    function = copy_function(name)
    if function is None or not isinstance(memory, cl.Buffer) or not array.nbytes:
        return None
    first = partial(function, ctypes.c_void_p(context.queue.int_ptr), ctypes.c_void_p(memory.int_ptr), 0, 0)
    return lambda given: int(first(given.nbytes, ctypes.c_void_p(given.ctypes.data), 0, None, None))


def _enqueue(
    context: Context, memory: Memory, destination: Any, source: Any, queue: cl.CommandQueue | None, wait_for: Events,
    what: str,
) -> cl.Event:
    whole = {}
    if isinstance(memory, cl.Image):
        whole = {"origin": (0, 0, 0), "region": _region(memory)}
        array = source if destination is memory else destination
        texels = int(np.prod(_region(memory)))
        if array.nbytes != texels * memory.element_size:  # pyopencl does not look, and the driver reads on
            raise ValueError(f"{what} of {texels} texels of {memory.element_size} bytes: the array has {array.nbytes}")
    context.check()
    try:
        copy: cl.Event = cl.enqueue_copy(
            queue or context.queue, destination, source, is_blocking=False, wait_for=wait_for, **whole
        )
    except cl.Error as error:
        raise refusal(context.info, f"{what} of {memory.size} bytes", error) from error
    context.copies.append(copy)
    return copy


def _extent(destination: Memory, source: Memory) -> dict[str, Any]:
    """The arguments that pyopencl needs for a copy between these kinds of memory."""
    start = (0, 0, 0)
    if isinstance(source, cl.Image):
        if isinstance(destination, cl.Image):
            return {"src_origin": start, "dest_origin": start, "region": _region(source)}
        return {"offset": 0, "origin": start, "region": _region(source)}
    if isinstance(destination, cl.Image):
        return {"offset": 0, "origin": start, "region": _region(destination)}
    return {"byte_count": source.size}


def _region(image: cl.Image) -> tuple[int, int, int]:
    return image.width, image.height, max(1, image.array_size)
