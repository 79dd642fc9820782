"""Measures how long a plan's launches and copies take on the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy

from imgconv.cl.building.program_source import ProgramSource
from imgconv.runtime.device import Device, Event, KernelLaunch, LaunchSequence
from imgconv.runtime.device_memory import DeviceMemory
from imgconv.runtime.io_binding import IOBinding, Inputs

Span = tuple[float, float]
SOURCE = """
// One work item works on one number, step after step.
__kernel void keep_busy(__global float *number, __global const int *steps) {
  float value = number[0];
  for (int step = 0; step < *steps; step++) value = mad(value, 0.5f, 1.0f);
  number[0] = value;
}
"""
# 46 us on an H200; its driver and pyopencl take 15 us to enqueue a launch with images and an event.
STEPS_OF_LAUNCH = 20000
# Launches are enqueued again, each time after twice as much work, if the host needed longer. Other threads of a process
# that builds programs make it ten times as slow.
ATTEMPTS = 6


@dataclass(frozen=True)
class Timeline:
    """The (start, end) of each copy and launch of one run, in seconds since the first of them started.

    uploads and downloads: of the arrays, by the names of inputs and outputs; launches: in the plan's order.
    """

    uploads: Mapping[str, Span]
    launches: tuple[Span, ...]
    downloads: Mapping[str, Span]

    @property
    def end(self) -> float:
        """The end of the last of them, in seconds."""
        return max((end for _, end in (*self.uploads.values(), *self.launches, *self.downloads.values())), default=0.0)


class QueueFiller:
    """Keeps a GPU busy for longer than the host needs to enqueue launches.

    NVIDIA's driver (580, H200) counts the setup of a launch as part of its time: about 4 us, which vary with the speed
    of the host. If other work runs before, the setup is complete before the launch starts.
    """

    def __init__(self, device: Device) -> None:
        """Raises BuildError, ResourceError or DeviceError."""
        self._device = device
        with device.build_in_background([ProgramSource(SOURCE, "keep_busy")]) as built:
            (self._program,) = built
        self._number = device.buffer(numpy.zeros(1, numpy.float32))
        self._steps_of_launch = STEPS_OF_LAUNCH

    def enqueue_after_work(self, launches: Sequence[KernelLaunch]) -> list[Event]:
        """Enqueues launches while the device is busy: if the work was over before the last one, all once more.

        Raises DeviceError, ResourceError.
        """
        for _ in range(ATTEMPTS):
            work = self.enqueue(len(launches))
            events = [self._device.enqueue(*launch) for launch in launches]
            if not self._device.is_over([work]):
                break
            self._steps_of_launch = min(2 * self._steps_of_launch, STEPS_OF_LAUNCH << ATTEMPTS)
        return events

    def enqueue(self, launches: int) -> Event:
        """Enqueues the work for `launches` launches. Raises DeviceError, ResourceError."""
        steps = self._device.buffer(numpy.array([self._steps_of_launch * launches], numpy.int32))
        launch = self._device.launch(self._program, "keep_busy", [self._number, steps], (1,), (1,))
        return self._device.enqueue(*launch)


class LaunchTimer:
    """Times launches one by one, in a context that was opened with profile=True."""

    def __init__(self, memory: DeviceMemory, sequence: LaunchSequence) -> None:
        self.plan, self.context = memory.plan, memory.context
        self._memory, self._sequence = memory, sequence

    @cached_property
    def _queue_filler(self) -> QueueFiller | None:
        return QueueFiller(self.context) if self.context.info.kind == "gpu" else None

    def seconds(self, launches: Sequence[KernelLaunch]) -> list[float]:
        """Seconds of each launch, run in this order. Raises what `QueueFiller` raises."""
        with self.context.lock:
            if self._queue_filler is not None:
                return self.context.durations(self._queue_filler.enqueue_after_work(launches))
            return self.context.durations([self.context.enqueue(*launch) for launch in launches])

    def timeline(self, inputs: Inputs) -> Timeline:
        """The Timeline of one run. Raises InputError naming the input that does not fit, DeviceError."""
        uploads = self._memory.upload_inputs(inputs)
        launches = [self.context.enqueue(*launch) for launch in self._sequence.launches]
        self.context.finish()
        arrays = IOBinding.to_host(self.plan, self.context, {}).downloads
        downloads = dict(zip(self.plan.output_buffers, self._memory.read(arrays), strict=True))
        found = self.context.spans([*uploads.values(), *launches, *downloads.values()])
        first, last = len(uploads), len(uploads) + len(launches)
        return Timeline(
            dict(zip(uploads, found[:first], strict=True)), tuple(found[first:last]),
            dict(zip(downloads, found[last:], strict=True)),
        )
