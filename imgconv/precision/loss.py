"""The error measure: how much the outputs change when chosen values are rounded to fp16.

A session in fp32 runs. Each chosen value is rounded in place as soon as it is computed, and the weights of the launches
that compute it are rounded before. The change of the outputs is the cost of storing these values as fp16, whatever the
graph does with them. So one session can measure any set of values. Values in one texture are rounded together or not at
all: a `StorageGroup`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy

from imgconv.arrays import Array, Arrays
from imgconv.compiling.plan import Plan, Storage
from imgconv.dtype import FLOAT16
from imgconv.graph.nodes import Graph
from imgconv.graph.value_ranges import ValueRanges
from imgconv.kernels.layout import Texture
from imgconv.precision.statistics import TensorStatistics, is_float, magnitude
from imgconv.runtime.session import Session

# Of the range of a bounded output, what counts as its least scale: below it halves have fewer digits.
PART_OF_RANGE = 2.0**-14


@dataclass(frozen=True)
class StorageGroup:
    """Values that are half together, and the half weights of what computes them.

    values: keeping it in float takes the names of all of them. textures, weights: in the float plan. size: in numbers.
    """

    values: frozenset[str]
    textures: frozenset[Texture]
    weights: frozenset[Storage]
    size: int


def storage_groups(half: Plan, reference: Plan, graph: Graph) -> dict[str, StorageGroup]:
    """The items of a plan in half, in the order in which they are first written. reference: the plan in float."""
    constants: dict[tuple[str, str], dict[str, Storage]] = {}
    for launch in reference.launches:
        found = {place.name: place for place in launch.reads if place in reference.content}
        constants.setdefault((launch.kind, launch.name), {}).update(found)
    stored: dict[Storage, list[str]] = {}
    for name, place in half.placements.items():
        if is_half(place.storage) and name in graph.values:
            stored.setdefault(place.storage, []).append(name)
    values, weights = dict[str, dict[str, None]](), dict[str, set[Storage]]()
    for launch in half.launches:
        known = constants.get((launch.kind, launch.name), {})
        narrow = [place.name for place in launch.reads if place in half.content and place.dtype == FLOAT16]
        rounded = {known[name] for name in narrow if name in known}
        written = stored.get(launch.writes) or (rounded and launch.values)
        if written:
            made = [name for name in (*written, *launch.values) if name in graph.values]
            values.setdefault(written[0], {}).update(dict.fromkeys(made))
            weights.setdefault(written[0], set()).update(rounded)
    items = {}
    for key, names in values.items():
        places = {reference.placements[name].storage for name in names if name in reference.placements}
        textures = frozenset(filter(is_float, places))
        size = max(graph.values[name].size for name in names)
        items[key] = StorageGroup(frozenset(names), textures, frozenset(weights[key]), size)
    return items


class HalfSimulation:
    """Runs of a float session in which the values of chosen items, and their weights, are rounded to half.

    No other thread may use the session's constants until `restore`.
    """

    def __init__(self, session: Session, items: Mapping[str, StorageGroup]) -> None:
        """Raises BuildError, ResourceError."""
        self.session, self.items = session, items
        self._statistics = TensorStatistics(session)
        self._rounded: frozenset[Storage] = frozenset()

    def outputs(self, names: Collection[str], inputs: Arrays) -> dict[str, Array]:
        """The outputs with the items of these names in half. Raises what Session.run raises."""
        textures = frozenset(texture for name in names for texture in self.items[name].textures)
        in_float = frozenset(w for name, item in self.items.items() if name not in names for w in item.weights)
        self._round_weights(frozenset(w for name in names for w in self.items[name].weights) - in_float)
        launches = self.session.plan.launches
        for number in self.session.numbered_steps(inputs):
            storage = launches[number].writes
            if isinstance(storage, Texture) and storage in textures:
                self._statistics.round(storage)
        return self.session.outputs()

    def restore(self) -> None:
        """Gives the session its own weights back."""
        self._round_weights(frozenset())

    def _round_weights(self, rounded: frozenset[Storage]) -> None:
        content = self.session.plan.content
        for place in rounded ^ self._rounded:
            array = content[place]
            if place in rounded:
                with numpy.errstate(over="ignore"):
                    array = array.astype(numpy.float16).astype(array.dtype)
            self.session.memory.replace(place, array)
        self._rounded = rounded


def is_half(storage: Storage) -> bool:
    """Returns whether this is a texture of halves."""
    return isinstance(storage, Texture) and storage.dtype == FLOAT16


def is_lost(made: Arrays, expected: Arrays) -> bool:
    """Returns whether an output is not finite where it should be, or is zero everywhere and should not be."""
    for name, exact in expected.items():
        finite = numpy.isfinite(exact)
        if not numpy.isfinite(made[name][finite]).all() or exact[finite].any() and not made[name][finite].any():
            return True
    return False


def least_scales(graph: Graph) -> dict[str, float]:
    """The least scale of each output: a part of its range, if the graph bounds it as a sigmoid or a clip does; else 0.

    A mask of 1e-7 everywhere is off by half of that in half, and says nothing of a picture with something in it.
    """
    bounds = ValueRanges(graph)
    for node in graph.nodes:
        for operand in node.all_operands:
            bounds.of_operand(operand)
        bounds.known[node.output.name] = bounds.of_node(node)
    widths = {name: high - low for name, (low, high) in bounds.known.items() if numpy.isfinite(high - low)}
    return {name: widths.get(name, 0.0) * PART_OF_RANGE for name in graph.outputs}


def scales_of(outputs: Sequence[Arrays], least: Mapping[str, float]) -> dict[str, float]:
    """Returns the scale of each output: its largest finite magnitude on one of the inputs, but at least `least`.

    It is the median over the inputs (the larger of two). One synthetic input may produce an output twice as large as
    pictures do, and errors relative to it would look half as large.
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
        # Differences of other numbers than floats need float64.
        dtype = numpy.float32 if made.dtype == reference.dtype == numpy.float32 else numpy.float64
        with numpy.errstate(invalid="ignore", over="ignore"):  # infinite numbers
            difference = magnitude(numpy.subtract(made, reference, dtype=dtype))
        if not numpy.isfinite(difference):
            return float("inf")
        largest = max(largest, scales[name] if scales is not None else 0.0)
        worst = max(worst, difference / largest if largest else difference)
    return worst
