"""Places each value, and lists the steps of a plan: its launches before their kernels are chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy

from imgconv.arrays import Array, Arrays
from imgconv.compiling.plan import Storage
from imgconv.compiling.textures import Textures, default_layout, host_buffer
from imgconv.config import Config
from imgconv.graph.nodes import IDENTITY, Concatenation, Gather, Graph, Load, Node, Operand, Reduction, Value, plain
from imgconv.graph.view import reshape
from imgconv.kernels.codegen.moments import PARTS_LAYOUT, Parts, find_parts, moments_of
from imgconv.kernels.codegen.moments_text import Making
from imgconv.kernels.codegen.rows import Rows, find_rows
from imgconv.kernels.layout import HostBuffer, ImageLimits, Layout, Placement, Texture, byte_texture
from imgconv.kernels.step import AnyTemplate, LaunchKind, Step, describe, operation_of
from imgconv.kernels.target import Target
from imgconv.kernels.templates import TEMPLATES

FEW = 16  # numbers of an input


@dataclass(frozen=True)
class Placed:
    """The result of `place`: the steps in order, and what they need.

    placements: of each stored value. input_buffers, output_buffers: by name. known: the arrays of textures that hold
    constants. constant_outputs: the arrays of outputs that depend on no input. states: textures that keep their content
    from run to run. in_place_of_halves: float values that would be halves but for the settings' precision.
    """

    steps: tuple[Step, ...]
    placements: Mapping[str, Placement]
    input_buffers: Mapping[str, Storage]
    output_buffers: Mapping[str, HostBuffer]
    known: Mapping[Texture, Array]
    constant_outputs: Arrays
    states: tuple[Texture, ...]
    in_place_of_halves: frozenset[str]


def place(graph: Graph, config: Config, target: Target, states: Mapping[str, str]) -> Placed:
    """Places the values of a graph and lists the steps of its plan. Arguments and errors: see `lower`."""
    placer = _Placer(graph, config, target, states)
    placer.place_inputs()
    placer.place_nodes()
    lasting = placer.place_outputs()
    return Placed(
        tuple(placer.steps), placer.placements, placer.input_buffers, placer.output_buffers,
        placer.known, placer.constant_outputs, lasting, placer.in_place_of_halves(),
    )


class _Placer(Textures):
    """Goes through a graph and collects its steps. Templates see it as imgconv.kernels.step.Placing."""

    def __init__(self, graph: Graph, config: Config, target: Target, states: Mapping[str, str]) -> None:
        super().__init__(graph, config, target, states)
        outputs = [name for name in graph.outputs if name not in states]
        self.constant_outputs = {name: array for name, array in graph.constants.items() if name in outputs}
        self.constant_outputs |= {
            v.name: numpy.empty(v.shape, v.dtype) for v in graph.inputs if v.name in outputs and 0 in v.shape
        }
        self.input_buffers: dict[str, Storage] = {}
        self.copies: dict[tuple[Operand, Layout], Operand] = {}
        self.copied = 0
        self.steps: list[Step] = []
        # By the name of the value written: the templates that can compute it, each with the nodes of the launch.
        self.offers: dict[str, list[tuple[AnyTemplate, tuple[Node, ...]]]] = {}

    # Inputs and outputs

    def place_inputs(self) -> None:
        """Makes the inputs' buffers. Inputs that hand-written kernels read are packed into textures first.

        So are inputs that several kernels read, if they have more than a few numbers: packing takes a launch.
        """
        for value in self.graph.inputs:
            if value.name in self.states.values():
                self.placement(value)
                continue
            buffer = _input_storage(self.graph, value, self.target.texture_limits)
            self.input_buffers[value.name] = buffer
            given = Placement(buffer, buffer.shape)
            readers = self.graph.consumers[value.name]
            generated_only = all(isinstance(n.operation, (Load, Reduction, Gather)) for n in readers)
            direct = value.name not in self.inside and generated_only
            # Reductions of a packed input are joined with the nodes that read their rows.
            few = prod(buffer.shape) <= FEW and not any(isinstance(n.operation, Reduction) for n in readers)
            if direct and (len(readers) <= 1 or buffer.dtype == "uint8" or few):
                self.placements[value.name] = given
                self.graph = _seen_as(self.graph, value, buffer.shape)
                continue
            node = Node(value, Load(), (_rows(plain(value), buffer.shape),))
            self.generate(node, self.placement(value), {value.name: given}, "pack", f"pack {value.name}")

    def place_outputs(self) -> tuple[Texture, ...]:
        """Adds the last steps, which write outputs to host buffers and states to textures. Returns these textures."""
        values = self.graph.values
        for name in self.graph.outputs:
            if name not in self.states and name not in self.output_buffers and name not in self.constant_outputs:
                self._unpack(values[name])
        states = []
        for name, target in self.states.items():
            output = self.placement(values[target])
            assert isinstance(output.storage, Texture)
            node = Node(values[target], Load(), (plain(values[name]),))
            places = self.operand_places(node, output)
            self.generate(node, output, places, "copy", f"keep {name}", f"{name} is {target} at the next run")
            states.append(output.storage)
        return tuple(states)

    def _unpack(self, value: Value) -> None:
        buffer = host_buffer(value, self.layouts[value.name])
        self.output_buffers[value.name] = buffer
        node = Node(value, Load(), (plain(value),))
        output = Placement(buffer, value.shape)
        self.generate(node, output, self.operand_places(node, output), "unpack", f"unpack {value.name}")

    # Nodes

    def place_nodes(self) -> None:
        """Places every node, in order. Nodes that one launch may compute together are placed with their last one."""
        found = find_rows(self.graph, self.states)
        waiting = {node.output.name for rows in found.values() for node in rows.nodes[:-1]}
        together = waiting | found.keys()  # what a launch of several nodes computes; a node is part of one at most
        for template in TEMPLATES:
            for nodes in template.nodes(self.graph):
                names = {node.output.name for node in nodes}
                if len(nodes) > 1 and names & together:
                    continue
                together |= names if len(nodes) > 1 else set()
                waiting |= names - {nodes[-1].output.name}
                self.offers.setdefault(nodes[-1].output.name, []).append((template, nodes))
        for node in self.graph.nodes:
            if node.output.name in found:
                self._place_rows(found[node.output.name])
            elif node.output.name not in waiting:
                self._place_node(node)

    def _place_node(self, node: Node, declined: int = 0) -> None:
        """Places a node with the first template that takes it, else generated. Skips the first `declined` templates."""
        offers = self.offers.get(node.output.name, [])[declined:]
        if not offers:
            self._place_generated(node)
            return
        template, nodes = offers[0]

        def otherwise() -> None:
            for each in nodes[:-1]:
                self._place_node(each)
            self._place_node(node, declined + 1)

        step = template.place(self, nodes)
        if step is None:
            otherwise()
        elif len(nodes) > 1 or len(offers) > 1:
            self.steps.append(replace(step, instead=self._aside(otherwise)))
        else:
            self.steps.append(step)

    def _aside(self, placing: Callable[[], None]) -> tuple[Step, ...]:
        """The steps that `placing` adds, as an alternative. It may not run, so later steps do not read its copies."""
        steps, copies = self.steps, dict(self.copies)
        self.steps = []
        placing()
        made, self.steps, self.copies = tuple(self.steps), steps, copies
        return made

    def _place_rows(self, rows: Rows) -> None:
        """Adds one step for all nodes of `rows`. If no kernel can compute them together, adds a step for each."""

        def otherwise() -> None:
            for each in rows.nodes:
                self._place_node(each)

        output = self.result(rows.last.output)
        places: dict[str, Placement] = {}
        for node in rows.nodes:
            outside = replace(node, operands=rows.read_from_outside(node), epilogue_operands=())
            places |= self.operand_places(outside, output)
        if any(each.storage == output.storage for each in places.values()):
            otherwise()
            return
        details: Rows | Making = rows
        moments = moments_of(rows)
        name = self.graph.unused(f"{rows.last.output.name}.parts")
        parts = find_parts(moments, output, places, self.target, name) if moments else None
        if parts is not None:
            details = Making(parts, True)
            places |= self._place_parts(parts, places)
        self.steps.append(Step(
            rows.nodes, output, places, "compute", ", ".join(map(describe, rows.nodes)), "reduction",
            values=tuple(node.output.name for node in rows.nodes), details=details, instead=self._aside(otherwise),
        ))

    def _place_parts(self, parts: Parts, places: dict[str, Placement]) -> dict[str, Placement]:
        """Adds the step that makes the moments of the rows' parts. Returns where they are stored, by name."""
        value = self.between(parts.name, parts.shape, PARTS_LAYOUT, "float32")
        output = self.placements[value.name]
        mean = parts.moments.mean
        node = replace(mean, output=value, epilogue=IDENTITY)
        read = {operand.value: places[operand.value] for operand in mean.operands}
        self.steps.append(Step(
            (node,), output, read, "compute", f"mean and squared differences in {parts.parts} parts", "reduction",
            details=Making(parts, False),
        ))
        return {value.name: output}

    def _place_generated(self, node: Node) -> None:
        if isinstance(node.operation, Concatenation):
            self._concatenate(node)
            return
        output = self.result(node.output)
        moves = isinstance(node.operation, Load) and node.epilogue == IDENTITY
        packs = isinstance(node.operation, Load) and any(
            o.value in self.input_buffers and self.placements[o.value].storage == self.input_buffers[o.value]
            for o in node.all_operands
        )
        kind: LaunchKind = "copy" if moves else "compute"
        if moves and isinstance(output.storage, HostBuffer):
            kind = "unpack"
        elif packs:
            kind = "pack"
        reason = f"{node.output.name} is read in another order than it is made" if kind == "copy" else ""
        values = (node.output.name,)
        self.generate(node, output, self.operand_places(node, output), kind, describe(node), reason, values)

    def generate(
        self, node: Node, output: Placement, places: dict[str, Placement], kind: LaunchKind, text: str,
        reason: str = "", values: tuple[str, ...] = (),
    ) -> None:
        """Adds a step of a generated kernel."""
        self.steps.append(Step((node,), output, places, kind, text, operation_of(node), reason, values))

    def copy(self, operand: Operand, layout: Layout, reason: str) -> Operand:
        """The operand, copied to a texture in the given layout. Each copy is made once."""
        key = (operand, layout)
        if key not in self.copies:
            source = self.graph.values[operand.value]
            value = self.between(f"{operand.value}.copy{self.copied}", operand.view.shape, layout, self.dtype(source))
            self.copied += 1
            node = Node(replace(value, dtype=source.dtype), Load(), (operand,))
            output = self.placements[value.name]
            self.generate(node, output, self.operand_places(node, output), "copy", f"copy {operand}", reason)
            self.copies[key] = plain(value)
        return self.copies[key]

    def _concatenate(self, node: Node) -> None:
        """Copies the parts that are not written in place."""
        whole, offset = self.placement(node.output), 0
        for operand in node.operands:
            if self.inside.get(operand.value) != (node.output.name, offset):
                part = Value(part_name(node, offset), operand.view.shape, node.output.dtype)
                output = Placement(whole.storage, part.shape, whole.channel_offset + offset)
                copy = Node(part, Load(), (operand,), origin=node.origin)
                reason = f"{operand.value} cannot be written into {node.output.name} where it is made"
                self.generate(copy, output, self.operand_places(copy, output), "copy", f"copy {operand}", reason)
            offset += operand.view.shape[1]


