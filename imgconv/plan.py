"""The Plan: what will run, in what order, on which virtual textures. Plain data; nothing here touches a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from imgconv.graph import Value
from imgconv.kernels.source import KernelSource
from imgconv.layout import HostBuffer, Texture

Storage = Texture | HostBuffer


@dataclass(frozen=True)
class Launch:
    """One kernel launch. kind: 'pack' (host buffer to texture), 'unpack', 'copy' or 'compute'.

    description: the operation and what is fused into it; specialisation: the template's choices; origin: the ONNX
    nodes it came from; reason: why a launch that only moves elements is there.
    """

    name: str
    kind: str
    source: KernelSource
    description: str
    specialisation: str = ""
    origin: tuple[str, ...] = ()
    multiply_adds: int = 0
    reason: str = ""

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
class Plan:
    """Launches in order; host buffers by input and output name; the content of constant storages; texture slots.

    constant_outputs: the arrays of outputs that depend on no input; the device has no part in them.

    content: host arrays, as stored, of every storage that is uploaded once. slots: for each texture that is written by
    launches, the number of the image that holds it; textures with one slot are never alive together.
    """

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    launches: tuple[Launch, ...]
    input_buffers: Mapping[str, HostBuffer]
    output_buffers: Mapping[str, HostBuffer]
    content: Mapping[Storage, Any]
    slots: Mapping[Texture, int] = field(default_factory=dict)
    constant_outputs: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def textures(self) -> tuple[Texture, ...]:
        """Every texture, constants first."""
        constant = [s for s in self.content if isinstance(s, Texture)]
        return (*constant, *self.slots)

    @property
    def weight_bytes(self) -> int:
        """Bytes of constant textures and buffers."""
        return sum(storage.bytes for storage in self.content)

    @property
    def activation_bytes(self) -> int:
        """Bytes of the images that hold activations, each slot once."""
        return sum({slot: texture.bytes for texture, slot in self.slots.items()}.values())

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the host buffers of inputs and outputs."""
        return sum(b.bytes for b in (*self.input_buffers.values(), *self.output_buffers.values()))

    @property
    def bytes(self) -> int:
        """Everything that is allocated on the device."""
        return self.weight_bytes + self.activation_bytes + self.buffer_bytes

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
            f"{len(set(self.slots.values()))} images, host buffers {self.buffer_bytes / 1e6:.2f} MB"
        )
        return "\n".join(lines)
