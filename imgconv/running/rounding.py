"""Measures the cost of rounding to half by the half plan alone: nothing is computed in float.

The plan runs twice on the same input. In the second run numbers in half move by up to some units in their last place:
each value as soon as it is computed, and the weights of the launches that compute it. Rounding is off by the root of
1/12 of a unit, such moves by a known multiple of that, so the outputs differ by this multiple of what rounding costs.
All later values are rounded anew in the second run. The multiple is large, or this would count twice. Equal numbers
move alike, as they are rounded alike: the error of a flat area does not average out. This is stochastic arithmetic
(Vignes 1993, A stochastic arithmetic for reliable scientific computation), with the moves after each launch instead of
each operation.

Copies and maxima of halves are halves: nothing is rounded, and nothing moves. A copy of floats into a texture of halves
rounds, as of a part of a concatenation.

If only some values move, the difference is what these cost. So one plan tells what each of its values costs. Values in
one texture are half together or not at all, so they are asked for together: a `Group`. Here copies of halves move too:
they cost as much if what they copy gets float.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy

from imgconv.arrays import Array, Arrays
from imgconv.compiling.place import part_name
from imgconv.compiling.plan import Launch, Plan, Storage
from imgconv.dtype import FLOAT16
from imgconv.graph.expression import Expression, is_exact_in_half, operations
from imgconv.graph.nodes import Concatenation, Graph, Load, Node, Reduction
from imgconv.graph.value_ranges import Bounds
from imgconv.kernels.layout import Placement, Texture
from imgconv.running.numbers import HALVES, Numbers, magnitude, moved_halves
from imgconv.runtime.programs import Progress
from imgconv.runtime.session import Session

# Of the range of a bounded output, what counts as its least scale: below it halves have fewer digits.
PART_OF_RANGE = 2.0**-14
# By how many units in the last place numbers move: 4 cost 9 times what rounding costs, 64 are 3 to 6 % of a number.
LEAST_UNITS, MOST_UNITS = 4, 64
KEEPS_HALVES = frozenset({"maximum", "minimum", "negative", "absolute"})


@dataclass(frozen=True)
class Group:
    """Values that are in half together, for they lie in one texture, and the half weights of what computes them.

    size: in numbers. A value in float may have half weights.
    """

    values: tuple[str, ...]
    weights: tuple[Storage, ...]
    size: int


@dataclass(frozen=True)
class Rounding:
    """A half plan on some inputs: the outputs, and the largest magnitude of every value; see `magnitude`.

    graph: the plan's. moves: the outputs on an input if all that is rounded, and the half weights, move by LEAST_UNITS,
    by the input's number; made at their first use, as is `costs`. No other thread may use the session's constants
    meanwhile.
    """

    session: Session
    graph: Graph
    inputs: Sequence[Arrays]
    outputs: Sequence[dict[str, Array]]
    largest: Mapping[str, float]
    moves: dict[int, dict[str, Array]] = field(default_factory=dict, repr=False)
    costs: dict[int, dict[str, float]] = field(default_factory=dict, repr=False)

    @cached_property
    def scales(self) -> dict[str, float]:
        """The scale of every output; see `scales_of`."""
        return scales_of(self.outputs, least_scales(self.graph))

    def with_more(self, inputs: Sequence[Arrays], progress: Progress | None = None) -> Rounding:
        """The plan on these inputs too. Raises what Session.run raises."""
        outputs, found = look(self.session, inputs, progress)
        largest = {name: float(numpy.maximum(value, self.largest[name])) for name, value in found.items()}
        return replace(
            self, inputs=(*self.inputs, *inputs), outputs=(*self.outputs, *outputs), largest=largest
        )

    @cached_property
    def numbers(self) -> Numbers:
        return Numbers(self.session)

    @cached_property
    def groups(self) -> dict[str, Group]:
        """The groups with anything in half, in the order in which they are first written, by the first value's name."""
        plan, values, weights = self.session.plan, dict[object, list[str]](), dict[object, list[Storage]]()
        constants = {place for place, array in plan.content.items() if array.dtype == numpy.float16}
        pending: list[Storage] = []
        for number, launch in enumerate(plan.launches):
            pending += [place for place in launch.reads if place in constants]
            place = self._written.get(number)
            if place is not None and (pending or is_half(place.storage)):
                of_group = weights.setdefault(place.storage if is_half(place.storage) else launch.name, [])
                of_group += pending
                pending = []
        for name, place in plan.placements.items():
            key = place.storage if is_half(place.storage) else name
            if key in weights and name in self.graph.values:
                values.setdefault(key, []).append(name)
        return {
            values[key][0]: Group(
                tuple(values[key]), tuple(dict.fromkeys(found)),
                max(self.graph.values[name].size for name in values[key]),
            )
            for key, found in weights.items() if key in values
        }

    @cached_property
    def group_of(self) -> dict[Storage, str]:
        """The group of each texture of halves."""
        places = self.session.plan.placements
        return {places[name].storage: name for name in self.groups if is_half(places[name].storage)}

    @cached_property
    def _written(self) -> dict[int, Placement]:
        """The values, and the parts of concatenations, that are complete after a launch, by the launch's number."""
        places, last = places_of(self.session.plan, self.graph), dict[str, int]()
        for number, launch in enumerate(self.session.plan.launches):
            if launch.name in places and launch.writes == places[launch.name].storage:
                last[launch.name] = number
        return {number: places[name] for name, number in last.items()}

    @cached_property
    def rounding_launches(self) -> frozenset[int]:
        """The launches that round what they write, by number."""
        launches = self.session.plan.launches
        return frozenset(number for number in self._written if not copies_halves(launches[number], self.graph))

    def moved(self, number: int) -> dict[str, Array]:
        """The outputs for an input if all that is rounded, and the half weights, move by LEAST_UNITS."""
        if number not in self.moves:
            every = frozenset(self.groups)
            self.moves[number] = self.outputs_if(every, number, LEAST_UNITS, self.rounding_launches)
        return self.moves[number]

    @cached_property
    def errors(self) -> list[float]:
        """Returns the cost of all rounding, as a relative error of the outputs, for each of the inputs."""
        return [
            relative_error(self.moved(number), made, self.scales) / distance(LEAST_UNITS)
            for number, made in enumerate(self.outputs)
        ]

    def cost_of(self, groups: frozenset[str], number: int, units: int) -> float:
        """The part of `errors` on an input that is due to these groups, as the root of its square.

        By the mean of squares over each output, which depends less on chance than the largest difference does. units:
        by how many numbers move. The other values are rounded anew: their cost, divided by 2 * units, may come to it.
        """
        made, expected = self.outputs_if(groups, number, units), self.outputs[number]
        parts = (
            cost * mean_square(made[name], expected[name]) ** 0.5 for name, cost in self._costs(number).items() if cost
        )
        return max(parts, default=0.0) / distance(units)

    def _costs(self, number: int) -> dict[str, float]:
        """The relative error of each output of `moved`, divided by the root of the mean of the differences' squares."""
        if number not in self.costs:
            moved, found = self.moved(number), dict[str, float]()
            for name, expected in self.outputs[number].items():
                whole = mean_square(moved[name], expected) ** 0.5
                error = relative_error({name: moved[name]}, {name: expected}, self.scales)
                found[name] = error / whole if whole else 0.0
            self.costs[number] = found
        return self.costs[number]

    def outputs_if(
        self, groups: frozenset[str], number: int, units: int, launches: frozenset[int] | None = None
    ) -> dict[str, Array]:
        """The outputs for an input if these groups move. launches: only what these write (default: all).

        Raises what Session.run raises.
        """
        random, memory, content = numpy.random.default_rng(number), self.session.memory, self.session.plan.content
        places = dict.fromkeys(place for name in self.groups if name in groups for place in self.groups[name].weights)
        moving = {
            launch: place for launch, place in self._written.items()
            if self.group_of.get(place.storage) in groups and (launches is None or launch in launches)
        }
        try:
            for place in places:
                memory.replace(place, moved_halves(content[place], units, int(random.integers(HALVES))))
            for done in self.session.numbered_steps(self.inputs[number]):
                if done in moving:
                    self.numbers.move(moving[done], units, int(random.integers(HALVES)))
        finally:
            for place in places:
                memory.replace(place, content[place])
        return self.session.outputs()


