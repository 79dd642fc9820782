"""Compares the results of a launch with the expected results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal

import numpy

from imgconv.arrays import Array
from imgconv.checking.error_bounds import HALF_TINY, HALF_UNIT, TINY, UNIT, ArithmeticErrors, BoundedValues
from imgconv.checking.launched_nodes import LaunchedNodes
from imgconv.checking.positions import elements_at, positions_of_each_operand, sampled_positions
from imgconv.checking.sampled import NotCoveredError, Positions, SampledEvaluator
from imgconv.compiling.plan import Launch, Storage
from imgconv.compiling.textures import small_weight_limit
from imgconv.config import Config
from imgconv.dtype import FLOAT32
from imgconv.graph.nodes import Convolution, Graph, Reduction
from imgconv.graph.view import Shape
from imgconv.kernels.layout import Placement
from imgconv.kernels.target import HALF_MAX
from imgconv.kernels.winograd.problem import Problem as Winograd2d

Verdict = Literal["right", "wrong", "not covered"]
MOST, FEWEST = 512, 12  # positions of an output
ELEMENTS = 1 << 16  # that all positions of an output read, about, unless FEWEST read more
CHOOSING = 8  # times as many of a maximum: a wrong element shows only where it would be the largest
MANY_ELEMENTS = 1 << 20  # if FEWEST read more, they are of one map: a normalisation then reads one
WINOGRAD_ROUNDINGS = 10.0  # of Winograd's filtering for one of a plain sum
HALF_WINOGRAD_ROUNDINGS = 4.0  # the same in half
LARGE_TILE_ROUNDINGS = 4.0  # of F(4x4, 3x3) for one of F(2x2, 3x3)
TILE_ROUNDINGS = 3.0  # to half of a term of either: a tap, its weight and its sum over the channels
RUN = 32  # terms of a run in half, or those of an input quad if that are more
FLOAT_MAX = float(numpy.finfo(numpy.float32).max)
# The error of a native function, relative to 1 + |x|: where NATIVE_EXPLOG asks for them, which OpenCL leaves to the
# driver (3e-4 is the largest known), and where FLOAT16 takes those that are below the rounding to half.
NATIVE, NATIVE_FOR_HALF = 2.0**-10, 2.0**-13


@dataclass(frozen=True)
class LaunchVerdict:
    """The verdict on a launch. text: the reason, or the worst position. samples: positions that were compared.

    untouched: every sample is what lay there before the launch. again: a wrong launch was right when launched again.
    """

    launch: str
    kernel: str
    verdict: Verdict
    text: str = ""
    samples: int = 0
    untouched: bool = False
    again: bool = False

    def __str__(self) -> str:
        return f"{self.verdict}: {self.launch}, {self.kernel}" + (f": {self.text}" if self.text else "")


@dataclass(frozen=True)
class StorageContents:
    """The contents of a plan's storages: inputs, and what launches have written. graph: has the constants."""

    graph: Graph
    config: Config
    arrays: Mapping[Storage, Array]
    half_constants: bool = False

    def elements(self, place: Placement, name: str, position: Positions, shape: Shape) -> BoundedValues:
        """The elements of a stored value as numbers of its dtype."""
        dtype = self.graph.values[name].dtype if name in self.graph.values else "float32"
        broadcast = tuple(numpy.broadcast_arrays(*position)) if position else ()
        found = elements_at(place, self.arrays[place.storage], broadcast, shape).astype(numpy.float64)
        if dtype.startswith("float"):
            return BoundedValues.exact(found)
        known = numpy.isfinite(found)  # NaN stands for an integer that is not known
        return BoundedValues(numpy.where(known, found, 0).astype(numpy.int64), numpy.where(known, 0.0, numpy.inf))

    def element_reader(self, places: Mapping[str, Placement]) -> Callable[[str, Positions], BoundedValues]:
        """Returns the `read` of a SampledEvaluator."""

        def read(name: str, position: Positions) -> BoundedValues:
            if name in places:
                return self.elements(places[name], name, position, self.graph.values[name].shape)
            array = numpy.asarray(self.graph.constants[name])
            found = array[tuple(position)] if array.ndim else array
            if array.dtype.kind != "f":
                return BoundedValues.exact(found.astype(numpy.int64))
            half = self.half_constants and array.size > small_weight_limit(self.config)
            value = found.astype(numpy.float64)
            return BoundedValues(value, numpy.abs(value) * (HALF_UNIT if half else UNIT) + (HALF_TINY if half else 0))

        return read


def judge_launch(
    launch: Launch, subject: LaunchedNodes, contents: StorageContents, pattern: float, seed: int
) -> LaunchVerdict:
    """Returns the verdict on a launch. pattern: what its output was overwritten with before."""
    shape, place = subject.value.shape, subject.output
    kernel = f"{launch.source.path} {launch.specialisation}".strip()
    if prod(shape) == 0:
        return LaunchVerdict(launch.name, kernel, "right")

    def output(at: Positions) -> BoundedValues:
        made = contents.elements(place, subject.value.name, at, shape)
        return BoundedValues(made.value, made.error + storage_rounding(place, made.value))

    try:
        at, expected = expected_samples(launch, subject, contents, output, seed)
    except NotCoveredError as reason:
        return LaunchVerdict(launch.name, kernel, "not covered", str(reason))
    found = elements_at(place, contents.arrays[place.storage], at, shape).astype(numpy.float64).reshape(-1)
    return _compare_samples(LaunchVerdict(launch.name, kernel, "right"), found, expected, at, place, pattern)


