"""Chooses the layout of each value, the concatenations that are written in place, and the textures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy

from imgconv.arrays import Array
from imgconv.config import Accumulation, Config, Precision
from imgconv.dtype import FLOAT16, FLOAT32, UNSIGNED_INT8, DType
from imgconv.graph.growth import growth_of
from imgconv.graph.expression import Apply, function_names, subexpressions
from imgconv.graph.index import constant
from imgconv.graph.nodes import Concatenation, Convolution, Gather, Graph, Load, Node, Operand, Operation
from imgconv.graph.nodes import Order, Product, Recurrence, Reduction, Suppression, Value, index_operands_of
from imgconv.graph.quantization import Quantization, quantizations_of
from imgconv.kernels.layout import (
    HostBuffer, Layout, Placement, Texture, choose_tiling, image_layout, matrix_layout,
)
from imgconv.kernels.target import HALF_MAX, Target

LONG_SUM = 64  # terms from which on the result of a sum is stored in float
# On most devices, rows of an image begin at multiples of ROW_TEXELS texels: an image of short rows is mostly padding.
ROW_TEXELS = 64
NARROW = ROW_TEXELS // 4  # texels: textures up to this width are widened
# Elements up to which weights stay float; and up to which they do with Precision.small_weights, as biases do. In models
# that are sensitive to rounding, half for small weights would save little memory and keep more activations float: of
# YOLOX-nano 85 % of the numbers are half with SMALL_WEIGHTS, 70 with 1 << 10.
SMALL_WEIGHTS, BIASES = 1 << 12, 1 << 8
# Of the states of a Recurrence: the directions of a step lie side by side, as the next layer's product reads them.
RECURRENT_LAYOUT = Layout((0, 1, 2), (3,), 4)
LEAST_ALONG = 8  # elements of a last axis that are worth a layout of their own


@dataclass(frozen=True)
class WantedLayout:
    """The layout that an operation's kernels need. layout: maps the rank of the result to its layout; None if any
    layout will do.

    operands: the number of operands that should have this layout too, if they are read whole. The kernels of an
    operation with operands=0 write no other layout. weak: other operations decide first about an operand.
    """

    layout: Callable[[int], Layout] | None = None
    operands: int = 0
    weak: bool = False


ALL = 2**31
LAYOUTS: Mapping[type[Operation], WantedLayout] = {
    Load: WantedLayout(), Reduction: WantedLayout(), Gather: WantedLayout(), Convolution: WantedLayout(image_layout, 1),
    Concatenation: WantedLayout(image_layout, ALL), Product: WantedLayout(matrix_layout, ALL, weak=True),
    Order: WantedLayout(matrix_layout), Suppression: WantedLayout(matrix_layout),
    Recurrence: WantedLayout(lambda rank: RECURRENT_LAYOUT),
}


def default_layout(shape: tuple[int, ...]) -> Layout:
    """image_layout for rank 4 and more, else matrix_layout."""
    return image_layout(len(shape)) if len(shape) >= 4 else matrix_layout(len(shape))


def widened_layout(layout: Layout, shape: tuple[int, ...]) -> Layout:
    """The layout, or for a narrow texture one with its innermost row axes as columns: at least ROW_TEXELS wide."""
    if layout.grid(shape)[0] > NARROW:
        return layout
    while layout.rows and layout.grid(shape)[0] < ROW_TEXELS:
        layout = replace(layout, rows=layout.rows[:-1], columns=(layout.rows[-1], *layout.columns))
    return layout


def choose_layouts(graph: Graph) -> dict[str, Layout]:
    """Returns the layout of each value, by name.

    If a convolution, a concatenation or a product computes the value, it decides. Otherwise such a node decides if it
    reads the value; otherwise a product, or a reduction along its last axis; otherwise the rank. Narrow textures that
    only generated kernels write and read are widened, since these kernels accept any layout.
    """
    layouts: dict[str, Layout] = {}
    for weak in (False, True):
        for node in graph.nodes:
            wanted = LAYOUTS[type(node.operation)]
            if wanted.layout is None or wanted.weak != weak:
                continue
            layouts[node.output.name] = wanted.layout(len(node.output.shape))
            for operand in (o for o in node.operands[: wanted.operands] if o.view.is_identity):
                layout = wanted.layout(len(operand.view.shape))
                layouts[operand.value] = layouts.get(operand.value, layout) if weak else layout
    for node in graph.nodes:
        for operand in node.operands:
            if operand.value in graph.producers and _runs_along_last_axis(node, operand):
                layouts.setdefault(operand.value, matrix_layout(len(operand.view.source)))
    chosen = {name: layouts.get(name, default_layout(value.shape)) for name, value in graph.values.items()}
    for node in graph.nodes:
        name = node.output.name
        wanted = LAYOUTS[type(node.operation)]
        if all(LAYOUTS[type(n.operation)].layout is None for n in (node, *graph.consumers[name])):
            chosen[name] = widened_layout(chosen[name], node.output.shape)
        elif wanted.layout and not wanted.operands:
            chosen[name] = wanted.layout(len(node.output.shape))
    return chosen


def _runs_along_last_axis(node: Node, operand: Operand) -> bool:
    """Returns whether a product or a reduction runs along the last axis of what it reads, and along no other."""
    *others, last = operand.view.index or (constant(0),)
    if not operand.view.source or operand.view.source[-1] < LEAST_ALONG:
        return False
    rank, axes = len(node.output.shape), len(operand.view.shape)
    walked = {f"i{a}" for a in (range(rank, axes) if isinstance(node.operation, Reduction) else (axes - 1,))}
    if not isinstance(node.operation, (Product, Reduction)) or not walked <= {v.name for v in last.variables()}:
        return False
    return not any(walked & {v.name for v in e.variables()} for e in others)


def values_that_determine_indices(graph: Graph) -> frozenset[str]:
    """The values from which the indices of gathers are computed. In half they could be off by whole elements."""
    found: set[str] = set()
    for node in reversed(graph.nodes):
        if isinstance(node.operation, Gather):
            found |= {o.value for o in (node.operands if node.output.name in found else index_operands_of(node))}
        elif isinstance(node.operation, Suppression):
            found |= node.reads  # boxes of different classes lie far apart, where half has no whole numbers
        elif node.output.name in found and isinstance(node.operation, (Load, Product)):
            found |= node.reads
    return frozenset(found)


def values_in_concatenations(
    graph: Graph, layouts: dict[str, Layout], in_own_texture: frozenset[str] = frozenset()
) -> dict[str, tuple[str, int]]:
    """Returns the values that are written directly into a concatenation's texture: its name, and the offset in
    channels.

    in_own_texture: values that are not written there. A kernel cannot read and write the same image. So if the kernel
    that writes one part reads another part, the two parts conflict. The part with the most conflicts (the smallest of
    several) is copied instead, until there are no conflicts.
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
            free = name not in inside and name not in parts and name not in graph.outputs and name not in in_own_texture
            if made and same and free:
                parts[name] = offset
            offset += operand.view.shape[1]
        _drop_conflicts(graph, node, parts, inside)
        inside |= {name: (node.output.name, at) for name, at in parts.items()}
    return inside