def places_of(plan: Plan, graph: Graph) -> dict[str, Placement]:
    """The placements of the plan, and those of the parts of concatenations that are copied."""
    found = dict(plan.placements)
    for node in graph.nodes:
        if isinstance(node.operation, Concatenation):
            whole, offset = found[node.output.name], 0
            for operand in node.operands:
                part = Placement(whole.storage, operand.view.shape, whole.channel_offset + offset)
                found[part_name(node, offset)] = part
                offset += operand.view.shape[1]
    return found


def is_half(storage: Storage) -> bool:
    return isinstance(storage, Texture) and storage.dtype == FLOAT16


def keeps_halves(expression: Expression) -> bool:
    """Returns whether the result, of halves, is one of them, or the negative of one."""
    return KEEPS_HALVES.issuperset(operations(expression)) and is_exact_in_half(expression)


def copies_halves(launch: Launch, graph: Graph) -> bool:
    """Returns whether all that a launch writes are halves that it reads: it moves them, or takes the larger of some."""
    def keeps(node: Node | None) -> bool:
        if node is None or not keeps_halves(node.epilogue):
            return False
        if isinstance(node.operation, Reduction):
            return node.operation.kind in ("max", "min") and keeps_halves(node.operation.body)
        return isinstance(node.operation, Load)

    nodes = [graph.producers.get(name) for name in launch.values]
    return all(map(is_half, launch.reads)) and (launch.kind == "copy" or bool(nodes) and all(map(keeps, nodes)))


