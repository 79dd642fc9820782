"""Session: a Plan bound to a device. Upload, enqueue, download."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy

from imgconv.cl.busy import Busy
from imgconv.cl.device import Context
from imgconv.cl.ending import driver_use
from imgconv.cl.image import allocate, allocate_buffer, copy_region, create_buffer, create_image, create_image_in
from imgconv.cl.image import download, download_buffer, fill, upload
from imgconv.cl.program import Functions, Part, binary, build_all
from imgconv.cl.queue import bind, durations, enqueue, enqueue_all, finish, spans
from imgconv.cl.queue import Launch as BoundLaunch
from imgconv.cl.recording import Recording, distrust, is_trusted, record, trust
from imgconv.cl.transfer import (
    Port, SharedPort, StagedPort, enqueue_copy, enqueue_download, enqueue_upload, finish_queue, pinned_array,
)
from imgconv.errors import DeviceError, ResourceError
from imgconv.exchange import Exchange, ImageCopy, image_form
from imgconv.kernels.source import COMMON
from imgconv.layout import HostBuffer, ImageForm, Texture
from imgconv.plan import Plan, Storage

Progress = Callable[[int, int, str], None]
Span = tuple[float, float]
KERNELS_IN_A_PROGRAM = 16
LAUNCHES_COMPARED = 4


@dataclass(frozen=True)
class Timeline:
    """When the device did what in one run: (start, end), in seconds since the first of them started.

    uploads and downloads: of the arrays, by the names of inputs and outputs; launches: in the plan's order.
    """

    uploads: Mapping[str, Span]
    launches: tuple[Span, ...]
    downloads: Mapping[str, Span]

    @property
    def end(self) -> float:
        """When the last of them ended."""
        return max((end for _, end in (*self.uploads.values(), *self.launches, *self.downloads.values())), default=0.0)


class Lane:
    """The memory of a run's inputs and outputs, and the launches that are bound to it.

    recording: the launches in the driver's own form; None if they are enqueued one by one.
    launched: whether they ever were.
    """

    def __init__(self, context: Context, memory: Mapping[Storage, Any], launches: Sequence[BoundLaunch]) -> None:
        self.context, self.memory, self.launches = context, memory, launches
        self._bound = bind(context, launches)
        self.launched = False
        self.recording = record(context, launches)

    def enqueue(self) -> None:
        """Enqueues every launch. The last time must be over. Raises DeviceError, ResourceError."""
        self.launched = True
        if self.recording is not None:
            self.recording.replay()
        else:
            enqueue_all(self.context, self._bound)


class Session:
    """A plan with its images, its programs and its arguments bound; `run` only uploads, enqueues and downloads."""

    def __init__(
        self, plan: Plan, context: Context, progress: Progress | None = None, lenders: Sequence[Session] = (),
        binaries: Sequence[bytes] = (),
    ) -> None:
        """Builds every kernel and uploads every constant. Raises BuildError, ResourceError, DeviceError.

        progress: called with (kernels built, kernels in all, what comes next). lenders: sessions of the same context;
        a constant that one of them holds is shared with it, and so are kernels and the memory of activations, for the
        runs of a context take turns. binaries: what `binaries` gave for this plan, device and driver.
        """
        self.plan = plan
        self.context = context
        with driver_use:
            self._make(progress or (lambda done, total, what: None), lenders, binaries)

    def _make(self, progress: Progress, lenders: Sequence[Session], binaries: Sequence[bytes]) -> None:
        plan, context = self.plan, self.context
        try:
            self._memory = self._allocate(lenders)
        except ResourceError as error:
            has = f"{context.info.name} has {context.info.global_memory_bytes} bytes, the plan takes {plan.bytes}"
            raise ResourceError(f"{error.message}; {has}", error.tensor, error.shape, error.limit) from error
        self._lent = {text: kernel for each in lenders for text, kernel in each.kernels.items()} if not binaries else {}
        self.kernels: dict[str, tuple[Any, str]] = self._build(progress, binaries)
        self._functions = Functions(context)
        self._launches = self._bind(self._memory)
        if not is_trusted(context.info):
            self._compare_replay()
        self.lane = Lane(context, self._memory, self._launches)
        self._pinned: dict[Storage, Any] = {}
        self._moved: dict[str, Any] = {}

    def run(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Every output by name for an array, an OpenCL buffer or an image for every input.

        outputs: where to put some of them, as Model.run says; the others are new arrays. Threads take turns. Raises
        InputError naming the input or output that does not fit, and DeviceError.
        """
        exchange = Exchange.of(self.plan, self.context, inputs, outputs or {})
        with driver_use, self.context.lock:
            try:
                self._run(exchange)
            except BaseException:
                # What was enqueued is over before the launches are enqueued again.
                finish_queue(self.context.queue)
                raise
        return exchange.results()

    def _run(self, exchange: Exchange) -> None:
        context, memory, self._moved = self.context, self._memory, exchange.moved
        # An event that is dropped before its copy is over waits for it.
        events = [
            enqueue_upload(context, memory[place], self._pinned_copy(place, array))
            for place, array in exchange.uploads.items()
        ]
        events += [enqueue_copy(context, memory[place], given) for place, given in exchange.copies_in.items()]
        if exchange.instead:
            self._enqueue_with(exchange.instead)
        else:
            self.lane.enqueue()
        events += [enqueue_copy(context, given, memory[place]) for place, given in exchange.copies_out.items()]
        self._read(exchange.downloads)

    def _enqueue_with(self, instead: Mapping[int, Sequence[ImageCopy]]) -> None:
        """Enqueues the launches, but copies in place of some of them, by their numbers."""
        self.lane.launched = True
        for number, launch in enumerate(self.lane.launches):
            if number in instead:
                for *between, start, begin, size in instead[number]:
                    source, destination = (self._memory[b] if b in self._memory else b for b in between)
                    copy_region(self.context, source, destination, start, begin, size)
            else:
                enqueue(self.context, *launch)

    def _pinned_copy(self, place: Storage, array: Any) -> Any:
        """What is uploaded for an array: the array itself where the device shares the host's memory."""
        if self.context.info.shares_memory:
            return array
        pinned = self._pinned_for(place)
        numpy.copyto(pinned, array.reshape(pinned.shape))
        return pinned

    def _pinned_for(self, place: Storage) -> Any:
        """The memory of the host that the device copies an input from, or an output to, while the host goes on."""
        if place not in self._pinned:
            self._pinned[place] = pinned_array(self.context, place.shape, place.dtype)
        return self._pinned[place]

    def new_lane(self, shared: bool) -> tuple[Lane, dict[Storage, Port]]:
        """Further memory for inputs and outputs, bound to launches that share everything else, and the host's side.

        shared: take buffers that host and device share, where they share memory. Raises ResourceError.
        """
        shared = shared and self.context.info.shares_memory
        places = (*self.plan.input_buffers.values(), *self.plan.output_buffers.values())
        with driver_use, self.context.lock:
            ports = {place: self._port(place, shared) for place in places}
            memory = {place: port.memory for place, port in ports.items()}
            return Lane(self.context, memory, self._bind(memory)), ports

    def _port(self, place: Storage, shared: bool) -> Port:
        if shared and isinstance(place, HostBuffer) and place.bytes:
            return SharedPort(self.context, place.shape, place.dtype)
        return StagedPort(self.context, self._exchanged(place), place.shape, place.dtype)

    def _bind(self, memory: Mapping[Storage, Any]) -> list[BoundLaunch]:
        """The launches; those that touch nothing of a further lane's memory are the session's own."""
        used = [[argument.storage for argument in launch.source.arguments] for launch in self.plan.launches]
        return [
            self._bound(number, memory) if memory is self._memory or not memory.keys().isdisjoint(storages)
            else self._launches[number]
            for number, storages in enumerate(used)
        ]

    def _bound(self, number: int, memory: Mapping[Storage, Any]) -> BoundLaunch:
        """A launch with its arguments: this memory, and where it has none the session's own."""
        source = self.plan.launches[number].source
        bound = self._functions.take(*self.kernels[source.text])
        used = [argument.storage for argument in source.arguments]
        bound.set_args(*(memory[place] if place in memory else self._memory[place] for place in used))
        return bound, source.global_size, source.local_size

    def to_one_output(self, numbers: Sequence[int]) -> list[BoundLaunch]:
        """These launches, by number, bound anew: where their outputs are alike, all write to the first one's."""
        places = [self.plan.launches[number].writes for number in numbers]
        alike = {p: self._memory[places[0]] for p in places if replace(p, name=places[0].name) == places[0]}
        return [self._bound(number, alike) for number in numbers]

    def _compare_replay(self) -> None:
        """Settles whether this driver's recordings are used: by a replay of the first launches."""
        first = self._launches[:LAUNCHES_COMPARED]
        recording = record(self.context, first)
        if recording is None:
            return
        try:
            equal = self._replays_equally(first, recording)
            reason = f"a replay through {recording.extension} gave other results"
        except DeviceError as error:
            equal, reason = False, str(error)
        if equal:
            trust(self.context.info)
        else:
            distrust(self.context.info, reason)

    def _replays_equally(self, first: Sequence[BoundLaunch], recording: Recording) -> bool:
        """Whether launches write the same when they are replayed."""
        written = self.plan.launches[len(first) - 1].writes
        results: list[bytes] = []
        for seed, replayed in ((0, False), (1, False), (0, True)):
            self._upload_drawn(seed)
            recording.replay() if replayed else enqueue_all(self.context, bind(self.context, first))
            results.append(self._content(written).tobytes())
            self.clear_states()
        # The run between leaves its own content for a replay that does nothing.
        return results[0] == results[2]

    def _upload_drawn(self, seed: int) -> None:
        """Small numbers for every input: zeros and ones are right for indices too."""
        random = numpy.random.default_rng(seed)
        for value in self.plan.inputs:
            place = self.plan.input_buffers[value.name]
            drawn = random.random(place.shape)
            array = (drawn if value.dtype.startswith("float") else drawn > 0.5).astype(place.dtype)
            enqueue_upload(self.context, self._memory[place], array).wait()

    def _read(self, arrays: Mapping[Storage, Any]) -> list[Any]:
        """Fills arrays from where they lie, and waits; the events."""
        through = arrays if self.context.info.shares_memory else {place: self._pinned_for(place) for place in arrays}
        events = [enqueue_download(self.context, array, self._memory[place]) for place, array in through.items()]
        finish(self.context)
        for place, array in arrays.items():
            if through[place] is not array:
                numpy.copyto(array, through[place])
        return events

    def _content(self, storage: Storage) -> Any:
        """What lies in a texture or a buffer."""
        if isinstance(storage, HostBuffer):
            return download_buffer(self.context, self._memory[storage], storage.shape, storage.dtype)
        return download(self.context, self._memory[storage], (*storage.tiling.image_size, storage.tiling.layers))

    def outputs(self) -> dict[str, Any]:
        """Every output of the last run by name, as new arrays."""
        exchange = Exchange.to_host(self.plan, self.context, {}, self._moved)
        self._read(exchange.downloads)
        return exchange.results()

    def clear_states(self) -> None:
        """Sets every state to zero."""
        for texture in self.plan.states:
            fill(self.context, self._memory[texture], (0.0, 0.0, 0.0, 0.0))

    def lend(self, storage: Storage, content: Any) -> Any:
        """The memory of a constant that is equal in name, form and content; None where this session has none."""
        own = self.plan.content.get(storage)
        if own is None or own.shape != content.shape or own.dtype != content.dtype:
            return None
        return self._memory[storage] if numpy.array_equal(own, content) else None

    def steps(self, inputs: Mapping[str, Any]) -> Iterator[str]:
        """`run` with a pause after each value that a launch completes: gives its name, for `value` and `round_to_half`.

        `outputs` has the outputs after the last step. Raises InputError naming the input that does not fit.
        """
        self._upload_inputs(inputs)
        for number, launch in enumerate(self._launches):
            enqueue(self.context, *launch)
            if number in self.plan.made:
                yield self.plan.made[number]
        finish(self.context)

    def value(self, name: str) -> Any:
        """The array of the value that the last step completed, float32 or float16 as it is stored."""
        place = self.plan.placements[name]
        storage, axis = place.storage, place.layout.packed
        if isinstance(storage, HostBuffer):
            return self._content(storage)
        texels = storage.tiling.gather(self._content(storage))
        array = storage.layout.unpack(texels, storage.shape)
        if axis is None:
            return array
        return array.take(range(place.channel_offset, place.channel_offset + place.shape[axis]), axis)

    def round_to_half(self, name: str) -> None:
        """Rounds the float texture of the value that the last step completed, as if it were half; buffers stay."""
        storage = self.plan.placements[name].storage
        if isinstance(storage, Texture) and storage.dtype == "float32":
            with numpy.errstate(over="ignore"):
                rounded = download(self.context, self._memory[storage]).astype(numpy.float16)
            upload(self.context, self._memory[storage], rounded.astype(numpy.float32))

    @cached_property
    def _busy(self) -> Busy | None:
        return Busy(self.context) if self.context.info.kind == "gpu" else None

    def keep_busy(self, launches: int) -> None:
        """Keeps a GPU at work until so many launches that are to be timed are enqueued. Raises as `Busy` does."""
        if self._busy is not None:
            self._busy.enqueue(launches)

    def launch_seconds(self) -> list[float]:
        """Seconds that each launch takes on the device, in the plan's order, with the inputs of the last run.

        Raises DeviceError where the context was not opened with profile=True.
        """
        self.keep_busy(len(self._launches))
        return durations(self.context, [enqueue(self.context, *launch) for launch in self._launches])

    def timeline(self, inputs: Mapping[str, Any]) -> Timeline:
        """When the device did what in one run. Raises InputError naming the input that does not fit.

        Raises DeviceError where the context was not opened with profile=True.
        """
        uploads = self._upload_inputs(inputs)
        launches = [enqueue(self.context, *launch) for launch in self._launches]
        finish(self.context)
        arrays = Exchange.to_host(self.plan, self.context, {}).downloads
        downloads = dict(zip(self.plan.output_buffers, self._read(arrays), strict=True))
        found = spans(self.context, [*uploads.values(), *launches, *downloads.values()])
        first, last = len(uploads), len(uploads) + len(launches)
        return Timeline(
            dict(zip(uploads, found[:first], strict=True)), tuple(found[first:last]),
            dict(zip(downloads, found[last:], strict=True)),
        )

    def _upload_inputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Uploads every input; the event of each by name."""
        exchange = Exchange.of(self.plan, self.context, inputs, {})
        uploads, self._moved = exchange.uploads, exchange.moved
        events = {
            name: enqueue_upload(self.context, self._memory[place], self._pinned_copy(place, uploads[place]))
            for name, place in self.plan.input_buffers.items()
        }
        finish(self.context)
        return events

    def _allocate(self, lenders: Sequence[Session]) -> dict[Storage, Any]:
        """The device memory of every storage; constants that no lender has are uploaded here."""
        memory: dict[Storage, Any] = {t: self._image(t.form, t.name) for t in self.plan.states}
        for storage, content in self.plan.content.items():
            lent = next((m for each in lenders if (m := each.lend(storage, content)) is not None), None)
            if lent is not None:
                memory[storage] = lent
            elif isinstance(storage, HostBuffer):
                memory[storage] = create_buffer(self.context, content, storage.name)
            else:
                memory[storage] = self._image(storage.form, storage.name)
                upload(self.context, memory[storage], content if storage.tiling.layers > 1 else content[0])
        self.images = self._slot_images(lenders)
        memory |= {texture: self.images[slot] for texture, slot in self.plan.slots.items()}
        self.workspace: Any = None
        if self.plan.regions:
            self.workspace = self._find_workspace(lenders)
        for texture, region in self.plan.regions.items():
            memory[texture] = create_image_in(
                self.context, self.workspace, region.offset, region.row_bytes, *texture.tiling.image_size,
                texture.dtype, texture.name,
            )
        for buffer in (*self.plan.input_buffers.values(), *self.plan.output_buffers.values()):
            memory[buffer] = self._exchanged(buffer)
        return memory

    def _slot_images(self, lenders: Sequence[Session]) -> dict[int, Any]:
        """The image of each slot: the least of the lenders' that holds all of its textures, else a new one."""
        # Lenders may share images among themselves: each image is offered once.
        offered = {id(image): image for each in lenders for image in each.images.values()}
        images: dict[int, Any] = {}
        for slot, form in sorted(self.plan.images.items(), key=lambda pair: -pair[1].bytes):
            textures = [texture for texture, number in self.plan.slots.items() if number == slot]
            fitting = [i for i in offered.values() if all(map(image_form(i).holds, textures))]
            if fitting:
                images[slot] = offered.pop(id(min(fitting, key=lambda i: image_form(i).bytes)))
                continue
            images[slot] = self._image(form, textures[0].name)
            allocate(self.context, images[slot], textures[0].name)
        return images

    def _find_workspace(self, lenders: Sequence[Session]) -> Any:
        """A lender's buffer where one is large enough, else a new one."""
        needed = self.plan.workspace_bytes
        offered = [each.workspace for each in lenders if each.workspace is not None and each.workspace.size >= needed]
        if offered:
            return offered[0]
        workspace = create_buffer(self.context, needed, "the workspace")
        allocate_buffer(self.context, workspace, "the workspace")
        return workspace

    def _exchanged(self, place: Storage) -> Any:
        """Memory for an input or an output."""
        if isinstance(place, Texture):
            return self._image(place.form, place.name)
        return create_buffer(self.context, max(place.bytes, 4), place.name)

    def _image(self, form: ImageForm, tensor: str) -> Any:
        layers = form.layers if form.layers > 1 else 0
        return create_image(self.context, form.width, form.height, layers, form.dtype, tensor)

    def binaries(self) -> tuple[bytes, ...]:
        """The driver's programs, in the order in which they are built. Runs once where it has not run."""
        if not self._lent.keys().isdisjoint(self.kernels):
            return Session(self.plan, self.context).binaries()
        if not self.lane.launched:
            self._launch_once()
        return tuple(map(binary, self._programs))

    def _launch_once(self) -> None:
        """Drivers may compile a kernel when it is launched first (PoCL does), and have machine code from then on."""
        with driver_use, self.context.lock:
            self._upload_drawn(0)
            self.lane.enqueue()
            finish(self.context)
            self.clear_states()

    def _build(self, progress: Progress, binaries: Sequence[bytes]) -> dict[str, tuple[Any, str]]:
        """Program and kernel name of every distinct kernel text; several texts make one program."""
        common = COMMON.read_text(encoding="utf-8")
        texts = {launch.source.text: launch.source.path for launch in self.plan.launches}
        names = {text: f"k{number}" for number, text in enumerate(texts)}
        kernels: dict[str, tuple[Any, str]] = {text: self._lent[text] for text in texts if text in self._lent}
        waiting = [text for text in texts if text not in kernels]
        batches = [waiting[at : at + KERNELS_IN_A_PROGRAM] for at in range(0, len(waiting), KERNELS_IN_A_PROGRAM)]
        parts = []
        for number, batch in enumerate(batches):
            source = common + "".join(f"#define NAME {names[text]}\n{text}#undef NAME\n" for text in batch)
            paths = ", ".join(sorted({texts[text] for text in batch}))
            parts.append(Part(source, paths, binaries[number] if number < len(binaries) else None))
        progress(0, len(waiting), "compiling kernels")
        self._programs = []
        for batch, program in zip(batches, build_all(self.context, parts)):
            self._programs.append(program)
            kernels |= {text: (program, names[text]) for text in batch}
            progress(len(kernels), len(texts), "compiling kernels")
        progress(len(waiting), len(waiting), "ready")
        return kernels
