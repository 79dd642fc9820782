"""Launches of a plan with their arguments, in the plan's memory and in additional memory for inputs and outputs.

If a kernel needs many registers, a driver may allow smaller work groups for it than the device's maximum:

    plan for the device -> build -> query each kernel -> too many items: plan again for a device with smaller groups
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from imgconv.cl.context import image_dtype, image_shape, is_image
from imgconv.compiling.plan import Storage
from imgconv.errors import ResourceError
from imgconv.kernels.layout import Texture
from imgconv.runtime.device import KernelLaunch, LaunchSequence, Memory
from imgconv.runtime.device_memory import DeviceMemory
from imgconv.runtime.io_binding import ImageCopy
from imgconv.runtime.programs import PlanPrograms, launch_text


class WorkGroupError(ResourceError):
    """A kernel has more work items in a group than the driver allows for it: `most`."""

    def __init__(self, message: str, tensor: str, most: int) -> None:
        super().__init__(message, tensor)
        self.most = most
        self.args = (message, tensor, most)


class PlanLaunches:
    """The launches of a plan in its own memory, and in further memory of inputs and outputs.

    sequence: those in its own memory.
    """

    def __init__(self, memory: DeviceMemory, programs: PlanPrograms) -> None:
        """Binds the arguments. Raises DeviceError, WorkGroupError."""
        self.plan, self.context = memory.plan, memory.context
        self._memory, self._programs = memory, programs
        self._launches = [self._bind_launch(number, {}) for number in range(len(self.plan.launches))]
        self._check_work_groups()
        self.sequence = self.context.sequence(self._launches)

    def new_sequence(self, memory: Mapping[Storage, Memory]) -> LaunchSequence:
        """A sequence with further memory; launches that do not use it are shared. Raises DeviceError."""
        used = [[argument.storage for argument in launch.source.arguments] for launch in self.plan.launches]
        launches = [
            own if memory.keys().isdisjoint(storages) else self._bind_launch(number, memory)
            for number, (own, storages) in enumerate(zip(self._launches, used, strict=True))
        ]
        return self.context.sequence(launches)

    def share_output_buffer(self, numbers: Sequence[int]) -> list[KernelLaunch]:
        """Rebinds these launches, given by number, so that all with the same form of output write to one buffer."""
        places = [self.plan.launches[number].writes for number in numbers]
        alike = {p: self._memory[places[0]] for p in places if replace(p, name=places[0].name) == places[0]}
        return [self._bind_launch(number, alike) for number in numbers]

    def enqueue_with(self, instead: Mapping[int, Sequence[ImageCopy]]) -> None:
        """Enqueues the launches. instead: copies in place of some of them, by their numbers."""
        self.sequence.launched = True
        for number, launch in enumerate(self._launches):
            if number in instead:
                for *between, start, begin, size in instead[number]:
                    source, destination = (self._memory[b] if isinstance(b, Texture) else b for b in between)
                    if is_image(source) and is_image(destination):
                        self.context.copy(destination, source, begin, start, size)
                    else:  # PoCL (3.1) crashes in copies between an image and a part of a buffer
                        self._copy_through_host(destination, source)
            else:
                self.context.enqueue(*launch)

    def _copy_through_host(self, destination: Memory, source: Memory) -> None:
        """Copies all texels between an image and a buffer of them, row by row. Waits."""
        image = destination if is_image(destination) else source
        self.context.write(destination, self.context.read(source, image_shape(image), image_dtype(image)))

    def _bind_launch(self, number: int, memory: Mapping[Storage, Memory]) -> KernelLaunch:
        """A launch with its arguments: from `memory` if it has them, else from the plan's own memory."""
        launch = self.plan.launches[number]
        source = launch.source
        used = [argument.storage for argument in source.arguments]
        arguments = [memory[place] if place in memory else self._memory[place] for place in used]
        program, name = self._programs.kernels[source.text]
        sizes = source.global_size, source.local_size
        return self.context.launch(program, name, arguments, *sizes, f"launch {launch_text(launch)}")

    def _check_work_groups(self) -> None:
        """Raises WorkGroupError for the launch whose kernel allows the fewest work items, if any has more than that."""
        sources = {launch.source.text: (launch, bound) for launch, bound in zip(self.plan.launches, self._launches)}
        found = [
            (most, items, launch) for launch, bound in sources.values()
            if (items := prod(launch.source.local_size or ())) > 1
            and items > (most := self.context.max_work_group_size(bound))
        ]
        if found:
            most, items, launch = min(found, key=lambda each: each[0])
            raise WorkGroupError(
                f"the kernel ({launch.source.path}) has work groups of {items} work items, and "
                f"{self.context.info.name} allows {most} for it", launch.name, most,
            )
