"""Lowers a Graph to a Plan: places values, chooses kernels, emits their sources, then lets textures share memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from imgconv.compiling.choose import Chooser, CostModelChooser, choose_all
from imgconv.compiling.emit import LaunchEmitter
from imgconv.compiling.memory_planning import assign_regions, assign_slots, most_alive
from imgconv.compiling.place import place
from imgconv.compiling.plan import Plan
from imgconv.config import Config
from imgconv.graph.nodes import Graph
from imgconv.graph.pass_through import split_pass_through
from imgconv.kernels.target import Target


def lower(
    graph: Graph, config: Config, target: Target, states: Mapping[str, str] | None = None,
    chooser: Chooser = CostModelChooser(), exact: frozenset[str] = frozenset(),
) -> Plan:
    """Returns the Plan of a graph after the passes. Raises UnsupportedError or ResourceError.

    states: outputs that stay on the device and become inputs of the next run. ``{"h_out": "h_in"}`` feeds output h_out
    to input h_in. exact: values whose kernels use no native functions.
    """
    computed, moved = split_pass_through(graph, states or {})
    placed = place(computed, config, target, states or {})
    emitter = LaunchEmitter(placed, config, target, exact)
    steps = choose_all(placed.steps, chooser, target, config)
    launches = list(map(emitter.launch, steps))
    lasting, alignment = frozenset(placed.states), target.workspace
    alive = most_alive(launches, lasting)
    regions = assign_regions(launches, lasting, alignment) if alignment else {}
    slots = assign_slots(launches, lasting | regions.keys())
    names = {v.name for v in graph.inputs} | graph.producers.keys()
    storages = {a.storage for launch in launches for a in launch.source.arguments} | {*placed.input_buffers.values()}
    places = {n: each for n, each in placed.placements.items() if n in names and each.storage in storages}
    return Plan(
        tuple(v for v in graph.inputs if v.name in placed.input_buffers),
        tuple(graph.values[name] for name in graph.outputs if name not in (states or {})),
        tuple(launches), placed.input_buffers, placed.output_buffers, emitter.content(launches),
        slots, placed.constant_outputs, places, placed.states, regions, alive, moved,
    )
