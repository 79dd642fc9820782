"""ZeroCopy: launches that read and write a run's arrays in place, without copies."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import addressof, c_char
from itertools import product

import numpy

from imgconv.arrays import Array
from imgconv.compiling.plan import Storage
from imgconv.errors import DeviceError
from imgconv.kernels.layout import HostBuffer
from imgconv.runtime.device import Memory
from imgconv.runtime.device_memory import DeviceMemory
from imgconv.runtime.io_binding import IOBinding
from imgconv.runtime.launches import PlanLaunches


class ZeroCopy:
    """The launches of a plan with kernels of their own for those that read inputs or write outputs.

    places: the inputs and outputs for which they take arrays.
    """

    def __init__(self, memory: DeviceMemory, launching: PlanLaunches) -> None:
        """Makes the kernels. Raises DeviceError."""
        self._memory, plan = memory, memory.plan
        # An input that is an output too is copied: it has one buffer for both.
        bindingd = {*plan.input_buffers.values()} ^ {*plan.output_buffers.values()}
        buffers = [place for place in bindingd if isinstance(place, HostBuffer) and place.bytes]
        own: dict[Storage, Memory] = {place: memory[place] for place in buffers}
        self._sequence = launching.new_sequence(own)
        self.places: dict[Storage, list[Callable[[int], int]]] = {place: [] for place in own}
        self._addresses: dict[Storage, int] = {}  # those that the kernels have
        for launch, bound in zip(plan.launches, self._sequence.launches, strict=True):
            for number, argument in enumerate(launch.source.arguments):
                if argument.storage in own:
                    self.places[argument.storage].append(memory.context.address_setter(bound, number))

    def run(self, binding: IOBinding) -> None:
        """Runs the launches, and waits. Raises DeviceError."""
        memory, uploads, copied = self._memory, binding.uploads, dict(binding.downloads)
        events = []
        for place, array in uploads.items():
            if place in self.places:
                self._set_address(place, array)
            else:
                events.append(memory.upload(place, array))  # dropping an event before its copy is over waits for it
        for place, array in binding.downloads.items():
            if place in self.places:
                self._set_address(place, copied.pop(place))
        self._sequence.enqueue()
        memory.read(copied)

    def _set_address(self, place: Storage, array: Array) -> None:
        """Gives the kernels an array for an input or an output."""
        # array.ctypes takes four times as long. numpy's types do not say that an array is a buffer.
        writeable = array.flags.writeable
        address = addressof(c_char.from_buffer(array)) if writeable else array.ctypes.data  # type: ignore[arg-type]
        if self._addresses.get(place) == address:
            return
        self._addresses.pop(place, None)
        for set_argument in self.places[place]:
            if set_argument(address):
                raise DeviceError(f"{self._memory.context.info.name} refused the address of {place.name!r}")
        self._addresses[place] = address


def can_bind_arrays(launching: PlanLaunches) -> bool:
    """Returns whether the device takes arrays, and its launches are not timed."""
    context = launching.context
    return not context.profile and context.reads_host_memory()


def are_separate_arrays(binding: IOBinding) -> bool:
    """Returns whether a run's inputs and outputs are arrays only, and no output is in the memory of an input."""
    if binding.copies_in or binding.copies_out or binding.instead or binding.frames:
        return False
    given = binding.uploads.values()
    for array in (*given, *binding.downloads.values()):
        if not array.flags.aligned:
            return False
    return not any(numpy.may_share_memory(a, b) for a, b in product(binding.brought.values(), given))
