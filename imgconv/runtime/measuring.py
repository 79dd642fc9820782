"""Measuring: how long a plan's launches and copies take on the device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from imgconv.cl.busy import Busy
from imgconv.cl.queue import durations, enqueue, finish, spans
from imgconv.runtime.device_memory import DeviceMemory
from imgconv.runtime.io_binding import Exchange, Inputs
from imgconv.runtime.launches import LaunchSequence

Span = tuple[float, float]


@dataclass(frozen=True)
class Timeline:
    """When each copy and launch of one run ran: (start, end), in seconds since the first of them started.

    uploads and downloads: of the arrays, by the names of inputs and outputs; launches: in the plan's order.
    """

    uploads: Mapping[str, Span]
    launches: tuple[Span, ...]
    downloads: Mapping[str, Span]

    @property
    def end(self) -> float:
        """When the last of them ended."""
        return max((end for _, end in (*self.uploads.values(), *self.launches, *self.downloads.values())), default=0.0)


class Measuring:
    """Times launches one by one, in a context that was opened with profile=True."""

    def __init__(self, memory: DeviceMemory, sequence: LaunchSequence) -> None:
        self.plan, self.context = memory.plan, memory.context
        self._memory, self._sequence = memory, sequence

    @cached_property
    def _busy(self) -> Busy | None:
        return Busy(self.context) if self.context.info.kind == "gpu" else None

    def keep_busy(self, launches: int) -> None:
        """Keeps a GPU at work while `launches` launches to be timed are enqueued. Raises what `Busy` raises."""
        if self._busy is not None:
            self._busy.enqueue(launches)

    def launch_seconds(self) -> list[float]:
        """Seconds of each launch, in the plan's order, with the inputs of the last run. Raises DeviceError."""
        self.keep_busy(len(self._sequence.launches))
        return durations(self.context, [enqueue(self.context, *launch) for launch in self._sequence.launches])

    def timeline(self, inputs: Inputs) -> Timeline:
        """The Timeline of one run. Raises InputError naming the input that does not fit, DeviceError."""
        uploads = self._memory.upload_inputs(inputs)
        launches = [enqueue(self.context, *launch) for launch in self._sequence.launches]
        finish(self.context)
        arrays = Exchange.to_host(self.plan, self.context, {}).downloads
        downloads = dict(zip(self.plan.output_buffers, self._memory.read(arrays), strict=True))
        found = spans(self.context, [*uploads.values(), *launches, *downloads.values()])
        first, last = len(uploads), len(uploads) + len(launches)
        return Timeline(
            dict(zip(uploads, found[:first], strict=True)), tuple(found[first:last]),
            dict(zip(downloads, found[last:], strict=True)),
        )
