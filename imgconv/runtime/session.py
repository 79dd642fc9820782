"""Session: a Plan bound to a device. Uploads, enqueues, downloads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from imgconv.arrays import Array
from imgconv.cl.shutdown import shutdown_guard
from imgconv.compiling.plan import Plan, Storage
from imgconv.preprocessing.video_frame import PackedFrame
from imgconv.runtime.device import Device, Event, HostBinding, KernelLaunch, LaunchSequence
from imgconv.runtime.device_memory import DeviceMemory
from imgconv.runtime.io_binding import IOBinding, Inputs, Outputs, pass_through_outputs
from imgconv.runtime.zero_copy import ZeroCopy, are_separate_arrays, can_bind_arrays
from imgconv.runtime.launches import PlanLaunches
from imgconv.runtime.measuring import LaunchTimer, Timeline
from imgconv.runtime.picture_input import FrameLaunches, FrameUpload, PictureLaunches
from imgconv.runtime.programs import PlanPrograms, ProgressCallback


class Session:
    """A plan with memory, programs and arguments bound, so that `run` only uploads, enqueues and downloads.

    memory: its images and buffers. programs: its kernels. sequence: its launches.
    """

    def __init__(
        self, plan: Plan, context: Device, progress: ProgressCallback | None = None, share_with: Sequence[Session] = (),
        binaries: Sequence[bytes] = (),
    ) -> None:
        """Builds every kernel and uploads every constant. Raises BuildError, ResourceError, DeviceError.

        progress: called with (kernels built, kernels in all, the next kernel). share_with: sessions of the same
        device, whose weights, memory and kernels are shared, see DeviceMemory. binaries: see PlanPrograms.
        """
        self.plan, self.context = plan, context
        context.check()
        with shutdown_guard:
            shared = [] if binaries else [each.programs for each in share_with]
            self.programs: PlanPrograms = PlanPrograms(plan, context, shared)
            with self.programs.build_in_background(progress, binaries):
                self.memory: DeviceMemory = DeviceMemory(plan, context, [each.memory for each in share_with])
            self._launching = PlanLaunches(self.memory, self.programs)
            self.sequence = self._launching.sequence
            self._measuring = LaunchTimer(self.memory, self.sequence)
            self._binds_arrays = can_bind_arrays(self._launching)
        self._moved: dict[str, Array] = {}
        self._frame_launches: dict[Storage, FrameLaunches] = {}
        self._frame_uploads: dict[Storage, FrameUpload] = {}

    def run(self, inputs: Inputs, outputs: Outputs | None = None) -> dict[str, Any]:
        """Returns every output by name. inputs: an array, an OpenCL buffer or an image for every input.

        outputs: an array, buffer or image to fill for some of them, see Model.run; the others are new arrays. Threads
        take turns. Raises InputError naming the input or output that does not fit, and DeviceError.
        """
        binding = IOBinding.bind(self.plan, self.context, inputs, outputs or {})
        with shutdown_guard, self.context.lock:
            self.context.wait_for_failed_runs()
            try:
                self._run(binding)
            except BaseException as error:
                # The commands must be over before the launches are enqueued again.
                self.context.clean_up_after(error, binding)
                raise
        return binding.results()

    @cached_property
    def _zero_copy(self) -> ZeroCopy:
        return ZeroCopy(self.memory, self._launching)

    def _run(self, binding: IOBinding) -> None:
        self._moved = binding.moved
        self.context.check()
        if self._binds_arrays and are_separate_arrays(binding):
            self._zero_copy.run(binding)
            return
        context, memory = self.context, self.memory
        # Dropping an event before its copy is over waits for the copy.
        events = [memory.upload(place, array) for place, array in binding.uploads.items()]
        events += [context.copy(memory[place], given) for place, given in binding.copies_in.items()]
        events += [event for place, frame in binding.frames.items() for event in self.read_frame(place, frame)]
        if binding.instead:
            self._launching.enqueue_with(binding.instead)
        else:
            self.sequence.enqueue()
        events += [context.copy(given, memory[place]) for place, given in binding.copies_out.items()]
        memory.read(binding.downloads)

    def read_frame(self, place: Storage, frame: PackedFrame) -> list[Event]:
        """Enqueues the launches that turn a frame into an input; returns the events of the uploads."""
        if place not in self._frame_uploads:
            launches = self.frame_launches(place, frame)
            self._frame_uploads[place] = FrameUpload(self.context, launches, self.memory[place])
        return self._frame_uploads[place].enqueue(frame)

    def outputs(self) -> dict[str, Array]:
        """Every output of the last run by name, as new arrays."""
        binding = IOBinding.to_host(self.plan, self.context, {}, self._moved)
        self.memory.read(binding.downloads)
        return binding.results()

    def clear_states(self) -> None:
        """Sets every state to zero."""
        self.memory.clear_states()

    def new_sequence(self, shared: bool) -> tuple[LaunchSequence, dict[Storage, HostBinding]]:
        """Makes another set of buffers for inputs and outputs, on device and host; everything else is shared.

        shared: use buffers that host and device share, if they share memory. Raises ResourceError.
        """
        self.context.check()  # drivers wait for what hangs when they allocate, or load a program
        with shutdown_guard, self.context.lock:
            bindings = self.memory.new_bindings(shared)
            memory = {place: binding.memory for place, binding in bindings.items()}
            return self._launching.new_sequence(memory), bindings

    @cached_property
    def picture_launches(self) -> PictureLaunches:
        """The launches that make an input of a picture of any size, see Pixels. Raises BuildError, ResourceError."""
        with shutdown_guard, self.context.lock:
            return PictureLaunches(self.context)

    def frame_launches(self, place: Storage, frame: PackedFrame) -> FrameLaunches:
        """The launches that make an input of a frame in memory of any layout. Raises BuildError."""
        if place not in self._frame_launches:
            self._frame_launches[place] = FrameLaunches(self.context, place, frame)
        return self._frame_launches[place]

    # Looking at single values

    def steps(self, inputs: Inputs) -> Iterator[str]:
        """Runs launch by launch: yields the name of each completed value, for `value`.

        After the last step `outputs` gives the outputs. Raises InputError naming the input that does not fit.
        """
        for number in self.numbered_steps(inputs):
            if number in self.plan.completed_values:
                yield self.plan.completed_values[number]

    def numbered_steps(self, inputs: Inputs) -> Iterator[int]:
        """Does what `steps` does, and yields the number of each launch."""
        self._moved = pass_through_outputs(self.plan, inputs)
        self.memory.upload_inputs(inputs)
        yield from self.sequence.enqueue_each()
        self.context.finish()

    def value(self, name: str) -> Array:
        """The array of the value that the last step completed, float32 or float16 as it is stored."""
        return self.memory.value(name)

    # Measuring, in a context that was opened with profile=True

    def seconds_of(self, launches: Sequence[KernelLaunch]) -> list[float]:
        """Seconds that each of these launches takes on the device, run in this order. Raises DeviceError."""
        return self._measuring.seconds(launches)

    def launch_seconds(self) -> list[float]:
        """Seconds that each launch takes on the device, in the plan's order, with the inputs of the last run.

        Raises DeviceError if the context was not opened with profile=True.
        """
        return self.seconds_of(self.sequence.launches)

    def timeline(self, inputs: Inputs) -> Timeline:
        """The Timeline of one run. Raises InputError naming the input that does not fit.

        Raises DeviceError if the context was not opened with profile=True.
        """
        return self._measuring.timeline(inputs)

    def share_output_buffer(self, numbers: Sequence[int]) -> list[KernelLaunch]:
        """Rebinds these launches, given by number, so that all with the same output form write to one buffer."""
        return self._launching.share_output_buffer(numbers)

    # The driver's programs

    def binaries(self) -> tuple[bytes, ...]:
        """Returns the driver's programs, in the order of their builds. Runs once if nothing has run."""
        if self.programs.are_shared:
            return Session(self.plan, self.context).binaries()
        if not self.sequence.launched:
            self._launch_once()
        return self.programs.binaries()

    def _launch_once(self) -> None:
        """Launches everything once: a driver may compile a kernel at its first launch, as PoCL does."""
        with shutdown_guard, self.context.lock:
            self.memory.upload_random_inputs()
            self.sequence.enqueue()
            self.context.finish()
            self.clear_states()
