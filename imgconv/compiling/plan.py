"""The Plan: what will run, in what order, on which virtual textures. Plain data; nothing here touches a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from imgconv.graph.nodes import Graph, Value
from imgconv.kernels.layout import HostBuffer, ImageForm, Placement, Texture
from imgconv.kernels.source import KernelSource
from imgconv.kernels.step import Choice

Storage = Texture | HostBuffer


@dataclass(frozen=True)
class Launch:
    """One kernel launch. kind: 'pack' (host buffer to texture), 'unpack', 'copy' or 'compute'.

    description: the operation and what is fused into it; origin: the ONNX nodes it came from; reason: why a launch
    that only moves elements is there. operation: the sort of work, such as 'depthwise convolution'. moved_bytes: of
    every value that it reads, once and as a whole, and of what it writes. values: those of the graph that it computes,
    the one that it writes last. choice: of a template's launch; declined: of one that would have computed other values
    too, and does not pay.
    """

    name: str
    kind: str
    source: KernelSource
    description: str
    origin: tuple[str, ...] = ()
    multiply_adds: int = 0
    reason: str = ""
    operation: str = ""
    moved_bytes: int = 0
    values: tuple[str, ...] = ()
    choice: Choice | None = None
    declined: Choice | None = None

    @property
    def specialisation(self) -> str:
        """What was chosen of the template, as text; empty for a generated kernel."""
        return str(self.choice.specialisation) if self.choice else ""

    @property
    def reads(self) -> tuple[Storage, ...]:
        return tuple(a.storage for a in self.source.arguments if not a.written)

    @property
    def writes(self) -> Storage:
        return self.source.arguments[0].storage

    def __str__(self) -> str:
        text = f"{self.kind:8} {self.name}: {self.description}"
        text += f"  [{self.specialisation}]" if self.specialisation else ""
        return text + (f"  because {self.reason}" if self.reason else "")


@dataclass(frozen=True)
class Region:
    """Where an image lies in the workspace, in bytes."""

    offset: int
    row_bytes: int
    bytes: int


@dataclass(frozen=True)
class Memory:
    """Bytes on the device: constants, activations, states, the host buffers of inputs and outputs, and all of these.

    lower_bound: the most bytes of activations that are alive at once; no plan of these launches holds fewer.
    """

    weights: int
    activations: int
    states: int
    buffers: int
    peak: int
    lower_bound: int


@dataclass(frozen=True)
class Plan:
    """Launches in order, and everything that they read and write.

    input_buffers, output_buffers: by name; an input of bytes is a texture that takes them as they are, where one can.
    content: host arrays, as stored, of every storage that is uploaded once. constant_outputs: the arrays of outputs
    that depend on no input; the device has no part in them. placements: where each input and each node's output lies
    once it is made. states: textures that keep their content from run to run. slots: for each texture that is written
    by launches, the number of the image that holds it, from its texel (0, 0) on; textures with one slot are never alive
    together. regions: instead of a slot, the part of one buffer that is the texture's image, on devices that can.
    most_alive: bytes of the textures that must be there at once. moved: makes the outputs of integers that only move,
    from inputs, on the host.
    """

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    launches: tuple[Launch, ...]
    input_buffers: Mapping[str, Storage]
    output_buffers: Mapping[str, HostBuffer]
    content: Mapping[Storage, Any]
    slots: Mapping[Texture, int] = field(default_factory=dict)
    constant_outputs: Mapping[str, Any] = field(default_factory=dict)
    placements: Mapping[str, Placement] = field(default_factory=dict)
    states: tuple[Texture, ...] = ()
    regions: Mapping[Texture, Region] = field(default_factory=dict)
    most_alive: int = 0
    moved: Graph | None = None

    @cached_property
    def exact_inputs(self) -> frozenset[str]:
        """The inputs that a launch reads: their integers have to be floats."""
        read = {a.storage for launch in self.launches for a in launch.source.arguments}
        return frozenset(name for name, place in self.input_buffers.items() if place in read)

    @cached_property
    def textures(self) -> tuple[Texture, ...]:
        """Every texture, constants first."""
        constant = [s for s in self.content if isinstance(s, Texture)]
        return (*constant, *self.states, *self.slots, *self.regions)

    @cached_property
    def images(self) -> dict[int, ImageForm]:
        """The least image that takes every texture of a slot, by the slot's number."""
        forms: dict[int, ImageForm] = {}
        for texture, slot in self.slots.items():
            forms[slot] = forms.get(slot, texture.form).around(texture.form)
        return forms

    @cached_property
    def made(self) -> dict[int, str]:
        """The value that is complete after a launch, by the launch's number: an input or a node's output."""
        last: dict[str, int] = {}
        for number, launch in enumerate(self.launches):
            place = self.placements.get(launch.name)
            if place is not None and launch.writes == place.storage:
                last[launch.name] = number
        return {number: name for name, number in last.items()}

    @property
    def weight_bytes(self) -> int:
        """Bytes of constant textures and buffers."""
        return sum(storage.bytes for storage in self.content)

    @property
    def workspace_bytes(self) -> int:
        """Bytes of the buffer that has the regions."""
        return max((region.offset + region.bytes for region in self.regions.values()), default=0)

    @property
    def state_bytes(self) -> int:
        """Bytes of the textures that last from run to run."""
        return sum(texture.bytes for texture in self.states)

    @property
    def activation_bytes(self) -> int:
        """Bytes that hold activations: the workspace, and images, each slot once."""
        return sum(form.bytes for form in self.images.values()) + self.workspace_bytes

    @property
    def memory(self) -> Memory:
        """What a session takes of the device, known before it takes anything."""
        return Memory(
            self.weight_bytes, self.activation_bytes, self.state_bytes, self.buffer_bytes, self.bytes, self.most_alive
        )

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the host buffers of inputs and outputs."""
        return sum(b.bytes for b in (*self.input_buffers.values(), *self.output_buffers.values()))

    @property
    def bytes(self) -> int:
        """Everything that is allocated on the device."""
        return self.weight_bytes + self.activation_bytes + self.state_bytes + self.buffer_bytes

    @property
    def activation_places(self) -> str:
        """What holds the activations, in words."""
        images = f"{len(self.images)} images"
        if not self.regions:
            return images
        return f"one workspace and {images}" if self.slots else "one workspace"

    @property
    def multiply_adds(self) -> int:
        return sum(launch.multiply_adds for launch in self.launches)

    @property
    def compute_launches(self) -> tuple[Launch, ...]:
        """The launches without the packing of inputs and the unpacking of outputs."""
        return tuple(launch for launch in self.launches if launch.kind not in ("pack", "unpack"))

    def __str__(self) -> str:
        lines = [f"plan: {len(self.compute_launches)} launches, {self.multiply_adds / 1e6:.1f} M multiply-adds"]
        lines[0] += f", {len(self.launches) - len(self.compute_launches)} to pack inputs and unpack outputs"
        lines += [f"  {number:3} {launch}" for number, launch in enumerate(self.launches)]
        lines.append(
            f"  weights {self.weight_bytes / 1e6:.2f} MB, activations {self.activation_bytes / 1e6:.2f} MB in "
            f"{self.activation_places} (at least {self.most_alive / 1e6:.2f} MB are alive at once), host buffers "
            f"{self.buffer_bytes / 1e6:.2f} MB"
        )
        return "\n".join(lines)
