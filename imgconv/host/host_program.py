"""HostProgram: a graph of ONNX nodes, prepared once and run for each frame as a sequence of numpy calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy

from imgconv.arrays import Array
from imgconv.errors import Error
from imgconv.graph.onnx_nodes import HostGraph, HostNode
from imgconv.host.registry import LIMIT, RANDOM, HostCall, HostFunction, find
from imgconv.host.subgraphs import is_device_subgraph

Slots = tuple[int, ...]
OnDevice = Callable[[HostGraph], HostFunction]


@dataclass(frozen=True)
class NodeTiming:
    """One node of a run. start, end: seconds since the run's start; bytes: of what it made."""

    node: str
    op_type: str
    start: float
    end: float
    bytes: int


@dataclass(frozen=True)
class HostStep:
    """A call of a host function. inputs: slots, -1 if one is absent; outputs: slots, -1 for what nothing reads.

    bodies: by the attribute's name, each subgraph's program and the slots of the outer values that it reads. dead:
    slots that nothing reads after it.
    """

    call: HostCall
    function: HostFunction
    inputs: Slots
    outputs: Slots
    bodies: Mapping[str, tuple[HostProgram, Slots]] = field(default_factory=dict)
    dead: Slots = ()

    def run(self, values: list[Any]) -> None:
        """Computes the outputs from the values in their slots. Raises Error."""
        call = self.call
        if self.bodies:
            bound = {
                name: partial(body.run_body, [values[slot] for slot in slots])
                for name, (body, slots) in self.bodies.items()
            }
            call = call.with_attributes(bound)
        try:
            made = self.function(call, *[values[slot] for slot in self.inputs])
        except Error:
            raise
        except MemoryError as error:
            raise call.too_large((), call.limit) from error
        except (ValueError, ArithmeticError, IndexError, TypeError, KeyError) as error:
            raise call.wrong(" ".join(str(error).split())) from error
        for slot, value in zip(self.outputs, made) if isinstance(made, tuple) else ((self.outputs[0], made),):
            if slot >= 0:
                # Most values need no call.
                is_small = type(value) is numpy.ndarray and value.nbytes <= call.limit
                values[slot] = value if is_small else self.to_checked_array(value)
        for slot in self.dead:
            values[slot] = None

    def to_checked_array(self, value: Any) -> Any:
        """An output as an array; a sequence or an absent optional value as it is. Raises ResourceError."""
        if value is None or isinstance(value, list):
            return value
        array = numpy.asarray(value, object if isinstance(value, str) else None)  # one string of an array of them
        if array.nbytes > self.call.limit:
            raise self.call.too_large(array.shape, array.nbytes)
        return array


@dataclass(frozen=True)
class HostProgram:
    """A prepared graph: its steps, and a list of slots that holds the constants. The last slot, -1, holds None."""

    steps: tuple[HostStep, ...]
    template: tuple[Any, ...]
    inputs: Slots
    captured: Slots
    outputs: Slots

    @staticmethod
    def prepare(graph: HostGraph, limit: int = LIMIT, on_device: OnDevice | None = None) -> HostProgram:
        """Prepares a graph; what depends on constants only is computed here. limit: bytes of the largest tensor.

        on_device: makes the function of a device subgraph, see subgraphs.py; without it the host computes it. Raises
        ModelError if the host has no function for an operator.
        """
        return _ProgramBuilder(graph, limit, on_device).program()

    def run(self, inputs: Sequence[Any], timings: list[NodeTiming] | None = None) -> list[Any]:
        """The outputs, in the graph's order. inputs: in the graph's order.

        timings: takes the NodeTiming of each step. Raises ModelError and ResourceError naming the node.
        """
        return self.run_body((), *inputs, timings=timings)

    def run_body(self, captured: Sequence[Any], *inputs: Any, timings: list[NodeTiming] | None = None) -> list[Any]:
        """`run` for a body of If, Loop, Scan or SequenceMap. captured: what it reads from outside."""
        values = list(self.template)
        for slot, value in zip((*self.captured, *self.inputs), (*captured, *inputs), strict=True):
            values[slot] = value
        with numpy.errstate(all="ignore"):
            if timings is None:
                for step in self.steps:
                    step.run(values)
            else:
                self._timed(values, timings)
        return [values[slot] for slot in self.outputs]

    def _timed(self, values: list[Any], timings: list[NodeTiming]) -> None:
        origin = time.perf_counter()
        for step in self.steps:
            start = time.perf_counter()
            step.run(values)
            end = time.perf_counter()
            made = sum(values[slot].nbytes for slot in step.outputs if isinstance(values[slot], numpy.ndarray))
            timings.append(NodeTiming(step.call.node, step.call.op_type, start - origin, end - origin, made))


