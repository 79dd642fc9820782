"""Which values of a model may be stored in half, and which nodes may compute in half: measured on the model itself.

Rounding to half has a relative error of 2^-11 at each value. Most networks do not amplify it. A few do, above all in
their first layers of few channels, whose errors pass through all later layers. And half ends at 65504. So:

1. The float plan runs on the given inputs (default: drawn pictures). Values that come near 65504 keep float.
2. Everything else is stored in half. If that changes the outputs by at most the bound, it is the choice.
3. Otherwise the float plan runs again and again, each time with a few textures rounded to half between the launches.
   The values whose rounding changes the outputs most keep float, until the others together cost less than the bound.
4. With float16=2 convolutions sum in half too. If that costs too much, the plan runs again and again, each time with a
   few of them summing in half and the others in float. Those that cost most sum in short runs instead. If that costs
   too much as well, the same tells which of these sum in float.

Each choice is confirmed by a run of the chosen plan itself.

A sum in half overflows at 65504 on the way, and loses terms that are small beside it: other pictures may do what the
measured ones do not. So step 4 also judges on `other_inputs`: two in the range of the measured ones, one four times as
far. On each of all these, sums may use up half of what storage leaves of the bound.

Drawn pictures are of 0 .. 1 and of 0 .. 255: a file does not say the range that its model was trained on. If that was
0 .. 1, the others only keep a few more values in float, those that come near 65504.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy

from imgconv.arrays import Array, Arrays
from imgconv.cl.device import Context
from imgconv.compiling.compiler import Prepared
from imgconv.compiling.plan import Plan
from imgconv.config import Float16, Precision, Sums
from imgconv.graph.nodes import Graph, Value
from imgconv.kernels.target import HALF_MAX
from imgconv.running.programs import Progress
from imgconv.running.session import Session

BOUND = 1e-2
# Other pictures may give a layer higher values than the measured ones.
MARGIN = 4.0
# At load: sixteen runs find YOLOX's sensitive layers well enough, in seconds. `imgconv tune` splits to single values.
SPLITS = 8
# Of what storage in half leaves of the bound, the part that sums in half may use.
SHARE_OF_SUMS = 0.5


@dataclass(frozen=True)
class PrecisionChoice:
    """The values that stay wider, and the largest relative error of the outputs on the measured inputs.

    With float16=2 also on the other inputs. half_error: the error on the measured inputs with everything in half
    storage that is not near 65504. largest: the largest magnitude of every value
    in float.
    """

    precision: Precision
    error: float
    half_error: float
    largest: Mapping[str, float] = field(repr=False)


@dataclass(frozen=True)
class Block:
    """Neighbouring values, and the relative error of the outputs if only these values are in half."""

    names: tuple[str, ...]
    error: float


def choose_precision(
    prepared: Prepared, context: Context, progress: Progress | None = None, inputs: Sequence[Arrays] = (),
    bound: float = BOUND, splits: int = SPLITS,
) -> PrecisionChoice:
    """The PrecisionChoice by which the settings' float16 changes the outputs by at most `bound` on the inputs.

    inputs: arrays by input name (default: drawn pictures). splits: how often a block of values is halved, at two runs
    each, to find the sensitive ones, in each of the three searches. Raises what Session raises.
    """
    measured = _Measured(prepared, context, progress, tuple(inputs) or drawn_inputs(prepared.graph), splits)
    precision, session, errors = measured.near, measured.half, measured.half_errors
    half_error = error = max(errors)
    # The aim is half of the bound: errors of neighbours are not quite independent, and other pictures may be worse.
    for share in (bound / 2, bound / 4, 0.0):
        if error <= bound:
            break
        precision = Precision(measured.near.storage | most_sensitive(measured.sensitivity, share))
        session = measured.new_session(1, precision)
        errors = measured.errors(session)
        error = max(errors)
    if prepared.config.float16 == 2:
        precision, error = _choose_sums(_Sums(measured, precision.storage, session, tuple(errors), bound))
    return PrecisionChoice(precision, error, half_error, measured.largest)


def _choose_sums(sums: _Sums) -> tuple[Precision, float]:
    """The Precision whose sums are as narrow as the bound allows, and the largest error on the measured inputs."""
    nothing: frozenset[str] = frozenset()
    if found := sums.tried(nothing, nothing):
        return found
    in_half, in_runs = sums.costs("half", sums.names), None
    for share in (sums.room, sums.room / 4):
        wider = most_sensitive(in_half, share)
        if found := sums.tried(wider, nothing):
            return found
        in_runs = in_runs or sums.costs("runs", tuple(name for name in sums.names if name in wider))
        in_float = most_sensitive(in_runs, share)
        if found := sums.tried(wider - in_float, in_float):
            return found
    return sums.precision(nothing, frozenset(sums.names)), max(sums.errors)


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
    def in_float(self) -> tuple[list[dict[str, Array]], dict[str, float]]:
        """`exact` and `largest`, of the same runs."""
        exact: list[dict[str, Array]] = []
        found: dict[str, float] = {}
        for inputs in self.inputs:
            for name in self.session.steps(inputs):
                value = magnitude(self.session.value(name))
                found[name] = float(numpy.maximum(value, found.get(name, 0.0)))
            exact.append(self.session.outputs())
        return exact, found

    @property
    def exact(self) -> list[dict[str, Array]]:
        """The outputs in float, for each of the inputs."""
        return self.in_float[0]

    @property
    def largest(self) -> dict[str, float]:
        """The largest magnitude of every value in float, on all inputs; NaN if an element is NaN."""
        return self.in_float[1]

    def errors(self, session: Session) -> list[float]:
        """The relative error of the outputs of another plan, for each of the inputs."""
        return [relative_error(session.run(i), exact) for i, exact in zip(self.inputs, self.exact, strict=True)]

    def new_session(self, float16: Float16, precision: Precision, lenders: Sequence[Session] = ()) -> Session:
        """Another plan on the device. lenders: sessions of which it takes kernels that it has in common with them."""
        return Session(self.plan(float16, precision), self.context, self.progress, [self.session, *lenders])

    @cached_property
    def near(self) -> Precision:
        """The Precision that keeps float for values that may overflow half, or are not finite in float either."""
        return Precision(frozenset(name for name, value in self.largest.items() if not value * MARGIN <= HALF_MAX))

    @cached_property
    def half(self) -> Session:
        """The plan that stores everything in half that is not near 65504."""
        return self.new_session(1, self.near)

    @cached_property
    def half_errors(self) -> list[float]:
        """`errors` of that plan."""
        return self.errors(self.half)

    @cached_property
    def sensitivity(self) -> list[Block]:
        """Every value that could be stored in half, in blocks, the most sensitive first.

        The most sensitive block is halved repeatedly. Measured on the input for which half storage costs most.
        """
        plan = self.half.plan
        names = tuple(n for n in plan.made.values() if plan.placements[n].storage.dtype == "float16")
        return self.split(names, self.block, "half storage costs")

    def split(self, names: tuple[str, ...], measure: Callable[[tuple[str, ...]], Block], what: str) -> list[Block]:
        """The values in blocks, the most sensitive first: the most sensitive one is halved and measured repeatedly."""
        blocks = [Block(names, 0.0)]
        for number in range(self.splits):
            largest = next((block for block in blocks if len(block.names) > 1), None)
            if largest is None:
                break
            if self.progress:
                self.progress(number, self.splits, f"measuring what {what}")
            middle = len(largest.names) // 2
            parts = largest.names[:middle], largest.names[middle:]
            blocks = [block for block in blocks if block is not largest]
            blocks = sorted([*blocks, *map(measure, parts)], key=lambda block: -block.error)
        return blocks

    def block(self, names: tuple[str, ...]) -> Block:
        """The Block of these values: the float plan runs, and each of them is rounded as soon as it is computed."""
        worst = self.half_errors.index(max(self.half_errors))
        for name in self.session.steps(self.inputs[worst]):
            if name in names:
                self.session.round_to_half(name)
        return Block(names, relative_error(self.session.outputs(), self.exact[worst]))


@dataclass(frozen=True)
class _Judged:
    """Inputs, their outputs in float, and the outputs' relative error: with sums in float, and the most allowed one."""

    inputs: Arrays
    outputs: Arrays
    error: float
    allowed: float


