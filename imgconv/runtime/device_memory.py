"""DeviceMemory: the images and buffers of a plan, and their contents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy

from imgconv.arrays import Array
from imgconv.compiling.plan import Plan, Storage, WorkspaceRegion
from imgconv.errors import DeviceError, ResourceError
from imgconv.kernels.layout import LANES, HostBuffer, ImageDescriptor, Texture
from imgconv.runtime.device import Device, Event, HostBinding, Memory
from imgconv.runtime.io_binding import IOBinding, Inputs

# Arrays of at least this many bytes are copied by several threads, because one core fills new memory at 10 GB/s.
# Starting the threads takes half a millisecond: on an H200's host, two arrays of 6 MB took 1 ms longer with them.
LARGE_BYTES, COPYING_THREADS = 1 << 24, 4


def copy_array(destination: Array, source: Array) -> None:
    """numpy.copyto for contiguous arrays of the same shape."""
    if destination.nbytes < LARGE_BYTES:
        numpy.copyto(destination, source)
        return
    parts = (numpy.array_split(array.reshape(-1), COPYING_THREADS) for array in (destination, source))
    with ThreadPoolExecutor(COPYING_THREADS) as pool:
        list(pool.map(numpy.copyto, *parts))


class DeviceMemory:
    """The memory of a plan: `memory[storage]` is an image, or a buffer for a linear texture and a HostBuffer.

    images: by slot, what textures share in turn. workspace: the buffer whose parts are all activations, or None.
    """

    def __init__(self, plan: Plan, context: Device, share_with: Sequence[DeviceMemory] = ()) -> None:
        """Allocates all memory and uploads the constants. Raises ResourceError, DeviceError.

        share_with: memory of the same device. Equal constants are shared. So is the memory of activations, because the
        runs of a device take turns.
        """
        self.plan, self.context = plan, context
        self.images: dict[int, tuple[ImageDescriptor, Memory]] = {}
        self.workspace: Memory | None = None
        self._memory: dict[Storage, Memory] = {}
        self._pinned: dict[Storage, Array] = {}
        try:
            self._allocate(share_with)
        except ResourceError as error:
            has = f"{context.info.name} has {context.info.global_memory_bytes} bytes; the model needs {plan.bytes}"
            raise ResourceError(f"{error.message}; {has}", error.tensor, error.shape, error.limit) from error

    def __getitem__(self, storage: Storage) -> Memory:
        return self._memory[storage]

    def __contains__(self, storage: object) -> bool:
        return storage in self._memory

    # Content

    def upload(self, place: Storage, array: Array) -> Event:
        """Enqueues the upload of an input. The contiguous array may change once the event is over or dropped."""
        if not self.context.info.shares_memory:
            pinned = self._pinned_for(place)
            copy_array(pinned, array.reshape(pinned.shape))
            array = pinned
        return self.context.upload(self[place], array)

    def upload_inputs(self, inputs: Inputs) -> dict[str, Event]:
        """Fills every input, and waits; the copies' events by name. Raises InputError naming one that does not fit."""
        given = IOBinding.bind(self.plan, self.context, inputs, {}).uploads
        places = {name: place for name, place in self.plan.input_buffers.items() if place in given}
        events = {name: self.upload(place, given[place]) for name, place in places.items()}
        self.context.finish()
        return events

    def upload_random_inputs(self) -> None:
        """Fills every input with drawn zeros and ones, which are valid indices too."""
        random = numpy.random.default_rng(0)
        for value in self.plan.inputs:
            place = self.plan.input_buffers[value.name]
            drawn = random.random(place.shape)
            array = (drawn if value.dtype.startswith("float") else drawn > 0.5).astype(place.dtype)
            self.context.write(self[place], array, place.name)

    def read(self, arrays: Mapping[Storage, Array]) -> list[Event]:
        """Fills arrays from their storages, and waits; the copies' events. Raises DeviceError."""
        through = arrays if self.context.info.shares_memory else {place: self._pinned_for(place) for place in arrays}
        events = [self.context.download(array, self[place]) for place, array in through.items()]
        self.context.finish(events)
        for place, array in arrays.items():
            if through[place] is not array:
                copy_array(array, through[place])
        return events

    def content(self, storage: Storage) -> Array:
        """The content of a buffer, or the texels of a texture: of one with a quantization, the numbers."""
        if isinstance(storage, HostBuffer):
            return self.context.read(self[storage], storage.shape, storage.dtype)
        tiling = storage.tiling
        width, height = (tiling.width, tiling.height) if tiling.linear else tiling.image_size
        layers = () if tiling.layers == 1 else (tiling.layers,)
        texels = self.context.read(self[storage], (*layers, height, width, LANES), storage.dtype)
        return storage.quantization.decode(texels) if storage.quantization else texels

    def value(self, name: str) -> Array:
        """The array of a value that is in memory now, float32 or float16 as it is stored."""
        place = self.plan.placements[name]
        storage, axis = place.storage, place.layout.packed
        if isinstance(storage, HostBuffer):
            return self.content(storage)
        texels = storage.tiling.from_image(self.content(storage))
        array: Array = storage.layout.unpack(texels, storage.shape)
        if axis is None:
            return array
        channels = slice(place.channel_offset, place.channel_offset + place.shape[axis])
        return array[(slice(None),) * axis + (channels,)]

    def replace(self, constant: Storage, content: Array) -> None:
        """Other content for a constant, of the same descriptor. Sessions that share it have it too."""
        self.context.write(self[constant], numpy.ascontiguousarray(content), constant.name)

    def clear_states(self) -> None:
        """Sets every state to zero."""
        for texture in self.plan.states:
            self.context.fill(self[texture], 0.0, texture.name)

    def _pinned_for(self, place: Storage) -> Array:
        """Pinned memory of the host for an input or an output; the device copies while the host goes on."""
        if place not in self._pinned:
            self._pinned[place] = self.context.pinned_array(place.shape, place.dtype)
        return self._pinned[place]

    # Allocation

    def new_bindings(self, shared: bool) -> dict[Storage, HostBinding]:
        """Further memory for every input and output, with the host's side.

        shared: use buffers that host and device share, if they share memory. Raises ResourceError.
        """
        shared = shared and self.context.info.shares_memory
        places = (*self.plan.input_buffers.values(), *self.plan.output_buffers.values())
        return {place: self._binding(place, shared) for place in places}

    def _binding(self, place: Storage, shared: bool) -> HostBinding:
        if shared and isinstance(place, HostBuffer) and place.bytes:
            return self.context.staging(place.shape, place.dtype)
        return self.context.staging(place.shape, place.dtype, self._allocate_io(place))

    def _allocate(self, share_with: Sequence[DeviceMemory]) -> None:
        plan, memory = self.plan, self._memory
        memory |= {texture: self._new_image(texture.descriptor, texture.name) for texture in plan.states}
        for storage, content in plan.content.items():
            shared = next((m for each in share_with if (m := each._find_constant(storage, content)) is not None), None)
            memory[storage] = shared if shared is not None else self._upload_constant(storage, content)
        self.images = self._slot_images(share_with)
        memory |= {texture: self.images[slot][1] for texture, slot in plan.slots.items()}
        if plan.regions:
            self.workspace = self._find_workspace(share_with)
            for texture, region in plan.regions.items():
                memory[texture] = self._texture_in_workspace(self.workspace, texture, region)
        for place in (*plan.input_buffers.values(), *plan.output_buffers.values()):
            memory[place] = self._allocate_io(place)

    def _find_constant(self, storage: Storage, content: Array) -> Memory | None:
        """The memory of a constant that is equal in name, descriptor and content; None if there is none."""
        own = self.plan.content.get(storage)
        if own is None or own.shape != content.shape or own.dtype != content.dtype:
            return None
        return self[storage] if numpy.array_equal(own, content) else None

    def _upload_constant(self, storage: Storage, content: Array) -> Memory:
        if isinstance(storage, HostBuffer):
            return self.context.buffer(content, storage.name)
        memory = self._new_image(storage.descriptor, storage.name)
        self.context.write(memory, numpy.ascontiguousarray(content), storage.name)
        return memory

    def _slot_images(self, share_with: Sequence[DeviceMemory]) -> dict[int, tuple[ImageDescriptor, Memory]]:
        """The image of each slot: the smallest one to share that holds all its textures, else a new one."""
        # They may share images among themselves: each image is offered once.
        offered = {id(image[1]): image for each in share_with for image in each.images.values()}
        images: dict[int, tuple[ImageDescriptor, Memory]] = {}
        for slot, descriptor in sorted(self.plan.images.items(), key=lambda pair: -pair[1].bytes):
            textures = [texture for texture, number in self.plan.slots.items() if number == slot]
            fitting = [(own.bytes, key) for key, (own, _) in offered.items() if _holds(own, textures)]
            if fitting:
                images[slot] = offered.pop(min(fitting)[1])
                continue
            images[slot] = descriptor, self._zeroed_image(descriptor, textures[0].name)
        return images

    def _find_workspace(self, share_with: Sequence[DeviceMemory]) -> Memory:
        """A workspace to share if one is large enough, else a new one."""
        needed = self.plan.workspace_bytes
        for each in share_with:
            if each.workspace is not None and each.workspace.size >= needed:
                return each.workspace
        return self._fill_with_zeros(self.context.buffer(needed, "the workspace"), "the workspace")

    def _allocate_io(self, place: Storage) -> Memory:
        """Memory for an input or an output."""
        if isinstance(place, Texture):
            return self._new_image(place.descriptor, place.name)
        return self.context.buffer(max(place.bytes, 4), place.name)

    def _texture_in_workspace(self, workspace: Memory, texture: Texture, region: WorkspaceRegion) -> Memory:
        """The memory of a texture in the workspace, or an image of its own if the driver refuses one in a buffer."""
        if texture.tiling.linear:
            return self.context.sub_buffer(workspace, region.offset, region.bytes, texture.name)
        size, name = texture.tiling.image_size, texture.name
        try:
            return self.context.image_from_buffer(
                workspace, region.offset, region.row_bytes, *size, texture.dtype, name
            )
        except DeviceError:
            return self._zeroed_image(texture.descriptor, name)

    def _zeroed_image(self, descriptor: ImageDescriptor, tensor: str) -> Memory:
        """New memory of activations."""
        return self._fill_with_zeros(self._new_image(descriptor, tensor), tensor)

    def _fill_with_zeros(self, memory: Memory, tensor: str) -> Memory:
        """The memory, filled with zeros: a driver that allocates late fails here."""
        self.context.fill(memory, 0.0, tensor)
        self.context.finish()
        return memory

    def _new_image(self, descriptor: ImageDescriptor, tensor: str) -> Memory:
        if descriptor.linear:
            return self.context.buffer(descriptor.bytes, tensor)
        layers = descriptor.layers if descriptor.layers > 1 else 0
        return self.context.image(descriptor.width, descriptor.height, layers, descriptor.dtype, tensor)


def _holds(descriptor: ImageDescriptor, textures: Sequence[Texture]) -> bool:
    """Returns whether memory of this descriptor can hold other textures."""
    if descriptor.linear:
        return all(texture.tiling.linear and texture.bytes <= descriptor.bytes for texture in textures)
    return all(map(descriptor.holds, textures))
