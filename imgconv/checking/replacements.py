"""Plain variants of a plan's launches, for the player: generated kernels that compute one output quad per work item.

They read the model's constants as stored with the file's graph, so the file contains no weights twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy

from imgconv.arrays import Array
from imgconv.checking.launched_nodes import LaunchedNodes
from imgconv.compiling.plan import Launch, Plan, Storage
from imgconv.compiling.textures import default_layout
from imgconv.dtype import FLOAT32
from imgconv.errors import ResourceError
from imgconv.graph.nodes import Gather, Graph, Load, Node, Operand, Reduction, Value, whole_operand
from imgconv.graph.view import reshape
from imgconv.kernels.codegen.generated import generate
from imgconv.kernels.kernel_source import KernelSource
from imgconv.kernels.layout import HostBuffer, Placement, Texture, choose_tiling
from imgconv.kernels.target import Target
from imgconv.passes.sums_to_reductions import sum_to_reduction
from imgconv.stored.plan_checks import Replacement


@dataclass
class ReplacementMaker:
    """Makes replacements. content: of the constants that they read."""

    plan: Plan
    graph: Graph
    target: Target
    content: dict[Storage, Array] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    def plain_launches(self, number: int, subject: LaunchedNodes) -> tuple[Replacement, ...]:
        """The plain form of a launch; empty if it has none, or is generated itself."""
        launch, nodes = self.plan.launches[number], [sum_to_reduction(node) for node in subject.nodes]
        is_plain = launch.kind != "compute" or (launch.choice is not None and launch.choice.template == "generated")
        if is_plain or not all(isinstance(node.operation, (Load, Reduction, Gather)) for node in nodes):
            return ()
        if subject.output.shape != subject.value.shape:
            return ()
        try:
            return self._plain_launches(number, subject, nodes)
        except ResourceError:
            return ()

    def _plain_launches(self, number: int, subject: LaunchedNodes, nodes: Sequence[Node]) -> tuple[Replacement, ...]:
        """Copies of what only the launch's parts read, where they read it; then each node with a launch of its own."""
        launch, places, made = self.plan.launches[number], dict(subject.places), []
        copies: dict[int, list[Launch]] = {}
        for name, place in subject.places.items():
            readers = [n for n in subject.parts if place.storage in self.plan.launches[n].reads]
            if readers and place.storage not in launch.reads:
                value = self.graph.values[name]
                places[name] = self._new_texture_for(value)
                load = Node(value, Load(), (whole_operand(value),))
                copy = self._generated_launch(launch, load, places[name], {name: place})
                copies.setdefault(readers[0], []).append(copy)
        for node in nodes:
            place = subject.output if node is nodes[-1] else self._new_texture_for(node.output)
            made.append(self._generated_launch(launch, node, place, places))
            places[node.output.name] = place
        kept = [Replacement(part, tuple(found)) for part, found in copies.items()]
        return (*kept, Replacement(number, tuple(made)))

    def _new_texture_for(self, value: Value) -> Placement:
        """A texture of its own for a value."""
        layout, name = default_layout(value.shape), value.name
        while name in self.names or name == value.name:
            name += ".plain"
        self.names.add(name)
        tiling = choose_tiling(*layout.grid(value.shape), self.target.image_limits, name, value.shape)
        return Placement(Texture(name, value.shape, layout, FLOAT32, tiling), value.shape)

    def _generated_launch(
        self, replaced: Launch, node: Node, output: Placement, places: dict[str, Placement]
    ) -> Launch:
        """The launch of a node. places: of the values that it reads, which are no constants."""
        known = {o.value: places.get(o.value) or self._constant(o.value) for o in node.all_operands}

        def reshaped(operands: Sequence[Operand]) -> tuple[Operand, ...]:
            return tuple(_in_stored_shape(operand, known[operand.value].shape) for operand in operands)

        node = replace(node, operands=reshaped(node.operands), epilogue_operands=reshaped(node.epilogue_operands))
        source: KernelSource = generate(node, output, known, "exact", self.target)
        images = sum(isinstance(a.storage, Texture) and not a.written for a in source.arguments)
        if images > self.target.max_read_images:
            raise ResourceError("the kernel reads more images than the device allows", node.output.name, output.shape)
        return Launch(node.output.name, replaced.kind, source, replaced.description, replaced.origin)

    def _constant(self, name: str) -> Placement:
        array = numpy.asarray(self.graph.constants[name])
        storage = HostBuffer(f"{name}.plain", array.shape, default_layout(array.shape), FLOAT32)
        if storage not in self.content:
            self.content[storage] = array if array.dtype == FLOAT32.dtype else array.astype(numpy.float32)
        return Placement(storage, array.shape)


def _in_stored_shape(operand: Operand, shape: tuple[int, ...]) -> Operand:
    """The operand if its value is stored in another shape of the same size."""
    if operand.view.source == shape:
        return operand
    return replace(operand, view=operand.view.composed_with(reshape(shape, operand.view.source)))