class _ProgramBuilder:
    """Gives each value of a graph a slot, folds constants, and finds where each value is read last."""

    def __init__(self, graph: HostGraph, limit: int, on_device: OnDevice | None) -> None:
        self.graph, self.limit, self.on_device = graph, limit, on_device
        self.values: list[Any] = []
        self.slots: dict[str, int] = {}
        self.known: set[int] = set()

    def program(self) -> HostProgram:
        graph = self.graph
        captured = graph.captured
        for name in (*captured, *graph.inputs):
            self.new_slot(name)
        for name, array in graph.constants.items():
            self.define(name, array)
        steps = [step for node in graph.nodes if (step := self.step(node)) is not None]
        outputs = tuple(self.slots[name] for name in graph.outputs)
        of = partial(map, self.slots.__getitem__)
        return HostProgram(
            self.with_dead_slots(steps, outputs), (*self.values, None), tuple(of(graph.inputs)), tuple(of(captured)),
            outputs
        )

    def new_slot(self, name: str) -> int:
        """A new slot for a name."""
        self.slots[name] = len(self.values)
        self.values.append(None)
        return self.slots[name]

    def define(self, name: str, array: Array) -> None:
        """A slot that holds a constant."""
        slot = self.new_slot(name)
        self.values[slot] = array.view()
        self.values[slot].setflags(write=False)
        self.known.add(slot)

    def step(self, node: HostNode) -> HostStep | None:
        """The step of a node; None if it is computed here, of constants, or nothing is to be computed."""
        if (node.op_type, node.domain) == ("Identity", "") and all((*node.inputs, *node.outputs)):
            self.slots[node.outputs[0]] = self.slots[node.inputs[0]]
            return None
        inputs = tuple(self.slots[name] if name else -1 for name in node.inputs)
        bodies = {
            name: (
                HostProgram.prepare(body, self.limit, self.on_device),
                tuple(self.slots[each] for each in body.captured),
            )
            for name, body in node.bodies.items()
        }
        outputs = tuple(self.new_slot(name) if name else -1 for name in node.outputs)
        wanted = max((number for number, slot in enumerate(outputs, 1) if slot >= 0), default=1)
        # What reads nothing from outside is the same in every run.
        alone = {name: partial(body.run_body, ()) for name, (body, slots) in bodies.items() if not slots}
        attributes = {name: value for name, value in node.attributes.items() if name not in bodies} | alone
        call = HostCall(node.name, node.op_type, node.version, attributes, wanted, self.limit)
        function = find(node.op_type, node.domain)
        if self.on_device and is_device_subgraph(node):
            function = self.on_device(next(iter(node.bodies.values())))
        bound = {name: bodies[name] for name in bodies.keys() - alone.keys()}
        made = HostStep(call, function, inputs, outputs, bound)
        if bodies or node.op_type in RANDOM or not self.known.issuperset(slot for slot in inputs if slot >= 0):
            return made
        with numpy.errstate(all="ignore"):
            made.run(values := [*self.values, None])
        self.values = values[:-1]
        folded = [slot for slot in outputs if slot >= 0]
        for array in (self.values[slot] for slot in folded):
            if isinstance(array, numpy.ndarray):
                array.setflags(write=False)
        self.known.update(folded)
        return None

    def with_dead_slots(self, steps: Sequence[HostStep], outputs: Slots) -> tuple[HostStep, ...]:
        """The steps, each with the slots that nothing reads after it."""
        kept, found = self.known.union(outputs), []
        for step in reversed(steps):
            captured = (slot for _, slots in step.bodies.values() for slot in slots)
            used = {*step.inputs, *step.outputs, *captured} - kept - {-1}
            kept = kept | used
            found.append(replace(step, dead=tuple(sorted(used))))
        return tuple(reversed(found))
