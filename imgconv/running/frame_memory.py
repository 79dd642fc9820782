"""FrameMemory: the memory of one frame's inputs and outputs, on the host and on the device."""

from __future__ import annotations

from collections.abc import Mapping

import numpy

from imgconv.arrays import Array
from imgconv.cl.queue import Event, enqueue_barrier, enqueue_marker, is_over, span, wait
from imgconv.cl.transfer import Queue
from imgconv.running.exchange import converted, moved_outputs
from imgconv.running.session import Session

Ticks = tuple[int, int]


class FrameMemory:
    """The memory of one frame, and the events of its commands.

    ports: by storage, the device's memory and the host's array for it.
    """

    def __init__(self, session: Session, shared: bool) -> None:
        """shared: use buffers that host and device share, if they share memory. Raises ResourceError."""
        plan = session.plan
        self.context = session.context
        self.sequence, self.ports = session.new_sequence(shared)
        self.inputs = [(name, self.ports[place]) for name, place in plan.input_buffers.items()]
        places = {value: plan.output_buffers.get(value.name) for value in plan.outputs}
        self.outputs = [(value, None if place is None else self.ports[place]) for value, place in places.items()]
        self.plan = plan
        self.moved: dict[str, Array] = {}
        # Every shared buffer is unmapped and mapped again, be it an input or an output.
        self.sent = [p for place, p in self.ports.items() if p.shares or place in plan.input_buffers.values()]
        self.fetched = [p for place, p in self.ports.items() if p.shares or place in plan.output_buffers.values()]
        self.uploads: list[Event] = []
        self.computing: list[Event] = []
        self.downloads: list[Event] = []

    def fill(self, arrays: Mapping[str, Array]) -> None:
        """Copies checked inputs to the host's side of the ports, in the stored dtypes."""
        for name, port in self.inputs:
            if name not in self.plan.exact_inputs:
                continue
            array = arrays[name]
            numpy.copyto(port.array.reshape(array.shape), array, casting="unsafe")
        self.moved = moved_outputs(self.plan, arrays)

    def results(self) -> dict[str, Array]:
        """The outputs of a finished frame, as new arrays."""
        made = {v.name: converted(v, port.array, copy=True) for v, port in self.outputs if port is not None}
        constants = {name: array.copy() for name, array in self.plan.constant_outputs.items()}
        made |= self.moved | constants
        return {value.name: made[value.name] for value, _ in self.outputs}

    def start(self, uploading: Queue, downloading: Queue) -> None:
        """Enqueues the frame after the earlier ones, its copies on these queues."""
        context = self.context
        apart = uploading is not context.queue
        awaited = apart or context.profile
        self.uploads = [event for port in self.sent for event in port.to_device(context, uploading, awaited)]
        self.computing = []
        if apart:
            uploading.flush()
        if awaited:
            self.computing.append(enqueue_barrier(context, self.uploads))
        self.sequence.enqueue()
        if awaited:
            self.computing.append(enqueue_marker(context))
        if apart:
            context.queue.flush()
        computed = self.computing[-1:] if apart else None
        self.downloads = [e for port in self.fetched for e in port.to_host(context, downloading, awaited, computed)]
        if not awaited:
            # While a host waits for a copy, Intel's CPU driver computes on one core less.
            self.computing.append(enqueue_marker(context))
        downloading.flush()

    def finish(self) -> None:
        """Waits for the frame. Raises DeviceError, ResourceError."""
        wait(self.context, [*self.computing, *self.downloads])

    def is_over(self) -> bool:
        """Whether `finish` would return at once."""
        return is_over([*self.computing, *self.downloads])

    def ticks(self) -> dict[str, Ticks]:
        """Frame.ticks; empty for a queue that records no times."""
        if not self.context.profile:
            return {}
        # The barrier ends with the uploads, the marker with the launches.
        computed = span(self.computing[:1])[1], span(self.computing[1:])[1]
        parts = {"upload": self.uploads, "download": self.downloads}
        return {"compute": computed, **{name: span(events) for name, events in parts.items() if events}}