def _drop_conflicts(graph: Graph, node: Node, parts: dict[str, int], inside: dict[str, tuple[str, int]]) -> None:
    """Removes parts until no kernel that writes one part, copies included, reads another part."""

    def containing_part(name: str) -> str | None:
        """The part that holds a value: the value itself, or a concatenation into which it is written."""
        while name not in parts and name in inside:
            name = inside[name][0]
        return name if name in parts else None

    while True:
        conflicts = dict.fromkeys(parts, 0)
        for name in (*parts, *inside):
            writes, producer = containing_part(name), graph.producers.get(name)
            for read in producer.reads if writes is not None and producer else ():
                other = containing_part(read)
                if writes is not None and other is not None and other != writes:
                    conflicts[writes] += 1
                    conflicts[other] += 1
        offset = 0
        for operand in node.operands:
            copied = containing_part(operand.value) if parts.get(operand.value) != offset else None
            if copied is not None:
                conflicts[copied] += 1
            offset += operand.view.shape[1]
        worst = max(conflicts, key=lambda n: (conflicts[n], -graph.values[n].size), default=None)
        if worst is None or conflicts[worst] == 0:
            return
        del parts[worst]


class Textures:
    """The textures and buffers of a graph's values and constants, created on first use.

    graph: after the passes. placements: where the values placed so far are. known: the arrays of textures that hold
    constants. alike: for the name of each value, all values that have the same element type as it. output_buffers:
    buffers of outputs that a kernel writes directly to the host. states: see `lower`.
    """

    def __init__(self, graph: Graph, config: Config, target: Target, states: Mapping[str, str]) -> None:
        self.graph, self.config, self.target, self.states = graph, config, target, states
        self.layouts = choose_layouts(graph)
        self.always_float = always_float(graph) if config.storage != FLOAT32 else {}
        # In linear textures levels stay floats. To convert the bytes takes CPUs longer than to read four times as much:
        # a 1x1 convolution of 256 channels takes 1.4 times as long on Intel's runtime.
        in_bytes = quantizations_of(graph) if target.image_limits else {}
        apart = {*states, *states.values()}
        self.quantizations = {name: made for name, made in in_bytes.items() if name not in apart}
        self.inside = values_in_concatenations(graph, self.layouts, frozenset(states.values()))
        self.alike = {name: name for name in graph.values}
        self.placements: dict[str, Placement] = {}
        self.output_buffers: dict[str, HostBuffer] = {}
        self.known: dict[Texture, Array] = {}
        self.constants: dict[tuple[str, Layout], Placement] = {}

    def texture(self, name: str, shape: tuple[int, ...], layout: Layout, dtype: DType) -> Texture:
        """A texture, tiled if it exceeds the image limits. A ResourceError names it if it does not fit."""
        tiling = choose_tiling(*layout.grid(shape), self.target.image_limits, name, shape)
        return Texture(name, shape, layout, dtype, tiling)

    def shareable_texture(
        self, name: str, shape: tuple[int, ...], layout: Layout, dtype: DType, quantization: Quantization | None = None
    ) -> Texture:
        """A texture that may share an image with others. It holds bytes if it has a quantization."""
        made = self.texture(name, shape, layout, UNSIGNED_INT8 if quantization else dtype)
        made = replace(made, quantization=quantization)
        if self.target.workspace is None and name not in self.states.values():
            return replace(made, tiling=replace(made.tiling, bordered=False))
        return made

    def add_intermediate_value(
        self, name: str, shape: tuple[int, ...], layout: Layout, same_dtype_as: str = "",
        quantization: Quantization | None = None,
    ) -> Value:
        """A value that no node of the graph computes, and its placement. same_dtype_as: see PlacingContext."""
        value = Value(self.graph.unused_name(name), shape, "float32")
        dtype = self.dtype(self.graph.values[same_dtype_as]) if same_dtype_as else FLOAT32
        if same_dtype_as:
            self.alike[value.name] = same_dtype_as
        texture = self.shareable_texture(value.name, shape, layout, dtype, quantization)
        self.placements[value.name] = Placement(texture, shape)
        return value

    def dtype(self, value: Value) -> DType:
        """A value's element type: half only if configured, and unless there is a reason against it."""
        return self._dtype(value, self.config.precision)

    def _dtype(self, value: Value, precision: Precision) -> DType:
        is_float = why_float(self.graph, value, precision, self.always_float) or self.keeps_float(value.name, precision)
        return FLOAT32 if is_float else self.config.storage

    def keeps_float(self, name: str, precision: Precision) -> bool:
        """Returns whether a value is stored in float: it must be, or a part that is written into it must be."""
        if name in precision.storage or name in self.always_float:
            return True
        return any(self.keeps_float(part, precision) for part, (owner, _) in self.inside.items() if owner == name)

    def kept_in_float(self) -> frozenset[str]:
        """The values in float textures that would be half but for the settings' precision.

        Empty if all textures are float: the plan gives what a float plan gives.
        """
        places = {name: place.storage for name, place in self.placements.items() if name in self.alike}
        if all(storage.dtype != FLOAT16 for storage in places.values()):
            return frozenset()
        return frozenset(
            name for name, storage in places.items()
            if isinstance(storage, Texture) and storage.name == name and storage.dtype == FLOAT32
            and self._dtype(self.graph.values[self.alike[name]], Precision()) == FLOAT16
        )

    def narrowest_accumulation(self, name: str) -> Accumulation:
        """Returns the narrowest width in which a value's node may sum: half only if the value is stored in half too."""
        half = self.config.products == FLOAT16 and self.placements[name].storage.dtype == FLOAT16
        return self.config.precision.sums_of(name) if half else "float"

    def place_value(self, value: Value) -> Placement:
        """Places a value unless it is placed: in its own texture, or in that of the concatenation that has it."""
        if value.name not in self.placements:
            if value.name in self.inside:
                owner, offset = self.inside[value.name]
                outer = self.place_value(self.graph.values[owner])
                made = Placement(outer.storage, value.shape, outer.channel_offset + offset)
            else:
                layout = self.layouts[value.name]
                levels = self.quantizations.get(value.name)
                texture = self.shareable_texture(value.name, value.shape, layout, self.dtype(value), levels)
                made = Placement(texture, value.shape)
            self.placements[value.name] = made
        return self.placements[value.name]

    def place_result(self, value: Value) -> Placement:
        """Places what a generated kernel writes: an output that no node reads goes to its host buffer.

        If another template has placed it, and the generated one is only the fallback, it stays there.
        """
        name = value.name
        is_last = name in self.graph.outputs and name not in self.states and not self.graph.consumers[name]
        if name in self.placements or not is_last:
            return self.place_value(value)
        self.output_buffers[name] = buffer = host_buffer(value, self.layouts[name])
        self.placements[name] = Placement(buffer, value.shape)
        return self.placements[name]

    # Constants

    def weights_dtype(self, array: Array, readers: Sequence[Node]) -> DType:
        """Returns the element type of weights: fp16 only for float arrays that are not small.

        Rounding errors of weights are the same at every position, so they add up. Weights stay fp32 if the result of a
        node that reads them does.
        """
        if self.config.storage == FLOAT32 or array.dtype.kind != "f" or array.size <= small_weight_limit(self.config):
            return FLOAT32
        kept = any(self.keeps_float(node.output.name, self.config.precision) for node in readers)
        return FLOAT32 if kept or numpy.any(numpy.abs(array) > HALF_MAX) else self.config.storage

    def constant_of(self, operand: Operand) -> Array:
        """The array that a constant operand reads, through its view."""
        array = numpy.asarray(self.graph.constants[operand.value])
        return array if operand.view.is_identity else operand.view.evaluate(array, operand.fill)

    def place_constant(self, name: str, layout: Layout) -> Placement:
        """The texture of a constant of the graph."""
        key = (name, layout)
        if key not in self.constants:
            array = numpy.asarray(self.graph.constants[name])
            self.constants[key] = self.place_array(name, array, layout, self.graph.consumers[name])
        return self.constants[key]

    def place_array(self, name: str, array: Array, layout: Layout, readers: Sequence[Node]) -> Placement:
        """The texture of a known array."""
        texture = self.texture(name, array.shape, layout, self.weights_dtype(array, readers))
        self.known[texture] = array
        return Placement(texture, array.shape)

    def operand_places(self, node: Node, output: Placement) -> dict[str, Placement]:
        """Returns the placement of a node's operands. Constants are packed along the axis of the output's lanes."""
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
            places[operand.value] = self.place_constant(operand.value, layout)
        return places


