"""Let convolutions read shuffled and split channels where they lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy

from imgconv.arrays import Array
from imgconv.graph.index import Index, variable
from imgconv.graph.nodes import Concatenation, Convolution, Graph, Load, Node, Operand, Value, whole_operand
from imgconv.graph.view import View, axis_variables, identity
from imgconv.kernels.layout import LANES
from imgconv.passes.materialise import reorders_texels

MOST_LINKS = 16  # concatenations of a chain: their parts are alive together
MOST_PADDING = 1.3  # channels of the parts in whole texels, compared with the channels


@dataclass(frozen=True)
class ConcatenationPart:
    """A part of a chain's concatenation. made: the nodes that compute it, a convolution and elementwise work on it."""

    made: tuple[Node, ...]
    first: int

    @property
    def channels(self) -> range:
        """The numbers of the part's channels in its chain."""
        return range(self.first, self.first + self.made[-1].output.shape[1])


@dataclass
class ConcatenationChain:
    """Concatenations of channels. Each uses some channels of the previous one, and further parts.

    sources: for each channel of a concatenation, by name, its number among the channels of all parts. readers: the
    convolutions that read the concatenations, and the number of each channel that they read.
    """

    nodes: list[Node] = field(default_factory=list)
    parts: list[list[ConcatenationPart]] = field(default_factory=list)
    sources: dict[str, Array] = field(default_factory=dict)
    readers: dict[str, Array] = field(default_factory=dict)

    @property
    def all_parts(self) -> list[ConcatenationPart]:
        return [part for parts in self.parts for part in parts]


def sort_channels_by_readers(graph: Graph) -> Graph:
    """Store the parts of concatenations in the order of channels in which convolutions read them, four to a texel.

    ShuffleNet's units concatenate, shuffle and split channels. If each unit only appends to one texture, the next
    convolutions read some of its texels, and nothing is copied. A part's channels are sorted by the convolutions that
    read them, each group in whole texels. The weights of the convolutions that compute and read the part are sorted in
    the same way.

    Given:   y = concatenation axis 1(a, b);  c = convolution(y[0, (i1%2)*8 + i1/2 + 4, i2, i3], v)
             z = concatenation axis 1(y[0, (i1%2)*8 + i1/2, i2, i3], d)
    Result:  y.ordered = concatenation axis 1(a.ordered, b.ordered)
             c = convolution(y.ordered[0, i1%4 + (i1/4)*8, i2, i3], c.ordered)
             z.ordered = concatenation axis 1(y.ordered, d.ordered);  z = load(z.ordered[0, table[i1], i2, i3])
    """
    made: dict[str, list[Node]] = {}
    constants = dict(graph.constants)
    for chain in _chains(graph):
        _find_readers(graph, chain)
        orders = [_channels_sorted_by_readers(part, chain) for part in chain.all_parts]
        padded, channels = sum(map(len, orders)), sum(len(part.channels) for part in chain.all_parts)
        if chain.readers and padded <= MOST_PADDING * channels:
            made |= _rewrite(graph, chain, orders, constants)
    nodes = [new for node in graph.nodes for new in made.get(node.output.name, [node])]
    return replace(graph, nodes=tuple(nodes), constants=constants)


def _chains(graph: Graph) -> list[ConcatenationChain]:
    """The chains of a graph. A concatenation is in one chain at most."""
    chains: list[ConcatenationChain] = []
    last: dict[str, ConcatenationChain] = {}
    for node in graph.nodes:
        if not isinstance(node.operation, Concatenation) or node.operation.axis != 1 or len(node.output.shape) != 4:
            continue
        links = [o for o in node.operands if o.value in last and len(last[o.value].nodes) < MOST_LINKS]
        chain = last[links[0].value] if links else ConcatenationChain()
        taken = [_source_channels(operand) for operand in links]
        if len({o.value for o in links}) > 1 or any(channels is None for channels in taken):
            continue
        first, parts, sources = sum(len(p.channels) for p in chain.all_parts), [], []
        for operand in node.operands:
            if operand in links:
                sources.append(chain.sources[operand.value][taken[links.index(operand)]])
                continue
            made = elementwise_of(graph, operand, _is_dense)
            if not made:
                break
            parts.append(ConcatenationPart(made, first))
            sources.append(numpy.array(parts[-1].channels))
            first += len(parts[-1].channels)
        else:
            chain.nodes.append(node)
            chain.parts.append(parts)
            chain.sources[node.output.name] = numpy.concatenate(sources)
            last = {n: c for n, c in last.items() if c is not chain} | {node.output.name: chain}
            chains += [] if links else [chain]
    return chains


