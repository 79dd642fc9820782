"""Converts chosen steps to launches: kernel sources, their arguments, and the constant arrays that they read."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod

from imgconv.arrays import Array
from imgconv.compiling.choose import ChosenStep
from imgconv.compiling.place import PlacedGraph
from imgconv.compiling.plan import Launch, Storage
from imgconv.config import Config
from imgconv.dtype import FLOAT32
from imgconv.errors import ResourceError
from imgconv.graph.expression import MathMode
from imgconv.kernels.kernel_source import KernelSource
from imgconv.kernels.layout import Placement, Texture
from imgconv.kernels.target import Target
from imgconv.kernels.template_interface import AnyLaunchStep, PackedConstant


@dataclass(frozen=True, eq=False)
class WeightPacking:
    """The way from constant weights to the content of a storage: `transform`, then `pack`.

    pack: moves numbers and adds zeros; of any array of the shape of `numbers`.
    """

    source: Array
    pack: Callable[[Array], Array]
    transform: Callable[[Array], Array] = lambda source: source

    @property
    def numbers(self) -> Array:
        """The numbers that `pack` gets."""
        return self.transform(self.source)


class ConstantContent(Mapping[Storage, Array]):
    """The arrays to upload, by storage. Each is made at its first use: drivers compile the kernels meanwhile."""

    def __init__(self, makers: Mapping[Storage, WeightPacking]) -> None:
        self._makers = makers
        self._made: dict[Storage, Array] = {}

    def __getitem__(self, storage: Storage) -> Array:
        if storage not in self._made:
            packing = self._makers[storage]
            self._made[storage] = packing.pack(packing.numbers)
        return self._made[storage]

    def packing(self, storage: Storage) -> WeightPacking:
        """The packing that makes the content of a storage."""
        return self._makers[storage]

    def __contains__(self, storage: object) -> bool:
        return storage in self._makers

    def __iter__(self) -> Iterator[Storage]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


@dataclass
class LaunchEmitter:
    """Converts steps to launches. For templates it is an imgconv.kernels.template_interface.EmittingContext.

    exact: values whose kernels use no native functions.
    """

    placed: PlacedGraph
    config: Config
    target: Target
    exact: frozenset[str] = frozenset()
    storages: dict[Hashable, Storage] = field(default_factory=dict)
    waiting: dict[Storage, PackedConstant] = field(default_factory=dict)

    def math_mode_of(self, output: Placement) -> MathMode:
        """The math mode of a kernel that writes there. A value that is rounded to half may lose a NaN."""
        if self.config.native_explog:
            return "native"
        if self.config.storage == FLOAT32:
            return "exact"
        if not self.target.native_functions:
            return "of numbers"
        return "kept in float" if output.storage.name in self.placed.kept_in_float else "to halves"

    def packed(self, name: str, weights: PackedConstant) -> Storage:
        """The storage of packed weights. What `content` gives packs them at their first use."""
        if weights.key not in self.storages:
            storage = weights.storage(name, self.target.image_limits)
            self.storages[weights.key], self.waiting[storage] = storage, weights
        return self.storages[weights.key]

    def content(self, launches: Iterable[Launch]) -> ConstantContent:
        """The arrays to upload, by storage: the packed weights and constants that the launches read."""
        makers: dict[Storage, WeightPacking] = {}
        for storage in dict.fromkeys(storage for launch in launches for storage in launch.reads):
            if storage in self.waiting:
                weights = self.waiting[storage]
                makers[storage] = WeightPacking(weights.source, partial(weights.content, storage), weights.transform)
            elif isinstance(storage, Texture) and storage in self.placed.known:
                makers[storage] = WeightPacking(self.placed.known[storage], partial(_constant_texels, storage))
        return ConstantContent(makers)

    def launch(self, chosen: ChosenStep) -> Launch:
        """The launch of a step with its choice."""
        step = chosen.step
        emitting = self
        if not self.exact.isdisjoint(step.values):
            config, target = replace(self.config, native_explog=False), replace(self.target, native_functions=False)
            emitting = replace(self, config=config, target=target)
        source = step.template.kernel(step, chosen.choice.specialisation, emitting)
        self._check(step, source)
        multiply_adds = step.problem.multiply_adds if step.multiply_adds is None else step.multiply_adds
        return Launch(
            step.output_name, step.kind, source, step.description, step.origin, multiply_adds, step.reason,
            step.operation, self._moved_bytes(step, source), step.values, chosen.choice, chosen.rejected,
        )

    def _check(self, step: AnyLaunchStep, source: KernelSource) -> None:
        name, shape = step.output_name, step.nodes[-1].output.shape
        images = sum(isinstance(a.storage, Texture) and not a.written for a in source.arguments)
        if images > self.target.max_read_images:
            raise ResourceError(
                f"the kernel reads {images} images, this device allows {self.target.max_read_images}", name, shape
            )
        items, most = prod(source.local_size or ()), self.target.max_work_group
        if items > most:
            raise ResourceError(
                f"the kernel has work groups of {items} work items, this device allows {most}", name, shape
            )

    def _moved_bytes(self, step: AnyLaunchStep, source: KernelSource) -> int:
        """Bytes that a kernel must move. Of a texture that several values share, only the values read count."""
        found = (self.placed.placements.get(operand.value) for operand in step.reads)
        values = {place for place in found if place is not None}
        moved = 0
        for storage in {a.storage for a in source.arguments if not a.written}:
            parts = sum(place.bytes for place in values if place.storage == storage)
            moved += min(storage.bytes, parts or storage.bytes)
        return moved + Placement(source.arguments[0].storage, step.nodes[-1].output.shape).bytes


def _constant_texels(texture: Texture, array: Array) -> Array:
    """A constant as its texture holds it."""
    return texture.tiling.to_image(texture.layout.pack(array.astype(texture.dtype)))