def small_weight_limit(config: Config) -> int:
    """The number of elements up to which weights stay fp32 whatever reads them."""
    return BIASES if config.precision.small_weights else SMALL_WEIGHTS


def always_float(graph: Graph) -> dict[str, str]:
    """Returns, by name, the values that stay fp32 whatever a measurement shows, with the reasons.

    On inputs that are larger than the measured ones, squares and sums of many elements may exceed 65504, or their
    reciprocals may vanish, although all other values are far from these limits.
    """
    reasons = {}
    for name, growth in growth_of(graph, HALF_MAX).items():
        if abs(growth.power) > 1:
            reasons[name] = f"growing as squares: with power {growth.power:g} of their inputs"
        elif growth.terms >= LONG_SUM:
            reasons[name] = f"depending on sums of {LONG_SUM} or more values: {growth.terms:.0f}"
    return reasons | dict.fromkeys(values_that_determine_indices(graph), "determining an index")


def why_float(graph: Graph, value: Value, precision: Precision, known: Mapping[str, str]) -> str:
    """Returns the reason why a value is stored as fp32 under FLOAT16, or "". known: `always_float`.

    A colon separates the kind of reason from its details.
    """
    if not value.dtype.startswith("float"):
        return "of integers"
    node = graph.producers.get(value.name)
    if node is not None and isinstance(node.operation, Reduction):
        terms = prod(node.operands[0].view.shape[len(value.shape) :])
        if any(not graph.values[operand.value].dtype.startswith("float") for operand in node.operands):
            return "reduced from integers"
        if terms >= LONG_SUM:
            return f"reduced from {LONG_SUM} or more values: {terms}"
    if value.name in known:
        return known[value.name]
    if any(takes_logarithm(reader) for reader in graph.consumers[value.name]):
        return "read by a logarithm"
    if value.name in precision.storage:
        return precision.reasons.get(value.name, "fp32 in the precision file")
    return ""


def takes_logarithm(node: Node) -> bool:
    """Returns whether a node computes the logarithm of a value that is not an exponential, such as the power of a
    sound.

    fp16 has few digits below 6e-5 and none below 6e-8, but a logarithm distinguishes 1e-8 from 1e-10. log(1 + exp(x))
    and the logarithm of a sum of exponentials are not affected.
    """
    body = function_names(node.operation.body) if isinstance(node.operation, Reduction) else ()
    arguments = [
        argument for part in subexpressions(node.epilogue) if isinstance(part, Apply) and part.function == "log"
        for argument in part.arguments
    ]
    return "exp" not in body and any("exp" not in function_names(argument) for argument in arguments)


def host_buffer(value: Value, layout: Layout) -> HostBuffer:
    """The host buffer of an input or an output: float16 if the value is, else float32."""
    return HostBuffer(value.name, value.shape, layout, FLOAT16 if value.dtype == "float16" else FLOAT32)
