"""Subjects: for each launch of a plan, the nodes that it computes, and the storages that it reads and writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from imgconv.compiling.place import part_name
from imgconv.compiling.plan import Launch, Plan, Storage
from imgconv.graph.nodes import Concatenation, Graph, Load, Node, Operand, Value, whole_operand
from imgconv.kernels.layout import Placement


@dataclass(frozen=True)
class LaunchedNodes:
    """The nodes that a launch computes; the output of the last one is stored.

    output: the place of that output. places: of the stored values that the nodes read. parts: the numbers of earlier
    launches whose results this one alone reads: copies, and parts of its work. They are checked by its result.
    """

    nodes: tuple[Node, ...]
    output: Placement
    places: Mapping[str, Placement]
    parts: tuple[int, ...] = ()

    @property
    def value(self) -> Value:
        """The value that is stored."""
        return self.nodes[-1].output


def launched_nodes_of(plan: Plan, graph: Graph, states: Mapping[str, str]) -> dict[int, LaunchedNodes]:
    """The subject of each launch, by number. Launches without one do parts of the work of later ones.

    graph: after the passes. states: see `lower`.
    """
    copied = dict(_copies_of_concatenation_parts(plan, graph))
    found: dict[int, LaunchedNodes] = {}
    parts: dict[Storage, tuple[int, ...]] = {}
    for number, launch in enumerate(plan.launches):
        before = tuple(n for storage in launch.reads for n in parts.get(storage, ()))
        subject = _nodes_of_launch(launch, plan, graph, states, before) or copied.get(launch.name)
        if subject is None:
            parts[launch.writes] = (*before, number)
        else:
            found[number] = subject
    return found


def _nodes_of_launch(
    launch: Launch, plan: Plan, graph: Graph, states: Mapping[str, str], parts: tuple[int, ...]
) -> LaunchedNodes | None:
    values = {value.name: value for value in graph.inputs}
    if launch.values:
        nodes = tuple(graph.producers[name] for name in launch.values if name in graph.producers)
        return _as_launched_nodes(nodes, launch, plan, graph, parts)
    if launch.kind == "pack" and launch.name in values:
        given = plan.input_buffers[launch.name]
        node = Node(values[launch.name], Load(), (whole_operand(values[launch.name]),))
        return LaunchedNodes((node,), plan.placements[launch.name], {launch.name: Placement(given, given.shape)})
    if launch.kind == "unpack":
        value = graph.values[launch.name]
        node = Node(value, Load(), (whole_operand(value),))
        output = Placement(plan.output_buffers[launch.name], value.shape)
        return LaunchedNodes((node,), output, {launch.name: plan.placements[launch.name]})
    kept = [output for output, target in states.items() if target == launch.name and launch.writes in plan.states]
    if kept:
        node = Node(graph.values[launch.name], Load(), (whole_operand(graph.values[kept[0]]),))
        return LaunchedNodes((node,), plan.placements[launch.name], {kept[0]: plan.placements[kept[0]]})
    return None


def _as_launched_nodes(
    nodes: tuple[Node, ...], launch: Launch, plan: Plan, graph: Graph, parts: tuple[int, ...]
) -> LaunchedNodes | None:
    """The subject of nodes of the graph; None if a value that they read is not stored."""
    made = {node.output.name for node in nodes}
    read = {o.value for node in nodes for o in node.all_operands} - made - graph.constants.keys()
    if not nodes or not read <= plan.placements.keys() or nodes[-1].output.name not in plan.placements:
        return None
    output = plan.placements[nodes[-1].output.name]
    places = {name: plan.placements[name] for name in read}
    return LaunchedNodes(nodes, output, places, parts) if output.storage == launch.writes else None


def _copies_of_concatenation_parts(plan: Plan, graph: Graph) -> Iterator[tuple[str, LaunchedNodes]]:
    """The subjects of launches that copy a part of a concatenation, by the launch's name."""
    for node in graph.nodes:
        whole = plan.placements.get(node.output.name)
        if not isinstance(node.operation, Concatenation) or whole is None:
            continue
        offset = 0
        for operand in node.operands:
            name, shape = part_name(node, offset), operand.view.shape
            copy = Node(Value(name, shape, node.output.dtype), Load(), (operand,), origin=node.origin)
            places = _placement_by_name(operand, plan, graph)
            if places is not None:
                yield name, LaunchedNodes(
                    (copy,), Placement(whole.storage, shape, whole.channel_offset + offset), places
                )
            offset += shape[node.operation.axis]


def _placement_by_name(operand: Operand, plan: Plan, graph: Graph) -> Mapping[str, Placement] | None:
    if operand.value in graph.constants:
        return {}
    place = plan.placements.get(operand.value)
    return None if place is None else {operand.value: place}
