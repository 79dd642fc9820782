"""Decides where each value is stored, and lists the steps of a plan: its launches before their kernels are chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy

from imgconv.arrays import Array, Arrays
from imgconv.compiling.plan import Storage
from imgconv.compiling.textures import Textures, default_layout, host_buffer
from imgconv.config import Config
from imgconv.dtype import UINT8
from imgconv.graph.nodes import Concatenation, Gather, Graph, Load, Node, Operand, Reduction, Value, whole_operand
from imgconv.graph.quantization import fills_with_zero
from imgconv.graph.view import reshape
from imgconv.kernels.codegen.generated import generated_step
from imgconv.kernels.layout import HostBuffer, ImageLimits, Layout, Placement, Texture, byte_texture
from imgconv.kernels.target import Target
from imgconv.kernels.template_interface import AnyLaunchStep, AnyTemplate
from imgconv.kernels.templates import TEMPLATES

FEW = 16  # numbers of an input
TemplateOffer = tuple[AnyTemplate, tuple[Node, ...]]  # a template and nodes that it may compute in one launch


@dataclass(frozen=True)
class PlacedGraph:
    """The result of `place`: the steps in order, and the storages that they use.

    placements: where each stored value is. input_buffers, output_buffers: by name. known: the arrays of textures that
    hold constants. constant_outputs: the arrays of outputs that depend on no input. states: textures that keep their
    content from run to run. kept_in_float: values that are fp32 only because the settings' precision says so.
    """

    steps: tuple[AnyLaunchStep, ...]
    placements: Mapping[str, Placement]
    input_buffers: Mapping[str, Storage]
    output_buffers: Mapping[str, HostBuffer]
    known: Mapping[Texture, Array]
    constant_outputs: Arrays
    states: tuple[Texture, ...]
    kept_in_float: frozenset[str]


def place(graph: Graph, config: Config, target: Target, states: Mapping[str, str]) -> PlacedGraph:
    """Places the values of a graph and lists the steps of its plan. Arguments and errors: see `lower`."""
    placer = _Placer(graph, config, target, states)
    placer.place_inputs()
    placer.place_nodes()
    lasting = placer.place_outputs()
    return PlacedGraph(
        tuple(placer.steps), placer.placements, placer.input_buffers, placer.output_buffers,
        placer.known, placer.constant_outputs, lasting, placer.kept_in_float(),
    )


class _Placer(Textures):
    """Goes through a graph and collects its steps. Templates see it as a PlacingContext."""

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
        self.steps: list[AnyLaunchStep] = []
        self.offers: dict[str, list[TemplateOffer]] = {}  # by the name of the value that the last node writes

    # Inputs and outputs

    def place_inputs(self) -> None:
        """Makes the inputs' buffers. Inputs that other than generated kernels read are packed into textures first.

        So are inputs that several kernels read, if they have more than a few numbers: packing takes a launch.
        """
        for value in self.graph.inputs:
            if value.name in self.states.values():
                self.place_value(value)
                continue
            buffer = _input_storage(self.graph, value, self.target.image_limits)
            self.input_buffers[value.name] = buffer
            given = Placement(buffer, buffer.shape)
            readers = self.graph.consumers[value.name]
            generated_only = all(isinstance(n.operation, (Load, Reduction, Gather)) for n in readers)
            direct = value.name not in self.inside and generated_only
            # Reductions of a packed input are joined with the nodes that read their rows.
            few = prod(buffer.shape) <= FEW and not any(isinstance(n.operation, Reduction) for n in readers)
            if direct and (len(readers) <= 1 or buffer.dtype == UINT8 or few):
                self.placements[value.name] = given
                self.graph = _with_input_shape(self.graph, value, buffer.shape)
                continue
            node = Node(value, Load(), (_in_stored_shape(whole_operand(value), buffer.shape),))
            made, text = self.place_value(value), f"pack {value.name}"
            self.steps.append(generated_step(node, made, {value.name: given}, "pack", text))

    def place_outputs(self) -> tuple[Texture, ...]:
        """Adds the last steps, which write outputs to host buffers and states to textures. Returns these textures."""
        values = self.graph.values
        for name in self.graph.outputs:
            if name not in self.states and name not in self.output_buffers and name not in self.constant_outputs:
                self._unpack(values[name])
        states = []
        for name, target in self.states.items():
            output = self.place_value(values[target])
            node = Node(values[target], Load(), (whole_operand(values[name]),))
            places = self.operand_places(node, output)
            reason = f"{name} is {target} at the next run"
            self.steps.append(generated_step(node, output, places, "copy", f"keep {name}", reason))
            states.append(output.texture)
        return tuple(states)

    def _unpack(self, value: Value) -> None:
        buffer = host_buffer(value, self.layouts[value.name])
        self.output_buffers[value.name] = buffer
        node = Node(value, Load(), (whole_operand(value),))
        output = Placement(buffer, value.shape)
        places = self.operand_places(node, output)
        self.steps.append(generated_step(node, output, places, "unpack", f"unpack {value.name}"))

    # Nodes

    def place_nodes(self) -> None:
        """Places every node, in order. Nodes that one launch may compute together are placed with their last one."""
        groups: dict[str, tuple[Node, ...]] = {}  # those of a launch of several nodes; a node is in one at most
        for template in TEMPLATES:
            for nodes in template.nodes(self.graph):
                names = [node.output.name for node in nodes]
                if len(nodes) > 1:
                    if any(groups.get(name, nodes) != nodes for name in names):
                        continue
                    groups |= dict.fromkeys(names, nodes)
                self.offers.setdefault(names[-1], []).append((template, nodes))
        for node in self.graph.nodes:
            if groups.get(node.output.name, (node,))[-1] == node:
                self._place_node(node)

    def _place_node(self, node: Node) -> None:
        """Places a node, and those that a launch may compute together with it."""
        if isinstance(node.operation, Concatenation):
            self._concatenate(node)
        else:
            self._place_by_templates(node, self.offers.get(node.output.name, []))

    def _place_by_templates(self, node: Node, offers: Sequence[TemplateOffer]) -> None:
        """Adds the step of the first template that accepts its nodes; those of the others are its fallback."""
        assert offers, f"no template accepts the node of {node.output.name!r}: {node.operation}"
        (template, nodes), *others = offers

        def fallback() -> None:
            if others[0][1] != nodes:
                for each in nodes[:-1]:
                    self._place_node(each)
            self._place_by_templates(node, others)

        step = template.place(self, nodes)
        if step is None:
            fallback()
        else:
            self.steps.append(replace(step, fallback=self._collect_steps(fallback)) if others else step)

    def _collect_steps(self, placing: Callable[[], None]) -> tuple[AnyLaunchStep, ...]:
        """The steps that `placing` adds, as an alternative. It may not run, so later steps do not read its copies."""
        steps, copies = self.steps, dict(self.copies)
        self.steps = []
        placing()
        made, self.steps, self.copies = tuple(self.steps), steps, copies
        return made

    def reads_input_buffer(self, operand: Operand) -> bool:
        """Returns whether an operand is read from the buffer to which an input is uploaded."""
        name = operand.value
        return name in self.input_buffers and self.placements[name].storage == self.input_buffers[name]

    def copy(self, operand: Operand, layout: Layout, reason: str) -> Operand:
        """The operand, copied to a texture in the given layout. Each copy is made once."""
        key = (operand, layout)
        if key not in self.copies:
            source = self.graph.values[operand.value]
            levels = self.quantizations.get(operand.value) if fills_with_zero(operand) else None
            name = f"{operand.value}.copy{self.copied}"
            value = self.add_intermediate_value(name, operand.view.shape, layout, operand.value, levels)
            self.copied += 1
            node = Node(replace(value, dtype=source.dtype), Load(), (operand,))
            output = self.placements[value.name]
            places = self.operand_places(node, output)
            self.steps.append(generated_step(node, output, places, "copy", f"copy {operand}", reason))
            self.copies[key] = whole_operand(value)
        return self.copies[key]

    def _concatenate(self, node: Node) -> None:
        """Copies the parts that are not written in place."""
        whole, offset = self.place_value(node.output), 0
        for operand in node.operands:
            if self.inside.get(operand.value) != (node.output.name, offset):
                part = Value(part_name(node, offset), operand.view.shape, node.output.dtype)
                output = Placement(whole.storage, part.shape, whole.channel_offset + offset)
                copy = Node(part, Load(), (operand,), origin=node.origin)
                reason = f"{operand.value} cannot be written into {node.output.name} where it is made"
                places = self.operand_places(copy, output)
                self.steps.append(generated_step(copy, output, places, "copy", f"copy {operand}", reason))
            offset += operand.view.shape[1]


def part_name(node: Node, offset: int) -> str:
    """Returns the name of the launch that copies the part of a concatenation that begins at a channel."""
    return f"{node.output.name}[{offset}:]"


def _input_storage(graph: Graph, value: Value, limits: ImageLimits | None) -> Storage:
    """The storage to which an input is uploaded. uint8 stays bytes, if possible four to a texel; others are floats."""
    if value.dtype != "uint8":
        return host_buffer(value, default_layout(value.shape))
    texture = None if value.name in graph.outputs else byte_texture(value.name, value.shape, limits)
    return texture or HostBuffer(value.name, value.shape, default_layout(value.shape), UINT8)


def _with_input_shape(graph: Graph, value: Value, shape: tuple[int, ...]) -> Graph:
    """The graph with an input in another shape of the same size. Its readers see the elements as before."""
    if shape == value.shape:
        return graph
    inputs = tuple(replace(v, shape=shape) if v == value else v for v in graph.inputs)

    def reshaped(operands: Sequence[Operand]) -> tuple[Operand, ...]:
        return tuple(_in_stored_shape(o, shape) if o.value == value.name else o for o in operands)

    nodes = (
        replace(n, operands=reshaped(n.operands), epilogue_operands=reshaped(n.epilogue_operands)) for n in graph.nodes
    )
    return replace(graph, inputs=inputs, nodes=tuple(nodes))


def _in_stored_shape(operand: Operand, shape: tuple[int, ...]) -> Operand:
    """The operand if its value is stored in another shape of the same size."""
    return replace(operand, view=operand.view.composed_with(reshape(shape, operand.view.source)))
