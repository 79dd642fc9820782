"""FrameMemory: the memory of one frame's inputs and outputs, on the host and on the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy

from imgconv.arrays import Array
from imgconv.preprocessing.pixels import Pixels
from imgconv.preprocessing.video_frame import PackedFrame
from imgconv.runtime.device import Event, HostBinding, Queue, QueuedDevice
from imgconv.runtime.io_binding import FrameInput, pass_through_outputs, to_output_dtype
from imgconv.runtime.picture_input import FrameLaunches, PictureBinding, PictureLaunches
from imgconv.runtime.session import Session

Ticks = tuple[int, int]


class FrameMemory:
    """The memory of one frame, and the events of its commands.

    bindings: by storage, the device's memory and the host's array for it.
    """

    def __init__(self, session: Session, shared: bool) -> None:
        """shared: use buffers that host and device share, if they share memory. Raises ResourceError."""
        plan = session.plan
        self.session, self.context = session, cast(QueuedDevice, session.context)
        self.sequence, self.bindings = session.new_sequence(shared)
        self.inputs = [(name, self.bindings[place]) for name, place in plan.input_buffers.items()]
        places = {value: plan.output_buffers.get(value.name) for value in plan.outputs}
        self.outputs = [(value, None if place is None else self.bindings[place]) for value, place in places.items()]
        self.plan = plan
        self.moved: dict[str, Array] = {}
        # By input and its width and height; and those whose pictures the frame has.
        self._pictures: dict[tuple[str, tuple[int, int]], PictureBinding] = {}
        self.pictures: list[PictureBinding] = []
        # Every shared buffer is unmapped and mapped again, be it an input or an output.
        self._sent = [p for place, p in self.bindings.items() if p.shares or place in plan.input_buffers.values()]
        self.sent = self._sent
        self.fetched = [p for place, p in self.bindings.items() if p.shares or place in plan.output_buffers.values()]
        self.uploads: list[Event] = []
        self.computing: list[Event] = []
        self.downloads: list[Event] = []

    def fill(self, inputs: Mapping[str, FrameInput]) -> None:
        """Copies checked inputs to the host's side of the bindings, in the stored dtypes. Raises ResourceError."""
        self.pictures, skipped = [], []
        for name, binding in self.inputs:
            given = inputs[name]
            if isinstance(given, (Pixels, PackedFrame)):
                self.pictures.append(self._picture_binding(name, binding, given))
                skipped.append(binding)
            elif name in self.plan.exact_inputs:
                numpy.copyto(binding.array.reshape(given.shape), given, casting="unsafe")
        self.sent = [binding for binding in self._sent if binding.shares or binding not in skipped]
        self.moved = pass_through_outputs(self.plan, inputs)

    def _picture_binding(self, name: str, binding: HostBinding, pixels: Pixels | PackedFrame) -> PictureBinding:
        """The picture's binding, filled."""
        key = name, pixels.size
        found = self._pictures.get(key)
        if found is None or found.bytes < pixels.bytes:
            place = self.plan.input_buffers[name]
            launches: FrameLaunches | PictureLaunches
            if isinstance(pixels, PackedFrame):
                launches = self.session.frame_launches(place, pixels)
            else:
                launches = self.session.picture_launches
            with self.context.lock:
                found = PictureBinding(self.context, launches, binding.memory, pixels)
            self._pictures[key] = found
        found.fill(pixels)
        return found

    def results(self, wanted: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs of a finished frame: in the caller's arrays if it gave some, else as new ones."""
        made: dict[str, Array] = {}
        for value, binding in self.outputs:
            name, given = value.name, wanted.get(value.name)
            if binding is not None:
                found = to_output_dtype(value, binding.array, copy=given is None)
            else:
                found = self.moved[name] if name in self.moved else self.plan.constant_outputs[name].copy()
            if given is not None:
                numpy.copyto(given, found)
            made[name] = found if given is None else given
        return made

    def start(self, uploading: Queue, downloading: Queue) -> None:
        """Enqueues the frame after the earlier ones, its copies on these queues."""
        context = self.context
        context.wait_for_failed_runs()
        apart = uploading is not context.queue
        awaited = apart or context.profile
        sent: list[HostBinding | PictureBinding] = [*self.sent, *self.pictures]
        self.uploads = [event for binding in sent for event in binding.to_device(context, uploading, awaited)]
        self.computing = []
        if apart:
            uploading.flush()
        if awaited:
            self.computing.append(context.barrier(self.uploads))
        for picture in self.pictures:
            picture.enqueue()
        self.sequence.enqueue()
        if awaited:
            self.computing.append(context.marker())
        if apart:
            context.queue.flush()
        computed = self.computing[-1:] if apart else None
        fetched: list[HostBinding | PictureBinding] = [*self.fetched, *self.pictures]
        self.downloads = [e for binding in fetched for e in binding.to_host(context, downloading, awaited, computed)]
        if not awaited:
            # While a host waits for a copy, Intel's CPU driver computes on one core less.
            self.computing.append(context.marker())
        downloading.flush()

    def finish(self) -> None:
        """Waits for the frame. Raises DeviceError, ResourceError."""
        self.context.wait([*self.computing, *self.downloads])

    def is_over(self) -> bool:
        """Returns whether `finish` would return at once."""
        return self.context.is_over([*self.computing, *self.downloads])

    def ticks(self) -> dict[str, Ticks]:
        """Frame.ticks; empty for a queue that records no times."""
        if not self.context.profile:
            return {}
        # The barrier ends with the uploads, the marker with the launches.
        computed = self.context.ticks(self.computing[:1])[1], self.context.ticks(self.computing[1:])[1]
        parts = {"upload": self.uploads, "download": self.downloads}
        return {"compute": computed, **{name: self.context.ticks(events) for name, events in parts.items() if events}}
