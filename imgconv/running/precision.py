"""Which values of a model may be stored in half, and which nodes may compute in half: measured on the model itself.

Rounding to half has a relative error of 2^-11 at each value. Most networks do not amplify it. A few do, above all in
their first layers of few channels, whose errors pass through all later layers. And half ends at 65504. So:

1. The float plan runs on the given inputs (default: drawn pictures). Values that come near 65504 keep float.
2. Everything else is stored in half. If that changes the outputs by at most the bound, it is the choice.
3. Otherwise the float plan runs again and again, each time with a few textures rounded to half between the launches.
   The values whose rounding changes the outputs most keep float, until the others together cost less than the bound.
4. With float16=2 the nodes compute in half too. If that costs more than the bound, the most sensitive quarter of them
   computes in float, then half of them, three quarters, all.

Each choice is confirmed by a run of the chosen plan itself.

Drawn pictures are of 0 .. 1 and of 0 .. 255: a file does not say the range that its model was trained on. If that was
0 .. 1, the others only keep a few more values in float, those that come near 65504.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy

from imgconv.arrays import Array, Arrays
from imgconv.cl.device import Context
from imgconv.compiling.compiler import Prepared
from imgconv.compiling.plan import Plan
from imgconv.config import Float16, Precision
from imgconv.graph.nodes import Graph, Value
from imgconv.kernels.target import HALF_MAX
from imgconv.running.programs import Progress
from imgconv.running.session import Session

BOUND = 1e-2
# Other pictures may give a layer higher values than the measured ones.
MARGIN = 4.0
# At load: sixteen runs find YOLOX's sensitive layers well enough, in seconds. `imgconv tune` splits to single values.
SPLITS = 8
PARTS = 4



@dataclass(frozen=True)
class PrecisionChoice:
    """The values that keep float, and the largest relative error of the outputs on the measured inputs.

    half_error: that error with everything in half that is not near 65504. largest: the largest magnitude of every value
    in float.
    """

    precision: Precision
    error: float
    half_error: float
    largest: Mapping[str, float] = field(repr=False)


@dataclass(frozen=True)
class Block:
    """Neighbouring values, and the relative error of the outputs if only these values are rounded to half."""

    names: tuple[str, ...]
    error: float


def choose_precision(
    prepared: Prepared, context: Context, progress: Progress | None = None, inputs: Sequence[Arrays] = (),
    bound: float = BOUND, splits: int = SPLITS,
) -> PrecisionChoice:
    """The PrecisionChoice by which the settings' float16 changes the outputs by at most `bound` on the inputs.

    inputs: arrays by input name (default: drawn pictures). splits: how often a block of values is halved, at two runs
    each, to find the sensitive ones. Raises what Session raises.
    """
    measured = _Measured(prepared, context, progress, tuple(inputs) or drawn_inputs(prepared.graph), splits)
    precision = measured.near
    half_error = error = max(measured.half_errors)
    # The aim is half of the bound: errors of neighbours are not quite independent, and other pictures may be worse.
    for share in (bound / 2, bound / 4, 0.0):
        if error <= bound:
            break
        precision = Precision(measured.near.storage | most_sensitive(measured.sensitivity, share))
        error = max(measured.errors(1, precision))
    if prepared.config.float16 == 2:
        storage, error = precision.storage, max(measured.errors(2, precision))
        for part in range(1, PARTS + 1):
            if error <= bound:
                break
            names = [name for block in measured.sensitivity for name in block.names if name not in storage]
            precision = Precision(storage, frozenset(names[: -(-len(names) * part // PARTS)]))
            error = max(measured.errors(2, precision))
    return PrecisionChoice(precision, error, half_error, measured.largest)


def most_sensitive(blocks: Sequence[Block], bound: float) -> frozenset[str]:
    """The values of as many first blocks as needed for the errors of the others to add up to less than `bound`.

    Rounding errors are independent: they add up as the root of the sum of their squares.
    """
    rest = [sum(block.error**2 for block in blocks[count:]) ** 0.5 for count in range(len(blocks))]
    count = next((count for count, error in enumerate(rest) if error < bound), len(blocks))
    return frozenset(name for block in blocks[:count] for name in block.names)


@dataclass(frozen=True)
class _Measured:
    """A graph on a device: its float plan and that plan's results for the inputs, each measured at its first use."""

    prepared: Prepared
    context: Context
    progress: Progress | None
    inputs: tuple[Arrays, ...]
    splits: int

    def plan(self, float16: Float16, precision: Precision) -> Plan:
        return self.prepared.plan(replace(self.prepared.config, float16=float16, precision=precision))

    @cached_property
    def session(self) -> Session:
        """The float plan on the device."""
        return Session(self.plan(0, Precision()), self.context, self.progress)

    @cached_property
    def exact(self) -> list[dict[str, Array]]:
        """The outputs in float, for each of the inputs."""
        return [self.session.run(inputs) for inputs in self.inputs]

    @cached_property
    def largest(self) -> dict[str, float]:
        """The largest magnitude of every value in float, on all inputs; NaN if an element is NaN."""
        found: dict[str, float] = {}
        for inputs in self.inputs:
            for name in self.session.steps(inputs):
                value = magnitude(self.session.value(name))
                found[name] = float(numpy.maximum(value, found.get(name, 0.0)))
        return found

    def errors(self, float16: Float16, precision: Precision) -> list[float]:
        """The relative error of the outputs of a plan, for each of the inputs."""
        session = Session(self.plan(float16, precision), self.context, self.progress, [self.session])
        return [relative_error(session.run(i), exact) for i, exact in zip(self.inputs, self.exact, strict=True)]

    @cached_property
    def near(self) -> Precision:
        """The Precision that keeps float for values that may overflow half, or are not finite in float either."""
        return Precision(frozenset(name for name, value in self.largest.items() if not value * MARGIN <= HALF_MAX))

    @cached_property
    def half_errors(self) -> list[float]:
        """`errors` with everything in half that is not near 65504."""
        return self.errors(1, self.near)

    @cached_property
    def sensitivity(self) -> list[Block]:
        """Every value that could be stored in half, in blocks, the most sensitive first.

        The most sensitive block is halved repeatedly. Measured on the input for which half storage costs most.
        """
        plan = self.plan(1, self.near)
        blocks = [Block(tuple(n for n in plan.made.values() if plan.placements[n].storage.dtype == "float16"), 0.0)]
        for number in range(self.splits):
            largest = next((block for block in blocks if len(block.names) > 1), None)
            if largest is None:
                break
            if self.progress:
                self.progress(number, self.splits, "measuring what half storage costs")
            middle = len(largest.names) // 2
            parts = largest.names[:middle], largest.names[middle:]
            blocks = [block for block in blocks if block is not largest]
            blocks = sorted([*blocks, *map(self.block, parts)], key=lambda block: -block.error)
        return blocks

    def block(self, names: tuple[str, ...]) -> Block:
        """The Block of these values: the float plan runs, and each of them is rounded as soon as it is computed."""
        worst = self.half_errors.index(max(self.half_errors))
        for name in self.session.steps(self.inputs[worst]):
            if name in names:
                self.session.round_to_half(name)
        return Block(names, relative_error(self.session.outputs(), self.exact[worst]))


