"""Plan: the launches in order, and the virtual textures that they use. Plain data; nothing here uses a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from imgconv.arrays import Array, Arrays
from imgconv.build_options import DRIVERS_DEFAULTS, BuildOptions
from imgconv.config import ACCUMULATORS, Accumulation
from imgconv.dtype import FLOAT16
from imgconv.graph.nodes import Graph, Value
from imgconv.graph.pass_through import WIDE
from imgconv.kernels.conv import problem as conv
from imgconv.kernels.kernel_source import KernelSource
from imgconv.kernels.layout import HostBuffer, ImageDescriptor, Placement, Texture
from imgconv.kernels.separable import problem as separable
from imgconv.kernels.template_interface import Choice, LaunchKind
from imgconv.kernels.winograd import problem as winograd2d

Storage = Texture | HostBuffer


@dataclass(frozen=True)
class Launch:
    """One kernel launch. kind: 'pack' (host buffer to texture), 'unpack', 'copy' or 'compute'.

    description: the operation with its fused work. origin: the ONNX nodes from which the launch was made. reason: for a
    launch that only moves elements, why it is needed. operation: the kind of work: 'depthwise convolution'.
    moved_bytes: the sizes of all values that it reads, each counted once and whole, and of the value that it writes.
    values: the graph's values that it computes; it writes the last one. choice: the chosen specialisation; None in a
    plan that an older version stored. rejected: the choice of another launch that could replace it but is not
    profitable.
    """

    name: str
    kind: LaunchKind
    source: KernelSource
    description: str
    origin: tuple[str, ...] = ()
    multiply_adds: int = 0
    reason: str = ""
    operation: str = ""
    moved_bytes: int = 0
    values: tuple[str, ...] = ()
    choice: Choice | None = None
    rejected: Choice | None = None

    @property
    def sums(self) -> Accumulation | Literal[""]:
        """The width in which the launch's convolutions sum: half, runs or float. Empty for other launches."""
        problem = self.choice and self.choice.problem
        if isinstance(problem, (conv.Problem, separable.Problem, winograd2d.Problem)) and self.values:
            return problem.sums
        return ""

    @property
    def sums_in_half(self) -> bool:
        """Returns whether the launch's convolutions sum in half from end to end."""
        sums = self.sums
        return sums != "" and ACCUMULATORS[sums] == FLOAT16

    @property
    def specialisation(self) -> str:
        """The chosen specialisation as text. Empty for a kernel without free constants."""
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
        text += "  sums in half" if self.sums_in_half else ""
        return text + (f"  because {self.reason}" if self.reason else "")


@dataclass(frozen=True)
class WorkspaceRegion:
    """The part of the workspace that holds an image, in bytes."""

    offset: int
    row_bytes: int
    bytes: int


@dataclass(frozen=True)
class MemoryUse:
    """Bytes on the device: constants, activations, states, buffers of inputs and outputs, and their sum (peak).

    lower_bound: the most bytes of activations that are alive at once. No plan of these launches needs fewer.
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

    input_buffers, output_buffers: by name. A uint8 input is a texture of these bytes if possible.
    content: the arrays to upload once, by storage, as they are stored.
    constant_outputs: the arrays of outputs that depend on no input. No launch computes them.
    placements: where each input and each node's output is stored, by name.
    states: textures that keep their content from run to run.
    slots: the number of the image that holds a texture, from texel (0, 0) on. Textures in the same slot are never alive
    at the same time.
    regions: instead of a slot, the part of the workspace that is the texture's image, if the device allows this.
    most_alive: the most bytes of textures that are alive at once.
    moved: the graph of the integer outputs that the host moves from inputs. None if there are none.
    build_options: those of all its programs, as measured on the device that it is for.
    """

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    launches: tuple[Launch, ...]
    input_buffers: Mapping[str, Storage]
    output_buffers: Mapping[str, HostBuffer]
    content: Mapping[Storage, Array]
    slots: Mapping[Texture, int] = field(default_factory=dict)
    constant_outputs: Arrays = field(default_factory=dict)
    placements: Mapping[str, Placement] = field(default_factory=dict)
    states: tuple[Texture, ...] = ()
    regions: Mapping[Texture, WorkspaceRegion] = field(default_factory=dict)
    most_alive: int = 0
    moved: Graph | None = None
    build_options: BuildOptions = DRIVERS_DEFAULTS

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, values)) for values in (self.inputs, self.outputs))
        return f"<Plan {inputs} -> {outputs}, {len(self.launches)} launches>"

    @cached_property
    def exact_inputs(self) -> frozenset[str]:
        """The names of the inputs that a launch reads. Their integers must be exact as floats."""
        read = {a.storage for launch in self.launches for a in launch.source.arguments}
        return frozenset(name for name, place in self.input_buffers.items() if place in read)

    @cached_property
    def checked_inputs(self) -> tuple[Value, ...]:
        """The members of `exact_inputs` whose numbers a float may not hold."""
        return tuple(v for v in self.inputs if v.name in self.exact_inputs and v.dtype in (*WIDE, "float64"))

    @cached_property
    def textures(self) -> tuple[Texture, ...]:
        """Every texture, those of constants first."""
        constant = [s for s in self.content if isinstance(s, Texture)]
        return (*constant, *self.states, *self.slots, *self.regions)

    @cached_property
    def images(self) -> dict[int, ImageDescriptor]:
        """The smallest image that holds every texture of a slot, by the slot's number."""
        forms: dict[int, ImageDescriptor] = {}
        for texture, slot in self.slots.items():
            forms[slot] = forms.get(slot, texture.descriptor).covering(texture.descriptor)
        return forms

    @cached_property
    def completed_values(self) -> dict[int, str]:
        """The value (an input or a node's output) that is complete after a launch, by the launch's number."""
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
        """Bytes of the workspace, the buffer that holds the regions."""
        return max((region.offset + region.bytes for region in self.regions.values()), default=0)

    @property
    def state_bytes(self) -> int:
        """Bytes of the textures that keep their content from run to run."""
        return sum(texture.bytes for texture in self.states)

    @property
    def activation_bytes(self) -> int:
        """Bytes of the workspace and of the images, each slot counted once."""
        return sum(descriptor.bytes for descriptor in self.images.values()) + self.workspace_bytes

    @property
    def memory(self) -> MemoryUse:
        """The device memory that a session will allocate."""
        return MemoryUse(
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
        """The memory of the activations as text: "one workspace" or "3 images"."""
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
        packing = len(self.launches) - len(self.compute_launches)
        launches = f"{len(self.launches)} launches, {packing} of them to pack inputs and unpack outputs"
        lines = [f"plan: {launches}, {self.multiply_adds / 1e6:.1f} M multiply-adds"]
        lines += [f"  {number:3} {launch}" for number, launch in enumerate(self.launches)]
        lines.append(
            f"  weights {self.weight_bytes / 1e6:.2f} MB, activations {self.activation_bytes / 1e6:.2f} MB in "
            f"{self.activation_places} (at least {self.most_alive / 1e6:.2f} MB are alive at once), host buffers "
            f"{self.buffer_bytes / 1e6:.2f} MB"
        )
        if self.build_options != DRIVERS_DEFAULTS:
            lines.append(f"  built with {self.build_options}")
        return "\n".join(lines)