def _source_channels(operand: Operand) -> Array | None:
    """The channel of (N, C, H, W) that is read for each channel of the view. None unless rows and
    columns are read unchanged."""
    view = operand.view
    if view.bounds or len(view.source) != 4 or len(view.shape) != 4:
        return None
    own, channel = axis_variables(view.shape), view.index[1]
    if any(view.shape[a] != view.source[a] or view.index[a] != own[a] for a in (0, 2, 3)):
        return None
    if any(v.name != "i1" for v in channel.variables()):
        return None
    return numpy.broadcast_to(channel.evaluate({"i1": numpy.arange(view.shape[1])}), view.shape[1:2])


def elementwise_of(
    graph: Graph, operand: Operand, is_first: Callable[[Graph, Node], bool]
) -> tuple[Node, ...]:
    """A node that `is_first`, and elementwise work whose whole result the operand is; empty if there is none.

    Nothing else reads what they compute, and their other operands are numbers for each channel.
    """
    found: dict[str, Node] = {}
    waiting = [operand]
    while waiting:
        read = waiting.pop()
        if _is_constant_per_channel(graph, read) or (read.value in found and read.view.is_identity):
            continue
        node = graph.producers.get(read.value)
        if node is None or not read.view.is_identity or len(read.view.shape) != 4:
            return ()
        found[read.value] = node
        if not is_first(graph, node):
            if not isinstance(node.operation, Load):
                return ()
            waiting += node.all_operands
    first = [node for node in found.values() if is_first(graph, node)]
    if len(first) != 1 or not all(_is_constant_per_channel(graph, o) for o in first[0].epilogue_operands):
        return ()
    made = tuple(node for node in graph.nodes if node.output.name in found)
    readers = [reader for node in made[:-1] for reader in graph.consumers[node.output.name]]
    last = graph.consumers[operand.value]
    alone = len(last) == 1 and sum(o.value == operand.value for o in last[0].all_operands) == 1
    inside = all(reader.output.name in found for reader in readers) and not found.keys() & set(graph.outputs)
    return made if alone and inside and made[-1].output.dtype == "float32" else ()


def _is_dense(graph: Graph, node: Node) -> bool:
    """Returns whether the node is a convolution of one group whose weights are known floats."""
    operation = node.operation
    if not isinstance(operation, Convolution) or operation.groups > 1 or operation.transposed or len(node.operands) > 2:
        return False
    weights = node.operands[1]
    known = graph.constants.get(weights.value)
    return known is not None and weights.view.is_identity and known.dtype.kind == "f"


def _is_constant_per_channel(graph: Graph, operand: Operand) -> bool:
    """Returns whether the operand is known numbers, one for each channel (axis 1) or one for all."""
    variables = {v.name for e in operand.view.index for v in e.variables()}
    return operand.value in graph.constants and variables <= {"i1"} and not operand.view.bounds


def _find_readers(graph: Graph, chain: ConcatenationChain) -> None:
    """Fills `chain.readers`. They stay empty if nothing of the chain is shuffled or split.

    A convolution is left out if a node that is none reads the same channels: they share a copy.
    """
    copied = False
    inside = {node.output.name for node in chain.nodes}
    for made in chain.nodes:
        name = made.output.name
        readers = graph.consumers[name]
        others = {
            o for node in readers if node.output.name not in inside and not _is_dense(graph, node)
            for o in node.all_operands
        }
        for node in readers:
            operand = node.operands[0]
            alone = sum(o.value == name for o in node.all_operands) == 1
            channels = _source_channels(operand) if operand.value == name and alone else None
            if node.output.name in inside:
                copied |= any(o.value == name and not o.view.is_identity for o in node.operands)
            elif channels is not None and _is_dense(graph, node) and operand not in others:
                chain.readers[node.output.name] = chain.sources[name][channels]
                copied |= reorders_texels(operand)
    if not copied:
        chain.readers.clear()


def _channels_sorted_by_readers(part: ConcatenationPart, chain: ConcatenationChain) -> list[int]:
    """The part's channels, sorted by their readers; the last of a group is repeated to fill its texel."""
    groups: dict[tuple[int, ...], list[int]] = {}
    sets = [set(channels.tolist()) for channels in chain.readers.values()]
    for channel in part.channels:
        groups.setdefault(tuple(n for n, read in enumerate(sets) if channel in read), []).append(channel)
    order: list[int] = []
    for _, channels in sorted(groups.items(), key=lambda group: group[0] or (len(sets),)):
        order += channels + channels[-1:] * (-len(channels) % LANES)
    return order