@dataclass(frozen=True)
class _Sums:
    """Plans of one storage that differ in how convolutions sum, and how far their outputs are from float.

    wide: the plan with sums in float. errors: its errors on the measured inputs.
    """

    measured: _Measured
    storage: frozenset[str]
    wide: Session
    errors: tuple[float, ...]
    bound: float

    @cached_property
    def narrow(self) -> Session:
        """The plan with sums in half."""
        return self.measured.new_session(2, Precision(self.storage), [self.wide])

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The values whose nodes can sum in half."""
        return tuple(launch.name for launch in self.narrow.plan.launches if launch.sums == "half")

    @cached_property
    def judged(self) -> list[_Judged]:
        """What sums are judged on: the measured inputs, then others.

        Storage alone may be over the bound on another input, which then says nothing of sums and is left out.
        """
        measured = self.measured
        found = list(zip(measured.inputs, measured.exact, self.errors, strict=True))
        for inputs in other_inputs(measured.prepared.graph, measured.inputs):
            exact = measured.session.run(inputs)
            error = relative_error(self.wide.run(inputs), exact)
            found += [(inputs, exact, error)] if error <= self.bound else []
        return [
            _Judged(inputs, exact, error, error + max(0.0, SHARE_OF_SUMS * (self.bound - error)))
            for inputs, exact, error in found
        ]

    @property
    def room(self) -> float:
        """The error that sums may add on the input with least room."""
        return min(each.allowed - each.error for each in self.judged)

    def precision(self, runs: frozenset[str], in_float: frozenset[str]) -> Precision:
        return Precision(self.storage, in_float, runs)

    def tried(self, runs: frozenset[str], in_float: frozenset[str]) -> tuple[Precision, float] | None:
        """The Precision with these values summed in runs and in float, the others in half, and the largest error.

        The error is that on the measured inputs. None if an error is more than allowed.
        """
        session = self.narrow
        if runs or in_float:
            session = self.measured.new_session(2, self.precision(runs, in_float), [self.wide, self.narrow])
        errors = [relative_error(session.run(each.inputs), each.outputs) for each in self.judged]
        if any(not error <= each.allowed for error, each in zip(errors, self.judged, strict=True)):
            return None
        return self.precision(runs, in_float), max(errors[: len(self.measured.inputs)])

    @cached_property
    def worst(self) -> tuple[Arrays, dict[str, Array]]:
        """Of the judged inputs, those for which sums in half cost most, and their outputs with sums in float."""

        def excess(each: _Judged) -> float:
            return relative_error(self.narrow.run(each.inputs), each.outputs) - each.allowed

        inputs = max(self.judged, key=excess).inputs
        return inputs, self.wide.run(inputs)

    def costs(self, sums: Sums, names: tuple[str, ...]) -> list[Block]:
        """The values in blocks, the most sensitive first, by the error if only a block sums so, and the rest in float.

        sums: "half" or "runs". The error is the difference from the outputs with all sums in float.
        """
        lenders = [self.wide, self.narrow]
        if sums == "runs":
            lenders.append(self.measured.new_session(2, self.precision(frozenset(names), frozenset()), lenders))
        inputs, expected = self.worst

        def block(part: tuple[str, ...]) -> Block:
            runs = frozenset(part) if sums == "runs" else frozenset()
            precision = self.precision(runs, frozenset(self.names) - frozenset(part))
            made = self.measured.new_session(2, precision, lenders).run(inputs)
            return Block(part, relative_error(made, expected))

        return self.measured.split(names, block, f"sums in {sums} cost")


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
    return tuple(
        {value.name: _drawn(value, 0.0, scale if value.dtype.startswith("float") else 1.0) for value in graph.inputs}
        for scale in (1.0, 255.0)
    )


def other_inputs(graph: Graph, inputs: Sequence[Arrays]) -> tuple[Arrays, ...]:
    """Three drawings that are none of the inputs: in the range of their smallest, of their largest, MARGIN times that.

    The smallest and the largest are those of least and of greatest magnitude. Integers stay in the range.
    """
    ordered = sorted(inputs, key=lambda arrays: max((magnitude(a) for a in arrays.values()), default=0.0))
    made = []
    for seed, (given, scale) in enumerate(((ordered[0], 1.0), (ordered[-1], 1.0), (ordered[-1], MARGIN)), 2):
        drawn = {}
        for value in graph.inputs:
            low, high = _range(given[value.name])
            factor = scale if value.dtype.startswith("float") else 1.0
            drawn[value.name] = _drawn(value, factor * low, factor * high, seed)
        made.append(drawn)
    return tuple(made)


def _range(array: Array) -> tuple[float, float]:
    """The least and the greatest finite element; 0 and 1 if there is none."""
    finite = array[numpy.isfinite(array)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)


def _drawn(value: Value, low: float, high: float, seed: int = 1) -> Array:
    """An input of low .. high with the spectrum of pictures: amplitude falls as one over the spatial frequency."""
    random, shape = numpy.random.default_rng(seed), value.shape
    if len(shape) < 2 or 0 in shape or not value.dtype.startswith("float"):
        return (low + random.random(shape) * (high - low)).astype(value.dtype)
    rows, columns = shape[-2:]
    frequency = numpy.hypot(numpy.fft.fftfreq(rows)[:, None], numpy.fft.rfftfreq(columns)[None])
    frequency[0, 0] = 1 / max(rows, columns)
    noise = numpy.fft.irfft2(numpy.fft.rfft2(random.standard_normal(shape)) / frequency, s=(rows, columns))
    least, most = noise.min(), noise.max()
    return numpy.asarray(low + (noise - least) * ((high - low) / max(most - least, 1e-9)), value.dtype)
