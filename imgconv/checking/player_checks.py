"""Expected results of a plan's launches on random inputs. The player compares with them, because it evaluates no graph.

Each launch has its own inputs, so an error of an earlier launch does not affect it. The file stores no inputs: Python
and the player generate the same random numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy

from imgconv.arrays import Array
from imgconv.checking.alternatives import alternatives_of
from imgconv.checking.error_bounds import HALF_UNIT, UNIT, BoundedValues
from imgconv.checking.comparing import StorageContents, expected_samples, largest_representable, storage_rounding
from imgconv.checking.positions import addresses_at
from imgconv.checking.replacements import ReplacementMaker
from imgconv.checking.sampled import NotCoveredError, Positions
from imgconv.checking.launched_nodes import LaunchedNodes, launched_nodes_of
from imgconv.compiling.plan import Plan, Storage
from imgconv.config import Config
from imgconv.graph.evaluate import evaluate_node
from imgconv.graph.nodes import Gather, Graph, index_operands_of
from imgconv.graph.quantization import Quantization
from imgconv.kernels.layout import Texture
from imgconv.stored.compiled_file import DevicePlan
from imgconv.stored.plan_checks import LaunchCheck, PlanChecks
from imgconv.stored.plan_table import storages_of

SAMPLES = 48  # of a launch, at most: a file has 12 bytes for each
# Roundings by which a step of a recurrence may change the states before it.
ROUNDINGS_OF_A_STEP = 8


def with_checks(made: DevicePlan, graph: Graph, config: Config, states: Mapping[str, str]) -> DevicePlan:
    """The plan with checks of its launches. graph: after the passes. states: see `lower`."""
    subjects = launched_nodes_of(made.plan, graph, states)
    checking = _CheckMaker(made.plan, graph, config, _integer_or_index_storages(made.plan, graph))
    replacing = ReplacementMaker(made.plan, graph, made.target)
    others = alternatives_of(made.plan, graph, config, made.target, states)
    checks = tuple(
        replace(
            checking.check(number, subject), plain=replacing.plain_launches(number, subject),
            alternatives=others.get(number, ()),
        )
        for number, subject in subjects.items()
    )
    return replace(made, checks=PlanChecks(checks, checking.whole, replacing.content))


def random_content(storage: Storage, number: int, whole: bool = False, positive: bool = False) -> Array:
    """The content of a storage that both sides draw: see Check in model.fbs. number: of the storage in the file.

    Numbers have all digits of their dtype: fewer would hide that a copy or a maximum loses some.
    """
    shape = storage.shape
    if isinstance(storage, Texture):
        width, height = storage.tiling.image_size
        shape = storage.tiling.layers, height, width, 4
    x = (numpy.arange(prod(shape), dtype=numpy.uint64) + number * 2654435769).astype(numpy.uint32)
    x ^= x >> 16
    x *= numpy.uint32(2146121005)
    x ^= x >> 15
    x *= numpy.uint32(2221713035)
    x ^= x >> 16
    made: Array = x >> 31
    if storage.dtype.dtype == numpy.uint8:
        made = x >> 24
    elif not whole:
        digits = 24 if storage.dtype == "float32" else 11
        bits = x >> (32 - digits)
        made = (bits + 1) / 2**digits if positive else bits / 2 ** (digits - 1) - 1
    made = made.reshape(shape)
    if isinstance(storage, Texture):
        made = made * storage.tiling.to_image(storage.layout.pack(numpy.ones(storage.shape, numpy.uint8)))
    return made.astype(storage.dtype)


def _dequantized(storage: Storage, content: Array) -> Array:
    """The numbers that the content of a storage stands for."""
    quantized = isinstance(storage, Texture) and storage.quantization
    return quantized.decode(content) if quantized else content


def _quantized_with_bounds(quantization: Quantization, value: Array, bounds: Array) -> tuple[Array, Array, Array]:
    """Values and their bounds as the bytes that hold them, and for which of them the byte is known.

    The bytes of -1 and 0 are 255 and 0: no bound is around both.
    """
    bounds = bounds / quantization.scale
    low, high = (quantization.encode(quantization.scale * (value / quantization.scale + d)) for d in (-bounds, bounds))
    return quantization.encode(value), bounds, high - low <= 2 * bounds + 1


def _rounded_to_bounds(value: Array, bounds: Array) -> tuple[Array, Array]:
    """Values rounded to a part of their bounds, and the bounds plus this rounding.

    Both are stored as floats: compressed, they take half the space.
    """
    _, exponent = numpy.frexp(bounds)
    step = numpy.ldexp(1.0, exponent - 5)
    rounded = numpy.where(bounds > 0, step * numpy.round(value / step), value)
    bounds = bounds + numpy.abs(rounded - value) + UNIT * numpy.abs(value)
    digits, exponent = numpy.frexp(bounds)
    return rounded, numpy.ldexp(numpy.ceil(32 * digits) / 32, exponent)


def _integer_or_index_storages(plan: Plan, graph: Graph) -> frozenset[Storage]:
    """The storages of integers, and of numbers that choose elements: what a driver does with 0.5 is not known."""
    indices = {o.value for node in graph.nodes if isinstance(node.operation, Gather) for o in index_operands_of(node)}
    values = {v.name: v for v in plan.inputs} | graph.values
    names = {name for name, value in values.items() if not value.dtype.startswith("float")} | indices
    places = {name: place.storage for name, place in plan.placements.items()}
    return frozenset(each[name] for each in (places, plan.input_buffers) for name in names & each.keys())


@dataclass(frozen=True)
class _CheckMaker:
    plan: Plan
    graph: Graph
    config: Config
    whole: frozenset[Storage]

    @cached_property
    def numbers(self) -> Mapping[Storage, int]:
        """The number of each storage in the file."""
        return {storage: number for number, storage in enumerate(storages_of(self.plan))}

    def check(self, number: int, subject: LaunchedNodes) -> LaunchCheck:
        """The check of a launch, on numbers of both signs, or on positive ones if they decide more."""
        made = self._check_on_random_content(number, subject, False)
        if made.elements.size and not made.reason:
            return made
        other = self._check_on_random_content(number, subject, True)
        return other if other.elements.size > made.elements.size else made

    def _check_on_random_content(self, number: int, subject: LaunchedNodes, positive: bool) -> LaunchCheck:
        """The check without samples if it is not covered."""
        launch, place, shape = self.plan.launches[number], subject.output, subject.value.shape
        drawn = {each.storage for each in subject.places.values()}
        arrays = {s: _dequantized(s, random_content(s, self.numbers[s], s in self.whole, positive)) for s in drawn}
        reads = {s for n in (number, *subject.parts) for s in self.plan.launches[n].reads}
        half = any(s in self.plan.content and s.dtype == "float16" for s in reads)
        contents = StorageContents(self.graph, self.config, arrays, half)
        if 0 in shape:
            return LaunchCheck(number, subject.parts, reason="it writes nothing")
        try:
            at, made = expected_samples(launch, subject, contents, _RecurrentOutput(subject, contents), number, SAMPLES)
        except NotCoveredError as problem:
            return LaunchCheck(number, subject.parts, positive, reason=str(problem))
        value = made.value.astype(numpy.float64)
        with numpy.errstate(all="ignore"):
            bounds = made.error + storage_rounding(place, value)
            known = numpy.isfinite(bounds) & (numpy.abs(value) + bounds < largest_representable(place))
        if isinstance(place.storage, Texture) and place.storage.quantization:
            value, bounds, is_byte = _quantized_with_bounds(place.storage.quantization, value, bounds)
            known = known & is_byte
        reason = "" if known.all() else "its result depends on rounding"
        where = numpy.broadcast_to(addresses_at(place, at, shape), known.shape)
        value, bounds = _rounded_to_bounds(value[known], bounds[known])
        return LaunchCheck(number, subject.parts, positive, where[known], value, bounds, reason)


@dataclass(frozen=True)
class _RecurrentOutput:
    """The output of a recurrence, whose steps read each other: less exact with every step."""

    subject: LaunchedNodes
    contents: StorageContents

    def __call__(self, at: Positions) -> BoundedValues:
        value = self.states[tuple(at)].astype(numpy.float64)
        unit = HALF_UNIT if self.subject.output.storage.dtype == "float16" else UNIT
        return BoundedValues(value, ROUNDINGS_OF_A_STEP * unit * (1 + self.states.shape[1]) * (1 + numpy.abs(value)))

    @cached_property
    def states(self) -> Array:
        """All steps in float64."""
        (node,) = self.subject.nodes
        return evaluate_node(node, {operand.value: self._array(operand.value) for operand in node.all_operands})

    def _array(self, name: str) -> Array:
        graph = self.contents.graph
        if name in graph.constants:
            return numpy.asarray(graph.constants[name])
        shape = graph.values[name].shape
        positions = [numpy.asarray(p) for p in numpy.indices(shape)]
        return self.contents.elements(self.subject.places[name], name, positions, shape).value.reshape(shape)
