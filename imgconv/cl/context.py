"""Context: an opened device. Implements imgconv.runtime.device.Device with OpenCL.

An image has `height` rows of `width` texels with four channels of float32, float16, int8 or uint8. On the host it is an
array of shape (height, width, 4). A kernel reads an int8 divided by 127 and a uint8 divided by 255. An image array has
`layers` images: (layers, height, width, 4). Origins and regions are counted in texels, in OpenCL's order: x, y and
layer; width, height and layers.

Commands are enqueued in the context's in-order queue unless another one is given. The event of a copy keeps the host's
array alive. Dropping the event before the copy is complete waits for the copy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from threading import Lock
from time import perf_counter, sleep
from typing import Any, TypeGuard, Union

import numpy as np
import numpy.typing as npt
import pyopencl as cl

from imgconv.arrays import Array
from imgconv.cl.building.processes import BuilderPool
from imgconv.cl.device_info import DeviceInfo
from imgconv.cl.external_memory import acquire_imported, import_dma_buf
from imgconv.cl.priority import Priority, queue_properties
from imgconv.cl.shutdown import never_release
from imgconv.cl.watchdog import TIMEOUT, DriverCall, Watchdog
from imgconv.dtype import DTYPES, FLOAT16, FLOAT32, INT8, UINT32, UNSIGNED_INT8, DType
from imgconv.errors import DeviceError, Error, ResourceError

Image = cl.Image
Buffer = cl.Buffer
Memory = Union[Buffer, Image]
Queue = cl.CommandQueue
Event = cl.Event
Texels = tuple[int, ...]
# A kernel whose arguments are set, its global size, and its local size (None: the driver chooses).
KernelLaunch = tuple[cl.Kernel, tuple[int, ...], Union[tuple[int, ...], None]]

# Codes of commands whose device was reset or taken away, by its watchdog for example; NVIDIA's own is the last one.
LOST = (-2, -5, -14, -33, -34, -36, -9999)
# What a user can do about a call that fails: because the device was lost, because memory is short, or else.
LOST_ADVICE = "the device was lost or reset: load the model again; if that fails too, start another process"
SHORTAGE_ADVICE = "a smaller input or FLOAT16=1 takes less, and so does ending what else uses the device"
ADVICE = "update the driver, or choose another device: imgconv devices lists them"
READ_WRITE: Any = cl.map_flags.READ | cl.map_flags.WRITE  # by its types, pyopencl makes an int and takes map_flags
ORIGIN = (0, 0, 0)
# Seconds for which a thread looks at a GPU before it leaves the wait to another one: to wake it again takes longer than
# the end of a short run. A CPU's driver computes with the thread that waits.
LOOKED_FOR = 5e-4
# By the driver's handle of the device, and the context's hints. Programs belong to a context. Some drivers keep memory
# for each program ever built (Intel's for CPUs, 25 KB): with a new context for each model, they would grow with every
# model that is loaded.
handles: dict[tuple[int, tuple[tuple[int, int], ...]], cl.Context] = {}


class Context:
    """One opened device: its pyopencl context and one in-order queue.

    profile: whether the queue records when each launch starts and ends. builders: who builds programs for it. watchdog:
    bounds the waits for it. lock: the thread that enqueues a run holds it, so that the launches of one run stay
    together.
    """

    def __init__(
        self, info: DeviceInfo, handle: cl.Context, queue: Queue, profile: bool = False, timeout: float = TIMEOUT,
        priority: Priority | None = None,
    ) -> None:
        """timeout: seconds that a wait for the device may take. priority: of further queues."""
        self.info, self.handle, self.queue, self.profile, self._priority = info, handle, queue, profile, priority
        self.builders = BuilderPool(handle.devices[0])
        self.lock = Lock()
        self._copies: list[Event] = []  # that may be under way
        self.watchdog = Watchdog(info, timeout, self._abandoned)

    def _abandoned(self) -> None:
        forget_context(self.info)
        never_release(self._copies)

    # Memory. `tensor` is the name in errors.

    def buffer(self, content: int | Array, tensor: str = "") -> Buffer:
        """A buffer of ``content`` bytes of undefined content, or one that holds a copy of the array ``content``.

        Raises ResourceError if there is no such memory.
        """
        size = content if isinstance(content, int) else content.nbytes
        limit = self.info.max_allocation_bytes
        if not 1 <= size <= limit:
            problem = f"a buffer of {size} bytes is not possible on {self.info.name}"
            raise ResourceError(problem, tensor, (size,), f"1 to {limit} bytes")
        with self._wrap_errors(f"a buffer of {size} bytes", tensor, (size,)):
            buffer = cl.Buffer(self.handle, cl.mem_flags.READ_WRITE, size)
        if not isinstance(content, int):
            self.write(buffer, content, tensor)
        return buffer

    def image(self, width: int, height: int, layers: int, dtype: npt.DTypeLike, tensor: str = "") -> Image:
        """An image2d (``layers`` 0 or 1) or an image2d_array of RGBA texels of undefined content.

        Raises ResourceError if the size is past the device's limits, the device lacks the dtype, or there is no memory.
        Most drivers allocate at the first use: see `fill`.
        """
        info, size = self.info, (width, height, layers) if layers > 1 else (width, height)
        shape = (*reversed(size), 4)
        texel_format = self._texel_format(dtype, shape, tensor)
        what = f"an image of {'x'.join(map(str, size))} texels, {np.dtype(dtype)}"
        limits = (info.max_image_width, info.max_image_height, info.max_image_layers)
        if any(not 1 <= asked <= limit for asked, limit in zip(size, limits, strict=False)):
            limit_text = f"1x1 to {limits[0]}x{limits[1]} texels, {limits[2]} layers"
            raise ResourceError(f"{what}, is not possible on {info.name}", tensor, shape, limit_text)
        with self._wrap_errors(what, tensor, shape):
            flags = cl.mem_flags.READ_WRITE
            return cl.create_image(self.handle, flags, texel_format, shape=size, is_array=layers > 1)

    def sub_buffer(self, buffer: Buffer, offset: int, size: int, tensor: str = "") -> Buffer:
        """The buffer of `size` bytes that is a part of another. DeviceInfo has the offset's alignment.

        Raises ResourceError if the driver refuses it.
        """
        with self._wrap_errors(f"a buffer of {size} bytes in another", tensor, (size,)):
            return buffer[offset : offset + size]

    def image_from_buffer(
        self, buffer: Buffer, offset: int, row_bytes: int, width: int, height: int, dtype: npt.DTypeLike,
        tensor: str = "",
    ) -> Image:
        """An image2d whose memory is a part of a buffer, from `offset` on, with `row_bytes` from row to row.

        DeviceInfo has the alignment of offset and rows. Raises ResourceError if the driver refuses it.
        """
        shape = (height, width, 4)
        with self._wrap_errors(f"an image of {width}x{height} texels, {np.dtype(dtype)}, in a buffer", tensor, shape):
            # The image description does not keep its buffer alive.
            part = buffer[offset : offset + row_bytes * height]
            description = cl.ImageDescriptor()
            description.image_type = cl.mem_object_type.IMAGE2D
            description.shape = (width, height, 1)
            description.pitches = (row_bytes, 0)
            description.buffer = part
            texel_format = self._texel_format(dtype, shape, tensor)
            return cl.Image(self.handle, cl.mem_flags.READ_WRITE, texel_format, desc=description)

    def owns(self, memory: Memory) -> bool:
        """Returns whether memory was made in this context."""
        return bool(memory.context == self.handle)

    def acquire_imported(self, *memory: Memory | None) -> AbstractContextManager[None]:
        """Makes imported memory the device's for the commands that are enqueued inside. Raises DeviceError."""
        return acquire_imported(self.queue, *memory)

    def import_dma_buf(self, descriptor: int, size: int) -> Buffer:
        """A buffer of the first bytes of a dma-buf: see external_memory.py. Raises InputError, DeviceError."""
        return self.watchdog.call(partial(import_dma_buf, self.info, self.handle, descriptor, size))

    def pinned_array(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """An array of undefined content in memory that the device copies from and to without the host's help.

        Raises ResourceError if there is no such memory.
        """
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if not size:
            return np.empty(shape, dtype)
        with self._wrap_errors(f"{size} bytes of pinned memory", "", shape):
            buffer = cl.Buffer(self.handle, cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR, size)
            # It stays mapped as long as a reference to the array exists. rusticl ends the process if the reference goes
            # before the map is made.
            array: Array
            map_it = partial(cl.enqueue_map_buffer, self.queue, buffer, READ_WRITE, 0, shape, np.dtype(dtype))
            array, _ = self.watchdog.call(map_it)
        return array

    def _texel_format(self, dtype: npt.DTypeLike, shape: tuple[int, ...], tensor: str) -> cl.ImageFormat:
        info = self.info
        # OpenCL requires the others of every device with images.
        optional = {FLOAT32: info.float_images, FLOAT16: info.half_images, INT8: info.byte_images}
        offered = {name: each for name, each in DTYPES.items() if optional.get(each, True)}
        name = dtype.name if isinstance(dtype, DType) else str(np.dtype(dtype))
        if name not in offered:
            raise ResourceError(f"{info.name} has no RGBA images of {name}", tensor, shape, ", ".join(offered))
        return cl.ImageFormat(cl.channel_order.RGBA, getattr(cl.channel_type, offered[name].channel))

    # Copies

    def upload(self, memory: Memory, array: Array, queue: Queue | None = None, tensor: str = "") -> Event:
        """Enqueues a copy of a contiguous array to a buffer or an image of its size. Raises DeviceError."""
        what = f"tensor {tensor!r}: an upload" if tensor else "an upload"
        return self._copy(memory, memory, array, queue, None, what)

    def upload_part(self, buffer: Buffer, offset: int, array: Array) -> Event:
        """Enqueues a copy of a contiguous array to a buffer, from a byte of it on. Raises DeviceError."""
        if offset + array.nbytes > buffer.size:
            raise ValueError(f"bytes {offset} to {offset + array.nbytes} of a buffer of {buffer.size}")
        self.watchdog.check()
        with self._wrap_errors(f"an upload of {array.nbytes} bytes"):
            copy: Event = cl.enqueue_copy(self.queue, buffer, array, dst_offset=offset, is_blocking=False)
        self._copies.append(copy)
        return copy

    def write(self, memory: Memory, array: Array, tensor: str = "") -> None:
        """Copies an array to a buffer or an image of its size, and waits. Raises DeviceError, ResourceError."""
        self.wait([self.watchdog.call(partial(self.upload, memory, np.ascontiguousarray(array), None, tensor))])

    def download(
        self, array: Array, memory: Memory, queue: Queue | None = None, wait_for: Sequence[Event] | None = None
    ) -> Event:
        """Enqueues a copy of a buffer or an image to a contiguous array of its size. Raises DeviceError."""
        return self._copy(memory, array, memory, queue, wait_for, "a download")

    def read(self, memory: Memory, shape: tuple[int, ...] | None = None, dtype: npt.DTypeLike = np.float32) -> Array:
        """The start of a buffer or an image as an array of this shape and dtype, by default a whole image. Waits.

        Raises DeviceError.
        """
        region = None
        if is_image(memory):
            shape, dtype = shape or image_shape(memory), image_dtype(memory)
            region = (shape[-2], shape[-3], shape[0] if len(shape) == 4 else 1)
        made = np.empty(shape or (), dtype)
        self.wait([self.watchdog.call(partial(self._copy, memory, made, memory, None, None, "a download", region))])
        return made

    def copy(
        self, destination: Memory, source: Memory, to: Texels = ORIGIN, origin: Texels = ORIGIN,
        region: Texels | None = None,
    ) -> Event:
        """Enqueues a copy of memory to other memory of its size, or of texels between images of the same dtype.

        Between an image and a buffer, the texels of the image's region are row by row at the buffer's start. to,
        origin: in the destination and in the source. Raises DeviceError.
        """
        image = next((each for each in (destination, source) if is_image(each)), None)
        extent: dict[str, Any] = {"byte_count": source.size}
        if image is not None:
            region = _whole_region(image) if region is None else region
            extent = {"offset": 0, "origin": to if image is destination else origin, "region": region}
            if is_image(destination) and is_image(source):
                extent = {"src_origin": origin, "dest_origin": to, "region": region}
        what = f"a copy on the device to {_memory_name(destination)}"
        with self._wrap_errors(what), self.acquire_imported(destination, source):
            return cl.enqueue_copy(self.queue, destination, source, **extent)

    def fill(self, memory: Memory, value: float, tensor: str = "") -> None:
        """Enqueues setting each texel or 32-bit word to a float. Raises ResourceError, DeviceError."""
        with self._wrap_errors(_memory_name(memory), tensor):
            if is_image(memory):
                kind = np.uint32 if element_type(memory) in (UNSIGNED_INT8, UINT32) else np.float32
                cl.enqueue_fill_image(self.queue, memory, np.full(4, value, kind), ORIGIN, _whole_region(memory))
            else:
                cl.enqueue_fill_buffer(self.queue, memory, np.float32(value), 0, memory.size - memory.size % 4)

    def _copy(
        self, memory: Memory, destination: Any, source: Any, queue: Queue | None, wait_for: Sequence[Event] | None,
        what: str, region: Texels | None = None,
    ) -> Event:
        """region: of an image, from its first texel on; by default all of it."""
        array, whole, size = source if destination is memory else destination, {}, memory.size
        if is_image(memory):
            region = region or _whole_region(memory)
            whole, size = {"origin": ORIGIN, "region": region}, math.prod(region) * memory.element_size
        if array.nbytes != size if whole else array.nbytes > size:  # pyopencl does not look, and the driver reads on
            raise ValueError(f"{what} of {size} bytes: the array has {array.nbytes}")
        self.watchdog.check()
        with self._wrap_errors(f"{what} of {memory.size} bytes"):
            copy: Event = cl.enqueue_copy(
                queue or self.queue, destination, source, is_blocking=False, wait_for=wait_for, **whole
            )
        self._copies.append(copy)
        return copy

    # Launches

    def enqueue(
        self, kernel: cl.Kernel, global_size: tuple[int, ...], local_size: tuple[int, ...] | None = None
    ) -> Event:
        """Enqueues one launch of a kernel whose arguments are set, and returns without waiting.

        Sizes are in work items; without ``local_size`` the driver chooses. Launches run one after another in the order
        of the calls. Raises ResourceError if the driver has no memory for the launch, DeviceError if it refuses it.
        """
        try:
            return cl.enqueue_nd_range_kernel(self.queue, kernel, global_size, local_size)
        except cl.Error as error:
            raise driver_error(self.info, launch_name((kernel, global_size, local_size)), error) from error

    # Events

    def new_queue(self) -> Queue:
        """A further in-order queue, which records times if the context's own does. Raises DeviceError."""
        with self._wrap_errors("opening a queue"):
            return new_queue(self.handle, self.info, self.profile, self._priority)

    def finish(self, events: Sequence[Event] = ()) -> None:
        """Waits for everything enqueued. Raises ResourceError or DeviceError if something enqueued failed.

        events: of commands whose failure is to be noticed: not every driver's clFinish says so.
        """
        with self._wrap_errors("waiting for the launches"):
            if self.watchdog.waits_directly:
                self.queue.finish()
            elif self.info.kind == "cpu" or not self._ends_soon():
                self.watchdog.call(self.queue.finish)
        self._drop_ended()
        for event in events:
            if event.command_execution_status > cl.command_execution_status.COMPLETE:
                # rusticl's clFinish (22.3) does not wait for commands that another thread has flushed.
                self.wait([event])
        self._check_ended(events)

    def _check_ended(self, events: Sequence[Event]) -> None:
        """Raises ResourceError or DeviceError, with the launch's name, if the command of an event failed."""
        for event in events:
            status = event.command_execution_status
            if status < 0:
                failed = self.watchdog.failed_launch() or "a launch or a copy"
                raise status_error(self.info, failed, status, f"it failed while it ran ({status})")

    def _ends_soon(self) -> bool:
        """Looks at the queue for a moment. Returns whether its commands have ended without an error."""
        marker, end = cl.enqueue_marker(self.queue), perf_counter() + LOOKED_FOR
        self.queue.flush()
        while marker.command_execution_status > cl.command_execution_status.COMPLETE:
            if perf_counter() > end:
                return False
            sleep(0)  # other threads may have work for Python
        return bool(marker.command_execution_status == cl.command_execution_status.COMPLETE)

    def wait(self, events: Sequence[Event]) -> None:
        """Waits for events. Raises ResourceError or DeviceError if the command of one failed."""
        try:
            with self._wrap_errors("waiting for copies or launches"):
                if self.watchdog.waits_directly:
                    cl.wait_for_events(list(events))
                else:
                    self.watchdog.call(partial(cl.wait_for_events, list(events)))
        except DeviceError:
            self._check_ended(events)
            raise
        self._drop_ended()

    def marker(self) -> Event:
        """An event that ends when everything enqueued before it has ended. Raises DeviceError, ResourceError."""
        with self._wrap_errors("waiting for the launches"):
            return cl.enqueue_marker(self.queue)

    def barrier(self, wait_for: Sequence[Event]) -> Event:
        """Makes later commands wait for events of other queues. Raises DeviceError, ResourceError."""
        with self._wrap_errors("waiting for the uploads"):
            return cl.enqueue_barrier(self.queue, wait_for=list(wait_for))

    def is_over(self, events: Sequence[Event]) -> bool:
        """Returns whether the commands of all events have ended, even by an error; True if the driver cannot tell."""
        return is_over(events)

    def ticks(self, events: Sequence[Event]) -> tuple[int, int]:
        """Returns the start of the first of some timed events and the end of the last, in ns of the device's clock."""
        return min(event.profile.start for event in events), max(event.profile.end for event in events)

    def spans(self, events: Iterable[Event]) -> list[tuple[float, float]]:
        """Returns the (start, end) of each launch or copy, in seconds since the first one started. Waits for all.

        Raises DeviceError if not opened with ``profile``.
        """
        if not self.profile:
            raise DeviceError(f"{self.info.name} was opened without profile=True: launches are not timed")
        self.finish()
        # The device's clock counts nanoseconds since some time in the past: too many for the digits of a float.
        ticks = [(event.profile.start, event.profile.end) for event in events]
        first = min((start for start, _ in ticks), default=0)
        return [((start - first) * 1e-9, (end - first) * 1e-9) for start, end in ticks]

    def durations(self, events: Iterable[Event]) -> list[float]:
        """Seconds that each launch took on the device. Raises what `spans` raises."""
        return [end - start for start, end in self.spans(events)]

    # After a failure

    def check(self) -> None:
        """Raises DeviceError if the device was abandoned."""
        self.watchdog.check()

    def wait_for_failed_runs(self) -> None:
        """Waits for what failed runs left on the device."""
        if self.watchdog.in_use:
            self.drain()

    def drain(self, queues: Iterable[Queue] = ()) -> None:
        """Waits for the context's queue and others, even if a command in them failed or the device was abandoned."""
        with suppress(cl.Error, DeviceError):
            self.watchdog.call(self._finish_queues_function(queues))
            self.watchdog.left.clear()
            self.watchdog.in_use.clear()
            self._drop_ended()

    def clean_up_after(self, error: BaseException, used: object = None, queues: Iterable[Queue] = ()) -> None:
        """After one of imgconv's errors waits for the queues; after Ctrl-C leaves that to the next run.

        used: what the commands may still use; it is kept until they are over.
        """
        self.watchdog.in_use.append(used)
        if isinstance(error, Error):
            self.drain(queues)
        else:
            finishing = DriverCall(self._finish_queues_function(queues))
            finishing.abandon_call()
            self.watchdog.left.append(finishing)

    def _finish_queues_function(self, queues: Iterable[Queue]) -> Callable[[], None]:
        return partial(_finish_calls_and_queues, tuple(self.watchdog.left), {self.queue, *queues})

    def _drop_ended(self) -> None:
        """Drops the events of copies and of first launches that are over: to drop one waits for its copy."""
        if self._copies:
            self._copies[:] = [copy for copy in self._copies if not is_over([copy])]
        self.watchdog.drop_ended()

    @contextmanager
    def _wrap_errors(self, what: str, tensor: str = "", shape: tuple[int, ...] = ()) -> Iterator[None]:
        """Raises imgconv's errors in place of pyopencl's."""
        try:
            yield
        except cl.Error as error:
            raise driver_error(self.info, what, error, tensor, shape) from error


def _finish_calls_and_queues(left: Sequence[DriverCall[Any]], queues: Iterable[Queue]) -> None:
    for call in left:
        with suppress(Exception):
            call.result(math.inf)
    for queue in queues:
        with suppress(cl.Error):
            queue.finish()


def is_over(events: Sequence[Event]) -> bool:
    """Returns whether the commands of all events have ended, even by an error; True if the driver cannot tell."""
    try:
        return all(event.command_execution_status <= cl.command_execution_status.COMPLETE for event in events)
    except cl.Error:
        return True


def is_memory(value: object) -> TypeGuard[Memory]:
    """Returns whether a value is an OpenCL buffer or image."""
    return isinstance(value, (cl.Buffer, cl.Image))


def is_image(value: object) -> TypeGuard[Image]:
    """Returns whether a value is an OpenCL image."""
    return isinstance(value, cl.Image)


def image_shape(image: Image) -> tuple[int, ...]:
    """The shape of the image's host array: (height, width, 4), or (layers, height, width, 4)."""
    plain = (image.height, image.width, 4)
    # The type tells: CL_IMAGE_ARRAY_SIZE of a plain image is 0 in OpenCL, but 1 in Mesa's rusticl.
    return (image.array_size, *plain) if image.type == cl.mem_object_type.IMAGE2D_ARRAY else plain


def image_dtype(image: Image) -> np.dtype[Any]:
    """float32, float16, int8 or uint8."""
    return element_type(image).dtype


def element_type(image: Image) -> DType:
    types = {getattr(cl.channel_type, each.channel): each for each in DTYPES.values()}
    return types.get(image.format.channel_data_type, FLOAT32)


def _whole_region(image: Image) -> tuple[int, int, int]:
    return image.width, image.height, max(1, image.array_size)


def _memory_name(memory: Memory) -> str:
    if not is_image(memory):
        return f"a buffer of {memory.size} bytes"
    *layers, height, width, _ = image_shape(memory)
    return f"an image of {'x'.join(map(str, (width, height, *layers)))} texels, {image_dtype(memory)}"


def launch_name(launch: KernelLaunch) -> str:
    """A launch in errors."""
    kernel, global_size, local_size = launch
    return f"{_kernel_label(kernel)}, global size {global_size}, local size {local_size}"


def _kernel_label(kernel: cl.Kernel) -> str:
    label = getattr(kernel, "label", "")
    return f"{label}, kernel {kernel.function_name!r}" if label else f"kernel {kernel.function_name!r}"


def new_queue(handle: cl.Context, info: DeviceInfo, profile: bool, priority: Priority | None) -> Queue:
    """An in-order queue. priority: if the driver takes it. Raises pyopencl's errors."""
    # pyopencl takes more than its types say.
    bits: Any = cl.command_queue_properties.PROFILING_ENABLE if profile else 0
    hints: Any = queue_properties(info.extensions, priority)
    if hints:
        hints[:0] = cl.queue_properties.PROPERTIES, bits
        with suppress(cl.Error):
            return cl.CommandQueue(handle, handle.devices[0], hints)
    return cl.CommandQueue(handle, handle.devices[0], bits)


def forget_context(info: DeviceInfo) -> None:
    """Lets the next `open_device` make a new context for the device."""
    for number, handle in tuple(handles.items()):
        if " ".join(handle.devices[0].name.replace("\0", " ").split()) == info.name:
            handles.pop(number, None)


def driver_error(
    info: DeviceInfo, what: str, error: cl.Error, tensor: str = "", shape: tuple[int, ...] = ()
) -> DeviceError:
    """imgconv's error for one of pyopencl's, see `status_error`."""
    return status_error(info, what, error.code, str(error), tensor, shape)


def status_error(
    info: DeviceInfo, what: str, status: int, said: str, tensor: str = "", shape: tuple[int, ...] = ()
) -> DeviceError:
    """The error for a call of the driver that failed: ResourceError if the device lacks memory, else DeviceError.

    what: it was for. said: the status in words. If the device may be lost, the next `open_device` makes a new context:
    nothing works any more in the old one.
    """
    if status in LOST:
        forget_context(info)
    shortages = (
        cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE,
        cl.status_code.OUT_OF_RESOURCES,
        cl.status_code.OUT_OF_HOST_MEMORY,
        cl.status_code.INVALID_IMAGE_SIZE,
        cl.status_code.INVALID_BUFFER_SIZE,
    )
    if status in shortages:
        limit = f"{info.global_memory_bytes} bytes in all, {info.max_allocation_bytes} in one allocation"
        return ResourceError(f"{what}: {info.name} cannot provide it: {said}; {SHORTAGE_ADVICE}", tensor, shape, limit)
    named = f"tensor {tensor!r}: {what}" if tensor else what
    return DeviceError(f"{named}: {info.name} refused: {said}; {LOST_ADVICE if status in LOST else ADVICE}")
