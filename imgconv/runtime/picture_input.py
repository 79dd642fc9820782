"""Makes a model's input from pictures of any size, or frames in any memory layout: the launches, and their memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy

from imgconv.arrays import Array
from imgconv.cl.building.program_source import ProgramSource
from imgconv.compiling.plan import Plan, Storage
from imgconv.dtype import FLOAT32
from imgconv.errors import InputError
from imgconv.kernels.layout import HostBuffer
from imgconv.preprocessing.pixels import MIDDLE, Pixels
from imgconv.preprocessing.video_frame import FILE as FRAME_FILE
from imgconv.preprocessing.video_frame import PackedFrame
from imgconv.runtime.device import Device, Event, KernelLaunch, Memory, Queue, QueuedDevice
from imgconv.runtime.host_fallback import HostFallback
from imgconv.runtime.io_binding import FrameInput
from imgconv.stored.frame_table import frame_kernel

FILE = Path(__file__).with_name("picture.cl")
LEAST = 1 << 20  # bytes for a picture: memory that grew little by little would be reallocated often
FRAME_ARGUMENT = 2  # of frame.cl: the frame's bytes
ITEMS = 64  # of a row in the first launch; each goes on until the row is done


def takes_pixels(plan: Plan, fallback: HostFallback | None, name: str) -> bool:
    """Returns whether Pixels can be given for an input: the device alone reads it, as a buffer of float32."""
    place = plan.input_buffers.get(name)
    on_host = {value.name for value in (plan.moved.inputs if plan.moved else ())}
    on_host |= {value.name for value in (fallback.direct if fallback else ())}
    is_read = name in plan.exact_inputs and name not in on_host
    # An input of integers lies in a buffer of floats too.
    is_float = all(value.dtype == "float32" for value in plan.inputs if value.name == name)
    return is_read and is_float and isinstance(place, HostBuffer) and place.dtype == FLOAT32


def check_pixels(plan: Plan, fallback: HostFallback | None, inputs: Mapping[str, FrameInput]) -> None:
    """Raises InputError for Pixels of an input that does not take them."""
    for name, given in inputs.items():
        if isinstance(given, Pixels) and not takes_pixels(plan, fallback, name):
            raise InputError(f"input {name!r} takes no Pixels: it is not float32, or the host reads it; pass an array")


class PictureLaunches:
    """The kernels of runtime/picture.cl on a context, and the memory between the two, which all pictures share."""

    def __init__(self, context: Device) -> None:
        """Raises BuildError, ResourceError."""
        self._context = context
        with context.build_in_background([ProgramSource(FILE.read_text(encoding="utf-8"), FILE.name)]) as built:
            (self._program,) = built
        self._middle = context.buffer(MIDDLE, "a picture")

    def bound(self, packed: Memory, result: Memory, size: tuple[int, int]) -> list[KernelLaunch]:
        """The launches that make an input of this width and height in `result`."""
        launch, program = self._context.launch, self._program
        return [
            launch(program, "picture_rows", [packed, self._middle], (ITEMS, size[1]), None),
            launch(program, "picture_columns", [packed, self._middle, result], size, None),
        ]


class FrameLaunches:
    """The kernel of preprocessing/frame.cl on a context, for one input and frames of one format."""

    def __init__(self, context: Device, place: Storage, frame: PackedFrame) -> None:
        """Raises BuildError."""
        self._context = context
        self._kernel = frame_kernel(frame.format, frame.shape, place)
        source = "#define NAME frame\n" + self._kernel.text
        with context.build_in_background([ProgramSource(source, FRAME_FILE.name)]) as built:
            (self._program,) = built

    def bound(self, packed: Memory, result: Memory, size: tuple[int, int]) -> list[KernelLaunch]:
        """The launch that makes the input in `result`."""
        return [self._context.launch(self._program, "frame", [result, packed, packed], (self._kernel.items,), None)]


class FrameUpload:
    """The device's memory of one frame after another, as large as the largest so far. Nothing is copied on the host."""

    def __init__(self, context: Device, launches: FrameLaunches, result: Memory) -> None:
        self._context, self._launches, self._result = context, launches, result
        self._bytes, self._memory = 0, None
        self._bound: list[KernelLaunch] = []

    def enqueue(self, frame: PackedFrame) -> list[Event]:
        """Enqueues the uploads and the launch; the uploads' events. Raises ResourceError, DeviceError."""
        if self._bytes < frame.bytes:
            self._memory = self._context.buffer(frame.bytes, "a frame")
            self._bytes = frame.bytes
            self._bound = self._launches.bound(self._memory, self._result, frame.size)
        events = [self._context.upload_part(self._memory, start, part) for start, part in frame.parts]
        memory = self._memory if frame.memory is None else frame.memory
        with self._context.acquire_imported(frame.memory):
            for launch in self._bound:
                self._context.set_argument(launch, FRAME_ARGUMENT, memory)
                self._context.enqueue(*launch)
        return events


class PictureBinding:
    """The memory of one frame's picture on host and device, with its launches. bytes: the most that it takes."""

    def __init__(
        self, context: Device, launches: PictureLaunches | FrameLaunches, result: Memory, pixels: Pixels | PackedFrame
    ) -> None:
        """result: the memory of the input. pixels: such as come, half as large or as large. Raises ResourceError."""
        self._context = context
        self.bytes = max(LEAST, 1 << pixels.bytes.bit_length())
        memory = None if context.info.shares_memory else context.buffer(self.bytes, "a picture")
        self._binding = context.staging((self.bytes,), numpy.uint8, memory)
        self._bound = launches.bound(self._binding.memory, result, pixels.size)
        self._source: Array | None = None

    @property
    def shares(self) -> bool:
        """Returns whether host and device use its memory in turn."""
        return bool(self._binding.shares)

    def fill(self, pixels: Pixels | PackedFrame) -> None:
        """Copies a picture to the host's side, unless the device can take it from where it is."""
        if pixels.stays_unchanged and not self.shares:
            (source,) = pixels.parts
            assert isinstance(source, numpy.ndarray)
            self._source = source
            return
        pixels.write(self._binding.array)
        self._source = None if self.shares else self._binding.array[: pixels.bytes]

    def to_device(self, context: QueuedDevice, queue: Queue, awaited: bool) -> list[Event]:
        """Enqueues the copy to the device. Its event, if `awaited`. Raises DeviceError."""
        events: list[Event] = self._binding.to_device(context, queue, awaited, self._source)
        return events

    def to_host(self, context: QueuedDevice, queue: Queue, awaited: bool, computed: list[Event] | None) -> list[Event]:
        """Gives the memory back to the host. Raises DeviceError."""
        return self._binding.to_host(context, queue, awaited, computed) if self.shares else []

    def enqueue(self) -> None:
        """Enqueues the launches. Raises DeviceError."""
        for launch in self._bound:
            self._context.enqueue(*launch)