def distance(units: int) -> float:
    """The ratio of moves by up to `units` to rounding errors: of the roots of their mean squares."""
    return float(2 * (units * (units + 1)) ** 0.5)


def mean_square(got: Array, expected: Array) -> float:
    """The mean square of the differences at which both are finite; 0 if there are none."""
    difference = differences(got, expected)
    largest = magnitude(difference)
    if not numpy.isfinite(largest):
        difference = difference[numpy.isfinite(difference)]
        largest = magnitude(difference)
    if not largest:
        return 0.0
    parts = numpy.ravel(difference) / largest  # their squares do not pass the range of a float
    return float(numpy.vdot(parts, parts)) / parts.size * largest**2


def differences(got: Array, expected: Array) -> Array:
    """got - expected: of floats as floats, of other numbers as float64, which holds what they differ by."""
    floats = got.dtype == expected.dtype == numpy.float32
    with numpy.errstate(invalid="ignore", over="ignore"):  # infinite numbers
        return numpy.subtract(got, expected, dtype=numpy.float32 if floats else numpy.float64)


def rounding_of(
    session: Session, graph: Graph, inputs: Sequence[Arrays], progress: Progress | None = None
) -> Rounding:
    """The Rounding of a graph's plan on some inputs. Raises what Session.run raises."""
    return Rounding(session, graph, inputs, *look(session, inputs, progress))


def look(
    session: Session, inputs: Sequence[Arrays], progress: Progress | None = None
) -> tuple[list[dict[str, Array]], dict[str, float]]:
    """The outputs for each of the inputs, and the largest magnitude of every value on them; see `magnitude`."""
    outputs, largest = [], dict.fromkeys(session.plan.made.values(), 0.0)
    numbers = Numbers(session)
    for number, arrays in enumerate(inputs):
        if progress:
            progress(number, len(inputs), "measuring how large values are")
        for name in session.steps(arrays):
            numbers.measure(name)
        largest = {name: float(numpy.maximum(value, largest[name])) for name, value in numbers.largest().items()}
        outputs.append(session.outputs())
    return outputs, largest


def least_scales(graph: Graph) -> dict[str, float]:
    """The least scale of each output: a part of its range, if the graph bounds it as a sigmoid or a clip does; else 0.

    A mask of 1e-7 everywhere is off by half of that in half, and says nothing of a picture with something in it.
    """
    bounds = Bounds(graph)
    for node in graph.nodes:
        for operand in node.all_operands:
            bounds.of_operand(operand)
        bounds.known[node.output.name] = bounds.of_node(node)
    widths = {name: high - low for name, (low, high) in bounds.known.items() if numpy.isfinite(high - low)}
    return {name: widths.get(name, 0.0) * PART_OF_RANGE for name in graph.outputs}


def scales_of(outputs: Sequence[Arrays], least: Mapping[str, float]) -> dict[str, float]:
    """The scale of each output: its largest finite magnitude on one of the inputs, but at least `least`.

    It is the median of the inputs' magnitudes, of two the larger: one drawing may give an output twice what pictures
    give it, and errors beside that look half as large.
    """
    found = {}
    for name, smallest in least.items():
        largest = sorted(magnitude(numpy.where(numpy.isfinite(a[name]), a[name], 0)) for a in outputs)
        found[name] = max(smallest, largest[len(largest) // 2] if largest else 0.0)
    return found


def relative_error(got: Arrays, expected: Arrays, scales: Mapping[str, float] | None = None) -> float:
    """The largest difference of any output, divided by its largest expected value, or by its scale if that is larger.

    inf if `got` is not finite at an element at which `expected` is.
    """
    worst = 0.0
    for name, reference in expected.items():
        made, reference = got[name], reference if reference.dtype.kind == "f" else reference.astype(numpy.float64)
        largest = magnitude(reference)
        if not numpy.isfinite(largest):
            finite = numpy.isfinite(reference)
            made, reference = made[finite], reference[finite]
            largest = magnitude(reference)
        difference = magnitude(differences(made, reference))
        if not numpy.isfinite(difference):
            return float("inf")
        largest = max(largest, scales[name] if scales is not None else 0.0)
        worst = max(worst, difference / largest if largest else difference)
    return worst
