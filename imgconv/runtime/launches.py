"""Launching: a plan's launches with their arguments bound, enqueued one by one or replayed by one call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from imgconv.cl.device import Context
from imgconv.cl.image import copy_region, copy_through_host
from imgconv.cl.queue import Launch, bind, enqueue, enqueue_all, enqueue_noted, finish, set_arguments
from imgconv.cl.recording import Recording, distrust, is_trusted, record, trust
from imgconv.cl.transfer import Memory, is_image
from imgconv.compiling.plan import Storage
from imgconv.errors import DeviceError
from imgconv.kernels.layout import Texture
from imgconv.runtime.device_memory import DeviceMemory
from imgconv.runtime.io_binding import ImageCopy
from imgconv.runtime.programs import Programs, called
from imgconv.runtime.work_groups import check_work_groups


# What memory is overwritten with: small, as an index too, and never the result of a layer.
NEVER_COMPUTED = 0.1623


class LaunchSequence:
    """Launches that are bound to the memory of a run's inputs and outputs.

    recording: the launches as a recording of the driver; None if they are enqueued one by one.
    launched: whether they were ever enqueued.
    """

    def __init__(self, context: Context, launches: Sequence[Launch]) -> None:
        self.context, self.launches = context, launches
        self._bound = bind(context, launches)
        self.launched = False
        self.recording = record(context, launches)

    def enqueue(self) -> None:
        """Enqueues every launch. Those of the last call must be over. Raises DeviceError, ResourceError."""
        if not self.launched:
            self.launched = True
            self.context.within(self._enqueue_first)
        elif self.recording is not None:
            self.recording.replay()
        else:
            enqueue_all(self.context, self._bound)

    def _enqueue_first(self) -> None:
        """Enqueues every launch so that one that hangs can be named: a driver may compile a kernel at its launch."""
        if self.recording is not None:
            self.recording.replay()
            return
        for launch in self.launches:
            enqueue_noted(self.context, launch)

    def enqueue_each(self) -> Iterator[int]:
        """Enqueues the launches one by one; yields each one's number. Raises DeviceError, ResourceError."""
        self.launched = True
        for number, launch in enumerate(self._bound):
            enqueue_all(self.context, (launch,))
            yield number


class Launching:
    """The launches of a plan in its own memory, and in further memory of inputs and outputs.

    sequence: those in its own memory.
    """

    def __init__(self, memory: DeviceMemory, programs: Programs) -> None:
        """Binds the arguments, and tests whether the driver replays correctly. Raises DeviceError, WorkGroupError."""
        self.plan, self.context = memory.plan, memory.context
        self._memory, self._programs = memory, programs
        self._launches = [self._bound(number, {}) for number in range(len(self.plan.launches))]
        check_work_groups(self.context, self.plan.launches, self._launches)
        if not is_trusted(self.context.info, len(self._launches)):
            self._compare_replay()
        self.sequence = LaunchSequence(self.context, self._launches)

    def new_sequence(self, memory: Mapping[Storage, Memory]) -> LaunchSequence:
        """A sequence with further memory; launches that do not use it are shared. Raises DeviceError."""
        used = [[argument.storage for argument in launch.source.arguments] for launch in self.plan.launches]
        launches = [
            own if memory.keys().isdisjoint(storages) else self._bound(number, memory)
            for number, (own, storages) in enumerate(zip(self._launches, used, strict=True))
        ]
        return LaunchSequence(self.context, launches)

    def to_one_output(self, numbers: Sequence[int]) -> list[Launch]:
        """These launches, by number, bound anew: those whose outputs are alike all write to the first one's."""
        places = [self.plan.launches[number].writes for number in numbers]
        alike = {p: self._memory[places[0]] for p in places if replace(p, name=places[0].name) == places[0]}
        return [self._bound(number, alike) for number in numbers]

    def enqueue_with(self, instead: Mapping[int, Sequence[ImageCopy]]) -> None:
        """Enqueues the launches. instead: copies in place of some of them, by their numbers."""
        self.sequence.launched = True
        for number, launch in enumerate(self._launches):
            if number in instead:
                for *between, start, begin, size in instead[number]:
                    source, destination = (self._memory[b] if isinstance(b, Texture) else b for b in between)
                    if is_image(source) and is_image(destination):
                        copy_region(self.context, source, destination, start, begin, size)
                    else:
                        copy_through_host(self.context, destination, source)
            else:
                enqueue(self.context, *launch)

    def _bound(self, number: int, memory: Mapping[Storage, Memory]) -> Launch:
        """A launch with its arguments: from `memory` if it has them, else from the plan's own memory."""
        launch = self.plan.launches[number]
        source = launch.source
        kernel = self._programs.new_kernel(source.text)
        kernel.label = f"launch {called(launch)}"
        used = [argument.storage for argument in source.arguments]
        arguments = [memory[place] if place in memory else self._memory[place] for place in used]
        set_arguments(self.context, kernel, arguments)
        return kernel, source.global_size, source.local_size

    def _compare_replay(self) -> None:
        """Replays the launches once, to decide whether this driver's recordings of so many are used."""
        recording = record(self.context, self._launches)
        if recording is None:
            return
        try:
            with self.context.lock:
                equal = self._replays_equally(recording)
            reason = f"a replay through {recording.extension} gave other results"
        except DeviceError as error:
            equal, reason = False, str(error)
        if equal:
            trust(self.context.info, len(self._launches))
        else:
            distrust(self.context.info, reason)

    def _replays_equally(self, recording: Recording) -> bool:
        """Returns whether the launches leave the same values everywhere if they are replayed.

        All memory that they write is overwritten before. So a launch that is lost, or comes too early, is found by the
        values that later ones make of what they read instead, though its own may be overwritten since.
        """
        memory, results = self._memory, []
        for replayed in (False, True):
            memory.overwrite(NEVER_COMPUTED)
            memory.clear_states()
            memory.upload_drawn(0)
            recording.replay() if replayed else enqueue_all(self.context, bind(self.context, self._launches))
            finish(self.context)
            results.append(memory.written_content())
        memory.overwrite(0.0)
        return results[0] == results[1]