def magnitude(array: Array) -> float:
    """The largest absolute value; NaN if an element is NaN."""
    return float(numpy.max(numpy.abs(array), initial=0.0))


def relative_error(got: Arrays, expected: Arrays) -> float:
    """The largest difference of any output, divided by its largest expected value.

    inf if `got` is not finite at an element at which `expected` is.
    """
    worst = 0.0
    for name, reference in expected.items():
        wide, other = reference.astype(numpy.float64), got[name].astype(numpy.float64)
        finite = numpy.isfinite(wide)
        if not numpy.all(numpy.isfinite(other[finite])):
            return float("inf")
        largest = float(numpy.max(numpy.abs(wide[finite]), initial=0.0))
        difference = float(numpy.max(numpy.abs(wide[finite] - other[finite]), initial=0.0))
        worst = max(worst, difference / largest if largest else difference)
    return worst


def drawn_inputs(graph: Graph) -> tuple[Arrays, ...]:
    """Pictures of 0 .. 1 and of 0 .. 255 for every input."""
    return tuple({value.name: _drawn(value, scale) for value in graph.inputs} for scale in (1.0, 255.0))


def _drawn(value: Value, scale: float) -> Array:
    """An input of 0 .. scale with the spectrum of pictures: amplitude falls as one over the spatial frequency."""
    random = numpy.random.default_rng(1)
    shape = value.shape
    if len(shape) < 2 or 0 in shape or not value.dtype.startswith("float"):
        return (random.random(shape) * (scale if value.dtype.startswith("float") else 1)).astype(value.dtype)
    rows, columns = shape[-2:]
    frequency = numpy.hypot(numpy.fft.fftfreq(rows)[:, None], numpy.fft.rfftfreq(columns)[None])
    frequency[0, 0] = 1 / max(rows, columns)
    noise = numpy.fft.irfft2(numpy.fft.rfft2(random.standard_normal(shape)) / frequency, s=(rows, columns))
    low, high = noise.min(), noise.max()
    return numpy.asarray((noise - low) * (scale / max(high - low, 1e-9)), value.dtype)