def _rewrite(
    graph: Graph, chain: ConcatenationChain, orders: Sequence[list[int]], constants: dict[str, Array]
) -> dict[str, list[Node]]:
    """The nodes that replace some of the graph's, by name. Adds the sorted weights to `constants`."""
    made: dict[str, list[Node]] = {}
    waiting, positions = iter(orders), numpy.zeros(sum(len(part.channels) for part in chain.all_parts), int)
    whole: Value | None = None
    for node, parts in zip(chain.nodes, chain.parts, strict=True):
        joined = [] if whole is None else [whole_operand(whole)]
        for part in parts:
            order, start = next(waiting), sum(o.view.shape[1] for o in joined)
            # A repeated channel has the position of its first copy.
            positions[order[::-1]] = start + numpy.arange(len(order))[::-1]
            new = _reordered_nodes(graph, part, [channel - part.first for channel in order], constants)
            made |= {old.output.name: [each] for old, each in zip(part.made, new, strict=True)}
            joined.append(whole_operand(new[-1].output))
        if parts:
            n, _, h, w = node.output.shape
            shape = (n, sum(o.view.shape[1] for o in joined), h, w)
            whole = Value(graph.unused_name(f"{node.output.name}.ordered"), shape, node.output.dtype)
            made[node.output.name] = [replace(node, output=whole, operands=tuple(joined))]
        assert whole is not None, "the first concatenation has parts only"
        channel = variable("i1", node.output.shape[1]).lookup(positions[chain.sources[node.output.name]].tolist())
        in_order = replace(node, operation=Load(), operands=(_reading_channels(whole, node.output.shape[1], channel),))
        made.setdefault(node.output.name, []).append(in_order)
        for reader in graph.consumers[node.output.name]:
            if reader.output.name in chain.readers:
                places = positions[chain.readers[reader.output.name]]
                made[reader.output.name] = [_read_reordered(graph, reader, whole, places, constants)]
    return made


def _reading_channels(value: Value, channels: int, channel: Index) -> Operand:
    """The value (N, C, H, W), read at another channel for each of `channels`."""
    n, _, h, w = value.shape
    own = axis_variables((n, channels, h, w))
    return Operand(value.name, View((n, channels, h, w), value.shape, (own[0], channel, own[2], own[3])))


def _reordered_nodes(
    graph: Graph, part: ConcatenationPart, order: Sequence[int], constants: dict[str, Array]
) -> list[Node]:
    """The nodes that compute the part's channels in the given order."""
    made: dict[str, Node] = {}

    def operand(old: Operand, name: str) -> Operand:
        if old.value in made:
            return whole_operand(made[old.value].output)
        size = len(part.channels)
        where = (numpy.broadcast_to(e.evaluate({"i1": numpy.arange(size)}), size) for e in old.view.index)
        constants[name] = numpy.broadcast_to(constants[old.value][tuple(where)], size)[order]
        return Operand(name, View(shape, (len(order),), (variable("i1", len(order)),)))

    for node in part.made:
        n, _, h, w = node.output.shape
        shape = (n, len(order), h, w)
        value = Value(graph.unused_name(f"{node.output.name}.ordered"), shape, node.output.dtype)
        names = [graph.unused_name(f"{value.name}{number}") for number in range(len(node.all_operands))]
        if isinstance(node.operation, Convolution):
            constants[names[1]] = constants[node.operands[1].value][order]
            operands = [node.operands[0], Operand(names[1], identity(constants[names[1]].shape))]
        else:
            operands = [operand(node.operands[0], names[0])]
        extra = map(operand, node.epilogue_operands, names[len(operands) :])
        made[node.output.name] = replace(node, output=value, operands=tuple(operands), epilogue_operands=tuple(extra))
    return list(made.values())


def _read_reordered(graph: Graph, node: Node, whole: Value, places: Array, constants: dict[str, Array]) -> Node:
    """The convolution, which reads the texels that have its channels. places: of each channel, in `whole`."""
    quads = numpy.unique(places // LANES)
    weights, name = constants[node.operands[1].value], graph.unused_name(f"{node.output.name}.ordered")
    spread = numpy.zeros((len(quads) * LANES, weights.shape[0], *weights.shape[2:]), weights.dtype)
    numpy.add.at(spread, numpy.searchsorted(quads, places // LANES) * LANES + places % LANES, weights.swapaxes(0, 1))
    constants[name] = spread.swapaxes(0, 1)
    own = variable("i1", len(spread))
    channel = (own // LANES).lookup(quads.tolist()) * LANES + own % LANES
    read = _reading_channels(whole, len(spread), channel)
    return replace(node, operands=(read, Operand(name, identity(constants[name].shape))))
