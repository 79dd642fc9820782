"""Graph to Plan: layouts, textures, placements, and one kernel for each node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy

from imgconv.bounds import convolutions_of_small
from imgconv.config import Config
from imgconv.errors import ResourceError, UnsupportedError
from imgconv.expression import operations
from imgconv.graph import IDENTITY, Concatenation, Convolution, Gather, Graph, Load, Node, Operand, Product
from imgconv.graph import Reduction, Value, plain
from imgconv.kernels import convolution, convolution_choice, generated, product, separable
from imgconv.kernels.rows import Rows, find_rows, rows_kernel
from imgconv.kernels.source import KernelSource
from imgconv.kernels.windows import windows_kernel
from imgconv.layout import LANES, HostBuffer, ImageLimits, Layout, Placement, Texture, byte_texture, choose_tiling
from imgconv.layout import image_layout, matrix_layout
from imgconv.memory import Alignment, assign_regions, assign_slots, lifetimes, most_alive
from imgconv.moved import split_moved
from imgconv.plan import Launch, Plan, Storage
from imgconv.view import View, identity, reshape
from imgconv.why import record

HALF_MAX = 65504.0
LONG_SUM = 64
# Rows of an image begin at multiples of so many texels on most devices: one of few texels is mostly gaps.
ROW_TEXELS = 64
NARROW = ROW_TEXELS // 4
SMALL_WEIGHTS = 1 << 14


@dataclass(frozen=True)
class Target:
    """What the compiler needs to know of a device. kind: 'cpu' or 'gpu'.

    images_in_buffers: what images that are parts of a buffer are aligned to; None where the device has no such images.
    measured: the seconds that the chosen specialisation of a problem took; None where that was not measured.
    half_arithmetic: whether kernels may compute in half. local_memory_bytes: of a work group; max_work_group: the most
    work items of one.
    choose_convolution and choose_product: problem, kind and compute units to the specialisation of a template.
    choose_separable: the same, and the bytes of local memory; None where two launches are faster, or only they go.
    """

    limits: ImageLimits
    kind: str
    compute_units: int
    half_images: bool = True
    max_read_images: int = 128
    half_arithmetic: bool = True
    byte_images: bool = False
    local_memory_bytes: int = 1 << 15
    images_in_buffers: Alignment | None = None
    max_work_group: int = 256
    choose_convolution: Callable[[convolution.Problem, str, int], convolution.Specialisation] = (
        convolution_choice.default_specialisation
    )
    choose_product: Callable[[product.Problem, str, int], product.Specialisation] = product.default_specialisation
    choose_separable: Callable[[separable.Problem, str, int, int], separable.Specialisation | None] = (
        separable.default_specialisation
    )
    measured: Callable[[Any], float | None] = lambda problem: None


def lower(graph: Graph, config: Config, target: Target, states: Mapping[str, str] | None = None) -> Plan:
    """The Plan of a graph that has been through the passes. Raises ResourceError naming the tensor.

    states: outputs that stay on the device and become inputs of the next run, by the names of both.
    """
    whole_graph = graph
    graph, moved = split_moved(graph, states or {})
    plan = _Lowering(graph, config, target, states or {}).plan()
    lasting = frozenset(s for s in (*plan.content, *plan.states, *plan.regions) if isinstance(s, Texture))
    slots = assign_slots(plan.launches, lasting, target.limits)
    folded = {t: replace(t, tiling=tiling) for t, (_, tiling) in slots.items() if t.tiling != tiling}
    if folded:
        # Kernels have the addresses in their texts.
        whole, plan = plan, _Lowering(graph, config, target, states or {}, folded).plan()
        assert [*lifetimes(plan.launches).values()] == [*lifetimes(whole.launches).values()], "folding changed launches"
        plan = replace(plan, most_alive=whole.most_alive)
    slots_of = {folded.get(t, t): number for t, (number, _) in slots.items()}
    outputs = tuple(whole_graph.values[name] for name in whole_graph.outputs if name not in (states or {}))
    return replace(plan, slots=slots_of, outputs=outputs, moved=moved)


def default_layout(shape: tuple[int, ...]) -> Layout:
    """Images for rank 4 and more, matrices below."""
    return image_layout(len(shape)) if len(shape) >= 4 else matrix_layout(len(shape))


def widened(layout: Layout, shape: tuple[int, ...]) -> Layout:
    """The layout of a narrow texture with its innermost rows beside each other, to ROW_TEXELS texels or more."""
    if layout.grid(shape)[0] > NARROW:
        return layout
    while layout.rows and layout.grid(shape)[0] < ROW_TEXELS:
        layout = replace(layout, rows=layout.rows[:-1], columns=(layout.rows[-1], *layout.columns))
    return layout


def choose_layouts(graph: Graph) -> dict[str, Layout]:
    """Every value's layout: of the product that makes it, else of what convolves or multiplies it, else by rank.

    Narrow textures that only generated kernels make and read are widened: those take any layout.
    """
    layouts: dict[str, Layout] = {}
    for node in graph.nodes:
        rank = len(node.output.shape)
        if isinstance(node.operation, (Convolution, Concatenation)):
            layouts[node.output.name] = image_layout(rank)
            for operand in node.operands[: 1 if isinstance(node.operation, Convolution) else None]:
                if operand.view.is_identity:
                    layouts[operand.value] = image_layout(rank)
    for node in graph.nodes:
        if isinstance(node.operation, Product):
            layouts[node.output.name] = matrix_layout(len(node.output.shape))
            for operand in node.operands:
                if operand.view.is_identity:
                    layouts.setdefault(operand.value, matrix_layout(len(operand.view.shape)))
    chosen = {name: layouts.get(name, default_layout(value.shape)) for name, value in graph.values.items()}
    for node in graph.nodes:
        name = node.output.name
        if all(isinstance(n.operation, (Load, Reduction, Gather)) for n in (node, *graph.consumers[name])):
            chosen[name] = widened(chosen[name], node.output.shape)
    return chosen


@dataclass
class _Lowering:
    graph: Graph
    config: Config
    target: Target
    states: Mapping[str, str] = field(default_factory=dict)
    folded: Mapping[Texture, Texture] = field(default_factory=dict)
    launches: list[Launch] = field(default_factory=list)
    content: dict[Storage, Any] = field(default_factory=dict)
    placements: dict[str, Placement] = field(default_factory=dict)
    input_buffers: dict[str, Storage] = field(default_factory=dict)
    output_buffers: dict[str, HostBuffer] = field(default_factory=dict)
    constants: dict[tuple[str, Layout], Placement] = field(default_factory=dict)
    copies: dict[tuple[Operand, Layout], Operand] = field(default_factory=dict)
    packed: dict[Any, Storage] = field(default_factory=dict)
    waiting: dict[str, Node] = field(default_factory=dict)

    def plan(self) -> Plan:
        given = self.graph.inputs
        self.layouts = choose_layouts(self.graph)
        self.storage_dtype = "float16" if self.config.float16 else "float32"
        self.choosing = values_behind_indices(self.graph)
        self.of_small = convolutions_of_small(self.graph, convolution.SMALL)
        self.inside = concatenations_in_place(self.graph, self.layouts, frozenset(self.states.values()))
        self._place_inputs()
        self._lower_all()
        outputs = [name for name in self.graph.outputs if name not in self.states]
        known = {name: array for name, array in self.graph.constants.items() if name in outputs}
        known |= {v.name: numpy.empty(v.shape, v.dtype) for v in given if v.name in outputs and 0 in v.shape}
        for name in outputs:
            if name not in self.output_buffers and name not in known:
                self._unpack(name)
        states = [self._keep(name, target) for name, target in self.states.items()]
        lasting = frozenset(s for s in (*self.content, *states) if isinstance(s, Texture))
        inputs = tuple(v for v in given if v.name in self.input_buffers)
        alignment = self.target.images_in_buffers
        regions = assign_regions(self.launches, lasting, alignment) if alignment else {}
        made = {v.name for v in self.graph.inputs} | self.graph.producers.keys()
        return Plan(
            inputs, tuple(self.graph.values[n] for n in outputs), tuple(self.launches),
            self.input_buffers, self.output_buffers, self.content, {}, known,
            {name: place for name, place in self.placements.items() if name in made}, tuple(states), regions,
            most_alive(self.launches, lasting),
        )

    # Textures

    def _texture(self, name: str, shape: tuple[int, ...], layout: Layout, dtype: str) -> Texture:
        width, height = layout.grid(shape)
        return Texture(name, shape, layout, dtype, choose_tiling(width, height, self.target.limits, name, shape))

    def _shared(self, name: str, shape: tuple[int, ...], layout: Layout, dtype: str) -> Texture:
        """A texture that may take turns with others in an image, as it lies there."""
        made = self._texture(name, shape, layout, dtype)
        if self.target.images_in_buffers is None and name not in self.states.values():
            made = replace(made, tiling=replace(made.tiling, bordered=False))
        return self.folded.get(made, made)

    def _dtype(self, value: Value) -> str:
        """Half only where asked for, and never for integers, for reductions of integers or for long sums."""
        if not value.dtype.startswith("float"):
            return "float32"
        node = self.graph.producers.get(value.name)
        window = node.operands[0].view.shape[len(value.shape) :] if node else ()
        if node is not None and isinstance(node.operation, Reduction):
            integers = any(not self.graph.values[o.value].dtype.startswith("float") for o in node.operands)
            if integers or prod(window) >= LONG_SUM:
                return "float32"
        return "float32" if self._keeps_float(value.name) else self.storage_dtype

    def _keeps_float(self, name: str) -> bool:
        """Whether a value stays float: it, or a part that is written into it, for those share a texture."""
        if name in self.config.precision.storage or name in self.choosing:
            return True
        return any(self._keeps_float(part) for part, (owner, _) in self.inside.items() if owner == name)

    def _computes_half(self, name: str) -> bool:
        """Whether the node that makes a value may compute in half: only where it is stored half too."""
        place = self.placements[name]
        half = self.config.float16 == 2 and place.storage.dtype == "float16"
        return half and name not in self.config.precision.arithmetic

    def _placement(self, value: Value) -> Placement:
        """Where a value will be: a texture of its own, or a part of the concatenation that it is written into."""
        if value.name in self.placements:
            return self.placements[value.name]
        if value.name in self.inside:
            owner, offset = self.inside[value.name]
            outer = self._placement(self.graph.values[owner])
            made = Placement(outer.storage, value.shape, outer.channel_offset + offset)
        else:
            made = Placement(
                self._shared(value.name, value.shape, self.layouts[value.name], self._dtype(value)), value.shape
            )
        self.placements[value.name] = made
        return made

    def _weights_dtype(self, array: Any, readers: Sequence[Node]) -> str:
        """Half only for large float weights: rounding errors of weights are the same at every position and add up.

        What a node reads whose own result stays float, stays float too.
        """
        keep = array.dtype.kind != "f" or array.size <= SMALL_WEIGHTS or bool(numpy.any(numpy.abs(array) > HALF_MAX))
        kept = keep or any(self._keeps_float(node.output.name) for node in readers)
        return "float32" if kept else self.storage_dtype

    def _constant(self, name: str, layout: Layout) -> Placement:
        """A constant as a texture of the given layout."""
        key = (name, layout)
        if key not in self.constants:
            array = numpy.asarray(self.graph.constants[name])
            texture = self._texture(name, array.shape, layout, self._weights_dtype(array, self.graph.consumers[name]))
            self.content[texture] = texture.tiling.scatter(layout.pack(array.astype(texture.dtype)))
            self.constants[key] = Placement(texture, array.shape)
        return self.constants[key]

    def _operand_places(self, node: Node, output: Placement) -> dict[str, Placement]:
        """Where every operand of a node is; a constant is packed along the axis that runs with the output's lanes."""
        places = {}
        packed = output.layout.packed
        for operand in node.all_operands:
            if operand.value not in self.graph.constants:
                places[operand.value] = self.placements[operand.value]
                continue
            rank = len(operand.view.source)
            along = [
                a for a, e in enumerate(operand.view.index)
                if packed is not None and any(v.name == f"i{packed}" for v in e.variables())
            ]
            axis = along[-1] if along else rank - 1
            layout = Layout(tuple(a for a in range(rank) if a != axis), (), axis if rank else None)
            places[operand.value] = self._constant(operand.value, layout)
        return places

    # Inputs and outputs

    def _place_inputs(self) -> None:
        for value in self.graph.inputs:
            if value.name in self.states.values():
                self._placement(value)
                continue
            buffer = self._input_storage(value)
            self.input_buffers[value.name] = buffer
            given = Placement(buffer, buffer.shape)
            readers = self.graph.consumers[value.name]
            generated_only = all(isinstance(n.operation, (Load, Reduction, Gather)) for n in readers)
            direct = value.name not in self.inside and generated_only
            if direct and (len(readers) <= 1 or buffer.dtype == "uint8"):
                self.placements[value.name] = given
                self.graph = _seen_as(self.graph, value, buffer.shape)
                continue
            node = Node(value, Load(), (_rows(plain(value), buffer.shape),))
            self._generate(node, self._placement(value), {value.name: given}, "pack", f"pack {value.name}")

    def _input_storage(self, value: Value) -> Storage:
        """What an input is uploaded to: bytes as they are, four to a texel where that goes, floats otherwise."""
        if value.dtype != "uint8":
            return _host_buffer(value, default_layout(value.shape))
        is_output = value.name in self.graph.outputs
        texture = None if is_output else byte_texture(value.name, value.shape, self.target.limits)
        return texture or HostBuffer(value.name, value.shape, default_layout(value.shape), "uint8")

    def _unpack(self, name: str) -> None:
        value = self.graph.values[name]
        buffer = _host_buffer(value, self.layouts[name])
        self.output_buffers[name] = buffer
        node = Node(value, Load(), (plain(value),))
        output = Placement(buffer, value.shape)
        places = self._operand_places(node, output)
        self._generate(node, output, places, "unpack", f"unpack {name}")

    def _keep(self, name: str, target: str) -> Texture:
        """The texture of the state input `target`, after a launch at the end that copies the output `name` into it."""
        output = self._placement(self.graph.values[target])
        assert isinstance(output.storage, Texture)
        node = Node(self.graph.values[target], Load(), (plain(self.graph.values[name]),))
        places = self._operand_places(node, output)
        self._generate(node, output, places, "copy", f"keep {name}", f"{name} is {target} at the next run")
        return output.storage

    # Nodes

    def _lower_all(self) -> None:
        """Every node in order; those that are rows together in one launch, where that can be."""
        found = find_rows(self.graph, self.states)
        waiting = {node.output.name for rows in found.values() for node in rows.nodes[:-1]}
        for node in self.graph.nodes:
            rows = found.get(node.output.name)
            if rows is not None and not self._compute_rows(rows):
                for each in rows.nodes:
                    self._lower(each)
            elif rows is None and node.output.name not in waiting:
                self._lower(node)

    def _lower(self, node: Node) -> None:
        if isinstance(node.operation, Concatenation):
            self._concatenate(node)
        elif isinstance(node.operation, Convolution) and separable.follows(self.graph, node):
            self.waiting[node.output.name] = node
        elif isinstance(node.operation, Convolution):
            depthwise = self.waiting.pop(node.operands[0].value, None)
            if depthwise is None or not self._convolve_both(depthwise, node):
                for each in (depthwise, node) if depthwise else (node,):
                    self._convolve(each)
        elif isinstance(node.operation, Product):
            self._multiply(node)
        else:
            self._compute(node)

    def _result(self, value: Value) -> Placement:
        """Where a generated kernel writes a value: to the host's buffer where nobody on the device reads it."""
        name = value.name
        if name not in self.graph.outputs or name in self.states or self.graph.consumers[name]:
            return self._placement(value)
        self.output_buffers[name] = buffer = _host_buffer(value, self.layouts[name])
        self.placements[name] = Placement(buffer, value.shape)
        return self.placements[name]

    def _compute_rows(self, rows: Rows) -> bool:
        """One launch for all nodes of rows; nothing is done, and False given, where no kernel can be that."""
        output = self._result(rows.last.output)
        places: dict[str, Placement] = {}
        outside = tuple(dict.fromkeys(o for node in rows.nodes for o in rows.read_from_outside(node)))
        for node in rows.nodes:
            given = replace(node, operands=rows.read_from_outside(node), epilogue_operands=())
            places |= self._operand_places(given, output)
        if any(place.storage == output.storage for place in places.values()):
            return False
        source = rows_kernel(
            rows, output, places, self.config.native_explog, self.target.compute_units, self.target.kind
        )
        if source is None or len(source.arguments) > self.target.max_read_images:
            return False
        origin = tuple(dict.fromkeys(name for node in rows.nodes for name in node.origin))
        node = Node(rows.last.output, rows.reductions[0].operation, outside, origin=origin)
        self._launch(node, "compute", source, ", ".join(map(_describe, rows.nodes)), "", 0)
        return True

    def _compute(self, node: Node) -> None:
        output = self._result(node.output)
        moves = isinstance(node.operation, Load) and node.epilogue == IDENTITY
        packs = isinstance(node.operation, Load) and any(
            o.value in self.input_buffers and self.placements[o.value].storage == self.input_buffers[o.value]
            for o in node.all_operands
        )
        kind = "copy" if moves else "compute"
        if moves and isinstance(output.storage, HostBuffer):
            kind = "unpack"
        elif packs:
            kind = "pack"
        reason = f"{node.output.name} is read in another order than it is made" if kind == "copy" else ""
        self._generate(node, output, self._operand_places(node, output), kind, _describe(node), reason)

    def _generate(
        self, node: Node, output: Placement, places: dict[str, Placement], kind: str, text: str, reason: str = ""
    ) -> None:
        native, units, device = self.config.native_explog, self.target.compute_units, self.target.kind
        source = windows_kernel(node, output, places, native, units, device)
        source = source or generated.generate(node, output, places, native, units, device == "gpu")
        self._launch(node, kind, source, text, "", 0, reason)

    def _launch(
        self, node: Node, kind: str, source: KernelSource, text: str, chosen: str, multiply_adds: int, reason: str = "",
        choice: str = "", sort: str = "",
    ) -> None:
        images = sum(isinstance(a.storage, Texture) and not a.written for a in source.arguments)
        if images > self.target.max_read_images:
            raise ResourceError(
                f"the kernel reads {images} images, this device takes {self.target.max_read_images}",
                node.output.name, node.output.shape,
            )
        items, most = prod(source.local_size or ()), self.target.max_work_group
        if items > most:
            raise ResourceError(
                f"the kernel has work groups of {items} work items, this device takes {most}",
                node.output.name, node.output.shape,
            )
        self.launches.append(Launch(
            node.output.name, kind, source, text, chosen, node.origin, multiply_adds, reason, sort or _sort_of(node),
            self._moved_bytes(node, source), choice,
        ))

    def _moved_bytes(self, node: Node, source: KernelSource) -> int:
        """Bytes that a kernel must move; where several values share a texture, those of the values that it reads."""
        values = {self.placements[o.value] for o in node.all_operands if o.value in self.placements}
        moved = 0
        for storage in {a.storage for a in source.arguments if not a.written}:
            parts = sum(place.bytes for place in values if place.storage == storage)
            moved += min(storage.bytes, parts or storage.bytes)
        return moved + Placement(source.arguments[0].storage, node.output.shape).bytes

    def _copy(self, operand: Operand, layout: Layout, reason: str) -> Operand:
        """The operand as a texture of its own in the given layout, made by a launch; made once."""
        key = (operand, layout)
        if key not in self.copies:
            source = self.graph.values[operand.value]
            name = self.graph.unused(f"{operand.value}.copy{len(self.copies)}")
            value = Value(name, operand.view.shape, source.dtype)
            output = Placement(self._shared(value.name, value.shape, layout, self._dtype(source)), value.shape)
            self.placements[value.name] = output
            node = Node(value, Load(), (operand,))
            self._generate(node, output, self._operand_places(node, output), "copy", f"copy {operand}", reason)
            self.copies[key] = plain(value)
        return self.copies[key]

    def _concatenate(self, node: Node) -> None:
        """Parts that were not written in place are copied to their places."""
        whole, offset = self._placement(node.output), 0
        for operand in node.operands:
            if self.inside.get(operand.value) != (node.output.name, offset):
                part = Value(f"{node.output.name}[{offset}:]", operand.view.shape, node.output.dtype)
                output = Placement(whole.storage, part.shape, whole.channel_offset + offset)
                copy = Node(part, Load(), (operand,), origin=node.origin)
                reason = f"{operand.value} cannot be written into {node.output.name} where it is made"
                self._generate(copy, output, self._operand_places(copy, output), "copy", f"copy {operand}", reason)
            offset += operand.view.shape[1]

    def _convolve(self, node: Node) -> None:
        operation = node.operation
        assert isinstance(operation, Convolution)
        x, w, *factors = node.operands
        if w.value not in self.graph.constants:
            raise UnsupportedError(
                "the convolution's weights depend on an input; imgconv packs weights when it loads a model, so give "
                "them as an initializer", node=", ".join(node.origin) or node.output.name,
            )
        weights = self._constant_of(w)
        if not self._is_direct(x):
            x = self._copy(x, image_layout(4), "a convolution reads whole textures of images")
        for number, factor in enumerate(factors):
            if convolution.factor_texel(factor, self.placements[factor.value]) is None:
                factors[number] = self._copy(factor, image_layout(4), "a convolution reads four factors to a texel")
        problem = convolution.problem_of(operation, x.view.shape, weights.shape, node.output.shape)
        self._launch_convolution(replace(node, operands=(x, w, *factors)), problem, operation, weights)

    def _launch_convolution(
        self, node: Node, problem: convolution.Problem, operation: Convolution, weights: Any
    ) -> None:
        """A launch of conv.cl with packed weights; the node's operands but the second lie as it reads them."""
        x, _, *factors = node.operands
        output = self._placement(node.output)
        # Sums of integers must stay exact.
        read = self.graph.producers[node.output.name].operands[0].value
        exact = not self.graph.values[read].dtype.startswith("float")
        half = self._computes_half(node.output.name) and not exact and not numpy.any(numpy.abs(weights) > HALF_MAX)
        integers = exact or weights.dtype == numpy.int8
        problem = replace(problem, half=half, integers=integers, small=node.output.name in self.of_small)
        chosen, choice = self._choose(convolution_choice, self.target.choose_convolution, problem)
        bytes_ = weights.dtype == numpy.int8 and (chosen.weights_in_buffer or self.target.byte_images)
        dtype = "int8" if bytes_ else self._weights_dtype(weights, (node,))
        # Bytes of an image are read as parts of 127. For exact sums each weight is made whole again, else the sum is.
        if bytes_ and not chosen.weights_in_buffer and not exact:
            node = replace(node, epilogue=convolution.scaled(node.epilogue))
        # Layers that share weights, as the heads of a detector do and the steps of a loop, share their packing.
        anywhere = replace(problem, batch=1, input_size=(0, 0), output_size=(0, 0))
        packing = chosen.block_quads, chosen.winograd, chosen.weights_in_buffer
        key = node.operands[1], weights.shape, operation, anywhere, packing, dtype
        if key not in self.packed:
            packed = convolution.pack_weights(problem, operation, chosen.block_quads, weights, chosen.winograd)
            name = f"{node.output.name}.weights"
            if chosen.weights_in_buffer:
                self.packed[key], content = convolution.weights_buffer(name, packed, dtype)
                self.content[self.packed[key]] = content
            else:
                self.packed[key] = self._weights_image(name, packed, dtype)
        storage = self.packed[key]
        places = {o.value: self.placements[o.value] for o in (x, *factors)}
        places |= self._operand_places(replace(node, operands=(x, *factors)), output)
        source = convolution.convolution_kernel(
            node, problem, chosen, output, places, storage, self.config.native_explog, exact
        )
        self._launch(node, "compute", source, _describe(node), str(chosen), problem.multiply_adds, "", choice)

    def _convolve_both(self, depthwise: Node, pointwise: Node) -> bool:
        """A launch of separable.cl, where that goes and is expected to be faster than two; whether it is there."""
        x, between = depthwise.operands[0], depthwise.output
        beside = depthwise.epilogue_operands + pointwise.epilogue_operands
        output = self._placement(pointwise.output)
        # Parts of one concatenation share an image, which a kernel cannot both read and write.
        read = [self.placements[o.value].storage for o in (x, *beside) if o.value in self.placements]
        if not (x.view.is_identity and self._is_direct(x)) or output.storage in read:
            return False
        problem, kind, units = separable.problem_of(depthwise, pointwise), self.target.kind, self.target.compute_units
        chosen = self.target.choose_separable(problem, kind, units, self.target.local_memory_bytes)
        record(between.name, separable.reason(problem, chosen, kind, units))
        if chosen is None or len(beside) + 3 > self.target.max_read_images:
            return False
        windows, weights = (
            self._packed_weights(node, part, block_quads)
            for node, part, block_quads in (
                (depthwise, problem.depthwise, 1), (pointwise, problem.pointwise, chosen.block_quads)
            )
        )
        # The place of what stays in local memory.
        place = Placement(self._texture(between.name, between.shape, image_layout(4), "float32"), between.shape)
        places = {x.value: self.placements[x.value], between.name: place}
        places |= self._operand_places(replace(depthwise, operands=()), place)
        places |= self._operand_places(replace(pointwise, operands=()), output)
        source = separable.separable_kernel(
            depthwise, pointwise, problem, chosen, output, places, windows, weights, self.config.native_explog
        )
        both = replace(
            pointwise, operands=(*depthwise.operands, *pointwise.operands[1:]), epilogue_operands=beside,
            origin=tuple(dict.fromkeys(depthwise.origin + pointwise.origin)),
        )
        text = f"{_describe(depthwise)}, then {_describe(pointwise)}"
        choice = f"chosen by the cost model; predicted cost {separable.predicted_cost(problem, chosen, units):.4g}"
        sort = "separable convolution"
        self._launch(both, "compute", source, text, str(chosen), problem.multiply_adds, "", choice, sort)
        return True

    def _packed_weights(self, node: Node, problem: convolution.Problem, block_quads: int) -> Texture:
        """A convolution's weights as conv.cl reads them, in an image."""
        operation, w = node.operation, node.operands[1]
        assert isinstance(operation, Convolution)
        array = self._constant_of(w)
        packed = convolution.pack_weights(problem, operation, block_quads, array)
        return self._weights_image(f"{node.output.name}.weights", packed, self._weights_dtype(array, (node,)))

    def _weights_image(self, name: str, packed: Any, dtype: str) -> Texture:
        texture, self.content[texture] = convolution.weights_texture(name, packed, self.target.limits, dtype)
        return texture

    def _constant_of(self, operand: Operand) -> Any:
        """What is read of a constant."""
        return operand.view.evaluate(numpy.asarray(self.graph.constants[operand.value]), operand.fill)

    def _choose(self, costs: Any, choose: Callable[..., Any], problem: Any) -> tuple[Any, str]:
        """A specialisation of a template, and where it comes from."""
        kind, units = self.target.kind, self.target.compute_units
        chosen = choose(problem, kind, units)
        seconds = self.target.measured(problem)
        source = "chosen by the cost model" if seconds is None else f"the fastest measured, {seconds * 1e6:.1f} us"
        return chosen, f"{source}; predicted cost {costs.predicted_cost(problem, chosen, kind, units):.4g}"

    def _is_direct(self, operand: Operand) -> bool:
        place = self.placements.get(operand.value)
        return place is not None and convolution.reads_directly(operand.view, place)

    def _multiply(self, node: Node) -> None:
        a, b = node.operands
        problem = product.problem_of(node)
        made_a = self._product_operand(a, "a")
        padded = problem.inner % LANES == 0
        if b.value in self.graph.constants:
            array = _without_batch(self._constant_of(b))
            if array.ndim == 2 and product.reads_rows(made_a, self.placements[made_a.value]):
                weights = array.T[:, :, None, None]
                self._launch_convolution(
                    replace(node, operands=(made_a, b)), product.as_convolution(problem), Convolution(), weights
                )
                return
            made_b, padded = self._constant_matrix(node, b, array), True
        else:
            made_b = self._product_operand(b, "b")
        node = replace(node, operands=(made_a, made_b))
        output = self._placement(node.output)
        chosen, choice = self._choose(product, self.target.choose_product, problem)
        places = {o.value: self.placements[o.value] for o in node.operands}
        places |= self._operand_places(replace(node, operands=()), output)
        source = product.product_kernel(
            node, problem, chosen, output, places, padded, self.config.native_explog, self.target.kind == "gpu"
        )
        self._launch(node, "compute", source, _describe(node), str(chosen), problem.multiply_adds, "", choice)

    def _product_operand(self, operand: Operand, which: str) -> Operand:
        if operand.value in self.graph.constants:
            layout = matrix_layout(len(operand.view.source))
            self.placements[operand.value] = self._constant(operand.value, layout)
        place = self.placements[operand.value]
        if product.texel_of(operand, place, which) is not None:
            return operand
        return self._copy(operand, matrix_layout(len(operand.view.shape)), "a product reads four of k or n to a texel")

    def _constant_matrix(self, node: Node, operand: Operand, array: Any) -> Operand:
        """A constant right-hand side as a texture with rows of zeros below K, so that K is whole quads."""
        *lead, inner, columns = array.shape
        padded = numpy.zeros((*lead, -(-inner // LANES) * LANES, columns), array.dtype)
        padded[..., :inner, :] = array
        name = self.graph.unused(f"{node.output.name}.matrix")
        dtype = self._weights_dtype(padded, (node,))
        texture = self._texture(name, padded.shape, matrix_layout(padded.ndim), dtype)
        self.content[texture] = texture.tiling.scatter(texture.layout.pack(padded.astype(texture.dtype)))
        self.placements[name] = Placement(texture, padded.shape)
        view = identity(operand.view.shape)
        index = view.index if lead else view.index[-2:]
        return Operand(name, View(operand.view.shape, padded.shape, index))


def _without_batch(array: Any) -> Any:
    """Matrices (..., K, N) as one (K, N) where all are equal."""
    first = array[(0,) * (array.ndim - 2)]
    return first if numpy.array_equal(numpy.broadcast_to(first, array.shape), array, equal_nan=True) else array


def values_behind_indices(graph: Graph) -> frozenset[str]:
    """What the indices of gathers are computed from: coordinates, which half would move by whole elements."""
    found: set[str] = set()
    for node in reversed(graph.nodes):
        if isinstance(node.operation, Gather):
            found |= {o.value for o in node.operands[1:]}
        elif node.output.name in found and isinstance(node.operation, (Load, Product)):
            found |= node.reads
    return frozenset(found)


def concatenations_in_place(
    graph: Graph, layouts: dict[str, Layout], apart: frozenset[str] = frozenset()
) -> dict[str, tuple[str, int]]:
    """For each value that is written where a concatenation wants it: the concatenation and the offset in channels.

    Values that must stay `apart` have a texture of their own. A value is left out when a kernel would read and write
    the same image: when it, or another part, is read by the kernel that makes a part. Among conflicting parts the one
    with most conflicts is copied instead, the smallest of those.
    """
    inside: dict[str, tuple[str, int]] = {}
    for node in graph.nodes:
        if not isinstance(node.operation, Concatenation):
            continue
        parts: dict[str, int] = {}
        offset = 0
        for operand in node.operands:
            name = operand.value
            made = name in graph.producers or any(v.name == name for v in graph.inputs)
            same = operand.view.is_identity and layouts[name] == layouts[node.output.name]
            free = name not in inside and name not in parts and name not in graph.outputs and name not in apart
            if made and same and free:
                parts[name] = offset
            offset += operand.view.shape[1]
        _drop_conflicts(graph, node, parts, inside)
        inside |= {name: (node.output.name, at) for name, at in parts.items()}
    return inside


def _drop_conflicts(graph: Graph, node: Node, parts: dict[str, int], inside: dict[str, tuple[str, int]]) -> None:
    """Remove parts until no kernel that writes into the concatenation, a copy included, reads another part of it."""

    def part_of(name: str) -> str | None:
        """The part that holds a value: itself, or a concatenation that it is written into."""
        while name not in parts and name in inside:
            name = inside[name][0]
        return name if name in parts else None

    while True:
        conflicts = dict.fromkeys(parts, 0)
        for name in (*parts, *inside):
            writes, producer = part_of(name), graph.producers.get(name)
            for read in producer.reads if writes is not None and producer else ():
                other = part_of(read)
                if writes is not None and other is not None and other != writes:
                    conflicts[writes] += 1
                    conflicts[other] += 1
        offset = 0
        for operand in node.operands:
            copied = part_of(operand.value) if parts.get(operand.value) != offset else None
            if copied is not None:
                conflicts[copied] += 1
            offset += operand.view.shape[1]
        worst = max(conflicts, key=lambda n: (conflicts[n], -graph.values[n].size), default=None)
        if worst is None or conflicts[worst] == 0:
            return
        del parts[worst]


def _host_buffer(value: Value, layout: Layout) -> HostBuffer:
    return HostBuffer(value.name, value.shape, layout, "float16" if value.dtype == "float16" else "float32")


def _seen_as(graph: Graph, value: Value, shape: tuple[int, ...]) -> Graph:
    """The graph with an input of another shape of the same size, which its readers see as before."""
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
    """The operand where its value lies in another shape of the same size."""
    return replace(operand, view=operand.view.over(reshape(shape, operand.view.source)))


def _sort_of(node: Node) -> str:
    """The sort of work that a node is, in a word or two."""
    operation = node.operation
    if isinstance(operation, Load):
        return "movement" if node.epilogue == IDENTITY else "elementwise"
    if isinstance(operation, Convolution) and 1 < operation.groups == node.operands[0].view.shape[1]:
        return "depthwise convolution"
    return type(operation).__name__.lower()


def _describe(node: Node) -> str:
    """The operation and, after it, what is fused into its store."""
    fused = " ".join(operations(node.epilogue))
    body = str(node.operation)
    if isinstance(node.operation, Load):
        return fused or f"move {node.operands[0].value}"
    return f"{body} + {fused}" if fused else body
