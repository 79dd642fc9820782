"""Device: the interface that a Session needs from a device. imgconv/cl/opencl_device.py implements it with OpenCL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from threading import Lock
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from imgconv.arrays import Array
from imgconv.cl.building.program_source import ProgramSource
from imgconv.cl.device_info import DeviceInfo
from imgconv.cl.watchdog import Watchdog

# A device's own objects, which nothing but its methods looks into.
Memory = Any
Program = Any
KernelLaunch = Any
Event = Any
Queue = Any
HostBinding = Any  # see imgconv/cl/staging.py


class LaunchSequence(Protocol):
    """Launches that are enqueued together again and again. launched: whether they ever were."""

    launches: Sequence[KernelLaunch]
    launched: bool

    def enqueue(self) -> None:
        """Enqueues every launch. Raises DeviceError, ResourceError."""

    def enqueue_each(self) -> Iterator[int]:
        """Enqueues the launches one by one. Yields each one's number. Raises DeviceError, ResourceError."""


class Device(Protocol):
    """The interface to an opened device with one in-order queue.

    profile: whether it records when each launch and copy starts and ends. lock: held by the thread that enqueues a run.
    tensor: a name for errors. Methods raise DeviceError if the device reports an error, ResourceError if it lacks
    memory.
    """

    info: DeviceInfo
    profile: bool
    lock: Lock

    # Memory

    def buffer(self, content: int | Array, tensor: str = "") -> Memory:
        """A buffer of this many bytes, or with the content of an array."""

    def image(self, width: int, height: int, layers: int, dtype: npt.DTypeLike, tensor: str = "") -> Memory:
        """An image of RGBA texels; with two layers or more an array of images."""

    def sub_buffer(self, buffer: Memory, offset: int, size: int, tensor: str = "") -> Memory:
        """A buffer that is a part of another."""

    def image_from_buffer(
        self, buffer: Memory, offset: int, row_bytes: int, width: int, height: int, dtype: npt.DTypeLike,
        tensor: str = "",
    ) -> Memory:
        """An image that is a part of a buffer."""

    def owns(self, memory: Memory) -> bool:
        """Returns whether a caller's memory can be used on this device."""

    def acquire_imported(self, *memory: Memory | None) -> AbstractContextManager[None]:
        """Makes memory of others the device's for the commands that are enqueued inside."""

    def pinned_array(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """An array of the host from which the device copies without the host's help."""

    def staging(self, shape: tuple[int, ...], dtype: npt.DTypeLike, memory: Memory | None = None) -> HostBinding:
        """A host's array for memory of the device; without `memory`, a buffer that host and device share."""

    # Copies; those that write and read wait.

    def upload(self, memory: Memory, array: Array) -> Event:
        """Enqueues a copy of a contiguous array."""

    def upload_part(self, buffer: Memory, offset: int, array: Array) -> Event:
        """Enqueues a copy of a contiguous array to a buffer, from a byte of it on."""

    def download(self, array: Array, memory: Memory) -> Event:
        """Enqueues a copy to a contiguous array."""

    def write(self, memory: Memory, array: Array, tensor: str = "") -> None:
        """Copies an array to memory of its size."""

    def read(self, memory: Memory, shape: tuple[int, ...] | None = None, dtype: npt.DTypeLike = np.float32) -> Array:
        """The start of a buffer as an array of this shape and dtype, or an image's texels."""

    def copy(
        self, destination: Memory, source: Memory, to: tuple[int, ...] = ..., origin: tuple[int, ...] = ...,
        region: tuple[int, ...] | None = None,
    ) -> Event:
        """Enqueues a copy of memory, or of a region of texels."""

    def fill(self, memory: Memory, value: float, tensor: str = "") -> None:
        """Enqueues setting each texel or 32-bit word to a float."""

    # Programs and launches

    def best_program_count(self, kernels: int) -> int:
        """Returns the number of programs that minimises the time to build this many kernels."""

    def build_in_background(self, parts: Sequence[ProgramSource]) -> AbstractContextManager[Iterator[Program]]:
        """Builds programs in the background of the block. Yields each as soon as it is built. Raises BuildError."""

    def binary(self, program: Program) -> bytes:
        """The device's own form of a program; empty if it has none."""

    def launch(
        self, program: Program, name: str, arguments: Sequence[Memory], global_size: tuple[int, ...],
        local_size: tuple[int, ...] | None, label: str = "",
    ) -> KernelLaunch:
        """A launch of a kernel by name, with its arguments. label: names it in errors."""

    def reads_host_memory(self) -> bool:
        """Returns whether kernels can take the address of an array of the host."""

    def address_setter(self, launch: KernelLaunch, number: int) -> Callable[[int], int]:
        """A function that sets a launch's argument to an address in the host's memory, and returns a status."""

    def set_argument(self, launch: KernelLaunch, number: int, memory: Memory) -> None:
        """Gives a launch another argument, by its number from 0."""

    def max_work_group_size(self, launch: KernelLaunch) -> int:
        """The most work items of a group that the launch's kernel may have."""

    def enqueue(self, *launch: Any) -> Event:
        """Enqueues one launch."""

    def sequence(self, launches: Sequence[KernelLaunch]) -> LaunchSequence:
        """Launches that are enqueued together again and again."""

    # Waits

    def finish(self, events: Sequence[Event] = ()) -> None:
        """Waits for everything enqueued. Raises DeviceError if it failed, which some drivers say by the events only."""

    def is_over(self, events: Sequence[Event]) -> bool:
        """Returns whether the commands of all events have ended, even by an error."""

    def spans(self, events: Iterable[Event]) -> list[tuple[float, float]]:
        """Returns the (start, end) of each launch or copy, in seconds since the first one started. Waits for all."""

    def durations(self, events: Iterable[Event]) -> list[float]:
        """Seconds that each launch took. Waits for all."""

    def check(self) -> None:
        """Raises DeviceError if the device was abandoned because it hung."""

    def clean_up_after(self, error: BaseException, used: object = None) -> None:
        """After a failed run makes sure that nothing which the commands may still use is released or used again."""

    def wait_for_failed_runs(self) -> None:
        """Waits for what a failed run left on the device."""


class QueuedDevice(Device, Protocol):
    """A Device with further queues, for frames in flight. queue: its own."""

    queue: Queue
    watchdog: Watchdog

    def new_queue(self) -> Queue:
        """A further in-order queue."""

    def barrier(self, wait_for: Sequence[Event]) -> Event:
        """Makes later commands wait for events of other queues."""

    def marker(self) -> Event:
        """An event that ends when everything enqueued before it has ended."""

    def wait(self, events: Sequence[Event]) -> None:
        """Waits for events."""

    def ticks(self, events: Sequence[Event]) -> tuple[int, int]:
        """Returns the start of the first of some timed events and the end of the last one, in nanoseconds."""

    def clean_up_after(self, error: BaseException, used: object = None, queues: Iterable[Queue] = ()) -> None:
        """Does the same as in Device, for further queues too."""