def expected_samples(
    launch: Launch, subject: LaunchedNodes, contents: StorageContents, output: Callable[[Positions], BoundedValues],
    seed: int, limit: int = MOST,
) -> tuple[tuple[Array, ...], BoundedValues]:
    """Returns positions of a launch's output, and the right values before they are stored. Raises NotCoveredError.

    output: see SampledEvaluator. limit: of the positions.
    """
    shape, arithmetic = subject.value.shape, arithmetic_errors_of(launch, subject, contents.config)
    sampled = SampledEvaluator(
        contents.element_reader(subject.places), {node.output.name: node for node in subject.nodes[:-1]}, output,
        arithmetic,
    )
    tried = _value_positions(sampled_positions(subject.output, 1, seed), subject, shape)
    sampled.evaluate_at(subject.nodes[-1], tried, len(tried[0]) if tried else 1)
    one = max(sampled.elements_read, 1)
    last = subject.nodes[-1].operation
    more = CHOOSING if isinstance(last, Reduction) and last.kind in ("max", "min", "argmax") else 1
    most, expensive = max(FEWEST, more * min(limit, ELEMENTS // one)), FEWEST * one > MANY_ELEMENTS
    at = _value_positions(sampled_positions(subject.output, most, seed, expensive), subject, shape)
    if not expensive and prod(shape) > most:
        reading = positions_of_each_operand(subject.nodes[-1], seed)[: most // 4]
        for axis, along in enumerate(at):
            along[most - len(reading) :] = reading[:, axis]  # in place of random ones
    sampled.elements_read = 0
    return at, sampled.evaluate_at(subject.nodes[-1], at, len(at[0]) if at else 1)


def _value_positions(position: tuple[Array, ...], subject: LaunchedNodes, shape: Shape) -> tuple[Array, ...]:
    """Positions of the placement as those of the value, which may have another shape of the same size."""
    if subject.output.shape == shape:
        return position
    flat = numpy.ravel_multi_index(position, subject.output.shape) if position else numpy.zeros(1, numpy.int64)
    return tuple(numpy.unravel_index(flat, shape)) if shape else ()


def _compare_samples(
    finding: LaunchVerdict, found: Array, expected: BoundedValues, at: tuple[Array, ...], place: Placement,
    pattern: float
) -> LaunchVerdict:
    value = expected.value.astype(numpy.float64)
    most = largest_representable(place)
    with numpy.errstate(all="ignore"):
        bound = expected.error + storage_rounding(place, value)
        decided = numpy.isfinite(bound) & ~numpy.isnan(value)
        over = (numpy.abs(value) + bound >= most) & (numpy.abs(found) >= most * (1 - HALF_UNIT)) & (value * found > 0)
        off = numpy.where(found == value, 0.0, numpy.abs(found - value))
        wrong = decided & ~((off <= bound) | over)
    untouched = bool((found == numpy.dtype(place.storage.dtype).type(pattern)).all())
    if not decided.any():
        return LaunchVerdict(finding.launch, finding.kernel, "not covered", "its result depends on rounding")
    if not wrong.any():
        return LaunchVerdict(finding.launch, finding.kernel, "right", "", int(decided.sum()))
    beyond = numpy.where(wrong, numpy.nan_to_num(off / bound, nan=numpy.inf, posinf=numpy.inf), -1)
    worst = int(numpy.argmax(beyond))
    where = [int(p[worst]) for p in at]
    text = "it wrote nothing" if untouched else (
        f"{int(wrong.sum())} of {int(decided.sum())} numbers are wrong: at {where} {found[worst]:.7g} in place of "
        f"{value[worst]:.7g}, at most {bound[worst]:.1g} off"
    )
    return LaunchVerdict(finding.launch, finding.kernel, "wrong", text, int(decided.sum()), untouched)


def largest_representable(place: Placement) -> float:
    """Returns the largest number that a storage holds."""
    return HALF_MAX if place.storage.dtype == "float16" else FLOAT_MAX


def storage_rounding(place: Placement, value: Array) -> Array:
    """The error of rounding to the type of a storage. A driver may cut off digits of a half, as rusticl (22.3) does."""
    unit, tiny = (2 * HALF_UNIT, HALF_TINY) if place.storage.dtype == "float16" else (UNIT, TINY)
    made: Array = unit * numpy.abs(value.astype(numpy.float64)) + tiny
    return made


def arithmetic_errors_of(launch: Launch, subject: LaunchedNodes, config: Config) -> ArithmeticErrors:
    """Returns how exactly a launch computes."""
    native = NATIVE if config.native_explog else NATIVE_FOR_HALF if config.float16 else 0.0
    choice, sums = launch.choice, launch.sums
    window = max(
        (prod(n.operands[1].view.shape[2:]) for n in subject.nodes if isinstance(n.operation, Convolution)), default=1
    )
    tile = choice.problem.tile if choice is not None and isinstance(choice.problem, Winograd2d) else 0
    transformed = WINOGRAD_ROUNDINGS if tile else 1.0
    in_half = min(transformed, HALF_WINOGRAD_ROUNDINGS)
    if tile == 4:
        transformed, in_half = LARGE_TILE_ROUNDINGS * transformed, LARGE_TILE_ROUNDINGS * in_half
    if sums == "half":
        return ArithmeticErrors(HALF_UNIT, native, HALF_UNIT, transformed=in_half, between=HALF_UNIT)
    stored = {place.storage.dtype for place in (*subject.places.values(), subject.output)}
    if tile and stored != {FLOAT32}:  # taps are stored as the input, their sums as the output
        return ArithmeticErrors(UNIT, native, HALF_UNIT, TILE_ROUNDINGS, in_half)
    if sums == "runs":
        return ArithmeticErrors(UNIT, native, HALF_UNIT, max(RUN, 4 * window), transformed, HALF_UNIT)
    return ArithmeticErrors(UNIT, native, UNIT, transformed=transformed)