def part_name(node: Node, offset: int) -> str:
    """Returns the name of the launch that copies the part of a concatenation that begins at a channel."""
    return f"{node.output.name}[{offset}:]"


def _input_storage(graph: Graph, value: Value, limits: ImageLimits | None) -> Storage:
    """The storage to which an input is uploaded. uint8 stays bytes, if possible four to a texel; others are floats."""
    if value.dtype != "uint8":
        return host_buffer(value, default_layout(value.shape))
    texture = None if value.name in graph.outputs else byte_texture(value.name, value.shape, limits)
    return texture or HostBuffer(value.name, value.shape, default_layout(value.shape), "uint8")


def _seen_as(graph: Graph, value: Value, shape: tuple[int, ...]) -> Graph:
    """The graph with an input in another shape of the same size. Its readers see the elements as before."""
    if shape == value.shape:
        return graph
    inputs = tuple(replace(v, shape=shape) if v == value else v for v in graph.inputs)

    def seen(operands: Sequence[Operand]) -> tuple[Operand, ...]:
        return tuple(_rows(o, shape) if o.value == value.name else o for o in operands)

    nodes = (
        replace(n, operands=seen(n.operands), epilogue_operands=seen(n.epilogue_operands)) for n in graph.nodes
    )
    return replace(graph, inputs=inputs, nodes=tuple(nodes))


def _rows(operand: Operand, shape: tuple[int, ...]) -> Operand:
    """The operand if its value is stored in another shape of the same size."""
    return replace(operand, view=operand.view.over(reshape(shape, operand.view.source)))
