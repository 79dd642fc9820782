"""What rounding to half costs, by the half plan alone: nothing is computed in float.

The plan runs twice on the same input. In the second run some numbers move by a unit in their last place, up or down:
one in six of the weights in half, and of each value in half as soon as it is computed. The outputs then differ by about
what the rounding costs: rounding is off by the root of 1/12 of a unit, such moves by the root of 1/6, so the estimate
is high rather than low. Equal numbers move alike, as they are rounded alike: the error of a flat area does not average
out. This is stochastic arithmetic (Vignes 1993, A stochastic arithmetic for reliable scientific
computation), with the moves after each launch instead of each operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy

from imgconv.arrays import Array, Arrays
from imgconv.graph.nodes import Graph
from imgconv.graph.value_ranges import Bounds
from imgconv.running.programs import Progress
from imgconv.running.session import Session

# Of the range of a bounded output, what counts as its least scale: below it halves have fewer digits.
PART_OF_RANGE = 2.0**-14
MOVED = 1 / 6


@dataclass(frozen=True)
class Rounding:
    """The relative difference of the outputs, and the largest magnitude of every value; see `magnitude`."""

    error: float
    largest: Mapping[str, float]


def rounding_of(
    session: Session, inputs: Sequence[Arrays], scales: Mapping[str, float], progress: Progress | None = None
) -> Rounding:
    """The Rounding of a plan, whose constants no other session uses, on some inputs. Raises what Session.run raises.

    scales: the least scale of each output, see `relative_error`.
    """
    random, memory = numpy.random.default_rng(0), session.memory
    outputs = [session.run(arrays) for arrays in inputs]
    halves = {place: array for place, array in session.plan.content.items() if array.dtype == numpy.float16}
    try:
        for place, array in halves.items():
            memory.replace(place, moved_halves(array, random))
        moved, largest = look(session, inputs, progress, lambda array: moved_halves(array, random))
    finally:
        for place, array in halves.items():
            memory.replace(place, array)
    scales = scales_of(outputs, scales)
    errors = [relative_error(found, exact, scales) for found, exact in zip(moved, outputs, strict=True)]
    return Rounding(max(errors), largest)


def look(
    session: Session, inputs: Sequence[Arrays], progress: Progress | None = None,
    change: Callable[[Array], Array] | None = None,
) -> tuple[list[dict[str, Array]], dict[str, float]]:
    """The outputs for each of the inputs, and the largest magnitude of every value on them; see `magnitude`.

    change: what each texture in half becomes as soon as it is computed.
    """
    outputs, largest = [], dict.fromkeys(session.plan.made.values(), 0.0)
    for number, arrays in enumerate(inputs):
        if progress:
            progress(number, len(inputs), "measuring how large values are")
        for name in session.steps(arrays):
            largest[name] = float(numpy.maximum(magnitude(session.memory.numbers(name)), largest[name]))
            if change:
                session.memory.change(name, "float16", change)
        outputs.append(session.outputs())
    return outputs, largest


def moved_halves(array: Array, random: numpy.random.Generator) -> Array:
    """The halves; one in six numbers moves up or down by a unit in its last place. Zeros and infinities stay."""
    bits = numpy.arange(1 << 16, dtype=numpy.uint16)
    drawn, size = random.integers(0, 256, bits.shape, numpy.uint8), bits & 0x7FFF
    steps = (drawn < 128 * MOVED).astype(numpy.uint16) - (drawn >= 256 - 128 * MOVED).astype(numpy.uint16)
    moved = numpy.where((size > 1) & (size < 0x7BFF), bits + steps, bits)
    return moved[array.view(numpy.uint16)].view(numpy.float16)


def magnitude(array: Array) -> float:
    """The largest absolute value; NaN if an element is NaN."""
    if array.dtype != numpy.float16:
        return float(numpy.max(numpy.abs(array), initial=0.0))
    # As integers: numpy has no fast comparison of halves. All NaN are above all numbers.
    bits = numpy.max(numpy.ascontiguousarray(array).view(numpy.uint16) & 0x7FFF, initial=0)
    return float(numpy.uint16(bits).view(numpy.float16))


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
        wide, other = reference.astype(numpy.float64), got[name].astype(numpy.float64)
        finite = numpy.isfinite(wide)
        if not numpy.all(numpy.isfinite(other[finite])):
            return float("inf")
        largest = max(magnitude(wide[finite]), scales[name] if scales is not None else 0.0)
        difference = float(numpy.max(numpy.abs(wide[finite] - other[finite]), initial=0.0))
        worst = max(worst, difference / largest if largest else difference)
    return worst
